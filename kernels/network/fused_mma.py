"""Plans a network's kernels and keeps them as a CUDA graph for the arrays of the last call."""

import math
from typing import NamedTuple

import cupy
import fp16x3_mma
import numpy as np
from fp16x3_launch import fp32_fallback, int32, layout_of, persistent_grid

SCALE_EXPONENT = 14  # as in fp16_split.cuh
ACTIVATIONS = ("none", "tanh", "relu")
ROWS, STEP = 128, 32  # dense: images of a block, inputs of a stage
TILES = (2, 8, 9, 10)  # dense: 16 outputs each
MOST_CLASSES = 16
MANY_IMAGES = 2000  # fill the device with a warp each


class SingleChannel(NamedTuple):
    """A kernel for a first layer and its pooling; `constants` is what the names of its constants begin with."""

    name: str
    max_channels: int  # of outputs
    activation: str
    constants: str
    split: str = ""  # the kernel that splits its results
    weights_in_smem: bool = False


SINGLE_CHANNEL = {  # by W, K
    (28, 5): SingleChannel("conv_pool_28_5", 64, "tanh", "POOL_28", "conv_pool_split_28_5", weights_in_smem=True),
    (48, 5): SingleChannel("conv_pool_48_5", 6, "tanh", "POOL_5", "conv_pool_split_48_5"),
    (64, 5): SingleChannel("conv_pool_64_5", 6, "tanh", "POOL_5", "conv_pool_split_64_5"),
    (72, 7): SingleChannel("conv_pool_72_7", 12, "tanh", "POOL_72"),
    (86, 7): SingleChannel("conv_pool_86_7", 4, "relu", "POOL_86"),
}
MULTI_CHANNEL = {  # by C, H, K, M: the kernel, what its constants begin with
    (12, 33, 7, 24): ("conv_multi_channel_12_7_24", "MULTI_12"),
    (6, 30, 5, 16): ("conv_multi_channel_6_5_16", "MULTI_6"),
    (6, 22, 5, 16): ("conv_multi_channel_6_5_16", "MULTI_6"),
}
MULTI_CHANNEL_POOLED = {(4, 40, 7, 16): ("conv_multi_channel_pool_4_7_16", "MULTI_4")}


def form(network):
    """The network's layers as letters: convolution, pooling, dense."""
    letters = {"ConvLayer": "c", "PoolLayer": "p", "DenseLayer": "d"}
    return "".join(letters[type(step.layer).__name__] for step in network.steps)


def is_plain(conv):
    """Whether a convolution is of squares, without bias, stride, padding, dilation and groups."""
    return conv.H == conv.W and not conv.unusual and not conv.optional


def is_plain_max(pool, size):
    """Whether a pooling takes the largest of each `size` x `size`, windows side by side."""
    return (pool.kind, pool.size) == ("max", size) and pool.has_plain_windows


def unsupported(network):
    """Why the kernels here do not compute a network; empty where they do."""
    steps = [(type(step.layer).__name__, step.activation) for step in network.steps]
    conv, pool = network.steps[0].layer, network.steps[1].layer if len(steps) > 1 else None
    first = SINGLE_CHANNEL.get((conv.W, conv.K)) if steps[0][0] == "ConvLayer" else None
    usual = first and is_plain(conv) and conv.C == 1 and first.max_channels >= conv.M
    if not usual or steps[0][1] != first.activation:
        return f"no kernel here is for a first layer {conv}, {steps[0][1]}"
    if form(network) not in ("cpdd", "cpcdd", "cpcpdd") or not is_plain_max(pool, 2):
        return "these kernels are for one or two convolutions, the first pooled 2 x 2, and two fully connected layers"
    if form(network) != "cpdd":
        later, activation = network.steps[2].layer, network.steps[2].activation
        shape = (later.C, later.H, later.K, later.M)
        pooled = form(network) == "cpcpdd"
        pool = network.steps[3].layer if pooled else None
        if not is_plain(later) or shape not in (MULTI_CHANNEL_POOLED if pooled else MULTI_CHANNEL):
            return f"no kernel here is for a later layer {later}"
        if pooled and not (activation == "relu" and is_plain_max(pool, 4) and pool.ceil):
            return "the later layer's kernel is for ReLU and the largest of each 4 x 4, windows cut at the end"
        if not pooled and activation != "none":
            return f"the later layer is followed by {activation}, and its kernel activates nothing"
    hidden, last = (step.layer for step in network.steps[-2:])
    if steps[-2][1] not in ACTIVATIONS:
        return f"the hidden layer is followed by {steps[-2][1]}, and the last kernel knows {', '.join(ACTIVATIONS)}"
    if hidden.inputs % 4 or last.outputs > MOST_CLASSES or steps[-1][1] != "none":
        return "the fully connected kernels take inputs in fours, and give at most 16 scores, not activated"
    return ""


def single_channel(kernels, conv, images, w, split=False, scale=None):
    """(a function of x that launches the first layer and its pooling, their result).

    The result is (images, channels, height, width), float32; or, where it is `split`, each value times
    2^SCALE_EXPONENT, lo parts and then hi parts: (images, 2, values), float16. x is float32, or uint8 where there is a
    `scale`, by which the network multiplies each byte.
    """
    compiled = SINGLE_CHANNEL[conv.W, conv.K]
    layout = fp16x3_mma.single_channel_layout(kernels, compiled, conv, has_lo_parts=scale is None)
    weight_fragments = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    no_fallback_list = kernels.empty((1,), np.int32)
    arguments = (w, weight_fragments, weight_exponents, no_fallback_list, *int32(conv.M, conv.K))
    kernels.function("split_single_channel_weights")((layout.padded_channels,), (128,), arguments)
    name = compiled.split if split else compiled.name
    function = kernels.function(name if scale is None else f"{name}_uint8", shared_bytes=layout.shared_bytes)
    grid = persistent_grid(kernels, compiled.constants, images)
    threads = (kernels.constants[f"{compiled.constants}_THREADS"],)
    pooled = (conv.M, conv.H_out // 2, conv.W_out // 2)
    y = kernels.empty((images, 2, math.prod(pooled)), np.float16) if split else kernels.empty((images, *pooled))
    numbers = [*int32(images, conv.M), *([] if scale is None else [np.float32(scale)])]
    return lambda x: function(grid, threads, (x, w, weight_fragments, weight_exponents, y, *numbers)), y


def multi_channel(kernels, conv, images, w, x, pool):
    """(a function that launches a layer of several channels and the pooling behind it, where there is one; their
    result; exponents of each image's largest result, None where nothing finds them)."""
    name, constants = (MULTI_CHANNEL_POOLED if pool else MULTI_CHANNEL)[conv.C, conv.H, conv.K, conv.M]
    layout = layout_of(kernels, "multi_channel_layout", conv.C, conv.H, conv.W)
    weight_fragments = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    fallback_list, fall_back = fp32_fallback(kernels, conv, images)
    arguments = (w, weight_fragments, weight_exponents, fallback_list, *int32(conv.C, conv.M, conv.K))
    kernels.function("split_multi_channel_weights")((layout.padded_channels,), (128,), arguments)
    function = kernels.function(name, shared_bytes=layout.shared_bytes)
    grid, threads = persistent_grid(kernels, constants, images), (kernels.constants[f"{constants}_THREADS"],)
    extents = int32(images, conv.H, conv.W, conv.M)
    if pool:
        y, found = kernels.empty((images, *pool.gives)), kernels.empty((images,), np.int32)
        arguments = (x, w, weight_fragments, weight_exponents, y, found, *extents)
        return lambda: function(grid, threads, arguments), y, found
    y = kernels.empty(conv.y_shape(images))

    def launch():
        fallback_list[:1].fill(0)
        function(grid, threads, (x, weight_fragments, weight_exponents, fallback_list, y, *extents))
        fall_back(x, w, y)

    return launch, y, None


def exponent_below(values):
    """e with 2^e <= value < 2^(e + 1) of positive float64 numbers; 0 of zero."""
    return cupy.where(values > 0, cupy.frexp(values)[1] - 1, 0).astype(np.int32)


def split_weights(w, shape):
    """Weights (outputs, inputs), float64, as hi and lo parts of the shape, zeros behind them, and each output's
    exponent."""
    outputs, inputs = w.shape
    exponents = exponent_below(abs(w).max(axis=1))
    scaled = cupy.zeros(shape, np.float32)
    scaled[:outputs, :inputs] = cupy.ldexp(w, (SCALE_EXPONENT - exponents)[:, None])
    hi = scaled.astype(np.float16)
    return hi, (scaled - hi.astype(np.float32)).astype(np.float16), exponents


def split_matrix(w, tiles, blocks):
    """Weights (outputs, inputs), float64, as the hi and lo parts that `dense` takes, and each output's exponent."""
    inputs = w.shape[1]
    hi, lo, exponents = split_weights(w, (blocks * tiles * 16, -(-inputs // STEP) * STEP))
    parts = []
    for part in (hi, lo):
        # (block, tile, output, step, eight, pair, number), to lanes of a tile of a step of a block
        lanes = part.reshape(blocks, 2 * tiles, 8, -1, 2, 4, 2).transpose(0, 3, 1, 2, 5, 4, 6)
        parts.append(cupy.ascontiguousarray(lanes).view(np.uint32)[..., 0])
    return cupy.ascontiguousarray(cupy.concatenate(parts, axis=-1)), exponents


def shares_of(inputs, blocks):
    """Shares of the inputs that fill the device most evenly: rounds of blocks, and steps of each with its beginning and
    end; a share more is a sum more for every hidden value."""
    steps = -(-inputs // STEP)
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    return min(range(1, steps + 1), key=lambda n: -(-blocks * n // processors) * (steps / n + 6) + 0.3 * n)


def fully_connected(kernels, images, x, exponents, w, classifier):
    """A function of (scores, labels) that launches both fully connected layers for x (images, inputs), float32, with
    exponents of a bound on each image's inputs; w (outputs, inputs) is float64. `classifier(partial, weight_exponents)`
    gives the function that launches what follows the first layer's products."""
    outputs, inputs = w.shape
    tiles = next((tiles for tiles in TILES if tiles * 16 >= outputs), 8)
    blocks = -(-outputs // (tiles * 16))
    weights, weight_exponents = split_matrix(w, tiles, blocks)
    rows = -(-images // ROWS)
    shares = shares_of(inputs, rows * blocks)
    padded = blocks * tiles * 16
    partial = kernels.empty((shares, images, padded))
    shared_bytes = layout_of(kernels, "dense_layout", tiles).shared_bytes
    dense = kernels.function(f"dense_{tiles}", shared_bytes=shared_bytes)
    classify = classifier(partial, weight_exponents)
    extents = int32(images, inputs, padded)

    def launch(scores, labels):
        dense((blocks, rows, shares), (256,), (x, weights, exponents, partial, *extents))
        classify(scores, labels)

    return launch


def classifier_of(kernels, exponents, network, parameters):
    """A function of partial (shares, images, outputs and padding), dot products of scaled inputs and weights, and of
    the weights' exponents: a function of (scores, labels) that launches what follows."""
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
    """The same call, whose kernels are recorded once for the arrays that it is given and then launched as one."""
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
    first, x = single_channel(kernels, conv, images, parameters["conv1.weight"], scale=scale)
    w = parameters["fc1.weight"].astype(np.float64)
    found, launches, bound = None, [], 1.0  # tanh gives at most 1
    if rest:
        (conv,) = rest
        pool = network.steps[3].layer if form(network) == "cpcpdd" else None
        w_conv = parameters["conv2.weight"]
        launch, x, found = multi_channel(kernels, conv, images, w_conv, x, pool)
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
