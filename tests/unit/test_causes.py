"""Why the best kernel is faster than the naive one: from counters that stand here."""

import math
from types import SimpleNamespace

from warpbook.common.statistics import Estimate
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall, CountedLaunch
from warpbook.report.evidence import Speedup
from warpbook.report.views import causes

NAIVE, BEST, SPLIT = (
    SimpleNamespace(name=name, stem=name, header=SimpleNamespace(split=split))
    for name, split in (("direct", None), ("blocked", None), ("split", "fp16"))
)
IDLE = {
    counters.SM: 20.0,
    counters.ISSUE: 10.0,
    counters.L1: 20.0,
    counters.L2: 20.0,
    counters.DRAM: 20.0,
}


def call(instructions: float = 1e9, fma: float = 0, **shares: float) -> CountedCall:
    """A call of one launch: its instructions, multiply-adds and tensor cores' among them, and busy units by name."""
    values = {getattr(counters, unit): share for unit, share in shares.items()}
    counted = {counters.INSTRUCTIONS: instructions, counters.FFMA: 32 * fma}
    return CountedCall(10, (CountedLaunch("k", IDLE | counted | values),), 1)


def evidence(
    calls: dict[tuple[str, str], CountedCall],
    shares: dict[str, float] | None = None,
    faster: dict[str, SimpleNamespace] | None = None,
    resource: str = "memory bandwidth",
    gpu_ms: float = 1.0,
    op_ms: dict[str, float] | None = None,
) -> SimpleNamespace:
    """shares: of its bound's speed that the best kernel reaches on each layer; faster: what is faster there than it; gpu_ms:
    the GPU time where the op time is 1 ms; op_ms: the op times of other layers."""
    layers = list(dict.fromkeys(layer for _, layer in calls))
    reached = shares or dict.fromkeys(layers, 0.5)
    return SimpleNamespace(
        name="fa18",
        case_word="layer",
        largest=10,
        layer_names=layers,
        layers=[SimpleNamespace(name=layer) for layer in layers],
        counters=SimpleNamespace(calls=calls),
        ranking=SimpleNamespace(naive=NAIVE, faster_variants=faster or {}),
        times=SimpleNamespace(
            op=lambda name, layer, size, kind: SimpleNamespace(
                value=(op_ms or {}).get(layer, 1.0) * (gpu_ms if kind == "gpu" else 1.0)
            ),
            limiting_resource=lambda layer, size: resource,
            method_bound_ms=lambda name, layer, size: reached[layer.name] * (op_ms or {}).get(layer.name, 1.0),
        ),
    )


def cause(ev: SimpleNamespace, best: SimpleNamespace = BEST) -> str:
    return causes.cause_sentence(ev, best).replace("\u202f", " ")


def advice(ev: SimpleNamespace) -> str:
    return causes.next_sentence(ev, BEST).replace("\u202f", " ")


ISSUING = {("direct", layer): call(SM=85, ISSUE=84, fma=5e7) for layer in ("conv1", "conv2")}


def test_the_cause_is_the_instructions_saved_and_the_busiest_unit_on_each_layer():
    blocked = {("blocked", "conv1"): call(2e7, L2=81), ("blocked", "conv2"): call(3e7, DRAM=70)}
    assert cause(evidence(ISSUING | blocked)) == (
        "It executes 40 times fewer instructions than direct. What limits it is the L2 cache on conv1 (81 %) and DRAM on "
        "conv2 (70 %, in part)"
    )


def test_a_unit_that_is_the_busiest_everywhere_is_named_once():
    blocked = {("blocked", layer): call(2e7, L2=share) for layer, share in (("conv1", 81), ("conv2", 64))}
    assert cause(evidence(blocked)) == "What limits it is the L2 cache on every layer (64 % to 81 %)"


def test_loads_saved_are_told_where_they_fall_much_further_and_are_most_of_what_is_moved():
    scattered = {("direct", "conv1"): call(2.2e9, L1=80, LOADED_SECTORS=24e6, DRAM_BYTES=64e6)}
    for sectors, moved, words in [
        (1e6, 64e6, " and loads 24 times fewer sectors of global memory"),
        (1e6, 96e6, ""),
        (8e6, 64e6, ""),
    ]:
        row = {("blocked", "conv1"): call(1e9, DRAM=90, LOADED_SECTORS=sectors, DRAM_BYTES=moved)}
        said = f"It executes 2.2 times fewer instructions{words} than direct. What limits it is DRAM (90 %)"
        assert cause(evidence(scattered | row)) == said
        assert "loads" not in cause(evidence(scattered | row, resource="FP32 arithmetic"))


def test_near_its_bound_a_kernel_gets_no_advice():
    calls = {("blocked", "conv1"): call(L1=90), ("blocked", "conv2"): call(DRAM=85)}
    near = "Little is left to gain by this method: every layer runs at 86 % of its bound or more"
    assert advice(evidence(calls, {"conv1": 0.9, "conv2": 0.86})) == near


def test_latency_limits_a_layer_on_which_no_unit_is_busy():
    calls = {("blocked", "conv1"): call(L1=81), ("blocked", "conv2"): call(L2=44)}
    limit = "latency limits it on conv2: no unit passes 44 % of its peak"
    assert cause(evidence(calls)) == f"What limits it is the L1 cache and shared memory on conv1 (81 %); {limit}"
    alone = evidence({("blocked", "conv1"): call(L2=44)})
    assert cause(alone) == "Latency limits it: no unit passes 44 % of its peak"


def test_a_best_kernel_of_as_many_instructions_is_not_said_to_save_any():
    ev = evidence({("direct", "conv1"): call(L1=90), ("blocked", "conv1"): call(DRAM=85)})
    assert cause(ev) == "What limits it is DRAM (85 %)"


def test_alone_the_best_kernel_s_busiest_unit_is_named_and_without_its_counters_nothing():
    assert cause(evidence({("direct", "conv1"): call(SM=85, ISSUE=84)}), NAIVE) == (
        "What limits it is instruction issue (84 %)"
    )
    assert cause(evidence({("blocked", "conv1"): call(DRAM=85)})) == "What limits it is DRAM (85 %)"
    assert cause(evidence(ISSUING)) == ""


def test_the_advice_is_for_the_layer_farthest_from_its_bound_and_by_its_busiest_unit():
    calls = {("blocked", "conv1"): call(L1=90), ("blocked", "conv2"): call(DRAM=85)}
    far = evidence(calls, {"conv1": 0.3, "conv2": 0.9})
    assert (
        advice(far)
        == "On conv1, blocked runs at 30 % of its bound, and what limits it is the L1 cache and shared memory. "
        f"Try {causes.REMEDIES[counters.L1]}"
    )
    near = evidence(calls, {"conv1": 0.8, "conv2": 0.4})
    assert advice(near).endswith(causes.REMEDIES[counters.DRAM])
    other = SimpleNamespace(name="tiled", stem="tiled", header=BEST.header)
    by_another = evidence(calls | {("tiled", "conv1"): call(DRAM=85)}, {"conv1": 0.3, "conv2": 0.9}, {"conv1": other})
    assert advice(by_another).startswith("On conv1, tiled runs at 30 % of its bound, and what limits it is DRAM. ")


def test_the_advice_is_for_the_layer_that_loses_most_time_though_a_short_one_is_farther_from_its_bound():
    calls = {("blocked", "conv1"): call(L1=90), ("blocked", "conv2"): call(DRAM=85)}
    times = {"conv1": 0.1, "conv2": 5.0}
    assert advice(evidence(calls, {"conv1": 0.2, "conv2": 0.6}, op_ms=times)).startswith(
        "On conv2, blocked runs at 60 %"
    )


def test_where_the_kernels_alone_are_near_their_bound_the_launch_is_what_is_left():
    small = {("blocked", "conv1"): call(DRAM=85)}
    said = "On conv1, blocked runs at 80 % of its bound; its kernels alone reach 94 %. Little is left to gain but the launch and the wait for it"
    assert advice(evidence(small, {"conv1": 0.8}, gpu_ms=0.85)) == said


def test_dram_is_the_busiest_unit_where_it_and_l2_are_busy():
    both = {("blocked", "conv1"): call(L2=87, DRAM=85)}
    assert cause(evidence(both)) == "What limits it is DRAM (85 %)"
    assert advice(evidence(both)).endswith(causes.REMEDIES[counters.DRAM])
    assert cause(evidence({("blocked", "conv1"): call(L2=87, DRAM=60)})) == "What limits it is the L2 cache (87 %)"


def test_a_kernel_on_tensor_cores_is_not_told_to_try_them():
    busy = {("blocked", "conv1"): call(SM=85), ("split", "conv1"): call(SM=85)}
    assert advice(evidence(busy)).endswith("Try tensor cores, or a method of fewer operations")
    assert advice(evidence(busy, faster={"conv1": SPLIT})).endswith("Try a method of fewer operations")


def test_where_no_unit_is_near_its_peak_the_advice_is_against_latency_and_without_counters_to_read_them():
    assert advice(evidence({("blocked", "conv1"): call(L2=50)})).endswith(
        f"latency limits it. Try {causes.LATENCY_REMEDY}"
    )
    assert "snakemake --cores 1 count --config study=fa18" in advice(evidence(ISSUING))


def compared(name: str, verdict: str, ratio: Estimate, paired: bool = True) -> tuple[SimpleNamespace, Speedup]:
    one = SimpleNamespace(name=name, stem=name, header=SimpleNamespace(builds_on="direct"))
    return one, Speedup(ratio, paired, verdict)


def samples(*found: tuple[SimpleNamespace, Speedup], over_naive: tuple[str, float] = ("faster", 2.0)) -> str:
    by_name = {one.name: speedup for one, speedup in found}

    def total_speedup(name: str, size: int, over: str = "") -> Speedup:
        verdict, value = over_naive
        return Speedup(Estimate(value, math.nan, math.nan, 1), True, verdict) if over else by_name[name]

    ev = SimpleNamespace(
        largest=10,
        plan=SimpleNamespace(variants={"direct": NAIVE}),
        config=SimpleNamespace(measuring=SimpleNamespace(equivalence_margin=0.01)),
        ranking=SimpleNamespace(measured_variants=lambda device, peers: [one for one, _ in found], naive=NAIVE),
        times=SimpleNamespace(total_speedup=total_speedup),
    )
    return causes.samples_sentence(ev).replace("\u202f", " ")


def test_what_is_ambiguous_is_named_with_the_samples_that_would_settle_it_and_nothing_else_is():
    settled = compared("tiled", "faster", Estimate(2.0, 1.9, 2.1, 6))
    # An eighth from 1, and a 95 % interval of a quarter to each side: 4 times the samples, and 1.7 times that for 99 %.
    wide = compared("streams", "ambiguous", Estimate(1.125, 0.875, 1.375, 6))
    # At 1, within the margin once the interval is a fifth as wide: 25 times.
    near = compared("restrict", "ambiguous", Estimate(1.0, 0.9505, 1.0495, 10), paired=False)
    hopeless = compared("block", "ambiguous", Estimate(1.0101, 0.5, 1.5, 10))
    assert samples(settled) == ""
    assert samples(settled, wide, over_naive=("slower", 0.9)) == ""
    assert samples(settled, wide, over_naive=("ambiguous", 0.1)) == ""
    assert samples(settled, near, wide, hopeless) == (
        "Take more samples of streams (6 now, about 42 to decide), restrict beside direct (10 now, about 250 to decide) and "
        "block (10 now, more than 10 000 to decide)"
    )
    clocks_differ = compared("tiled", "ambiguous", Estimate(1.04, 1.03, 1.05, 60))
    assert samples(clocks_differ) == ""
    once = compared("tiled", "ambiguous", Estimate(2.5, math.nan, math.nan, 1))
    assert "tiled (1 now, about 6 to decide)" in samples(once)
    far = compared("tiled", "ambiguous", Estimate(8.0, math.nan, math.nan, 1))
    assert samples(far) == ""
