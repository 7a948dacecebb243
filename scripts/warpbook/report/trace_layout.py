"""What profilers saw of the programs: a layer's kernels, hidden copies, launch-bound calls, the tools' agreement."""

from dataclasses import dataclass
from itertools import product

import pandas as pd

from warpbook.common import units
from warpbook.common.intervals import covered_length, total_length, unite
from warpbook.kernels.variants import Variant
from warpbook.machine import available_profilers
from warpbook.profiling.counters import DURATION
from warpbook.report.evidence import Evidence
from warpbook.runs import tables

AGREE_WITHIN = 0.1
MANY = 100  # launches of a call from which on launching can set its pace
BUSY = 0.9  # the share of a call's time that its kernels take, below which it does


def kernels_in_layer(ev: Evidence, variant: str, layer: str, size: int, tool: str | None = None) -> pd.DataFrame:
    """The kernels that a traced program launched within a layer's NVTX range, in order of start; none without one."""
    within = ev.profiles.within_layer(variant, layer, size, tool)
    return within[within.kind == "kernel"]


def event_spans(events: pd.DataFrame) -> list[tuple[int, int]]:
    """(start, end) of each event, ns."""
    return [(int(start), int(end)) for start, end in zip(events.start_ns, events.end_ns, strict=True)]


@dataclass(frozen=True)
class CopyOverlap:
    """A program's copies, how much of their time kernels ran beside, and how many kernels run at once on average."""

    copies_ns: int
    hidden_ns: int
    kernels_at_once: float

    @property
    def share(self) -> float:
        return self.hidden_ns / self.copies_ns if self.copies_ns else 0.0


def copy_overlap(events: pd.DataFrame) -> CopyOverlap:
    """How far copies hide behind kernels in a traced program, and kernels behind each other."""
    copies = unite(event_spans(events[events.kind.isin(("memcpy_htod", "memcpy_dtoh"))]))
    kernels = event_spans(events[events.kind == "kernel"])
    busy = total_length(kernels)
    return CopyOverlap(
        copies_ns=sum(end - start for start, end in copies),
        hidden_ns=covered_length(copies, kernels),
        kernels_at_once=sum(end - start for start, end in kernels) / busy if busy else 0.0,
    )


@dataclass(frozen=True)
class Agreement:
    """Kernel time of one variant's layer as each tool has it, ms."""

    variant: str
    launches: int
    ms: dict[str, float]

    @property
    def relative_difference(self) -> float:
        """The largest over the smallest, less 1."""
        return max(self.ms.values()) / min(self.ms.values()) - 1

    @property
    def kernel_us(self) -> float:
        """Mean time of one kernel, by the tool that has the least."""
        return min(self.ms.values()) / self.launches * 1e3


def agreements(ev: Evidence) -> list[Agreement]:
    """Every layer whose kernels several tools saw, libraries left out: their first call tries algorithms."""
    agreed = []
    counted_beside = tables.COUNTERS not in ev.selection.from_other_run  # tools are compared within one run
    tools = [tool for tool in available_profilers.TRACERS if any(key[0] == tool for key in ev.profiles.traced)]
    for variant, layer in product(ev.ranking.measured_variants("gpu", peers=False), ev.layer_names):
        for size in reversed(ev.sizes):
            by_tool = {tool: kernels_in_layer(ev, variant.name, layer, size, tool) for tool in tools}
            seen = {tool: kernels for tool, kernels in by_tool.items() if len(kernels)}
            if seen:  # the largest that was traced
                break
        else:
            continue
        ms = {tool: float((kernels.end_ns - kernels.start_ns).sum()) / 1e6 for tool, kernels in seen.items()}
        launches = max(map(len, seen.values()))
        call = ev.counters.calls.get((variant.name, layer)) if counted_beside else None
        total_ns = call.value(DURATION) if call else None
        if call and total_ns and (call.images == size or call.is_truncated):
            ms["ncu"] = total_ns / call.total_launches * launches / 1e6
        if len(ms) > 1:
            agreed.append(Agreement(variant.name, launches, ms))
    return agreed


@dataclass(frozen=True)
class LaunchBoundLayer:
    """A layer's launch-bound call: its launches, the time from one to the next, and the share in which kernels run."""

    layer: str
    images: int
    launches: int
    each_ms: float
    busy: float


def launch_bound_layers(ev: Evidence, variant: Variant, below: str = "") -> list[LaunchBoundLayer]:
    """Layers whose call is bound by launches from Python, at the largest traced size; `below`: what it builds on."""
    size = next((size for size in reversed(ev.sizes) if not ev.profiles.events(variant.name, size).empty), 0)
    found = []
    for layer in ev.layer_names if size else ():
        kernels = kernels_in_layer(ev, variant.name, layer, size)
        call = ev.times.baseline_time(below, layer, size) if below else ev.times.op(variant.name, layer, size)
        if call and len(kernels) >= MANY:
            busy = total_length(event_spans(kernels)) / 1e6 / call.value
            if busy < BUSY:
                found.append(LaunchBoundLayer(layer, size, len(kernels), call.value / len(kernels), busy))
    return found


def overhead_sentence(ev: Evidence, variant: Variant) -> str:
    """What of a variant's times, or of its baseline's, is Python's launching; empty where nothing."""
    below = ev.plan.variants.get(variant.header.builds_on)
    said = []
    for one in (variant, *([below] if below else [])):
        found = launch_bound_layers(ev, one, variant.name if one is below else "")
        if found:
            each = " and ".join(
                f"{units.time(pace.each_ms, 2)} on {pace.layer} (kernels run {units.percent(pace.busy, 0)} of it)"
                for pace in found
            )
            said.append(
                f"At {ev.at_size(found[0].images)} the host limits {one.name}: in this job a launch from Python takes {each}."
            )
    return " ".join(said)
