"""What a student wrote on an optimization: Markdown. A heading whose first number is a question's begins its answer.
Pictures beside the text are shown; what is too long is cut, and the place says so."""

import base64
import io
import re
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from markupsafe import Markup

from warpbook.common.files import PROJECT
from warpbook.course import submissions
from warpbook.report import escaping
from warpbook.report.evidence.submission_evidence import SubmissionEvidence

FOLDER = PROJECT / submissions.WRITTEN
EMPTY = Markup("")

_HEADING = re.compile(r" {0,3}#{1,6}\s+\D{0,12}?(\d)\b")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_PIXELS, _WIDTH = 40_000_000, 1600
CHARACTERS, LINES, CELLS, PICTURES = 20_000, 600, 600, 20
"""Of the answers on one file that are shown, some ten pages; cells are those of all its tables."""


@dataclass(frozen=True)
class Answers:
    """by_question: HTML by the question's number, from 1; rest: of what stands under none."""

    by_question: dict[int, Markup] = field(default_factory=dict)
    rest: Markup = EMPTY


def answers(submitted: SubmissionEvidence, name: str) -> Answers:
    """What a report shows of them: `read`, or why it leaves them out."""
    if submitted.answers_left_out and (FOLDER / f"{name}.md").exists():
        return Answers({}, Markup("<p>{}</p>").format(submitted.answers_left_out))
    return read(name, len(submitted.term.questions))


def read(name: str, questions: int, folder: Path = FOLDER, pictures: bool = True) -> Answers:
    """The answers on one file of a submission, its `pictures` drawn or told by their words; empty if none."""
    path = folder / f"{name}.md"
    if not path.exists():
        return Answers()
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    lines = text[:CHARACTERS].splitlines()[:LINES]
    if (left := len(text.rstrip()) - sum(len(line) + 1 for line in lines)) > 0:
        lines += ["", f"\\[{left} more characters are left out.\\]"]
    parts: dict[int, list[str]] = {}
    current, fenced = 0, False
    for line in lines:
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _HEADING.match(line)
        if found and 1 <= int(found[1]) <= questions:
            current = int(found[1])
        else:
            parts.setdefault(current, []).append(line)
    beside = {file.name: file for file in (folder / name).glob("*")} if pictures else {}
    drawn = count(1)
    cells = escaping.Budget(CELLS)

    def picture(name: str) -> str:
        return _picture(beside.get(name)) if next(drawn) <= PICTURES else ""

    html = {
        number: Markup(escaping.untrusted_to_html("\n".join(lines), picture, cells))
        for number, lines in parts.items()
        if any(lines)
    }
    return Answers({number: text for number, text in html.items() if number}, html.get(0, EMPTY))


def _picture(path: Path | None) -> str:
    """A picture as the address of an image, drawn anew; empty where it is none that can be shown."""
    from PIL import Image

    if path is None:
        return ""
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            if picture.width * picture.height > _PIXELS:
                return ""
            drawn = picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # as Pillow tells damaged files
        return ""
    drawn.thumbnail((_WIDTH, _WIDTH))
    content = io.BytesIO()
    drawn.save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
