"""The GPU as the harness uses it: modules loaded, buffers guarded, results compared in float64 on the device."""

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import cupy
import numpy as np
from cuda.bindings import driver
from cupy.cuda import Event, get_elapsed_time, nvtx  # by name: a launcher may replace them in their modules
from cupy.cuda.runtime import deviceSynchronize

from warpbook.common.errors import UserError
from warpbook.common.supervision import VariantFailure
from warpbook.harness import building, checking, clocks, pinned_memory, tamper_check
from warpbook.harness.bench import (
    FLOATS,
    HOT_WITHIN,
    MARGIN,
    Buffers,
    GuardedArray,
    SteadyCall,
    Timers,
    WorkerProcess,
    guard,
    result_arrays,
    unsettle,
)
from warpbook.harness.reference import ERROR_MAX, Difference, magnitudes
from warpbook.harness.shared_memory import layout_of_set, place_sets
from warpbook.kernels import occupancy, sources, variants
from warpbook.kernels.variants import Operation, Variant
from warpbook.machine import cuda_devices
from warpbook.problems.problem import Array, Case, compute

# Blocks and threads of the harness's own kernels, which stride over their data; `compare` holds 256 threads' results.
_BLOCKS, _THREADS = 1056, 256

_DIFFERENCE = Path(__file__).with_name("difference.cu")
DEVICE_PAGE_BYTES = 2 << 20

SHORT_MS, WAKING_CALLS = 2, 3
"""Untimed calls before one that takes at most SHORT_MS: what the host does for a longer one weighs nothing."""

_NOTHING = np.intp(0)  # a null pointer, in place of an optional input

# About 100 us at 2 GHz: longer than the host needs to queue an event, a call through a framework, and an event; and
# twice as long as it needed just before.
SPIN_CYCLES, SPUN_PER_S = 200_000, 4e9
_NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND


def require_device() -> cuda_devices.Device:
    """The CUDA device; UserError says what was looked for when there is none."""
    device = cuda_devices.probe()
    if isinstance(device, str):
        raise UserError(f"no CUDA device here: {device}")
    return device


def load_module(cubin: bytes) -> cupy.RawModule:
    """A CUDA module from a cubin in memory. CuPy reads modules from files, and only when one is first used."""
    handle, path = tempfile.mkstemp(suffix=".cubin")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(cubin)
        module = cupy.RawModule(path=path)
        module.compile()
        return module
    finally:
        Path(path).unlink()


@cache
def project_module(name: str, arch: str) -> cupy.RawModule:
    """One of the project's own .cu files beside this one, compiled for the device in hand."""
    return load_module(building.project_cubin(Path(__file__).with_name(f"{name}.cu"), arch))


@cache
def _comparing_kernel(source: Path, name: str, arch: str) -> Any:
    """A kernel that compares an output with float64."""
    text = sources.inline_includes(source, [_DIFFERENCE.parent]).text
    return load_module(building.project_cubin(source, arch, text=text)).get_function(name)


@contextmanager
def nvtx_range(name: str) -> Iterator[None]:
    """An NVTX range around what runs inside, for profilers to show."""
    nvtx.RangePush(name)
    try:
        yield
    finally:
        nvtx.RangePop()


class GpuKernels:
    """A variant's kernels as its launcher sees them, with its header's `constants`; `emulation.EmulatedKernels` alike."""

    def __init__(self, module: cupy.RawModule, constants: Mapping[str, int], symbols: Sequence[str] = ()):
        self._module = module
        self.constants = constants
        self._symbols = symbols

    def _find_kernel(self, name: str) -> Any:
        """A kernel of the module by its name in the source."""
        return self._module.get_function(sources.find_symbol(name, self._symbols) or name)

    def function(self, name: str, shared_bytes: int = 0, early: bool = False) -> Callable[..., None]:
        """A kernel: call it with grid, threads and arguments, and a stream where it is not the default one. Each launch
        gets `shared_bytes` of dynamic shared memory. One that is `early` may start before the kernel ahead of it has
        ended, and waits for that itself, by griddepcontrol.wait."""
        kernel = self._find_kernel(name)
        if shared_bytes > kernel.max_dynamic_shared_size_bytes:  # what it may have is the same for all its launches
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        if early:
            return partial(_launch_early, kernel.kernel.ptr, shared_bytes)
        return partial(kernel, shared_mem=shared_bytes) if shared_bytes else kernel

    def has(self, name: str) -> bool:
        """Whether there is a kernel of that name."""
        try:
            self._find_kernel(name)
        except cupy.cuda.driver.CUDADriverError as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True

    def symbol(self, name: str) -> "GpuSymbol":
        return GpuSymbol(self._module.get_global(name))

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> cupy.ndarray:
        """Scratch memory."""
        return cupy.empty(shape, dtype)

    def streams(self, count: int) -> list[cupy.cuda.Stream]:
        """Streams that wait for what was ordered on the default stream before, and that it waits for."""
        return [cupy.cuda.Stream() for _ in range(count)]


def _launch_early(
    kernel: int, shared_bytes: int, grid: tuple[int, ...], threads: tuple[int, ...], arguments: tuple[Any, ...]
) -> None:
    """Launch a kernel on the current stream by programmatic dependent launch, which CuPy does not offer."""
    held = [
        np.asarray(one.data.ptr, np.uint64) if isinstance(one, cupy.ndarray) else np.asarray(one) for one in arguments
    ]
    places = np.array([one.ctypes.data for one in held], np.uint64)
    attribute, config = driver.CUlaunchAttribute(), driver.CUlaunchConfig()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = [attribute], 1
    config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1, 1)[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = (*threads, 1, 1)[:3]
    config.sharedMemBytes, config.hStream = shared_bytes, cupy.cuda.get_current_stream().ptr
    (status,) = driver.cuLaunchKernelEx(config, kernel, places.ctypes.data, 0)
    if status:
        raise cupy.cuda.driver.CUDADriverError(int(status))


class ExplainedKernels(GpuKernels):
    """Kernels whose refused launches are explained: for checks alone, since a timed call has no room for it."""

    def function(self, name: str, shared_bytes: int = 0, early: bool = False) -> Callable[..., None]:
        kernel, launch = self._find_kernel(name), super().function(name, shared_bytes, early)

        def call(grid: tuple[int, ...], threads: tuple[int, ...], *arguments: Any, **options: Any) -> None:
            try:
                launch(grid, threads, *arguments, **options)
            except cupy.cuda.driver.CUDADriverError as error:
                reason = occupancy.launch_limit_reason(grid, threads)
                if not reason and math.prod(threads) > kernel.max_threads_per_block:
                    reason = (
                        f"a block of {math.prod(threads)} threads, and its {kernel.num_regs} registers a thread "
                        f"leave room for {kernel.max_threads_per_block}; take smaller blocks, or __launch_bounds__"
                    )
                raise VariantFailure("launch_failed", f"{name}: {reason or error}") from error

        return call


class GpuSymbol:
    """A variable in constant or device memory."""

    def __init__(self, pointer: cupy.cuda.MemoryPointer):
        self._pointer = pointer

    def copy(self, values: cupy.ndarray) -> None:
        """Order the copy of an array over it."""
        self._pointer.copy_from_device_async(values.data, values.nbytes)


def load_kernels(variant: Variant, arch: str, kind: type[GpuKernels] = GpuKernels) -> GpuKernels | None:
    """A variant's kernels in CUDA C++ for the device, or None where it has none."""
    if reason := variant.header.architecture_reason(arch):
        raise VariantFailure("unsupported", f"{variant.name} {reason}")
    if variant.cuda_source is None:
        return None
    if variant.course:
        raise VariantFailure(
            "unsupported",
            f"{variant.name}: a file of the course launches its kernels itself: see its Op Time and Layer Time",
        )
    cubin = building.cubin_for(variant, arch)
    return kind(load_module(cubin), variant.header.constants, building.symbols(cubin))


class ChannelsLast:
    """A peer's operation on arrays in NHWC order, for callers with NCHW; timers take the operation itself."""

    def __init__(self, operation: Operation):
        self.operation = operation

    def __call__(self, *arrays: cupy.ndarray) -> Any:
        *inputs, y = arrays
        returned = self.operation(*map(channels_last, inputs), y)
        return cupy.ascontiguousarray(returned) if type(returned) is cupy.ndarray else returned


def laid_out(call: Operation, inputs: list[cupy.ndarray]) -> tuple[Operation, list[cupy.ndarray], Callable[[], None]]:
    """An operation as it is timed, the inputs that it takes then, and what copies into these what the given ones hold."""
    if not isinstance(call, ChannelsLast):
        return call, inputs, lambda: None
    laid = list(map(channels_last, inputs))

    def lay_out() -> None:
        for array, one in zip(inputs, laid, strict=True):
            if one is not array:
                one[...] = array

    return call.operation, laid, lay_out


def channels_last(array: cupy.ndarray) -> cupy.ndarray:
    """A copy of the same shape, (N, C, H, W) or (M, C, K, K), in whose memory the channels of a place lie together; an
    array of another number of dimensions itself."""
    if array.ndim != 4:
        return array
    return cupy.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def in_memory_order(array: cupy.ndarray) -> cupy.ndarray:
    """An array in the order that its memory has: the array itself, or NHWC of what `channels_last` gave."""
    return array if array.flags.c_contiguous else array.transpose(0, 2, 3, 1)


class GpuBench:
    """The first CUDA device."""

    reference_name = "float64 on the device"
    on_device = True
    compared: tuple[tuple[str, str], ...] = (("cold", "gpu"), ("cold", "op"))

    def __init__(self, kernels: type[GpuKernels] = GpuKernels) -> None:
        self._kind = kernels
        self.returned: Any = None
        """What the last timed call returned."""
        self.device = require_device()
        module = project_module("harness", self.device.arch)
        names = ("draw", "fill", "count_changed", "hash", "enter", "spin", "multiply_add")
        self._kernels = {name: module.get_function(name) for name in names}
        self._kernels_of: dict[str, GpuKernels | None] = {}
        self._host: dict[str, np.ndarray] = {}
        self.clock = clocks.Clock(self.device)
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        self.l2_bytes = int(properties["l2CacheSize"])
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.memory_bytes = int(properties["totalGlobalMem"])
        # Of two calls alone, what a batch costs besides its calls cannot be told: room for ten calls on a GB each.
        self.audited_bytes = min(16 << 30, self.memory_bytes // 5)
        # Twice the L2, so that nothing of what was there before remains.
        self._flushed = cupy.zeros(max(2 * self.l2_bytes, 1 << 20) // 4, np.uint32)
        self._partial = cupy.empty(_BLOCKS, np.uint64)

    def _launch(self, name: str, *arguments: Any) -> None:
        self._kernels[name]((_BLOCKS,), (_THREADS,), arguments)

    def prepare(self, variant: Variant, case: Case) -> Operation:
        if variant.name not in self._kernels_of:
            self._kernels_of[variant.name] = load_kernels(variant, self.device.arch, self._kind)
        operation = variant.prepare(case, self._kernels_of[variant.name])
        return ChannelsLast(operation) if variant.header.order == "NHWC" else operation

    def allocate_guarded(self, shape: tuple[int, ...], dtype: str = "float32") -> GuardedArray:
        made = guard(shape, dtype, cupy.empty)
        self.fill(made.words, MARGIN[made.unit])
        return made

    def fill(self, words: cupy.ndarray, pattern: int) -> None:
        if words.dtype.itemsize < 4:
            words.fill(pattern)
        else:
            self._launch("fill", words, np.uint64(words.size), np.uint32(pattern))

    def draw(self, values: cupy.ndarray, seed: int, integers: bool, array: Array = FLOATS) -> None:
        drawn = values if values.dtype == np.float32 else cupy.empty(values.shape, np.float32)
        whole = integers or not array.is_real
        span = np.int32(array.least), np.uint32(array.most - array.least + 1)
        self._launch("draw", drawn, np.uint64(values.size), np.uint64(seed), np.int32(whole), *span)
        if drawn is not values:
            values[...] = drawn.astype(values.dtype)

    def copy_in(self, values: cupy.ndarray, held: np.ndarray) -> None:
        values.set(held)

    def count_changed(self, words: cupy.ndarray, pattern: int) -> int:
        if words.dtype.itemsize < 4:
            return int((words != pattern).sum())
        partial = cupy.empty(_BLOCKS, np.uint64)
        self._launch("count_changed", words, np.uint64(words.size), np.uint32(pattern), partial)
        return int(partial.get().sum())

    def enqueue_hash(self, values: cupy.ndarray) -> cupy.ndarray:
        if left := -values.nbytes % 4:  # bytes that fill no word
            values = cupy.concatenate([values.ravel().view(np.uint8), cupy.zeros(left, np.uint8)])
        partial = cupy.empty(_BLOCKS, np.uint64)
        self._launch("hash", values, np.uint64(values.nbytes // 4), partial)
        return partial

    def hash_value(self, ordered: cupy.ndarray) -> int:
        return int(ordered.get().sum(dtype=np.uint64))

    def synchronize(self) -> None:
        deviceSynchronize()

    def compare(
        self, case: Case, inputs: Mapping[str, cupy.ndarray], outputs: Mapping[str, cupy.ndarray]
    ) -> dict[str, Difference]:
        source = case.problem.folder / variants.REFERENCE
        if source.exists() and not case.problem.dtypes:
            (name,) = outputs
            given = [inputs.get(each, _NOTHING) for each in case.problem.inputs]
            extents = [np.int32(case.extents[each]) for each in case.problem.facts.extents]
            return {name: self._difference(source, "compare", *given, outputs[name], *extents)}
        expected, units = compute(case, inputs, cupy), magnitudes(case, inputs, cupy)
        return {
            name: self._difference(
                _DIFFERENCE,
                "difference",
                *(cupy.ascontiguousarray(one, np.float64) for one in (found, expected[name], units[name])),
                np.uint64(found.size),
            )
            for name, found in outputs.items()
        }

    def _difference(self, source: Path, kernel: str, *arguments: Any) -> Difference:
        """What a kernel that compares gives: its partial results merged."""
        partial = cupy.empty((_BLOCKS, 6), np.float64)
        _comparing_kernel(source, kernel, self.device.arch)((_BLOCKS,), (_THREADS,), (*arguments, partial))
        rows = partial.get()
        return Difference(
            max_abs_err=float(rows[:, 0].max()),
            worst_unit=float(rows[:, 1].max()),
            rel_l2_err=min(math.sqrt(rows[:, 2].sum() / (rows[:, 3].sum() or 1)), ERROR_MAX),
            max_magnitude=float(rows[:, 4].max()),
            not_finite=int(rows[:, 5].copy().view(np.uint64).sum()),
        )

    def make_input(self, images: cupy.ndarray, x: cupy.ndarray, scale: float) -> None:
        """Make numbers x (n, channels, H, W) of images, on CuPy's current stream: (n, H, W) uint8, of which each channel
        gets the same, or (n, channels, H, W), uint8 or float32."""
        if images.dtype == np.float32:
            cupy.multiply(images, np.float32(scale), out=x)
            return
        channels = x.shape[1] if images.ndim == 3 else 1
        arguments = (images, x, np.uint64(images.size), np.int32(channels), np.uint64(math.prod(images.shape[1:])))
        # Few threads, of many pixels each, leave most of the device to what runs beside them.
        self._kernels["enter"]((2 * self.multiprocessors,), (512,), (*arguments, np.float32(scale)))

    def parts(self, case: Case) -> list[Case]:
        return [case]

    def _pinned_array(self, role: str, array: cupy.ndarray) -> np.ndarray:
        """A page-locked array like `array`. One a role is kept: locking pages takes longer than most copies."""
        held = self._host.get(role)
        if held is None or held.nbytes < array.nbytes:
            held = self._host[role] = pinned_memory.pinned_zeros((array.nbytes,))
        shown: np.ndarray = held[: array.nbytes].view(array.dtype).reshape(array.shape)
        return shown

    def timers(self, call: Operation, arrays: Buffers, renew: Callable[[], None] = lambda: None) -> Timers:
        """A timer for each (state, kind). Each makes untimed calls where calls are short, so that what waited on the host
        is awake, and has `renew` put other values into the inputs."""
        inputs, outputs = list(arrays.input_values.values()), list(arrays.output_values.values())
        written = sum(array.nbytes for array in outputs)
        nbytes = written + sum(array.nbytes for array in inputs)
        call, inputs, lay_out = laid_out(call, inputs)
        taken = (*inputs, *outputs)
        # The first call, before any sample: a framework tries its algorithms in it.
        call(*taken)
        self.synchronize()
        start, stop = Event(), Event()
        ordering_s = 0.0  # the host's time for a call without waiting
        stored = list(map(in_memory_order, inputs))
        held_inputs = [self._pinned_array(f"input {number}", array) for number, array in enumerate(stored)]
        held_outputs = [self._pinned_array(f"output {number}", array) for number, array in enumerate(outputs)]

        def with_fresh_inputs(timer: Callable[[], float], at_host: bool = False) -> Callable[[], float]:
            """A timer that draws new inputs before each sample."""
            last_ms = float(SHORT_MS)  # of the first sample, which is not counted, nobody knows

            def time_call() -> float:
                nonlocal last_ms, ordering_s
                if last_ms < SHORT_MS:
                    for _ in range(WAKING_CALLS):
                        began = perf_counter()
                        call(*taken)
                        ordering_s = perf_counter() - began
                renew()
                lay_out()
                if at_host:
                    for array, held in zip(stored, held_inputs, strict=True):
                        array.get(out=held)
                last_ms = timer()
                return last_ms

            return time_call

        def gpu() -> float:
            self.spin(SPIN_CYCLES + int(ordering_s * SPUN_PER_S))
            start.record()
            self.returned = call(*taken)
            stop.record()
            stop.synchronize()
            return float(get_elapsed_time(start, stop))

        def op() -> float:
            self.synchronize()
            began = perf_counter()
            self.returned = call(*taken)
            self.synchronize()
            return (perf_counter() - began) * 1e3

        def layer() -> float:
            self.synchronize()
            began = perf_counter()
            for array, held in zip(stored, held_inputs, strict=True):
                array.set(held)
            self.returned = call(*taken)
            results = result_arrays(self.returned, outputs)
            for result, held in zip(map(in_memory_order, results), held_outputs, strict=True):
                result.get(out=held.reshape(result.shape))
            self.synchronize()
            return (perf_counter() - began) * 1e3

        cold = {
            ("cold", "gpu"): with_fresh_inputs(self.cold_timer(gpu, written)),
            ("cold", "op"): with_fresh_inputs(self.cold_timer(op, written)),
            ("cold", "layer"): with_fresh_inputs(self.cold_timer(layer, nbytes), at_host=True),
        }
        if not self._has_hot(nbytes):
            return cold
        return {**cold, ("hot", "gpu"): with_fresh_inputs(gpu), ("hot", "op"): with_fresh_inputs(op)}

    def _has_hot(self, nbytes: int) -> bool:
        """Whether a call on so many bytes of arrays finds something in the L2 cache of the call before."""
        return nbytes <= HOT_WITHIN * self.l2_bytes

    def kinds(self, case: Case) -> list[tuple[str, str]]:
        cold, hot = [("cold", "gpu"), ("cold", "op"), ("cold", "layer")], [("hot", "gpu"), ("hot", "op")]
        nbytes = sum(map(case.nbytes, case.arrays))
        return [*cold, *hot] if self._has_hot(nbytes) else cold

    def share(self, case: Case, count: int) -> "DeviceSets":
        return DeviceSets(self, case, count)

    def refill(self, case: Case, buffers: Buffers, seed: int, others: int) -> None:
        for number, (name, values) in enumerate(buffers.input_values.items()):
            chosen = (others if number else seed) + number
            self.draw(values, chosen, False, case.arrays[name])
            if case.arrays[name].is_real:
                unsettle(case, name, values, [chosen], cupy.asarray)
        self.synchronize()

    def watch(self, processes: Sequence[WorkerProcess]) -> None:
        self.clock.workers = processes

    def cold_timer(self, timer: Callable[[], float], written: int) -> Callable[[], float]:
        """The timer of a call that writes so many bytes, the L2 cache flushed before."""

        def time_after_flush() -> float:
            self.flush_l2(written)
            return timer()

        return time_after_flush

    def read_clock(self) -> tuple[float | None, bool]:
        return self.clock.read()

    def steady_call(self, call: Callable[[int], int], call_ms: float) -> SteadyCall | None:
        """As `Clock.steady_call`."""
        return self.clock.steady_call(call, call_ms)

    def distrust_reason(self) -> str:
        return self.clock.distrust_reason()

    def flush_l2(self, written: int) -> None:
        """Fill the L2 cache with other data, of which as many bytes are unwritten as a call leaves that writes so many.

        The call finds none of its data there. It pays for writing as many bytes to memory as it writes itself: what it
        leaves in the cache at its end it finds there from others at its start.
        """
        self._launch("count_changed", self._flushed, np.uint64(self._flushed.size), np.uint32(0), self._partial)
        self.fill(self._flushed[: min(written, self.l2_bytes) // 4], 0)

    def multiply_add(self, rounds: int) -> int:
        """Order FP32 multiply-adds that fill the device and touch no memory; how many."""
        blocks = 32 * self.multiprocessors
        nothing = self._flushed[:1].view(np.float32)
        arguments = (nothing, np.int32(rounds), np.float32(0.999), np.float32(0.5))
        self._kernels["multiply_add"]((blocks,), (_THREADS,), arguments)
        return blocks * _THREADS * 512 * rounds

    def spin(self, cycles: int) -> None:
        """Keep the device busy for so many clock cycles, while the host queues what comes behind."""
        self._kernels["spin"]((1,), (1,), (np.int64(cycles),))


def _words(memory: cupy.cuda.Memory, begin: int, count: int, kind: Any) -> cupy.ndarray:
    """So many words of a type in memory, from a byte on."""
    return cupy.ndarray((count,), kind, cupy.cuda.MemoryPointer(memory, begin))


class DeviceSets:
    """Sets of the arrays of a case in memory of the device that another process can open."""

    handle = None

    def __init__(self, bench: GpuBench, case: Case, count: int):
        # Whole pages of the device's: the other process opens no byte of anything else.
        memory = cupy.cuda.Memory(-(-layout_of_set(case).size * count // DEVICE_PAGE_BYTES) * DEVICE_PAGE_BYTES)
        pointer = cupy.cuda.runtime.ipcGetMemHandle(memory.ptr)
        self.request = {"case": case.describe(), "sets": count, "pointer": pointer.hex()}
        self.sets = place_sets(case, count, partial(_words, memory))
        for buffers in self.sets:
            for one in (*buffers.inputs.values(), *buffers.outputs.values()):
                bench.fill(one.words, MARGIN[one.unit])

    def results(self, number: int) -> dict[str, cupy.ndarray]:
        """Copies of what a call on a set left in its outputs."""
        return {name: one.values.copy() for name, one in self.sets[number].outputs.items()}


Opened = TypeVar("Opened", bound=GpuBench)


def open_bench(variant: checking.NamedSubject, make: Callable[[], Opened]) -> Opened:
    """The bench for a variant, made. Raises VariantFailure where the device or its driver does not answer."""
    try:
        with checking.device_fault_context(variant):
            return make()
    except UserError as error:
        raise VariantFailure("launch_failed", f"{variant.name}: {error}") from error


tamper_check.remember(cupy.cuda, "Event", "get_elapsed_time")
tamper_check.remember(cupy.cuda.runtime, "deviceSynchronize", "eventSynchronize", "eventElapsedTime")
for _owner in (sys.modules[__name__], GpuBench, clocks.Clock):
    tamper_check.remember(_owner)
