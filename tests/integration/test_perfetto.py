"""Profiled programs as files that Perfetto opens."""

import gzip
import json

import pytest

from warpbook.profiling import perfetto
from warpbook.runs import tables


@pytest.fixture(scope="module")
def activities(newest_archive, opened):
    frame = opened(newest_archive).table(tables.ACTIVITIES)
    return frame[(frame.variant == "direct") & (frame.network == "fa18")]


def test_every_event_of_a_program_is_in_its_trace_at_its_time(activities, tmp_path):
    program = activities[(activities["size"] == 10_000) & (activities.tool == "cupti")]
    (path,) = perfetto.write(program, tmp_path)
    assert path.name == "fa18-direct-10000-cupti.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(program)
    kernels = [event for event in events if event["name"] == "conv_forward"]
    expected = program[program.name == "conv_forward"]
    assert [event["dur"] * 1e3 for event in kernels] == pytest.approx((expected.end_ns - expected.start_ns).tolist())
    assert kernels[0]["args"]["block"] == "16x16x1"


def test_rows_of_a_trace_have_names(activities, tmp_path):
    document = perfetto.trace_events(activities[activities["size"] == 10])
    names = {event["args"]["name"] for event in document if event["ph"] == "M"}
    assert {"Host", "GPU", "Runtime API", "Driver API", "Copies to the device"} <= names
    assert any(name.startswith("Kernels, stream") for name in names)


def test_each_program_has_a_trace_of_its_own(activities, tmp_path):
    assert len(perfetto.write(activities, tmp_path)) == len(activities[["tool", "size"]].drop_duplicates())
