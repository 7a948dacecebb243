"""C++ variants for this machine's processor: found, compiled with the system's compiler, kept, checked and loaded."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from warpbook.common.errors import UserError
from warpbook.harness import building, checking, cpp_compiler, inference, sandbox
from warpbook.harness.bench import CpuBench
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import variants
from warpbook.problems import networks, problem, weights
from warpbook.problems.networks import ConvLayer
from warpbook.runs import tables

pytestmark = pytest.mark.skipif(cpp_compiler.compiler() is None, reason="there is no C++ compiler here")

LAYER = ConvLayer("odd", 3, 19, 23, 5, 4)
SIGNATURE = "(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)"
RIGHT = f"""
extern "C" void conv_forward{SIGNATURE}
{{
    const int rows = H - K + 1, columns = W - K + 1;
#pragma omp parallel for
    for (int i = 0; i < N * M * rows * columns; ++i) {{
        const int v = i % columns, h = i / columns % rows, m = i / columns / rows % M, n = i / columns / rows / M;
        float sum = 0;
        for (int c = 0; c < C; ++c)
            for (int p = 0; p < K; ++p)
                for (int q = 0; q < K; ++q)
                    sum += x[((n * C + c) * H + h + p) * W + v + q] * w[((m * C + c) * K + p) * K + q];
        y[i] = sum;
    }}
}}
"""


@pytest.fixture(autouse=True)
def libraries(monkeypatch, tmp_path) -> Path:
    """The folder of the libraries that a test makes."""
    monkeypatch.setattr(cpp_compiler, "LIBRARIES", tmp_path / "libraries")
    return tmp_path / "libraries"


@pytest.fixture
def cpp_variant(tmp_path):
    """Make a C++ variant of its code, with a header where one is given."""

    def make(code: str = RIGHT, header: str = "") -> variants.Variant:
        (tmp_path / "mine.cpp").write_text(f"/*\n{header}\n*/\n{code}" if header else code)
        return variants.read("mine", tmp_path)

    return make


def failure(variant) -> tuple[str, str]:
    """(status, reason) of checking a variant that fails, in a sandbox where there is one."""
    rows = checking.check_case(IsolatedBench(variant, not sandbox.unavailable_reason()), variant, LAYER.at(2))
    assert not rows[-1]["ok"], "it passed"
    return rows[-1]["status"], rows[-1]["reason"]


NEGATED = """\"\"\"
title: Negated numbers
extents: {{n: numbers}}
inputs: {{x: {{shape: [n], dtype: {0}}}}}
outputs: {{y: {{shape: [n], dtype: {0}, least: -4}}}}
exact: true
ragged: [{{n: 33}}]
\"\"\"

def reference(x):
    return -x
"""


@pytest.mark.parametrize(("dtype", "kind"), [("int32", "int"), ("float64", "double"), ("int8", "signed char")])
def test_cpp_takes_arrays_of_the_types_that_its_problem_names(cpp_variant, tmp_path, dtype, kind):
    (tmp_path / problem.FILE).write_text(NEGATED.format(dtype))
    taken = f"(const {kind}* x, {kind}* y, int n)"
    function = problem.read(tmp_path).function
    variant = cpp_variant(f'extern "C" void {function}{taken} {{ for (int i = 0; i < n; ++i) y[i] = -x[i]; }}')
    rows = checking.check_case(CpuBench(), variant, variant.problem.ragged[0])
    assert [row["status"] for row in rows] == ["ok"] * len(rows) and len(rows) == 1 + ("float" in dtype)


def test_cpp_without_a_word_of_its_own_is_a_cpu_variant_compared_with_the_loops(cpp_variant, tmp_path):
    shutil.copy(variants.FOLDER / "loop_nest.py", tmp_path)
    variant = cpp_variant()
    assert (variant.device, variant.read_error, variant.title) == ("cpu", "", "mine")
    assert variants.discover(tmp_path)["mine"].header.builds_on == "loop_nest"


def test_right_cpp_passes_where_it_is_isolated_and_where_it_is_timed(cpp_variant):
    variant = cpp_variant()
    for bench in (IsolatedBench(variant, not sandbox.unavailable_reason()), CpuBench()):
        integers, reals = checking.check_case(bench, variant, LAYER.at(2))
        assert integers["ok"] and integers["max_abs_err"] == 0
        assert reals["ok"] and reals["max_abs_err"] > 0


CHANGED = "y[i] = sum;\n    }\n    const_cast<float&>(x[0]) = y[0] + 1;\n"  # when no thread reads it any more
WRONG = {
    "a misspelt name": (("float sum =", "float summ ="), "compile_failed", r"mine\.cpp:\d+:\d+: error: .*sum"),
    "no conv_forward": (("conv_forward", "forward"), "compile_failed", "undefined reference to `conv_forward'"),
    "other parameters": (("int K)", "long K)"), "compile_failed", "conflicting declaration"),
    "a wild write": (("y[i] =", "y[i + (1 << 28)] ="), "launch_failed", "its process died: SIGSEGV"),
    "one map too few": (("i < N * M *", "i < N * (M - 1) *"), "wrong_result", "outputs unwritten"),
    "its input changed": (("y[i] = sum;\n    }\n", CHANGED), "wrong_result", "changes its input"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_cpp_fails_by_itself_with(fault, cpp_variant):
    change, status, words = WRONG[fault]
    told = failure(cpp_variant(RIGHT.replace(*change)))
    assert told[0] == status
    assert re.search(words, told[1])


def test_without_a_compiler_cpp_fails_with_the_remedy(cpp_variant, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    words = "mine needs a C++ compiler, and there is no no-such-compiler here (apt-get install g++)"
    assert failure(cpp_variant()) == ("compile_failed", words)
    (row,) = building.build_host(cpp_variant(), sandboxed=False).rows
    assert (row["ok"], row["log"], row["compiler"]) == (False, words, "")


def test_a_build_is_a_row_with_compiler_options_and_no_registers(cpp_variant, tmp_path):
    variant = cpp_variant(header="constants: {TILE: 7}")
    building.build_all(variant, ["sm_80", "sm_90"], tmp_path / "built")
    (row,) = tables.BUILDS.rows(tmp_path / "built" / "builds.csv")
    assert (row["ok"], row["arch"], row["kernel"]) == (True, cpp_compiler.architecture(), "conv_forward")
    assert row["compiler"] == cpp_compiler.compiler_version() != ""
    assert row["options"] == building.recorded_options(variant, row["arch"])
    assert row["options"].endswith(" -DTILE=7")
    assert row["source_sha256"] == variant.source_sha256


def test_a_library_is_kept_until_source_constants_options_or_compiler_change(
    cpp_variant, libraries, monkeypatch, tmp_path
):
    first = cpp_compiler.library(cpp_variant(header="title: One"), sandboxed=False)
    made = first.stat().st_mtime_ns
    assert cpp_compiler.library(cpp_variant(header="title: Another"), sandboxed=False) == first
    assert first.stat().st_mtime_ns == made
    other = tmp_path / "other-compiler"
    other.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "of tomorrow 99.1.0" || exec {cpp_compiler.compiler()} "$@"\n'
    )
    other.chmod(0o755)
    cpp_compiler.library(cpp_variant(RIGHT + "\n"), sandboxed=False)
    cpp_compiler.library(cpp_variant(header="constants: {TILE: 7}"), sandboxed=False)
    monkeypatch.setenv("CXX", str(other))
    assert cpp_compiler.compiler_version() == "other-compiler 99.1.0"
    cpp_compiler.library(cpp_variant(header="title: One"), sandboxed=False)
    monkeypatch.setattr(cpp_compiler, "OPTIONS", (*cpp_compiler.OPTIONS, "-g"))
    cpp_compiler.library(cpp_variant(header="title: One"), sandboxed=False)
    assert len(list(libraries.iterdir())) == 5


@pytest.mark.skipif(bool(sandbox.unavailable_reason()), reason=sandbox.unavailable_reason())
@pytest.mark.parametrize("sandboxed", [True, False])
def test_cpp_reads_and_writes_nothing_outside_its_sandbox(sandboxed, cpp_variant, tmp_path):
    letter, mark = tmp_path / "letter.h", tmp_path / "mark"
    letter.write_text("")
    included = cpp_variant(f'#include "{letter}"\n{RIGHT}')
    if sandboxed:
        with pytest.raises(UserError, match="No such file"):
            cpp_compiler.library(included, sandboxed)
    else:
        cpp_compiler.library(included, sandboxed)
    writes = f'static int written = std::system("echo > {mark}");\n'
    variant = cpp_variant(f"#include <cstdlib>\n{writes}{RIGHT}")
    rows = checking.check_case(IsolatedBench(variant, sandboxed), variant, LAYER.at(1))
    assert all(row["ok"] for row in rows)
    assert mark.exists() == (not sandboxed)


def test_a_compiler_that_is_asked_for_too_much_is_ended(cpp_variant, monkeypatch):
    monkeypatch.setattr(
        cpp_compiler, "COMPILE_BYTES", 1 << 28
    )  # an eighth of what it may take: reached eight times as soon
    with pytest.raises(UserError, match=r"mine does not compile: .*(memory|Killed|killed)"):
        cpp_compiler.library(cpp_variant('#include "/dev/zero"\n'), sandboxed=False)


def test_what_a_header_of_cpp_cannot_say_is_told(cpp_variant):
    for header, words in (
        ("device: gpu", "mine.cpp: C++ runs on the CPU, the header says `device: gpu`"),
        ("threads: [16]\ngrid: [N]", "mine.cpp: `grid` is of a kernel on the GPU"),
        ("title: One\ntitel: Another", "mine.cpp: unknown key 'titel'"),
    ):
        assert cpp_variant(header=header).read_error.startswith(words)


def test_cpp_and_another_file_of_its_name_are_told_apart_by_neither(cpp_variant, tmp_path):
    (tmp_path / "mine.py").write_text("")
    assert cpp_variant().read_error == "mine.cpp: mine.py has the same name, and a variant is one of them; rename one"


# Rows that fill vectors and rows that do not, short ones, one map and more than a block has, one image (in bands) and
# several. Wider vectors are tried where this processor has them.
SHAPES = [
    ConvLayer("across", 1, 28, 28, 50, 5).at(1),
    ConvLayer("within", 1, 21, 68, 6, 5).at(3),
    ConvLayer("short", 2, 9, 7, 9, 3).at(2),
    ConvLayer("channels", 12, 12, 33, 24, 7).at(1),
    ConvLayer("alone", 4, 5, 5, 1, 5).at(1),
]


@pytest.mark.parametrize("lanes", [16, 8, 4])
def test_register_blocked_is_exact_with_vectors_of(lanes, tmp_path):
    text = (variants.FOLDER / "register_blocked.cpp").read_text()
    (tmp_path / "mine.cpp").write_text(text.replace("LANES_AT_MOST: 16", f"LANES_AT_MOST: {lanes}"))
    variant = variants.read("mine", tmp_path)
    assert variant.header.constants == {"LANES_AT_MOST": lanes}
    for case in (*SHAPES, *(case for case in problem.find("conv").ragged if not case.unusual)):
        integers, reals = checking.check_case(CpuBench(), variant, case)
        assert integers["ok"] and reals["ok"], f"{case}: {integers['reason']}{reals['reason']}"
        assert integers["max_abs_err"] == 0


def test_a_network_is_inferred_with_cpp(cpp_variant):
    network = networks.find("fa17")
    parameters = weights.load(network, network.weight_sets[0])
    images = np.random.default_rng(1).integers(0, 256, (3, 1, 28, 28)).astype(np.uint8)
    labels, op_s = inference.load(cpp_variant(), network, parameters)(images)
    expected, _ = inference.load(variants.read("im2col_blas"), network, parameters)(images)
    assert labels.tolist() == expected.tolist()
    assert len(op_s) == 1
    sandboxed = not sandbox.unavailable_reason()
    variant = cpp_variant()
    isolated = IsolatedBench(variant, sandboxed).labels(variant, network, parameters, images)
    assert isolated.tolist() == expected.tolist()
