"""Supplement: every series of samples."""

from dataclasses import dataclass

from warpbook import units
from warpbook.report.evidence import Evidence
from warpbook.report.views.parts import Cell, Table, numbers, words
from warpbook.units import MISSING
from warpbook.variants import Variant

SERIES = (("gpu", "cold"), ("op", "cold"), ("gpu", "hot"), ("op", "hot"), ("layer", "cold"))


@dataclass(frozen=True)
class Times:
    """throttled: samples left out as taken under a slowdown; refused: kernel times that are no figure."""

    relative_noise: str
    throttled: int
    refused: int
    table: Table


def view(ev: Evidence) -> Times:
    """Of every variant, layer and size with an op time."""
    return Times(
        relative_noise=units.percent(ev.config.measuring.relative_noise, 0),
        throttled=int(ev.selection.summaries.throttled_count.sum()),
        refused=ev.times.refused_samples,
        table=Table(
            "a-times",
            "Every series of samples: medians in ms, with half the width of the 95 % interval for those that figures "
            "are quoted from, and the direct method's bound in FP32. The run has the number of samples of each.",
            (
                *words("Variant", "Layer"),
                *numbers("Images", *(f"{kind}, {state}" for kind, state in SERIES[:-1]), "layer", "Bound"),
            ),
            tuple(
                row
                for device in ("gpu", "cpu")
                for variant in ev.wanted(device)
                for place in range(len(ev.layers))
                for size in ev.sizes
                if (row := _row(ev, variant, place, size))
            ),
        ),
    )


def _row(ev: Evidence, variant: Variant, place: int, size: int) -> tuple[Cell, ...] | None:
    layer = ev.layers[place]
    if not ev.times.op(variant.name, layer.name, size):
        return None
    bound_ms = ev.times.fp32_bound_ms(layer, size) if variant.device == "gpu" else None
    return (
        variant.name,
        layer.name,
        units.count(size),
        *(_median(ev, variant, layer.name, size, kind, state) for kind, state in SERIES),
        units.milliseconds(bound_ms, 3),
    )


def _median(ev: Evidence, variant: Variant, layer: str, size: int, kind: str, state: str) -> Cell:
    """With its interval for what figures are quoted from."""
    estimate = ev.times.op(variant.name, layer, size, kind=kind, state=state)
    if estimate is None:
        return MISSING
    quoted = variant.device == "cpu" or (state == "cold" and kind != "layer")
    return units.milliseconds(estimate.value) + (f" {units.spread(estimate)}" if quoted else "")
