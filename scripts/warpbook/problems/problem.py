"""What is computed: a problem as `kernels/<problem>/problem.py` describes it, and its cases. The docstring of
`problem.py` holds the facts (`Facts` lists them), its function `reference` the float64 reference. A case is a problem
with its extents fixed; one of them, the size, may be left to the study that sweeps it."""

import ast
import functools
import inspect
import math
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from warpbook.common import expressions
from warpbook.common.errors import UserError, nearest_name
from warpbook.common.expressions import Expression
from warpbook.common.files import PROJECT, both_folders, display_path, new_module
from warpbook.common.quick_yaml import load_yaml
from warpbook.common.validation import explain, validate

FOLDER = PROJECT / "kernels"
FOLDERS = both_folders("kernels")
"""The problems that come with this code, for a project that has none of its own."""
FILE = "problem.py"
SIZE = "size"  # the name, in expressions, of the extent that a study sweeps

VALUES = {"int8": (-128, 127), "uint8": (0, 255), "float16": (-2048, 2048), "bfloat16": (-256, 256)}
"""Whole numbers that a type holds, where those of float32 are more."""

Dtype = Literal["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint64", "uint32", "uint8"]

C_TYPES: dict[Dtype, tuple[str, ...]] = {
    "float64": ("double",),
    "float32": ("float",),
    "float16": ("__half", "half"),
    "bfloat16": ("__nv_bfloat16", "nv_bfloat16"),
    "int64": ("long long", "int64_t", "long", "long int", "long long int"),
    "int32": ("int", "int32_t"),
    "int8": ("signed char", "int8_t", "char"),
    "uint64": ("unsigned long long", "uint64_t", "unsigned long", "unsigned long long int", "size_t"),
    "uint32": ("unsigned int", "uint32_t", "unsigned", "uint"),
    "uint8": ("unsigned char", "uint8_t"),
}
"""What C++ calls each type, its usual name first."""


def element_type(c_type: str) -> Dtype | None:
    """The type of values that a pointer to a C++ type points to: of int4 those of int; None where it is none of ours."""
    name = " ".join(re.sub(r"\b(?:const|volatile|signed|__restrict__)\b", "", c_type).split())
    named: dict[str, Dtype] = {each: dtype for dtype, names in C_TYPES.items() for each in names}
    return named.get(name) or named.get(re.sub(r"[234]$", "", name))


class _ProblemModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Extent(_ProblemModel):
    """One extent. One with a `usual` value, which may be an extent before it, may be left out of a case; a variant that
    is not told of it computes the usual value alone."""

    words: str
    usual: Expression | None = None
    most: int | None = Field(None, description="largest that is drawn for it; of others, more than any ragged case has")
    without: str = Field("", description="what is said of a kernel that is not told it: it may compute another problem")


class Array(_ProblemModel):
    """An input or output: its shape, in expressions of extents, and its type."""

    shape: tuple[Expression, ...]
    dtype: Dtype = "float32"
    least: int = Field(-4, description="least of the whole numbers that are drawn for it")
    most: int = Field(4, description="largest of them")
    shift: int = Field(0, description="added to, or taken from, the reals of neighbouring rows in the last test")

    @model_validator(mode="before")
    @classmethod
    def _none_below_zero(cls, content: Any) -> Any:
        unsigned = isinstance(content, dict) and str(content.get("dtype")).startswith("uint")
        return {"least": 0, **content} if unsigned else content

    @model_validator(mode="after")
    def _drawable(self) -> "Array":
        lowest, highest = VALUES.get(self.dtype, (-(2**24), 2**24))
        if not lowest <= self.least <= self.most <= highest:
            raise ValueError(
                f"{self.least} to {self.most} is no range within {lowest} to {highest}, as {self.dtype} is drawn"
            )
        return self

    @property
    def is_real(self) -> bool:
        return "float" in self.dtype

    def with_dtype(self, dtype: Dtype, unsigned: bool = False) -> "Array":
        """It of another type; without numbers below 0 where that, or what is computed of it, is `unsigned`."""
        least = max(self.least, 0) if unsigned or dtype.startswith("uint") else self.least
        return Array(shape=self.shape, dtype=dtype, least=least, most=self.most, shift=self.shift)


def _extents(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    return {name: {"words": one} if isinstance(one, str) else one for name, one in content.items()}


def _arrays(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    return {name: {"shape": one} if isinstance(one, list) else one for name, one in content.items()}


class Facts(_ProblemModel):
    """What the docstring of `problem.py` says. Shapes, flops and the like are expressions of extents."""

    title: str = Field(description="name of the problem in reports")
    extents: Annotated[dict[str, Extent], BeforeValidator(_extents)] = Field(
        min_length=1, description="each extent and what it is; {words: stride, usual: 1} where cases may leave it out"
    )
    derived: dict[str, Expression] = Field(default_factory=dict, description="numbers that follow from extents")
    conditions: dict[str, Expression] = Field(
        default_factory=dict, description="what every case fulfils, in words, and an expression that is then 1 or more"
    )
    inputs: Annotated[dict[str, Array], BeforeValidator(_arrays)] = Field(
        min_length=1, description="inputs in order: a shape, or {shape: [m, k], dtype: float16}; optional ones end in ?"
    )
    outputs: Annotated[dict[str, Array], BeforeValidator(_arrays)] = Field(
        min_length=1, description="outputs, likewise"
    )
    flops: Expression = Field(0, description="operations of the direct method, a multiply and an add for each product")
    bytes: Expression | None = Field(None, description="least traffic; by default inputs and outputs, each once")
    sums: Expression = Field(1, description="terms of the longest sum: the tolerance follows from it")
    fp16_sums: Expression = Field(0, description="terms that a variant of precision fp16 may add up in it")
    exact: bool = Field(False, description="whether results on small integers are exact")
    ragged: list[dict[str, int]] = Field(
        default_factory=list, description="cases with odd extents, checked besides those of the study"
    )
    precision: list[dict[str, int]] = Field(
        default_factory=list, description="cases whose sums grow longer, for the test of precision"
    )
    size: str = Field("", description="the extent that a study sweeps where its cases do not say it")
    batch: str = Field("", description="an extent that outputs are independent along: CPU variants get some at a time")
    baseline: str = Field(
        "naive", description="what a CUDA variant is compared with that says neither idea nor baseline"
    )
    cpu_baseline: str = Field("loop_nest", description="the same of C++ for the CPU")
    function: str = Field("", description="the usual name of its kernel; by default the problem's")
    label: str = Field("", description="a case in short, extents in braces; by default all of them")
    aliases: dict[str, list[str]] = Field(
        default_factory=dict, description="what others' host code calls an extent or array"
    )

    @model_validator(mode="after")
    def _names_known(self) -> "Facts":
        names = [*self.extents, *self.derived, *self.inputs, *self.outputs]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"{twice} is named twice; give each extent and array a name of its own")
        known = {*self.extents, *self.derived}
        names = list(self.extents)
        said = [
            *((f"extents.{name}.usual", one.usual or 0, set(names[:number]))
              for number, (name, one) in enumerate(self.extents.items())),
            *((f"derived.{name}", text, set(self.extents) | set(list(self.derived)[:number]))
              for number, (name, text) in enumerate(self.derived.items())),
            *((f"{name}.shape", text, known) for name, one in {**self.inputs, **self.outputs}.items()
              for text in one.shape),
            *((f"conditions.{words}", text, known) for words, text in self.conditions.items()),
            *((key, getattr(self, key) or 0, known) for key in ("flops", "bytes", "sums", "fp16_sums")),
        ]  # fmt: skip
        for key, text, allowed in said:
            expressions.check(key, [text], allowed)
        for key in ("size", "batch"):
            if (name := getattr(self, key)) and name not in self.extents:
                raise ValueError(f"{key}: {name!r} is no extent: {nearest_name(name, list(self.extents))}")
        if unknown := [name for name in self.aliases if name not in {*known, *self.array_names}]:
            raise ValueError(f"aliases: {unknown[0]!r} is neither an extent nor an array")
        for _, name, *_ in string.Formatter().parse(self.label):
            if name is not None and name not in known:
                raise ValueError(f"label: {name!r} is no extent: {nearest_name(name, sorted(known))}")
        return self

    @property
    def array_names(self) -> tuple[str, ...]:
        return tuple(name.removesuffix("?") for name in (*self.inputs, *self.outputs))


@dataclass(frozen=True)
class Problem:
    """A problem: its name, its folder and its facts."""

    name: str
    folder: Path
    facts: Facts = field(compare=False, repr=False)
    dtypes: tuple[tuple[str, Dtype], ...] = ()
    """Types of arrays that a variant takes in place of those that the problem says."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process reads it from its folder: `module` cannot be sent.
        return _read_with, (self.folder, self.dtypes)

    def with_dtypes(self, dtypes: Mapping[str, Dtype]) -> "Problem":
        """It on arrays of other types. Raises ValueError where results would not be those of the problem."""
        arrays = {**self.inputs, **self.outputs}
        others = {name: dtype for name, dtype in dtypes.items() if arrays[name].dtype != dtype}
        if not others:
            return self
        facts = self.facts
        unsigned = any(others.get(name, "").startswith("uint") for name in self.outputs)

        def changed(listed: Mapping[str, Array]) -> dict[str, Array]:
            kinds = {name: others.get(name.removesuffix("?"), one.dtype) for name, one in listed.items()}
            return {name: one.with_dtype(kinds[name], unsigned) for name, one in listed.items()}

        facts = facts.model_copy(update={"inputs": changed(facts.inputs), "outputs": changed(facts.outputs)})
        made = Problem(self.name, self.folder, facts, tuple(others.items()))
        told = [one for name, one in made.inputs.items() if name not in self.optional or name in others]
        fractions = not facts.exact or any(one.is_real for one in told)
        if whole := next((name for name, one in made.outputs.items() if not one.is_real and fractions), ""):
            raise ValueError(f"{whole} would be whole numbers ({made.outputs[whole].dtype}), and results are fractions")
        return made

    @property
    def path(self) -> Path:
        """Its file."""
        return self.folder / FILE

    @property
    def title(self) -> str:
        return self.facts.title

    @property
    def function(self) -> str:
        """The usual name of its kernel, or of the function that C++ for the CPU exports."""
        return self.facts.function or self.name

    @property
    def inputs(self) -> dict[str, Array]:
        """Every input by name, optional ones among them."""
        return {name.removesuffix("?"): one for name, one in self.facts.inputs.items()}

    @property
    def outputs(self) -> dict[str, Array]:
        return self.facts.outputs

    @property
    def optional(self) -> tuple[str, ...]:
        """Names of the optional inputs."""
        return tuple(name.removesuffix("?") for name in self.facts.inputs if name.endswith("?"))

    @property
    def precision(self) -> str:
        """The precision of a result by the types of its arrays."""
        inputs, outputs = ({one.dtype for one in listed.values()} for listed in (self.inputs, self.outputs))
        if not any("float" in dtype for dtype in outputs):
            return "int"
        if inputs == outputs == {"float64"}:
            return "fp64"
        return "fp16" if "float16" in inputs | outputs else "bf16" if "bfloat16" in inputs | outputs else "fp32"

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays that every case has, inputs first."""
        return tuple(name for name in self.facts.array_names if name not in self.optional)

    @cached_property
    def unusual(self) -> dict[str, Extent]:
        """Extents that a variant is told of only where it names them."""
        return {name: one for name, one in self.facts.extents.items() if one.usual is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that stands for a number: extents, then what follows from them."""
        return (*self.facts.extents, *self.facts.derived)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a kernel takes that says nothing of it: the arrays, then the extents that have no usual value."""
        return (*self.arrays, *(name for name in self.facts.extents if name not in self.unusual))

    def c_type(self, argument: Expression) -> str:
        """What C++ takes for an argument: a pointer to an array's type, else an int."""
        if argument in self.inputs:
            return f"const {C_TYPES[self.inputs[str(argument)].dtype][0]}*"
        return f"{C_TYPES[self.outputs[str(argument)].dtype][0]}*" if argument in self.outputs else "int"

    def case(self, name: str, extents: Mapping[str, Expression], optional: Iterable[str] = ()) -> "Case":
        """A case. Raises ValueError for an extent or array that the problem does not have."""
        for key, text in extents.items():
            if key not in self.facts.extents:
                raise ValueError(f"{key!r} is no extent of {self.name}: {nearest_name(key, list(self.facts.extents))}")
            expressions.check(key, [text], {SIZE})
        # In the problem's order, whatever order a study lists them in: it is part of what identifies recorded results.
        given = tuple((key, extents[key]) for key in self.facts.extents if key in extents)
        return Case(self, name, given, frozenset(optional))

    @property
    def ragged(self) -> list["Case"]:
        """Its ragged cases, all extents said; the first and the last once more with each optional input."""
        cases = []
        for extents in self.facts.ragged:
            size = extents.get(self.facts.size, 1)
            plain = self.case("", {name: one for name, one in extents.items() if name != self.facts.size}).at(size)
            cases.append(plain)
        if cases:
            given = [frozenset([name]) for name in self.optional]
            first = [replace(cases[0], optional=names) for names in given] if len(cases) > 1 else []
            last = [replace(cases[-1], optional=names) for names in given]
            cases = [cases[0], *first, *cases[1:], *last]
        return [case.with_name(str(case)) for case in cases]

    @cached_property
    def known_extents(self) -> dict[tuple[tuple[tuple[str, Expression], ...], int | None], dict[str, int]]:
        """Extents of its cases by what is given of them and the size: the same cases are made again and again."""
        return {}

    @cached_property
    def module(self) -> ModuleType:
        """`problem.py`, imported. Raises UserError with the exception's words where it does not import."""
        path = self.path
        module, execute = new_module(f"problem_{self.name}", path)
        try:
            execute(module)
        except Exception as error:
            raise UserError(f"{display_path(path)} does not import: {type(error).__name__}: {error}") from error
        if not callable(getattr(module, "reference", None)):
            raise UserError(f"{display_path(path)} has no function `reference`; write the problem in float64 there")
        return module


@dataclass(frozen=True)
class Case:
    """A problem with its extents fixed, the one that a study sweeps when `size` is said. Its extents, and what follows
    from them, are its attributes: `case.m`."""

    problem: Problem
    name: str
    given: tuple[tuple[str, Expression], ...]
    optional: frozenset[str] = frozenset()
    """Optional inputs that it has."""
    size: int | None = None

    def at(self, size: int) -> "Case":
        """The case at a size."""
        return Case(self.problem, self.name, self.given, self.optional, size)

    def with_problem(self, problem: Problem) -> "Case":
        """The case on the arrays of a variant's problem, which may be of other types."""
        return Case(problem, self.name, self.given, self.optional, self.size) if problem.dtypes else self

    def with_name(self, name: str) -> "Case":
        return Case(self.problem, name, self.given, self.optional, self.size)

    @cached_property
    def extents(self) -> dict[str, int]:
        """Every extent, and what follows from them, by name; without those that wait for a size. Raises ValueError
        naming key, expression and reason where one has no value, or is not positive."""
        place = (self.given, self.size)
        known = self.problem.known_extents
        if place not in known:
            known[place] = self._extents()
        return dict(known[place])

    def _extents(self) -> dict[str, int]:
        facts, given = self.problem.facts, dict(self.given)
        if facts.size and facts.size not in given:
            given[facts.size] = SIZE
        usual = {name: one.usual for name, one in facts.extents.items() if one.usual is not None}
        known = {} if self.size is None else {SIZE: self.size}
        values: dict[str, int] = {}
        for name in facts.extents:
            if name not in given and name not in usual:
                raise ValueError(f"{self.problem.name} case {self.name or dict(self.given)}: {name} is not said")
            text, names = (given[name], known) if name in given else (usual[name], values)
            if expressions.used_names(text) <= names.keys():
                (values[name],) = expressions.values(name, [text], names)
                if values[name] < 0 or (not values[name] and name not in usual):
                    raise ValueError(f"{name}: {values[name]} is below its limit {int(name not in usual)}")
        for name, text in facts.derived.items():
            if expressions.used_names(text) <= values.keys():
                (values[name],) = expressions.values(name, [text], values)
        for words, text in facts.conditions.items():
            if expressions.used_names(text) <= values.keys() and expressions.evaluate(text, values) < 1:
                raise ValueError(f"{self.problem.name} case {self.name or given}: {words}")
        return values

    def __getattr__(self, name: str) -> int:
        # Only what no attribute is called; `problem` is missing while a copy is made.
        if name.startswith("_") or "problem" not in self.__dict__ or name not in self.problem.names:
            raise AttributeError(f"a case has no {name}")
        if name not in self.extents:
            raise AttributeError(f"{name} depends on the size, and this case has none; take case.at(size)")
        return self.extents[name]

    @property
    def unusual(self) -> dict[str, int]:
        """Extents that do not have their usual value."""
        usual = {name: one.usual for name, one in self.problem.unusual.items() if one.usual is not None}
        return {
            name: self.extents[name]
            for name, text in usual.items()
            if name in self.extents and self.extents[name] != expressions.evaluate(text, self.extents)
        }

    def value(self, text: Expression) -> int:
        """An expression of its extents."""
        return expressions.evaluate(text, self.extents)

    @property
    def inputs(self) -> dict[str, Array]:
        """The inputs that it has, in order."""
        return {
            name: one
            for name, one in self.problem.inputs.items()
            if name not in self.problem.optional or name in self.optional
        }

    @property
    def arrays(self) -> dict[str, Array]:
        """Its inputs, then its outputs."""
        return {**self.inputs, **self.problem.outputs}

    def shape(self, array: str) -> tuple[int, ...]:
        return tuple(map(self.value, self.arrays[array].shape))

    def count(self, array: str) -> int:
        """Values of an array."""
        return math.prod(self.shape(array))

    def nbytes(self, array: str) -> int:
        """Bytes of an array."""
        return self.count(array) * itemsize(self.arrays[array].dtype)

    @property
    def flops(self) -> int:
        """Operations of the direct method."""
        return self.value(self.problem.facts.flops)

    @property
    def work(self) -> int:
        """What its time grows with: the operations or, of a problem that counts none, the bytes."""
        return self.flops or self.bytes

    @property
    def bytes(self) -> int:
        """Least traffic: every input and output moved once, unless the problem says else."""
        if self.problem.facts.bytes is not None:
            return self.value(self.problem.facts.bytes)
        return sum(map(self.nbytes, self.arrays))

    @property
    def sums(self) -> int:
        """Terms of the longest sum."""
        return self.value(self.problem.facts.sums)

    @cached_property
    def _words(self) -> str:
        facts, values = self.problem.facts, self.extents
        shown = [name for name in facts.extents if name in values and name not in self.problem.unusual]
        label = facts.label.format(**values) if facts.label else " ".join(f"{name}={values[name]}" for name in shown)
        unsaid = {name: value for name, value in self.unusual.items() if f"{{{name}}}" not in facts.label}
        more = [f"{self.problem.unusual[name].words} {value}" for name, value in unsaid.items()]
        return " ".join([label, *more, *sorted(self.optional)])

    def __str__(self) -> str:
        return self._words

    def describe(self) -> dict[str, Any]:
        """What makes the same case in another process: `from_description`."""
        return {"name": self.name, "given": self.given, "optional": sorted(self.optional), "size": self.size}


def from_description(problem: Problem, described: Mapping[str, Any]) -> Case:
    """The case that `Case.describe` described."""
    given = tuple((name, text) for name, text in described["given"])
    return Case(problem, described["name"], given, frozenset(described["optional"]), described["size"])


def numpy_type(dtype: str) -> Any:
    """NumPy's type of a name. Raises UserError for bfloat16 where the package that has it is not installed."""
    import numpy

    if dtype != "bfloat16":
        return numpy.dtype(dtype)
    try:
        import ml_dtypes
    except ImportError as error:
        raise UserError("bfloat16 needs the Python package ml_dtypes: pip install ml_dtypes") from error
    return numpy.dtype(ml_dtypes.bfloat16)


def itemsize(dtype: str) -> int:
    """Bytes of a value."""
    return int("".join(filter(str.isdecimal, dtype))) // 8


def compute(case: Case, inputs: Mapping[str, Any], xp: Any, function: str = "reference") -> dict[str, Any]:
    """A case's float64 outputs by name. `xp` is numpy or cupy, whose arrays `inputs` are. The reference gets what its
    parameters name: arrays, extents, and `xp`. Raises UserError where it gives another shape than the facts say."""
    problem = case.problem
    written = getattr(problem.module, function)
    known = {**case.extents, "xp": xp, **{name: widen(one, xp) for name, one in inputs.items()}}
    taken = [name for name, one in inspect.signature(written).parameters.items() if name in known]
    result = written(**{name: known[name] for name in taken})
    results = result if isinstance(result, tuple) else (result,)
    outputs = dict(zip(problem.outputs, results, strict=False))
    for name in problem.outputs:
        shape = tuple(getattr(outputs.get(name), "shape", ()))
        if name not in outputs or shape != case.shape(name):
            where = display_path(problem.path)
            raise UserError(
                f"{where}: `{function}` gives {name} of shape {shape}, and the facts say {case.shape(name)}"
            )
    return outputs


def widen(values: Any, xp: Any) -> Any:
    """Values as a reference gets them: float64, or int64 of whole numbers."""
    return values.astype(xp.int64 if values.dtype.kind in "iub" else xp.float64)


@functools.cache
def read(folder: Path) -> Problem:
    """The problem of a folder. Raises UserError with every mistake on a line."""
    path = folder / FILE
    try:
        text = path.read_text(encoding="utf-8-sig")
        docstring = ast.get_docstring(ast.parse(text))
        content = load_yaml(docstring or "")
    except OSError as error:
        raise UserError(f"{display_path(path)} cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UserError(f"{display_path(path)}{line}: {getattr(error, 'msg', error)}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1} of its docstring" if mark else ""
        raise UserError(f"{display_path(path)}{where}: {getattr(error, 'problem', error)}") from error
    if not isinstance(content, dict):
        raise UserError(f"{display_path(path)}: its docstring is not YAML of the form `key: value`")
    try:
        facts = validate(Facts, content)
        problem = Problem(folder.name, folder, facts)
        for extents in facts.ragged:
            problem.case("ragged", extents)
        for case in problem.ragged:
            _ = case.extents
    except ValidationError as error:
        lines = explain(error, Facts)
        several = "".join(f"\n  {line}" for line in lines)
        raise UserError(f"{display_path(path)}:{several if len(lines) > 1 else f' {lines[0]}'}") from error
    except ValueError as error:
        raise UserError(f"{display_path(path)}: {error}") from error
    return problem


def _read_with(folder: Path, dtypes: tuple[tuple[str, Dtype], ...]) -> Problem:
    return read(folder).with_dtypes(dict(dtypes))


def files() -> list[Path]:
    """The files of the problems that are here."""
    return sorted({path for folder in FOLDERS for path in folder.glob(f"*/{FILE}")})


def names() -> list[str]:
    """Names of the problems that are here."""
    return sorted({path.parent.name for path in files()})


def find(name: str) -> Problem:
    """The problem called `name`; UserError with the nearest valid name when there is none."""
    for folder in FOLDERS:
        if (folder / name / FILE).exists():
            return read(folder / name)
    raise UserError(f"no problem is called {name!r}: {nearest_name(name, names())}")
