"""Splits images and weights into scratch memory, multiplies the parts, and computes what does not fit them in FP32."""

import numpy as np

PLACES = (512, 256, 128)  # of a block
BESIDE = 110  # what a block takes beside its products: as long as so many places do
LAUNCH = 60  # what one more launch takes, likewise
SHARED_BYTES = 216 << 10  # of a block's 227 KiB; the rest is for its tables
STEP_CHANNELS, BLOCK_CHANNELS, PLANES, UNIT_BYTES, FRAGMENT_BYTES = 16, 64, 4, 16, 1024
TAPS = 3
LAYER = ["N", "C", "H", "W", "M", "K", "KW", "D", "DW", "H_out", "W_out", "rows", "pitch", "lead", "length", "outputs"]


def tiles_of(outputs, sixty_fours, processors, choices):
    """[(places of a block, number of blocks along the line)]: one launch, or whole waves of large blocks and a launch of
    smaller ones behind them, whichever ends first."""

    def time(launches):
        waves = [(places, -(-tiles * sixty_fours // processors)) for places, tiles in launches]
        return sum(count * (places + BESIDE) + LAUNCH for places, count in waves)

    plans = [[(places, -(-outputs // places))] for places in choices]
    for large in choices:
        tiles = outputs // large * sixty_fours // processors * processors // sixty_fours
        if tiles and (left := outputs - tiles * large):
            plans += [[(large, tiles), (small, -(-left // small))] for small in choices]
    return min(plans, key=time)


def prepare(kernels, layer, images, launch, plan=None):
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

    fitting = [places for places in PLACES if shared_bytes(places) <= SHARED_BYTES] or PLACES[-1:]
    plan = plan or tiles_of(outputs, sixty_fours, processors, fitting)
    length = sum(places * tiles for places, tiles in plan) + -(-span // 8) * 8
    extents = layer.extents | {
        "N": images, "rows": rows, "pitch": pitch, "lead": layer.P * pitch + layer.PW, "length": length,
        "outputs": outputs,
    }  # fmt: skip
    passed = np.array([extents[name] for name in LAYER], np.int32).view(f"V{4 * len(LAYER)}")[0]

    line = kernels.empty((steps * PLANES * length * UNIT_BYTES // 4,), np.uint32)
    fragments = kernels.empty((sixty_fours * 4 * steps * taps * FRAGMENT_BYTES // 4,), np.uint32)
    image_largest, weight_largest = (kernels.empty((count,), np.uint32) for count in (images * PARTS, layer.M))
    marks = [kernels.empty((count,), np.int32) for count in (outputs, 1 + outputs, layer.M)]
    find_largest, split = kernels.function("find_largest"), kernels.function("split")
    fp32_fallback, convolving, first = kernels.function("fp32_fallback"), [], 0
    for places, tiles in plan:
        convolve = kernels.function(f"conv_{places}", shared_bytes=shared_bytes(places))
        convolving.append((convolve, (tiles, sixty_fours), np.int32(first)))
        first += places * tiles

    # Threads share a pixel's channels where pixels are few.
    shares = next(count for count in (1, 2, 4, 8) if count * length > 200_000 or count == 8)
    of_weights = sixty_fours * 4 * steps
    largest_grid, split_grid = (images * PARTS + layer.M,), (of_weights + -(-length // THREADS) * shares,)
    fallback_grid, no_bias = (processors,), np.intp(0)
    splitting, padding = (np.int32(of_weights), np.int32(shares)), (np.int32(layer.P), np.int32(layer.PW))
    largest = image_largest, weight_largest

    def call(x, w, *rest):
        *given, y = rest
        bias = given[0] if given else no_bias
        find_largest(largest_grid, (THREADS,), (x, w, *largest, *marks, passed))
        split(split_grid, (THREADS,), (x, w, line, fragments, *largest, *marks, *splitting, passed))
        for convolve, grid, first in convolving:
            convolve(grid, (THREADS,), (line, fragments, bias, *largest, y, first, passed))
        fp32_fallback(fallback_grid, (THREADS,), (x, w, bias, *marks, y, *padding, passed))

    return call
