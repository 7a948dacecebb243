"""Warpbook for a Python notebook, in the folder of its kernels: check a file, time two calls, read archived runs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np
import pandas as pd

from warpbook.common import statistics
from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import LIBRARY, PROJECT_VARIABLE, scratch_folder
from warpbook.common.statistics import Estimate
from warpbook.kernels import variants
from warpbook.problems import networks
from warpbook.problems import problem as problems
from warpbook.runs import catalog, tables

_HEADERS = (".cuh", ".h", ".hpp")
_KERNELS = (".cu", ".cpp", ".py")


def check(
    path: str | Path,
    problem: str = "",
    *,
    study: str = "",
    sizes: Sequence[int] = (),
    device: Literal["emulator", "gpu", "cpu"] | None = None,
    timeout_s: float = 600,
) -> pd.DataFrame:
    """The tests of one kernel's file against float64, a row each: `ok`, `status`, `reason`, errors, tolerance; on the
    cases of a study, by default its problem's first, and on ragged cases. problem: by default the one whose folder the
    file is in. device: by default the emulator, or for a CPU variant the CPU. Raises UserError."""
    path = Path(path)
    if not path.is_file() or path.suffix not in _KERNELS:
        what = f"is no kernel; their endings are {', '.join(_KERNELS)}" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}")
    if wrong := [size for size in sizes if not isinstance(size, Integral) or size < 1]:
        raise UserError(f"sizes: {wrong[0]!r} is no whole number from 1 on")
    of = problems.find(problem or path.resolve().parent.name)
    studies = networks.project_configuration().get("studies") or {}
    library = networks.library_configuration()["studies"]
    usual = [name for name, one in library.items() if one.get("problem") == of.name and one.get("cases")]
    own = [name for name, one in studies.items() if one.get("problem") == of.name]
    study = study or next(iter([*own, *usual]), "")
    described = studies.get(study) or library.get(study)
    if described is None:
        raise UserError(f"no study of {of.name} is called {study!r}: {nearest_name(study, [*own, *usual])}")
    with scratch_folder() as folder:
        kernels = folder / "kernels" / of.name
        kernels.mkdir(parents=True)
        for beside in path.parent.iterdir():
            if beside.is_file() and (beside.stem == path.stem or beside.suffix in _HEADERS):
                shutil.copy(beside, kernels)
        if of.folder != LIBRARY / "kernels" / of.name:
            shutil.copy(of.path, kernels)
        fitting = ["cpu"] if variants.read(path.stem, kernels).device == "cpu" else ["emulator", "gpu"]
        where: str = device or fitting[0]
        if where not in fitting:
            raise UserError(f"device: {where!r} does not run {path.name}; take {' or '.join(fitting)}")
        (folder / "config.yaml").write_text(json.dumps({"study": study, "studies": {study: described}}))
        out = folder / "correctness.csv"
        command = [sys.executable, str(LIBRARY / "scripts" / "check_variant.py"), "--device", where, "--cases", study]
        command += ["--variant", variants.full_name(of, path.stem), "--sizes", *map(str, sizes or described["sizes"])]
        command += ["--timeout", str(timeout_s), "--out", str(out)]
        environment = {
            **os.environ,
            PROJECT_VARIABLE: str(folder),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace"
        )
        if done.returncode:
            raise UserError(done.stderr.strip().removeprefix("error: ") or f"{path} could not be checked")
        return tables.CORRECTNESS.read(out)


@dataclass(frozen=True)
class Timing:
    """Two calls, interleaved: medians in ms with 95 % intervals, the speedup (baseline over call), and its verdict:
    faster, slower, same or ambiguous. samples: a row for each round."""

    call_ms: Estimate
    baseline_ms: Estimate
    speedup: Estimate
    verdict: str
    samples: pd.DataFrame


def time(
    call: Callable[[], object],
    baseline: Callable[[], object],
    *,
    synchronize: Callable[[], object] = lambda: None,
    relative_noise: float = 0.01,
    max_time_s: float = 10,
    equivalence_margin: float = 0.01,
) -> Timing:
    """Time a call against a baseline by the host's clock, interleaved, until both medians are known to `relative_noise`
    or `max_time_s` is spent. `synchronize` waits for launched work; its time counts. Raises UserError."""
    from warpbook.config.settings import SeriesPolicy
    from warpbook.harness import timing

    for name, value in (("relative_noise", relative_noise), ("max_time_s", max_time_s)):
        if not value > 0:
            raise UserError(f"{name}: {value} is not above 0")

    def timer(function: Callable[[], object]) -> Callable[[], float]:
        def sample() -> float:
            synchronize()
            began = perf_counter()
            function()
            synchronize()
            return (perf_counter() - began) * 1e3

        return sample

    policy = SeriesPolicy(
        warmup=3, min_samples=6, max_samples=10_000, max_time_s=max_time_s, min_samples_timeout_s=max_time_s
    )
    timers = {"call": timer(call), "baseline": timer(baseline)}
    taken = timing.sample_interleaved(timers, policy, relative_noise).samples
    samples = pd.DataFrame({f"{name}_ms": [one.time_ms for one in of] for name, of in taken.items()})
    mine, other = (np.asarray(samples[name], float) for name in ("call_ms", "baseline_ms"))
    speedup = statistics.paired_ratio(other, mine)
    verdict = statistics.verdict(speedup, equivalence_margin)
    return Timing(statistics.median(mine), statistics.median(other), speedup, verdict, samples)


def list_runs() -> pd.DataFrame:
    """The archived runs of this notebook and of Warpbook, a row each: `run`, `gpu`, `ended`, `cases`, `path`."""
    runs = list(map(catalog.open_run, catalog.archived_paths()))
    return pd.DataFrame(
        [
            {
                "run": run.run_id,
                "gpu": run.gpu["name"] if run.gpu else "",
                "ended": run.record["ended"],
                "cases": list(run.record["networks"]),
                "path": run.path,
            }
            for run in runs
        ],
        columns=["run", "gpu", "ended", "cases", "path"],
    )


def read(run: str | Path, table: str = "op_times") -> pd.DataFrame:
    """A table of a run, as op_times, samples, correctness, counters: an archived run by its id, or any by its path.
    Raises UserError."""
    opened = catalog.open_run(Path(run)) if Path(run).exists() else catalog.find_archived(str(run), "run")
    known = {one.name.partition(".")[0]: one for one in tables.RUN_TABLES}
    if table not in known:
        raise UserError(f"no table is called {table!r}: {nearest_name(table, list(known))}")
    return opened.table(known[table])


def list_kernels(problem: str = "") -> pd.DataFrame:
    """The kernels that are here, this notebook's and Warpbook's, a row each; those of one problem where it is named.
    Raises UserError."""
    if problem:
        problems.find(problem)
    every = variants.discover().values()
    rows = [
        {
            "kernel": one.name,
            "problem": one.problem.name,
            "title": one.title,
            "device": one.device,
            "builds_on": one.header.builds_on,
            "file": one.files[0],
            "problem_with_it": one.read_error,
        }
        for one in every
        if not problem or one.problem.name == problem
    ]
    return pd.DataFrame(rows)
