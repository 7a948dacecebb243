"""Profiles as people send them: out of terminals, logs, mails and notebooks, broken, mixed, or no profile at all."""

import contextlib
import gzip
import json
import quopri
import re
import sys
import time
import types

import pytest

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.kernels import variants
from warpbook.profiling import importing, profile_schema

DATA = PROJECT / "tests" / "data" / "profiles"
CONV = "conv_forward(float const *, float const *, float*, int, int)"
NVPROF = f"""\
==777== NVPROF is profiling process 777, command: ./m2 10000
==777== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   80.00%  8.0000ms         2  4.0000ms  3.0000ms  5.0000ms  {CONV}
                   15.00%  1.5000ms         6  250.00us  1.0000us  700.00us  [CUDA memcpy HtoD]
                    5.00%  500.00us         2  250.00us  200.00us  300.00us  [CUDA memcpy DtoH]
      API calls:   60.00%  30.000ms         8  3.7500ms  2.0000us  29.000ms  cudaMalloc
                   40.00%  20.000ms         8  2.5000ms  1.0000us  12.000ms  cudaMemcpy
"""
NSYS = """\
 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)   Med (ns)   Min (ns)  Max (ns)  StdDev (ns)             Name
 --------  ---------------  ---------  ---------  ---------  --------  --------  -----------  ---------------------------
     90.0          9000000          2  4500000.0  4500000.0   4000000   5000000     707106.8  conv_forward(const float *)
     10.0          1000000          1  1000000.0  1000000.0   1000000   1000000          0.0  do_not_remove_this_kernel()

"""
NCU = """\
==PROF== Connected to process 4242 (/home/me/m3)
[4242] m3@127.0.0.1
  conv_forward(const float *, float *, int) (100, 8, 1)x(16, 16, 1), Context 1, Stream 7, Device 0, CC 8.6
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    DRAM Frequency                  Ghz         7.25
    Elapsed Cycles                cycle    1,234,567
    Duration                         ms         1.11
    ----------------------- ----------- ------------

"""
NCU_CSV = """\
"ID","Process ID","Kernel Name","Block Size","Grid Size","Device","CC","Metric Name","Metric Unit","Metric Value"
"0","4242","conv_forward(int)","(16, 16, 1)","(100, 8, 1)","0","8.6","gpu__time_duration.sum","us","1,234.50"
"1","4242","conv_forward(int)","(16, 16, 1)","(9, 8, 1)","0","8.6","gpu__time_duration.sum","us","2,345.60"
"""
EACH = (NVPROF, NSYS, NCU)
METRICS = (DATA / "nvprof_metrics.txt").read_text()
NVPROF_CSV = """\
==777== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,ms,ms,ms,
"GPU activities",80.000000,8.000000,2,4.000000,3.000000,5.000000,"conv_forward(float const *, int)"
"GPU activities",20.000000,2.000000,1,2.000000,2.000000,2.000000,"[CUDA memcpy HtoD]"
"""
AS_CSV = (
    NVPROF_CSV,
    NCU_CSV,
    *((DATA / f"{name}.csv").read_text() for name in ("nsys_cuda_gpu_trace", "nvprof_metrics")),
)


@pytest.fixture
def read(tmp_path):
    """Read a profile of that text, or of those bytes; `lines` alone of it where they are given."""

    def read(content: str | bytes, lines: tuple[int, int] | None = None, name: str = "profile"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return importing.read(path, lines)

    return read


@pytest.fixture
def refusal(read):
    """Why a profile is refused."""

    def reason(content: str | bytes, name: str = "profile") -> str:
        with pytest.raises(UserError) as refused:
            read(content, name=name)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    return reason


def rows(profile: profile_schema.Profile) -> list[dict]:
    return [*profile.events, *profile.summaries, *profile.counters]


def each_line(text: str, prefix: str) -> str:
    return "".join(prefix.format(n=n, s=n % 60) + line + "\n" for n, line in enumerate(text.splitlines(), 1))


# --- what stands around a tool's words ---------------------------------------------------------------------------


def test_what_a_terminal_a_log_or_a_mail_puts_around_each_line_is_taken_away(read):
    for text in EACH:
        expected = rows(read(text))
        for prefix in (
            "[1,0]<stdout>:", "0: ", "12: ", "[rank0]: ", "> ", "> > ", "+", "# ", "// ", "app_1  | ",
            "2024-01-01 10:00:{s:02} ", "2024-01-01T10:00:{s:02}.123Z ", "[2024-01-01 10:00:{s:02},123] [0] ", "{n}:",
        ):  # fmt: skip
            assert rows(read(each_line(text, prefix))) == expected, prefix
            log = f"job 5 begins\n{each_line(text, prefix)}job 5 ends\n"
            assert rows(read(log)) == expected, prefix


def test_what_a_program_or_an_author_wrote_above_a_profile_is_no_row_of_it(read):
    for line in [
        "     49        10.683            66.339      23.980    445.5 MB/s     2.77x",
        "- the copies take 4 billion, and one kernel 4,026,049,432 of 4,031,222,183 ns",
        "Variant, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072",
    ]:
        for text in EACH:
            assert rows(read(f"{line}\n\n{text}")) == rows(read(text))


def test_csv_behind_a_prefix_or_indented_is_read(read):
    for text in AS_CSV:
        expected = rows(read(text))
        for prefix in ("    ", "> ", "0: ", "+", "(pid=12) ", "2024-01-01T10:00:{s:02}.123Z ", "\t", "\f"):
            assert rows(read(each_line(text, prefix))) == expected, prefix


def test_html_around_words_is_no_part_of_them(read):
    for text in EACH:
        expected = rows(read(text))
        for begin, end in (("<b>", "</b>"), ('<span class="ansi-red-fg">', "</span>")):
            assert rows(read(re.sub(r"\b(conv_forward|Duration|9000000)\b", rf"{begin}\1{end}", text))) == expected
            assert rows(read("\n".join(f"{begin}{line}{end}<br>" for line in text.split("\n")))) == expected
        assert rows(read(text.replace(" ", "\xa0"))) == rows(read("\ufeff" + text.replace(" ", "&nbsp;"))) == expected


def test_colours_are_no_part_of_a_line(read):
    for text in EACH:
        expected = rows(read(text))
        for begin, end in (
            ("\x1b[1;32m", "\x1b[0m"),
            ("^[[31m", "^[[0m"),
            ("\x1b[01;31m\x1b[K", "\x1b[m\x1b[K"),
            ("[1m", "[0m"),
            ("\x1b]8;;http://x\x07", "\x1b]8;;\x07"),  # a link
        ):
            coloured = "\n".join(f"{begin}{line}{end}" if line else line for line in text.split("\n"))
            assert rows(read(coloured)) == expected, begin
            assert (
                rows(read(re.sub(r"\b(conv_forward|[458]\.0000ms|7\.25|9000000)\b", rf"{begin}\1{end}", text)))
                == expected
            )


def test_letters_and_quotes_that_a_page_drew_otherwise_are_read_as_they_were(read):
    for text in [NVPROF, NCU, NCU_CSV]:
        text = text.replace("float", "float*, fifth")
        drawn = text.replace("fl", "\ufb02").replace("fi", "\ufb01").replace("_", "_\xad").replace("8", "\uff18")
        assert rows(read(re.sub(r'"([^"\n]*)"', "\u201c\\1\u201d", drawn))) == rows(read(text))


def test_a_name_with_a_character_that_moves_the_cursor_is_refused(refusal):
    for text in [*EACH, NCU_CSV]:
        assert "is no name of a kernel" in refusal(text.replace("conv_", "convX\b_")) or "part of a launch" in refusal(
            text.replace("conv_", "convX\b_")
        )


def test_utf_16_without_its_mark_gzip_and_old_line_ends_are_read(read):
    for text in EACH:
        expected = rows(read(text))
        for content in (
            text.encode("utf-16-le"), text.encode("utf-16-be"), gzip.compress(text.encode()),
            text.replace("\n", "\r\n").encode("utf-8-sig"), text.replace("\n", "\r").encode(),
            f"<html><body><pre>\n{text}\n</pre></body></html>".encode(), f"```text\n{text.strip()}\n```\n".encode(),
        ):  # fmt: skip
            assert rows(read(content)) == expected, content[:40]


def test_a_notebook_is_read_where_one_cell_of_it_holds_a_profile(read, refusal):
    def notebook(*outputs: str) -> str:
        cells = [
            {"cell_type": "code", "outputs": [{"output_type": "stream", "text": text.splitlines(keepends=True)}]}
            for text in outputs
        ]
        return json.dumps({"cells": [{"cell_type": "markdown"}, *cells], "nbformat": 4}, indent=1)

    for text in EACH:
        assert rows(read(notebook("building\n", text))) == rows(read(text))
    assert "is a notebook, and cells 2, 3 of it hold profiles: save the output of one" in refusal(notebook(NVPROF, NCU))
    assert "is a notebook, and no cell of it holds a profile" in refusal(notebook("done\n"))
    damaged = refusal(notebook(NVPROF.replace("8.0000ms", "9.0000ms")))
    assert "output of cell 2, line 4: 2 calls of conv_forward" in damaged
    both = notebook(NVPROF + NCU)
    assert re.search("output of cell 2 holds 2 profiles: .*--lines 3-8; .*--lines 9-19", refusal(both))
    assert rows(read(both, (9, 19))) == rows(read(NCU))


def test_lines_of_several_ranks_are_refused_with_the_ranks_and_a_command(refusal):
    pairs = zip(NVPROF.splitlines(), NVPROF.splitlines(), strict=True)
    text = "".join(f"[1,0]<stdout>:{a}\n[1,1]<stdout>:{b}\n" for a, b in pairs)
    assert re.search(r"2 ranks, behind '\[1,0\]<stdout>:', '\[1,1\]<stdout>:': .*`grep -F '\[1,0\]<std", refusal(text))


def test_a_prefix_that_only_some_lines_have_is_refused_with_the_line(read, refusal):
    lines = NVPROF.splitlines(keepends=True)
    assert rows(read("".join([*lines[:3], "+" + lines[3], *lines[4:]]))) == rows(
        read(NVPROF)
    )  # a diff's, nothing taken away
    taken = "".join([*lines[:3], "- " + lines[3], "+" + lines[3], *lines[4:]])
    assert re.search(r"line 4: .* is no row", refusal(taken))
    assert re.search(r"line 8: .* is no row", refusal("".join([*lines[:7], "> " + lines[7]])))
    assert re.search(
        r"line 4: .* is no row", refusal("".join("0: " + line if n != 5 else line for n, line in enumerate(lines)))
    )


# --- broken lines ------------------------------------------------------------------------------------------------


def test_a_launch_that_a_terminal_broke_is_joined_or_refused(read, refusal):
    launch = NCU.splitlines()[2]
    for place, between in ((launch.index(" (100"), "\n "), (launch.index(", 8"), "\n"), (launch.index("*, int"), "\n"),
                           (launch.index("ontext"), "\n"), (launch.index("ice 0"), "\n"), (launch.index("6, 16"), "\n"),
                           (launch.index("float *, f"), "\n"), (launch.index("oat *"), "\n")):  # fmt: skip
        broken = NCU.replace(launch, launch[:place] + between + launch[place:])
        assert {row["kernel"] for row in read(broken).counters} == {"conv_forward(const float *, float *, int)"}, place
    inside = launch.index("forward")
    broken = NCU.replace(launch, launch[:inside] + "\n" + launch[inside:])
    assert "line 3: the line of a launch is broken inside of a name" in refusal(broken)
    assert re.search(
        r"line 3: .* is part of a launch's line, or has no section", refusal(NCU.replace(", Device 0", "\nlog\n, Dev"))
    )
    assert "line 3: '> conv_forward" in refusal(NCU.replace("  conv_forward", "> conv_forward"))


def test_a_line_between_or_right_behind_rows_is_refused_with_the_line(refusal):
    first, last = NSYS.splitlines()[4:6]
    assert "line 6: 1 cells where the header names 9" in refusal(NSYS.replace(first, f"{first}\nhello"))
    assert "line 7: 1 cells where the header names 9" in refusal(NSYS.replace(last, f"{last}\nhello"))
    assert "line 3: 1 cells where the header names 10" in refusal(NCU_CSV.replace('0"\n"1"', '0"\nhello\n"1"'))
    between = NVPROF.replace("                   40.00%", "hello there\n                   40.00%")
    assert "line 8: 'hello there' stands between a table's rows" in refusal(between)
    lines = NCU.splitlines()
    moved = "\n".join([*lines[:9], lines[10], lines[9]])
    assert "line 11: 'Duration                         ms         1.11' is a row outside of its table" in refusal(moved)
    two_rows = "4,0.5,2,0.2,0.2,0.1,0.3,0.1,ioctl 96.0,12.0,2,6.0,6.0,5.0,7.0,0.1,read"
    assert "line 8: 'Ghz         7.25' is no value of a counter" in refusal(NCU.replace("    DRAM", "\t    DRAM"))
    assert re.search("line 20: .* has not the columns of the header", refusal(f"{METRICS.rstrip()}  0.5\n"))
    lines = METRICS.splitlines()
    for number, words in ((9, "line 9: .* is no name of a kernel"), (13, "line 13: "), (16, "line 16: .* has not the")):
        joined = [*lines[: number - 1], f"{lines[number - 1]} {lines[number]}", *lines[number + 1 :]]
        assert re.search(words, refusal("\n".join(joined))), number
    other = "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
    assert "line 10: several rows run together: 'ioctl 96.0,12.0," in refusal(f"{NSYS}\n{other}\n{two_rows}\n")


def test_a_damaged_last_row_is_refused_though_its_share_is_below_the_rounding(read, refusal):
    report = (DATA / "nvprof_report.txt").read_text()
    assert len(rows(read(report))) == 7
    for last in ("<0.01\t10.000 us\t1\t[CUDA memcpy DtoH]", "| 0.01%   | 4.0000us | 5     |"):
        assert last in report
        line = report[: report.index(last)].count("\n") + 1
        for mark in ("0: ", "rank ", "> ", "x"):
            assert f"line {line}: " in refusal(report.replace(last, mark + last)), (last, mark)
    for cell in ("0.01%   | ", "4.0000us | "):
        assert "line 17: " in refusal(report.replace(f"| {cell}", "| "))
    assert "line 17: " in refusal(report.replace("0.01%   | 4.0000us", "4.0000us | 0.01%"))
    assert "line 18: " in refusal(report.replace("cudaGetLastError |", "cudaGetLas\n  tError |"))


def test_a_header_or_a_title_without_rows_is_refused_behind_a_table_too(refusal):
    title, blank, heads, dashes = NSYS.replace("Kernel", "API").replace("kern", "api").splitlines(True)[:4]
    assert "line 8: the title of a table, and no table under it" in refusal(NSYS + title)
    assert "line 10: a header of nsys stats and no rows" in refusal(NSYS + title + blank + heads)
    assert "line 10: a header of nsys stats and no rows" in refusal(NSYS + title + blank + heads + dashes)
    assert "line 11: a header and no rows under it" in refusal(NVPROF + "".join(NVPROF.splitlines(True)[:3]))
    for number, line in enumerate(METRICS.splitlines()[:19], 1):
        if number in (12, 13, 14, 15, 19):
            assert f"line {number}: {line.strip()[:60]!r} and no" in refusal("".join(METRICS.splitlines(True)[:number]))
    launch = "  pool(const float *, float *, int) (100\n"
    assert "line 13: 'pool(const float *, float *, int) (100' is part of a launch's line" in refusal(NCU + launch)


def test_a_name_that_is_broken_inside_of_a_word_is_refused(read, refusal):
    assert "line 4: the line is broken inside of a name, after" in refusal(NVPROF.replace("int, int)", "int, i\nnt)"))
    assert "line 8: 'oc' is no row" in refusal(NVPROF.replace("cudaMalloc", "cudaMall\noc"))
    joined = read(NVPROF.replace("float const *, float const", "float\nconst *, float const"))
    assert joined.summaries[0]["name"] == CONV


def test_a_file_that_ends_inside_of_a_row_is_refused(read, refusal):
    padded = NSYS.replace("*)\n", "*)  \n")
    assert "line 6: this row is cut off" in refusal(padded[: padded.index("_remove_this")])
    calls = NSYS.replace("gpu_kern", "osrt").replace("Instances", "Num Calls").replace("\n\n", "\n \n").rstrip()
    assert rows(read(padded + calls.replace("conv_forward(const float *)", "ioctl")[:-28] + "poll")) == rows(read(NSYS))
    assert "the shares add up to 95.00 %, not 100 %" in refusal("".join(NVPROF.splitlines(keepends=True)[:5]))


# --- several in one file -----------------------------------------------------------------------------------------


def test_several_tools_or_runs_are_refused_with_lines_that_are_read(read, refusal):
    two_runs = NCU + NCU.replace("4242", "4343").replace("1,234,567", "7,654,321")
    without_device = re.sub(r" GPU activities:(?s:.*)(?=      API calls)", "", NVPROF)
    for text, held in [
        (NCU + NCU, ["1-11", "13-23"]),
        (NCU + "\ufeff" + NCU, ["1-11", "13-23"]),
        (two_runs, ["1-11", "13-23"]),
        (NSYS + NCU, ["1-6", "8-18"]),
        (NSYS + NSYS, ["1-6", "8-13"]),
        (NVPROF + NVPROF.replace("777", "778"), ["3-8", "11-16"]),
        (NVPROF + (DATA / "nvprof_metrics.txt").read_text(), ["3-8", "15-28"]),
        (NCU_CSV + NCU_CSV.replace("1,234.50", "9,999.99"), ["1-3", "4-6"]),
        (NVPROF + "\n" + NCU_CSV, ["3-8", "10-12"]),
        (without_device + NVPROF.replace("777", "778"), ["3-5", "8-13"]),
    ]:
        reason = refusal(text)
        assert re.findall(r"--lines (\d+-\d+)", reason) == held, reason
        for lines in held:
            first, last = map(int, lines.split("-"))
            assert rows(read(text, (first, last)))


def test_of_several_runs_the_lines_of_those_that_are_whole_are_named(refusal):
    cut_off = NVPROF.rsplit("      API calls", 1)[0].replace("80.00%", "70.00%")
    words = refusal(NVPROF + cut_off)
    assert re.search(r"2 profiles: nvprof console text, --lines 3-8; lines 11-14, refused \(line 12: ", words), words
    header, *others = NCU_CSV.splitlines(True)
    assert "--lines" not in refusal(header * 2 + others[0].replace('"0"', '""'))
    assert "line 1: the names of columns and no rows" in refusal(header)
    csv_inside = NCU.replace("\n", f"\n{NCU_CSV}\n", 1)
    assert re.findall(r"--lines (\d+-\d+)", refusal(csv_inside)) == ["2-4", "5-15"]


def test_of_many_runs_the_first_are_tried_and_named(refusal):
    words = refusal(NCU_CSV * 100)
    assert words.count("--lines") == 20 and "holds 100 profiles" in words and "; and 80 more: import one" in words


def test_a_row_that_stands_twice_makes_no_second_run(refusal):
    gpu = next(line for line in NVPROF.splitlines(True) if "GPU activities" in line)
    assert re.search("line 4: the shares add up to 80.00 %, not 100 %", refusal(NVPROF.replace(gpu, gpu * 2)))


def test_tables_of_two_processes_are_two_profiles(read, refusal):
    calls = re.sub(r" GPU activities:(?s:.*)(?=      API calls)", "", NVPROF).replace("777", "778")
    kernels = NVPROF.split("      API calls")[0]
    assert re.findall(r"--lines (\d+-\d+)", refusal(kernels + calls)) == ["3-6", "9-11"]
    in_csv = NVPROF_CSV.replace("777", "778").replace("GPU activities", "API calls")
    in_csv = re.sub(r'"(conv.*|\[CUDA.*)"\n', '"cudaMalloc"\n', in_csv, count=1).replace(
        "[CUDA memcpy HtoD]", "cudaFree"
    )
    assert re.findall(r"--lines (\d+-\d+)", refusal(NVPROF_CSV + in_csv)) == ["2-5", "7-10"]
    assert len(rows(read(NVPROF_CSV + in_csv.replace("778", "777")))) == 4


def test_a_trace_and_sums_of_other_counts_are_of_two_runs(read, refusal):
    trace = (DATA / "nsys_cuda_gpu_trace.csv").read_text()
    sums = (DATA / "nsys_stats.csv").read_text()
    assert len(rows(read(trace + sums))) == 8 + 13
    assert re.search(r"line 13: 3 kernels in this table, and 4 in that of line 1: .*--lines", refusal(trace + NSYS))
    copy = next(line for line in trace.splitlines(True) if "Device-to-Host" in line)
    assert re.search(
        r"line \d+: 4 copies in this table, and 3 in that of line 1", refusal(trace.replace(copy, "") + sums)
    )


def test_tables_that_nsys_made_of_two_reports_are_two_profiles(read, refusal):
    kernels, calls = (f"Processing [{name}.sqlite] with [/opt/cuda_{name}_sum.py]...\n" for name in ("gpu_kern", "api"))
    kernels += NSYS
    calls += NSYS.replace("gpu_kern", "api").replace("Instances", "Num Calls")
    calls = calls.replace("conv_forward(const float *)", "cudaMalloc").replace(
        "do_not_remove_this_kernel()", "cudaFree"
    )
    assert re.findall(r"--lines (\d+-\d+)", refusal(kernels + calls)) == ["2-7", "10-15"]
    assert len(rows(read((kernels + calls).replace("[api.sqlite", "[gpu_kern.sqlite")))) == 4


def test_two_processes_that_printed_at_once_are_named(refusal):
    other = NVPROF.replace("777", "778").replace("8.0000ms", "8.8000ms").replace("4.0000ms", "4.4000ms")
    mixed = "".join(a + b for a, b in zip(NVPROF.splitlines(True), other.splitlines(True), strict=True))
    assert re.search(r"line 6: .*processes 777, 778 printed at once; .*--log-file profile-%p.txt", refusal(mixed))


# --- names -------------------------------------------------------------------------------------------------------


def test_a_mark_behind_a_name_is_no_part_of_it(refusal):
    for mark in [" x", "\\", " \\\\", ";", " \u2502", " |", "<x>", "</td>", " # x"]:
        trace = (DATA / "nsys_cuda_gpu_trace.csv").read_text()
        for text, name, end in (
            (NVPROF, CONV, "\n"), (NVPROF, "HtoD]", "\n"), (NVPROF, "cudaMalloc", "\n"), (NSYS, "kernel()", "\n"),
            (trace, "int)", '"\n'),
        ):  # fmt: skip
            assert name + end in text
            reason = refusal(text.replace(name + end, name + mark + end, 1))
            assert re.search(r"line \d+: .* is no (name of a kernel|call of CUDA's API)", reason), reason


def test_a_name_with_the_marks_of_a_page_is_refused(refusal):
    for name in [
        "conv\\_forward(int)",
        "conv&lt;float&gt;(int)",
        "**conv**(int)",
        "<b>conv(int)",
        "conv(int)<br/>x",
        "conv(int) x",
        "void rank cudnn::conv<float>(int)",
        "void> conv<float>(int)",
        "conv<int, 2024-01-01 float>(int)",
        "conv<int, 0: float>(int)",
        "conv<int, | float>(int)",
        "s[CUDA memcpy DtoH]",
    ]:
        for text in (NSYS.replace("conv_forward(const float *)", name), NCU_CSV.replace("conv_forward(int)", name)):
            assert re.search(r"line \d: .* is (no name of a kernel|cut off)", refusal(text.replace("&", "&amp;"))), name


def test_names_that_compilers_give_kernels_are_read(read):
    for name in (
        "void (anonymous namespace)::pool<float, (int)2>(const T1 *, T1 *, int)",
        "void at::native::kernel<4, void at::native::gpu<F<int>>(at::It &, const T1 &)::[lambda(int) (instance 1)]>(int)",
        "_ZN3foo3barEPf", "void f<&g, -1, (T)'a'>(int)", "x::operator()<float>(int)", "redzone_checker", "triton_0d1d2",
        "cudapy::__main__::kernel$241(Array<float, 2, C, mutable, aligned>)", "fusion.12", "f(int)::{lambda()#1}",
        "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, float const>(T13)", "f<int, >(unsigned long long)",
        "cudapy::__main__::kernel[abi:v1,cw51cXTLSUwv1sDUaEE_3d](Array<float, 2, C, mutable, aligned>)",
        "void at::native::(anonymous namespace)::cat<(unsigned int)4, char const* const>(T1 *, at::It<T2> const volatile &)",
        "void k<f(at::Scalar const&)::{lambda()#1}::operator()() const::{lambda(long)#1}>(long, (anonymous class)::T)",
    ):  # fmt: skip
        assert read(NCU_CSV.replace("conv_forward(int)", name)).counters[0]["kernel"].startswith(name)


# --- figures -----------------------------------------------------------------------------------------------------


def test_a_point_between_thousands_is_refused_where_whole_numbers_stand(read, refusal):
    assert "line 5: '9.000' is 9000, or it is no whole number" in refusal(
        NSYS.replace("        9000000  ", "          9.000  ").replace("4500000.0", "    4.500")
    )
    assert "line 5: '9.000.000' is 9000000, or" in refusal(NSYS.replace("  9000000 ", "9.000.000 "))
    assert "'1,234' us is 1234 or 1.234" in refusal(NCU_CSV.replace("1,234.50", "1,234").replace("2,345.60", "2,345"))
    cycles = NCU.replace("7.25", "   7").replace("1.11", "   1")
    assert read(cycles.replace("1,234,567", "    1,234")).counters[1]["value"] == 1234
    assert "line 9: '1.234' cycle is 1234 or 1.234" in refusal(cycles.replace("1,234,567", "    1.234"))
    assert read(NCU_CSV.replace("1,234.50", "1,234")).counters[0]["value"] == 1234  # the other shows the point


def test_a_value_that_a_spreadsheet_rounded_is_refused(refusal):
    assert "line 2: '1.23E+03' is no value of a counter" in refusal(NCU_CSV.replace("1,234.50", "1.23E+03"))


def test_shares_and_times_that_make_no_whole_are_refused(refusal):
    rows_of = NVPROF.splitlines(keepends=True)
    assert "line 5: the shares add up to 95.00 %" in refusal("".join([*rows_of[:5], *rows_of[6:]]))
    assert "line 6: the row of line 5 once more" in refusal("".join([*rows_of[:5], rows_of[4], *rows_of[5:]]))
    small = "                    0.00%  1.0000us         1  1.0000us  1.0000us  1.0000us  cudaFree\n"
    assert "the row of line 9 once more" in refusal(NVPROF + small + small)


# --- forms of tables ---------------------------------------------------------------------------------------------


def test_columns_that_a_page_moved_are_read_as_words(read):
    expected = rows(read(NSYS))
    head, rule, *body = NSYS.strip("\n").splitlines()[2:]
    heads = re.split(r"\s{2,}", head.strip())
    cells = [line.split(None, 8) for line in body]
    for text in (
        NSYS.replace(rule, rule.replace("-----------  ---", "-----------   --")),
        NSYS.replace(rule + "\n", ""),
        re.sub(r" {4}", "\t", NSYS),
        "\t".join(heads) + "\n" + "".join("\t".join(row) + "\n" for row in cells),
        "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---:"] * 9, *cells)),
        "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["==="] * 9, cells[0], ["---"] * 9, *cells[1:])),
        "\n".join(f"| {' | '.join(f'**{cell}**' for cell in row)} |" for row in (heads, *cells)),
        "\n".join(f"| {' | '.join(f'`{cell}`' for cell in row)} |" for row in (heads, *cells)),
        "\n".join("| " + re.sub(r"([_*(])", r"\\\1", " | ".join(row)) + " |" for row in (heads, *cells)),
        "\n".join(",".join(f'"{cell}"' for cell in row) + ",," for row in (heads, *cells)),
        "\n".join(",".join(f'"{cell}"' for cell in row) for row in (heads, *cells)),
    ):
        assert rows(read(text)) == expected, text


def test_csv_without_quotes_or_without_its_row_of_units_is_read(read, refusal):
    text = """\
Time(%),Time,Calls,Avg,Min,Max,Name
80.00%,8.0000ms,2,4.0000ms,3.0000ms,5.0000ms,conv_forward(float*, float*, int)
20.00%,2.0000ms,8,250.00us,1.0000us,700.00us,[CUDA memcpy HtoD]
"""
    assert [row["name"] for row in read(text).summaries] == ["conv_forward(float*, float*, int)", "[CUDA memcpy HtoD]"]
    assert "line 2: 14 cells where the header names 7; decimal commas?" in refusal(text.replace(".00", ",00"))


def test_a_quoted_cell_of_advice_may_hold_line_ends(read, refusal):
    advice = NCU_CSV.replace('Value"\n', 'Value","Rule Name","Rule Description"\n').replace(
        '0"\n', '0","SOL","Memory\nis used"\n'
    )
    assert [row["value"] for row in read(advice).counters] == [1234.5, 2345.6]
    assert "line 2: a line ends inside a name or a number" in refusal(
        NCU_CSV.replace("conv_forward", "conv_\nforward", 1)
    )


def test_an_event_without_a_duration_is_left_out_and_named(read, refusal):
    trace = """\
==777== Profiling result:
"Start","Duration","Grid X","Grid Y","Grid Z","Device","Name"
s,ms,,,,,
1.000000,0.001000,,,,"Tesla T4 (0)","[CUDA memcpy HtoD]"
1.001000,,,,,,"[Unified Memory CPU page faults]"
1.003000,4.000000,100,8,1,"Tesla T4 (0)","conv_forward(float*)"
"""
    profile = read(trace)
    assert [row["end_ns"] - row["start_ns"] for row in profile.events] == [1000, 4_000_000]
    assert profile.omissions == ("the event without a duration at line 5",)
    assert (profile.device, profile.events[-1]["grid"]) == ("Tesla T4 (0)", "100x8x1")
    assert "line 6: '' is no time" in refusal(trace.replace("4.000000", ""))
    assert "line 6: '10.000' is 10000, or it is no whole number" in refusal(trace.replace("100,8", "10.000,8"))
    assert "line 6: the grid has not three extents" in refusal(trace.replace("100,8", "100,"))


def test_launches_of_one_kernel_with_several_shapes_are_told_apart(read):
    assert {row["kernel"] for row in read(NCU_CSV).counters} == {
        "conv_forward(int) (100, 8, 1)x(16, 16, 1)", "conv_forward(int) (9, 8, 1)x(16, 16, 1)"
    }  # fmt: skip
    sums = """\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name
90.0,9000000,2,4500000.0,4500000.0,4000000,5000000,707106.8, 100    8    1,  16   16    1,conv(int)
10.0,1000000,1,1000000.0,1000000.0,1000000,1000000,0.0,   9    8    1,  16   16    1,conv(int)
"""
    names = ["conv(int) (100, 8, 1)x(16, 16, 1)", "conv(int) (9, 8, 1)x(16, 16, 1)"]
    assert [row["name"] for row in read(sums).summaries] == names


# --- what is no profile ------------------------------------------------------------------------------------------


def test_what_holds_no_profile_is_named_with_the_command_that_gives_one(refusal):
    for content, reason in [
        ("==PROF== Connected to process 4\n==PROF== Report: /a/b.ncu-rep\n", r"progress log.*`ncu --import b.ncu-rep --csv"),
        (f"==PROF== Connected to process 4\n{NCU_CSV[:17]}", "line 2, .*, begins a table whose heads or rows are"),
        ("==PROF== Connected to process 4\n", r"progress log of ncu, which names no report: .*--log-file"),
        ("======== Warning: No CUDA application was profiled, exiting\n", "saw no kernel"),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "the profiler's refusal: .*NVreg_RestrictProfiling"),
        ("SKIPPED: r.sqlite does not contain CUDA kernel data.\n", "without CUDA events.*nsys profile --trace cuda"),
        ("======== CPU profiling result (bottom up):\nTime(%)      Time  Name\n 70.00%  7.0s  main\n", "CPU alone"),
        ("ERROR: Report 'gpukernsum' could not be found.\n", "nsys stats --report cuda_gpu_kern_sum"),
        ('"#","Address","Source","# Samples"\n"0","7f","MOV R1, R2","3"\n', "line 1: ncu's source page: .*--page raw"),
        ("Total (MB),Count,Avg (MB),Med (MB),Operation\n1.0,1,1.0,1.0,[CUDA memset]\n", "no times of .*, only the table at line 1: import"),
        ("<table>\n<tr><th>Time (%)</th><th>Total Time</th></tr>\n", "line 1: a table as HTML: import what `nsys stats"),
        ("| Metric Name | Metric Unit | Metric Value |\n| Duration | ms | 1 |\n", "line 1, without the line of its kernel: print it"),
        (re.sub(r"(.{80})", r"\1\n", NSYS), "line 3: .* stands where the heads of cuda_gpu_kern_sum"),
        ("bash: nvprof: command not found\n", "the shell's message"),
        ('[\n {"Time (%)": 90.0, "Total Time (ns)": 5}]\n', "nsys' JSON: import what `nsys stats .* --format csv"),
        (b"PK\x03\x04rest", "a zip archive; import what this gives: unzip profile"),
        (b"\x1f\x8b\x08\0rest", "gzip that is damaged or cut off"),
        ("Pr\u00fcfung\n".encode("cp1252") + NVPROF.encode(), "line 1: .*iconv -f CP1252 -t UTF-8 profile"),
        (json.dumps({"log": NVPROF}), r"is JSON: import the text that it holds, as `jq -r .log profile > profile.txt`"),
        (repr(NSYS.splitlines()), "is JSON"),
        (json.dumps({"worksheets": [{"cells": [{"outputs": [NCU]}]}]}, indent=1), "a notebook that is damaged or of an old"),
        (quopri.encodestring(NVPROF.encode()), r"a mail's quoted-printable: import .*`python3 -m quopri -d profile >"),
        (NVPROF.encode() + bytes(8), "or a damaged text: byte 675 is 0; copy the file again"),
        ("==777== Profiling result:\n==777== Metric result:\n", "the beginning of nvprof's output"),
        (NCU.split("--\n", 2)[2], "the end of a table of ncu's, line 4, without the line of its kernel: print it"),
        ("NVTX Range,Style,Kern Inst,Total Time (ns),Kernel Name\na,PushPop,1,4,conv\n", "line 1: nsys' report of .* not read"),
        ("Start (ns),End (ns),Duration (ns),Name\n1,2,1,conv\n", "line 1: nsys' report of .* not read"),
        ("**** Analysis failed with:\nStatus: TargetProfilingFailed\n", "a message of the profiler: .*Analysis failed"),
        ("<html><table><tr><th>Time (%)</th></tr></table>\n", "line 1: a table as HTML"),
        (json.dumps({"traceEvents": [{"ph": "X"}]}), "a trace for Chrome, .*: profile with nsys or nvprof"),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", "compute-sanitizer, which measures no times"),
        ('"Name","Calls","TotalDurationNs"\n"conv(int)",2,9000000\n', "line 1: .*no line above it names its columns in known"),
        (NCU.replace("    Section: GPU Speed Of Light Throughput\n", ""), "line 3: .*no section under it: print it with ncu --csv"),
        (NSYS.split(" Time")[0] + "     90.0  9000000  2  4500000.0  4500000.0  conv\n", "line 3: .* stands where the heads of"),
    ]:  # fmt: skip
        assert re.search(reason, refusal(content)), (reason, refusal(content))


def test_a_table_without_what_tells_its_values_is_refused_with_the_line(refusal):
    for text, reason in [
        (NSYS.replace("Instances", "Launches"), "line 3: a table without its column of calls or instances"),
        (NSYS.replace("Instances", "Num Calls"), "line 3: a table without its column of calls or instances"),
        (re.sub(r"  +Name$|  conv.*|  do_not.*", "", NSYS, flags=re.M), "line 3: .* stands where the heads of"),
        (
            METRICS.split("Invocations", 2)[1].partition("\n")[2],
            "line 3: a counter, and no line above it names the col",
        ),
        (NCU.partition("Unit Metric Value\n")[2] + NCU, "line 5: the end of a table, and no line above it that begins"),
        (NCU_CSV.replace("(100, 8, 1)", "(1,000, 8, 1)"), r"line 2: '\(1,000, 8, 1\)x.* is no shape of a grid"),
        (METRICS.replace("155832", "155.832"), "line 10: '155.832' is 155832, or it is no whole number"),
        (NCU_CSV.replace("1,234.50", "(1,234.50)"), r"line 2: '\(1,234.50\)' is no value of a counter"),
        (NCU_CSV.replace("gpu__time_duration.sum", "0"), "line 2: '0' is no name of a counter"),
        (NCU_CSV.replace('"us",', ""), "line 2: .* cells where the header names 10"),
        (
            NCU_CSV.replace('"us","1,234.50"', '"1,234.50","us"'),
            "line 2: 'us' 1,234.50 is no value of a counter: a cell is",
        ),
        (
            NCU_CSV.replace('"us","1,234.50"', '"1,234.50",""'),
            "line 2: '1,234.50' is no unit: a cell is lost, or moved",
        ),
        (NCU.replace(", 1)x(16,", ","), "line 3: .* is part of a launch's line"),
        (
            NCU_CSV.replace('int)"', 'int) (25, 6, 16, 1)"'),
            r"line 2: 'conv_forward.int. .25, 6, 16, 1.' is no name of a k",
        ),
        (NVPROF_CSV.replace('"GPU activities",20', '"",20'), "line 5: a row without its Type"),
        (
            NSYS.replace("do_not_remove_this_kernel()", "cudaLaunchKernel"),
            "line 6: .* is none of the kernels that the table",
        ),
        (
            NSYS.replace("do_not_remove_this_kernel()", "[CUDA memset]"),
            "line 6: .* is none of the kernels that the table",
        ),
        (NVPROF.replace("  Name\n", "  Na\n"), "line 3: .* begins as the columns' names do"),
        (METRICS.replace('Device "TITAN V (0)"\n', "", 1), "line 8: a kernel, and no line above it names the device"),
        (NSYS.replace("conv_forward(const float *)", "mxnet::op::forward_ker>"), "line 5: the name .* is cut off"),
        (
            NVPROF.replace("1.0000us  29", "1.00001us  29").replace("2.0000us  29", "2.00001us  29"),
            "line 7: 2000.01 is finer",
        ),
        (NVPROF.replace("3.0000ms", "3.0000us"), "line 4: 2 calls of conv_forward.*, cannot make 8000000"),
        (
            NSYS.replace("4500000.0   4000000", "3500000.0   4000000"),
            "line 5: the median of .* 3500000.0 ns, outside its",
        ),
        (NSYS.replace("9000000", "9'000'000"), "line 5: .9'000'000. has other marks in it than 1,234.5: .* LC_ALL=C"),
        (NSYS.replace("4500000.0", "4'500'000.0"), "line 5: .4'500'000.0. has other marks in it than 1,234.5"),
    ]:
        assert re.search(reason, refusal(text)), refusal(text)


def test_a_reading_that_its_counter_cannot_have_is_refused_with_the_line(read, refusal):
    for changed, words in (
        (NCU.replace("  1.11", " -1.11"), "line 10: GPU Speed Of Light Throughput/Duration cannot be -1.11 ms"),
        (NCU.replace("    ms ", "       "), "line 10: .*/Duration is a time, and its unit is missing"),
        (NCU.replace("  cycle  ", "  warp/  "), "line 9: 'warp/' is no unit"),
        (NCU.replace("  cycle  ", "  warp   "), "line 9: .*/Elapsed Cycles is cycles, and its unit is warp"),
        (NCU_CSV.replace('"us"', '"%"'), "line 2: gpu__time_duration.sum is a time, and its unit is %"),
        (NCU_CSV.replace("1,234.50", "1,234.50e3"), "line 2: '1,234.50e3'"),
        (
            NCU_CSV.replace("gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed").replace(
                '"us"', '"%"'
            ),
            "line 2: dram__throughput.avg.pct_of_peak_sustained_elapsed cannot be 1234.5 %",
        ),
    ):
        assert changed not in (NCU, NCU_CSV)
        assert re.search(words, refusal(changed)), refusal(changed)
    assert {row["unit"] for row in read(NCU_CSV.replace('"us"', '"\u00b5s"')).counters} == {"us"}


def test_a_line_that_says_that_others_were_left_out_is_refused(refusal):
    for text in EACH:
        first, *rest = text.splitlines(keepends=True)
        for mark in (
            "...",
            "    \u2026",
            "[...]",
            "--More--",
            "(12 lines omitted)",
            "<snip>",
            "... 5 more rows not shown ...",
        ):
            assert "says that lines were left out" in refusal("".join([first, f"{mark}\n", *rest])), mark


def test_a_name_that_lost_a_word_is_refused(refusal):
    assert "is neither a copy nor a memset" in refusal(NVPROF.replace("[CUDA memcpy HtoD]", "[CUDA HtoD]"))
    assert "is no name of a kernel" in refusal(NVPROF.replace(CONV, f"{CONV}Loading model"))
    for part in ("Num Calls Calls", "Min Min (ns)", "(ns)"):
        heads = NSYS.replace("Instances", part) if "Calls" in part else NSYS.replace("Min (ns)", part)
        assert "line 3" in refusal(heads) or "line 5" in refusal(heads), part
    row = (
        "     90.0          9000000          2  4500000.0  4500000.0   4000000   5000000     707106.8  conv_forward\n\n"
    )
    assert "line 3: " in refusal(f" ** CUDA Summary (cuda_api_gpu_sum):\n\n{row}{NSYS}")


def test_columns_of_a_table_are_known_by_their_heads(read):
    head, *printed = (line.rsplit(",", 3) for line in AS_CSV[3].splitlines() if '",' in line)
    moved = "\n".join(",".join([line[0], line[3], line[1], line[2]]) for line in [head, *printed])
    assert rows(read(moved)) == rows(read(AS_CSV[3]))
    by_name = "Name,Instances,Total Time (ns),Time (%)\nconv(int),2,9000000,90.0\npool(int),1,1000000,10.0\n"
    assert [(row["name"], row["total_ns"]) for row in rows(read(by_name))] == [
        ("conv(int)", 9_000_000), ("pool(int)", 1_000_000)
    ]  # fmt: skip


def test_blank_lines_between_the_rows_of_a_launch_are_none_of_its_ends(read):
    assert rows(read(NCU.replace("\n", "\n\n"))) == rows(read(NCU))
    sizes = "Total (MB)  Count  Avg (MB)  Min (MB)  Max (MB)  Operation\n\n"
    for name in ("[CUDA memcpy HtoD]", "[CUDA memset]"):
        sizes += f"1722500.0  2  861250.0  722500.0  1000000.0  {name}\n\n"
    assert rows(read(NSYS.replace("\n", "\n\n") + sizes)) == rows(read(NSYS))


def test_csv_is_read_without_the_messages_around_it(read):
    assert rows(read(NVPROF_CSV.partition("\n")[2])) == rows(read(NVPROF_CSV))


def test_launches_and_counters_that_others_show_to_be_missing_are_named(read):
    assert read(NCU_CSV).omissions == ()
    assert read(NCU_CSV.replace('"1","4242"', '"3","4242"')).omissions == ("2 of 4 launches, by their numbers",)
    both = NCU + NCU[NCU.index("  conv_forward") :]
    assert read(both).omissions == ()
    assert read(both.replace("    Duration                         ms         1.11\n", "", 1)).omissions == (
        "1 counters that only other launches have",
    )


def test_csv_that_another_program_wrote_again_is_read(read):
    for edit in [lambda text: text.replace('","', '", "'), lambda text: text.replace('"', "")]:
        for text in (AS_CSV[2], AS_CSV[3]):
            assert rows(read(edit(re.sub(r"\([^()]*,[^()]*\)", "()", text)))) == rows(
                read(re.sub(r"\([^()]*,[^()]*\)", "()", text))
            )


def test_what_the_profiler_warned_of_is_part_of_what_the_profile_is(read):
    lost = "==777== Warning: 3 records have invalid timestamps due to insufficient device buffer space.\n"
    crash = "======== Error: Application received signal 139\n"
    assert read(lost + NVPROF + crash).what == "nvprof console text, with warnings of the profiler (line 1, 10)"
    assert read(NCU + "==ERROR== The application returned an error code (11).\n").what.endswith("profiler (line 13)")


def test_the_section_of_dependencies_is_read_past(read):
    section = "==777== Dependency Analysis:\nCritical path(%)  Critical path  Waiting time  Name\n"
    profile = read(f"{NVPROF}\n{section}          50.00%       4.0000ms         0ns  conv_forward(int)\n")
    assert rows(profile) == rows(read(NVPROF))
    assert profile.omissions == ("the section at line 10",)


def test_a_line_of_one_character_many_times_takes_no_time(read):
    for unit in [" ", "\t", "-", "- ", "*", "1,111", "1", "| "]:
        began = time.process_time()
        for before in ("", "x", "==777== ", "Section: ", "1 a b", "   15.00%  1.5000ms  "):
            for text in ("", METRICS, *EACH):
                lines = text.split("\n")
                lines.insert(len(lines) // 2, before + unit * (100_000 // len(unit)) + "x")
                with contextlib.suppress(UserError):
                    read("\n".join(lines))
        assert time.process_time() - began < 10


# --- reports, devices, kernels -----------------------------------------------------------------------------------


class Metric:
    def __init__(self, value, unit=""):
        self.value, self.unit, self.as_double = lambda: value, lambda: unit, lambda: float(value)


class Action(dict):
    """A kernel of a report, as the package ncu-report gives one."""

    NameBase_DEMANGLED = 1

    def name(self, base):
        assert base == self.NameBase_DEMANGLED
        return "conv_forward(float *)"

    metric_names, metric_by_name = dict.keys, dict.get


def test_a_report_of_ncu_is_read_by_the_package_where_it_is_installed(read, refusal, monkeypatch):
    shape = {f"launch__{part}_dim_{axis}": Metric(2) for part in ("grid", "block") for axis in "xyz"}
    first = Action(
        shape, device__attribute_display_name=Metric("NVIDIA H200"), device__attribute_warp_size=Metric(32),
        gpu__time_duration_sum=Metric(84480.0, "ns"), launch__func_cache_config=Metric("PreferNone"), missing=Metric(None),
    )  # fmt: skip
    package = types.SimpleNamespace(load_report=lambda path: [[first, Action(first, launch__grid_dim_x=Metric(3))]])
    monkeypatch.setitem(sys.modules, "ncu_report", package)
    profile = read(b"NVR\0rest")
    assert (profile.what, profile.device) == ("ncu report (2 launches)", "NVIDIA H200")
    assert profile.omissions == ("1 metrics that are words",)
    named = {(row["launch"], row["metric"]): row for row in profile.counters}
    duration = named[0, "gpu__time_duration_sum"]
    assert (duration["value"], duration["unit"]) == (84480.0, "ns")
    assert duration["kernel"] == "conv_forward(float *) (2, 2, 2)x(2, 2, 2)"
    assert named[0, "missing"]["value"] is None
    assert not any("device__" in metric for _, metric in named)
    package.load_report = lambda path: []
    assert "holds no kernel that ncu-report can read" in refusal(b"NVR\0rest")


def test_devices_that_a_file_names_are_those_of_the_profile(read):
    assert read(NCU).device == read(NCU_CSV).device == "a GPU of compute capability 8.6"
    assert importing.read(DATA / "nvprof_metrics.txt").device == "TITAN V (0)"
    assert importing.read(DATA / "nvprof_metrics.csv").device == "TITAN V (0)"
    assert importing.read(DATA / "nsys_cuda_gpu_trace.csv").device == "NVIDIA H200 (0)"
    raw = NCU_CSV.splitlines()[0].replace(
        '"Metric Name","Metric Unit","Metric Value"', '"device__attribute_display_name","x"'
    )
    row = '"0","4","conv(int)","(1, 1, 1)","(1, 1, 1)","0","9.0","NVIDIA H200","1"'
    assert read(f"{raw}\n{',' * 8}\n{row}\n").device == "NVIDIA H200"


def test_kernels_that_are_none_of_the_variants_are_found(read):
    known = variants.discover()
    assert importing.foreign_kernels(read(NSYS), known["direct"]) == ["do_not_remove_this_kernel"]
    assert importing.foreign_kernels(read(NCU), known["direct"]) == []
    assert importing.foreign_kernels(read(NSYS), known["cudnn_fp32"]) == []


# --- a folder of such files --------------------------------------------------------------------------------------

# What must come of each file: its summaries, counters and events, or why it is refused.
CASES = {
    "r01_*": (0, 0, 3), "r02_*": (0, 4, 0), "r03_*": "ncu --import analysis_file.ncu-rep --csv", "r04*": (2, 0, 0),
    "r06_*": (4, 0, 0), "r07[abdf]*": None, "r07c_*": "iconv -f CP1252", "r07e_*": (0, 4, 0), "r08[ab]_*": (5, 0, 0),
    "r08c_*": "line 8: .*processes 777, 778", "r08d_*": "line 8: .*processes 777, 778", "r08e_*": "--lines 13-18",
    "r09[ad]_*": (5, 0, 0), "r09b_*": (4, 0, 0), "r09c_*": (0, 4, 0), "r10a_*": (5, 0, 0), "r10c_*": (0, 4, 0),
    "r11*": "line [56]|line 9|line 1[23]", "r12*": "line (5|9|1[012]): '", "r13a_*": "--lines 1-14.* --lines 16-29",
    "r13b_*": "--lines 1-13; .*--lines 15-27", "r13d_*": "--lines 1-13; .*--lines 15-28", "r13f_*": "--lines 4-9",
    "r14[abcdfi]_*": None, "r14e_*": "line 1: nsys' report of launches", "r14g_*": "line 1: a header of nsys stats",
    "r16[abci]_*": None, "r16d_*": "source page", "r16[ef]_*": "--lines 1-3", "r16[gh]_*": "line 2: '1.234|line 2: '1,234",
    "r18[abc]_*": None, "r18d_*": "--lines 3-5.*--lines 7-9", "r18e_*": "line 2: print it with nvprof --csv",
    "r19_*": "nsys profile --trace cuda", "r2[01]_*": "is empty|allow counters to all users", "r23_*": (0, 4, 0),
    "r2[45]_*": (5, 0, 0), "r2[678]_*": (4, 0, 0), "r31_*": "gzip that is damaged", "r44_*": (0, 8, 0),
    "r45_*": "saw no kernel", "r47_*": "without --cpu-profiling", "i01_*": (0, 132, 0), "j[12]_*": (2, 0, 0),
    "j[34]_*": "only the table at line", "j5_*": "cuda_gpu_kern_sum", "*_ok.txt": None,
}  # fmt: skip


def test_every_file_of_a_folder_of_others_profiles_is_read_or_refused_as_it_must_be(shared_folder):
    folder = shared_folder / "cases" / "profiles"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: the files stand beside the project, not in it")
    for pattern, expected in CASES.items():
        paths = sorted(folder.glob(pattern))
        assert paths, pattern
        for path in paths:
            try:
                profile = importing.read(path)
            except UserError as error:
                assert isinstance(expected, str) and re.search(expected, str(error)), f"{path.name}: {error}"
                continue
            assert not isinstance(expected, str), path.name
            counts = (len(profile.summaries), len(profile.counters), len(profile.events))
            assert any(counts) if expected is None else counts == expected, path.name
