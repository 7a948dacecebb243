"""
title:     First layer fused, then a GEMM of FP16 parts by cuBLAS
idea:      'The first layer writes its results as the hi and lo FP16 parts that tensor cores take, no more bytes than
           FP32, so that a library can multiply them. One call to cuBLAS computes hi * lo and lo * hi of the fully
           connected layer. Others add hi * hi, a share of the inputs each: tensor cores cut off digits that do not
           fit beside a larger sum, and shorter sums lose less. Where no pooling parts the second convolution from
           that layer, both are one matrix (fused_conv_fc_algebra).'
expect:    'The fully connected layer at what the library reaches with wgmma, which our mma.sync does not. With few
           images, launch overhead dominates: several launches against fused_mma''s one CUDA graph.'
builds_on: fused_mma
split:     {precision: fp16, products: 3}
method:    any
least_arch: sm_80
requires:  torch
"""

import cupy
import fused_conv_fc_algebra
import fused_mma
import numpy as np

LONGEST = 2000  # inputs of a share at most
EIGHTS = 8  # inputs of a share come in eights: 16 bytes


def unsupported(network):
    if reason := fused_mma.unsupported(network):
        return reason
    if fused_mma.form(network) not in ("cpdd", "cpcdd"):
        return "a pooled convolution lies before the fully connected layer, and its kernel does not split its results"
    conv = network.convs[0]
    if not fused_mma.SINGLE_CHANNEL[conv.W, conv.K].split:
        return f"no kernel here splits the results of a first layer {conv}"
    return ""


def shares_of(inputs):
    """The fewest equal shares of the inputs, none longer than LONGEST."""
    return next(n for n in range(-(-inputs // LONGEST), inputs) if inputs % (n * EIGHTS) == 0)


def prepare(kernels, network, images, parameters, scale=None):
    conv, *rest = network.convs
    first, x = fused_mma.single_channel(kernels, conv, images, parameters["conv1.weight"], split=True, scale=scale)
    w = parameters["fc1.weight"].astype(np.float64)
    if rest:
        w = fused_conv_fc_algebra.product(*rest, parameters["conv2.weight"], parameters["fc1.weight"])
    exponents = cupy.zeros(images, np.int32)  # tanh gives at most 1
    classify = fused_mma.classifier_of(kernels, exponents, network, parameters)
    connected = fully_connected(kernels, images, x, w, classify)

    def call(images, scores, labels):
        first(images)
        connected(scores, labels)

    return call  # CuPy lets cuBLAS into no graph


def prepare_bytes(kernels, network, images, parameters):
    return prepare(kernels, network, images, parameters, network.input.scale)


def fully_connected(kernels, images, x, w, classifier):
    """As fused_mma's, for x (images, 2, inputs), float16: lo parts and hi parts, each times 2^SCALE_EXPONENT."""
    from cupy.cuda import device, runtime
    from cupy_backends.cuda.libs import cublas  # PyTorch brings the library

    outputs, inputs = w.shape
    padded = -(-outputs // 16) * 16
    hi, lo, weight_exponents = fused_mma.split_weights(w, (padded, inputs))
    weights = cupy.concatenate([hi, lo], axis=1)
    share = inputs // shares_of(inputs)
    partial = kernels.empty((1, images, padded))
    classify = classifier(partial, weight_exponents)
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    handle = device.get_cublas_handle()

    def multiply(x, w, count, kept):
        """The GEMM over `count` values of each image and output, added to what is kept of `partial`."""
        cublas.gemmEx(
            handle, cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, padded, images, count, one.ctypes.data,
            w.data.ptr, runtime.CUDA_R_16F, 2 * inputs, x.data.ptr, runtime.CUDA_R_16F, 2 * inputs, kept.ctypes.data,
            partial.data.ptr, runtime.CUDA_R_32F, padded, cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    def launch(scores, labels):
        multiply(x, weights, 2 * inputs, kept=zero)  # lo * hi, then hi * lo
        for start in range(0, inputs, share):
            multiply(x[:, 1, start:], weights[:, start:], share, kept=one)
        classify(scores, labels)

    return launch
