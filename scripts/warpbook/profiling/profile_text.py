"""A profile's file as lines of text, without what a terminal, a log, a notebook or a mail puts around them."""

import gzip
import html
import json
import re
import unicodedata
import zlib
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

from warpbook.common.errors import UserError

TEXT_LIMIT_BYTES = 64 << 20
UNPACKED_LIMIT_BYTES = 4 << 30
GZIP = b"\x1f\x8b"

# What is no text, and the command that makes a file that is read.
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a zip archive", "unzip {}"),
    (b"BZh", "bzip2", "bunzip2 {}"),
    (b"\xfd7zXZ", "xz", "unxz {}"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd {}"),
    (b"%PDF", "a PDF", "pdftotext -layout {}"),
    (b"\x89PNG", "a picture", "nsys stats or ncu --import on the profiler's own report"),
    (b"{\\rtf", "an RTF document", "unrtf --text {}"),
    (b"\xff\xd8\xff", "a picture", "nsys stats or ncu --import on the profiler's own report"),
)

# Colours, links, titles and erased lines. An escape that moves the cursor stays: what stood there is not certain.
_COLOUR = re.compile(
    r"(?:\x1b|\u241b|\^\[|\\(?:x1b|033|e))(?:\[[\d;:]*[mK]|\(B|\][^\x07\x1b]*(?:\x07|\x1b\\))|\[\d{1,2}(?:;\d{1,3})*m"
)
_TAGS = re.compile(r"<(span|font|code|tt|b|strong|em)\b[^<>]*>(.*?)</\1>")
_LINE_END = re.compile(r"<br ?/?>$")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")
_ADDED, _TAKEN_AWAY = re.compile(r"^\+(?![-=]+(?:\+|$))"), re.compile(r"-(?:\s|\d)")
TABLE = re.compile(
    r'(?:"?Type"?[\s,|]+)?"?Time ?\(%\)[\s,"|]+(?:Total )?Time\b|"?Start(?: \(\w+\))?"?[\s,"|]+'
    r'"?Duration\b|Section: \w|"?ID"?,"?(?:Process ID|Kernel Name)\b|"Device","(?:Kernel|Context)",|'
    r"Invocations\s+(?:Metric|Event) Name\b"
)
LANDMARK = re.compile(rf"==\d+== (?:NVPROF|Profiling) |{TABLE.pattern}|==PROF== ")
"""What only a profiler prints, wherever it stands in a line."""

_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|(?<!\d)\d+\.\d+|(?<=[A-Z][a-z]{2}) +\d{1,2}\b"
)
_RANKS_SHOWN = 6
_STRAIGHT_QUOTES = str.maketrans("\u201c\u201d\u201e", '"' * 3)


def unpack(path: Path, target: Path, origin: str) -> None:
    """Write what a gzip file holds to `target`; UserError where it is damaged or beyond UNPACKED_LIMIT_BYTES."""
    size = 0
    try:
        with gzip.open(path) as packed, open(target, "wb") as unpacked:
            while block := packed.read(1 << 20):
                size += len(block)
                if size > UNPACKED_LIMIT_BYTES:
                    raise UserError(
                        f"{origin} unpacks to more than {UNPACKED_LIMIT_BYTES >> 30} GiB: "
                        "import the profiler's SQLite file instead"
                    )
                unpacked.write(block)
    except (EOFError, zlib.error, OSError) as error:
        raise UserError(f"{origin} is gzip that is damaged or cut off ({error}): copy the file again") from error


def decode(content: bytes, origin: str) -> str:
    """The text of a file: UTF-8, or UTF-16 with its mark or without, as PowerShell's > writes it."""
    if not content.strip():
        raise UserError(f"{origin} is empty")
    for begin, what, command in _OTHER_FORMATS:
        if content.startswith(begin):
            raise UserError(f"{origin} is {what}; import what this gives: {command.format(Path(origin).name)}")
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in content:
        encoding = _utf16(content)
        if not encoding:
            raise _binary(content, origin)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        name = Path(origin).name
        raise UserError(
            f"{origin}, line {line}: byte {error.start} is not {encoding.removesuffix('-sig')}: the file is cut off, "
            f"damaged, or of another encoding; save it as UTF-8, as `iconv -f CP1252 -t UTF-8 {name} > {name}.txt`"
        ) from error
    if "\0" in text:
        raise _binary(content, origin)
    return text


def _binary(content: bytes, origin: str) -> UserError:
    zero = content.index(0)
    return UserError(
        f"{origin} is binary, of no profiler's known format, or a damaged text: byte {zero} is 0; copy the file again"
    )


def _utf16(content: bytes) -> str:
    """UTF-16's byte order where every other byte of a text is 0, but for few; else empty."""
    even, odd = content[::2].count(0), content[1::2].count(0)
    if min(even, odd) * 20 > max(even, odd) or max(even, odd) * 4 < len(content):
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def notebook_outputs(text: str) -> dict[int, str]:
    """What the cells of a Jupyter notebook printed, by the cell's number from 1; none where the text is no notebook."""
    if not text.lstrip().startswith("{") or '"cells"' not in text:
        return {}
    try:
        cells = json.loads(text)["cells"]
        return {
            number: "".join(
                "".join(output.get("text") or output.get("data", {}).get("text/plain") or "")
                for output in cell.get("outputs", ())
            )
            for number, cell in enumerate(cells, 1)
        }
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}


def split(text: str) -> list[str]:
    """A text's lines without colours, HTML's tags and entities, and a diff's mark where lines were only added."""
    separator = "\n" if "\n" in text else "\r"
    lines = [_plain(line.removesuffix("\r")) for line in text.split(separator)]
    if any(_TAKEN_AWAY.match(line) for line in lines):
        return lines
    return [_ADDED.sub(" ", line) for line in lines]


def _plain(line: str) -> str:
    line = _COLOUR.sub("", line)
    if "<" in line:
        line = _LINE_END.sub("", _TAGS.sub(r"\2", line))
    line = _ENTITY.sub(lambda entity: html.unescape(entity[0]), line)
    if line.isascii():
        return line
    # a blank that is no plain one, letters that a page drew as one, curly quotes, and characters that nobody sees
    line = unicodedata.normalize("NFKC", line).translate(_STRAIGHT_QUOTES)
    return "".join(character for character in line if unicodedata.category(character) != "Cf")


def without_prefix(lines: list[str], origin: str) -> list[str]:
    """The lines without what a log or a launcher put before each: a rank, a time, a mail's `>`, a diff's `+`. The
    prefix is what stands before a profiler's words, digits and spaces apart; it is taken away where every line from the
    first that has it to the last has it. UserError names the ranks where the lines are those of several."""
    for _ in range(3):  # a log's time before a rank, at most a mail's mark before both
        found = {n: line[: match.start()] for n, line in enumerate(lines) if (match := LANDMARK.search(line))}
        if not all(before.strip(' \t|"') for before in found.values()):
            return lines
        for prefix in dict.fromkeys(before.rstrip(marks) for before in found.values() for marks in (' \t"', ' \t"|')):
            if matches := _matches(prefix, lines, found):
                break
        else:
            return lines
        _refuse_several_ranks([_STAMP.sub("", text).strip() for text in matches.values()], origin)
        lines = [line[len(matches[n]) :] if n in matches else line for n, line in enumerate(lines)]
    return lines


def _matches(prefix: str, lines: list[str], needed: Collection[int]) -> dict[int, str]:
    """What stands for a prefix in each line that has it; none where a line between has it not, or a needed one."""
    parts = re.split(r"(\d+|\s+)", prefix)
    pattern = re.compile("".join(r"\d+" if p.isdecimal() else r"\s+" if p.isspace() else re.escape(p) for p in parts))
    matches = {n: match[0] for n, line in enumerate(lines) if (match := pattern.match(line))}
    whole = all(n in matches or not lines[n].strip() for n in range(min(matches, default=0), max(matches, default=0)))
    return matches if whole and set(needed) <= matches.keys() else {}


def _refuse_several_ranks(marks: list[str], origin: str) -> None:
    ranks = list(dict.fromkeys(marks))
    numbers = [int("".join(re.findall(r"\d", mark))[:18] or 0) for mark in marks]
    if len(ranks) == 1 or all(b - a == 1 for a, b in pairwise(numbers)):  # one, or lines' numbers
        return
    shown = ", ".join(map(repr, ranks[:_RANKS_SHOWN])) + (", ..." if len(ranks) > _RANKS_SHOWN else "")
    name = Path(origin).name
    raise UserError(
        f"{origin} holds lines of {len(ranks)} ranks, behind {shown}: import the lines of one, as "
        f"`grep -F '{ranks[0]}' {name} > {name}.rank`"
    )
