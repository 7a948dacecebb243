"""What a report says of the times of files of the course."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from warpbook.common.files import PROJECT
from warpbook.kernels import variants
from warpbook.machine.cuda_devices import Device
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.course_times import COLD, LAYER, OP
from warpbook.report.views import course_files
from warpbook.runs import catalog, tables

FILES = PROJECT / "tests" / "data" / "course"
LEAST_MS = {10_000: 1.0, 1000: 0.1, 100: 0.01}
"""More than the hardware's bound at a size, less than twenty times the least of the ten samples below."""


def samples(variant: str, layer: str, size: int, scale: float = 1.0, **columns) -> list[dict]:
    """Ten rounds of a layer: op times of 1.00 to 1.09 times the least, layer times ten times as long."""
    place = tables.place("conv", "ece408", layer) | {"variant": variant, "job": variant, "device": "gpu", "size": size}
    sound = {
        "sm_clock_mhz": 1980.0,
        "energy_j": None,
        "throttled": False,
        "stop_reason": "samples",
        "status": "ok",
        "reason": "",
    }
    place["measured_on"] = "node/1"
    return [
        {**place, **sound, "kind": kind, "state": state, "sample": number, "time_ms": time_ms, **columns}
        for number in range(10)
        for (kind, state), share in ((OP, 1), (LAYER, 10), (COLD, 0.9))
        for time_ms in [scale * share * LEAST_MS[size] * (1 + number / 100)]
    ]


@pytest.fixture
def evidence(small_archive, opened, planned):
    """The evidence of the study ece408 where files of the course are among the kernels, timed as `rows` say; another
    network's figures stand for those of built-in variants."""

    def make(*rows: list[dict], files: tuple[str, ...] = ("fused_wmma", "one_call")) -> Evidence:
        run = opened(small_archive)
        made = planned(study="ece408", measuring=run.record["measuring"])
        dropped = {name: variants.read(name, FILES) for name in files}
        made = replace(made, variants=made.variants | dropped, device_or_reason=Device("a GPU", "sm_90", "", ""))
        timed = run.table(tables.SAMPLES)
        timed = timed[(timed.network == "fa18") & (timed.problem == "conv")]
        timed = timed.assign(case=timed.case.str.replace("fa18/", "ece408/"))
        of_files = pd.DataFrame([row for each in rows for row in each], columns=list(tables.SAMPLES.columns))
        timed = pd.concat([timed, of_files]) if rows else timed
        stand_in = {tables.SAMPLES.name: tables.with_places(timed.reset_index(drop=True))}
        return Evidence(made, "ece408", catalog.Run(run.path, run.record, stand_in))

    return make


def every(variant: str, scale: float = 1.0, **columns) -> list[dict]:
    return [
        row
        for layer in ("conv1", "conv2")
        for size in LEAST_MS
        for row in samples(variant, layer, size, scale, **columns)
    ]


def test_files_stand_beside_the_built_in_variants_by_the_sum_of_their_op_times(evidence):
    ev = evidence(every("fused_wmma"), every("one_call", 1000))
    view = course_files.course_files_view(ev)
    names = [row[0] for row in view.comparison.rows]
    assert {"fused_wmma", "one_call", "direct", "cudnn_fp32"} <= set(names)
    assert names[-1] == "one_call"
    ours = next(row for row in view.comparison.rows if row[0] == "fused_wmma")
    assert "1.045\u202fms" in ours[2] and "n\u202f10" in ours[2]
    assert "2.090\u202fms" in ours[-2] and "20.90\u202fms" in ours[-1]
    totals = [ev.times.total(name, 10_000).value for name in names if name not in ("fused_wmma", "one_call")]
    assert totals == sorted(totals)
    assert len(view.times.rows) == 2 * 2 * 3
    assert view.problems == ()


def test_where_op_times_are_refused_the_layer_time_stands(evidence):
    rows = [
        row | ({} if row["kind"] == "layer" else {"status": "refused", "reason": "its work is done in the prolog"})
        for row in every("fused_wmma")
    ]
    ev = evidence(rows, files=("fused_wmma",))
    view = course_files.course_files_view(ev)
    *_, ops, layers = view.comparison.rows[-1]
    assert (view.comparison.rows[-1][0], ops) == ("fused_wmma", "–")
    assert "20.90\u202fms" in layers
    assert view.problems == (("fused_wmma", "its work is done in the prolog"),)


def test_a_sample_that_was_throttled_or_below_the_hardware_s_bound_is_no_figure(evidence):
    rows = every("fused_wmma")
    rows[0]["throttled"] = True
    assert evidence(rows).course.time("fused_wmma", "conv1", 10_000, OP).n == 9

    ev = evidence(every("fused_wmma", 0.001), files=("fused_wmma",))
    assert ev.course.time("fused_wmma", "conv1", 10_000, OP) is None
    ((_, reason),) = course_files.course_files_view(ev).problems
    assert "conv1, 10000 images; " in reason and "below the hardware's lower bound" in reason


def test_a_file_without_a_figure_says_why_and_without_files_there_is_no_section(evidence):
    failed = samples("one_call", "conv1", 100)[:1]
    failed[0] |= {"kind": "", "state": "", "time_ms": math.nan, "status": "launch_failed", "reason": "its process died"}
    problems = dict(course_files.course_files_view(evidence(failed)).problems)
    assert problems["one_call"] == "its process died"
    assert "has no time of it" in problems["fused_wmma"]

    assert course_files.course_files_view(evidence(files=())) is None
