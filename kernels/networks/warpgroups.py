"""Plans a network of one convolution: its first layer by wgmma, the rest as library has it."""

import cupy
import fused
import library
import numpy as np

MAPS = 56  # of the kernel, those that a network lacks being zero
CLASSES = 10  # at most
FEW_IMAGES = 300  # no more than float32 and a graph are faster for


def unsupported(network):
    if reason := library.unsupported(network):
        return reason
    conv = network.convs[0]
    if fused.form(network) != "cpdd" or (conv.W, conv.K) != (28, 5) or conv.M > MAPS:
        return f"the kernel is for up to {MAPS} maps of 5 x 5 taps over 28 x 28 pixels, and no second convolution"
    if network.steps[-2].activation != "tanh" or network.steps[-1].layer.outputs > CLASSES:
        return f"its last kernels are for a hidden layer with tanh, and up to {CLASSES} scores"
    return ""


def first_layer(kernels, conv, images, w):
    """(a function of x that orders the first layer and its pooling, their result as fused's `halves`)."""
    parts = kernels.empty((2, 32, MAPS), np.float16)
    exponents = kernels.empty((MAPS,), np.int32)
    kernels.function("split_window_weights")((MAPS,), (128,), (w, parts, exponents, *fused.int32(conv.M)))
    stage = (2 * MAPS * 20 + 16) * 4
    function = kernels.function("windows_28_5", shared_bytes=parts.nbytes + 4 * conv.H * conv.W * 4 + 2 * stage)
    blocks = kernels.constants["HALVES_28_BLOCKS"] * cupy.cuda.Device().attributes["MultiProcessorCount"]
    grid = (min(-(-images // 2), blocks),)
    y = kernels.empty((images, 2, conv.M * conv.H_out * conv.W_out // 4), np.float16)
    extents = fused.int32(images, conv.M)
    return lambda x: function(grid, (128,), (x, w, parts, exponents, y, *extents)), y


def classifier_of(kernels, network, parameters):
    """As fused's, of inputs that are at most 1, as tanh gives them."""
    hidden, last = (step.layer for step in network.steps[-2:])

    def classifier(partial, weight_exponents):
        shares, images, padded = partial.shape
        fixed = (partial, weight_exponents, parameters["fc1.bias"], parameters["fc2.weight"], parameters["fc2.bias"])
        if images <= FEW_IMAGES:
            function, counts, grid, threads = kernels.function("classify_few"), (images, shares), images, 512
        else:
            weights = CLASSES * hidden.outputs * 4
            function, counts, grid, threads = (
                kernels.function("classify_many", weights),
                (images,),
                -(-images // 40),
                256,
            )
        counts = fused.int32(*counts, padded, hidden.outputs, last.outputs)
        return lambda scores, labels: function((grid,), (threads,), (*fixed, scores, labels, *counts))

    return classifier


def few_windows(kernels, conv, w):
    """A function of x and the array for its result, float32, that orders the first layer and its pooling."""
    function = kernels.function("pooled_few_28_5")
    return lambda x, y: function((-(-conv.M // 10), len(x)), (288,), (x, w, y, np.int32(conv.M)))


def few_images(kernels, network, images, parameters, w, classify):
    """The call for few images, as a graph: the first layer in float32, products of halves by fused's `connected`."""
    first = few_windows(kernels, network.convs[0], parameters["conv1.weight"])
    x = kernels.empty((images, w.shape[1]))
    exponents = cupy.zeros(images, np.int32)  # tanh gives at most 1
    connected = fused.fully_connected(kernels, images, x, exponents, w, classify)

    def order(pixels, scores, labels):
        first(pixels, x)
        connected(scores, labels)

    return fused.as_graph(order)


def prepare(kernels, network, images, parameters):
    w = parameters["fc1.weight"].astype(np.float64)
    classify = classifier_of(kernels, network, parameters)
    if images <= FEW_IMAGES:
        return few_images(kernels, network, images, parameters, w, classify)
    first, x = first_layer(kernels, network.convs[0], images, parameters["conv1.weight"])
    connected = library.fully_connected(kernels, images, x, w, classify)

    def call(images, scores, labels):
        first(images)
        connected(scores, labels)

    return call
