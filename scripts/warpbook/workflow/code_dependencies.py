"""The files that a program's results depend on: the modules that it imports, the programs that it starts and the data
files that they name, all read from the sources. Snakemake makes a file again when an input changed, and does not see
imports. So rules name these files as inputs."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from warpbook.common.files import LIBRARY, PACKAGE, display_path, from_project
from warpbook.runs.schema import Table

SCRIPTS = LIBRARY / "scripts"

PRESENTING = {
    "warpbook.runs.tables": "meanings are words; columns and types are a parameter of the rules that write them",
    "warpbook.common.errors": "words of failures and how a program shows them",
    "warpbook.config.settings": "checks the configuration; the values that decide reach a job as its parameters",
    "warpbook.common.units": "rounds figures for people",
}
"""Modules whose change makes no figure another one, each with the reason. What measures does not depend on them."""

EMULATOR = ("warpbook.harness.emulator", "warpbook.harness.emulator.emulation", "warpbook.harness.emulator.translation")
ELSEWHERE = {
    "cpu": {"warpbook.harness.gpu_bench", *EMULATOR},
    "emulator": {"warpbook.harness.gpu_bench"},
    "gpu": {*EMULATOR},
}
"""Modules that a job on a device does not load, though its program could."""


def program(name: str) -> str:
    """A program of `scripts/`, as the commands of the rules name it."""
    return from_project(SCRIPTS / name)


def inputs_for(program: str, device: str = "", presenting: bool = False) -> list[str]:
    """Files beside a program of `scripts/` that decide what it makes; `presenting` ones where people read."""
    without = ELSEWHERE.get(device, set()) | (set() if presenting else set(PRESENTING))
    return _paths(SCRIPTS / program, frozenset(without))


def all_code() -> list[str]:
    """Every file of the project's that a Snakemake of another project may work with, from the project's folder."""
    kinds = (
        "Snakefile",
        "rules/*.smk",
        "scripts/**/*.*",
        "weights/*.npz",
        "reports/*/*.*",
        "reports/*.j2",
        "reports/*.js",
    )
    files = [path for kind in kinds for path in LIBRARY.glob(kind)]
    files += PACKAGE.glob("**/*.*") if not PACKAGE.is_relative_to(SCRIPTS) else []
    left_out = ("reports/out", "reports/runs", "reports/narrative", "reports/published", "reports/answers")
    code = {path for path in files if path.is_file() and path.suffix != ".pyc"}
    return sorted(from_project(path) for path in code if not display_path(path).startswith(left_out))


def column_types(*written: Table) -> dict[str, dict[str, str]]:
    """What decides whether a table's file can still be read: its columns and their types, without their meanings."""
    return {table.name: {name: column.dtype for name, column in table.columns.items()} for table in written}


@cache
def _paths(program: Path, without: frozenset[str]) -> list[str]:
    left_out = {path for name in without if (path := module_path(name))}
    reached = {program}
    ahead = [program]
    while ahead:
        for path in _named_files(ahead.pop()) - reached - left_out:
            reached.add(path)
            if path.suffix == ".py":
                ahead.append(path)
    return sorted(from_project(path) for path in reached - {program})


@cache
def module_path(name: str) -> Path | None:
    """The file of a module of this project by its dotted name; None for a library's, or a name within a module."""
    package = name.partition(".")[0] == PACKAGE.name
    path = (PACKAGE.parent if package else SCRIPTS) / name.replace(".", "/")
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


# Every start of Snakemake reads all sources: Python's parser takes ten times as long as this, which is right for sources
# as ruff formats them.
_TYPES_ALONE = re.compile(r"^( *)if TYPE_CHECKING:\n(?:\1 +.*\n|\n)+", re.MULTILINE)
_IMPORT = re.compile(r"^ *(?:from ([\w.]+) )?import (\([^)]*\)|[^#\n]+)", re.MULTILINE)
_TEXT = re.compile(r'"([\w.-]+)"')


@cache
def _named_files(path: Path) -> set[Path]:
    """Files that one source names: modules imported, programs and data files as text; no types' imports."""
    source, files = _TYPES_ALONE.sub("", path.read_text()), _files_by_name(path.parent)
    named = {files[text] for text in _TEXT.findall(source) if text in files}
    for module, listed in _IMPORT.findall(source):
        names = [name.partition(" as ")[0].strip() for name in listed.strip("()").split(",")]
        named.update(_modules(f"{module}.{name}" if module else name for name in names))
    return named


def _modules(names: Iterable[str]) -> Iterator[Path]:
    """Files of this project that are loaded to import dotted names: modules, and the packages that they are in."""
    for name in names:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            if path := module_path(".".join(parts[:end])):
                yield path


@cache
def _files_by_name(folder: Path) -> dict[str, Path]:
    """What a source file in a folder can name as text: the programs, and the data files of its folder, of which a name
    without its ending is enough."""
    files = {path.name: path for path in SCRIPTS.glob("*.py")}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            files |= {path.name: path, path.stem: path}
    return files
