"""The appendix: all that the chapters rest on, part by part."""

from dataclasses import dataclass

from warpbook.harness import bench
from warpbook.report.evidence import Evidence
from warpbook.report.views.appendix import builds, correctness, profilers, provenance, times, trust
from warpbook.report.views.appendix.builds import Builds
from warpbook.report.views.appendix.correctness import Correctness
from warpbook.report.views.appendix.profilers import Profilers, Profiles
from warpbook.report.views.appendix.provenance import Dictionary, Provenance
from warpbook.report.views.appendix.times import Times
from warpbook.report.views.appendix.trust import Sweep, Trust
from warpbook.report.views.parts import Table, words


@dataclass(frozen=True)
class Reference:
    """What a variant's header refers to."""

    variant: str
    url: str


@dataclass(frozen=True)
class Appendix:
    """One part a heading. why_no_gpu: why there are no GPU figures; aside: what has no figure, None where nothing was
    left out; refused: archived runs that were passed over; hot_within: how many times what the L2 cache holds a layer's
    data may be for a hot sample."""

    builds: Builds
    correctness: Correctness
    times: Times
    trust: Trust
    sweeps: tuple[Sweep, ...]
    profilers: Profilers | None
    profiles: Profiles | None
    why_no_gpu: str
    aside: Table | None
    refused: tuple[str, ...]
    provenance: Provenance
    hot_within: str
    dictionary: Dictionary
    references: tuple[Reference, ...]


def view(ev: Evidence) -> Appendix:
    """Of any study."""
    variants = ev.wanted("gpu") + ev.wanted("cpu")
    return Appendix(
        builds=builds.view(ev),
        correctness=correctness.view(ev),
        times=times.view(ev),
        trust=trust.view(ev),
        sweeps=trust.sweeps(ev),
        profilers=profilers.view(ev),
        profiles=profilers.profiles(ev),
        why_no_gpu=ev.source.why,
        aside=None if ev.problems.table.empty else _aside(ev),
        refused=tuple(ev.source.refused),
        provenance=provenance.view(ev),
        hot_within=str(bench.HOT_WITHIN),
        dictionary=provenance.dictionary(),
        references=tuple(Reference(one.name, one.header.reference) for one in variants if one.header.reference),
    )


def _aside(ev: Evidence) -> Table:
    return Table(
        "a-aside",
        "Variants, or layers of them, without a figure, and why.",
        words("Variant", "Device", "Layer", "Status", "Reason"),
        tuple(
            (row["variant"], row["device"], row["layer"] or "all", row["status"].replace("_", " "), row["reason"])
            for row in ev.problems.table.to_dict("records")
        ),
    )
