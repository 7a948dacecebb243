#!/usr/bin/env bash
# Make a virtual environment from a lock file and see that this machine has what the environment cannot bring.
#
#     scripts/install.sh FOLDER LOCK...         e.g. scripts/install.sh .venv requirements/cuda13.txt
#
# Installs missing system packages where it may (root, apt-get); elsewhere it prints the one command to type.
set -euo pipefail
folder=$1
shift

say() { printf 'install: %s\n' "$*" >&2; }
stop() { say "$@"; exit 1; }

# A Python of 3.11 or later: the one named in PYTHON, else the machine's own, else another.
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python=
for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if is_new_enough "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || stop "no Python 3.11 or later is on the PATH (python3 is $(python3 --version 2>&1 || true)); install one, or name it: make PYTHON=/path/to/python3.12"

# System packages, by what must be there for them not to be needed.
missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')")
has_library() { "$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1" 2>/dev/null; }
has_library libpango-1.0.so.0 || missing+=(libpango-1.0-0)
has_library libpangoft2-1.0.so.0 || missing+=(libpangoft2-1.0-0)
has_library libharfbuzz-subset.so.0 || missing+=(libharfbuzz-subset0)
# Wanted but not needed: without them the images are downloaded, no GPU kernel is run on the CPU, and kernels run on the
# CPU with the user's rights.
wanted=()
command -v g++ >/dev/null || wanted+=(g++)
command -v bwrap >/dev/null || wanted+=(bubblewrap)
[ -e /usr/share/datasets/fashion-mnist ] || [ -e results/data/fashion-mnist ] || [ -n "${FASHION_MNIST:-}" ] || wanted+=(dataset-fashion-mnist)

if [ ${#missing[@]} -gt 0 ] || [ ${#wanted[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing ${missing[*]} ${wanted[*]} with apt-get"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >/dev/null || say "apt-get update failed; trying with the lists that are here"
        [ ${#missing[@]} -eq 0 ] || apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
            || stop "apt-get could not install ${missing[*]}"
        for package in "${wanted[@]}"; do
            apt-get install -y -qq --no-install-recommends "$package" >/dev/null || say "apt-get has no $package; going on without"
        done
    elif [ ${#missing[@]} -gt 0 ]; then
        stop "system packages are missing; type:  sudo apt-get install -y ${missing[*]} ${wanted[*]}"
    fi
fi

# What an interruption left half made is made again. pip writes the RECORD of a package last, and takes one without it
# for installed: its programs would be missing for ever.
for package in "$folder"/lib/python*/site-packages/*.dist-info; do
    [ -e "$package/RECORD" ] || rm -rf "$package"
done
compgen -G "$folder/lib/python*/site-packages/pip-*.dist-info" >/dev/null && "$folder/bin/python" -m pip --version >/dev/null 2>&1 \
    || { say "making $folder with $("$python" --version)"; "$python" -m venv --clear "$folder"; }
for lock in "$@"; do
    say "installing from $lock"
    "$folder/bin/python" -m pip install -qq --no-compile --disable-pip-version-check --require-hashes -r "$lock"
done
# pip would compile on one core, and the packages' tests too. A file that is no Python module fails here, without harm.
"$folder/bin/python" -m compileall -qq -j 0 -x /tests/ "$folder"/lib/python*/site-packages || true
