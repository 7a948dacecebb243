"""A problem that nobody here knows, from its first files to its report."""

import re
import shutil
import subprocess

import yaml

from warpbook.common.files import PROJECT
from warpbook.harness.attacks import attack_registry
from warpbook.kernels import variants
from workspaces import TINY

ON_CPU = """/*
title: One loop
*/
extern "C" void twice(const float* x, float* y, int n)
{
    for (int i = 0; i < n; ++i) y[i] = 2 * x[i] + 1;
}
"""
STRANGER = """
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row < M && col < N) {
    float s = 0;
    for (int i = 0; i < K; ++i) s += A[row * K + i] * B[i * N + col];
    C[row * N + col] = s;
  }
}
void launch(float* d_A, float* d_B, float* d_C, int M, int N, int K) {
  dim3 block(16, 16), grid((N + 15) / 16, (M + 15) / 16);
  matmul<<<grid, block>>>(d_A, d_B, d_C, M, N, K);
}
"""


def test_a_new_problem_becomes_a_report(fresh):
    subprocess.run([fresh.python, "scripts/new.py", "problem", "twice"], cwd=fresh.folder, check=True)
    (fresh.folder / "kernels" / "twice" / "loop_nest.cpp").write_text(ON_CPU)
    study = yaml.safe_load((fresh.folder / "config.yaml").read_text())["studies"]["twice"]
    fresh.configure(study="twice", studies={**TINY["studies"], "twice": study | {"sizes": [16, 64]}})
    done = fresh.snakemake("report", "check")
    assert "checked twice/naive" in done.stdout and "checked twice/loop_nest" in done.stdout
    text = fresh.pdf_text("twice")
    assert "The ladder" in text and "loop_nest" in text and "starting point" in text
    assert "line: n=64, size 64" in text
    html = (fresh.folder / "reports" / "out" / "twice.html").read_text()
    cells = {re.sub("<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd][^>]*>.*?</t[hd]>", html, re.DOTALL)}
    others = {name for name in variants.discover() if not name.startswith("twice/")}
    assert "twice/loop_nest" in cells or "loop_nest" in cells
    assert not cells & (others - {"loop_nest"})  # nothing of other problems is there


def test_a_stranger_s_matrix_product_goes_in_as_it_is(tmp_path):
    folder = tmp_path / "gemm"
    folder.mkdir()
    shutil.copy(PROJECT / "kernels" / "gemm" / "problem.py", folder)
    (folder / "stranger.cu").write_text(STRANGER)
    variant = variants.read("stranger", folder)
    assert "arguments [a, b, c, m, n, k], threads [16, 16], grid [(n + 15) // 16, (m + 15) // 16]" in variant.notes([])
    rows = attack_registry.check_rows(folder, "stranger", "emulator", "gemm", 64)
    assert rows and all(row["ok"] for row in rows)
    (folder / "stranger.cu").write_text(STRANGER.replace("i < K", "i < K - 1"))
    rows = attack_registry.check_rows(folder, "stranger", "emulator", "gemm", 64)
    right = {row["case"] for row in rows} - {row["case"] for row in rows if row["status"] == "wrong_result"}
    # Of a few rows or columns every value that is left out may be 0.
    sides = [[int(side) for side in re.findall(r"\b[mn]=(\d+)", case)] for case in right]
    assert all(min(both) < 8 for both in sides), right
    assert len(right) < len({row["case"] for row in rows}) / 4
