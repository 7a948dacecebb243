"""SQLite files that hold CUPTI's activities: nvprof's and nvvp's, and Nsight Systems' exports, old and new. Both have
tables CUPTI_ACTIVITY_KIND_*; nvprof keeps names in StringTable and API calls as CUPTI's callback numbers, Nsight
Systems keeps all names in StringIds."""

import ctypes
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from warpbook.common.errors import UserError
from warpbook.profiling import profile_schema
from warpbook.profiling.profile_schema import Profile, Row

Label = Any  # a cell of SQLite, in a damaged file of any type

MAGIC = b"SQLite format 3\0"
TIMEOUT_S = 300
NAME_BYTES, NAMES_BYTES = 1 << 20, 64 << 20  # of one name, of all; the longest template's is some 10 KiB

_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 11: "HtoD", 12: "DtoH", 13: "DtoD"}  # 11 to 13: unified memory
# The casts keep a damaged file's words out of columns of integers.
_CALL = {"correlation": "CAST(correlationId AS INTEGER)"}
_WORK = {**_CALL, "stream": "CAST(streamId AS INTEGER)"}
_COPY = {**_WORK, "bytes": "CAST(bytes AS INTEGER)"}
_KERNEL = {
    **_WORK,
    "grid": "printf('%dx%dx%d', gridX, gridY, gridZ)",
    "block": "printf('%dx%dx%d', blockX, blockY, blockZ)",
    "registers": "CAST(registersPerThread AS INTEGER)",
    "shared_bytes": "CAST(staticSharedMemory + dynamicSharedMemory AS INTEGER)",
    "static_shared_bytes": "CAST(staticSharedMemory AS INTEGER)",
}


@dataclass(frozen=True)
class _Source:
    """A table of events: `label` tells what an event is, for which `known` gives (kind, name); `details` are columns of
    ACTIVITIES. Times are ns; `where` leaves out rows that are no whole event."""

    table: str
    label: str
    known: Callable[[Label], tuple[str, str]]
    details: dict[str, str]
    where: str = "1"
    start: str = "start"
    end: str = "[end]"  # in brackets, a word of SQL is a column and never a text
    rows: str = ""

    @property
    def query(self) -> str:
        # CUPTI gives a start and an end of 0 to what it had no room to time
        return f"FROM {self.rows or self.table} WHERE ({self.where}) AND NOT ({self.start} = 0 AND {self.end} = 0)"


def _copy_label(label: Label) -> tuple[str, str]:
    direction = _COPY_KINDS.get(label, "")
    name = f"[CUDA memcpy {direction}]" if direction else "[CUDA memcpy]"
    return profile_schema.activity_kind(name, api=False), name


@cache
def demangle(name: str) -> str:
    """A C++ symbol as it was written; the name itself where it is none, or where no C++ library is at hand."""
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name
    library.__cxa_demangle.restype = ctypes.c_void_p
    text = library.__cxa_demangle(name.encode(errors="replace"), None, None, None)
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


@cache
def _callbacks() -> dict[tuple[str, int], str]:
    """Names of API functions by API, runtime or driver, and CUPTI's number."""
    text = Path(__file__).with_name("cupti_callbacks.txt").read_text()
    calls = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {(api, int(number)): name for api, number, name in calls}


def _call_label(api: str) -> Callable[[Label], tuple[str, str]]:
    return lambda label: (f"api_{api}", _callbacks().get((api, label), f"{api} API call {label}"))


def _named(kind: str, strings: dict[int, str]) -> Callable[[Label], tuple[str, str]]:
    return lambda label: (kind, profile_schema.clean(demangle(strings.get(label, ""))) or f"{kind} {label}")


def _nvprof_sources(strings: dict[int, str]) -> list[_Source]:
    kernel = _named("kernel", strings)
    # A range is two markers of one id, its start (flag 2) with a name and its end (flag 4) without.
    markers = (
        "(SELECT a.name, a.timestamp AS start, b.timestamp AS stop FROM CUPTI_ACTIVITY_KIND_MARKER AS a "
        "JOIN CUPTI_ACTIVITY_KIND_MARKER AS b ON a.id = b.id WHERE a.flags & 2 AND b.flags & 4)"
    )
    return [
        _Source("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "name", kernel, _KERNEL),
        _Source("CUPTI_ACTIVITY_KIND_KERNEL", "name", kernel, _KERNEL),
        _Source("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", _copy_label, _COPY),
        _Source("CUPTI_ACTIVITY_KIND_MEMCPY2", "copyKind", _copy_label, _COPY),
        _Source("CUPTI_ACTIVITY_KIND_MEMSET", "1", lambda _: ("memset", "[CUDA memset]"), _COPY),
        _Source("CUPTI_ACTIVITY_KIND_RUNTIME", "cbid", _call_label("runtime"), _CALL),
        _Source("CUPTI_ACTIVITY_KIND_DRIVER", "cbid", _call_label("driver"), _CALL),
        _Source("CUPTI_ACTIVITY_KIND_MARKER", "name", _named("range", strings), {}, end="stop", rows=markers),
    ]


def _nsys_sources(strings: dict[int, str]) -> list[_Source]:
    def call_label(label: Label) -> tuple[str, str]:
        name = profile_schema.clean(strings.get(label, "")) or f"call {label}"
        return profile_schema.activity_kind(name, api=True), name

    def range_label(label: Label) -> tuple[str, str]:
        text = strings.get(label, "") if isinstance(label, int) else str(label or "")
        return "range", profile_schema.clean(text) or "unnamed range"

    # 59, 60: pushed and popped, started and ended; 70, 71: the same through the older library
    ranges = "[end] IS NOT NULL AND eventType IN (59, 60, 70, 71)"
    return [
        _Source("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName", _named("kernel", strings), _KERNEL),
        _Source("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", _copy_label, _COPY),
        _Source("CUPTI_ACTIVITY_KIND_MEMSET", "1", lambda _: ("memset", "[CUDA memset]"), _COPY),
        _Source("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId", call_label, _CALL),
        _Source("NVTX_EVENTS", "coalesce(text, textId)", range_label, {}, where=ranges),
    ]


@dataclass(frozen=True)
class _Tool:
    name: str
    what: str
    strings: str
    sources: Callable[[dict[int, str]], list[_Source]]
    remedy: str


_TOOLS = {
    "StringTable": _Tool(
        "nvprof", "nvprof SQLite", "SELECT _id_, value FROM StringTable", _nvprof_sources,
        "print the file with nvprof --csv --print-gpu-trace -i FILE, and import that",
    ),
    "StringIds": _Tool(
        "nsys", "nsys SQLite", "SELECT id, value FROM StringIds", _nsys_sources,
        "export the report again with a newer nsys: nsys export --type sqlite",
    ),
}  # fmt: skip


def read(path: Path, origin: str) -> Profile:
    """An SQLite file's events, or sums where more than EVENTS_AT_MOST. UserError for damage or an unknown schema."""
    try:
        # immutable: nothing is written beside the file, not even a lock
        database = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
        with closing(database):
            deadline = time.monotonic() + TIMEOUT_S
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, NAME_BYTES)
            database.set_progress_handler(lambda: time.monotonic() > deadline, 1_000_000)
            database.text_factory = lambda content: content.decode(errors="replace")
            return _read(database, origin)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # sqlite3 decodes the names of columns itself
        raise UserError(f"{origin} is damaged, or no SQLite file: {error}") from error


def _read(database: sqlite3.Connection, origin: str) -> Profile:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    tool = next((tool for table, tool in _TOOLS.items() if table in tables), None)
    if tool is None:
        raise UserError(
            f"{origin} is SQLite, but of no profiler known: it holds {', '.join(sorted(tables)[:5]) or 'no tables'}; "
            "nvprof's have StringTable, nsys' have StringIds"
        )
    (size,) = database.execute(f"SELECT total(length(value)) FROM ({tool.strings})").fetchone()
    if size > NAMES_BYTES:
        raise UserError(f"{origin} holds {size:.0f} bytes of names, more than the {NAMES_BYTES} that are read")
    strings = dict(database.execute(tool.strings))
    if not all(isinstance(text, str) for text in strings.values()):
        raise UserError(f"{origin}: a name in it is no text; {tool.remedy}")
    sources = [
        _check_source(database, source, tool, origin) for source in tool.sources(strings) if source.table in tables
    ]
    counts = [database.execute(f"SELECT count(*) {source.query}").fetchone()[0] for source in sources]
    if not sum(counts):
        raise UserError(f"{origin} is {tool.what} without kernels, copies, API calls or ranges")
    events = (row for source in sources for row in _events(database, source))
    device = _device(database, tables)
    if sum(counts) <= profile_schema.EVENTS_AT_MOST:
        return Profile(tool.what, tool.name, list(events), device=device)
    title = profile_schema.summary_title(tool.what, sum(counts))
    return Profile(title, tool.name, summaries=profile_schema.sums(tool.name, events), device=device)


def _device(database: sqlite3.Connection, tables: set[str]) -> str:
    """The names of the GPUs in an export of Nsight Systems; empty where it has none."""
    table = next((table for table in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU") if table in tables), "")
    columns = {row[1] for row in database.execute(f"PRAGMA table_info([{table}])")} if table else set()
    if "name" not in columns:
        return ""
    names = database.execute(f"SELECT DISTINCT name FROM [{table}]").fetchmany(8)
    return ", ".join(profile_schema.clean(name) for (name,) in names if isinstance(name, str))


def _check_source(database: sqlite3.Connection, source: _Source, tool: _Tool, origin: str) -> _Source:
    """The source without the details that its table lacks, once every event is known to end after its start."""

    def has_columns(expression: str) -> bool:
        try:
            database.execute(f"SELECT {expression} {source.query} LIMIT 0")
        except sqlite3.OperationalError as error:
            if not str(error).startswith("no such column"):
                raise
            return False
        return True

    details = {key: of for key, of in source.details.items() if has_columns(of)}
    try:
        length = f"typeof({source.start}) = 'integer' AND typeof({source.end}) = 'integer'"
        length += f" AND {source.end} >= {source.start} AND {source.end} - {source.start} < {2**53}"
        amounts = "".join(f" AND coalesce({of}, 0) >= 0" for of in details.values() if of.startswith("CAST"))
        wrong = database.execute(f"SELECT {source.label} {source.query} AND NOT ({length}{amounts}) LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        if not str(error).startswith("no such column"):
            raise
        raise UserError(f"{origin}: {source.table}: {error}; {tool.remedy}") from error
    if wrong:
        name = source.known(wrong[0])[1]
        raise UserError(
            f"{origin}: {source.table}: an event of {name[:80]} has no times, ends before its start, or has a negative size"
        )
    return replace(source, details=details)


def _events(database: sqlite3.Connection, source: _Source) -> Iterator[Row]:
    known = cache(source.known)
    details = source.details.values()
    chosen = ", ".join([source.label, source.start, source.end, *details])
    for label, start, end, *values in database.execute(f"SELECT {chosen} {source.query}"):
        yield profile_schema.event(*known(label), start, end, **dict(zip(source.details, values, strict=True)))
