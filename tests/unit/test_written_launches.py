"""Files that launch their own kernel go in as they are: the launch is read, shown, and never guessed."""

import json
import pickle
import re
import shutil

import pytest
import yaml

from warpbook.common import expressions
from warpbook.common.files import PROJECT
from warpbook.harness import recorded_launches
from warpbook.kernels import variants
from warpbook.kernels.launch_inference import (
    cuda_ast,
    inferred_facts,
    launch_reader,
    launch_sites,
    single_launch,
    struct_parameters,
)
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.inferred_facts import UnreadableLaunch
from warpbook.problems import networks
from warpbook.problems import problem as problems
from warpbook.report import excerpts

FILES = PROJECT / "tests" / "data" / "strangers"
LECTURE = (FILES / "lecture_style.cu").read_text()
LAYER = networks.ConvLayer("ragged", 3, 23, 19, 4, 5)

READ = {
    "lecture_style": {
        "kernel": "conv_forward_kernel", "arguments": ["y", "x", "w", "N", "M", "C", "H", "W", "K"],
        "threads": [16, 16, 1], "grid": ["M", "ceil((H - K + 1) / 16) * ceil((W - K + 1) / 16)", "N"],
    },
    "dynamic_shared": {
        "kernel": "conv2d_shared", "arguments": ["x", "w", "y", "N", "C", "H", "W", "M", "K"], "threads": [8, 8],
        "grid": ["(W - K + 1 + 8 - 1) // 8", "(H - K + 1 + 8 - 1) // 8", "N * M"],
        "shared_bytes": "(8 + K - 1) * (8 + K - 1) * 4",
    },
    "whole_program": {
        "kernel": "convolve", "arguments": ["x", "w", "y", "N", "C", "H", "W", "M", "K", "N * M * (H - K + 1) * (W - K + 1)"],
        "threads": [128], "grid": ["(N * M * (H - K + 1) * (W - K + 1) + 128 - 1) // 128"],
    },
    "class_wrapper": {
        "steps": [{
            "kernel": "forward", "arguments": ["x", "w", "y", "N", "C", "H", "W", "M", "K"], "threads": [32, 4],
            "grid": ["(W - K + 1 + 32 - 1) // 32", "(H - K + 1 + 4 - 1) // 4", "N"], "when": "1 - min(max(K - H, 0), 1)",
        }],
    },
    "templated": {
        "kernel": "conv<16, true>", "arguments": ["x", "w", "y", "N", "C", "H", "W", "M", "K", "H - K + 1", "W - K + 1"],
        "threads": [16, 16], "grid": ["(W - K + 1 + 16 - 1) // 16 * ((H - K + 1 + 16 - 1) // 16)", "M", "N"],
    },
    "cudnn_names": {
        "kernel": "conv_fprop",
        "arguments": ["x", "w", "y", "N", "C", "H", "W", "M", "K", "K", "H - K + 1", "W - K + 1"],
        "threads": [32, 8], "grid": ["(W - K + 1 + 31) // 32", "(H - K + 1 + 7) // 2 ** 3", "N * M"],
    },
    "fixed_mask": {
        "kernel": "conv_tiled", "arguments": ["x", "y", "w", "C", "H", "W", "M"], "threads": [16, 16, 1],
        "grid": ["((W - 5 + 1 - 1) // 12 + 1) * ((H - 5) // 12 + 1)", "M", "N"], "limits": {"K": {"is": 5}},
    },
    "tensor_shapes": {
        "kernel": "conv_kernel", "arguments": ["y", "x", "w", "N", "M", "C", "H", "W", "K"], "threads": [32, 8],
        "grid": ["N", "M"],
    },
    "constant_memory": {
        "kernel": "conv_const", "arguments": ["x", "y", "N", "M", "C", "H", "W", "K"], "threads": [16, 16],
        "grid": ["(W - K + 16) // 16", "(H - K + 16) // 16", "N * M"], "constant_memory": "taps",
        "limits": {"weights": 4096},
    },
    "namespaced": {
        "kernel": "framework::layers::forward_kernel", "arguments": ["y", "x", "N", "M", "C", "H", "W", "K"],
        "threads": [8, 8, 1], "grid": ["M", "((H - K) // 8 + 1) * ((W - K) // 8 + 1)", "N"],
        "constant_memory": "framework::layers::filters", "limits": {"weights": 9408},
    },
}  # fmt: skip


def changed(*changes, text=LECTURE):
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_launch_is_read_from_the_file_and_shown_with_its_line():
    for name in READ:
        variant = variants.read(name, FILES)
        assert variant.read_error == ""
        assert variant.inferred_launch.facts == READ[name]
        lines = (FILES / f"{name}.cu").read_text().splitlines()
        assert "<<<" in lines[variant.inferred_launch.line - 1]
        (key, *_) = READ[name]
        assert variant.notes([]).startswith(f"{name}.cu: launch read from line {variant.inferred_launch.line}: {key} ")


def test_a_launch_that_asks_for_more_shared_memory_than_cuda_gives_unasked_is_told_what_it_lacks(tmp_path):
    launch = "conv<<<dim3(N, M), 256, H * W * 16>>>(x, w, y, N, C, H, W, M, K);"
    arguments = "const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K"
    file = tmp_path / "mine.cu"

    def remark(before=""):
        kernels = f"__global__ void conv({arguments}) {{}} __global__ void other() {{}}\n"
        file.write_text(f"{kernels}void run({arguments})\n{{ {before}\n  {launch} }}\n")
        return variants.read("mine", tmp_path).notes(networks.find("fa18").cases)

    asked = "cudaFuncSetAttribute(conv, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536)"
    assert (
        f"line 4 of mine.cu asks for 65536 bytes of dynamic shared memory, and CUDA allows 49152: call {asked} before it."
        in remark()
    )
    assert "asks for" in remark(f"// {asked}")
    assert "asks for" in remark(f"{asked.replace('(conv', '(other')};")
    assert "asks for" not in remark(f"{asked};")


def test_names_taken_for_extents_are_told():
    sentence = variants.read("whole_program", FILES).inferred_launch.sentence
    assert sentence.endswith(
        "; taken for the layer's by name: N (line 33), C (line 34), H (line 34), W (line 34), M (line 34), K (line 34)"
    )
    assigned = variants.read("namespaced", FILES).inferred_launch.sentence
    assert "; taken for the layer's by name: x.shape_[0] (line 36) for N, y.shape_[1] (line 37) for M, " in assigned
    limited = variants.read("fixed_mask", FILES).inferred_launch.sentence
    assert limited.endswith(
        "limits {K: {is: 5}}; taken for the layer's by name: MASK_WIDTH, 5, for the one K that it is for"
    )


UNREADABLE = {
    "an extent of no name known": (
        [("float *device_output, const float *device_input", "int t, float *device_output, const float *device_input"),
         ("dimGrid(M, Y, B)", "dimGrid(M, Y, t)")],
        "`t` is a parameter whose name is no extent's, line 24 (launch in line 32)", "grid: [?]",
    ),
    "a number that a loop makes": (
        [("    dim3 dimGrid", "    int tiles = 0;\n    while (tiles * 16 < W_out) tiles++;\n    dim3 dimGrid"),
         ("dimGrid(M, Y, B)", "dimGrid(M, tiles, B)")],
        "`tiles` is set in a loop, line 31 (launch in line 34)", "grid: [?]",
    ),
    "a grid that a condition decides": (
        [("    dim3 dimBlock", "    if (fits(H_out)) dimGrid.z = 1;\n    dim3 dimBlock")],
        "`dimGrid` is set under a condition, line 31 (launch in line 33)", "threads: [16, 16, 1]",
    ),
    "a launch under a condition": (
        [("    conv_forward_kernel<<<", "    if (fits(K)) conv_forward_kernel<<<")],
        "the launch stands under a condition, (fits(K)), line 32", "grid: [M, ceil((H - K + 1) / 16) * ceil((W - K + 1) / 16), N]",
    ),
    "a pointer of no name known": (
        [("device_input, device_mask, B", "device_input, scratch, B"), ("const float *mask", "const float *t"),
         ("* mask[", "* t["), ("const float *input", "const float *s"), ("sum += input", "sum += s"),
         ("device_output, device_input,", "device_output, chunk,")],
        "`chunk` is none of x, w and y by its name, line 32", "arguments: [y, ?, ?, N, M, C, H, W, K]",
    ),
    "an output that cannot be written": (
        [("float *output, const float *input", "const float *output, const float *input")],
        "`output` is y by its name, and const, line 6", "arguments: [y, x, w,",
    ),
    "a choice that no arithmetic makes": (
        [("ceil(H_out / 16.0) * ceil", "(fits(H_out) ? 2 : 1) * ceil")],
        "`fits(H_out)` calls what is not known here, line 29 (launch in line 32)", "grid: [?]",
    ),
    "too few arguments": (
        [("W, K);\n    cuda", "W);\n    cuda")],
        "conv_forward_kernel takes 9 arguments, and the launch gives 8, line 32", "arguments: [?]",
    ),
}  # fmt: skip


def test_what_cannot_be_read_is_said_with_its_line_and_what_to_write(tmp_path):
    for name in UNREADABLE:
        changes, words, facts = UNREADABLE[name]
        (tmp_path / "mine.cu").write_text(changed(*changes))
        problem = variants.read("mine", tmp_path).read_error
        assert problem.startswith("mine.cu: ")
        sentence, _, instead = problem.partition("; say it in mine.yaml:\n")
        assert words in sentence
        assert facts in instead
        assert instead.startswith("kernel: conv_forward_kernel\narguments: ")


def test_arrays_are_of_the_types_that_kernels_take(tmp_path):
    (tmp_path / "half.cu").write_text(changed(("const float *mask", "const __half *mask")))
    half = variants.read("half", tmp_path)
    assert [one.dtype for one in half.problem.inputs.values()] == ["float32", "float16", "float32"]
    assert half.header.precision == "fp16"
    steps = changed(("unroll(const float* x", "unroll(const int* x"), text=(FILES / "two_kernels.cu").read_text())
    (tmp_path / "steps.cu").write_text(steps)
    assert variants.read("steps", tmp_path).problem.inputs["x"].dtype == "int32"


SUMS = """\
typedef unsigned int uint_type;
template <typename T> __global__ void sum(const T *x, T *y, int n) { y[blockIdx.x] = x[threadIdx.x]; }
int main() {
    int n = 1000;
    TYPE *d_x, *d_y, h_y[4];
    sum<<<4, 256>>>(d_x, d_y, n);
    cudaMemcpy(h_y, d_y, 4 * sizeof(TYPE), cudaMemcpyDeviceToHost);
    for (int i = 0; i < 4; ++i) h_y[0] += h_y[i];
}
"""


def test_a_template_is_of_the_type_of_the_host_s_pointers(tmp_path):
    for type_name, dtype, precision in [
        ("double", "float64", "fp64"),
        ("int", "int32", "int"),
        ("uint_type", "uint32", "int"),
        ("unsigned long long", "uint64", "int"),
        ("float", "float32", "fp32"),
    ]:
        shutil.copy(problems.FOLDER / "reduce" / "problem.py", tmp_path)
        (tmp_path / "mine.cu").write_text(SUMS.replace("TYPE", type_name))
        read = variants.read("mine", tmp_path)
        assert not read.read_error
        assert {one.dtype for one in (*read.problem.inputs.values(), *read.problem.outputs.values())} == {dtype}
        assert read.header.precision == precision
        case = read.problem.case("", {"n": 1000}).with_problem(pickle.loads(pickle.dumps(read.problem)))
        assert case.bytes == 1001 * problems.itemsize(dtype)


def test_whole_numbers_for_fractions_are_refused(tmp_path):
    shutil.copy(problems.FOLDER / "softmax" / "problem.py", tmp_path)
    (tmp_path / "mine.cu").write_text("""\
__global__ void softmax(const float *x, int *y, int rows, int columns) {}
void run(const float *x, int *y, int rows, int columns) { softmax<<<rows, 32>>>(x, y, rows, columns); }
""")
    words = "mine.cu: y would be whole numbers (int32), and results are fractions"
    assert variants.read("mine", tmp_path).read_error == words


def test_launches_of_a_fixed_number_are_for_that_number_alone(tmp_path):
    shutil.copy(problems.FOLDER / "reduce" / "problem.py", tmp_path)
    (tmp_path / "mine.cu").write_text("""\
__global__ void sum(float *v, float *out) { out[blockIdx.x] = v[blockIdx.x * blockDim.x + threadIdx.x]; }
int main() {
    int N = 1 << 16;
    float *d_in, *d_out;
    cudaMalloc(&d_in, N * 4);
    sum<<<N / 256, 256>>>(d_in, d_out);
    sum<<<1, 256>>>(d_out, d_out);
}
""")
    assert variants.read("mine", tmp_path).header.limits.n.exactly == 65536


def test_a_number_of_a_template_that_follows_from_an_extent_is_asked_for(tmp_path):
    shutil.copy(problems.FOLDER / "reduce" / "problem.py", tmp_path)
    (tmp_path / "mine.cu").write_text("""\
template <int EACH> __global__ void sum(const float *x, float *y, int n) {}
void run(const float *x, float *y, int n) { const int each = n / 256; sum<each><<<1, 256>>>(x, y, n); }
""")
    words = "the template's `each` is n // 256, and a template is for one number: say it in `kernel`, line 2"
    assert words in variants.read("mine", tmp_path).read_error


PARTIAL_SUMS = """\
__global__ void sum(const float *x, float *out, int n) { out[blockIdx.x] = x[blockIdx.x]; }
void run(const float *x, float *out, int n)
{
    const int blocks = (n + 255) / 256;
    sum<<<blocks, 256>>>(x, out, n);
    float host[4096], total = 0;
    cudaMemcpy(host, out, blocks * sizeof(float), cudaMemcpyDeviceToHost);
    for (int i = 0; i < blocks; i++) total += host[i];
}
"""


def test_what_each_block_leaves_is_added_up_where_the_host_does(tmp_path):
    shutil.copy(problems.FOLDER / "reduce" / "problem.py", tmp_path)
    (tmp_path / "mine.cu").write_text(PARTIAL_SUMS)
    header = variants.read("mine", tmp_path).header
    assert header.scratch == {"partial": "4 * ((n + 255) // 256)"}
    assert [(step.kernel, step.arguments, step.sum) for step in header.steps] == [
        ("sum", ["x", "partial", "n"], ""), ("", [], "partial"),
    ]  # fmt: skip


def test_a_sum_for_each_block_is_no_sum_of_all_but_with_two_lines(tmp_path):
    shutil.copy(problems.FOLDER / "reduce" / "problem.py", tmp_path)
    (tmp_path / "mine.cu").write_text(PARTIAL_SUMS.replace("+= host[i]", "= host[i]"))
    error = variants.read("mine", tmp_path).read_error
    assert "`out` gets a value of each block, and y has one" in error
    (tmp_path / "mine.yaml").write_text(error.partition("mine.yaml:\n")[2])
    assert variants.read("mine", tmp_path).header.steps[1].sum == "partial"


def test_a_sum_that_cannot_be_is_told(tmp_path):
    for problem, step, words in [
        ("softmax", "{sum: part}", "has more outputs than one value"),
        ("reduce", "{sum: y}", "'y' is not of `scratch`"),
        ("reduce", "{sum: part, clear: part}", "a step launches a `kernel`, fills an array"),
    ]:
        shutil.copy(problems.FOLDER / problem / "problem.py", tmp_path)
        (tmp_path / "mine.cu").write_text("__global__ void sum(const float *x, float *y) {}")
        launch = "{kernel: sum, arguments: [x, part], threads: [32], grid: [1]}"
        (tmp_path / "mine.yaml").write_text(f"scratch: {{part: 4}}\nsteps: [{launch}, {step}]\n")
        assert words in variants.read("mine", tmp_path).read_error


def test_a_kernel_that_is_told_one_length_is_for_one_row(tmp_path):
    shutil.copy(problems.FOLDER / "softmax" / "problem.py", tmp_path)
    (tmp_path / "mine.cu").write_text("""\
__global__ void softmax(const float *x, float *y, int N) {}
void run(const float *x, float *y, int N) { softmax<<<(N + 255) / 256, 256>>>(x, y, N); }
""")
    read = variants.read("mine", tmp_path)
    assert read.header.arguments == ["x", "y", "columns"] and read.header.limits.rows.exactly == 1


def test_columns_are_what_a_row_s_number_is_multiplied_with(tmp_path):
    for rows, columns in [("N", "M"), ("M", "N"), ("height", "n")]:
        shutil.copy(problems.FOLDER / "softmax" / "problem.py", tmp_path)
        (tmp_path / "mine.cu").write_text(f"""\
__global__ void softmax(const float *x, float *y, int {rows}, int {columns}) {{
    for (int i = threadIdx.x; i < {columns}; i += 32) y[blockIdx.x * {columns} + i] = x[blockIdx.x * {columns} + i];
}}
void run(const float *x, float *y, int {rows}, int {columns}) {{ softmax<<<{rows}, 32>>>(x, y, {rows}, {columns}); }}
""")
        header = variants.read("mine", tmp_path).header
        assert header.arguments == ["x", "y", "rows", "columns"] and header.grid == ["rows"]


def test_a_tensor_of_another_shape_is_not_taken_for_the_problem_s(tmp_path):
    kernel = "__global__ void conv(const float *x, const float *w, float *y, int H, int W) {}"
    run = "void run(torch::Tensor x, torch::Tensor w, torch::Tensor y) { int H = x.size(0), W = x.size(3); "
    call = "conv<<<H, W>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), H, W); }"
    (tmp_path / "mine.cu").write_text("\n".join([kernel, run, call]))
    words = "`H` is extent 0 of x, where x has N: its shape is another, line 2"
    assert words in variants.read("mine", tmp_path).read_error


def test_names_that_a_file_gives_types_and_rounding_up_are_read(tmp_path):
    for alias in ["#define real float", "typedef float real;", "using real = float;"]:
        shutil.copy(problems.FOLDER / "softmax" / "problem.py", tmp_path)
        kernel = "__global__ void softmax(const real *xd, real *resd, int nrow, int ncol) {}"
        up = "#define UP(a, b) ((a) >= 0 ? (((a) + (b) - 1) / (b)) : ((a) / (b)))"
        run = "void run(real *xd, real *resd, int nrow, int ncol) { softmax<<<UP(nrow, 4), 128>>>(xd, resd, nrow, ncol); }"
        (tmp_path / "mine.cu").write_text("\n".join([alias, up, kernel, run]))
        facts = variants.read("mine", tmp_path).inferred_launch.facts
        assert (facts["arguments"], facts["grid"]) == (["x", "y", "rows", "columns"], ["(rows + 4 - 1) // 4"])


def test_a_kernel_that_its_file_does_not_launch_gets_yaml_to_complete(tmp_path):
    shutil.copy(problems.FOLDER / "gemm" / "problem.py", tmp_path)
    parameters = "int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C"
    code = f"template <const int BM, int BN> __global__ void tiled({parameters}) {{}}"
    (tmp_path / "mine.cu").write_text(code)
    sentence, _, facts = variants.read("mine", tmp_path).read_error.partition("; say it in mine.yaml:\n")
    assert sentence == "mine.cu: nothing says how tiled<?, ?> is launched"
    assert yaml.safe_load(facts)["arguments"] == ["m", "n", "k", 1.0, "a", "b", 0.0, "c"]
    assert yaml.safe_load(facts)["clear"] == ["c"]
    completed = facts.replace("tiled<?, ?>", "tiled<32, 32>").replace("threads: [?]", "threads: [1024]")
    (tmp_path / "mine.yaml").write_text(completed.replace("grid: [?]", "grid: [ceil(n / 32), ceil(m / 32)]"))
    assert variants.read("mine", tmp_path).read_error == ""
    (tmp_path / "mine.yaml").unlink()
    (tmp_path / "mine.cu").write_text(f"{code}\n__global__ void plain({parameters}) {{}}")
    assert "it holds the kernels tiled, plain: say which, `kernel: tiled`" in variants.read("mine", tmp_path).read_error


@pytest.mark.parametrize(
    ("of", "kernel", "facts"),
    [
        ("gemm", "template <int T = 8> {} mul(const float* a, const float* b, float* c, int N)",
         {"kernel": "add", "arguments": ["a", "b", "c", "n"], "limits": {"equal": ["m", "n", "k"]}}),
        ("gemm", "{} mma(const float* a, const float* b, const float* c, float* d, int m, int n, int k)",
         {"kernel": "add", "arguments": ["a", "b", "zeros", "c", "m", "n", "k"]}),
        ("softmax", "{} soft(const float* input, float* output, int N)",
         {"kernel": "add", "arguments": ["x", "y", "columns"], "limits": {"rows": {"is": 1}}}),
        ("softmax", "{} soft(float* C, int M, int N)",
         {"steps": [{"fill": {"y": "x"}}, {"kernel": "soft", "arguments": ["y", "rows", "columns"],
                                           "threads": ["?"], "grid": ["?"]}]}),
        ("conv", "{} conv(const float* x, const float* w, float* y, int h, int w, int filter_size, float pad)",
         {"kernel": "add", "arguments": ["x", "w", "y", "H", "W", "K", "?"],
          "limits": {"C": {"is": 1}, "M": {"is": 1}, "N": {"is": 1}}}),
        ("reduce", "{} add(const float* in, float* out, int n)",
         {"scratch": {"partial": "4 * (?)"}, "steps": [
             {"kernel": "add", "arguments": ["x", "partial", "n"], "threads": ["?"], "grid": ["?"]}, {"sum": "partial"}]}),
    ],
)  # fmt: skip
def test_yaml_to_complete_says_what_the_kernel_s_parameters_tell(of, kernel, facts, tmp_path):
    name = kernel.partition("} ")[2].partition("(")[0]
    code = f"{kernel.replace('{}', '__global__ void')} {{ if (!threadIdx.x) out[blockIdx.x] = in[0]; }}\n"

    def offered(code):
        text = read_beside(tmp_path, of, code).read_error.partition("mine.yaml:\n")[2]
        return yaml.safe_load(re.sub(r"\?(?=[,\]])", '"?"', text))

    expected = facts if "steps" in facts else {**facts, "kernel": name, "threads": ["?"], "grid": ["?"]}
    assert offered(code) == expected
    # A launch that cannot be read at all gets the same.
    assert offered(f"{code}#define GO(k) LAUNCH_OF(k<<<1, 1>>>)\n") == expected


def test_two_names_that_only_their_case_tells_apart_are_not_the_same_extent(tmp_path):
    code = (
        "__global__ void conv(const float* x, const float* w, float* y, int C, int H, int W, int k, int K) {}\n"
        "void run(const float* x, const float* w, float* y, int C, int H, int W, int k, int K) {\n"
        "  conv<<<K, H>>>(x, w, y, C, H, W, k, K);\n}\n"
    )
    assert "`K` and `k` are both K by their names" in read_beside(tmp_path, "conv", code).read_error


def test_a_convolution_of_whole_numbers_is_no_fraction_for_a_bias_that_it_does_not_take(tmp_path):
    code = (
        "__global__ void conv(const int* x, const int* w, int* y, int N, int C, int H, int W, int M, int K) {}\n"
        "void run(const int* x, const int* w, int* y, int N, int C, int H, int W, int M, int K) {\n"
        "  conv<<<M, H>>>(x, w, y, N, C, H, W, M, K);\n}\n"
    )
    assert read_beside(tmp_path, "conv", code).read_error == ""


def test_launches_that_hand_memory_to_each_other_are_steps():
    variant = variants.read("two_kernels", FILES)
    assert variant.read_error == ""
    assert variant.header.scratch == {"columns": "4 * C * K * K * (H - K + 1) * (W - K + 1)"}
    first, second = variant.header.steps
    assert (first.kernel, first.arguments[:2], first.loop) == ("unroll", ["x + b * C * H * W", "columns"], {"b": "N"})
    assert (second.kernel, second.arguments[:3]) == (
        "multiply",
        ["w", "columns", "y + b * M * (H - K + 1) * (W - K + 1)"],
    )
    calls = variant.header.calls(LAYER.at(2), variant.kernel)
    assert [call.kernel for call in calls] == ["unroll", "multiply"] * 2
    assert calls[2].arguments[0] == ("x", LAYER.C * LAYER.H * LAYER.W)


def test_of_several_kernels_those_that_are_named_in_a_row_are_launched(tmp_path):
    """What the question which kernel is meant offers can be pasted back."""
    text = (FILES / "two_kernels.cu").read_text()
    direct = (
        "__global__ void direct(const float* x, const float* w, float* y, int B, int M, int C, int H, int W, int K) {}"
    )
    call = "void naive(const float* x, const float* w, float* y, int B, int M, int C, int H, int W, int K)\n{ direct<<<B, M>>>(x, w, y, B, M, C, H, W, K); }"
    (tmp_path / "mine.cu").write_text(f"{text}\n{direct}\n{call}\n")
    asked = variants.read("mine", tmp_path).read_error
    assert asked.endswith("say which: `kernel: [unroll, multiply]` or `kernel: direct`")
    for answer, kernels in (("kernel: [unroll, multiply]", ["unroll", "multiply"]), ("kernel: direct", ["direct"])):
        (tmp_path / "mine.yaml").write_text(answer)
        variant = variants.read("mine", tmp_path)
        assert (variant.read_error, [kernel for kernel, _ in variant.launched]) == ("", kernels)


CONSTANT = (FILES / "constant_memory.cu").read_text()


def test_a_number_that_the_compiler_is_told_is_asked_for_once(tmp_path):
    code = KERNEL % EXTENTS + f"{HOST} {{ conv<<<N * SIDE, SIDE>>>(x, w, y, N, C, H, W, M, K); }}\n"
    error = read_beside(tmp_path, "conv", code).read_error
    assert "; macros that the compiler gets go into `constants: {SIDE: ?}`; say it in mine.yaml:" in error
    assert read_beside(tmp_path, "conv", code, "constants: {SIDE: 8}\n").header.threads == [8]


def test_weights_that_nothing_tells_the_place_of_are_asked_for(tmp_path):
    for change, words in [
        (
            ("cudaMemcpyToSymbol(taps", "fill(taps"),
            "no pointer is w, and none is copied to one array in constant memory",
        ),
        (("taps[4096]", "taps[SOME]"), "`SOME` is no extent of a layer and no number known before, line 2"),
        (
            ("__constant__ float", "static __constant__ float"),
            "none is copied to one array in constant memory, line 20",
        ),
    ]:
        (tmp_path / "mine.cu").write_text(changed(change, text=CONSTANT))
        assert words in variants.read("mine", tmp_path).read_error


def test_a_layer_with_more_weights_than_constant_memory_holds_is_unsupported():
    variant = variants.read("constant_memory", FILES)
    assert variant.unsupported(LAYER.at(1)) == ""
    reason = variant.unsupported(networks.ConvLayer("large", 16, 23, 19, 16, 5).at(1))
    assert reason == "constant_memory: M*C//G*K*KW = 6400 exceeds its limit 4096 (line 20 of constant_memory.cu)"


def test_weights_in_constant_memory_are_no_argument_too(tmp_path):
    (tmp_path / "mine.cu").write_text(CONSTANT)
    facts = {**READ["constant_memory"], "arguments": ["x", "w", "y"]}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(facts))
    expected = "mine.yaml: arguments: w stands there 1 times, and is copied to `constant_memory: taps`"
    assert variants.read("mine", tmp_path).read_error == expected


def test_the_excerpt_of_a_change_is_of_the_kernel_and_not_of_its_program():
    shown = excerpts.excerpt(variants.read("whole_program", FILES), variants.read("lecture_style", FILES))
    text = " ".join(str(line.code) for line in shown.lines)
    assert "cudaMalloc" not in text and "argc" not in text
    assert "ow = i % OW" in text and shown.added < 20


def test_facts_beside_a_file_are_taken_in_place_of_its_launch(tmp_path):
    (tmp_path / "mine.cu").write_text(LECTURE)
    facts = {**READ["lecture_style"], "threads": [8, 8]}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(facts))
    variant = variants.read("mine", tmp_path)
    assert (variant.inferred_launch, variant.header.block) == (None, (8, 8))
    (tmp_path / "mine.yaml").write_text("title: Mine\nlimits: {C: {is: 1}}\n")
    variant = variants.read("mine", tmp_path)
    assert (variant.title, variant.header.block, variant.header.limits.words) == ("Mine", (16, 16, 1), "C = 1")
    assert variant.fact_location("grid") == "line 32 of mine.cu"


def test_of_several_kernels_that_are_launched_the_facts_say_which(tmp_path):
    second = changed(("conv_forward_kernel", "other"), ("conv_forward_gpu", "run_other"), ("TILE_WIDTH", "SIDE"))
    (tmp_path / "mine.cu").write_text(LECTURE + second.replace("SIDE 16", "SIDE 8").replace("16.0", "8.0"))
    assert (
        "several kernels are launched: conv_forward_kernel in line 32, other in line 66"
        in variants.read("mine", tmp_path).read_error
    )
    (tmp_path / "mine.yaml").write_text("kernel: other\n")
    variant = variants.read("mine", tmp_path)
    assert (variant.read_error, variant.kernel, variant.header.block) == ("", "other", (8, 8, 1))
    (tmp_path / "mine.yaml").write_text("kernel: third\n")
    assert (
        "third is launched nowhere; launched are conv_forward_kernel, other"
        in variants.read("mine", tmp_path).read_error
    )


def test_a_launch_changed_in_the_source_is_another_variant(tmp_path):
    hashes = set()
    for change in (("", ""), ("TILE_WIDTH, 1)", "8, 1)"), ("dimGrid(M,", "dimGrid(M + 1,")):
        (tmp_path / "mine.cu").write_text(changed(change))
        hashes.add(variants.read("mine", tmp_path).source_sha256)
    assert len(hashes) == 3


def test_c_arithmetic_keeps_its_meaning():
    for written, read in [
        ("(W_out - 1) / 16 + 1", "(W - K + 1 - 1) // 16 + 1"),
        ("ceil(W_out / 16)", "(W - K + 1) // 16"),
        ("ceil(W_out / 16.f)", "ceil((W - K + 1) / 16)"),
        ("(int)ceil((float)W_out / TILE_WIDTH)", "ceil((W - K + 1) / 16)"),
        ("static_cast<int>(std::ceil(static_cast<double>(W - K + 1) / 16))", "ceil((W - K + 1) / 16)"),
        ("W_out / 16.0", "(W - K + 1) / 16 // 1"),
        ("W_out * 0.5", "(W - K + 1) * (1 / 2) // 1"),
        ("std::max(1, (H - K + 1) >> 2)", "max(1, (H - K + 1) // 2 ** 2)"),
        ("0x10 * sizeof(float)", 64),
        ("W_out / 16 + (W_out % 16 != 0)", "(W - K + 1) // 16 + min((W - K + 1) % 16, 1)"),
        ("W_out % 16 ? W_out / 16 + 1 : W_out / 16", "(W - K + 1) // 16 + min((W - K + 1) % 16, 1)"),
    ]:
        text = changed(("dimGrid(M, Y, B)", f"dimGrid(M, {written}, B)"))
        assert launch_reader.read(text).facts["grid"] == ["M", read, "N"]


def test_numbers_that_conditions_decide_are_what_c_makes_them():
    for statements, threads in [
        ("if (n % 32) t++;", lambda n, t: t + (n % 32 > 0)),
        ("if (t > 512) { t = 512; }", lambda n, t: min(t, 512)),
        (
            "if (n < 64) t = 32; else if (n <= 128 || n == 200) t = 64; else { t -= 1; }",
            lambda n, t: 32 if n < 64 else 64 if n <= 128 or n == 200 else t - 1,
        ),
        ("if (!(n % 4) && n >= 100) t *= 2;", lambda n, t: 2 * t if n % 4 == 0 and n >= 100 else t),
        ("int u = n > 100 ? n / 3 : n % 7; t = u + 1;", lambda n, t: (n // 3 if n > 100 else n % 7) + 1),
        ("if (n > 9) { int t = 5; }", lambda n, t: t),
        ("dim3 b(t); if (n != 7) b.x = 64; t = b.x;", lambda n, t: t if n == 7 else 64),
    ]:
        code = f"""\
__global__ void add(const float *in, float *out, int n) {{ out[0] = in[0]; }}
void run(const float *in, float *out, int n) {{ int t = n / 4 + 1; {statements} add<<<1, t>>>(in, out, n); }}
"""
        read = launch_reader.read(code, "", HostNames(problems.find("reduce"))).facts["threads"][0]
        for n in range(1, 300):
            assert expressions.evaluate(read, {"n": n}) == threads(n, n // 4 + 1)


def test_a_stride_that_the_kernel_gets_is_the_layer_s():
    text = changed(("const int K)", "const int K, const int stride)"), ("W, K);\n    cuda", "W, K, stride);\n    cuda"))
    text = text.replace("H - K + 1", "(H - K) / stride + 1").replace("W - K + 1", "(W - K) / stride + 1")
    facts = launch_reader.read(text).facts
    assert facts["arguments"] == ["y", "x", "w", "N", "M", "C", "H", "W", "K", "S"]
    assert facts["grid"][1] == "ceil(((H - K) // S + 1) / 16) * ceil(((W - K) // S + 1) / 16)"


def test_host_code_is_cut_and_every_line_stays_in_its_place():
    text = (FILES / "class_wrapper.cu").read_text()
    cut = cuda_ast.device_code(text)
    assert len(cut.splitlines()) == len(text.splitlines())
    assert "<<<" not in cut and "class Convolution" not in cut
    number = next(i for i, line in enumerate(text.splitlines()) if "int offset(" in line)
    assert cut.splitlines()[number] == text.splitlines()[number]


def test_a_structure_with_its_alignment_is_no_host_code():
    text = "struct __align__(8) Pair { float a, b; };\n__device__ Pair same(Pair one) { return one; }\n"
    assert cuda_ast.device_code(text + "int main() { cudaFree(0); }\n").rstrip() == text.rstrip()


def test_a_constructor_by_default_serves_the_device_too():
    text = "struct Four { float of[4]; Four() = default; __device__ explicit Four(float4 one) {} };\n"
    assert cuda_ast.device_code(text + "int main() { cudaFree(0); }\n").rstrip() == text.rstrip()


def test_a_device_function_behind_a_macro_is_no_host_code():
    text = "#define DEV __device__ __forceinline__\n#define INNER DEV\nINNER float twice(float a) { return 2 * a; }\n"
    assert cuda_ast.device_code(text + "int main() { cudaFree(0); }\n").rstrip() == text.rstrip()


def test_what_needs_a_type_of_the_host_s_is_host_code_too():
    timer = "class Timer { std::chrono::seconds began; public: enum Unit { US, MS }; };\nconstexpr Timer::Unit us = Timer::US;\n"
    timer += "class Fine : public Timer { int us; };\n"
    timer += "using us = const vector<float>&;\n"
    timer += "template <typename T, int B> struct Run { void us(T *x) { add<T, B><<<1, B>>>(x); } };\n"
    assert "us" not in cuda_ast.device_code(f"{timer}__device__ int one = 1;\n")


def test_kernels_without_host_code_are_compiled_as_they_are():
    for variant in variants.discover().values():
        if variant.cuda_source:
            text = variant.cuda_source.read_text()
            assert cuda_ast.device_code(text) == text, variant.name


BRANCHES = """\
#ifndef SIDE
#define SIDE 4
#endif
#if SIDE == 4 && !defined(WIDE)
typedef float real;
#elif defined(NARROW) || SIDE > 99
typedef int real;
#else
typedef double real;
#endif
__global__ void add(const real *in, real *out, int n) { out[0] = in[0]; }
void run(const real *in, real *out, int n) {
#ifdef WIDE
  int threads = 64 * SIDE;
#else
  int threads = 32 * SIDE; // "128"
#endif
#if __CUDACC_VER_MAJOR__ > 11
  add<<<1, threads>>>(in, out, n);
#endif
}
"""


def test_of_branches_of_the_preprocessor_the_one_that_is_compiled_is_read(tmp_path):
    read = read_beside(tmp_path, "reduce", BRANCHES)
    assert read.header.threads == [128] and dict(read.problem.dtypes) == {}
    wide = read_beside(tmp_path, "reduce", BRANCHES, "constants: {WIDE: 1, SIDE: 8}\n")
    assert wide.header.threads == [512] and "__CUDACC_VER_MAJOR__" in wide.code
    assert set(dict(wide.problem.dtypes).values()) == {"float64"}


def test_a_file_of_which_no_kernel_is_compiled_is_told_so(tmp_path):
    for condition, remedy in [("#if 0", "remove it"), ("#ifdef FAST", "say `constants: {FAST: 1}`")]:
        code = f"{condition}\n__global__ void add(const float *in, float *out, int n) {{}}\n#endif\n"
        error = read_beside(tmp_path, "reduce", code).read_error
        assert "none of its kernels is compiled" in error and error.endswith(remedy)


KERNEL = "__global__ void conv(const float* x, const float* w, float* y, %s) {}\n"
EXTENTS = "int N, int C, int H, int W, int M, int K"
HOST = f"void run(const float* x, const float* w, float* y, {EXTENTS})"
LAUNCHES = {
    "a macro of the file": (
        "#define GO(k, g, ...) do { k<<<g, 256>>>(__VA_ARGS__); \\\n  } while (0)\n", EXTENTS,
        "GO(conv, (N * M + 255) / 256, x, w, y, N, C, H, W, M, K);", [],
    ),
    "cudaLaunchKernel": (
        "", EXTENTS, "void* args[] = {&x, &w, &y, &N, &C, &H, &W, &M, &K};\n"
        "  cudaLaunchKernel((void*)conv, dim3((N * M + 255) / 256), dim3(256), args, 0, 0);", [],
    ),
    "any type of whole number": (
        "", "size_t N, const unsigned C, int64_t H, short W, long M, unsigned long long K",
        "conv<<<((size_t)N * M + 255) / 256, 256>>>(x, w, y, (size_t)N, unsigned(C), H, W, M, K);", [],
    ),
    "numbers that are no extents": (
        "", f"{EXTENTS}, float alpha, bool relu, const float* bias",
        "conv<<<(N * M + 255) / 256, 256>>>(x, w, y, N, C, H, W, M, K, 0.5f, false, nullptr);", [1.0, 0, "null"],
    ),
    "brackets that a formatter took apart": (
        "", EXTENTS, "conv << <(N * M + 255) / 256, 256 >> > (x, w, y, N, C, H, W, M, K);", [],
    ),
    "a choice that a constant of the file makes": (
        "const bool DEBUG = false;\n", EXTENTS,
        "conv<<<(N * M + 255) / 256, DEBUG ? 32 : 256>>>(x, w, y, N, C, H, W, M, K);", [],
    ),
    "a factor and a bias of the host's": (
        "", f"{EXTENTS}, float alpha, const float* b", "const float one = 1.0f;\n"
        "  float* bias = b;\n  conv<<<(N * M + 255) / 256, 256>>>(x, w, y, N, C, H, W, M, K, one, bias);", [1.0, "bias"],
    ),
}  # fmt: skip


def test_a_launch_is_read_however_it_is_written():
    for name in LAUNCHES:
        macro, parameters, launch, further = LAUNCHES[name]
        facts = launch_reader.read(f"{macro}{KERNEL % parameters}{HOST}\n{{\n  {launch}\n}}\n").facts
        assert facts["arguments"] == ["x", "w", "y", "N", "C", "H", "W", "M", "K", *further]
        assert (facts["threads"], facts["grid"]) == ([256], ["(N * M + 255) // 256"])


def test_a_loop_over_images_on_the_host_launches_once_for_each():
    loop = "for (int n = 0; n < N; ++n)\n  conv<<<M, 64>>>(x + n * C * H * W, w, &y[n * M], N, C, H, W, M, K);"
    facts = launch_reader.read(f"{KERNEL % EXTENTS}{HOST}\n{{\n  {loop}\n}}\n").facts
    assert facts["loop"] == {"n": "N"}
    assert facts["arguments"][:3] == ["x + n * C * H * W", "w", "y + n * M"]


def test_an_output_that_the_host_fills_before_is_filled_before_each_call():
    fill = "cudaMemset(y, 0, 4 * N);\n  conv<<<M, 64>>>(x, w, y, N, C, H, W, M, K);"
    assert launch_reader.read(f"{KERNEL % EXTENTS}{HOST}\n{{\n  {fill}\n}}\n").facts["clear"] == ["y"]


def test_kernels_that_each_compute_the_result_are_asked_for_in_a_line_that_answers(tmp_path):
    second = KERNEL.replace("conv(", "tiled(") % EXTENTS
    launches = "".join(f"  {kernel}<<<M, 64>>>(x, w, y, N, C, H, W, M, K);\n" for kernel in ("conv", "tiled"))
    (tmp_path / "mine.cu").write_text(f"{KERNEL % EXTENTS}{second}{HOST}\n{{\n{launches}}}\n")
    problem = variants.read("mine", tmp_path).read_error
    for answer in ("`kernel: conv`", "`kernel: tiled`"):
        assert answer in problem
        (tmp_path / "mine.yaml").write_text(answer.strip("`"))
        assert variants.read("mine", tmp_path).read_error == ""
        (tmp_path / "mine.yaml").unlink()


# --- other problems -------------------------------------------------------------------------------------------------

OTHERS = {
    "a product with factors, a template and a structure": (
        "gemm",
        "template <typename T, int B> __global__ void __launch_bounds__(B * B) sgemm(int M, int N, int K, T alpha,"
        " const T* A, const T* B_, T beta, T* C) {}\nstruct Sizes { int M, N, K; };\n"
        "void run(cudaStream_t stream, const float* A, const float* B, float* C, Sizes p, float alpha, float beta) {\n"
        "  constexpr int SIDE = 16;\n"
        "  sgemm<float, SIDE><<<dim3(p.N / SIDE, p.M), SIDE * SIDE, 0, stream>>>"
        "(p.M, p.N, p.K, alpha, A, B, beta, C);\n}\n",
        {"kernel": "sgemm<float, 16>", "arguments": ["m", "n", "k", 1.0, "a", "b", 0.0, "c"], "clear": ["c"],
         "threads": [256], "grid": ["n // 16", "m"], "limits": {"n": {"at_least": 16}}},
    ),
    "tensors of an extension": (
        "gemm",
        "__global__ void mm(const float* m, const float* n, float* o, int h, int w, int k) {}\n"
        "torch::Tensor matmul(torch::Tensor m, torch::Tensor n) {\n"
        "  int h = m.size(0), w = n.size(-1);\n  auto made = torch::empty({h, w});\n"
        "  mm<<<h, w>>>(m.data_ptr<float>(), n.data_ptr<float>(), made.data_ptr<float>(), h, w, m.size(1));\n}\n",
        {"kernel": "mm", "arguments": ["a", "b", "c", "m", "n", "k"], "threads": ["n"], "grid": ["m"]},
    ),
    "square matrices of one number": (
        "gemm",
        "#define N 512\n__global__ void mul(float* p, float* q, float* r, int Width) { r[0] = p[0] * q[0]; }\n"
        "int main() {\n  int Width = N;\n  float *p, *q, *r;\n  mul<<<Width / 16, 16>>>(p, q, r, Width);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m"], "threads": [16], "grid": ["m // 16"],
         "limits": {"m": {"at_least": 16}, "equal": ["m", "n", "k"]}},
    ),
    "extents that go by the letters of others": (
        "gemm",
        "__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K) {\n"
        "  int r = blockIdx.y, c = blockIdx.x; float s = 0;\n"
        "  for (int i = 0; i < N; i++) s += A[r * N + i] * B[i * K + c];\n  C[r * K + c] = s;\n}\n"
        "void solve(const float* A, const float* B, float* C, int M, int N, int K) {\n"
        "  mul<<<dim3(K, M), 1>>>(A, B, C, M, N, K);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m", "k", "n"], "threads": [1], "grid": ["n", "m"]},
    ),
    "a number of the file's alone": (
        "reduce",
        "__global__ void add(const float* in, float* out) { out[0] = in[0]; }\n"
        "int main() {\n  const int size = 2048;\n  float *d_in, *d_out;\n  add<<<1, size / 2>>>(d_in, d_out);\n}\n",
        {"kernel": "add", "arguments": ["x", "y"], "threads": [1024], "grid": [1], "limits": {"n": {"is": 2048}}},
    ),
    "one image of one channel": (
        "conv",
        "__global__ void conv(const float* x, const float* w, float* y, int rows, int cols, int mask_rows) {}\n"
        "void solve(const float* x, const float* w, float* y, int rows, int cols, int mask_rows) {\n"
        "  conv<<<rows, cols>>>(x, w, y, rows, cols, mask_rows);\n}\n",
        {"kernel": "conv", "arguments": ["x", "w", "y", "H", "W", "K"], "threads": ["W"], "grid": ["H"],
         "limits": {"C": {"is": 1}, "M": {"is": 1}, "N": {"is": 1}}},
    ),
    "memory that PyTorch allocates between two launches": (
        "reduce",
        "__global__ void add(const float* in, float* out, int n) { out[0] = in[0]; }\n"
        "torch::Tensor sum(torch::Tensor in) {\n  int n = in.numel(), blocks = n / 256;\n"
        "  auto part = torch::empty({blocks}, in.options()), out = torch::empty({1}, in.options());\n"
        "  add<<<blocks, 256>>>(in.data_ptr<float>(), part.data_ptr<float>(), n);\n"
        "  add<<<1, 256>>>(part.data_ptr<float>(), out.data_ptr<float>(), blocks);\n}\n",
        {"steps": [
            {"kernel": "add", "arguments": ["x", "part", "n"], "threads": [256], "grid": ["n // 256"]},
            {"kernel": "add", "arguments": ["part", "y", "n // 256"], "threads": [256], "grid": [1]},
        ], "scratch": {"part": "4 * (n // 256)"}, "limits": {"n": {"at_least": 256}}},
    ),
    "rows N and columns C, and threads that the caller says": (
        "softmax",
        "__global__ void soft(float* out, const float* inp, int N, int C) {}\n"
        "void run(float* out, const float* inp, int N, int C, int block_size) {\n"
        "  soft<<<N, block_size>>>(out, inp, N, C);\n}\n",
        {"kernel": "soft", "arguments": ["y", "x", "rows", "columns"], "threads": [256], "grid": ["rows"]},
    ),
    "rows M and columns N": (
        "softmax",
        "__global__ void soft(const float* a, float* b, int M, int N) {}\n"
        "void run(const float* a, float* b, int M, int N) {\n  soft<<<M, 32>>>(a, b, M, N);\n}\n",
        {"kernel": "soft", "arguments": ["x", "y", "rows", "columns"], "threads": [32], "grid": ["rows"]},
    ),
    "a sum in two launches": (
        "reduce",
        "__global__ void add(float* in, float* out, int n) { out[0] = in[0]; }\nint main() {\n"
        "  int n = 1 << 20, blocks = (n + 255) / 256;\n  float *d_in, *part, *total;\n"
        "  cudaMalloc(&part, blocks * sizeof(float));\n"
        "  add<<<blocks, 256>>>(d_in, part, n);\n  add<<<1, 1024>>>(part, total, blocks);\n}\n",
        {"steps": [
            {"kernel": "add", "arguments": ["x", "part", "n"], "threads": [256], "grid": ["(n + 255) // 256"]},
            {"kernel": "add", "arguments": ["part", "y", "(n + 255) // 256"], "threads": [1024], "grid": [1]},
        ], "scratch": {"part": "(n + 255) // 256 * 4"}},
    ),
    "a matrix that is added, for zeros": (
        "gemm",
        "__global__ void mma(const float* a, const float* b, const float* c, float* d, int m, int n, int k) { d[0] = c[0]; }\n"
        "void run(const float* a, const float* b, const float* c, float* d, int m, int n, int k) {\n"
        "  mma<<<m, n>>>(a, b, c, d, m, n, k);\n}\n",
        {"kernel": "mma", "arguments": ["a", "b", "zeros", "c", "m", "n", "k"], "threads": ["n"], "grid": ["m"]},
    ),
    "rows that are as long as the index says, beside a tile's width": (
        "gemm",
        "__global__ void mul(const float* A, const float* B, float* C, int n, int m, int k, int tileWidth) {\n"
        "  C[blockIdx.y * k] = A[blockIdx.y * m + 1] * B[(blockIdx.x * tileWidth + 1) * k + 1];\n}\n"
        "void run(const float* A, const float* B, float* C, int n, int m, int k) {\n"
        "  mul<<<dim3(k, n), 16>>>(A, B, C, n, m, k, 16);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m", "k", "n", 16], "threads": [16], "grid": ["n", "m"]},
    ),
    "blocks up to a number, and threads that the command line may change": (
        "reduce",
        "__global__ void add(const float* v, float* r, int n) { atomicAdd(r, v[0]); }\n"
        "int main(int argc, char** argv) {\n  int n = 1 << 20, side = 128;\n"
        "  if (argc > 1) side = atoi(argv[1]);\n  int blocks = (n + side - 1) / side;\n"
        "  if (blocks > 1024) { blocks = 1024; }\n  if (3 >= blocks) blocks = 3;\n  float *v, *r;\n"
        "  add<<<blocks, side>>>(v, r, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [128],
         "grid": ["max(min((n + 128 - 1) // 128, 1024), 3)"]},
    ),
    "a kernel through a pointer that a benchmark gets": (
        "reduce",
        "__global__ void add(const float* v, float* r, int n) { atomicAdd(r, v[0]); }\n"
        "void run(void (*kernel)(const float*, float*, int), const float* v, float* r, int n) {\n"
        "  kernel<<<(n + 63) / 64, 64>>>(v, r, n);\n}\n"
        "int main() {\n  float *v, *r;\n  void (*chosen)(const float*, float*, int) = add;\n  run(chosen, v, r, 9);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [64], "grid": ["(n + 63) // 64"]},
    ),
    "blocks for each multiprocessor of the device": (
        "reduce",
        "__global__ void add(const float* v, float* r, int n) { atomicAdd(r, v[0]); }\n"
        "void run(const float* v, float* r, int n) {\n  cudaDeviceProp prop;\n  cudaGetDeviceProperties(&prop, 0);\n"
        "  cudaMemset(r, 0, 4);\n  add<<<2 * prop.multiProcessorCount, 256>>>(v, r, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [256], "grid": [264], "clear": ["y"]},
    ),
}  # fmt: skip


PRODUCT = "__global__ void mul(const float *A, const float *B, const float *C, float *D, int M, int N, int K) { %s }\n"
OTHERS |= {
    "a matrix that is added to the product": (
        "gemm",
        PRODUCT % "D[0] = A[0] * B[0] + C[0];"
        + "void run(float *A, float *B, float *C, float *D, int M, int N, int K) {\n"
        "  mul<<<dim3(N, M), 1>>>(A, B, C, D, M, N, K);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "zeros", "c", "m", "n", "k"], "threads": [1], "grid": ["n", "m"]},
    ),
    "a matrix that is added, of a kernel that stores whole fragments": (
        "gemm",
        "__global__ void mul(half *a, half *b, float *c, float *d, int M, int N, int K, float alpha, float beta) {\n"
        "  wmma::load_matrix_sync(f, c, N); wmma::store_matrix_sync(d, f, N, wmma::mem_row_major);\n}\n"
        "void run(half *a, half *b, float *c, float *d, int M, int N, int K, float alpha, float beta) {\n"
        "  mul<<<dim3(N, M), 1>>>(a, b, c, d, M, N, K, alpha, beta);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "zeros", "c", "m", "n", "k", 1.0, 0.0], "threads": [1],
         "grid": ["n", "m"]},
    ),
    "the one number that a kernel gets, whatever it is called": (
        "reduce",
        "__global__ void add(const float *in, int w, float *out) { out[0] = in[w]; }\n"
        "int main() {\n  unsigned X1 = 1 << 13;\n  float *vec_d, *ans_d;\n  add<<<X1 / 64, 64>>>(vec_d, X1, ans_d);\n}\n",
        {"kernel": "add", "arguments": ["x", "n", "y"], "threads": [64], "grid": ["n // 64"],
         "limits": {"n": {"at_least": 64}}},
    ),
    "what each block leaves, added up by a function of the host": (
        "reduce",
        "__global__ void add(const int *in, int *out, int n) { out[blockIdx.x] = in[0]; }\n"
        "int main() {\n  int n = 1 << 13;\n  int *d_in, *part;\n  add<<<32, 64>>>(d_in, part, n);\n"
        "  cudaMemcpy(back, part, 32 * sizeof(int), cudaMemcpyDeviceToHost);\n  int sum = cpuReduction(back, 32);\n}\n",
        {"scratch": {"partial": "4 * (32)"}, "steps": [
            {"kernel": "add", "arguments": ["x", "partial", "n"], "threads": [64], "grid": [32]}, {"sum": "partial"},
        ]},
    ),
    "blocks that are no more than a number": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *in, float *out, int n) {\n  int blocks = (n + 255) / 256;\n"
        "  if (blocks > 1024) blocks = 1024;\n  add<<<blocks, 256>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [256], "grid": ["min((n + 255) // 256, 1024)"]},
    ),
    "a division that rounds up, of a header that is not here": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *in, float *out, int n) {\n  add<<<utils::ceil_div(n, 256), CEIL(n, n)>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": ["(n + n - 1) // n"], "grid": ["(n + 256 - 1) // 256"]},
    ),
    "rows and columns of each matrix": (
        "gemm",
        "__global__ void mul(float *A, float *B, float *C, int numARows, int hB, int numCols_2) { C[0] = A[0]; }\n"
        "void run(float *A, float *B, float *C, int numARows, int numAColumns, int numCols_2) {\n"
        "  mul<<<numARows, numCols_2>>>(A, B, C, numARows, numAColumns, numCols_2);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m", "k", "n"], "threads": ["n"], "grid": ["m"]},
    ),
    "one row in two launches": (
        "softmax",
        "__global__ void most(const float *in, float *top, int N) { *top = in[0]; }\n"
        "__global__ void soft(const float *in, float *out, int N, float *top) { out[0] = in[0] - *top; }\n"
        "void solve(const float *in, float *out, int N) {\n  float *top;\n  cudaMalloc(&top, sizeof(float));\n"
        "  most<<<1, 256>>>(in, top, N);\n  soft<<<N / 64, 64>>>(in, out, N, top);\n}\n",
        {"steps": [
            {"kernel": "most", "arguments": ["x", "top", "columns"], "threads": [256], "grid": [1]},
            {"kernel": "soft", "arguments": ["x", "y", "columns", "top"], "threads": [64], "grid": ["columns // 64"]},
        ], "scratch": {"top": 4}, "limits": {"rows": {"is": 1}, "columns": {"at_least": 64}}},
    ),
    "a launch to warm up before the one that is timed": (
        "conv",
        "#define TAPS 3\n__constant__ float mask[TAPS * TAPS];\n"
        "__global__ void conv(const float *image, float *out, int height, int width) {\n"
        "  out[threadIdx.y * width + threadIdx.x] = image[height] * mask[0];\n}\n"
        "void run(float *image, float *filter, float *out, int height, int width) {\n"
        "  cudaMemcpyToSymbol(mask, filter, sizeof(mask));\n  conv<<<height, width>>>(image, out, height, width);\n"
        "  for (int i = 0; i < 10; i++) conv<<<height, width>>>(image, out, height, width);\n}\n",
        {"kernel": "conv", "arguments": ["x", "y", "H", "W"], "threads": ["W"], "grid": ["H"], "constant_memory": "mask",
         "limits": {"C": {"is": 1}, "K": {"is": 3}, "M": {"is": 1}, "N": {"is": 1}, "weights": 9}},
    ),
    "factors and arrays in capital letters": (
        "gemm",
        "__global__ void mul(const float *A, const float *B, float *C, int M, int N, int K, float Alpha, float Beta) {}\n"
        "void run(float *DeviceA, float *DeviceB, float *DeviceC, int M, int N, int K, float Alpha, float Beta) {\n"
        "  mul<<<M, N>>>(DeviceA, DeviceB, DeviceC, M, N, K, Alpha, Beta);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m", "n", "k", 1.0, 0.0], "threads": ["n"], "grid": ["m"],
         "clear": ["c"]},
    ),
    "a tile that the caller says, among numbers called as others are": (
        "gemm",
        "__global__ void mul(const float *A, const float *B, float *C, int n, int m, int k, int tileWidth) {\n"
        "  int r = blockIdx.y, c = blockIdx.x, t = tileWidth;\n"
        "  C[r * k + c] = A[r * m + t * tileWidth] * B[t * k + c];\n}\n"
        "void run(const float *A, const float *B, float *C, int n, int m, int k, int tileWidth) {\n"
        "  mul<<<dim3(k, n), dim3(tileWidth, tileWidth)>>>(A, B, C, n, m, k, tileWidth);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m", "k", "n", 16], "threads": [16, 16], "grid": ["n", "m"]},
    ),
    "threads that the caller says, and as many blocks as a multiprocessor holds": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *in, float *out, int n, int n_threads) {\n  int blocks;\n"
        "  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, n_threads, 0);\n"
        "  add<<<blocks, n_threads>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [256], "grid": [8]},
    ),
    "a block as large as CUDA proposes": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *in, float *out, int n) {\n  int least, block;\n"
        "  CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &block, add, 0, 0));\n"
        "  add<<<(n + block - 1) / block, block>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [256], "grid": ["(n + 256 - 1) // 256"]},
    ),
    "a kernel that a function gets from its caller": (
        "reduce",
        "template <int B> __global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void time(const char *name, void (*launched)(const float *, float *, int), const float *in, float *out, int n) {\n"
        "  launched<<<1, 64>>>(in, out, n);\n}\n"
        'int main() {\n  float *in, *out;\n  time("add", &add<64>, in, out, 1 << 20);\n}\n',
        {"kernel": "add<64>", "arguments": ["x", "y", "n"], "threads": [64], "grid": [1]},
    ),
    "a sum that is added to what the caller gives": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { if (n) atomicAdd(&out[0], in[0]); }\n"
        'extern "C" void solve(const float *in, float *out, int n) {\n  add<<<1, 64>>>(in, out, n);\n}\n',
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [64], "grid": [1], "clear": ["y"]},
    ),
    "a sum that is added to what the file itself allocates": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { if (n) atomicAdd(&out[0], in[0]); }\n"
        "void run(const float *in, float *out, int n) {\n  add<<<1, 64>>>(in, out, n);\n}\n"
        "int main() {\n  float *in, *out;\n  cudaMalloc(&out, 4);\n  run(in, out, 1 << 20);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [64], "grid": [1]},
    ),
    "values that are each added to one of the caller's": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { atomicAdd(&out[threadIdx.x], in[threadIdx.x]); }\n"
        "void solve(const float *in, float *out, int n) {\n  add<<<1, 64>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [64], "grid": [1]},
    ),
    "a sum that is added to a first value": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { if (!n) *out = 0; atomicAdd(out, in[0]); }\n"
        "void solve(const float *in, float *out, int n) {\n  add<<<1, 64>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [64], "grid": [1]},
    ),
    "a macro with a comment behind it": (
        "reduce",
        "#define TILE 64  // threads (a power of 2, like 64)\n"
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *in, float *out, int n) { add<<<n / TILE, TILE>>>(in, out, n); }\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [64], "grid": ["n // 64"],
         "limits": {"n": {"at_least": 64}}},
    ),
    "one row of as many columns as the caller says": (
        "softmax",
        "__global__ void soft(const float *x, float *y, int rows, int cols) { y[blockIdx.y * cols] = x[cols]; }\n"
        "void solve(const float *x, float *y, int N) {\n  auto rows = 1;\n  auto cols = N;\n"
        "  soft<<<dim3(cols / 64, rows), 64>>>(x, y, rows, cols);\n}\n",
        {"kernel": "soft", "arguments": ["x", "y", "rows", "columns"], "threads": [64], "grid": ["columns // 64", "rows"],
         "limits": {"columns": {"at_least": 64}}},
    ),
    "a product whose rows are as long as other letters say, before or behind the row": (
        "gemm",
        "__global__ void mul(const float *A, const float *B, float *C, int M, int N, int K) {\n"
        "  for (int i = 0; i < N; i++) C[threadIdx.y * K + threadIdx.x] += A[threadIdx.y * N + i] * B[K * i + threadIdx.x];\n}\n"
        "void solve(const float *A, const float *B, float *C, int M, int N, int K) {\n"
        "  mul<<<dim3(K, M), 64>>>(A, B, C, M, N, K);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m", "k", "n"], "threads": [64], "grid": ["n", "m"]},
    ),
    "a product of square matrices with factors": (
        "gemm",
        "__global__ void mul(float *A, float *B, float *C, float alpha, float beta, int N) { C[0] = A[0] * B[0]; }\n"
        "void run(float *A, float *B, float *C, float alpha, float beta, int N) {\n"
        "  float *h_C;\n  h_C = allocate(N);\n  mul<<<N, 64>>>(A, B, C, alpha, beta, N);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", 1.0, 0.0, "n"], "threads": [64], "grid": ["n"],
         "limits": {"equal": ["m", "n", "k"]}, "clear": ["c"]},
    ),
    "blocks that a device allows and a function of the host's adds up": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { out[blockIdx.x] = in[0]; }\n"
        "bool check(float *sums, float truth, int n) {\n"
        "  float all = 0;\n  for (int i = 0; i < n; i++) all += sums[i];\n  return all == truth;\n}\n"
        "void run(const float *in, int n) {\n  cudaDeviceProp prop;\n  cudaGetDeviceProperties(&prop, 0);\n"
        "  int blocks = std::min(n / 64, prop.maxGridSize[1]);\n  float *out, *back;\n"
        "  add<<<dim3(blocks, 1), 64>>>(in, out, n);\n"
        "  cudaMemcpy(back, out, blocks * 4, cudaMemcpyDeviceToHost);\n  check(back, 1.0f, blocks);\n}\n",
        {"scratch": {"partial": "4 * (min(n // 64, 65535))"}, "steps": [
            {"kernel": "add", "arguments": ["x", "partial", "n"], "threads": [64], "grid": ["min(n // 64, 65535)", 1]},
            {"sum": "partial"}]},
    ),
    "an image whose rows and columns the host calls as other extents": (
        "conv",
        "#define n 768\n#define m 512\n__constant__ float filter[9];\n"
        "__global__ void conv(float *in, float *out, int input_rows, int input_cols, int k_rows, int k_cols) {\n"
        "  out[input_cols * threadIdx.x] = in[input_cols] * filter[k_cols * 2];\n}\n"
        "int main() {\n  int M = m, N = n, K_R = 3, K_C = 3;\n  float *in, *out, *taps;\n"
        "  cudaMemcpyToSymbol(filter, taps, 36);\n  conv<<<M, N>>>(in, out, M, N, K_R, K_C);\n}\n",
        {"kernel": "conv", "arguments": ["x", "y", "H", "W", "K", "K"], "threads": ["W"], "grid": ["H"],
         "constant_memory": "filter", "limits": {"C": {"is": 1}, "M": {"is": 1}, "N": {"is": 1}, "weights": 9}},
    ),
    "extents of arrays and sides by their words, and a kernel by a macro": (
        "conv",
        "#define kernel convolve\n__global__ void convolve(float *in, float *w, float *out, int c, int m, int IN_X_SIZE, int y_in,"
        " int kernel_size_x, int k_h, int output_size_x, int out_y, int stride_x, int pad_h) {}\n"
        "void run(float *in, float *w, float *out, int c, int m, int IN_X_SIZE, int y_in, int kernel_size_x, int k_h,"
        " int output_size_x, int out_y, int stride_x, int pad_h) {\n"
        "  kernel<<<out_y, output_size_x>>>"
        "(in, w, out, c, m, IN_X_SIZE, y_in, kernel_size_x, k_h, output_size_x, out_y, stride_x, pad_h);\n}\n",
        {"kernel": "convolve", "threads": ["W_out"], "grid": ["H_out"], "limits": {"N": {"is": 1}},
         "arguments": ["x", "w", "y", "C", "M", "W", "H", "K", "K", "W_out", "H_out", "S", "P"]},
    ),
    "one row, of a length that another function of the file gives": (
        "softmax",
        "#define N_DIM 10\n__global__ void soft(const float *x, float *y, int N) {}\n"
        "void solve(const float *x, float *y, int N) { soft<<<N, 1>>>(x, y, N); }\n"
        "int main() { float *x, *y; solve(x, y, N_DIM); }\n",
        {"kernel": "soft", "arguments": ["x", "y", "columns"], "threads": [1], "grid": ["columns"],
         "limits": {"rows": {"is": 1}}},
    ),
    "rows that a kernel rewrites in their place": (
        "softmax",
        "__global__ void soft(float *C, int M, int N) { C[blockIdx.x * N] = expf(C[blockIdx.x * N]); }\n"
        "void run(float *C, int M, int N) { soft<<<M, 32>>>(C, M, N); }\n",
        {"steps": [{"fill": {"y": "x"}},
                   {"kernel": "soft", "arguments": ["y", "rows", "columns"], "threads": [32], "grid": ["rows"]}]},
    ),
    "a maximum that begins with the least number": (
        "softmax",
        "__global__ void most(const float *in, float *top, int N) { atomicMax(top, in[0]); }\n"
        "__global__ void soft(const float *in, const float *top, float *sum, float *out, int N) { out[0] = in[0] - *top; }\n"
        "void solve(const float *in, float *out, int N) {\n  float *top, *sum;\n  cudaMalloc(&top, sizeof(float));\n"
        "  cudaMalloc(&sum, 4);\n  float least = -FLT_MAX, none = 0;\n"
        "  cudaMemcpy(top, &least, 4, cudaMemcpyHostToDevice);\n  cudaMemcpy(sum, &none, 4, cudaMemcpyHostToDevice);\n"
        "  most<<<1, 32>>>(in, top, N);\n  soft<<<1, 32>>>(in, top, sum, out, N);\n}\n",
        {"steps": [
            {"fill": {"top": single_launch.FLOAT_MIN}}, {"clear": "sum"},
            {"kernel": "most", "arguments": ["x", "top", "columns"], "threads": [32], "grid": [1]},
            {"kernel": "soft", "arguments": ["x", "top", "sum", "y", "columns"], "threads": [32], "grid": [1]}],
         "scratch": {"top": 4, "sum": 4}, "limits": {"rows": {"is": 1}}},
    ),
    "memory of PyTorch's between two kernels": (
        "softmax",
        "__global__ void most(const float *in, float *top, int n) { top[0] = in[0]; }\n"
        "__global__ void soft(const float *in, const float *top, float *out, int n) { out[0] = in[0] - *top; }\n"
        "torch::Tensor run(torch::Tensor X) {\n  auto rows = X.size(0); auto cols = X.size(1);\n"
        "  auto top = torch::full({rows}, -INFINITY, X.options());\n  auto out = torch::empty_like(X);\n"
        "  most<<<rows, 32>>>(X.data_ptr<float>(), top.data_ptr<float>(), cols);\n"
        "  soft<<<rows, 32>>>(X.data_ptr<float>(), top.data_ptr<float>(), out.data_ptr<float>(), cols);\n}\n",
        {"steps": [
            {"fill": {"top": single_launch.FLOAT_MIN}},
            {"kernel": "most", "arguments": ["x", "top", "columns"], "threads": [32], "grid": ["rows"]},
            {"kernel": "soft", "arguments": ["x", "top", "y", "columns"], "threads": [32], "grid": ["rows"]}],
         "scratch": {"top": "4 * (rows)"}},
    ),
    "a batch around rows": (
        "softmax",
        "__global__ void soft(const float *x, float *y, int B, int N, int V) {}\n"
        "int main() { int B = 4, N = 64, V = 32; float *x, *y; soft<<<dim3(B, N), 32>>>(x, y, B, N, V); }\n",
        {"kernel": "soft", "arguments": ["x", "y", 1, "rows", "columns"], "threads": [32], "grid": [1, "rows"]},
    ),
    "a batch of products": (
        "gemm",
        "__global__ void mul(const float *A, const float *B, float *C, int batch_size, int M, int N, int K) {}\n"
        "void run(const float *A, const float *B, float *C, int batch_size, int M, int N, int K) {\n"
        "  mul<<<dim3(N, M, batch_size), 32>>>(A, B, C, batch_size, M, N, K);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", 1, "m", "n", "k"], "threads": [32], "grid": ["n", "m", 1]},
    ),
    "one image of any name, beside weights in constant memory": (
        "conv",
        "__constant__ float F[9];\n"
        "__global__ void conv(float *N, float *P, int width, int height) { P[threadIdx.x * width] = N[width] * F[0]; }\n"
        "int main() {\n  int filterSize = 9 * sizeof(float);\n  float h_F[9], *d_N, *d_P;\n"
        "  cudaMemcpyToSymbol(F, h_F, filterSize);\n  conv<<<32, 32>>>(d_N, d_P, 64, 48);\n}\n",
        {"kernel": "conv", "arguments": ["x", "y", "W", "H"], "threads": [32], "grid": [32], "constant_memory": "F",
         "limits": {"C": {"is": 1}, "M": {"is": 1}, "N": {"is": 1}, "weights": 9, "K": {"is": 3}}},
    ),
    "memory of the caller's, as long as what it is filled with, and blocks that a kernel gets too": (
        "softmax",
        "__global__ void add(const float *in, float *all, int n) { atomicAdd(all, in[0]); }\n"
        "__global__ void soft(const float *in, const float *all, float *out, int N) { out[0] = in[0] / *all; }\n"
        "void solve(const float *in, float *out, float *all, float *part, int N) {\n"
        "  int blocks = N / 32;\n  if (blocks > 64) blocks = 64;\n"
        "  cudaMalloc(&part, 4 * blocks);\n  cudaMemset(all, 0, sizeof(float));\n"
        "  add<<<blocks, 32>>>(in, part, N);\n  add<<<1, 32>>>(part, all, blocks);\n"
        "  soft<<<blocks, 32>>>(in, all, out, N);\n}\n",
        {"steps": [
            {"clear": "all"},
            {"kernel": "add", "arguments": ["x", "part", "columns"], "threads": [32], "grid": ["min(columns // 32, 64)"]},
            {"kernel": "add", "arguments": ["part", "all", "min(columns // 32, 64)"], "threads": [32], "grid": [1]},
            {"kernel": "soft", "arguments": ["x", "all", "y", "columns"], "threads": [32],
             "grid": ["min(columns // 32, 64)"]}],
         "scratch": {"part": "4 * min(columns // 32, 64)", "all": 4}, "limits": {"rows": {"is": 1}}},
    ),
    "an array that the kernel's name tells, where the host's is that of another": (
        "conv",
        "__global__ void conv(const float *input, const float *filter, float *output, int H, int W, int K) {}\n"
        "void run(float *a, float *b, float *c, int H, int W, int K) { conv<<<H, W>>>(a, b, c, H, W, K); }\n",
        {"kernel": "conv", "arguments": ["x", "w", "y", "H", "W", "K"], "threads": ["W"], "grid": ["H"],
         "limits": {"C": {"is": 1}, "M": {"is": 1}, "N": {"is": 1}}},
    ),
    "a kernel that a method gets as a pointer": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "class Test { public:\n  void run(void (*kernel)(const float*, float*, int), int n) { kernel<<<n, 32>>>(in, out, n); }\n};\n"
        "int main() { Test test; test.run(add, 8); }\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [32], "grid": ["n"]},
    ),
    "rows of an index that is computed before it is used": (
        "softmax",
        "__global__ void soft(float *x, float *out, size_t A, size_t B) {\n"
        "  size_t at = blockIdx.x * B + threadIdx.x;\n  if (blockIdx.x < A) out[at] = x[at];\n}\n"
        "void run(float *x, float *out, size_t A, size_t B) { soft<<<A, 32>>>(x, out, A, B); }\n",
        {"kernel": "soft", "arguments": ["x", "y", "rows", "columns"], "threads": [32], "grid": ["rows"]},
    ),
    "parts of one memory, by pointers into it": (
        "softmax",
        "__global__ void most(const float *in, float *top, float *last, int n) { top[0] = in[0]; last[0] = 0; }\n"
        "__global__ void soft(const float *in, const float *top, float *out, int n) { out[0] = in[0] - *top; }\n"
        "void solve(const float *in, float *out, int N) {\n  int blocks = N / 32;\n  if (blocks > 64) blocks = 64;\n"
        "  float *held;\n  cudaMalloc(&held, (blocks + 2) * sizeof(float));\n  float *last = held + blocks + 1;\n"
        "  most<<<1, 32>>>(in, held, last, N);\n  soft<<<blocks, 32>>>(in, last, out, N);\n}\n",
        {"steps": [
            {"kernel": "most", "arguments": ["x", "held", "held + min(columns // 32, 64) + 1", "columns"], "threads": [32],
             "grid": [1]},
            {"kernel": "soft", "arguments": ["x", "held + min(columns // 32, 64) + 1", "y", "columns"], "threads": [32],
             "grid": ["min(columns // 32, 64)"]}],
         "scratch": {"held": "(min(columns // 32, 64) + 2) * 4"}, "limits": {"rows": {"is": 1}}},
    ),
    "an input that the host fills up to whole tiles": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *host, float *out, int n) {\n  int blocks = (n + 63) / 64;\n  float *in;\n"
        "  cudaMalloc(&in, blocks * 64 * sizeof(float));\n  cudaMemset(in, 0, blocks * 64 * sizeof(float));\n"
        "  cudaMemcpy(in, host, n * sizeof(float), cudaMemcpyHostToDevice);\n  add<<<blocks, 64>>>(in, out, n);\n}\n",
        {"scratch": {"x_memory": "(n + 63) // 64 * 64 * 4"}, "steps": [
            {"clear": "x_memory"}, {"fill": {"x_memory": "x"}},
            {"kernel": "add", "arguments": ["x_memory", "y", "n"], "threads": [64], "grid": ["(n + 63) // 64"]}]},
    ),
    "one row, whose length the kernel calls so": (
        "softmax",
        "#define N 5\n__global__ void soft(const float *x, float *y, int size) {}\n"
        "int main() { float *x, *y; soft<<<N, 1>>>(x, y, N); }\n",
        {"kernel": "soft", "arguments": ["x", "y", "columns"], "threads": [1], "grid": ["columns"],
         "limits": {"rows": {"is": 1}}},
    ),
    "a product that is written to the first matrix": (
        "gemm",
        "__global__ void mul(float *A, float *B, float *C, int n) { A[0] = B[0] * C[0]; }\n"
        "void run(float *A, float *B, float *C, int n) { mul<<<n, n>>>(A, B, C, n); }\n",
        {"kernel": "mul", "arguments": ["c", "a", "b", "n"], "threads": ["n"], "grid": ["n"],
         "limits": {"equal": ["m", "n", "k"]}},
    ),
    "rows and columns that matrices have": (
        "gemm",
        "__global__ void mul(const float *A, const float *B, float *C, int M, int K, int N) {}\n"
        "void run(const Matrix &A, const Matrix &B, Matrix &C, float *ADevice, float *BDevice, float *CDevice) {\n"
        "  const int M = static_cast<int>(A.rows()), K = static_cast<int>(A.cols()), N = B.cols();\n"
        "  mul<<<M, N>>>(ADevice, BDevice, CDevice, M, K, N);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m", "k", "n"], "threads": ["n"], "grid": ["m"]},
    ),
    "one image of many channels": (
        "conv",
        "__global__ void conv(float *y, const float *x, const float *w, int C, int H, int W, int M, int K) { y[0] = x[0]; }\n"
        "void run(float *y, float *x, float *w, int C, int H, int W, int M, int K) {\n"
        "  conv<<<H, W>>>(y, x, w, C, H, W, M, K);\n}\n",
        {"kernel": "conv", "arguments": ["y", "x", "w", "C", "H", "W", "M", "K"], "threads": ["W"], "grid": ["H"],
         "limits": {"N": {"is": 1}}},
    ),
    "threads that are no fewer than a number": (
        "reduce",
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *in, float *out, int n) {\n  int threads = n / 4;\n"
        "  if (threads < 32) {\n    threads = 32;\n  }\n  add<<<1, threads>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": ["max(n // 4, 32)"], "grid": [1]},
    ),
    "a matrix that is added, of a kernel that stores by a function": (
        "gemm",
        "__device__ void put(float *to, float value) { *to = value; }\n"
        "__global__ void mul(float *A, float *B, float *C, float *D, int M, int N, int K) {\n"
        "  float *row = D + blockIdx.y * N;\n  put(row + 1, A[0] * B[0] + C[0]);\n}\n"
        "void run(float *A, float *B, float *C, float *D, int M, int N, int K) {\n"
        "  mul<<<dim3(N, M), 1>>>(A, B, C, D, M, N, K);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "zeros", "c", "m", "n", "k"], "threads": [1], "grid": ["n", "m"]},
    ),
    "a division of a template's types": (
        "reduce",
        "template <class A, class B> A blocks_for(A n, B size) { return (n + (A)size - 1) / static_cast<A>(size); }\n"
        "__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *in, float *out, int n) {\n  add<<<blocks_for(n, 256), 256>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [256], "grid": ["(n + 256 - 1) // 256"]},
    ),
    "the one number of a structure, beside the threads of another": (
        "gemm",
        "__global__ void mul(int *A, int *B, int *C, int side) { C[0] = A[0] * B[side]; }\n"
        "void run(Square left, Square right) {\n  int *dev_a, *dev_b, *dev_c;\n"
        "  mul<<<left.side * left.side / options.threadsPerBlock + 1, options.threadsPerBlock>>>(dev_a, dev_b, dev_c, left.side);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m"], "threads": [256], "grid": ["m * m // 256 + 1"],
         "limits": {"equal": ["m", "n", "k"]}},
    ),
    "numbers in another language, of which one is not used": (
        "gemm",
        "__global__ void mul(int fila, int comun, float *A, int igual, int ancho, float *B, float *C) {\n"
        "  int r = blockIdx.y, c = blockIdx.x;\n"
        "  if (r < fila) C[r * ancho + c] = A[r * comun + c] * B[r * ancho + c];\n}\n"
        "int main() {\n  int fila = 512, comun = 256, igual = 256, ancho = 128;\n  float *A, *B, *C;\n"
        "  mul<<<dim3(ancho, fila), 1>>>(fila, comun, A, igual, ancho, B, C);\n}\n",
        {"kernel": "mul", "arguments": ["m", "k", "a", 256, "n", "b", "c"], "threads": [1], "grid": ["n", "m"]},
    ),
    "N, M and P of a convolution": (
        "conv",
        "__global__ void conv(float *N, float *M, float *P, int height, int width) {\n"
        "  for (int i = 0; i < 5; i++) P[height * width + i] = N[height * width + i] * M[i * 5 + i];\n}\n"
        "#define MASK_WIDTH 5\n"
        "void run(int height, int width) {\n  float *d_N, *d_M, *d_P;\n"
        "  cudaMalloc(&d_M, MASK_WIDTH * MASK_WIDTH * sizeof(float));\n"
        "  conv<<<height, width>>>(d_N, d_M, d_P, height, width);\n}\n",
        {"kernel": "conv", "arguments": ["x", "w", "y", "H", "W"], "threads": ["W"], "grid": ["H"],
         "limits": {"C": {"is": 1}, "K": {"is": 5}, "M": {"is": 1}, "N": {"is": 1}}},
    ),
    "a sum in a vector of the host's": (
        "reduce",
        "__global__ void add(const float *in, float *sum, int n) { atomicAdd(sum, in[n - 1]); }\n"
        "void run(std::vector<float> const &data) {\n  auto in = to_device(data);\n  auto sum = DeviceVector<float>{1, 0};\n"
        "  int n = data.size();\n  add<<<n / 32, 32>>>(in.data(), sum.data(), n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [32], "grid": ["n // 32"], "clear": ["y"],
         "limits": {"n": {"at_least": 32}}},
    ),
    "a launch on a stream or without": (
        "gemm",
        "__global__ void mul(float *A, float *B, float *C, int m, int n, int k) { C[0] = A[0] * B[0]; }\n"
        "void run(float *A, float *B, float *C, int m, int n, int k, Options *options) {\n"
        "  if (options->stream != 0)\n    mul<<<m, n, 0, options->stream>>>(A, B, C, m, n, k);\n"
        "  else\n    mul<<<m, n>>>(A, B, C, m, n, k);\n}\n",
        {"kernel": "mul", "arguments": ["a", "b", "c", "m", "n", "k"], "threads": ["n"], "grid": ["m"]},
    ),
    "a macro in parentheses before a sign": (
        "reduce",
        "#define WIDTH 66\n#define EDGE 1\n#define INNER ((WIDTH) - 2*(EDGE))\n__global__ void add(const float *in, float *out, int n) { out[0] = in[0]; }\n"
        "void run(const float *in, float *out, int n) {\n  add<<<n, INNER>>>(in, out, n);\n}\n",
        {"kernel": "add", "arguments": ["x", "y", "n"], "threads": [64], "grid": ["n"]},
    ),
    "extents of each matrix in a dim3, and a block with one number for both sides": (
        "gemm",
        "template <int SIDE> __global__ void mul(float *C, float *A, float *B, int wA, int wB) { C[0] = A[0] * B[0]; }\n"
        "int multiply(int count, char **words, int block_size, const dim3 &dimsA, const dim3 &dimsB) {\n"
        "  float *d_A, *d_B, *d_C;\n  dim3 threads(block_size, block_size);\n"
        "  dim3 grid(dimsB.x / threads.x, dimsA.y / threads.y);\n"
        "  if (block_size == 16) { mul<16><<<grid, threads>>>(d_C, d_A, d_B, dimsA.x, dimsB.x); }\n"
        "  else { mul<32><<<grid, threads>>>(d_C, d_A, d_B, dimsA.x, dimsB.x); }\n}\n",
        {"kernel": "mul<16>", "arguments": ["c", "a", "b", "k", "n"], "threads": [16, 16], "grid": ["n // 16", "m // 16"],
         "limits": {"n": {"at_least": 16}, "m": {"at_least": 16}}},
    ),
    "two numbers of an image beside that of its mask": (
        "conv",
        "__global__ void conv(float *image, float *filter, float *C, int m, int n, int k) {\n"
        "  for (int i = 0; i < k; i++) C[i * n + m] = image[i * n + m] * filter[i * k + i];\n}\n"
        "#define M 64\n#define N 48\n#define K 5\n"
        "int main() {\n  float *image, *filter, *C;\n  conv<<<N, M>>>(image, filter, C, M, N, K);\n}\n",
        {"kernel": "conv", "arguments": ["x", "w", "y", "H", "W", "K"], "threads": ["H"], "grid": ["W"],
         "limits": {"C": {"is": 1}, "M": {"is": 1}, "N": {"is": 1}}},
    ),
    "pointers by other names": (
        "softmax",
        "using In = const float*;\ntypedef float *Out;\n"
        "__global__ void soft(In input, Out output, int rows, int columns) { output[blockIdx.x] = input[columns]; }\n"
        "void run(In input, Out output, int rows, int columns) { soft<<<rows, 64>>>(input, output, rows, columns); }\n",
        {"kernel": "soft", "arguments": ["x", "y", "rows", "columns"], "threads": [64], "grid": ["rows"]},
    ),
    "one number of the host's for all three": (
        "gemm",
        "__global__ void mul(int M, int N, int K, float *A, float *B, float *C) { C[N] = A[K] * B[M]; }\n"
        "void run(float *d_A, float *d_B, float *d_C, int N) { mul<<<N, 64>>>(N, N, N, d_A, d_B, d_C); }\n",
        {"kernel": "mul", "arguments": ["m", "m", "m", "a", "b", "c"], "threads": [64], "grid": ["m"],
         "limits": {"equal": ["m", "n", "k"]}},
    ),
    "a number that the kernel gets and names too": (
        "softmax",
        "#define N 128\n#define M 256\n"
        "__global__ void soft(const float *input, float *output, int m, int n) {\n"
        "  for (int i = 0; i < N; i++) output[blockIdx.x * n + i] = input[blockIdx.x * n + i];\n}\n"
        "int main() {\n  float *input, *output;\n  soft<<<M, 64>>>(input, output, M, N);\n}\n",
        {"kernel": "soft", "arguments": ["x", "y", "rows", "columns"], "threads": [64], "grid": ["rows"],
         "limits": {"columns": {"is": 128}}},
    ),
}  # fmt: skip


def test_launches_of_every_problem_are_read(tmp_path):
    for number, (name, (of, text, facts)) in enumerate(OTHERS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "problem.py").write_text((problems.FOLDER / of / "problem.py").read_text())
        (folder / "mine.cu").write_text(text)
        variant = variants.read("mine", folder)
        assert variant.read_error == "", name
        assert variant.inferred_launch.facts == facts, name


def test_memory_is_filled_before_each_launch(tmp_path):
    for name, first in [
        ("rows that a kernel rewrites in their place", ["move", 0, 1]),
        ("a maximum that begins with the least number", ["fill", 2, single_launch.FLOAT_MIN]),
    ]:
        of, code, _ = OTHERS[name]
        variant = read_beside(tmp_path, of, code)
        steps = json.loads(
            recorded_launches.record(variant, variant.problem.case("one", {"rows": 1, "columns": 3}).at(1))
        )["steps"]
        assert steps[0] == first and steps[-1][0] == "launch"


def test_what_is_offered_as_yaml_says_the_same_once_it_is_pasted(tmp_path):
    for of, text, _ in OTHERS.values():
        (tmp_path / "problem.py").write_text((problems.FOLDER / of / "problem.py").read_text())
        facts = launch_reader.read(text, "", HostNames(problems.find(of))).facts
        assert yaml.safe_load(inferred_facts.yaml_lines(facts)) == facts


def test_of_a_loop_that_adds_up_what_it_left_the_first_pass_is_offered(tmp_path):
    for loop in ["int left = n;\n  while (left > 1)", "for (int left = n; left > 1; left = blocks)"]:
        code = f"""\
__global__ void add(const float *in, float *out, int n) {{ out[blockIdx.x] = in[0]; }}
void run(const float *data, float *part, int n) {{
  int blocks;
  {loop} {{
    blocks = (left + 255) / 256;
    add<<<blocks, 256>>>(data, part, left);
    left = blocks;
  }}
}}
"""
        error = read_beside(tmp_path, "reduce", code).read_error
        assert "is set in a loop" in error
        offered = error.partition("say it in mine.yaml:\n")[2]
        read = read_beside(tmp_path, "reduce", code, offered)
        assert read.read_error == "" and read.header.scratch == {"partial": "4 * ((n + 255) // 256)"}
        launch, total = read.header.steps
        assert (launch.arguments, launch.grid, total.sum) == (["x", "partial", "n"], ["(n + 255) // 256"], "partial")


def test_of_passes_behind_a_first_launch_that_is_read_the_first_is_offered(tmp_path):
    code = """\
__global__ void add(const float *in, float *out, int n) { out[blockIdx.x] = in[0]; }
void solve(const float *in, float *out, int n) {
  int blocks = (n + 255) / 256;
  float *part, *next;
  cudaMalloc(&part, blocks * sizeof(float));
  cudaMalloc(&next, blocks * sizeof(float));
  add<<<blocks, 256>>>(in, part, n);
  for (int left = blocks; left > 1; left = blocks) {
    blocks = (left + 255) / 256;
    add<<<blocks, 256>>>(part, next, left);
    float *held = part; part = next; next = held;
  }
  cudaMemcpy(out, part, sizeof(float), cudaMemcpyDeviceToDevice);
}
"""
    offered = read_beside(tmp_path, "reduce", code).read_error.partition("say it in mine.yaml:\n")[2]
    read = read_beside(tmp_path, "reduce", code, offered)
    assert read.read_error == "" and read.header.scratch == {"partial": "4 * ((n + 255) // 256)"}
    assert (read.header.steps[0].grid, read.header.steps[1].sum) == (["(n + 255) // 256"], "partial")


def test_a_file_without_its_kernel_is_told_which_headers_may_have_it(tmp_path):
    for launch in ["", "void run(float *x, float *y, int n) { add<<<n, 1>>>(x, y, n); }\n"]:
        error = read_beside(tmp_path, "reduce", '#include <cuda.h>\n#include "kernels.cuh"\n' + launch).read_error
        assert ("it defines no kernel" in error) == (not launch)
        assert error.endswith("; copy to it what does, of kernels.cuh")


def test_launches_in_a_row_that_cannot_be_followed_are_said_with_the_remedy():
    text = (FILES / "two_kernels.cu").read_text().replace("cudaMalloc(&columns", "allocate(&columns")
    with pytest.raises(UnreadableLaunch, match=r"nothing tells which array `columns` is.*say each launch in `steps`"):
        launch_reader.read(text)


def read_beside(folder, of, code, yaml_text=""):
    """The variant of a file among those of a problem, with YAML beside it."""
    shutil.copy(problems.FOLDER / of / "problem.py", folder)
    (folder / "mine.cu").write_text(code)
    (folder / "mine.yaml").write_text(yaml_text)
    return variants.read("mine", folder)


def test_facts_beside_a_file_are_completed_by_what_its_kernel_is_called_with(tmp_path):
    kernel = (
        "__global__ void mul(const float *A, const float *B, float *C, int M, int N, int K%s) { C[0] = A[0] * B[0]; }"
    )
    grid = "threads: [16, 16]\ngrid: [n, m]\n"
    header = read_beside(tmp_path, "gemm", kernel % "", grid).header
    assert (header.arguments, header.grid) == (["a", "b", "c", "m", "n", "k"], ["n", "m"])
    launch = (
        "void run(float *A, float *B, float *C, int M, int K, int N) { mul<<<dim3(N, M), other>>>(A, B, C, M, N, K); }"
    )
    header = read_beside(tmp_path, "gemm", f"{kernel % ''}\n{launch}", "threads: [8]\n").header
    assert (header.threads, header.grid) == ([8], ["n", "m"])
    error = read_beside(tmp_path, "gemm", kernel % ", int secret", grid).read_error
    assert error == "mine.yaml: say what mul takes, in its order: `arguments: [a, b, c, m, n, k]`"


CALLED = """\
#define TILE 8
__global__ void mul(float *A, float *B, float *C, int n) { C[0] = A[0] * B[0]; }
__global__ void other(float *A, float *B, float *C, int n) { C[0] = A[0] * B[0]; }
void timed(void (*f)(float *, float *, float *, int), float *A, float *B, float *C, int n, dim3 grid, dim3 block, int shared) {
    f<<<grid, block, shared>>>(A, B, C, n);
}
int main() {
    int width = 512;
    dim3 block(TILE, TILE), grid((width + TILE - 1) / TILE, width);
    timed(other, a, b, c, width, 1, 1, 0);
    timed(mul, a, b, c, width, grid, block, TILE * 4);
}
"""


def test_a_grid_that_the_caller_of_the_host_s_function_gives_is_read_there(tmp_path):
    header = read_beside(tmp_path, "gemm", CALLED, "kernel: mul\n").header
    assert (header.threads, header.grid) == ([8, 8], ["(n + 8 - 1) // 8", "n"])
    assert header.shared_bytes == 32
    twice = CALLED.replace("grid, block, TILE * 4);\n", "grid, block, 4);\n    timed(mul, a, b, c, width, 2, 1, 4);\n")
    assert "`grid` is a parameter" in read_beside(tmp_path, "gemm", twice, "kernel: mul\n").read_error


STAGES = """\
__global__ void add(const float *in, float *out) { out[blockIdx.x] = in[0]; }
__global__ void last(const float *in, float *out, int n) { atomicAdd(out, in[n - 1]); }
__global__ void add2(const float *in, float *out) { out[blockIdx.x] = in[0]; }
__global__ void last2(const float *in, float *out, int n) { atomicAdd(out, in[n - 1]); }
template <int STRIDE = 1, class First, class Second>
void stages(const float *in, float *out, int n, First first, Second second) {
    float *part;
    cudaMalloc(&part, n / (64 * STRIDE) * sizeof(float));
    cudaMemset(out, 0, sizeof(float));
    first<<<n / (64 * STRIDE), 64>>>(in, part);
    second<<<1, 64>>>(part, out, n / (64 * STRIDE));
}
void run(const float *in, float *out, int n) { stages(in, out, n, add, last); }
void run2(const float *in, float *out, int n) { stages<2>(in, out, n, (void (*)(const float *, float *))add2, last2); }
"""


def test_kernels_that_a_caller_gives_together_are_one_answer_with_its_template_s_number(tmp_path):
    question = read_beside(tmp_path, "reduce", STAGES).read_error
    assert "say which: `kernel: [add, last]` or `kernel: [add2, last2]`" in question
    for answer, blocks in [("[add, last]", "n // 64"), ("[add2, last2]", "n // 128")]:
        variant = read_beside(tmp_path, "reduce", STAGES, f"kernel: {answer}\n")
        assert variant.read_error == ""
        assert [step.grid for step in variant.header.steps if step.kernel] == [[blocks], [1]]


def test_kernels_of_a_template_s_pointer_are_ways_to_the_result(tmp_path):
    kernels = "".join(
        f"__global__ void {name}(const float *in, float *out, int n) {{ out[0] = in[n]; }}\n" for name in "fg"
    )
    code = f"""{kernels}
template <void (*Kernel)(const float *, float *, int)> void pass(const float *in, float *part, int n) {{
    Kernel<<<n, 64>>>(in, part, n);
    if (n > 64) Kernel<<<1, 64>>>(part, part, n);
}}
template <void (*Kernel)(const float *, float *, int)> void timed(const float *in, float *p, int n) {{ pass<Kernel>(in, p, n); }}
void run(const float *in, float *p, int n) {{ timed<f>(in, p, n); timed<g>(in, p, n); }}
"""
    assert read_beside(tmp_path, "reduce", code).read_error.endswith("say which: `kernel: f` or `kernel: g`")


def test_arguments_alone_complete_the_launch_of_a_template(tmp_path):
    code = (
        "template <int T> __global__ void mul(float *p, float *q, float *r, int m, int n, int k) { r[0] = p[0]; }\n"
        "void run(float *p, float *q, float *r, int m, int n, int k) { mul<8><<<m, n>>>(p, q, r, m, n, k); }\n"
    )
    header = read_beside(tmp_path, "gemm", code, "arguments: [b, a, c, m, n, k]\n").header
    assert (header.kernel, header.arguments[:2], header.grid) == ("mul<8>", ["b", "a"], ["m"])


COLOURS = """\
__constant__ float mask[9];
__global__ void blur(const unsigned char *input, unsigned char *output, int rows, int cols) {
    for (int c = 0; c < 3; c++) output[(rows * cols) * 3 + c] = input[(rows * cols) * 3 + c] * mask[c];
}
void run(const unsigned char *input, unsigned char *output, int rows, int cols, const float *filter) {
    unsigned char *d_input, *d_output;
    cudaMalloc(&d_input, rows * cols * 3);
    cudaMalloc(&d_output, rows * cols * 3);
    cudaMemcpyToSymbol(mask, filter, 9 * sizeof(float));
    blur<<<rows, cols>>>(d_input, d_output, rows, cols);
}
"""


def test_an_image_of_three_colours_is_no_array_of_the_problem(tmp_path):
    error = read_beside(tmp_path, "conv", COLOURS).read_error
    assert "`d_input` holds 3 values for each of x" in error and "say it in" not in error
    grey = COLOURS.replace("unsigned char", "float").replace("cols * 3);", "cols * sizeof(float));")
    assert read_beside(tmp_path, "conv", grey).read_error == ""


CHOSEN = """\
#define BIG 32
__global__ void small(float *A, float *B, float *C, int m, int n, int k) { C[0] = A[0] * B[0]; }
__global__ void big(float *A, float *B, float *C, int m, int n, int k) { C[0] = A[0] * B[0]; }
void run(float *A, float *B, float *C, int m, int n, int k, int block_size) {
    dim3 block(block_size, block_size);
    if (block_size == 16) { small<<<n, block>>>(A, B, C, m, n, k); }
    else if (block_size == BIG) { big<<<n, block>>>(A, B, C, m, n, k); }
}
"""


def test_a_parameter_is_the_number_that_chooses_the_kernel_that_is_named(tmp_path):
    switched = CHOSEN.replace("if (block_size == 16) {", "switch (block_size) { case 16:").replace(
        "    else if", "    if"
    )
    for code in (CHOSEN, switched):
        threads = {
            name: read_beside(tmp_path, "gemm", code, f"kernel: {name}\n").header.threads for name in ("small", "big")
        }
        assert threads == {"small": [16, 16], "big": [32, 32]}


ALTERNATIVES = """\
#define TILE 16
template <int T> __global__ void naive(const float *a, const float *b, float *c, int m, int n, int k) { c[0] = a[0]; }
template <int T> __global__ void tiled(const float *a, const float *b, float *c, int m, int n, int k) { c[0] = a[0]; }
int main(int count, char **words) {
    int m = 8, n = 8, k = 8;
    float *A_d, *B_d, *C_base_d, *C_d;
    naive<TILE><<<m, n>>>(A_d, B_d, C_base_d, m, n, k);
    if (count > 1) tiled<TILE><<<m, n>>>(A_d, B_d, C_d, m, n, k);
}
"""


def test_kernels_that_hand_nothing_on_are_asked_about_and_either_answer_is_read(tmp_path):
    question = read_beside(tmp_path, "gemm", ALTERNATIVES).read_error
    assert "several kernels are launched" in question and "`kernel: tiled<16>`" in question
    asked = read_beside(tmp_path, "gemm", ALTERNATIVES, "kernel: tiled<16>\n")
    assert not asked.read_error and asked.header.kernel == "tiled<16>"
    by_extent = ALTERNATIVES.replace("count > 1", "fits(n)")
    assert "stands under a condition" in read_beside(tmp_path, "gemm", by_extent, "kernel: tiled<16>\n").read_error


def test_of_the_kernels_of_a_network_those_that_may_compute_the_result_are_offered(tmp_path):
    layers = "".join(f"__global__ void layer{i}(float *d) {{ d[0] += 1; }}\n" for i in range(6))
    launches = "".join(f"  layer{i}<<<1, 1>>>(d);\n" for i in range(6))
    code = f"{KERNEL % EXTENTS}{layers}void run(float *p, float *q, float *d, {EXTENTS}) {{\n"
    error = read_beside(
        tmp_path, "conv", f"{code}  conv<<<N, M>>>(p, q, d, N, C, H, W, M, K);\n{launches}}}\n"
    ).read_error
    assert error.endswith("say which: `kernel: conv`")


def test_numbers_of_the_file_that_a_kernel_counts_to_are_its_limits(tmp_path):
    for numbers, limits in [
        ("const int N = 1 << 10;", {"equal": ["m", "n", "k"], "n": {"is": 1024}}),
        ("#define M 64\n#define N 128\n#define K 256", {"m": {"is": 64}, "n": {"is": 128}, "k": {"is": 256}}),
    ]:
        inner, rows = ("K", "M") if "K" in numbers else ("N", "N")
        read = read_beside(
            tmp_path,
            "gemm",
            f"""\
{numbers}
#define TILE 16
__global__ void mm(const int *a, const int *b, int *c) {{
    __shared__ int tile[TILE];
    for (int i = 0; i < {inner}; ++i) c[blockIdx.x * N] += a[blockIdx.x * {inner} + i] * b[i * N];
}}
int main() {{ int *a, *b, *c; cudaMalloc(&c, {rows} * N * 4); mm<<<N / TILE, TILE>>>(a, b, c); }}
""",
        )
        assert read.read_error == "" and read.inferred_launch.facts["limits"] == limits


def test_two_numbers_of_a_convolution_are_the_image_s_whatever_they_are_called(tmp_path):
    read = read_beside(tmp_path, "conv", """\
#define TAPS 5
__constant__ float mask[TAPS][TAPS];
__global__ void convolve(const float *in, float *out, int N, int M) { out[threadIdx.y * M + threadIdx.x] = in[threadIdx.y * M]; }
void run(const float *in, const float *filter, float *out, int N, int M) {
    cudaMemcpyToSymbol(mask, filter, sizeof(mask));
    convolve<<<N, M>>>(in, out, N, M);
}
""", "limits: {P: {is: 2}}\n")  # fmt: skip
    limits = read.header.limits.bounds
    assert read.header.arguments == ["x", "y", "H", "W"]
    assert {name: limits[name].exactly for name in ("N", "C", "M", "K", "P")} == {
        "N": 1,
        "C": 1,
        "M": 1,
        "K": 5,
        "P": 2,
    }


def test_an_array_of_the_host_s_is_no_extent_whatever_its_name(tmp_path):
    code = """\
#define MASK 5
__global__ void conv(const float *x, const float *w, float *y, int H, int W) { y[0] = x[MASK] * w[MASK]; }
void run(float *x, float *w, float *y, int H, int W) { float h_mask[2] = {1, 2}; conv<<<H, W>>>(x, w, y, H, W); }
"""
    assert read_beside(tmp_path, "conv", code).inferred_launch.taken == ("MASK, 5, for the one K that it is for",)


def test_a_file_that_has_channels_is_not_for_one_output_channel(tmp_path):
    code = """\
__global__ void conv(float *y, const float *x, const float *w, int H, int W, int K) { y[0] = x[0] * w[0]; }
void run(float *y, float *x, float *w, int H, int W, int K) { const int C = 12; conv<<<C, W>>>(y, x, w, H, W, K); }
"""
    said = read_beside(tmp_path, "conv", code).read_error
    assert (
        "nothing tells the kernel M (launch in line 2): a depthwise convolution, one filter a channel, is another problem"
        in said
    )


def test_a_kernel_with_the_image_s_size_as_a_number_of_its_own_is_asked_for_it(tmp_path):
    code = """\
#define SIDE 64
__global__ void conv(const float *image, const float *mask, float *out) { out[threadIdx.x * SIDE] = image[SIDE] * mask[0]; }
void run(float *image, float *mask, float *out) { conv<<<SIDE, SIDE>>>(image, mask, out); }
"""
    limits = "limits: {H: {is: ?}, W: {is: ?}, K: {is: ?}}"
    assert limits in read_beside(tmp_path, "conv", code).read_error
    read = read_beside(tmp_path, "conv", code, limits.replace("K: {is: ?}", "K: {is: 3}").replace("?", "64"))
    assert read.read_error == "" and read.header.limits.bounds["W"].exactly == 64


def test_limits_of_a_row_s_length_leave_it_the_length_of_the_one_row(tmp_path):
    code = "__global__ void soft(float *x, float *y, int N) {}\nvoid run(float *x, float *y, int N) { soft<<<1, 64>>>(x, y, N); }\n"
    read = read_beside(tmp_path, "softmax", code, "limits: {columns: {multiple_of: 1024}}\n")
    assert read.header.arguments == ["x", "y", "columns"] and read.header.limits.bounds["rows"].exactly == 1


def test_an_input_that_a_kernel_overwrites_is_copied_before_each_launch(tmp_path):
    read = read_beside(
        tmp_path,
        "reduce",
        """\
__global__ void sum(int *x, int *y, int n) { x[0] += x[1]; *y = x[0]; }
void run(int *x, int *y, int n) { sum<<<1, 1>>>(x, y, n); }
""",
    )
    fill, launch = read.header.steps
    assert (fill.fill, launch.arguments) == ({"x_memory": "x"}, ["x_memory", "y", "n"])
    assert read.header.scratch == {"x_memory": "4 * n"}


def test_a_pointer_to_what_is_no_number_is_refused(tmp_path):
    lines = "arguments: [x, y, n]\nthreads: [1]\ngrid: [1]\n"
    read = read_beside(tmp_path, "reduce", "__global__ void sum(Pixel *x, float *y, int n) {}\n", lines)
    assert read.read_error == "mine.cu: sum: `x` points to Pixel, which is no type of numbers here"


IN_STRUCTURES = """\
struct __align__(16) Product { const float* __restrict__ A, *B; float* C; int M, N, K; float alpha = 1; };
template <int SIDE>
__global__ void __launch_bounds__(SIDE * SIDE)
product(const __grid_constant__ Product p, int unused)
{
    int row = blockIdx.y * SIDE + threadIdx.y, column = blockIdx.x * SIDE + threadIdx.x;
    if (row >= p.M || column >= p.N) return;
    float sum = 0;
    for (int k = 0; k < p.K; ++k) sum += p.A[row * p.K + k] * p.B[k * p.N + column];
    p.C[row * p.N + column] = p.alpha * sum;
}
"""
OF_MATRICES = """\
typedef struct { int width, height, stride; float* elements; } Matrix;
extern "C" __global__ void product(const Matrix, Matrix, Matrix);
__device__ void set(Matrix of, int row, int column, float value) { of.elements[row * of.stride + column] = value; }
extern "C" __global__ void product(const Matrix A, Matrix B, Matrix C) { set(C, blockIdx.y, blockIdx.x, 0); }
"""
ON_DEVICE = """\
    Matrix d_A; d_A.width = d_A.stride = A.width; d_A.height = A.height;
    cudaMalloc(&d_A.elements, A.width * A.height * sizeof(float));
"""
STRUCTURES = {
    "set member by member": (
        IN_STRUCTURES + """
void run(int M, int N, int K, float* first, float* second, float* result)
{
    Product p;
    p.C = result; p.A = first; p.B = second; p.M = M; p.N = N; p.K = K; p.alpha = 1.0f;
    product<16><<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(p, 7);
}
""", ["a", "b", "c", "m", "n", "k", 1.0, 7], 17),
    "listed in the launch": (
        IN_STRUCTURES + """
void run(int M, int N, int K, float* a, float* b, float* c)
{
    product<16><<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>({a, b, c,
        M, N, K, 1.0f}, 7);
}
""", ["a", "b", "c", "m", "n", "k", 1.0, 7], 15),
    "matrices with their extents": (
        OF_MATRICES + "void run(const Matrix A, const Matrix B, Matrix C)\n{\n" + ON_DEVICE + ON_DEVICE.replace("A", "B")
        + ON_DEVICE.replace("A", "C") + "    product<<<dim3(B.width, A.height), 1>>>(d_A, d_B, d_C);\n}\n",
        ["k", "m", "k", "a", "n", "k", "n", "b", "n", "m", "n", "c"], 13),
}  # fmt: skip


@pytest.mark.parametrize("form", STRUCTURES)
def test_a_kernel_gets_the_members_of_structures_that_its_file_gives_it_by_value(form):
    code, arguments, line = STRUCTURES[form]
    read = launch_reader.read(code, "", HostNames(problems.find("gemm")))
    assert (read.facts["arguments"], read.line) == (arguments, line)
    flat = struct_parameters.flatten(code)
    assert flat.count("\n") == code.count("\n") and launch_sites.parameter_names(flat)["product"][0] in (
        "p_A",
        "A_width",
    )
    assert "product_of_structures" in cuda_ast.device_code(flat)


@pytest.mark.parametrize(
    "structure",
    ["struct P { P(int n); int n; };", "struct P { float held[4]; };", "struct P : Base { int n; };", "template <class T> struct P { T n; };",
     "struct P { int n; }; struct Q { P inner; };"],
)  # fmt: skip
def test_a_structure_of_more_than_pointers_and_numbers_stays_one(structure):
    kind = "Q" if "Q" in structure else "P<int>" if "template" in structure else "P"
    code = f"{structure}\n__global__ void f({kind} p, float* y) {{}}\nvoid run({kind} p, float* y) {{ f<<<1, 1>>>(p, y); }}\n"
    assert struct_parameters.flatten(code) == code


def test_a_structure_without_a_name_stays_one():
    code = "struct P { int n; };\n__global__ void f(P) {}\nvoid run(P p) { f<<<1, 1>>>(p); }\n"
    assert struct_parameters.flatten(code) == code


@pytest.mark.parametrize(
    "launch",
    ["f<<<1, 1>>>(make(n));", "auto *launched = f; launched<<<1, 1>>>(p);", "f<<<1, 1>>>(p, n);",
     "void *given[] = {&p}; cudaLaunchCooperativeKernel(f, 1, 1, given);"],
    ids=["made by a function", "through a pointer", "another number of arguments", "by a function"],
)  # fmt: skip
def test_a_structure_that_a_launch_gives_in_a_way_that_is_not_understood_stays_one(launch):
    code = f"struct P {{ int n; }};\n__global__ void f(P p) {{}}\nvoid run(P p, int n) {{ {launch} }}\n"
    assert struct_parameters.flatten(code) == code


def test_an_element_that_the_host_sets_is_not_what_its_array_is_made_of():
    code = """\
__global__ void product(const float *A, const float *B, float *C, int M, int N, int K) { C[0] = A[0] * B[0]; }
int main()
{
    int M = 8, N = 8, K = 8;
    float *A, *B, *C;
    cudaMallocManaged(&A, M * K * 4); cudaMallocManaged(&B, K * N * 4); cudaMallocManaged(&C, M * N * 4);
    for (int i = 0; i < M * K; ++i) A[i] = rand() / (float)RAND_MAX;
    *B = i + 1;
    product<<<1, 1>>>(A, B, C, M, N, K);
}
"""
    read = launch_reader.read(code, "", HostNames(problems.find("gemm")))
    assert read.facts["arguments"] == ["a", "b", "c", "m", "n", "k"]


def test_the_gallery_s_kernel_from_elsewhere_goes_in_as_it_is():
    (kernel,) = (PROJECT / "docs/gallery/kernel-from-elsewhere/kernels").glob("*/*.cu")
    read = launch_reader.read(kernel.read_text(), "", HostNames(problems.find(kernel.parent.name)))
    assert read.facts["arguments"] == ["m", "n", "k", 1.0, "a", "b", 0.0, "c"]


@pytest.mark.parametrize("leaves", ["if (first >= N) break;", "if (first > N) { continue; }"])
def test_turns_of_a_loop_in_which_the_host_does_not_reach_the_launch_launch_nothing(leaves):
    code = f"""\
__global__ void conv(const float *x, const float *w, float *y, int first, int N, int C, int H, int W, int M, int K, int dilation) {{}}
void run(const float *x, const float *w, float *y, int N, int C, int H, int W, int M, int K, int dilation)
{{
    const int each = (N + 3) / 4;
    cudaMemset(y, 0, 4 * N);
    for (int i = 0; i < 4; ++i) {{
        const int first = i * each;
        {leaves}
        conv<<<each, 256>>>(x, w, y, first, N, C, H, W, M, K, dilation);
    }}
}}
"""
    clear, launch = launch_reader.read(code).facts["steps"]
    assert clear == {"clear": "y"}
    assert launch["loop"] == {"i": 4} and launch["arguments"][-1] == "D"
    for images in range(1, 12):
        done = [expressions.evaluate(launch["when"], {"N": images, "i": i}) for i in range(4)]
        each = -(-images // 4)
        assert done == [int(i * each < images if "break" in leaves else i * each <= images) for i in range(4)]


@pytest.mark.parametrize(
    "leaves", ["if (i == 2) break;", "if (first >= N) break; else first = 0;"], ids=["at one turn", "or else"]
)
def test_a_break_of_which_later_turns_know_nothing_is_not_read_as_their_condition(leaves):
    code = f"""\
__global__ void conv(const float *x, const float *w, float *y, int first, int N, int C, int H, int W, int M, int K) {{}}
void run(const float *x, const float *w, float *y, int N, int C, int H, int W, int M, int K)
{{
    for (int i = 0; i < 4; ++i) {{
        int first = i * N;
        {leaves}
        conv<<<N, 256>>>(x, w, y, i, N, C, H, W, M, K);
    }}
}}
"""
    assert "steps" not in launch_reader.read(code).facts


def test_p_and_q_are_paddings_where_the_output_s_extents_have_names_of_their_own():
    code = """\
__global__ void conv(int n, int c, int h, int w, int k, int r, int s, int out_h, int out_w, int u, int v, int p, int q,
                     float *in, float *weight, float *out) {}
void run(int n, int c, int h, int w, int k, int r, int s, int u, int v, int p, int q, float *in, float *weight, float *out)
{
    int out_h = (h - r + 2 * p) / u + 1, out_w = (w - s + 2 * q) / v + 1;
    conv<<<n * k, 256>>>(n, c, h, w, k, r, s, out_h, out_w, u, v, p, q, in, weight, out);
}
"""
    arguments = launch_reader.read(code).facts["arguments"]
    assert arguments[:7] == ["N", "C", "H", "W", "M", "K", "K"] and arguments[9:13] == ["S", "S", "P", "P"]


def test_a_power_of_numbers_is_a_number():
    code = "#define N pow(2, 10)\n__global__ void add(float *x, float *y) {}\nvoid run(float *x, float *y) { add<<<(N + 255) / 256, 256>>>(x, y); }\n"
    (blocks,) = launch_reader.read(code, "", HostNames(problems.find("reduce"))).facts["grid"]
    assert expressions.evaluate(blocks, {}) == 4


def test_the_rows_of_a_file_that_names_none_are_those_that_it_has_memory_for():
    code = """\
__global__ void softmax(const float *x, float *y, int d_model) {}
int main()
{
    int seq_len = 8, d_model = 1024, total = seq_len * d_model;
    float *d_A, *d_output;
    cudaMalloc(&d_A, total * sizeof(float));
    cudaMalloc(&d_output, total * sizeof(float));
    softmax<<<seq_len, 256>>>(d_A, d_output, d_model);
}
"""
    names = HostNames(problems.find("softmax"))
    assert launch_reader.read(code, "", names).facts["limits"] == {"rows": {"is": 8}}
    of_one = code.replace("total = seq_len * d_model", "total = d_model").replace("<<<seq_len", "<<<1")
    assert launch_reader.read(of_one, "", names).facts["limits"] == {"rows": {"is": 1}}


@pytest.mark.parametrize(
    ("change", "threads"),
    [("if (argc > 1) side = atoi(argv[1]);", [32]), ("side = argc > 1 ? atoi(argv[1]) : 16;", ["?"]), ("side /= 2;", ["?"]), ("scanf(\"%d\", &side);", ["?"])],
)  # fmt: skip
def test_a_number_of_the_whole_file_that_the_command_line_alone_may_change_is_its_default(change, threads):
    code = f"""\
int side = 32;
__global__ void conv(const float *x, const float *w, float *y, int N, int C, int H, int W, int M, int K) {{}}
int main(int argc, char **argv)
{{
    float *x, *w, *y; int N, C, H, W, M, K;
    {change}
    conv<<<N, side>>>(x, w, y, N, C, H, W, M, K);
}}
"""
    try:
        facts = launch_reader.read(code).facts
    except UnreadableLaunch as unread:
        facts = unread.facts
    assert facts["threads"] == threads


def test_a_cell_of_a_notebook_goes_in_with_the_line_that_says_what_it_is(tmp_path):
    code = "%%cu\n" + OTHERS["rows that a kernel rewrites in their place"][1]
    variant = read_beside(tmp_path, "softmax", code)
    assert variant.read_error == "" and variant.code.startswith("\n")


@pytest.mark.parametrize("adds", [True, False])
def test_partial_sums_in_managed_memory_are_added_up_where_the_host_does_it(adds):
    code = f"""\
__global__ void add(float *d_out, const float *d_in, int n) {{ float total = 0; total += d_out[0]; d_out[blockIdx.x] = total; }}
int main()
{{
    int n = 1 << 20, blocks = (n - 1) / 256 + 1;
    float *d_in, *d_out, sum = 0;
    cudaMallocManaged(&d_in, n * sizeof(float));
    cudaMallocManaged((void **)&d_out, blocks * sizeof(float));
    add<<<blocks, 256>>>(d_out, d_in, n);
    cudaDeviceSynchronize();
    for (int i = 0; i < blocks; ++i) sum {"+" if adds else ""}= d_out[i];
}}
"""
    try:
        facts = launch_reader.read(code, "", HostNames(problems.find("reduce"))).facts
    except UnreadableLaunch as unread:
        facts = None if "`d_out` gets a value of each block" in str(unread) else unread.facts
    assert (facts and facts["steps"][-1]) == ({"sum": "partial"} if adds else None)


def test_a_kernel_is_found_whatever_its_definition_says_beside_its_name():
    for head in (
        "void __maxnreg__(64)", "__maxnreg__(64) void", "void __launch_bounds__(256, 2) __maxnreg__(64)", "static void",
        "void __cluster_dims__(2,\n 1, 1) __launch_bounds__(B * B)", "__cluster_dims__(2) void", "void __noinline__",
        "void __cluster_dims__((X + 1) / 2, 1)", "__maxnreg__((64)) void",
    ):  # fmt: skip
        assert launch_sites.kernel_names(f"__global__ {head} f(float* y) {{ }}") == ("f",), head
