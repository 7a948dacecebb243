"""Import of existing profiles, from nvprof and Nsight: recognised by content, read into rows of one schema."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from warpbook.common.errors import UserError
from warpbook.kernels import headers
from warpbook.profiling import cupti_sqlite, ncu, ncu_console, nsight, nvprof, nvprof_metrics
from warpbook.profiling.profile_schema import Profile, Row, activity_group
from warpbook.runs import tables
from warpbook.runs.schema import Table

TEXT_LIMIT_BYTES = 64 << 20

_NSYS_REPORT = b"NVIDIA Tegra Profiler Report"
_NCU_REPORT = b"NVR\0"
KNOWN = (
    "nvprof's console text, CSV (--csv) and SQLite, its --metrics and --events, nsys stats as text or CSV, nsys "
    "SQLite, .nsys-rep, ncu's console text and CSV (--csv --page raw or details, --print-summary per-kernel), .ncu-rep"
)


def read(path: Path, lines: tuple[int, int] | None = None) -> Profile:
    """The profile in a file; of a text only `lines`, (first, last) from 1, where they are given.

    UserError, naming the file, the line where there is one, and the reason, for whatever is not read whole.
    """
    origin = str(path)
    if not path.is_file():
        raise UserError(f"{origin} is {'no regular file' if path.exists() else 'not there'}")
    try:
        with open(path, "rb") as file:
            begin = file.read(64)
            binary = begin.startswith((cupti_sqlite.MAGIC, _NSYS_REPORT, _NCU_REPORT))
            if not binary and path.stat().st_size > TEXT_LIMIT_BYTES:
                raise UserError(
                    f"{origin} is text of {path.stat().st_size >> 20} MiB, over the limit of {TEXT_LIMIT_BYTES >> 20}: "
                    "import the profiler's SQLite file instead, which is summarised"
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
        return _read_text(nsight.raw_page(path).split("\n"), f"ncu's raw page of {origin}", 1)
    first, last = lines or (1, None)
    chosen = list(islice(_text(content, origin).split("\n"), first - 1, last))
    return _read_text([line.removesuffix("\r") for line in chosen], origin, first)


def _text(content: bytes, origin: str) -> str:
    """The text of a file: UTF-8, or UTF-16 with its mark, as PowerShell's > writes it."""
    if not content.strip():
        raise UserError(f"{origin} is empty")
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in content:
        raise UserError(f"{origin} is binary, of no profiler's known format; known: {KNOWN}")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"{origin}, line {line}: byte {error.start} is not {encoding.removesuffix('-sig')}: the file is cut off, "
            "damaged, or of another encoding; save it as UTF-8"
        ) from error


def _read_text(lines: Sequence[str], origin: str, first_line: int) -> Profile:
    readers = (
        (ncu_console.is_summary_header, ncu_console.read_summary),
        (ncu.is_header, ncu.read_csv),
        (ncu_console.is_console, ncu_console.read_console),
        (nsight.is_stats_header, nsight.read_stats),
        (nvprof.is_csv_header, nvprof.read_csv),
        (nvprof_metrics.is_header, nvprof_metrics.read),
    )
    for number, line in enumerate(lines, first_line):
        for recognised, read_lines in readers:
            if recognised(line):
                return read_lines(lines, origin, first_line)
            if ";" in line and recognised(line.replace(";", ",")):
                raise UserError(
                    f"{origin}, line {number}: cells between semicolons, as a spreadsheet with decimal commas saves "
                    "them: import the file that the profiler wrote"
                )
    profile = nvprof.read_console(lines, origin, first_line)
    if profile:
        return profile
    complaint = next((line for line in lines if re.match(r"==(ERROR|\d+)==\s*(Error|ERR|No kernels)", line)), "")
    said = f"; the profiler said {complaint.strip()[:200]!r}" if complaint else ""
    raise UserError(f"{origin} holds no profile that is known{said}; known: {KNOWN}")


def combine(
    profiles: Mapping[str, Profile], variant: str, network: str, size: int, layer: str = ""
) -> dict[Table, list[Row]]:
    """The rows of several files about one variant at one size, {table: rows}, for the tables that have any.

    Files of one tool can complete each other, as a trace of the GPU and one of the API do; times then begin at the
    first event of either. UserError where two files hold the same thing. ncu's launches are numbered on.
    """
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
        summaries += [{**row, **place, "size": size} for profile in of_tool for row in profile.summaries]
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
