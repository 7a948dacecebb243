"""The Dockerfile's instructions, each run here as far as a machine that is no image allows.

Nothing is installed: apt-get and pip only simulate, pip against the environment that the tests run in. So these tests
see a command that is misspelt, a package that is not there, and a file that an instruction needs before it was copied;
they see nothing of the base image, nor of what its own packages lack.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from warpbook.common.files import PROJECT

IGNORED = shutil.ignore_patterns(".git", ".venv*", ".snakemake", "results", "logs", "out", "__pycache__", ".*_cache")


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of the Dockerfile in turn."""
    lines = (PROJECT / "Dockerfile").read_text().splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]


def copy(words: str, folder: Path) -> None:
    source, target = words.split()
    path = PROJECT / source
    if path.is_dir():
        shutil.copytree(path, folder / target, ignore=IGNORED, dirs_exist_ok=True)
    else:
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / target)


def test_each_instruction_finds_what_it_needs_in_what_was_copied_before_it(tmp_path):
    simulated = tmp_path / "apt.conf"
    simulated.write_text('APT::Get::Simulate "true";\n')
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (folder / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    environment = {**os.environ, "APT_CONFIG": str(simulated), "PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1"}
    done = []
    for instruction, words in instructions():
        if instruction == "COPY":
            copy(words, folder)
        elif instruction == "RUN":
            if words.startswith("apt-get") and not shutil.which("apt-get"):
                continue
            ran = subprocess.run(["sh", "-c", words], cwd=folder, env=environment, capture_output=True, text=True)
            assert ran.returncode == 0, f"{words}\n{ran.stdout}{ran.stderr}"
            done.append(words)
        else:
            assert instruction in ("FROM", "WORKDIR", "CMD"), f"{instruction} is not tried here"
    assert any("requirements/cuda13.txt" in words for words in done)
    assert (folder / ".venv" / "installed-test").exists()


def test_the_image_makes_the_report_with_what_it_installed(tmp_path):
    """`make report` in the image installs nothing more."""
    ((_, words),) = [it for it in instructions() if it[0] == "CMD"]
    assert words == '["make", "report"]'
    for name in ("Makefile", "requirements"):
        copy(f"{name} {name}", tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "installed").touch()
    said = subprocess.run(["make", "--dry-run", "report"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "install.sh" not in said.stdout
    assert ".venv/bin/snakemake --cores all report" in said.stdout
