"""A GPU's variant in the sandbox."""

import subprocess
import sys

import pytest

from warpbook.harness import sandbox
from warpbook.harness.attacks import attack_registry
from warpbook.runs import tables


@pytest.mark.gpu
@pytest.mark.skipif(bool(sandbox.unavailable_reason()), reason=sandbox.unavailable_reason())
def test_a_gpu_variant_is_checked_in_the_sandbox(tmp_path):
    if reason := sandbox.gpu_unavailable_reason():
        pytest.skip(reason)
    out = tmp_path / "checked.csv"
    command = [sys.executable, attack_registry.CHECK, "--device", "gpu", "--variant", "direct", "--cases", "fa17"]
    command += ["--sizes", "1", "--timeout", "120", "--sandbox", "all", "--out", out]
    subprocess.run(command, check=True, capture_output=True)
    assert all(row["ok"] or row["status"] == "unsupported" for row in tables.CORRECTNESS.rows(out))
