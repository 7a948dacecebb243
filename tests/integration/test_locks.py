"""The measuring lock of a machine, held by processes of their own."""

import os
import pwd
import subprocess
import sys

import pytest

from warpbook.common.files import PROJECT
from warpbook.machine import locks


def test_tmpdir_does_not_make_a_second_lock(tmp_path):
    program = "from warpbook.machine import locks; print(locks.lock_path())"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts"), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(locks.lock_path())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_another_user_s_lock_serves_where_it_may_be_read_and_is_named_where_not(tmp_path, mode):
    folder = tmp_path / "everybody_s"
    folder.mkdir()
    folder.chmod(0o1777)
    for parent in (tmp_path, *tmp_path.parents[:3]):  # of a worker's folder one more than of pytest's alone
        if "pytest" in parent.as_posix():
            parent.chmod(0o755)
    path = folder / "lock"
    path.touch()
    path.chmod(mode)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from warpbook.common import errors; from warpbook.machine import locks\n"
        "os.setuid(int(sys.argv[2]))\n"
        "def main():\n"
        "    with locks.lock_machine(path=Path(sys.argv[1])):\n"
        "        print('held')\n"
        "sys.exit(errors.exit_status(main))\n"
    )
    command = [sys.executable, "-c", program, str(path), str(pwd.getpwnam("nobody").pw_uid)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if mode == 0o644:
        assert done.stdout.strip() == "held", done.stderr
    else:
        assert done.returncode == 2
        assert "belongs to root and may not be read; have root run chmod a+r" in done.stderr
