"""Hardware counters: read through a stand-in for ncu that prints its raw page, and what the report makes of them."""

import html
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

import assemble_run
import count_variant
from small_run import shipped
from warpbook.common.files import PROJECT
from warpbook.common.supervision import run_to_end
from warpbook.kernels import whole_networks
from warpbook.problems import networks, problem
from warpbook.profiling import counters, counting
from warpbook.profiling.counters import CountedCall, CountedLaunch
from warpbook.report import rendering
from warpbook.report.views import analysis
from warpbook.runs import tables
from warpbook.runs.run_parts import WHOLE

KNOWN = shipped()

# --- headers -----------------------------------------------------------------------------------------------------


def test_every_counter_that_a_header_names_is_read():
    named = {check.split()[0] for check in (variant.header.check for variant in KNOWN.values()) if "__" in check}
    wanted = counters.metrics_to_read(KNOWN.values())
    assert named <= set(wanted)
    assert len(wanted) == len(set(wanted))
    assert "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum" in wanted

    assert counters.named_metric("no counter, as ncu runs kernels one by one") == ""


# --- what counters say of a call ---------------------------------------------------------------------------------


def launch(**values: float) -> CountedLaunch:
    named = {"duration": counters.DURATION, "sum": "x__y.sum", "pct": "x__y.avg.pct_of_peak_sustained_active"}
    return CountedLaunch("k", {named.get(name, name): value for name, value in values.items()})


def test_sums_are_of_all_launches_scaled_where_a_call_was_cut_and_the_rest_of_the_longest():
    call = CountedCall(1000, (launch(duration=5, sum=10, pct=20), launch(duration=50, sum=1, pct=70)), total_launches=2)
    assert call.value("x__y.sum") == 11
    assert call.value("x__y.avg.pct_of_peak_sustained_active") == 70
    assert not call.is_truncated

    call = CountedCall(1000, (launch(sum=10), launch(sum=2)), total_launches=2000)
    assert call.is_truncated
    assert call.value("x__y.sum") == 12_000

    assert CountedCall(1000, (launch(sum=10), launch(duration=1)), total_launches=2).value("x__y.sum") is None


def test_operations_rates_and_shares_of_a_call_are_those_of_its_launches():
    assert CountedLaunch("k", {counters.FFMA: 4e9, counters.FADD: 1e9, counters.FMUL: 1e9}).fp32_flop == 10e9

    launch = CountedLaunch("k", {counters.FFMA: 9e9, counters.DURATION: 1e6, counters.DRAM_BYTES: 2e9})
    assert CountedCall(10, (launch,), 1).roofline_point(10e9) == (5, 10_000)

    times = (("a", 2.0), ("b", 3.0), ("a", 5.0))
    call = CountedCall(10, tuple(CountedLaunch(name, {counters.DURATION: ns}) for name, ns in times), 3)
    assert call.longest_share == 0.7
    assert CountedCall(10, (CountedLaunch("a", {}),), 1).longest_share is None


def test_the_largest_stall_has_its_share_of_the_time_and_a_warp_that_could_issue_waits_for_nothing():
    stalls = {"long_scoreboard": 6.0, "barrier": 2.0, "wait": 1.0}
    values = {
        f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": value for name, value in stalls.items()
    }
    assert CountedLaunch("k", values).stall == ("long_scoreboard", 0.6)
    assert CountedLaunch("k", {}).stall is None

    stalls = {"long_scoreboard": 3.0, "not_selected": 6.0}
    values = {
        f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": value for name, value in stalls.items()
    }
    launch = CountedLaunch("k", values)
    assert launch.stall == ("long_scoreboard", 0.3)
    assert launch.ready == 0.6
    assert analysis.stall_text(launch) == "long\u00a0scoreboard\u00a030\u202f%, not\u00a0selected\u00a060\u202f%"
    assert set(values) <= set(counters.ALWAYS)


STALLED = {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 3.0}


def test_what_bounds_a_kernel_follows_from_its_counters():
    for dram, l2, l1, sm, issue, sentence in [
        (91, 60, 40, 30, 28, "Bound by DRAM: 91 % of peak."),
        (50, 84, 40, 30, 28, "Bound by the L2 cache: 84 % of peak."),
        (50, 60, 88, 70, 28, "Bound by the L1 cache and shared memory: 88 % of peak."),
        (
            10,
            20,
            30,
            85,
            84,
            "Bound by instruction issue: schedulers issue in 84 % of cycles; 50 % of instructions are FP32 FMAs.",
        ),
        (
            10,
            20,
            30,
            85,
            50,
            "Bound by the multiprocessor's pipes: 85 % of peak; 50 % of instructions are FP32 FMAs.",
        ),
        (
            70,
            20,
            30,
            40,
            40,
            "Bound in part by DRAM, 70 % of peak. In part by latency: warps wait 75 % of their time for data from "
            "global or local memory.",
        ),
        (
            10,
            20,
            45,
            40,
            40,
            "Bound by latency: warps wait 75 % of their time for data from global or local memory; nearest its peak: "
            "the L1 cache and shared memory, 45 %.",
        ),
    ]:
        values = {
            counters.DRAM: dram,
            counters.L2: l2,
            counters.L1: l1,
            counters.SM: sm,
            counters.ISSUE: issue,
        }
        values |= {counters.INSTRUCTIONS: 1e6, counters.FFMA: 16e6, **STALLED}
        assert counters.bound_sentence(CountedLaunch("k", values)).replace("\u202f", " ") == sentence

    assert counters.bound_sentence(CountedLaunch("k", {counters.DRAM: 91.0})) == ""

    busy = {
        counters.SM: 20.0,
        counters.DRAM: 90.0,
        counters.L1: 30.0,
        counters.L2: 40.0,
    }
    small, large = (CountedLaunch(name, {**busy, counters.DURATION: ns}) for name, ns in (("pad", 1.0), ("conv", 3.0)))
    words = analysis.bound_text(CountedCall(10, (small, large), 2))
    assert words.startswith("conv, 75\u202f% of the call's kernel time: Bound by DRAM")
    assert analysis.bound_text(CountedCall(10, (large,), 1)).startswith("Bound by DRAM")


def test_readings_are_printed_short():
    for value, metric, words in [
        (12_345_678, "x__y.sum", "12.3 M"),
        (4.1e9, "x__y.sum", "4.10 G"),
        (0, "x__y.sum", "0"),
        (31.3, "x.ratio", "31.3"),
        (61.25, "x.avg.pct_of_peak_sustained_active", "61.2 %"),
        (51_200, "x__y.sum", "51.2 k"),
    ]:
        assert counters.amount(value, metric).replace("\u202f", " ") == words


# --- the program under ncu ---------------------------------------------------------------------------------------

# Prints what ncu would of the launches in LAUNCHES, {layer: kernels}; the rest of its behaviour comes from its name's
# settings. Layout: the raw page of ncu 2023 to 2025, a row of names, a row of units, a row a launch.
FAKE = """#!{python}
import csv, json, os, sys
from pathlib import Path
settings = json.loads(Path(__file__).with_suffix(".json").read_text())
told = sys.argv[1:]
after = lambda name: told[told.index(name) + 1]
with open(Path(__file__).with_suffix(".calls"), "a") as calls:
    calls.write(" ".join(told) + "\\n")
with open(Path(__file__).with_suffix(".tmpdirs"), "a") as folders:
    folders.write(os.environ["TMPDIR"] + "\\n")
if settings.get("prints"):
    print(settings["prints"], file=sys.stderr)
    Path(after("--log-file")).write_text(settings.get("logs", ""))
    sys.exit(1)
if settings.get("hangs"):
    import time
    time.sleep(60)
metrics, layers = after("--metrics").split(","), told[told.index("--under-tool") + 1 :]
unknown = [name for name in metrics if name in settings.get("unknown", ())][:1]
if unknown:
    Path(after("--log-file")).write_text(f"==PROF== Connected\\n==ERROR== Failed to find metric {{unknown[0]}}\\n")
    sys.exit(1)
broken = [name for name in layers if name in settings.get("broken", ())]
kernels = [(kernel, "") for kernel in settings.get("of_network", [])]
for name in layers:
    if name in broken:
        break
    kernels += [(kernel, name) for kernel in settings["kernels"][name]]
if kernels:
    kind = "PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    place = ["ID", "Process ID", "Process Name", "Host Name", "thread Domain:Push/Pop_Range:" + kind,
             "Id:Domain:Start/Stop_Range:" + kind, "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
             "Device", "CC"]
    unit = lambda name: "ns" if "duration" in name else "byte" if "bytes" in name else "%" if "pct" in name else ""
    with open(after("--log-file"), "w", newline="") as log:
        log.write("==PROF== Connected to process 7 (/usr/bin/python3.12)\\n==PROF== Disconnected from process 7\\n")
        rows = csv.writer(log, quoting=csv.QUOTE_ALL, lineterminator="\\n")
        rows.writerow([*place, *metrics])
        rows.writerow([""] * len(place) + [unit(name) for name in metrics])
        for number, (kernel, layer) in enumerate(kernels):
            values = ["n/a" if name in settings.get("nan", ()) else f"{{1000 * (number + 1):,.2f}}" for name in metrics]
            around = f'7  "<default domain>:layer {{layer}}:none:none:none:none:none:none" ' if layer else ""
            row = [number, 7, "python3.12", "127.0.0.1", around, "", kernel, 1, 7, "(16, 16, 1)", "(9, 6, 1000)", 0]
            rows.writerow([*row, "9.0", *values])
    Path(after("--export")).write_bytes(b"NVR\\0")
if "--launches" in told:
    Path(after("--launches")).write_text(json.dumps(settings.get("launches", {{}})))
if broken:
    print("cupy_backends.CUDARuntimeError: cudaErrorIllegalAddress", file=sys.stderr)
    sys.exit(1)
"""

ONE_EACH = {"conv1": ["conv_forward"], "conv2": ["conv_forward"]}
METRICS = [counters.DURATION, counters.SM, "smsp__inst_executed.sum"]


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """Make a stand-in for ncu on PATH with settings; its calls, a line each, are in the file it returns."""

    def make(**settings) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "ncu.calls").unlink(missing_ok=True)
        (folder / "ncu").write_text(FAKE.format(python=sys.executable))
        (folder / "ncu").chmod(0o755)
        (folder / "ncu.json").write_text(json.dumps({"kernels": ONE_EACH, **settings}))
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return folder / "ncu.calls"

    return make


def count(tmp_path: Path, variant: str = "direct", metrics: list[str] = METRICS, timeout: float = 30):
    """The table that the program writes, and what it printed."""
    out, reports = tmp_path / "counters.csv", tmp_path / "reports"
    command = [sys.executable, PROJECT / "scripts" / "count_variant.py", "--variant", variant, "--cases", "fa18"]
    command += [
        "--images",
        "1000",
        "--timeout",
        str(timeout),
        "--out",
        out,
        "--reports",
        reports,
        "--metrics",
        *metrics,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tables.with_places(tables.COUNTERS.read(out)), done.stdout


def test_every_counter_of_every_launch_is_a_row(tmp_path, ncu):
    calls = ncu(launches={"conv1": 1, "conv2": 1})
    frame, printed = count(tmp_path)
    assert printed == ""
    assert len(frame) == 2 * len(METRICS)
    assert set(frame.kernel) == {"conv_forward"}
    assert set(frame.launch) == {0}
    duration = frame[frame.metric == counters.DURATION]
    assert dict(zip(duration.layer, duration.value, strict=True)) == {"conv1": 1000.0, "conv2": 2000.0}
    assert set(duration.unit) == {"ns"}
    assert set(frame["size"]) == {1000}
    assert set(frame.launches) == {1}
    assert (tmp_path / "reports" / "fa18-direct.ncu-rep").read_bytes() == b"NVR\0"
    (call,) = calls.read_text().splitlines()
    assert "--profile-from-start off" in call
    assert "--clock-control none" in call
    assert call.endswith("--under-tool conv1 conv2")
    (folder,) = calls.with_suffix(".tmpdirs").read_text().splitlines()
    assert folder != tempfile.gettempdir()  # where an ncu on another GPU may hold nsight-compute-lock


def test_counters_without_a_reading_or_unknown_to_ncu_are_left_out_and_the_rest_read(tmp_path, ncu):
    ncu(nan=[counters.SM])
    frame, _ = count(tmp_path)
    assert frame[frame.metric == counters.SM].value.isna().all()
    assert frame[frame.metric == counters.DURATION].value.notna().all()
    assert set(frame.status) == {"ok"}

    calls = ncu(unknown=[counters.SM, "smsp__inst_executed.sum"])
    frame, _ = count(tmp_path)
    assert len(calls.read_text().splitlines()) == 3
    read = frame[frame.value.notna()]
    assert set(read.metric) == {counters.DURATION}
    assert len(frame) == 2 * len(METRICS)

    for words in ["metric x__y.sum", "metric regex:^x__y(\\.(sum|min|max|avg|pct|ratio))?$"]:
        assert counting.drop_unknown(["x__y.sum", "x__z.sum"], f"==ERROR== Failed to find {words}\n") == ["x__z.sum"]


def test_a_call_of_many_launches_says_how_many_it_makes(tmp_path, ncu):
    ncu(kernels={"conv1": ["unroll", "conv_forward"] * 2, "conv2": ["unroll"]}, launches={"conv1": 2000, "conv2": 2000})
    frame, _ = count(tmp_path, "unroll_gemm")
    first = frame[(frame.layer == "conv1") & (frame.metric == counters.DURATION)]
    assert first.launch.tolist() == [0, 1, 2, 3]
    assert first.kernel.tolist() == ["unroll", "conv_forward"] * 2
    assert set(first.launches) == {2000}
    call = counters.counted_calls(frame)["unroll_gemm", "conv1"]
    assert call.value("smsp__inst_executed.sum") == (1000 + 2000 + 3000 + 4000) * 500


def test_a_layer_that_breaks_the_program_leaves_the_others_counted(tmp_path, ncu):
    calls = ncu(broken=["conv1"])
    frame, printed = count(tmp_path)
    assert len(calls.read_text().splitlines()) == 3  # both, then each alone
    assert set(frame[frame.layer == "conv2"].status) == {"ok"}
    (failed,) = frame[frame.layer == "conv1"].itertuples()
    assert (failed.status, failed.reason) == (
        "launch_failed",
        "cupy_backends.CUDARuntimeError: cudaErrorIllegalAddress",
    )
    assert "no counters of direct on fa18/conv1: launch_failed" in printed


def test_why_there_are_no_counters_is_a_row_of_each_layer(tmp_path, ncu, monkeypatch):
    for settings, status, reason in [
        (
            {
                "logs": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
                "Performance Counters on the target device 0."
            },
            "refused",
            "only administrators read hardware counters",
        ),
        (
            {
                "logs": "==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n"
                "==ERROR== The application returned an error code (1)."
            },
            "refused",
            "ncu: Failed to initialize the profiler: LibraryNotLoaded",
        ),
        (
            {
                "prints": "error: no CUDA device here: no CUDA driver",
                "logs": "==ERROR== The application returned an error code (2).",
            },
            "launch_failed",
            "no CUDA device here: no CUDA driver",
        ),
    ]:
        calls = ncu(**{**settings, "prints": settings.get("prints") or " "})
        frame, _ = count(tmp_path)
        assert frame.layer.tolist() == ["conv1", "conv2"]
        assert set(frame.status) == {status}
        assert all(reason in words for words in frame.reason)
        assert len(calls.read_text().splitlines()) == (3 if status == "launch_failed" else 1)

    calls = ncu(hangs=True)
    frame, _ = count(tmp_path, timeout=1)
    assert set(frame.status) == {"timed_out"}
    assert len(calls.read_text().splitlines()) == 1

    monkeypatch.setenv("PATH", str(tmp_path))
    frame, _ = count(tmp_path)
    assert set(frame.status) == {"unsupported"}
    assert set(frame.reason) == {"ncu (Nsight Compute) is not on PATH"}
    assert (tmp_path / "reports").is_dir()


def test_where_the_console_has_no_counters_ncu_s_report_is_asked(tmp_path, monkeypatch):
    """A version that prints nothing beside --export leaves the report, which it prints when it imports it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    ranges = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    page = ",".join(f'"{word}"' for word in ("ID", ranges, "Kernel Name", counters.DURATION)) + '\n"","","","ns"\n'
    page += '"0","","fill","1,500"\n"1","7 ""<default domain>:layer conv1:none"" ","conv_forward","2,500"\n'
    (folder / "page").write_text(page)
    (folder / "ncu").write_text(f"""#!/bin/sh
if [ "$1" = --import ]; then cat {folder}/page; exit; fi
while [ "$1" != --export ]; do shift; done
echo report > "$2"
""")
    (folder / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    frame, _ = count(tmp_path, metrics=[counters.DURATION])
    assert frame[frame.layer == "conv1"].value.tolist() == [2500.0]


def test_a_variant_that_a_layer_is_beyond_is_not_started(tmp_path, ncu):
    calls = ncu()
    beyond = SimpleNamespace(
        name="mine",
        problem=problem.find("conv"),
        read_error="",
        supports_arch=lambda arch: True,
        unsupported=lambda case: f"{case.name} is too much",
    )
    rows = count_variant.count(run_to_end, beyond, "fa18", 1000, METRICS, 30, tmp_path)
    assert [(row["case"], row["status"], row["reason"]) for row in rows] == [
        ("fa18/conv1", "unsupported", "conv1 is too much"),
        ("fa18/conv2", "unsupported", "conv2 is too much"),
    ]
    assert not calls.exists()


def test_of_a_long_call_the_first_launches_are_made_and_all_are_counted():
    made = []
    kernels = SimpleNamespace(
        function=lambda name, shared_bytes, early: lambda *arguments, **options: made.append(arguments), empty=len
    )
    counting = count_variant.LaunchCounter(kernels)
    conv_forward = counting.function("conv_forward")
    for at_most in (8, 2):
        counting.restart(at_most)
        for number in range(3):
            conv_forward((number,), (1,), (), stream=None)
        assert counting.launches == 3
    assert [grid for grid, *_ in made] == [(0,), (1,), (2,), (0,), (1,)]
    assert counting.empty is len


def test_the_largest_reports_are_left_out_of_a_run_that_would_grow_too_large(tmp_path):
    made = []
    for name, size in (("small", 1000), ("large", 5000), ("middle", 1500)):
        made.append(tmp_path / f"{name}.ncu-rep")
        made[-1].write_bytes(os.urandom(size))
    folder = tmp_path / "profiles"
    folder.mkdir()
    assert assemble_run.keep_reports(made, folder, limit_bytes=3000) == ["large.ncu-rep"]
    assert sorted(path.name for path in folder.iterdir()) == ["middle.ncu-rep", "small.ncu-rep"]


# --- a whole network under ncu ------------------------------------------------------------------------------------


def count_network(tmp_path: Path, implementation: str = "fused_mma"):
    """The table that the program writes, and what it printed."""
    out = tmp_path / "counters.csv"
    command = [sys.executable, PROJECT / "scripts" / "count_network.py", "--implementation", implementation]
    command += ["--network", "fa17", "--weights", "high", "--images", "10000", "--timeout", "30", "--out", out]
    done = subprocess.run([*command, "--metrics", *METRICS], capture_output=True, text=True, check=True)
    return tables.with_places(tables.COUNTERS.read(out)), done.stdout


def test_a_whole_network_s_kernels_are_rows_without_a_layer_or_one_row_says_why(tmp_path, ncu):
    calls = ncu(of_network=["first", "product", "product", "classify"])
    frame, printed = count_network(tmp_path)
    assert printed == ""
    durations = frame[frame.metric == counters.DURATION]
    assert durations.kernel.tolist() == ["first", "product", "product", "classify"]
    assert durations.value.tolist() == [1000, 2000, 3000, 4000]
    assert len(frame) == 4 * len(METRICS)
    assert (set(frame.layer), set(frame["size"]), set(frame.launches)) == ({""}, {10000}, {4})
    (call,) = calls.read_text().splitlines()
    assert "count_network.py --implementation fused_mma --network fa17 --weights high --images 10000 --arch" in call

    calls = ncu(prints=" ", logs="==ERROR== ERR_NVGPUCTRPERM - no permission")
    frame, printed = count_network(tmp_path)
    (row,) = frame.itertuples()
    assert (row.status, row.reason) == ("refused", counting.NO_PERMISSION)
    assert printed.startswith("no counters of network/fused_mma on fa17: refused: ERR_NVGPUCTRPERM")
    assert len(calls.read_text().splitlines()) == 1

    calls = ncu(of_network=["first"])
    frame, _ = count_network(tmp_path, "fused_conv_fc_algebra")
    (row,) = frame.itertuples()
    assert row.status == "unsupported"
    assert "no convolution here feeds a fully connected layer" in row.reason
    assert not calls.exists()


# --- the table ---------------------------------------------------------------------------------------------------


def test_a_table_of_a_run_from_before_a_column_was_added_is_read(tmp_path):
    old = [name for name, column in tables.COUNTERS.columns.items() if not column.later]
    (tmp_path / "counters.csv").write_text(",".join(old) + "\n")
    assert tables.COUNTERS.read(tmp_path / "counters.csv").columns.tolist() == list(tables.COUNTERS.columns)


# --- the report --------------------------------------------------------------------------------------------------


MEASURED = ["direct", "constant_weights", "shared_input"]
"""GPU variants that the report is of."""


def place_of(variant: str, layer: str) -> dict[str, str]:
    """The columns that say what was counted: a layer of fa18, or, without one, the whole network."""
    if layer:
        return tables.place("conv", "fa18", layer) | {"variant": variant}
    return tables.place(whole_networks.PROBLEM, "fa18") | {"variant": WHOLE + variant}


def rows_of(variant: str, layer: str, factor: float) -> list[dict]:
    """Synthetic counters of one launch that takes `factor` of a millisecond."""
    values = dict.fromkeys(counters.metrics_to_read(KNOWN.values()), 100.0 * factor)
    values |= {
        counters.SM: 30 * factor,
        counters.MEMORY: 50 * factor,
        counters.DRAM: 20.0,
        counters.L1: 50 * factor,
    }
    values |= {
        counters.L2: 30.0,
        counters.ACHIEVED: 61.0,
        counters.THEORETICAL: 75.0,
        counters.ISSUE: 20.0,
    }
    values |= {
        counters.DURATION: 1e6 * factor,
        counters.FFMA: 3e9,
        counters.DRAM_BYTES: 1e8 * factor,
    }
    place = {"tool": "ncu", **place_of(variant, layer), "size": 1000, "launch": 0}
    return [
        {**place, "kernel": "conv_forward", "metric": metric, "unit": "ns" if metric == counters.DURATION else "",
         "value": value, "launches": 1, "status": "ok", "reason": ""}
        for metric, value in values.items()
    ]  # fmt: skip


@pytest.fixture
def document(archive, evidence_of, few_variants, rewritten, tmp_path) -> Callable[[list[dict]], str]:
    """Render the chapters that speak of counters, as HTML, of the small run with other counters in it."""
    few = few_variants["studies"]
    chapters = {"sections": ["milestone_4", "whole_network", "analysis"], "deliverables": {}, "show_profile_of": []}
    studies = few | {"fa18": few["fa18"] | chapters | {"variants": MEASURED}}

    def render(rows: list[dict]) -> str:
        tables.COUNTERS.write(rows, tmp_path / "counters.csv")
        changed = rewritten(archive, "counters.csv", lambda _: (tmp_path / "counters.csv").read_bytes())
        return rendering.Documents(evidence_of(changed, studies=studies), datetime.now(), "", None).whole

    return render


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text).replace("\u202f", " "))


def failed(variant: str, layer: str, status: str, reason: str) -> dict:
    nothing = {"launch": 0, "kernel": "", "metric": "", "unit": "", "value": None, "launches": None}
    place = {"tool": "ncu", **place_of(variant, layer), "size": 1000}
    return {**place, **nothing, "status": status, "reason": reason}


def test_the_report_shows_the_counters_of_a_run_and_what_bounds_each_kernel(document):
    rows = [
        row
        for place, name in enumerate(MEASURED)
        for layer in networks.find("fa18").convs
        for row in rows_of(name, layer.name, 1 + 0.2 * place)
    ]
    rows[3]["value"] = None
    whole = document(rows)
    words = plain(whole)
    assert "Kernel by kernel: what bounds each" in words
    assert "hardware counters were not read" not in words
    assert re.search(
        r"sectors of 32 bytes loaded from global memory fall by at least 50 %\s*refuted\s*conv1 \d+ → \d+", words
    )
    assert "Bound in part by" in words or "Bound by latency" in words
    assert "Roofline: useful operations a second" in words
    for bad in ("nan", "None", "<NA>"):
        assert not re.search(rf"(?<![A-Za-z_]){bad}(?![A-Za-z_])", words.replace("filled with NaN", "")), bad


def of_network(name: str, kernels: dict[str, list[float]]) -> list[dict]:
    """Synthetic counters of a whole network's kernels, each launch as long as it says."""
    launches = [(kernel, ms) for kernel, each in kernels.items() for ms in each]
    return [
        {**row, "launch": launch, "kernel": kernel, "launches": len(launches)}
        for launch, (kernel, ms) in enumerate(launches)
        for row in rows_of(name, "", ms)
    ]


def test_the_kernels_of_our_fastest_network_are_told_with_what_bounds_the_longest_or_why_there_are_none(document, ev):
    fastest = ev.networks.fastest(ev.largest, peers=False).name
    whole = document(of_network(fastest, {"first": [0.3], "product": [0.1, 0.5], "classify": [0.1]}))
    (table,) = re.findall(r'<table[^>]*id="networks-kernels".*?</table>', whole, re.DOTALL)
    rows = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)]
    assert [[plain(cell).strip() for cell in row[:4]] for row in rows] == [
        ["Kernel", "Launches", "Time", "Share"],
        ["first", "1", "300.0 µs", "30 %"],
        ["product", "2", "600.0 µs", "60 %"],
        ["classify", "1", "100.0 µs", "10 %"],
    ]
    assert f"What bounds {fastest}: product, 60 % of the call's kernel time: Bound by latency" in html.unescape(
        plain(whole)
    )
    without = document([*of_network("unfused", {"first": [0.3]}), failed(fastest, "", "refused", "it broke")])
    assert "networks-kernels" not in without
    assert f"No hardware counters of {fastest}: it broke" in plain(without)


def test_what_kept_counters_from_being_read_is_named_and_what_lacks_a_reading_too(document, monkeypatch, tmp_path):
    rows = [failed(name, layer, "refused", counting.NO_PERMISSION) for name in MEASURED for layer in ("conv1", "conv2")]
    words = plain(document(rows))
    assert f"No hardware counters: {counting.NO_PERMISSION}." in words
    assert "it was not read: ERR_NVGPUCTRPERM" in words
    assert "Roofline" not in words

    rows = rows_of("direct", "conv1", 1.0)
    for row in rows:
        if row["metric"] == "dram__bytes_write.sum":
            row["value"] = None
    rows.append(failed("direct", "conv2", "launch_failed", "direct: it broke"))
    words = plain(document(rows))
    assert "Nsight Compute gave no reading of dram__bytes_write.sum." in words
    assert "No hardware counters of direct on conv2: it broke." in words

    monkeypatch.chdir(tmp_path)  # where no older run has any
    words = plain(document([]))
    assert "the cited run has no hardware counters of this study" in words
    assert "hardware counters were not read in this run" in words
