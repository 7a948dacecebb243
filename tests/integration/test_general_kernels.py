"""The kernels and functions that compute every convolution, each called on the ragged cases: right as they are, and caught
with a fault planted in what stride, padding, dilation, groups or bias need."""

import shutil
from pathlib import Path

import pytest

from emulated import reasons
from warpbook.common.files import scratch_folder
from warpbook.harness import checking, cpp_compiler
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import variants

PADDING, GROUP = ("S - P;", "S - PW;"), ("map / (M / G) * channels;", "0;")
BIAS = ("if (bias) sum += bias[map];", "")
FAULTS = {
    "direct.cu": [PADDING, GROUP, BIAS],
    "constant_weights.cu": [PADDING, GROUP, BIAS],
    "shared_input.cu": [PADDING, GROUP, BIAS, ("DW * (KW - 1) + 1;", "KW;")],
    "unroll_gemm.cu": [
        PADDING,
        ("unrolled + (size_t)blockIdx.z * products * outputs", "unrolled"),
        ("bias[first_map + map]", "bias[map]"),
    ],
    "loop_nest.py": [("p * D - P\n", "p * D - PW\n"), ("m // (M // G) * channels", "0"), ("+ bias[m]", "")],
    "im2col_blas.py": [("layer.P : layer.P + layer.H", "layer.P_end : layer.P_end + layer.H"), ("if bias:", "if False:")],
    "simd.py": [("p * D - P\n", "p * D - PW\n"), ("group * channels + c, i]", "c, i]")],
    "register_blocked.cpp": [("h0 * S - P + i", "h0 * S - PW + i"), ("C + group * channels + c)", "C + c)"), ("if (bias)", "if (false)")],
    "onnxruntime.py": [("layer.P, layer.PW, layer.P_end,", "layer.P, layer.P_end, layer.PW,")],
}  # fmt: skip


def failures(folder: Path, file: str, count: int) -> list[str]:
    """Why the variant of a folder fails on the last ragged cases, which have the most that is unusual."""
    variant = variants.read(Path(file).stem, folder)
    assert not variant.read_error
    cases = [case for case in checking.ragged_cases(variant) if case.size != checking.MANY][-count:]
    assert cases == variant.problem.ragged[-count:]
    with scratch_folder() as built, IsolatedBench(variant, False, built if file.endswith(".cu") else None) as bench:
        return reasons(row for case in cases for row in checking.check_case(bench, variant, case, diagnose=False))


@pytest.mark.parametrize("file", FAULTS)
def test_it_computes_every_convolution_and_a_fault_is_caught(file, tmp_path, monkeypatch):
    needed = {".cu": emulation.compiler, ".cpp": cpp_compiler.compiler}.get(Path(file).suffix)
    if needed and needed() is None:
        pytest.skip("there is no C++ compiler here")
    for path in variants.FOLDER.glob(f"{Path(file).stem}.*"):
        shutil.copy(path, tmp_path)
    right = (tmp_path / file).read_text()
    if file in ("loop_nest.py", "simd.py"):
        assert failures(tmp_path, file, 1) == []
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # to compile for each case and each fault takes seconds
    if not file.endswith(".cu"):  # test_emulator calls every kernel on all ragged cases
        assert failures(tmp_path, file, 3) == []
    # A fault is one without the compiler's optimizations too, which take most of the time.
    monkeypatch.setattr(cpp_compiler, "OPTIONS", ("-O0", *(one for one in cpp_compiler.OPTIONS if one != "-O3")))
    for old, new in FAULTS[file]:
        assert right.count(old) == 1, old
        (tmp_path / file).write_text(right.replace(old, new))
        assert failures(tmp_path, file, 1), (old, new)
