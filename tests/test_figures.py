"""Charts: what is drawn is what was measured."""

import re

import pandas as pd
import pytest

from test_report import ARCHIVE
from test_runs import evidence_of
from warpbook import figures, runs
from warpbook.estimates import Estimate
from warpbook.evidence import Speedup


def speedup(value, low, high, paired=True, verdict="faster"):
    return Speedup(Estimate(value, low, high, 10), paired, verdict)


def test_spans_too_close_to_tell_apart_become_one():
    assert figures.merged([(0, 1), (1.5, 2), (5, 6), (5.5, 5.7)], gap=1) == [(0, 2), (5, 6)]
    assert figures.merged([(0, 1), (1.5, 2)], gap=0.1) == [(0, 1), (1.5, 2)]


def test_an_interval_s_axis_holds_every_interval_and_1():
    low, high = figures.interval_span([speedup(2.0, 1.8, 2.2), speedup(3.0, 2.9, 3.4)])
    assert low < 1 < 3.4 < high
    low, high = figures.interval_span([speedup(0.5, float("nan"), float("nan"))])
    assert low < 0.5 < 1 < high


def test_an_interval_is_drawn_at_its_place_on_a_logarithmic_axis():
    svg = figures.interval(speedup(2.0, 1.0, 4.0), (1.0, 4.0), 0.01)
    assert 'cx="60.0"' in svg  # the middle of 120
    assert "M0.0 5H120.0" in svg


@pytest.mark.parametrize(("paired", "inside"), [(True, "#1f7a4d"), (False, "white")])
def test_the_marker_of_a_ratio_that_is_not_paired_is_hollow(paired, inside):
    svg = figures.interval(speedup(2.0, 1.9, 2.1, paired), (0.9, 2.5), 0.01)
    assert re.search(r'<circle [^>]*fill="([^"]+)"', svg).group(1) == inside


def test_a_timeline_of_many_launches_stays_small(monkeypatch):
    ev = evidence_of(ARCHIVE, measuring=runs.open_run(ARCHIVE).record["measuring"])
    frame = ev.trace(ev.naive.name, ev.largest)
    kernel = frame[frame.kind == "kernel"].iloc[[0]]
    copies = kernel.loc[kernel.index.repeat(10_000)].reset_index(drop=True)
    copies["start_ns"] = kernel.start_ns.iloc[0] + copies.index * 900
    copies["end_ns"] = copies.start_ns + 500
    many = pd.concat([frame, copies], ignore_index=True)
    monkeypatch.setitem(ev.traced, (ev.tracer, ev.naive.name, ev.largest), many)
    assert len(figures.timeline(ev, ev.naive, ev.largest)) < 400_000
