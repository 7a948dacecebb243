"""A table of a run: typed columns with ranges, in a CSV file that is checked when written and when read. A file that
breaks its table's contract is refused with its name, row and column."""

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from warpbook.common.errors import UserError
from warpbook.common.files import atomic_write

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

DTYPES = ("float64", "int64", "Int64", "bool", "string")

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_REAL = re.compile(r"-?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?", re.IGNORECASE)
TEXT_BYTES, ROWS = 128 << 20, 2_000_000  # the longest tables of a run hold a quarter of these

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
"""What a spreadsheet takes for the beginning of a formula, behind the marks of `formula_safe`."""

csv.field_size_limit(1 << 24)  # a program's output or a compiler's log can be longer than csv's 128 KiB


def formula_safe(text: str) -> str:
    """A cell's text, after an apostrophe where a spreadsheet would run it or `without_mark` would take one away."""
    return f"'{text}" if _FORMULA.match(text) else text


def without_mark(text: str) -> str:
    """The text that `formula_safe` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text, 1) else text


def for_spreadsheets(content: bytes) -> bytes:
    """A CSV file's content in which no cell but a number can be taken for a formula."""
    lines: list[str] = []
    # Only a writer that ends lines in "\r\n" puts a cell with "\r" in quotes. Without them, it would be two rows.
    out = SimpleNamespace(write=lambda line: lines.append(f"{line[:-2]}\n"))
    csv.writer(out, lineterminator="\r\n").writerows(
        [cell if _REAL.fullmatch(cell) else formula_safe(cell) for cell in row]
        for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    )
    return "".join(lines).encode()


@dataclass(frozen=True)
class Range:
    """What a number may be: from `least` to `most`; `least` itself left out where `open`."""

    least: float = -math.inf
    most: float = math.inf
    open: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.least < value if self.open else self.least <= value) and value <= self.most

    def __str__(self) -> str:
        if self.open:
            return f"above {self.least:g}"
        return f"{self.least:g} or more" if self.most == math.inf else f"{self.least:g} to {self.most:g}"


ANY = Range()
COUNT = Range(0)
POSITIVE = Range(0, open=True)
TIME_MS = Range(1e-6, 1e10)  # from a nanosecond to some months: no sample takes less, and nobody waits for more


@dataclass(frozen=True)
class Column:
    """A column: `dtype` is float64 (empty: not measured), int64, Int64 (empty: none), bool or string.

    A file from before a `later` column was added may lack it, and is read as though its cells were empty. A `needed`
    number is not empty in a row whose status is ok. A text of more than `most` characters is cut when written and
    refused when read: a page would take hours to be laid out.
    """

    dtype: str
    meaning: str
    range: Range = ANY
    later: bool = False
    needed: bool = False
    most: float = math.inf

    def text(self, value: Any) -> str:
        """A value as its cell's text."""
        if self.dtype == "bool":
            return "true" if value else "false"
        # pandas has <NA> for a missing integer, which compares equal to nothing
        if value is None or (str(value) in ("<NA>", "nan") and self.dtype != "string"):
            return ""
        if self.dtype == "float64":
            return repr(float(value))
        if self.dtype in ("int64", "Int64"):
            return str(int(value))
        text = str(value).replace("\r\n", "\n").replace("\r", "\n")  # a CSV reader ends the row at a lone \r
        return text if len(text) <= self.most else text[: int(self.most) - 1] + "\N{HORIZONTAL ELLIPSIS}"

    def value(self, text: str) -> Any:
        """A cell's value, None for an empty number; ValueError says what the text is not."""
        if self.dtype == "string":
            if len(text) > self.most:
                raise ValueError(f"has {len(text):,} characters, more than {self.most:,}")
            return text
        if self.dtype == "bool":
            if text not in ("true", "false"):
                raise ValueError("is not bool")
            return text == "true"
        if not text and self.dtype != "int64":
            return None
        if not (_REAL if self.dtype == "float64" else _INTEGER).fullmatch(text):
            raise ValueError(f"is not {self.dtype}")
        value = float(text) if self.dtype == "float64" else int(text)
        if abs(value) == math.inf or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            raise ValueError(f"is beyond {self.dtype}")
        if value not in self.range:
            raise ValueError(f"is not {self.range}")
        return value


text, flag = partial(Column, "string"), partial(Column, "bool")
real, whole, whole_or_none = (partial(Column, dtype) for dtype in ("float64", "int64", "Int64"))


@dataclass(frozen=True, eq=False)
class Table:
    """A table of a run: `name` is its file's name, `key` the columns that tell its rows apart. Each row's values of the
    `ascending` columns never fall. A run may lack an `optional` table: it then has no rows. Texts of one `for_people`
    are written so that a spreadsheet runs none, and read as they were."""

    name: str
    row: str
    key: tuple[str, ...]
    columns: Mapping[str, Column]
    optional: bool = False
    ascending: tuple[str, ...] = ()
    for_people: bool = False

    def write(self, rows: Iterable[Mapping[Any, Any]], path: str | Path) -> None:
        """Write rows (dictionaries holding every column) as CSV, gzipped where the path ends in .gz. UserError names
        row and column of a value that could not be read again."""
        content = self.text(rows, str(path)).encode()
        if str(path).endswith(".gz"):
            content = gzip.compress(content, compresslevel=6, mtime=0)
        with atomic_write(path) as temporary:
            temporary.write_bytes(content)

    def text(self, rows: Iterable[Mapping[Any, Any]], origin: str) -> str:
        """Rows as the CSV that `write` writes, checked alike."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        for row in rows:
            if row.keys() != self.columns.keys():  # in any order
                odd = sorted(row.keys() ^ self.columns.keys())
                raise ValueError(f"a row of {self.name} lacks or adds {', '.join(odd)}")
            writer.writerow([self._cell(column, row[name]) for name, column in self.columns.items()])
        text.seek(0)
        self._values(text, origin)
        return text.getvalue()

    def _cell(self, column: Column, value: Any) -> str:
        text = column.text(value)
        return formula_safe(text) if self.for_people and column.dtype == "string" else text

    def read(self, source: str | Path | IO[bytes], origin: str | None = None) -> "pd.DataFrame":
        """The table in a file. UserError names the file, row and column that break the contract."""
        import pandas as pd

        values = self._read_columns(source, origin or str(source))
        return pd.DataFrame({name: pd.Series(values[name], dtype=dtype) for name, dtype in self._dtypes.items()})

    def read_checked(self, content: bytes) -> "pd.DataFrame":
        """The same of a file's content that `read` has found in order, without a check: in a tenth of the time."""
        import pandas as pd

        empty = {name: [""] for name, column in self.columns.items() if column.dtype in ("float64", "Int64")}
        text = io.BytesIO(gzip.decompress(content) if self.name.endswith(".gz") else content)
        names = next(csv.reader([text.readline().decode("utf-8-sig")]))
        held = pd.read_csv(text, header=None, names=names, dtype=self._dtypes, keep_default_na=False, na_values=empty)
        later = {name: [None if name in empty else ""] * len(held) for name in self.columns.keys() - set(names)}
        held = held.assign(**{name: pd.Series(cells, dtype=self._dtypes[name]) for name, cells in later.items()})
        return held[[*self.columns]]

    @property
    def _dtypes(self) -> dict[str, str]:
        """Those of the columns in a data frame."""
        return {name: column.dtype.replace("string", "object") for name, column in self.columns.items()}

    def rows(self, path: str | Path) -> list[Row]:
        """The rows of a small file, checked alike, without pandas, which takes long to import."""
        values = self._read_columns(path, str(path))
        return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]

    def empty(self) -> "pd.DataFrame":
        """The table without rows."""
        return self._empty.copy()

    @cached_property
    def _empty(self) -> "pd.DataFrame":
        return self.read(io.BytesIO((",".join(self.columns) + "\n").encode()), self.name.removesuffix(".gz"))

    def _read_columns(self, source: str | Path | IO[bytes], origin: str) -> dict[str, list[Any]]:
        """The checked values of a file, by column."""
        try:
            with open(source, "rb") if isinstance(source, str | Path) else nullcontext(source) as binary:
                unpacked = gzip.GzipFile(fileobj=binary) if origin.endswith(".gz") else binary
                content = unpacked.read(TEXT_BYTES + 1)
            if len(content) > TEXT_BYTES:
                raise OSError(f"it unpacks to more than the {TEXT_BYTES} bytes that are read")
            return self._values(io.StringIO(content.decode("utf-8-sig"), newline=""), origin)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{origin} cannot be read as {self.name}: {error}") from error

    def _values(self, file: IO[str], origin: str) -> dict[str, list[Any]]:
        """The same of an open file: every check of a table is here, or in its columns."""
        reader = csv.reader(file)
        header = next(reader, [])
        self._check_header(header, origin)
        names = [*header, *(name for name in self.columns if name not in header)]
        lacking = [""] * (len(names) - len(header))
        values: dict[str, list[Any]] = {name: [] for name in self.columns}
        # Most texts are the same as others of their column: each is read and held once.
        read = {name: cache(self._reader(column)) for name, column in self.columns.items()}
        for row, held in enumerate(reader, start=2):
            if len(held) != len(header):
                raise UserError(f"{origin}, row {row}: {len(held)} cells, but {self.name} has {len(header)} columns")
            if row > ROWS:
                raise UserError(f"{origin} has more than the {ROWS} rows that are read")
            for name, text in zip(names, held + lacking, strict=True):
                try:
                    values[name].append(read[name](text))
                except ValueError as error:
                    raise UserError(f"{origin}, row {row}, column {name}: {text[:80]!r} {error}") from error
        self._check_rows(values, origin)
        return values

    def _reader(self, column: Column) -> Callable[[str], Any]:
        """What gives a cell's value by its text."""
        if self.for_people and column.dtype == "string":
            return lambda text: column.value(without_mark(text))
        return column.value

    def _check_header(self, header: list[str], origin: str) -> None:
        missing = [name for name, column in self.columns.items() if name not in header and not column.later]
        if missing:
            held = f"it holds {', '.join(header)}" if header else "it is empty"
            raise UserError(f"{origin} lacks the column {missing[0]!r} of {self.name}; {held}")
        odd = [name for name in header if name not in self.columns]
        if odd:
            raise UserError(f"{origin} has a column {odd[0]!r} that {self.name} does not know")
        if len(set(header)) < len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise UserError(f"{origin} has the column {twice!r} twice")

    def _check_rows(self, values: Mapping[str, list[Any]], origin: str) -> None:
        """Raises UserError where cells that are valid one by one contradict each other."""
        needed = [name for name, column in self.columns.items() if column.needed]
        for name in needed:
            for row, (value, status) in enumerate(zip(values[name], values["status"], strict=True), start=2):
                if value is None and status == "ok":
                    raise UserError(f"{origin}, row {row}, column {name}: empty, though the status is ok")
        for low, high in pairwise(self.ascending):
            for row, (least, most) in enumerate(zip(values[low], values[high], strict=True), start=2):
                if least is not None and most is not None and least > most:
                    raise UserError(f"{origin}, row {row}, column {high}: {most} is less than {low}, {least}")
        keys: set[tuple[Any, ...]] = set()
        for row, key in enumerate(zip(*(values[name] for name in self.key), strict=True), start=2):
            if key in keys:
                shown = ", ".join(f"{name} {value}" for name, value in zip(self.key, key, strict=True))
                raise UserError(f"{origin}, row {row}: a second row for {shown}")
            keys.add(key)
