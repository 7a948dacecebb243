"""The chapter on optimizations as a view: what it shows of the archived run, and what of one that lacks figures."""

import dataclasses
import html
import itertools
import json
import re
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from markupsafe import Markup

from warpbook.common import units
from warpbook.config import settings
from warpbook.profiling import counters
from warpbook.report import trace_layout
from warpbook.report.figures import style
from warpbook.report.views import last_page, milestone_4, profile_tables
from warpbook.report.views.supplement import all_times


def without(names):
    """A change of run.json after which these variants' figures are stale."""

    def change(content):
        record = json.loads(content)
        for name in names:
            record["variants"][name]["source_sha256"] = "0" * 64
        return json.dumps(record).encode()

    return change


@pytest.fixture(scope="module")
def measured(ev, sections) -> list:
    """Sections of the optimizations that have figures: the archived run may be older than the newest variant."""
    names = [variant.name for variant in ev.ranking.measured_variants("gpu")]
    return [one for one in sections if one.name in names]


def test_every_measured_optimization_has_a_line_an_outcome_a_chart_and_its_change_of_code(
    ev, chapter, sections, measured
):
    tried = [one.name for one in ev.compared_variants("gpu") if one.header.builds_on and not one.header.peer]
    assert sorted(one.name for one in sections) == sorted(tried)

    for one in measured:
        speedup = ev.times.total_speedup(one.name, ev.largest)
        assert speedup.verdict in one.outcome.verdict or (one.outcome.verdict, speedup.verdict) == ("", "ambiguous")
        assert one.outcome.judged == len(ev.layers) * len(ev.sizes)
        assert sum(int(words.split()[0]) for words in one.outcome.tally.split(", ")) == one.outcome.judged

    for one in measured:
        words = one.figure.alt
        for layer in ev.layer_names:
            for size in ev.sizes:
                shown = units.ratio(ev.times.speedup(one.name, layer, size).ratio.value)
                assert f"{shown} at {units.count(size)}" in words.partition(f"{layer} ")[2]

    for one in sections:
        assert one.change.file.startswith(one.name) and one.change.over.startswith(one.baseline)
        assert {"+", "\N{MINUS SIGN}"} & {line.sign for line in one.change.lines}


def test_the_ladder_has_every_variant_and_the_best_of_each_layer_together_the_fastest_first(ev, chapter):
    table = chapter.ladder
    assert [column.label for column in table.head[1:4]] == ["conv1", "conv2", "Op time"]
    names = [Markup(row[0]).striptags().removesuffix(" (library)") for row in table.rows]
    measured = [one.name for one in ev.ranking.fastest_first]
    together = "conv1 by fp16x3_mma, conv2 by fp16x3_wgmma"
    assert [name for name in names if name in measured] == measured
    assert {*names} >= {*measured, together, "fp16x3_wgmma"}
    assert names.index(together) < names.index("fp16x3_mma")
    rows = dict(zip(names, table.rows, strict=True))
    parts = [
        ev.times.op(name, layer, ev.largest) for name, layer in (("fp16x3_mma", "conv1"), ("fp16x3_wgmma", "conv2"))
    ]
    assert units.time(sum(one.value for one in parts)) in rows[together][3]
    assert rows["fp16x3_wgmma"][1] == rows["fp16x3_wgmma"][3] == "–"  # conv2 alone
    assert rows["fp16x3_wgmma"][-1].endswith(" than fp16x3_mma, conv2")
    assert (rows["direct"][-3], rows["direct"][-1]) == ("1×", "starting point")


def test_the_chapter_tells_in_full_what_is_asked_for_and_the_supplement_has_the_rest(ev, chapter, small_document):
    told = {one.name for one in chapter.optimizations}
    asked = {place.removeprefix("m4-") for place in ev.study.deliverables.values() if place.startswith("m4-")}
    leading = {step.name for step in ev.ranking.chain(ev.ranking.best)[1:]}
    assert asked | leading <= told
    others = [one.name for one in milestone_4.remaining_optimizations(ev)]
    assert 0 < len(others) == chapter.others and not told & {*others}
    supplement = small_document.index('<h1 id="supplement-builds"')
    rungs = {str(row[0]) for row in chapter.ladder.rows}
    for name in others:
        assert small_document.index(f'<h2 id="m4-{name}"') > supplement
        assert f'<a class="elsewhere" href="#m4-{name}">{name}</a>' in rungs
    for one in chapter.optimizations:
        assert small_document.index(f'<h2 id="m4-{one.name}"') < supplement


def test_a_kernel_that_no_run_holds_or_the_run_before_did_not_is_told_in_full(
    ev, evidence_of, small_archive, monkeypatch
):
    fresh = milestone_4.remaining_optimizations(ev)[0].name
    others = {name: one for name, one in ev.gpu_run.record["variants"].items() if name != fresh}
    before = SimpleNamespace(record={"variants": others})
    monkeypatch.setattr(milestone_4.catalog, "run_before", lambda *_: before)
    archived = evidence_of(small_archive)
    archived.local = dataclasses.replace(archived.gpu_run)
    assert fresh in {one.name for one in milestone_4.remaining_optimizations(archived)}
    assert fresh not in {one.name for one in milestone_4.remaining_optimizations(ev)}
    # Of many new ones those without a time of each layer, and then the fastest.
    measured = evidence_of(small_archive)
    measured.problems.table = ev.problems.table.head(0)
    before.record["variants"] = {*ev.gpu_run.record["variants"]}
    rest = {one.name for one in milestone_4.remaining_optimizations(measured)}
    described = len(milestone_4.milestone_4_view(measured).optimizations)
    before.record["variants"] = {}
    monkeypatch.setattr(milestone_4, "MOST_DESCRIBED", described + 2)
    fastest = next(one.name for one in ev.ranking.fastest_first if one.name in rest)
    left = rest - {one.name for one in milestone_4.remaining_optimizations(measured)}
    assert left == {"fp16x3_wgmma", fastest} and len(rest) > 2
    monkeypatch.undo()
    lacking = evidence_of(small_archive)
    lacking.problems.table = pd.DataFrame(
        [[fresh, "gpu", (), (), (), "not_measured", "the run has no time of it"]], columns=ev.problems.table.columns
    )
    assert fresh not in {one.name for one in milestone_4.remaining_optimizations(lacking)}


def test_a_gain_in_turn_stands_beside_that_by_two_jobs_where_the_baseline_s_own_times_differ(
    evidence_of, few_variants, small_archive
):
    few = few_variants["studies"]
    studies = few | {"fa18": few["fa18"] | {"variants": ["direct", "constant_weights"], "deliverables": {}}}
    for kind, factor in (("op", 1.1), ("gpu", 1.1), ("op", 1.01)):
        ev = evidence_of(small_archive, studies=studies)
        samples = ev.times.samples
        own = (samples.job == "direct") & (samples.kind == kind)
        ev.times.samples = samples.assign(time_ms=samples.time_ms.where(~own, samples.time_ms * factor))
        (one,) = milestone_4.milestone_4_view(ev).optimizations + milestone_4.remaining_optimizations(ev)
        paired, shown = ev.times.total_speedup("constant_weights", ev.largest, kind=kind).ratio, one.outcome
        other = {"op": shown.on_gpu_apart, "gpu": shown.apart}[kind]
        apart = {"op": shown.apart, "gpu": shown.on_gpu_apart}[kind]
        assert not other and bool(apart) is (factor > 1.02), (kind, factor)
        if apart:
            totals = [ev.times.total(name, ev.largest, kind).value for name in ("direct", "constant_weights")]
            printed = re.search(r">([\d.]+)×<sup>†", apart)
            assert float(printed[1]) == pytest.approx(totals[0] / totals[1], rel=0.005)
            assert totals[0] / totals[1] > paired.high


def test_an_optimization_for_one_of_two_layers_is_told_with_what_it_did_there(ev, sections, small_document):
    (reuse,) = (one for one in sections if one.name == "fp16x3_wgmma")
    gain = ev.times.speedup("fp16x3_wgmma", "conv2", ev.largest)
    assert reuse.outcome is None and "conv1" in reuse.problems[0]
    (alone,) = reuse.alone
    assert alone.where == "conv2 alone, at 10\u202f000 images"
    assert f">{gain.ratio.value:.3f}×" in str(alone.speedup) and gain.verdict in str(alone.verdict)
    assert " ".join(f"on {alone.where}: {alone.verdict}".split()) in " ".join(small_document.split())
    assert reuse.figure.alt.count("conv") == 1
    assert not any(one.alone for one in sections if not one.problems)


def test_an_optimization_that_turns_at_a_smaller_size_says_where(ev, measured):
    turned = [one for one in measured if one.outcome.elsewhere]
    assert turned
    for one in turned:
        assert one.outcome.elsewhere_verdict == ("slower" if "faster" in one.outcome.verdict else "faster")
        sizes = [size for size in ev.sizes if str(size) in one.outcome.elsewhere]
        wanted = one.outcome.elsewhere_verdict
        assert {ev.times.total_speedup(one.name, size).verdict for size in sizes} == {wanted}


def test_chains_are_waterfalls_with_every_step_s_time_and_the_marks_that_its_speedup_has(ev, chapter):
    assert ev.ranking.chains
    for chain in ev.ranking.chains:
        told = [f"{step.name} {units.time(ev.times.total(step.name, ev.largest).value)}" for step in chain]
        assert chapter.chains.alt.count(", ".join(told)) == 1

    words = html.unescape(chapter.chains.svg)
    for chain in ev.ranking.chains:
        for last, step in itertools.pairwise(chain):
            stepped, whole = (
                ev.times.total_speedup(step.name, ev.largest, over=over.name) for over in (last, chain[0])
            )
            told = stepped.plain_text
            if last != chain[0]:
                told += f"; in all {whole.short_text}"
            assert f"; {told}<" in words
    assert "†" in chapter.chains.caption


def test_the_way_to_the_fastest_starts_where_the_study_says_and_takes_back_what_that_lost(evidence_of, small_archive):
    studies = yaml.safe_load(settings.FILE.read_text())["studies"]
    studies["fa18"]["first_kernel"] = "global_accumulate"
    ev = evidence_of(small_archive, studies=studies)
    way = ["global_accumulate", "direct", "constant_weights", "layer_specialised", "fp16x3_mma"]
    assert way in [[step.name for step in chain] for chain in ev.ranking.chains]
    back, lost = (
        ev.times.total_speedup(name, ev.largest, over=over).ratio
        for name, over in (("direct", "global_accumulate"), ("global_accumulate", "direct"))
    )
    assert back.value == pytest.approx(1 / lost.value)
    assert back.value > back.low > 1 > lost.high
    words = " The study starts at global_accumulate; its first step goes back to direct."
    assert milestone_4.chain_figure(ev).caption.endswith(words)


def test_an_optimization_whose_figures_are_stale_says_so_and_without_a_gpu_the_ideas_stand_alone(
    archive, evidence_of, rewritten, few_variants
):
    other = evidence_of(rewritten(archive, "run.json", without(["constant_weights"])), **few_variants)
    found = milestone_4.milestone_4_view(other)
    (one,) = (one for one in found.optimizations if one.name == "constant_weights")
    assert one.problems[0].startswith("stale: recorded in ")
    assert (one.outcome, one.figure, one.streams) == (None, None, None)
    assert "constant_weights" not in [row[0] for row in all_times.all_times_view(other).table.rows]

    ev = evidence_of(archive)
    ev.gpu_run = None
    found = milestone_4.milestone_4_view(ev)
    assert found.optimizations
    assert (found.ladder, found.chains) == (None, None)


def test_a_call_that_takes_longer_than_the_layer_around_it_is_named(small_archive, evidence_of):
    ev = evidence_of(small_archive)
    samples = ev.times.samples
    around = (samples.variant == "direct") & (samples.layer == "conv1") & (samples.kind == "layer")
    samples.loc[around, "time_ms"] = 1e-6
    assert "broken for direct on conv1" in all_times.kind_order(ev)


def test_a_variant_of_several_streams_says_how_many_kernels_run_at_once(sections, small_document):
    streams = {one.name: one.streams for one in sections if one.streams}
    assert {*streams} == {"unroll_gemm_streams"}
    (shown,) = streams.values()
    assert shown.lanes == 4
    said = f"images on 4 streams, {shown.at_once} kernels run at the same time on average (unroll_gemm: {shown.at_once_before})"
    assert said in " ".join(small_document.split())


def test_a_kernel_has_one_colour_in_every_chart(ev):
    colours = style.kernel_colours(ev)
    assert set(colours) == set(ev.profiles.kernel_names) and len(colours) > 5
    assert list(colours.values()).count(colours["conv_forward"]) == 1


def test_a_kernel_s_resources_are_those_of_the_gpu_cited_and_without_a_build_there_are_none(
    ev, evidence_of, small_archive
):
    found = ev.builds.main_kernel_resources("direct")
    assert (found.kernel, found.arch) == ("conv_forward", ev.gpu_run.gpu["arch"])
    assert 0 < found.occupancy <= 1
    assert ev.builds.main_kernel_resources("cudnn_fp32") is None
    # Of kernels for other layers, one has more registers. No program was traced: the first layer is none of its own.
    counted = ev.builds.main_kernel_resources("fp16x3_wgmma")
    assert counted.kernel == "conv_multi_channel_6_30_5_16"

    ev = evidence_of(small_archive)
    ev.builds.table = ev.builds.table.replace({"kernel": {"conv_forward": "another"}})
    assert ev.builds.main_kernel_resources("direct") is None


def test_where_no_block_is_known_the_occupancy_is_what_the_profiler_read(evidence_of, small_archive):
    ev = evidence_of(small_archive)
    ev.builds.occupancy = lambda row: None  # as of a launcher whose program was not profiled
    launches = [ev.counters.calls["direct", layer].longest for layer in ev.layer_names]
    least = min(launch.values[counters.THEORETICAL] for launch in launches) / 100
    found = ev.builds.main_kernel_resources("direct")
    assert (found.occupancy, found.limiter) == (least, "")
    variant = ev.plan.variants["constant_weights"]
    shown = milestone_4._build_comparison(ev, variant)
    assert shown.occupancy_before == units.percent(least, 0) and "limited" not in shown.occupancy
    ev.counters.calls = {}
    assert milestone_4._build_comparison(ev, variant).occupancy == "unknown"


def test_an_optimization_without_words_goes_by_its_name_and_is_asked_for_them(
    evidence_of, small_archive, few_variants, monkeypatch
):
    ev = evidence_of(small_archive, **few_variants)
    silent = ev.plan.variants["constant_weights"]
    header = silent.header.model_copy(update={"title": "", "expect": " "})
    monkeypatch.setitem(ev.plan.variants, silent.name, dataclasses.replace(silent, header=header))
    shown = next(one for one in milestone_4.milestone_4_view(ev).optimizations if one.name == silent.name)
    assert (shown.title, shown.idea) == (silent.name, silent.header.idea)
    assert (
        shown.notes == "constant_weights.cu, or constant_weights.yaml beside it, does not say its `title` and `expect`."
    )


def test_words_in_backticks_of_a_header_are_set_as_code(documents_with, few_variants, monkeypatch):
    few = few_variants["studies"]
    short = few["fa18"] | {"sections": ["milestone_4"], "deliverables": {}, "show_profile_of": []}
    documents = documents_with("fa18", studies=few | {"fa18": short})
    variant = documents._ev.plan.variants["constant_weights"]
    header = variant.header.model_copy(update={"idea": "It sets `allow=1`.", "expect": "`x` falls."})
    monkeypatch.setitem(documents._ev.plan.variants, variant.name, dataclasses.replace(variant, header=header))
    assert "It sets <code>allow=1</code>." in documents.report and "<code>x</code> falls." in documents.report


def test_a_call_that_launching_paces_says_so_in_its_section_and_in_that_of_what_builds_on_it(ev, sections):
    paced = {one.name: one.pace for one in sections if one.pace}
    assert "fft" not in paced
    assert "the host limits unroll_gemm: " in paced["unroll_gemm"]
    (first, _) = trace_layout.launch_bound_layers(ev, ev.plan.variants["unroll_gemm"])
    assert first.launches == 2 * first.images
    assert first.each_ms * first.launches == pytest.approx(ev.times.op("unroll_gemm", "conv1", first.images).value)
    assert 0 < first.busy < trace_layout.BUSY
    in_turn = [ev.times.baseline_time("unroll_gemm_streams", layer, first.images).value for layer in ev.layer_names]
    told = [
        f"{units.time(ms / first.launches, 2)} on {layer}" for ms, layer in zip(in_turn, ev.layer_names, strict=True)
    ]
    said = paced["unroll_gemm_streams"].split("the host limits unroll_gemm: ")[
        1
    ]  # the times that its speedup is made of
    assert [words in said for words in told] == [True, True]


def test_the_drift_of_baselines_between_jobs_is_stated(ev):
    largest = units.percent(max(ev.times.drift.between_jobs("gpu", ev.largest)), 1)
    told = last_page.last_page_view(ev).drift
    assert told.startswith("On the GPU the op time") and f"{largest} at 10\u202f000 images" in told


def test_op_times_that_programs_printed_stand_beside_each_other_by_weight_set():
    def ran(variant: str, *printed: float) -> pd.DataFrame:
        lines = [f"New Inference\nOp Time: {op_s} N=10\nOp Time: 0.001 N=10" for op_s in printed]
        return pd.DataFrame({"output": lines, "accuracy": 0.9})

    runs = {("direct", "high"): (0.004, 0.002, 0.003), ("direct", "low"): (0.005,), ("library", "high"): (0.1,)}
    told = SimpleNamespace(
        network=SimpleNamespace(weight_sets=("high", "low")),
        largest=10,
        at_size=str,
        compared_variants=lambda _: [SimpleNamespace(name=name, stem=name) for name in ("direct", "library")],
        programs=SimpleNamespace(runs=lambda name, _, weights: ran(name, *runs.get((name, weights), ()))),
    )
    table = profile_tables.op_times_by_weights(told)
    assert table.rows == (("direct", units.time(4.0), units.time(6.0), "0.9000", "0.9000"),)
    told.network.weight_sets = ("high",)
    assert profile_tables.op_times_by_weights(told) is None
