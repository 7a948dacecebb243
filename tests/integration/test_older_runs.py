"""Figures that the study's GPU run does not hold, from an older archived run that does."""

import gzip
import json
import re
import shutil
import zipfile

import pytest

from warpbook.report import narrative, trace_layout
from warpbook.report.evidence.run_selection import OTHER_RUN_TABLES
from warpbook.report.views import analysis, claim_table, executive, last_page, whole_network
from warpbook.report.views.supplement import correctness, profiler_tables, provenance, validity
from warpbook.runs import catalog, tables
from warpbook.runs.tables import PRECISION

OWN = "20261124-nvidia-h200-000001"
OLDER = "20261120-nvidia-h200-000002"
LATER, EARLIER = ("2026-11-24T00:00:00+00:00", "2026-11-20T00:00:00+00:00")
ASKED_FOR = [tables.COUNTERS, tables.SANITIZER, tables.ATTACKS, PRECISION]
"""Tables of OTHER_RUN_TABLES that the archived run holds."""


def heads_alone(packed: dict[str, bytes], names: set[str]) -> dict[str, bytes]:
    """The files of a run with no rows in some of its tables."""
    emptied = {}
    for name, content in packed.items():
        if name in names and name.endswith(".gz"):
            content = gzip.compress(gzip.decompress(content).split(b"\n", 1)[0] + b"\n")
        emptied[name] = content.split(b"\n", 1)[0] + b"\n" if name in names and name.endswith(".csv") else content
    return emptied


def of_whole_networks(checks: bytes) -> bytes:
    """The checks of whole networks alone."""
    head, *rows = checks.splitlines(keepends=True)
    return head + b"".join(row for row in rows if row.startswith(b"network,"))


def packed_as(path, files, run_id, ended):
    record = json.loads(files["run.json"]) | {"run_id": run_id, "started": ended, "ended": ended}
    with zipfile.ZipFile(path / f"{run_id}.zip", "w") as archive:
        for name, content in (files | {"run.json": json.dumps(record).encode()}).items():
            archive.writestr(name, content)
    return path / f"{run_id}.zip"


@pytest.fixture(scope="module")
def made(small_archive, tmp_path_factory):
    """(a run without what it was not asked for, an older one that holds nothing else)."""
    folder = tmp_path_factory.mktemp("made")
    with zipfile.ZipFile(small_archive) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    kept = {table.name for table in (*ASKED_FOR, tables.BUILDS)}
    of_older = heads_alone(files, {table.name for table in tables.RUN_TABLES} - kept)
    of_older |= {tables.CORRECTNESS.name: of_whole_networks(files[tables.CORRECTNESS.name])}
    own = heads_alone(files, {table.name for table in OTHER_RUN_TABLES})
    return (
        packed_as(folder, own, OWN, LATER),
        packed_as(folder, of_older, OLDER, EARLIER),
    )


@pytest.fixture
def older(made, tmp_path, monkeypatch):
    """The older run, a copy, the only one archived."""
    folder = tmp_path / catalog.ARCHIVES
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return shutil.copy(made[1], folder)


@pytest.fixture
def evidence(made, older, evidence_of):
    """Make the evidence of the run that lacks counters and the like."""
    return lambda: evidence_of(made[0])


def rerecorded(rewritten, path, change):
    """A run with another record."""

    def rewrite(content):
        record = json.loads(content)
        change(record)
        return json.dumps(record).encode()

    return rewritten(path, "run.json", rewrite)


def of_other_sources(but=None):
    """A change after which a run's variants are of other sources than today's, but for those whose names begin so."""

    def change(record):
        for name, one in record["variants"].items():
            if but is None or not name.startswith(but):
                one["source_sha256"] = "0" * 64

    return change


def test_what_a_run_does_not_hold_is_shown_of_an_older_one_that_is_cited_in_captions(evidence, ev):
    shown = evidence()
    assert {table.name: run.run_id for table, run in shown.selection.from_other_run.items()} == {
        table.name: OLDER for table in ASKED_FOR
    }
    assert shown.counters.calls == ev.counters.calls
    assert "fused_mma" in shown.networks.calls
    assert len(shown.trust.attacks) == len(ev.trust.attacks)
    assert len(shown.trust.sanitizer) == len(ev.trust.sanitizer)
    assert {"direct", "network/fused_mma", "network/fused_conv_fc_algebra"} <= {*shown.trust.sanitizer.variant}
    assert len(shown.checks.errors) == len(ev.checks.errors)
    assert shown.times.op("direct", "conv1", 10_000) == ev.times.op("direct", "conv1", 10_000)
    assert [one.verdict for one in shown.claims.judged] == [one.verdict for one in ev.claims.judged]

    counts, in_full, harness = (
        analysis.analysis_view(shown).counts,
        analysis.full_analysis(shown),
        validity.validity_view(shown),
    )
    errors = correctness.correctness_view(shown).errors
    told = [counts.units, counts.roofline, in_full.kernels, in_full.bounds, harness.attacks, harness.sanitizer]
    for one in [*told, errors.figure, errors.ranges]:
        assert f"Of the run {OLDER}; the run {OWN} holds none." in one.caption, one.id
    assert f"The counters are of the run {OLDER} and the network fa18" in counts.coverage
    assert f"The run {OWN}, which the times are of, holds none." in counts.coverage
    assert f"Counters are of the older run {OLDER}." in claim_table.full_claim_table(shown).caption
    page = executive.executive_view(shown)
    assert {one.label: one.text for one in page.findings}["Why"].endswith(f" in the run {OLDER}.")
    assert f" in the run {OLDER}" in dict(page.facts.rows)["Tests"]
    loads = ("constant_weights", "smsp__inst_executed_op_global_ld.sum", "conv1")
    assert narrative.Figures(shown).counter_fall(*loads).endswith(f" (run {OLDER})")
    (counted,) = (row for row in profiler_tables.profiler_tables_view(shown).table.rows if row[0] == "Nsight Compute")
    assert counted[-1].endswith(f"; {len(shown.counters.counted)} calls in the run {OLDER}")

    assert [run.run_id for run in shown.cited_runs] == [OWN, OLDER]
    facts = dict(provenance.provenance_view(shown).runs[1].table.rows)
    assert facts["Cited for"].startswith("What the run of the GPU times lacks: hardware counters, ")

    fastest = shown.networks.fastest(shown.largest, peers=False)
    assert fastest.name in shown.networks.calls
    view = whole_network.whole_network_view(shown)
    assert f"Of the run {OLDER}" in view.kernels.caption
    assert view.bound.startswith(f"What bounds {fastest.name} in the run {OLDER}: ")

    assert any("ncu" in one.ms for one in trace_layout.agreements(ev))
    assert not any("ncu" in one.ms for one in trace_layout.agreements(shown))


def test_shares_of_a_peak_are_of_the_older_run_s_machine(evidence, older, rewritten):
    def change(record):
        record["machine"]["gpu"] |= {"copy_gb_per_s": 1234.0, "peak_gflop_per_s": {"fp32": 43210.0}}

    rerecorded(rewritten, older, change)
    counts = analysis.analysis_view(evidence()).counts
    assert (
        "copy bandwidth as measured, 1.23 TB/s, and the FP32 peak by specification, 43.2 TFLOP/s"
        in counts.roofline.caption
    )


@pytest.fixture
def judged():
    """A claim on a hardware counter of a variant that the archived run counted, held against some evidence."""

    def judge(shown, name):
        variant = shown.plan.variants[name]
        return shown.claims.judge(variant, next(one for one in variant.header.claims if one.counter))

    return judge


def test_a_variant_whose_sources_changed_since_has_no_counters_of_the_older_run(evidence, older, rewritten, judged):
    rerecorded(rewritten, older, lambda record: record["variants"]["shared_input"].update(source_sha256="0" * 64))
    shown = evidence()
    counted = {name for name, _ in shown.counters.calls}
    assert "direct" in counted
    assert "shared_input" not in counted
    assert "shared_input" not in set(shown.trust.sanitizer.variant)
    assert shown.times.op("shared_input", "conv1", 10_000)
    said = judged(shown, "shared_input")
    assert said.verdict == "not testable"
    assert said.reason == f"counters are of the older run {OLDER}, but its sources changed after it was measured"
    assert (
        "every variant with a time but shared_input, whose programs were not profiled on this network there, or whose sources are"
        in (analysis.analysis_view(shown).counts.coverage)
    )


def test_a_variant_compiled_otherwise_since_has_no_counters_of_the_older_run(evidence, older, rewritten):
    rewritten(
        older, "builds.csv", lambda content: re.sub(rb"(?m)^(direct,.*)--std=c\+\+17", rb"\1--std=c++14", content)
    )
    counted = {name for name, _ in evidence().counters.calls}
    assert "direct" not in counted
    assert "shared_input" in counted


def test_an_implementation_whose_sources_changed_since_has_no_counts_of_the_older_run(evidence, older, rewritten):
    rerecorded(rewritten, older, lambda record: record["variants"]["network/fused_mma"].update(source_sha256="0" * 64))
    shown = evidence()
    assert "fused_mma" not in shown.networks.calls
    assert "fused_cublas" in shown.networks.calls
    sanitized = {*shown.trust.sanitizer.variant}
    assert "network/fused_conv_fc_algebra" in sanitized and "network/fused_mma" not in sanitized
    assert "fused_mma" in [one.name for one in shown.networks.recorded_implementations]


def test_nothing_comes_from_a_run(evidence, older, rewritten):
    for change in [
        lambda record: record["machine"]["gpu"].update(name="NVIDIA A40"),
        lambda record: record["networks"]["fa18"].update(shapes_sha256="0" * 64),
        lambda record: record.update(protocol=record["protocol"] - 1),
        lambda record: record.update(started="2026-11-25T00:00:00+00:00", ended="2026-11-25T00:00:00+00:00"),
    ]:
        rerecorded(rewritten, older, change)
        shown = evidence()
        assert shown.selection.from_other_run == {}
        assert shown.counters.table.empty
        assert shown.trust.attacks.empty
        assert [run.run_id for run in shown.cited_runs] == [OWN]
        assert analysis.analysis_view(shown) is None


def test_whole_networks_of_an_older_run_are_shown_where_all_its_variants_are_of_other_sources(
    evidence, older, rewritten, judged
):
    rerecorded(rewritten, older, of_other_sources(but="network/"))
    shown = evidence()
    assert "fused_mma" in shown.networks.calls
    assert shown.counters.table.empty
    assert judged(shown, "shared_input").reason.startswith(f"counters are of the older run {OLDER}, but its sources")


def test_a_run_whose_figures_are_all_of_other_sources_is_passed_over_for_one_before_it(evidence, older, rewritten):
    before = shutil.copy(older, f"{catalog.ARCHIVES}/20261119-nvidia-h200-000003.zip")
    rerecorded(
        rewritten,
        before,
        lambda record: record.update(
            run_id="20261119-nvidia-h200-000003", **dict.fromkeys(("started", "ended"), EARLIER.replace("-20T", "-19T"))
        ),
    )
    rerecorded(rewritten, older, of_other_sources())
    shown = evidence()
    assert shown.selection.run_with(tables.COUNTERS).run_id == "20261119-nvidia-h200-000003"
    assert shown.selection.run_with(tables.ATTACKS).run_id == OLDER


def test_where_the_newest_run_holds_a_table_nothing_comes_from_an_older_one(ev, older, evidence_of, small_archive):
    shown = evidence_of(small_archive)
    assert shown.selection.from_other_run == {}
    assert [run.run_id for run in shown.cited_runs] == [small_archive.stem]
    assert {*shown.counters.table.run_id} == {small_archive.stem}
    assert analysis.analysis_view(shown) == analysis.analysis_view(ev)


def test_what_is_said_of_the_judge_comes_from_any_run_of_the_model_but_counters_from_an_older_one(
    evidence, older, rewritten
):
    def later_of_another_network(record):
        record["ended"] = "2026-12-01T00:00:00+00:00"
        record["networks"] = {"softmax": record["networks"]["fa18"]}

    rerecorded(rewritten, older, later_of_another_network)
    shown = evidence()
    assert {table: run.run_id for table, run in shown.selection.from_other_run.items()} == {tables.ATTACKS: OLDER}


def test_times_and_checks_are_never_an_older_run_s_and_a_submission_draws_on_none(evidence):
    shown = evidence()
    nothing = tables.with_places(tables.CORRECTNESS.empty())
    shown.gpu_run.loaded[tables.CORRECTNESS.name] = nothing  # of which the older holds some
    for table in tables.RUN_TABLES:
        if table not in OTHER_RUN_TABLES:
            assert shown.selection.run_with(table) is shown.gpu_run

    shown = evidence()
    term = next(study.course for study in shown.config.studies.values() if study.course)
    shown.study = shown.study.model_copy(update={"course": term})
    assert shown.selection.from_other_run == {}


def test_a_sweep_of_an_older_run_is_shown_whatever_network_it_was_made_on(evidence, older, tmp_path, rewritten):
    shown = evidence()
    swept = next(one for one in shown.plan.variants.values() if one.header.sweep)
    declared = " ".join(f"{key}={value}" for key, value in swept.header.constants.items())
    place = {**tables.place("conv", "fa19", "conv1"), "variant": swept.name, "size": 1000, "configuration": declared}
    timed = {"tool": "Kernel Tuner 1", "time_ms": 1.0, "n": 7, "status": "ok", "reason": ""}
    tables.SWEEP.write([place | timed], tmp_path / "sweep.csv")
    rewritten(older, "sweep.csv", lambda _: (tmp_path / "sweep.csv").read_bytes())
    (sentence,) = validity.sweep_sentences(evidence())
    assert sentence.startswith(f"{swept.name} on conv1 of fa19, ")
    assert f"Of the run {OLDER}" in sentence


@pytest.mark.parametrize(("protocol", "words"), [(2, "is overwritten"), (3, "dirty (not yet written back)"), (1, None)])
def test_a_report_says_what_came_before_a_cold_sample_in_its_run(made, older, evidence_of, rewritten, protocol, words):
    shown = evidence_of(rerecorded(rewritten, made[0], lambda record: record.update(protocol=protocol)))
    if words:
        assert words in last_page.last_page_view(shown).cold
    assert ("direct" in shown.selection.usable("gpu")) == bool(words)
