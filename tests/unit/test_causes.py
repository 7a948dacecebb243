"""Why the best kernel is faster than the naive one: from counters that stand here."""

from types import SimpleNamespace

from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall, CountedLaunch
from warpbook.report.views import causes

NAIVE, BEST = SimpleNamespace(name="direct"), SimpleNamespace(name="blocked")
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


def evidence(calls: dict[tuple[str, str], CountedCall]) -> SimpleNamespace:
    layers = list(dict.fromkeys(layer for _, layer in calls))
    return SimpleNamespace(
        layer_names=layers, counters=SimpleNamespace(calls=calls), ranking=SimpleNamespace(naive=NAIVE)
    )


def said(ev: SimpleNamespace, best: SimpleNamespace = BEST) -> str:
    return causes.cause_sentences(ev, best).replace("\u202f", " ")


ISSUING = {("direct", layer): call(SM=85, ISSUE=share, fma=5e7) for layer, share in (("conv1", 84), ("conv2", 82))}


def test_what_bounds_the_naive_kernel_stands_beside_what_bounds_the_best_and_how_many_instructions_that_saves():
    ev = evidence(
        ISSUING
        | {("blocked", "conv1"): call(2e7, L2=81, TENSOR=1e6), ("blocked", "conv2"): call(3e7, DRAM=70, TENSOR=9e6)}
    )
    assert said(ev) == (
        "direct is bound by instruction issue (conv1 84 %, conv2 82 % of cycles); 5 % of its instructions are FP32 "
        "multiply-adds. blocked takes 40 times fewer instructions, 20 % on tensor cores, and is bound by the "
        "L2 cache (conv1 81 % of peak) and in part by DRAM (conv2 70 % of peak)"
    )


def test_what_bounds_one_layer_and_another_in_part_is_named_once():
    calls = {("blocked", layer): call(L1=share) for layer, share in (("conv1", 90), ("conv2", 75))}
    assert said(evidence(calls)) == (
        "blocked is bound by the L1 cache and shared memory (conv1 90 %, in part conv2 75 % of peak)"
    )


def test_a_best_kernel_of_as_many_instructions_is_not_said_to_save_any():
    ev = evidence({("direct", "conv1"): call(L1=90), ("blocked", "conv1"): call(DRAM=85)})
    assert said(ev) == (
        "direct is bound by the L1 cache and shared memory (90 % of peak). blocked is bound by DRAM (85 % of peak)"
    )


def test_where_no_unit_is_near_its_peak_latency_is_said_to_bound_with_the_nearest():
    ev = evidence({("direct", "conv1"): call(L1=90), ("blocked", "conv1"): call(1e8, L2=50)})
    assert said(ev).endswith("and is bound by latency, the L2 cache nearest its peak (50 % of peak)")


def test_alone_the_best_kernel_s_bound_is_said_and_without_its_counters_nothing():
    for calls, best, words in [
        (ISSUING, NAIVE, "direct is bound by instruction issue (conv1 84 %, conv2 82 % of cycles)"),
        ({("blocked", "conv1"): call(DRAM=85)}, BEST, "blocked is bound by DRAM (85 % of peak)"),
        (ISSUING, BEST, ""),
    ]:
        assert said(evidence(calls), best) == words
