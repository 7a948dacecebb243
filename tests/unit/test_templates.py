"""Templates place and word; views compute: what the report's templates may not hold."""

import re

import pytest
from jinja2 import Environment, nodes

from warpbook.common.files import PROJECT

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


@pytest.mark.parametrize("name", sorted(str(path.relative_to(REPORTS)) for path in REPORTS.rglob("*.j2")))
def test_a_template_computes_nothing_and_has_lines_that_can_be_read(name):
    assert faults((REPORTS / name).read_text()) == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{{ value / 1e6 }}", "1: Div"),
        ("\n{% if last - first > 3 %}{% endif %}", "2: Sub"),
        ("{{ head + tail }}", "1: Add"),
        ("{%- set _ = rows.append(row) %}", "1: a statement"),
        ("x" * 161, "1: 161 characters"),
    ],
)
def test_arithmetic_statements_and_long_lines_are_seen(source, fault):
    assert faults(source) == [fault]


def test_joining_words_and_comparing_are_not_arithmetic():
    assert faults('{% if rows > 3 %}{{ "at " ~ size ~ " images" }}{% endif %}') == []
