"""One measuring lock a machine, whoever holds it and whatever stands in its place."""

import fcntl
import os
import stat

import pytest

from warpbook.common.errors import UserError
from warpbook.machine import locks


def free(path) -> bool:
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def test_the_lock_is_held_inside_and_free_outside(tmp_path):
    with locks.lock_machine(path=tmp_path / "lock"):
        assert not free(tmp_path / "lock")
    assert free(tmp_path / "lock")


def test_a_folder_that_the_environment_names_holds_the_lock_where_everybody_may_write(tmp_path, monkeypatch):
    monkeypatch.setenv(locks.LOCKS_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=f"none of {tmp_path} is writable for all and sticky"):
        locks.lock_path()
    tmp_path.chmod(0o1777)
    assert locks.lock_path() == tmp_path / "warpbook-measuring.lock"


def test_a_folder_that_not_everybody_may_write_to_is_no_place_for_it(tmp_path, monkeypatch):
    monkeypatch.delenv(locks.LOCKS_VARIABLE, raising=False)
    ours, everybody_s = tmp_path / "ours", tmp_path / "everybody_s"
    ours.mkdir(mode=0o755)
    everybody_s.mkdir()
    everybody_s.chmod(0o1777)
    monkeypatch.setattr(locks, "FOLDERS", (tmp_path / "missing", ours, everybody_s))
    assert locks.lock_path().parent == everybody_s
    monkeypatch.setattr(locks, "FOLDERS", (ours,))
    with pytest.raises(UserError, match="no folder for the measuring lock"):
        locks.lock_path()


def test_every_user_may_read_the_lock_file_whatever_the_umask_of_its_maker(tmp_path):
    before = os.umask(0o077)
    try:
        with locks.lock_machine(path=tmp_path / "lock"):
            assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o644
    finally:
        os.umask(before)


def link(path):
    path.symlink_to(path.with_name("elsewhere"))


def target_of_a_link(path):
    path.with_name("elsewhere").write_text("precious")
    link(path)


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (link, "a symbolic link, which is not followed; remove it"),
        (target_of_a_link, "a symbolic link, which is not followed; remove it"),
        (os.mkdir, "no regular file; remove it"),
        (os.mkfifo, "no regular file; remove it"),
    ],
)
def test_what_stands_in_the_lock_s_place_is_named_and_not_followed(tmp_path, put, words):
    path = tmp_path / "lock"
    put(path)
    with pytest.raises(UserError, match=words), locks.lock_machine(path=path):
        pass
    assert not path.with_name("elsewhere").exists() or path.with_name("elsewhere").read_text() == "precious"
