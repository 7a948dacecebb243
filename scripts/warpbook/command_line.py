"""The command `warpbook`: each subcommand runs a target of the Snakefile, or a program of scripts/, in this folder."""

import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from warpbook.common import text_encoding, version
from warpbook.common.files import LIBRARY, PROJECT_VARIABLE
from warpbook.kernels.languages import is_installed

EXIT_STATUSES = """Exit status: 0 success; 1 a job failed, or config.yaml is wrong; 2 a mistake in the command.

`warpbook compare`: 0 no regression, 3 regression, 4 ambiguous, 5 not comparable, 1 failure."""

app = typer.Typer(
    help="A laboratory notebook for CUDA kernels that writes itself.",
    epilog=EXIT_STATUSES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Options that a subcommand does not know are Snakemake's, or the program's."""

Cores = Annotated[str, typer.Option(help="processor cores that jobs may use")]
StudyName = Annotated[
    str, typer.Option(help="a study of config.yaml, several (a,b), or all; by default that of `study:`")
]
Changes = Annotated[
    list[str], typer.Option("--config", metavar="KEY=VALUE", help="set a key of config.yaml for this command")
]

NO_CHANGES: list[str] = []
OTHER_OPTIONS = "Other options are Snakemake's: -n lists the jobs, each with its reason."

TARGETS = {
    "report": "Make the report.\n\nIt writes reports/out/<study>.pdf, a supplement and an HTML page.",
    "check": "Build and check every kernel.\n\nNothing is timed. Without a GPU, kernels are emulated.",
    "measure": "Measure on this machine.\n\nIt writes the run to results/run.",
    "archive": "Measure, and pack the run.\n\nIt writes reports/runs/<run>.zip.",
    "site": "Write pages about all archived runs.\n\nThe first is reports/out/site/index.html.",
    "count": "Read hardware counters with Nsight Compute.",
    "sanitize": "Run every kernel under compute-sanitizer.",
    "stream": "Label millions of images on all GPUs.",
    "track": "Log all archived runs to MLflow.",
}
"""Targets of the Snakefile, and their effects."""
WITHOUT_COMPILER = ("site", "track")


def _execute(*command: str) -> NoReturn:
    """Become another Python program, in this folder. Its exit status is this command's."""
    os.environ.update({"PYTHONUTF8": "1", PROJECT_VARIABLE: os.environ.get(PROJECT_VARIABLE) or str(Path.cwd())})
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # images for containers set it; many short programs would recompile
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *command])


def _fail(reason: str) -> NoReturn:
    print(f"error: {reason}", file=sys.stderr)
    raise SystemExit(2)


def _require_notebook() -> None:
    if not Path("config.yaml").exists():
        _fail("there is no config.yaml here; make a notebook folder by `warpbook init <folder>`, or change into one")


def _library() -> Path:
    """What has the Snakefile and the programs: in a clone, the clone."""
    here = Path.cwd()
    return here if (here / "scripts" / "warpbook").is_dir() else LIBRARY


def _program(name: str, *arguments: str) -> NoReturn:
    _execute(str(_library() / "scripts" / name), *arguments)


def _target(name: str, context: typer.Context, cores: str, changes: list[str], **settings: str) -> NoReturn:
    """Have Snakemake make a target under settings of the configuration."""
    _require_notebook()
    if name not in WITHOUT_COMPILER and not is_installed("cuda.bindings"):
        _fail("no CUDA compiler is installed here; `warpbook doctor` names the command that installs it")
    if cores != "all" and not cores.isdecimal():
        _fail(f"--cores {cores}: write a number, or all")
    more = [
        word for word in context.args if "=" in word and not word.startswith("-")
    ]  # --config a=1 b=2, as Snakemake has it
    named = [*changes, *more, *(f"{key}={value}" for key, value in settings.items() if value)]
    if wrong := next((change for change in named if "=" not in change), ""):
        _fail(f"--config {wrong}: write KEY=VALUE, such as gpu=none")
    passed = [word for word in context.args if word not in more]
    _refuse_unknown_options(passed)
    configuration = ["--config", *named] if named else []
    # -P: no file of this folder takes the place of a package.
    snakefile = ["--snakefile", str(_library() / "Snakefile")]
    _execute("-Pm", "snakemake", *snakefile, "--cores", cores, name, *passed, *configuration)


def _refuse_unknown_options(words: list[str]) -> None:
    """Snakemake would print its usage, several screens of it."""
    if any(word.startswith("-") and word not in ("-n", "--dry-run") for word in words):
        from snakemake.cli import get_argument_parser

        parser = get_argument_parser()
        parser.error = _fail
        if unknown := [word for word in parser.parse_known_args(words)[1] if word.startswith("-")]:
            name = unknown[0].partition("=")[0]
            known = ["--study", "--cores", "--config", *parser._option_string_actions]
            close = get_close_matches(name, known, n=1)
            _fail(f"there is no option {name}" + (f"; did you mean {close[0]}?" if close else ""))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"Warpbook {version.VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@app.command()
def init(
    folder: Annotated[str, typer.Argument(help="the folder to create or fill")],
    problem: Annotated[str, typer.Option(help="what its first kernel computes: conv, gemm, reduce, softmax")] = "gemm",
) -> None:
    """Make a notebook folder.

    It gets config.yaml, a first kernel, and a workflow for GitHub."""
    _program("new.py", "notebook", folder, "--problem", problem)


new = typer.Typer(no_args_is_help=True)
app.add_typer(new, name="new", help="Write a kernel or a problem to start from.")
NewName = Annotated[str, typer.Argument(help="its name: lower-case letters, digits and underscores")]


@new.command("kernel")
def new_kernel(
    name: NewName,
    problem: Annotated[str, typer.Option(help="what it computes; by default what the study in config.yaml does")] = "",
) -> None:
    """Write a kernel, and name it in the study."""
    _require_notebook()
    _program("new.py", "kernel", name, *(["--problem", problem] if problem else []))


@new.command("problem")
def new_problem(name: NewName) -> None:
    """Write a problem, its first kernel and a study."""
    _require_notebook()
    _program("new.py", "problem", name)


def _add_target(name: str, effect: str) -> None:
    def run(context: typer.Context, study: StudyName = "", cores: Cores = "all", config: Changes = NO_CHANGES) -> None:
        _target(name, context, cores, config, study=study)

    app.command(name, help=effect, epilog=OTHER_OPTIONS, context_settings=PASSED_ON)(run)


for _name, _effect in TARGETS.items():
    _add_target(_name, _effect)


@app.command()
def compare(
    base: Annotated[str, typer.Argument(help="the run to compare with: an id of an archived run, or a path")],
    head: Annotated[str, typer.Argument(help="the run to judge")],
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="smallest change that is reported; by default that of config.yaml"),
    ] = None,
    notes: Annotated[bool, typer.Option("--notes", help="print only the worst changes, as Markdown")] = False,
) -> None:
    """Compare two runs, or two files of nvbench.

    It writes reports/out/compare.pdf. Exit status: 0 no regression, 3 regression, 4 ambiguous, 5 not comparable,
    1 failure."""
    options = [*(["--tolerance", str(tolerance)] if tolerance is not None else []), *(["--notes"] if notes else [])]
    _program("compare_runs.py", f"--base={base}", f"--head={head}", *options)


@app.command("import", context_settings=PASSED_ON, add_help_option=False)
def import_profile(context: typer.Context) -> None:
    """Import profiles of nvprof or Nsight.

    For example: warpbook import FILE --study fa18 --variant direct --size 1000."""
    _program("import_profile.py", *context.args)


@app.command(context_settings=PASSED_ON)
def submission(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="the folder of the submission")],
    study: Annotated[str, typer.Option(help="its term, such as sp25")],
    cores: Cores = "all",
    config: Changes = NO_CHANGES,
) -> None:
    """Report on a submission of the course ECE408.

    It writes reports/out/<study>/<name>/."""
    _target("submission", context, cores, config, path=str(path), study=study)


@app.command(context_settings=PASSED_ON)
def grade(
    context: typer.Context,
    submissions: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="a folder with one folder for each submission")
    ],
    study: Annotated[str, typer.Option(help="their term, such as sp25")],
    cores: Cores = "all",
    config: Changes = NO_CHANGES,
) -> None:
    """Report on every submission in a folder.

    It writes reports/out/<study>-grades/, and each report to reports/out/<study>/<name>/."""
    _target("grade", context, cores, config, submissions=str(submissions), study=study)


@app.command()
def doctor() -> None:
    """Show what this machine has and lacks.

    It names the command that installs what is missing. The exit status is 0 if a report can be made."""
    _program("doctor.py")


def main() -> None:
    text_encoding.require_utf8()
    app()
