"""Kernels of whole networks on the CPU: their own source, emulated, against float64."""

import re
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest

from emulated import FAULT, Fault, plant
from warpbook.harness import reference
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants, whole_networks
from warpbook.problems import networks

BEGUN = """
from warpbook.kernels import whole_networks
from warpbook.problems import networks

one, network = whole_networks.read("fused_wgmma"), networks.find("fa17")
kernels, conv = emulation.EmulatedKernels(library, one.constants), network.convs[0]
"""
FEW_WINDOWS = """
launch, y = one.module.few_windows(kernels, conv, len(given["x"]), on_device(given["w"]))
y[...] = np.nan
launch(on_device(given["x"]))
np.savez(out, y=y)
"""
SCORES = """
parameters = {name: on_device(given[name]) for name in ("fc1.bias", "fc2.weight", "fc2.bias")}
partial, exponents = on_device(given["partial"]), on_device(given["exponents"])
images = partial.shape[1]
of_images = on_device(np.zeros(images, np.int32))
classify = one.module.few_classifier_of(kernels, of_images, network, parameters)(partial, exponents)
scores, labels = on_device(np.full((images, 10), np.nan, np.float32)), on_device(np.full(images, -1, np.int32))
classify(scores, labels)
np.savez(out, scores=scores, labels=labels)
"""

DENSE = """
mma = one.module.fused_mma
mma.cupy, split = np, mma.split_matrix  # the emulator runs kernels alone
mma.split_matrix = lambda *arguments: [on_device(part) for part in split(*arguments)]
made = {}
def classifier(partial, weight_exponents):
    made.update(partial=partial, exponents=weight_exponents)
    return lambda scores, labels: None

x, exponents = on_device(given["x"]), on_device(given["exponents"])
one.module.few_connected(kernels, len(x), x, exponents, given["w"], classifier)(None, None)
np.savez(out, **made)
"""

POOLED = """
from warpbook.kernels import whole_networks
from warpbook.problems import networks

one, network = whole_networks.read("fused_wgmma"), networks.find("ece408")
kernels = emulation.EmulatedKernels(library, one.constants)
x, w, (conv, pool) = on_device(given["x"]), on_device(given["w"]), (step.layer for step in network.steps[2:4])
launch, y, exponents = one.module.pooled_convolution(kernels, conv, len(x), w, x, pool)
y[...], exponents[...] = np.nan, -999
launch()
np.savez(out, y=y, exponents=exponents)
"""


FLOAT_LAYER = """
from warpbook.kernels import whole_networks
from warpbook.problems import networks

one, network = whole_networks.read("fused_wgmma"), networks.find(arguments[0])
kernels = emulation.EmulatedKernels(library, one.constants)
launch, y = one.module.float_runs(kernels, network, len(given["x"]), on_device(given["w"]))
y[...] = 9
launch(on_device(given["x"]))
np.savez(out, y=y)
"""

TILED_LAYER = """
from types import SimpleNamespace
from warpbook.kernels import whole_networks
from warpbook.problems import networks

one, network = whole_networks.read("fused_wgmma"), networks.find(arguments[0])
kernels = emulation.EmulatedKernels(library, one.constants)
images, w = len(given["x"]), on_device(given["w"])
if network.name == "fa17":
    conv = SimpleNamespace(M=len(w), H_out=24, W_out=24)
    launch, y = one.module.windows(kernels, conv, images, w)
else:
    launch, y = one.module.many_runs(kernels, network, images, w)
launch(on_device(given["x"]))
np.savez(out, y=y)
"""

DENSE_OF_TILES = """
from warpbook.kernels import whole_networks

one = whole_networks.read("fused_wgmma")
kernels, made, connect = emulation.EmulatedKernels(library, one.constants), {}, one.module.many_connected
names = connect.__globals__
one.module.fused_mma.cupy, ordered = np, names["in_stages"]  # the emulator runs kernels alone
names["in_stages"] = lambda *arguments: on_device(ordered(*arguments))
def classifier(partial, weight_exponents, stages, steps, blocks):
    made.update(partial=partial, exponents=weight_exponents, tiling=[stages, steps, blocks])
    partial[...] = np.nan
    return lambda scores, labels: None

images, channels = map(int, arguments)
w = names["in_order_of_tiles"](given["w"], channels)
connect(kernels, images, on_device(given["x"]), w, classifier)(None, None)
np.savez(out, **made)
"""

SHARES = """
from warpbook.kernels import whole_networks
from warpbook.problems import networks

one, network = whole_networks.read("fused_wgmma"), networks.find("fa17")
kernels = emulation.EmulatedKernels(library, one.constants)
parameters = {name: on_device(given[name]) for name in ("fc1.bias", "fc2.weight", "fc2.bias")}
partial, exponents = on_device(given["partial"]), on_device(given["exponents"])
classify = one.module.classifier_of(kernels, network, parameters)(partial, exponents, *map(int, arguments))
scores, labels = on_device(np.full((307, 10), np.nan, np.float32)), on_device(np.full(307, -1, np.int32))
classify(scores, labels)
np.savez(out, scores=scores, labels=labels)
"""

OF_BYTES = """
from warpbook.kernels import whole_networks
from warpbook.problems import networks

one, (scale, *places) = whole_networks.read("fused_mma"), arguments
kernels, made = emulation.EmulatedKernels(library, one.constants), {}
for place in places:
    network, kind = place.split(":")
    x, w, conv = on_device(given[f"x {network}"]), on_device(given[f"w {network}"]), networks.find(network).convs[0]
    first, y = one.module.single_channel(kernels, conv, len(x), w, kind == "split", float(scale))
    y[...] = np.nan
    first(x)
    made[place] = y
np.savez(out, **made)
"""

# What a fault changes is chosen as the library runs (FAULT): without that variable each kernel is as it stands.
FAULTS = {
    "bytes": [
        # The hi parts of the weights are left out.
        Fault("product < (HAS_LO_PARTS ? 3 : 2)", "product < (HAS_LO_PARTS ? 3 : PLANTED ? 1 : 2)"),
        Fault("__floats2half2_rn(values[r].x, values[r].y)", "__floats2half2_rn(values[r].x, values[r].x)"),
        Fault(
            "float scaled(float sum) const { return sum * scale; }",
            "float scaled(float sum) const { return PLANTED ? sum : sum * scale; }",
        ),
    ],
    "windows": [
        Fault("0x5432", "0x5410"),  # odd columns begin at even ones
        Fault("series * square", "series"),
        Fault("|| unscale_exponent > 127", "|| (!PLANTED && unscale_exponent > 127)"),
        Fault("corner += ROW - L::WINDOWS_PER_ROW;", "corner += PLANTED ? ROW : ROW - L::WINDOWS_PER_ROW;"),
    ],
    "scores of few": [
        Fault("share < shares; share += groups)", "share < shares - (PLANTED ? 1 : 0); share += groups)")
    ],
    "scores of many": [
        Fault("if (unit >= hidden) break;", "if (unit >= hidden - (PLANTED ? 4 : 0)) break;"),
        Fault("share < shares; ++share", "share < (PLANTED ? 1 : shares); ++share"),
    ],
    "dense of few": [
        Fault("product == 1 ? lo[m] : hi[m]", "product == 1 ? (PLANTED ? hi[m] : lo[m]) : hi[m]"),
        Fault("if (first * 16 >= images) break;", "if (first * 16 + (PLANTED ? 8 : 0) >= images) break;"),
        Fault("k < (K + 31) / 32 * 2;", "k < (PLANTED ? K / 16 : (K + 31) / 32 * 2);"),
    ],
    "dense of many": [
        Fault("b + L::B_STEP + L::B_PART", "b + L::B_STEP + (PLANTED ? 0 : L::B_PART)"),
        Fault("(lane / 16 ^ row / 2 % 4) * 16", "(lane / 16 ^ (PLANTED ? 0 : row / 2 % 4)) * 16"),
        Fault("add_products(sums[chunk - 1], products", "if (!PLANTED) add_products(sums[chunk - 1], products"),
    ],
    "pooling": [
        Fault("sums.of(i, r, 0), sums.of(i, r, 1)", "sums.of(i, r, 0), sums.of(i, r, PLANTED ? 0 : 1)"),
        Fault("if (r >= rows) break;", "if (!PLANTED && r >= rows) break;"),
        Fault("pooled[i] = 0.0f;", "if (!PLANTED) pooled[i] = 0.0f;"),
    ],
    "runs": [
        Fault("const int p = k / 8 - down,", "const int p = k / 8 - (PLANTED ? 0 : down),"),
        Fault("fmaxf(sums[lower], sums[lower + 1])", "fmaxf(sums[lower], sums[PLANTED ? lower : lower + 1])"),
    ],
    "runs of sp19": [
        Fault("warp_runs >= L::WARP_RUNS;", "warp_runs >= L::WARP_RUNS + (PLANTED ? 1 : 0);"),
        Fault("place[DENSE_HI / 2] = hi", "place[DENSE_HI / 2] = PLANTED ? lo : hi"),
    ],
    "scales of runs": [Fault("L::EXPONENT > 0 &&", "L::EXPONENT > 0 && !PLANTED &&")],
    "runs of ece408": [
        Fault("if (entered[half])", "if (!PLANTED && entered[half])"),
        Fault("pixels += L::TALL * L::W;", "pixels += PLANTED ? L::W : L::TALL * L::W;"),
    ],
}


@pytest.fixture
def planted(monkeypatch):
    """Plant each fault of what a test is of, one after another."""

    def plant_each(*groups):
        every = list(chain(*FAULTS.values()))
        for fault in chain(*(FAULTS[group] for group in groups)):
            number = every.index(fault) + 1
            monkeypatch.setenv(FAULT, str(number))
            yield number

    return plant_each


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All kernels of whole networks but `unfused`, emulated, with FAULTS to choose from."""
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")
    folder, one = tmp_path_factory.mktemp("kernels"), whole_networks.read("fused_wgmma")
    written = ", ".join(f"{constant}: {value}" for constant, value in one.constants.items())
    text = f"/*\nconstants: {{{written}}}\n*/\n{written_out(one.text)}"
    (folder / "kernels.cu").write_text(plant({"kernels.cu": text}, list(chain(*FAULTS.values())))["kernels.cu"])
    (folder / "kernels.py").write_text("")  # for a launcher every kernel is compiled
    return emulation.compile_host(variants.read("kernels", folder), folder, sandboxed=False)


@pytest.fixture
def emulated(library, run_emulated):
    """A function of a script for fused_wgmma, and arrays that it is given: what the script saved."""

    def call(script, **arrays):
        return run_emulated(BEGUN + script, library, **arrays)

    return call


def written_out(text):
    """fused_mma's source with each use of its macro CONV_POOL written out, for the emulator finds no kernels in
    macros."""
    macro = re.search(r"#define CONV_POOL\((.*)\) *\\\n((?:.*\\\n)*.*\n)", text)

    def use(found):
        written = macro[2].replace("\\\n", "\n")
        for name, value in zip(macro[1].split(", "), found[1].split(", "), strict=True):
            written = re.sub(rf"\b{name}\b(##)?", value, written)
        return written

    return re.sub(r"^CONV_POOL\((.*)\)$", use, text.replace(macro[0], ""), flags=re.MULTILINE)


SCALE = 1 / 255


@pytest.fixture
def errors_of_bytes(library, run_emulated):
    """A function of networks and kinds of kernels: of each the largest relative error of an image, in the norm, of the
    pooled first layer from bytes, emulated."""

    def call(places):
        given, expected = {}, {}
        for name in dict(places):
            network, source = networks.find(name), np.random.default_rng(5)
            conv = network.convs[0]
            x = source.integers(0, 256, conv.at(3).shape("x"), np.uint8)
            x[1] = 255
            w = (source.standard_normal(conv.w_shape) / 5).astype(np.float32)
            y = reference.convolve(x * SCALE, w.astype(np.float64))
            y = y.reshape(3, conv.M, conv.H_out // 2, 2, conv.W_out // 2, 2).max(axis=(3, 5)).reshape(3, -1)
            expected[name] = np.maximum(y, 0) if network.steps[0].activation == "relu" else np.tanh(y)
            given |= {f"x {name}": x, f"w {name}": w}
        made = run_emulated(OF_BYTES, library, SCALE, *(f"{name}:{kind}" for name, kind in places), **given)
        errors = {}
        for name, kind in places:
            y = made[f"{name}:{kind}"].astype(np.float64)
            if kind == "split":
                low, high = np.moveaxis(y, 1, 0)
                y = np.ldexp(low + high, -14)
            errors[name, kind] = error(y.reshape(3, -1), expected[name])
        return errors

    return call


@pytest.fixture
def windows(library, run_emulated):
    """A function of x and w: the pooled first layer of fa17, emulated, (images, numbers)."""

    def call(x, w):
        made = run_emulated(TILED_LAYER, library, "fa17", x=x, w=w)["y"]
        return untiled(made, len(x), len(w)).reshape(len(x), -1)

    return call


@pytest.fixture
def drawn():
    """Five images and the weights of fa17's first layer, and its pooled tanh in float64."""
    (conv,), source = networks.find("fa17").convs, np.random.default_rng(3)
    x = source.standard_normal(conv.at(5).shape("x")).astype(np.float32)
    x[1] *= 2.0**12
    x[4] = abs(x[4]) * 2.0**85
    x[3, 0, 4, 5] = np.inf
    w = (source.standard_normal(conv.w_shape) / 5).astype(np.float32)
    w[0] = abs(w[0]) * 2.0**60  # no FP32 undoes the scales of both and is 2^14 times larger
    with np.errstate(invalid="ignore"):
        y = reference.convolve(x.astype(np.float64), w.astype(np.float64))
        y = y.reshape(5, conv.M, 12, 2, 12, 2).max(axis=(3, 5))
    return SimpleNamespace(x=x, w=w, expected=np.tanh(y).reshape(5, -1))


def error(made, expected):
    """The largest relative error of an image, in the norm, where the expected numbers are finite."""
    known = np.isfinite(expected)
    assert np.array_equal(np.isfinite(made), known)
    return max(
        np.linalg.norm(a[k] - b[k]) / np.linalg.norm(b[k]) for a, b, k in zip(made, expected, known, strict=True)
    )


def test_windows_of_warpgroups_are_tanh_of_float64_s_to_fp32(windows, drawn):
    for channels in (50, 7):
        assert error(windows(drawn.x, drawn.w[:channels]), drawn.expected[:, : channels * 144]) < 2e-7, channels


def test_a_fault_in_the_windows_of_warpgroups_is_seen(windows, drawn, planted):
    for number in planted("windows"):
        made = windows(drawn.x, drawn.w)
        assert not np.isfinite(made).all() or error(made, drawn.expected) > 2e-6, number


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
        return given, scores_of(given)

    return draw


def scores_of(given):
    """The scores in float64; shares that a tile does not have are NaN."""
    added = np.nan_to_num(given["partial"][:, :, :500].astype(np.float64)).sum(axis=0)
    hidden = np.tanh(np.ldexp(added, given["exponents"] - 28) + given["fc1.bias"])
    return hidden @ given["fc2.weight"].T.astype(np.float64) + given["fc2.bias"]


def test_scores_and_labels_of_few_images_are_those_of_float64(emulated, sums):
    given, expected = sums(7, 3)
    made = emulated(SCORES, **given)
    assert np.linalg.norm(made["scores"] - expected) < 1e-6 * np.linalg.norm(expected)
    np.testing.assert_array_equal(made["labels"], expected.argmax(axis=1))


def test_a_fault_in_the_last_layer_of_few_images_is_seen(emulated, sums, planted):
    given, expected = sums(7, 3)
    for number in planted("scores of few"):
        made = emulated(SCORES, **given)["scores"]
        assert np.linalg.norm(made - expected) > 1e-4 * np.linalg.norm(expected), number


def tiled(parts):
    """Lo and hi parts (images, 2, channels, values) in the order of `dense_place`, 16 of two channels a stage."""
    images, _, channels, values = parts.shape
    x = np.pad(parts, ((0, -images % 128), (0, 0), (0, -channels % 2), (0, -values % 16)))
    pairs = x.reshape(-1, 128, 2, x.shape[2] // 2, 2, x.shape[3] // 16, 16).transpose(0, 3, 5, 2, 1, 4, 6)
    return in_places(pairs.reshape(len(pairs), -1, 2, 128, 4, 8)).reshape(len(pairs), -1, 2, 128, 32)


def in_places(quarters):
    """Quarters of a stage's inputs (tile, stage, part, image, quarter, number) in the places of each image; and back."""
    places = np.arange(4) ^ (np.arange(128) // 2 % 4)[:, None]
    return np.take_along_axis(quarters, places[None, None, None, :, :, None], axis=4)


def untiled(x, images, channels):
    """The numbers (images, channels, values) whose parts are in the order of `dense_place`, 16 of two channels a stage."""
    tiles, stages = x.shape[:2]
    halves = in_places(x.reshape(tiles, stages, 2, 128, 4, 8)).astype(np.float64).sum(axis=2)
    pairs = np.ldexp(halves, -14).reshape(tiles, (channels + 1) // 2, -1, 128, 2, 16)
    return pairs.transpose(0, 3, 1, 4, 2, 5).reshape(tiles * 128, -1, pairs.shape[2] * 16)[:images, :channels]


@pytest.fixture
def error_of_many(library, run_emulated):
    """A function of images, channels, their values and outputs: the largest relative error of a hidden layer's sums for many
    images, each tile's the sum of its shares. No share but those is written."""

    def call(images, channels, values, outputs):
        source = np.random.default_rng(5)
        x = source.uniform(-1, 1, (images, channels, values))
        w = source.standard_normal((outputs, channels * values))
        scaled = np.ldexp(x, 14).astype(np.float32)
        hi = scaled.astype(np.float16)
        parts = tiled(np.stack([(scaled - hi).astype(np.float16), hi], axis=1))
        made = run_emulated(DENSE_OF_TILES, library, images, channels, x=parts, w=w)
        stages, steps, blocks = made["tiling"]
        begins = [stages * block // blocks for block in range(blocks)]
        y = np.zeros((images, outputs))
        for tile in range(stages // steps):
            first, last = np.searchsorted(begins, [tile * steps, (tile + 1) * steps - 1], "right")
            rows, shares = slice(tile * 128, (tile + 1) * 128), last - first + 1
            assert np.isnan(made["partial"][shares:, rows]).all()
            y[rows] = made["partial"][:shares, rows, :outputs].astype(np.float64).sum(axis=0)
        return error(np.ldexp(y, made["exponents"][:outputs] - 28), x.reshape(images, -1) @ w.T)

    return call


def test_a_dense_layer_of_many_images_is_that_of_float64_to_fp32(error_of_many):
    for shape in [(300, 6, 105, 140), (3, 1, 16, 160), (130, 50, 144, 500)]:
        assert error_of_many(*shape) < 5e-7, shape


def test_a_fault_in_a_dense_layer_of_many_images_is_seen(error_of_many, planted):
    for number in planted("dense of many"):
        assert error_of_many(130, 6, 105, 140) > 1e-5, number


@pytest.fixture
def error_of_shares(library, run_emulated, sums):
    """A function that tells the relative error of scores from shares of three tiles, of which the second has two."""
    given, _ = sums(2, 307)
    given["partial"][1, :128] = given["partial"][1, 256:] = np.nan
    expected = scores_of(given)

    def call():
        made = run_emulated(SHARES, library, 15, 5, 2, **given)
        assert np.array_equal(made["labels"], made["scores"].argmax(axis=1))
        return np.linalg.norm(made["scores"] - expected) / np.linalg.norm(expected)

    return call


def test_scores_from_shares_are_those_of_float64(error_of_shares):
    assert error_of_shares() < 1e-6


def test_a_fault_in_the_sum_of_shares_is_seen(error_of_shares, planted):
    for number in planted("scores of many"):
        assert error_of_shares() > 1e-4, number


@pytest.fixture
def error_of_dense(emulated):
    """A function of images, inputs and outputs: the largest relative error of a hidden layer's sums for few images."""

    def call(images, inputs, outputs):
        source = np.random.default_rng(5)
        exponents = source.integers(-3, 3, images, np.int32)
        x = np.ldexp(source.uniform(-1, 1, (images, inputs)), exponents[:, None]).astype(np.float32)
        w = source.standard_normal((outputs, inputs))
        made = emulated(DENSE, x=x, w=w, exponents=exponents)
        y = made["partial"].astype(np.float64).sum(axis=0)[:, :outputs]
        return error(np.ldexp(y, exponents[:, None] + made["exponents"][:outputs] - 28), x.astype(np.float64) @ w.T)

    return call


def test_a_dense_layer_of_few_images_is_that_of_float64_to_fp32(error_of_dense):
    for shape in [(3, 1296, 32), (70, 100, 134), (10, 7200, 500)]:
        assert error_of_dense(*shape) < 5e-7, shape


def test_a_fault_in_a_dense_layer_of_few_images_is_seen(error_of_dense, planted):
    for number in planted("dense of few"):
        assert error_of_dense(70, 100, 134) > 1e-5, number


def test_a_first_layer_of_bytes_is_that_of_float64_to_fp32(errors_of_bytes):
    places = [(name, "pooled") for name in ("fa17", "fa18", "fa19", "sp19", "ece408")]
    places += [(name, "split") for name in ("fa17", "fa18", "sp19")]
    assert {place: error for place, error in errors_of_bytes(places).items() if not error < 2e-7} == {}


def test_a_fault_in_a_first_layer_of_bytes_is_seen(errors_of_bytes, planted):
    for _ in planted("bytes"):
        (error,) = errors_of_bytes([("ece408", "pooled")]).values()
        assert error > 1e-4


@pytest.fixture
def pooled_images():
    """Images and weights of ece408's second layer, and its pooled ReLU in float64. Each image is smaller than the one before,
    so that what that one leaves behind would show."""
    conv, source = networks.find("ece408").convs[1], np.random.default_rng(6)
    x = np.abs(source.standard_normal(conv.at(9).shape("x"))).astype(np.float32)
    x *= (2.0 ** -np.arange(9, dtype=np.float32))[:, None, None, None]
    x[1, 2, 3, 4] = np.inf
    w = (source.standard_normal(conv.w_shape) / 5).astype(np.float32)
    with np.errstate(invalid="ignore"):
        y = np.maximum(reference.convolve(x.astype(np.float64), w.astype(np.float64)), 0)
    y = np.pad(y, ((0, 0), (0, 0), (0, 2), (0, 2))).reshape(9, 16, 9, 4, 9, 4).max(axis=(3, 5))
    return SimpleNamespace(x=x, w=w, expected=y.reshape(9, -1))


@pytest.fixture
def error_of_first_layer(library, run_emulated):
    """A function of a network and a script: the largest relative error of an image, in the norm, of the pooled first layer by
    runs of pixels; of one with an infinity, of the outputs that do not meet it."""

    def call(network, script):
        source, layers = np.random.default_rng(8), networks.find(network)
        conv = layers.convs[0]
        x = (source.standard_normal(conv.at(4).shape("x")) * [[[[1]]], [[[1e-3]]], [[[10]]], [[[1]]]]).astype(
            np.float32
        )
        x[2, 0, 3, 4] = np.inf
        w = (source.standard_normal(conv.w_shape) / 5).astype(np.float32)
        if layers.steps[0].activation == "tanh":  # no FP32 undoes the scales of both and is 2^14 times larger
            x[3], w[0] = abs(x[3]) * 2.0**85, abs(w[0]) * 2.0**60
        made = run_emulated(script, library, network, x=x, w=w)["y"]
        with np.errstate(invalid="ignore"):
            y = reference.convolve(x.astype(np.float64), w.astype(np.float64))
        y = y.reshape(4, conv.M, conv.H_out // 2, 2, conv.W_out // 2, 2).max(axis=(3, 5)).reshape(4, -1)
        expected = np.maximum(y, 0) if layers.steps[0].activation == "relu" else np.tanh(y)
        known = np.isfinite(y)
        assert not known.all()
        if script == TILED_LAYER:
            made = untiled(made, 4, conv.M)[:, :, : y.shape[1] // conv.M]
        made = made.astype(np.float64).reshape(4, -1)
        return error(np.where(known, made, np.nan), np.where(known, expected, np.nan))

    return call


def test_a_first_layer_of_runs_is_that_of_float64_to_fp32(error_of_first_layer):
    places = [(name, script) for name in ("fa18", "sp19", "fa19") for script in (FLOAT_LAYER, TILED_LAYER)]
    for network, script in [("ece408", FLOAT_LAYER), *places]:
        assert error_of_first_layer(network, script) < 5e-7, (network, script)


def test_a_fault_in_a_first_layer_of_runs_is_seen(error_of_first_layer, planted):
    for network, script in [("sp19", TILED_LAYER), ("ece408", FLOAT_LAYER)]:
        for number in planted("runs", f"runs of {network}"):
            assert error_of_first_layer(network, script) > 1e-3, (network, number)


def test_a_scale_that_one_float_cannot_undo_is_seen(error_of_first_layer, planted):
    for _ in planted("scales of runs"):
        with pytest.raises(AssertionError, match="signed integer overflow"):
            error_of_first_layer("sp19", TILED_LAYER)


def pooled(library, run_emulated, images):
    made = run_emulated(POOLED, library, x=images.x, w=images.w)
    return made["y"].reshape(9, -1).astype(np.float64), made["exponents"]


def test_a_second_layer_pooled_by_warpgroups_is_that_of_float64_to_fp32(library, run_emulated, pooled_images):
    made, exponents = pooled(library, run_emulated, pooled_images)
    assert error(made, pooled_images.expected) < 5e-7
    known = np.isfinite(pooled_images.expected).all(axis=1)
    np.testing.assert_array_equal(exponents[known], np.frexp(made[known].max(axis=1))[1] - 1)


def test_a_fault_in_the_pooling_of_warpgroups_is_seen(library, run_emulated, pooled_images, planted):
    finite = np.isfinite(pooled_images.expected).all(axis=1)
    for number in planted("pooling"):
        made, _ = pooled(library, run_emulated, pooled_images)
        assert not np.allclose(made[finite], pooled_images.expected[finite], rtol=1e-3), number
