"""A check on a machine whose GPU does not answer."""

import os
import subprocess
import sys

import pytest

from warpbook.common.files import PROJECT
from warpbook.common.supervision import VariantFailure, run_supervised
from warpbook.runs import tables


def test_a_check_whose_gpu_does_not_answer_is_a_row_that_says_so(tmp_path):
    command = [sys.executable, str(PROJECT / "scripts" / "check_variant.py"), "--device", "gpu", "--cases", "fa17"]
    command += ["--variant", "direct", "--sizes", "1", "--timeout", "60", "--out", str(tmp_path / "rows.csv")]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, check=True, capture_output=True, env=hidden)
    (row,) = tables.CORRECTNESS.rows(tmp_path / "rows.csv")
    assert row["status"] == "launch_failed"
    assert row["reason"].startswith("direct: no CUDA device here: ")


def refuse():
    raise VariantFailure("refused", "the GPU is gone")
    yield


def test_a_failure_crosses_from_the_child_as_it_was():
    with pytest.raises(VariantFailure, match="the GPU is gone") as raised:
        list(run_supervised(refuse, 10))
    assert raised.value.status == "refused"
