"""The machine that a job runs on: described, and held against what its run is about. A run belongs to one model of
machine. Its jobs may run on several nodes of a cluster: each looks at its own when it starts."""

import functools
import json
import os
import platform
import re
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from warpbook.common.errors import UserError
from warpbook.common.supervision import process_pool
from warpbook.machine import available_profilers, cuda_devices

VISIBLE = "CUDA_VISIBLE_DEVICES"
TARGET = "WARPBOOK_TARGET"
"""The environment variable with what `target` in config.yaml promises of the measuring nodes, as JSON."""

DEVICES_VARIABLE = "WARPBOOK_FOUND"
"""The environment variable with the GPUs that a Snakemake found, for its jobs on the same machine: asking the driver
takes a quarter of a second, and another job may be timed meanwhile."""
BOOT = Path("/proc/sys/kernel/random/boot_id")

UUID_SHOWN = 12  # digits of the hashed UUID that tell a run's GPUs apart
MEMORY_WITHIN = 0.9  # the driver and ECC keep some of what a GPU is sold with

CORES = frozenset(os.sched_getaffinity(0))
"""Cores that this process was given, before it kept itself to a GPU's share of them."""

_held: list[cuda_devices.Device] = []


def node() -> str:
    """This machine's name."""
    return platform.node() or "unnamed"


def cpu() -> dict[str, Any]:
    """Model, cores that this process was given, and memory of the host."""
    model = platform.processor() or platform.machine()
    memory = None
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
        memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    except OSError:
        pass
    return {"model": model, "cores": len(CORES), "memory_gib": memory and round(memory, 1)}


def peak_memory_kib() -> int:
    """Most resident memory of this process so far, in KiB. The kernel's own word for it where there is one: getrusage's
    begins with the peak of the process that started this one (setmax_mm_hiwater_rss in Linux's fs/exec.c), so that a
    small worker of a large parent would look large."""
    status = Path("/proc/self/status").read_text()
    if found := re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE):
        return int(found[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def gpu() -> cuda_devices.Device | str:
    """The GPU that this job holds, or the first visible one, or a sentence saying why there is none."""
    if _held:
        return _held[-1]
    found = visible_devices()
    return found if isinstance(found, str) else found[0]


def share_with_jobs(found: Sequence[cuda_devices.Device]) -> None:
    """Have jobs know the GPUs that were found here."""
    os.environ[DEVICES_VARIABLE] = json.dumps([_place(), [asdict(device) for device in found]])


def _place() -> list[str | None]:
    """What tells machines apart, and what they let a process see."""
    return [BOOT.read_text().strip() if BOOT.exists() else node(), os.environ.get(VISIBLE)]


@functools.cache
def visible_devices() -> list[cuda_devices.Device] | str:
    """`devices.visible`, as the job's Snakemake found it, or asked in a process of its own: CUDA does not survive a
    fork, and the caller may fork yet."""
    place, found = json.loads(os.environ.get(DEVICES_VARIABLE) or "[null, null]")
    if place == _place() and found:
        return [cuda_devices.Device(**device) for device in found]
    with process_pool(1) as pool:
        return pool.submit(_probe).result()


def _probe() -> list[cuda_devices.Device] | str:
    return cuda_devices.visible_devices()


@contextmanager
def use_gpu(device: cuda_devices.Device) -> Iterator[None]:
    """Let this process and what it starts see one GPU alone. Nothing of CUDA may have been touched before."""
    before = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = device.selector
    _held.append(device)
    try:
        yield
    finally:
        _held.remove(device)
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before


def node_and_gpu(device: str) -> str:
    """What a figure is of: this node, and on a GPU its UUID hashed: `node7/3f2a1c4d5e6f`."""
    found = gpu() if device == "gpu" else ""
    return f"{node()}/{found.uuid_sha256[:UUID_SHOWN]}" if isinstance(found, cuda_devices.Device) else node()


def require_target(device: str = "gpu", tool: str = "") -> None:
    """See that this node has what `target` in config.yaml promises of it, and a profiler where the job needs one.
    Raises UserError with both. Nothing happens in a job that needs no GPU, or where nothing was promised."""
    promised: dict[str, Any] = json.loads(os.environ.get(TARGET, "null")) or {}
    if device != "gpu" or not promised:
        return
    found = gpu()
    wanted = promised["name"] or f"a GPU of {promised['arch']}"
    if isinstance(found, str):
        raise UserError(f"target promises {wanted}, and {node()} has no GPU to use: {found}")
    differs = [
        f"{found.name} ({found.arch}), not {wanted} ({promised['arch']})"
        if promised["arch"] != found.arch or promised["name"] not in ("", found.name)
        else "",
        f"{found.memory_bytes / 2**30:.0f} GiB of GPU memory, not {promised['memory_gib']:g}"
        if found.memory_bytes < MEMORY_WITHIN * promised["memory_gib"] * 2**30
        else "",
        available_profilers.missing_reason(tool, found) if tool else "",
    ]
    for difference in filter(None, differs):
        raise UserError(
            f"{node()} is not what target in config.yaml promises: {difference}; ask the cluster for such nodes, or "
            "change target"
        )


def require_same(run: Mapping[str, Any], device: str) -> None:
    """See that this job's device is of the model that a run's machine.json describes; UserError names both."""
    if "node" not in run:  # described by hand, or before this was asked
        return
    if device == "gpu":
        found, described = gpu(), run["gpu"] or {"name": "no GPU", "arch": ""}
        here = f"{found.name}, {found.arch}" if isinstance(found, cuda_devices.Device) else "no GPU, "
        there = f"{described['name']}, {described['arch']}"
    else:
        here, there = (f"{facts['model']}, {facts['cores']} cores" for facts in (cpu(), run["cpu"]))
    if here != there:
        raise UserError(
            f"this job measures on {here} ({node()}), and its run is of {there} ({run['node']}): a run belongs to one "
            "model; ask the cluster for nodes of one kind, or delete results/parts to measure everything here"
        )
