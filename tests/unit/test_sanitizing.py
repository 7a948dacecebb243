"""What compute-sanitizer says becomes a row: what it found, or why it could look at nothing."""

from types import SimpleNamespace

import pytest

import sanitize_variant

CUBLAS_FAILED = """Traceback (most recent call last):
  File "scripts/warpbook/errors.py", line 26, in exit_status
    return main() or 0
cupy_backends.cuda.libs.cublas.CUBLASError: CUBLAS_STATUS_EXECUTION_FAILED
Exception ignored in: 'cupy.cuda.function.Module.__dealloc__'
cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered
Error in sys.excepthook:

Original exception was:
"""


def said(*lines):
    return "".join(f"========= {line}\n" for line in ("COMPUTE-SANITIZER", *lines))


def test_nothing_found_is_no_error():
    assert sanitize_variant.verdict(said("ERROR SUMMARY: 0 errors"), "", 0) == {
        "errors": 0,
        "status": "ok",
        "reason": "",
    }


def test_a_race_is_told_in_the_tool_s_words():
    race = "Error: Race reported between Read access at sums+0x150 and Write access at sums+0xf0 [64 hazards]"
    found = sanitize_variant.verdict(
        said(race, "", "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"), "", 0
    )
    assert found == {"errors": 1, "status": "wrong_result", "reason": race}


def test_a_write_out_of_bounds_is_a_finding_although_it_ends_the_program():
    out = said(
        "Invalid __global__ write of size 4 bytes",
        "    at classify+0x5d0",
        "",
        'Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call',
        "Target application returned an error",
        "ERROR SUMMARY: 11 errors",
    )
    found = sanitize_variant.verdict(out, CUBLAS_FAILED, 1)
    assert found == {"errors": 11, "status": "wrong_result", "reason": "Invalid __global__ write of size 4 bytes"}


def test_a_tool_that_fails_itself_has_found_nothing():
    internal = "Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception."
    out = said(
        internal,
        "",
        "Target application returned an error",
        "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)",
    )
    found = sanitize_variant.verdict(out, CUBLAS_FAILED, 1)
    assert found == {"errors": None, "status": "launch_failed", "reason": internal}


def test_a_program_that_ended_early_is_told_by_its_first_exception():
    for out, err, reason in [
        (
            said("Target application returned an error", "ERROR SUMMARY: 0 errors"),
            CUBLAS_FAILED,
            "cupy_backends.cuda.libs.cublas.CUBLASError: CUBLAS_STATUS_EXECUTION_FAILED",
        ),
        ("", "error: no GPU here", "error: no GPU here"),
        ("", "Killed", "exit status 1"),
    ]:
        found = sanitize_variant.verdict(out, err, 1)
        assert found == {"errors": None, "status": "launch_failed", "reason": reason}


def test_meanwhile_a_product_of_cublas_is_zeros_and_no_more_than_its_result(monkeypatch):
    runtime = pytest.importorskip("cupy.cuda.runtime")
    import cupy_backends.cuda.libs as libraries

    filled, own = [], object()
    cublas = SimpleNamespace(gemmEx=own)
    monkeypatch.setitem(vars(libraries), "cublas", cublas)
    monkeypatch.setattr(runtime, "memset", lambda *arguments: filled.append(arguments))
    padded, images, count, a, b, c = 512, 11, 1800, 0x1000, 0x2000, 0x3000
    of_a, of_b, of_c = (a, "float16", 2 * count), (b, "float16", 2 * count), (c, "float32", padded)
    with sanitize_variant.without_library_gemm():
        cublas.gemmEx("handle", 1, 0, padded, images, count, 1.0, *of_a, *of_b, 0.0, *of_c, "float32", -1)
    assert filled == [(c, 0, 4 * padded * images)]
    assert cublas.gemmEx is own
