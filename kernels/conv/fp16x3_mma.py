"""Splits the weights into scratch memory, and launches the kernel for this layer, or the general one."""

from typing import NamedTuple

from fp16x3_launch import int32, layout_of, persistent_grid, split_and_launch


class Compiled(NamedTuple):
    """A kernel of the .cu file: what it is compiled for, and what its constants' names begin with."""

    name: str
    max_channels: int  # of outputs
    max_pixels: int
    constants: str
    weights_in_smem: bool = False


MULTI_CHANNEL = {  # by C, K
    (12, 7): Compiled("conv_multi_channel_12_7_24", 24, 1089, "MULTI_12"),
    (6, 5): Compiled("conv_multi_channel_6_5_16", 16, 900, "MULTI_6"),
    (4, 7): Compiled("conv_multi_channel_4_7_16", 16, 1600, "MULTI_4"),
}
SINGLE_CHANNEL = {  # by W, K
    (28, 5): Compiled("conv_single_channel_28_5", 64, 784, "SINGLE_28", weights_in_smem=True),
    (48, 5): Compiled("conv_single_channel_48_5", 6, 2304, "SINGLE_5"),
    (64, 5): Compiled("conv_single_channel_64_5", 6, 4096, "SINGLE_5"),
    (72, 7): Compiled("conv_single_channel_72_7", 12, 5184, "SINGLE_72"),
    (86, 7): Compiled("conv_single_channel_86_7", 4, 7396, "SINGLE_86"),
}


def prepare(kernels, layer, images, launch):
    return (
        single_channel(kernels, layer, images)
        or multi_channel(kernels, layer, images)
        or general(kernels, layer, images)
    )


def fits(compiled, layer):
    """Whether there is a kernel, and it holds the layer's output channels and pixels."""
    return compiled is not None and compiled.max_channels >= layer.M and compiled.max_pixels >= layer.H * layer.W


def single_channel_layout(kernels, compiled, layer, has_lo_parts=True):
    arguments = (compiled.max_channels, layer.K, layer.H, layer.W, has_lo_parts, compiled.weights_in_smem)
    return layout_of(kernels, "single_channel_layout", *arguments)


def single_channel(kernels, layer, images):
    """The call for a layer of one channel; None where no kernel fits."""
    compiled = SINGLE_CHANNEL.get((layer.W, layer.K)) if layer.C == 1 else None
    if not fits(compiled, layer) or layer.H_out * layer.W_out % 4:
        return None
    layout = single_channel_layout(kernels, compiled, layer)
    split, split_extents = "split_single_channel_weights", int32(layer.M, layer.K)
    extents = int32(images, layer.H, layer.M)
    return compiled_call(kernels, compiled, layer, images, layout, split, split_extents, extents)


def multi_channel(kernels, layer, images):
    """The call for a layer of several channels; None where no kernel fits."""
    compiled = MULTI_CHANNEL.get((layer.C, layer.K))
    if not fits(compiled, layer):
        return None
    # Vectors of outputs, and of inputs, must not straddle channels or rows.
    if (layer.C != 12 and layer.H_out * layer.W_out % 4) or (layer.C == 6 and layer.W % 2):
        return None
    layout = layout_of(kernels, "multi_channel_layout", layer.C, layer.H, layer.W)
    split, split_extents = "split_multi_channel_weights", int32(layer.C, layer.M, layer.K)
    extents = int32(images, layer.H, layer.W, layer.M)
    return compiled_call(kernels, compiled, layer, images, layout, split, split_extents, extents)


def compiled_call(kernels, compiled, layer, images, layout, split, split_extents, extents):
    """The call of a compiled kernel; None where the device has too little shared memory."""
    import cupy

    if layout.shared_bytes + 1024 > cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]:
        return None
    name, constants = compiled.name, compiled.constants
    grid, threads = persistent_grid(kernels, constants, images), kernels.constants[f"{constants}_THREADS"]
    return split_and_launch(kernels, layer, images, layout, split, split_extents, name, grid, threads, extents)


def general(kernels, layer, images):
    """The call for any layer."""
    TILE = kernels.constants["TILE"]
    grid = (-(-layer.W_out // TILE) * -(-layer.H_out // TILE), layer.M, images)
    function = kernels.function("conv_forward")
    extents = int32(images, layer.C, layer.H, layer.W, layer.M, layer.K)

    def call(x, w, y):
        function(grid, (TILE, TILE), (x, w, y, *extents))

    return call
