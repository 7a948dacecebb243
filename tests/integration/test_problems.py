"""What is not in the figures: variants, whole networks, or some of their times, each with the reason."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from warpbook.report import console_summary
from warpbook.report.evidence import Evidence, check_results
from warpbook.report.views import last_page, milestone_4, summary
from warpbook.runs import catalog, tables

REASON = "none of 15 samples is a figure: 15 were taken while a slowdown was active, 0 are longer than twice their call"


@pytest.fixture
def changed(ev, evidence_of, few_variants) -> Callable[..., Evidence]:
    """Make the evidence of few variants after a change of one table of the small run."""
    few = few_variants["studies"]
    names = ["direct", "shared_input", "unroll_gemm", "loop_nest"]
    studies = few | {"fa18": few["fa18"] | {"variants": names, "deliverables": {}, "show_profile_of": []}}

    def make(table: tables.Table, change: Callable[[pd.DataFrame], None]) -> Evidence:
        run = ev.gpu_run
        read = {each.name: run.table(each) for each in tables.RUN_TABLES}
        read[table.name] = read[table.name].astype({"status": str, "reason": str})
        change(read[table.name])
        found = evidence_of(run.path, studies=studies)
        found.local = found.gpu_run = catalog.Run(run.path, run.record, read)
        return found

    return make


def failing(status: str, reason: str, **where) -> Callable[[pd.DataFrame], None]:
    """A change after which rows have another outcome: those of fa18 whose columns have one of these values."""

    def change(frame: pd.DataFrame) -> None:
        chosen = frame.network == "fa18"
        for name, values in where.items():
            chosen &= frame[name].isin(values)
        assert chosen.any()
        frame.loc[chosen, ["status", "reason"]] = [status, reason]

    return change


def told(ev: Evidence, variant: str) -> list[dict[str, str]]:
    """The rows of the last chapter's table that name a variant, by their columns' heads."""
    table = last_page.last_page_view(ev).missing_table
    labels = [column.label for column in table.head]
    return [dict(zip(labels, row, strict=True)) for row in table.rows if variant in row[0].split(", ")]


def test_a_row_says_which_layers_sizes_and_times_are_lacking_and_a_column_is_there_where_some_are(changed):
    for where, layers, images, times in [
        ({}, None, "all", None),
        ({"layer": ["conv1"]}, "conv1", "all", None),
        ({"layer": ["conv2"], "size": [10, 100]}, "conv2", "10, 100", None),
        ({"kind": ["gpu"]}, None, "all", "gpu"),
        ({"kind": ["gpu"], "state": ["cold"], "size": [10]}, None, "10", "cold gpu"),
        ({"kind": ["op", "layer"], "size": [10000]}, None, "10\u202f000", "op, layer"),
    ]:
        ev = changed(tables.OP_TIMES, failing("refused", REASON, variant=["direct"], **where))
        (row,) = told(ev, "direct")
        assert row["Reason"] == REASON and row["Status"] == "refused"
        assert (row.get("Layers"), row["Images"], row.get("Times")) == (layers, images, times)


def test_rows_tell_reasons_layers_and_sizes_apart_and_share_what_is_the_same(changed):
    def change(frame):
        for size in (10, 100, 1000):
            failing("refused", REASON.replace("15", str(size)), variant=["direct"], size=[size])(frame)

    (row,) = told(changed(tables.OP_TIMES, change), "direct")
    assert row["Images"] == "10, 100, 1000"
    assert row["Reason"] == f"{REASON.replace('15', '10')}; likewise, with other numbers, elsewhere"

    def change(frame):
        failing("refused", REASON, variant=["direct"], layer=["conv1"], size=[10])(frame)
        failing("refused", REASON, variant=["direct"], layer=["conv2"], size=[10, 100])(frame)

    rows = told(changed(tables.OP_TIMES, change), "direct")
    assert [(row["Layers"], row["Images"]) for row in rows] == [("conv1", "10"), ("conv2", "10, 100")]

    def change(frame):
        frame.loc[(frame.variant == "direct") & (frame["size"] == 1000), "size"] = 5000

    (row,) = told(changed(tables.OP_TIMES, change), "direct")
    assert (row["Images"], row["Status"]) == ("1000", "not measured")
    assert row["Reason"].endswith("has no time of it")

    ev = changed(tables.OP_TIMES, failing("crashed", "its process died", variant=["direct", "shared_input"]))
    assert told(ev, "direct") == told(ev, "shared_input")
    assert told(ev, "direct")[0]["Variant"] == "direct, shared_input"


def test_a_program_that_failed_is_told_and_its_kernel_s_section_keeps_its_outcome(changed):
    ev = changed(tables.PROGRAMS, failing("crashed", "its process died", variant=["unroll_gemm"]))
    (row,) = told(ev, "unroll_gemm")
    assert (row["Times"], row["Reason"]) == ("program", "its process died")
    (section,) = [one for one in milestone_4.milestone_4_view(ev).optimizations if one.name == "unroll_gemm"]
    assert section.outcome and not section.problems


def test_a_whole_network_that_failed_at_some_sizes_is_told_with_the_variants(changed):
    ev = changed(
        tables.CORRECTNESS, failing("wrong_result", "off by 3", variant=["network/fused_mma"], size=[10, 10000])
    )
    (row,) = told(ev, "network/fused_mma")
    assert (row["Device"], row["Images"], row["Reason"]) == ("gpu", "10, 10\u202f000", "off by 3")


def test_a_whole_network_without_one_kind_of_time_is_told(changed):
    for slowed in [False, True]:

        def change(frame, slowed=slowed):
            if slowed:
                chosen = (frame.network == "fa18") & (frame.variant == "network/fused_mma") & (frame.kind == "op")
                frame.loc[chosen & (frame["size"] == 100), "throttled"] = True
            else:
                failing("timed_out", "more than 300 s", variant=["network/fused_mma"], kind=["op"], size=[100])(frame)

        (row,) = told(changed(tables.SAMPLES, change), "network/fused_mma")
        assert (row["Images"], row["Times"]) == ("100", "op")
        assert row["Status"] == ("refused" if slowed else "timed out")


def test_a_whole_network_that_is_stale_or_that_the_run_does_not_hold_is_told(changed, copied_networks):
    (copied_networks / "mine.py").write_text('"""\ntitle: Mine\n"""\n')
    ev = changed(tables.CORRECTNESS, lambda frame: None)
    of_fused = ev.gpu_run.record["variants"]["network/fused_mma"] | {"source_sha256": "0" * 64}
    record = ev.gpu_run.record | {"variants": ev.gpu_run.record["variants"] | {"network/fused_mma": of_fused}}
    ev.local = ev.gpu_run = replace(ev.gpu_run, record=record)
    assert [(row["Status"], row["Images"]) for row in told(ev, "network/fused_mma")] == [("stale", "all")]
    assert [(row["Status"], row["Images"]) for row in told(ev, "network/mine")] == [("not measured", "all")]


def test_what_is_said_of_variants_says_nothing_of_whole_networks(changed):
    ev = changed(tables.SAMPLES, failing("launch_failed", "an error", job=["network/unfused"]))
    names = {name for name in ev.problems.table.variant if name.startswith("network/")}
    assert "network/unfused" in names
    assert not names & {*summary.summary_view(ev).broken}
    assert not any("unfused" in line for line in console_summary.summary_lines(ev, Path("a.pdf"), Path("a.html")))


def test_a_kernel_without_a_time_is_right_or_wrong_and_what_was_not_looked_for_stands_beside():
    def row(name: str, *found: tuple[bool, str, str]) -> tuple[str, ...]:
        tests = pd.DataFrame([{"ok": ok, "status": status, "reason": reason} for ok, status, reason in found])
        tests = tests.assign(test="reals", worst_ratio=0.5, rel_l2_err=0.0, mismatched_labels=None)
        checks = SimpleNamespace(without_time=[(SimpleNamespace(stem=name), check_results.tally_checks(tests))])
        return summary._checked_table(SimpleNamespace(checks=checks)).rows[0]

    passed, untried = (True, "ok", ""), (False, "unsupported", "data races were not looked for")
    assert row("own", passed, passed) == ("own", "2 of 2", "0.50", "right")
    assert row("own", passed, untried) == ("own", "1 of 1", "0.50", "right; data races were not looked for")
    assert row("own", passed, (False, "wrong_result", "off by 3"))[-1] == "wrong: off by 3"
    assert row("own", (False, "unsupported", "there is no g++"))[1:] == ("–", "–", "not checked; there is no g++")


def test_the_console_names_a_kernel_of_the_user_s_that_nothing_could_check(ev):
    unchecked = check_results.CheckTally(0, 0, float("nan"), float("nan"), None, None, "conv/own needs g++")
    ev.checks.without_time = [(SimpleNamespace(stem="own", name="conv/own"), unchecked)]
    (line,) = (one for one in console_summary.summary_lines(ev, Path("a.pdf"), Path("a.html")) if "correct:" in one)
    assert line.endswith("pass every test against float64; not checked: own: it needs g++")
