"""The supplement: all that the chapters rest on, part by part."""

from dataclasses import dataclass

from warpbook.report.evidence import Evidence
from warpbook.report.views import analysis, claim_table, milestone_4, published_comparison
from warpbook.report.views.analysis import InFull
from warpbook.report.views.components import HtmlTable
from warpbook.report.views.milestone_4 import Optimization
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
from warpbook.report.views.supplement.correctness import Correctness
from warpbook.report.views.supplement.profiler_tables import PrintedProfiles, Profilers
from warpbook.report.views.supplement.provenance import Dictionary, Provenance
from warpbook.report.views.supplement.several_gpus import SeveralGpus
from warpbook.report.views.supplement.stream_tables import Streaming
from warpbook.report.views.supplement.validity import Sweep, ValiditySection


@dataclass(frozen=True)
class Reference:
    """What a variant's header refers to."""

    variant: str
    url: str


@dataclass(frozen=True)
class Source:
    """The CUDA C++ of a variant, its header apart, and the identity of all that decides its machine code."""

    variant: str
    file: str
    sha256: str
    code: str


@dataclass(frozen=True)
class Supplement:
    """One part a heading. optimizations: those that their chapter does not tell in full; why_no_gpu: why there are no
    GPU figures."""

    builds: BuildTables
    correctness: Correctness
    times: AllTimes
    kinds: HtmlTable | None
    optimizations: tuple[Optimization, ...]
    claims: HtmlTable | None
    counters: InFull | None
    published: HtmlTable | None
    trust: ValiditySection
    several_gpus: SeveralGpus | None
    streaming: Streaming | None
    sweeps: tuple[Sweep, ...]
    profilers: Profilers | None
    profiles: PrintedProfiles | None
    why_no_gpu: str
    provenance: Provenance
    dictionary: Dictionary
    sources: tuple[Source, ...]
    references: tuple[Reference, ...]


def supplement_view(ev: Evidence) -> Supplement:
    """Of any study."""
    variants = ev.wanted("gpu") + ev.wanted("cpu")
    return Supplement(
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
        sources=tuple(
            Source(one.name, one.cuda_source.name, one.source_sha256, one.code.strip())
            for one in ev.wanted("gpu")
            if one.cuda_source
        ),
        references=tuple(Reference(one.name, one.header.reference) for one in variants if one.header.reference),
    )
