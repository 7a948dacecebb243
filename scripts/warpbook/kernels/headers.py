"""What a variant says of itself: the facts of its header, or of the YAML file beside it, read and checked."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, ValidationInfo, model_validator

from warpbook.common import expressions
from warpbook.common.errors import nearest_name
from warpbook.common.expressions import Expression
from warpbook.common.quick_yaml import load_yaml
from warpbook.common.validation import keys_at
from warpbook.kernels import launches, occupancy
from warpbook.kernels.claims import Claim
from warpbook.kernels.constraints import Limits
from warpbook.kernels.languages import LANGUAGES, missing_words
from warpbook.kernels.launches import Argument, Call, Launch, LaunchStep, Slice
from warpbook.problems import problem as problems
from warpbook.problems.problem import Case

DEFAULT_PROBLEM = "conv"  # the problem of a folder that has no problem.py: a submission of the course


class Split(BaseModel):
    """How FP32 multiply-adds are split into MMAs of a lower precision."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    precision: Literal["tf32", "fp16", "bf16"]
    products: PositiveInt


class General(BaseModel):
    """The kernel for cases with something unusual, as a stride or a bias, on the same grid; for C++, the function."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kernel: str = Field(pattern=launches.KERNEL, min_length=1)
    arguments: list[Expression] = Field(min_length=1)
    shared_bytes: Expression = Field(0, description="dynamic shared memory of its blocks, in bytes")
    limits: Limits | None = Field(None, description="cases that it supports; by default those of the header's `limits`")


class Header(BaseModel):
    """What a variant declares. Every field is optional; an unknown field is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str = Field("", description="name in the report; empty: the file's name")
    idea: str = Field("", description="what the kernel does differently from its baseline")
    expect: str = Field("", description="effect expected of the idea, written before measuring")
    claims: list[Claim] = Field(default_factory=list, description="parts of `expect` that measurements can decide")
    builds_on: str = Field("", description="its baseline; empty: a starting point, or `direct` if `idea` is empty too")
    check: str = Field("", description="hardware counter that should change, and how")
    reference: str = Field("", description="address of the source of the idea")
    device: Literal["cpu", "gpu"] = Field("gpu", description="where it runs")
    peer: bool = Field(False, description="calls a library that users would otherwise pick")
    order: Literal["NCHW", "NHWC"] = Field("NCHW", description="a peer's layout of x, w and y; converted untimed")
    requires: str = Field("", description="package that it needs beyond the default install: its language, for one")
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp64", "int"] = Field(
        "fp32", description="precision of its result, which sets the tolerance; fp64 and int by its arrays' type"
    )
    method: Literal["direct", "any"] = Field(
        "direct", description="direct: computes every multiply-add; any: may compute fewer. Sets the lower bound"
    )
    split: Split | None = Field(None, description="MMAs for each FP32 multiply-add: they set the lower bound")
    constants: dict[str, int] = Field(default_factory=dict, description="reach the compiler as -D")
    launch: Launch | None = Field(None, description="block and tile of a kernel with the usual arguments")
    kernel: str = Field("", pattern=launches.KERNEL, description="name of the kernel, where the file has several")
    arguments: list[Argument] = Field(
        default_factory=list,
        description="arguments of the kernel in order: x, w, y, expressions, numbers as 1.0, `null` and `zeros`",
    )
    general: General | None = Field(
        None, description="kernel and arguments where a case has what is unusual, such as a stride or a bias"
    )
    threads: list[Expression] = Field(default_factory=list, max_length=3, description="threads of a block")
    grid: list[Expression] = Field(
        default_factory=list, max_length=3, description="blocks of the grid; may use `tiles`"
    )
    shared_bytes: Expression = Field(0, description="dynamic shared memory of a block, in bytes")
    constant_memory: str = Field("", pattern=r"^[\w:]*$", description="variable that w is copied to before each call")
    clear: list[str] = Field(default_factory=list, description="outputs filled with zeros before each call")
    loop: dict[str, Expression] = Field(
        default_factory=dict, description="{n: N} launches the kernel for each n from 0 to N - 1"
    )
    steps: list[LaunchStep] = Field(
        default_factory=list, description="several launches, in their order, in place of one"
    )
    scratch: dict[str, Expression] = Field(
        default_factory=dict, description="memory that steps pass to each other, in bytes"
    )
    sweep: dict[str, list[int]] = Field(default_factory=dict, description="constants to tune, with the values to try")
    least_arch: str = Field(
        "", pattern=r"^(sm_\d+a?)?$", description="oldest architecture, as sm_80; sm_90a: that one alone"
    )
    limits: Limits = Field(Limits(), description="layers that it supports; others are reported as unsupported")
    every_case: bool = Field(
        False, description="its launcher computes what is unusual in a case too: any stride, a bias"
    )

    def architecture_reason(self, arch: str) -> str:
        """Which architecture it needs in place of one such as sm_75; empty if that will do. sm_90a serves no later one."""
        least, own = self.least_arch.removesuffix("a"), self.least_arch.endswith("a")
        if not least or arch == least or (not own and _generation(arch) >= _generation(least)):
            return ""
        return f"needs {least} {'and no other' if own else 'or later'}; this GPU is {arch}"

    def compile_target(self, arch: str) -> str:
        """What its compiler is told to build it for an architecture: sm_90a where it uses what sm_90 alone has."""
        return self.least_arch if self.least_arch.endswith("a") else arch

    @model_validator(mode="after")
    def _launched_in_one_way(self) -> "Header":
        if self.launch and (self.threads or self.grid):
            raise ValueError("`launch` and `threads` with `grid` say the same; keep one of them")
        if self.steps and (self.launch or self.threads or self.arguments or self.loop or self.general):
            raise ValueError("`steps` say each launch; keep them or `arguments`, `threads` and `grid`")
        if bool(self.threads) != bool(self.grid):
            said, missing = ("threads", "grid") if self.threads else ("grid", "threads")
            raise ValueError(f"`{said}` needs `{missing}` beside it")
        return self

    @model_validator(mode="after")
    def _names_of_problem(self, info: ValidationInfo) -> "Header":
        problem = info.context["problem"] if info.context else problems.find(DEFAULT_PROBLEM)
        for key, limits in (("limits", self.limits), ("general.limits", self.general and self.general.limits)):
            try:
                if limits:
                    limits.check(problem)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        known = {*problem.names, *self.constants}
        arrays = set(self.arrays(problem))
        if unknown := next((name for name in self.clear if name not in problem.outputs), ""):
            raise ValueError(f"clear: {unknown!r} is no output: {nearest_name(unknown, list(problem.outputs))}")
        expressions.check("scratch", list(self.scratch.values()), known)
        for step in self._steps:
            expressions.check("loop", list(step.loop.values()), known)
            if taken := next((name for name in step.loop if name in known | arrays), ""):
                raise ValueError(f"loop: {taken} is an extent or an array; take another name")
            here = {*known, *step.loop}
            expressions.check("threads", step.threads, here)
            expressions.check("grid", step.grid, {*here, "tiles"} if "W_out" in known else here)
            expressions.check("shared_bytes", [step.shared_bytes], here)
            expressions.check("when", [step.when], here)
            _check_arguments("arguments", step.arguments, here, arrays)
            if step.clear and step.clear not in {*problem.outputs, *self.scratch}:
                raise ValueError(f"clear: {step.clear!r} is neither an output nor of `scratch`")
            if step.sum and step.sum not in self.scratch:
                raise ValueError(f"sum: {step.sum!r} is not of `scratch`")
            for held, value in step.fill.items():
                shape = problem.outputs[held].shape if held in problem.outputs else ()
                copied = value in problem.inputs and shape in ((), problem.inputs[str(value)].shape)
                if not (shape or held in self.scratch) or not (copied or (not isinstance(value, str) and not shape)):
                    words = f"{held!r} is not of `scratch` nor an output as long, or {value!r} is no input"
                    raise ValueError(f"fill: {words}")
            if step.sum and [one.shape for one in problem.outputs.values()] != [(1,)]:
                raise ValueError(f"sum: {problem.name} has more outputs than one value")
        if self.general:
            _check_arguments("general.arguments", self.general.arguments, known, arrays)
            expressions.check("general.shared_bytes", [self.general.shared_bytes], known)
        if self.launch and "W_out" not in known:
            raise ValueError(f"`launch` is for convolutions; say `threads` and `grid` for {problem.name}")
        for number, claim in enumerate(self.claims):
            try:
                claim.check(problem)
            except ValueError as error:
                raise ValueError(f"claims.{number}.{error}") from None
        constant = problem.arrays[1] if self.constant_memory else ""
        said = [launches.find_array(text, arrays) for step in self._steps for text in step.arguments]
        said += [name for step in self._steps if step.sum for name in problem.outputs]
        said += [str(value) for step in self._steps for value in step.fill.values()]
        for array in problem.arrays:
            there, times = said.count(array), 0 if array == constant else 1
            if said and (there < times if self.steps else there != times):
                must = "must once" if times else f"is copied to `constant_memory: {self.constant_memory}`"
                raise ValueError(f"arguments: {array} stands there {there} times, and {must}")
        if self.block and (reason := occupancy.block_limit_reason(self.block)):
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _in_order(self) -> "Header":
        if self.order != "NCHW" and not (self.peer and self.device == "gpu"):
            raise ValueError(f"order: {self.order} is for peers on a GPU; kernels get x, w and y in NCHW order")
        return self

    def missing(self, name: str) -> str:
        """What `name` requires and is not installed here, in words; empty when nothing is missing."""
        if not self.requires or not (lacking := missing_words(self.requires)):
            return ""
        language = LANGUAGES.get(self.requires)
        command = language.command if language else f"pip install {self.requires}"
        return f"{name} needs {lacking}, which is not installed here: {command}"

    @property
    def reduced(self) -> tuple[str, int] | None:
        """The precision below FP32 that its direct method multiplies in, and how many such products make one; None
        where it multiplies in FP32, or its method may do fewer operations."""
        precision, products = (self.split.precision, self.split.products) if self.split else (self.precision, 1)
        return (precision, products) if precision in ("tf32", "fp16", "bf16") and self.method == "direct" else None

    @property
    def sums_in_fp32(self) -> bool:
        """Whether it says that it adds up every FP32 product in FP32."""
        return self.precision == "fp32" and self.method == "direct" and not self.split

    @property
    def declares_launch(self) -> bool:
        """Whether it says how its kernel is launched."""
        return bool(self.launch or self.grid or self.steps)

    @property
    def _steps(self) -> list[LaunchStep]:
        """What it says of its launches, one of it where there is one."""
        one = LaunchStep.model_construct(
            kernel=self.kernel, arguments=self.arguments, threads=self.threads, grid=self.grid,
            shared_bytes=self.shared_bytes, clear="", loop=self.loop, when=1,
        )  # fmt: skip
        return self.steps or [one]

    def missing_arguments(self, case: Case) -> dict[str, str]:
        """What of a case its kernel is not told, and so would compute another, in words: {"S": "stride 2"}. It is told
        what its `arguments`, `limits` or its `general` kernel name, and all with `every_case`."""
        if self.every_case:
            return {}
        listed: list[Argument] = [text for step in self._steps for text in step.arguments]
        listed += self.general.arguments if self.general else []
        written = (text for text in listed if isinstance(text, str))
        named = {name for text in written for name in expressions.used_names(text)} - set(self.constants)
        named |= self.limits.model_fields_set
        words = case.problem.unusual
        unusual = {name: f"{words[name].words} {value}" for name, value in case.unusual.items() if name not in named}
        return unusual | {name: f"the optional input {name}" for name in case.optional if name not in named}

    @property
    def block(self) -> tuple[int, ...] | None:
        """Threads of a block, where they are the same for every layer; None where not, or where it does not say."""
        if self.launch:
            return self.launch.threads
        if any(expressions.used_names(text) - set(self.constants) for text in self.threads):
            return None
        return expressions.values("threads", self.threads, self.constants) or None

    def shape(self, case: Case) -> launches.Shape:
        """The launch for a case. Raises ValueError naming key, expression and reason where there is none."""
        names = case.extents | self.constants
        general = self.general_for(case)
        (shared_bytes,) = expressions.values("shared_bytes", [(general or self).shared_bytes], names)
        if self.launch:
            return launches.Shape(self.launch.grid(case), self.launch.threads, shared_bytes)
        threads = expressions.values("threads", self.threads, names)
        if reason := occupancy.block_limit_reason(threads):
            raise ValueError(reason)
        if "W_out" in names:
            names = {"tiles": launches.tiles(threads, names)} | names
        return launches.Shape(expressions.values("grid", self.grid, names), threads, shared_bytes)

    def general_for(self, case: Case) -> General | None:
        """What it says of the kernel that is launched for a case in place of the usual one; None where that is."""
        return self.general if is_unusual(case) else None

    def limits_for(self, case: Case) -> Limits:
        """The limits of what is launched for a case."""
        general = self.general_for(case)
        return self.limits if general is None or general.limits is None else general.limits

    def arrays(self, problem: problems.Problem) -> tuple[str, ...]:
        """Names of what a kernel can get as a pointer."""
        return (*problem.facts.array_names, *self.scratch)

    def scratch_bytes(self, names: Mapping[str, int]) -> dict[str, int]:
        """Bytes of each piece of scratch memory. Raises ValueError."""
        sizes = expressions.values("scratch", list(self.scratch.values()), names)
        return dict(zip(self.scratch, sizes, strict=True))

    def argument_values(self, case: Case) -> tuple[Slice | str | int | float, ...]:
        """What its kernel gets for a case, in order: arrays by name, numbers by value."""
        names: dict[str, int] = case.extents | self.constants
        arrays = case.problem.facts.array_names
        general = self.general_for(case)
        listed: Sequence[Argument] = general.arguments if general else self.arguments or case.problem.arguments
        return tuple(launches.argument_value(text, names, arrays) for text in listed)

    def calls(self, case: Case, kernel: str) -> list[Call]:
        """The launches for a case, of `kernel` if named. ValueError naming key, expression and reason if none."""
        arrays = self.arrays(case.problem)
        cleared = [Call("", (name,), launches.Shape((), (), 0)) for name in self.clear]
        if self.steps or self.loop:
            named = (
                step
                if step.clear or step.sum or step.fill or step.kernel
                else step.model_copy(update={"kernel": kernel})
                for step in self._steps
            )
            steps = list(named)
            (output, *_) = case.problem.outputs
            return cleared + launches.calls(steps, case.extents | self.constants, arrays, output)
        general = self.general_for(case)
        return [*cleared, Call(general.kernel if general else kernel, self.argument_values(case), self.shape(case))]


def _check_arguments(key: str, listed: Sequence[Argument], known: set[str], arrays: set[str]) -> None:
    """Raise ValueError where an argument is neither a number nor an array nor one and what is added to it."""
    words = [text for text in listed if isinstance(text, str) and text not in (launches.NULL, launches.ZEROS)]
    expressions.check(key, words, {*known, *arrays})
    for text in words:
        if len(there := expressions.used_names(text) & arrays) > 1:
            raise ValueError(f"{key}: `{text}` is made of {' and '.join(sorted(there))}, and a pointer is of one array")
        if there and text not in arrays and not re.fullmatch(r"\w+\s*\+.*", text):
            raise ValueError(f"{key}: `{text}`: a part of an array is written `{min(there)} + offset`")


def is_unusual(case: Case) -> bool:
    """Whether a case has what a kernel with the usual arguments does not compute."""
    return bool(case.unusual or case.optional)


_KEY = re.compile(rf"^[ \t]*(?:{'|'.join(Header.model_fields)})[ \t]*:", re.MULTILINE)


def is_header(comment: str) -> bool:
    """Whether a source's first comment holds facts: a line begins with one of their keys. Else it is prose."""
    return bool(_KEY.search(comment))


def parse_facts(text: str) -> dict[str, Any]:
    """The facts of a header or a YAML file, unchecked. Raises ValueError or YAMLError where it is none."""
    content = load_yaml(text)
    if not isinstance(content, dict):
        raise ValueError("the header is not YAML of the form `key: value`")
    return content


def declare_launch(content: Mapping[str, Any]) -> bool:
    """Whether facts say how a kernel is launched; its name alone does not."""
    return bool({"launch", "arguments", "threads", "grid", "shared_bytes", "steps"} & content.keys())


def join(header: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """A header's facts completed by those of the YAML file beside it. Raises ValueError for what both say."""
    if twice := sorted(set(map(str, header)) & set(map(str, beside))):
        raise ValueError(f"`{twice[0]}` stands in the source's header too; say it in one of the two")
    return {**header, **beside}


def _first_error(error: ValidationError) -> Any:
    """A misspelt key explains the missing one that it leaves behind."""
    return min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")


def faulty_key(error: Exception) -> str:
    """The fact that `first_problem` complains of; empty where it is of none."""
    if not isinstance(error, ValidationError):
        return ""
    first = _first_error(error)
    # A fact that does not fit the problem is named at the beginning of the reason, not by its place.
    key = str(first["loc"][0]) if first["loc"] else re.split("[.:]", first["msg"].removeprefix("Value error, "))[0]
    return key if key in Header.model_fields or first["loc"] else ""


def first_problem(error: Exception) -> str:
    """What is wrong with a header, in one line."""
    if isinstance(error, ValidationError):
        first = _first_error(error)
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            return f"unknown key {key!r}: {nearest_name(str(first['loc'][-1]), keys_at(first['loc'][:-1], Header))}"
        words = first["msg"].removeprefix("Value error, ")
        return f"{key}: {words}" if key else words
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return (
            f"header line {error.problem_mark.line + 1}: {error.problem} "
            "(text that holds `: ` or begins with a special character goes between quotes)"
        )
    return str(error).splitlines()[0] if isinstance(error, yaml.YAMLError) else str(error)


def _generation(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))
