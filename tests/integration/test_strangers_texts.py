"""A run may be anybody's: whatever its texts hold is shown in reports and comparisons, and nothing of it is obeyed."""

import copy
import re
from datetime import datetime
from html.parser import HTMLParser

import pytest

from warpbook.common.errors import UserError
from warpbook.report import escaping, rendering
from warpbook.report.comparison import Comparison
from warpbook.report.pdf import write_pdf
from warpbook.runs import catalog, tables

HOSTILE = (
    '<link rel=attachment href="file:///etc/passwd"><img src=file:///etc/hostname onerror=x><hostile>'
    " ![a](file:///etc/passwd) [b](javascript:x) `<hostile>` ``` | <hostile> &lt;hostile&gt; {{ 7 * 7 }} $\\frac$ "
    "\x1b\n\n<hostile>\n\n| a | b |\n| --- | --- |\n\n# hostile\n"
)

# What says where a row belongs, or which of a few words it is: another value there makes another row of no variant.
PLACES = {
    "problem", "case", "variant", "network", "layer", "device", "job", "state", "kind", "status", "arch", "tool", "test", "weights",
    "metric", "unit", "stop_reason", "source_sha256", "kernel",
}  # fmt: skip


class Markup(HTMLParser):
    """Every tag of a document, and every address that it names."""

    def __init__(self, document):
        super().__init__()
        self.tags, self.addresses = set(), set()
        self.feed(document)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.addresses |= {value for name, value in attributes if name in ("href", "src")}
        assert not any(name.startswith("on") for name, _ in attributes)


def assert_harmless(document):
    found = Markup(document)
    assert not found.tags & {"hostile", "link", "script", "iframe", "object", "embed"}
    assert {address.split(":")[0] for address in found.addresses if not address.startswith("#")} <= {"data", "https"}


def hostile(run, columns=None):
    """A run with HOSTILE behind every word of these columns, or of every column of text that is no place."""
    read = {}
    for table in tables.RUN_TABLES:
        frame = run.table(table).copy()
        for name in frame.columns:
            text = (
                name not in table.columns or table.columns[name].dtype == "string"
            )  # others are words drawn from them
            if text and (name in columns if columns else name not in PLACES):
                frame[name] = frame[name] + HOSTILE
        read[table.name] = frame
    return catalog.Run(run.path, run.record, read)


@pytest.fixture(scope="module")
def ours(small_archive, opened):
    run = opened(small_archive)
    assert run.problem == ""
    return run


def test_no_text_of_a_run_is_markup_in_its_report(ours, small_archive, evidence_of, monkeypatch):
    stranger = hostile(ours)
    failed = stranger.table(tables.OP_TIMES)
    failed.loc[failed.variant == "coarsened", ["status", "reason"]] = ["refused", HOSTILE]
    monkeypatch.setattr(catalog, "open_run", lambda path: stranger)
    evidence = evidence_of(small_archive)
    document = rendering.Documents(evidence, datetime(2026, 1, 1), "0" * 40, dirty=False).whole
    assert "&lt;hostile&gt;" in document
    assert_harmless(document)


def test_no_text_of_a_run_is_markup_in_a_comparison(ours):
    for side in ["base", "head"]:
        stranger = hostile(ours)
        record = copy.deepcopy(ours.record)
        record["commit"] = record["machine"]["compiler"] = record["machine"]["system"] = HOSTILE
        record["machine"]["packages"] = {HOSTILE: HOSTILE}
        record["machine"]["gpu"]["driver"] = HOSTILE
        record["variants"] |= {HOSTILE: record["variants"]["direct"]}
        for name in ("coarsened", "direct"):
            record["variants"][name]["source_sha256"] = "0" * 64
        for table in (tables.CORRECTNESS, tables.OP_TIMES):
            frame = stranger.table(table)
            frame.loc[frame.variant == "fft", ["status", "reason"]] = ["refused", HOSTILE]
        stranger = catalog.Run(ours.path, record, stranger.loaded)
        found = Comparison(*((stranger, ours) if side == "base" else (ours, stranger)), 0.02)
        document = rendering.comparison_html(found)
        assert "&lt;hostile&gt;" in document
        assert "{{ 7 * 7 }}" in document
        assert_harmless(document)
        assert "hostile</h1>" not in document
        markdown = rendering.comparison_text(found)
        assert not re.search(r"(?m)^\s*(# hostile|\|? a \| b)", markdown)
        assert all(line.count(" | ") == 2 for line in markdown.splitlines() if line.startswith("| commit"))


def test_a_stranger_s_names_are_no_markup_in_a_comparison_either(ours):
    for names in [("variant", "job"), ("network",), ("layer",), ("case",), ("kernel",)]:
        record = copy.deepcopy(ours.record)
        for kind in ("variants", "networks"):
            record[kind] |= {key + HOSTILE: value for key, value in record[kind].items()}
        stranger = catalog.Run(ours.path, record, hostile(ours, names).loaded)
        changed = copy.deepcopy(record)
        for variant in changed["variants"].values():
            variant["source_sha256"] = "0" * 64
        slower = {**stranger.loaded, tables.BUILDS.name: stranger.table(tables.BUILDS).assign(registers=7)}
        found = Comparison(stranger, catalog.Run(ours.path, changed, slower), 0.02)
        document = rendering.comparison_html(found)
        assert found.movements
        assert_harmless(document)


def test_a_name_set_as_code_is_shown_as_it_is():
    for text in ["", "`", "a`b``c", "a|b", "<b>", "*a*", "\n# a", "\\"]:
        shown = escaping.to_html(f"| {escaping.code('a' + text)} |\n| --- |\n")
        assert len(re.findall("<code>", shown)) == 1
        assert "<b>" not in shown and "<em>" not in shown


def test_a_pdf_embeds_nothing_but_its_pictures_and_fonts(tmp_path):
    for element in [
        '<link rel="attachment" href="file:///etc/passwd">',
        '<img alt="" src="file:///etc/passwd">',
        '<img alt="" src="../fonts/../../README.md">',
        '<img alt="" src="http://localhost:9/x.png">',
        '<a rel="attachment" href="file:///etc/passwd">x</a>',
    ]:
        document = f'<html lang="en"><head><title>x</title></head><body><p>x</p>{element}</body></html>'
        with pytest.raises(UserError, match="a report embeds nothing but its own pictures and fonts"):
            write_pdf(document, tmp_path / "x.pdf")
