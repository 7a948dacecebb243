"""Whole networks on a GPU: an implementation checked against float64 scores, and timed interleaved with what it builds
on.

Kinds and states are those of `timing`, with images for x. Of ours there are two more, cold: `host`, from uint8 images
in page-locked memory to labels there, in chunks whose copies overlap the work, and `copy`, these copies alone.
"""

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy
import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.config.settings import Measuring
from warpbook.harness import building, checking, gpu_bench, host_to_host, reference, tamper_check, timing
from warpbook.harness.bench import Buffers, SteadyCall, Timers
from warpbook.harness.checking import Row
from warpbook.kernels.variants import Operation
from warpbook.kernels.whole_networks import Implementation
from warpbook.problems.networks import Network


@dataclass(frozen=True)
class NetworkData:
    """What a network is tried on: `images` as kept, float64 `scores` (count, classes), weights on the device."""

    network: Network
    images: np.ndarray
    scores: np.ndarray
    parameters: dict[str, cupy.ndarray]

    @cached_property
    def classes(self) -> int:
        return int(self.scores.shape[1])

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """So many of the images, in an order that nobody has seen, and the scores to expect."""
        chosen = np.random.default_rng(secrets.randbits(63)).permutation(len(self.images))[:count]
        return self.images[chosen], self.scores[chosen]


def compile_cubin(implementation: Implementation, arch: str) -> bytes | None:
    """An implementation's kernels compiled for an architecture, if it has any; VariantFailure if for another."""
    if implementation.cuda_source is None:
        return None
    header = implementation.header
    if reason := header.architecture_reason(arch):
        raise VariantFailure("unsupported", f"{implementation.name} {reason}")
    defines = [f"-D{name}={value}" for name, value in implementation.constants.items()]
    arch = header.compile_target(arch)
    return building.project_cubin(implementation.cuda_source, arch, text=implementation.text, defines=defines)


def load_kernels(implementation: Implementation, arch: str) -> gpu_bench.GpuKernels | None:
    """An implementation's kernels for the device; None where it has none."""
    cubin = compile_cubin(implementation, arch)
    return gpu_bench.GpuKernels(gpu_bench.load_module(cubin), implementation.constants) if cubin else None


def comparison_columns(
    implementation: Implementation, network: Network, scores: np.ndarray, labels: np.ndarray, expected: np.ndarray
) -> Row:
    """The columns of CORRECTNESS that a comparison gives: scores and labels against float64."""
    # In NumPy: CuPy compiles each of these operations when a machine first does it, ten seconds for the largest.
    images, scores = len(expected), scores.astype(np.float64)
    error = float(np.linalg.norm(scores - expected) / np.linalg.norm(expected))
    tolerance = reference.network_error(network, implementation.header)
    mismatched = int((labels != expected.argmax(axis=1)).sum())
    allowed = reference.max_label_differences(implementation.header.precision, images)
    reason = ""
    if not error <= tolerance:
        reason = f"scores differ from float64 by {error:.3g} of their norm, more than {tolerance:.3g} allowed"
    elif int((labels != scores.argmax(axis=1)).sum()):
        reason = "a label is not that of its image's largest score"
    elif mismatched > allowed:
        reason = f"{mismatched} of {images} labels differ from the reference's, more than {allowed} allowed"
    return {
        "rel_l2_err": error if np.isfinite(error) else None,
        "tolerance": tolerance,
        "mismatched_labels": mismatched,
        "ok": not reason,
        "status": "wrong_result" if reason else "ok",
        "reason": reason and f"{implementation.name}: {reason}",
    }


class NetworkBench:
    """Implementations of one network on one device, in one process."""

    def __init__(self, bench: gpu_bench.GpuBench, data: NetworkData):
        self._bench, self._data = bench, data
        self._kernels: dict[str, gpu_bench.GpuKernels | None] = {}

    def _prepare(self, implementation: Implementation, images: int, of_bytes: bool = False) -> Any:
        """An implementation's call for so many images, float32 or as bytes."""
        if implementation.name not in self._kernels:
            self._kernels[implementation.name] = load_kernels(implementation, self._bench.device.arch)
        kernels, network = self._kernels[implementation.name], self._data.network
        return implementation.prepare(kernels, network, images, self._data.parameters, of_bytes)

    def measure(
        self,
        implementations: Sequence[Implementation],
        images: int,
        series: Any,
        measuring: Measuring,
        with_energy: bool = False,
    ) -> tuple[list[Row], Row]:
        """(columns of SAMPLES from `variant` on; the first implementation's check). Each is checked before and after,
        and timed on random numbers. Raises VariantFailure where the first fails; another that fails before is left
        out."""
        bench, data = self._bench, self._data
        timing.reject_distrusted(bench)
        buffers = Buffers(
            {"x": bench.allocate_guarded((images, data.network.input.channels, *data.network.image))},
            {
                "scores": bench.allocate_guarded((images, data.classes)),
                "labels": bench.allocate_guarded((images,), "int32"),
            },
        )
        operations: dict[str, Operation] = {}
        timers: dict[str, Timers] = {}
        for one in implementations:
            try:
                operation = self._prepare_checked(one, images, buffers)
                with checking.fault_context(one, "called"):
                    timers[one.name] = bench.timers(operation, buffers)
            except VariantFailure:
                if one is implementations[0]:
                    raise
                continue  # nothing sound to compare with; the first is still timed
            operations[one.name] = operation
        implementations = [one for one in implementations if one.name in operations]
        ours = implementations[0]
        from_host = None if ours.header.peer else self._from_host(ours, images)
        if from_host:
            written = buffers.input_values["x"].nbytes  # the images, which such a call copies to the device
            timers[ours.name] |= {
                ("cold", "host"): bench.cold_timer(from_host.infer, written),
                ("cold", "copy"): bench.cold_timer(from_host.copy, written),
            }
        samples, told_ms = timing.sample_rows(bench, implementations, timers, series, measuring)
        timing.reject_distrusted(bench)
        checks = [self._check(one, operations[one.name], buffers, poisoned=False) for one in implementations]
        if from_host:
            self._check_way(ours, from_host)
        for one in implementations:
            if one.name in told_ms:
                timing.reject_memoized(bench, one, operations[one.name], told_ms[one.name], buffers)
        told = told_ms.get(ours.name) if with_energy else None
        if told and (steady := self._steady_call(operations[ours.name], buffers, told)):
            samples.append({"variant": ours.name, **timing.steady_columns(steady)})
        return samples, checks[0]

    def _steady_call(self, operation: Operation, buffers: Buffers, samples_ms: list[float]) -> SteadyCall | None:
        def call(count: int) -> int:
            for _ in range(count):
                operation(*buffers.values)
            self._bench.synchronize()
            return count

        return self._bench.steady_call(call, float(np.median(samples_ms)))

    def _prepare_checked(self, one: Implementation, images: int, buffers: Buffers) -> Operation:
        """An implementation's operation, prepared and checked."""
        with checking.fault_context(one, "prepared"):
            operation: Operation = self._prepare(one, images)
        self._check(one, operation, buffers, poisoned=True)
        return operation

    def _from_host(self, one: Implementation, images: int) -> host_to_host.HostToHost:
        """Its way from the host to the host, checked."""
        data = self._data
        entering, _ = data.draw(images)
        with checking.fault_context(one, "prepared"):
            of_bytes = one.takes_bytes and entering.dtype == np.uint8 and entering.ndim == 3
            way = host_to_host.HostToHost(
                self._bench,
                data.network,
                entering,
                data.classes,
                lambda chunk: self._prepare(one, chunk, of_bytes),
                of_bytes,
            )
        self._check_way(one, way)
        return way

    def _check_way(self, one: Implementation, way: host_to_host.HostToHost) -> None:
        images, expected = self._data.draw(len(way.images))
        with checking.fault_context(one, "called"):
            found = way.result(images)
        verdict = comparison_columns(one, self._data.network, *found, expected)
        if not verdict["ok"]:
            raise VariantFailure("wrong_result", f"{verdict['reason']}, from the host in chunks")

    def _check(self, one: Implementation, operation: Operation, buffers: Buffers, poisoned: bool) -> Row:
        x = buffers.inputs["x"].values
        images, expected = self._data.draw(len(x))
        self._bench.make_input(cupy.asarray(images), x, self._data.network.input.scale)
        result = checking.guarded_call(self._bench, one, operation, buffers, poisoned)
        verdict = comparison_columns(one, self._data.network, result["scores"].get(), result["labels"].get(), expected)
        if not verdict["ok"]:
            raise VariantFailure("wrong_result", verdict["reason"])
        return verdict


tamper_check.remember(sys.modules[__name__])
