"""What a job holds while it works, and how long: the machine, or one of several GPUs with its share of the cores."""

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from time import time

from warpbook.common.errors import UserError
from warpbook.machine import cuda_devices, gpu_quarantine, host, locks
from warpbook.runs import run_parts, tables
from warpbook.runs.schema import Row

GPUS = "WARPBOOK_GPUS"
"""The environment variable with how many GPUs of a host share its jobs, which the Snakefile sets for them."""

NOTES = Path(run_parts.PARTS, "jobs")
TOPOLOGY = Path("/sys/devices/system/cpu")
PCI = Path("/sys/bus/pci/devices")


@contextmanager
def acquire(
    device: str, out: Path, shared: bool = False, number: int | None = None, whole: bool = False
) -> Iterator[list[Row]]:
    """Hold what a job on a device, cpu, emulator or gpu, needs, alone or `shared` with its like; see `locks`.

    Where several GPUs share the jobs, one on a GPU gets whichever is free first, or that of a `number` from 0, sees
    that GPU alone, and is kept to its share of the cores; one that is to have the `whole` machine gets the first GPU.
    When it held a GPU is noted beside the part `out` of a run.
    Into the list that it gets go its rows: where one says that it failed, and the GPU does, the job begins again on
    another; see `aside`. Nothing of CUDA may have been touched before. Raises UserError where the GPUs are fewer than
    they should be, or none is left.
    """
    wanted = int(os.environ.get(GPUS, "1"))
    asked = time()
    if device != "gpu":
        with locks.lock_machine(shared):
            yield []
    elif wanted == 1:
        # Asked here: not while others wait, nor where CUDA was touched and cannot be asked any more
        host.visible_devices()
        with locks.lock_machine(shared), _record_job(out, asked, shared):
            yield []
    else:
        part = _part(out)
        try:
            with (
                _acquire_one(wanted, part, shared, number, whole) as gpu,
                _record_job(out, asked, shared),
                gpu_quarantine.watch_job(gpu, part) as rows,
            ):
                yield rows
        except gpu_quarantine.GpuFault:
            gpu_quarantine.restart()


@contextmanager
def _acquire_one(
    wanted: int, part: str, shared: bool, number: int | None, whole: bool
) -> Iterator[cuda_devices.Device]:
    """Hold one of several GPUs that is not put aside, with its cores, and see it alone."""
    several = _pooled_devices(wanted)
    if number is not None and number >= len(several):
        raise UserError(f"gpus: {wanted}, and {host.node()} shows {len(several)} of them: GPU {number} is lost")
    while left := [place for place, gpu in enumerate(several) if not gpu_quarantine.quarantine_reason(gpu)]:
        places = [number] if number in left else left
        uuids = [several[place].uuid_sha256 for place in places]
        with locks.lock_machine() if whole else locks.lock_gpu(uuids, shared) as taken:
            place = places[taken or 0]
            gpu = several[place]
            if gpu_quarantine.quarantine_reason(gpu):  # while it was waited for
                continue
            with host.use_gpu(gpu), _pin_to_cores(core_shares(several)[place]):
                if gpu_quarantine.RESTART_COUNT_VARIABLE in os.environ and gpu_quarantine.quarantine_if_faulty(
                    gpu, part
                ):
                    continue
                yield gpu
                return
    reasons = "; ".join(f"{gpu.selector}: {gpu_quarantine.quarantine_reason(gpu)}" for gpu in several)
    raise UserError(
        f"gpus: {wanted}, and none of them is left: {reasons}; reset them (nvidia-smi --gpu-reset), or name "
        "others in CUDA_VISIBLE_DEVICES, and start again"
    )


def _pooled_devices(wanted: int) -> list[cuda_devices.Device]:
    """The GPUs that share the jobs. Where one was lost since the run began, the others go on."""
    found = host.visible_devices()
    if isinstance(found, str):
        raise UserError(f"gpus: {wanted}, and {host.node()} has none to use: {found}")
    several = cuda_devices.select_alike(found, min(wanted, len(found)))
    if len(several) < wanted:
        print(f"gpus: {wanted}, and {host.node()} shows {len(several)}: they go on alone", file=sys.stderr)
    return several


def core_shares(gpus: Sequence[cuda_devices.Device]) -> list[list[int]]:
    """The cores of each GPU: its part of those beside it, where the system tells which these are, else of all. They are
    neighbours, both threads of a core or neither. Where they are fewer than GPUs, each has them all."""
    near = [_local_cores(gpu) for gpu in gpus]
    apart = all(one == other or not one & other for one, other in combinations(near, 2))
    if not apart or not all(near):
        near = [host.CORES] * len(gpus)
    given = []
    for place, threads in enumerate(near):
        cores = _cores(threads)
        place, of = near[:place].count(threads), near.count(threads)
        mine = cores[place * len(cores) // of : (place + 1) * len(cores) // of] if len(cores) >= of else cores
        given.append(sorted(thread for core in mine for thread in core))
    return given


def _local_cores(gpu: cuda_devices.Device) -> frozenset[int]:
    """This process's cores on the NUMA node of a GPU; all its cores where the system does not tell."""
    try:
        listed = (PCI / gpu.pci / "local_cpulist").read_text().strip()
        ends = [[int(end) for end in part.split("-")] for part in listed.split(",")]
    except (OSError, ValueError):
        return host.CORES
    return host.CORES & {thread for first, *last in ends for thread in range(first, (last or [first])[0] + 1)}


def _cores(threads: frozenset[int]) -> list[list[int]]:
    """The threads of each core, in order."""
    by_core: dict[int, list[int]] = {}
    for thread in sorted(threads):
        by_core.setdefault(_first_thread(thread), []).append(thread)
    return [by_core[first] for first in sorted(by_core)]


def _first_thread(thread: int) -> int:
    """The first hardware thread of a thread's core; the thread itself where the system does not tell."""
    try:
        said = (TOPOLOGY / f"cpu{thread}" / "topology" / "thread_siblings_list").read_text()
        return int(re.split("[,-]", said.strip())[0])
    except (OSError, ValueError):
        return thread


@contextmanager
def _pin_to_cores(cores: Sequence[int]) -> Iterator[None]:
    """Keep this process, threads that libraries started among it, and what it starts to some cores."""
    _move_to(cores, os.getpid())
    try:
        yield
    finally:
        _move_to(host.CORES, os.getpid())


def keep_to_own_cores(processes: Iterable[int]) -> None:
    """Keep processes that were started before this one's turn to the cores that it has now."""
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            _move_to(os.sched_getaffinity(0), process)


def _move_to(cores: Collection[int], process: int) -> None:
    """Move all threads of a process."""
    for thread in Path("/proc", str(process), "task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except ProcessLookupError:  # it ended meanwhile
            continue
        except OSError as error:  # not in every container; which cores the job had is noted
            print(f"this job cannot be kept to cores {_ranges(sorted(cores))}: {error.strerror}", file=sys.stderr)
            return


@contextmanager
def _record_job(out: Path, asked: float, shared: bool) -> Iterator[None]:
    """Note when a part of a run was worked on, and where: a row of JOBS at `note_path`. Of other files nothing is."""
    began = time()
    try:
        yield
    finally:
        if note := note_path(out):
            tables.JOBS.write([_job_row(out, asked, began, shared)], note)


def _job_row(out: Path, asked: float, began: float, shared: bool) -> Row:
    return {
        "part": _part(out),
        "measured_on": host.node_and_gpu("gpu"),
        "alone": not shared,
        "cores": _ranges(sorted(os.sched_getaffinity(0))),
        "waited_s": max(0.0, began - asked),
        "began_s": began,
        "ended_s": max(began, time()),  # a host's clock may be set back
    }


def _part(out: Path) -> str:
    """A part as the run calls it, samples/gpu/fa18/direct; of other files the name."""
    note = note_path(out)
    return str(note.relative_to(NOTES)).removesuffix(".csv") if note else out.name


def note_path(part: Path) -> Path | None:
    """Where it is noted when a part was worked on; None for what is no part of a run."""
    if not part.is_relative_to(run_parts.PARTS) or part.suffix == ".json":
        return None
    within = part.relative_to(run_parts.PARTS)
    return NOTES / within.parent / re.sub(r"(\.csv)?(\.gz)?$", ".csv", within.name, count=1)


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as 0-15,32-47."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][-1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
