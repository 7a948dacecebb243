"""What holds unit tests to their tier: they start no process and read no archived run."""

import contextlib
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from warpbook.common.files import PROJECT

with contextlib.suppress(ImportError):  # a process of its own, where CuPy is first imported
    import cuda.pathfinder  # noqa: F401

INSTEAD = "move it to tests/integration"


@pytest.fixture(autouse=True)
def within_the_unit_tier(request, monkeypatch):
    """A test that starts or forks a process, or opens an archive of reports/runs, fails: it belongs elsewhere."""
    assert "committed_archive" not in request.fixturenames, f"a unit test opens an archive; {INSTEAD}"
    opened = zipfile.ZipFile.__init__

    def no_process(self, command, *arguments, **options):
        self.returncode, self.args = None, command  # what its repr shows
        pytest.fail(f"a unit test starts a process, {command}; {INSTEAD}")

    def no_fork():
        pytest.fail(f"a unit test forks; {INSTEAD}")

    def no_archive(self, file, *arguments, **options):
        if isinstance(file, str | Path) and Path(file).resolve().is_relative_to(PROJECT / "reports"):
            pytest.fail(f"a unit test opens {file}; {INSTEAD}")
        opened(self, file, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", no_process)
    monkeypatch.setattr(os, "fork", no_fork)
    monkeypatch.setattr(zipfile.ZipFile, "__init__", no_archive)
