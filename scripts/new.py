"""Write small commented files to start from: a notebook folder, a problem with its first kernel and study, or one more
kernel.

warpbook init mynotes --problem gemm
warpbook new problem layer_norm
warpbook new kernel mine --problem gemm
"""

import argparse
import re
import shlex
import string
import sys
from pathlib import Path
from typing import Any

import yaml

from warpbook.common import version
from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import LIBRARY, PROJECT, atomic_write, from_project
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
    if path.exists():
        raise UserError(f"{from_project(path)} is there already; take another name, or delete it")
    with atomic_write(path) as temporary:
        temporary.write_text(text)
    return path


def write_problem(name: str) -> list[Path]:
    """A problem, its first kernel, and a study of it at the end of config.yaml."""
    folder, title = problem.FOLDER / name, name.replace("_", " ").capitalize()
    described = write_new(folder / problem.FILE, fill("problem.py.txt", title=title))
    kernel = write_kernel(problem.read(folder), "naive", "    y[i] = 2 * x[i] + 1;")
    configuration = PROJECT / "config.yaml"
    content = configuration.read_text().rstrip("\n") + "\n"
    with atomic_write(configuration) as temporary:
        temporary.write_text(content + fill("study.yaml", name=name, title=title))
    return [described, kernel, configuration]


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
            problem=of.name,
            cases="\n".join(f"      - {_flow(case)}" for case in study["cases"]),
            sizes=study["sizes"],
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
    kernel.add_argument("--problem", default="conv", help="the problem that it computes: a folder in kernels/")
    notebook = kinds.add_parser("notebook", help="a folder for your own kernels")
    notebook.add_argument("folder", type=Path)
    notebook.add_argument("--problem", default="gemm", help="the built-in problem of its first kernel")
    arguments = parser.parse_args()
    if arguments.kind == "notebook":
        for path in write_notebook(arguments.folder, problem.find(arguments.problem)):
            print(path)
        print(f"then: cd {shlex.quote(str(arguments.folder))} && warpbook report")
        return
    name = check_name(arguments.name)
    if arguments.kind == "problem":
        made, study = write_problem(name), name
    else:
        of = problem.find(arguments.problem)
        made, study = [write_kernel(of, name, "")], arguments.problem
        variant = variants.read(made[0].stem, made[0].parent)
        if variant.read_error:
            raise UserError(variant.read_error)
    for path in made:
        print(from_project(path))
    print(f"then: warpbook report --study {study}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
