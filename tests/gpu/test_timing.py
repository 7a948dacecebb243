"""Times of a GPU."""

import numpy as np
import pytest

from policies import MEASURING, QUICK
from warpbook.harness import timing
from warpbook.harness.timed_variant import TimedVariant
from warpbook.problems import networks

LAYER = networks.ConvLayer("odd", 2, 9, 11, 3, 4)

SPINNING = """
    const long long start = clock64();
    while (clock64() - start < 400000) {}
    asm volatile("griddepcontrol.wait;" ::: "memory");
"""
"""What a kernel does for about 0.2 ms before it waits for the one ahead."""

ONE_THREAD_AN_OUTPUT = """
import numpy as np


def prepare(kernels, layer, images, launch):
    conv_forward = kernels.function("conv_forward", early={early})
    extents = [np.int32(one) for one in (images, layer.C, layer.H, layer.W, layer.M, layer.K)]
    return lambda x, w, y: conv_forward((1, layer.M, images), (16, 16), (x, w, y, *extents))
"""


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


@pytest.mark.gpu
def test_a_cold_call_that_writes_little_does_not_pay_for_what_others_left_unwritten():
    import cupy

    from warpbook.harness.gpu_bench import GpuBench

    bench = GpuBench()
    read = cupy.zeros(bench.l2_bytes // 2 // 4, cupy.uint32)  # half of what the L2 cache holds

    def fastest_ms(flush):
        times = []
        for _ in range(20):
            flush()
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            bench.spin(1_000_000)
            start.record()
            bench._launch("count_changed", read, np.uint64(read.size), np.uint32(0), bench._partial)
            stop.record()
            stop.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, stop))
        return min(times)

    cold, writing = fastest_ms(lambda: bench.flush_l2(0)), fastest_ms(lambda: bench.flush_l2(bench.l2_bytes))
    overwritten = fastest_ms(lambda: bench.fill(bench._flushed, 0))
    hot = fastest_ms(lambda: None)
    assert hot < 0.9 * cold < 0.9 * 0.9 * writing, (hot, cold, writing, overwritten)
    assert writing == pytest.approx(overwritten, rel=0.1)


@pytest.mark.gpu
def test_a_steady_row_of_calls_tells_what_one_takes_of_the_gpu_s_energy():
    from warpbook.harness.gpu_bench import GpuBench
    from warpbook.kernels import variants

    bench = GpuBench()
    timed = TimedVariant(bench, variants.read("direct"), sandboxed=False)
    bench.watch([timed])
    case = networks.ConvLayer("c", 12, 33, 33, 24, 7).at(1000)
    rows = timing.measure_case(bench, [timed], case, QUICK, MEASURING)
    (steady,) = timing.steady_rows(timed, case, 1.0)
    timed.close()
    if steady["energy_j"] is None:
        pytest.skip("NVML tells no energy of this GPU")
    watts = steady["energy_j"] / (steady["time_ms"] / 1e3)
    limit = bench.clock.facts()["power_limit_w"]
    assert 0.1 * limit < watts < 1.1 * limit
    cold = min(row["time_ms"] for row in rows if (row["state"], row["kind"]) == ("cold", "op"))
    assert 0.5 * cold < steady["time_ms"] < 2 * cold


@pytest.mark.gpu
def test_a_kernel_that_starts_early_gains_no_time_from_what_the_harness_runs_before_it(tmp_path, plain_direct):
    from warpbook.harness.gpu_bench import GpuBench
    from warpbook.kernels import variants

    bench = GpuBench()
    if int(bench.device.arch.removeprefix("sm_").rstrip("af")) < 90:
        pytest.skip(f"{bench.device.arch} has no programmatic dependent launch")
    spinning = plain_direct.replace("__restrict__", "").replace(
        "    const int H_out", f"{SPINNING}    const int H_out", 1
    )
    for name in ("early", "late"):
        (tmp_path / f"{name}.cu").write_text(spinning)
        (tmp_path / f"{name}.py").write_text(ONE_THREAD_AN_OUTPUT.format(early=name == "early"))
    timed = [TimedVariant(bench, variants.read(name, tmp_path), sandboxed=False) for name in ("early", "late")]
    bench.watch(timed)
    rows = timing.measure_case(bench, timed, LAYER.at(2), QUICK, MEASURING)
    for one in timed:
        one.close()

    def least_ms(name, kind):
        return min(
            row["time_ms"] for row in rows if (row["variant"], row["state"], row["kind"]) == (name, "cold", kind)
        )

    for kind in ("gpu", "op"):
        assert least_ms("early", kind) > 0.97 * least_ms("late", kind) > 0.19, kind
