"""Optimizations whose whole program is shown as the first kernel's is, and one layer's kernels before and after."""

from warpbook.common import units
from warpbook.config.settings import TimelineSpec
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import API_KINDS, GPU_KINDS, Evidence, first_rows_covering
from warpbook.report.figures import timelines
from warpbook.report.views.components import Figure, View
from warpbook.report.views.profile_tables import median_output, other_sets, profile_table


def profiled_programs_view(ev: Evidence) -> View:
    """The programs that a study names in `profiled`, and the layer in `drawn`."""
    return View(
        images=units.count(ev.largest),
        programs=tuple(_program(ev, ev.plan.variants[name]) for name in ev.study.show_profile_of),
        layer=_layer(ev, ev.study.timeline) if ev.study.timeline else None,
    )


def _program(ev: Evidence, variant: Variant) -> View:
    with_sets = ("", *other_sets(ev))
    outputs = tuple(filter(None, (median_output(ev, variant, ev.largest, weights) for weights in with_sets)))
    return View(
        name=variant.name,
        title=variant.title,
        outputs=outputs,
        problem="" if outputs else "its program was not run, or failed, in the cited run",
        watched=tuple(_largest_profile(ev, variant, weights) for weights in with_sets),
    )


def profile_places(place: str, *parts: str) -> tuple[str, str]:
    """The ids of a profile's two tables."""
    gpu, api = ("-".join(filter(None, (place, kind, *parts))) for kind in ("gpu", "api"))
    return gpu, api


def _largest_profile(ev: Evidence, variant: Variant, weights: str) -> View:
    """The profile at the largest size traced; problem: why that is not the study's largest."""
    traced = (size for size in reversed(ev.sizes) if not ev.profiles.problem(variant.name, size, weights))
    places = profile_places(f"profiled-{variant.name}", weights)
    profile = program_profile(ev, variant, next(traced, ev.largest), places, weights)
    profile.problem = ev.profiles.problem(variant.name, ev.largest, weights)
    return profile


def program_profile(ev: Evidence, variant: Variant, size: int, places: tuple[str, str], weights: str = "") -> View:
    """The profile of a variant's program at a size, or why there is none."""
    images, model = f"{units.count(size)} images", ev.network.model(weights) if weights else ""
    problem = ev.profiles.problem(variant.name, size, weights)
    activities, calls = None, None
    if not problem:
        of = f"the program with {variant.name} at {images}{f' and the weights {model}' if weights else ''}"
        gpu, api = (ev.profiles.rows(variant.name, size, kinds, weights) for kinds in (GPU_KINDS, API_KINDS))
        activities = profile_table(places[0], f"GPU activities of {of}. Share: of the device's busy time.", gpu)
        caption = f"CUDA API calls of {of} that together take more than 99 % of the API time."
        calls = profile_table(places[1], caption, first_rows_covering(api, 0.99))
    title = f"{images}, weights {model}" if weights else images
    return View(images=title, problem=problem, places=places, activities=activities, calls=calls)


def _layer(ev: Evidence, drawn: TimelineSpec) -> View:
    """problem: why the layer is not drawn at the size asked for; the figure is then of the largest common size."""
    before, after = ev.plan.variants[drawn.variant].header.builds_on, drawn.variant
    lacking = [name for name in (before, after) if ev.profiles.within_layer(name, drawn.layer, drawn.size).empty]
    problem = ""
    if lacking:
        programs = "was not profiled" if len(lacking) == 1 else "were not profiled"
        problem = f"{' and '.join(lacking)} {programs} at {units.count(drawn.size)} images in the cited run"
    sizes = (drawn.size, *reversed(ev.sizes))
    common = (
        size
        for size in sizes
        if all(len(ev.profiles.within_layer(name, drawn.layer, size)) for name in (before, after))
    )
    size = next(common, 0)
    title = f"{drawn.layer} at {units.count(drawn.size)} images: {before} against {after}"
    return View(title=title, problem=problem, figure=_figure(ev, drawn.layer, before, after, size) if size else None)


def _figure(ev: Evidence, layer: str, before: str, after: str, size: int) -> Figure:
    spans = {name: ev.profiles.within_layer(name, layer, size) for name in (before, after)}
    kernels = {name: events[events.kind == "kernel"] for name, events in spans.items()}
    busy = {name: units.time(int((rows.end_ns - rows.start_ns).sum()) / 1e6) for name, rows in kernels.items()}
    return Figure(
        "profiled-layer-figure",
        timelines.layer_before_and_after(ev, spans, layer),
        f"Rows of bars over time: API calls, copies and kernels of {layer} under {before} and under {after}.",
        f"{layer} in the profiled programs at {units.count(size)} images, from the start of the layer's call. "
        f"Kernels take {busy[before]} with {before} (above) and {busy[after]} with {after} (below).",
        "timeline",
    )
