"""What a job holds while it works, and how long: the machine, or one of several GPUs with its share of the cores."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from time import time

from warpbook import devices, extras, locks, machine, tables
from warpbook.errors import UserError
from warpbook.table import Row

GPUS = "WARPBOOK_GPUS"
"""The environment variable with how many GPUs of a host share its jobs, which the Snakefile sets for them."""

NOTES = Path(extras.PARTS, "jobs")
TOPOLOGY = Path("/sys/devices/system/cpu")
PCI = Path("/sys/bus/pci/devices")


@contextmanager
def held(device: str, out: Path, shared: bool = False, number: int | None = None) -> Iterator[None]:
    """Hold what a job on a device, cpu, emulator or gpu, needs, alone or `shared` with its like; see `locks`.

    Where several GPUs share the jobs, one on a GPU gets whichever is free first, or that of a `number` from 0, sees
    that GPU alone, and is kept to its share of the cores. When it held a GPU is noted beside the part `out` of a run.
    Nothing of CUDA may have been touched before. Raises UserError where the GPUs are fewer than they should be.
    """
    wanted = int(os.environ.get(GPUS, "1"))
    asked = time()
    if device != "gpu":
        with locks.machine(shared):
            yield
    elif wanted == 1:
        machine.visible()  # asked here: not while others wait, nor where CUDA was touched and cannot be asked any more
        with locks.machine(shared), _noted(out, asked, shared):
            yield
    else:
        several = _several(wanted)
        if number is not None and number >= len(several):
            raise UserError(f"gpus: {wanted}, and {machine.node()} shows {len(several)} of them: GPU {number} is lost")
        places = range(len(several)) if number is None else [number]
        with locks.gpu([several[place].uuid_sha256 for place in places], shared) as taken:
            place = places[taken]
            with machine.using(several[place]), _kept_to(shares(several)[place]), _noted(out, asked, shared):
                yield


def _several(wanted: int) -> list[devices.Device]:
    """The GPUs that share the jobs. Where one was lost since the run began, the others go on."""
    found = machine.visible()
    if isinstance(found, str):
        raise UserError(f"gpus: {wanted}, and {machine.node()} has none to use: {found}")
    several = devices.alike(found, min(wanted, len(found)))
    if len(several) < wanted:
        print(f"gpus: {wanted}, and {machine.node()} shows {len(several)}: they go on alone", file=sys.stderr)
    return several


def shares(gpus: Sequence[devices.Device]) -> list[list[int]]:
    """The cores of each GPU: its part of those beside it, where the system tells which these are, else of all.

    They are neighbours, both threads of a core or neither. Where they are fewer than GPUs, each has them all.
    """
    near = [_near(gpu) for gpu in gpus]
    apart = all(one == other or not one & other for one, other in combinations(near, 2))
    if not apart or not all(near):
        near = [machine.CORES] * len(gpus)
    given = []
    for place, threads in enumerate(near):
        cores = _cores(threads)
        place, of = near[:place].count(threads), near.count(threads)
        mine = cores[place * len(cores) // of : (place + 1) * len(cores) // of] if len(cores) >= of else cores
        given.append(sorted(thread for core in mine for thread in core))
    return given


def _near(gpu: devices.Device) -> frozenset[int]:
    """This process's cores in the part of the machine that a GPU is attached to; all where the system does not tell."""
    try:
        listed = (PCI / gpu.pci / "local_cpulist").read_text().strip()
        ends = [[int(end) for end in part.split("-")] for part in listed.split(",")]
    except (OSError, ValueError):
        return machine.CORES
    return machine.CORES & {thread for first, *last in ends for thread in range(first, (last or [first])[0] + 1)}


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
def _kept_to(cores: Sequence[int]) -> Iterator[None]:
    """Keep this process, threads that libraries started among it, and what it starts to some cores."""
    _move_to(cores)
    try:
        yield
    finally:
        _move_to(machine.CORES)


def _move_to(cores: Sequence[int] | frozenset[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except ProcessLookupError:  # it ended meanwhile
            continue
        except OSError as error:  # not in every container; which cores the job had is noted
            print(f"this job cannot be kept to cores {_ranges(sorted(cores))}: {error.strerror}", file=sys.stderr)
            return


@contextmanager
def _noted(out: Path, asked: float, shared: bool) -> Iterator[None]:
    """Note when a part of a run was worked on, and where: a row of JOBS at `note_of`. Of other files nothing is."""
    began = time()
    try:
        yield
    finally:
        if note := note_of(out):
            tables.JOBS.write([_job(note, asked, began, shared)], note)


def _job(note: Path, asked: float, began: float, shared: bool) -> Row:
    return {
        "part": str(note.relative_to(NOTES)).removesuffix(".csv"),
        "measured_on": machine.measured_on("gpu"),
        "alone": not shared,
        "cores": _ranges(sorted(os.sched_getaffinity(0))),
        "waited_s": max(0.0, began - asked),
        "began_s": began,
        "ended_s": max(began, time()),  # a host's clock may be set back
    }


def note_of(part: Path) -> Path | None:
    """Where it is noted when a part was worked on; None for what is no part of a run."""
    if not part.is_relative_to(extras.PARTS):
        return None
    within = part.relative_to(extras.PARTS)
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
