"""Profiled programs as files that Perfetto opens."""

import gzip
import json

import pandas as pd
import pytest

from warpbook.profiling import importing, perfetto
from warpbook.runs import tables


@pytest.fixture
def program(databases, tmp_path) -> pd.DataFrame:
    """The events of a program of 10 images, as a run holds them."""
    rows = importing.combine({"file": importing.read(databases["nsys"])}, "direct", "fa18", 10)
    tables.ACTIVITIES.write(rows[tables.ACTIVITIES], tmp_path / "activities.csv.gz")
    return tables.ACTIVITIES.read(tmp_path / "activities.csv.gz")


def test_every_event_of_a_program_is_in_its_trace_at_its_time(program, tmp_path):
    (path,) = perfetto.write(program, tmp_path)
    assert path.name == "fa18-direct-10-nsys.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(program) > 10
    kernels = program[program.kind == "kernel"]
    found = [event for event in events if event["name"] in set(kernels.name)]
    assert [event["dur"] * 1e3 for event in found] == pytest.approx((kernels.end_ns - kernels.start_ns).tolist())
    assert {event["args"]["block"] for event in found} == {"16x16x1", "256x1x1"}


def test_rows_of_a_trace_have_names(program):
    document = perfetto.trace_events(program)
    names = {event["args"]["name"] for event in document if event["ph"] == "M"}
    assert {"Host", "GPU", "Runtime API", "Driver API", "Copies to the device"} <= names
    assert {"Kernels, stream 7", "Kernels, stream 13"} <= names


def test_each_program_has_a_trace_of_its_own(program, tmp_path):
    programs = [program.assign(size=size) for size in (10, 100)] + [program.assign(tool="cupti")]
    names = {path.name for path in perfetto.write(pd.concat(programs), tmp_path)}
    assert names == {f"fa18-direct-{name}.json.gz" for name in ("10-nsys", "100-nsys", "10-cupti")}
