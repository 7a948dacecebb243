"""The layers around the convolutions, by the GPU's kernels emulated."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from warpbook.harness import inference, reference
from warpbook.harness.emulator import emulation
from warpbook.kernels import sources, variants
from warpbook.problems import fashion_mnist, problem
from warpbook.problems.layers import PoolLayer
from warpbook.problems.networks import Description, Network

HARNESS = Path(inference.__file__).parent
REFERENCE = variants.FOLDER / variants.REFERENCE
RAGGED = problem.find("conv").ragged

POOLS = [
    (PoolLayer(kind, size, ceil, 2, 7, 10), activation)
    for kind, size, ceil in itertools.product(("max", "average"), (1, 2, 3, 4), (False, True))
    for activation in ("none", "tanh", "relu")
]
POOLS += [
    (PoolLayer(kind, (3, 2), ceil, 2, 7, 10, stride, padding), activation)
    for kind, ceil in itertools.product(("max", "average"), (False, True))
    for stride, padding in ((1, (2, 1, 0, 1)), ((2, 3), (1, 0, 2, 1)), (None, (0, 0, 0, 1)))
    for activation in ("sigmoid", "leaky_relu")
]
SLOPE = 0.25
SCALED = {
    "input": {"channels": 3, "size": [7, 9], "scale": 1 / 255},
    "layers": [{"conv": {"out_channels": 1, "kernel_size": 3}}],
}
DENSE = [
    (5, 70, 19, "tanh"),
    (17, 3, 1, "relu"),
    (1, 64, 16, "none"),
    (3, 9, 5, "sigmoid"),
    (3, 9, 5, "leaky_relu"),
]  # images, inputs, outputs
IMAGES = np.random.default_rng(5).integers(0, 256, (5, 7, 9), dtype=np.uint8)
ENTERING = [IMAGES, np.random.default_rng(6).integers(0, 256, (5, 6, 10), dtype=np.uint8)]
SCALE = 1 / 255
SCORES = np.array([[1, 3, 2], [2, 2, 1], [1, np.nan, np.nan], [-1, -2, -1], [-np.inf, 0, np.inf]] * 60, np.float32)


def drawn(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


EMULATED = """\
import numpy as np, sys, test_layers as tests
from pathlib import Path
from warpbook.harness import inference
from warpbook.harness.emulator import emulation

def on_device(values):
    held = emulation.allocate(values.shape)
    held[...] = values
    return held

library, entering, compared, out = map(Path, sys.argv[1:])
kernels = emulation.EmulatedKernels(library, {})
around = inference.Around(kernels.function, lambda shape, kind: emulation.allocate(shape, kind))
results = {}
for number, (layer, activation) in enumerate(tests.POOLS):
    results[f"pool{number}"] = around.pool(on_device(tests.drawn(3, layer.C, layer.H, layer.W)), layer, activation, tests.SLOPE)
for number, (images, inputs, outputs, activation) in enumerate(tests.DENSE):
    arrays = [on_device(tests.drawn(*shape)) for shape in ((images, inputs), (outputs, inputs), (outputs,))]
    results[f"dense{number}"] = around.dense(*arrays, activation, tests.SLOPE)
images, scores = emulation.allocate(tests.IMAGES.shape, np.uint8), on_device(tests.SCORES)
images[...] = tests.IMAGES
results["entering"] = around.network_input(images, 3, tests.SCALE)
results["largest"] = around.argmax(scores)
harness = emulation.EmulatedKernels(entering, {})
for number, images in enumerate(tests.ENTERING):
    held = emulation.allocate(images.shape, np.uint8)
    held[...] = images
    for channels in (1, 3):
        x = emulation.allocate((len(images), channels, *images.shape[1:]))
        pixels = np.int64(images[0].size)
        arguments = (held, x, np.int64(images.size), np.int32(channels), pixels, np.float32(tests.SCALE))
        harness.function("enter")((2,), (32,), arguments)
        results[f"enter{number}{channels}"] = x
compare = emulation.EmulatedKernels(compared, {}).function("compare")
for number, case in enumerate(tests.RAGGED):
    arrays = {name: on_device(tests.drawn(*case.shape(name))) for name in case.arrays}
    taken = [arrays.get(name, np.intp(0)) for name in (*case.problem.inputs, *case.problem.outputs)]
    extents = [np.int32(case.extents[name]) for name in case.problem.facts.extents]
    partial = emulation.allocate((4, 6), np.float64)
    compare((4,), (256,), (*taken, *extents, partial))
    results[f"compare{number}"] = partial
np.savez(out, **results)
"""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """What the kernels of layers.cu, one of harness.cu and the convolution's float64 reference gave for the cases
    above."""
    if emulation.compiler() is None:
        pytest.skip("there is no C++ compiler here to emulate with")
    folder = tmp_path_factory.mktemp("emulated")
    libraries = []
    finite = "#include <cmath>\nusing std::isfinite;\n"
    for path, before in ((HARNESS / "layers.cu", ""), (HARNESS / "harness.cu", finite), (REFERENCE, finite)):
        name = path.stem
        (folder / f"{name}.cu").write_text(before + sources.inline_includes(path, [HARNESS]).text)
        (folder / f"{name}.py").write_text("")  # for a launcher every kernel is compiled
        libraries.append(emulation.compile_host(variants.read(name, folder), folder, sandboxed=False))
    out = folder / "results.npz"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", EMULATED, *libraries, out]
    subprocess.run(command, check=True, env={**os.environ, **emulation.sanitizer_environment(), "PYTHONPATH": paths})
    return np.load(out)


def test_pooling_on_a_gpu_is_the_reference_s(emulated):
    for number, (layer, activation) in enumerate(POOLS):
        x = drawn(3, layer.C, layer.H, layer.W).astype(np.float64)
        expected, found = reference.pool(reference.activate(x, activation, SLOPE), layer), emulated[f"pool{number}"]
        assert found.dtype == np.float32
        assert found.shape == (3, *layer.gives), (layer, activation)
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-6), (layer, activation)


def test_images_enter_on_a_gpu_as_on_the_cpu_to_the_bit(emulated):
    network = Network("scaled", Description.model_validate(SCALED))
    expected = fashion_mnist.normalize(np.broadcast_to(IMAGES[:, None], (5, 3, 7, 9)), network, np.float32)
    assert emulated["entering"].dtype == np.float32
    assert np.array_equal(emulated["entering"], expected)
    for number, images in enumerate(ENTERING):  # an odd number of pixels, and a multiple of four
        for channels in (1, 3):
            shape = (len(images), channels, *images.shape[1:])
            expected = fashion_mnist.normalize(np.broadcast_to(images[:, None], shape), network, np.float32)
            assert np.array_equal(emulated[f"enter{number}{channels}"], expected), shape


def test_the_label_on_a_gpu_is_numpy_s_where_scores_are_equal_or_no_numbers_too(emulated):
    assert emulated["largest"].dtype == np.uint8
    assert emulated["largest"].tolist() == SCORES.argmax(axis=1).tolist() == [1, 0, 1, 0, 2] * 60


def test_a_fully_connected_layer_on_a_gpu_is_the_reference_s(emulated):
    for number, (images, inputs, outputs, activation) in enumerate(DENSE):
        x, w, b = (drawn(*shape).astype(np.float64) for shape in ((images, inputs), (outputs, inputs), (outputs,)))
        expected = reference.activate(x @ w.T + b, activation, SLOPE)
        assert np.allclose(emulated[f"dense{number}"], expected, rtol=1e-4, atol=1e-5), DENSE[number]


def test_the_device_s_reference_agrees_with_numpy_s_on_all_that_a_convolution_has(emulated):
    assert {"S", "P", "KW", "D", "G"} <= {name for case in RAGGED for name in case.unusual}
    assert any(case.optional for case in RAGGED)
    for number, case in enumerate(RAGGED):
        inputs = {name: drawn(*case.shape(name)) for name in case.inputs}
        expected = reference.differences(case, inputs, {"y": drawn(*case.shape("y"))})["y"]
        rows = emulated[f"compare{number}"]
        assert rows[:, 0].max() == pytest.approx(expected.max_abs_err, rel=1e-12), case
        assert rows[:, 1].max() == pytest.approx(expected.worst_unit, rel=1e-12), case
        assert rows[:, 4].max() == pytest.approx(expected.max_magnitude, rel=1e-12), case
