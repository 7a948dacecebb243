"""What shows only at the size that a study measures is found without computing it all."""

import pytest

from warpbook.common.files import PROJECT
from warpbook.harness import checking, full_size
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants
from warpbook.problems import case_sets

KERNEL = """\
/*
threads: [16, 16]
grid: [ceil(W_out / 16) * ceil(H_out / 16), M, N]
*/
#include <cstdlib>
__device__ bool is(const char* fault) { return std::getenv("FAULT") && std::string(std::getenv("FAULT")) == fault; }
extern "C" __global__ void conv_forward(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
{
    const int Ho = H - K + 1, Wo = W - K + 1, across = (Wo + 15) / 16;
    const int column = blockIdx.x % across * 16 + threadIdx.x, row = blockIdx.x / across * 16 + threadIdx.y;
    const int m = blockIdx.y, n = is("byte") ? (unsigned char)blockIdx.z : blockIdx.z;
    if (row >= Ho || column >= Wo || (is("batch") && n >= 1000) || (is("half") && n >= N / 2)) return;
    float sum = is("result") && n > 5000;
    for (int c = 0; c < C; ++c)
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q) sum += x[((n * C + c) * H + row + p) * W + column + q] * w[((m * C + c) * K + p) * K + q];
    const int at = ((n * M + m) * Ho + row) * Wo + column, scaled = is("index") ? at * 16 : 0;
    y[is("index") ? scaled / 16 : is("beyond") && n == N - 1 ? at + 1 : at] = sum;
}
"""


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """The row of the kernel on 10,000 images of the first layer of fa18."""
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")
    folder = tmp_path_factory.mktemp("full_size")
    (folder / "own.cu").write_text(KERNEL)
    variant, folder = variants.read("own", folder), tmp_path_factory.mktemp("compiled")
    library = emulation.compile_host(variant, folder, sandboxed=False)
    case = case_sets.find("fa18").cases[0].at(10_000)
    return lambda: full_size.check(variant, case, False, folder, library)


def test_a_fault_that_shows_at_the_largest_size_alone_is_found(check, monkeypatch):
    for fault, words in [
        ("index", "own.cu:17: signed integer overflow"),
        ("beyond", "use-after-poison in conv_forward at own.cu:18"),
        ("byte", "writes no y above N = 2"),
        ("batch", "writes no y above N = "),
        ("half", "writes no y above N = 48"),
        ("result", "is wrong on"),
    ]:
        monkeypatch.setenv("FAULT", fault)
        row = check()
        assert (row["status"], row["size"]) == ("wrong_result", 10_000)
        assert words in row["reason"]


def test_a_right_kernel_is_right_at_the_largest_size(check):
    assert check()["reason"] == ""


EACH_IMAGE = """\
import numpy as np
def prepare(kernels, layer, images, launch):
    extents = [np.int32(extent) for extent in (layer.C, layer.H, layer.W, layer.M, layer.K)]
    grid = (-(-layer.W_out // 16) * -(-layer.H_out // 16), layer.M)
    def call(x, w, y):
        for image in range(images):
            kernels.function("conv_forward")(grid, (16, 16), (x, w, y, np.int32(image), *extents))
    return call
"""


@pytest.mark.parametrize(("fault", "words"), [("", ""), ("beyond", "use-after-poison in conv_forward at own.cu:18")])
def test_of_a_launch_for_each_image_the_last_are_looked_at(tmp_path, monkeypatch, fault, words):
    monkeypatch.setenv("FAULT", fault)
    source = KERNEL.replace('is("byte") ? (unsigned char)blockIdx.z : blockIdx.z', "N").replace("N - 1", "9999")
    (tmp_path / "compiled").mkdir()
    (tmp_path / "own.cu").write_text(source)
    (tmp_path / "own.py").write_text(EACH_IMAGE)
    case = case_sets.find("fa18").cases[0].at(10_000)
    row = full_size.check(variants.read("own", tmp_path), case, False, tmp_path / "compiled")
    assert row["status"] == ("wrong_result" if fault else "ok"), row["reason"]
    assert words in row["reason"]


def test_a_grid_that_cuda_refuses_at_the_largest_size_is_unsupported_there(tmp_path):
    grid = "[ceil(W_out / 16) * ceil(H_out / 16), 1, N * M]"
    (tmp_path / "own.cu").write_text(KERNEL.replace("[ceil(W_out / 16) * ceil(H_out / 16), M, N]", grid))
    case = case_sets.find("fa18").cases[1].at(10_000)
    row = full_size.check(variants.read("own", tmp_path), case, False, tmp_path)
    assert row["status"] == "unsupported"
    assert "z = 160000 is outside 1 to 65535" in row["reason"]


def test_a_kernel_for_one_kernel_size_is_tried_on_several_images_of_that_size(tmp_path):
    (tmp_path / "own.cu").write_text(KERNEL.replace("threads:", "limits: {K: {is: 3}, C: {at_most: 2}}\nthreads:"))
    cases = checking.ragged_cases(variants.read("own", tmp_path))
    assert {case.K for case in cases} == {3}
    assert max(case.C for case in cases) == 2
    assert sum(case.size > 1 for case in cases) >= 3
    assert max(case.size for case in cases) == checking.MANY


GEMM = """\
/*
threads: [16, 16]
grid: [ceil(n / 16), ceil(m / 16)]
*/
#include <cstdlib>
__device__ bool is(const char* fault) { return std::getenv("FAULT") && std::string(std::getenv("FAULT")) == fault; }
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k)
{
    const int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= m || column >= n || (is("rows") && row >= 128)) return;
    float sum = is("corner") && row >= 2048 && column >= 2048;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
    const int scaled = is("index") ? row * 524288 : 0;
    c[is("index") ? scaled / 524288 * n + column : row * n + column] = sum;
}
"""


@pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")
def test_rows_of_outputs_stand_for_images_where_a_problem_has_no_batch(tmp_path, monkeypatch):
    folder = tmp_path / "gemm"
    folder.mkdir()
    (folder / "own.cu").write_text(GEMM)
    (folder / "problem.py").write_text((PROJECT / "kernels" / "gemm" / "problem.py").read_text())
    variant = variants.read("own", folder)
    library = emulation.compile_host(variant, tmp_path, sandboxed=False)
    (case,) = full_size.widest(variant, [case.at(8192) for case in case_sets.find("gemm").cases])
    assert (case.m, case.n, case.k) == (8192, 8192, 64)
    words = {"": "", "rows": "writes no c above m = ", "corner": "is wrong on m=8192 n=8192 k=64", "index": "overflow"}
    for fault, expected in words.items():
        monkeypatch.setenv("FAULT", fault)
        row = full_size.check(variant, case, False, tmp_path, library)
        assert (fault, row["status"]) == (fault, "wrong_result" if fault else "ok")
        assert expected in row["reason"]


SUMS = """\
/*
threads: [256]
grid: [1]
*/
#include <cstdlib>
extern "C" __global__ void reduce(const float* x, float* y, int n)
{
    const size_t first = (size_t)blockIdx.x * 256 + threadIdx.x;
    if (first < n) y[blockIdx.x] = x[first];
}
"""
PARTS = """\
import os
import numpy as np
def prepare(kernels, case, size, launch):
    blocks = -(-case.n // 256)
    parts = kernels.empty((min(blocks, int(os.environ["PARTS"])),), np.float32)
    return lambda x, y: kernels.function("reduce")((blocks,), (256,), (x, parts, np.int32(case.n)))
"""


@pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")
@pytest.mark.parametrize(("parts", "status"), [(1 << 18, "ok"), (1 << 16, "wrong_result")])
def test_scratch_memory_too_small_for_the_largest_size_is_found_without_results(tmp_path, monkeypatch, parts, status):
    monkeypatch.setenv("PARTS", str(parts))
    folder = tmp_path / "reduce"
    folder.mkdir()
    (folder / "own.cu").write_text(SUMS)
    (folder / "own.py").write_text(PARTS)
    (folder / "problem.py").write_text((PROJECT / "kernels" / "reduce" / "problem.py").read_text())
    variant = variants.read("own", folder)
    (case,) = full_size.widest(variant, [case.at(1 << 26) for case in case_sets.find("reduce").cases])
    row = full_size.check(variant, case, False, tmp_path)
    assert row["status"] == status, row["reason"]
    assert row["reason"].endswith("at n = 67108864" if parts < 1 << 18 else "")


SLOW = """\
/*
threads: [1]
grid: [1]
*/
extern "C" __global__ void reduce(const float* x, float* y, int n)
{
    float sum = 0;
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < 50; ++j) sum += x[i] / (j + 1);
    *y = sum;
}
"""


@pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")
def test_a_size_that_takes_too_long_is_not_called_right(tmp_path):
    folder = tmp_path / "reduce"
    folder.mkdir()
    (folder / "own.cu").write_text(SLOW)
    (folder / "problem.py").write_text((PROJECT / "kernels" / "reduce" / "problem.py").read_text())
    variant = variants.read("own", folder)
    (case,) = full_size.widest(variant, [case.at(1 << 26) for case in case_sets.find("reduce").cases])
    row = full_size.check(variant, case, False, tmp_path)
    assert (row["ok"], row["status"]) == (False, "unsupported")
    assert row["reason"].endswith("n = 67108864 were not checked: still running after 1 s of processor time")
