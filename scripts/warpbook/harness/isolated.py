"""The bench of a variant whose code runs in a process of its own, in a sandbox where there is one. This process draws
the inputs, guards the buffers and compares; `worker.py` only computes. Both copy through shared memory: what is judged
lies where the other cannot reach it."""

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking, recorded_launches, sandbox, shared_memory, worker_protocol
from warpbook.harness.bench import CpuBench, with_margins
from warpbook.harness.variant_process import VariantProcess
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case

if TYPE_CHECKING:
    from warpbook.harness.full_size import Sparse


class IsolatedBench(CpuBench):
    """The host, for a CPU variant or, emulated, a GPU variant compiled into `folder`; see `VariantProcess`.
    `reversed_order` runs an emulated kernel's threads from the last to the first, which finds what works in one order
    only. Of a file of the course, `without` is what is left out: KERNELS, CONVOLUTION or INPUTS of `ece408_worker`; and
    `left_out` whether blocks were in the last call, which the `whole` has all of."""

    reference_name = "NumPy float64"

    def __init__(
        self,
        variant: Variant,
        sandboxed: bool,
        folder: Path | None = None,
        library: Path | None = None,
        races: bool = False,
    ):
        super().__init__()
        self.reversed_order = False
        self.without = 0
        self.whole = False
        self.left_out = False
        self.process = VariantProcess(variant, sandboxed, folder, library, races)
        self._variant, self._emulated, self._sandboxed, self._folder = variant, folder is not None, sandboxed, folder
        self._ready_s: float | None = None

    def __enter__(self) -> "IsolatedBench":
        return self

    def renewed(self) -> "IsolatedBench":
        bench = IsolatedBench(self._variant, self._sandboxed, self._folder, self.process.library)
        bench.reversed_order = self.reversed_order
        return bench

    def __exit__(self, *_: object) -> None:
        """End the variant's process."""
        self.process.close()

    @property
    def ended(self) -> bool:
        """Whether the process of its variant is no more."""
        return self.process.ended

    @property
    def spent_s(self) -> float:
        """Processor time since the first case was prepared, by this process's own look at the other: milliseconds."""
        return 0.0 if self._ready_s is None else self.process.processor_s() - self._ready_s

    def prepare(self, variant: Variant, case: Case) -> Operation:
        described = shared_memory.describe_arrays(case)
        places, returned, size = worker_protocol.layout(described["arrays"], described["outputs"])
        # Behind the arrays, a count of finished blocks, by which one that is slow is told from one that hangs.
        handle, memory, recorded = self._allocate(size + worker_protocol.PAGE_BYTES, case)
        self.process.blocks = np.frombuffer(memory, np.uint64, 1, size)
        self.process.ask(handle, None, do="prepare", **described, **recorded, reverse=self.reversed_order)
        if self._ready_s is None:
            self._ready_s = self.process.processor_s()

        def operation(*values: np.ndarray) -> Any:
            buffers = [with_margins(array) for array in values]
            regions = [
                np.frombuffer(memory, words.dtype, len(words), place)
                for words, place in zip(buffers, places, strict=True)
            ]
            for region, words in zip(regions, buffers, strict=True):
                region[...] = words
            answer = self.process.ask(None, do="call", **self._options)
            for region, words in zip(regions, buffers, strict=True):
                words[...] = region
            if not all(np.array_equal(region, words) for region, words in zip(regions, buffers, strict=True)):
                raise VariantFailure("wrong_result", f"{variant.name} goes on writing after its call is over")
            self.noted = sandbox.printable(str(answer.get("noted", "")))
            self.left_out = bool(answer.get("left_out"))
            if "shapes" not in answer:
                return None
            checking.reject_other_shapes(variant, case, answer["shapes"])
            results = tuple(
                np.frombuffer(memory, np.float64, case.count(name), place).reshape(case.shape(name)).copy()
                for name, place in zip(case.problem.outputs, returned, strict=True)
            )
            return results if len(results) > 1 else results[0]

        return operation

    def _allocate(self, size: int, case: Case) -> tuple[int, mmap.mmap, dict[str, Any]]:
        """Memory for a request about a case, and what that says of the launches behind it, where they can be recorded."""
        if not self._emulated or not recorded_launches.can_be_recorded(self._variant):
            return *shared_memory.allocate(size), {}
        launches = recorded_launches.record(self._variant, case)
        handle, memory = shared_memory.allocate(size + len(launches))
        memory[size:] = launches
        return handle, memory, {"recorded": (size, len(launches))}

    @property
    def _options(self) -> dict[str, Any]:
        """What a request for a call says of what it leaves out, and of memory that nobody has written."""
        if not self._emulated:
            return {"how": "without"} if self.without else {}
        said = {"without": self.without, "large": self.large, "whole": self.whole}
        return {name: value for name, value in said.items() if value}

    def sample(
        self, sparse: "Sparse", inputs: Mapping[str, np.ndarray], blocks: int, timeout_s: float
    ) -> tuple[int, int]:
        """Run some blocks of each launch of an emulated variant on memory laid out as `sparse` says: a descriptor of that
        memory, to be closed, and how many launches there were."""
        handle, memory, recorded = self._allocate(sparse.size, sparse.case)
        kept = os.dup(handle)
        for name, values in inputs.items():
            place, count = sparse.places[name]
            memory[place : place + count] = np.ascontiguousarray(values).tobytes()
        arrays = [
            [*sparse.places[name], sparse.case.shape(name), one.dtype, name in inputs and sparse.has_batch_axis(name)]
            for name, one in sparse.case.arrays.items()
        ]
        described = {"case": sparse.case.describe(), "arrays": arrays, "outputs": len(sparse.case.problem.outputs)}
        try:
            answer = self.process.ask(handle, timeout_s, do="sample", blocks=blocks, **described, **recorded)
            if type(answer.get("launches")) is not int:
                raise self.process.invalid_answer()
        except VariantFailure:
            os.close(kept)
            raise
        self.noted = sandbox.printable(str(answer.get("noted", "")))
        return kept, answer["launches"]

    def round_ms(self, how: str) -> dict[str, float]:
        """Milliseconds of a round of a course's file on the last call's arrays: `Driver.course` or `device`."""
        times = self.process.ask(None, do="time", how=how).get("times")
        if not isinstance(times, dict) or not times or not times.keys() <= {"op", "layer", "cold", "hot"}:
            raise self.process.invalid_answer()
        if not all(type(each) is float and 0 < each < float("inf") for each in times.values()):
            raise self.process.invalid_answer()
        return dict(times)

    def labels(
        self, variant: Variant, network: Network, parameters: dict[str, np.ndarray], images: np.ndarray
    ) -> np.ndarray:
        """What the variant's inference labels images as."""
        return labels(self.process, network, parameters, images)


def labels(
    process: VariantProcess, network: Network, parameters: dict[str, np.ndarray], images: np.ndarray
) -> np.ndarray:
    """What a variant's inference in its process labels images as; -1 for what is no class."""
    arrays = {"images": images, **parameters}
    begins = np.cumsum([0, *(-(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE for array in arrays.values())])
    handle, memory = shared_memory.allocate(int(begins[-1]))
    facts = []
    for (name, array), begin in zip(arrays.items(), begins.tolist(), strict=False):
        memory[begin : begin + array.nbytes] = np.ascontiguousarray(array).tobytes()
        facts.append([name, array.dtype.str, array.shape, begin])
    answer = process.ask(
        handle, None, do="infer", name=network.name, described=network.description.model_dump(), arrays=facts
    )
    labels = answer.get("labels")
    if not isinstance(labels, list) or len(labels) != len(images) or not all(type(each) is int for each in labels):
        raise process.invalid_answer()
    return np.array([each if 0 <= each < network.classes else -1 for each in labels])
