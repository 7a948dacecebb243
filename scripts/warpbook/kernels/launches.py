"""How kernels are launched: grid, block, dynamic shared memory and arguments for a layer, as a header says."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, field_validator, model_validator

from warpbook.common import expressions
from warpbook.common.expressions import Expression
from warpbook.kernels import occupancy
from warpbook.problems.problem import Case


class Shape(NamedTuple):
    """One launch."""

    grid: tuple[int, ...]
    threads: tuple[int, ...]
    shared_bytes: int


NULL, ZEROS = "null", "zeros"
"""What may stand for a pointer among arguments: none, and memory that is 0, as much as the largest array has."""
KERNEL = r"^([A-Za-z_][\w:]*(<[\w, ]+>)?)?$"
CALLS_MAX = 1_000_000


def _argument(value: Any) -> Any:
    """YAML's null and its words for yes and no."""
    if value is None:
        return NULL
    return int(value) if isinstance(value, bool) else value


Argument = Annotated[int | float | str, BeforeValidator(_argument)]
"""An array or a part of it, as `x + n * C * H * W`, an expression of extents, a number, `null` or `zeros`."""


class Slice(NamedTuple):
    """An array from one of its values on."""

    array: str
    offset: int


class Call(NamedTuple):
    """One launch and what it gets: arrays and parts of arrays, and numbers by value; or, without a kernel, an array to be
    filled with zeros; one to be added up and the output that the sum goes to; or one to be filled, and an input or number."""

    kernel: str
    arguments: tuple[Slice | str | int | float, ...]
    shape: Shape


class LaunchStep(BaseModel):
    """One of several launches of one result, an array filled with zeros between them, or a sum taken at the end."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kernel: str = Field("", pattern=KERNEL)
    arguments: list[Argument] = Field(default_factory=list)
    threads: list[Expression] = Field(default_factory=list, max_length=3)
    grid: list[Expression] = Field(default_factory=list, max_length=3)
    shared_bytes: Expression = 0
    clear: str = Field("", description="an array to fill with zeros, in place of a launch")
    sum: str = Field("", description="memory of `scratch` to add up into the output, in place of a launch")
    fill: dict[str, str | float] = Field(
        default_factory=dict,
        max_length=1,
        description="{held: x}: copies an input to memory of `scratch`, as a kernel may write, or to the output; a number"
        " fills memory of `scratch`",
    )
    loop: dict[str, Expression] = Field(default_factory=dict, description="{n: N}: once for each n from 0 to N - 1")
    when: Expression = Field(1, description="done only in cases where this is not 0")

    @model_validator(mode="after")
    def _one_thing(self) -> "LaunchStep":
        if [bool(self.kernel), bool(self.clear), bool(self.sum), bool(self.fill)].count(True) != 1:
            words = "fills an array with zeros, `clear`, or with an input or a number, `fill`, or adds one up, `sum`"
            raise ValueError(f"a step launches a `kernel`, {words}")
        if self.kernel and not (self.threads and self.grid and self.arguments):
            raise ValueError(f"{self.kernel} needs `arguments`, `threads` and `grid`")
        return self


def find_array(argument: int | float | str, arrays: Collection[str]) -> str:
    """The array that an argument names or points into; empty where it is a number."""
    if not isinstance(argument, str) or argument in (NULL, ZEROS):
        return ""
    return next((name for name in expressions.used_names(argument) if name in arrays), "")


def calls(steps: Sequence[LaunchStep], names: Mapping[str, int], arrays: Collection[str], output: str) -> list[Call]:
    """A case's launches in order: steps of one loop take turns, and sums go to `output`. Raises ValueError with key and
    reason, also where no step is for the case."""
    made: list[Call] = []
    for loop, group in itertools.groupby(steps, key=lambda step: step.loop):
        counts = expressions.values("loop", list(loop.values()), names)
        parts = [_StepEvaluator(step, names, arrays, output) for step in group]
        for turn in itertools.product(*map(range, counts)):
            if len(made) > CALLS_MAX:
                raise ValueError(f"loop: more than {CALLS_MAX} launches")
            known = {**names, **dict(zip(loop, turn, strict=True))}
            made += [part.call(known) for part in parts if part.is_for(known)]
    if not any(call.kernel for call in made) and any(step.when != 1 for step in steps):
        raise ValueError("when: none of its launches is for this case")
    return made


class _StepEvaluator:
    """Computes the launch of a step, once only where no loop changes it."""

    def __init__(self, step: LaunchStep, names: Mapping[str, int], arrays: Collection[str], output: str):
        self._step, self._arrays, self._output = step, arrays, output
        fixed = not self._used_names() & {*step.loop} and step.when == 1
        self._fixed = self._make_call(names) if fixed else None

    def _used_names(self) -> set[str]:
        step = self._step
        listed = [*step.arguments, *step.threads, *step.grid, step.shared_bytes]
        words = (text for text in listed if isinstance(text, str) and text not in (NULL, ZEROS))
        return {name for text in words for name in expressions.used_names(text)}

    def is_for(self, names: Mapping[str, int]) -> bool:
        """Whether it is done where names have these values."""
        return expressions.values("when", [self._step.when], names) != (0,)

    def call(self, names: Mapping[str, int]) -> Call:
        return self._fixed or self._make_call(names)

    def _make_call(self, names: Mapping[str, int]) -> Call:
        step = self._step
        if step.clear:
            return Call("", (step.clear,), Shape((), (), 0))
        if step.sum:
            return Call("", (step.sum, self._output), Shape((), (), 0))
        if step.fill:
            return Call("", next(iter(step.fill.items())), Shape((), (), 0))
        threads = expressions.values("threads", step.threads, names)
        if reason := occupancy.block_limit_reason(threads):
            raise ValueError(reason)
        (shared_bytes,) = expressions.values("shared_bytes", [step.shared_bytes], names)
        if "W_out" in names:
            names = {"tiles": tiles(threads, names)} | dict(names)
        shape = Shape(expressions.values("grid", step.grid, names), threads, shared_bytes)
        return Call(step.kernel, tuple(argument_value(each, names, self._arrays) for each in step.arguments), shape)


def argument_value(
    argument: int | float | str, names: Mapping[str, int], arrays: Collection[str]
) -> Slice | str | int | float:
    """The value that a kernel gets for an argument. Raises ValueError."""
    if not isinstance(argument, str) or argument in arrays or argument in (NULL, ZEROS):
        return argument
    if array := find_array(argument, arrays):
        (offset,) = expressions.values("arguments", [argument], {**names, array: 0})
        return Slice(array, offset)
    return expressions.values("arguments", [argument], names)[0]


class OutputsPerBlock(BaseModel):
    """How many outputs along each extent one block computes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    W: PositiveInt
    H: PositiveInt
    M: PositiveInt = 1
    N: PositiveInt = 1


class Launch(BaseModel):
    """Shape of the launch: grid (tiles across x tiles down, ceil(M / M a block), ceil(N / N a block))."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    threads: tuple[PositiveInt, PositiveInt, PositiveInt]
    outputs_per_block: OutputsPerBlock

    @field_validator("threads")
    @classmethod
    def _check_threads(cls, threads: tuple[int, int, int]) -> tuple[int, int, int]:
        if reason := occupancy.block_limit_reason(threads):
            raise ValueError(reason.removeprefix("threads: "))
        return threads

    def grid(self, case: Case) -> tuple[int, int, int]:
        """Blocks for one case of `conv`."""
        block = self.outputs_per_block
        tiles = -(-case.W_out // block.W) * -(-case.H_out // block.H)
        return (tiles, -(-case.M // block.M), -(-case.N // block.N))


def tiles(threads: Sequence[int], names: Mapping[str, int]) -> int:
    """Blocks that cover one map of outputs where each thread computes one."""
    across, down = (*threads, 1)[:2]
    return -(-names["W_out"] // across) * -(-names["H_out"] // down)
