"""Forms of profiles that course texts and forums show: older tools, other sections, decimal commas."""

import re
import sys
from pathlib import Path

import pytest

import import_profile
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.kernels import variants
from warpbook.profiling import importing, ncu, profile_schema

DATA = PROJECT / "tests" / "data" / "profiles"
STATS_2020 = (DATA / "nsys_2020_profile_stats.txt").read_text()
CPU_PROFILED = (DATA / "nvprof_cpu_profiling.txt").read_text()

NCU_CONSOLE = (DATA / "ncu_console.txt").read_text()
NCU_2020 = (DATA / "ncu_console_2020.txt").read_text()
NCU_SUMMARY = (DATA / "ncu_summary.txt").read_text()
NCU_SUMMARY_CSV = (DATA / "ncu_summary.csv").read_text()
METRICS = (DATA / "nvprof_metrics.txt").read_text()
METRICS_CSV = (DATA / "nvprof_metrics.csv").read_text()


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, (text.count(old), old)
    return text.replace(old, new)


def read(folder: Path, text: str) -> profile_schema.Profile:
    path = folder / "profile.txt"
    path.write_text(text)
    return importing.read(path)


def assert_refused(folder: Path, text: str, reason: str) -> None:
    """A profile of that text is refused with a reason of this pattern."""
    try:
        read(folder, text)
    except UserError as error:
        assert re.search(reason, str(error)), error
    else:
        pytest.fail(f"it is read, and was to be refused: {reason}")


# --- nsys of 2019 to 2021 ----------------------------------------------------------------------------------------


def test_stats_of_a_profile_run_of_2020_are_read_as_those_of_nsys(tmp_path):
    profile = read(tmp_path, STATS_2020)
    assert (profile.what, profile.tool, profile.omissions) == (
        "nsys stats", "nsys", ("the table at line 65", "the table at line 76")
    )  # fmt: skip
    assert [
        (row["share_of"], row["kind"], row["name"], row["total_ns"], row["calls"]) for row in profile.summaries
    ] == [
        ("api", "api_runtime", "cudaMemcpy", 240_861_793, 4),
        ("api", "api_runtime", "cudaMalloc", 151_444_048, 4),
        ("api", "api_runtime", "cudaDeviceSynchronize", 64_134_325, 2),
        ("api", "api_runtime", "cudaLaunchKernel", 1_933_433, 3),
        ("api", "api_runtime", "cudaFree", 1_387_567, 4),
        ("kernels", "kernel", "conv_forward", 64_058_617, 2),
        ("kernels", "kernel", "do_not_remove_this_kernel", 1_344, 1),
        ("copies", "memcpy_dtoh", "[CUDA memcpy DtoH]", 198_816_120, 2),
        ("copies", "memcpy_htod", "[CUDA memcpy HtoD]", 30_912_388, 2),
        ("range", "range", "conv1", 302_114_000, 1),
        ("range", "range", "conv2", 188_002_551, 1),
    ]


def test_the_unit_in_a_caption_is_that_of_its_table_alone(tmp_path):
    text = replaced(STATS_2020, "CUDA API Statistics (nanoseconds)", "CUDA API Statistics (microseconds)")
    totals = {row["name"]: row["total_ns"] for row in read(tmp_path, text).summaries}
    assert (totals["cudaMemcpy"], totals["conv_forward"]) == (240_861_793_000, 64_058_617)


def test_a_table_copied_into_markdown_out_of_line_is_read_by_its_words(tmp_path):
    begin, end = STATS_2020.index("CUDA API Statistics ("), STATS_2020.index("Generating CUDA Kernel")
    lines = STATS_2020[begin:end].rstrip().split("\n")
    moved = [line if n < 4 else " ".join(line.split()) for n, line in enumerate(lines)]
    profile = read(tmp_path, "\n".join(["```", *moved, "```", "", "cudaMemcpy takes 52.4 % of it."]))
    assert [row["total_ns"] for row in profile.summaries][:2] == [240_861_793, 151_444_048]


def test_damaged_stats_of_2020_are_refused_with_their_line(tmp_path):
    for old, new, reason in [
        (
            "CUDA Kernel Statistics (nanoseconds)",
            "CUDA Kernel Statistics (jiffies)",
            "line 49: .* times in 'jiffies'; known",
        ),
        ("   13.9        64134325", "   13.9          641343", "line 37: 2 calls of cudaDeviceSynchronize"),
        ("   52.4       240861793", "   52,4       240861793", "line 35: '52,4' has other marks.* LC_ALL=C"),
        ("   52.4       240861793", " 52,400       240861793", "line 35: '52,400' has other marks"),
        ("60215448.2", "60215448,2", "line 35: '60215448,2' has other marks"),
        ("   32.9       151444048", "   32.9                ", "line 36: 6 cells where the header names 7"),
    ]:
        assert_refused(tmp_path, replaced(STATS_2020, old, new), reason)


def test_stats_of_2020_with_a_row_twice_or_cut_off_are_refused(tmp_path):
    row = next(line for line in STATS_2020.split("\n") if "cudaMalloc" in line) + "\n"
    with pytest.raises(UserError, match=r"line 37: the row of line 36 once more"):
        read(tmp_path, replaced(STATS_2020, row, row * 2))
    with pytest.raises(UserError, match=r"line 35: the shares add up to 52.4 %, not 100 %: the table is cut off"):
        read(tmp_path, STATS_2020[: STATS_2020.index(row)])


# --- nvprof with other sections ----------------------------------------------------------------------------------


def test_the_sections_of_the_cpu_and_of_openacc_are_read_past(tmp_path):
    profile = read(tmp_path, CPU_PROFILED)
    assert [(row["share_of"], row["name"].split("(")[0], row["total_ns"]) for row in profile.summaries] == [
        ("gpu", "conv_forward", 9_000_000),
        ("gpu", "[CUDA memcpy HtoD]", 1_000_000),
        ("api", "cudaMalloc", 30_000_000),
        ("api", "cudaDeviceSynchronize", 10_000_000),
    ]
    assert profile.omissions == ("the section at line 10", "the section at line 13")


def test_what_follows_the_section_of_the_cpu_is_read(tmp_path):
    result, cpu = CPU_PROFILED.split("==4120== Profiling result:")[1].split("======== CPU")
    text = f"======== CPU{cpu}==4120== Profiling result:{result}"
    assert len(read(tmp_path, text).summaries) == 4


def test_the_section_of_the_cpu_is_read_past_in_csv(tmp_path):
    sums = """\
==7== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,ms,ms,ms,
"GPU activities",100.000000,4.000000,2,2.000000,1.000000,3.000000,"conv_forward"

"""
    cpu = """\
======== CPU profiling result (bottom up):
"Time(%)","Time","Name"
%,s,
60.000000,0.600000,"main"
60.000000,0.600000,"main | load"
======== Data collected at 100Hz frequency
"""
    for text in (sums + cpu, cpu + sums):
        profile = read(tmp_path, text)
        assert [row["total_ns"] for row in profile.summaries] == [4_000_000]
        assert len(profile.omissions) == 1


def test_damaged_console_text_is_refused_with_its_line(tmp_path):
    for old, new, reason in [
        ("90.00%", "90,00%", "line 6: '90,00' has other marks"),
        ("9.0000ms", "9,0000ms", "line 6: '9,0000ms' has other marks"),
        ("1.0000ms", "1.0000us", "line 7: 4 calls"),
    ]:
        assert_refused(tmp_path, replaced(CPU_PROFILED, old, new), reason)


# --- decimal commas ----------------------------------------------------------------------------------------------

NCU = """\
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","conv_forward","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","65.77"
"0","conv_forward","smsp__inst_executed.sum","inst","1,234,567"
"0","conv_forward","launch__func_cache_config","","CachePreferNone"
"""


def test_ncu_csv_with_thousands_between_commas_is_read(tmp_path):
    assert [row["value"] for row in read(tmp_path, NCU).counters] == [65.77, 1_234_567]


def test_a_comma_that_is_none_between_thousands_is_refused(tmp_path):
    for old, new, reason in [
        ("65.77", "65,77", "line 2: '65,77' has other marks.* LC_ALL=C"),
        ("65.77", "3.065,77", "line 2: '3.065,77' has other marks"),
        ("65.77", "65,770", "line 2: '65,770' % is 65770 or 65.770"),
        ("1,234,567", "1,234,56", "line 3: '1,234,56' has other marks"),
    ]:
        assert_refused(tmp_path, replaced(NCU, old, new), reason)


def test_a_share_in_the_thousands_is_read_where_ncu_printed_it_for_us(tmp_path):
    (row,) = (one for one in ncu.read_page(NCU.replace("65.77", "65,770").splitlines()).counters if one["unit"] == "%")
    assert row["value"] == 65_770


def test_a_table_that_a_spreadsheet_saved_with_semicolons_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(UserError, match=r"line 1: cells between semicolons.* import the file that the profiler wrote"):
        read(tmp_path, NCU.replace(",", ";").replace("65.77", "65,77"))


def test_a_time_whose_comma_can_be_either_is_refused_where_no_share_tells(tmp_path):
    row = "Time(%)  Time  Calls  Avg  Min  Max  Name\n{}  {}  1  {}  {}  {}  conv_forward\n"
    assert read(tmp_path, row.format("100.0%", *["3728us"] * 4)).summaries[0]["total_ns"] == 3_728_000
    with pytest.raises(UserError, match=r"line 2: '3,728' us is 3728 or 3.728"):
        read(tmp_path, row.format("100%", *["3,728us"] * 4))


def test_a_trace_whose_comma_can_be_either_is_refused(tmp_path):
    trace = "Start (ns),Duration (ns),CorrId,Bytes (MB),Name\n1000,20,1,{},[CUDA memcpy HtoD]\n"
    assert read(tmp_path, trace.format("4.194")).events[0]["bytes"] == 4_194_000
    with pytest.raises(UserError, match=r"line 2: '4,194' MB is 4194 or 4.194"):
        read(tmp_path, trace.format('"4,194"'))


# --- ncu's console text ------------------------------------------------------------------------------------------


def counted(profile: profile_schema.Profile) -> list[tuple]:
    """(launch, kernel's name, metric, unit, value, launches) of each counter."""
    return [
        (row["launch"], row["kernel"].split("(")[0], row["metric"], row["unit"], row["value"], row["launches"])
        for row in profile.counters
    ]


def test_sections_of_the_console_text_are_counters_of_each_launch(tmp_path):
    profile = read(tmp_path, NCU_CONSOLE)
    assert (profile.tool, profile.omissions) == ("ncu", ("1 metrics that are words",))
    rows = counted(profile)
    assert len(rows) == 18
    assert rows[1:4] == [
        (0, "conv_forward", "GPU Speed Of Light Throughput/Elapsed Cycles", "cycle", 1_254_118, None),
        (0, "conv_forward", "GPU Speed Of Light Throughput/Memory Throughput", "%", 45.7, None),
        (0, "conv_forward", "GPU Speed Of Light Throughput/Duration", "us", 712.35, None),
    ]
    assert rows[7:9] == [
        (0, "conv_forward", "Memory Workload Analysis/Memory Throughput", "Gbyte/s", 45.7, None),
        (0, "conv_forward", "Memory Workload Analysis/L2 Hit Rate", "%", None, None),
    ]
    assert rows[12] == (1, "conv_forward", "GPU Speed Of Light Throughput/Duration", "us", 2218.09, None)


def test_console_text_of_2020_is_read_without_heads_of_its_columns(tmp_path):
    assert counted(read(tmp_path, NCU_2020))[:3] == [
        (0, "conv_forward", "GPU Speed Of Light/DRAM Frequency", "cycle/nsecond", 1.21, None),
        (0, "conv_forward", "GPU Speed Of Light/SM Frequency", "cycle/usecond", 874.13, None),
        (0, "conv_forward", "GPU Speed Of Light/Elapsed Cycles", "cycle", 1_018_233, None),
    ]


def test_a_summary_per_kernel_has_three_readings_of_several_launches_and_one_of_one(tmp_path):
    assert counted(read(tmp_path, NCU_SUMMARY)) == [
        (0, "conv_forward", "gpu__time_duration.sum (minimum)", "us", 710.11, 3),
        (0, "conv_forward", "gpu__time_duration.sum (maximum)", "us", 714.02, 3),
        (0, "conv_forward", "gpu__time_duration.sum (average)", "us", 712.35, 3),
        (0, "conv_forward", "smsp__inst_executed.sum (minimum)", "inst", 1_200_144, 3),
        (0, "conv_forward", "smsp__inst_executed.sum (maximum)", "inst", 1_200_144, 3),
        (0, "conv_forward", "smsp__inst_executed.sum (average)", "inst", 1_200_144, 3),
        (1, "pool", "gpu__time_duration.sum", "us", 12.31, 1),
        (1, "pool", "smsp__inst_executed.sum", "inst", 40_112, 1),
    ]


def test_a_wide_row_of_a_summary_is_none_of_another_tools_tables(tmp_path):
    values = ("971,358,128.00", "1,057,132,864.00", "1,019,439,575.60")
    narrow = ("1,200,144", "1,200,144", "1,200,144.00")
    text = NCU_SUMMARY.replace(" ".join(narrow), " ".join(values))
    text = text.replace("--------- --------- ------------", "-------------- ---------------- ----------------")
    text = text.replace("  Minimum   Maximum      Average", "       Minimum          Maximum          Average")
    text = text.replace("   710.11    714.02       712.35", "        710.11           714.02           712.35")
    assert [row[4] for row in counted(read(tmp_path, text))[3:6]] == [971358128, 1057132864, 1019439575.6]


def test_a_summary_as_csv_tells_launches_of_different_grids_apart(tmp_path):
    assert counted(read(tmp_path, NCU_SUMMARY_CSV)) == [
        (0, "conv_forward", "Occupancy/Achieved Occupancy (minimum)", "%", 70.1, 3),
        (0, "conv_forward", "Occupancy/Achieved Occupancy (maximum)", "%", 76.2, 3),
        (0, "conv_forward", "Occupancy/Achieved Occupancy (average)", "%", 74.05, 3),
        (1, "conv_forward", "Occupancy/Achieved Occupancy", "%", 81.0, 1),
        (1, "conv_forward", "dram__bytes_read.sum", "Mbyte", 1204.5, 1),
    ]


def last_line(text: str) -> str:
    return text.rstrip("\n").rsplit("\n", 1)[0] + "\n"


def test_damaged_console_text_of_ncu_is_refused_with_its_line(tmp_path):
    for text, reason in [
        (last_line(NCU_CONSOLE), "line 63: the table that begins here is cut off: no dashes close it"),
        (NCU_CONSOLE.replace("712.35", "712,35"), "line 14: '712,35' has other marks"),
        (replaced(NCU_CONSOLE, "1,254,118", "1.254.118"), "line 12: '1.254.118' is 1254118, or it is no"),
        (re.sub(r"cycle +1,018", "cycle1,018", NCU_2020), "line 8: .* does not stand under"),
        (NCU_2020.replace("1.16", "    "), "line 10: 'Duration .* has no name or no value"),
        (NCU_2020[NCU_2020.index("    Section") :], "line 2: a table without the line of its kernel.* --page raw"),
        (
            replaced(NCU_SUMMARY, "712.35", "812.35"),
            "line 9: the average of gpu__.*, 812.35 us, is outside its 710.11 us",
        ),
        (
            replaced(NCU_SUMMARY, "Minimum   Maximum ", "Minimum   Highest "),
            "line 7: a table of Metric Name.* --page raw",
        ),
        (NCU_SUMMARY_CSV[:-9], "line 5: a quoted cell is not closed"),
        (NCU_SUMMARY_CSV.replace('"Average"', '"Mean"'), "line 2: 0 columns 'Average', not one"),
        (NCU_SUMMARY_CSV.replace('"76.20",', ""), "line 3: 14 cells where the header names 15"),
        (NCU_SUMMARY_CSV.replace('"74.05"', '"74,05"'), "line 3: '74,05' has other marks"),
    ]:
        assert_refused(tmp_path, text, reason)


def test_a_row_of_counters_that_stands_twice_is_refused(tmp_path):
    for text, word in [
        (NCU_2020, "Duration  "), (NCU_SUMMARY, "smsp__inst_exec"), (NCU_SUMMARY_CSV, "dram__bytes_read"),
        (METRICS, "achieved_occupancy"), (METRICS_CSV, "flop_count_sp"),
    ]:  # fmt: skip
        row = next(line for line in text.split("\n") if word in line) + "\n"
        begin = text.index(row)
        assert_refused(
            tmp_path, text[:begin] + row + text[begin:], r"line \d+: a second value of .* a line stands twice"
        )


# --- nvprof's counters -------------------------------------------------------------------------------------------


def test_events_and_metrics_of_nvprof_are_counters_over_the_launches_of_a_kernel(tmp_path):
    profile = read(tmp_path, METRICS)
    assert profile.tool == "nvprof"
    rows = counted(profile)
    assert rows[:6] == [
        (0, "conv_forward", "warps_launched (minimum)", "", 155_832, 2),
        (0, "conv_forward", "warps_launched (maximum)", "", 300_112, 2),
        (0, "conv_forward", "warps_launched (average)", "", 227_972, 2),
        (0, "conv_forward", "achieved_occupancy (minimum)", "", 0.701122, 2),
        (0, "conv_forward", "achieved_occupancy (maximum)", "", 0.812004, 2),
        (0, "conv_forward", "achieved_occupancy (average)", "", 0.756563, 2),
    ]
    assert rows[6][2:5] == ("dram_read_throughput (minimum)", "MB/s", 862.11)
    assert rows[10][2:5] == ("shared_utilization (maximum)", "level of 10", 2)
    assert rows[12:] == [(1, "pool", "gld_efficiency", "%", 87.5, 1)]


RATE = "gst_throughput,Global Store Throughput"


@pytest.mark.parametrize(
    ("launches", "printed", "expected"),
    [
        (3, ("60.942291MB/s", "61.598341MB/s", "60.081482MB/s"), [60.942291, 61.598341, 60.081482]),
        (3, ("954.763672KB/s", "1.746516MB/s", "0.000000B/s"), [954.763672, 1.746516, 0]),
        (3, ("867.000000B/s", "867.000000B/s", "0.000000B/s"), [867, 867, 0]),
        (1, ("2.782542MB/s", "2.782542MB/s", "1.907349MB/s"), [2.782542]),
        (3, ("60.942291MB/s", "61.598341MB/s", "59.081482MB/s"), "line 2: the average of .*, 59.0815 MB/s, is outside"),
        (3, ("1.000000MB/s", "1.000000MB/s", "1.000000GB/s"), "line 2: the average of gst_throughput, 1 GB/s, is outs"),
        (1, ("2.782542MB/s", "2.882542MB/s", "1.907349MB/s"), "line 2: two values of gst_throughput over one launch"),
    ],
)
def test_the_average_of_a_rate_is_cut_off_to_whole_megabytes(tmp_path, launches, printed, expected):
    heads = "Device,Kernel,Invocations,Metric Name,Metric Description,Min,Max,Avg"
    text = f'"{heads.replace(",", chr(34) + "," + chr(34))}"\n"T4 (0)","pool",{launches},{RATE},{",".join(printed)}\n'
    if isinstance(expected, str):
        assert_refused(tmp_path, text, expected)
    else:
        assert [row["value"] for row in read(tmp_path, text).counters] == expected


def test_metrics_of_nvprof_as_csv_are_read_alike(tmp_path):
    rows = counted(read(tmp_path, METRICS_CSV))
    assert rows[2] == (0, "conv_forward", "flop_count_sp (average)", "", 4_171_933_996, 2)
    assert rows[6:] == [(1, "pool", "shared_utilization", "level of 10", 0, 1)]


def test_damaged_counters_of_nvprof_are_refused_with_their_line(tmp_path):
    for text, reason in [
        (METRICS[:-13], "line 20: "),
        (replaced(METRICS, "0.756563", "0,756563"), "line 16: '0,756563' has other marks"),
        (replaced(METRICS, "0.756563", "0.056563"), "line 16: the average of achieved_occupancy, 0.056563, is outside"),
        (
            METRICS.replace("    Kernel: conv", "    Colonel: conv"),
            "line 9: 'Colonel: .*' stands among counters",
        ),
        (replaced(METRICS_CSV, "56.250000%", "56,250000%"), "line 5: 9 cells where the header names 8"),
        (replaced(METRICS_CSV, "5171933996,", ""), "line 4: 7 cells where the header names 8"),
        (replaced(METRICS_CSV, "56.250000%", "56.250000parts"), "line 5: '56.250000parts' is no reading of a counter"),
        ('"Device","Context","Stream","Kernel","Correlation_ID"\n', "line 1: .* without --print-gpu-trace"),
        (
            METRICS + CPU_PROFILED,
            "holds 2 profiles: nvprof's counters, --lines 7-20; nvprof console text, --lines 25-29",
        ),
    ]:
        assert_refused(tmp_path, text, reason)


# --- whose profile it is -----------------------------------------------------------------------------------------

KNOWN = variants.discover()


def kernels(*names: str, block: str = "") -> profile_schema.Profile:
    events = [profile_schema.event("kernel", name, 0, 1, block=block) for name in names]
    return profile_schema.Profile("trace", "nsys", events=events)


def test_a_profile_of_another_variants_kernels_is_noticed():
    for names, block, variant, reason in [
        (["void conv_forward(const float *, int)"], "", "unroll_gemm", ""),
        (["unroll(const float *)", "conv_forward(int)"], "", "direct", r"\(unroll\) are not in direct, but in unroll_"),
        (["conv_6_22_22_16_5(float*)"], "", "direct", r"kernels \(conv_6_22_22_16_5\) .*, but in constant_shapes"),
        (["conv_6_22_22_16_5(float*)"], "", "constant_shapes", ""),
        (["conv_forward(int)"], "", "loop_nest", r"kernels \(conv_forward\) are not in loop_nest, but in .* more"),
        (["conv_forward(int)"], "", "cudnn_fp32", ""),
        (["mxnet::op::forward_kernel(float*)", "void ns::pool<conv_forward>(int)"], "", "direct", ""),
        (["conv_forward(int)"], "16x16x1", "direct", ""),
        (["conv_forward(int)"], "32x32x1", "direct", "blocks of 32x32x1 threads, as block_2d; direct has 16x16x1"),
        (["conv_forward(int)"], "7x7x1", "direct", ""),
    ]:  # fmt: skip
        said = importing.wrong_variant_reason(kernels(*names, block=block), KNOWN[variant], KNOWN)
        assert re.search(reason, said) if reason else said == "", (names, variant)


def test_the_kernels_of_every_variant_with_a_source_are_read_there():
    for variant in KNOWN.values():
        if variant.cuda_source and not variant.read_error:
            assert variant.kernel in importing.expected_kernels(variant), variant.name


def test_the_program_refuses_another_variants_profile_unless_told_to_import_it_anyway(tmp_path, monkeypatch, capsys):
    arguments = [str(DATA / "ncu_console.txt"), "--study", "fa18", "--size", "1000", "--variant", "loop_nest"]
    monkeypatch.setattr(sys, "argv", ["import_profile", *arguments, "--out", str(tmp_path / "out")])
    with pytest.raises(UserError, match=r"kernels \(conv_forward\) are not in loop_nest"):
        import_profile.main()
    assert not (tmp_path / "out").exists()
    sys.argv.append("--force")
    import_profile.main()
    assert capsys.readouterr().err.startswith("warning: ")
    assert (tmp_path / "out" / "fa18" / "loop_nest-1000" / "counters.csv").exists()
