"""The executive page: what changed since the run before."""

import copy
import re
from dataclasses import replace
from types import SimpleNamespace

import probe_machine
from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.report.evidence import Evidence, ranking
from warpbook.report.evidence.ranking import Ranking
from warpbook.report.figures import time_plots
from warpbook.report.views import cell_markup, executive
from warpbook.runs import catalog, tables


def test_what_changed_since_the_run_before_is_told_of_the_study_s_own_kernels(ev, monkeypatch, opened, small_archive):
    def row(variant: str, verdict: str = "faster") -> SimpleNamespace:
        place = SimpleNamespace(network="fa18", device="gpu", size=ev.largest, variant=variant)
        return SimpleNamespace(place=place, speedup=Estimate(2.0, 1.9, 2.1, 9), verdict=verdict)

    moved = [row("direct"), row("of_another_study"), row("shared_input", "same")]
    earlier = replace(opened(small_archive))  # another object than the run that the report is of
    compared = SimpleNamespace(obstacles={}, movements=moved)
    monkeypatch.setattr(
        catalog,
        "earlier_runs_of_model",
        lambda run, network: [earlier] if run is ev.gpu_run and network == "fa18" else [],
    )
    monkeypatch.setattr(
        executive, "Comparison", lambda base, head, _: compared if base is earlier and head is ev.gpu_run else None
    )
    said = dict(executive.executive_view(ev).facts.rows)["Since the last run"]
    assert said == f"against run {small_archive.stem}: direct 2.00×, faster"
    moved.pop(0)
    assert "Since the last run" not in dict(executive.executive_view(ev).facts.rows)


def test_nothing_is_compared_with_the_run_before_of_another_gpu_model(ev, monkeypatch, opened, small_archive):
    def before(model: str) -> catalog.Run:
        record = copy.deepcopy(ev.gpu_run.record) | {"run_id": model, "ended": "2026-01-01T00:00:00+00:00"}
        record["machine"]["gpu"]["name"] = model
        return replace(opened(small_archive), record=record)

    models = ["NVIDIA Other", ev.gpu_run.gpu["name"]]
    monkeypatch.setattr(catalog, "gpu_runs", lambda _: list(map(before, models)))
    assert [run.run_id for run in catalog.earlier_runs_of_model(ev.gpu_run, "fa18")] == models[1:]


def best_sentence(ev):
    return next(one.text for one in executive.executive_view(ev).findings if one.label == "Best")


def test_a_kernel_that_is_ahead_on_one_layer_is_named_with_the_time_of_both_together(ev, evidence_of, small_archive):
    assert ({*ev.ranking.faster_variants}, ev.ranking.best.name) == ({"conv2"}, "fp16x3_mma")
    times = [
        ev.times.op(name, layer, ev.largest) for name, layer in (("fp16x3_mma", "conv1"), ("fp16x3_wgmma", "conv2"))
    ]
    together = units.time(sum(time.value for time in times))
    assert f". fp16x3_wgmma on conv2 cuts this to {together}" in best_sentence(ev)
    assert "fp16x3_wgmma" in time_plots.op_times(ev)
    first, second = (ev.checks.for_variant(name) for name in ("fp16x3_mma", "fp16x3_wgmma"))
    (correct,) = (one.text for one in executive.executive_view(ev).findings if one.label == "Correct?")
    said = f"Yes: fp16x3_mma passes {first.tests} of {first.tests} tests against float64, and no label differs"
    assert correct == f"{said}; fp16x3_wgmma {second.tests} of {second.tests}."
    changed = evidence_of(small_archive)
    failed = replace(changed.checks.for_variant("fp16x3_wgmma"), passed=second.tests - 1)
    of_any = changed.checks.for_variant
    changed.checks.for_variant = lambda name: failed if name == "fp16x3_wgmma" else of_any(name)
    (correct,) = (one.text for one in executive.executive_view(changed).findings if one.label == "Correct?")
    assert correct.startswith("No: fp16x3_mma passes")
    changed = evidence_of(small_archive)
    changed.ranking.faster_variants = {}
    assert "fp16x3_wgmma" not in best_sentence(changed) + time_plots.op_times(changed)


def test_where_the_best_takes_tensor_cores_the_fastest_in_plain_fp32_is_named_beside_the_library(
    ev, evidence_of, small_archive
):
    plain, peer = ev.ranking.best_plain, ev.ranking.best_peer
    assert (plain.name, plain.header.split) == ("layer_specialised", None)
    ratio = units.ratio(ev.times.total_speedup(plain.name, ev.largest, over=peer.name).ratio.value)
    said = f"Without tensor cores, in plain FP32, {plain.name} is our fastest. Speed: {ratio} that of {peer.name}"
    assert said in best_sentence(ev)
    other = evidence_of(small_archive)
    other.ranking.best_plain = None  # as where the best itself is plain
    assert "in plain FP32" not in best_sentence(other)


def test_a_short_call_is_held_against_its_bound_by_gpu_time_too(ev, monkeypatch):
    total, of_best = ev.times.total, ev.ranking.best.name
    bound = ev.times.total_method_bound_ms(of_best, ev.largest)
    shares = [units.percent(bound / total(of_best, ev.largest, kind=kind).value, 0) for kind in ("op", "gpu")]
    assert f"{shares[0]} of what the hardware allows this method. " in best_sentence(ev)
    monkeypatch.setattr(executive, "LAUNCH_SHARE", 0.0)
    assert (
        f"{shares[0]} of what the hardware allows this method ({shares[1]} by GPU time: without the launch"
        in best_sentence(ev)
    )


def test_variants_that_together_are_far_ahead_of_the_best_alone_come_first(ev, monkeypatch):
    assert best_sentence(ev).startswith("fp16x3_mma computes both layers")
    monkeypatch.setattr(executive, "FAR_AHEAD", 1.0)
    together = units.time(ev.times.sum_over(ev.ranking.composite, ev.largest).value)
    assert best_sentence(ev).startswith(
        "fp16x3_wgmma on conv2, and fp16x3_mma elsewhere. "
        f"Together they compute both layers at {ev.at_size(ev.largest)} in {together}. Speed: 1."
    )


def faster(ev, variant, layer, factor):
    """The evidence in whose run all times of a variant on a layer are so many times shorter."""
    samples = ev.gpu_run.table(tables.SAMPLES).copy()
    samples.loc[(samples.variant == variant) & (samples.layer == layer), "time_ms"] /= factor
    other = Evidence(ev.plan, "fa18", ev.gpu_run)
    other.gpu_run = replace(ev.gpu_run, loaded={**ev.gpu_run.loaded, tables.SAMPLES.name: samples})
    return other


def test_recorded_times_that_no_gpu_can_take_are_refused_with_the_reason_and_make_no_headline(ev):
    assert ev.ranking.best.name == "fp16x3_mma" and ev.times.op("direct", "conv1", ev.largest)
    for variant, factor, why in [
        ("fp16x3_mma", 30, "is below the hardware's lower bound of "),
        ("direct", 4, " under the profiler"),  # above the bound, and far below what its kernels took
    ]:
        forged = faster(ev, variant, "conv1", factor)
        assert forged.times.op(variant, "conv1", ev.largest) is None
        assert forged.times.op(variant, "conv2", ev.largest) == ev.times.op(variant, "conv2", ev.largest)
        assert forged.ranking.best.name == ("layer_specialised" if variant == "fp16x3_mma" else "fp16x3_mma")
        problems = forged.problems.for_variant(variant)
        assert {*problems.status} == {"refused"}
        assert any(reason.startswith("impossible: ") and why in reason for reason in problems.reason)
    slower = faster(ev, "fp16x3_mma", "conv1", 1.02)
    assert slower.ranking.best.name == "fp16x3_mma"


def test_versions_of_cudnn_and_cublas_stand_in_the_box_of_a_run_that_has_them_and_are_not_missed_in_another(
    evidence_of, small_archive
):
    ev = evidence_of(small_archive)
    packages = ev.gpu_run.record["machine"]["packages"]
    for library in ("cuDNN", "cuBLAS"):
        packages.pop(library, None)
    assert "cuDNN" not in dict(executive.executive_view(ev).facts.rows)["Software"]
    packages |= {"cuDNN": probe_machine.dotted_version(91002), "cuBLAS": probe_machine.dotted_version(130100)}
    assert "; cuDNN 9.10.2; cuBLAS 13.1.0; torch " in dict(executive.executive_view(ev).facts.rows)["Software"]
    assert probe_machine.dotted_version(8907) == "8.9.7"  # before cuDNN 9


def test_the_page_tells_what_the_whole_network_takes_as_one_call(ev):
    said = {one.label: one.text for one in executive.executive_view(ev).findings}
    ours, theirs = (ev.networks.fastest(ev.largest, peers) for peers in (False, True))
    alone = said["Program"].partition("GPU time of the network alone: ")[2]
    for one in (ours, theirs):
        assert f"{units.time(ev.networks.time(one.name, ev.largest).value)} with {one.name}" in alone


def test_a_library_s_call_that_runs_the_kernels_of_another_is_named_with_that(ev):
    def library(name: str, below: str, kernel: str) -> SimpleNamespace:
        return SimpleNamespace(
            name=name, stem=name, kernel=kernel, header=SimpleNamespace(builds_on=below, peer=name != "naive")
        )

    every = [
        library("naive", "", "mine"),
        library("fp32", "naive", "sgemm"),
        library("emulated", "fp32", "sgemm"),
        library("tf32", "fp32", "tgemm"),
    ]
    told = SimpleNamespace(
        layer_names=["square"],
        plan=SimpleNamespace(variants={one.name: one for one in every}),
        counters=SimpleNamespace(kernels_launched={one.name: {one.kernel} for one in every}),
    )
    told.ranking = Ranking(told)
    named = [cell_markup.library_words(told, one) for one in every]
    assert named == ["naive", "fp32", "emulated (kernels of fp32)", "tf32"]
    told.ranking.best_peer = every[2]
    runs = "emulated is the fastest library at FP32 accuracy"
    assert executive._peer_sentence(told) == f"{runs}; here it runs the kernels of fp32"
    told.counters.kernels_launched.clear()
    assert cell_markup.library_words(told, every[2]) == "emulated"
    assert executive._peer_sentence(told) == runs


def test_the_page_tells_the_convolutions_share_of_each_whole_program_and_how_often_that_ran(ev):
    said = next(one.text for one in executive.executive_view(ev).findings if one.label == "Program")
    of_naive, of_best = ev.ranking.naive.stem, ev.ranking.best.stem
    runs = len(ev.programs.runs(ev.ranking.naive.name, ev.largest))
    whole = rf"With {of_naive} the whole program takes [\d.]+\s?m?s{rf' .median of {runs}.' if runs > 1 else ''}"
    shares = rf"the convolutions [\d.]+\s?% of that, and [\d.]+\s?% with {of_best}"
    assert re.match(
        rf"{whole}, {shares}\. Faster kernels save no measurable time\. GPU time of the network alone: ", said
    ), said


def test_a_library_that_wins_a_layer_is_named_though_the_sum_over_the_layers_hides_it(ev):
    assert "the speed of cudnn_fp32" not in best_sentence(ev) and "accuracy is faster" not in best_sentence(ev)
    behind = faster(faster(ev, "fp16x3_mma", "conv2", 0.6), "cudnn_fp32", "conv2", 3.2)
    assert behind.ranking.best == ev.ranking.best
    speedup = behind.times.speedup("fp16x3_mma", "conv2", ev.largest, over=behind.ranking.fastest_peer("conv2").name)
    assert f"On conv2, fp16x3_mma has {units.ratio(speedup.ratio.value)} the speed of cudnn_fp32" in best_sentence(
        behind
    )


def test_a_chart_has_the_libraries_the_start_and_the_fastest_and_no_more_than_can_be_told_apart(ev, monkeypatch):
    monkeypatch.setattr(ranking, "MOST_SHOWN", 1)
    other = Evidence(ev.plan, "fa18", ev.gpu_run)
    shown = {one.name for one in other.ranking.foremost("gpu")}
    peers = {one.name for one in other.ranking.measured_variants("gpu", peers=True)}
    assert shown == peers | {"direct", "layer_specialised", "fp16x3_mma", "fp16x3_wgmma"}
    assert {one.name for one in other.ranking.measured_variants("gpu")} - shown


def test_one_sample_tells_what_is_many_times_slower_and_nothing_of_what_is_near(ev):
    other = Evidence(ev.plan, "fa18", ev.gpu_run)
    samples = other.times.samples
    other.times.samples = samples.groupby(["job", "variant", "layer", "size", "state", "kind"]).head(1)
    far, near = (other.times.total_speedup(name, other.largest, over="direct") for name in ("unroll_gemm", "coarsened"))
    assert (far.ratio.n, far.verdict, far.compared) == (1, "slower", "slower than")
    assert far.rough and cell_markup.ratio_cell(far).count("≈") == 1
    assert (near.verdict, near.compared) == ("ambiguous", "inconclusive against")


def test_on_the_first_chart_a_mark_moves_with_the_bound_of_each_variant_s_own_method(ev, monkeypatch):
    drawn = time_plots.op_times(ev)
    bound = ev.times.method_bound_ms
    best = ev.ranking.best.name
    halved = lambda name, case, size: bound(name, case, size) / (2 if name == best else 1)  # noqa: E731
    monkeypatch.setattr(ev.times, "method_bound_ms", halved)
    moved = set(time_plots.op_times(ev).split(">")) - set(drawn.split(">"))
    assert len(moved) == len(ev.layers)


def test_a_kernel_that_may_be_as_fast_as_the_best_is_named_and_one_that_is_slower_is_not(evidence_of, small_archive):
    ev = evidence_of(small_archive)
    rival = next(one for one in ev.ranking.fastest_first if not one.header.peer and one != ev.ranking.best)
    assert "may be as fast" not in best_sentence(ev)
    judged = ev.times.total_speedup
    tie = replace(judged(ev.ranking.best.name, ev.largest, over=rival.name), verdict="ambiguous")
    ev.times.total_speedup = lambda name, size, over="", **kind: (
        tie if over == rival.name and not kind else judged(name, size, over=over, **kind)
    )
    assert f". {rival.stem} may be as fast." in best_sentence(ev)


def test_where_launches_count_in_a_ratio_over_a_library_that_of_gpu_times_stands_beside_it(evidence_of, small_archive):
    ev = evidence_of(small_archive)
    best, peer = ev.ranking.best, ev.ranking.best_peer
    by_gpu = ev.times.total_speedup(best.name, ev.largest, over=peer.name, kind="gpu")
    judged, words = ev.times.total_speedup, f"that of {peer.stem} ({units.ratio(by_gpu.ratio.value)} by GPU time)"
    for factor, is_said in ((1.05, False), (1.2, True)):
        estimate = replace(by_gpu.ratio, value=by_gpu.ratio.value * factor)
        by_op = replace(judged(best.name, ev.largest, over=peer.name), ratio=estimate)
        ev.times.total_speedup = lambda name, size, over="", kind="op", by_op=by_op: (
            by_op if (over, kind) == (peer.name, "op") else judged(name, size, over=over, kind=kind)
        )
        assert (words in best_sentence(ev)) == is_said
