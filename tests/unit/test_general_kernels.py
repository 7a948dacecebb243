"""The kernel that a header names for cases with something unusual, and launchers that compute every case."""

import numpy as np

from warpbook.kernels import variants
from warpbook.problems import problem

CONV = problem.find("conv")
PLAIN = CONV.case("plain", {"C": 2, "H": 20, "W": 40, "M": 3, "K": 9}).at(1)
STRIDED = CONV.case("strided", {"C": 2, "H": 20, "W": 40, "M": 3, "K": 9, "S": 2}).at(1)
BIASED = CONV.case("biased", {"C": 2, "H": 20, "W": 40, "M": 3, "K": 3}, ["bias"]).at(1)

GENERAL = """\
limits: {K: 7}
launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16}}
general:
  kernel: conv_general
  arguments: [y, bias, x, w, S, 4 * K]
  shared_bytes: 4 * S * K
  limits: {K: 11}
"""


class Kernels:
    """Records launches: (kernel, shared bytes, grid, arguments)."""

    def __init__(self):
        self.launched = []

    def function(self, name, shared_bytes=0):
        return lambda grid, threads, arguments: self.launched.append((name, shared_bytes, grid, arguments))


def launched(variant, case):
    kernels = Kernels()
    variant.prepare(case, kernels)(*case.arrays)
    (launch,) = kernels.launched
    return launch


def test_the_general_kernel_is_launched_where_a_case_is_unusual(cuda_variant):
    variant = cuda_variant("", header=GENERAL)
    name, shared_bytes, grid, arguments = launched(variant, STRIDED)
    assert (name, shared_bytes, grid) == ("conv_general", 4 * 2 * 9, (1, 3, 1))
    assert arguments == ("y", np.intp(0), "x", "w", 2, 36)
    assert type(arguments[1]) is np.intp  # a null pointer, not an int of 32 bits
    assert launched(variant, BIASED)[3] == ("y", "bias", "x", "w", 1, 12)
    name, shared_bytes, _, arguments = launched(variant, PLAIN)
    assert (name, shared_bytes) == ("conv_forward", 0)
    assert arguments == ("x", "w", "y", 1, 2, 20, 40, 3, 9)


def test_the_general_kernel_has_limits_of_its_own(cuda_variant):
    assert "K = 9 exceeds its limit 7" in cuda_variant("", header=GENERAL).unsupported(PLAIN)
    assert not cuda_variant("", header=GENERAL).unsupported(STRIDED)
    shared = GENERAL.replace("  limits: {K: 11}\n", "")
    assert "K = 9 exceeds its limit 7" in cuda_variant("", header=shared).unsupported(STRIDED)
    large = GENERAL.replace("4 * S * K", "2 ** 17 * S")
    assert "shared_bytes = 262144 is outside" in cuda_variant("", header=large).unsupported(STRIDED)


def test_a_general_kernel_is_told_what_its_arguments_name(cuda_variant):
    variant = cuda_variant("", header=GENERAL)
    padded = CONV.case("padded", {"C": 2, "H": 20, "W": 40, "M": 3, "K": 3, "S": 2, "P": 1}).at(1)
    assert variant.missing_arguments(STRIDED) == variant.missing_arguments(BIASED) == {}
    assert variant.missing_arguments(padded) == {"P": "padding 1"}


def test_a_mistake_in_general_is_named_with_its_place(cuda_variant):
    for old, new, words in [
        ("4 * K]", "4 * k]", "general.arguments: `4 * k`: 'k' is no extent or constant"),
        ("4 * S * K", "4 * s", "general.shared_bytes: `4 * s`: 's' is no extent or constant"),
        ("{K: 11}", "{k: 11}", "general.limits: unknown key 'k'"),
        ("  kernel:", "  kernl:", "unknown key 'general.kernl': did you mean 'kernel'?"),
    ]:
        assert words in cuda_variant("", header=GENERAL.replace(old, new)).read_error


def test_cpp_is_told_what_its_general_function_names(tmp_path):
    (tmp_path / "host.cpp").write_text(
        "/*\ntitle: t\ngeneral: {kernel: conv_general, arguments: [x, w, y, K, S]}\n*/\n"
    )
    variant = variants.read("host", tmp_path)
    assert not variant.read_error
    assert variant.missing_arguments(STRIDED) == {}
    assert variant.missing_arguments(BIASED) == {"bias": "the optional input bias"}


def test_a_launcher_that_computes_every_case_is_told_everything(cpu_variant):
    variant = cpu_variant("pass", header="every_case: true\nlimits: {K: 7}\n")
    assert not variant.unsupported(BIASED)
    assert variant.missing_arguments(STRIDED) == {}
    assert "K = 9 exceeds its limit 7" in variant.unsupported(STRIDED)


def test_every_case_is_for_launchers_alone(cuda_variant):
    assert "`every_case` is of a launcher in Python" in cuda_variant("", header="every_case: true\n").read_error
