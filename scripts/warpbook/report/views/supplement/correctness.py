"""Supplement: the tests of every variant in sum, and errors over sums' lengths and inputs' ranges."""

import pandas as pd

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.harness import precision, reference
from warpbook.kernels import variants
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import CheckTally, Evidence
from warpbook.report.figures import ratio_plots
from warpbook.report.views.components import Cell, Figure, HtmlTable, View, numbers, words
from warpbook.runs.tables import PRECISION

NOT_TIMED = "gpu,\u00a0not\u00a0timed"


def correctness_view(ev: Evidence) -> View:
    """Of the study's variants on GPU, CPU and emulator, and of those that were checked without being compared."""
    own_kernel = (ev.problem.folder / variants.REFERENCE).exists()
    return View(deviations=str(reference.DEVIATIONS), reference_kernel=own_kernel, tests=_tests(ev), errors=_errors(ev))


def _tests(ev: Evidence) -> HtmlTable:
    rows = []
    for variant in ev.compared_variants("gpu") + ev.compared_variants("cpu"):
        tests, emulated = ev.checks.for_variant(variant.name), ev.checks.emulator_tally(variant.name)
        if tests:
            rows.append(_row(ev, variant, variant.device, tests))
        if emulated:
            # The network's images are not predicted by emulation: there are no labels to compare.
            rows.append(_row(ev, variant, "interpreted" if variant.language else "emulated", emulated, labels=False))
    rows += [_row(ev, variant, NOT_TIMED, tests) for variant, tests in ev.checks.not_compared]
    of_labels = ", and the most labels that differ from the float64 reference's at any size" * ev.is_network
    return HtmlTable(
        "a-correct",
        "Correctness in sum: tests passed, the largest error over its tolerance, the largest relative L2 error"
        f"{of_labels}.",
        (
            *words("Variant", "Device", "Precision"),
            *numbers("Tests", "Error / tolerance", "Relative L2", *["Labels"] * ev.is_network),
            *words("Verdict"),
        ),
        tuple(rows),
    )


def _row(ev: Evidence, variant: Variant, device: str, tally: CheckTally, labels: bool = True) -> tuple[Cell, ...]:
    differing = str(tally.labels) if labels and tally.labels is not None else MISSING
    return (
        variant.name,
        device,
        variant.header.precision,
        f"{tally.passed} of {tally.tests}" if tally.tests else MISSING,
        units.significant(tally.worst_ratio, 2),
        units.scientific(tally.rel_l2_err),
        *[differing] * ev.is_network,
        tally.failure["reason"] if tally.failure else "passed" if tally.tests else tally.unsupported,
    )


def _errors(ev: Evidence) -> View | None:
    rows = ev.checks.errors
    if rows.empty:
        return None
    drawn = rows[(rows.status == "ok") & (rows.inputs == "reals")]
    return View(figure=None if drawn.empty else _over_length(ev, drawn), ranges=_ranges(ev, rows))


def _over_length(ev: Evidence, drawn: pd.DataFrame) -> Figure:
    least, most = (units.count(int(end)) for end in (drawn.products.min(), drawn.products.max()))
    return Figure(
        "a-errors-figure",
        ratio_plots.error_by_length(ev),
        f"Relative L2 errors of {', '.join(drawn.variant.unique())} over sums of {least} to {most} products, under or "
        f"over a dashed line at {precision.CLASS_RATIO} times the error of {ev.problem.facts.baseline}.",
        f"Error against float64 on random reals over the length of sums, {least} to {most} products; of {ev.case_word}s of one length "
        f"the largest error is drawn. Dashed: {precision.CLASS_RATIO} times the error of {ev.problem.facts.baseline} on the same inputs. "
        "Hollow: variants of another precision. Dotted: libraries."
        f"{ev.selection.other_run_note(PRECISION)}",
    )


def _ranges(ev: Evidence, rows: pd.DataFrame) -> HtmlTable:
    kinds = [kind for kind in precision.EXPONENTS if kind in set(rows.inputs)]
    first = next(iter(ev.problem.inputs))
    small, large, (x_exponent, w_exponent) = (precision.EXPONENTS[kind] for kind in ("small", "large", "subnormal"))
    return HtmlTable(
        "a-errors-ranges",
        f"The largest ratio of a variant's error to that of {ev.problem.facts.baseline}, by the range of the inputs. Then: on how many "
        f"{ev.case_word}s and ranges it is at most {precision.CLASS_RATIO}, and the longest sum where it is more. "
        f"Ranges: reals are in [−1, 1); small and large are {first} times 2^{small[0]} and 2^{large[0]}; "
        f"mixed: each value of {first} times 2^e, e from "
        f"−{precision.MIXED_EXPONENT} to {precision.MIXED_EXPONENT}; subnormal: {first} times 2^{x_exponent}, which FP32 "
        f"holds as subnormal numbers, and the other inputs times 2^{w_exponent}; outliers: one of "
        f"{precision.OUTLIERS_APART} values of {first} times 2^{precision.OUTLIER_EXPONENT}.".replace("^-", "^−")
        + ev.selection.other_run_note(PRECISION),
        (
            *words("Variant", "Claims"),
            *numbers(*kinds, f"At most {precision.CLASS_RATIO}×", "Longest sum beyond"),
            *words("Not measured"),
        ),
        tuple(_range(str(name), group, kinds) for name, group in rows.groupby("variant", sort=False)),
    )


def _range(variant: str, rows: pd.DataFrame, kinds: list[str]) -> tuple[Cell, ...]:
    compared = rows[rows.direct_rel_l2_err.notna()]
    failed = rows[rows.direct_rel_l2_err.isna()]
    beyond = compared[~compared.fp32_class].products
    return (
        variant,
        rows.precision.iloc[0],
        *(_largest(compared[compared.inputs == kind]) for kind in kinds),
        f"{int(compared.fp32_class.sum())} of {len(compared)}" if len(compared) else MISSING,
        units.count(int(beyond.max())) if len(beyond) else MISSING,
        failed.reason.iloc[0] if len(failed) else MISSING,
    )


def _largest(rows: pd.DataFrame) -> str:
    if (rows.status != "ok").any():
        return "NaN or ∞"
    return units.ratio(rows.ratio.max())
