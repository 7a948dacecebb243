"""Write the smallest files that work, with comments: a problem with its first kernel and study, or one more kernel.

python scripts/new.py problem layer_norm
python scripts/new.py kernel mine --problem gemm
"""

import argparse
import re
import sys
from pathlib import Path

from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import PROJECT, atomic_write
from warpbook.kernels import variants
from warpbook.problems import problem
from warpbook.problems.problem import Problem

_NAME = re.compile(r"[a-z]\w*")
NAME = "its name, of small letters, digits and underscores"

PROBLEM = '''"""
title:   {title}
extents: {{n: values}}               # each a number of a case
inputs:  {{x: [n]}}                  # shape; another type: {{shape: [n], dtype: float16}}; optional: name it x?
outputs: {{y: [n]}}
flops:   2 * n                     # of the direct method; 0 where nobody counts them
sums:    1                         # terms of the longest sum: the tolerance follows from it
exact:   true                      # whether results on small integers are exact
ragged:  [{{n: 1}}, {{n: 1023}}]       # odd extents, checked besides the study's cases
"""


def reference(x):
    """float64, with NumPy's or CuPy's arrays. An extent, or xp (numpy or cupy), is a parameter where it is needed."""
    return 2 * x + 1


# Where an output is no sum of products, say the natural unit of its rounding error:
# def magnitude(x): return abs(reference(x))
'''

KERNEL = """/*
title:     {title}
idea:      What the kernel does differently from its baseline.
expect:    What that should do to the time, written before measuring.
{builds_on}threads:   [256]
grid:      [ceil({count} / 256)]
*/

{declared}
{{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= {count}) return;
{body}
}}
"""

STUDY = """
  {name}:
    title: {title}
    problem: {name}
    cases: [{{name: line, n: size}}]    # extents of each case, numbers or expressions of `size`
    sizes: [1024, 1048576]
    sections: [ladder, milestone_4, analysis, claims]
"""


def declaration(of: Problem) -> str:
    """The head of a kernel that takes what a problem's kernels take."""
    taken = ", ".join(f"{of.c_type(name)} {name}" for name in of.arguments)
    return f'extern "C" __global__ void {of.function}({taken})'


def write_kernel(of: Problem, name: str, body: str) -> Path:
    """A kernel of one thread a value of the first output."""
    output = next(iter(of.outputs))
    count = " * ".join(f"({each})" if " " in str(each) else str(each) for each in of.outputs[output].shape)
    baseline = of.facts.baseline if (of.folder / f"{of.facts.baseline}.cu").exists() else ""
    text = KERNEL.format(
        title=name.replace("_", " ").capitalize(),
        builds_on=f"builds_on: {baseline}\n" if baseline else "",
        count=count,
        declared=declaration(of),
        body=body or f"    {output}[i] = 0; // compute {output} here",
    )
    return write_new(of.folder / f"{name}.cu", text)


def write_new(path: Path, text: str) -> Path:
    """A file that is not there yet. Raises UserError where it is."""
    if path.exists():
        raise UserError(f"{path.relative_to(PROJECT)} is there already; take another name, or delete it")
    with atomic_write(path) as temporary:
        temporary.write_text(text)
    return path


def write_problem(name: str) -> list[Path]:
    """A problem, its first kernel, and a study of it at the end of config.yaml."""
    folder, title = problem.FOLDER / name, name.replace("_", " ").capitalize()
    described = write_new(folder / problem.FILE, PROBLEM.format(title=title))
    kernel = write_kernel(problem.read(folder), "naive", "    y[i] = 2 * x[i] + 1;")
    configuration = PROJECT / "config.yaml"
    content = configuration.read_text().rstrip("\n") + "\n"
    with atomic_write(configuration) as temporary:
        temporary.write_text(content + STUDY.format(name=name, title=title))
    return [described, kernel, configuration]


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is no name of small letters, digits and underscores; take one, such as layer_norm")
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("problem", help="a problem, its first kernel and a study").add_argument("name", help=NAME)
    kernel = kinds.add_parser("kernel", help="one more kernel")
    kernel.add_argument("name", help=NAME)
    kernel.add_argument("--problem", default="conv", help="the problem that it computes: a folder of kernels/")
    arguments = parser.parse_args()
    name = check_name(arguments.name)
    if arguments.kind == "problem":
        made, study = write_problem(name), name
    else:
        of = problem.find(arguments.problem)
        made, study = [write_kernel(of, name, "")], arguments.problem
        variant = variants.read(made[0].stem, of.folder)
        if variant.read_error:
            raise UserError(variant.read_error)
    for path in made:
        print(path.relative_to(PROJECT))
    print(f"then: snakemake --cores 1 report --config study={study}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
