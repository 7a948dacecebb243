"""HTML as a PDF that everyone can read and that lasts: PDF/UA-1 and PDF/A-3a, its runs' tables within."""

import io
import logging
import re
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from warpbook.common.errors import UserError
from warpbook.common.files import LIBRARY, disk_failures_named, scratch_folder
from warpbook.common.supervision import VariantFailure, limit_resources, run_supervised
from warpbook.runs import archive_reader, schema, tables
from warpbook.runs.catalog import Run

if TYPE_CHECKING:
    from weasyprint.urls import URLFetcher

REPORTS = LIBRARY / "reports"

VARIANT = "pdf/a-3a"

LEVEL = 7  # of zlib: a fiftieth more bytes than at 9, which pydyf asks for, in a third of the time

LAYOUT_S, LAYOUT_BYTES = 300, 3 << 30
"""Of a processor and of memory, for pages that hold strangers' words; those of a submission take a tenth of either."""

COMPANION = "companion:"
"""What an address in HTML begins with that leads to a place in another PDF beside this one: `companion:a.pdf#place`."""

# WeasyPrint claims one standard a file: PDF/A-3a. This claims PDF/UA-1 beside it, and tells PDF/A's readers the word.
PDF_UA = b"""<rdf:Description rdf:about="" xmlns:pdfuaid="http://www.aiim.org/pdfua/ns/id/">
<pdfuaid:part>1</pdfuaid:part>
</rdf:Description>
<rdf:Description rdf:about="" xmlns:pdfaExtension="http://www.aiim.org/pdfa/ns/extension/"
 xmlns:pdfaSchema="http://www.aiim.org/pdfa/ns/schema#" xmlns:pdfaProperty="http://www.aiim.org/pdfa/ns/property#">
<pdfaExtension:schemas><rdf:Bag><rdf:li rdf:parseType="Resource">
<pdfaSchema:schema>PDF/UA identification</pdfaSchema:schema>
<pdfaSchema:namespaceURI>http://www.aiim.org/pdfua/ns/id/</pdfaSchema:namespaceURI>
<pdfaSchema:prefix>pdfuaid</pdfaSchema:prefix>
<pdfaSchema:property><rdf:Seq><rdf:li rdf:parseType="Resource">
<pdfaProperty:name>part</pdfaProperty:name>
<pdfaProperty:valueType>Integer</pdfaProperty:valueType>
<pdfaProperty:category>internal</pdfaProperty:category>
<pdfaProperty:description>Part of ISO 14289 that the file keeps to</pdfaProperty:description>
</rdf:li></rdf:Seq></pdfaSchema:property>
</rdf:li></rdf:Bag></pdfaExtension:schemas>
</rdf:Description>
</rdf:RDF>"""


def attachments(cited: Iterable[Run]) -> list[Any]:
    """Each run's record and its plain tables; samples and traced events, which are megabytes, stay in the run."""
    from weasyprint import Attachment

    attached = {}
    for run in cited:
        ended = datetime.fromisoformat(run.record["ended"]).astimezone(UTC)
        meanings = {"run.json": "the run's record: machine, versions, configuration"}
        meanings |= {table.name: f"a row is {table.row}" for table in tables.RUN_TABLES if table.name.endswith(".csv")}
        for file, meaning in meanings.items():
            try:
                content = archive_reader.read(run.path, file)
            except archive_reader.MissingMember:  # a run may lack an optional table
                continue
            name = f"{run.run_id}_{file}"
            if file != "run.json":  # strangers' words may be in it, and a spreadsheet opens it
                content = schema.for_spreadsheets(content)
            attached[name] = Attachment(
                string=content, name=name, description=meaning, created=ended, modified=ended, relationship="Data"
            )
    return [attached[name] for name in sorted(attached)]  # a PDF wants them in the order of their names


class LayoutLimit(UserError):
    """Pages take more time or memory than strangers' may."""


class UndrawableImage(UserError):
    """No font here has these characters."""

    def __init__(self, characters: set[str]):
        self.characters = characters
        named = ", ".join(f"U+{ord(one):04X}" for one in sorted(characters)[:20])
        super().__init__(f"WeasyPrint could not draw everything: no font has {named}")

    def __reduce__(self) -> tuple[type["UndrawableImage"], tuple[set[str]]]:
        return UndrawableImage, (self.characters,)  # as it was made, in another process too


def _fetcher() -> "URLFetcher":
    """What WeasyPrint may embed: what the document holds itself, and our fonts. Texts of strangers are in it."""
    from weasyprint.urls import URLFetcher

    fonts = (REPORTS / "fonts").resolve()

    class Fetcher(URLFetcher):  # type: ignore[misc]  # WeasyPrint brings no types
        def fetch(self, url: str, headers: Any = None) -> Any:
            path = Path(unquote(urlsplit(url).path)).resolve()
            if not url.startswith("data:") and not (url.startswith("file:///") and path.parent == fonts):
                raise ValueError("a report embeds nothing but its own pictures and fonts")
            return super().fetch(url, headers)

    return Fetcher()


def _finish(_: Any, pdf: Any) -> None:
    """Keep what WeasyPrint leaves open of PDF/A, and say in a PDF/A that it is a PDF/UA too."""
    import pydyf

    for one in pdf.objects:
        if getattr(one, "extra", {}).get("Subtype") == "/Image":
            one.extra["Interpolate"] = "false"  # of a picture within a chart no style is asked
        if isinstance(one, pydyf.Dictionary) and one.get("Subtype") == "/Link" and "A" in one:
            address = one["A"]["URI"].string
            if address.startswith(COMPANION):
                file, place = address.removeprefix(COMPANION).split("#")
                names = {"F": pydyf.String(file), "D": pydyf.String(place)}
                one["A"] = pydyf.Dictionary({"Type": "/Action", "S": "/GoToR", **names})
                one["Contents"] = pydyf.String(f"{place} in {file}")
    metadata = pdf.objects[int(pdf.catalog["Metadata"].split()[0])]
    metadata.stream = [part.replace(b"</rdf:RDF>", PDF_UA) for part in metadata.stream]
    metadata.compress = False  # PDF/A wants it to be found by programs that read no PDF


@cache
def weasyprint() -> Any:
    """WeasyPrint, its PDF writer mended; loaded once where a process is forked after this. UserError without it or Pango."""
    try:
        # Without Pango it prints its own advice.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.filterwarnings("ignore", "No fonts configured")  # of the system, and pages bring their own
            import weasyprint
    except ModuleNotFoundError as error:
        raise UserError(f"WeasyPrint cannot be imported ({error}); install it with: pip install weasyprint") from error
    except OSError as error:
        raise UserError(
            f"WeasyPrint cannot load Pango ({error}); install it with: "
            "apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0"
        ) from error
    _mend_pydyf()
    return weasyprint


def _mend_pydyf() -> None:
    """Have every stream of a PDF end in CR LF, for where data end in CR, readers of PDF/A take a lone LF for a part of
    the end; and compressed at LEVEL, once, where pydyf does so again for the file's identifier."""
    import pydyf

    content = pydyf.Stream.data.fget

    def data(stream: Any) -> Any:
        held = [*stream.stream], {**stream.extra}, stream.compress
        if getattr(stream, "held", None) != held:
            stream.held = held
            stream.written = bytes(content(stream).removesuffix(b"\nendstream") + b"\r\nendstream")
        return stream.written

    pydyf.Stream.data = property(data)
    pydyf.zlib = SimpleNamespace(compressobj=lambda level: zlib.compressobj(level=min(level, LEVEL)))


def _pages(document: str) -> Any:
    page = weasyprint().HTML(string=document, base_url=str(REPORTS / "style") + "/", url_fetcher=_fetcher())
    return page.render(pdf_variant=VARIANT)


def lay_out(document: str) -> Any:
    """HTML on pages, as WeasyPrint's document, to be looked at. Raises UserError where WeasyPrint complains."""
    with _raise_complaints():
        return _pages(document)


def add_page_numbers(document: str) -> str:
    """HTML whose links of the class `pages` say on which pages of its PDF the section is that they lead to."""
    where: dict[str, int] = {}
    for number, page in enumerate(lay_out(document).pages, 1):
        where |= dict.fromkeys(page.anchors, number)

    def filled_in(link: re.Match[str]) -> str:
        first, last = where[link[2]], where[f"end-{link[2]}"]
        return f"{link[1]}{first}</a>" if first == last else f"{link[1]}{first}\N{EN DASH}{last}</a>"

    return re.sub(r'(<a class="pages" href="#([^"]+)">)[^<]*</a>', filled_in, document)


def write_untrusted_pdf(document: str, target: Path, cited: Iterable[Run] = ()) -> None:
    """The same of HTML with strangers' words in it: a mark stands for each character that no font here has."""
    try:
        write_pdf(document, target, cited)
    except UndrawableImage as error:
        marked = document.translate({ord(one): "\N{REPLACEMENT CHARACTER}" for one in error.characters})
        write_pdf(marked, target, cited)


def within_limits(work: Callable[[], None]) -> None:
    """Work on strangers' words in a process of limited memory and time. Raises LayoutLimit, or what the work does."""

    def produce() -> Iterator[None]:
        tempfile.tempdir = str(folder)  # where WeasyPrint leaves what it does not take away when it is ended
        limit_resources(LAYOUT_BYTES, LAYOUT_S)
        with disk_failures_named(folder / "..."):
            work()
        yield

    try:
        with scratch_folder() as folder:
            list(run_supervised(produce, 3 * LAYOUT_S))
    except (VariantFailure, RuntimeError) as error:
        limits = ("MemoryError", "RecursionError", "BrokenProcessPool")
        if isinstance(error, RuntimeError) and not str(error).startswith(limits):
            raise
        raise LayoutLimit(
            f"laying it out takes more than {LAYOUT_S} s of a processor or {LAYOUT_BYTES >> 30} GiB of memory ({error})"
        ) from None


def write_pdf(document: str, target: Path, cited: Iterable[Run] = ()) -> None:
    """Write HTML as a tagged PDF that holds the tables of the runs `cited`. UserError where WeasyPrint complains."""
    with _raise_complaints():
        pages = _pages(document)
        pages.write_pdf(target, finisher=_finish, pdf_variant=VARIANT, attachments=attachments(cited))


@contextmanager
def _raise_complaints() -> Iterator[None]:
    """WeasyPrint's complaints end the block in a UserError."""
    complaints: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(record.getMessage())

    handler = Collector(logging.WARNING)
    logger = weasyprint().LOGGER
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    lacked = [re.fullmatch(r"\.notdef glyph .*\(U\+([0-9A-F]+)\)", line, re.DOTALL) for line in complaints]
    if complaints and all(lacked):
        raise UndrawableImage({chr(int(found[1], 16)) for found in lacked if found})
    if complaints:
        raise UserError("WeasyPrint could not draw everything:\n" + "\n".join(f"  {line}" for line in complaints[:20]))
