"""Launches under conditions: each is done in the cases in which the host reaches it."""

import shutil

from warpbook.kernels import variants
from warpbook.problems import problem as problems

KERNELS = """\
__global__ void fast(const float *a, const float *b, float *c, int m, int n, int k) { c[0] = a[0] * b[0]; }
__global__ void slow(const float *a, const float *b, float *c, int m, int n, int k) { c[0] = a[0] * b[0]; }
template <int T> __global__ void tiled(const float *a, const float *b, float *c, int m, int n, int k) { c[0] = a[0]; }
"""
FAST, SLOW = (f"{name}<<<m, 32>>>(a, b, c, m, n, k);" for name in ("fast", "slow"))


def read(
    folder, body, of="gemm", kernels=KERNELS, head="const float *a, const float *b, float *c, int m, int n, int k"
):
    shutil.copy(problems.FOLDER / of / "problem.py", folder)
    (folder / "mine.cu").write_text(f"{kernels}void solve({head}) {{\n{body}\n}}\n")
    return variants.read("mine", folder)


def launched(variant, **extents):
    """The kernels that a variant launches in a case; the reason where it is unsupported."""
    case = variant.problem.case("one", extents)
    reason = variant.unsupported(case)
    return [reason] if reason else [call.kernel for call in variant.header.calls(case, variant.kernel) if call.kernel]


BRANCHES = {
    "a faster kernel where tiles divide": (
        f"bool fits = m % 32 == 0 && n % 32 == 0; if (fits) {{ {FAST} }} else {{ {SLOW} }}",
        {(64, 32, 5): ["fast"], (64, 33, 5): ["slow"], (1, 1, 1): ["slow"]},
    ),
    "three ways": (
        f"if (m == 1) {{ {FAST} }} else if (n > 64) {{ {SLOW} }} else {{ tiled<8><<<m, 8>>>(a, b, c, m, n, k); }}",
        {(1, 100, 3): ["fast"], (2, 65, 3): ["slow"], (2, 64, 3): ["tiled<8>"]},
    ),
    "a switch over an extent": (
        f"switch (k) {{ case 1: case 2: {FAST} break; case 3: {SLOW} return; default: tiled<4><<<m, 8>>>(a, b, c, m, n, k); }}",
        {(5, 5, 1): ["fast"], (5, 5, 2): ["fast"], (5, 5, 3): ["slow"], (5, 5, 9): ["tiled<4>"]},
    ),
    "a switch over a number of its own": (
        "int t = 16; switch (t) { case 32: tiled<32><<<m, 32>>>(a, b, c, m, n, k); break;"
        " case 16: tiled<16><<<m, 16>>>(a, b, c, m, n, k); break; }",
        {(5, 6, 7): ["tiled<16>"]},
    ),
    "a way out before": (
        f"if (n % 4) {{ fprintf(stderr, \"no\"); return; }} {FAST}",
        {(3, 8, 3): ["fast"], (3, 7, 3): "n = 7 must be a multiple of 4"},
    ),
    "an assertion before": (f"assert(k % 8 == 0); {FAST}", {(3, 3, 8): ["fast"], (3, 3, 9): "k = 9 must be"}),
    "a way out before that is of two extents": (
        f"if (m > n) exit(1); {FAST}", {(3, 3, 8): ["fast"], (4, 3, 9): "none of its launches is for this case"},
    ),
    "a way out of one branch alone": (
        f"int t = 32; if (m > 64) {{ t = 64; if (n % 4) return; }} {FAST}", {(3, 3, 3): ["fast"], (65, 4, 3): ["fast"]},
    ),
    "what always holds": (f"if (m <= 0 || n < 1) return; if (k > 0) {{ {FAST} }}", {(1, 1, 1): ["fast"]}),
    "a choice by a factor": (
        f"const float alpha = 1.0f; if (fabs(alpha - 1.0f) < 1e-6f) {{ {FAST} }} else {{ {SLOW} }}", {(9, 8, 7): ["fast"]},
    ),
}  # fmt: skip


def test_the_launches_of_a_case_are_those_that_the_host_reaches(tmp_path):
    for name, (body, cases) in BRANCHES.items():
        variant = read(tmp_path, body)
        assert not variant.read_error, name
        for extents, expected in cases.items():
            kernels = launched(variant, **dict(zip("mnk", extents, strict=True)))
            assert kernels == expected or expected in kernels[0], (name, extents)


def test_what_always_holds_is_no_condition(tmp_path):
    assert read(tmp_path, BRANCHES["what always holds"][0]).header.steps == []


def test_conditions_of_single_extents_are_limits(tmp_path):
    for before, limits in [
        ("assert(m % 8 == 0 && n % 4 == 0);", {"m": {"multiple_of": 8}, "n": {"multiple_of": 4}}),
        ("if (m > 64 || n < 3 || k != 5) return;", {"m": {"at_most": 64}, "n": {"at_least": 3}, "k": {"is": 5}}),
        ("if (m >= 64 || m <= 3 || m % 2) return;", {"m": {"at_most": 63, "at_least": 4, "multiple_of": 2}}),
        ("if (m > 64 || m > 32) return;", {}),
        ("if (m > n) return;", {}),
    ]:
        header = read(tmp_path, f"{before} {FAST}").header
        assert header.limits.model_dump(exclude_unset=True, by_alias=True) == limits
        assert bool(header.steps) == (not limits)


def test_what_a_kernel_asserts_of_its_numbers_limits_it(tmp_path):
    kernel = (
        "__global__ void four(const float *a, const float *b, float *c, int rows, int n, int k) {\n"
        "  assert(rows % 4 == 0);\n  assert(threadIdx.x < 99);\n  c[0] = a[0];\n}\n"
    )
    variant = read(tmp_path, "four<<<m, 32>>>(a, b, c, m, n, k);", kernels=kernel)
    assert variant.header.limits.model_dump(exclude_unset=True, by_alias=True) == {"m": {"multiple_of": 4}}


CONSTANT = """\
__constant__ float held[2400], other[10];
__global__ void conv(const float *x, const float *w, float *y, int N, int M, int C, int H, int W, int K) {
    y[0] = x[0] * held[1]BESIDE;
}
void solve(const float *x, const float *w, float *y, int N, int M, int C, int H, int W, int K) {
    cudaMemcpyToSymbol(held, w, M * C * K * K * sizeof(float));
    conv<<<N, 32>>>(x, w, y, N, M, C, H, W, K);
}
"""


def test_weights_that_a_kernel_reads_in_constant_memory_are_copied_there_or_it_is_refused(tmp_path):
    shutil.copy(problems.FOLDER / "conv" / "problem.py", tmp_path)
    (tmp_path / "mine.cu").write_text(CONSTANT.replace("BESIDE", ""))
    header = variants.read("mine", tmp_path).header
    assert (header.constant_memory, header.arguments[1]) == ("held", "null")
    (tmp_path / "mine.cu").write_text(CONSTANT.replace("BESIDE", " + w[2]"))
    assert "`held` in constant memory, which only the host fills" in variants.read("mine", tmp_path).read_error


def test_yaml_to_complete_limits_nothing_that_an_unknown_argument_may_tell(tmp_path):
    shutil.copy(problems.FOLDER / "conv" / "problem.py", tmp_path)
    (tmp_path / "mine.cu").write_text(
        "__global__ void conv(float *a, float *b, float *c, int ha, int wa, int hc, int wc, int input_channels, int output_channels) {\n"
        "  b[threadIdx.x] = a[0] * c[0];\n}\n"
    )
    instead = variants.read("mine", tmp_path).read_error.partition(":\n")[2]
    assert instead == ("kernel: conv\narguments: [?, y, ?, ?, ?, ?, ?, C, M]\nthreads: [?]\ngrid: [?]")


def test_matrices_that_fit_each_other_are_in_every_case(tmp_path):
    head = "const Matrix &A, const Matrix &B, Matrix &C"
    body = (
        "if (A.cols() != B.rows()) throw 1; TORCH_CHECK(A.size(1) == B.size(0)); int m = A.rows(), k = A.cols(), n = B.cols();\n"
        "fast<<<m, 32>>>(A.data(), B.data(), C.data(), m, n, k);"
    )
    assert read(tmp_path, body, head=head).header.arguments == ["a", "b", "c", "m", "n", "k"]


def test_a_condition_that_cannot_be_read_is_asked_about(tmp_path):
    variant = read(tmp_path, f"if (ready(a)) {{ {FAST} }} else {{ {SLOW} }}")
    assert "say which: `kernel: fast` or `kernel: slow`" in variant.read_error


def test_a_branch_for_one_value_of_an_extent_tells_the_kernel_that_value(tmp_path):
    kernels = (
        "__global__ void one(const float *x, const float *w, float *y, int N, int M, int H, int W, int K) { y[0] = x[0]; }\n"
        "__global__ void more(const float *x, const float *w, float *y, int N, int M, int C, int H, int W, int K) { y[0] = x[0]; }\n"
    )
    body = "if (C == 1) one<<<N, 32>>>(x, w, y, N, M, H, W, K); else more<<<N, 32>>>(x, w, y, N, M, C, H, W, K);"
    head = "const float *x, const float *w, float *y, int N, int M, int C, int H, int W, int K"
    variant = read(tmp_path, body, "conv", kernels, head)
    assert not variant.read_error
    assert [step.kernel for step in variant.header.steps] == ["one", "more"]
    loose = read(tmp_path, body.replace("C == 1", "C < 4"), "conv", kernels, head)
    assert "nothing tells the kernel C" in loose.read_error


def test_pointers_that_a_loop_swaps_are_each_memory_of_its_own(tmp_path):
    kernels = (
        "template <typename T, int B> __global__ void add(const T *in, T *out, int n) { out[blockIdx.x] = in[0]; }\n"
    )
    body = (
        "float *p, *q; int blocks = (n + 255) / 256; add<T, B><<<blocks, B>>>(x, p, n);\n"
        "while (blocks > 1) { float *t = p; p = q; q = t; blocks = (blocks + 255) / 256; add<T, B><<<blocks, B>>>(q, p, n); }"
    )
    shutil.copy(problems.FOLDER / "reduce" / "problem.py", tmp_path)
    host = f"template <typename T, int B> void solve(const T *x, int n) {{\n{body}\n}}\n"
    (tmp_path / "mine.cu").write_text(kernels + host)
    reason = variants.read("mine", tmp_path).read_error
    assert reason and "add<float, B>" not in reason and "add<float, float>" not in reason


PARTIAL = """\
template <int B> __global__ void part(const float *in, float *out) { out[0] = in[blockIdx.x]; }
__global__ void rest(const float *in, float *out, int n) { atomicAdd(out, in[0]); }
template <int B = 64, typename Kernel> static void run(const float *in, float *out, int N, Kernel kernel) {
    cudaMemset(out, 0, sizeof(float));
    int whole = N / B, tail = N % B;
    if (whole == 0) { rest<<<1, B>>>(in, out, N); return; }
    float *held; cudaMalloc(&held, whole * sizeof(float));
    kernel<<<whole, B>>>(in, held);
    rest<<<1, B>>>(held, out, whole);
    if (tail > 0) { const float *end = in + (size_t)whole * B; rest<<<1, B>>>(end, out, tail); }
}
void solve(const float *input, float *output, int N) { run(input, output, N, part<64>); }
"""


def test_launches_in_a_row_are_those_of_the_way_through_their_function(tmp_path):
    for answer in ["", "kernel: [part, rest]\n"]:
        shutil.copy(problems.FOLDER / "reduce" / "problem.py", tmp_path)
        (tmp_path / "mine.cu").write_text(PARTIAL)
        (tmp_path / "mine.yaml").write_text(answer)
        variant = variants.read("mine", tmp_path)
        assert not variant.read_error
        expected = {63: ["rest"], 128: ["part<64>", "rest"], 130: ["part<64>", "rest", "rest"]}
        assert {n: launched(variant, n=n) for n in expected} == expected


def test_a_choice_by_an_enumeration_is_made_where_its_kernel_is_named(tmp_path):
    kinds = "enum KIND { FIRST, SECOND };\n"
    body = f"if (n == FIRST) {{ {FAST} }} else if (n == SECOND) {{ {SLOW} }}"
    (tmp_path / "mine.yaml").write_text("kernel: fast\n")
    head = "const float *a, const float *b, float *c, KIND n"
    variant = read(
        tmp_path, "int m = 8, k = 8;" + body.replace("m, n, k)", "m, 8, k)"), kernels=kinds + KERNELS, head=head
    )
    assert variant.header.kernel == "fast"


def test_a_block_of_the_next_power_of_two_threads_is_read(tmp_path):
    kernels = "__global__ void rows(const float *x, float *y, int n) { y[0] = x[0]; }\nint next_pow2(int v) { v--; v |= v >> 1; return v + 1; }\n"
    body = "int threads = std::min(1024, next_pow2(columns)); rows<<<1, threads>>>(x, y, columns);"
    variant = read(tmp_path, body, "softmax", kernels, "const float *x, float *y, int columns")
    assert variant.header.threads == ["min(1024, next_power_of_2(columns))"]


def test_a_tensor_of_an_image_alone_has_the_last_extents_of_a_batch(tmp_path):
    kernels = "__global__ void conv(const float *x, const float *w, float *y, int height, int width, int K) { y[0] = x[0] * w[0]; }\n"
    body = (
        "int height = x.size(0), width = x.size(1), K = w.size(0);\n"
        "conv<<<height, width>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), height, width, K);"
    )
    shutil.copy(problems.FOLDER / "conv" / "problem.py", tmp_path)
    header = read(tmp_path, body, "conv", kernels, "torch::Tensor x, torch::Tensor w, torch::Tensor y").header
    assert (header.arguments, header.grid) == (["x", "w", "y", "H", "W", "K"], ["H"])
    assert header.limits.model_dump(exclude_unset=True, by_alias=True) == {name: {"is": 1} for name in "CMN"}
    whole = read(
        tmp_path, f"int N = x.size(2);\n{body}", "conv", kernels, "torch::Tensor x, torch::Tensor w, torch::Tensor y"
    )
    assert "its shape is another" in whole.read_error


def test_rows_that_the_host_pads_are_as_long_as_they_are(tmp_path):
    kernels = (
        "__global__ void rows(const float *x, size_t pitch, float *y, int rows, int columns) { y[0] = x[pitch]; }\n"
    )
    body = (
        "float *d_x; size_t pitch; cudaMallocPitch((void **)&d_x, &pitch, columns * sizeof(float), rows);\n"
        "rows<<<rows, 32>>>(d_x, pitch, d_y, rows, columns);"
    )
    variant = read(tmp_path, body, "softmax", kernels, "const float *x, float *d_y, int rows, int columns")
    assert variant.header.arguments == ["x", "columns * 4", "y", "rows", "columns"]


def test_kernels_that_hand_on_by_a_variable_of_the_device_are_steps(tmp_path):
    kernels = (
        "__device__ float held[1024];\n"
        "__global__ void part(const float *x, int n) { held[blockIdx.x] = x[n - 1]; }\n"
        "__global__ void rest(float *y, int blocks) { *y = held[blocks]; }\n"
    )
    body = "part<<<n / 64, 64>>>(x, n); rest<<<1, 64>>>(y, n / 64);"
    variant = read(tmp_path, body, "reduce", kernels, "const float *x, float *y, int n")
    assert [step.kernel for step in variant.header.steps] == ["part", "rest"]
    apart = kernels.replace("*y = held[blocks]", "*y = blocks")
    assert "say which" in read(tmp_path, body, "reduce", apart, "const float *x, float *y, int n").read_error


FILLED = """\
__global__ void most(const float *x, float *top, int n) { atomicMax((int *)top, (int)x[n - 1]); }
__global__ void soft(const float *x, const float *top, float *y, int n) { y[n - 1] = x[0] - *top; }
void solve(const float *x, float *y, int columns, float *given) {
    float *top; cudaMalloc(&top, sizeof(float)); MADE
    cudaMemcpy(top, host, sizeof(float), KIND);
    most<<<1, 32>>>(x, top, columns); soft<<<1, 32>>>(x, top, y, columns);
}
"""


def test_memory_that_the_host_copies_to_holds_what_is_known_of_the_host_s(tmp_path):
    for made, first in [
        (
            "float *host = new float[1]; for (int i = 0; i < 1; i++) host[i] = -FLT_MAX;",
            {"top": -3.4028234663852886e38},
        ),
        ("float *host = (float *)malloc(4); std::fill(host, host + 1, -INFINITY);", {"top": -3.4028234663852886e38}),
        ("std::vector<float> host(1, 0.0f);", "top"),
        ("float *host = (float *)calloc(1, 4);", "top"),
        ("float *host = given;", None),
        ("float *host = new float[1]; host[0] = 0; host[0] = 2;", None),
    ]:
        shutil.copy(problems.FOLDER / "softmax" / "problem.py", tmp_path)
        kind = "cudaMemcpyDefault" if "vector" in made else "cudaMemcpyHostToDevice"
        (tmp_path / "mine.cu").write_text(FILLED.replace("MADE", made).replace("KIND", kind))
        variant = variants.read("mine", tmp_path)
        if first is None:
            assert "nothing tells what the host copies to `top`" in variant.read_error
        else:
            assert (variant.header.steps[0].fill or variant.header.steps[0].clear) == first


def test_a_sum_that_a_kernel_adds_to_is_0_where_each_caller_sets_it(tmp_path):
    for before, cleared in [
        ("float *d_out; cudaMalloc(&d_out, 4); cudaMemset(d_out, 0, 4);", True),
        ("thrust::device_vector<float> d_out(1);", True),
        ("float *d_out; cudaMalloc(&d_out, 4);", False),
    ]:
        kernels = "__global__ void add(const float *x, float *y, int n) { atomicAdd(y, x[n - 1]); }\n"
        benchmark = f"int main() {{ {before} solve(d_in, d_out, 64); check<<<1, 1>>>(d_out); }}\n"
        shutil.copy(problems.FOLDER / "reduce" / "problem.py", tmp_path)
        host = "void solve(const float *x, float *y, int n) { add<<<1, 32>>>(x, y, n); }\n__global__ void check(float *y) { *y = 1; }\n"
        (tmp_path / "mine.cu").write_text(kernels + host + benchmark)
        header = variants.read("mine", tmp_path).header
        assert (header.kernel, header.clear) == ("add", ["y"] if cleared else [])


def test_extents_in_an_array_of_the_host_s_are_read(tmp_path):
    for head in [
        "const float *a, const float *b, float *c, const int *a_dim, int *bShape",
        "const float *a, const float *b, float *c, int m, int n, int k",
    ]:
        own = "int a_dim[2] = {m, k}; int bShape[] = {k, n};" if "int m" in head else ""
        variant = read(tmp_path, f"{own} fast<<<a_dim[0], 32>>>(a, b, c, a_dim[0], bShape[1], a_dim[1]);", head=head)
        assert (variant.header.grid, variant.header.arguments[3:]) == (["m"], ["m", "n", "k"])


def test_kernels_that_get_the_same_arrays_are_two_ways_to_the_result(tmp_path):
    kernels = "".join(
        f"__global__ void {name}(float *most, const float *from, int n) {{ most[0] = fmaxf(most[0], from[n - 1]); }}\n"
        for name in ("plain", "atomic")
    )
    body = "float *d_a, *d_most; plain<<<8, 64>>>(d_most, d_a, n); atomic<<<8, 64>>>(d_most, d_a, n);"
    question = read(tmp_path, body, "reduce", kernels, "int n").read_error
    assert "`kernel: plain` or `kernel: atomic`" in question


def test_a_factor_is_1_whatever_the_benchmark_gives(tmp_path):
    kernel = "__global__ void scaled(const float *a, const float *b, float *c, int m, int n, int k, float alpha) { c[0] = a[0]; }\n"
    variant = read(tmp_path, "float alpha = 1.1f; scaled<<<m, 32>>>(a, b, c, m, n, k, alpha);", kernels=kernel)
    assert variant.header.arguments[-1] == 1.0
