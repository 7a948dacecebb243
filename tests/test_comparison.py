"""Two runs held against each other: runs of two GPUs, and what a change of code or of machine would make of one."""

import copy
from collections.abc import Mapping

import pandas as pd
import pytest

from conftest import PROJECT
from warpbook import comparison, rendering, runs, tables
from warpbook.comparison import Comparison, Place

TOLERANCE = 0.02


@pytest.fixture(scope="module")
def base() -> runs.Run:
    """A run of an H200, its network fa18 alone."""
    run = opened("20261121-nvidia-h200-42e94f")
    return runs.Run(run.path, {**run.record, "networks": {"fa18": run.record["networks"]["fa18"]}}, run._read)


def opened(run_id: str) -> runs.Run:
    run = runs.open_run(PROJECT / "tests" / "data" / "runs" / f"{run_id}.zip")
    assert run.problem == ""
    return run


def changed(
    run: runs.Run,
    sources: tuple[str, ...] = (),
    slower: Mapping[str, float] | None = None,
    by: float = 1.0,
) -> runs.Run:
    """A run with other sources of some variants, and times longer by a factor for some, and by one for all."""
    record, read = copy.deepcopy(run.record), dict(run._read)
    for name in sources:
        record["variants"][name]["source_sha256"] = "0" * 64
    samples = read[tables.SAMPLES.name].copy()
    samples["time_ms"] *= samples.variant.map(slower or {}).fillna(1.0) * by
    return runs.Run(run.path, record, {**read, tables.SAMPLES.name: samples})


def test_equal_runs_are_no_regression_and_nothing_of_them_differs(base):
    found = Comparison(base, base, TOLERANCE)
    assert found.outcome == comparison.NO_REGRESSION
    assert found.changed == {} and found.moved == [] and found.differences == [] and found.strays == []
    assert {drift.ratio.value for drift in found.drifts.values()} == {1.0}


def test_a_changed_variant_that_is_slower_is_a_regression_at_every_size(base):
    found = Comparison(base, changed(base, sources=("coarsened",), slower={"coarsened": 1.1}), TOLERANCE)
    assert found.outcome == comparison.REGRESSION
    assert found.changed == {"coarsened": "sources"}
    assert {(row.place.variant, row.verdict) for row in found.moved} == {("coarsened", "slower")}
    assert [row.speedup.value for row in found.moved] == pytest.approx([1 / 1.1] * len(found.moved))


def test_a_changed_variant_that_is_faster_is_none(base):
    found = Comparison(base, changed(base, sources=("coarsened",), slower={"coarsened": 0.8}), TOLERANCE)
    assert found.outcome == comparison.NO_REGRESSION
    assert {row.verdict for row in found.moved} == {"faster"}


def test_a_slower_machine_makes_no_regression_of_a_changed_variant(base):
    found = Comparison(base, changed(base, sources=("coarsened",), by=1.3), TOLERANCE)
    assert found.outcome == comparison.NO_REGRESSION
    assert {row.verdict for row in found.moved} == {"same"}
    assert all(drift.ratio.value == pytest.approx(1 / 1.3) for drift in found.drifts.values())


def test_where_nothing_changed_a_slower_machine_is_the_regression(base):
    assert Comparison(base, changed(base, by=1.05), TOLERANCE).outcome == comparison.REGRESSION
    assert Comparison(base, changed(base, by=1.01), TOLERANCE).outcome == comparison.NO_REGRESSION


@pytest.mark.parametrize(
    ("slowdown", "verdict", "outcome"),
    [
        (1.01, "same", comparison.NO_REGRESSION),
        (1.05, "ambiguous", comparison.AMBIGUOUS),
        (0.95, "ambiguous", comparison.NO_REGRESSION),
        (1.12, "slower", comparison.REGRESSION),
    ],
)
def test_a_change_as_large_as_an_unchanged_variant_s_is_ambiguous(base, slowdown, verdict, outcome):
    slower = {"constant_weights": slowdown, "unroll_gemm": 1.08}
    found = Comparison(base, changed(base, sources=("constant_weights",), slower=slower), TOLERANCE)
    assert {row.verdict for row in found.moved} == {verdict}
    assert found.outcome == outcome
    assert {place.variant for place, *_ in found.strays} == {"unroll_gemm"}


def test_equal_code_on_two_gpus_is_no_regression_and_raises_few_alarms_where_taken_for_changed():
    one, other = opened("20261121-nvidia-h200-f71084"), opened("20261121-nvidia-h200-42e94f")
    whole = Comparison(one, other, TOLERANCE)
    assert whole.outcome == comparison.NO_REGRESSION
    assert all(abs(drift.ratio.value - 1) < 0.005 and len(drift.ratios) > 50 for drift in whole.drifts.values())
    ours = [name for name, told in one.record["variants"].items() if told["device"] == "gpu" and not told["peer"]]
    outcomes = [Comparison(one, changed(other, sources=(name,)), TOLERANCE).outcome for name in ours]
    assert outcomes.count(comparison.REGRESSION) <= 0.1 * len(ours)
    assert outcomes.count(comparison.NO_REGRESSION) >= 0.7 * len(ours)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["machine"]["gpu"].update(name="NVIDIA L4"), "base was measured on NVIDIA H200, head on"),
        (lambda record: record.update(protocol=99), "head under 99"),
        (lambda record: record["measuring"]["gpu"].update(warmup=7), "the measuring policy differs: `gpu` is"),
        (lambda record: record["networks"]["fa18"].update(shapes_sha256="0"), "no variant was measured in both runs"),
    ],
)
def test_runs_of_other_machines_rules_or_shapes_are_not_comparable_and_it_says_why(base, change, words):
    record = copy.deepcopy(base.record)
    change(record)
    found = Comparison(base, runs.Run(base.path, record, base._read), TOLERANCE)
    assert found.outcome == comparison.NOT_COMPARABLE
    assert words in found.obstacles["gpu"]
    assert words in rendering.comparison_text(found)


def test_a_variant_that_is_no_longer_right_is_a_regression_however_fast(base):
    head = changed(base, sources=("fft",), slower={"fft": 0.5})
    wrong = head.table(tables.CORRECTNESS).copy()
    own = (wrong.variant == "fft") & (wrong.test == "reals")
    wrong.loc[own, ["ok", "status", "reason"]] = [False, "wrong_result", "largest error 3 exceeds what fp32 allows"]
    head = runs.Run(head.path, head.record, {**head._read, tables.CORRECTNESS.name: wrong})
    found = Comparison(base, head, TOLERANCE)
    assert found.outcome == comparison.REGRESSION
    assert found.lost == [("fft", "fa18", "gpu", "wrong_result: largest error 3 exceeds what fp32 allows")]
    assert "largest error 3 exceeds" in rendering.comparison_text(found)


def test_another_compiler_and_another_library_are_changes_and_a_kernel_s_resources_are_shown(base):
    builds = base.table(tables.BUILDS).copy()
    own = (builds.variant == "fp16") & (builds.arch == "sm_90")
    builds.loc[own, "compiler"] = "NVRTC 99.0"
    builds.loc[own, "registers"] += 8
    record = copy.deepcopy(base.record)
    record["machine"]["packages"]["torch"] = "99.0"
    found = Comparison(base, runs.Run(base.path, record, {**base._read, tables.BUILDS.name: builds}), TOLERANCE)
    assert found.changed.keys() == {"fp16", "cudnn_fp32", "cudnn_tf32", "torch_cpu"}
    assert found.changed["fp16"].endswith("→ NVRTC 99.0") and found.changed["cudnn_fp32"].endswith("→ 99.0")
    (row,) = found.resources
    assert row[:3] == ("fp16", "conv_forward", "registers") and row[4] == row[3] + 8
    assert ("torch", base.record["machine"]["packages"]["torch"], "99.0") in found.differences


def test_variants_of_one_run_alone_are_named_and_not_judged(base):
    record = copy.deepcopy(base.record)
    del record["variants"]["fft"]
    samples = base.table(tables.SAMPLES)
    read = {**base._read, tables.SAMPLES.name: samples[samples.variant != "fft"]}
    found = Comparison(base, runs.Run(base.path, record, read), TOLERANCE)
    assert found.outcome == comparison.NO_REGRESSION
    assert found.left_out == ["variants of base alone: fft"]
    assert Place("fft", "fa18", "gpu", 10_000) not in found.places


def test_without_a_gpu_a_changed_kernel_s_resources_are_compared_on_every_architecture_that_both_built(base):
    builds = base.table(tables.BUILDS)
    older = builds.assign(arch="sm_80")
    newer = builds.assign(arch="sm_80", registers=builds.registers + 8)
    record = copy.deepcopy(base.record)
    record["machine"]["gpu"] = None
    times = {**base._read, tables.SAMPLES.name: base.table(tables.SAMPLES).assign(device="cpu", state="hot")}
    one = runs.Run(base.path, record, {**times, tables.BUILDS.name: pd.concat([builds, older])})
    read = {**times, tables.BUILDS.name: pd.concat([builds, newer, builds.assign(arch="sm_75")])}
    found = Comparison(one, changed(runs.Run(base.path, record, read), sources=("fp16",)), TOLERANCE)
    assert found.changed == {"fp16": "sources"}
    ((*place, before, after, arch),) = found.resources
    assert place == ["fp16", "conv_forward", "registers"] and after == before + 8 and arch == "sm_80"
    assert "sm_80" in rendering.comparison_text(found)
