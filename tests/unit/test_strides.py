"""Strides and padding: a variant computes them where it is told of them, else says it cannot."""

from warpbook.harness import checking
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants
from warpbook.problems import problem

RAGGED = {case.name: case for case in problem.find("conv").ragged}
STRIDED, PADDED = RAGGED["3x17x22 * 5@4x4 stride 3"], RAGGED["2x9x14 * 7@5x5 padding 2"]
BOTH = RAGGED["3x18x11 * 2@3x3 stride 2 padding 1"]


EVERY_CASE = {
    "direct", "shared_input", "constant_weights", "unroll_gemm", "loop_nest", "im2col_blas", "simd", "register_blocked",
    "cudnn_fp32", "cudnn_fp32_nhwc", "cudnn_tf32", "cudnn_tf32_nhwc", "onnxruntime", "torch_cpu",
}  # fmt: skip


def test_a_variant_computes_every_convolution_or_says_which_not():
    for name, variant in variants.discover(variants.FOLDER).items():
        told = [variant.unsupported(case) for case in RAGGED.values()]
        if name in EVERY_CASE:
            assert set(told) <= {variant.missing}, name
            continue
        if name == "implicit_gemm":  # told of every case, it is for some
            assert all("(`limits` in " in reason for reason in told)
            continue
        for case, words in ((STRIDED, "stride 3"), (PADDED, "padding 2"), (BOTH, "stride 2 and padding 1")):
            assert f"does not say that it handles {words}; " in variant.unsupported(case.at(1)), name


def test_the_remedy_is_where_a_variant_can_be_told(cuda_variant, tmp_path):
    (tmp_path / "host.cpp").write_text("/*\ntitle: t\nlimits: {S: 3}\n*/\n")
    assert cuda_variant("").unsupported(BOTH.at(1)).endswith("; name S and P in `arguments` in mine.cu if it does")
    assert (
        variants.read("host", tmp_path)
        .unsupported(STRIDED.at(1))
        .endswith("; name S in `general` in host.cpp if it does")
    )


def test_what_it_says_stands_in_a_row(cpu_variant):
    (row,) = checking.check_case(CpuBench(), cpu_variant("raise AssertionError('never called')"), STRIDED.at(2))
    assert row["status"] == "unsupported"
    assert row["reason"].startswith("mine does not say that it handles stride 3")
    assert row["reason"].endswith("name S in `limits` in mine.py if it does")


def test_a_constant_of_that_name_is_no_stride(cuda_variant):
    header = "arguments: [x, w, y, N, C, H, W, M, K, S]\nconstants: {S: 3}\n"
    assert "does not say that it handles stride 3" in cuda_variant("", header=header).unsupported(STRIDED.at(1))


def test_a_launcher_that_names_them_in_limits_computes_within_those(cpu_variant):
    right = cpu_variant("y[...] = convolve(x, w, layer.S, layer.P)", header="limits: {S: 3, P: 1}\n")
    assert all(row["ok"] for layer in (STRIDED, BOTH) for row in checking.check_case(CpuBench(), right, layer.at(2)))
    assert "P = 2 exceeds its limit 1" in right.unsupported(PADDED.at(1))


def test_a_launcher_that_takes_another_padding_is_caught(cpu_variant):
    body = "y[...] = convolve(np.roll(x, layer.P - 1, axis=3), w, layer.S, layer.P)"
    wrong = cpu_variant(body, header="limits: {S: 3, P: 3}\n")
    assert all(row["ok"] for row in checking.check_case(CpuBench(), wrong, BOTH.at(2)))
    assert "must be exact" in checking.check_case(CpuBench(), wrong, PADDED.at(2))[-1]["reason"]
