"""Splits the weights into scratch memory, and launches the kernel for this layer."""

from fp16x3_launch import int32, layout_of, persistent_grid, split_and_launch

MULTI_CHANNEL = {  # by C, H: the kernel, and what its constants' names begin with
    (12, 33): ("conv_multi_channel_12_7_24", "MULTI_12"),
    (6, 30): ("conv_multi_channel_6_30_5_16", "MULTI_6_30"),
    (6, 22): ("conv_multi_channel_6_22_5_16", "MULTI_6_22"),
    (4, 40): ("conv_multi_channel_4_7_16", "MULTI_4"),
}


def prepare(kernels, layer, images, launch):
    name, constants = MULTI_CHANNEL[layer.C, layer.H]
    layout = layout_of(kernels, "multi_channel_layout", layer.C, layer.H)
    split, split_extents = "split_multi_channel_weights", int32(layer.C)
    groups = kernels.constants[f"{constants}_GROUPS"]
    grid, threads = persistent_grid(kernels, constants, images), 128 * (groups + 1)
    return split_and_launch(kernels, layer, images, layout, split, split_extents, name, grid, threads, int32(images))
