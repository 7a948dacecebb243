"""Faults that a right result may hide: memory without a value that comparisons pass over, shapes that no ragged case has,
and blocks that wait for each other."""

import subprocess
import sys

import pytest

from emulated import checked, reasons
from warpbook.common.files import PROJECT
from warpbook.harness import checking
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import variants
from warpbook.problems import case_sets
from warpbook.runs import tables

KERNEL = """\
/*
threads: [128]
grid: [rows]
*/
#include <cstdlib>
__device__ bool is(const char* fault) { return std::getenv("FAULT") && std::string(std::getenv("FAULT")) == fault; }
__device__ volatile int done[5000]; namespace cg = cooperative_groups;
extern "C" __global__ void softmax(const float* x, float* y, int rows, int columns)
{
    __shared__ float of_warps[32];
    const int t = threadIdx.x, row = is("rows") ? blockIdx.x % 1024 : blockIdx.x;
    const float* values = x + (size_t)row * columns;
    if ((is("exited") || is("tile")) && t >= columns) return;
    int first;
    if (!is("int")) first = t;
    float largest;
    if (!is("variable")) largest = -INFINITY;
    for (int i = first; i < columns; i += 128) largest = fmaxf(largest, values[i]);
    if (is("tile")) largest = cg::reduce(cg::tiled_partition<32>(cg::this_thread_block()), largest, cg::greater<float>()); else for (int by = 16; by; by /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, by));
    if (t % 32 == 0) of_warps[t / 32] = largest;
    __syncthreads();
    largest = is("first") ? values[0] : of_warps[0];
    const int warps = is("shared") ? 32 : is("exited") || is("tile") ? (min(columns, 128) + 31) / 32 : 4;
    for (int i = 1; i < warps && !is("first"); ++i)
        if (of_warps[i] > largest) largest = of_warps[i];
    __shared__ float sum;
    const int counted = columns - (is("aligned") && columns % 256 == 0);
    float part = 0;
    for (int i = t; i < counted; i += 128) part += expf(values[i] - largest);
    if (t == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, part);
    __syncthreads();
    if (is("kept") && t == 0) sum += done[row], done[row] = 1;
    __syncthreads();
    for (int i = t; i < columns; i += 128) y[(size_t)row * columns + i] = expf(values[i] - largest) / sum;
    if (is("waits")) {
        __syncthreads();
        const int turn = done[row];
        done[row] = turn + 1;
        if (t == 0) while (done[(row + 1) % rows] == turn) {}
    }
}
"""


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """Why the kernel with a fault fails on some cases."""
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")
    folder = tmp_path_factory.mktemp("hidden") / "softmax"
    folder.mkdir()
    (folder / "own.cu").write_text(KERNEL)
    (folder / "problem.py").write_text((PROJECT / "kernels" / "softmax" / "problem.py").read_text())
    variant, folder = variants.read("own", folder), tmp_path_factory.mktemp("compiled")
    library = emulation.compile_host(variant, folder, sandboxed=False)
    small = checking.ragged_cases(variant)[1:3]
    large = checking.excerpts(variant, [case.at(65536) for case in case_sets.find("softmax").cases])

    def checked(excerpts=False):
        found = []
        with IsolatedBench(variant, False, folder, library) as bench:
            for case in large if excerpts else small:
                tests = checking.tests_for(case)[: 1 if excerpts else None]
                found += checking.check_case(bench, variant, case, tests, diagnose=not excerpts)
        return reasons(found)

    return checked


def test_memory_without_a_value_is_found_where_comparisons_pass_over_a_nan(check, monkeypatch):
    for fault, words in [
        ("variable", "from the variable largest declared at line 16: it is right where that is NaN"),
        ("shared", "from shared memory declared at line 10: it is right where that is NaN"),
        ("exited", "from a lane that takes no part in the shuffle at line 19: it is right where that is NaN"),
        ("tile", "from a lane that takes no part in the shuffle at line 19: it is right where that is NaN"),
        ("int", "in softmax at own.cu:18"),
        ("first", "outputs are NaN or infinite"),  # another value of the row is far above
    ]:
        monkeypatch.setenv("FAULT", fault)
        assert words in check()[0]


def test_what_an_earlier_call_left_is_told_from_a_wrong_computation(check, monkeypatch):
    monkeypatch.setenv("FAULT", "kept")
    assert "is right in a new process, and wrong where another call came before" in check()[0]


def test_what_is_wrong_at_shapes_of_a_study_alone_is_found_on_small_ones_like_them(check, monkeypatch):
    for fault, words in [("aligned", "rows=512 columns=512"), ("rows", "leaves 196672 of 262208 outputs unwritten")]:
        monkeypatch.setenv("FAULT", fault)
        assert check() == []
        found = check(excerpts=True)
        assert any(words in reason for reason in found), found


def test_a_right_kernel_is_right_also_where_a_block_waits_for_the_next(check, monkeypatch):
    for fault in ["none", "waits"]:
        monkeypatch.setenv("FAULT", fault)
        assert check() == []
        assert check(excerpts=fault == "none") == []


@pytest.mark.parametrize(("condition", "wrong"), [("__CUDA_ARCH__ >= 700", False), ("__CUDA_ARCH__ >= 1000", True)])
def test_what_a_newer_gpu_would_run_is_judged_too(condition, wrong, tmp_path):
    folder = tmp_path / "softmax"
    folder.mkdir()
    (folder / "problem.py").write_text((PROJECT / "kernels" / "softmax" / "problem.py").read_text())
    code = (PROJECT / "kernels" / "softmax" / "naive.cu").read_text()
    store = "results[i] = expf(values[i] - max) / sum;"
    assert store in code
    other = store.replace("/ sum", "/ (sum + 0.5f)")
    new, old = (other, store) if wrong else (store, other)
    (folder / "own.cu").write_text(code.replace(store, f"\n#if {condition}\n{new}\n#else\n{old}\n#endif\n"))
    found = reasons(checked(folder, "own", "softmax"))
    assert bool(found) == wrong
    assert all(reason.startswith("on sm_100: softmax/own") for reason in found)


def test_the_fault_on_a_newer_gpu_is_a_row_of_the_table(tmp_path):
    folder = tmp_path / "softmax"
    folder.mkdir()
    (folder / "problem.py").write_text((PROJECT / "kernels" / "softmax" / "problem.py").read_text())
    code = (PROJECT / "kernels" / "softmax" / "naive.cu").read_text()
    (folder / "own.cu").write_text(code.replace("/ sum;", "/ sum\n#if __CUDA_ARCH__ >= 1000\n* 2\n#endif\n;"))
    out = tmp_path / "checked.csv"
    command = [sys.executable, PROJECT / "scripts" / "check_variant.py", "--device", "emulator", "--cases", "softmax"]
    command += ["--variant", "softmax/own", "--kernels", folder, "--sizes", "256", "--timeout", "100", "--out", out]
    subprocess.run(command, check=True, capture_output=True)
    assert any(row["reason"].startswith("on sm_100: ") for row in tables.CORRECTNESS.rows(out))
