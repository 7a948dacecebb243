"""Work done in a process of its own."""

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from warpbook.report import background_process
from warpbook.report.background_process import run_in_background
from warpbook.report.pdf import UndrawableImage

alone = pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one processor: nothing is done meanwhile")


def note(path):
    path.write_text(str(os.getpid()))


@alone
def test_work_is_done_in_another_process_while_the_block_runs(tmp_path):
    file = tmp_path / "pid"
    with run_in_background(note, file):
        deadline = time.monotonic() + 20
        while not (file.exists() and file.read_text()):
            assert time.monotonic() < deadline
    assert file.read_text() != str(os.getpid())


def test_with_one_processor_the_work_is_done_here(tmp_path, monkeypatch):
    monkeypatch.setattr(background_process.os, "sched_getaffinity", lambda _: {0})
    with run_in_background(note, tmp_path / "pid"):
        pass
    assert (tmp_path / "pid").read_text() == str(os.getpid())


def fail():
    raise UndrawableImage({"\u3042"})


def test_what_the_work_raises_is_raised_here():
    with pytest.raises(UndrawableImage, match=r"no font has U\+3042") as failed, run_in_background(fail):
        pass
    assert failed.value.characters == {"\u3042"}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@alone
def test_a_process_that_dies_is_told_as_a_lack_of_memory():
    with pytest.raises(MemoryError, match="died with status -9"), run_in_background(die):
        pass


def litter(file):
    file.write_text(tempfile.mkdtemp())
    time.sleep(60)


@alone
def test_where_the_block_fails_the_work_ends_and_leaves_no_temporary_file(tmp_path):
    began, file = time.monotonic(), tmp_path / "folder"
    with pytest.raises(ZeroDivisionError), run_in_background(litter, file):
        while not (file.exists() and file.read_text()):
            assert time.monotonic() - began < 20
        assert Path(file.read_text()).exists()
        _ = 1 / 0
    assert not Path(file.read_text()).exists()
    assert time.monotonic() - began < 30
