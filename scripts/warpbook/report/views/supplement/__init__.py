"""The supplement: all that the chapters rest on, part by part."""

from dataclasses import dataclass

from warpbook.common.files import display_path
from warpbook.report.evidence import Evidence
from warpbook.report.views import analysis, claim_table, milestone_4, published_comparison
from warpbook.report.views.analysis import FullAnalysis
from warpbook.report.views.components import HtmlTable, numbers, words
from warpbook.report.views.milestone_4 import OptimizationView
from warpbook.report.views.supplement import (
    all_times,
    build_tables,
    correctness,
    profiler_tables,
    provenance,
    several_gpus,
    stream_tables,
    time_kinds,
    validity,
)
from warpbook.report.views.supplement.all_times import AllTimes
from warpbook.report.views.supplement.build_tables import BuildTables
from warpbook.report.views.supplement.correctness import CorrectnessView
from warpbook.report.views.supplement.profiler_tables import PrintedProfiles, ProfilersView
from warpbook.report.views.supplement.provenance import Dictionary, ProvenanceView
from warpbook.report.views.supplement.several_gpus import SeveralGpusView
from warpbook.report.views.supplement.stream_tables import StreamingView
from warpbook.report.views.supplement.validity import Sweep, ValiditySection


@dataclass(frozen=True)
class Reference:
    """What a variant's header refers to."""

    variant: str
    url: str


@dataclass(frozen=True)
class SupplementView:
    """One part a heading. optimizations: those that their chapter does not tell in full; why_no_gpu: why there are no
    GPU figures."""

    builds: BuildTables
    correctness: CorrectnessView
    times: AllTimes
    kinds: HtmlTable | None
    optimizations: tuple[OptimizationView, ...]
    claims: HtmlTable | None
    counters: FullAnalysis | None
    published: HtmlTable | None
    trust: ValiditySection
    several_gpus: SeveralGpusView | None
    streaming: StreamingView | None
    sweeps: tuple[Sweep, ...]
    profilers: ProfilersView | None
    profiles: PrintedProfiles | None
    why_no_gpu: str
    provenance: ProvenanceView
    dictionary: Dictionary
    sources: HtmlTable
    references: tuple[Reference, ...]


def supplement_view(ev: Evidence) -> SupplementView:
    """Of any study."""
    variants = ev.compared_variants("gpu") + ev.compared_variants("cpu")
    return SupplementView(
        builds=build_tables.build_tables_view(ev),
        correctness=correctness.correctness_view(ev),
        times=all_times.all_times_view(ev),
        kinds=time_kinds.time_kinds_view(ev),
        optimizations=milestone_4.remaining_optimizations(ev) if "milestone_4" in ev.study.sections else (),
        claims=claim_table.full_claim_table(ev),
        counters=analysis.full_analysis(ev),
        published=published_comparison.full_published_table(ev),
        trust=validity.validity_view(ev),
        several_gpus=several_gpus.several_gpus_view(ev),
        streaming=stream_tables.stream_tables_view(ev),
        sweeps=validity.sweeps(ev),
        profilers=profiler_tables.profiler_tables_view(ev),
        profiles=profiler_tables.printed_profiles(ev),
        why_no_gpu=ev.source.why,
        provenance=provenance.provenance_view(ev),
        dictionary=provenance.dictionary(),
        sources=_sources(ev),
        references=tuple(Reference(one.name, one.header.reference) for one in variants if one.header.reference),
    )


def _sources(ev: Evidence) -> HtmlTable:
    """The CUDA C++ of each variant and the identity of all that decides its machine code."""
    return HtmlTable(
        "a-sources",
        "Sources of the CUDA kernels. The SHA-256 covers code, launcher, constants and launch; a variant whose SHA-256 differs "
        "from that in run.json has no times in the report.",
        (*words("Variant", "File"), *numbers("Lines of code"), *words("SHA-256")),
        tuple(
            (
                one.name,
                display_path(one.cuda_source),
                str(len(one.code.strip().splitlines())),
                one.source_sha256,
            )
            for one in ev.compared_variants("gpu")
            if one.cuda_source
        ),
        "dense",
    )
