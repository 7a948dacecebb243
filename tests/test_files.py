import errno
import os
import subprocess
import sys

import pytest

from conftest import PROJECT
from warpbook.errors import UserError
from warpbook.files import written_whole


def test_a_file_appears_whole(tmp_path):
    with written_whole(tmp_path / "sub" / "out.csv") as temporary:
        temporary.write_text("all of it")
        assert not (tmp_path / "sub" / "out.csv").exists()
        assert temporary.suffix == ".csv"
    assert (tmp_path / "sub" / "out.csv").read_text() == "all of it"
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["out.csv"]


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "out.csv").write_text("before")
    with pytest.raises(RuntimeError), written_whole(tmp_path / "out.csv") as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert (tmp_path / "out.csv").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_a_folder_replaces_a_folder(tmp_path):
    for content in ("one", "two"):
        with written_whole(tmp_path / "run") as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["two"]


def test_a_full_disk_is_named_with_the_file(tmp_path):
    words = r"out\.csv cannot be written: No space left on device"
    with pytest.raises(UserError, match=words), written_whole(tmp_path / "out.csv"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_a_file_beyond_the_size_limit_of_the_process_is_not_left_half_written(tmp_path):
    # The kernel refuses the write as it does on a full disk or quota.
    script = (
        "import resource, signal, sys; sys.path.insert(0, 'scripts')\n"
        "from warpbook import tables\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "row = {n: ('x' * 200 if c.dtype == 'string' else 1) for n, c in tables.BUILDS.columns.items()}\n"
        f"tables.BUILDS.write([{{**row, 'arch': str(i)}} for i in range(50)], {str(tmp_path / 'builds.csv')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "builds.csv cannot be written: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
