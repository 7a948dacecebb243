"""The bench that checks variants on a GPU, their code in processes of their own. This process owns all memory; what is
handed on, and what is judged, are copies."""

from pathlib import Path

import cupy
import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking
from warpbook.harness.bench import with_margins
from warpbook.harness.gpu_bench import DeviceSets, GpuBench
from warpbook.harness.isolated import labels
from warpbook.harness.variant_process import VariantProcess
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case


class IsolatedGpuBench(GpuBench):
    """The first CUDA device, each variant in a process of its own."""

    def __init__(self, sandboxed: bool) -> None:
        super().__init__()
        self._sandboxed = sandboxed
        self._process_of: dict[Path, VariantProcess] = {}
        self._shared: dict[Path, DeviceSets] = {}

    def __enter__(self) -> "IsolatedGpuBench":
        return self

    def __exit__(self, *_: object) -> None:
        """End the variants' processes."""
        for process in self._process_of.values():
            process.close()
        self._process_of.clear()
        self._shared.clear()

    def _process(self, variant: Variant) -> VariantProcess:
        """The variant's process, or a new one where that is no more."""
        process = self._process_of.get(variant.files[0])
        if process is None or process.ended:
            process = self._process_of[variant.files[0]] = VariantProcess(variant, self._sandboxed, on_device=True)
            self.watch([*self._process_of.values()])
        return process

    def labels(
        self, variant: Variant, network: Network, parameters: dict[str, np.ndarray], images: np.ndarray
    ) -> np.ndarray:
        """What a variant's inference labels images as."""
        return labels(self._process(variant), network, parameters, images)

    def prepare(self, variant: Variant, case: Case) -> Operation:
        process = self._process(variant)
        shared = DeviceSets(self, case, 1)
        process.ask(None, do="prepare", **shared.request)
        self._shared[variant.files[0]] = shared  # which frees what the process had before, and has no more
        (buffers,) = shared.sets
        regions = [one.words for one in (*buffers.inputs.values(), *buffers.outputs.values())]

        def operation(*values: cupy.ndarray) -> None:
            held = [with_margins(array) for array in values]
            for region, words in zip(regions, held, strict=True):
                region[...] = words
            self.synchronize()
            answer = process.ask(None, do="call")
            for region, words in zip(regions, held, strict=True):
                words[...] = region
            self.synchronize()
            process.ask(None, do="synchronize")
            hashes = [[self.hash_value(self.enqueue_hash(words)) for words in each] for each in (regions, held)]
            if hashes[0] != hashes[1]:
                raise VariantFailure("wrong_result", f"{variant.name} {checking.GOES_ON}")
            if shapes := answer.get("shapes"):
                checking.reject_other_shapes(variant, case, shapes)

        return operation
