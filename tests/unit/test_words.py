"""Plain words: what templates, views and kernels' headers print, without private words and in sentences that can be read."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from warpbook.common.files import PROJECT
from warpbook.kernels import variants, whole_networks

MOST_WORDS = 30
PRIVATE = re.compile(
    r"\b(in turn|taken apart|told|watch(es|ed)?|halves|fruitful|fruitless|harmful|not settled|settled|taps?|figures?|"
    r"orders (a|its|the|four|one|copies)|peers?|put aside)\b"
)
REPORT = PROJECT / "scripts" / "warpbook" / "report"
MODULES = sorted(REPORT.rglob("*.py"))
TEMPLATES = sorted([*(PROJECT / "reports" / "sections").glob("*.j2"), *(PROJECT / "reports").glob("*.j2")])
NARRATIVES = sorted((PROJECT / "reports" / "narrative").glob("*.md"))
KERNELS = [*variants.discover().values(), *whole_networks.discover().values()]
VALUE = "X"


def texts_of_template(source: str) -> Iterator[str]:
    """What a template prints, a block of text at a time; VALUE stands for what a view gives it."""
    source = re.sub(r"{#.*?#}", "", source, flags=re.S)
    for expression in re.findall(r"{[{%](.*?)[%}]}", source, flags=re.S):
        yield from re.findall(r'"([^"]*)"', expression)
    source = re.sub(r"{%.*?%}", "", source, flags=re.S)
    source = re.sub(r"{{.*?}}", VALUE, source, flags=re.S)
    for block in re.split(r"\n\n|</?(?:p|li|ul|ol|div|h\d|pre|dt|dd|dl|section|nav|th|td|tr|table)\b[^>]*>", source):
        yield re.sub(r"<[^>]+>|&nbsp;", " ", block)


def texts_of_module(source: str) -> Iterator[str]:
    """The strings of a module, but for its docstrings; VALUE stands for what is formatted in."""
    tree = ast.parse(source)
    quiet = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    quiet |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
            yield from texts_of_template(words)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quiet | within:
            yield from texts_of_template(node.value)


def texts(path: Path) -> Iterator[str]:
    yield from (texts_of_module if path.suffix == ".py" else texts_of_template)(path.read_text())


def sentences(text: str) -> list[str]:
    """A text's sentences, each on one line."""
    text = re.sub("[\u202f\u00a0]", "", text)  # a number and its unit are one word
    return re.split(r"(?<=[.!?:;])\s+(?=[A-Z“<(])", " ".join(text.split()))


def faults(text: str) -> list[str]:
    """The private words and the long sentences of a text."""
    private = [f"“{found[0]}” in: {one}" for one in sentences(text) for found in PRIVATE.finditer(one)]
    return private + [f"{len(one.split())} words: {one}" for one in sentences(text) if len(one.split()) > MOST_WORDS]


def test_what_a_report_prints_has_no_private_word_and_no_sentence_of_more_than_thirty_words():
    found = {
        path.name: [fault for text in texts(path) if " " in text.strip() for fault in faults(text)]
        for path in [*TEMPLATES, *MODULES, *NARRATIVES]
    }
    assert {name: its for name, its in found.items() if its} == {}


def test_what_a_kernel_s_header_says_has_none_either():
    found = {one.name: faults(one.header.idea) + faults(one.header.expect) for one in KERNELS}
    assert {name: its for name, its in found.items() if its} == {}


def test_private_words_and_long_sentences_are_seen_in_templates_and_views():
    assert faults("Two variants were timed in turn.") == ["“in turn” in: Two variants were timed in turn."]
    assert len(faults("word " * 31)) == 1 and faults("word " * 30) == []
    assert faults("A short one. " * 20) == []
    assert [*texts_of_module('"""Told."""\nx = f"It was {1} told"')] == ["It was X told"]
    assert "It was X told" in "".join(texts_of_template("<p>It was {{ x }} {# in turn #}told</p>"))
