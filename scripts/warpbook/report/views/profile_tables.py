"""Profiles as tables, under names that fit, and the whole in fixed width as nvprof prints it."""

import re
from collections.abc import Iterable

from warpbook.common import units
from warpbook.report.evidence import API_KINDS, GPU_KINDS, Evidence, KernelLaunches, ProfileRow
from warpbook.report.views.components import Cell, HtmlTable, numbers, words

NAME_WIDTH = 44  # as many as a page holds behind the numbers
TIMES = numbers("Time", "Calls", "Avg", "Min", "Max")


def short_name(name: str) -> str:
    """A kernel's name without its template and function arguments, which can fill a page."""
    if name.startswith("["):
        return name
    depth, kept = 0, []
    for character in name.removeprefix("void ").replace("(anonymous namespace)::", ""):
        depth -= character in ">)"
        if depth == 0 and character not in ">)":
            kept.append(character)
        if character in "<(":
            kept.append("…" if depth == 0 else "")
            depth += 1
        if character in ">)" and depth == 0:
            kept.append(character)
    return "".join(kept).replace("(…)", "")


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
            _bytes(launch.static_bytes),
            _bytes(launch.dynamic_bytes),
        )
        for launch in launches
    )
    head = numbers("Invocations", "Duration", "Grid", "Block", "Registers", "Static shared, B", "Dynamic shared, B")
    return HtmlTable(id, caption, (*words("Kernel"), *head), rows)


def _bytes(amount: int | None) -> str:
    return units.MISSING if amount is None else str(amount)


def nvprof_table(ev: Evidence, variant: str, size: int, weights: str = "") -> str:
    """A program's whole profile in fixed width, as nvprof prints it."""
    lines = [f"{'Type':>16}  {'Time(%)':>7}  {'Time':>9}  {'Calls':>6}  {'Avg':>9}  {'Min':>9}  {'Max':>9}  Name"]
    for kind, kinds in (("GPU activities:", GPU_KINDS), ("API calls:", API_KINDS)):
        for place, row in enumerate(ev.profiles.rows(variant, size, kinds, weights)):
            each = (row.avg_ns, row.min_ns, row.max_ns)
            times = "  ".join(f"{units.MISSING if ns is None else units.nvprof_time(ns):>9}" for ns in each)
            name = row.name if len(row.name) <= NAME_WIDTH else row.name[: NAME_WIDTH - 1] + "…"
            head = kind if place == 0 else ""
            whole = units.nvprof_time(row.total_ns)
            lines.append(f"{head:>16}  {100 * row.share:6.2f}%  {whole:>9}  {row.calls:>6}  {times}  {name}")
    return "\n".join(lines)
