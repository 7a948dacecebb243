"""Kernels of whole networks on the CPU: their own source, emulated, against float64."""

import re
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from warpbook.harness import reference
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants, whole_networks
from warpbook.problems import networks

BEGUN = """
from warpbook.kernels import whole_networks
from warpbook.problems import networks

one, network = whole_networks.read("fused_wgmma"), networks.find("fa17")
kernels, conv = emulator.Kernels(library, one.constants), network.convs[0]
"""
WINDOWS = """
first, y = one.module.single_channel(kernels, conv, len(given["x"]), on_device(given["w"]))
y[...] = np.nan
first(on_device(given["x"]))
np.savez(out, y=y)
"""
FEW_WINDOWS = """
y = on_device(np.full((len(given["x"]), conv.M * 144), np.nan, np.float32))
one.module.few_windows(kernels, conv, on_device(given["w"]))(on_device(given["x"]), y)
np.savez(out, y=y)
"""
SCORES = """
parameters = {name: on_device(given[name]) for name in ("fc1.bias", "fc2.weight", "fc2.bias")}
partial, exponents = on_device(given["partial"]), on_device(given["exponents"])
classify = one.module.classifier_of(kernels, network, parameters)(partial, exponents)
images = partial.shape[1]
scores, labels = on_device(np.full((images, 10), np.nan, np.float32)), on_device(np.full(images, -1, np.int32))
classify(scores, labels)
np.savez(out, scores=scores, labels=labels)
"""


OF_BYTES = """
from warpbook.kernels import whole_networks
from warpbook.problems import networks

one, conv = whole_networks.read("fused_mma"), networks.find(arguments[0]).convs[0]
kernels, split, scale = emulator.Kernels(library, one.constants), arguments[1] == "split", float(arguments[2])
first, y = one.module.single_channel(kernels, conv, len(given["x"]), on_device(given["w"]), split, scale)
y[...] = np.nan
first(on_device(given["x"]))
np.savez(out, y=y)
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A function of an implementation and its source: a library of the source's kernels, emulated; each made once."""
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")

    @cache
    def compile_source(name, text):
        folder, constants = tmp_path_factory.mktemp("kernels"), whole_networks.read(name).constants
        written = ", ".join(f"{constant}: {value}" for constant, value in constants.items())
        (folder / "kernels.cu").write_text(f"/*\nconstants: {{{written}}}\n*/\n{text}")
        (folder / "kernels.py").write_text("")  # for a launcher every kernel is compiled
        return emulation.compile_host(variants.read("kernels", folder), folder, sandboxed=False)

    return compile_source


@pytest.fixture
def emulated(compiled, run_emulated):
    """A function of a script, arrays that it is given, and a change of warpgroups' source: what the script saved."""

    def call(script, old="", new="", **arrays):
        text = whole_networks.read("fused_wgmma").text
        assert old in text
        return run_emulated(BEGUN + script, compiled("fused_wgmma", text.replace(old, new)), **arrays)

    return call


def only_pooled(text, kernel):
    """fused's source with one use of its macro CONV_POOL written out: the emulator knows no macros. No other use."""
    macro = re.search(r"#define CONV_POOL\((.*)\) *\\\n((?:.*\\\n)*.*\n)", text)
    (use,) = re.findall(rf"^CONV_POOL\(({kernel}, .*)\)$", text, re.MULTILINE)
    written = macro[2].replace("\\\n", "\n")
    for name, value in zip(macro[1].split(", "), use.split(", "), strict=True):
        written = re.sub(rf"\b{name}\b(##)?", value, written)
    text = text.replace(macro[0], written)
    return re.sub(r"^CONV_POOL\(.*\)$", "", text, flags=re.MULTILINE)


SCALE = 1 / 255
KERNELS = {"pooled": "conv_pool", "split": "conv_pool_split"}


@pytest.fixture
def of_bytes(compiled, run_emulated):
    """A function of a network, the kind of kernel and a change of fused's source: the largest relative error of an
    image, in the norm, of its pooled first layer from bytes, emulated."""

    def call(name, kind, old="", new=""):
        text, network = whole_networks.read("fused_mma").text, networks.find(name)
        conv, source = network.convs[0], np.random.default_rng(5)
        x = source.integers(0, 256, conv.x_shape(3), np.uint8)
        x[1] = 255
        w = (source.standard_normal(conv.w_shape) / 5).astype(np.float32)
        y = reference.convolve(x * SCALE, w.astype(np.float64))
        y = y.reshape(3, conv.M, conv.H_out // 2, 2, conv.W_out // 2, 2).max(axis=(3, 5)).reshape(3, -1)
        expected = np.maximum(y, 0) if network.steps[0].activation == "relu" else np.tanh(y)
        assert old in text
        library = compiled("fused_mma", only_pooled(text.replace(old, new), f"{KERNELS[kind]}_{conv.W}_{conv.K}"))
        made = run_emulated(OF_BYTES, library, name, kind, SCALE, x=x, w=w)["y"].astype(np.float64)
        if kind == "split":
            low, high = np.moveaxis(made, 1, 0)
            made = np.ldexp(low + high, -14)
        return error(made.reshape(3, -1), expected)

    return call


@pytest.fixture
def windows(emulated):
    """A function of x, w and a change of the source: the pooled first layer of fa17, emulated, (images, numbers)."""

    def call(x, w, old="", new=""):
        low, high = np.moveaxis(emulated(WINDOWS, old, new, x=x, w=w)["y"].astype(np.float64), 1, 0)
        return np.ldexp(low + high, -14)

    return call


@pytest.fixture
def drawn():
    """Five images and the weights of fa17's first layer, and its pooled tanh in float64."""
    (conv,), source = networks.find("fa17").convs, np.random.default_rng(3)
    x = source.standard_normal(conv.x_shape(5)).astype(np.float32)
    x[1] *= 2.0**12
    x[3, 0, 4, 5] = np.inf
    w = (source.standard_normal(conv.w_shape) / 5).astype(np.float32)
    with np.errstate(invalid="ignore"):
        y = reference.convolve(x.astype(np.float64), w.astype(np.float64))
        y = y.reshape(5, conv.M, 12, 2, 12, 2).max(axis=(3, 5))
    return SimpleNamespace(x=x, w=w, expected=np.tanh(y).reshape(5, -1))


def error(made, expected):
    """The largest relative error of an image, in the norm, where the expected numbers are finite."""
    known = np.isfinite(expected)
    assert np.array_equal(np.isfinite(made), known)
    return max(np.linalg.norm((a - b)[k]) / np.linalg.norm(b[k]) for a, b, k in zip(made, expected, known, strict=True))


def test_windows_of_warpgroups_are_tanh_of_float64_s_to_fp32(windows, drawn):
    assert error(windows(drawn.x, drawn.w), drawn.expected) < 2e-7


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0x5432", "0x5410"),  # odd columns begin at even ones
        ("series * square", "series"),
    ],
)
def test_a_fault_in_the_windows_of_warpgroups_is_seen(windows, drawn, old, new):
    made = windows(drawn.x, drawn.w, old, new)
    assert not np.isfinite(made).all() or error(made, drawn.expected) > 2e-6


def test_few_windows_of_warpgroups_are_tanh_of_float64_s_to_fp32(emulated, drawn):
    made = emulated(FEW_WINDOWS, x=drawn.x, w=drawn.w)["y"]
    assert error(made.astype(np.float64), drawn.expected) < 2e-7


@pytest.fixture
def sums():
    """A function of shares and images: what `classifier` is given, and the scores in float64."""

    def draw(shares, images):
        source, padded = np.random.default_rng(4), 512
        exponents = source.integers(-3, 3, 500, np.int32)
        partial = source.standard_normal((shares, images, padded)).astype(np.float32) * 2.0**28
        given = {
            "partial": partial.astype(np.float32), "exponents": exponents,
            "fc1.bias": source.standard_normal(500).astype(np.float32),
            "fc2.weight": source.standard_normal((10, 500)).astype(np.float32),
            "fc2.bias": source.standard_normal(10).astype(np.float32),
        }  # fmt: skip
        hidden = np.ldexp(partial.astype(np.float64).sum(axis=0)[:, :500], exponents - 28) + given["fc1.bias"]
        return given, np.tanh(hidden) @ given["fc2.weight"].T.astype(np.float64) + given["fc2.bias"]

    return draw


@pytest.mark.parametrize(("shares", "images"), [(7, 3), (1, 307)])
def test_scores_and_labels_of_few_and_of_many_images_are_those_of_float64(emulated, sums, shares, images):
    given, expected = sums(shares, images)
    made = emulated(SCORES, **given)
    assert np.linalg.norm(made["scores"] - expected) < 1e-6 * np.linalg.norm(expected)
    np.testing.assert_array_equal(made["labels"], expected.argmax(axis=1))


@pytest.mark.parametrize(
    ("shares", "images", "old", "new"),
    [
        (7, 3, "share < shares; ++share)", "share < shares - 1; ++share)"),
        (1, 307, "if (unit >= hidden) break;", "if (unit >= hidden - 4) break;"),
    ],
)
def test_a_fault_in_the_last_layer_of_warpgroups_is_seen(emulated, sums, shares, images, old, new):
    given, expected = sums(shares, images)
    made = emulated(SCORES, old, new, **given)["scores"]
    assert np.linalg.norm(made - expected) > 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("network", "kind"),
    [(name, "pooled") for name in ("fa17", "fa18", "fa19", "sp19", "ece408")]
    + [(name, "split") for name in ("fa17", "fa18", "sp19")],
)
def test_a_first_layer_of_bytes_is_that_of_float64_to_fp32(of_bytes, network, kind):
    assert of_bytes(network, kind) < 2e-7


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "product < (HAS_LO_PARTS ? 3 : 2)",
            "product < (HAS_LO_PARTS ? 3 : 1)",
        ),  # hi parts of the weights are left out
        ("__floats2half2_rn(values[r].x, values[r].y)", "__floats2half2_rn(values[r].x, values[r].x)"),
        ("float scaled(float sum) const { return sum * scale; }", "float scaled(float sum) const { return sum; }"),
    ],
)
def test_a_fault_in_a_first_layer_of_bytes_is_seen(of_bytes, old, new):
    assert of_bytes("ece408", "pooled", old, new) > 1e-4
