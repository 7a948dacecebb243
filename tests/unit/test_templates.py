"""Templates place and word; views compute: what the report's templates may not hold."""

import re

import pytest
from jinja2 import Environment, nodes

from warpbook.common.files import PROJECT
from warpbook.report import rendering

REPORTS = PROJECT / "reports"
LONGEST_LINE = 160
ARITHMETIC = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow)
STATEMENT = re.compile(r"{%[-+]?\s*set\s+_\W")


def faults(source: str) -> list[str]:
    """What a template computes, and its lines that are too long to read, each with its line."""
    lines = source.splitlines()
    long = [f"{place}: {len(line)} characters" for place, line in enumerate(lines, 1) if len(line) > LONGEST_LINE]
    set_aside = [f"{place}: a statement" for place, line in enumerate(lines, 1) if STATEMENT.search(line)]
    sums = [f"{node.lineno}: {type(node).__name__}" for node in Environment().parse(source).find_all(ARITHMETIC)]
    return long + set_aside + sums


def test_templates_compute_nothing_and_have_lines_that_can_be_read():
    found = {str(path.relative_to(REPORTS)): faults(path.read_text()) for path in REPORTS.rglob("*.j2")}
    assert found
    assert {name: told for name, told in found.items() if told} == {}


def test_arithmetic_statements_and_long_lines_are_seen_and_joining_words_is_none():
    for source, fault in {
        "{{ value / 1e6 }}": "1: Div",
        "\n{% if last - first > 3 %}{% endif %}": "2: Sub",
        "{%- set _ = rows.append(row) %}": "1: a statement",
        "x" * 161: "1: 161 characters",
    }.items():
        assert faults(source) == [fault]
    assert faults('{% if rows > 3 %}{{ "at " ~ size ~ " images" }}{% endif %}') == []


def test_a_template_is_compiled_once_for_all_environments_that_escape_alike(monkeypatch):
    rendering.templates().get_template("macros.html.j2")
    monkeypatch.setattr(Environment, "_parse", lambda *_: pytest.fail("compiled again"))
    assert rendering.templates().get_template("macros.html.j2")
    with pytest.raises(pytest.fail.Exception):
        rendering.templates(autoescape=False).get_template("macros.html.j2")
