"""Plans a network of one convolution: its first layer by wgmma, the rest as library has it."""

import cupy
import fused
import library
import numpy as np

MAPS = 56  # of the kernel, those that a network lacks being zero


def unsupported(network):
    if reason := library.unsupported(network):
        return reason
    conv = network.convs[0]
    if fused.form(network) != "cpdd" or (conv.W, conv.K) != (28, 5) or conv.M > MAPS:
        return f"the kernel is for up to {MAPS} maps of 5 x 5 taps over 28 x 28 pixels, and no second convolution"
    return ""


def first_layer(kernels, conv, images, w):
    """(a function of x that orders the first layer and its pooling, their result as fused's `halves`)."""
    parts = kernels.empty((2, 32, MAPS), np.float16)
    exponents = kernels.empty((MAPS,), np.int32)
    kernels.function("split_window_weights")((MAPS,), (128,), (w, parts, exponents, *fused.int32(conv.M)))
    stage = (2 * MAPS * 20 + 4) * 4
    function = kernels.function("windows_28_5", shared_bytes=parts.nbytes + 4 * conv.H * conv.W * 4 + 2 * stage)
    blocks = kernels.constants["HALVES_28_BLOCKS"] * cupy.cuda.Device().attributes["MultiProcessorCount"]
    grid = (min(-(-images // 2), blocks),)
    y = kernels.empty((images, 2, conv.M * conv.H_out * conv.W_out // 4), np.float16)
    extents = fused.int32(images, conv.M)
    return lambda x: function(grid, (128,), (x, w, parts, exponents, y, *extents)), y


def prepare(kernels, network, images, parameters):
    from cupy.cuda import device, runtime
    from cupy_backends.cuda.libs import cublas  # PyTorch brings the library

    first, x = first_layer(kernels, network.convs[0], images, parameters["conv1.weight"])
    w = parameters["fc1.weight"].astype(np.float64)
    outputs, inputs = w.shape
    padded = -(-outputs // 16) * 16
    high, low, weight_exponents = fused.halves_of(w, (padded, inputs))
    weights = cupy.concatenate([high, low], axis=1)
    share = inputs // library.shares_of(inputs)
    partial = kernels.empty((1, images, padded))
    exponents = cupy.zeros(images, np.int32)  # tanh gives at most 1
    classify = fused.classifier(kernels, partial, exponents, weight_exponents, network, parameters)
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    handle = device.get_cublas_handle()

    def multiply(x, w, count, kept):
        """As library's."""
        cublas.gemmEx(
            handle, cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, padded, images, count, one.ctypes.data,
            w.data.ptr, runtime.CUDA_R_16F, 2 * inputs, x.data.ptr, runtime.CUDA_R_16F, 2 * inputs, kept.ctypes.data,
            partial.data.ptr, runtime.CUDA_R_32F, padded, cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    def call(images, scores, labels):
        first(images)
        multiply(x, weights, 2 * inputs, kept=zero)  # low by high, then high by low
        for start in range(0, inputs, share):
            multiply(x[:, 1, start:], weights[:, start:], share, kept=one)
        classify(scores, labels)

    return call
