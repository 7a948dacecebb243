"""Files that launch their own kernel build, and compute what they should."""

import re

import pytest

import check_variant
import emulated
from warpbook.common.files import PROJECT
from warpbook.harness import building, checking
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import variants
from warpbook.problems import case_sets, networks, problem

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
    assert variant.header.grid == ["M", "ceil((H - K + 1) / 16)", "N"]
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


IN_PLACE = """\
template <typename T> __global__ void sum(T *x, T *out, int n)
{
    T *mine = x + blockIdx.x * 64;
    int count = min(64, n - (int)blockIdx.x * 64);
    if (threadIdx.x >= 32) return;  // before a barrier that no thread of these is missed at
    for (int k = 1; k < count; k *= 2) {
        for (int i = 2 * k * threadIdx.x; i + k < count; i += 64 * k) mine[i] += mine[i + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = mine[0];
}
int main()
{
    int n = 1 << 20, blocks = (n + 63) / 64;
    TYPE *x, *out, *h_out = new TYPE[blocks], total = 0;
    cudaMalloc(&x, n * sizeof(TYPE));
    cudaMalloc(&out, blocks * sizeof(TYPE));
    sum<<<blocks, 64>>>(x, out, n);
    cudaMemcpy(h_out, out, blocks * sizeof(TYPE), cudaMemcpyDeviceToHost);
    for (int b = 0; b < blocks; b++) total += h_out[b];
}
"""
TWICE = """\
__global__ void sum(const int *v, int *v_r) {
    __shared__ int part[64];
    part[threadIdx.x] = v[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    for (int s = 32; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) v_r[blockIdx.x] = part[0];
}
int main() {
    int N = 4096, *d_v, *d_v_r;
    cudaMalloc(&d_v, N * sizeof(int));
    cudaMalloc(&d_v_r, N * sizeof(int));
    sum<<<N / 64, 64>>>(d_v, d_v_r);
    sum<<<1, 64>>>(d_v_r, d_v_r);
}
"""
ADDS = """\
__global__ void sum(const int *x, int *y, int n) { for (int i = threadIdx.x; i < n; i += 32) atomicAdd(y, x[i]); }
void run(const int *x, int *y, int n) { sum<<<1, 32>>>(x, y, n); }
int main() { int *x, *y; run(x, y, 100); }
"""
PRODUCT = """\
__global__ void mm(const double *a, const double *b, double *c, int m, int n, int k) {
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
    if (row < m && column < n) c[row * n + column] = sum;
}
void run(const double *a, const double *b, double *c, int m, int n, int k) {
    mm<<<dim3((n + 7) / 8, (m + 7) / 8), dim3(8, 8)>>>(a, b, c, m, n, k);
}
"""
WITHOUT_MAXIMUM = """\
__global__ void softmax(const float *x, float *y, int rows, int columns) {
    float sum = 0;
    for (int i = 0; i < columns; ++i) sum += expf(x[blockIdx.x * columns + i]);
    for (int i = 0; i < columns; ++i) y[blockIdx.x * columns + i] = expf(x[blockIdx.x * columns + i]) / sum;
}
void run(const float *x, float *y, int rows, int columns) { softmax<<<rows, 1>>>(x, y, rows, columns); }
"""


def judged(folder, of, code, extents):
    """What is said of a file on a case of a problem; empty where it is right."""
    (folder / "problem.py").write_text((problem.FOLDER / of / "problem.py").read_text())
    (folder / "mine.cu").write_text(code)
    variant, case = variants.read("mine", folder), problem.find(of).case("case", extents)
    with IsolatedBench(variant, False, folder) as bench:
        return checking.check_case(bench, variant, case)[-1]["reason"]


@needs_compiler
@pytest.mark.parametrize(
    ("of", "code", "extents", "words"),
    [
        ("reduce", IN_PLACE.replace("TYPE", "double"), {"n": 1000}, ""),
        ("reduce", TWICE, {"n": 4096}, ""),
        ("reduce", ADDS, {"n": 100}, "adds to y without setting it first"),
        ("gemm", PRODUCT.replace("row * k + i", "min(row, m - 1) * k + i").replace("+ column]", "+ min(column, n - 1)]"),
         {"m": 5, "n": 9, "k": 50}, "exceeds what fp64 allows"),
        ("softmax", WITHOUT_MAXIMUM, {"rows": 4, "columns": 20}, "its rows are moved by 110 up or down"),
    ],
    ids=["doubles in place", "whole numbers twice", "whole numbers not zeroed", "doubles added as floats", "no maximum"],
)  # fmt: skip
def test_a_kernel_is_judged_on_the_types_and_the_range_of_its_problem(of, code, extents, words, tmp_path):
    reason = judged(tmp_path, of, code, extents)
    assert words in reason if words else not reason


@needs_compiler
@pytest.mark.parametrize(
    ("blocks", "words"),
    [("(n + 7) / 8, (m + 7) / 8", "heap-buffer-overflow"), ("n / 8, m / 8", "say `limits: {n: {multiple_of: 8}}`")],
    ids=["rounded up", "rounded down"],
)
def test_a_kernel_of_whole_tiles_is_told_which_limits_it_lacks(blocks, words, tmp_path):
    (tmp_path / "problem.py").write_text((problem.FOLDER / "gemm" / "problem.py").read_text())
    text = PRODUCT.replace("float sum", "double sum").replace("(n + 7) / 8, (m + 7) / 8", blocks)
    (tmp_path / "mine.cu").write_text(text)
    first, *_ = emulated.checked(tmp_path, "mine", "gemm", wrong=True)
    assert first["status"] == "wrong_result" and words in first["reason"]
    limits = "limits: {m: {multiple_of: 32}, n: {multiple_of: 32}, k: {multiple_of: 32}}"
    assert first["reason"].endswith(f"say `{limits}`")


MEMBERS = """\
struct Matrix { int width, height, stride; float *elements; };
__device__ float at(Matrix of, int row, int column) { return of.elements[row * of.stride + column]; }
__global__ void product(Matrix A, Matrix B, Matrix C)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= C.height || column >= C.width) return;
    double sum = 0;
    for (int i = 0; i < A.width; ++i) sum += (double)at(A, row, i) * at(B, i, column);
    C.elements[row * C.stride + column] = sum;
}
void run(Matrix A, Matrix B, Matrix C)
{
    product<<<dim3((B.width + 7) / 8, (A.height + 7) / 8), dim3(8, 8)>>>(A, B, C);
}
"""


@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("", "", ""),
        ("column >= C.width", "column > C.width", "mine.cu:2: a read 0 bytes after the 120 bytes of b"),
        ("sum += (double)", "sum = (double)", "exact on small integers"),
    ],
    ids=["right", "one column too many", "only the last product"],
)
def test_a_kernel_of_structures_is_judged_by_its_own_lines(right, wrong, words, tmp_path):
    reason = judged(tmp_path, "gemm", MEMBERS.replace(right, wrong) if right else MEMBERS, {"m": 9, "n": 5, "k": 6})
    assert words in reason if words else not reason


ONE_BLOCK = """\
__global__ void sum(const float *x, float *y, int n) {
    __shared__ float held[256];
    held[threadIdx.x] = x[threadIdx.x];
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) held[threadIdx.x] += held[threadIdx.x + half];
    }
    if (!threadIdx.x) *y = held[0];
}
void run(const float *x, float *y, int n) { sum<<<1, 256>>>(x, y, n); }
"""
BUSY_BLOCK = """\
__global__ void soft(const float *x, float *y, int rows, int columns) {
    __shared__ float most[256], sums[256];
    int i = threadIdx.x;
    x += blockIdx.x * columns;
    most[i] = -INFINITY;
    sums[i] = 0;
    for (int j = i; j < columns; j += 256) most[i] = fmaxf(most[i], x[j]);
    for (int j = i; j < columns; j += 256) sums[i] += expf(x[j] - most[i]);
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (i < half) {
            float top = fmaxf(most[i], most[i + half]);
            sums[i] = sums[i] * expf(most[i] - top) + sums[i + half] * expf(most[i + half] - top);
            most[i] = top;
        }
    }
    __syncthreads();
    for (int j = i; j < columns; j += 256) y[blockIdx.x * columns + j] = expf(x[j] - most[0]) / sums[0];
}
void run(const float *x, float *y, int rows, int columns) { soft<<<rows, 256>>>(x, y, rows, columns); }
"""
ONE_IMAGE = """\
__global__ void conv(const float *x, const float *w, float *y, int C, int H, int W, int M, int K) {
    for (int i = 0; i < (H - K + 1) * (W - K + 1); ++i) {
        float sum = 0;
        for (int j = 0; j < C * K * K; ++j)
            sum += w[blockIdx.x * C * K * K + j] * x[(j / (K * K) * H + i / (W - K + 1) + j / K % K) * W + i % (W - K + 1) + j % K];
        y[blockIdx.x * (H - K + 1) * (W - K + 1) + i] = sum;
    }
}
"""


@needs_compiler
@pytest.mark.parametrize(
    ("of", "code", "facts", "status", "limits"),
    [
        ("reduce", ONE_BLOCK, "", "wrong_result", "{n: {is: 256}}"),
        ("softmax", BUSY_BLOCK, "", "wrong_result", "{columns: {at_least: 256}}"),
        (
            "conv",
            ONE_IMAGE,
            "arguments: [x, w, y, C, H, W, M, K]\nthreads: [1]\ngrid: [M]\n",
            "unsupported",
            "{N: {is: 1}}",
        ),
        (
            "conv",
            ONE_IMAGE.replace("int C, int H, int W, int M, int K", "int H, int W, int K").replace("C * K", "K"),
            "arguments: [x, w, y, H, W, K]\nthreads: [1]\ngrid: [1]\n",
            "unsupported",
            "{N: {is: 1}, C: {is: 1}, M: {is: 1}}",
        ),
    ],
)
def test_a_kernel_of_one_size_is_told_which(of, code, facts, status, limits, tmp_path):
    (tmp_path / "problem.py").write_text((problem.FOLDER / of / "problem.py").read_text())
    (tmp_path / "mine.cu").write_text(code)
    (tmp_path / "mine.yaml").write_text(facts)
    built = tmp_path / "built"
    built.mkdir()
    variant = variants.read("mine", tmp_path)
    assert not variant.read_error
    cases = case_sets.find("fa17" if of == "conv" else of)
    size = 1 if of == "conv" else emulated.SIZE
    (row, *_), *_ = check_variant.emulate_cases(variant, cases, checking.ragged_cases(variant)[:3], False, built, size)
    assert row["status"] == status and row["reason"].endswith(f"say `limits: {limits}`")


def test_no_race_is_told_of_a_kernel_that_leaves_its_arrays_on_shapes_that_it_is_not_for():
    def rows(reason):
        race = {"test": "races", "ok": False, "status": "wrong_result", "reason": "a data race on C"}
        found = [{"test": "integers", "ok": False, "status": "wrong_result", "reason": reason}, race]
        check_variant.drop_apparent_races(found)
        return race["status"]

    assert rows("it is wrong") == "wrong_result"
    assert (
        rows("it is wrong; it is right where n is a multiple of 32: ...")
        == rows("heap-buffer-overflow")
        == "unsupported"
    )


@needs_compiler
def test_a_right_product_of_matrices_in_column_major_order_is_no_wrong_one(tmp_path):
    (tmp_path / "problem.py").write_text((problem.FOLDER / "gemm" / "problem.py").read_text())
    columns = PRODUCT.replace("row * k + i", "i * m + row").replace("i * n + column", "column * k + i")
    columns = columns.replace("row * n + column", "column * m + row").replace("float sum", "double sum")
    columns = columns.replace("    double sum", "    if (row >= m || column >= n) return;\n    double sum")
    (tmp_path / "mine.cu").write_text(columns)
    rows = emulated.checked(tmp_path, "mine", "gemm", wrong=True)
    assert [row["status"] for row in rows if not row["ok"]] == ["unsupported"]
    assert any("in column-major order: right for rows with a and b" in row["reason"] for row in rows)


SAME_SIZE = """\
__constant__ float mask[3][3];
__global__ void convolve(const float *in, float *out, int N, int M) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row >= N || column >= M) return;
    float sum = 0;
    for (int r = -1; r < 2; ++r)
        for (int c = -1; c < 2; ++c)
            if (row + r >= 0 && row + r < N && column + c >= 0 && column + c < M)
                sum += mask[r + 1][c + 1] * in[(row + r) * M + column + c];
    out[row * M + column] = sum;
}
void run(const float *in, const float *filter, float *out, int N, int M) {
    cudaMemcpyToSymbol(mask, filter, sizeof(mask));
    convolve<<<dim3((M + 15) / 16, (N + 15) / 16), dim3(16, 16)>>>(in, out, N, M);
}
"""


@needs_compiler
def test_a_convolution_that_keeps_the_size_of_its_image_is_told_as_another(tmp_path):
    (tmp_path / "mine.cu").write_text(SAME_SIZE)
    built = tmp_path / "built"
    built.mkdir()
    (row,) = check_variant.emulate_cases(*emulating(tmp_path), False, built, 1)
    limits = "limits: {K: {is: 3}, P: {is: 1}}"
    assert (row[0]["status"], row[0]["reason"].partition("say ")[2]) == ("unsupported", f"`{limits}`")
    (tmp_path / "mine.yaml").write_text(limits)
    rows = [row for rows in check_variant.emulate_cases(*emulating(tmp_path), False, built, 1) for row in rows]
    assert not emulated.reasons(rows) and any(row["ok"] for row in rows)
    (tmp_path / "mine.yaml").unlink()
    # A kernel that is told of the padding, and takes it for 1 whatever it is, is wrong.
    told = re.sub(r"\bM\b", "W", re.sub(r"\bN\b", "H", SAME_SIZE)).replace("int W)", "int W, int padding)")
    told = told.replace("out, H, W);", "out, H, W, padding);")
    (tmp_path / "mine.cu").write_text(told)
    failed, *_ = check_variant.emulate_cases(*emulating(tmp_path), False, built, 1)
    assert failed[0]["status"] == "wrong_result"


def emulating(folder):
    """What `emulate_cases` takes of the file `mine.cu` in a folder."""
    variant = variants.read("mine", folder)
    return variant, case_sets.find("fa17"), checking.ragged_cases(variant)[:3]
