"""The supplement: all that the chapters rest on, part by part."""

from warpbook.report.evidence import Evidence
from warpbook.report.views import analysis, claim_table, published_comparison
from warpbook.report.views.components import View
from warpbook.report.views.supplement import (
    all_times,
    build_tables,
    correctness,
    profiler_tables,
    provenance,
    stream_tables,
    validity,
)


def supplement_view(ev: Evidence) -> View:
    """Of any study, but for its optimizations, which milestone_4 tells."""
    variants = ev.compared_variants("gpu") + ev.compared_variants("cpu")
    return View(
        builds=build_tables.build_tables_view(ev),
        correctness=correctness.correctness_view(ev),
        times=all_times.all_times_view(ev),
        kind_order=all_times.kind_order(ev),
        claims=claim_table.full_claim_table(ev),
        counters=analysis.full_analysis(ev),
        published=published_comparison.full_published_table(ev),
        published_profiles=published_comparison.published_profiles(ev),
        trust=validity.validity_view(ev),
        streaming=stream_tables.stream_tables_view(ev),
        sweeps=validity.sweep_sentences(ev),
        profilers=profiler_tables.profiler_tables_view(ev),
        profiles=profiler_tables.printed_profiles(ev),
        provenance=provenance.provenance_view(ev),
        references=tuple(View(variant=one.name, url=one.header.reference) for one in variants if one.header.reference),
    )
