"""Which files a program's results depend on: read from its sources, and held against what Python really imports."""

import json
import re
import subprocess
import sys
from pathlib import Path

from warpbook.common.files import PROJECT
from warpbook.runs import tables
from warpbook.workflow import code_dependencies

# Programs of rules, and the programs that each starts as processes.
STARTS = {
    "build_variant.py": [],
    "check_variant.py": [],
    "measure_variant.py": [],
    "run_program.py": ["infer.py"],
    "trace_program.py": ["infer.py", "trace_with_cupti.py"],
    "count_variant.py": [],
    "count_network.py": [],
    "sanitize_variant.py": [],
    "measure_precision.py": [],
    "attack_harness.py": ["check_variant.py", "measure_variant.py"],
    "sweep_variant.py": [],
    "probe_machine.py": [],
    "assemble_run.py": [],
    "render_report.py": [],
}

# Imports each program in a fork, then what functions of the modules loaded so would import, until nothing new is
# loaded: their byte code says so. Prints the files of this project that were loaded, for each program. What is not this
# project's is loaded once, before the forks.
IMPORTER = """
import contextlib, dis, importlib, json, os, pathlib, sys, types

def below(code):
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from below(constant)

def imported_by(code):
    module = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
            yield module
        elif step.opname == "IMPORT_FROM":
            yield f"{module}.{step.argval}"

def ours():
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return {file for file in files if file and file.startswith(FOLDER)}

def imported_in_functions_of(file):
    with open(file) as source:
        module = compile(source.read(), file, "exec")
    return {name for function in below(module) for name in imported_by(function)}

def load(program):
    importlib.import_module(program)
    seen = set()
    while new := ours() - seen:
        seen |= new
        for name in set().union(*(NAMES[file] for file in new)):
            with contextlib.suppress(ImportError):  # a name within a module, or a library that is not here
                importlib.import_module(name)
    print(json.dumps([program, sorted(ours())]), flush=True)

sys.path.insert(0, FOLDER)
for name in ("numpy", "pandas", "matplotlib.pyplot", "weasyprint", "cupy", "numba", "pydantic", "yaml", "jinja2"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
assert not ours()
NAMES = {str(file): imported_in_functions_of(file) for file in pathlib.Path(FOLDER).rglob("*.py")}
for program in PROGRAMS:
    if not (child := os.fork()):
        load(program)
        os._exit(0)
    assert not os.waitpid(child, 0)[1], program
"""


def loaded() -> dict[str, set[str]]:
    """Files of this project that Python loads for each program, those that it imports within functions among them."""
    programs = sorted({each.removesuffix(".py") for started in STARTS.items() for each in (started[0], *started[1])})
    words = f"PROGRAMS, FOLDER = {programs!r}, {str(PROJECT / 'scripts')!r}\n{IMPORTER}"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(map(json.loads, done.stdout.splitlines()))
    return {f"{name}.py": {str(Path(path).relative_to(PROJECT)) for path in paths} for name, paths in found.items()}


def test_dependencies_are_what_python_really_imports():
    found, differ = loaded(), {}
    for program, starts in STARTS.items():
        really = set().union(*(found[each] for each in [program, *starts]), (f"scripts/{each}" for each in starts))
        computed = {path for path in code_dependencies.inputs_for(program, presenting=True) if path.endswith(".py")}
        differ[program] = computed ^ (really - {f"scripts/{program}"})
    assert differ == {program: set() for program in STARTS}


def test_what_only_presents_starts_no_measurement_but_renders():
    presenting = {f"scripts/warpbook/{module}.py" for module in ("runs/tables", "common/errors", "common/units")}
    assert not presenting & set(code_dependencies.inputs_for("measure_variant.py", "gpu"))
    assert not presenting & set(code_dependencies.inputs_for("assemble_run.py"))
    assert presenting <= set(code_dependencies.inputs_for("render_report.py", presenting=True))


def test_what_is_left_out_is_there():
    named = [*code_dependencies.PRESENTING, *sorted(set().union(*code_dependencies.ELSEWHERE.values()))]
    assert [name for name in named if not code_dependencies.module_path(name)] == []


def test_what_decides_a_measurement_starts_it_again():
    on_gpu = set(code_dependencies.inputs_for("measure_variant.py", "gpu"))
    inside = {path.removeprefix("scripts/warpbook/") for path in on_gpu}
    assert {"machine/locks.py", "harness/gpu_bench.py", "harness/harness.cu", "harness/timing.py"} <= inside
    assert {"infer.py", "warpbook/harness/inference.py", "warpbook/harness/layers.cu"} <= {
        path.removeprefix("scripts/") for path in code_dependencies.inputs_for("run_program.py", "gpu")
    }


def test_a_change_in_what_drives_a_gpu_times_no_cpu_variant():
    assert "scripts/warpbook/harness/gpu_bench.py" in code_dependencies.inputs_for("measure_variant.py", "gpu")
    assert "scripts/warpbook/harness/gpu_bench.py" not in code_dependencies.inputs_for("measure_variant.py", "cpu")


def test_a_change_in_how_whole_networks_are_read_measures_no_variant_of_a_layer_again():
    module = "scripts/warpbook/kernels/whole_networks.py"
    assert module in code_dependencies.inputs_for("count_network.py", "gpu")
    layers = ("check_variant.py", "measure_variant.py", "run_program.py", "count_variant.py", "trace_program.py")
    assert not [program for program in layers if module in code_dependencies.inputs_for(program, "gpu")]


def test_every_data_file_beside_the_code_is_somebody_s_dependency():
    data = {
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "scripts" / "warpbook").rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert data <= set().union(*(code_dependencies.inputs_for(program, presenting=True) for program in STARTS))


def test_columns_are_names_and_types_without_meanings():
    decided = code_dependencies.column_types(tables.SANITIZER)[tables.SANITIZER.name]
    assert decided["variant"] == "string"
    assert list(decided) == list(tables.SANITIZER.columns)
    assert not any("stem of" in str(value) for value in decided.values())


def test_what_every_command_of_snakemake_imports_leaves_pandas_alone():
    """It takes a third of a second."""
    rules = [PROJECT / "Snakefile", *(PROJECT / "rules").glob("*.smk")]
    imports = {line for path in rules for line in path.read_text().splitlines() if re.match("from|import", line)}
    program = "\n".join([*imports, "print('warpbook.runs.catalog' in sys.modules, 'pandas' in sys.modules)"])
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT / "scripts", capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"], done.stderr
