"""Files of the course on a GPU: checked as they are emulated, and timed as the course does and by CUDA events.

The file runs with its driver (`course_driver.cu`) in a process of its own; this one draws the inputs and judges what
comes back. What a sample of theirs brackets:

- `op`: the host's clock around `conv_forward_gpu` and a wait for the device, the course's Op Time.
- `layer`: the same around prolog, convolution and epilog, the course's Layer Time: allocations and copies are in it.
- `gpu`: two CUDA events around `conv_forward_gpu`, the device busy while the host queues them; cold, the L2 cache
  flushed before, and hot, right after that call again where its data are not several times what the L2 holds. Where
  the file itself waits for the device, what the host does meanwhile is in it.

Each round runs the layer from prolog to epilog: `WARMUPS` that are not counted, then `ROUNDS`, as the course does since
sp26. A file of one call (fa20) does all in it: its Op Time is its Layer Time, and there is no device time.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking, ece408_check, ece408_worker, nvcc
from warpbook.harness.bench import Buffers, allocate
from warpbook.harness.checking import Row
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import ece408
from warpbook.kernels.variants import Operation, Variant
from warpbook.machine import cuda_devices, host
from warpbook.problems.problem import Case

WARMUPS, ROUNDS = 5, 10
COMPARED = 20  # images of a timed batch that are compared with float64 on the host, chosen after the call
ReadClock = Callable[[], tuple[float | None, bool]]


def device() -> cuda_devices.Device:
    """The GPU in hand. Raises VariantFailure where none answers."""
    found = host.gpu()  # a check asks before it forks a timing
    if isinstance(found, str):
        raise VariantFailure("launch_failed", f"no CUDA device here: {found}")
    return found


def link(variant: Variant, sandboxed: bool) -> Path:
    """A file of the course built for the GPU in hand. Raises VariantFailure."""
    with checking.fault_context(variant, "built"):
        return nvcc.link(variant, device().arch, sandboxed)


def check(variant: Variant, layers: Iterable[Case], sandboxed: bool) -> Iterator[list[Row]]:
    """The rows of each layer: at the course's batch and at an odd one, a process each. A failure at the odd batch alone
    is `unsupported`: the course runs no such batch."""
    built: Path | None = None
    for layer in layers:
        place = {"case": layer.name, "size": ece408.BATCH, "test": "integers", **checking.NOT_COMPARED, "ok": False}
        if reason := variant.unsupported(layer.at(ece408.BATCH)):
            yield [{**place, "status": "unsupported", "reason": reason}]
            continue
        try:
            built = built or link(variant, sandboxed)
        except VariantFailure as failure:
            yield [{**place, **failure.columns}]
            return
        yield _check_layer(variant, sandboxed, built, layer)


def _check_layer(variant: Variant, sandboxed: bool, built: Path, layer: Case) -> list[Row]:
    def check_batch(images: int) -> list[Row]:
        with IsolatedBench(variant, sandboxed, library=built) as bench:
            return checking.check_case(bench, variant, layer.at(images))

    usual = check_batch(ece408.BATCH)
    if not usual[-1]["ok"]:
        return usual
    odd = check_batch(ece408.ODD_BATCH)
    return [*usual, *odd] if odd[-1]["ok"] else [*usual, ece408_check.assumptions(odd[-1])]


def misplaced_work(variant: Variant, sandboxed: bool, built: Path, layer: Case) -> str:
    """Why a file's Op Time says nothing: its result is right without `conv_forward_gpu`. Empty where it is wrong then,
    or fails. The inputs are fresh: device memory may hold an earlier answer."""
    if variant.course and variant.course.is_one_call:
        return ""
    try:
        with IsolatedBench(variant, sandboxed, library=built) as bench:
            operation, buffers = _prepare_buffers(bench, variant, layer.at(ece408.BATCH))
            _test(bench, variant, layer, operation, buffers, "before")
            bench.without = ece408_worker.CONVOLUTION
            _test(bench, variant, layer, operation, buffers, "before")
    except VariantFailure:
        return ""
    return (
        f"{variant.name}, {layer.name}: the result is right although conv_forward_gpu is not called; the work is done "
        "in the prolog or the epilog, and the Layer Time is what tells"
    )


def time_layer(
    variant: Variant, sandboxed: bool, built: Path, case: Case, read_clock: ReadClock, elsewhere: str = ""
) -> list[Row]:
    """Samples of one case at its size: columns of SAMPLES from `size` on, and `case`. The result is tested before and
    after. Where its work is done `elsewhere`, all but Layer Time is refused. Raises VariantFailure."""
    with IsolatedBench(variant, sandboxed, library=built) as bench:
        operation, buffers = _prepare_buffers(bench, variant, case)
        _test(bench, variant, case, operation, buffers, "before")
        rows = []
        for how in ("course", *([] if variant.course and variant.course.is_one_call else ["device"])):
            for number in range(-WARMUPS, ROUNDS):
                taken = bench.round_ms(how)
                clock_mhz, throttled = read_clock()
                if number >= 0:
                    state = {"sample": number, "sm_clock_mhz": clock_mhz, "energy_j": None, "throttled": throttled}
                    rows += [
                        {"case": case.name, "size": case.size, **_kind(name), **state, "time_ms": time_ms}
                        for name, time_ms in taken.items()
                    ]
        _test(bench, variant, case, operation, buffers, "after")
    refused = {"status": "refused", "reason": elsewhere} if elsewhere else {"status": "ok", "reason": ""}
    return [{**row, **({"status": "ok", "reason": ""} if row["kind"] == "layer" else refused)} for row in rows]


def _prepare_buffers(bench: IsolatedBench, variant: Variant, case: Case) -> tuple[Operation, Buffers]:
    """An operation, and buffers for what it takes."""
    with checking.fault_context(variant, "prepared"):
        operation = bench.prepare(variant, case)
    return operation, allocate(bench, case)


def _kind(name: str) -> dict[str, str]:
    """state and kind of a time by the driver's name for it."""
    return {"state": "", "kind": name} if name in ("op", "layer") else {"state": name, "kind": "gpu"}


def _test(
    bench: IsolatedBench, variant: Variant, layer: Case, operation: Operation, buffers: Buffers, when: str
) -> None:
    """Call an operation on fresh inputs and compare some of the images. Raises VariantFailure."""
    x, w = buffers.input_values.values()
    checking.draw_fresh(bench, layer, buffers.input_values)
    result = checking.guarded_call(bench, variant, operation, buffers)["y"]
    images = len(result)
    drawn = np.random.default_rng(secrets.randbits(63)).permutation(images)[:COMPARED]
    chosen = np.unique([0, images - 1, *drawn])
    compared = layer.at(len(chosen))
    difference = bench.compare(compared, {"x": x[chosen], "w": w}, {"y": result[chosen]})
    verdict = checking.comparison_columns(variant, compared, difference, integers=False)
    if not verdict["ok"]:
        noted = f"; {bench.noted}" if bench.noted else ""
        raise VariantFailure("wrong_result", f"{when} timing, {images} images: {verdict['reason']}{noted}")
