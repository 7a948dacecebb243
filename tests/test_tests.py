"""What tests may lean on: fixtures and public names, not each other nor a module's inside."""

import ast
from pathlib import Path

import pytest

from warpbook.files import PROJECT

TESTS = sorted((PROJECT / "tests").glob("*.py"))
CODE = sorted((PROJECT / "scripts").rglob("*.py"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_"


def private_names(path: Path) -> set[str]:
    """Private functions, classes, methods, variables and fields that a file defines."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    fields = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return {name for name in defined | assigned | fields if is_private(name)}


PRIVATE = set().union(*map(private_names, CODE))


def names_used(path: Path) -> set[str]:
    """Names that a test takes from elsewhere: imported, reached through a dot, or given to monkeypatch as text."""
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used.add(node.value.rpartition(".")[2])
    return used


def modules_imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_a_test_imports_no_other(path):
    """What two of them need is a fixture, in conftest.py or databases.py."""
    others = modules_imported(path) & {other.stem for other in TESTS}
    assert not others


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_a_test_uses_no_private_name_of_the_code(path):
    private = names_used(path) & PRIVATE
    assert not private
