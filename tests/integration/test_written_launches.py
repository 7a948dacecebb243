"""Files that launch their own kernel build, and compute what they should."""

import pytest

import emulated
from warpbook.common.files import PROJECT
from warpbook.harness import building, checking
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import variants
from warpbook.problems import networks, problem

FILES = PROJECT / "tests" / "data" / "strangers"
LECTURE = (FILES / "lecture_style.cu").read_text()
LAYER = networks.ConvLayer("ragged", 3, 23, 19, 4, 5)
PARTIAL_SUMS = """\
__global__ void sum(const float *x, float *out, int n)
{
    __shared__ float part[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
int main()
{
    int n = 1 << 20;
    float *x, *out;
    int blocks = (n + 255) / 256;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&out, blocks * sizeof(float));
    sum<<<blocks, 256>>>(x, out, n);
    float *h_out = (float *)malloc(blocks * sizeof(float));
    cudaMemcpy(h_out, out, blocks * sizeof(float), cudaMemcpyDeviceToHost);
    float total = 0;
    for (int b = 0; b < blocks; b++) total += h_out[b];
    return total > 0;
}
"""
needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)


def changed(*changes):
    text = LECTURE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_files_with_host_code_build_for_a_gpu():
    found = [variant for variant in variants.discover(FILES).values() if not variant.read_error]
    assert len(found) > 8
    made = {variant.name: building.build(variant, "sm_90") for variant in found}
    assert {name: one.log for name, one in made.items() if not one.cubin} == {}


@needs_compiler
def test_files_with_host_code_compute_what_they_should(tmp_path):
    for name in ("class_wrapper", "dynamic_shared", "namespaced", "whole_program"):
        variant = variants.read(name, FILES)
        (tmp_path / name).mkdir()
        with IsolatedBench(variant, False, tmp_path / name) as bench:
            row = checking.check_case(bench, variant, LAYER.at(2), ("integers",))[-1]
        assert row["ok"], (name, row["reason"])


@needs_compiler
def test_a_launch_that_is_read_is_judged_like_any_other(tmp_path):
    (tmp_path / "small.cu").write_text(changed(("ceil(W_out * 1.0 / TILE_WIDTH)", "1")))
    variant = variants.read("small", tmp_path)
    assert variant.header.grid == ["M", "ceil(H_out / 16)", "N"]
    built = tmp_path / "built"
    built.mkdir()
    with IsolatedBench(variant, False, built) as bench:
        row = checking.check_case(bench, variant, networks.ConvLayer("wide", 1, 9, 40, 2, 3).at(2), ("integers",))[-1]
    assert "leaves the others unwritten" in row["reason"]


@needs_compiler
@pytest.mark.parametrize(("left", "right"), [("part[0];", True), ("part[1];", False)])
def test_a_sum_that_the_host_finishes_is_judged_like_any_other(left, right, tmp_path):
    text = PARTIAL_SUMS.replace("part[0];", left)
    (tmp_path / "problem.py").write_text((problem.FOLDER / "reduce" / "problem.py").read_text())
    (tmp_path / "mine.cu").write_text(text)
    rows = emulated.checked(tmp_path, "mine", "reduce")
    assert (emulated.reasons(rows) == []) == right
    assert right or {row["status"] for row in rows if not row["ok"]} == {"wrong_result"}


def test_the_lines_to_write_are_right_once_what_was_not_read_is_filled_in(tmp_path):
    loop = ("    dim3 dimGrid", "    int tiles = 0;\n    while (tiles * 16 < W_out) tiles++;\n    dim3 dimGrid")
    (tmp_path / "mine.cu").write_text(changed(loop, ("dimGrid(M, Y, B)", "dimGrid(M, tiles, B)")))
    _, _, instead = variants.read("mine", tmp_path).read_error.partition(":\n")
    (tmp_path / "mine.yaml").write_text(instead.replace("[?]", '[M, "min(W_out, ceil(W_out / 16))", N]'))
    variant = variants.read("mine", tmp_path)
    assert (variant.read_error, variant.inferred_launch) == ("", None)
    assert variant.header.arguments == ["y", "x", "w", "N", "M", "C", "H", "W", "K"]
    assert building.build(variant, "sm_90").cubin


HOST_HEADERS = """#include <cuda.h>
#include <cuda_runtime.h>
#include <cublas_v2.h>
#include <cudnn.h>
#include <cuda_profiler_api.h>
#include <device_launch_parameters.h>
#include <helper_cuda.h>
#include <thrust/device_vector.h>
#include <cub/cub.cuh>
#include <torch/extension.h>
#include <sys/resource.h>
#include <cassert>
#include <climits>
#include "../host/tensor.cuh"
using namespace std;
"""
HOST_FUNCTIONS = """
typedef std::vector<float> Values;
struct Timer { cudaEvent_t start; float stop() { cudaEventSynchronize(start); return 0; } };
constexpr int twice(int a) { return 2 * a; }
float k(int only_here) { return only_here; }
__host__ void show(const float* y) { printf("%f", y[0]); }
"""


def test_a_kernel_builds_whatever_host_code_and_headers_stand_beside_it(tmp_path):
    kernel = "__global__ void k(float* y) { __shared__ float held[twice(2)]; held[0] = 1; y[0] = held[0]; }\n"
    (tmp_path / "mine.cu").write_text(HOST_HEADERS + HOST_FUNCTIONS + kernel)
    (tmp_path / "mine.yaml").write_text("kernel: k\n")
    variant = variants.read("mine", tmp_path)
    cubin, log = building.compile_source(
        building.device_source(variant), "mine.cu", building.compiler_options("sm_80", [])
    )
    assert cubin, log


def test_a_header_that_is_missing_is_named_where_the_kernel_does_not_compile_without_it(tmp_path):
    (tmp_path / "mine.cu").write_text('#include "sizes.h"\n__global__ void k(float* y) { y[0] = SIZE; }\n')
    (tmp_path / "mine.yaml").write_text("kernel: k\narguments: [y, x, w]\nthreads: [1]\ngrid: [1]\n")
    assert building.build(variants.read("mine", tmp_path), "sm_80").log.startswith(
        "mine.cu, line 1: there is no sizes.h"
    )
    (tmp_path / "sizes.h").write_text("#define SIZE 3\n")
    variant = variants.read("mine", tmp_path)
    assert [path.name for path in variant.included] == ["sizes.h"]
    assert "SIZE" not in building.build(variant, "sm_80").log.partition("static assertion")[0]


RAW = '''import cupy

kernel = cupy.RawKernel(r"""%s""", "conv")


def forward(x, w, y):
    N, C, H, W = x.shape
    M, _, K, _ = w.shape
    kernel(((y.size + 255) // 256,), (256,), (x, w, y, N, C, H, W, M, K))
'''
DIRECT = """__global__ void conv(const float* x, const float* w, float* y, long N, int C, int H, int W, unsigned M, int K)
{
    int Ho = H - K + 1, Wo = W - K + 1, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * M * Ho * Wo) return;
    int column = i % Wo, row = i / Wo % Ho, m = i / (Wo * Ho) % M, n = i / (Wo * Ho * M);
    float sum = 0;
    for (int c = 0; c < C; c++)
        for (int p = 0; p < K; p++)
            for (int q = 0; q < K; q++)
                sum += x[((n * C + c) * H + row + p) * W + column + q] * w[((m * C + c) * K + p) * K + q];
    y[i] SIGN sum;
}
"""


@needs_compiler
def test_the_cuda_in_a_python_file_is_emulated_with_its_launch(tmp_path):
    (tmp_path / "mine.py").write_text(RAW % DIRECT.replace("SIGN", "="))
    rows = emulated.checked(tmp_path, "mine")
    assert len(rows) > 8 and emulated.reasons(rows) == []
    (tmp_path / "other.py").write_text(RAW % DIRECT.replace("SIGN", "= 2 *"))
    assert "2 times as large as it should be" in emulated.reasons(emulated.checked(tmp_path, "other"))[0]


@needs_compiler
def test_numbers_of_every_type_zeros_and_steps_reach_the_kernel(tmp_path):
    text = DIRECT.replace("int K)", "int K, double alpha, bool plain, const float* nothing, const float* none)")
    text = text.replace("y[i] SIGN sum", "if (!none) y[i] += plain ? alpha * sum + nothing[i % M] : 0")
    (tmp_path / "mine.cu").write_text(text)
    launch = "arguments: [x, w, y, N, C, H, W, M, K, 1.0, true, zeros, null]\nthreads: [256]\n"
    (tmp_path / "mine.yaml").write_text(f'{launch}grid: ["ceil(N * M * H_out * W_out / 256)"]\n')
    assert "adds to y without setting it first" in emulated.reasons(emulated.checked(tmp_path, "mine", wrong=True))[0]
    (tmp_path / "mine.yaml").write_text(f'{launch}grid: ["ceil(N * M * H_out * W_out / 256)"]\nclear: [y]\n')
    assert emulated.reasons(emulated.checked(tmp_path, "mine")) == []


@needs_compiler
def test_launches_in_a_row_are_emulated_in_their_order():
    rows = emulated.checked(FILES, "two_kernels")
    assert len(rows) > 8 and emulated.reasons(rows) == []
