"""A study's evidence as HTML and PDF. Nothing is measured here, and nothing is typed that was measured."""

import base64
import html
import io
import itertools
import re
import secrets
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from warpbook.common import units, version
from warpbook.common.errors import UserError
from warpbook.common.files import LIBRARY, both_folders
from warpbook.config.course_term import Term
from warpbook.report import class_report, escaping
from warpbook.report.comparison import Comparison
from warpbook.report.evidence import Evidence
from warpbook.report.pdf import COMPANION
from warpbook.report.views import VIEWS, cover, milestone_4, runs_compared, supplement
from warpbook.report.views.cell_markup import code_spans, data_uri
from warpbook.report.views.components import View
from warpbook.report.views.deliverables import SUPPLEMENT

FOLDER = LIBRARY / "reports"

CREDITS = """<p class="credits">Within this page: Panzoom 4.6.2, by Timmy Willison and other contributors, MIT licence,
which zooms its timelines; IBM Plex, by IBM, SIL Open Font License.</p>
"""

COLUMNS = 3
COLUMN_CHARACTERS = 34  # of a heading that one line of the contents holds


@dataclass
class Headings:
    """The headings of a report in the order rendered, numbered as the stylesheet numbers them."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=lambda: {"chapter": 0, "appendix": 0, "section": 0})

    def __call__(self, level: int, id: str, title: str, numbered: bool = True, lettered: bool = False) -> Markup:
        """An h1 or h2 with its place in the contents."""
        if level == 1:
            self._counts["section"] = 0
            if numbered:
                self._counts["appendix" if lettered else "chapter"] += 1
        else:
            self._counts["section"] += 1
        letter = chr(ord("A") + self._counts["appendix"] - 1)
        chapter = letter if lettered else str(self._counts["chapter"])
        number = "" if not numbered else chapter if level == 1 else f"{chapter}.{self._counts['section']}"
        self.entries.append({"level": level, "id": id, "title": title, "number": number})
        kind = "" if not numbered else ' class="lettered"' if lettered else ' class="numbered"'
        return Markup(f'<h{level} id="{html.escape(id)}"{kind}>{html.escape(title)}</h{level}>')


class CompiledTemplates(BytecodeCache):
    """Templates as Python's code, which the environments of one process share: each is compiled once."""

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if code := self._code.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key] = bucket.bytecode_to_string()


_COMPILED = {True: CompiledTemplates(), False: CompiledTemplates()}  # whether they escape is in the code


def templates(autoescape: bool = True) -> Environment:
    """The environment of every template: undefined names raise, and what the macros call is here."""
    env = Environment(
        loader=FileSystemLoader(both_folders("reports")),
        undefined=StrictUndefined,
        autoescape=autoescape,
        bytecode_cache=_COMPILED[autoescape],
    )
    env.filters |= {
        "coded": code_spans,
        "data_uri": data_uri,
        "enumerated": units.join_all,
        "count": units.count,
        "significant": units.significant,
    }
    env.globals["version"] = version.VERSION
    return env


def join_lines(paragraph: str) -> str:
    """A paragraph's lines as one."""
    return re.sub(" *\n *", " ", paragraph)


def markdown_templates() -> Environment:
    """The environment of Markdown templates: what they print of a run is escaped, and Markup of ours is not."""
    env = templates(autoescape=False)
    env.finalize = escaping.escape
    env.filters |= {"code": escaping.code, "unwrapped": join_lines}
    return env


def environment(ev: Evidence, headings: Headings) -> Environment:
    """The environment of a report's templates: what sections call is here."""
    env = templates()
    env.globals |= {"ev": ev, "views": VIEWS, "heading": headings, "headings": headings.entries}
    return env


def _stylesheet() -> Markup:
    """All of `reports/style` as one sheet: of several, WeasyPrint tries each on every element."""
    names = ("tokens", "page", "type", "parts", "screen")
    return Markup("".join((FOLDER / "style" / f"{name}.css").read_text() for name in names))


@dataclass(frozen=True)
class DocumentPart:
    """The report or its supplement. front: what stands before the contents."""

    front: str
    body: str
    headings: list[dict[str, Any]]

    @property
    def chapters(self) -> list[dict[str, Any]]:
        """Its headings of the first level."""
        return [entry for entry in self.headings if entry["level"] == 1]


class Documents:
    """A study's report as HTML documents, stylesheets within, each made when it is asked for: `whole` for a browser,
    `report` and `supplement` apart for paper, each leading to the other."""

    def __init__(self, ev: Evidence, made: datetime, commit: str, dirty: bool | None):
        self._ev, self._cover = ev, cover.cover_view(ev, made, commit, dirty)

    @cached_property
    def supplement_part(self) -> DocumentPart:
        """The supplement, which `report` and `whole` need. Another process may make it meanwhile: it can be set."""
        template, optimizations = "sections/supplement.html.j2", self.remaining_optimizations
        return _part(self._ev, template, view=self.supplement_view, optimizations=optimizations)

    @cached_property
    def supplement_view(self) -> View:
        """What the supplement shows besides optimizations."""
        return supplement.supplement_view(self._ev)

    @cached_property
    def remaining_optimizations(self) -> tuple[View, ...]:
        """Those that the supplement shows. Another process may make them: they can be set."""
        return milestone_4.remaining_optimizations(self._ev)

    @cached_property
    def report_but_last_page(self) -> DocumentPart:
        """The report without the page that says where each deliverable is, which needs no supplement."""
        return _part(self._ev, "report.html.j2", "sections/summary.html.j2")

    @cached_property
    def _report_part(self) -> DocumentPart:
        return _add_last_page(self._ev, self.report_but_last_page, self.supplement_part)

    @cached_property
    def supplement(self) -> str:
        """What it has no place for is the report's, which need not be made for it."""
        alone = _document(self._ev.name, self._cover, self.supplement_part, full_cover=False)
        return rewrite_links(f"{self._ev.name}.pdf", alone, link_targets(alone))

    @cached_property
    def report(self) -> str:
        alone = _document(self._ev.name, self._cover, self._report_part, others=self.supplement_part.chapters)
        return rewrite_links(f"{self._ev.name}-supplement.pdf", alone, element_ids(self.supplement_part.body))

    @cached_property
    def whole(self) -> str:
        document = _document(self._ev.name, self._cover, self._report_part, self.supplement_part)
        if lost := link_targets(document) - element_ids(document):
            raise UserError(f"links of the report lead nowhere: {', '.join(sorted(lost))}")
        return document


def submission_html(ev: Evidence, made: datetime, commit: str, dirty: bool | None) -> str:
    """The report of a submission as an HTML document, which has no supplement."""
    report = _part(ev, "submission.html.j2", "sections/course_summary.html.j2")
    return _document(ev.name, cover.cover_view(ev, made, commit, dirty), report, kind="submission")


def _document(
    name: str,
    cover: View,
    *parts: DocumentPart,
    others: Sequence[dict[str, Any]] = (),
    full_cover: bool = True,
    kind: str = "report",
) -> str:
    """Parts as one HTML document. others: chapters of its companion."""
    shown = {"parts": parts, "contents": split_columns(parts), "others": others, "full_cover": full_cover}
    shell = templates().get_template("document.html.j2")
    return shell.render(name=name, cover=cover, kind=kind, stylesheet=_stylesheet(), **shown)


def split_columns(parts: tuple[DocumentPart, ...]) -> tuple[list[dict[str, Any]], ...]:
    """Headings of parts in COLUMNS columns of one height; the stylesheet would lay them out many times."""
    entries = [entry for part in parts for entry in part.headings]
    lines = [(1.5 if one["level"] == 1 else 1) + len(one["title"]) // COLUMN_CHARACTERS for one in entries]
    above = [sum(lines[:place]) for place in range(len(entries) + 1)]
    ends = [
        min(range(len(above)), key=lambda end: abs(above[end] - above[-1] * part / COLUMNS))
        for part in range(COLUMNS + 1)
    ]
    return tuple(entries[start:end] for start, end in itertools.pairwise(ends))


def _part(ev: Evidence, body: str, front: str = "", **shown: Any) -> DocumentPart:
    """A part by its templates, which share one environment: the front's headings come first."""
    headings = Headings()
    env = environment(ev, headings)
    first = env.get_template(front).render() if front else ""
    return DocumentPart(Markup(first), Markup(env.get_template(body).render(shown)), headings.entries)


def _add_last_page(ev: Evidence, report: DocumentPart, supplement: DocumentPart) -> DocumentPart:
    """The report with its last page, which says where it, or its supplement, has each deliverable."""
    titles = {entry["id"]: f"{entry['number']} {entry['title']}".strip() for entry in report.headings}
    titles |= {entry["id"]: f"{SUPPLEMENT}{entry['number']} {entry['title']}" for entry in supplement.headings}
    body = report.front + report.body + supplement.body
    headings = Headings(report.headings)
    last = environment(ev, headings).get_template("sections/deliverables.html.j2").render(titles=titles, body=body)
    return DocumentPart(report.front, report.body + Markup(last), headings.entries)


def element_ids(document: str) -> set[str]:
    """The places of a document that links can lead to."""
    return set(re.findall(r'\sid="([^"]+)"', document))


def link_targets(document: str) -> set[str]:
    """The places that links of a document lead to."""
    return set(re.findall(r'href="#([^"]+)"', document))


def rewrite_links(file: str, document: str, there: set[str]) -> str:
    """A document whose links to the places `there`, which only its companion holds, lead there: `pdf.COMPANION`."""
    beyond = there - element_ids(document)

    def rewrite_link(link: re.Match[str]) -> str:
        return f'href="{COMPANION}{file}#{link[1]}"' if link[1] in beyond else link[0]

    return re.sub(r'href="#([^"]+)"', rewrite_link, document)


# As `macros.html.j2` places a figure.
_CHART = re.compile(r'<figure id="([^"]+)"([^>]*)><img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]*)">')


def _as_element(chart: re.Match[str]) -> str:
    """A chart's picture as an element of the document, its ids told apart from those of other charts."""
    id, rest, picture, alt = chart.groups()
    svg = base64.b64decode(picture).decode()
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{id}-", svg.strip())
    return f'<figure id="{id}"{rest}>{svg.replace("<svg ", f"""<svg role="img" aria-label="{alt}" """, 1)}'


def comparison_text(compared: Comparison, figure: str = "") -> str:
    """Two runs compared, as Markdown."""
    return (
        markdown_templates()
        .get_template("compare.md.j2")
        .render(view=runs_compared.runs_compared_view(compared), figure=figure)
    )


def comparison_html(compared: Comparison) -> str:
    """The same as an HTML document, with a picture of how far each variant moved."""
    env, figure = templates(), runs_compared.figure(compared)
    place = secrets.token_hex()  # a word that no run can hold
    body = escaping.to_html(comparison_text(compared, place if figure else ""))
    if figure:
        placing = env.from_string('{% import "macros.html.j2" as m %}{{ m.figure(figure) }}')
        body = body.replace(f"<p>{place}</p>", placing.render(figure=figure))
    return env.get_template("compare.html.j2").render(
        head=compared.head.run_id,
        base=compared.base.run_id,
        stylesheet=_stylesheet(),
        body=Markup(body.replace("<table>", '<table class="data">')),
    )


def grades_html(title: str, term: Term, images: int, rows: list[dict[str, Any]]) -> str:
    """The table over submissions as an HTML document: rows of GRADES, of a term's study with so many images at most."""
    shown = class_report.class_table_view(title, term, images, rows)
    return templates().get_template("grades.html.j2").render(view=shown, stylesheet=_stylesheet())


def site_pages(title: str, overview: View) -> dict[str, str]:
    """The pages over archived runs by file name, the stylesheet among them; fonts are in a folder beside."""
    env = templates()
    env.globals |= {"title": title, "overview": overview, "script": Markup((FOLDER / "sorting.js").read_text())}
    pages = {"index.html": env.get_template("site.index.html.j2").render(view=overview)}
    for view in overview.networks:
        pages[view.file] = env.get_template("site.network.html.j2").render(view=view)
    sheets = f"{_stylesheet()}{(FOLDER / 'site.css').read_text()}".replace("../fonts/", "fonts/")
    return {name: _CHART.sub(_as_element, page) for name, page in pages.items()} | {"site.css": sheets}


def embed_assets(document: str) -> str:
    """HTML with fonts and scripts inside, to be sent alone, and charts as elements, in the page's fonts."""
    document = _CHART.sub(_as_element, document)
    scripts = [(FOLDER / "sorting.js").read_text()]
    if ' class="timeline"><svg ' in document:
        panzoom = FOLDER / "panzoom"
        terms = (panzoom / "MIT-License.txt").read_text()
        scripts.append(
            f"{(panzoom / 'panzoom.min.js').read_text()}\n/*\n{terms}*/\n{(FOLDER / 'zooming.js').read_text()}"
        )
    within = "".join(f'<script type="module">\n{script}</script>\n' for script in scripts)
    credits = CREDITS if len(scripts) > 1 else ""
    document = document.replace("</body>\n</html>", f"{credits}{within}</body>\n</html>")
    escaped = (chr(int(code, 16)) for code in re.findall(r"\\([0-9a-f]{4})", _stylesheet()))
    shown = {*map(ord, html.unescape(document)), *map(ord, string.printable), *map(ord, escaped)}
    for path in sorted((FOLDER / "fonts").glob("*.ttf")):
        font = base64.b64encode(_web_font(path, shown)).decode()
        document = document.replace(f'url("../fonts/{path.name}")', f'url("data:font/woff2;base64,{font}")')
    return document


def _web_font(path: Path, characters: Iterable[int]) -> bytes:
    """A font of these characters alone, as WOFF2: a twentieth of the whole. Without kerning, which takes five times as
    long to make as all the rest."""
    from fontTools import subset  # with WeasyPrint

    options = subset.Options(flavor="woff2", hinting=False)
    options.drop_tables += ["GPOS", "GSUB"]
    font, chosen, content = subset.load_font(str(path), options), subset.Subsetter(options), io.BytesIO()
    chosen.populate(unicodes=characters)
    chosen.subset(font)
    subset.save_font(font, content, options)
    return content.getvalue()
