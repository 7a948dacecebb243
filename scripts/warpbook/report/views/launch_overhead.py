"""Calls of many launches, whose time is that of Python launching them and not the GPU's."""

from dataclasses import dataclass

from warpbook.common import units
from warpbook.common.intervals import total_length
from warpbook.kernels.variants import Variant
from warpbook.report import trace_layout
from warpbook.report.evidence import Evidence

MANY = 100  # launches of a call from which on launching can set its pace
BUSY = 0.9  # the share of a call's time that its kernels take, below which it does


@dataclass(frozen=True)
class LaunchBoundLayer:
    """A layer's call that is launch-bound: its launches, the time from one to the next, and the share in which kernels run."""

    layer: str
    images: int
    launches: int
    each_ms: float
    busy: float


def launch_bound_layers(ev: Evidence, variant: Variant, below: str = "") -> list[LaunchBoundLayer]:
    """Layers whose call is bound by launches from Python, at the largest traced size; `below`: what it builds on."""
    for size in reversed(ev.sizes):
        if not ev.profiles.events(variant.name, size).empty:
            return [pace for layer in ev.layer_names if (pace := _launch_bound_layer(ev, variant, layer, size, below))]
    return []


def _launch_bound_layer(ev: Evidence, variant: Variant, layer: str, size: int, below: str) -> LaunchBoundLayer | None:
    kernels = trace_layout.kernels_in_layer(ev, variant.name, layer, size)
    call = ev.times.baseline_time(below, layer, size) if below else ev.times.op(variant.name, layer, size)
    if call is None or len(kernels) < MANY:
        return None
    busy = total_length(trace_layout.event_spans(kernels)) / 1e6 / call.value
    return LaunchBoundLayer(layer, size, len(kernels), call.value / len(kernels), busy) if busy < BUSY else None


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
                f"At {ev.at_size(found[0].images)} the host limits {one.name}: a launch from Python takes {each}."
            )
    return " ".join(said)
