"""What a study must deliver, and where the report has it: its last page."""

import re
from collections.abc import Iterable, Mapping

from markupsafe import Markup

from warpbook.common.errors import UserError, nearest_name
from warpbook.report.evidence import Evidence
from warpbook.report.views import cell_markup, imported_profiles
from warpbook.report.views.components import HtmlTable, TableColumn, words

SUPPLEMENT = "Supplement, "
"""What the words of a heading begin with that is not in the report, whose pages are counted, but in its supplement."""

# An element that says why places have no content, its words within; none holds another of its kind.
_LACKING = re.compile(r'<(div|span|p)\b([^>]*) data-lacks="([^"]+)"[^>]*>(.*?)</\1>', re.DOTALL)


class Places:
    """The places of a rendered report: each id with its heading's; and what elements lack, by `data-lacks`: (the
    element's id, its words)."""

    def __init__(self, document: str, headings: Iterable[str]):
        self.heading_of: dict[str, str] = {}
        self.lacks: dict[str, tuple[str, str]] = {}
        titled, heading = set(headings), ""
        for id in re.findall(r'<[^>]*\sid="([^"]+)"', document):
            heading = id if id in titled else heading
            self.heading_of[id] = heading
        for _, attributes, places, inner in _LACKING.findall(document):
            id = "".join(re.findall(r'\sid="([^"]+)"', attributes))
            self.lacks |= dict.fromkeys(places.split(), (id, Markup(inner).striptags()))

    def emptiness_reason(self, place: str) -> str:
        """Why a place has no content; empty where it has some."""
        return self.lacks.get(place, ("", ""))[1]

    def target(self, place: str) -> str:
        """The id that leads to a place, or to the words on why it has no content; empty where neither is there."""
        return place if place in self.heading_of else self.lacks.get(place, ("", ""))[0]


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
        where = f"studies.{ev.name}.deliverables in config.yaml"
        raise UserError("\n".join([f"the report of {ev.name} lacks what {where} names:", *lines]))
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
