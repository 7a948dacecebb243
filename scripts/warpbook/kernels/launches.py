"""How a kernel is launched: grid, block and dynamic shared memory for a layer, as a header says."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, PositiveInt, field_validator

from warpbook.kernels import occupancy
from warpbook.problems.problem import Case


class Shape(NamedTuple):
    """One launch."""

    grid: tuple[int, ...]
    threads: tuple[int, ...]
    shared_bytes: int


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

    def grid(self, case: Case) -> tuple[int, int, int]:
        """Blocks for one case of `conv`."""
        block = self.outputs_per_block
        tiles = -(-case.W_out // block.W) * -(-case.H_out // block.H)
        return (tiles, -(-case.M // block.M), -(-case.N // block.N))


def tiles(threads: Sequence[int], names: Mapping[str, int]) -> int:
    """Blocks that cover one map of outputs where each thread computes one."""
    across, down = (*threads, 1)[:2]
    return -(-names["W_out"] // across) * -(-names["H_out"] // down)
