"""Texts of profilers with one line deleted, doubled, moved, joined, marked at an end, or broken in two: each line in turn.

Each outcome is the profile as it was, or a refusal with the line. Where a row is deleted, `is_unseen` says for which rows
nothing else of the file shows that. `make chaos` tries every line of every file.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.profiling import importing
from warpbook.profiling.profile_schema import Profile

CAPTURED = sorted((PROJECT / "tests/data/profiles").glob("*.[ct]*"))
CAPTURED += sorted((PROJECT.parent / "shared/cases/profiles").glob("*_ok.txt"))  # where they stand beside the project
SUMS = [
    path for path in CAPTURED if re.search(r"stats|sums|nvprof_console|nvprof_report|(?:nsys|nvprof)_ok", path.name)
]
EXAMPLES = int(os.environ.get("CHAOS_EXAMPLES", "300"))
PREFIXES = ("x", "> ", "0: ", "+", "2024-01-01 ", "rank ", "\x1b[1A")
SUFFIXES = ("\\", ";", " |", "<br>")
WIDTHS = (3, 40, 79, 80)  # terminals', and inside of the first column
PART = re.compile(r" \((?:minimum|maximum|average)\)$")  # of a counter over several launches


def damaged(lines: list[str]) -> Iterator[tuple[str, str]]:
    """(what was done to which line, the text) of every damage to a text."""
    for number, line in enumerate(lines):
        before, after = lines[:number], lines[number + 1 :]
        yield f"line {number + 1} deleted", "\n".join([*before, *after])
        yield f"line {number + 1} doubled", "\n".join([*before, line, line, *after])
        if after:
            yield f"line {number + 1} and the next as one", "\n".join([*before, f"{line} {after[0]}", *after[1:]])
            yield f"line {number + 1} moved below the next", "\n".join([*before, after[0], line, *after[1:]])
        for prefix in PREFIXES:
            yield f"line {number + 1} behind {prefix!r}", "\n".join([*before, prefix + line, *after])
        for suffix in SUFFIXES:
            yield f"line {number + 1} before {suffix!r}", "\n".join([*before, line + suffix, *after])
        quarters = {len(line) * part // 4 for part in (1, 2, 3)}
        for width in sorted({*WIDTHS, *quarters, len(line) - 3}):
            if 0 < width < len(line):
                yield f"line {number + 1} broken at {width}", "\n".join([*before, line[:width], line[width:], *after])
                pieces = line[:width].rstrip(), "  " + line[width:].lstrip()
                yield f"line {number + 1} broken at {width}, indented", "\n".join([*before, *pieces, *after])


def damaged_cells(lines: list[str]) -> Iterator[tuple[str, str]]:
    """(what was done, the text) where a number is lost, or is joined or exchanged with the next, which is another."""
    for number, line in enumerate(lines):
        cells = list(re.finditer(r"(?<![^\s,|])<?\d[\d.,]*?(?:[num]?s|%)?(?=$|[\s,|])", line))
        for cell, following in pairwise(cells):
            before, between, after = line[: cell.start()], line[cell.end() : following.start()], line[following.end() :]
            if between.strip(" ,|"):
                continue
            first, second = cell[0], following[0]
            for what, changed in (
                ("lost", before + between.lstrip(",") + second + after),
                ("joined with the next", before + first + second + after),
                ("exchanged with the next", before + second + between + first + after),
            ):
                if what[0] != "e" or first[:3] != second[:3]:
                    text = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
                    yield f"line {number + 1}: {first} {what}", text


def contents(profile: Profile) -> Counter[tuple[object, ...]]:
    """Every row of a profile, its names without blanks beside punctuation, which a broken line may have lost."""
    rows = [*profile.events, *profile.summaries, *profile.counters]
    for row in rows:
        if row.get("kind") == "range":  # its name is any words, a mark behind them too
            row["name"] = row["name"].rstrip("\\;| ")
    return Counter(
        tuple((key, tight(value) if isinstance(value, str) else value) for key, value in row.items() if key != "row")
        for row in rows
    )


def tight(text: str) -> str:
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(text.split()))


def without_launch(rows: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    """The rows without what counts launches, or tells the only other launch of a kernel apart: its number and shape."""
    plain: Counter[tuple[object, ...]] = Counter()
    for row, count in rows.items():
        cells = dict(row)
        cells.pop("launch", None)
        if "kernel" in cells:
            cells["kernel"] = re.sub(r"\)\(\d+,\d+,\d+\)x\(.*", ")", str(cells["kernel"]))
        plain[tuple(cells.items())] += count
    return plain


def is_unseen(row: dict[str, object], whole: Profile, rest: Profile) -> bool:
    """Whether nothing in a profiler's text shows that the line of this row was deleted."""
    if "start_ns" in row:
        return True  # nothing counts the events of a trace
    if "share_of" in row:
        # the shares of the others add up without it to 100 %, but for their rounding, or there are no others
        rounding = 0.01 * sum(other["share_of"] == row["share_of"] for other in whole.summaries)
        return row["share_percent"] == 100 or (row["share_percent"] or 0) <= rounding
    launches = {counter["launch"] for counter in whole.counters}
    if len({counter["launch"] for counter in rest.counters}) < len(launches):
        return True  # nothing counts launches, but for the numbers of those behind it
    metric = PART.sub("", str(row["metric"]))
    holders = {counter["launch"] for counter in whole.counters if PART.sub("", counter["metric"]) == metric}
    return len(holders) == 1  # no other launch has this counter


def assert_refused_with_the_line(
    error: UserError, profile: Path, whole: Counter[tuple[object, ...]], what: object
) -> None:
    """The message is one line with the lines in question; a remedy's lines are read, and hold nothing new."""
    message = str(error).removeprefix(str(profile))
    assert re.search(r"lines? \d", message) and message != str(error) and "\n" not in message, (what, message)
    for first, last in re.findall(r"--lines (\d+)-(\d+)", message):
        rows = contents(importing.read(profile, (int(first), int(last))))
        assert not without_launch(rows) - without_launch(whole), (what, message)


def test_a_damaged_line_never_gives_another_profile_silently(tmp_path):
    for path in CAPTURED:
        try_damaged_lines(path, tmp_path)


def try_damaged_lines(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    truth = importing.read(path)
    whole, device = contents(truth), truth.device
    cases = list(damaged(text.split("\n")))
    step = max(1, len(cases) * len(CAPTURED) // EXAMPLES)
    profile = tmp_path / "profile"
    for what, content in cases[len(path.name) % step :: step]:
        profile.write_text(content)
        try:
            got = importing.read(profile)
        except UserError as error:
            assert_refused_with_the_line(error, profile, whole, (path.name, what))
            continue
        rows = contents(got)
        if "deleted" in what:
            assert not without_launch(rows) - without_launch(whole), (path.name, what)
            lost = map(dict, without_launch(whole) - without_launch(rows))
            said = got.omissions != truth.omissions
            assert said or all(is_unseen(row, truth, got) for row in lost), (path.name, what)
            deleted = text.split("\n")[int(what.split()[1]) - 1]
            assert got.device == device or (got.device == "" and deleted.split()[0] == "Device"), (path.name, what)
        elif "moved" in what:  # the order of rows is not that of launches
            assert without_launch(rows) == without_launch(whole), (path.name, what)
        else:
            assert (rows, got.device) == (whole, device), (path.name, what)


def test_a_damaged_cell_never_gives_other_sums_silently(tmp_path):
    for path in SUMS:
        try_damaged_cells(path, tmp_path)


def try_damaged_cells(path: Path, tmp_path: Path) -> None:
    whole = contents(importing.read(path))
    cases = list(damaged_cells(path.read_text().split("\n")))
    step = max(1, len(cases) * len(SUMS) // EXAMPLES)
    profile = tmp_path / "profile"
    for what, content in cases[len(path.name) % step :: step]:
        profile.write_text(content)
        try:
            assert contents(importing.read(profile)) == whole, (path.name, what)
        except UserError as error:
            assert_refused_with_the_line(error, profile, whole, (path.name, what))


def test_how_many_damaged_texts_are_tried_is_told(tried):
    cases = sum(len(list(damaged(path.read_text().split("\n")))) for path in CAPTURED)
    tried(
        "a damaged line in a profiler's text",
        min(EXAMPLES, cases),
        "read as it was but for a deleted row that nothing else shows, or refused with the line",
    )
