"""The launches that a header says, recorded for the process that an emulated variant runs in (`emulated_worker.py`)."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness.emulator import emulation
from warpbook.kernels import occupancy
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case, itemsize

LETTERS = {np.int32: "i", np.int64: "l", np.float32: "f", np.float64: "d"}


def can_be_recorded(variant: Variant) -> bool:
    """Whether no code but the kernels decides what a variant does."""
    return variant.launcher is None and not variant.entry and not variant.course


def record(variant: Variant, case: Case) -> bytes:
    """What a call on a case does, as JSON: scratch memory, and steps on it and on the case's arrays by their numbers."""
    recorder = _Recorder(len(case.arrays))
    operation = variant.prepare(case, recorder)
    recorder.steps.clear()  # how scratch memory begins stands with it
    operation(*(_Place(recorder, place, one.dtype) for place, one in enumerate(case.arrays.values())))
    return json.dumps({"scratch": recorder.scratch, "steps": recorder.steps}).encode()


@dataclass(frozen=True)
class _Place:
    """An array of a number, from a value on."""

    recorder: "_Recorder"
    number: int
    dtype: str
    offset: int = 0

    def reshape(self, _: int) -> "_Place":
        return self

    def view(self, dtype: str) -> "_Place":
        return replace(self, dtype=dtype)

    def __getitem__(self, values: slice) -> "_Place":
        return replace(self, offset=self.offset + values.start)

    def __setitem__(self, _: Any, values: "_Place | _Sum") -> None:
        if isinstance(values, _Sum):
            of = values.of
            self.recorder.steps.append(["sum", of.number, of.dtype, self.number, self.dtype])
        else:
            self.recorder.steps.append(["move", values.number, self.number])

    def sum(self) -> "_Sum":
        return _Sum(self)

    def fill(self, value: float) -> None:
        self.recorder.fill(self.number, value)


@dataclass(frozen=True)
class _Sum:
    """The sum of an array."""

    of: _Place


class _Recorder:
    """A variant's kernels as its launches see them."""

    def __init__(self, arrays: int):
        self.scratch: list[list[Any]] = []
        self.steps: list[list[Any]] = []
        self._arrays = arrays

    def empty(self, shape: tuple[int, ...]) -> _Place:
        self.scratch.append([math.prod(shape) * 4, None])
        return _Place(self, self._arrays + len(self.scratch) - 1, "float32")

    def fill(self, number: int, value: float) -> None:
        if number >= self._arrays and self.scratch[number - self._arrays][1] is None:
            self.scratch[number - self._arrays][1] = value
        self.steps.append(["fill", number, value])

    def symbol(self, name: str) -> "_Symbol":
        return _Symbol(self, name)

    def function(self, name: str, shared_bytes: int = 0, early: bool = False) -> Callable[..., None]:
        entry = emulation.entry_name(name)

        def launch(grid: tuple[int, ...], threads: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            if reason := occupancy.launch_limit_reason(grid, threads, shared_bytes):
                raise VariantFailure("launch_failed", f"{name}: {reason}")
            self.steps.append(["launch", entry, grid, threads, shared_bytes, [_argument(value) for value in arguments]])

        return launch


@dataclass(frozen=True)
class _Symbol:
    """A variable in constant memory."""

    recorder: _Recorder
    name: str

    def copy(self, values: _Place) -> None:
        self.recorder.steps.append(["copy", self.name, values.number])


def _argument(value: Any) -> list[Any]:
    if isinstance(value, _Place):
        return ["array", value.number, value.offset * itemsize(value.dtype)]
    return [LETTERS[type(value)], value.item(), 0]
