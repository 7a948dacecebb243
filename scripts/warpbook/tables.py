"""Every table of a run: its columns, their types and meanings. Readers and writers go through here.

A row is one observation; units end the column's name. A file that breaks its table's contract is refused with its
name, row and column.
"""

import csv
import gzip
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from warpbook.errors import UserError
from warpbook.files import written_whole

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

DTYPES = ("float64", "int64", "Int64", "bool", "string")


@dataclass(frozen=True)
class Column:
    """A column: `dtype` is float64 (empty: not measured), int64, Int64 (empty: none), bool or string.

    A file from before a `later` column was added may lack it, and is read as though its cells were empty.
    """

    dtype: str
    meaning: str
    later: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """A table of a run: `name` is its file's name, `key` the columns that tell its rows apart.

    A run may lack an `optional` one: it then has no rows.
    """

    name: str
    row: str
    key: tuple[str, ...]
    columns: Mapping[str, Column]
    optional: bool = False

    def write(self, rows: Iterable[Mapping[str, Any]], path: str | Path) -> None:
        """Write rows (dictionaries holding every column) as CSV, gzipped where the path ends in .gz."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        for row in rows:
            if row.keys() != self.columns.keys():  # in any order
                odd = sorted(row.keys() ^ self.columns.keys())
                raise ValueError(f"a row of {self.name} lacks or adds {', '.join(odd)}")
            writer.writerow([_to_text(row[name], column) for name, column in self.columns.items()])
        content = text.getvalue().encode()
        if str(path).endswith(".gz"):
            content = gzip.compress(content, compresslevel=6, mtime=0)
        with written_whole(path) as temporary:
            temporary.write_bytes(content)

    def read(self, source: str | Path | IO[bytes], origin: str | None = None) -> "pd.DataFrame":
        """The table in a file; UserError names the file, row and column of whatever breaks the contract."""
        import pandas as pd

        origin = origin or str(source)
        compression = "gzip" if origin.endswith(".gz") else None
        try:
            frame = pd.read_csv(source, dtype=str, keep_default_na=False, compression=compression)
        except (OSError, EOFError, ValueError) as error:  # pandas' parser errors are ValueErrors
            raise UserError(f"{origin} cannot be read as {self.name}: {error}") from error
        missing = [name for name in self.columns if name not in frame.columns]
        frame[[name for name in missing if self.columns[name].later]] = ""
        missing = [name for name in missing if not self.columns[name].later]
        if missing:
            raise UserError(
                f"{origin} lacks the column {missing[0]!r} of {self.name}; it holds {', '.join(frame.columns)}"
            )
        odd = [name for name in frame.columns if name not in self.columns]
        if odd:
            raise UserError(f"{origin} has a column {odd[0]!r} that {self.name} does not know")
        typed = pd.DataFrame({name: _typed(frame[name], column, origin) for name, column in self.columns.items()})
        doubled = typed.duplicated(list(self.key))
        if doubled.any():
            row = int(doubled.to_numpy().argmax())
            key = ", ".join(f"{name} {typed[name].iloc[row]}" for name in self.key)
            raise UserError(f"{origin}, row {row + 2}: a second row for {key}")
        return typed

    def rows(self, path: str | Path) -> list[dict[str, Any]]:
        """The rows of a small file, without pandas, whose import costs a short program more than its work.

        UserError names the file, row and column of what breaks the contract, as `read` does.
        """
        try:
            with open(path, newline="") as file:
                reader = csv.DictReader(file)
                if set(reader.fieldnames or ()) != set(self.columns):
                    odd = sorted(set(reader.fieldnames or ()) ^ set(self.columns))
                    raise UserError(f"{path} lacks or adds the columns {', '.join(odd)} of {self.name}")
                return [
                    {
                        name: _value(row[name], column, f"{path}, row {number}, column {name}")
                        for name, column in self.columns.items()
                    }
                    for number, row in enumerate(reader, start=2)
                ]
        except (OSError, csv.Error, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read as {self.name}: {error}") from error

    def empty(self) -> "pd.DataFrame":
        """The table without rows."""
        return self.read(io.BytesIO((",".join(self.columns) + "\n").encode()), self.name.removesuffix(".gz"))


def _to_text(value: Any, column: Column) -> str:
    if column.dtype == "float64":
        return "" if value is None or math.isnan(value) else repr(float(value))
    if column.dtype == "bool":
        return "true" if value else "false"
    if column.dtype in ("int64", "Int64"):
        # pandas writes a missing integer as <NA>, whose only honest comparison is by identity of kind
        return "" if value is None or str(value) in ("<NA>", "nan") else str(int(value))
    return "" if value is None else str(value)


def _value(text: str | None, column: Column, place: str) -> Any:
    """A cell's value; None for an empty number."""
    try:
        if text is None:
            raise ValueError
        if column.dtype == "bool":
            return {"true": True, "false": False}[text]
        if column.dtype in ("float64", "Int64") and not text:
            return None
        kinds: dict[str, Any] = {"float64": float, "Int64": int, "int64": int, "string": str}
        return kinds[column.dtype](text)
    except (ValueError, KeyError) as error:
        raise UserError(f"{place}: {text!r} is not {column.dtype}") from error


def _typed(texts: "pd.Series", column: Column, origin: str) -> "pd.Series":
    import pandas as pd

    if column.dtype == "string":
        return texts.astype(object)
    if column.dtype == "bool":
        values = texts.map({"true": True, "false": False})
        wrong = values.isna()
    else:
        values = pd.to_numeric(texts, errors="coerce")
        wrong = values.isna()
        if column.dtype in ("float64", "Int64"):
            wrong &= texts != ""
        if column.dtype in ("int64", "Int64"):
            wrong |= values.notna() & (values % 1 != 0)
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise UserError(f"{origin}, row {row + 2}, column {texts.name}: {texts.iloc[row]!r} is not {column.dtype}")
    return values.astype(column.dtype)


_VARIANT = Column("string", "stem of the kernel's file")
_NETWORK = Column("string", "network whose shapes it is")
_LAYER = Column("string", "convolution layer; empty: the whole network")
_DEVICE = Column("string", "cpu or gpu")
_SIZE = Column("int64", "images in the dataset")
_STATUS = Column(
    "string",
    "ok, or why there is no figure: unsupported, compile_failed, launch_failed, wrong_result, timed_out, refused",
)
_REASON = Column("string", "why the status is not ok, with value, limit and remedy; empty when ok")
_STATE = Column("string", "cold: L2 overwritten before the call; hot: the call repeated on the same buffers")
_KIND = Column("string", "gpu: the kernels on the device; op: the call, synchronised; layer: with host-device copies")

BUILDS = Table(
    "builds.csv",
    "one kernel of one variant for one architecture",
    ("variant", "arch", "kernel"),
    {
        "variant": _VARIANT,
        "arch": Column("string", "architecture built for, as sm_90"),
        "kernel": Column("string", "kernel function; empty when nothing was built"),
        "source_sha256": Column("string", "SHA-256 of what decides the machine code: code, constants, launch"),
        "options": Column("string", "options given to the compiler"),
        "compiler": Column("string", "compiler and its version"),
        "ok": Column("bool", "whether it was built"),
        "registers": Column("Int64", "registers of a thread"),
        "shared_bytes": Column("Int64", "static shared memory of a block"),
        "local_bytes": Column("Int64", "local memory (stack frame) of a thread"),
        "spill_bytes": Column("Int64", "bytes that a thread spills to local memory, stores and loads together"),
        "log": Column("string", "the compiler's words where it complained"),
    },
)

CORRECTNESS = Table(
    "correctness.csv",
    "one test of one variant on one layer, or on the whole network, at one size",
    ("variant", "network", "layer", "device", "size", "test"),
    {
        "variant": _VARIANT,
        "network": _NETWORK,
        "layer": _LAYER,
        "device": _DEVICE,
        "size": _SIZE,
        "test": Column("string", "integers: exact on small integers; reals: within tolerance; labels: real images"),
        "reference": Column("string", "what it was compared with"),
        "max_abs_err": Column("float64", "largest absolute error of an output"),
        "rel_l2_err": Column("float64", "norm of the error over norm of the reference"),
        "tolerance": Column("float64", "largest error allowed where the sum of |x||w| is largest"),
        "worst_ratio": Column("float64", "largest error over the tolerance of its own output; at most 1 passes"),
        "mismatched_labels": Column("Int64", "images whose predicted label differs from the reference's"),
        "ok": Column("bool", "whether the test passed"),
        "status": _STATUS,
        "reason": _REASON,
    },
)

SAMPLES = Table(
    "samples.csv.gz",
    "one timing sample",
    ("job", "variant", "network", "layer", "device", "size", "state", "kind", "sample"),
    {
        "job": Column("string", "variant whose job took the sample; again:variant:n, the nth time beside its own copy"),
        "variant": _VARIANT,
        "network": _NETWORK,
        "layer": _LAYER,
        "device": _DEVICE,
        "size": _SIZE,
        "state": _STATE,
        "kind": _KIND,
        "sample": Column("int64", "round in which it was taken: samples of one job and round are a pair"),
        "time_ms": Column("float64", "the time; empty when the status is not ok"),
        "sm_clock_mhz": Column("float64", "SM clock read after the round; empty on a CPU"),
        "throttled": Column("bool", "a slowdown was active in the round: kept, left out of summaries"),
        "stop_reason": Column("string", "why the series ended: precise, time or samples"),
        "status": _STATUS,
        "reason": _REASON,
    },
)

OP_TIMES = Table(
    "op_times.csv",
    "the summary of one series of samples",
    ("variant", "network", "layer", "device", "size", "state", "kind"),
    {
        "variant": _VARIANT,
        "network": _NETWORK,
        "layer": _LAYER,
        "device": _DEVICE,
        "size": _SIZE,
        "state": _STATE,
        "kind": _KIND,
        "n": Column("int64", "samples summarised"),
        "median_ms": Column("float64", "median time"),
        "ci_low_ms": Column("float64", "lower end of its 95 % interval; empty for fewer than 2 samples"),
        "ci_high_ms": Column("float64", "upper end of its 95 % interval"),
        "throttled_count": Column("int64", "samples left out because a slowdown was active"),
        "bound_ms": Column("float64", "hardware's lower bound for the layer; empty where none was measured"),
        "stop_reason": Column("string", "why the series ended: precise, time or samples"),
        "status": _STATUS,
        "reason": _REASON,
    },
)

PROGRAMS = Table(
    "programs.csv",
    "one run of the whole inference program",
    ("variant", "network", "weights", "device", "size", "run"),
    {
        "variant": _VARIANT,
        "network": _NETWORK,
        "weights": Column("string", "weight set"),
        "device": _DEVICE,
        "size": _SIZE,
        "run": Column("int64", "number of the run, from 0"),
        "user_s": Column("float64", "user CPU time of the process"),
        "system_s": Column("float64", "system CPU time of the process"),
        "elapsed_s": Column("float64", "wall time of the process"),
        "max_rss_kib": Column("Int64", "peak resident memory of the process"),
        "accuracy": Column("float64", "share of images whose label was predicted, 0 to 1"),
        "output": Column("string", "what the program printed"),
        "status": _STATUS,
        "reason": _REASON,
    },
)

ACTIVITIES = Table(
    "activities.csv.gz",
    "one traced event of one profiled program",
    ("tool", "variant", "network", "size", "event"),
    {
        "tool": Column("string", "profiler that saw it"),
        "variant": _VARIANT,
        "network": _NETWORK,
        "size": _SIZE,
        "event": Column("int64", "number of the event in its program, from 0 in order of start"),
        "kind": Column(
            "string",
            "kernel, memcpy_htod, memcpy_dtoh, memcpy_dtod, memset, api_runtime, api_driver, or range (of NVTX)",
        ),
        "name": Column("string", "the profiler's name for it"),
        "start_ns": Column("int64", "start, from the program's first event"),
        "end_ns": Column("int64", "end, on the same clock"),
        "stream": Column("Int64", "CUDA stream"),
        "correlation": Column("Int64", "number that an API call shares with the work it started"),
        "grid": Column("string", "blocks of the grid, as 5x6x100"),
        "block": Column("string", "threads of a block"),
        "registers": Column("Int64", "registers of a thread"),
        "shared_bytes": Column("Int64", "shared memory of a block, static and dynamic"),
        "bytes": Column("Int64", "bytes copied or set"),
    },
)

PROFILES = Table(
    "profiles.csv",
    "one program that a profiler watched",
    ("tool", "variant", "network", "size"),
    {
        "tool": Column("string", "profiler: cupti, nsys or nvprof"),
        "variant": _VARIANT,
        "network": _NETWORK,
        "size": _SIZE,
        "events": Column("int64", "events that it saw; 0 where there is no profile"),
        "elapsed_s": Column("float64", "wall time of the profiler's command, the program within; no timing"),
        "output": Column("string", "what the program printed"),
        "report": Column("string", "the profiler's own file, in the run's profiles; empty where it writes none"),
        "status": _STATUS,
        "reason": _REASON,
    },
    optional=True,
)

COUNTERS = Table(
    "counters.csv",
    "one hardware counter of one kernel launch; or, with status and reason, a layer that was not counted",
    ("tool", "variant", "network", "layer", "size", "launch", "metric"),
    {
        "tool": Column("string", "profiler that read it"),
        "variant": _VARIANT,
        "network": _NETWORK,
        "layer": _LAYER,
        "size": Column("int64", "images of the call that was counted", later=True),
        "launch": Column("int64", "number of the launch in the layer, from 0"),
        "kernel": Column("string", "the profiler's name for the kernel; empty when nothing was counted", later=True),
        "metric": Column("string", "the profiler's name for the counter; empty when nothing was counted"),
        "unit": Column("string", "the profiler's unit"),
        "value": Column("float64", "the reading; empty where the profiler gave none"),
        "launches": Column(
            "Int64", "launches of the whole call, of which only the first may be counted; empty: unknown", later=True
        ),
        "status": replace(_STATUS, later=True),
        "reason": replace(_REASON, later=True),
    },
)

SUMMARIES = Table(
    "profile_summaries.csv",
    "one line of a profile that holds sums, not events",
    ("tool", "variant", "network", "size", "share_of", "row"),
    {
        "tool": Column("string", "profiler that printed it"),
        "variant": _VARIANT,
        "network": _NETWORK,
        "size": _SIZE,
        "share_of": Column(
            "string",
            "what the shares are of: gpu (kernels, copies and sets), kernels, copies (and sets), api or range",
        ),
        "row": Column("int64", "place in the profiler's table, from 0: names can be alike"),
        "kind": Column("string", "as in activities"),
        "name": Column("string", "the profiler's name for it"),
        "share_percent": Column("float64", "its share of the time, 0 to 100; empty where printed as less than a bound"),
        "total_ns": Column("int64", "time of all calls, to the digits printed"),
        "calls": Column("Int64", "number of calls; this and what follows is empty where the file has lost it"),
        "avg_ns": Column("float64", "mean time of a call"),
        "min_ns": Column("Int64", "shortest call"),
        "max_ns": Column("Int64", "longest call"),
    },
)
"""Not among RUN_TABLES: sums are imported from elsewhere, a run of this project keeps the events."""

SANITIZER = Table(
    "sanitizer.csv",
    "one tool of NVIDIA's compute-sanitizer over one variant: every network's layers and ragged shapes, few images",
    ("variant", "tool"),
    {
        "variant": _VARIANT,
        "tool": Column("string", "memcheck, racecheck, initcheck or synccheck"),
        "version": Column("string", "the tool's own words on its version"),
        "errors": Column("Int64", "errors that the tool counts; empty where it did not run"),
        "status": _STATUS,
        "reason": Column("string", "the tool's first words where it found something, or why it did not run"),
    },
    optional=True,
)

ATTACKS = Table(
    "attacks.csv",
    "one cheating or broken kernel that the harness was tried with",
    ("attack", "device"),
    {
        "attack": Column("string", "what the kernel does"),
        "device": Column("string", "gpu, or emulator: the kernel's source on the CPU"),
        "caught": Column("bool", "whether a check failed it, as one must"),
        "status": _STATUS,
        "reason": Column("string", "the words of the check that caught it"),
    },
    optional=True,
)

SWEEP = Table(
    "sweep.csv",
    "one configuration of a tunable variant, as Kernel Tuner timed it on one layer",
    ("variant", "network", "layer", "size", "configuration"),
    {
        "variant": _VARIANT,
        "network": _NETWORK,
        "layer": _LAYER,
        "size": _SIZE,
        "configuration": Column("string", "the constants, as BLOCK_X=32 BLOCK_Y=4"),
        "tool": Column("string", "the tuner and its version"),
        "time_ms": Column("float64", "mean kernel time of its iterations; empty where it did not run"),
        "n": Column("int64", "iterations"),
        "status": _STATUS,
        "reason": _REASON,
    },
    optional=True,
)

NOT_RUN: dict[str, Any] = {
    "user_s": None, "system_s": None, "elapsed_s": None, "max_rss_kib": None, "accuracy": None, "output": "",
}  # fmt: skip
"""Columns of PROGRAMS for a program that was not run."""


def failure(correctness: Iterable[Mapping[str, Any]]) -> dict[str, str] | None:
    """status and reason of the first test that failed in rows of CORRECTNESS; None where a variant may be measured.

    A layer that the variant does not support is no failure of it.
    """
    for row in correctness:
        if not row["ok"] and row["status"] != "unsupported":
            return {"status": row["status"], "reason": row["reason"]}
    return None


RUN_TABLES = (
    BUILDS, CORRECTNESS, SAMPLES, OP_TIMES, PROGRAMS, PROFILES, ACTIVITIES, COUNTERS, SANITIZER, ATTACKS, SWEEP,
)  # fmt: skip


def shared_columns() -> dict[str, Column]:
    """Columns that two tables or more have with the same meaning."""
    every = [item for table in RUN_TABLES for item in table.columns.items()]
    return {name: column for name, column in every if every.count((name, column)) > 1}
