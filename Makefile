# make report     from a fresh clone to reports/out/<study>.pdf
# make test       lint, types, the direction of imports and the unit tests: minutes
# make test-all   every test
# make docs       the documentation site; make gallery: the reports that it shows
# make submission path=<folder> study=sp25, make grade submissions=<folder of folders> study=sp25: the course's
# make autograder study=sp25      reports/out/sp25-autograder.zip, for Gradescope
# Each installs what is missing first, and is silent when nothing is.

.PHONY: report submission grade autograder test test-all test-cases lint chaos attacks test-cuda12 lock format docs gallery benchmark
.SILENT:
export PYTHONUTF8 = 1
# Images for containers set it: each of our many short programs would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

# A command whose words are for those whom it fails.
quietly = words=$$($(1) 2>&1) || { echo "$$words"; exit 1; }

# A variable that a command needs, and what it is.
needs = test -n '$($(1))' || { echo 'error: make $@ needs $(1)=<$(2)>' >&2; exit 2; }

# Three of the tests' files at a time: some wait, and two would leave a fifth of two cores idle.
workers = --numprocesses 3 --dist loadfile --no-loadscope-reorder

report: .venv/installed
	.venv/bin/snakemake --cores all report

submission: .venv/installed
	$(call needs,path,the folder of the submission)
	$(call needs,study,its term as in config.yaml: sp25)
	.venv/bin/snakemake --cores all submission --config path='$(path)' study='$(study)'

grade: .venv/installed
	$(call needs,submissions,a folder with one folder for each submission)
	$(call needs,study,its term as in config.yaml: sp25)
	.venv/bin/snakemake --cores all grade --config submissions='$(submissions)' study='$(study)'

# The zip that Gradescope takes: what is committed, and its two programs beside it.
autograder:
	$(call needs,study,a term as in config.yaml: sp25)
	mkdir -p results reports/out
	echo '$(study)' > results/term.txt
	git archive --format=zip --add-file=autograder/setup.sh --add-file=autograder/run_autograder \
		--add-file=results/term.txt --output=reports/out/'$(study)'-autograder.zip HEAD

test: lint
	.venv/bin/python -m pytest --numprocesses 2 tests/unit

lint: .venv/installed-test
	.venv/bin/ruff check --quiet
	.venv/bin/ruff format --quiet --check
	$(call quietly,.venv/bin/snakefmt --check Snakefile rules)
	$(call quietly,.venv/bin/snakemake --lint)
	$(call quietly,PYTHONPATH=scripts .venv/bin/lint-imports)
	.venv/bin/mypy --no-error-summary

# GPU tests run in one process: a measurement is refused where another process computes on its GPU.
test-all: test
	.venv/bin/python -m pytest tests/gpu
	.venv/bin/python -m pytest $(workers) tests/integration

test-cases: .venv/installed-test
	.venv/bin/python -m pytest --numprocesses 2 tests/cases

# 20,000 damaged and hostile inputs to every reader (the suite draws 300), a disk that fails at every one of a program's
# first 200 writes (the suite takes 2), 40 kills of a study's commands and of grading (the suite: 1), eight locales and
# folders (the suite: 2), and 2,000 calls timed inside the sandbox and outside (the suite: 60). It writes the table of
# faults in the documentation.
TESTED = docs/explanation/tested-attacks.md
chaos: .venv/installed-test
	CHAOS_EXAMPLES=20000 CHAOS_WRITES=200 CHAOS_KILLS=40 CHAOS_ROUNDS=2000 CHAOS_PLACES=8 .venv/bin/python -m pytest \
		-o faulthandler_timeout=0 --update-doc $(TESTED) tests/integration/test_mutations.py \
		tests/integration/test_damaged_profiles.py tests/integration/test_faults.py tests/integration/test_kills.py \
		tests/integration/test_one_sentence.py tests/integration/test_sandboxed_jobs.py

# Kernels and launchers that cheat, on the CPU and emulated. It writes the table of attacks in the documentation.
attacks: .venv/installed-test
	mkdir -p results
	.venv/bin/python scripts/attack_harness.py --device cpu emulator --out results/attacks.csv --update-doc $(TESTED)

# The CUDA 12 install: its compiler builds every kernel for the architectures that CUDA 13 left behind.
test-cuda12: .venv-cuda12/installed-test
	.venv-cuda12/bin/python -m pytest --numprocesses 2 --dist load -k 'not (sm_75 or sm_80 or sm_90 or sm_100)' tests/integration/test_building.py

.venv/installed: requirements/cuda13.txt
	scripts/install.sh .venv $<
	touch $@

.venv/installed-test: .venv/installed requirements/test.txt
	scripts/install.sh .venv requirements/test.txt
	touch $@

.venv-cuda12/installed-test: requirements/cuda12.txt requirements/test.txt
	scripts/install.sh .venv-cuda12 $^
	touch $@

# Needs uv. The locks name no index, and hold for every platform and Python that pyproject.toml allows.
COMPILE = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock"
lock:
	for cuda in cuda13 cuda12; do $(COMPILE) --extra $$cuda pyproject.toml -o requirements/$$cuda.txt || exit; done
	$(COMPILE) --group pyproject.toml:test -c requirements/cuda13.txt -c requirements/cuda12.txt -o requirements/test.txt

format: .venv/installed-test
	.venv/bin/ruff check --quiet --fix
	.venv/bin/ruff format --quiet
	$(call quietly,.venv/bin/snakefmt Snakefile rules)

# The documentation site: reports/out/docs/index.html. The variables silence advertisements for other generators.
docs: .venv/installed-test
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true .venv/bin/mkdocs build --strict --quiet

# The documentation's six reports, from their notebook folders in docs/gallery: PDFs for `make docs`, and pictures.
gallery: .venv/installed-test
	.venv/bin/python docs/build_gallery.py

# How long the main commands take here, and how much disk they need.
benchmark: .venv/installed
	.venv/bin/python scripts/benchmark.py
