"""The views of the report's sections on the archived run: what they choose, order and word."""

import itertools
import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from markupsafe import Markup

from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.kernels import variants, whole_networks
from warpbook.profiling import counters
from warpbook.report.evidence import Evidence, Speedup
from warpbook.report.evidence.run_selection import whole_network_rows
from warpbook.report.figures import unit_plots
from warpbook.report.views import (
    analysis,
    cell_markup,
    cover,
    executive,
    last_page,
    milestone_1,
    milestone_2,
    milestone_3,
    milestone_4,
    published_comparison,
    summary,
    whole_network,
)
from warpbook.report.views.components import HtmlTable
from warpbook.runs import catalog, tables
from warpbook.runs.run_parts import WHOLE

# The archived run has no CPU figures: those of GPU variants, so many times as long, stand for CPU variants.
CPU_STAND_INS = {
    "loop_nest": ("direct", 50),
    "im2col_blas": ("constant_weights", 20),
    "simd": ("shared_input", 8),
    "onnxruntime": ("cudnn_fp32", 5),
}


def with_cpu_figures(run: catalog.Run) -> catalog.Run:
    """A run that holds op times and programs of CPU variants too, as they stand here."""
    of_today = {name: {"source_sha256": variants.read(name).source_sha256} for name in CPU_STAND_INS}
    record = {**run.record, "variants": {**run.record["variants"]}}
    record["variants"] |= {name: {**record["variants"][name], **today} for name, today in of_today.items()}
    read = {table.name: run.table(table) for table in tables.RUN_TABLES}
    for table in (tables.SAMPLES, tables.OP_TIMES, tables.PROGRAMS):
        gpu = read[table.name]
        slower = [name for name in gpu if name.endswith(("_ms", "_s"))]
        frames = [gpu]
        for name, (stand_in, factor) in CPU_STAND_INS.items():
            jobs = gpu.get("job", gpu.variant)
            rows = gpu[(jobs == stand_in) & gpu.variant.isin([stand_in, "direct"])]
            if "kind" in rows:
                rows = rows[(rows.kind == "op") & (rows.state == "cold")].assign(state="hot")
            if "job" in rows:
                rows = rows.assign(job=name)
            renamed = rows.variant.map({"direct": "loop_nest", stand_in: name})
            rows = rows.assign(variant=renamed, device="cpu", **{column: rows[column] * factor for column in slower})
            frames.append(rows)
        read[table.name] = pd.concat(frames, ignore_index=True)
    return catalog.Run(run.path, record, read)


@pytest.fixture(scope="module")
def run(small_archive, opened) -> catalog.Run:
    return with_cpu_figures(opened(small_archive))


@pytest.fixture(scope="module")
def study(run, small_archive, opened, planned, few_variants):
    """The evidence of a study under the policy that the run was measured with, the configuration changed as told."""

    def make(name: str = "fa18", **changes) -> Evidence:
        values = {"study": name, "measuring": run.record["measuring"]}
        ev = Evidence(planned(**values | few_variants | changes), name, run)
        if ev.gpu_run:
            ev.gpu_run = opened(small_archive)
        return ev

    return make


@pytest.fixture(scope="module")
def ev(study) -> Evidence:
    return study()


def test_the_executive_page_has_five_sentences_without_intervals_and_a_chart(ev):
    view = summary.summary_view(ev)
    assert (view.facts, view.cpu_code, view.figure.id) == ((), None, "summary-times")
    findings = {one.label: one.text for one in view.kernels.findings}
    assert [*findings] == ["Best", "Why", "Correct?", "Program", "Next"]
    assert not any("[" in text or "±" in text for text in findings.values())
    sentences = [one for text in findings.values() for one in text.replace("\u202f", "").split(". ")]
    assert max(len(one.split()) for one in sentences) <= 30
    best, naive, peer = ev.ranking.best, ev.ranking.naive, ev.ranking.best_peer
    for other in (naive, peer):
        speedup = ev.times.total_speedup(best.name, ev.largest, over=other.name)
        assert f"{cell_markup.headline_ratio(speedup)} that of {other.name}" in findings["Best"]
    total = ev.times.total(best.name, ev.largest).value
    bounds = [ev.times.method_bound_ms(best.name, layer, ev.largest) for layer in ev.layers]
    assert f"and {units.percent(sum(bounds) / total, 0)} of what the hardware allows this method" in findings["Best"]
    tests = ev.checks.for_variant(best.name)
    assert f"passes {tests.passed} of {tests.tests} tests" in findings["Correct?"]
    runs = ev.programs.runs(naive.name, ev.largest)
    elapsed = float(runs.elapsed_s.median())
    share = ev.times.total(naive.name, ev.largest).value / 1e3 / elapsed
    assert f"With {naive.name} the whole program takes {units.time(1e3 * elapsed, 3)}" in findings["Program"]
    assert f"the convolutions {units.percent(share)} of that" in findings["Program"]


def test_a_published_profile_with_other_weights_stands_beside_ours_with_these(study, monkeypatch):
    ev = study()
    row = SimpleNamespace(note="weights: low; of the second run")
    assert published_comparison._weights(ev, row) == ""  # the network has no such set
    monkeypatch.setattr(type(ev.network), "weight_sets", {"high": None, "low": None})
    assert published_comparison._weights(ev, row) == "low"
    asked = []
    monkeypatch.setattr(ev.profiles, "rows", lambda *words: asked.append(words) or [])
    published_comparison._own_profile_row(ev, "direct", "", "conv_forward", "low", False)
    assert asked and all(words[-1] == "low" for words in asked)


def test_an_inconclusive_comparison_makes_no_number_of_the_headline(ev, monkeypatch):
    naive = ev.ranking.naive.name
    for ratio, verdict, said, number in [
        (Estimate(2.0, 1.0, 3.0, 2), "ambiguous", f"inconclusive against {naive} (two samples)", False),
        (Estimate(2.0, 1.5, 3.0, 2), "faster", f"faster than {naive} (two samples)", False),
        (Estimate(20.0, 16.0, 30.0, 6), "faster", f"16× to 30× that of {naive}", True),
    ]:
        found = Speedup(ratio, False, verdict)
        monkeypatch.setattr(ev.times, "total_speedup", lambda *_, found=found, **kinds: found)
        (best,) = (one.text for one in executive.executive_view(ev).findings if one.label == "Best")
        assert said in best
        assert ("that of" in best) == number


def test_the_box_holds_the_machine_and_one_refuted_claim(ev):
    facts = dict(executive.executive_view(ev).facts.rows)
    gpu = ev.gpu_run.gpu
    assert facts["GPU"].startswith(f"{gpu['name']} (each job on one of two), {gpu['multiprocessors']} ")
    assert facts["Software"].startswith(f"driver {gpu['driver']} (CUDA {gpu['driver_cuda']}); ")
    assert "; CPU times from " in facts["CPU"]
    over = facts["Best GPU over best CPU code"]
    ours = " and ".join(one.stem for one in ev.ranking.composite.values())  # the fastest on each layer
    pair = f"{ours} over {ev.ranking.best_cpu.stem}, {ev.at_size(ev.largest)}".replace("\u202f", " ")
    assert isinstance(over, Markup) and over.striptags().endswith(f": {pair}")
    example = facts["Claims"].split("One refuted: ")[1]
    refuted = [one for one in ev.claims.refuted if example.startswith(f"{one.variant}, “{one.claim.says}”")]
    assert refuted[0].variant in [step.name for step in ev.ranking.chain(ev.ranking.best)]


def test_a_title_within_a_sentence_begins_small_unless_with_an_abbreviation():
    for title, inside in [
        ("Layer by layer", "layer by layer"),
        ("FP32 sums", "FP32 sums"),
        ("A tile", "a tile"),
        ("", ""),
    ]:
        assert cell_markup.within_sentence(title) == inside


def test_the_run_before_is_the_newest_archived_that_ended_earlier(ev, small_archive, tmp_path, rewritten):
    folder = tmp_path / "runs"
    folder.mkdir()
    for day in ("01", "02"):
        path = Path(shutil.copy(small_archive, folder / f"202611{day}-{small_archive.stem[9:]}.zip"))
        rewritten(path, "run.json", lambda text, day=day, path=path: json.dumps(
            json.loads(text) | {**dict.fromkeys(("started", "ended"), f"2026-11-{day}T00:00:00+00:00"), "run_id": path.stem}).encode())  # fmt: skip
    assert catalog.run_before(ev.gpu_run, "fa18", folder).run_id.startswith("20261102")
    assert catalog.run_before(ev.gpu_run, "sp19x", folder) is None
    first = catalog.open_run(min(folder.glob("*.zip")))
    assert catalog.run_before(first, "fa18", folder) is None


def test_a_study_that_ends_with_the_framework_has_its_times_and_accuracy_in_the_summary(study):
    view = summary.summary_view(study("fa18-m1"))
    assert study("fa18-m1").frameworks_alone and not study().frameworks_alone
    assert [fact.label.split(",")[0] for fact in view.facts] == ["The framework on the CPU", "On the GPU", "Accuracy"]
    assert view.facts[2].value == "0.8970"
    assert view.facts[1].value.endswith("\u202fs") and re.match(r"runs in s: .*; whole program", view.facts[1].detail)
    assert view.facts[2].detail == "of 10\u202f000 test images; the same on both"
    assert view.kernels is None
    ev = study("fa18-m1")
    cpu_s, gpu_s = (
        ev.programs.runs(ev.programs.framework(device).name, ev.largest).elapsed_s.median() for device in ("cpu", "gpu")
    )
    slower = (
        f"{units.significant(max(cpu_s, gpu_s) / min(cpu_s, gpu_s), 2)} times as {'long' if gpu_s > cpu_s else 'fast'}"
    )
    assert slower in view.compared and f"Of its {units.seconds(gpu_s)}\u202fs, API calls take" in view.compared

    on_cpu, on_gpu, accuracy = summary.summary_view(study("fa18-m1", cpu="none")).facts
    assert on_cpu.detail == "not measured: the configuration asks for no CPU times (cpu: none)"
    assert on_gpu.value != units.MISSING and accuracy.value.startswith("0.")


def column(table: HtmlTable, label: str) -> list[str]:
    """A table's cells under a head, as a reader sees them."""
    place = [head.label for head in table.head].index(label)
    return [Markup(row[place]).striptags().replace("\u202f", " ") for row in table.rows]


def test_the_framework_is_shown_on_both_devices_with_its_times_and_what_takes_nine_tenths_of_them(ev):
    view = milestone_1.milestone_1_view(ev)
    assert [program.device for program in view.programs] == ["cpu", "gpu"]
    assert "--variant onnxruntime --device cpu 10000\n" in view.programs[0].output
    assert view.half is None and milestone_3.milestone_3_view(ev).kernel.half is None
    assert "--variant cudnn_fp32 --device gpu 10000\n" in view.programs[1].output
    assert column(view.times, "Framework") == ["onnxruntime", "cudnn_fp32"]
    made = [ev.programs.runs(name, ev.largest).elapsed_s for name in ("onnxruntime", "cudnn_fp32")]
    assert column(view.times, "Elapsed, s") == [
        Markup(cell_markup.elapsed_cell(times)).striptags().replace("\u202f", " ") for times in made
    ]
    assert min(map(len, made)) > 1

    runs_of_it = ev.programs.runs("cudnn_fp32", ev.largest)
    median_s = sorted(runs_of_it.elapsed_s)[(len(runs_of_it) - 1) // 2]
    minutes, seconds = divmod(median_s, 60)
    assert f" {minutes:.0f}:{seconds:05.2f}elapsed " in milestone_1.milestone_1_view(ev).programs[1].output

    for profile in (milestone_1.milestone_1_view(ev).profiled.kernels, milestone_1.milestone_1_view(ev).profiled.calls):
        label = profile.table.head[1].label
        shares = [float(cell.removesuffix(" %")) for cell in column(profile.table, label)]
        assert sum(shares) > 90 > sum(shares[:-1])
        assert shares == sorted(shares, reverse=True)
        assert profile.shown == len(shares) < profile.names


def test_a_program_s_time_has_an_interval_from_three_runs_on_and_says_where_there_was_one():
    for elapsed_s, said in [
        ([25.674], "25.67 (one run)"),
        ([6.63, 5.51], "6.07 (5.51 and 6.63)"),
        ([2.0, 2.0, 2.0], "2.00 [2.00, 2.00] n 3"),
        ([1.0, 1.1, 1.2], "1.10 [0.87, 1.38] n 3"),
    ]:
        assert Markup(cell_markup.elapsed_cell(elapsed_s)).striptags().replace("\u202f", " ") == said


def test_without_a_gpu_s_run_each_section_is_of_the_cpu_or_says_why(study):
    view = summary.summary_view(study(gpu="none"))
    assert view.facts == ()
    assert (view.cpu_code.best, view.cpu_code.naive) == ("onnxruntime", "loop_nest")
    assert view.figure.alt == "Op time of every CPU variant against dataset size."
    assert not {"direct", "cudnn_fp32"} & {*view.broken}
    few = Speedup(Estimate(2.0, 1.9, 2.1, 2), False, "faster")
    ev = study(gpu="none")
    ev.times.total_speedup = lambda *_, **kinds: few
    assert (view.cpu_code.speedup != "", summary.summary_view(ev).cpu_code.speedup) == (True, "")
    asked = {place.removeprefix("m4-") for place in ev.study.deliverables.values()} | {*ev.study.show_profile_of}
    assert {one.name for one in milestone_4.milestone_4_view(ev).optimizations} <= asked
    assert published_comparison.published_comparison_view(ev).gains is None

    view = milestone_1.milestone_1_view(study(gpu="none"))
    assert (view.half.shown, view.half.lacking, view.half.why) == ("CPU", "GPU", view.problem)
    assert view.programs[0].output and not view.programs[0].missing
    assert view.programs[1].missing == view.problem == "the configuration asks for no GPU times (gpu: none)"
    assert view.profiled is None
    assert column(view.times, "Framework") == ["onnxruntime"]

    view = milestone_3.milestone_3_view(study(gpu="none"))
    assert view.kernel is None
    assert view.source == "the configuration asks for no GPU times (gpu: none)"


def test_cpu_variants_have_op_times_at_each_size_gains_over_the_loop_nest_or_a_reason(ev, study):
    view = milestone_2.milestone_2_view(ev)
    assert [head.label for head in view.op_times.head][2:] == [
        "10 images", "100 images", "1000 images", "10\u202f000 images",
    ]  # fmt: skip
    assert column(view.op_times, "Layer") == ["conv1", "conv2"] * 4
    assert [gain.variant for gain in view.discussion.gains] == ["im2col_blas", "onnxruntime", "simd"]
    assert [layer for layer, _ in view.discussion.gains[0].layers] == ["conv1", "conv2"]
    assert view.discussion.speedup and view.discussion.without == ""
    options = "--network fa18 --variant loop_nest --device cpu"
    commands = [output.splitlines()[0] for output in view.outputs]
    assert commands == [
        f"* Running /usr/bin/time python scripts/infer.py {options} {n}" for n in (10000, 1000, 100, 10)
    ]

    total_ms = ev.times.total("loop_nest", ev.largest).value
    flops = sum(layer.at(ev.largest).flops for layer in ev.layers)
    assert float(milestone_2.milestone_2_view(ev).discussion.naive_rate) == pytest.approx(
        flops / total_ms / 1e6, rel=0.005
    )

    ideas = {idea.name: idea for idea in milestone_2.milestone_2_view(ev).ideas}
    assert ideas["loop_nest"].measured and not ideas["loop_nest"].problems
    assert not ideas["torch_cpu"].measured and "has no time of it" in ideas["torch_cpu"].problems[0]

    ev, few = study(), Speedup(Estimate(2.0, 1.9, 2.1, 2), False, "faster")
    one = ev.times.speedup
    ev.times.total_speedup = lambda *_, **kinds: few
    ev.times.speedup = lambda name, layer, *_, **kinds: (
        few if layer == "conv2" or name == "simd" else one(name, layer, *_, **kinds)
    )
    discussion = milestone_2.milestone_2_view(ev).discussion
    assert (discussion.speedup, discussion.without) == ("", "every variant on conv2 and simd on conv1")
    assert [gain.variant for gain in discussion.gains] == ["im2col_blas", "onnxruntime"]

    ev = study()
    ev.ranking.measured_variants = lambda device, peers=None: []
    op, outputs = ev.times.op, milestone_2.milestone_2_view(study()).outputs
    ev.times.op = lambda name, layer, size, *kind: None if layer == "conv2" else op(name, layer, size, *kind)
    view = milestone_2.milestone_2_view(ev)
    # What has times of one layer alone is listed with these, and a program that ran has its output.
    assert {row[2:] == (units.MISSING,) * 4 for row in view.op_times.rows if row[1] == "conv1"} == {False}
    assert {row[2:] == (units.MISSING,) * 4 for row in view.op_times.rows if row[1] == "conv2"} == {True}
    assert view.outputs == outputs != () and view.discussion is None and not view.missing
    ev.times.op = lambda *_: None
    assert milestone_2.milestone_2_view(ev).op_times is None
    ev.programs.runs = lambda *_: pd.DataFrame()
    assert milestone_2.milestone_2_view(ev).missing == ev.problems.why_no_cpu != ""


def test_a_program_s_output_is_shown_at_each_size_and_with_each_weight_set(study):
    outputs = milestone_3.milestone_3_view(study("fa17-final")).kernel.outputs
    ends = [output.splitlines()[0].partition("--device gpu ")[2] for output in outputs]
    assert ends == ["10000", "--weights low 10000", "1000", "100", "10"]
    assert "Model: fa17-high" in outputs[0]
    assert "Model: fa17-low" in outputs[1]


def test_every_roof_that_the_caption_names_is_drawn_on_each_layer(ev):
    roofline = analysis.analysis_view(ev).counts.roofline
    thin = re.findall(r"([A-Z]+\d+ peak(?: / \d)?), [\d.]+ TFLOP/s", roofline.caption.partition("Thin: ")[2])
    assert "FP16 peak / 3" in thin
    for words in ("FP32 peak", *thin):
        assert roofline.svg.count(f">{words}<") == len(ev.layers), words


def test_of_what_each_step_to_the_best_kernel_keeps_busy_the_unit_that_bounds_it_stands_out(ev, monkeypatch):
    steps = [step.name for step in ev.ranking.chain(ev.ranking.best)]
    drawn = analysis.analysis_view(ev).counts.units
    words = {"Issue": "instruction issue", "Pipes": "pipes", "L1": "the L1", "L2": "the L2", "DRAM": "DRAM"}
    for step, case in itertools.product(steps, ev.layers):
        call = ev.counters.calls[step, case.name]
        said = counters.bound_sentence(call.longest)
        bound = [label for label in words if words[label] in said and not said.startswith("Bound by latency")]
        heads = zip(analysis.BUSY_HEAD, analysis.busy_cells(call, 1000.0), strict=True)
        assert [head for head, cell in heads if "<strong>" in cell] == bound
        (row,) = unit_plots.unit_rows(ev, case, [step])
        assert row.bound.removesuffix(", shared") == "".join(bound)
        assert row.name in drawn.alt and drawn.svg.count(f">{row.name}<") == len(ev.layers)
    monkeypatch.setattr(analysis, "MOST_TOGETHER", 1)
    apart = analysis.analysis_view(ev).counts
    for place, figure in enumerate((apart.units, *apart.units_of_others)):
        assert [f"{case.name}<" in figure.svg or f">{case.name}: " in figure.svg for case in ev.layers] == [
            other == place for other in range(len(ev.layers))
        ]


def test_the_first_gpu_kernel_is_shown_at_each_size_with_its_distance_from_each_bound(ev):
    kernel = milestone_3.milestone_3_view(ev).kernel
    assert column(kernel.sizes, "Images") == ["10", "100", "1000", "10 000"]
    assert column(kernel.sizes, "Labels differing")[-1] == "0"
    assert set(column(kernel.sizes, "Integers")) == {"exact"}
    assert [profile.images for profile in kernel.profiles] == [
        f"{count} images" for count in ("10\u202f000", "1000", "100", "10")
    ]
    assert "conv_forward" in column(kernel.profiles[0].activities, "Name")
    assert "conv_forward" in column(kernel.launches, "Kernel")
    assert kernel.figure.id == "m3-times"

    layer, limit = ev.layers[0], milestone_3.milestone_3_view(ev).kernel.limits[0]
    time_ms = ev.times.op("direct", layer.name, ev.largest, kind="gpu").value
    assert float(limit.times_bound.removesuffix("×")) == pytest.approx(
        time_ms / ev.times.fp32_bound_ms(layer, ev.largest), rel=0.005
    )
    assert float(limit.tflop_per_s) == pytest.approx(layer.at(ev.largest).flops / time_ms / 1e9, rel=0.005)
    assert float(limit.tb_per_s) == pytest.approx(layer.at(ev.largest).bytes / time_ms / 1e9, rel=0.005)
    assert limit.bound_by in ("memory bandwidth", "FP32 arithmetic")


def test_a_rough_published_time_makes_a_gain_with_one_of_the_same_sentence_alone(study):
    ev = study("fa18")
    first = ev.published.iloc[0].to_dict() | {"quantity": "op_ms", "layer": "conv1", "size": "", "note": "weights: low"}
    before = first | {"variant": "direct", "value": 2500.0, "printed": "2.5 s", "where": "first change"}
    after = first | {"variant": "constant_weights", "value": 300.0, "printed": "~300 ms", "where": "second change"}

    def gains(*rows):
        ev.published = pd.DataFrame(rows)
        return published_comparison.published_comparison_view(ev).gains

    assert gains(before, after) is None
    assert gains(before | {"printed": "~2.5 s"}, after | {"printed": "300 ms"}) is None
    assert gains(before, after | {"printed": "300 ms"}).rows[0][-2] == "8.33×"
    table = gains(before, after | {"where": "first change"})
    assert (column(table, "Weights"), column(table, "Published gain")) == (["low"], ["8.33×"])


def test_published_figures_stand_beside_ours_and_contributions_are_the_configuration_s(study):
    ev = study("fa18")
    view, table = published_comparison.published_comparison_view(ev), published_comparison.full_published_table(ev)
    assert not view.from_course
    assert view.table is None and view.figures == len(table.rows)
    assert "framework, CPU; onnxruntime" in column(table, "Variant")
    assert "framework, GPU; cudnn_fp32" in column(table, "Variant")
    assert all(column(table, "Published"))
    ours = column(table, "Now")
    assert any(cell != "–" for cell in ours) and "nan" not in ours

    profiles = published_comparison.published_profiles(ev)
    names = ev.published[ev.published.quantity.isin(["profile_ms", "calls"]) & (ev.published.name != "")].name
    assert {*names} <= {*column(profiles, "Name")} and view.more[1] == f"{len(profiles.rows)} rows of profiles"
    copies = [row for row in profiles.rows if row[:2] == ("Milestone 3, profile at 100, kernels", "[CUDA memcpy HtoD]")]
    (own,) = (row for row in ev.profiles.rows("direct", 100, ("memcpy_htod",)))
    assert copies[0][5] == units.time(own.total_ns / 1e6) and copies[0][7] == str(own.calls)
    (forward,) = (row for row in profiles.rows if row[:2] == (copies[0][0], "mxnet::op::forward_kernel"))
    (own,) = (row for row in ev.profiles.rows("direct", 100, ("kernel",)) if row.name == "conv_forward")
    assert forward[5] == units.time(own.total_ns / 1e6)

    ev = study("fa18")
    rows = published_comparison.full_published_table(ev).rows
    (row,) = (row for row in rows if row[:3] == ("op time, conv1", "direct", "10000"))
    assert row[4] == units.time(ev.times.op("direct", "conv1", 10_000).value)

    ev = study("fa18")
    gains = {
        (row[0], row[1], row[3], row[4]): row for row in published_comparison.published_comparison_view(ev).gains.rows
    }
    row = gains["constant_weights", "direct", "conv1", "100"]
    assert row[5] == "1.98×"  # 3.22228 ms over 1.62703 ms
    assert cell_markup.speedup_cell(ev.times.speedup("constant_weights", "conv1", 100, kind="gpu")) == row[6]
    assert ("direct", "loop_nest", "conv1", "10\u202f000") in gains
    assert all(row[0] != row[1] for row in gains.values())

    ev = study()
    ev.published = ev.published.head(0)
    assert published_comparison.published_comparison_view(ev).figures == 0
    assert published_comparison.full_published_table(ev) is None

    ev = study()
    assert column(cover.division_of_labour_view(ev), "Author") == list(ev.config.report.contributions)
    report = ev.config.report.model_dump() | {"contributions": {}}
    assert cover.division_of_labour_view(study(report=report)) is None


MADE = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def test_the_cover_names_date_network_devices_code_and_runs_or_why_there_are_none(ev, study):
    view = cover.cover_view(ev, MADE, "0123456789abcdef", dirty=True)
    assert (view.date, view.day) == ("21 November 2026", "2026-11-21")
    assert view.subject == "64×64 images; 6 maps of 5×5, tanh, 2×2 pool, 16 maps of 5×5, FC 140, tanh, FC 10"
    assert view.kicker == "Milestone report"
    assert view.sizes == "10, 100, 1000, 10\u202f000"
    name = ev.gpu_run.gpu["name"]
    assert view.gpu.startswith(f"{name} (two of them), from the archived run {ev.gpu_run.run_id}, code of commit ")
    assert view.cpu == f"{ev.device_name('cpu')}, measured here"
    assert (view.commit, view.dirty) == ("0123456789ab", True)
    assert view.runs[-1] == ev.gpu_run.run_id

    view = cover.cover_view(study("fa17-final"), MADE, "", dirty=None)
    assert view.subject == "28×28 images; 50 maps of 5×5, tanh, 2×2 pool, FC 500, tanh, FC 10"
    assert view.kicker == "Final report"

    assert cover.cover_view(study(gpu="none"), MADE, "", dirty=None).gpu.startswith(
        "none: the configuration asks for no GPU"
    )
    ev = study()
    ev.gpu_run = ev.local
    assert cover.cover_view(ev, MADE, "", dirty=None).gpu == f"{ev.gpu_run.gpu['name']} (two of them), measured here"


def network_samples(run):
    """Samples of whole networks in a run, implementations called by their own names."""
    return whole_network_rows(run.table(tables.SAMPLES))


def with_networks(planned, study, run, samples):
    """The evidence of a study whose run has these samples of whole networks."""
    others = run.table(tables.SAMPLES)
    others = others[others.problem != whole_networks.PROBLEM]
    samples = samples.assign(variant=WHOLE + samples.variant, job=WHOLE + samples.job)
    read = {table.name: run.table(table) for table in tables.RUN_TABLES}
    read[tables.SAMPLES.name] = pd.concat([others, samples], ignore_index=True)
    made = Evidence(planned, study, catalog.Run(run.path, run.record, read))
    made.gpu_run = made.local
    return made


def with_failed(planned, study, run, network, names, status, reason):
    """The evidence of a study in whose run implementations of its whole network failed at every size."""
    samples = network_samples(run)
    of_them = (samples.network == network) & samples.variant.isin(names)
    failed = samples[of_them & (samples.job == samples.variant)].drop_duplicates(["variant", "size"])
    failed = failed.assign(
        status=status, reason=failed.variant + reason, time_ms=float("nan"), state=None, kind=None, sample=None
    )
    of_them |= (samples.network == network) & samples.job.isin(names)
    return with_networks(planned, study, run, pd.concat([samples[~of_them], failed], ignore_index=True))


def test_what_failed_is_in_the_box_and_what_is_not_for_the_study_is_not(ev, run):
    ev = with_failed(ev.plan, "fa18", run, "fa18", ["unfused"], "launch_failed", ", called: invalid argument")
    problems = ev.problems.table.set_index("variant").status
    assert problems["network/unfused"] == "launch_failed"
    assert problems["network/fused_wgmma"] == problems["fp16x3_wgmma"] == "unsupported"
    said = dict(executive.executive_view(ev).facts.rows)["Left out"]
    assert "network/unfused" in said and "network/fused_wgmma" not in said and "fp16x3_wgmma" not in said
    ev.problems.table = ev.problems.table.assign(kinds=[("host",)] * len(problems))  # other times are there
    assert "Left out" not in dict(executive.executive_view(ev).facts.rows)


def test_figures_of_several_gpus_are_told_on_the_cover_and_in_the_box(ev, run):
    assert "(each job on one of two)" in dict(executive.executive_view(ev).facts.rows)["GPU"]
    single = Evidence(ev.plan, "fa18", run)
    single.gpu_run = run
    rows = run.table(tables.SAMPLES)
    single.times.samples = rows[rows.measured_on == rows.measured_on.iloc[0]]
    assert cover.cover_view(single, MADE, "", dirty=None).gpu.startswith(f"{run.gpu['name']}, measured here")
    assert "of them" not in dict(executive.executive_view(single).facts.rows)["GPU"]


def test_where_no_cpu_figures_are_wanted_that_is_said_and_nothing_else_speaks_of_them(study):
    ev, why = study(cpu="none"), "the configuration asks for no CPU times (cpu: none)"
    assert cover.cover_view(ev, MADE, "", dirty=None).cpu == f"none: {why}"
    facts = dict(executive.executive_view(ev).facts.rows)
    every = [one.full_name for one in ev.plan.implementations.values()]
    newer = [name for name in every if name not in ev.gpu_run.record["variants"]]
    assert facts["Left out"] == "; ".join([f"CPU times: {why}", *newer]) and "Best GPU over best CPU code" not in facts
    assert (
        milestone_2.milestone_2_view(ev).missing
        == last_page.last_page_view(ev).unwanted
        == milestone_1.milestone_1_view(ev).programs[0].missing
        == why
    )
    assert milestone_1.milestone_1_view(ev).where == "on the GPU"
    assert milestone_3.milestone_3_view(ev).kernel.beside_cpu is None
    figure = milestone_3.milestone_3_view(ev).kernel.figure
    assert "CPU" not in figure.alt + figure.caption + milestone_3.milestone_3_view(ev).kernel.figure_title
    assert ev.device_name("cpu") not in published_comparison.full_published_table(ev).caption
    assert "cpu" not in {row[1] for row in last_page.last_page_view(ev).missing_table.rows}
    cpu = {name for name, one in ev.plan.variants.items() if one.device == "cpu"}
    assert cpu and not cpu & {one.variant for one in ev.claims.judged}


def test_op_times_of_the_cpu_and_the_gpu_stand_side_by_side_by_layer_and_size(ev):
    table = milestone_3.milestone_3_view(ev).kernel.beside_cpu
    assert column(table, "Images") == ["10 000", "1000", "100", "10"]
    for layer in ev.layer_names:
        for device, variant in (("CPU", ev.ranking.naive_cpu), ("GPU", ev.ranking.naive)):
            shown = column(table, f"{layer}, {device}")
            times = [units.time(ev.times.op(variant.name, layer, size).value) for size in reversed(ev.sizes)]
            assert [one.replace("\u202f", " ") for one in times] == [re.split(r"[±n]", one)[0].strip() for one in shown]


def test_no_speedup_over_the_cpu_is_drawn_where_there_is_no_time_of_it(ev, monkeypatch):
    measured = ev.ranking.measured_variants
    monkeypatch.setattr(
        ev.ranking, "measured_variants", lambda device, **kinds: [] if device == "cpu" else measured(device, **kinds)
    )
    assert milestone_3.milestone_3_view(ev).kernel.figure.id == "m3-times"


def test_the_whole_network_s_times_are_in_order_and_their_ratios_hold_what_jobs_differ_by(ev, run):
    view = whole_network.whole_network_view(ev)
    times = [ev.networks.time(row[0], ev.largest).value for row in view.comparison.rows]
    assert len(times) >= 5 and times == sorted(times)
    rates = [float(rate) for rate in column(view.comparison, "M images/s")]
    assert rates == pytest.approx([ev.largest / 1e3 / ms for ms in times], rel=0.005)
    ours, theirs = (ev.networks.fastest(ev.largest, peers) for peers in (False, True))
    assert ours.name in view.headline and theirs.name in view.headline and theirs.header.peer
    ratio = ev.networks.ratio(ours.name, theirs.name, ev.largest)
    medians = [ev.networks.time(one.name, ev.largest).value for one in (theirs, ours)]
    assert ratio.low <= medians[0] / medians[1] <= ratio.high

    ratio = ev.networks.ratio("fused_mma", ev.networks.fastest(ev.largest, True).name, ev.largest)
    samples = network_samples(run)
    taken = samples[(samples.network == "fa18") & (samples["size"] == ev.largest) & (samples.kind == "gpu")]
    fused = taken[(taken.variant == "fused_mma") & (taken.state == "cold")].groupby("job").time_ms.median()
    assert len(fused) > 2  # its own job, and those of what builds on it
    differ = 1 + float(abs(fused / fused["fused_mma"] - 1).max())
    assert ratio.low * differ < ratio.value < ratio.high / differ

    samples = network_samples(run)
    job = samples[
        (samples.job == "fused_conv_fc_algebra") & (samples.network == "fa18") & (samples["size"] == ev.largest)
    ]
    job = job[(job.kind == "gpu") & (job.state == "cold")].pivot(index="sample", columns="variant", values="time_ms")
    gain = ev.networks.gain(whole_networks.read("fused_conv_fc_algebra"), ev.largest)
    assert gain.n == len(job)
    assert gain.value == pytest.approx((job.fused_mma / job.fused_conv_fc_algebra).median())

    view = whole_network.whole_network_view(ev)
    sizes = {
        one.name: [size for size in ev.sizes if ev.networks.time(one.name, size)]
        for one in ev.networks.recorded_implementations
    }
    alone = {name for name, found in sizes.items() if len(found) == 1}
    assert alone >= {"compiled_fp32", "compiled_tf32"}
    assert set(re.findall(r">(\w+), one size</text>", view.chart.svg)) == alone
    assert "dasharray" not in view.chart.svg  # theirs would be the dotted lines


def test_a_network_s_way_from_the_host_is_held_against_the_larger_of_its_copies_and_the_gpu_s_time(study, run):
    samples = network_samples(run)
    samples = samples[~samples.kind.isin(["host", "copy"])]
    on_gpu = samples[(samples.kind == "gpu") & (samples.state == "cold") & (samples.job == samples.variant)]
    fused, folded = (on_gpu[on_gpu.variant == name] for name in ("fused_mma", "fused_conv_fc_algebra"))
    ways = [(fused, "host", 1.25), (fused, "copy", 0.5), (folded, "host", 3.3), (folded, "copy", 3)]
    made = [rows.assign(kind=kind, time_ms=rows.time_ms * factor) for rows, kind, factor in ways]
    planned = study().plan

    def rows_of(frames):
        evidence = with_networks(planned, "fa18", run, pd.concat([samples, *frames], ignore_index=True))
        beside = whole_network.whole_network_view(evidence).comparison
        heads = [head.label for head in beside.head]
        return {row[0]: dict(zip(heads, row, strict=True)) for row in beside.rows}

    with_host = rows_of(made)
    assert with_host["fused_mma"]["Over the larger"].startswith("1.25× of ")
    assert with_host["fused_conv_fc_algebra"]["Over the larger"].startswith("1.10× of ")
    assert with_host["eager_fp32"]["Host to host"] == units.MISSING
    assert "Host to host" not in rows_of([])["fused_mma"]


def test_a_network_s_gain_is_over_the_baseline_that_it_was_timed_in_turn_with(study, run):
    samples = network_samples(run)
    beside = (samples.job == "fused_conv_fc_algebra") & (samples.variant == "fused_mma")
    samples = samples.assign(variant=samples.variant.mask(beside, "unfused"))
    evidence = with_networks(study().plan, "fa18", run, samples)
    (told,) = (
        idea.gains for idea in whole_network.whole_network_view(evidence).ideas if idea.name == "fused_conv_fc_algebra"
    )
    assert told.startswith("Speedup over unfused at 10\N{NARROW NO-BREAK SPACE}000 images: ")


def test_a_network_s_gain_stands_beside_the_ratio_of_separate_jobs_where_these_say_something_else(ev, monkeypatch):
    said = {idea.name: idea.gains for idea in whole_network.whole_network_view(ev).ideas}
    assert (
        ev.networks.gain(whole_networks.read("fused_mma"), ev.largest) and "from separate jobs" not in said["fused_mma"]
    )
    monkeypatch.setattr(ev.networks, "separate_ratio", lambda *_: Estimate(9.0, 8.0, 10.0, 9))
    (told,) = (idea.gains for idea in whole_network.whole_network_view(ev).ideas if idea.name == "fused_mma")
    assert "(9.0×† [8.0, 10.0] from separate jobs)" in told
    monkeypatch.undo()


def test_implementations_that_were_wrong_changed_or_are_not_held_are_told_and_compared_with_nothing(
    study, run, copied_networks, monkeypatch
):
    compiled, reason = ["compiled_fp32", "compiled_tf32"], ": scores differ from float64 by 0.968 of their norm"
    failed = with_failed(study().plan, "fa18", run, "fa18", compiled, "wrong_result", reason)
    view = whole_network.whole_network_view(failed)
    assert not any("compiled" in row[0] for row in view.comparison.rows)
    assert any(
        reason.startswith("compiled_fp32: scores differ from float64") for reason in failed.problems.table.reason
    )

    (copied_networks / "mine.py").write_text('"""\ntitle: Mine\n"""\n')
    new = study()
    assert len(whole_network.whole_network_view(new).comparison.rows) >= 5
    (mine,) = new.problems.for_variant("network/mine").reason
    assert re.fullmatch(r"the run \S+ has no time of it", mine)

    monkeypatch.setattr(whole_networks.Implementation, "source_sha256", "another")
    changed = study()
    view = whole_network.whole_network_view(changed)
    assert (view.comparison, view.chart, view.headline, view.ideas) == (None, None, "", ())
    (stale,) = changed.problems.for_variant("network/fused_mma").reason
    assert re.fullmatch(r"recorded in \S+, but its sources changed after it was measured", stale)


def test_each_whole_network_of_ours_has_its_speedup_over_what_it_builds_on_and_the_fastest_its_idea(ev):
    view, best = whole_network.whole_network_view(ev), ev.networks.fastest(ev.largest, False)
    known = {one.name: one for one in ev.networks.recorded_implementations}
    assert {idea.name for idea in view.ideas if idea.idea} == {best.name}
    for idea in view.ideas:
        gain = ev.networks.gain(known[idea.name], ev.largest)
        over = f"Speedup over {known[idea.name].header.builds_on} at "
        assert idea.gains.startswith(over) if gain else idea.gains == ""
        assert not gain or units.ratio_and_interval(gain) in idea.gains


def test_the_judge_is_explained_where_a_reason_names_it(ev, monkeypatch):
    assert not last_page.last_page_view(ev).names_judge
    reasons = ev.problems.table.assign(reason="mine claims 1 ms a call (op); by the judge's clock it takes 2")
    monkeypatch.setattr(ev.problems, "table", reasons)
    assert last_page.last_page_view(ev).names_judge
