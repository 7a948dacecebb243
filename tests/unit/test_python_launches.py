"""A stranger's Python file goes in as it is: its function is called, and the CUDA C++ in it is read with its launch."""

import sys

import pytest

from warpbook.kernels import python_functions, variants
from warpbook.kernels.launch_inference import launch_reader, python_launches
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.inferred_facts import UnreadableLaunch
from warpbook.problems import problem

CONV = HostNames(problem.find("conv"))
RAW = '''"""A raw kernel: mine."""
import cupy as cp
import numpy as np

kernel = cp.RawKernel(r"""extern "C" __global__ void conv(
    const float* x, const float* w, float* y, int n, int c, int m, float f) { }""", "conv")
THREADS = 128


def conv2d(x, w):
    N, C, H, W = x.shape
    M, K = w.shape[0], w.shape[2]
    out = cp.empty((N, M, H - K + 1, W - K + 1), dtype=cp.float32)
    blocks = (out.size + THREADS - 1) // THREADS
    kernel((blocks, 2), (THREADS,), (x, w, out, np.int32(N), C, M * 2, 1.5), shared_mem=4 * K)
    return out
'''
INLINE = """import torch
from torch.utils.cpp_extension import load_inline

source = r'''__global__ void k(const float* x) {}'''
module = load_inline(name="m", cpp_sources="", cuda_sources=[source], functions=["forward"])


class Model(torch.nn.Module):
    def forward(self, x, w):
        return module.forward(x, w)
"""


def read_launch(code):
    return launch_reader.read(python_launches.read(code, CONV).text, "", CONV)


def test_the_launch_of_a_raw_kernel_is_read_from_python():
    assert read_launch(RAW).facts == {
        "kernel": "conv",
        "arguments": ["x", "w", "y", "N", "C", "M * 2", 1.5],
        "threads": [128],
        "grid": ["(N * M * H_out * W_out + 128 - 1) // 128", 2],
        "shared_bytes": "4 * K",
    }
    tuples = RAW.replace("(THREADS,), (x", "block, (x").replace(
        "    blocks =", "    block = (8, min(K, 16))\n    blocks ="
    )
    assert read_launch(tuples).facts["threads"] == [8, "min(K, 16)"]


def test_the_source_of_an_extension_launches_itself():
    assert python_launches.read(INLINE, CONV) == python_launches.PythonSource(
        "__global__ void k(const float* x) {}", {}
    )


def test_a_launch_that_python_decides_is_not_guessed():
    with pytest.raises(UnreadableLaunch, match=r"`choose\(x\)` is no extent, no array and no number known before"):
        read_launch(RAW.replace("(blocks, 2)", "(choose(x),)"))


def test_the_function_or_the_class_that_takes_the_arrays_is_called():
    entry = python_functions.find_entry(RAW, CONV, "conv_forward")
    assert (entry.function, entry.owner, entry.arguments) == ("conv2d", "", ("x", "w"))
    entry = python_functions.find_entry(INLINE, CONV, "conv_forward")
    assert (entry.function, entry.owner, entry.arguments) == ("forward", "Model", ("x", "w"))
    turned = RAW.replace("def conv2d(x, w)", "def launch(weights, image, out)")
    assert python_functions.find_entry(turned, CONV, "conv_forward").arguments == ("w", "x", "y")
    numba = "from numba import cuda\n@cuda.jit\ndef conv(x, w, y):\n    y[0] = x[0]\n"
    assert python_functions.find_entry(numba, CONV, "conv_forward") is None  # a kernel, which needs a grid
    called = f"{numba}def launch(x, w, y):\n    conv[1, 32](x, w, y)\n"
    assert python_functions.find_entry(called, CONV, "conv_forward").function == "launch"
    assert python_functions.find_entry("import cupy\ndef forward(x, w):\n    return x\n", CONV, "conv_forward") is None


def test_a_file_without_facts_is_a_variant_and_says_what_it_needs(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(INLINE)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    variant = variants.read("mine", tmp_path)
    assert (variant.read_error, variant.device) == ("", "gpu")
    assert variant.missing == "mine needs the Python package torch, which is not installed here: pip install torch"


def test_its_function_gets_the_arrays_in_its_own_order(tmp_path):
    (tmp_path / "mine.py").write_text(
        "# RawKernel\ndef solve(weights, image, out):\n    out[0] = (image[0], weights[0])\n"
    )
    variant = variants.read("mine", tmp_path)
    case = variant.problem.ragged[0]
    arrays = {"x": ["x"], "w": ["w"], "y": [None]}
    assert variant.prepare(case)(*arrays.values()) is None
    assert arrays["y"] == [("x", "w")]


TRITON = """import triton


@triton.jit
def kernel(x_ptr):
    pass


def solve({parameters}):
    kernel[({grid},)](x)
"""


def test_a_function_gets_the_extents_that_it_takes():
    for of, parameters, grid, arguments, limits in [
        ("gemm", "a, b, c, M, N, K", "triton.cdiv(M, 32), triton.cdiv(K, 32)", ("a", "b", "c", "m", "k", "n"), {}),
        ("gemm", "a, b, c, M, N, K", "cdiv(M, 32) * cdiv(N, 32)", ("a", "b", "c", "m", "n", "k"), {}),
        ("gemm", "a_ptr, b_ptr, c_ptr, N", "N", ("a", "b", "c", "n"), {"equal": ["m", "n", "k"]}),
        (
            "gemm",
            "a, b, c, M, N, K, alpha, beta",
            "cdiv(M, 32) * cdiv(N, 32)",
            ("a", "b", "c", "m", "n", "k", "1.0", "0.0"),
            {},
        ),
        ("reduce", "input: torch.Tensor, output: torch.Tensor, N: int", "N", ("x", "y", "n"), {}),
        ("softmax", "input, output, N", "1", ("x", "y", "columns"), {"rows": {"is": 1}}),
        ("softmax", "input, output, M, N", "M", ("x", "y", "rows", "columns"), {}),
        (
            "conv",
            "image, kernel, output, H, W, K",
            "H",
            ("x", "w", "y", "H", "W", "K"),
            {name: {"is": 1} for name in ("N", "C", "M")},
        ),
    ]:
        names = HostNames(problem.find(of))
        entry = python_functions.find_entry(TRITON.format(parameters=parameters, grid=grid), names, "")
        assert (entry.arguments, entry.limits(names)) == (arguments, limits)


def test_a_function_of_a_product_whose_grid_tells_no_rows_and_columns_is_not_called():
    code = TRITON.format(parameters="a, b, c, M, N, K", grid="tiles(M, N, K)")
    assert python_functions.find_entry(code, HostNames(problem.find("gemm")), "") is None


def test_a_function_with_extents_is_called_with_those_of_the_case(tmp_path):
    text = "# RawKernel\ndef solve(image, weights, out, H, W, K):\n    out[0] = (H, W, K)\n"
    (tmp_path / "mine.py").write_text(text)
    variant = variants.read("mine", tmp_path)
    case = variant.header.limits.nearest(variant.problem.ragged[0])
    arrays = {"x": ["x"], "w": ["w"], "y": [None]}
    variant.prepare(case)(*arrays.values())
    assert arrays["y"] == [(case.H, case.W, case.K)]


def test_a_submission_to_gpu_mode_gets_its_arrays_as_one_tuple(tmp_path):
    text = "# RawKernel\nfrom task import input_t, output_t\n\n\ndef custom_kernel(data: input_t) -> output_t:\n"
    text += "    image, weights, out = data\n    out[0] = (image[0], weights[0])\n    return out\n"
    (tmp_path / "mine.py").write_text(text)
    variant = variants.read("mine", tmp_path)
    assert (variant.read_error, variant.entry.packed) == ("", True)
    arrays = {"x": ["x"], "w": ["w"], "y": [None]}
    variant.prepare(variant.problem.ragged[0])(*arrays.values())
    assert arrays["y"] == [("x", "w")]
    assert "task" not in sys.modules  # its module of types is there for the import alone


def test_a_python_file_without_a_function_to_call_is_told_what_it_lacks(tmp_path):
    (tmp_path / "mine.py").write_text("import triton\n\n\ndef go(alpha, beta, gamma, delta, epsilon):\n    pass\n")
    error = variants.read("mine", tmp_path).read_error
    assert "no function of it takes x and w, or x, w and y" in error and "prepare(case, size)" in error
