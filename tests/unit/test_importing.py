"""Profiles from elsewhere: what each tool prints, worn by conversion, damaged, and in the tools' own databases."""

import csv
import io
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import import_profile
from warpbook.common import units
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.profiling import importing, nvprof, profile_schema, profile_text
from warpbook.runs import tables

CAPTURED = PROJECT / "tests" / "data" / "profiles"
CONV = "conv_forward(const float *, const float *, float *, int, int, int, int, int, int)"
POOL = "void (anonymous namespace)::pool<float, (int)2>(const T1 *, T1 *, int)"


def assert_refused(path: Path, content: str | bytes, reason: str) -> None:
    """A file of that content is refused with a reason of this pattern."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        importing.read(path)
    except UserError as error:
        assert re.search(reason, str(error)), error
    else:
        pytest.fail(f"it is read, and was to be refused: {reason}")


# --- the tables of the five reports ------------------------------------------------------------------------------

# (file, first line of the table, what its shares are of, rows): every table of profiled times in the five reports.
PARSED = [
    ("000", 189, "gpu", 14), ("000", 207, "api", 31), ("000", 267, "gpu", 14),
    ("000", 285, "api", 31), ("000", 362, "gpu", 14), ("000", 381, "api", 31), ("000", 489, "gpu", 6),
    ("000", 499, "api", 29), ("000", 574, "gpu", 7), ("000", 585, "api", 29),
    ("001", 102, "gpu", 12), ("001", 147, "api", 32), ("001", 430, "gpu", 13), ("001", 487, "api", 31),
    ("001", 542, "gpu", 13), ("001", 599, "api", 31), ("001", 659, "gpu", 13), ("001", 677, "api", 31),
]  # fmt: skip
REFUSED = [
    ("000", 22, "the shares add up to 99.17 %, not 100 %"),  # who wrote the report left out rows
    ("000", 27, "1.92 ms at 43.48 % are of 4.416 ms in all"),  # seconds under a head that says ms
    ("002", 89, "several rows run together"),
    ("002", 90, "stands between a table's rows"),
    ("002", 123, "stands between a table's rows"),
    ("003", 51, "the shares add up to 95.36 %, not 100 %"),
    ("003", 90, "the shares add up to 97.65 %, not 100 %"),
    ("003", 99, "the shares add up to 99.21 %, not 100 %"),
    ("004", 8, "is no name of a kernel"),  # a blank where the line was broken
    ("004", 18, "is no name of a kernel"),  # the same in a call's name
]


@pytest.fixture(scope="session")
def seed(shared_folder) -> Callable[[str], list[str]]:
    """Read the lines of one of the five reports, beside the project where there are any."""

    def read(name: str) -> list[str]:
        reports = sorted((shared_folder / "seeds").glob(f"{name}_*.txt"))
        if not reports:
            pytest.skip(f"no report {name} in {shared_folder / 'seeds'}: they stand beside the project, not in it")
        return profile_text.split(reports[0].read_text())

    return read


@pytest.fixture(scope="module")
def seed_tables(seed) -> dict[tuple[str, int], nvprof.PrintedTable]:
    return {
        (name, table.line): table
        for name in ("000", "001", "002", "003", "004")
        for table in nvprof.console_tables(seed(name))
    }


def test_the_reports_hold_no_other_tables(seed_tables):
    refused = {(name, table.problem[0]): table for (name, _), table in seed_tables.items() if table.problem}
    assert {key for key, table in seed_tables.items() if not table.problem} == {(n, line) for n, line, *_ in PARSED}
    assert refused.keys() == {(name, line) for name, line, _ in REFUSED}
    for name, line, reason in REFUSED:
        assert reason in refused[name, line].problem[1]


def test_a_reports_table_adds_up_to_its_own_percentages(seed_tables):
    for name, line, share_of, rows in PARSED:
        table = seed_tables[name, line]
        assert (table.share_of, len(table.rows)) == (share_of, rows), (name, line)
        listed = sum(row.total.value for row in table.rows)
        shares = sum(row.share.value for row in table.rows)
        assert Decimal("99.95") < shares < Decimal("100.05"), (name, line)
        for row in table.rows:
            expected = row.total.value / listed * shares
            # rounding: of this share, of the sum of shares, of this time and of their sum
            slack = row.share.step + sum(r.share.step for r in table.rows) * row.share.value / shares + Decimal("0.01")
            assert abs(expected - row.share.value) <= slack, (name, row)


def test_no_row_of_a_reports_table_is_lost_or_read_twice(seed_tables, seed):
    """Every line that begins with a percentage is the first line of one row (002 is one line of many rows)."""
    for name in ("000", "001", "003"):
        starts = [number for number, line in enumerate(seed(name), 1) if re.match(r"[\s|]*\d+\.\d+%", line)]
        rows = [row.line for (of, _), table in seed_tables.items() if of == name for row in table.rows]
        assert len(rows) == len(set(rows))
        assert [number for number in starts if number not in rows] == []


def test_a_table_of_a_report_is_imported_by_its_lines(tmp_path, seed):
    path = tmp_path / "report.txt"
    path.write_text("\n".join(seed("001")))
    with pytest.raises(
        UserError, match=r"holds 4 profiles: .* --lines 101-181; .* --lines 429-520; .* --lines 541-629"
    ):
        importing.read(path)
    rows = importing.read(path, lines=(429, 524)).summaries
    assert (rows[0]["name"], rows[0]["total_ns"]) == (
        "mxnet::op::forward_kernel(float*, float const *, float const *, int, int, int, int, int, int)",
        2_847_940_000,
    )
    assert {row["share_of"]: row["row"] + 1 for row in rows} == {"gpu": 13, "api": 31}


def test_rows_cut_off_from_their_header_are_refused_and_not_left_out(tmp_path, seed):
    path = tmp_path / "report.txt"
    path.write_text("\n".join(seed("000")))
    assert len(importing.read(path, lines=(188, 238)).summaries) == 14 + 31
    with pytest.raises(UserError, match=r"line 189: '89.76\\t1.00787 s.* one, or the header, was lost"):
        importing.read(path, lines=(189, 238))


# --- figures -----------------------------------------------------------------------------------------------------


def test_times_are_read_exactly():
    expected = {
        "1.97931s": 1_979_310_000,
        "897ns": 897,
        "1.00787 s": 1007870000,
        "21.098u": 21_098,
        "748.76\u00b5s": 748_760,
        "748.76\u03bcs": 748_760,
    }
    assert {text: profile_schema.time_ns(text).whole() for text in expected} == expected


@given(st.integers(1, 99_999), st.integers(0, 6))
def test_a_time_that_nvprof_can_print_comes_back_as_it_was_printed(digits, power):
    ns = digits * 10**power
    printed = units.nvprof_time(ns)
    assert profile_schema.time_ns(printed).whole() == ns
    assert units.nvprof_time(profile_schema.time_ns(printed).whole()) == printed


def test_sizes_are_read_to_the_byte_or_left_empty_where_too_few_digits_are_printed():
    for text, unit, kilo, expected in [
        ("1.003906", "KB", 1024, 1028),
        ("3.814697", "MB", 1024, 4_000_000),
        ("0.000000", "KB", 1024, 0),
        ("4.194", "MB", 1000, 4_194_000),
        ("0.001", "MB", 1000, None),
        ("0.000", "MB", 1000, None),
        ("4096", "B", 1000, 4096),
        ("1,234", "KiB", 1000, 1_263_616),
    ]:
        assert profile_schema.size_bytes(text, unit, kilo) == expected, text


# --- nvprof's console text ---------------------------------------------------------------------------------------

CONSOLE = (CAPTURED / "nvprof_console.txt").read_text()


def test_console_text_gives_rows_of_both_tables(tmp_path):
    path = tmp_path / "any name"
    path.write_text(CONSOLE)
    profile = importing.read(path)
    assert profile.what == "nvprof console text, with warnings of the profiler (line 12)"
    assert profile.summaries[2] == {
        "tool": "nvprof", "share_of": "gpu", "row": 2, "kind": "kernel", "name": "void pool<float**, int=2>(float**)",
        "share_percent": 0.94, "total_ns": 35_673_000, "calls": 2, "avg_ns": 17_836_000.0, "min_ns": 3_061_000,
        "max_ns": 32_612_000,
    }  # fmt: skip
    assert [(row["share_of"], row["kind"]) for row in profile.summaries] == [
        ("gpu", "kernel"), ("gpu", "memcpy_htod"), ("gpu", "kernel"), ("api", "api_runtime"), ("api", "api_driver")
    ]  # fmt: skip


def test_a_row_that_contradicts_itself_or_its_table_is_refused_with_its_line(tmp_path):
    for old, new, reason in [
        (
            "35.225ms        20",
            "35.225us        20",
            "line 8: 20 calls of .CUDA memcpy HtoD. at 1761200.0000 ns each make",
        ),
        (
            "3.74530s         6  624.22ms  7.0110us  3.05500s",
            "3.74530s",
            "line 10: .* has not the columns share, total",
        ),
        ("98.13%", "18.13%", "line 7: 3728.47 ms at 18.13 % are of 2.05.* in all, but the table's other rows of 37"),
        ("  673.48ms  3.05499s", "  3.05499s  673.48ms", "line 7: the average of .* is 1864240000.* ns, outside"),
        ("[CUDA memcpy HtoD]", "", "line 8: the row's name is lost"),
        ("38.49%", "48.49%", "line 1[01]: .* a time, a unit or a share is wrong"),
        ("[CUDA memcpy HtoD]", "void a 0.21% 7.8283ms void b", "line 8: several rows run together"),
        ("         2  1.86424s", "         0  1.86424s", "line 7: .* has a row, but no calls"),
    ]:
        assert CONSOLE.count(old) == 1
        assert_refused(tmp_path / "file", CONSOLE.replace(old, new), reason)


def test_a_file_that_is_no_profile_is_refused_with_the_reason(tmp_path):
    for content, reason in [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"hello\n", "holds no profile that is known; known: nvprof's console text"),
        (b"\x7fELF\x02\0\0\0", "is binary"),
        ("Op Zeit: äh\n".encode("latin-1"), "line 1: byte 9 is not utf-8"),
        (b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "profiler's refusal: .*ERR_NVGPUCTRPERM"),
        (b"==9== Profiling result:\n   Start  Duration            Grid Size\n", "an nvprof trace as text, line 2"),
    ]:
        assert_refused(tmp_path / "file", content, reason)


def test_text_redirected_by_powershell_is_read(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(CONSOLE.replace("\n", "\r\n").encode("utf-16"))
    assert len(importing.read(path).summaries) == 5


# --- nvprof's CSV ------------------------------------------------------------------------------------------------

SUMS_CSV = (CAPTURED / "nvprof_sums.csv").read_text()
OLD_SUMS_CSV = """\
==9630== Profiling result:
"Time(%)","Time","Calls","Avg","Min","Max","Name"
%,ms,,ms,ms,ms,
100.000000,0.003840,2,0.001920,0.001504,0.002336,"[CUDA memcpy HtoD]"

==9630== API calls:
"Time(%)","Time","Calls","Avg","Min","Max","Name"
%,s,,ms,us,ms,
100.000000,0.118490,1,118.490000,118490.000000,118.490000,"cudaLaunch"
"""
TRACE_CSV = (CAPTURED / "nvprof_trace.csv").read_text()


def test_csv_sums_are_read_exactly(tmp_path):
    (tmp_path / "a").write_text(SUMS_CSV)
    rows = importing.read(tmp_path / "a").summaries
    assert [(row["share_of"], row["kind"], row["total_ns"], row["min_ns"]) for row in rows] == [
        ("gpu", "kernel", 11_202_339, 3_734_112), ("gpu", "memcpy_dtoh", 3_734_113, 1504),
        ("api", "api_runtime", 88_213_401, 897),
    ]  # fmt: skip
    (tmp_path / "b").write_text(OLD_SUMS_CSV)
    rows = importing.read(tmp_path / "b").summaries
    assert [(row["share_of"], row["total_ns"], row["max_ns"]) for row in rows] == [
        ("gpu", 3840, 2336), ("api", 118_490_000, 118_490_000)
    ]  # fmt: skip


def test_a_csv_trace_of_gpu_and_api_gives_events(tmp_path):
    (tmp_path / "trace").write_text(TRACE_CSV)
    call, copy, kernel = importing.read(tmp_path / "trace").events
    assert (call["kind"], call["start_ns"], call["end_ns"]) == ("api_runtime", 321_562_000, 409_775_401)
    assert (copy["kind"], copy["bytes"], copy["stream"]) == ("memcpy_htod", 4_000_000, 7)
    assert kernel["end_ns"] - kernel["start_ns"] == 3_734_112
    assert [kernel[key] for key in ("kind", "grid", "block", "registers", "shared_bytes", "correlation")] == [
        "kernel", "25x6x10000", "16x16x1", 40, 1600, 3
    ]  # fmt: skip


def test_damaged_csv_is_refused_with_its_line(tmp_path):
    for text, reason in [
        (SUMS_CSV.replace("us,,us", "fortnights,,us"), "line 5: 'fortnights' is no unit of time"),
        (SUMS_CSV.replace('"[CUDA memcpy DtoH]"', '"[CUDA memcpy'), "line 6: a quoted cell is not closed"),
        (
            SUMS_CSV[: SUMS_CSV.index('"GPU activities",25')],
            "line 5: the shares add up to 75.* %, not 100 %: .* cut off",
        ),
        (SUMS_CSV.replace(",3,3734.113", ",3.5,3734.113"), "line 5: 3.5 is finer than 1"),
        (SUMS_CSV[: SUMS_CSV.index('"GPU')], "line 3: a header of nvprof CSV and no rows under it"),
        (TRACE_CSV.replace("3734.112000,", "", 1), "line 7: 19 cells where the header names 20"),
        (TRACE_CSV.replace("1.504000", "0.0001"), "line 6: 0.1 is finer than 1"),
    ]:
        assert_refused(tmp_path / "file", text, reason)


# --- databases in the tools' own schemas -------------------------------------------------------------------------


def test_a_database_gives_every_event_whole_and_nothing_else(databases, written_events, written_ranges):
    for name in ("nsys", "nsys old", "nvprof"):
        profile = importing.read(databases[name])
        assert profile.tool == name.split()[0]
        events = sorted(profile.events, key=lambda row: (row["start_ns"], row["kind"]))
        conv = (
            "conv_forward(float const*, float const*, float*, int, int, int, int, int, int)"
            if name == "nvprof"
            else CONV
        )
        kinds = {
            "copy": {1: "memcpy_htod", 2: "memcpy_dtoh"},
            "kernel": {CONV: "kernel", POOL: "kernel"},
            "set": {None: "memset"},
        }
        names = {1: "[CUDA memcpy HtoD]", 2: "[CUDA memcpy DtoH]", None: "[CUDA memset]", CONV: conv, POOL: POOL}
        expected = [("range", text, start, start + duration) for text, start, duration in written_ranges]
        for kind, what, start, duration, _ in written_events:
            called = profile_schema.clean(what) if kind == "call" else names[what]
            what_kind = profile_schema.activity_kind(called, api=True) if kind == "call" else kinds[kind][what]
            expected.append((what_kind, called, start, start + duration))
        assert [(row["kind"], row["name"], row["start_ns"], row["end_ns"]) for row in events] == sorted(
            expected, key=lambda row: (row[2], row[0])
        )
        kernel = next(row for row in events if row["name"] == POOL)
        assert [kernel[key] for key in ("stream", "correlation", "grid", "block", "registers", "shared_bytes")] == [
            13, 7, "100x1x1", "256x1x1", 16, 4096
        ]  # fmt: skip
        assert [row["bytes"] for row in events if row["kind"] in ("memcpy_htod", "memset")] == [4_194_304, 1_200, 400]


def test_sums_of_a_long_profile_equal_what_nsys_itself_prints(databases, monkeypatch):
    monkeypatch.setattr("warpbook.profiling.profile_schema.EVENTS_AT_MOST", 10)
    profile = importing.read(databases["nsys"])
    assert profile.what == "nsys SQLite, 20 events summarised (at most 10 are kept one by one)"
    assert profile.events == []
    printed = importing.read(CAPTURED / "nsys_stats.csv").summaries
    words = {"[CUDA memcpy Host-to-Device]": "[CUDA memcpy HtoD]", "[CUDA memcpy Device-to-Host]": "[CUDA memcpy DtoH]"}
    keys = ("total_ns", "calls", "min_ns", "max_ns")
    ours = {(row["kind"], row["name"]): [row[key] for key in keys] for row in profile.summaries}
    theirs = {(row["kind"], words.get(row["name"], row["name"])): [row[key] for key in keys] for row in printed}
    assert ours == theirs
    api = [row for row in profile.summaries if row["share_of"] == "api"]
    assert [round(row["share_percent"], 1) for row in api] == [
        row["share_percent"] for row in printed if row["share_of"] == "api"
    ]
    assert sum(row["share_percent"] for row in profile.summaries if row["share_of"] == "gpu") == pytest.approx(100)


def test_a_long_trace_is_summarised_like_a_long_database(databases, monkeypatch):
    monkeypatch.setattr("warpbook.profiling.profile_schema.EVENTS_AT_MOST", 5)
    trace = importing.read(CAPTURED / "nsys_cuda_gpu_trace.csv")
    assert trace.what.startswith("nsys stats, 8 events summarised")
    assert [(row["kind"], row["calls"], row["total_ns"]) for row in trace.summaries] == [
        ("kernel", 3, 11_135_113), ("kernel", 1, 512_345), ("memcpy_htod", 2, 106_487), ("memcpy_dtoh", 1, 1_900),
        ("memset", 1, 1_440),
    ]  # fmt: skip


def test_a_damaged_database_is_refused_with_the_table_and_the_reason(databases, tmp_path):
    for number, (change, reason) in enumerate(
        [
            (
                "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE rowid = 2",
                "KERNEL: an event of conv_.* ends before",
            ),
            (
                "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = 'soon' WHERE rowid = 1",
                "RUNTIME: an event of cudaMalloc has no",
            ),
            (
                "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN demangledName",
                "KERNEL: no such column.* export .* again",
            ),
            ("ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN end", "MEMCPY: no such column: end"),
            (
                "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = -1",
                "MEMCPY: an event of .CUDA memcpy.* has a negative size",
            ),
            (
                "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET staticSharedMemory = -40000 WHERE rowid = 2",
                "KERNEL: an event of conv_.* a negative size",
            ),
            ("DROP TABLE StringIds", "is SQLite, but of no profiler known: it holds CUPTI_ACTIVITY_KIND_KERNEL"),
            ("UPDATE StringIds SET value = NULL", "a name in it is no text"),
        ]
    ):
        path = Path(shutil.copy(databases["nsys"], tmp_path / f"{number}.sqlite"))
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(change)
        with pytest.raises(UserError, match=reason):
            importing.read(path)


def test_a_column_that_only_adds_detail_may_be_missing(nsys_database):
    with sqlite3.connect(nsys_database) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN gridZ")
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId")
    database.close()
    kernel = importing.read(nsys_database).events[0]
    assert [kernel[key] for key in ("name", "grid", "block", "stream", "registers")] == [CONV, "", "16x16x1", None, 40]


def test_a_view_that_never_ends_is_not_followed(nsys_database):
    with sqlite3.connect(nsys_database) as database:
        database.execute("DROP TABLE NVTX_EVENTS")
        database.execute(
            "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
            "SELECT x AS start, x AS end, 59 AS eventType, 'n' AS text, 0 AS textId FROM n"
        )
    database.close()
    assert len(importing.read(nsys_database).events) == 18


def test_reading_a_database_leaves_nothing_beside_it(databases):
    before = {path: path.stat().st_mtime_ns for path in databases["nsys"].parent.iterdir()}
    importing.read(databases["nsys"])
    assert {path: path.stat().st_mtime_ns for path in databases["nsys"].parent.iterdir()} == before


# --- nsys stats, as nsys 2023.4 printed it -----------------------------------------------------------------------


def test_stats_as_columns_and_between_pipes_are_the_same_as_csv():
    expected = importing.read(CAPTURED / "nsys_stats.csv").summaries
    assert importing.read(CAPTURED / "nsys_stats_column.txt").summaries == expected
    assert importing.read(CAPTURED / "nsys_stats_table.txt").summaries == expected


def test_stats_are_read_exactly_and_other_tables_are_named():
    profile = importing.read(CAPTURED / "nsys_stats.csv")
    first, second = profile.summaries[:2]
    assert (first["name"], first["share_percent"], first["total_ns"], first["avg_ns"]) == (
        CONV, 95.6, 11_135_113, 3_711_704.3
    )  # fmt: skip
    assert second["name"] == POOL
    counts = {}
    for row in profile.summaries:
        counts[row["share_of"]] = counts.get(row["share_of"], 0) + 1
    assert counts == {"kernels": 2, "api": 6, "copies": 3, "range": 2}
    # sizes of copies, the table of GPU and API together, and the operating system's calls
    assert profile.omissions == ("the table at line 22", "the table at line 33", "the table at line 47")


def test_traces_as_csv_and_as_columns_equal_the_database(databases):
    for report in ("nsys_cuda_gpu_trace", "nsys_cuda_api_trace"):
        api = "api" in report
        known = [row for row in importing.read(databases["nsys"]).events if row["kind"] != "range"]
        known = sorted((row for row in known if row["kind"].startswith("api") == api), key=lambda row: row["start_ns"])
        for suffix in ("csv", "txt"):
            events = importing.read(CAPTURED / f"{report}.{suffix}").events
            exact = ("kind", "start_ns", "end_ns", "grid", "block", "registers", "stream", "correlation")
            assert [[row[key] for key in exact] for row in events] == [[row[key] for key in exact] for row in known]
            # MB to three digits: good enough for a copy of 4 MB, not for 1 kB or for shared memory
            assert [row["bytes"] for row in events if row["bytes"]] == ([] if api else [4_194_000])
            assert {row["shared_bytes"] for row in events} == {None}


OLD_STATS = """\
Exported successfully to report.sqlite

CUDA API Statistics:

 Time(%)  Total Time (ns)  Num Calls    Average     Minimum    Maximum           Name
 -------  ---------------  ---------  -----------  ---------  ---------  ---------------------
    70.0      315,416,188          2  157708094.0       2162  315414026  cudaEventCreate
    30.0      135,178,366          1  135178366.0  135178366  135178366  cudaHostAlloc

CUDA Memory Operation Statistics (by time):

 Time(%)  Total Time (ns)  Operations  Average  Minimum  Maximum      Operation
 -------  ---------------  ----------  -------  -------  -------  ------------------
   100.0             3840           2   1920.0     1504     2336  [CUDA memcpy HtoD]
"""


def test_stats_of_2020_are_read(tmp_path):
    (tmp_path / "log").write_text(OLD_STATS)
    rows = importing.read(tmp_path / "log").summaries
    assert [(row["share_of"], row["name"], row["total_ns"], row["calls"]) for row in rows] == [
        ("api", "cudaEventCreate", 315_416_188, 2), ("api", "cudaHostAlloc", 135_178_366, 1),
        ("copies", "[CUDA memcpy HtoD]", 3840, 2),
    ]  # fmt: skip


def test_damaged_stats_are_refused_with_their_line(tmp_path):
    for old, new, reason in [
        ("315,416,188", "115,416,188", "line 7: 2 calls of cudaEventCreate"),
        ("    30.0      135,178,366", "    30.0                   ", "line 8: 6 cells where the header names 7"),
        (
            "    30.0      135,178,366          1  135178366.0  135178366  135178366  cudaHostAlloc\n",
            "",
            "line 7: .* cut off",
        ),
    ]:
        assert OLD_STATS.count(old) == 1
        assert_refused(tmp_path / "file", OLD_STATS.replace(old, new), reason)


# --- ncu ---------------------------------------------------------------------------------------------------------

_DURATION = "gpu__time_duration.sum"
_SOL = "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def quoted(*rows: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()


def launch(number: int) -> list[str]:
    return [str(number), "77", "python3.11", "127.0.0.1", CONV, "1", "7", "(16, 16, 1)", "(25, 6, 10000)", "0", "9.0"]


NCU_RAW = (CAPTURED / "ncu_raw.csv").read_text()
NCU_DETAILS = (CAPTURED / "ncu_details.csv").read_text()


def test_the_raw_page_of_ncu_gives_counters(tmp_path):
    (tmp_path / "raw").write_text(NCU_RAW)
    profile = importing.read(tmp_path / "raw")
    assert profile.what == "ncu CSV (raw page, 2 launches)"
    assert profile.omissions == ("1 metrics that are words",)
    assert [tuple(row.values())[:5] for row in profile.counters] == [
        (0, CONV, _DURATION, "us", 3734.11), (0, CONV, _SOL, "%", 61.25),
        (0, CONV, "smsp__inst_executed.sum", "inst", 1234567.0),
        (1, CONV, _DURATION, "us", 3701.0), (1, CONV, _SOL, "%", None),
        (1, CONV, "smsp__inst_executed.sum", "inst", None),
    ]  # fmt: skip


def test_the_details_page_of_ncu_tells_metrics_of_one_label_apart(tmp_path):
    (tmp_path / "details").write_text(NCU_DETAILS)
    assert [tuple(row.values())[:5] for row in importing.read(tmp_path / "details").counters] == [
        (0, CONV, "GPU Speed Of Light Throughput/Memory Throughput", "%", 45.7),
        (0, CONV, "Memory Workload Analysis/Memory Throughput", "Gbyte/s", 2311.46),
        (1, CONV, _DURATION, "us", 3701.0),
    ]  # fmt: skip


def test_damaged_ncu_csv_is_refused_with_its_line(tmp_path):
    for text, reason in [
        (NCU_RAW[:-9], "line 5: a quoted cell is not closed"),
        (NCU_RAW[: NCU_RAW.index('"","","')], "line 2: the names of columns and no rows"),
        (NCU_RAW.replace('"3,701.00",', ""), "line 5: 14 cells where the header names 15"),
        (NCU_DETAILS.replace('"Metric Value"', '"Metric Values"'), "line 1: 0 columns 'Metric Value', not one"),
        (NCU_DETAILS + quoted([*launch(3), "", _DURATION, "us", "1"]), f"line 7: a second value of {_DURATION}"),
    ]:
        assert_refused(tmp_path / "file", text, reason)


def test_a_report_that_only_its_tool_reads_names_the_command_where_the_tool_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for begin, tool, by_hand in [
        (b"NVIDIA Tegra Profiler Report 2023@4", "nsys", "nsys export --type sqlite --output r.sqlite r.rep"),
        (b"NVR\0", "ncu", "ncu --import r.rep --csv --page raw > r.csv"),
    ]:
        (tmp_path / "r.rep").write_bytes(begin + b"\x01\x02")
        with pytest.raises(UserError) as refused:
            importing.read(tmp_path / "r.rep")
        assert f"{tool} is not on PATH" in str(refused.value)
        assert by_hand in str(refused.value)


# --- several files, and the program ------------------------------------------------------------------------------


PLACE = ("--study", "fa18", "--variant", "direct", "--size", "10000")


@pytest.fixture
def imported(tmp_path, monkeypatch, capsys):
    """Run the program with arguments, for a folder of its own; what it prints, or the UserError that it ends with."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["import_profile", *map(str, arguments), "--out", str(tmp_path / "out")])
        import_profile.main()
        return capsys.readouterr().out

    return run


def test_files_of_one_profile_are_imported_together(tmp_path, imported):
    (tmp_path / "details.csv").write_text(NCU_DETAILS)
    (tmp_path / "console.log").write_text(CONSOLE)
    files = [CAPTURED / "nsys_cuda_gpu_trace.csv", CAPTURED / "nsys_cuda_api_trace.csv", CAPTURED / "nsys_stats.csv"]
    files += [tmp_path / "details.csv", tmp_path / "console.log"]
    printed = imported(*files, *PLACE, "--layer", "conv2")
    assert [line.split(": ", 1)[1] for line in printed.splitlines()] == [
        "nsys stats: 8 events",
        "nsys stats: 10 events",
        "nsys stats: 13 summary rows (left out: the table at line 22, the table at line 33, the table at line 47)",
        "ncu CSV (details page, 2 launches): 3 counters (left out: 1 metrics that are words, 3 counters that only "
        "other launches have, 2 of 4 launches, by their numbers)",
        "nvprof console text, with warnings of the profiler (line 12): 5 summary rows",
        "forward_kernel, pool",  # no kernels of the variant
        "activities.csv.gz, profile_summaries.csv, counters.csv",
    ]
    folder = tmp_path / "out" / "fa18" / "direct-10000"
    events = tables.ACTIVITIES.read(folder / "activities.csv.gz")
    assert events.event.tolist() == list(range(18))
    assert events.start_ns.iloc[0] == 0  # the first call, a millisecond into nsys' own clock
    assert events.start_ns.iloc[2] == 81_240_667
    assert events.start_ns.is_monotonic_increasing
    sums = tables.SUMMARIES.read(folder / "profile_summaries.csv")
    assert sums.groupby(["tool", "share_of"]).size().to_dict() == {
        ("nsys", "api"): 6, ("nsys", "copies"): 3, ("nsys", "kernels"): 2, ("nsys", "range"): 2, ("nvprof", "api"): 2,
        ("nvprof", "gpu"): 3,
    }  # fmt: skip
    assert sums.total_ns.tolist()[-1] == 2_343_950_000
    counters = tables.COUNTERS.read(folder / "counters.csv")
    assert {tuple(row) for row in counters[["case", "size", "kernel", "status"]].itertuples(index=False)} == {
        ("fa18/conv2", 10000, CONV, "ok")
    }


def test_what_cannot_be_imported_is_one_line_and_writes_nothing(tmp_path, imported):
    stats = CAPTURED / "nsys_stats_column.txt", CAPTURED / "nsys_stats.csv"
    for arguments, reason in [
        (("--study", "fa81", "--variant", "direct", "--size", "10"), "no study is called 'fa81': did you mean"),
        (("--study", "fa18", "--variant", "dircet", "--size", "10"), "no variant is called 'dircet': did you mean"),
        (("--study", "fa18", "--variant", "direct", "--size", "0"), "--size 0 is outside 1 to 10000"),
        ((*PLACE, "--network", "fa81"), "no network is called 'fa81'"),
        ((*PLACE, "--layer", "conv9"), "fa18 has no layer 'conv9'"),
        (PLACE, "nsys_stats.csv both hold nsys's sums of api"),
    ]:
        with pytest.raises(UserError) as refused:
            imported(*(stats if arguments == PLACE else stats[:1]), *arguments)
        assert reason in str(refused.value)
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_one_refused_file_leaves_nothing_written(tmp_path, imported):
    (tmp_path / "bad").write_text(CONSOLE.replace("98.13%", "18.13%"))
    with pytest.raises(UserError, match="bad, line 7: "):
        imported(CAPTURED / "nsys_stats.csv", tmp_path / "bad", *PLACE)
    assert not (tmp_path / "out").exists()


# --- damage of every kind ----------------------------------------------------------------------------------------


class Samples(dict[str, bytes]):
    """Files by name; a failing test shows the names."""

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"


@pytest.fixture(scope="module")
def samples(databases) -> Samples:
    texts = {
        "old sums": OLD_SUMS_CSV, "old stats": OLD_STATS,
    }  # fmt: skip
    files = {path.name: path for path in sorted(CAPTURED.glob("*.[ct]*"))} | databases
    return Samples(
        {name: text.encode() for name, text in texts.items()}
        | {name: path.read_bytes() for name, path in files.items()}
    )


def read_or_refuse(path: Path, content: bytes) -> None:
    """Read a file: a profile whose tables can be written and read back, or a UserError of few lines."""
    path.write_bytes(content)
    try:
        profile = importing.read(path)
        rows_of = importing.combine({"file": profile}, "direct", "fa18", 10)
    except UserError as error:
        assert str(path) in str(error) or "nsys" in str(error) or "ncu" in str(error)
        assert len(str(error)) < 2000
        return
    assert rows_of
    for table, rows in rows_of.items():
        table.write(rows, path.parent / table.name)
        assert len(table.read(path.parent / table.name)) == len(rows)


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(st.data())
def test_a_truncated_shuffled_or_overwritten_file_is_read_or_refused(samples, tmp_path, data):
    content = samples[data.draw(st.sampled_from(sorted(samples)))]
    how = data.draw(st.sampled_from(["truncate", "shuffle lines", "shuffle words", "overwrite", "insert", "repeat"]))
    place = data.draw(st.integers(0, len(content)))
    if how == "truncate":
        content = content[:place]
    elif how == "shuffle lines":
        content = b"\n".join(data.draw(st.permutations(content.split(b"\n")[:60])))
    elif how == "shuffle words":
        separator = b"," if content.count(b",") > content.count(b" ") else b" "
        content = separator.join(data.draw(st.permutations(content.split(separator)[:80])))
    elif how == "repeat":
        content = content[:place] + content[max(0, place - data.draw(st.integers(0, 2000))) :]
    else:
        new = data.draw(st.binary(max_size=64) | st.text(max_size=64).map(lambda text: text.encode(errors="replace")))
        content = content[:place] + new + content[place + (len(new) if how == "overwrite" else 0) :]
    read_or_refuse(tmp_path / "file", content)


@FUZZ
@given(st.data())
def test_a_file_of_another_encoding_is_read_or_refused(samples, tmp_path, data):
    texts = [name for name, sample in samples.items() if not sample.startswith(b"SQLite")]
    text = samples[data.draw(st.sampled_from(texts))].decode()
    text = data.draw(st.sampled_from(["é", "µ", "–", ""])) + text.replace(
        "us", data.draw(st.sampled_from(["µs", "us"]))
    )
    encoding = data.draw(st.sampled_from(["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7"]))
    read_or_refuse(tmp_path / "file", text.encode(encoding, errors="replace"))


@FUZZ
@given(begin=st.sampled_from([b"", b"SQLite format 3\0", b"NVR\0", b"Time(%) Time Name\n", b'"ID","Kernel Name"\n']),
       rest=st.binary(max_size=2000))  # fmt: skip
def test_binary_is_refused(tmp_path, monkeypatch, begin, rest):
    monkeypatch.setenv("PATH", "")  # where no tool is that reads reports
    read_or_refuse(tmp_path / "file", begin + rest)


def test_what_is_no_file_is_refused():
    for path in ("no such file", "."):
        with pytest.raises(UserError, match=r"is not there|is no regular file"):
            importing.read(Path(path))
