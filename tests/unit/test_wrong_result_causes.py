"""The cause of a wrong result is told where a second computation shows it, and no cause where none does."""

import shutil

import check_variant
from warpbook.harness import checking, error_diagnosis
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants
from warpbook.problems import problem

BEGINS = '''"""
device: cpu
"""
import numpy as np

from warpbook.problems import problem

reference = problem.find("conv").module.reference


def prepare(case, size):
    def call(x, w, y):
        right = reference(x.astype(float), w.astype(float))
        N, C, H, W = x.shape
        M, _, K, _ = w.shape
        '''
ENDS = "\n\n    return call\n"

WRONG = {
    "adds to y without setting it first": "y += right",
    "computes max(0, y), an activation that the problem does not have": "y[...] = np.maximum(right, 0)",
    "reads y without setting it first": "y[...] = right + 0 * y",
    "mirrors the filter": "y[...] = reference(x, w[:, :, ::-1, ::-1])",
    "reads w as [C // G, M, K, KW]; it is [M, C // G, K, KW]": (
        "y[...] = reference(x, w.reshape(C, M, K, K).transpose(1, 0, 2, 3))"
    ),
    "stores y as [N, M, W_out, H_out]; it is [N, M, H_out, W_out]": (
        "y[...] = right.transpose(0, 1, 3, 2).reshape(y.shape)"
    ),
    "another layout": (
        "made = reference(x.reshape(N, H, W, C).transpose(0, 3, 1, 2), w)\n"
        "        y[...] = made.transpose(0, 2, 3, 1).reshape(y.shape)"
    ),
    "computes the first alone of its images": "y[0] = right[0]",
    "takes the padding for K // 2": "y[...] = reference(x, w, P=K // 2)[:, :, : y.shape[2], : y.shape[3]]",
    "depthwise": (
        "y.reshape(-1)[: N * C * y[0, 0].size] = "
        "reference(x, w.reshape(-1)[: C * K * K].reshape(C, 1, K, K), G=C).reshape(-1)"
    ),
    "neighbour's place: W_out by +1": "y[..., :-1] = right[..., 1:]; y[..., -1] = 3",
    "2 times as large": "y[...] = 2 * right",
    "is right where H = W and wrong where they differ": "y[...] = right if H == W else right + 1 + np.arange(right.size).reshape(y.shape)",
    "is right with N = 1 and wrong with N = 2 (images)": "y[...] = right if N == 1 else right + np.random.rand(*y.shape)",
}  # fmt: skip


def reason(folder, code):
    (folder / "mine.py").write_text(BEGINS + code + ENDS)
    variant = variants.read("mine", folder)
    assert not variant.read_error
    return checking.check_case(CpuBench(), variant, variant.problem.ragged[0])[-1]["reason"]


def test_another_reduction_is_named(tmp_path):
    for code, words in [("x.max()", "maximum"), ("x.min()", "minimum"), ("x.mean()", "a mean")]:
        shutil.copy(problem.FOLDER / "reduce" / "problem.py", tmp_path)
        text = f"def prepare(case, size):\n    def call(x, y):\n        y[0] = {code}\n\n    return call\n"
        (tmp_path / "mine.py").write_text(f'"""\ndevice: cpu\n"""\n{text}')
        variant = variants.read("mine", tmp_path)
        assert words in checking.check_case(CpuBench(), variant, variant.problem.ragged[4])[-1]["reason"]


def test_what_a_second_computation_shows_is_the_cause(tmp_path):
    for words in WRONG:
        assert words in reason(tmp_path, WRONG[words])


def test_no_cause_is_told_where_none_explains_every_output(tmp_path):
    for code in [
        "y[...] = right; y[0, 0, 0, 7] += 1",
        "y[...] = right + np.random.rand(*y.shape)",
        "y.reshape(-1)[1:] = right.reshape(-1)[1:]",
        "y[...] = right * (1 + (np.arange(right.size).reshape(y.shape) % 3))",
    ]:
        told = reason(tmp_path, code)
        assert told.startswith(
            ("mine is wrong on 3x19x23 * 5@4x4: largest error", "mine leaves 1 of 3200 outputs unwritten")
        )


def test_what_is_right_has_no_cause(tmp_path):
    assert reason(tmp_path, "y[...] = right") == ""


def test_a_product_of_matrices_in_column_major_order_is_told_as_such(tmp_path):
    shutil.copy(problem.FOLDER / "gemm" / "problem.py", tmp_path)
    body = "c[...] = (a.reshape(a.shape[::-1]).T @ b.reshape(b.shape[::-1]).T).T.reshape(c.shape)"
    (tmp_path / "mine.py").write_text(
        f"def prepare(case, size):\n    def call(a, b, c):\n        {body}\n    return call\n"
    )
    (tmp_path / "mine.yaml").write_text("device: cpu\n")
    variant = variants.read("mine", tmp_path)
    found = checking.check_case(CpuBench(), variant, variant.problem.ragged[0])[-1]["reason"]
    words = "reads and stores its matrices in column-major order: right for rows with a and b, and m and n, in each other's place"
    assert words in found


def test_a_grid_that_is_rounded_down_is_told_with_the_limit_that_it_means(tmp_path):
    shutil.copy(problem.FOLDER / "gemm" / "problem.py", tmp_path)
    parameters = "const float *a, const float *b, float *c, int m, int n, int k"
    launch = "tiled<<<dim3(n / 128, m / 128), 256>>>(a, b, c, m, n, k);"
    (tmp_path / "mine.cu").write_text(
        f"__global__ void tiled({parameters}) {{}}\nvoid run({parameters}) {{ {launch} }}\n"
    )
    variant = variants.read("mine", tmp_path)
    case = variant.problem.case("", {"m": 256, "n": 200, "k": 8})
    assert error_diagnosis.with_note(variant, case, "wrong", "") == (
        "wrong; its grid (line 2 of mine.cu) has n // 128 blocks, and n = 200 is no multiple of 128: "
        "round up, or say `limits: {n: {multiple_of: 128}}`"
    )
    even = variant.problem.case("", {"m": 256, "n": 256, "k": 8})
    assert error_diagnosis.with_note(variant, even, "wrong", "") == "wrong"


def test_the_cause_is_looked_for_in_the_first_case_that_is_wrong_alone(tmp_path):
    (tmp_path / "mine.py").write_text(f"{BEGINS}y[...] = 2 * right{ENDS}")
    variant = variants.read("mine", tmp_path)
    cases = [case for case in variant.problem.ragged if not case.unusual and not case.optional]
    reasons = [rows[-1]["reason"] for rows in check_variant.check_places(CpuBench(), variant, cases)]
    assert ["2 times as large" in reason for reason in reasons] == [True, *[False] * (len(cases) - 1)]
    assert all(f"mine is wrong on {case}: " in reason for case, reason in zip(cases, reasons, strict=True))
