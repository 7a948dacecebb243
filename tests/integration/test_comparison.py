"""Two runs held against each other: runs of two GPUs, and what a change of code or of machine would make of one."""

import copy
from collections.abc import Mapping

import pandas as pd
import pytest

from warpbook.common.files import PROJECT
from warpbook.report import comparison, rendering
from warpbook.report.comparison import ComparedPlace, Comparison
from warpbook.report.views import runs_compared
from warpbook.report.views.components import numbers, words
from warpbook.runs import catalog, tables

TOLERANCE = 0.02


@pytest.fixture(scope="module")
def base() -> catalog.Run:
    """A run of an H200, its network fa18 alone."""
    run = opened("20261121-nvidia-h200-42e94f")
    return catalog.Run(run.path, {**run.record, "networks": {"fa18": run.record["networks"]["fa18"]}}, run.loaded)


def opened(run_id: str) -> catalog.Run:
    run = catalog.open_run(PROJECT / "tests" / "data" / "runs" / f"{run_id}.zip")
    assert run.problem == ""
    return run


def changed(
    run: catalog.Run,
    sources: tuple[str, ...] = (),
    slower: Mapping[str, float] | None = None,
    by: float = 1.0,
) -> catalog.Run:
    """A run with other sources of some variants, and times longer by a factor for some, and by one for all."""
    record, read = copy.deepcopy(run.record), dict(run.loaded)
    for name in sources:
        record["variants"][name]["source_sha256"] = "0" * 64
    samples = read[tables.SAMPLES.name].copy()
    samples["time_ms"] *= samples.variant.map(slower or {}).fillna(1.0) * by
    return catalog.Run(run.path, record, {**read, tables.SAMPLES.name: samples})


def test_equal_runs_are_no_regression_and_nothing_of_them_differs(base):
    compared = Comparison(base, base, TOLERANCE)
    assert compared.outcome == comparison.NO_REGRESSION
    assert compared.changes == {} and compared.movements == [] and compared.differences == [] and compared.strays == []
    assert {drift.ratio.value for drift in compared.drifts.values()} == {1.0}


def test_a_changed_variant_is_a_regression_where_it_is_slower_and_not_where_the_machine_is(base):
    compared = Comparison(base, changed(base, sources=("coarsened",), slower={"coarsened": 1.1}), TOLERANCE)
    assert compared.outcome == comparison.REGRESSION
    assert compared.changes == {"coarsened": "sources"}
    assert {(row.place.variant, row.verdict) for row in compared.movements} == {("coarsened", "slower")}
    assert [row.speedup.value for row in compared.movements] == pytest.approx([1 / 1.1] * len(compared.movements))

    compared = Comparison(base, changed(base, sources=("coarsened",), slower={"coarsened": 0.8}), TOLERANCE)
    assert compared.outcome == comparison.NO_REGRESSION
    assert {row.verdict for row in compared.movements} == {"faster"}

    compared = Comparison(base, changed(base, sources=("coarsened",), by=1.3), TOLERANCE)
    assert compared.outcome == comparison.NO_REGRESSION
    assert {row.verdict for row in compared.movements} == {"same"}
    assert all(drift.ratio.value == pytest.approx(1 / 1.3) for drift in compared.drifts.values())

    assert Comparison(base, changed(base, by=1.05), TOLERANCE).outcome == comparison.REGRESSION
    assert Comparison(base, changed(base, by=1.01), TOLERANCE).outcome == comparison.NO_REGRESSION


def test_a_change_as_large_as_an_unchanged_variant_s_is_ambiguous(base):
    for slowdown, verdict, outcome in [
        (1.01, "same", comparison.NO_REGRESSION),
        (1.05, "ambiguous", comparison.AMBIGUOUS),
        (0.95, "ambiguous", comparison.NO_REGRESSION),
        (1.12, "slower", comparison.REGRESSION),
    ]:
        slower = {"constant_weights": slowdown, "unroll_gemm": 1.08}
        compared = Comparison(base, changed(base, sources=("constant_weights",), slower=slower), TOLERANCE)
        assert {row.verdict for row in compared.movements} == {verdict}
        assert compared.outcome == outcome
        assert {place.variant for place, *_ in compared.strays} == {"unroll_gemm"}


def test_equal_code_on_two_gpus_is_no_regression_and_raises_few_alarms_where_taken_for_changed():
    one, other = opened("20261121-nvidia-h200-f71084"), opened("20261121-nvidia-h200-42e94f")
    whole = Comparison(one, other, TOLERANCE)
    assert whole.outcome == comparison.NO_REGRESSION
    assert all(abs(drift.ratio.value - 1) < 0.005 and len(drift.ratios) > 50 for drift in whole.drifts.values())
    ours = [name for name, told in one.record["variants"].items() if told["device"] == "gpu" and not told["peer"]]
    outcomes = [Comparison(one, changed(other, sources=(name,)), TOLERANCE).outcome for name in ours[::3]]
    assert outcomes.count(comparison.REGRESSION) <= 0.1 * len(outcomes)
    assert outcomes.count(comparison.NO_REGRESSION) >= 0.7 * len(outcomes)


def test_runs_of_other_machines_rules_or_shapes_are_not_comparable_and_it_says_why(base):
    for change, reason in [
        (lambda record: record["machine"]["gpu"].update(name="NVIDIA L4"), "base was measured on NVIDIA H200, head on"),
        (lambda record: record.update(protocol=99), "head under 99"),
        (lambda record: record["measuring"]["gpu"].update(warmup=7), "the measuring policy differs: gpu.warmup is"),
        (lambda record: record["networks"]["fa18"].update(shapes_sha256="0"), "no variant was measured in both runs"),
    ]:
        record = copy.deepcopy(base.record)
        change(record)
        compared = Comparison(base, catalog.Run(base.path, record, base.loaded), TOLERANCE)
        assert compared.outcome == comparison.NOT_COMPARABLE
        assert reason in compared.obstacles["gpu"]
        assert reason in rendering.comparison_text(compared)


def test_a_variant_that_is_no_longer_right_is_a_regression_however_fast(base):
    head = changed(base, sources=("fft",), slower={"fft": 0.5})
    wrong = head.table(tables.CORRECTNESS).copy()
    chosen = (wrong.variant == "fft") & (wrong.test == "reals")
    wrong.loc[chosen, ["ok", "status", "reason"]] = [False, "wrong_result", "largest error 3 exceeds what fp32 allows"]
    head = catalog.Run(head.path, head.record, {**head.loaded, tables.CORRECTNESS.name: wrong})
    compared = Comparison(base, head, TOLERANCE)
    assert compared.outcome == comparison.REGRESSION
    assert compared.losses == [("fft", "fa18", "gpu", "wrong_result: largest error 3 exceeds what fp32 allows")]
    assert "largest error 3 exceeds" in rendering.comparison_text(compared)


def test_a_variant_that_one_run_timed_on_some_layers_alone_is_not_compared(base):
    head = changed(base, sources=("fft", "coarsened"))
    samples = head.table(tables.SAMPLES)
    head.loaded[tables.SAMPLES.name] = samples[(samples.variant != "fft") | (samples.case != "fa18/conv2")]
    compared = Comparison(base, head, TOLERANCE)
    assert {row.place.variant for row in compared.movements} == {"coarsened"}


def test_another_compiler_and_another_library_are_changes_and_a_kernel_s_resources_are_shown(base):
    builds = base.table(tables.BUILDS).copy()
    chosen = (builds.variant == "fp16") & (builds.arch == "sm_90")
    builds.loc[chosen, "compiler"] = "NVRTC 99.0"
    builds.loc[chosen, "registers"] += 8
    record = copy.deepcopy(base.record)
    record["machine"]["packages"]["torch"] = "99.0"
    compared = Comparison(base, catalog.Run(base.path, record, {**base.loaded, tables.BUILDS.name: builds}), TOLERANCE)
    assert compared.changes.keys() == {"fp16", "cudnn_fp32", "cudnn_tf32", "torch_cpu"}
    assert compared.changes["fp16"].endswith("→ NVRTC 99.0") and compared.changes["cudnn_fp32"].endswith("→ 99.0")
    (row,) = compared.resources
    assert row[:3] == ("fp16", "conv_forward", "registers") and row[4] == row[3] + 8
    assert ("torch", base.record["machine"]["packages"]["torch"], "99.0") in compared.differences


def test_variants_of_one_run_alone_are_named_and_not_judged(base):
    record = copy.deepcopy(base.record)
    del record["variants"]["fft"]
    samples = base.table(tables.SAMPLES)
    read = {**base.loaded, tables.SAMPLES.name: samples[samples.variant != "fft"]}
    compared = Comparison(base, catalog.Run(base.path, record, read), TOLERANCE)
    assert compared.outcome == comparison.NO_REGRESSION
    assert compared.omissions == ["variants of base alone: fft"]
    assert ComparedPlace("fft", "fa18", "gpu", 10_000) not in compared.places


def test_without_a_gpu_a_changed_kernel_s_resources_are_compared_on_every_architecture_that_both_built(base):
    builds = base.table(tables.BUILDS)
    older = builds.assign(arch="sm_80")
    newer = builds.assign(arch="sm_80", registers=builds.registers + 8)
    record = copy.deepcopy(base.record)
    record["machine"]["gpu"] = None
    times = {**base.loaded, tables.SAMPLES.name: base.table(tables.SAMPLES).assign(device="cpu", state="hot")}
    one = catalog.Run(base.path, record, {**times, tables.BUILDS.name: pd.concat([builds, older])})
    read = {**times, tables.BUILDS.name: pd.concat([builds, newer, builds.assign(arch="sm_75")])}
    compared = Comparison(one, changed(catalog.Run(base.path, record, read), sources=("fp16",)), TOLERANCE)
    assert compared.changes == {"fp16": "sources"}
    ((*place, before, after, arch),) = compared.resources
    assert place == ["fp16", "conv_forward", "registers"] and after == before + 8 and arch == "sm_80"
    assert "sm_80" in rendering.comparison_text(compared)


def test_the_view_counts_verdicts_by_device_shows_what_lost_most_first_and_draws_what_there_is(base):
    head = changed(base, sources=("coarsened", "fft"), slower={"coarsened": 1.1})
    compared = Comparison(base, head, TOLERANCE)
    (device,) = runs_compared.runs_compared_view(compared).devices
    sizes = len(compared.drifts)
    assert (device.name, device.variants, device.places) == ("NVIDIA H200", 2, 2 * sizes)
    assert dict(device.verdicts) == {"slower": sizes, "ambiguous": 0, "same": sizes, "faster": 0}

    head = changed(base, sources=("coarsened", "fft"), slower={"coarsened": 1.1})
    view = runs_compared.runs_compared_view(Comparison(base, head, TOLERANCE))
    assert view.changes == (("coarsened", "sources"), ("fft", "sources"))
    assert view.movements.rows[0][0] == "`coarsened`" and view.movements.rows[0][-1] == "**slower**"
    assert view.movements.rows[-1][0] == "`fft`" and view.movements.rows[-1][-1] == "same"
    assert [column.label for column in view.drifts.head][-2:] == ["Same within", "Changed beyond"]

    view = runs_compared.runs_compared_view(Comparison(base, base, TOLERANCE))
    assert view.movements is None and view.losses is None and view.resources is None and view.changes == ()
    assert {row[3] for row in view.drifts.rows} == {"1.000×"}
    assert [row[0] for row in view.differences.rows] == ["run", "measured"]

    slower = dict.fromkeys(base.record["variants"], 1.0) | dict.fromkeys(
        ("coarsened", "fft", "fp16", "unroll_gemm"), 1.1
    )
    compared = Comparison(base, changed(base, slower=slower), TOLERANCE)
    view = runs_compared.runs_compared_view(compared)
    assert view.strays == len(compared.strays) > runs_compared.MOST_STRAYS
    assert view.furthest.count(" on fa18 at ") == runs_compared.MOST_STRAYS
    assert view.furthest.endswith(" images 0.909×")

    assert runs_compared.figure(Comparison(base, base, TOLERANCE)).caption.endswith("Shaded: the same.")
    record = copy.deepcopy(base.record)
    record["protocol"] = 99
    assert runs_compared.figure(Comparison(base, catalog.Run(base.path, record, base.loaded), TOLERANCE)) is None


def test_markdown_of_a_comparison_breaks_neither_rows_nor_paragraphs(base):
    table = runs_compared.MarkdownTable((*words("", "Why"), *numbers("Size")), (("fft", "3 | 4\nand so on", "10"),))
    assert table.text == "| | Why | Size |\n| --- | --- | ---: |\n| fft | 3 \\| 4 and so on | 10 |\n"

    assert rendering.join_lines("one\n  two \nthree\u202f%") == "one two three\u202f%"

    head = changed(base, sources=("coarsened",), slower={"coarsened": 1.1, "unroll_gemm": 1.08})
    lines = rendering.comparison_text(Comparison(base, head, TOLERANCE)).split("\n")
    rows = [line.startswith("|") for line in lines]
    starts = [place for place in range(1, len(rows)) if rows[place] and not rows[place - 1]]
    ends = [place for place in range(1, len(rows)) if rows[place - 1] and not rows[place]]
    assert len(starts) == 3
    assert all(lines[place - 1] == "" for place in starts)
    assert all(lines[place] == "" for place in ends)
