"""Reports that only the profilers' own tools read."""

import os

import pytest

from warpbook.common.errors import UserError
from warpbook.profiling import importing


def test_a_tool_that_fails_on_its_report_is_quoted(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for begin, tool in ((b"NVIDIA Tegra Profiler Report", "nsys"), (b"NVR\0", "ncu")):
        (tmp_path / tool).write_text("#!/bin/sh\necho 'the report is of a newer version' >&2\nexit 1\n")
        (tmp_path / tool).chmod(0o755)
        (tmp_path / "r.rep").write_bytes(begin)
        with pytest.raises(UserError, match="failed: the report is of a newer version"):
            importing.read(tmp_path / "r.rep")
