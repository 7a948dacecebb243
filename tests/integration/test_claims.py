"""Claims: what the archived run makes of those that ship."""

import copy

import pytest

from small_run import shipped
from warpbook.common import units
from warpbook.kernels.claims import Claim
from warpbook.report.evidence import Evidence
from warpbook.report.evidence import claim_verdicts as judging
from warpbook.report.views import claim_table as claims_view
from warpbook.runs import catalog, tables

SHIPPED = shipped()


def said_of(ev, variant, words):
    """The verdict on the claim of a variant that quotes these words; the last where several do."""
    return [one for one in ev.claims.for_variant(variant) if words in one.claim.says][-1]


def test_expectations_that_failed_are_refuted_with_their_figures(ev):
    tables_of_claims = claims_view.full_claim_table(ev), claims_view.claim_table_view(ev).failed
    for variant, words in {
        "channel_atomics": "most on first layers",
        "fft": "the transforms cost more than they save",
        "channel_tree": "shorter calls where a few images",
    }.items():
        judged = said_of(ev, variant, words)
        assert judged.verdict == "refuted", variant
        assert judged.figures and claims_view.verdict_values(judged)
        told = claims_view.claims_by_verdict(ev, variant)
        assert any("refuted" in each.verdict and words in " ".join(each.words) for each in told), variant
        for table in tables_of_claims:
            assert any(row[0].split()[0] == variant and words in row[1] for row in table.rows), variant


def test_a_claim_that_held_nowhere_is_not_said_to_have_held_in_some_places(ev):
    judged = said_of(ev, "fused_unroll_gemm", "Against direct little or nothing")
    assert {figure.says for figure in judged.figures} == {judging.REFUTED, judging.SHORT}
    assert judged.reason == "in some places the direction is right, the amount is not, refuted in others"


def test_a_layer_that_a_kernel_is_not_for_is_none_that_its_claims_lack(ev):
    variant = ev.plan.variants["fp16x3_wgmma"]
    claim = Claim.model_validate({"quantity": "op_time", "change": "falls", "where": {"N": {"at_least": 10_000}}})
    judged = ev.claims.judge(variant, claim)
    assert [figure.layer for figure in judged.figures] == ["conv2"]
    assert (judged.verdict, judged.reason) == ("held", "")


def test_a_row_of_a_claim_names_what_a_change_is_over_so_that_two_of_the_same_words_are_told_apart(ev):
    rows = claims_view.full_claim_table(ev).rows
    rises = {row[0]: row[3] for row in rows if row[2] == "op time rises"}
    assert {"channel_atomics over channel_tree", "unroll_gemm over direct"} <= set(rises)
    assert len({str(verdict) for verdict in rises.values()}) > 1
    values = [row[0] for row in rows if row[2].startswith("throughput of L1 and shared memory: at least")]
    assert values and not any(" over " in name for name in values)
    against = [row[0] for row in rows if ", against " in row[2]]
    assert against and not any(" over " in name for name in against)


def test_load_instructions_are_told_from_sectors(ev):
    by_instruction = next(
        one for one in ev.claims.for_variant("constant_weights") if "op_global_ld" in one.claim.quantity
    )
    if "smsp__inst_executed_op_global_ld.sum" not in set(ev.counters.table.metric):
        assert by_instruction.verdict == "not testable"
        assert "did not read load instructions" in by_instruction.reason
    # A warp's load of one weight is one sector: as many go as there are warps and taps.
    one_a_warp_and_tap = said_of(ev, "constant_weights", "Up to half of the global load instructions")
    assert one_a_warp_and_tap.verdict == "held"
    assert [figure.claimed for figure in one_a_warp_and_tap.figures] == [180_000_000, 624_000_000]
    assert said_of(ev, "coarsened", "Nearly half of the load instructions").verdict == "held"


def test_a_claim_about_what_the_study_lacks_is_not_testable_and_says_so(ev):
    judged = said_of(ev, "fft", "more for K = 7 than for 5")
    assert judged.verdict == "not testable"
    assert judged.reason == "the study has no layer or size with K = 7"


def test_without_counters_claims_about_them_are_not_testable(archive, rewritten, evidence_of, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where no older run has any
    rewritten(archive, "counters.csv", lambda content: content.splitlines(keepends=True)[0])
    variant = SHIPPED["shared_input"]
    judged = evidence_of(archive).claims.judge(variant, variant.header.claims[0])
    assert judged.verdict == "not testable"
    assert judged.reason == "hardware counters were not read in this run"


def test_a_comparison_not_taken_in_turn_concludes_nothing_that_drift_between_jobs_could_make(ev):
    apart = {
        variant.name: speedup.ratio
        for variant in ev.ranking.measured_variants("gpu")
        if variant.header.builds_on and (speedup := ev.times.total_speedup(variant.name, ev.largest)).paired is False
    }
    assert apart
    for name, ratio in apart.items():
        drift = max(
            min(ev.times.drift.limit(one, ev.largest, layer) for layer in ev.layer_names)
            for one in (name, ev.plan.variants[name].header.builds_on)
        )
        assert drift > 0
        assert ratio.low * (1 + drift) <= ratio.value <= ratio.high / (1 + drift)
    assert ev.times.total_speedup("unroll_gemm_streams", ev.largest).verdict == "ambiguous"


def test_the_interval_of_a_ratio_over_a_library_holds_what_that_library_s_time_differs_by_between_jobs(ev):
    peer = ev.ranking.best_peer.name
    most = max(abs(one.change) for one in ev.times.drift.differences if (one.variant, one.size) == (peer, ev.largest))
    ratio = ev.times.total_speedup(ev.ranking.best.name, ev.largest, over=peer).ratio
    assert most > 0.02  # it chose another algorithm in another process
    assert ratio.high > ratio.value * (1 + most)
    assert ratio.low < ratio.value / (1 + most)


def test_drift_is_of_a_variant_in_its_own_job_and_in_another_s(ev):
    differences = ev.times.drift.differences
    assert {one.variant for one in differences} >= {"direct", "unroll_gemm"}
    assert all(one.variant != one.job for one in differences)
    assert 0 < ev.times.drift.limit("direct", ev.largest, "conv1") < 0.1


def test_drift_on_one_layer_does_not_widen_a_comparison_on_another(ev):
    on_layer = [max(ev.times.drift.between_jobs("gpu", ev.largest, layer)) for layer in ev.layer_names]
    assert on_layer[0] != on_layer[1] and max(on_layer) == max(ev.times.drift.between_jobs("gpu", ev.largest))


def test_a_study_has_a_tally_and_a_refuted_claim_with_its_figures(ev):
    told = claims_view.tally_claims(ev)
    assert any(told.example.endswith(claims_view.verdict_values(one)) for one in ev.claims.refuted)


def test_the_chapter_counts_every_claim_once(ev):
    total = claims_view.claim_table_view(ev).tally
    assert total.claims == len(ev.claims.judged)
    assert sum(int(part.split()[0]) for part in total.verdicts.split(", ")) == total.claims


def test_words_of_which_two_tests_were_made_are_told_with_the_test_and_others_alone(ev):
    repeated = []
    for variant in {one.variant for one in ev.claims.judged}:
        told = [words for each in claims_view.claims_by_verdict(ev, variant) for words in each.words]
        assert len(told) == len(set(told)) == len(ev.claims.for_variant(variant))
        for claim in (one.claim for one in ev.claims.for_variant(variant)):
            alone = sum(one.claim.says == claim.says for one in ev.claims.for_variant(variant)) == 1
            quoted = f"“{claim.says.removeprefix(claim.quantity).strip()}”"
            assert any(words.endswith(quoted) for words in told) == (alone and bool(claim.says))
            repeated += [variant] * (not alone and bool(claim.says))
    assert repeated


def test_words_that_begin_with_a_counter_s_verb_stand_behind_what_it_counts(ev):
    told = [words for each in claims_view.claims_by_verdict(ev, "channel_atomics") for words in each.words]
    assert "sectors of atomics on global memory: “rises against channel_tree”" in told
    told = [words for each in claims_view.claims_by_verdict(ev, "channel_tree") for words in each.words]
    assert "instructions, counted once a warp: “rises against direct”" in told
    verbs = ("“falls", "“rises", "“stays", "“smsp__", "“l1tex__", "“sm__", "“lts__")
    assert not any(words.startswith(verbs) for row in claims_view.full_claim_table(ev).rows for words in row[1:2])


def test_a_claim_about_memory_traffic_is_judged_against_the_memory_bound_and_says_so(newest_archive, opened, planned):
    whole = opened(newest_archive)
    record = copy.deepcopy(whole.record)
    record["machine"]["gpu"]["copy_gb_per_s"] = 4150.0
    faster = catalog.Run(whole.path, record, {table.name: whole.table(table) for table in tables.RUN_TABLES})
    ev = Evidence(planned(study="ece408", measuring=record["measuring"]), "ece408", faster)
    ev.gpu_run = faster
    layer, size = ev.layers[0], ev.largest
    assert (
        ev.times.limiting_resource(layer, size) == "FP32 arithmetic"
    )  # the larger of the two, which is none of traffic
    judged = said_of(ev, "fp16x3_mma", "First layers come near the time of their memory traffic")
    (figure,) = judged.figures
    gpu = ev.gpu_run.gpu
    bound_ms = layer.at(size).bytes / (gpu["copy_gb_per_s"] * 1e6)
    assert figure.after == pytest.approx(ev.times.op("fp16x3_mma", layer.name, size, "gpu").value / bound_ms)
    assert judged.verdict == "refuted"  # over the other bound it would have held
    assert figure.after > 1.5 > figure.after * bound_ms / ev.times.fp32_bound_ms(layer, size)
    assert claims_view.verdict_values(judged) == f"conv1 {units.ratio(figure.after)} the time of a copy of its bytes"
    assert claims_view.claim_words(judged.claim).startswith("GPU time over that of a copy of its bytes: at most 1.50×")


def test_a_time_over_the_fp32_bound_says_what_makes_the_bound_on_each_layer(ev):
    judged = said_of(ev, "layer_specialised", "near the larger of two bounds")
    conv1, conv2 = (units.ratio(figure.after) for figure in judged.figures)
    told = claims_view.verdict_values(judged)
    assert f"conv1 {conv1} the bound of memory bandwidth; conv2 {conv2} the bound of FP32 arithmetic" in told
