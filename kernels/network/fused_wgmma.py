"""Plans a network of one convolution: its first layer by wgmma, the rest as fused_cublas has it."""

import cupy
import fused_cublas
import fused_mma
import numpy as np
from dense_few import few_connected
from fp16x3_launch import int32, layout_of, persistent_grid

MAX_CHANNELS = 56  # of outputs
CLASSES = 10  # at most
MOST_HIDDEN = 1024  # values of the hidden layer
FEW_IMAGES = 300  # no more than float32 and a graph are faster for


def unsupported(network):
    if reason := fused_cublas.unsupported(network):
        return reason
    conv = network.convs[0]
    if fused_mma.form(network) != "cpdd" or (conv.W, conv.K) != (28, 5) or conv.M > MAX_CHANNELS:
        return (
            f"the kernel is for up to {MAX_CHANNELS} output channels, 5 x 5 weights, 28 x 28 pixels and one convolution"
        )
    return unsupported_end(network)


def unsupported_end(network):
    """Why classify_few and classify_many do not compute its last layers; empty where they do."""
    hidden, last = network.steps[-2:]
    if hidden.activation == "tanh" and hidden.layer.outputs <= MOST_HIDDEN and last.layer.outputs <= CLASSES:
        return ""
    return f"its last kernels are for up to {MOST_HIDDEN} hidden values with tanh, and up to {CLASSES} scores"


def single_channel(kernels, conv, images, w):
    """(a function of x that launches the first layer and its pooling, their result, split as fused_mma's)."""
    layout = layout_of(kernels, "pool_windows_layout")
    weight_parts = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    arguments = (w, weight_parts, weight_exponents, *int32(conv.M))
    kernels.function("split_window_weights")((layout.padded_channels,), (128,), arguments)
    function = kernels.function("conv_pool_split_wgmma_28_5", shared_bytes=layout.shared_bytes)
    grid = persistent_grid(kernels, "POOL_SPLIT_28", -(-images // 2))  # a block takes two images at a time
    y = kernels.empty((images, 2, conv.M * conv.H_out * conv.W_out // 4), np.float16)
    extents = int32(images, conv.M)
    return lambda x: function(grid, (128,), (x, w, weight_parts, weight_exponents, y, *extents)), y


def classifier_of(kernels, network, parameters):
    """As fused_mma's, of inputs that are at most 1, as tanh gives them."""
    hidden, last = (step.layer for step in network.steps[-2:])
    function = kernels.function("classify_many", CLASSES * hidden.outputs * 4)

    def classifier(partial, weight_exponents):
        images, padded = partial.shape[-2:]
        fixed = (partial, weight_exponents, parameters["fc1.bias"], parameters["fc2.weight"], parameters["fc2.bias"])
        counts = int32(images, padded, hidden.outputs, last.outputs)
        return lambda scores, labels: function((-(-images // 40),), (256,), (*fixed, scores, labels, *counts))

    return classifier


def few_classifier_of(kernels, exponents, network, parameters):
    """As fused_mma's `classifier_of`, for few images."""
    function = kernels.function("classify_few")
    hidden, last = (step.layer for step in network.steps[-2:])
    activation = fused_mma.ACTIVATIONS.index(network.steps[-2].activation)

    def classifier(partial, weight_exponents):
        shares, images, padded = partial.shape
        fixed = (weight_exponents, parameters["fc1.bias"], parameters["fc2.weight"], parameters["fc2.bias"])
        counts = int32(images, shares, padded, hidden.outputs, last.outputs, activation)
        grid, threads = (images,), (MOST_HIDDEN,)
        return lambda scores, labels: function(grid, threads, (partial, exponents, *fixed, scores, labels, *counts))

    return classifier


def few_windows(kernels, conv, w):
    """A function of x and the array for its result, float32, that launches the first layer and its pooling."""
    function = kernels.function("conv_pool_few_28_5")
    return lambda x, y: function((-(-conv.M // 10), len(x)), (288,), (x, w, y, np.int32(conv.M)))


def few_images(kernels, network, images, parameters, w):
    """The call for few images, as a graph: the first layer in float32, the dense layer by `dense_few`."""
    first = few_windows(kernels, network.convs[0], parameters["conv1.weight"])
    x = kernels.empty((images, w.shape[1]))
    exponents = cupy.zeros(images, np.int32)  # tanh gives at most 1
    classify = few_classifier_of(kernels, exponents, network, parameters)
    connected = few_connected(kernels, images, x, exponents, w, classify)

    def order(pixels, scores, labels):
        first(pixels, x)
        connected(scores, labels)

    return fused_mma.as_graph(order)


def prepare(kernels, network, images, parameters):
    w = parameters["fc1.weight"].astype(np.float64)
    if images <= FEW_IMAGES:
        return few_images(kernels, network, images, parameters, w)
    first, x = single_channel(kernels, network.convs[0], images, parameters["conv1.weight"])
    classify = classifier_of(kernels, network, parameters)
    connected = fused_cublas.fully_connected(kernels, images, x, w, classify)

    def call(images, scores, labels):
        first(images)
        connected(scores, labels)

    return call
