"""The variants in a problem's folder of kernels/: their files, headers and launches.

A variant is one file: `<name>.cu` for a GPU variant, with `<name>.py` beside it only where one grid of one kernel is not
enough; for a CPU variant or a peer library `<name>.py` alone, or `<name>.cpp`, which exports the problem's function with
what its kernels take. A variant's facts are YAML in the first comment (the docstring of a .py alone), or in
`<name>.yaml` beside a file that nobody wants to touch; `headers.Header` lists them.
"""

import functools
import hashlib
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from warpbook.common import units
from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import PROJECT, new_module
from warpbook.kernels import declared_launch, ece408, headers, occupancy, python_functions, sources
from warpbook.kernels.headers import Header
from warpbook.kernels.languages import LANGUAGES, Language
from warpbook.kernels.launch_inference import launch_reader, launch_sites, preprocessor, struct_parameters
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.inferred_facts import InferredLaunch
from warpbook.kernels.launches import Argument, Call
from warpbook.problems import problem as problems
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case, Problem

FOLDER = problems.FOLDER / headers.DEFAULT_PROBLEM
REFERENCE = "reference.cu"  # a problem's float64 reference on a GPU, where it brings one
_ENDINGS = (".cu", ".cpp", ".py", ".yaml")
_NO_FACTS = Header.model_validate({})
_NAME = re.compile(r"\w+")
_NAMING = "a variant's file name has letters, digits and underscores alone before its ending; rename the file"
DISPLAYABLE_NAME = r"\w[\w .-]*"
"""Stems that can be shown as a failed variant: they make file names and options of programs. Names are stricter."""

# Unit roundoff of each precision class: of the accumulation, and of the operands where they are rounded first.
PRECISIONS = {
    "fp32": (2.0**-24, 0.0),
    "tf32": (2.0**-23, 2.0**-11),
    "fp16": (2.0**-23, 2.0**-11),
    "bf16": (2.0**-23, 2.0**-8),
    "fp64": (2.0**-52, 0.0),  # of which half are the reference's own
    "int": (0.0, 0.0),
}

Operation = Callable[..., Any]
"""Computes the outputs from (inputs, outputs): writes them, or returns the arrays that hold the results."""


@dataclass(frozen=True)
class Variant:
    """One variant: its name, files and header. `read_error` says which file could not be read and why, if so."""

    name: str
    problem: Problem
    cuda_source: Path | None
    cpp_source: Path | None
    launcher: Path | None
    facts: Path | None
    """The YAML file beside a source that says what its header does not."""
    header: Header
    facts_keys: frozenset[str]
    """Keys of the facts that stand in the YAML file."""
    code: str
    launcher_code: str
    """The launcher's code, and that of what it imports of the project, without docstrings: prose does not change what
    runs."""
    read_error: str = ""
    inferred_launch: InferredLaunch | None = None
    """The launch in its own source, where it is called as that says."""
    entry: python_functions.Entry | None = None
    """The function of a Python file that has no `prepare`, where that is called."""
    included: tuple[Path, ...] = ()
    """Files of the project that its CUDA C++ includes or its launcher imports; their code is part of what identifies it."""

    @property
    def device(self) -> str:
        return self.header.device

    @property
    def own(self) -> bool:
        """Whether it is the project's, not the library's."""
        return self.files[0].is_relative_to(PROJECT)

    @property
    def stem(self) -> str:
        """Its name among the variants of its problem: that of its file."""
        return self.name.rpartition("/")[2]

    @cached_property
    def source_sha256(self) -> str:
        """Identity of what decides the machine code and its launch; the header's prose is no part of it."""
        facts = self.header.model_dump(include={"constants", "launch", "precision", "method"}, mode="json")
        # Said by some alone: what others' identities were before these facts could be said stays theirs.
        later = {"kernel", "arguments", "general", "threads", "grid", "shared_bytes", "constant_memory"}
        later |= {"clear", "loop", "steps", "scratch"}
        facts |= self.header.model_dump(include=later, exclude_defaults=True, mode="json")
        if self.header.split:
            facts["split"] = self.header.split.model_dump()
        parts = [self.code, self.launcher_code, json.dumps(facts, sort_keys=True)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def files(self) -> list[Path]:
        own = (self.cuda_source, self.cpp_source, self.launcher, self.facts)
        return [*(path for path in own if path), *self.included]

    @property
    def text(self) -> str:
        """Its CUDA C++ for a compiler, with what it includes of the project."""
        assert self.cuda_source is not None
        return _as_launched(sources.inline_includes(self.cuda_source).text, self.launcher)

    @cached_property
    def kernel(self) -> str:
        """The name of its kernel: its header's, the last of several; else the only one there, else the problem's."""
        there = launch_sites.kernel_names(self.code)
        launched = [step.kernel for step in self.header.steps if step.kernel]
        usual = there[0] if len(there) == 1 else self.problem.function
        return self.header.kernel or (launched[-1] if launched else usual)

    @property
    def kernels(self) -> list[str]:
        """The kernels that its header launches: the usual one, then that for unusual cases and other launches."""
        return list(dict.fromkeys([self.kernel, *(kernel for kernel, _ in self.launched if kernel)]))

    @property
    def launched(self) -> list[tuple[str, Sequence[Argument]]]:
        """The kernels that are launched as its header says, and the arguments of each."""
        header = self.header
        listed: list[tuple[str, Sequence[Argument]]] = [
            (step.kernel, step.arguments) for step in header.steps if step.kernel
        ]
        if not self.launcher and not header.steps and (header.arguments or header.grid):
            listed.append((self.kernel, header.arguments or self.problem.arguments))
        if header.general:
            listed.append((header.general.kernel, header.general.arguments))
        return listed

    def passed_kinds(self, kernel: str, arguments: Sequence[Argument]) -> str:
        """What each argument of a kernel is passed as: a letter of `declared_launch.passed_kinds`."""
        return declared_launch.passed_kinds(self.code, kernel, arguments, self.header.arrays(self.problem))

    @cached_property
    def course(self) -> ece408.Interface | None:
        """What a file of the course defines; None for any other variant."""
        return ece408.interface(self.code) if self.cuda_source and self.launcher is None else None

    @property
    def language(self) -> Language | None:
        """The language of its kernels, where its header requires one besides CUDA C++."""
        there = self.launcher and not (self.cuda_source or self.entry or self.header.peer)
        return LANGUAGES.get(self.header.requires) if there and self.device == "gpu" else None

    @property
    def title(self) -> str:
        """Its title, or its name where it says none; and the types of its arrays, where they are not the problem's."""
        types = self.element_types
        return (self.header.title.strip() or self.stem) + (f" (in {types})" if types else "")

    @property
    def element_types(self) -> str:
        """The types of its arrays, in words, where they are not the problem's; empty where they are."""
        return " and ".join(dict.fromkeys(dtype for _, dtype in self.problem.dtypes))

    def notes(self, cases: Iterable[Case]) -> str:
        """Sentences on how it is called, where that was read, and on what its files do not say; empty where neither."""
        called = f"{self.files[0].name}: {self.inferred_launch.sentence}." if self.inferred_launch else ""
        return " ".join(filter(None, (called, self.shared_memory_remark(cases), self.undocumented_fields)))

    def shared_memory_remark(self, cases: Iterable[Case]) -> str:
        """A sentence that asks for the call without which CUDA refuses its own launch of a case; empty where none is
        due. Warpbook makes that call itself for whatever it launches."""
        others = {*launch_sites.kernel_names(self.code)} - {sources.plain_name(self.kernel)}
        calls = re.findall(r"\bcu(?:da)?FuncSetAttribute\b([^;]*)", sources.without_comments(self.code))
        if self.inferred_launch is None or any(others.isdisjoint(re.findall(r"\w+", call)) for call in calls):
            return ""
        most, unasked = 0, occupancy.SHARED_DEFAULT
        for case in cases:
            with suppress(ValueError):  # unsupported there, which says so
                most = max([most, *(call.shape.shared_bytes for call in self._calls(case.at(case.size or 1)))])
        asked = f"cudaFuncSetAttribute({self.kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, {most})"
        line = f"line {self.inferred_launch.line} of {self.files[0].name}"
        remark = (
            f"{line} asks for {most} bytes of dynamic shared memory, and CUDA allows {unasked}: call {asked} before it."
        )
        return remark if most > unasked else ""

    @property
    def undocumented_fields(self) -> str:
        """A sentence that asks for what its files do not say of it; empty where they say all."""
        missing = [f"`{name}`" for name in ("title", "idea", "expect") if not getattr(self.header, name).strip()]
        last = " and ".join(missing[-2:])
        place = f"{self.files[0].name}, or {self.stem}.yaml beside it,"
        return f"{place} does not say its {', '.join([*missing[:-2], last])}." if missing else ""

    def fact_location(self, key: str) -> str:
        """Where a fact stands, for a sentence: `limits` in mine.cu."""
        if self.inferred_launch and key in self.inferred_launch.facts:
            return f"line {self.inferred_launch.line} of {self.files[0].name}"
        beside = self.facts if key in self.facts_keys else None
        return f"`{key}` in {(beside or self.files[0]).name}"

    @property
    def defines(self) -> list[str]:
        """The header's constants as compiler options."""
        return [f"-D{name}={value}" for name, value in self.header.constants.items()]

    def supports_arch(self, arch: str) -> bool:
        """Whether its instructions exist on an architecture such as sm_75."""
        return not self.header.architecture_reason(arch)

    def unsupported(self, case: Case) -> str:
        """Why this variant cannot compute the case at its size: value, limit and remedy. Empty when it can."""
        if untold := self.missing_arguments(case):
            what, names = " and ".join(untold.values()), " and ".join(untold)
            bounded = self.launcher and not case.optional & untold.keys()  # an extent can be, an array cannot
            place = self.fact_location("limits" if bounded else "general" if self.cpp_source else "arguments")
            return f"{self.name} does not say that it handles {what}; name {names} in {place} if it does"
        if reason := self.header.limits_for(case).violation(case):
            return f"{self.name}: {reason} ({self.fact_location('limits')})"
        if self.course and str(case) not in map(str, ece408.LAYERS):
            known = " and ".join(map(str, ece408.LAYERS))
            return f"{self.name}: a file of the course, which may assume its layers: {known}"
        if self.header.declares_launch and self.launcher is None:
            try:
                calls = self._calls(case)
            except ValueError as error:
                return f"{self.name}: {error} ({self.fact_location('steps' if self.header.steps else 'grid')})"
            shapes = dict.fromkeys(call.shape for call in calls if call.kernel)
            if reason := next(filter(None, (occupancy.launch_limit_reason(*shape) for shape in shapes)), ""):
                where = self.fact_location("launch" if self.header.launch else "grid")
                return f"{self.name}: {reason} ({where.replace('launch', 'outputs_per_block')})"
        return self.missing

    def unsupported_in(self, network: Network, size: int) -> str:
        """Why a program cannot run a network's convolutions by this variant. Empty when it can."""
        return next(filter(None, (self.unsupported(conv.at(size)) for conv in network.convs)), "")

    def missing_arguments(self, case: Case) -> dict[str, str]:
        """What of a case it is not told, in words: {"S": "stride 2"}; a CPU's C++ is told its `general` names."""
        told = _NO_FACTS.model_copy(update={"general": self.header.general}) if self.cpp_source else self.header
        return told.missing_arguments(case)

    @cached_property
    def missing(self) -> str:
        """Which required package is not installed here; empty when nothing is missing."""
        return self.header.missing(self.name)

    @cached_property
    def module(self) -> ModuleType:
        """The launcher, imported. Raises UserError with the exception's words when it does not import."""
        assert self.launcher is not None
        name = f"kernels_{self.problem.name}_{self.name}"
        module, execute = new_module(name, self.launcher)
        sys.modules[name] = module  # Numba's cache looks modules up by name
        # For this import alone: GPU MODE's own module, of the types of what its submissions get, and our folders behind
        # those of libraries.
        before, packed = list(sys.path), bool(self.entry and self.entry.packed)
        if packed:
            task = ModuleType("task")
            vars(task).update(input_t=Any, output_t=Any)
            sys.modules["task"] = task
        sys.path.extend(map(str, sources.INCLUDES))
        try:
            execute(module)
        except (Exception, SystemExit) as error:  # a variant's code runs here: any exception is the variant's failure
            path = str(self.launcher)
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
            where = f"{self.launcher.name}, line {lines[-1]}" if lines else self.launcher.name
            raise UserError(f"{where}: the launcher does not import: {type(error).__name__}: {error}") from error
        finally:
            sys.path[:] = before
            if packed:
                sys.modules.pop("task", None)
        return module

    def prepare(self, case: Case, kernels: Any = None) -> Operation:
        """The variant's operation for a case at its size; `kernels` are its own, loaded.

        A launcher's `prepare(kernels, case, size, launch)` also gets the launch that the header declares, or None;
        `kernels.constants` are the header's. Without kernels of its own it is `prepare(case, size)`.
        Scratch memory, streams and plans are made here, outside any timing.
        """
        operation: Operation
        assert self.cpp_source is None  # which is compiled first: `harness.host` prepares it
        if self.entry:
            with_torch = self.header.requires in ("torch", "triton")  # Triton takes PyTorch's tensors
            return python_functions.operation(self.module, self.entry, case, with_torch)
        if self.cuda_source is None:
            operation = self.module.prepare(case, case.size)
            return operation
        launch = None
        if self.header.declares_launch:
            launch = declared_launch.operation(self._calls(case), case, self.header, self.code, kernels)
        if self.launcher is None:
            assert launch is not None
            return launch
        operation = self.module.prepare(kernels, case, case.size, launch)
        return operation

    def _calls(self, case: Case) -> list[Call]:
        """The launches for a case. Raises ValueError where there is none, or a number is beyond what a kernel takes."""
        made = self.header.calls(case, self.kernel)
        for call in made:
            declared_launch.check_numbers(self.code, call)
        return made


def launch_arguments(case: Case) -> tuple[Any, ...]:
    """The extents that have no usual value as 32-bit integers, as the kernel of a problem takes them behind its arrays."""
    import numpy as np

    return tuple(np.int32(case.extents[name]) for name in case.problem.arguments if name in case.problem.facts.extents)


def folder_problem(folder: Path) -> Problem:
    """The problem of a folder of variants: its own, else the library's of that name, or the default problem."""
    if (folder / problems.FILE).exists():
        return problems.read(folder.absolute())
    named = folder.parent == problems.FOLDER and folder.name in problems.names()
    return problems.find(folder.name if named else headers.DEFAULT_PROBLEM)


def full_name(of: Problem, name: str) -> str:
    """A variant's name: `gemm/naive`; of a convolution the file's alone. A built-in one may be `warpbook/naive`."""
    name = name.removeprefix("warpbook/")
    return name if of.name == headers.DEFAULT_PROBLEM or "/" in name or not name else f"{of.name}/{name}"


def variant_folder(name: str) -> Path:
    """The folder of a variant by its full name: the project's, unless only the library has a file of that name."""
    of, _, stem = name.rpartition("/")
    own, *library = (folder / (of or headers.DEFAULT_PROBLEM) for folder in problems.FOLDERS)
    if library and not any((own / f"{stem}{ending}").is_file() for ending in _ENDINGS):
        return next((folder for folder in library if any(folder.glob(f"{stem}.*"))), own)
    return own


def _as_launched(code: str, launcher: Path | None) -> str:
    """CUDA C++ as it is compiled: without a launcher its kernels get the members of structures one by one."""
    if launcher or ece408.interface(code):
        return code
    with suppress(ImportError):
        return struct_parameters.flatten(code)
    return code


def read(name: str, folder: Path | None = None) -> Variant:
    """One variant, by its full name. A file that cannot be read makes a variant with a `read_error`."""
    folder = folder or variant_folder(name)
    name = name.rpartition("/")[2]
    cuda, cpp, python, facts = (_file(folder / f"{name}{ending}") for ending in _ENDINGS)
    host = sources.read_python(python) if python else sources.Source("", "")
    imported = list(sources.with_imports(python))[1:] if python else []
    compiled = cuda or cpp
    described = sources.read_cuda(compiled) if compiled else host
    inlined = sources.inline_includes(cuda) if cuda else sources.Inlined("", described.code, (), "")
    # A stranger's header may be its host code's alone: the compiler tells.
    absent = inlined.problem if described.header else ""
    described = replace(described, code=_as_launched(inlined.code, python), problem=described.problem or absent)
    beside = sources.read_facts(facts) if facts else sources.Source("", "")
    said_by = compiled or python or facts or folder / f"{name}.cu"
    keys: frozenset[str] = frozenset()
    usual: dict[str, Any] = {"device": "cpu"} if cpp else {}
    of = folder_problem(folder)
    context = {"problem": of}
    written = entry = None
    if python and not compiled and not host.problem and not headers.is_header(host.header):
        text = sources.read_text(python)
        if entry := python_functions.find_entry(text, HostNames(of), of.function):
            described, usual = replace(described, header=""), python_functions.usual_facts(text)
            usual |= {"limits": limits} if (limits := entry.limits(HostNames(of))) else {}
    try:
        content = headers.parse_facts(described.header) if described.header.strip() else {}
        if facts:
            said_by = facts
            completing = headers.parse_facts(beside.header) if beside.header.strip() else {}
            content, keys = headers.join(content, completing), frozenset(map(str, completing))
        defined = content.get("constants") or {}
        if cuda and not described.header and isinstance(defined, dict):
            with suppress(ImportError):
                described = replace(described, code=preprocessor.active(described.code, defined))
            if "__global__" in inlined.code and "__global__" not in described.code:
                raise ValueError(preprocessor.missing_macro(inlined.code))
        given: dict[str, Any] = {
            key: content[key] for key in ("arguments", "threads", "grid", "shared_bytes") if key in content
        }
        if cuda and python is None and not described.problem and _lacks_launch(content, described.code, of):
            said_by, kept = cuda, said_by
            asked = content.get("kernel") or ""
            if isinstance(asked, list):  # several, in a row
                asked = list(map(str, content.pop("kernel")))
            bounds = content.get("limits") or {}
            names = HostNames(of, [name for name, bound in bounds.items() if isinstance(bound, dict) and "is" in bound])
            with suppress(*([ValueError] if given else [])):  # else what is given is judged as it is
                written = launch_reader.read_file(cuda, described.code, asked, names, inlined.files, defined, given)
            read_facts = written.facts if written else {}
            limits = read_facts.get("limits", {}) | bounds
            content = {**read_facts, **content, **({"limits": limits} if limits else {})}
            said_by = kept
        header, problem = Header.model_validate(usual | content, context=context), ""
        baseline, endings = (of.facts.baseline, (".cu",)) if cuda else (of.facts.cpu_baseline, (".py", ".cpp"))
        undescribed = compiled and not content.keys() & {"idea", "builds_on"}
        if undescribed and name != baseline and any(_file(folder / f"{baseline}{ending}") for ending in endings):
            header = header.model_copy(update={"builds_on": baseline})
        if compiled is None and python is None:
            problem = f"there is no {name}.cu, {name}.cpp or {name}.py beside it"
        elif compiled is None and not content and not entry:
            problem = _python_problem(of, host.code)
        elif cuda and python is None and (file := ece408.interface(described.code)):
            problem = file.problem
            # Its author says no precision, and may compute by any method.
            found = {"precision": ece408.precision(described.code), "method": "any"}
            header = header.model_copy(update={key: value for key, value in found.items() if key not in content})
        elif cuda and python is None:
            problem = _launch_problem(name, of, header, described.code)
        if header.device == "cpu" and cuda:
            problem = "CUDA C++ runs on the GPU, the header says `device: cpu`"
        if cpp:
            problem = _host_code_problem(of, header, cuda or python)
        if header.every_case and python is None and not problem:
            problem = "`every_case` is of a launcher in Python; name a kernel that takes all extents in `general`"
        if not _NAME.fullmatch(name):
            problem = _NAMING
    except (ValueError, yaml.YAMLError) as error:  # pydantic's errors are ValueErrors
        if (key := headers.faulty_key(error)) and key not in keys:
            said_by = compiled or python or said_by
        header = Header.model_validate(usual | {"title": name}, context=context)
        problem = headers.first_problem(error)
    in_full: dict[str, Any] = {"builds_on": full_name(of, header.builds_on)}
    in_full["claims"] = [claim.model_copy(update={"against": full_name(of, claim.against)}) for claim in header.claims]
    variant = Variant(
        full_name(of, name),
        of,
        cuda,
        cpp,
        python,
        facts,
        header.model_copy(update=in_full),
        keys,
        described.code if compiled else "",
        "\n".join([host.code, *(sources.read_python(path).code for path in imported)]),
        described.problem or host.problem or beside.problem or (f"{said_by.name}: {problem}" if problem else ""),
        written,
        entry,
        (*inlined.files, *imported),
    )
    return variant if variant.read_error or not cuda or python else _with_element_types(variant, content)


def _lacks_launch(content: Mapping[str, Any], code: str, of: Problem) -> bool:
    """Whether facts leave unsaid how a kernel is launched that is none of the problem's usual arguments."""
    if not headers.declare_launch(content):
        return True
    kernels = list(launch_sites.parameter_names(code))
    named = content.get("kernel") or (kernels[0] if len(kernels) == 1 else of.function)
    is_usual = not isinstance(named, str) or launch_sites.unqualified(named) == of.function
    return (
        not is_usual
        and not {"launch", "steps"} & content.keys()
        and not {"arguments", "threads", "grid"} <= content.keys()
    )


def _with_element_types(variant: Variant, content: Mapping[str, Any]) -> Variant:
    """A variant on arrays of the types that its kernels take. It has their precision, and no baseline of another type,
    where its facts, `content`, name none."""
    try:
        types = declared_launch.element_types(variant.launched, variant.header, variant.code, variant.problem)
        of = variant.problem.with_dtypes(
            {name: types[name] for name in variant.problem.facts.array_names if name in types}
        )
    except ValueError as error:
        return replace(variant, read_error=f"{variant.files[0].name}: {error}")
    usual = {"precision": of.precision, "builds_on": ""} if of.dtypes else {}
    unsaid = {key: value for key, value in usual.items() if key not in content}
    return replace(variant, problem=of, header=variant.header.model_copy(update=unsaid))


def _launch_problem(name: str, of: Problem, header: Header, code: str) -> str:
    """What a header leaves unsaid of a kernel's launch that no launcher says either; empty where nothing."""
    there = launch_sites.kernel_names(code)
    if not header.declares_launch:
        return launch_reader.missing_launch(name, code, of, header.kernel)
    if header.steps:
        return ""
    if not header.kernel and len(there) > 1 and of.function not in there:
        return f"there are the kernels {', '.join(there)}; say which: `kernel: {there[0]}`"
    kernel = header.kernel or (there[0] if len(there) == 1 else of.function)
    if kernel.partition("<")[0] != of.function and not header.arguments:
        return f"say what {kernel} takes, in its order: `arguments: [{', '.join(of.arguments)}]`"
    return ""


def _python_problem(of: Problem, code: str) -> str:
    """What a Python file lacks that says no facts, and of which no function can be called."""
    if re.search(r"^def prepare\b", code, re.MULTILINE):
        return "the header is not YAML of the form `key: value`"
    inputs = units.join_all([name for name in of.arrays if name not in of.outputs])
    return (
        f"no function of it takes {inputs}, or {units.join_all(of.arrays)}, by such names, alone or with the extents; name its parameters so, or"
        " write a launcher, whose `prepare(case, size)` returns the call"
    )


def _host_code_problem(of: Problem, header: Header, beside: Path | None) -> str:
    """Why C++ for the processor, and what its header says, is no CPU variant; empty where it is one."""
    if beside:
        return f"{beside.name} has the same name, and a variant is one of them; rename one"
    if header.device == "gpu":
        return "C++ runs on the CPU, the header says `device: gpu`; a kernel is CUDA C++, in a file that ends in .cu"
    said = {"launch", "grid", "threads", "arguments", "kernel", "shared_bytes", "split"} & header.model_fields_set
    if said:
        return f"`{min(said)}` is of a kernel on the GPU; C++ for the CPU exports {of.function} and launches nothing"
    return ""


def _file(path: Path) -> Path | None:
    return path if path.is_file() else None


def _is_source(path: Path) -> bool:
    """Whether a file in the variants' folder belongs to a variant. Raises UserError where its name could not even be
    shown; hidden files, folders, pipes and links to nothing are nobody's variant."""
    if path.suffix not in _ENDINGS or path.name.startswith(".") or not path.is_file():
        return False
    if path.name == problems.FILE or path.name == REFERENCE:
        return False
    if not re.fullmatch(DISPLAYABLE_NAME, path.stem):
        raise UserError(f"{str(path)!r}: {_NAMING}")
    return True


def discover(folder: Path | None = None) -> dict[str, Variant]:
    """Every variant by full name, each after the one that it builds on: of a folder, or of every problem's. A file of
    the project takes the place of the library's of the same name."""
    if folder is None:
        groups = [[root / name for root in problems.FOLDERS if (root / name).is_dir()] for name in problems.names()]
        files = _files_below(problems.FOLDERS)
        return {name: one for group in groups for name, one in _discover(tuple(group), files).items()}
    return dict(_discover((folder,), _files_below([folder, *problems.FOLDERS])))


def _files_below(folders: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """(path, time of the last change, size) of every file below folders: as long as these stay, so do the variants. What
    Python compiled is none of them: other processes write it, and take it away."""
    found = set()
    for path in (path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts):
        with suppress(FileNotFoundError):
            state = path.stat()
            found.add((str(path), state.st_mtime_ns, state.st_size))
    return tuple(sorted(found))


@functools.lru_cache(maxsize=32)
def _discover(folders: tuple[Path, ...], _files: tuple[tuple[str, int, int], ...]) -> dict[str, Variant]:
    """The variants of one problem, by full name; read once while no file changes."""
    sources_of = {folder: {path.stem for path in folder.iterdir() if _is_source(path)} for folder in reversed(folders)}
    stems = {stem: folder for folder, there in sources_of.items() for stem in there}
    every = {one.name: one for one in (read(stem, stems[stem]) for stem in sorted(stems))}
    names = list(every)
    ordered: dict[str, Variant] = {}

    def place(name: str, path: tuple[str, ...]) -> None:
        baseline = every[name].header.builds_on
        if baseline and baseline in every and baseline not in ordered and baseline not in path:
            place(baseline, (*path, name))
        ordered.setdefault(name, every[name])

    for name in names:
        place(name, ())
    return {name: _check_baseline(variant, ordered) for name, variant in ordered.items()}


def _check_baseline(variant: Variant, every: dict[str, Variant]) -> Variant:
    baseline = variant.header.builds_on
    if variant.read_error or not baseline:
        return variant
    problem = ""
    if baseline not in every:
        problem = f"builds_on {baseline!r} is no variant: {nearest_name(baseline, list(every))}"
    elif every[baseline].device != variant.device:
        problem = f"builds_on {baseline!r} runs on another device"
    if not problem:
        return variant
    return replace(variant, read_error=f"{variant.files[0].name}: {problem}")


def find(name: str, known: dict[str, Variant]) -> Variant:
    """The variant called `name`; UserError with the nearest valid name when there is none."""
    if name not in known:
        raise UserError(f"no variant is called {name!r}: {nearest_name(name, list(known))}")
    return known[name]
