"""Numbers beside points, those of a crowd in columns that cover neither each other nor a point."""

import itertools

from matplotlib.axes import Axes

from warpbook.report.figures.style import MUTED, lay_out, note

Point = tuple[float, float]
Box = tuple[float, float, float]  # left, right and middle height, in points


def number_points(panels: list[tuple[Axes, list[tuple[float, float, str]]]]) -> None:
    """Write each point's number beside it, in every panel of a figure. Those of a crowd stand in columns on both its
    sides, in order of the points' height, and a line leads to each."""
    lay_out(panels[0][0])
    for axes, points in panels:
        _number_points(axes, points)


def _number_points(axes: Axes, points: list[tuple[float, float, str]]) -> None:
    scale = axes.figure.dpi / 72
    places = {text: tuple(axes.transData.transform((x, y)) / scale) for x, y, text in points}
    crowds: list[tuple[str, ...]] = [(text,) for text in places]
    taken = {crowd: _boxes(crowd, places) for crowd in crowds}
    # What would be written over something else joins its crowd.
    while over := next(
        (pair for pair in itertools.combinations(crowds, 2) if _overlap(*(taken[crowd] for crowd in pair))), None
    ):
        joined = (*over[0], *over[1])
        crowds = [crowd for crowd in crowds if crowd not in over] + [joined]
        taken[joined] = _boxes(joined, places)
    at = {text: (x, y) for x, y, text in points}
    for crowd in crowds:
        for text, (across, up), align in _numbers(crowd, places):
            # Without a patch and a shrinking, for which matplotlib would cut a curve in pieces.
            lead = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.3, "shrinkA": 0, "shrinkB": 0, "patchA": None}
            lead["relpos"] = (float(align == "right"), 0.5)
            offset = (across - places[text][0], up - places[text][1])
            note(axes, text, at[text], offset, ha=align, fontsize=6.5, arrowprops=lead if len(crowd) > 1 else None)


def _numbers(crowd: tuple[str, ...], places: dict[str, Point]) -> list[tuple[str, Point, str]]:
    """(number, where it is written, which end of it stands there) of points close to each other."""
    order = sorted(crowd, key=lambda text: places[text][1])
    left, right = min(places[text][0] for text in crowd), max(places[text][0] for text in crowd)
    # The left half goes to the left; of points that stand above each other, every second.
    across_first = sorted(order, key=lambda text: (round(places[text][0] / 8), order.index(text) % 2))
    lefts = set(across_first[: len(order) // 2])
    columns = [(left - 16, "right", [text for text in order if text in lefts])] if len(crowd) > 1 else []
    columns.append((right + (16 if columns else 6), "left", [text for text in order if text not in lefts]))
    written = []
    for across, align, column in columns:
        middle = sum(places[text][1] for text in column) / len(column)
        heights = [middle + 7.5 * (number - (len(column) - 1) / 2) for number in range(len(column))]
        written += [(text, (across, up), align) for text, up in zip(column, heights, strict=True)]
    return written


def _boxes(crowd: tuple[str, ...], places: dict[str, Point]) -> list[Box]:
    """What the points of a crowd and their numbers cover."""
    written = [(x, x + 9, y) if align == "left" else (x - 9, x, y) for _, (x, y), align in _numbers(crowd, places)]
    return [(x - 3, x + 3, y) for x, y in (places[text] for text in crowd)] + written


def _overlap(one: list[Box], other: list[Box]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] and abs(a[2] - b[2]) < 7 for a, b in itertools.product(one, other))
