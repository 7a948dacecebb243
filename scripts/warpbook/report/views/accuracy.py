"""The section on accuracy: the largest error of each variant beside what it may be, by the length of sums."""

from warpbook.common import units
from warpbook.harness import reference
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.report.figures import ratio_plots
from warpbook.report.views.components import Figure, View


def accuracy_view(ev: Evidence) -> View | None:
    """None where no variant has an error on reals. worst: who comes nearest to its tolerance."""
    drawn = _drawn(ev)
    if not drawn:
        return None
    errors = [ev.checks.unit_errors[one.name] for one in drawn]
    share, worst = max((float((one.error / one.limit).max()), place) for place, one in enumerate(errors))
    least, most = min(one.index.min() for one in errors), max(one.index.max() for one in errors)
    return View(
        deviations=str(reference.DEVIATIONS),
        worst=f"{drawn[worst].stem}, {units.percent(share, 0 if share >= 0.1 else 1)}",
        own_magnitude=hasattr(ev.problem.module, "magnitude"),
        figure=Figure(
            "accuracy-figure",
            ratio_plots.error_and_tolerance(ev, [one.name for one in drawn]),
            f"Largest errors of {units.join_all([one.stem for one in drawn])} over sums of {units.count(int(least))} to "
            f"{units.count(int(most))} terms, each under a dashed line, its tolerance.",
            "Largest error of an output over its magnitude, on random reals, by the number of terms in its sum. Dashed: the "
            "tolerance of each precision. Hollow: variants of another precision than FP32. Dotted: libraries, whose errors are "
            "over the largest magnitude of all outputs. Results without an error are not drawn.",
        ),
    )


def _drawn(ev: Evidence) -> list[Variant]:
    """The foremost variants, and those that do not add up FP32 products in FP32; all where none is timed."""
    tested = [one for one in ev.compared_variants("gpu") if one.name in ev.checks.unit_errors]
    foremost = ev.ranking.foremost("gpu") or tested
    return [one for one in tested if one in foremost or not one.header.sums_in_fp32]
