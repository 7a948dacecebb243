"""Write small commented files to start from: a notebook folder, a problem with its kernel and study, or a kernel.

warpbook init mynotes --problem gemm
warpbook new problem layer_norm
warpbook new kernel mine --problem gemm
"""

import argparse
import re
import shlex
import string
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from warpbook.common import version
from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import LIBRARY, OF_STUDY, PROJECT, RUN, atomic_write, from_project
from warpbook.common.quick_yaml import load_configuration
from warpbook.kernels import headers, sources, variants
from warpbook.problems import networks, problem
from warpbook.problems.problem import Problem

_NAME = re.compile(r"[a-z]\w*")
NAME = "its name: lower-case letters, digits and underscores"

TEMPLATES = Path(__file__).with_name("new_files")
IGNORED = "results/\nlogs/\nreports/out/\n.snakemake/\n__pycache__/\n"

NARRATIVE = """Write here what you tried and what you found: it becomes the discussion of the report on {study}.
"""
_OF_THE_ORIGINAL = ("title", "idea", "expect", "check", "claims", "reference", "builds_on")


def fill(template: str, **values: Any) -> str:
    """A file of `new_files/` with values in their places."""
    return string.Template((TEMPLATES / template).read_text()).substitute(values)


def declaration(of: Problem) -> str:
    """The head of a kernel that takes what a problem's kernels take."""
    taken = ", ".join(f"{of.c_type(name)} {name}" for name in of.arguments)
    return f'extern "C" __global__ void {of.function}({taken})'


def write_kernel(of: Problem, name: str, body: str) -> Path:
    """A kernel of one thread a value of the first output."""
    output = next(iter(of.outputs))
    count = " * ".join(f"({each})" if " " in str(each) else str(each) for each in of.outputs[output].shape)
    baseline = (
        of.facts.baseline
        if (variants.variant_folder(f"{of.name}/{of.facts.baseline}") / f"{of.facts.baseline}.cu").exists()
        else ""
    )
    text = fill(
        "kernel.cu",
        title=name.replace("_", " ").capitalize(),
        builds_on=f"builds_on: {baseline}\n" if baseline else "",
        count=count,
        declared=declaration(of),
        body=body or f"    {output}[i] = 0; // compute {output} here",
    )
    return write_new(problem.FOLDER / of.name / f"{name}.cu", text)


def write_new(path: Path, text: str) -> Path:
    """A file that is not there yet. Raises UserError where it is."""
    _require_absent(path)
    with atomic_write(path) as temporary:
        temporary.write_text(text)
    return path


def _require_absent(path: Path) -> None:
    if path.exists():
        raise UserError(f"{from_project(path)} is there already; take another name, or delete it")


def write_problem(name: str) -> list[Path]:
    """A problem, its first kernel, and a study of it in config.yaml."""
    folder, title = problem.FOLDER / name, name.replace("_", " ").capitalize()
    _require_absent(folder / problem.FILE)
    if name in problem.names():
        raise UserError(f"{name} is a built-in problem; take another name")
    text, _ = _configuration()
    changed = add_study(text, name, fill("study.yaml", name=name, title=title))
    described = write_new(folder / problem.FILE, fill("problem.py.txt", title=title))
    kernel = write_kernel(problem.read(folder), "naive", "    y[i] = 2 * x[i] + 1;")
    return [described, kernel, *_write_configuration(text, changed)]


def write_kernel_of_study(name: str, problem_name: str = "") -> tuple[list[Path], str]:
    """A kernel of a problem, by default the chosen study's; and the study that compares it from now on, if another."""
    text, values = _configuration()
    library = networks.library_configuration()["studies"]
    chosen, own = str(values.get("study", "")).split(",")[0], values.get("studies") or {}
    of = problem.find(problem_name or _problem_of(own.get(chosen, {})))
    studies = [study for study in (chosen, *own) if study in own and _problem_of(own[study]) == of.name]
    studies += [study for study, one in library.items() if one.get("cases") and _problem_of(one) == of.name]
    taken = variants.discover().get(variants.full_name(of, name))
    if taken and not taken.own:
        raise UserError(f"{name} is a built-in kernel of {of.name}; take another name")
    kernel = write_kernel(of, name, "")
    variant = variants.read(kernel.stem, kernel.parent)
    if variant.read_error:
        raise UserError(variant.read_error)
    study = next(iter(studies), "")
    listed = (own.get(study) or library.get(study, {})).get("variants")
    changed = add_variant(text, study, name, listed) if listed else text
    return [kernel, *_write_configuration(text, changed)], "" if study == chosen else study


def _configuration() -> tuple[str, dict[str, Any]]:
    """The text of config.yaml, and what it holds with the library's."""
    path = PROJECT / "config.yaml"
    values = networks.with_library(load_configuration(path) or {})
    if not isinstance(values, dict):
        raise UserError("config.yaml is not YAML of the form `key: value`")
    return path.read_text(), values


def _problem_of(study: Mapping[str, Any]) -> str:
    return study.get("problem") or headers.DEFAULT_PROBLEM


def add_study(text: str, name: str, study: str) -> str:
    """A configuration with one study more, the last of `studies:`. Raises UserError where there can be none."""
    studies = _value_of(yaml.compose(text), "studies")
    if studies is None:
        return f"{text.rstrip()}\n\nstudies:{study}"
    if not isinstance(studies, yaml.MappingNode) or studies.flow_style or not studies.value:
        raise UserError("config.yaml: `studies:` does not hold a study a line; write it so, or add the study yourself")
    if _value_of(studies, name):
        raise UserError(f"config.yaml has a study {name} already; take another name")
    indent, end = studies.value[0][0].start_mark.column, _last_line(studies) + 1
    lines = text.splitlines(keepends=True)
    added = textwrap.indent(textwrap.dedent(study), " " * indent)
    return "".join(lines[:end]).rstrip("\n") + f"\n{added}" + "".join(lines[end:])


def add_variant(text: str, study: str, name: str, variants: Sequence[str]) -> str:
    """A configuration in which a study lists one variant more, the first; `variants`: those that it has."""
    described = _value_of(_value_of(yaml.compose(text), "studies"), study)
    if described is None:
        return add_study(text, study, f"\n  {study}:\n    variants: {_flow([name, *variants])}\n")
    listed = _value_of(described, "variants")
    if not isinstance(listed, yaml.SequenceNode) or not listed.value:
        return text
    mark = listed.value[0].start_mark
    between = ", " if listed.flow_style else f"\n{' ' * (mark.column - 2)}- "
    return f"{text[: mark.index]}{name}{between}{text[mark.index :]}"


def _value_of(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """What a mapping holds under a key."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)


def _last_line(node: yaml.Node) -> int:
    """The number of the last line of a value; a block's own mark stands at what follows it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.line) - (node.end_mark.column == 0)


def _write_configuration(before: str, text: str) -> list[Path]:
    """config.yaml, where it changes."""
    if text == before:
        return []
    configuration = PROJECT / "config.yaml"
    with atomic_write(configuration) as temporary:
        temporary.write_text(text)
    return [configuration]


def write_notebook(folder: Path, of: Problem) -> list[Path]:
    """A notebook folder: a configuration, a first kernel that computes a built-in problem as its baseline does, and
    what git and GitHub need. Raises UserError where the library has no study or no baseline of the problem."""
    library = networks.library_configuration()["studies"]
    known = {study["problem"]: name for name, study in library.items() if study.get("cases")}
    if of.name not in known or not of.facts.baseline:
        raise UserError(
            f"--problem {of.name}: Warpbook has no study of it to begin with; take one of {', '.join(known)}"
        )
    study, name, baseline = library[known[of.name]], f"my_{of.name}", of.facts.baseline
    every = (one for one in variants.discover(LIBRARY / "kernels" / of.name).values() if one.header.peer)
    peers = [one.stem for one in every if one.device == "gpu" and one.stem.endswith(("_fp32", "cub"))]
    files = {
        "config.yaml": fill(
            "config.yaml",
            study=known[of.name],
            title=_flow([of.title])[1:-1],
            variants=", ".join([name, baseline, *peers]),
            sections=_flow([*study["sections"], "discussion"]),
        ),
        f"reports/narrative/{known[of.name]}.md": NARRATIVE.format(study=known[of.name]),
        ".gitignore": IGNORED,
        ".github/workflows/warpbook.yml": fill("workflow.yaml", version=version.VERSION),
    }
    original = LIBRARY / "kernels" / of.name / baseline
    files[f"kernels/{of.name}/{name}.cu"] = _copy_of(original.with_suffix(".cu"))
    if original.with_suffix(".py").exists():
        files[f"kernels/{of.name}/{name}.py"] = original.with_suffix(".py").read_text()
    if file := next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None):
        raise UserError(f"{file} is a file; take another folder, or delete it")
    if there := next((path for path in files if (folder / path).exists()), ""):
        raise UserError(f"{folder / there} is there already; take another folder, or delete it")
    return [write_new(folder / path, text) for path, text in files.items()]


def _flow(value: Any) -> str:
    """A value as YAML in one line."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).strip()


def _copy_of(path: Path) -> str:
    """A kernel of the library as the first of a notebook: its code and launch, under words to replace."""
    source = sources.read_cuda(path)
    kept = {key: one for key, one in headers.parse_facts(source.header).items() if key not in _OF_THE_ORIGINAL}
    facts = "".join(f"{key + ':':10} {_flow({key: one})[1:-1].partition(': ')[2]}\n" for key, one in kept.items())
    words = {"title:": "My first kernel", "idea:": f"A copy of {path.stem}: change it, and say here what is different.",
             "expect:": f"As fast as {path.stem}, until you change it.", "builds_on:": path.stem}  # fmt: skip
    header = "".join(f"{key:10} {text!r}\n" if ": " in text else f"{key:10} {text}\n" for key, text in words.items())
    return f"/*\n{header}{facts}*/{source.code}"


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is no name of small letters, digits and underscores; take one, such as layer_norm")
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("problem", help="a problem, its first kernel and a study").add_argument("name", help=NAME)
    kernel = kinds.add_parser("kernel", help="one more kernel")
    kernel.add_argument("name", help=NAME)
    kernel.add_argument("--problem", default="", help="what it computes; by default what the study in config.yaml does")
    notebook = kinds.add_parser("notebook", help="a folder for your own kernels")
    notebook.add_argument("folder", type=Path)
    notebook.add_argument("--problem", default="gemm", help="the built-in problem of its first kernel")
    arguments = parser.parse_args()
    if arguments.kind == "notebook":
        for path in write_notebook(arguments.folder, problem.find(arguments.problem)):
            print(path)
        there = arguments.folder.resolve() == Path.cwd()
        print(f"then: {'' if there else f'cd {shlex.quote(str(arguments.folder))} && '}warpbook report")
        return
    name = check_name(arguments.name)
    made, study = (
        (write_problem(name), name) if arguments.kind == "problem" else write_kernel_of_study(name, arguments.problem)
    )
    for path in made:
        print(from_project(path))
    print(f"then: {RUN} report{f' {OF_STUDY}{study}' if study else ''}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
