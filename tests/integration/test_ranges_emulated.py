"""Kernels that multiply halves, emulated, on images whose numbers halves cannot hold beside each other."""

from types import SimpleNamespace

import numpy as np
import pytest

from warpbook.harness import reference
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants
from warpbook.problems import networks

SCRIPT = """
from pathlib import Path
from warpbook.problems import networks
from warpbook.kernels import variants

folder, name, network, layer = arguments
variant, conv = variants.read(name, Path(folder)), networks.find(network).convs[int(layer)]
call = variant.prepare(conv, len(given["x"]), emulator.Kernels(library, variant.header.constants))
x, w = on_device(given["x"]), on_device(given["w"])
y = on_device(np.empty(conv.y_shape(len(x)), np.float32))
for _ in range(2):  # the second finds what the first left
    y[...] = np.nan
    call(x, w, y)
np.savez(out, y=y)
"""


@pytest.fixture
def emulated(tmp_path, run_emulated):
    """A function of a variant, a layer of a network, x, w and a change of the source: y."""
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")

    def call(name, network, layer, x, w, old="", new=""):
        files = variants.read(name).files
        assert any(old in file.read_text() for file in files)
        for file in files:
            (tmp_path / file.name).write_text(file.read_text().replace(old, new))
        (tmp_path / "built").mkdir()
        library = emulation.compile_host(variants.read(name, tmp_path), tmp_path / "built", sandboxed=False)
        return run_emulated(SCRIPT, library, tmp_path, name, network, layer, x=x, w=w)["y"]

    return call


def drawn(network, layer):
    """Images, weights and float64's outputs: (1) as drawn, (2) every pixel by a power of two of its own, (3) half of
    the image far below the rest, (4) one infinite number, (5) all of it tiny, (6) one tiny number, one of 1, zeros."""
    conv, source = networks.find(network).convs[layer], np.random.default_rng(5)
    x = source.standard_normal(conv.x_shape(6)).astype(np.float32)
    x[1] *= np.exp2(source.integers(-12, 13, x[1, 0].shape)).astype(np.float32)
    x[2, :, : conv.H // 2] *= np.float32(2.0**-30)
    x[3, 0, 4, 5] = np.inf
    x[4] *= np.float32(2.0**-120)
    x[5] = 0
    x[5, 0, 2, 3], x[5, -1, -1, -1] = 2.0**-40, 1
    w = (source.standard_normal(conv.w_shape) / 5).astype(np.float32)
    with np.errstate(invalid="ignore"):
        y = reference.convolve(x.astype(np.float64), w.astype(np.float64))
        magnitudes = reference.convolve(abs(x).astype(np.float64), abs(w).astype(np.float64))
    return SimpleNamespace(x=x, w=w, y=y, magnitudes=magnitudes)


def of_fp32(made, drawn):
    """Whether each output that is finite is apart from float64's by no more than FP32 sums of its products are."""
    known = np.isfinite(drawn.y)
    with np.errstate(invalid="ignore"):
        apart = abs(made - drawn.y)[known]
    return np.array_equal(np.isfinite(made), known) and bool((apart <= 1e-6 * drawn.magnitudes[known]).all())


@pytest.mark.parametrize(
    ("name", "network", "layer"),
    [
        ("fp16x3_mma", "fa17", 0), ("fp16x3_mma", "fa18", 0), ("fp16x3_mma", "sp19", 1),
        ("fp16x3_mma", "ece408", 1), ("fp16x3_mma", "fa19", 1), ("fp16x3_wgmma", "sp19", 1),
        ("fp16x3_wgmma", "fa19", 1), ("fp16x3_wgmma", "ece408", 0), ("fp16x3_wgmma", "ece408", 1),
    ],
)  # fmt: skip
def test_each_output_is_fp32_s_whatever_lies_beside_it_in_the_image(name, network, layer, emulated):
    given = drawn(network, layer)
    assert of_fp32(emulated(name, network, layer, given.x, given.w), given)


@pytest.mark.parametrize(
    ("name", "layer", "old", "new"),
    [
        ("fp16x3_mma", 1, "if (threadIdx.x == 0) append_fallback(", "if (false) append_fallback("),
        ("fp16x3_mma", 1, "any |= magnitude != 0 && magnitude < least;", ""),
        ("fp16x3_mma", 0, "#define MIN_EXPONENT (-17)", "#define MIN_EXPONENT (-200)"),
        ("fp16x3_wgmma", 1, "2 * exponent + too_small", "2 * exponent"),
        ("fp16x3_wgmma", 1, "for (int q = 0; q < K; ++q) any |=", "for (int q = 1; q < K; ++q) any |="),
    ],
)
def test_an_output_that_halves_cannot_give_is_seen(name, layer, old, new, emulated):
    given = drawn("sp19", layer)
    assert not of_fp32(emulated(name, "sp19", layer, given.x, given.w, old, new), given)
