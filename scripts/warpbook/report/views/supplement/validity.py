"""Supplement: the harness tried on itself: A/A tests, known differences, kernels that cheat, compute-sanitizer; and
parameters swept."""

import pandas as pd

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import Evidence
from warpbook.report.figures import ratio_plots
from warpbook.report.views.components import Cell, Figure, HtmlTable, View, numbers, words
from warpbook.runs import tables
from warpbook.runs.run_parts import WHOLE

RAGGED_SHAPES = "ragged shapes. Racecheck ran on those of at most two million products."
ONE_IMAGE = "one image. Racecheck ran on layers of at most two million products."
ONE_AFTER_ANOTHER = (
    "one image, and several where a block takes one after another. Racecheck ran on layers of at most two million products, "
    f"or on all where tensor cores multiply. “{WHOLE}”: implementations of whole networks, on each."
)
"""How variants were tried: runs that name no whole networks are from before blocks were given several images."""


def validity_view(ev: Evidence) -> View:
    """Of the run that GPU figures come from, or of an older one that was asked for what that was not."""
    return View(
        aa_tests=None if ev.trust.aa_tests.empty else _aa_tests(ev),
        pairs=_pairs(ev) if ev.trust.pair_verdicts else None,
        attacks=None if ev.trust.attacks.empty else _attacks(ev),
        sanitizer=None if ev.trust.sanitizer.empty else _sanitizer(ev),
    )


def _aa_tests(ev: Evidence) -> View:
    assert ev.gpu_run is not None  # which the tests are of
    tests, margin = ev.trust.aa_tests, units.percent(ev.config.measuring.equivalence_margin, 0)
    called = tests.verdict.value_counts()
    wrong, beyond = called.get("faster", 0) + called.get("slower", 0), int(((tests.low > 1) | (tests.high < 1)).sum())
    return View(
        words=f"Warpbook compared {', '.join(tests.variant.unique())} with a copy of itself, loaded as a second module, on every layer "
        f"and size of {', '.join(tests.network.unique())} in run {ev.gpu_run.run_id}. Of {len(tests)} comparisons it wrongly called "
        f"{wrong} faster or slower: {units.percent(wrong / len(tests))}, where 1 % are allowed. {beyond} intervals do not hold 1 "
        f"({units.percent(beyond / len(tests))}); those within {margin} of 1 are called the same. It called {called.get('same', 0)} "
        f"the same and {called.get('ambiguous', 0)} ambiguous.",
        figure=Figure(
            "trust-again-figure",
            ratio_plots.aa_tests(ev),
            "Ratios of a variant's time to that of its own copy with their intervals, in ascending order around 1.",
            "A variant against its own copy: paired ratios with 95 % intervals, every layer, size, kind and state. "
            f"Grey: within {margin} of 1.",
        ),
    )


def _pairs(ev: Evidence) -> HtmlTable:
    margin = ev.config.measuring.equivalence_margin
    return HtmlTable(
        "trust-pairs-table",
        f"Verdicts on kernels whose difference is known, on {ev.device_name('gpu')}, by op time. False: a verdict that is not "
        f"true; “same” is true within {units.percent(margin, 0)}. Found: called slower. Each with its 95 % interval."
        f"{ev.selection.other_run_note(tables.PAIRS)}",
        (*words("Kernels"), *numbers("Pairs", "Same", "Faster", "Slower", "Ambiguous", "False, %", "Found, %")),
        tuple(
            (
                one.what,
                units.count(one.n),
                *(units.count(one.called[verdict]) for verdict in ("same", "faster", "slower", "ambiguous")),
                units.percent_interval(one.false_share(margin)),
                units.percent_interval(one.found_share) if one.found_share else MISSING,
            )
            for one in ev.trust.pair_verdicts
        ),
    )


def _attacks(ev: Evidence) -> HtmlTable:
    return HtmlTable(
        "trust-attack-table",
        f"Kernels and launchers that the harness was tried with on {ev.device_name('gpu')}, and the check that caught "
        f"each. “mine” is the attacking variant.{ev.selection.other_run_note(tables.ATTACKS)}",
        words("A kernel that …", "Result", "Status", "The words of the check"),
        tuple(
            (f"… {row['attack']}", "caught" if row["caught"] else "MISSED", _plain(row["status"]), row["reason"])
            for row in ev.trust.attacks.to_dict("records")
        ),
    )


def _sanitizer(ev: Evidence) -> HtmlTable:
    results = ev.trust.sanitizer
    tools = list(results.tool.unique())
    # Networks have layers for the problem that they are made of alone.
    tried = RAGGED_SHAPES
    if ev.is_network:
        of_networks = results.variant.str.startswith(WHOLE).any()
        tried = (
            f"the layers of all networks and on ragged shapes, with {ONE_AFTER_ANOTHER if of_networks else ONE_IMAGE}"
        )
    return HtmlTable(
        "trust-sanitizer-table",
        f"Errors that NVIDIA's compute-sanitizer {results.version.iloc[0]} counts: each tool over each variant on "
        f"{tried}{ev.selection.other_run_note(tables.SANITIZER)}",
        (*words("Variant"), *numbers(*tools), *words("The tool's words")),
        tuple(_sanitizer_row(str(name), group, tools) for name, group in results.groupby("variant", sort=False)),
    )


def _sanitizer_row(variant: str, results: pd.DataFrame, tools: list[str]) -> tuple[Cell, ...]:
    by_tool = {row["tool"]: row for row in results.to_dict("records")}
    rows = [by_tool[tool] for tool in tools]
    errors = (str(row["errors"]) if row["status"] == "ok" else _plain(row["status"]) for row in rows)
    reasons = [f"{row['tool']}: {row['reason']}" for row in rows if row["reason"]]
    return (variant, *errors, "; ".join(reasons) or MISSING)


def _plain(status: str) -> str:
    return status.replace("_", " ")


def sweep_sentences(ev: Evidence) -> tuple[str, ...]:
    """The fastest configuration of each variant whose parameters were swept, beside its own."""
    return tuple(_sweep(ev, str(name), group) for name, group in ev.trust.sweep.groupby("variant", sort=False))


def _sweep(ev: Evidence, name: str, rows: pd.DataFrame) -> str:
    best = rows.sort_values("time_ms", kind="stable").iloc[0]
    constants = ev.plan.variants[name].header.constants
    declared = " ".join(f"{key}={value}" for key, value in constants.items())
    own = rows[rows.configuration == declared].time_ms
    beside = f" Its own, {declared}, takes {units.time(own.iloc[0])}." if len(own) else ""
    return (
        f"{name} on {best.layer} of {best.network}, {units.count(best['size'])} images, by {best.tool}, mean of {best.n} launches: "
        f"the fastest of {len(rows)} configurations is {best.configuration} with {units.time(best.time_ms)}.{beside}"
        f"{ev.selection.other_run_note(tables.SWEEP)}"
    )
