"""Whether other programs keep the processors busy: told from the system's count and one's own."""

import os
import time

import pytest

from warpbook.machine import load

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def seconds(tmp_path, monkeypatch):
    """A clock, the time that this process worked, and what the system counts: of two processors that it may use, and of
    a third."""
    now = {"wall": 0.0, "own": 0.0, "user": [0.0, 0.0, 0.0], "stolen": 0.0}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(time, "monotonic", lambda: now["wall"])
    monkeypatch.setattr(time, "process_time", lambda: now["own"])
    stat = tmp_path / "stat"
    monkeypatch.setattr(load, "_STAT", stat)

    def pass_by(wall, own, user, stolen=0.0):
        now["wall"] += wall
        now["own"] += own
        now["user"] = [before + more for before, more in zip(now["user"], user, strict=True)]
        now["stolen"] += stolen
        lines = [f"cpu{number} {round(one * TICKS)} 0 0 900 0 0 0 {round(now['stolen'] * TICKS) if not number else 0} 0 0"
                 for number, one in enumerate(now["user"])]  # fmt: skip
        stat.write_text("\n".join(["cpu  1 2 3 4 5 6 7 8 9 10", *lines, "intr 7 0 1", ""]))

    pass_by(0, 0, (0, 0, 0))
    return pass_by


def test_others_are_in_the_way_where_they_take_more_than_is_tolerated_and_half_of_what_is_left(seconds):
    for own, user, stolen, busy in [
        (2.0, (1.0, 1.0, 0.0), 0.0, False),  # both for this process
        (1.0, (1.0, 0.4, 0.0), 0.0, False),  # less than half of what it leaves
        (1.0, (1.0, 0.7, 0.0), 0.0, True),
        (2.0, (1.0, 1.0, 1.0), 0.0, False),  # a processor that it may not use
        (1.9, (1.0, 1.0, 0.0), 0.0, False),  # less than is tolerated
        (1.6, (1.0, 1.0, 0.0), 0.0, True),
        (1.6, (0.8, 0.8, 0.0), 0.4, True),  # by the machine below a virtual one
    ]:
        meter = load.LoadMeter(0.15)
        seconds(1.0, own, user, stolen)
        reason = meter.reason()
        assert bool(reason) == busy
        if busy:
            assert "busy machine: other programs kept 0." in reason and "of 2 processors busy" in reason


def test_what_it_started_is_its_own(seconds):
    meter = load.LoadMeter(0.15)
    seconds(1.0, 0.0, (1.0, 1.0, 0.0))
    assert meter.reason(children_s=2.0) == ""


def test_a_window_goes_on_until_it_is_long_enough_and_the_next_begins_after_it(seconds):
    meter = load.LoadMeter(0.15)
    seconds(0.2, 0.2, (0.2, 0.2, 0.0))
    assert meter.reason() is None
    seconds(0.1, 0.1, (0.1, 0.1, 0.0))
    assert meter.reason()
    seconds(0.3, 0.6, (0.3, 0.3, 0.0))
    assert meter.reason() == ""


def test_where_the_system_counts_nothing_nobody_is_in_the_way(seconds, tmp_path, monkeypatch):
    (tmp_path / "stat").unlink()
    meter = load.LoadMeter(0.15)
    monkeypatch.setattr(time, "monotonic", lambda: 9.0)
    assert meter.reason() == ""
