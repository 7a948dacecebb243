"""GPUs put aside: one that fails would be free again at once, and get most of a run's jobs. Whether it fails is never
asked of the job, whose variant may say anything. Where a job failed, another process, without a variant, has the GPU
fill memory and reads it back, and NVML says whether its memory had errors meanwhile."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from warpbook.common import parent_process
from warpbook.common.files import PACKAGE, atomic_write
from warpbook.machine import host
from warpbook.machine.cuda_devices import Device
from warpbook.runs import run_parts
from warpbook.runs.schema import Row

FOLDER = Path(run_parts.PARTS, "aside")
RESTART_COUNT_VARIABLE = "WARPBOOK_AGAIN"
"""The environment variable that a job has which begins again, because its first GPU failed."""
ANSWER_TIMEOUT_S = 60
NO_FAILURE = ("ok", "unsupported")  # of `status`
TRIES = "from warpbook.machine import cuda_devices; print(cuda_devices.self_test())"


class GpuFault(Exception):
    """The GPU that a job held was put aside, and the job may begin again."""


@contextmanager
def watch_job(gpu: Device, part: str) -> Iterator[list[Row]]:
    """A list for the rows that a job makes on a GPU. Raises GpuFault where one failed, or the job, and the GPU does.
    That is done once for a job: a second GPU that fails under it is put aside too, and what the job made there
    stands."""
    rows: list[Row] = []
    raised = None
    before = memory_errors(gpu)
    try:
        yield rows
    except Exception as error:
        raised = error
    failed = raised or any(row["status"] not in NO_FAILURE for row in rows)
    if failed and quarantine_if_faulty(gpu, part, before) and RESTART_COUNT_VARIABLE not in os.environ:
        raise GpuFault from raised
    if raised:
        raise raised


def quarantine_if_faulty(gpu: Device, part: str, before: int | None = None) -> bool:
    """Whether the visible GPU fails; it is put aside then."""
    if not (why := diagnose(gpu, before)):
        return False
    said = {"measured_on": host.node_and_gpu("gpu"), "reason": why, "part": part, "by": _snakemake()}
    said |= {"at": datetime.now(UTC).isoformat(timespec="seconds")}
    with atomic_write(_mark(gpu)) as temporary:
        temporary.write_text(json.dumps(said, indent=1) + "\n")
    print(f"{said['measured_on']} is put aside: {why}", file=sys.stderr)
    return True


def diagnose(gpu: Device, before: int | None) -> str:
    """What is wrong with the visible GPU, which had so many errors in memory before; empty where nothing is."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    process = subprocess.Popen([sys.executable, "-c", TRIES], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        if words := process.communicate(timeout=ANSWER_TIMEOUT_S)[0].strip():
            return words
    except subprocess.TimeoutExpired:
        process.kill()  # and not waited for: it may hang in the driver
        return f"it did not fill memory within {ANSWER_TIMEOUT_S} s"
    after = memory_errors(gpu)
    if before is not None and after is not None and after > before:
        return f"its uncorrected memory (ECC) errors were {before} and are {after}"
    return ""


def memory_errors(gpu: Device) -> int | None:
    """Uncorrected errors in a GPU's memory since its driver was loaded; None where NVML does not tell."""
    import pynvml

    uncorrected = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    try:
        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetTotalEccErrors(pynvml.nvmlDeviceGetHandleByUUID(gpu.selector), *uncorrected))
        finally:
            pynvml.nvmlShutdown()  # forks of this process begin anew
    except pynvml.NVMLError:
        return None


def quarantine_reason(gpu: Device) -> str:
    """Why a GPU is put aside: this Snakemake's jobs found that it fails. Empty where they did not."""
    try:
        said = json.loads(_mark(gpu).read_text())
    except FileNotFoundError:
        return ""
    return str(said["reason"]) if said["by"] == _snakemake() else ""


def quarantined_since(started: str) -> list[str]:
    """A sentence for each GPU that was put aside since a run began, or by this Snakemake, in order of time."""
    every = sorted((json.loads(path.read_text()) for path in FOLDER.glob("[!.]*.json")), key=lambda one: one["at"])
    return [
        "{measured_on}, found by {part} at {at}: {reason}".format(**one)
        for one in every
        if one["at"] >= started or one["by"] == _snakemake()
    ]


def restart() -> NoReturn:
    """Start this program again in its place, with the same arguments."""
    os.environ[RESTART_COUNT_VARIABLE] = "yes"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _snakemake() -> str:
    return os.environ.get(parent_process.SNAKEMAKE, "")


def _mark(gpu: Device) -> Path:
    return FOLDER / f"{gpu.uuid_sha256[: host.UUID_SHOWN]}.json"
