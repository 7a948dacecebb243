"""What programs printed and what profilers saw of them, as tables and in fixed width; profiled programs."""

import re
import statistics
from collections.abc import Iterable

import pandas as pd

from warpbook.common import units
from warpbook.config.settings import TimelineSpec
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import API_KINDS, GPU_KINDS, Evidence, KernelLaunches, ProfileRow, first_rows_covering
from warpbook.report.figures import timelines
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, Figure, HtmlTable, View, numbers, words

PROGRAM_HEAD = numbers("Elapsed, s", "User, s", "System, s", "Peak memory, MiB", "Accuracy")
NAME_WIDTH, NAME_LINES = 44, 4  # as many as a page holds behind the numbers, and enough to tell names apart
TIMES = numbers("Time", "Calls", "Avg", "Min", "Max")
_PRINTED = re.compile(r"^Op Time: ([\d.]+)", re.MULTILINE)


def program_cells(runs: pd.DataFrame) -> tuple[Cell, ...]:
    """Runs of a program in the columns PROGRAM_HEAD."""
    return (
        cell_markup.elapsed_cell(runs.elapsed_s),
        units.seconds(runs.user_s.median()),
        units.seconds(runs.system_s.median()),
        units.mebibytes(runs.max_rss_kib.median()),
        units.significant(runs.accuracy.iloc[0]),
    )


def median_output(ev: Evidence, variant: Variant, size: int, weight_set: str = "") -> str:
    """The command, the output and GNU time's lines of that of a program's runs whose elapsed time is the median's; empty
    where the program was not run. weight_set: the network's first by default."""
    runs = ev.programs.runs(variant.name, size, weight_set or None)
    if runs.empty:
        return ""
    row = runs.sort_values("elapsed_s").iloc[(len(runs) - 1) // 2]
    options = f"--network {ev.network.name} --variant {variant.name} --device {variant.device}"
    weights = f" --weights {weight_set}" if weight_set else ""
    return (
        f"* Running /usr/bin/time python scripts/infer.py {options}{weights} {size}\n{row.output}{units.gnu_time(row)}"
    )


def all_outputs(ev: Evidence, variant: Variant) -> tuple[str, ...]:
    """The same at each size that was run, the largest first, and there with each other weight set."""
    largest = [
        median_output(ev, variant, ev.largest),
        *(median_output(ev, variant, ev.largest, name) for name in other_sets(ev)),
    ]
    smaller = [median_output(ev, variant, size) for size in reversed(ev.sizes[:-1])]
    return tuple(filter(None, [*largest, *smaller]))


def other_sets(ev: Evidence) -> tuple[str, ...]:
    """The network's weight sets besides its first, with which figures are quoted."""
    return ev.network.weight_sets[1:]


def op_times_by_weights(ev: Evidence) -> HtmlTable | None:
    """What the programs printed with each weight set at the largest size; None where the network has one set, or no program
    ran with several."""
    sets, rows = ev.network.weight_sets, []
    if len(sets) < 2:
        return None
    for variant in ev.compared_variants("gpu"):
        runs = [ev.programs.runs(variant.name, ev.largest, name) for name in sets]
        op_s = [[sum(map(float, _PRINTED.findall(output))) for output in one.output] for one in runs]
        if all(map(any, op_s)):
            times = (units.time(1e3 * statistics.median(each)) for each in op_s)
            rows.append((variant.stem, *times, *(units.significant(one.accuracy.iloc[0]) for one in runs)))
    if not rows:
        return None
    return HtmlTable(
        "m4-weights",
        f"Op time of all layers as the program printed it with each weight set, and accuracy, {ev.at_size(ev.largest)}: of one "
        "run, or the median of several. The kernels do the same work with each set.",
        (*words("Variant"), *numbers(*(f"Weights: {name}" for name in sets), *(f"Accuracy: {name}" for name in sets))),
        tuple(rows),
    )


def short_name(name: str) -> str:
    """A kernel's name without its template and function arguments, which can fill a page."""
    if name.startswith("["):
        return name
    depth, kept = 0, ""
    for character in name.removeprefix("void ").replace("(anonymous namespace)::", ""):
        depth -= character in ">)"
        if depth == 0:
            kept += character + "…" * (character in "<(")
        depth += character in "<("
    return kept.replace("(…)", "")


_SHAPE = re.compile(r" \(\d+, \d+, \d+\)x\(\d+, \d+, \d+\)$")
"""Grid and block behind a kernel's name, where a profile tells launches of several shapes apart."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Kernels' names as short as tells them apart: bare, with the launch's shape, with templates, whole."""
    by_short: dict[str, set[str]] = {}
    for name in names:
        by_short.setdefault(short_name(_SHAPE.sub("", name)), set()).add(name)
    shortened: dict[str, str] = {}
    for short, alike in by_short.items():
        forms = [
            dict.fromkeys(alike, short),
            {name: short + _shape(name) for name in alike},
            {name: _without_parameters(name) for name in alike},
            {name: _without_parameters(name) + _shape(name) for name in alike},
            {name: name for name in alike},
        ]
        shortened |= next(form for form in forms if len(set(form.values())) == len(alike))
    return shortened


def _shape(name: str) -> str:
    match = _SHAPE.search(name)
    return match[0] if match else ""


def _without_parameters(name: str) -> str:
    """A kernel's name with its template arguments: up to the bracket that its last parenthesis closes."""
    name = _SHAPE.sub("", name).removeprefix("void ").replace("(anonymous namespace)::", "")
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += (name[place] == ")") - (name[place] == "(")
        if name[place] == "(" and depth == 0 and name.endswith(")"):
            return name[:place]
    return name


def total_ns(rows: list[ProfileRow]) -> int:
    """The time of all rows together, ns."""
    return sum(row.total_ns for row in rows)


def share(rows: list[ProfileRow]) -> str:
    """The share of the whole that rows have together."""
    return units.percent(sum(row.share for row in rows))


def profile_table(
    id: str, caption: str, rows: list[ProfileRow], whole: str = "", program_s: float = 0, spread: bool = False
) -> HtmlTable:
    """A profile's rows with their share of it. With the program's elapsed time there is the share of that too, and `whole`
    names the profile. spread: with the shortest and the longest of each row."""
    names = short_names(row.name for row in rows)
    shares = numbers(f"Share of {whole}", "Share of program") if program_s else numbers("Share")
    times = TIMES if spread else TIMES[:3]
    cells = tuple(
        (
            names[row.name],
            units.percent(row.share, 2),
            *([units.percent(row.total_ns / 1e9 / program_s, 2)] if program_s else []),
            *_times(row)[: len(times)],
        )
        for row in rows
    )
    return HtmlTable(id, caption, (*words("Name"), *shares, *times), cells, "named")


def _times(row: ProfileRow) -> tuple[Cell, ...]:
    calls = units.MISSING if row.calls is None else units.count(row.calls)
    return _time(row.total_ns), calls, _time(row.avg_ns), _time(row.min_ns), _time(row.max_ns)


def _time(ns: float | None) -> str:
    return units.MISSING if ns is None else units.time(ns / 1e6)


def launch_table(id: str, caption: str, launches: list[KernelLaunches]) -> HtmlTable:
    """Kernels of a program with their launch shapes and resources."""
    names = short_names(launch.name for launch in launches)
    rows = tuple(
        (
            names[launch.name],
            units.count(launch.calls),
            _time(launch.total_ns),
            launch.grid.replace("x", "×"),
            launch.block.replace("x", "×"),
            str(launch.registers),
            *_shared_cells(launch),
        )
        for launch in launches
    )
    head = numbers("Invocations", "Duration", "Grid", "Block", "Registers", "Static shared, B", "Dynamic shared, B")
    return HtmlTable(id, caption, (*words("Kernel"), *head), rows)


def _shared_cells(launch: KernelLaunches) -> tuple[str, str]:
    """Static and dynamic shared memory; where a trace told their sum alone, that."""
    if launch.static_bytes is None and launch.shared_bytes is not None:
        return f"{launch.shared_bytes} in all", units.MISSING
    static, dynamic = (
        units.MISSING if each is None else str(each) for each in (launch.static_bytes, launch.dynamic_bytes)
    )
    return static, dynamic


def nvprof_table(ev: Evidence, variant: str, size: int, weights: str = "") -> str:
    """A program's whole profile in fixed width, as nvprof prints it."""
    lines = [f"{'Type':>16}  {'Time(%)':>7}  {'Time':>9}  {'Calls':>6}  {'Avg':>9}  {'Min':>9}  {'Max':>9}  Name"]
    for kind, kinds in (("GPU activities:", GPU_KINDS), ("API calls:", API_KINDS)):
        for place, row in enumerate(ev.profiles.rows(variant, size, kinds, weights)):
            each = (row.avg_ns, row.min_ns, row.max_ns)
            times = "  ".join(f"{units.MISSING if ns is None else units.nvprof_time(ns):>9}" for ns in each)
            most = NAME_WIDTH * NAME_LINES
            name = row.name if len(row.name) <= most else row.name[: most - 1] + "…"
            first, *others = (name[start : start + NAME_WIDTH] for start in range(0, len(name), NAME_WIDTH))
            head = kind if place == 0 else ""
            whole = units.nvprof_time(row.total_ns)
            numbers_of_it = f"{head:>16}  {100 * row.share:6.2f}%  {whole:>9}  {row.calls:>6}  {times}  "
            lines += [numbers_of_it + first, *(" " * len(numbers_of_it) + more for more in others)]
    return "\n".join(lines)


def profiled_programs_view(ev: Evidence) -> View:
    """The programs that a study names in `profiled`, and the layer in `drawn`."""
    return View(
        programs=tuple(_program(ev, ev.plan.variants[name]) for name in ev.study.show_profile_of),
        layer=_drawn_layer(ev, ev.study.timeline) if ev.study.timeline else None,
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
        of = f"{variant.name}, {images}{f', weights {model}' if weights else ''}"
        gpu, api = (ev.profiles.rows(variant.name, size, kinds, weights) for kinds in (GPU_KINDS, API_KINDS))
        activities = profile_table(places[0], f"The GPU's work with {of}; shares of it.", gpu)
        caption = f"API calls with {of}: 99 % of their time."
        calls = profile_table(places[1], caption, first_rows_covering(api, 0.99))
    title = f"{images}, weights {model}" if weights else images
    return View(images=title, problem=problem, places=places, activities=activities, calls=calls)


def _drawn_layer(ev: Evidence, drawn: TimelineSpec) -> View:
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
    return View(
        title=title, problem=problem, figure=_layer_figure(ev, drawn.layer, before, after, size) if size else None
    )


def _around_kernels(spans: dict[str, pd.DataFrame], before: str, after: str) -> str:
    """How long a layer's call takes under two variants, and the longest API call that only the second makes."""
    whole = {name: units.time(int(events.end_ns.max() - events.start_ns.min()) / 1e6) for name, events in spans.items()}
    calls = {name: events[events.kind.isin(API_KINDS)] for name, events in spans.items()}
    its_own = calls[after][~calls[after].name.isin(calls[before].name)]
    times = (its_own.end_ns - its_own.start_ns).groupby(its_own.name).sum()
    also = f", which also calls {times.idxmax()}: {units.time(int(times.max()) / 1e6)}" if len(times) else ""
    return f"The layer's whole call takes {whole[before]} with {before}, {whole[after]} with {after}{also}."


def _layer_figure(ev: Evidence, layer: str, before: str, after: str, size: int) -> Figure:
    spans = {name: ev.profiles.within_layer(name, layer, size) for name in (before, after)}
    kernels = {name: events[events.kind == "kernel"] for name, events in spans.items()}
    busy = {name: units.time(int((rows.end_ns - rows.start_ns).sum()) / 1e6) for name, rows in kernels.items()}
    return Figure(
        "profiled-layer-figure",
        timelines.layer_before_and_after(ev, spans, layer),
        f"Rows of bars over time: API calls, copies and kernels of {layer} under {before} and under {after}.",
        f"{layer} in the profiled programs at {units.count(size)} images, from the start of the layer's call. "
        f"Kernels take {busy[before]} with {before} (above) and {busy[after]} with {after} (below). "
        f"{_around_kernels(spans, before, after)}",
        "timeline",
    )
