import errno
import fcntl
import os
import shutil

import pytest

from warpbook.common.errors import UserError
from warpbook.common.files import atomic_write
from warpbook.machine import locks


def test_a_file_appears_whole(tmp_path):
    with atomic_write(tmp_path / "sub" / "out.csv") as temporary:
        temporary.write_text("all of it")
        assert not (tmp_path / "sub" / "out.csv").exists()
        assert temporary.suffix == ".csv"
    assert (tmp_path / "sub" / "out.csv").read_text() == "all of it"
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["out.csv"]


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "out.csv").write_text("before")
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "out.csv") as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert (tmp_path / "out.csv").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_a_folder_replaces_a_folder(tmp_path):
    for content in ("one", "two"):
        with atomic_write(tmp_path / "run") as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["two"]


def test_a_full_disk_is_named_with_the_file(tmp_path):
    words = r"out\.csv cannot be written: No space left on device"
    with pytest.raises(UserError, match=words), atomic_write(tmp_path / "out.csv"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named_in_a_line():
    with (
        pytest.raises(UserError, match=r"^/proc/mine/out\.csv cannot be written: "),
        atomic_write("/proc/mine/out.csv"),
    ):
        pass


def test_a_folder_that_is_swept_loses_its_name_before_its_files(tmp_path, monkeypatch):
    """So that a process which just made it, and finds it unlocked, does not take it for its own."""
    left = tmp_path / ".figures.csv.abcdefgh"
    left.mkdir()
    still_named = []

    def rmtree(folder, ignore_errors, remove=shutil.rmtree):
        still_named.append(left.exists())
        remove(folder, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with atomic_write(tmp_path / "figures.csv") as temporary:
        temporary.write_text("1")
    assert not any(still_named)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.csv"]


def over_nfs(handle, operation, flock=fcntl.flock):
    """flock as NFS has it: what is locked alone is a file that is open for writing, and a lock held elsewhere is
    EACCES."""
    writable = fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    if operation & fcntl.LOCK_EX and not writable:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    try:
        flock(handle, operation)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error


def test_over_nfs_what_a_killed_writer_left_is_removed_and_a_living_one_s_work_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", over_nfs)
    (tmp_path / ".out.csv.abcd1234").mkdir()
    with atomic_write(tmp_path / "out.csv") as first:
        assert not (tmp_path / ".out.csv.abcd1234").exists()
        first.write_text("first")
        with atomic_write(tmp_path / "out.csv") as second:
            second.write_text("second")
    assert (tmp_path / "out.csv").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_over_nfs_a_second_snakemake_in_a_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", over_nfs)
    locks.lock_folder(tmp_path / ".lock")
    with pytest.raises(UserError, match="another snakemake works in this folder"):
        locks.lock_folder(tmp_path / ".lock")


def test_a_filesystem_without_locks_is_said(tmp_path, monkeypatch, capsys):
    def refuse(handle, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    locks.lock_folder(tmp_path / ".lock")
    assert "this filesystem knows no locks (No locks available)" in capsys.readouterr().err


@pytest.mark.parametrize("folder", [False, True])
def test_what_gets_its_name_is_on_the_disk(tmp_path, monkeypatch, folder):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), fsync(handle)))
    with atomic_write(tmp_path / "out") as temporary:
        if folder:
            temporary.mkdir()
        file = temporary / "file" if folder else temporary
        file.write_text("all of it")
        assert synced == []
    assert synced == [(tmp_path / "out" / "file" if folder else tmp_path / "out").stat().st_ino]


def test_two_writers_of_a_file_leave_each_other_s_work_alone(tmp_path):
    with atomic_write(tmp_path / "out.csv") as first:
        first.write_text("first")
        with atomic_write(tmp_path / "out.csv") as second:
            second.write_text("second")
        assert (tmp_path / "out.csv").read_text() == "second"
    assert (tmp_path / "out.csv").read_text() == "first"


def test_a_full_disk_is_named_though_the_writer_fails_on_top_of_it(tmp_path):
    with (
        pytest.raises(UserError, match=r"out\.zip cannot be written: No space left"),
        atomic_write(tmp_path / "out.zip"),
    ):
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            raise ValueError("Can't close the ZIP file while there is an open writing handle on it")
