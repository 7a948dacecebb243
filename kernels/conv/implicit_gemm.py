"""Splits images and weights into scratch memory, multiplies the parts, and computes what does not fit them in FP32."""

import numpy as np

LARGE, SMALL = (512, 256), 128  # places of a block
BESIDE = 110  # what a block takes beside its products: as long as so many places do
SHARED_BYTES = 216 << 10  # of a block's 227 KiB; the rest is for its tables
STEP_CHANNELS, BLOCK_CHANNELS, PLANES, UNIT_BYTES, FRAGMENT_BYTES = 16, 64, 4, 16, 1024
TAPS = 3
LAYER = ["N", "C", "H", "W", "M", "K", "KW", "D", "DW", "H_out", "W_out", "rows", "pitch", "lead", "length", "outputs"]


def blocks_of(outputs, sixty_fours, processors, large):
    """(blocks of so many places, blocks of SMALL ones behind them, the time they take): as many whole waves of large
    blocks as end soonest."""
    choices = []
    for wave in range(-(-outputs // large) * sixty_fours // processors + 2):
        tiles = min(wave * processors // sixty_fours, -(-outputs // large))
        small = max(0, -(-(outputs - tiles * large) // SMALL)) * sixty_fours
        waves = -(-tiles * sixty_fours // processors), -(-small // processors)
        choices.append((waves[0] * (large + BESIDE) + waves[1] * (SMALL + BESIDE), tiles * sixty_fours, small))
    return min(choices)


def prepare(kernels, layer, images, launch, only=LARGE):
    import cupy

    PARTS, THREADS, STAGES = (kernels.constants[name] for name in ("PARTS", "THREADS", "STAGES"))
    # Rows share the zeros between them: a row of zeros ends an image and begins the next.
    pitch = max(layer.W + max(layer.PW, layer.PW_end), layer.W_out)
    rows = max(layer.H + max(layer.P, layer.P_end), layer.H_out)
    outputs, span = images * rows * pitch, (layer.K - 1) * layer.D * pitch + (layer.KW - 1) * layer.DW
    steps, taps = -(-layer.C // STEP_CHANNELS), -(-layer.K * layer.KW // TAPS) * TAPS
    sixty_fours = -(-layer.M // BLOCK_CHANNELS)
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]

    def shared_bytes(places):
        units = -(-(places + span) // 8) * 8
        return STAGES * (BLOCK_CHANNELS // 16 * taps * FRAGMENT_BYTES + units * PLANES * UNIT_BYTES)

    choices = [(*blocks_of(outputs, sixty_fours, processors, large), large) for large in only]
    fitting = [choice for choice in choices if shared_bytes(choice[-1] if choice[1] else SMALL) <= SHARED_BYTES]
    fitting = fitting or [(0, 0, -(-outputs // SMALL) * sixty_fours, LARGE[-1])]
    _, large_blocks, small_blocks, large = min(fitting)
    places = large_blocks // sixty_fours * large + small_blocks // sixty_fours * SMALL
    length = places + -(-span // 8) * 8
    extents = layer.extents | {
        "N": images, "rows": rows, "pitch": pitch, "lead": layer.P * pitch + layer.PW, "length": length,
        "outputs": outputs,
    }  # fmt: skip
    passed = np.array([tuple(extents[name] for name in LAYER)], [(name, np.int32) for name in LAYER])

    line = kernels.empty((steps * PLANES * length * UNIT_BYTES // 4,), np.uint32)
    fragments = kernels.empty((sixty_fours * 4 * steps * taps * FRAGMENT_BYTES // 4,), np.uint32)
    image_largest, place_is_marked = kernels.empty((images * PARTS,), np.uint32), kernels.empty((outputs,), np.int32)
    weight_largest, weight_is_marked = kernels.empty((layer.M,), np.uint32), kernels.empty((layer.M,), np.int32)
    find_largest, split = kernels.function("find_largest"), kernels.function("split")
    shared = shared_bytes(large if large_blocks else SMALL)
    convolve, fp32_fallback = kernels.function(f"conv_{large}", shared_bytes=shared), kernels.function("fp32_fallback")

    # Threads share a pixel's channels where pixels are few.
    shares = next(count for count in (1, 2, 4, 8) if count * length > 200_000 or count == 8)
    of_weights = sixty_fours * 4 * steps
    largest_grid, conv_grid = (images * PARTS + layer.M,), (large_blocks + small_blocks,)
    split_grid, fallback_grid = (of_weights + -(-length // THREADS) * shares,), (-(-outputs // THREADS),)
    splitting, padding = (np.int32(of_weights), np.int32(shares)), (np.int32(layer.P), np.int32(layer.PW))
    large_blocks, no_bias = np.int32(large_blocks), np.intp(0)
    largest, marks = (image_largest, weight_largest), (place_is_marked, weight_is_marked)

    def call(x, w, *rest):
        *given, y = rest
        bias = given[0] if given else no_bias
        find_largest(largest_grid, (THREADS,), (x, w, *largest, *marks, passed))
        split(split_grid, (THREADS,), (x, w, line, fragments, *largest, *marks, *splitting, passed))
        convolve(conv_grid, (THREADS,), (line, fragments, bias, *largest, y, large_blocks, passed))
        fp32_fallback(fallback_grid, (THREADS,), (x, w, bias, *marks, y, *padding, passed))

    return call
