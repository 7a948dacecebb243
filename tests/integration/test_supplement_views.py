"""The supplement and the chapter on counters as views: what they show of the archived run, and of one that lacks it."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from warpbook.common import units
from warpbook.profiling import counters
from warpbook.report import trace_layout
from warpbook.report.views import analysis, last_page
from warpbook.report.views.supplement import (
    all_times,
    build_tables,
    correctness,
    profiler_tables,
    provenance,
    stream_tables,
    validity,
)
from warpbook.runs import tables


@pytest.fixture
def other(evidence_of, archive):
    """Evidence of a copy of the same run for a test that changes it."""
    return evidence_of(archive)


def cell(table, row, label):
    """The cell of a row in the column of this label."""
    return row[[column.label for column in table.head].index(label)]


def test_every_counted_call_has_a_number_what_bounds_it_and_the_share_of_each_unit_named(ev):
    counts = analysis.full_analysis(ev)
    assert len(counts.kernels.rows) == len(counts.bounds.rows) == len(ev.counters.counted)
    first = ev.counters.counted[0]
    assert counts.kernels.rows[0][:2] == (f"1\u00a0{first[0].name}", first[1].name)
    share = units.percent(first[2].longest.values[counters.SM] / 100, 0)
    assert cell(counts.kernels, counts.kernels.rows[0], "SM") == share
    assert all(row[2] for row in counts.bounds.rows)

    counts = analysis.full_analysis(ev)
    columns = {
        "the L2 cache": "L2",
        "the L1 cache and shared memory": "L1",
        "DRAM": "DRAM",
        "instruction issue": "Issue",
    }
    named = set()
    for row, (_, _, sentence) in zip(counts.kernels.rows, counts.bounds.rows, strict=True):
        for unit, column in columns.items():
            if found := re.search(rf"(?:by|peak:) {unit}[:,]\D* (\d+\u202f%)", sentence):
                named.add(unit)
                assert cell(counts.kernels, row, column) == found[1]
    assert named >= {"the L2 cache", "the L1 cache and shared memory", "instruction issue"}


def test_a_launch_without_a_throughput_has_a_dash_and_without_counters_there_is_no_chapter(
    ev, other, evidence_of, small_archive
):
    variant, layer, call = ev.counters.counted[0]
    readings = {name: value for name, value in call.longest.values.items() if name != counters.SM}
    bare = counters.CountedCall(**(vars(call) | {"launches": (counters.CountedLaunch(call.longest.kernel, readings),)}))
    other.counters.counted = [(variant, layer, bare)]
    table = analysis.full_analysis(other).kernels
    assert cell(table, table.rows[0], "SM") == "–"

    other = evidence_of(small_archive)
    other.counters.table = tables.with_places(tables.COUNTERS.empty())
    assert analysis.analysis_view(other) is None
    assert analysis.full_analysis(other) is None


def test_builds_have_registers_for_each_architecture_and_a_failed_one_the_compiler_s_words(
    ev, other, evidence_of, small_archive
):
    table = build_tables.build_tables_view(ev).table
    (row,) = (row for row in table.rows if row[:2] == ("direct", "conv_forward"))
    found = ev.builds.table
    built = found[(found.variant == "direct") & (found.kernel == "conv_forward") & found.ok]
    for arch, registers in zip(built.arch, built.registers, strict=True):
        assert cell(table, row, arch) == str(registers)
    assert cell(table, row, "Shared, B") == str(built.shared_bytes.max())

    assert build_tables.build_tables_view(ev).host is None
    table = other.builds.table
    named = {"variant": "register_blocked", "arch": "x86_64", "compiler": "g++ 12.2.0", "options": "-O3"}
    other.builds.host = table.head(2).assign(**named, ok=[True, False], log=["", "error: expected a ;"])
    view = build_tables.build_tables_view(other)
    assert [row[:4] for row in view.host.rows] == [("register_blocked", "x86_64", "g++ 12.2.0", "-O3")] * 2
    assert [row[4] for row in view.host.rows] == ["yes", "no"]
    assert ("register_blocked", "x86_64", "error: expected a ;") in view.failed.rows

    other = evidence_of(small_archive)
    frame = other.builds.table.copy()
    frame.loc[frame.variant == "direct", ["ok", "log"]] = [False, "error: expected a ;" + "x" * 1000]
    other.builds.table = frame
    view = build_tables.build_tables_view(other)
    of_direct = [row for row in view.failed.rows if row[0] == "direct"]
    assert of_direct[0][2] == ("error: expected a ;" + "x" * 1000)[: build_tables.LOG_LENGTH]
    assert "direct" not in {row[0] for row in view.table.rows}


def test_a_kernel_not_built_here_has_its_registers_from_the_run_cited_for_the_gpu(ev, other):
    every = other.local.table(tables.BUILDS)
    here = every[every.variant != "direct"].assign(registers=7)
    other.local = replace(other.local, loaded={**other.local.loaded, tables.BUILDS.name: here})
    there = ev.builds.resource("direct", "registers", "conv_forward")
    assert other.builds.resource("direct", "registers", "conv_forward") == there != 7
    assert {*other.builds.table.registers[other.builds.table.variant != "direct"]} == {7}


def test_a_failed_test_stands_in_the_verdict_and_lowers_the_count(ev, other):
    frame = other.checks.table.copy()
    first = frame.index[(frame.variant == "direct") & (frame.test == "reals")][0]
    frame.loc[first, ["ok", "status", "reason"]] = [False, "wrong_result", "12 of 100 outputs differ"]
    other.checks.table = frame
    sound, broken = (
        next(row for row in correctness.correctness_view(one).tests.rows if row[0] == "direct") for one in (ev, other)
    )
    assert sound[-1] == "passed"
    assert "12 of 100 outputs differ" in broken[-1]
    assert int(broken[3].split()[0]) == int(sound[3].split()[0]) - 1


def test_every_series_has_a_row_and_every_interval_its_samples(ev):
    table = all_times.all_times_view(ev).table
    (row,) = (row for row in table.rows if row[:3] == ("direct", "conv1", units.count(ev.sizes[0])))
    assert "±" in cell(table, row, "op, cold")
    hot = ev.times.op("direct", "conv1", ev.sizes[0], "op", "hot")
    assert cell(table, row, "op, hot") == units.milliseconds(hot.value)
    places = len(ev.ranking.measured_variants("gpu")) * len(ev.layers) + 1  # fp16x3_wgmma is for one of the layers
    assert len(table.rows) == places * len(ev.sizes)

    cells_of = [cell for row in all_times.all_times_view(ev).table.rows for cell in row]
    assert any("±" in one for one in cells_of)
    assert all(("±" in one) == ("n\u202f" in one) for one in cells_of)


def test_what_the_harness_missed_or_could_not_run_is_said_in_its_place(other):
    columns = ["variant", "network", "layer", "size", "state", "kind", "value", "low", "high", "verdict"]
    rows = [
        ["direct", "fa18", "conv1", 10, "cold", "op", ratio, low, high, verdict]
        for ratio, low, high, verdict in (
            (1.0, 0.99, 1.01, "same"), (1.02, 1.005, 1.03, "ambiguous"), (1.2, 1.1, 1.3, "faster"),
            (0.8, 0.7, 0.9, "slower"),
        )
    ]  # fmt: skip
    other.trust.aa_tests = pd.DataFrame(rows, columns=columns)
    words = validity.validity_view(other).aa_tests.words
    assert "Of 4 comparisons it wrongly called 2 faster or slower: 50.0\u202f%" in words
    assert "3 intervals do not hold 1 (75.0\u202f%)" in words and "1 the same and 1 ambiguous" in words

    frame = other.trust.attacks.copy()
    frame.loc[frame.index[0], "caught"] = False
    other.trust.attacks = frame
    results = [row[1] for row in validity.validity_view(other).attacks.rows]
    assert results == ["MISSED"] + ["caught"] * (len(frame) - 1)

    found = {"variant": "direct", "version": "2025.3", "errors": 0, "status": "ok", "reason": ""}
    rows = [{**found, "tool": tool} for tool in ("memcheck", "racecheck", "initcheck", "synccheck")]
    rows[1] |= {"errors": None, "status": "timed_out", "reason": "after 60 s"}
    other.trust.sanitizer = pd.DataFrame(rows).astype({"errors": "Int64"})
    table = validity.validity_view(other).sanitizer
    (row,) = table.rows
    assert (cell(table, row, "memcheck"), cell(table, row, "racecheck")) == ("0", "timed out")
    assert row[-1] == "racecheck: after 60 s"


def test_what_a_run_lacks_has_no_table_and_is_set_aside_with_its_names(other):
    other.gpu_run = None
    assert not any(vars(validity.validity_view(other)).values())
    assert validity.sweep_sentences(other) == ()

    other.gpu_run = None
    view = last_page.last_page_view(other)
    told = {name for row in view.missing_table.rows for name in row[0].split(", ")}
    assert told >= {variant.name for variant in other.compared_variants("gpu")}
    assert (profiler_tables.profiler_tables_view(other), profiler_tables.printed_profiles(other)) == (None, None)
    assert view.archive == provenance.provenance_view(other).archive == ""


def test_profilers_are_compared_and_each_profile_in_full_is_as_nvprof_prints_it(ev):
    agreed = trace_layout.agreements(ev)
    near = sum(one.relative_difference <= trace_layout.AGREE_WITHIN for one in agreed)
    words = profiler_tables.profiler_tables_view(ev).agreement
    assert words.startswith(
        f"{near} of {len(agreed)} kernel times of a layer agree within 10\u202f% between CUPTI in process"
    )
    assert ("Nsight Compute" in words) == any("ncu" in one.ms for one in agreed)

    shown = profiler_tables.printed_profiles(ev).profiles
    assert all("GPU activities:" in profile.text and "API calls:" in profile.text for profile in shown)
    named = {profile.title.split(",")[0] for profile in shown}
    assert {ev.ranking.best.name, *ev.study.show_profile_of} <= named
    assert "constant_weights" not in named
    framework = ev.programs.framework("gpu").name
    (whole,) = (one.text for one in shown if one.title == f"{framework}, 10\u202f000 images")
    joined = whole.replace("\n" + " " * whole.index("Name"), "")
    longest = max(ev.profiles.rows(framework, ev.largest, ("kernel",)), key=lambda row: len(row.name)).name
    assert longest[: 4 * 44 - 1] in joined and longest not in whole


def test_a_run_is_told_with_its_code_its_gpu_others_that_took_part_and_those_put_aside(ev, other):
    (run,) = provenance.provenance_view(ev).runs
    facts = dict(run.table.rows)
    assert facts["Cited for"] == "CPU and GPU times"
    assert facts["GPU"].startswith(ev.gpu_run.gpu["name"])
    assert "FP32 multiply-adds" in facts["Measured ceilings"]

    for gpus, told in [(1, False), (4, True)]:
        other.gpu_run.record["machine"]["measured_on"] = [f"host/{number}" for number in range(gpus)]
        (run,) = provenance.provenance_view(other).runs
        assert ("; the one described of 4 that took part" in dict(run.table.rows)["GPU"]) == told

    (run,) = provenance.provenance_view(other).runs
    assert "GPUs in quarantine" not in dict(run.table.rows)
    sentences = [f"host/{number}, found by samples/gpu/fa18/direct at noon: it fails" for number in range(2)]
    other.gpu_run.record["machine"]["put_aside"] = sentences
    (run,) = provenance.provenance_view(other).runs
    assert dict(run.table.rows)["GPUs in quarantine"] == "; ".join(sentences)

    def code():
        (run,) = provenance.provenance_view(other).runs
        return dict(run.table.rows)["Code"]

    record = other.gpu_run.record
    record.pop("version", None)
    assert code().startswith(f"commit {record['commit']}")
    record["version"] = "7.8.9"
    assert code().startswith(f"Warpbook 7.8.9, commit {record['commit']}")


OTHERS = "host/ffffffffffff"  # a GPU that takes half as long again
SLOWER = 1.5


@pytest.fixture(scope="module")
def of_two_gpus(small_archive, opened, evidence_of):
    """Evidence of the run as two GPUs would have made it: the other one every second A/A test, and a job."""
    run = opened(small_archive)
    samples = run.table(tables.SAMPLES)
    theirs = samples.job.str.fullmatch(r"aa:.*:[24]") | (samples.job == "shared_input")
    tests = theirs & (samples.job != "shared_input")
    assert tests.any()
    samples = samples.assign(
        time_ms=samples.time_ms.where(~tests, samples.time_ms * SLOWER),
        measured_on=theirs.map({False: "host/000000000000", True: OTHERS}),
    )
    ev = evidence_of(small_archive)
    loaded = {**run.loaded, tables.SAMPLES.name: samples}
    ev.gpu_run = ev.local = replace(run, loaded=loaded)
    return ev


def test_a_gpu_that_takes_longer_widens_what_two_jobs_may_differ_by_and_touches_no_paired_speedup(of_two_gpus, ev):
    ours, theirs = (one.times.total_speedup("constant_weights", 10_000) for one in (ev, of_two_gpus))
    assert ours.paired
    assert ours == theirs
    ours, theirs = (one.times.total_speedup("fft", 10_000, over="shared_input") for one in (ev, of_two_gpus))
    assert not ours.paired
    assert ours.ratio.value == theirs.ratio.value
    assert theirs.ratio.high >= (SLOWER - 0.02) * ours.ratio.value > ours.ratio.high
    assert theirs.ratio.low <= ours.ratio.value / (SLOWER - 0.02) < ours.ratio.low


@pytest.fixture
def bare(small_archive, opened, evidence_of):
    """Evidence of the run as though it held no streams, and nobody had noted what was busy when."""
    ev = evidence_of(small_archive)
    run = opened(small_archive)
    lacking = {table.name: table.empty() for table in (tables.STREAM_SHARDS, tables.JOBS)}
    ev.gpu_run = ev.local = replace(run, loaded={**run.loaded, **lacking})
    return ev


@pytest.fixture
def streamed(small_archive, opened, evidence_of):
    """Evidence of the run as though it held streams of one and ten million images, over 1 and 2 GPUs."""
    defaults = {"Int64": 1 << 30, "int64": 1 << 10, "float64": 0.5, "string": "fa18", "bool": True}
    columns = {name: defaults[column.dtype] for name, column in tables.STREAM_SHARDS.columns.items()}
    columns |= {"variant": "direct", "device": "gpu", "labels_sum": 9, "mismatched_labels": 0, "began_s": 0.0}
    rows = [
        {
            **columns, "images": images, "shards": devices, "workers": devices, "shard": shard,
            "measured_on": f"host/{shard}", "first_read_s": 4.0, "ended_s": 4 + images / 5e5 / devices,
        }
        for images in (1_000_000, 10_000_000)
        for devices in (1, 2)
        for shard in range(1, devices + 1)
    ]  # fmt: skip
    ev = evidence_of(small_archive)
    run = opened(small_archive)
    loaded = {**run.loaded, tables.STREAM_SHARDS.name: pd.DataFrame(rows)}
    ev.gpu_run = ev.local = replace(run, loaded=loaded)
    return ev


def test_streams_are_shown_with_their_rates_where_the_run_holds_some_of_today_s_sources(streamed, bare):
    view = stream_tables.stream_tables_view(streamed)
    assert [row[1:3] for row in view.rates.rows] == [
        ("1\u202f000\u202f000", "1 GPU"),
        ("1\u202f000\u202f000", "2 GPUs"),
        ("10\u202f000\u202f000", "1 GPU"),
        ("10\u202f000\u202f000", "2 GPUs"),
    ]
    assert [row[3] for row in view.rates.rows] == ["6.00", "5.00", "24.00", "14.00"]
    assert [row[5] for row in view.rates.rows] == ["100.0\u202f%", "60.0\u202f%", "100.0\u202f%", "85.7\u202f%"]
    assert {row[8] for row in view.rates.rows} == {"100.0\u202f%"}
    assert {row[-2:] for row in view.spent.rows} == {("1024", "1")}
    assert "direct, 2 GPUs" in view.figure.svg
    assert stream_tables.stream_tables_view(bare) is None

    assert streamed.streams.rows
    record = streamed.gpu_run.record
    direct = {**record["variants"]["direct"], "source_sha256": "another"}
    streamed.gpu_run = replace(
        streamed.gpu_run, record={**record, "variants": {**record["variants"], "direct": direct}}
    )
    del streamed.streams.rows
    assert stream_tables.stream_tables_view(streamed) is None
