"""What a student wrote on an optimization: Markdown, told apart by the numbers of the questions.

A heading whose first number is a question's, as `## 2. Expected`, begins the answer to it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from warpbook.files import PROJECT
from warpbook.report import words

FOLDER = PROJECT / "reports" / "answers"

_HEADING = re.compile(r" {0,3}#{1,6}\s+\D{0,12}?(\d)\b")
_FENCE = re.compile(r" {0,3}(```|~~~)")


EMPTY = Markup("")


@dataclass(frozen=True)
class Answers:
    """by_question: HTML by the question's number, from 1; rest: of what stands under none."""

    by_question: dict[int, Markup] = field(default_factory=dict)
    rest: Markup = EMPTY


def read(name: str, questions: int, folder: Path = FOLDER) -> Answers:
    """The answers on one file of a submission; empty where nobody wrote any."""
    path = folder / f"{name}.md"
    if not path.exists():
        return Answers()
    parts: dict[int, list[str]] = {}
    current, fenced = 0, False
    for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines():
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _HEADING.match(line)
        if found and 1 <= int(found[1]) <= questions:
            current = int(found[1])
        else:
            parts.setdefault(current, []).append(line)
    html = {number: Markup(words.to_html("\n".join(lines))) for number, lines in parts.items() if any(lines)}
    return Answers({number: text for number, text in html.items() if number}, html.get(0, EMPTY))
