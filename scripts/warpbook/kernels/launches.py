"""How a kernel is launched: grid, block and dynamic shared memory for a layer, as a header says."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, PositiveInt, field_validator

from warpbook.common.errors import nearest_name
from warpbook.kernels import expressions, occupancy
from warpbook.problems.networks import ConvLayer

Expression = int | str
ARGUMENTS: tuple[Expression, ...] = ("x", "w", "y", "N", "C", "H", "W", "M", "K")
"""Arguments of a kernel whose header gives none."""
ARRAYS = ("x", "w", "y")
EXTENTS = ("N", "C", "H", "W", "M", "K", "H_out", "W_out", "S", "P")
UNUSUAL = {"S": (1, "stride"), "P": (0, "padding")}
"""What a kernel is told of only where its header names it: the value that it otherwise takes for granted, in words."""


class Shape(NamedTuple):
    """One launch."""

    grid: tuple[int, ...]
    threads: tuple[int, ...]
    shared_bytes: int


def extents(layer: ConvLayer, images: int) -> dict[str, int]:
    """A layer's extents by their names in headers."""
    return {name: getattr(layer, name) for name in EXTENTS[1:]} | {"N": images}


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
    def _allowed(cls, threads: tuple[int, int, int]) -> tuple[int, int, int]:
        if reason := occupancy.block_limit_reason(threads):
            raise ValueError(reason.removeprefix("threads: "))
        return threads

    def grid(self, layer: ConvLayer, images: int) -> tuple[int, int, int]:
        """Blocks for one layer and `images` images."""
        block = self.outputs_per_block
        tiles = -(-layer.W_out // block.W) * -(-layer.H_out // block.H)
        return (tiles, -(-layer.M // block.M), -(-images // block.N))


def check(key: str, listed: Sequence[Expression], known: Collection[str]) -> None:
    """Raise ValueError where an expression of a header's key is none, or names what no layer has."""
    for text in listed:
        try:
            unknown = sorted(expressions.used_names(text) - set(known))
        except ValueError as error:
            raise ValueError(f"{key}: `{text}`: {error}") from None
        if unknown:
            reason = f"{unknown[0]!r} is no extent or constant: {nearest_name(unknown[0], list(known))}"
            raise ValueError(f"{key}: `{text}`: {reason}")


def values(key: str, listed: Sequence[Expression], names: Mapping[str, int]) -> tuple[int, ...]:
    """Values of a header key's expressions. Raises ValueError naming key, expression and reason."""
    known = []
    for text in listed:
        try:
            known.append(expressions.evaluate(text, names))
        except ValueError as error:
            raise ValueError(f"{key}: `{text}`: {error}") from None
    return tuple(known)


def tiles(threads: Sequence[int], names: Mapping[str, int]) -> int:
    """Blocks that cover one map of outputs where each thread computes one."""
    across, down = (*threads, 1)[:2]
    return -(-names["W_out"] // across) * -(-names["H_out"] // down)
