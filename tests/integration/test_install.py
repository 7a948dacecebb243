"""The script that makes a virtual environment: what an interruption left half made is made good."""

import subprocess
import sys

from warpbook.common.files import PROJECT


def test_an_environment_left_without_pip_by_an_interruption_is_made_again(tmp_path):
    folder, lock = tmp_path / "venv", tmp_path / "empty.txt"
    lock.touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    subprocess.run(["bash", PROJECT / "scripts" / "install.sh", folder, lock], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "--version"], check=True)
