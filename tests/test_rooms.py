"""The package's rooms: which part may import which, and how large a module and a class may grow."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpbook.files import PROJECT

PACKAGE = PROJECT / "scripts" / "warpbook"
MODULES = sorted(PACKAGE.rglob("*.py"))
PROGRAMS = sorted([*PROJECT.glob("scripts/*.py"), *PROJECT.glob("kernels/*.py"), *PROJECT.glob("tests/*.py")])

# Each room and the rooms whose modules it may import, besides its own. "" is the subject, at the package's top.
MAY_IMPORT = {
    "": set(),
    "harness": {""},
    "profiling": {""},
    "report": {"", "harness", "profiling"},
}
# What only a report needs. A machine that measures does without.
FOR_REPORTS = ("weasyprint", "matplotlib", "jinja2")

ENDINGS = (".py", "/__init__.py")  # of a module, and of a package
LINES_AT_MOST = 400
METHODS_AT_MOST = 25


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room_of(module: str) -> str:
    """The room of a module by its path in the package, such as `harness/gpu.py` or `harness/gpu`."""
    room, inside, _ = module.partition("/")
    return room if inside else ""


def imports_of(path: Path) -> Iterator[str]:
    """Modules of the package that a file imports anywhere in it, by their path in the package without its ending."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [module_named(node.module, alias.name) for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("warpbook.").replace(".", "/") for name in names if name.startswith("warpbook."))


def module_named(module: str, name: str) -> str:
    """The module that `from module import name` imports: a package's module, or the one that offers the name."""
    start = PACKAGE.parent / module.replace(".", "/") / "__init__.py"
    if not start.exists():
        return module
    nodes = list(ast.walk(ast.parse(start.read_text())))
    offered = {getattr(node, "id", None) or getattr(node, "name", None) for node in nodes}
    return f"{module}.{'__init__' if name in offered else name}"


def test_every_package_is_a_room_with_a_rule():
    assert {room_of(name_of(path)) for path in MODULES} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path):
    room = room_of(name_of(path))
    reached = {room_of(imported) for imported in imports_of(path)}
    assert reached <= {room, *MAY_IMPORT[room]}


@pytest.mark.parametrize("path", [*MODULES, *PROGRAMS], ids=lambda path: path.relative_to(PROJECT).as_posix())
def test_every_import_names_a_module_that_is_there(path):
    """Of those inside functions too, which would fail only on a machine with a GPU."""
    missing = [name for name in imports_of(path) if not any((PACKAGE / f"{name}{end}").exists() for end in ENDINGS)]
    assert not missing


def test_imports_are_absolute():
    """A relative import would escape the tests above."""
    relative = [
        name_of(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


def test_only_the_report_loads_what_only_a_report_needs():
    """In a new process, so that what this one loaded does not count."""
    names = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in MODULES
        if room_of(name_of(path)) != "report" and path.name != "__init__.py"
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except ModuleNotFoundError as missing:\n"  # CuPy, where CUDA is not installed
        "        assert not missing.name.startswith('warpbook'), missing\n"
        f"    loaded = [package for package in {FOR_REPORTS!r} if package in sys.modules]\n"
        "    assert not loaded, f'{name} loads {loaded}'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_module_is_too_long_to_read():
    long = {name_of(path) for path in MODULES if len(path.read_text().splitlines()) > LINES_AT_MOST}
    assert not long


def test_no_class_has_too_many_public_methods():
    large = {
        f"{name_of(path)}: {node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and len(public_methods(node)) > METHODS_AT_MOST
    }
    assert not large


def public_methods(definition: ast.ClassDef) -> list[str]:
    functions = (node.name for node in definition.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [name for name in functions if not name.startswith("_")]
