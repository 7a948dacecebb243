"""compute-sanitizer finds what one image leaves in the way of the next, and nothing in our own kernels."""

import os
import shutil
import subprocess
import sys

import pytest

from warpbook.common.files import GIVEN, PROJECT
from warpbook.runs import tables

pytestmark = pytest.mark.gpu

KERNEL = """/*
title: One image after another
*/
extern "C" __global__ void sums(const float* x, float* y, int N, int inputs, int outputs)
{{
    __shared__ float held[64];
    for (int n = blockIdx.x; n < N; n += gridDim.x) {{
        held[threadIdx.x] = threadIdx.x < inputs ? x[(size_t)n * inputs + threadIdx.x] : 0.0f;
        __syncthreads();
        for (int i = threadIdx.x; i < outputs; i += 64) y[(size_t)n * outputs + i] = held[63 - i % 64];
        {barrier}
    }}
}}
"""
LAUNCHER = """
import numpy as np
def prepare(kernels, layer, images, launch):
    import cupy
    function = kernels.function("sums")
    inputs, outputs = layer.C * layer.H * layer.W, layer.M * layer.H_out * layer.W_out
    grid = min(images, 2 * cupy.cuda.Device().attributes["MultiProcessorCount"])
    counts = [np.int32(count) for count in (images, inputs, outputs)]
    return lambda x, w, y: function((grid,), (64,), (x, y, *counts))
"""


def tried(variant, out, *further, project=PROJECT):
    program = PROJECT / "scripts/sanitize_variant.py"
    command = [sys.executable, program, "--variant", variant, "--timeout", "300", "--out", out, *further]
    subprocess.run(command, check=True, cwd=PROJECT, env={**os.environ, GIVEN: str(project)})
    return {row["tool"]: (row["status"], row["errors"]) for row in tables.SANITIZER.rows(out)}


@pytest.mark.parametrize(("barrier", "status"), [("", "wrong_result"), ("__syncthreads();", "ok")])
def test_a_block_that_overwrites_an_image_while_it_is_read_is_found(barrier, status, tmp_path):
    (tmp_path / "mine.cu").write_text(KERNEL.format(barrier=barrier))
    (tmp_path / "mine.py").write_text(LAUNCHER)
    found = tried("mine", tmp_path / "found.csv", "--kernels", tmp_path)
    assert found["racecheck"][0] == status
    assert found["memcheck"] == ("ok", 0)


@pytest.mark.parametrize("name", ["fused_mma", "fused_conv_fc_algebra", "unfused", "fused_cublas", "fused_wgmma"])
def test_whole_networks_of_ours_give_the_tools_nothing_to_say(name, tmp_path):
    found = tried(f"networks/{name}", tmp_path / "found.csv")
    assert set(found.values()) == {("ok", 0)} and len(found) == 4


def test_a_fault_in_our_kernels_beside_a_library_s_is_found(tmp_path):
    source = (PROJECT / "kernels/networks/fused_mma.cu").read_text()
    write = "scores[(size_t)image * classes + lane] = score;"
    assert write in source
    copy = tmp_path / "project"
    shutil.copytree(PROJECT / "kernels", copy / "kernels")
    for name in ("scripts", "weights", "config.yaml"):
        (copy / name).symlink_to(PROJECT / name)
    broken = source.replace(write, write.replace("+ lane]", "+ lane + 1]"))
    (copy / "kernels/networks/fused_mma.cu").write_text(broken)
    found = tried("networks/fused_cublas", tmp_path / "found.csv", project=copy)
    assert found["memcheck"][0] == "wrong_result" and found["memcheck"][1] > 0
