"""Writers of files that are stopped in their midst."""

import os
import subprocess
import sys

from warpbook.common.files import PROJECT, atomic_write


def test_a_file_beyond_the_size_limit_of_the_process_is_not_left_half_written(tmp_path):
    # The kernel refuses the write as it does on a full disk or quota.
    script = (
        "import resource, signal, sys; sys.path.insert(0, 'scripts')\n"
        "from warpbook.runs import tables\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "row = {n: ('x' * 200 if c.dtype == 'string' else 1) for n, c in tables.BUILDS.columns.items()}\n"
        f"tables.BUILDS.write([{{**row, 'arch': str(i)}} for i in range(50)], {str(tmp_path / 'builds.csv')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode != 0
    assert (
        "builds.csv cannot be written: File too large (the limit on a file's size is 0 KiB (ulimit -f unlimited)"
        in done.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    killed = (
        "import os; from warpbook.common.files import atomic_write\n"
        f"with atomic_write({str(tmp_path / 'out.csv')!r}) as temporary:\n"
        "    temporary.write_text('half'); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", killed], env={**os.environ, "PYTHONPATH": str(PROJECT / "scripts")})
    assert len(list(tmp_path.glob(".out.csv.*"))) == 1, "the writer was not killed in its midst"
    (tmp_path / ".out.csv.gz.abcd1234").mkdir()  # of another file
    with atomic_write(tmp_path / "out.csv") as temporary:
        temporary.write_text("all of it")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.csv.gz.abcd1234", "out.csv"]
