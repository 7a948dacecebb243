"""Samples of NVIDIA's nvbench (`--jsonbin`), and two files of them compared by the rule of our own verdicts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common import statistics
from warpbook.common.errors import UserError
from warpbook.common.statistics import Estimate

SAMPLE_TIMES = "nv/json/bin:nv/cold/sample_times"
"""The summary that names the file of a state's samples: little-endian float32, in seconds."""


@dataclass(frozen=True)
class Compared:
    """A state of a benchmark that two files hold."""

    name: str
    base_ms: Estimate
    head_ms: Estimate
    speedup: Estimate
    verdict: str


def read(path: Path) -> dict[str, np.ndarray]:
    """The times in ms of each state that was measured, by benchmark, axes and device. Raises UserError with what the file
    lacks and the command that writes it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        devices = {one["id"]: one["name"] for one in content["devices"]}
        states = [(bench["name"], state) for bench in content["benchmarks"] for state in bench["states"]]
        found = {_state_name(bench, state, devices): _samples(path, state) for bench, state in states}
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no file of nvbench ({error!r}); write one by `--jsonbin`") from error
    return {name: times for name, times in found.items() if times is not None}


def _state_name(benchmark: str, state: dict[str, Any], devices: dict[int, str]) -> str:
    axes = [f"{axis['name']}={axis['value']}" for axis in state["axis_values"] or []]
    return " ".join([benchmark, *axes, f"on {devices[state['device']]}"])


def _samples(path: Path, state: dict[str, Any]) -> np.ndarray | None:
    """None where the state was skipped."""
    if state.get("is_skipped"):
        return None
    summary = next((one for one in state["summaries"] or [] if one["tag"] == SAMPLE_TIMES), None)
    held = {one["name"]: one["value"] for one in summary["data"]} if summary else {}
    if "filename" not in held:
        raise UserError(f"{path} holds no samples of {state['name']!r}; write them by `--jsonbin {path.name}`")
    file, count = path.parent / held["filename"], int(held["size"])
    times = np.fromfile(file, "<f4").astype(float) * 1e3
    if len(times) != count or not count or not (times > 0).all():
        raise UserError(f"{file} holds {len(times)} samples, where {path} says {count} times above 0; copy it again")
    return times


def compare(base: Path, head: Path, tolerance: float) -> list[Compared]:
    """Every state of both files. Each was timed in a process of its own: what is within `tolerance` is called the same.
    Raises UserError where they share none."""
    before, after = read(base), read(head)
    compared = []
    for name in before.keys() & after.keys():
        medians = statistics.median(before[name]), statistics.median(after[name])
        if min(one.n for one in medians) < 2:
            raise UserError(f"{name}: one sample has no interval; let nvbench take more (--min-samples)")
        speedup = statistics.unpaired_ratio(before[name], after[name])
        compared.append(Compared(name, *medians, speedup, statistics.verdict(speedup, tolerance, tolerance)))
    if not compared:
        raise UserError(f"{base} and {head} have no state in common: benchmark, axes and device must be equal")
    return sorted(compared, key=lambda one: one.name)
