"""Claims: what a header may say of them, and what the archived run makes of those that ship."""

import math
from dataclasses import replace
from types import SimpleNamespace

from warpbook.common.statistics import Estimate
from warpbook.kernels import variants
from warpbook.kernels.claims import Claim
from warpbook.problems import case_sets
from warpbook.profiling import counters
from warpbook.report.evidence import claim_verdicts as judging
from warpbook.report.views import claim_table

SHIPPED = variants.discover()


def test_every_shipped_expectation_makes_claims_in_its_own_words():
    for name in SHIPPED:
        header = SHIPPED[name].header
        prose = " ".join(f"{header.expect} {header.check}".split())
        assert header.claims
        for claim in header.claims:
            assert claim.says in prose


def test_claims_stand_in_a_header_or_beside_it_and_are_no_part_of_the_identity(cuda_variant, tmp_path):
    code = 'extern "C" __global__ void conv_forward() {}'
    plain = cuda_variant(code)
    claiming = cuda_variant(code, header="claims: [{quantity: registers, change: rises, by: 10 %}]\n")
    assert claiming.header.claims[0].by.at_least == 0.1
    cuda_variant(code)
    (tmp_path / "mine.yaml").write_text("claims:\n  - {quantity: op_time, change: stays, by: 5 %}\n")
    beside = variants.read("mine", tmp_path)
    assert not beside.read_error
    assert beside.header.claims[0].by.at_most == 0.05
    assert plain.source_sha256 == claiming.source_sha256 == beside.source_sha256


def test_a_claim_that_says_nothing_testable_is_named_with_the_reason(cuda_variant):
    for claim, words in [
        ("{quantity: op_tim, change: falls}", "'op_tim' is no quantity: did you mean 'op_time'"),
        ("{quantty: op_time, change: falls}", "unknown key 'claims.0.quantty': did you mean 'quantity'"),
        ("{quantity: op_time, change: falls, where: {c: {is: 1}}}", "claims.0.where: unknown key 'c': valid: C, "),
        ("{quantity: op_time}", "say its `change` against the baseline, or its `value`"),
        ("{quantity: times_bound, change: falls}", "times_bound is of the variant alone"),
        ("{quantity: registers, change: stays}", "what stays does so within some amount"),
        ("{quantity: op_time, change: stays, by: 5 %, more_than: {C: {is: 1}}}", "`more_than` goes with"),
        ("{quantity: a__b.sum, change: falls, by: {count: N * Q}}", "'Q' is no extent"),
        ("{says: it is quick}", "why it is `undecidable`"),
    ]:
        made = cuda_variant('extern "C" __global__ void conv_forward() {}', header=f"claims: [{claim}]\n")
        assert words in made.read_error


def test_counters_that_claims_name_are_read():
    read = counters.metrics_to_read(SHIPPED.values())
    assert "smsp__inst_executed_op_global_ld.sum" in read
    assert len(read) == len(set(read))


def test_a_verdict_follows_from_where_the_whole_interval_lies():
    for low, high, claim, verdict in [
        (0.70, 0.75, {"change": "falls"}, judging.HELD),
        (0.70, 0.75, {"change": "falls", "by": "20 %"}, judging.HELD),
        (0.70, 0.75, {"change": "falls", "by": "50 %"}, judging.SHORT),
        (0.70, 0.75, {"change": "falls", "by": {"at_most": "10 %"}}, judging.SHORT),
        (0.70, 0.75, {"change": "falls", "by": "27 %"}, judging.OPEN),
        (0.70, 0.75, {"change": "rises"}, judging.REFUTED),
        (0.70, 0.75, {"change": "stays", "by": "10 %"}, judging.REFUTED),
        (0.97, 1.02, {"change": "stays", "by": "5 %"}, judging.HELD),
        (0.80, 1.03, {"change": "falls"}, judging.OPEN),
        (0.80, 1.03, {"change": "stays", "by": "5 %"}, judging.OPEN),
        (0.995, 0.998, {"change": "falls"}, judging.REFUTED),
        (1.30, 1.40, {"change": "falls"}, judging.REFUTED),
        (1.30, 1.40, {"change": "rises", "by": "20 %"}, judging.HELD),
        (math.nan, math.nan, {"change": "falls"}, judging.OPEN),
    ]:
        made = Claim.model_validate({"quantity": "op_time", **claim})
        assert judging.verdict_reason(made, Estimate((low * high) ** 0.5, low, high, 9), 0.01) == verdict


def test_a_claim_on_an_extent_that_the_size_sets_is_judged_at_every_size_that_it_names():
    gains = {256: 3.0, 1024: 2.0, 4096: 1.25}

    def speedup(variant, layer, size, over, kind):
        return SimpleNamespace(ratio=Estimate(gains[size], gains[size], gains[size], 9), paired=True)

    times = SimpleNamespace(speedup=speedup, op=lambda *place: Estimate(1.0, 1.0, 1.0, 9))
    measuring = SimpleNamespace(measuring=SimpleNamespace(equivalence_margin=0.01))
    cases = case_sets.find("gemm").cases[:2]  # square: m = n = k = size; tall: m = size, n = 64
    ev = SimpleNamespace(sizes=[*gains], largest=4096, layers=cases, times=times, config=measuring, case_word="case")

    def judged(**claim):
        one = judging.ClaimVerdicts(ev).judge(
            SHIPPED["gemm/tiled"], Claim.model_validate({"quantity": "gpu_time"} | claim)
        )
        return one.verdict, [(figure.layer, figure.size) for figure in one.figures]

    square, small = {"n": {"at_least": 65}}, {"m": {"at_most": 1024}}
    assert judged(change="falls", where=square) == ("held", [("square", size) for size in gains])
    assert judged(change="falls", by="45 %", where=square)[0] == "partly"
    places = [(layer, size) for layer in ("square", "tall") for size in (256, 1024)]
    assert judged(change="falls", by="45 %", where=small) == ("held", places)
    assert judged(change="falls", where={"k": {"is": 512}}) == ("held", [("tall", 4096)])
    larger = judged(change="falls", where={"n": {"is": 1024}}, more_than={"n": {"at_least": 4096}})
    assert larger == ("held", [("square", 1024)])
    assert judged(change="falls", where={"n": {"is": 4096}}, more_than={"n": {"is": 1024}})[0] == "refuted"


def test_where_every_interval_holds_both_outcomes_a_claim_is_undecided_and_no_longer_where_one_decides():
    both = judging.ClaimValue("conv1", 10, 1.0, 1.0, Estimate(1.0, 0.9, 1.1, 9))
    single = replace(both, change=Estimate(1.0, -math.inf, math.inf, 1))
    assert judging._combine_verdicts((both,)) == ("undecided", "the interval holds both")
    assert judging._combine_verdicts((single,)) == ("undecided", "a single sample has no interval")
    assert judging._combine_verdicts((both, replace(both, says=judging.REFUTED)))[0] == "refuted"


def test_a_change_by_the_host_s_clock_that_the_gpu_s_does_not_confirm_decides_no_claim():
    def judged(by_host: tuple[float, float], by_gpu: tuple[float, float], **claim):
        ratios = {kind: Estimate(sum(ends) / 2, *ends, 9) for kind, ends in [("op", by_host), ("gpu", by_gpu)]}
        times = SimpleNamespace(
            speedup=lambda *_, kind, over: SimpleNamespace(ratio=ratios[kind], paired=True),
            op=lambda *_: Estimate(1.0, 1.0, 1.0, 9),
        )
        measuring = SimpleNamespace(measuring=SimpleNamespace(equivalence_margin=0.01))
        case = case_sets.find("gemm").cases[0]
        ev = SimpleNamespace(sizes=[64], largest=64, layers=[case], times=times, config=measuring, case_word="case")
        asked = Claim.model_validate({"quantity": "op_time"} | claim)
        one = judging.ClaimVerdicts(ev).judge(SHIPPED["gemm/tiled"], asked)
        return one.verdict, one.reason

    faster, still, slower = (1.05, 1.06), (0.995, 1.008), (0.9, 0.92)
    unconfirmed = ("undecided", "the GPU's clock does not confirm the host's")
    assert judged(faster, faster, change="falls") == ("held", "")
    assert judged(faster, still, change="falls") == judged(faster, slower, change="falls") == unconfirmed
    assert judged(slower, still, change="falls") == judged(slower, still, change="stays", by="2 %") == unconfirmed
    assert judged(slower, slower, change="falls") == judged(still, slower, change="falls") == ("refuted", "")
    assert judged(slower, still, change="stays", by="20 %") == ("held", "")


def test_the_figure_that_a_test_needs_is_said_where_the_words_do_not_name_it():
    def needed(says: str, **test: object) -> str:
        return claim_table._needed(Claim.model_validate({"says": says, "quantity": "op_time"} | test))

    assert needed("up to 2.5 times", change="falls", by="20 %") == "falls by at least 20\u202f% needed: "
    assert needed("faster by 20 %", change="falls", by="20 %") == ""
    assert needed("faster", change="falls") == ""
