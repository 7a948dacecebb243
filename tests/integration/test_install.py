"""The script that makes a virtual environment: what an interruption left half made is made good."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from warpbook.common.files import PROJECT


def install(folder: Path, lock: Path) -> None:
    subprocess.run(["bash", PROJECT / "scripts" / "install.sh", folder, lock], check=True)


@pytest.fixture(scope="module")
def lock(tmp_path_factory) -> Path:
    """A lock of one package with a program, which is here."""
    wheel = tmp_path_factory.mktemp("wheel") / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("tiny.py", "def main(): print('here')\n")
        packed.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        packed.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr("tiny-1.0.dist-info/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
        packed.writestr("tiny-1.0.dist-info/RECORD", "")
    lock = wheel.with_name("lock.txt")
    lock.write_text(f"tiny @ {wheel.as_uri()} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return lock


def test_what_an_interruption_left_half_made_is_made_again(tmp_path, lock):
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for half in ("pip", "pip-1.0.dist-info"):  # of a pip that was not written to its end
        (packages / half).mkdir()
    install(folder, lock)
    program = folder / "bin" / "tiny"
    assert subprocess.check_output([program], text=True) == "here\n"

    program.unlink()
    (packages / "tiny-1.0.dist-info" / "RECORD").unlink()
    install(folder, lock)
    assert subprocess.check_output([program], text=True) == "here\n"
