"""Supplement: the harness tried on itself: A/A tests, kernels that cheat, compute-sanitizer; and parameters swept."""

from dataclasses import dataclass

import pandas as pd

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report import figures
from warpbook.report.evidence import Evidence
from warpbook.report.views import borrowed_run
from warpbook.report.views.components import Cell, Figure, HtmlTable, numbers, words
from warpbook.runs import tables
from warpbook.runs.run_parts import WHOLE

ONE_IMAGE = "one image. Racecheck ran on layers of at most two million products."
ONE_AFTER_ANOTHER = (
    "one image, and several where a block takes one after another. Racecheck ran on layers of at most two million products, "
    f"or on all where tensor cores multiply. “{WHOLE}”: implementations of whole networks, on each."
)
"""How variants were tried: runs that name no whole networks are from before blocks were given several images."""


@dataclass(frozen=True)
class AaTests:
    """Comparisons of variants with their own copies, and how many were called something else than they are.

    wrong: called faster or slower; beyond: intervals that do not hold 1.
    """

    variants: str
    networks: str
    run_id: str
    comparisons: int
    wrong: int
    wrong_share: str
    beyond: int
    beyond_share: str
    same: int
    ambiguous: int
    equivalence_margin: str
    figure: Figure


@dataclass(frozen=True)
class ValiditySection:
    """Each None where no run that may be drawn on was asked for it."""

    aa_tests: AaTests | None
    attacks: HtmlTable | None
    sanitizer: HtmlTable | None


@dataclass(frozen=True)
class Sweep:
    """The configurations of one variant on one layer. declared: the variant's own; declared_time: empty where that was
    not among those swept."""

    variant: str
    layer: str
    network: str
    images: str
    tool: str
    launches: str
    configurations: int
    best: str
    best_time: str
    declared: str
    declared_time: str
    declared_ratio: str
    figure: Figure


def validity_view(ev: Evidence) -> ValiditySection:
    """Of the run that GPU figures come from, or of an older one that was asked for what that was not."""
    return ValiditySection(
        aa_tests=None if ev.trust.aa_tests.empty else _aa_tests(ev),
        attacks=None if ev.trust.attacks.empty else _attacks(ev),
        sanitizer=None if ev.trust.sanitizer.empty else _sanitizer(ev),
    )


def _aa_tests(ev: Evidence) -> AaTests:
    assert ev.gpu_run is not None  # which the tests are of
    tests = ev.trust.aa_tests
    wrong = int(tests.verdict.isin(["faster", "slower"]).sum())
    beyond = int(((tests.low > 1) | (tests.high < 1)).sum())
    equivalence_margin = units.percent(ev.config.measuring.equivalence_margin, 0)
    return AaTests(
        variants=", ".join(tests.variant.unique()),
        networks=", ".join(tests.network.unique()),
        run_id=ev.gpu_run.run_id,
        comparisons=len(tests),
        wrong=wrong,
        wrong_share=units.percent(wrong / len(tests)),
        beyond=beyond,
        beyond_share=units.percent(beyond / len(tests)),
        same=int((tests.verdict == "same").sum()),
        ambiguous=int((tests.verdict == "ambiguous").sum()),
        equivalence_margin=equivalence_margin,
        figure=Figure(
            "trust-again-figure",
            figures.ratio_plots.aa_tests(ev),
            "Ratios of a variant's time to that of its own copy with their intervals, in ascending order around 1.",
            "A variant against its own copy: paired ratios with 95 % intervals, every layer, size, kind and state. "
            f"Grey: within {equivalence_margin} of 1.",
        ),
    )


def _attacks(ev: Evidence) -> HtmlTable:
    return HtmlTable(
        "trust-attack-table",
        f"Kernels and launchers that the harness was tried with on {ev.device_name('gpu')}, and the check that caught "
        f"each. “mine” is the attacking variant.{borrowed_run.run_sentence(ev, tables.ATTACKS)}",
        words("A kernel that …", "Result", "Status", "The words of the check"),
        tuple(
            (f"… {row['attack']}", "caught" if row["caught"] else "MISSED", _plain(row["status"]), row["reason"])
            for row in ev.trust.attacks.to_dict("records")
        ),
    )


def _sanitizer(ev: Evidence) -> HtmlTable:
    results = ev.trust.sanitizer
    tools = list(results.tool.unique())
    tried = ONE_AFTER_ANOTHER if results.variant.str.startswith(WHOLE).any() else ONE_IMAGE
    # Networks have layers for the problem that they are made of alone.
    places = "the layers of all networks and on ragged shapes" if ev.is_network else "ragged shapes"
    return HtmlTable(
        "trust-sanitizer-table",
        f"Errors that NVIDIA's compute-sanitizer {results.version.iloc[0]} counts: each tool over each variant on "
        f"{places}, with {tried}{borrowed_run.run_sentence(ev, tables.SANITIZER)}",
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


def sweeps(ev: Evidence) -> tuple[Sweep, ...]:
    """Of every variant whose parameters were swept."""
    return tuple(_sweep(ev, str(name), group) for name, group in ev.trust.sweep.groupby("variant", sort=False))


def _sweep(ev: Evidence, name: str, rows: pd.DataFrame) -> Sweep:
    first, best = rows.iloc[0], rows.sort_values("time_ms", kind="stable").iloc[0]
    constants = ev.plan.variants[name].header.constants
    declared = " ".join(f"{key}={value}" for key, value in constants.items())
    swept = rows[rows.configuration == declared].time_ms
    return Sweep(
        variant=name,
        layer=first.layer,
        network=first.network,
        images=units.count(first["size"]),
        tool=first.tool,
        launches=str(first.n),
        configurations=len(rows),
        best=best.configuration,
        best_time=units.time(best.time_ms),
        declared=declared,
        declared_time=units.time(swept.iloc[0]) if len(swept) else "",
        declared_ratio=units.ratio(swept.iloc[0] / best.time_ms) if len(swept) else "",
        figure=Figure(
            f"sweep-{name}",
            figures.sweep_plots.sweep(rows),
            f"Kernel times of {name} for every block shape and coarsening.",
            f"Kernel time in ms of {name} for every configuration, the fastest in bold."
            f"{borrowed_run.run_sentence(ev, tables.SWEEP)}",
        ),
    )
