"""What a study must deliver, and where the report has it: its last page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

from warpbook.common.errors import UserError, nearest_name
from warpbook.report.evidence import Evidence
from warpbook.report.views import cell_markup, imported_profiles
from warpbook.report.views.components import HtmlTable, TableColumn, words

SUPPLEMENT = "Supplement, "
"""What the words of a heading begin with that is not in the report, whose pages are counted, but in its supplement."""

# Elements without an end: none encloses text.
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


@dataclass
class _EmptyPlace:
    """An element that says why its places have no content, and how deep it lies in the document."""

    id: str
    depth: int
    words: list[str] = field(default_factory=list)


class Places(HTMLParser):
    """The places of a rendered report: each id with its heading's; and what elements lack, by `data-lacks`."""

    def __init__(self, document: str, headings: Iterable[str]):
        super().__init__()
        self.heading_of: dict[str, str] = {}
        self.lacks: dict[str, _EmptyPlace] = {}
        self._headings, self._heading = set(headings), ""
        self._depth = 0
        self._open: _EmptyPlace | None = None
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        id = named.get("id") or ""
        if id in self._headings:
            self._heading = id
        if id:
            self.heading_of[id] = self._heading
        if tag not in _VOID:
            self._depth += 1
        if lacking := named.get("data-lacks"):
            self._open = _EmptyPlace(id, self._depth)
            self.lacks |= dict.fromkeys(lacking.split(), self._open)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._depth <= self._open.depth:
            self._open = None
        if tag not in _VOID:
            self._depth -= 1

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open.words.append(data)

    def emptiness_reason(self, place: str) -> str:
        """Why a place has no content; empty where it has some."""
        lack = self.lacks.get(place)
        return " ".join("".join(lack.words).split()) if lack else ""

    def target(self, place: str) -> str:
        """The id that leads to a place, or to the words on why it has no content; empty where neither is there."""
        lack = self.lacks.get(place)
        return place if place in self.heading_of else lack.id if lack else ""


def deliverables_view(ev: Evidence, titles: Mapping[str, str], body: str) -> HtmlTable | None:
    """The check list of a report with these headings, {id: words}, and this body; None where the study demands nothing.
    UserError names each deliverable that the report lacks without saying why."""
    wanted = ev.study.deliverables
    if not wanted:
        return None
    places = Places(body, titles)
    if missing := {name: place for name, place in wanted.items() if not places.target(place)}:
        known = [*places.heading_of, *places.lacks]
        lines = (
            f"  {name}: no place is called {place!r}: {nearest_name(place, known)}" for name, place in missing.items()
        )
        raise UserError(
            "\n".join(
                [f"the report of {ev.name} lacks what studies.{ev.name}.deliverables in config.yaml names:", *lines]
            )
        )
    return HtmlTable(
        "deliverables-table",
        "Each deliverable of the study, the section that has it, and its page.",
        (*words("Deliverable", "Section"), TableColumn("Page", "number"), *words("State")),
        tuple(_row(places, titles, name, place, imported_profiles.places(ev)) for name, place in wanted.items()),
        "wide checklist",
    )


def _row(
    places: Places, titles: Mapping[str, str], name: str, place: str, elsewhere: Mapping[str, str]
) -> tuple[str, ...]:
    """elsewhere: by place, that of an imported profile, which stands in where ours is lacking."""
    lacking = places.emptiness_reason(place)
    stands_in = elsewhere.get(place, "") if lacking else ""
    target = stands_in or places.target(place)
    title = titles.get(places.heading_of.get(target, ""), "Summary")
    page = "" if title.startswith(SUPPLEMENT) else cell_markup.page(target)
    return name, cell_markup.link(target, title), page, "imported" if stands_in else lacking or "shown"
