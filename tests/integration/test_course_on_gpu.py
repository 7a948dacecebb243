"""Files of the course with their driver, without a GPU: built, and what the harness makes of what a driver answers."""

import subprocess

import pytest

import measure_course
from warpbook.common.files import PROJECT
from warpbook.common.supervision import VariantFailure
from warpbook.harness import cpp_compiler, ece408_gpu, nvcc
from warpbook.kernels import ece408, variants
from warpbook.problems import networks
from warpbook.runs import tables

FILES = PROJECT / "tests" / "data" / "course"
FIRST, SECOND = ece408.LAYERS
ECE408 = networks.find("ece408")

needs_nvcc = pytest.mark.skipif(nvcc.find_compiler() is None, reason=nvcc.MISSING)
needs_compiler = pytest.mark.skipif(cpp_compiler.compiler() is None, reason="there is no C++ compiler here")

# What a driver and its file are to the harness, on the host: a right convolution.
STAND_IN = """
#include <chrono>
#include <cstdio>
#include <cstdlib>
static char said[100];
extern "C" const char* warpbook_said() { return said; }
static void convolve(float* x, float* w, float* y, int B, int M, int C, int H, int W, int K)
{
    for (int b = 0; b < B; ++b) for (int m = 0; m < M; ++m)
        for (int h = 0; h < H - K + 1; ++h) for (int v = 0; v < W - K + 1; ++v) {
            float sum = 0;
            for (int c = 0; c < C; ++c) for (int p = 0; p < K; ++p) for (int q = 0; q < K; ++q)
                sum += x[((b * C + c) * H + h + p) * W + v + q] * w[((m * C + c) * K + p) * K + q];
            y[((b * M + m) * (H - K + 1) + h) * (W - K + 1) + v] = sum;
        }
}
extern "C" int warpbook_without(float* x, float* w, float* y, int B, int M, int C, int H, int W, int K, double*)
{
    if (%d) convolve(x, w, y, B, M, C, H, W, K);
    return 0;
}
extern "C" int warpbook_course(float* x, float* w, float* y, int B, int M, int C, int H, int W, int K, double* ms)
{
    %s
    convolve(x, w, y, B, M, C, H, W, K);
    ms[0] = 1.5; ms[1] = 2.5;
    return 0;
}
extern "C" int warpbook_device(float*, float*, float*, int B, int, int, int, int, int, double, double* ms)
{
    ms[0] = 1.25; ms[1] = B > 50 ? -1 : 1;
    return 0;
}
"""


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Have a library of the host's stand for the one that nvcc would make; `fault` is C++ at its start, and with
    `elsewhere` it computes all without its convolution."""

    def make(fault="", elsewhere=False):
        source, library = tmp_path / "stand_in.cpp", tmp_path / "stand_in.so"
        source.write_text(STAND_IN % (elsewhere, fault))
        subprocess.run([cpp_compiler.compiler(), "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        monkeypatch.setattr(ece408_gpu, "link", lambda variant, sandboxed: library)

    return make


# One file of each way in which a term's program calls it.
CALLED = {
    "one_call": "gpu.conv_forward_gpu(y, x, w, B, M, C, H, W, K);",
    "streams_half2": "gpu.conv_forward_gpu(device_y, device_x, device_w, B, M, C, H, W, K, 1);",
    "fused_wmma": "gpu.conv_forward_gpu(device_y, device_x, device_w, B, M, C, H, W, K);",
}


@needs_nvcc
def test_a_file_and_its_driver_compile_for_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(cpp_compiler, "LIBRARIES", tmp_path)
    for name in CALLED:
        variant = variants.read(name, FILES)
        library = nvcc.link(variant, "sm_86", sandboxed=False)
        assert {"warpbook_course", "warpbook_device", "warpbook_said"} <= _exported(library)
        made = library.stat().st_mtime_ns
        assert nvcc.link(variant, "sm_86", sandboxed=False) == library
        assert library.stat().st_mtime_ns == made  # kept, not compiled again


def _exported(library):
    said = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in said.splitlines()}


def test_the_driver_calls_what_a_term_has():
    for name, convolution in CALLED.items():
        prolog, between, epilog = variants.read(name, FILES).course.steps
        assert between == convolution
        called = [step.partition("(")[0] for step in (prolog, epilog)]
        around = ["gpu.conv_forward_gpu_prolog", "gpu.conv_forward_gpu_epilog"]
        assert called == (["", ""] if name == "one_call" else around)


@needs_compiler
def test_a_right_file_is_checked_at_the_batch_of_the_course_and_an_odd_one(stand_in):
    stand_in()
    rows = [row for rows in ece408_gpu.check(variants.read("fused_wmma", FILES), ECE408.convs, False) for row in rows]
    expected = [(100, "integers"), (100, "reals"), (3, "integers"), (3, "reals")]
    assert [(row["case"], row["size"], row["test"], row["status"]) for row in rows] == [
        (layer.name, *place, "ok") for layer in ece408.LAYERS for place in expected
    ]


FAULTS = {
    "an exit": (
        'std::puts("out of memory"); std::exit(1);',
        "launch_failed", "its process died: exit status 1 (out of memory)",
    ),
    "a crash": ("std::abort();", "launch_failed", "SIGABRT"),
    "an error of the device": (
        'std::snprintf(said, 100, "an illegal memory access"); return 1;',
        "launch_failed", "CUDA: an illegal memory access",
    ),
    "a refused call": (
        'std::snprintf(said, 100, "invalid argument after convolution"); return 0;',
        "wrong_result", "unwritten; invalid argument after convolution",
    ),
    "a write before its output": ("y[-3] = 1;", "wrong_result", "writes outside its output y: 1"),
    "a changed input": ("x[5] += 1;", "wrong_result", "changes its input x"),
}  # fmt: skip


@needs_compiler
def test_a_fault_of_a_file_is_a_row_with_its_reason(stand_in):
    for fault, (code, status, words) in FAULTS.items():
        stand_in(code)
        row = next(ece408_gpu.check(variants.read("fused_wmma", FILES), ECE408.convs, False))[-1]
        assert (row["ok"], row["status"]) == (False, status), fault
        assert words in row["reason"], fault


@needs_compiler
def test_a_fault_at_the_odd_batch_alone_is_an_assumption_of_the_file(stand_in):
    stand_in("if (B % 10) return 0;")
    usual, reals, odd = next(ece408_gpu.check(variants.read("fused_wmma", FILES), ECE408.convs, False))
    assert usual["ok"] and reals["ok"]
    assert odd["status"] == "unsupported"
    assert odd["reason"].startswith(
        "right for 100 images, not for 3: fused_wmma leaves 76800 of 76800 outputs unwritten"
    )


def test_a_network_that_the_course_has_not_is_unsupported():
    network = networks.find("fa18")
    checked = list(ece408_gpu.check(variants.read("fused_wmma", FILES), network.convs, False))
    assert [row["status"] for rows in checked for row in rows] == ["unsupported"] * len(network.convs)


@needs_compiler
def test_a_layer_is_timed_as_the_course_does_and_by_events(stand_in):
    stand_in()
    variant = variants.read("fused_wmma", FILES)
    for images, hot in ((4, [("hot", "gpu")]), (60, [])):
        built = ece408_gpu.link(variant, False)
        rows = ece408_gpu.time_layer(variant, False, built, SECOND.at(images), lambda: (1980.0, False))
        kinds = {(row["state"], row["kind"]): row["time_ms"] for row in rows}
        assert kinds == {("", "op"): 1.5, ("", "layer"): 2.5, ("cold", "gpu"): 1.25} | dict.fromkeys(hot, 1.0)
        assert len(rows) == ece408_gpu.ROUNDS * len(kinds)
        shared = {"job": "fused_wmma", "variant": "fused_wmma", "device": "gpu", "measured_on": "here"}
        shared |= {"stop_reason": "samples"}
        tables.SAMPLES.text(
            ({**shared, **row, **tables.place("conv", ECE408.name, row["case"])} for row in rows), "test"
        )


@needs_compiler
def test_a_file_of_one_call_has_no_device_time(stand_in):
    stand_in()
    variant = variants.read("one_call", FILES)
    rows = ece408_gpu.time_layer(variant, False, ece408_gpu.link(variant, False), FIRST.at(2), lambda: (None, False))
    assert {row["kind"] for row in rows} == {"op", "layer"}


@needs_compiler
@pytest.mark.parametrize("elsewhere", [False, True])
def test_only_the_layer_time_stands_of_a_file_that_works_outside_its_convolution(stand_in, elsewhere):
    stand_in(elsewhere=elsewhere)
    variant = variants.read("fused_wmma", FILES)
    built = ece408_gpu.link(variant, False)
    why = ece408_gpu.misplaced_work(variant, False, built, SECOND)
    assert ("although conv_forward_gpu is not called" in why) == elsewhere == bool(why)
    rows = ece408_gpu.time_layer(variant, False, built, SECOND.at(2), lambda: (None, False), why)
    status = {row["kind"]: (row["status"], row["reason"]) for row in rows}
    other = ("refused", why) if elsewhere else ("ok", "")
    assert status == {"layer": ("ok", ""), "op": other, "gpu": other}


@needs_compiler
def test_a_file_that_is_wrong_at_the_timed_size_has_no_time(stand_in):
    stand_in("if (B > 100) return 0;")
    variant = variants.read("fused_wmma", FILES)
    with pytest.raises(VariantFailure, match=r"leaves .* outputs unwritten"):
        ece408_gpu.time_layer(variant, False, ece408_gpu.link(variant, False), FIRST.at(101), lambda: (None, False))


def test_a_file_that_failed_its_check_is_not_timed():
    failure = {"status": "wrong_result", "reason": "one_call is wrong"}
    rows = measure_course.time_all(variants.read("one_call", FILES), [FIRST.at(10), SECOND.at(20)], failure, False, 60)
    expected = [("conv1", 10, "wrong_result", None), ("conv2", 20, "wrong_result", None)]
    assert [(row["case"], row["size"], row["status"], row["time_ms"]) for row in rows] == expected
