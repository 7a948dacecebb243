"""What holds unit tests to their tier: they start no process and read no archived run."""

import subprocess
import zipfile

import pytest

from warpbook.common.files import PROJECT


@pytest.fixture(autouse=True)
def within_the_unit_tier(monkeypatch):
    """A test that starts a process, or opens an archive of reports/runs, fails: it belongs in tests/integration."""
    opened = zipfile.ZipFile.__init__

    def no_process(*arguments, **options):
        pytest.fail(f"a unit test starts a process: {arguments[:1]}; move it to tests/integration")

    def no_archive(self, file, *arguments, **options):
        if str(file).startswith(str(PROJECT / "reports")):
            pytest.fail(f"a unit test opens {file}; move it to tests/integration")
        opened(self, file, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", no_process)
    monkeypatch.setattr(zipfile.ZipFile, "__init__", no_archive)
