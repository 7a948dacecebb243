"""Supplement: the tests of every variant in sum, and errors on random reals."""

from dataclasses import dataclass

from warpbook import reference, units
from warpbook.report.evidence import Evidence, Tally
from warpbook.report.views.parts import Cell, Table, numbers, words
from warpbook.units import MISSING
from warpbook.variants import Variant

NOT_TIMED = "gpu,\u00a0not\u00a0timed"


@dataclass(frozen=True)
class Correctness:
    """deviations: how many standard deviations of a sum's rounding a tolerance allows."""

    deviations: str
    tests: Table
    reals: Table


def view(ev: Evidence) -> Correctness:
    """Of the study's variants on GPU, CPU and emulator, and of those that were checked without being compared."""
    return Correctness(str(reference.DEVIATIONS), _tests(ev), _reals(ev))


def _tests(ev: Evidence) -> Table:
    rows = []
    for variant in ev.wanted("gpu") + ev.wanted("cpu"):
        tests, emulated = ev.checks.of(variant.name), ev.checks.emulated(variant.name)
        if tests:
            rows.append(_row(variant, variant.device, tests))
        if emulated:
            # The network's images are not predicted by emulation: there are no labels to compare.
            rows.append(_row(variant, "emulated", emulated, labels=False))
    rows += [_row(variant, NOT_TIMED, tests) for variant, tests in ev.checks.not_compared]
    return Table(
        "a-correct",
        "Correctness in sum: tests passed, the largest error over its tolerance, the largest relative L2 error, and "
        "the most labels that differ from the float64 reference's at any size.",
        (
            *words("Variant", "Device", "Precision"),
            *numbers("Tests", "Error / tolerance", "Relative L2", "Labels"),
            *words("Verdict"),
        ),
        tuple(rows),
    )


def _row(variant: Variant, device: str, tally: Tally, labels: bool = True) -> tuple[Cell, ...]:
    return (
        variant.name,
        device,
        variant.header.precision,
        f"{tally.passed} of {tally.tests}" if tally.tests else MISSING,
        units.significant(tally.worst_ratio, 2),
        units.scientific(tally.rel_l2_err),
        str(tally.labels) if labels and tally.labels is not None else MISSING,
        tally.failure["reason"] if tally.failure else tally.unsupported or "passed",
    )


def _reals(ev: Evidence) -> Table:
    tests = ev.checks.rows("reals")
    tests = tests[(tests["size"] == ev.largest) | (tests.device == "cpu")]
    return Table(
        "a-correct-reals",
        "Errors on random reals at the largest size, on the CPU at every size that a call is given, the others being "
        "in correctness.csv, with the tolerance beside: the largest absolute error, the largest allowed anywhere, the "
        "relative L2 error, and the largest share that an output's error takes of its own tolerance.",
        (
            *words("Variant", "Layer"),
            *numbers("Images", "Largest error", "Tolerance", "Relative L2", "Worst share"),
            *words("Verdict"),
        ),
        tuple(
            (
                row["variant"],
                row["layer"],
                units.count(row["size"]),
                units.scientific(row["max_abs_err"]),
                units.scientific(row["tolerance"]),
                units.scientific(row["rel_l2_err"]),
                units.significant(row["worst_ratio"], 2),
                "passed" if row["ok"] else row["status"],
            )
            for row in tests.to_dict("records")
        ),
    )
