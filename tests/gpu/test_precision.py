"""The errors of variants on a GPU, beside those of the direct convolution."""

import subprocess
import sys

import pytest

from warpbook.common.files import PROJECT
from warpbook.harness import precision
from warpbook.kernels import variants
from warpbook.problems import networks
from warpbook.runs import tables


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct", "fp16x3_mma", "tensor_cores", "cudnn_fp32", "gemm/tiled"])
def test_on_a_gpu_errors_are_held_against_those_of_direct(name, tmp_path):
    program, out = PROJECT / "scripts" / "measure_precision.py", tmp_path / "errors.csv"
    arguments = ["--variant", name, "--timeout", "300", "--sandbox", "none", "--out", str(out)]
    subprocess.run([sys.executable, program, *arguments], check=True, cwd=PROJECT)
    rows = tables.PRECISION.rows(out)
    variant = variants.read(name)
    if variant.missing:
        assert {row["status"] for row in rows} == {"unsupported"}
        return
    convs = [conv for network in networks.all_networks().values() for conv in network.convs]
    cases = precision.cases(variant.problem, [conv for conv in convs if conv.problem == variant.problem])
    assert len(rows) == len(cases) * len(precision.EXPONENTS)
    assert {row["layer"] for row in rows} == {case.name for case in cases}
    assert all(row["direct_rel_l2_err"] > 0 for row in rows)
    if name == "direct":
        assert all(row["rel_l2_err"] == row["direct_rel_l2_err"] for row in rows)
