"""A program under CUPTI on a GPU."""

import subprocess
import sys

import pandas as pd
import pytest

from warpbook.common.files import PROJECT
from warpbook.report.evidence import layer_events
from warpbook.runs import tables


@pytest.mark.gpu
def test_cupti_sees_the_program_s_ranges_and_the_kernels_in_them(tmp_path):
    passed = {
        "variant": "direct",
        "problem": "conv",
        "case": "fa18/conv1",
        "device": "gpu",
        "size": 10,
        "test": "reals",
    }
    passed |= {"ok": True, "status": "ok", "reason": "", "reference": "float64"}
    tables.CORRECTNESS.write([dict.fromkeys(tables.CORRECTNESS.columns) | passed], tmp_path / "correctness.csv")
    subprocess.run(
        [
            sys.executable, PROJECT / "scripts" / "trace_program.py", "--tool", "cupti", "--network", "fa18",
            "--variant", "direct", "--sizes", "10", "--timeout", "60", "--correctness", tmp_path / "correctness.csv",
            "--out", tmp_path / "a.csv", "--sums", tmp_path / "s.csv", "--profiles", tmp_path / "p.csv",
            "--reports", tmp_path / "reports",
        ],
        check=True,
    )  # fmt: skip
    (profile,) = tables.PROFILES.rows(tmp_path / "p.csv")
    assert profile["status"] == "ok"
    frame = pd.DataFrame(tables.ACTIVITIES.rows(tmp_path / "a.csv"))
    ranges = set(frame[frame.kind == "range"].name)
    assert {"load data", "load model", "inference of 10 images", "conv1 direct"} <= ranges
    within = layer_events(frame, "conv1", "direct")
    assert list(within[within.kind == "kernel"].name) == ["conv_forward"]
