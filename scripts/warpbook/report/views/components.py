"""What a view is made of, ready to print: tables, figures and facts, which `reports/macros.html.j2` places."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TypeAlias

from markupsafe import escape

# Plain words, escaped where they are placed, or Markup made in `cells`.
Cell: TypeAlias = str

MOST_SHORT_LINES = 10
NAME_LINE = 42  # characters of a row's name that fit on a line; a kernel's may take four
SENTENCE_LINE = 90  # characters of a row's sentence, such as a reason, that fit on a line


class View(SimpleNamespace):
    """Values that a template places, by name. A name that a template misspells raises there."""


@dataclass(frozen=True)
class TableColumn:
    """A table's column. kind: the class of its cells: `number`, `picture`; empty for words."""

    label: str
    kind: str = ""


def words(*labels: str) -> tuple[TableColumn, ...]:
    """Columns of words."""
    return tuple(TableColumn(label) for label in labels)


def numbers(*labels: str) -> tuple[TableColumn, ...]:
    """Columns of numbers, set flush right."""
    return tuple(TableColumn(label, "number") for label in labels)


@dataclass(frozen=True)
class HtmlTable:
    """A flat table whose first cell names its row. classes: how the stylesheet sets it, such as `named` or `wide`."""

    id: str
    caption: str
    head: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    classes: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"{self.id}: a row of {len(row)} cells under {len(self.head)} columns: {row}")

    @property
    def short(self) -> bool:
        """Whether it is kept on one page."""
        return sum(map(_lines, self.rows)) <= MOST_SHORT_LINES


def _lines(row: tuple[Cell, ...]) -> int:
    """How many lines of text a row takes, about. In a wide row an interval has a line of its own."""
    name, *others = (len(escape(cell).striptags()) for cell in row)
    under = len(row) > 6 and any('class="interval"' in cell for cell in row)
    return 1 + under + max([name // NAME_LINE, *(length // SENTENCE_LINE for length in others)])


@dataclass(frozen=True)
class Figure:
    """A picture, its words for those who do not see it, its caption. classes: `timeline` if browsers zoom it."""

    id: str
    svg: str
    alt: str
    caption: str
    classes: str = ""


@dataclass(frozen=True)
class Fact:
    """A headline figure on a card. classes: of its value; `name` where that is a name."""

    label: str
    value: str
    detail: str
    classes: str = ""
