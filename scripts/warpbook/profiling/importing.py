"""Import of existing profiles, from nvprof and Nsight, and whether their kernels are those of the variant named."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from warpbook.common import units
from warpbook.common.errors import UserError
from warpbook.kernels import headers, sources
from warpbook.kernels.launch_inference import cuda_ast, launch_sites
from warpbook.kernels.variants import Variant
from warpbook.profiling import (
    cupti_sqlite,
    ncu,
    ncu_console,
    nsight,
    nvprof,
    nvprof_metrics,
    printed_tables,
    printed_times,
    profile_text,
)
from warpbook.profiling.printed_tables import PrintedRun
from warpbook.profiling.printed_times import KERNEL_SUMS
from warpbook.profiling.profile_schema import Profile, Row, activity_group
from warpbook.runs import tables
from warpbook.runs.schema import Table

_NSYS_REPORT = b"NVIDIA Tegra Profiler Report"
_NCU_REPORT = b"NVR\0"
_SHOWN = 3  # warnings, or variants, that a message names
_PARTS_SHOWN = 20  # profiles of one text
_BINARY = (cupti_sqlite.MAGIC, _NSYS_REPORT, _NCU_REPORT)
KNOWN = (
    "nvprof's console text, CSV (--csv) and SQLite, its --metrics and --events, nsys stats as text or CSV, nsys "
    "SQLite, .nsys-rep, ncu's console text and CSV (--csv --page raw or details, --print-summary per-kernel), .ncu-rep"
)

# What a text is that holds no table of a profile, and what gives one.
_OTHER_TEXTS = (
    (r"==ERROR==.*ERR_NVGPUCTRPERM|Error:.*ERR_NVGPUCTRPERM", "the profiler's refusal: {line}; have an administrator "
     "allow counters to all users (NVreg_RestrictProfilingToAdminUsers=0), and profile again"),
    (r"==PROF== Report: (?:.*/)?(\S+)", "a progress log of ncu; import the report that it names: "
     "`ncu --import {0} --csv --page raw > profile.csv`"),
    (r"======== (?:Warning: )?No CUDA application was profiled|No kernels were profiled|==WARNING== No kernels", "the "
     "log of a run in which the profiler saw no kernel ({line}): profile the program that launches them"),
    (r"SKIPPED: .* does not contain CUDA", "the log of `nsys stats` on a report without CUDA events: "
     "profile again with `nsys profile --trace cuda,nvtx`"),
    (r"CPU profiling result", "nvprof's profile of the CPU alone: profile again without --cpu-profiling, as "
     "`nvprof --csv --log-file profile.csv PROGRAM`"),
    (r"^\s*Start\s+Duration\s+(?:Grid Size|Name)", "an nvprof trace as text, line {number}: print it with nvprof "
     "--csv --print-gpu-trace"),
    (r"ERROR: Report '.*' could not be found", "the log of an `nsys stats` that failed ({line}): ask for the reports "
     f"by their present names, as `{KERNEL_SUMS}`"),
    (r"^\W*Metric Name\W+Metric Unit", f"a table of ncu's metrics, line {{number}}, without the line of its kernel: {ncu_console.REMEDY}"),
    (profile_text.TABLE, "no profile that is read whole: line {number}, {line}, begins a table whose heads or rows are "
     "not understood: a terminal broke its lines, or some are missing; import what the profiler wrote to a file"),
    (r"^\s*-{8,}(?: -{8,}){2}\s*$", f"the end of a table of ncu's, line {{number}}, without the line of its kernel: {ncu_console.REMEDY}"),
    (r"==PROF== (?:Connected|Profiling|Disconnected)", "a progress log of ncu, which names no report: profile again "
     "with `ncu --csv --page raw --log-file profile.csv PROGRAM`"),
    (r"NVPROF is profiling process|==\d+== (?:Profiling|Metric|Event) result", "the beginning of nvprof's output, without a table: profile again with `nvprof "
     "--csv --log-file profile.csv PROGRAM`"),
    (r"Generating .*(?:report|SQLite)|Processing \[|\.(?:nsys-rep|qdrep)\b", "the log of nsys, without a table of "
     f"times: import what `{KERNEL_SUMS}` prints"),
    (r"\b(nvprof|nsys|ncu): (?:command )?not found|(nvprof|nsys|ncu): No such file", "the shell's message: {line}; give "
     "the profiler's whole path, and profile again"),
    (r"=== (?:COMPUTE-SANITIZER|CUDA-MEMCHECK)", "the log of compute-sanitizer, which measures no times: profile the "
     "program with nsys or ncu"),
    (r"={2,8} ?(?:ERROR|Error|Warning)|Importer error status|Analysis failed", "a message of the profiler: {line}"),
)  # fmt: skip
# What a text is that holds a profile in a form of its own, and what gives it as it was printed.
_OTHER_FORMS = (
    (r'\s*+(?:\[\s*+)?\{\s*+"(?:Time|Total|Start)', f"nsys' JSON: import what `{KERNEL_SUMS}` prints"),
    (r'\s*+\{(?s:.*)"traceEvents"', "a trace for Chrome, as PyTorch's profiler writes it: profile with nsys or nvprof"),
    (r'\s*+\{(?s:.*)"cells"', "a notebook that is damaged or of an old format: save the output of one cell as a text, "
     "and import that"),
    (r"""\s*+[\[{]\s*+["'{]""", "JSON: import the text that it holds, as `jq -r .log {0} > {0}.txt` gives it of Docker's "
     "log"),
    (r"(?ms).*^=3D=3D", "a mail's quoted-printable: import what this gives: `python3 -m quopri -d {0} > {0}.txt`"),
)  # fmt: skip
# A line by which somebody says that others stood there.
_LEFT_OUT = re.compile(
    r"\W*(?:\.{3,}|\u2026|-+ ?more ?-+|(?:\d+ )?(?:(?:more|other) )?(?:lines|rows|output|kernels)?(?: \w+)? ?"
    r"(?:snip(?:ped)?|truncated|omitted|skipped|left out|not shown|elided|cut))\W*", re.IGNORECASE
)  # fmt: skip
_LEFT_OUT_LENGTH = 80
_WARNING = re.compile(r"\s*={2,8}\w*={0,8} ?(?:Warning|WARNING|Error|ERROR)\b")
# The header of a table that is no profile of times or counters.
_OTHER_TABLES = (
    (r'"?#"?,"?Address"?,"?Source', "ncu's source page: import the raw page, `ncu --import REPORT --csv --page raw`"),
    (
        r"Count,QCount,TAvg|API Start \(|Start \(\w+\),End \(|NVTX Range,|Range,Style,",
        f"nsys' report of launches, waits or ranges, which is not read: import what `{KERNEL_SUMS}` prints",
    ),
    (r".*<(?:table|thead|tbody|tr|th|td)\b", f"a table as HTML: import what `{KERNEL_SUMS}` prints"),
)


def read(path: Path, lines: tuple[int, int] | None = None) -> Profile:
    """The profile in a file; of a text only `lines`, (first, last). UserError with file, line and reason."""
    origin = str(path)
    if not path.is_file():
        raise UserError(f"{origin} is {'no regular file' if path.exists() else 'not there'}")
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == profile_text.GZIP
    except OSError as error:
        raise UserError(f"{origin} cannot be read: {error.strerror}") from error
    if not packed:
        return _read(path, origin, lines)
    with tempfile.TemporaryDirectory() as scratch:
        unpacked = Path(scratch) / path.stem
        profile_text.unpack(path, unpacked, origin)
        return _read(unpacked, origin, lines)


def _read(path: Path, origin: str, lines: tuple[int, int] | None) -> Profile:
    try:
        with open(path, "rb") as file:
            begin = file.read(64)
            binary = begin.startswith(_BINARY)
            if not binary and path.stat().st_size > profile_text.TEXT_LIMIT_BYTES:
                raise UserError(
                    f"{origin} is text of {path.stat().st_size >> 20} MiB, over the limit of "
                    f"{profile_text.TEXT_LIMIT_BYTES >> 20}: import the profiler's SQLite file instead, which is "
                    "summarised"
                )
            content = b"" if binary else begin + file.read()
    except OSError as error:
        raise UserError(f"{origin} cannot be read: {error.strerror}") from error
    if binary and lines:
        raise UserError(f"{origin} is no text: --lines is of no use for it")
    if begin.startswith(cupti_sqlite.MAGIC):
        return cupti_sqlite.read(path, origin)
    if begin.startswith(_NSYS_REPORT):
        with tempfile.TemporaryDirectory() as scratch:
            exported = Path(scratch) / "report.sqlite"
            nsight.export(path, exported)
            return cupti_sqlite.read(exported, origin)
    if begin.startswith(_NCU_REPORT):
        return nsight.read_counters(path, origin) or _read_lines(
            nsight.raw_page(path).split("\n"), f"ncu's raw page of {origin}", 1
        )
    text = profile_text.decode(content, origin)
    if outputs := profile_text.notebook_outputs(text):
        cell, text = _profiled_cell(outputs, origin)
        origin = f"{origin}, output of cell {cell}"
    elif form := next((what for pattern, what in _OTHER_FORMS if re.match(pattern, text)), ""):
        raise UserError(f"{origin} is {form.format(Path(origin).name)}")
    first, last = lines or (1, None)
    return _read_lines(list(islice(profile_text.split(text), first - 1, last)), origin, first)


def _profiled_cell(outputs: Mapping[int, str], origin: str) -> tuple[int, str]:
    """(number, output) of the only cell of a notebook that printed a profile."""
    cells = [number for number, output in outputs.items() if profile_text.LANDMARK.search(output)]
    if len(cells) != 1:
        held = f"cells {', '.join(map(str, cells))} of it hold profiles" if cells else "no cell of it holds a profile"
        raise UserError(f"{origin} is a notebook, and {held}: save the output of one as a text, and import that")
    return cells[0], outputs[cells[0]]


def _read_lines(lines: list[str], origin: str, first_line: int) -> Profile:
    """The one profile that a text holds. UserError where it holds none, or several, with the lines of each."""
    if not any(map(profile_text.LANDMARK.search, lines)):
        for number, line in enumerate(lines, first_line):
            for pattern, what in _OTHER_TABLES:
                if re.match(pattern, line):
                    raise UserError(f"{origin}, line {number}: {what}")
    printed = lines
    lines = profile_text.without_prefix(lines, origin)
    for number, line in enumerate(lines, first_line):
        if len(line) <= _LEFT_OUT_LENGTH and _LEFT_OUT.fullmatch(line):
            raise UserError(
                f"{origin}, line {number}: {line.strip()[:60]!r} says that lines were left out: import the whole text, "
                "or with --lines FIRST-LAST a part of it that is whole"
            )
    found = printed_tables.find(lines, origin, first_line)
    parts = [
        *printed_times.parts(found, origin),
        *nvprof_metrics.csv_parts(found, origin),
        *ncu.parts(found, origin),
        *nvprof.parts(lines, origin, first_line),
        *nvprof_metrics.text_parts(lines, origin, first_line),
        *ncu_console.parts(lines, origin, first_line),
    ]
    if len(parts) > 1:
        raise _several(parts, printed, origin, first_line)
    if not parts:
        raise _no_profile_error(lines, origin, first_line)
    profile = parts[0].read()
    warned = [str(number) for number, line in enumerate(lines, first_line) if _WARNING.match(line)]
    if not warned:
        return profile
    where = units.join_some(warned, _SHOWN)
    return replace(profile, what=f"{profile.what}, with warnings of the profiler (line {where})")


def _several(parts: Sequence[PrintedRun], lines: list[str], origin: str, first_line: int) -> UserError:
    """The error that names each profile's lines, from which it is read alone, or why it is not."""
    held: list[str] = []
    reasons: list[UserError] = []
    end = first_line - 1  # what lies in another's lines has its own
    for part in sorted(parts, key=lambda part: (part.last, part.first))[:_PARTS_SHOWN]:
        first = max(part.first, end + 1)
        own = lines[first - first_line : part.last - first_line + 1]
        end = part.last
        try:
            if len(own) == len(lines):
                part.read()
            else:
                _read_lines(own, origin, first)
            held.append(f"{part.what}, --lines {first}-{part.last}")
        except UserError as error:
            reasons.append(error)
            held.append(f"lines {first}-{part.last}, refused ({str(error).removeprefix(origin).lstrip(', ')})")
    if len(reasons) == len(held):
        return reasons[0]
    more = f"; and {len(parts) - len(held)} more" if len(parts) > len(held) else ""
    return UserError(f"{origin} holds {len(parts)} profiles: {'; '.join(held)}{more}: import one, by its lines")


def _no_profile_error(lines: Sequence[str], origin: str, first_line: int) -> UserError:
    for pattern, what in _OTHER_TEXTS:
        for number, line in enumerate(lines, first_line):
            if match := re.search(pattern, line):
                words = what.format(*match.groups(), line=repr(line.strip()[:200]), number=number)
                return UserError(f"{origin} is {words}")
    return UserError(f"{origin} holds no profile that is known; known: {KNOWN}")


def combine(
    profiles: Mapping[str, Profile], variant: str, network: str, size: int, layer: str = ""
) -> dict[Table, list[Row]]:
    """The rows of several files about one variant at one size, {table: rows}. Files of one tool complete each other;
    times begin at the first event, ncu's launches are numbered on. UserError where two hold the same thing."""
    seen: dict[tuple[str, ...], str] = {}
    for origin, profile in profiles.items():
        groups = {("events", activity_group(row["kind"])) for row in profile.events}
        groups |= {("sums", row["share_of"]) for row in profile.summaries}
        for what, group in sorted(groups):
            other = seen.setdefault((profile.tool, what, group), origin)
            if other != origin:
                raise UserError(
                    f"{other} and {origin} both hold {profile.tool}'s {what} of {group}: import one, or each as the "
                    "variant and size that it is of"
                )
    place = {"variant": variant, "network": network}
    events: list[Row] = []
    summaries: list[Row] = []
    counters: list[Row] = []
    for tool in sorted({profile.tool for profile in profiles.values()}):
        of_tool = [profile for profile in profiles.values() if profile.tool == tool]
        rows = sorted((row for profile in of_tool for row in profile.events), key=lambda row: row["start_ns"])
        origin_ns = rows[0]["start_ns"] if rows else 0
        for number, row in enumerate(rows):
            times = {"start_ns": row["start_ns"] - origin_ns, "end_ns": row["end_ns"] - origin_ns}
            events.append({"tool": tool, **place, "size": size, "weights": "", "event": number, **row, **times})
        summaries += [{**row, **place, "size": size, "weights": ""} for profile in of_tool for row in profile.summaries]
        before = 0
        for profile in of_tool:
            launches = [row["launch"] for row in profile.counters]
            counters += [
                {
                    "tool": tool,
                    "variant": variant,
                    **tables.place(headers.DEFAULT_PROBLEM, network, layer),
                    "size": size,
                    "launches": None,
                    **row,
                    "launch": row["launch"] + before,
                    "status": "ok",
                    "reason": "",
                }
                for row in profile.counters
            ]
            before += max(launches, default=-1) + 1
    rows_of = {tables.ACTIVITIES: events, tables.SUMMARIES: summaries, tables.COUNTERS: counters}
    return {table: rows for table, rows in rows_of.items() if rows}


def expected_kernels(variant: Variant) -> set[str] | None:
    """Names of the kernels in a variant's source; None where they are not to be read there, as those of a library."""
    if variant.device == "cpu":
        return set()
    if variant.cuda_source is None or launch_sites.defines_kernels_by_macro(variant.code):
        return None
    return set(launch_sites.kernel_definitions(cuda_ast.parse(variant.code))) or None


def foreign_kernels(profile: Profile, variant: Variant) -> list[str]:
    """Names of the profile's kernels that are not in the variant's source; none where that cannot be read."""
    expected = expected_kernels(variant)
    return sorted(_kernels(profile) - expected) if expected else []


def _kernels(profile: Profile) -> set[str]:
    rows = [row for row in [*profile.events, *profile.summaries] if row["kind"] == "kernel"]
    return set(map(sources.plain_name, [*(row["name"] for row in rows), *(row["kernel"] for row in profile.counters)]))


def wrong_variant_reason(profile: Profile, variant: Variant, known: Mapping[str, Variant]) -> str:
    """Why the profile is of another variant, by kernel names, else by threads of a block; else empty."""
    names = _kernels(profile)
    expected = expected_kernels(variant)
    if expected is None:
        return ""
    named = {other.name: expected_kernels(other) or set() for other in known.values()}
    claimed = names & set().union(*named.values())
    if not claimed <= expected:
        others = [name for name, kernels in named.items() if claimed <= kernels]
        if not others and not claimed & expected:
            others = [name for name, kernels in named.items() if claimed & kernels]
        if others:
            strange = ", ".join(sorted(claimed - expected))
            return (
                f"its kernels ({strange}) are not in {variant.name}, but in {units.join_some(sorted(others), _SHOWN)}"
            )
    launched = [row for row in profile.events if sources.plain_name(row["name"]) == "conv_forward"]
    blocks = {row["block"] for row in launched if row["block"]}
    threads = _threads(variant)
    if threads and blocks and threads not in blocks:
        others = [other.name for other in known.values() if _threads(other) in blocks]
        if others:
            held = ", ".join(sorted(blocks))
            alike = units.join_some(sorted(others), _SHOWN)
            return f"its conv_forward has blocks of {held} threads, as {alike}; {variant.name} has {threads}"
    return ""


def _threads(variant: Variant) -> str:
    """The block that a variant's header launches conv_forward with, as events write it; empty where a launcher does."""
    launch = variant.header.launch
    return "x".join(map(str, launch.threads)) if launch and variant.cuda_source and not variant.launcher else ""
