"""Views: what the report's sections say, computed from the evidence as values that templates only place. A section
`sections/<name>.html.j2` takes its view from `VIEWS["<name>"]`, called with the evidence; the supplement is given its
own. `components` are what views are made of; `cell_markup` alone writes markup into a cell."""

from collections.abc import Callable
from typing import Any

from warpbook.report import narrative
from warpbook.report.views import (
    accuracy,
    analysis,
    claim_table,
    course_files,
    cover,
    deliverables,
    imported_profiles,
    ladder,
    last_page,
    milestone_1,
    milestone_2,
    milestone_3,
    milestone_4,
    profile_tables,
    published_comparison,
    run_archive,
    submission,
    summary,
    whole_network,
)

VIEWS: dict[str, Callable[..., Any]] = {
    "accuracy": accuracy.accuracy_view,
    "analysis": analysis.analysis_view,
    "claims": claim_table.claim_table_view,
    "course_baseline": submission.course_baseline_view,
    "course_optimizations": submission.course_optimizations_view,
    "course_points": submission.course_points_view,
    "course_files": course_files.course_files_view,
    "deliverables": deliverables.deliverables_view,
    "devices": run_archive.other_gpus_view,
    "discussion": narrative.render_narrative,
    "division_of_labour": cover.division_of_labour_view,
    "ending": last_page.last_page_view,
    "imported": imported_profiles.imported_profiles_view,
    "ladder": ladder.ladder_view,
    "milestone_1": milestone_1.milestone_1_view,
    "milestone_2": milestone_2.milestone_2_view,
    "milestone_3": milestone_3.milestone_3_view,
    "milestone_4": milestone_4.milestone_4_view,
    "profiled": profile_tables.profiled_programs_view,
    "published": published_comparison.published_comparison_view,
    "summary": summary.summary_view,
    "whole_network": whole_network.whole_network_view,
}
