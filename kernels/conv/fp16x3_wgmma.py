"""Splits the weights into scratch memory, and launches the kernel for this layer."""

from fp16x3_launch import int32, layout_of, persistent_grid, split_and_launch

MULTI_CHANNEL = {  # by C, H, K, M: the kernel, and what its constants' names begin with
    (12, 33, 7, 24): ("conv_multi_channel_12_7_24", "MULTI_12"),
    (6, 30, 5, 16): ("conv_multi_channel_6_30_5_16", "MULTI_6_30"),
    (6, 22, 5, 16): ("conv_multi_channel_6_22_5_16", "MULTI_6_22"),
    (4, 40, 7, 16): ("conv_multi_channel_4_7_16", "MULTI_4"),
}


def prepare(kernels, layer, images, launch):
    return single_channel(kernels, layer, images) if layer.C == 1 else multi_channel(kernels, layer, images)


def single_channel(kernels, layer, images):
    """The call for the first layer of 4 output channels."""
    layout = layout_of(kernels, "single_channel_layout", layer.M, layer.K, layer.H, layer.W, True, False)
    split, split_extents = "split_single_channel_weights", int32(layer.K)
    grid, threads = persistent_grid(kernels, "SINGLE_86", images), kernels.constants["SINGLE_86_THREADS"]
    name = "conv_single_channel_86_7"
    return split_and_launch(kernels, layer, images, layout, split, split_extents, name, grid, threads, int32(images))


def multi_channel(kernels, layer, images):
    """The call for a layer of several channels."""
    name, constants = MULTI_CHANNEL[layer.C, layer.H, layer.K, layer.M]
    layout = layout_of(kernels, "multi_channel_layout", layer.C, layer.H)
    split, split_extents = "split_multi_channel_weights", int32(layer.C)
    groups = kernels.constants[f"{constants}_GROUPS"]
    grid, threads = persistent_grid(kernels, constants, images), 128 * (groups + 1)
    return split_and_launch(kernels, layer, images, layout, split, split_extents, name, grid, threads, int32(images))
