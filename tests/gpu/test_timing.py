"""Times of a GPU."""

import pytest

from policies import MEASURING, QUICK
from warpbook.harness import timing
from warpbook.harness.timed_variant import TimedVariant
from warpbook.problems import networks

LAYER = networks.ConvLayer("odd", 2, 9, 11, 3, 4)


@pytest.mark.gpu
def test_a_kernel_s_time_does_not_hold_the_launch_s_latency():
    from warpbook.harness.gpu_bench import GpuBench
    from warpbook.kernels import variants

    bench = GpuBench()
    timed = TimedVariant(bench, variants.read("direct"), sandboxed=False)
    bench.watch([timed])
    rows = timing.measure_case(bench, [timed], LAYER.at(1), QUICK, MEASURING)
    timed.close()
    least = {kind: min(row["time_ms"] for row in rows if row["kind"] == kind) for kind in ("gpu", "op", "layer")}
    assert least["gpu"] < least["op"] < least["layer"]


@pytest.mark.gpu
def test_a_peer_in_nhwc_is_timed_without_laying_its_arrays_out():
    from warpbook.harness import gpu_bench
    from warpbook.harness.bench import allocate

    pytest.importorskip("torch")
    bench = gpu_bench.GpuBench()
    seen = []

    def operation(x, w, y):
        seen.append((x, w))
        return gpu_bench.channels_last(y)

    buffers = allocate(bench, networks.ConvLayer("odd", 3, 9, 9, 4, 5).at(2))
    x, w, y = buffers.values
    bench.draw(x, 1, True)
    bench.draw(w, 2, True)
    bench.draw(y, 3, True)
    call = gpu_bench.ChannelsLast(operation)
    assert bool((call(x, w, y) == y).all())
    assert call(x, w, y).flags.c_contiguous
    timers = bench.timers(call, buffers)
    seen.clear()
    for timer in timers.values():
        assert timer() > 0
    assert len({given.data.ptr for given, _ in seen}) == 1
    x_seen, w_seen = seen[0]
    assert x_seen.strides[1] == w_seen.strides[1] == 4
    assert bool((x_seen == x).all())
