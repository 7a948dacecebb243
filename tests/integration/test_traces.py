"""Programs under their profilers: captured with each tool, and what the report concludes from what the tools saw."""

import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from warpbook.common.files import PROJECT
from warpbook.machine import available_profilers
from warpbook.machine.cuda_devices import Device
from warpbook.profiling import cupti_sqlite, nsight, profile_schema
from warpbook.report import trace_layout
from warpbook.report.evidence import layer_events
from warpbook.report.evidence.profile_values import ProfileValues
from warpbook.report.trace_layout import CopyOverlap
from warpbook.runs import tables

OUTPUT = """\
Loading fashion-mnist data... done
Loading model... done
New Inference
Op Time: 0.003936
Op Time: 0.011288
Correctness: 0.897 Model: fa18
"""
PASSED = {
    "problem": "conv", "case": "fa18/conv1", "variant": "direct", "device": "gpu", "size": 10, "test": "reals", "ok": True,
}  # fmt: skip
SECRET = "TOKEN=of-nobody's-business"


def a_device(arch: str) -> Device:
    return Device(f"a GPU of {arch}", arch, "0" * 64, "13.0")


@pytest.fixture
def exported(tmp_path) -> Path:
    """What nsys exports of a program on an H200, with the processes and environment that it notes of any machine."""
    captured = PROJECT / "tests" / "data" / "profiles" / "program_by_nsys.sqlite.gz"
    path = tmp_path / "exported.sqlite"
    path.write_bytes(gzip.decompress(captured.read_bytes()))
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', ?)", [SECRET])
        database.execute("INSERT INTO StringIds VALUES (999999, ?)", [SECRET])
        database.commit()
    return path


@pytest.fixture
def events(exported) -> pd.DataFrame:
    rows = cupti_sqlite.read(exported, "a capture").events
    return pd.DataFrame(rows)


def tool_on_path(folder: Path, monkeypatch, name: str, script: str) -> None:
    """A program of that name, in Python, before everything else on PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport shutil, sys\narguments = sys.argv[1:]\n{script}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def traced(
    folder: Path,
    tool: str,
    *sizes: int,
    timeout: float = 60,
    baseline: Path | None = None,
    weights: str = "",
    variant: str = "direct",
) -> tuple[list[dict], list[dict], list[Path], str]:
    """(rows of ACTIVITIES, rows of PROFILES, files kept, what was printed) of trace_program.py."""
    nothing = dict.fromkeys(tables.CORRECTNESS.columns)
    row = {**nothing, **PASSED, "status": "ok", "reason": "", "reference": "float64"}
    tables.CORRECTNESS.write([row], folder / "correctness.csv")
    done = subprocess.run(
        [
            sys.executable, PROJECT / "scripts" / "trace_program.py", "--tool", tool, "--network", "fa18",
            "--variant", variant, "--sizes", *map(str, sizes), "--timeout", str(timeout),
            "--correctness", folder / "correctness.csv", "--out", folder / "a.csv",
            "--sums", folder / "s.csv", "--profiles", folder / "p.csv",
            "--reports", folder / "reports", *(["--baseline", baseline] if baseline else []),
            *(["--weights", weights] if weights else []),
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    files = sorted((folder / "reports").iterdir())
    return tables.ACTIVITIES.rows(folder / "a.csv"), tables.PROFILES.rows(folder / "p.csv"), files, done.stdout


def fake_nsys(exported: Path, of_1000_images: Path | None = None) -> str:
    return f"""
target = arguments[arguments.index("--output") + 1]
if arguments[0] == "profile":
    open(target + ".nsys-rep", "w").write(arguments[-1])
    print({OUTPUT!r} + "Generating '/tmp/nsys-report.qdstrm'")
else:
    large = open(arguments[-1]).read() == "1000"
    shutil.copyfile({str(of_1000_images or exported)!r} if large else {str(exported)!r}, target)
"""


def test_a_capture_by_nsight_systems_becomes_events_and_keeps_no_environment(tmp_path, monkeypatch, exported):
    tool_on_path(tmp_path / "bin", monkeypatch, "nsys", fake_nsys(exported))
    events, (profile,), (kept,), _ = traced(tmp_path, "nsys", 10_000)
    assert (profile["status"], profile["events"], profile["report"]) == ("ok", len(events), kept.name)
    assert profile["output"] == OUTPUT
    assert {row["kind"] for row in events} >= {"kernel", "memcpy_htod", "memcpy_dtoh", "api_runtime", "range"}
    assert min(row["start_ns"] for row in events) == 0
    assert {(row["tool"], row["variant"], row["size"]) for row in events} == {("nsys", "direct", 10_000)}
    assert kept.name == "fa18-direct-10000.nsys.sqlite"
    assert SECRET.encode() not in kept.read_bytes()
    assert SECRET.encode() in exported.read_bytes()


def test_a_program_is_watched_with_other_weights_at_its_baseline_s_size_and_told_apart(tmp_path, monkeypatch, exported):
    tool_on_path(tmp_path / "bin", monkeypatch, "nsys", fake_nsys(exported))
    events, watched, files, _ = traced(tmp_path, "nsys", 10, 100, weights="low")
    assert [(row["size"], row["weights"]) for row in watched] == [(10, ""), (100, ""), (100, "low")]
    assert {(row["size"], row["weights"]) for row in events} == {(10, ""), (100, ""), (100, "low")}
    assert [path.name for path in files][-1] == "fa18-direct-100.nsys.sqlite"
    assert "fa18-direct-100-low.nsys.sqlite" in [path.name for path in files]

    tool_on_path(tmp_path / "bin", monkeypatch, "nsys", fake_nsys(exported))
    traced(tmp_path, "nsys", 100)
    _, profiles, _, _ = traced(tmp_path, "nsys", 10_000, baseline=tmp_path / "p.csv")
    assert [row["size"] for row in profiles] == [10_000, 100]


def test_what_is_kept_of_an_export_reads_back_whole(tmp_path, exported):
    nsight.copy_events(exported, tmp_path / "kept.sqlite")
    assert cupti_sqlite.read(tmp_path / "kept.sqlite", "a") == cupti_sqlite.read(exported, "a")


def test_a_capture_by_nvprof_comes_with_the_metrics_of_the_longest_kernel(tmp_path, monkeypatch, databases):
    script = f"""
shutil.copyfile({str(databases["nvprof"])!r}, arguments[arguments.index("--export-profile") + 1])
open({str(tmp_path / "asked")!r}, "a").write(" ".join(arguments) + "\\n")
print({OUTPUT!r})
"""
    tool_on_path(tmp_path / "bin", monkeypatch, "nvprof", script)
    events, (profile,), kept, _ = traced(tmp_path, "nvprof", 100)
    assert (profile["status"], profile["events"], profile["output"]) == ("ok", len(events), OUTPUT)
    assert {row["name"] for row in events if row["kind"] == "range"} == {"inference", "layer: conv1"}
    assert [path.name for path in kept] == ["fa18-direct-100-analysis.nvvp", "fa18-direct-100.nvvp"]
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert "--analysis-metrics" not in first
    assert "--kernels conv_forward --analysis-metrics" in second


def test_a_trace_is_kept_where_the_metrics_fail(tmp_path, monkeypatch, databases):
    script = f"""
if "--analysis-metrics" in arguments:
    sys.exit("==ERROR== ERR_NVGPUCTRPERM")
shutil.copyfile({str(databases["nvprof"])!r}, arguments[arguments.index("--export-profile") + 1])
"""
    tool_on_path(tmp_path / "bin", monkeypatch, "nvprof", script)
    events, (profile,), (kept,), printed = traced(tmp_path, "nvprof", 100)
    assert (profile["status"], profile["report"], len(events) > 0) == ("ok", kept.name, True)
    assert "no analysis metrics of conv_forward with direct: profiling failed: ==ERROR== ERR_NVGPUCTRPERM" in printed


def test_a_program_with_too_many_events_is_watched_again_with_fewer_images(tmp_path, monkeypatch, exported):
    large = tmp_path / "large.sqlite"
    shutil.copyfile(exported, large)
    with closing(sqlite3.connect(large)) as database:
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        for _ in range(13):
            database.execute(f"INSERT INTO {kernels} SELECT * FROM {kernels}")
        database.commit()
    tool_on_path(tmp_path / "bin", monkeypatch, "nsys", fake_nsys(exported, large))
    events, (refused, kept), (file,), printed = traced(tmp_path, "nsys", 1000)
    assert (refused["size"], refused["events"], refused["report"]) == (1000, 0, "")
    assert refused["reason"].endswith("events, more than the 25000 that a run keeps; see 100 images")
    assert (kept["size"], kept["status"], kept["report"]) == (100, "ok", file.name)
    assert {row["size"] for row in events} == {100}
    sums = tables.SUMMARIES.rows(tmp_path / "s.csv")
    assert {row["size"] for row in sums} == {1000}  # of what is kept one by one there are no sums
    (many, once) = (
        {row["name"]: row for row in rows if row["kind"] == "kernel"}["conv_forward"]
        for rows in (sums, profile_schema.sums("nsys", events))
    )
    assert (many["calls"], many["total_ns"]) == (2**13 * once["calls"], 2**13 * once["total_ns"])
    assert "no profile of direct at 1000 images" in printed


def test_a_profiler_that_fails_leaves_its_words_and_no_events(tmp_path, monkeypatch):
    for script, status, reason in [
        ("sys.exit('nsys: the trace could not be started')", "launch_failed", "the trace could not be started"),
        ("import time; time.sleep(60)", "timed_out", "still running after 2 s"),
        (
            "open(arguments[arguments.index('--output') + 1] + '.nsys-rep', 'w') if arguments[0] == 'profile' else 0",
            "launch_failed",
            "nsys",
        ),
    ]:
        tool_on_path(tmp_path / "bin", monkeypatch, "nsys", script)
        events, (profile,), files, _ = traced(tmp_path, "nsys", 10, timeout=2)
        assert (profile["status"], events, files) == (status, [], [])
        assert reason in profile["reason"]


def test_a_program_with_a_layer_that_its_variant_is_not_for_is_unsupported_and_not_watched(tmp_path, monkeypatch):
    tool_on_path(tmp_path / "bin", monkeypatch, "nsys", "sys.exit('nsys: called')")
    events, (profile,), files, _ = traced(tmp_path, "nsys", 10, variant="fp16x3_wgmma")
    assert (profile["status"], events, files) == ("unsupported", [], [])
    assert "not written for the layer conv1" in profile["reason"]


def test_nvprof_is_not_asked_of_a_device_that_it_does_not_know(tmp_path, monkeypatch):
    tool_on_path(tmp_path / "bin", monkeypatch, "nvprof", "print('nvprof: release version 10.2.89')")
    assert available_profilers.missing_reason("nvprof", a_device("sm_75")) == ""
    assert available_profilers.version("nvprof") == "10.2.89"
    assert "capability 8.0 and later, and a GPU of sm_90 has 9.0" in available_profilers.missing_reason(
        "nvprof", a_device("sm_90")
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert available_profilers.missing_reason("nvprof", a_device("sm_75")) == "nvprof (nvprof) is not on PATH"
    assert available_profilers.missing_reason("nsys", a_device("sm_90")) == "nsys (Nsight Systems) is not on PATH"


def test_a_layer_s_kernels_are_those_launched_in_its_range(events):
    for layer, grid in (("conv1", "16x6x10000"), ("conv2", "4x16x10000")):
        within = layer_events(events, layer, "direct")
        assert list(within[within.kind == "kernel"].grid) == [grid]
    assert layer_events(events, "conv3", "direct").empty


def test_hidden_copies_and_kernels_that_run_at_once_are_counted():
    frame = pd.DataFrame(
        [
            ("memcpy_htod", 0, 100), ("memcpy_dtoh", 250, 300), ("kernel", 50, 150), ("kernel", 100, 200),
            ("kernel", 260, 270), ("api_runtime", 0, 1000),
        ],
        columns=["kind", "start_ns", "end_ns"],
    )  # fmt: skip
    # Copies: 150 ns, of which 50 to 100 and 260 to 270 lie under kernels. Kernels: 210 ns of work in 160 ns.
    assert trace_layout.copy_overlap(frame) == CopyOverlap(150, 60, 210 / 160)
    assert trace_layout.copy_overlap(frame[frame.kind == "kernel"]).share == 0.0


def test_the_tools_of_the_archived_run_agree_where_kernels_are_not_short(ev):
    agreed = trace_layout.agreements(ev)
    assert all({"cupti", "ncu"} <= set(one.ms) for one in agreed)
    assert {one.variant for one in agreed} == {one.name for one in ev.ranking.measured_variants("gpu", peers=False)}
    assert all(one.relative_difference <= trace_layout.AGREE_WITHIN for one in agreed if one.kernel_us > 10)


def test_events_that_cupti_saw_are_a_table_of_their_program_in_time_since_its_first_event(tmp_path):
    cupti_program = pytest.importorskip("trace_with_cupti", reason="cupti-python is not installed")
    rows = [
        profile_schema.event("range", "conv1 direct", 1_000, 1_500),
        profile_schema.event("kernel", "conv_forward", 1_100, 1_400, grid="1x1x1"),
    ]
    place = {"tool": "cupti", "variant": "direct", "network": "fa18", "size": 10, "weights": ""}
    cupti_program.write(rows, place, tmp_path / "events.csv")
    frame = tables.ACTIVITIES.read(tmp_path / "events.csv")
    assert frame[["variant", "network", "size"]].drop_duplicates().to_numpy().tolist() == [["direct", "fa18", 10]]
    assert frame[["event", "start_ns", "end_ns"]].to_numpy().tolist() == [[0, 0, 500], [1, 100, 400]]


def test_beyond_the_events_that_are_kept_cupti_s_are_summed(tmp_path, monkeypatch):
    cupti_program = pytest.importorskip("trace_with_cupti", reason="cupti-python is not installed")
    set_memory = SimpleNamespace(kind=cupti_program.cupti.ActivityKind.MEMSET, correlation_id=1, stream_id=7, bytes=4)
    activities = [SimpleNamespace(start=time, end=time + 10, **vars(set_memory)) for time in range(0, 300, 100)]
    callbacks = []
    quiet = dict.fromkeys(["activity_enable", "activity_disable"], lambda kind: None)
    quiet["activity_register_callbacks"] = lambda *given: callbacks.extend(given)
    quiet["activity_flush_all"] = lambda flag: [callbacks[1](activities[:2]), callbacks[1](activities[2:])]
    for name, call in quiet.items():
        monkeypatch.setattr(cupti_program.cupti, name, call)
    monkeypatch.setattr(sys, "argv", [])
    (tmp_path / "program.py").write_text("raise SystemExit(0)")
    for at_most, kept in [(3, 3), (2, 0)]:
        callbacks.clear()
        rows, sums, count, status = cupti_program.trace(str(tmp_path / "program.py"), [], at_most)
        assert (len(rows), count, status) == (kept, 3, 0)
        (row,) = sums.rows("cupti")
        assert (row["kind"], row["calls"], row["total_ns"], row["min_ns"]) == ("memset", 3, 30, 10)


def test_shared_memory_is_told_in_its_parts_where_a_trace_or_a_build_knows_them(exported):
    events = pd.DataFrame(cupti_sqlite.read(exported, "its").events)
    kernels = events[events.kind == "kernel"].assign(shared_bytes=5000)
    of_trace = kernels.assign(static_shared_bytes=904)
    for frame, built, parts in [
        (of_trace, {"conv_forward": 100}, (904, 4096)),
        (kernels.assign(static_shared_bytes=None), {"conv_forward": 100}, (100, 4900)),
        (kernels.assign(static_shared_bytes=None), {}, (None, None)),
        (kernels.assign(shared_bytes=0, static_shared_bytes=None), {}, (0, 0)),
        (kernels.assign(shared_bytes=None, static_shared_bytes=None), {}, (None, None)),
    ]:
        (launches, *_) = [one for one in ProfileValues.group_launches(frame, built) if one.name == "conv_forward"]
        assert (launches.static_bytes, launches.dynamic_bytes) == parts
    assert {*events[events.kind == "kernel"].static_shared_bytes} == {0, 8320}  # as the export has it
