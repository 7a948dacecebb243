"""Spans of time, (start, end): joined, and how much time they cover."""

from collections.abc import Iterable
from typing import TypeVar

Point = TypeVar("Point", int, float)


def merge(spans: Iterable[tuple[Point, Point]], gap: float) -> list[tuple[Point, Point]]:
    """Spans (start, end) in order of start, those less than `gap` apart made one."""
    joined: list[tuple[Point, Point]] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] < gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def unite(spans: Iterable[tuple[Point, Point]]) -> list[tuple[Point, Point]]:
    """The time that spans cover, as spans in order of which none overlap."""
    return merge(spans, gap=0)


def total_length(spans: Iterable[tuple[Point, Point]]) -> Point:
    """How much time spans cover together."""
    return sum(end - start for start, end in unite(spans))


def covered_length(spans: Iterable[tuple[Point, Point]], by: Iterable[tuple[Point, Point]]) -> Point:
    """How much of the time of `spans`, none of which overlap, lies within `by`."""
    within = unite(by)
    return sum(max(0, min(end, until) - max(start, since)) for start, end in spans for since, until in within)
