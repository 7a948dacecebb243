"""Plans a network's kernels and keeps them as a CUDA graph for the arrays of the last call."""

import math
from typing import NamedTuple

import cupy
import numpy as np
import split_fp16

TOP = 14  # as in split_fp16.cu
ACTIVATIONS = ("none", "tanh", "relu")
ROWS, STEP, GAP = 128, 32, 8  # connected: images of a block, inputs of a stage, halves between its rows
TILES = (2, 8, 9, 10)  # connected: 16 outputs each
MOST_CLASSES = 16
MANY_IMAGES = 2000  # fill the device with a warp each


class First(NamedTuple):
    """A kernel for a first layer and its pooling; `constants` is what the names of its constants begin with."""

    name: str
    maps: int  # at most
    activation: str
    constants: str
    halves: str = ""  # the kernel that writes halves


FIRST = {  # by W, K
    (28, 5): First("pooled_28_5", 64, "tanh", "POOLED_28", "halves_28_5"),
    (48, 5): First("pooled_48_5", 6, "tanh", "POOLED_5", "halves_48_5"),
    (64, 5): First("pooled_64_5", 6, "tanh", "POOLED_5", "halves_64_5"),
    (72, 7): First("pooled_72_7", 12, "tanh", "POOLED_72"),
    (86, 7): First("pooled_86_7", 4, "relu", "POOLED_86"),
}
LATER = {  # by C, H, K, M: the kernel, what its constants begin with
    (12, 33, 7, 24): ("later_12_7_24", "LATER_12"),
    (6, 30, 5, 16): ("later_6_5_16", "LATER_6"),
    (6, 22, 5, 16): ("later_6_5_16", "LATER_6"),
}
LATER_POOLED = {(4, 40, 7, 16): ("later_4_7_16_pooled", "LATER_4")}


def form(network):
    """The network's layers as letters: convolution, pooling, dense."""
    letters = {"ConvLayer": "c", "PoolLayer": "p", "DenseLayer": "d"}
    return "".join(letters[type(step.layer).__name__] for step in network.steps)


def unsupported(network):
    """Why the kernels here do not compute a network; empty where they do."""
    steps = [(type(step.layer).__name__, step.activation) for step in network.steps]
    conv, pool = network.steps[0].layer, network.steps[1].layer if len(steps) > 1 else None
    first = FIRST.get((conv.W, conv.K)) if steps[0][0] == "ConvLayer" else None
    usual = first and (conv.C, conv.H, conv.S, conv.P) == (1, conv.W, 1, 0) and first.maps >= conv.M
    if not usual or steps[0][1] != first.activation:
        return f"no kernel here is for a first layer {conv}, {steps[0][1]}"
    if form(network) not in ("cpdd", "cpcdd", "cpcpdd") or (pool.kind, pool.size) != ("max", 2):
        return "these kernels are for one or two convolutions, the first pooled 2 x 2, and two fully connected layers"
    if form(network) != "cpdd":
        later, activation = network.steps[2].layer, network.steps[2].activation
        shape = (later.C, later.H, later.K, later.M)
        pooled = form(network) == "cpcpdd"
        pool = network.steps[3].layer if pooled else None
        if (later.H, later.S, later.P) != (later.W, 1, 0) or shape not in (LATER_POOLED if pooled else LATER):
            return f"no kernel here is for a later layer {later}"
        if pooled and (activation, pool.kind, pool.size, pool.ceil) != ("relu", "max", 4, True):
            return "the later layer's kernel is for ReLU and the largest of each 4 x 4, windows cut at the end"
        if not pooled and activation != "none":
            return f"the later layer is followed by {activation}, and its kernel activates nothing"
    hidden, last = (step.layer for step in network.steps[-2:])
    if hidden.inputs % 4 or last.outputs > MOST_CLASSES or steps[-1][1] != "none":
        return "the fully connected kernels take inputs in fours, and give at most 16 scores, not activated"
    return ""


def int32(*values):
    return [np.int32(value) for value in values]


def persistent(kernels, constants, images):
    """Grid and block of a kernel whose blocks take one image after another."""
    threads, blocks = (kernels.constants[f"{constants}_{extent}"] for extent in ("THREADS", "BLOCKS"))
    return (min(images, blocks * cupy.cuda.Device().attributes["MultiProcessorCount"]),), (threads,)


def first_layer(kernels, conv, images, w, halves=False, scale=None):
    """(a function of x that orders the first layer and its pooling, their result), the result (images, maps, height,
    width), float32; or, each number times 2^TOP, its low `halves` and its high ones (images, 2, numbers), float16.
    x is float32, or uint8 where there is a `scale`, by which the network takes each byte."""
    compiled = FIRST[conv.W, conv.K]
    shifts = 9 - conv.K
    column_tiles = -(-compiled.maps * shifts // 8)
    maps = column_tiles * 8 // shifts
    parts = kernels.empty((column_tiles * conv.K * 32, 2), np.uint32)
    exponents = kernels.empty((maps,), np.int32)
    none_listed = kernels.empty((1,), np.int32)
    kernels.function("split_first_weights")((maps,), (128,), (w, parts, exponents, none_listed, *int32(conv.M, conv.K)))
    bytes_a_pixel = 4 if scale is None else 2
    shared = conv.H * conv.W * bytes_a_pixel + (parts.nbytes if compiled.maps > 12 else 0)
    name = compiled.halves if halves else compiled.name
    function = kernels.function(name if scale is None else f"{name}_of_bytes", shared_bytes=shared)
    grid, threads = persistent(kernels, compiled.constants, images)
    pooled = (conv.M, conv.H_out // 2, conv.W_out // 2)
    y = kernels.empty((images, 2, math.prod(pooled)), np.float16) if halves else kernels.empty((images, *pooled))
    numbers = [*int32(images, conv.M), *([] if scale is None else [np.float32(scale)])]
    return lambda x: function(grid, threads, (x, w, parts, exponents, y, *numbers)), y


def later_layer(kernels, conv, images, w, x, pool):
    """(a function that orders a later layer and the pooling behind it, where there is one; their result; exponents of
    each image's largest result, None where nothing finds them)."""
    name, constants = (LATER_POOLED if pool else LATER)[conv.C, conv.H, conv.K, conv.M]
    maps = -(-conv.M // 8) * 8
    row = -(-conv.K * conv.C // 4)
    steps = conv.K * (row // 4) + -(-conv.K * (row % 4) // 4)
    parts = kernels.empty((steps, maps // 8, 32, 4), np.uint32)
    exponents = kernels.empty((maps,), np.int32)
    listed, add_up = split_fp16.fp32_sums(kernels, conv, images)
    extents = int32(conv.C, conv.M, conv.K)
    kernels.function("split_later_weights")((maps,), (128,), (w, parts, exponents, listed, *extents))
    together = 2 if conv.C % 4 else 1
    fours = together * conv.C // 4
    pitch = (conv.W + 3) // 8 * 8 + 4 if conv.C == 4 else conv.W
    copy = ((conv.H * pitch // together + 1) * fours + 3) // 8 * 8 + 4
    function = kernels.function(name, shared_bytes=parts.nbytes + together * copy * 16)
    grid, threads = persistent(kernels, constants, images)
    extents = int32(images, conv.H, conv.W, conv.M)
    if pool:
        y, found = kernels.empty((images, *pool.gives)), kernels.empty((images,), np.int32)
        return lambda: function(grid, threads, (x, w, parts, exponents, y, found, *extents)), y, found
    y = kernels.empty(conv.y_shape(images))

    def order():
        listed[:1].fill(0)
        function(grid, threads, (x, parts, exponents, listed, y, *extents))
        add_up(x, w, y)

    return order, y, None


def exponent_below(values):
    """e with 2^e <= value < 2^(e + 1) of positive float64 numbers; 0 of zero."""
    return cupy.where(values > 0, cupy.frexp(values)[1] - 1, 0).astype(np.int32)


def halves_of(w, shape):
    """Weights (outputs, inputs), float64, as high and low halves of the shape, zeros behind them, and each output's
    exponent."""
    outputs, inputs = w.shape
    exponents = exponent_below(abs(w).max(axis=1))
    scaled = cupy.zeros(shape, np.float32)
    scaled[:outputs, :inputs] = cupy.ldexp(w, (TOP - exponents)[:, None])
    high = scaled.astype(np.float16)
    return high, (scaled - high.astype(np.float32)).astype(np.float16), exponents


def split_matrix(w, tiles, blocks):
    """Weights (outputs, inputs), float64, as the halves that lanes of `connected` take, and each output's exponent."""
    inputs = w.shape[1]
    high, low, exponents = halves_of(w, (blocks * tiles * 16, -(-inputs // STEP) * STEP))
    parts = []
    for half in (high, low):
        # (block, tile, output, step, eight, pair, number), to lanes of a tile of a step of a block
        lanes = half.reshape(blocks, 2 * tiles, 8, -1, 2, 4, 2).transpose(0, 3, 1, 2, 5, 4, 6)
        parts.append(cupy.ascontiguousarray(lanes).view(np.uint32)[..., 0])
    return cupy.ascontiguousarray(cupy.concatenate(parts, axis=-1)), exponents


def shares_of(inputs, blocks):
    """Shares of the inputs that fill the device most evenly: rounds of blocks, and steps of each with its beginning and
    end; a share more is a sum more for every hidden value."""
    steps = -(-inputs // STEP)
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    return min(range(1, steps + 1), key=lambda n: -(-blocks * n // processors) * (steps / n + 6) + 0.3 * n)


def fully_connected(kernels, images, x, exponents, w, classifier):
    """A function of (scores, labels) that orders both fully connected layers for x (images, inputs), float32, with
    exponents of a bound on each image's inputs; w (outputs, inputs) is float64. `classifier(partial, weight_exponents)`
    gives the function that orders what follows the first layer's products."""
    outputs, inputs = w.shape
    tiles = next((tiles for tiles in TILES if tiles * 16 >= outputs), 8)
    blocks = -(-outputs // (tiles * 16))
    weights, weight_exponents = split_matrix(w, tiles, blocks)
    rows = -(-images // ROWS)
    shares = shares_of(inputs, rows * blocks)
    padded = blocks * tiles * 16
    partial = kernels.empty((shares, images, padded))
    stage = 2 * ROWS * (STEP + GAP) * 2 + 4 * tiles * 512
    connected = kernels.function(f"connected_{tiles}", shared_bytes=2 * stage)
    classify = classifier(partial, weight_exponents)
    extents = int32(images, inputs, padded)

    def order(scores, labels):
        connected((blocks, rows, shares), (256,), (x, weights, exponents, partial, *extents))
        classify(scores, labels)

    return order


def classifier_of(kernels, exponents, network, parameters):
    """A function of partial (shares, images, outputs and padding), sums of products of inputs and weights by their
    exponents, and of the weights' ones: a function of (scores, labels) that orders what follows them."""
    function = kernels.function("classify")
    hidden, last = (step.layer for step in network.steps[-2:])
    activation = ACTIVATIONS.index(network.steps[-2].activation)

    def classifier(partial, weight_exponents):
        shares, images, padded = partial.shape
        fixed = (weight_exponents, parameters["fc1.bias"], parameters["fc2.weight"], parameters["fc2.bias"])
        warps = 1 if images > MANY_IMAGES else 8  # of an image
        counts = int32(images, shares, padded, hidden.outputs, last.outputs, activation, warps)
        grid = (-(-images * warps // 8),)
        return lambda scores, labels: function(grid, (256,), (partial, exponents, *fixed, scores, labels, *counts))

    return classifier


def as_graph(order):
    """The same call, whose kernels are recorded once for the arrays that it is given and then ordered as one."""
    stream = cupy.cuda.Stream(non_blocking=True)
    recorded = {}

    def call(x, scores, labels):
        places = tuple(array.data.ptr for array in (x, scores, labels))
        if places not in recorded:
            recorded.clear()
            with stream:
                stream.begin_capture()
                order(x, scores, labels)
                recorded[places] = stream.end_capture()
        recorded[places].launch()

    return call


def prepare(kernels, network, images, parameters, scale=None):
    conv, *rest = network.convs
    first, x = first_layer(kernels, conv, images, parameters["conv1.weight"], scale=scale)
    w = parameters["fc1.weight"].astype(np.float64)
    found, launches, bound = None, [], 1.0  # tanh gives at most 1
    if rest:
        (conv,) = rest
        pool = network.steps[3].layer if form(network) == "cpcpdd" else None
        w_conv = parameters["conv2.weight"]
        launch, x, found = later_layer(kernels, conv, images, w_conv, x, pool)
        launches.append(launch)
        bound = float(abs(w_conv.astype(np.float64)).sum(axis=(1, 2, 3)).max())
    exponents = cupy.full(images, np.frexp(bound)[1] - 1, np.int32) if found is None else found
    classify = classifier_of(kernels, exponents, network, parameters)
    connected = fully_connected(kernels, images, x, exponents, w, classify)

    def order(x, scores, labels):
        first(x)
        for launch in launches:
            launch()
        connected(scores, labels)

    return as_graph(order)


def prepare_bytes(kernels, network, images, parameters):
    return prepare(kernels, network, images, parameters, network.input.scale)
