"""Views: what the report's sections say, computed from the evidence as frozen values that templates only place.

A section `sections/<name>.html.j2` takes its view from `VIEWS["<name>"]`, called with the evidence; the list of
deliverables, which is about the report itself, with its headings and body too. A view is a frozen dataclass of tables,
figures, words and conditions; `parts` are what it is made of, `cells` the only place that writes markup into a cell.
"""

from collections.abc import Callable
from typing import Any

from warpbook.report import narrative
from warpbook.report.views import (
    analysis,
    claim_table,
    course_baseline,
    course_files,
    course_optimizations,
    course_points,
    deliverables,
    division_of_labour,
    executive,
    imported_profiles,
    last_page,
    milestone_1,
    milestone_2,
    milestone_3,
    milestone_4,
    other_gpus,
    profiled_programs,
    published_comparison,
    summary,
    supplement,
    whole_network,
)

VIEWS: dict[str, Callable[..., Any]] = {
    "analysis": analysis.view,
    "claims": claim_table.view,
    "course_baseline": course_baseline.view,
    "course_optimizations": course_optimizations.view,
    "course_points": course_points.view,
    "course_files": course_files.view,
    "deliverables": deliverables.view,
    "devices": other_gpus.view,
    "discussion": narrative.rendered,
    "division_of_labour": division_of_labour.view,
    "ending": last_page.view,
    "executive": executive.view,
    "imported": imported_profiles.view,
    "milestone_1": milestone_1.view,
    "milestone_2": milestone_2.view,
    "milestone_3": milestone_3.view,
    "milestone_4": milestone_4.view,
    "profiled": profiled_programs.view,
    "published": published_comparison.view,
    "summary": summary.view,
    "supplement": supplement.view,
    "whole_network": whole_network.view,
}
