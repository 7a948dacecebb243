"""Fixtures: archived runs, whole, small and changed, and the evidence and the views that are made of them.

The small run is the newest archived one without most of its networks, variants and samples, made once a session. Nearly
every test of a report reads it; few read the whole.
"""

import fcntl
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from warpbook.common.files import PROJECT
from warpbook.common.quick_yaml import load_yaml
from warpbook.config import settings
from warpbook.harness import building, timing
from warpbook.kernels import variants, whole_networks
from warpbook.kernels.variants import Variant
from warpbook.problems import case_sets
from warpbook.report.evidence import Evidence
from warpbook.runs import catalog, summaries, tables
from warpbook.runs.catalog import Run
from warpbook.runs.run_parts import WHOLE
from warpbook.runs.schema import Table
from warpbook.workflow import plan
from warpbook.workflow.plan import Plan

NETWORK = "fa18"
OTHER_NETWORK = "fa17"
"""Kept for its two sets of weights and for what its whole network takes; of its variants, few."""
OF_OTHER = ("direct", "fp16x3_mma", "cudnn_fp32")
CHAIN = ("direct", "constant_weights", "shared_input", "constant_weights_shared_input")
VARIANTS = (
    *CHAIN, "global_accumulate", "coarsened", "channel_tree", "channel_atomics", "unroll_gemm", "fused_unroll_gemm", "unroll_gemm_streams", "fft",
    "layer_specialised", "fp16x3_mma", "fp16x3_wgmma", "cudnn_fp32", "cudnn_fp32_nhwc",
)  # fmt: skip
ON_CPU = ("loop_nest", "im2col_blas", "simd", "onnxruntime", "torch_cpu")
ROUNDS = 30
"""Samples kept of each series."""


def _of(names: pd.Series) -> pd.Series:
    """The variants that jobs and copies are of: `aa:direct:1` and `direct:aa` are of direct."""
    few = names.unique()  # of half a million
    return names.map({name: re.sub(r"^aa:(.*):\d+$", r"\1", name).removesuffix(":aa") for name in few})


def _kept(frame: pd.DataFrame, known: set[str]) -> pd.DataFrame:
    """The rows of a table that the small run holds, of whole networks too. known: the variants of the whole run."""
    keep = pd.Series(True, index=frame.index)
    if "network" in frame:
        keep &= frame.network.isin([NETWORK, OTHER_NETWORK, ""])
    for column in {"variant", "job"} & {*frame}:
        whole = frame[column].str.startswith(WHOLE)
        keep &= _of(frame[column]).isin(VARIANTS) | ~_of(frame[column]).isin(known) | whole
    if {"network", "layer", "variant"} <= {*frame}:
        keep &= (frame.network != OTHER_NETWORK) | frame.variant.isin(OF_OTHER) | frame.variant.str.startswith(WHOLE)
    if "sample" in frame:
        keep &= frame["sample"].isna() | (frame["sample"] < ROUNDS)
    return frame[keep]


def _of_samples(op_times: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    """OP_TIMES of the samples that are kept."""
    series = summaries.group_by_series(samples[samples.job == samples.variant], list(tables.OP_TIMES.key))
    rows = op_times.to_dict("records")
    for row in rows:
        median = summaries.series_median(series.get(tuple(row[name] for name in tables.OP_TIMES.key), np.empty(0)))
        row["n"] = median.n if median else 0
        if median:
            row |= {"median_ms": median.value, "ci_low_ms": median.low, "ci_high_ms": median.high}
    return pd.DataFrame(rows, columns=op_times.columns)


@cache
def shipped() -> dict[str, Variant]:
    """The project's variants, read once: no test changes one of them."""
    return variants.discover()


def plan_of(values: dict[str, Any]) -> Plan:
    """The plan of a configuration's values, with the project's variants."""
    return plan.build(settings.load(values, list(shipped())), shipped())


def _of_today(rows: list[dict[str, Any]], table: Table) -> list[dict[str, Any]]:
    """Rows as they would be of today's sources and compile options: a change of a kernel makes no test's run stale."""
    if table is tables.BUILDS:
        here = shipped()
        for row in rows:
            if row["variant"] in here:
                row["options"] = building.recorded_options(here[row["variant"]], row["arch"])
    return [{name: row[name] for name in table.columns} for row in rows]


def _record_of_today(record: dict[str, Any]) -> dict[str, Any]:
    """The same of a run's record."""
    here = shipped() | {one.full_name: one for one in whole_networks.discover().values()}
    shapes = {name: {"shapes_sha256": case_sets.find(name).shapes_sha256} for name in record["networks"]}
    told = {name: {"source_sha256": one.source_sha256} for name, one in here.items()}
    return record | {
        "protocol": timing.PROTOCOL,
        "networks": {name: one | shapes[name] for name, one in record["networks"].items()},
        "variants": {name: one | told.get(name, {}) for name, one in record["variants"].items()},
    }


def _small_record(record: dict[str, Any]) -> dict[str, Any]:
    """The same of few networks and variants."""
    names = [name for name in record["variants"] if name in (*VARIANTS, *ON_CPU) or name.startswith(WHOLE)]
    few = {
        "networks": {name: record["networks"][name] for name in (NETWORK, OTHER_NETWORK)},
        "variants": {name: record["variants"][name] for name in names},
    }
    return _record_of_today(record | few)


def derived(whole: Path, folder: Path) -> Path:
    """Write the small run of a whole one into a folder, under the same name."""
    run = replace(catalog.open_run(whole), sound=True)  # that it is, another test checks
    known, path = {*run.record["variants"]}, folder / whole.name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("run.json", json.dumps(_small_record(run.record)))
        for table in tables.RUN_TABLES:
            frame = _kept(run.table(table), known)
            if table is tables.OP_TIMES:
                frame = _of_samples(frame, _kept(run.table(tables.SAMPLES), known))
            rows = frame.to_dict("records")
            table.write(_of_today(rows, table), folder / table.name)
            packed.write(folder / table.name, table.name)
    return path


def as_of_today(whole: Path, folder: Path) -> Path:
    """Write a whole run into a folder, under the same name, as it would be of today's sources and compile options."""
    path = folder / whole.name
    with zipfile.ZipFile(whole) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    run = catalog.open_run(whole)
    rows = _of_today(run.table(tables.BUILDS).to_dict("records"), tables.BUILDS)
    files[tables.BUILDS.name] = tables.BUILDS.text(rows, tables.BUILDS.name).encode()
    files["run.json"] = json.dumps(_record_of_today(run.record)).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def _made_once(whole: Path, make: Callable[[Path, Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make` makes of a run in a folder, made by the first worker that asks for it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / make.__name__
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = folder.with_name(f"{make.__name__}_in_the_making")
            made.mkdir()
            make(whole, made)
            made.rename(folder)
    return folder / whole.name


@pytest.fixture(scope="session")
def committed_archive() -> Path:
    """The newest archived run with A/A tests of those that hold most networks: committed, not to be changed."""
    newest_first = reversed(catalog.gpu_runs(PROJECT / catalog.ARCHIVES))
    with_tests = [run for run in newest_first if "aa" in run.record["config"].get("optional_measurements", ())]
    return max(with_tests, key=lambda run: len(run.record["networks"])).path


@pytest.fixture(scope="session")
def newest_archive(committed_archive, tmp_path_factory) -> Path:
    """It, whole, as of today's sources: a change of a kernel empties no test's report. It takes seconds to read: most
    tests want `small_archive`."""
    return _made_once(committed_archive, as_of_today, tmp_path_factory)


@pytest.fixture(scope="session")
def small_archive(committed_archive, tmp_path_factory) -> Path:
    """The small run of it, not to be changed."""
    return _made_once(committed_archive, derived, tmp_path_factory)


@pytest.fixture
def archive(small_archive, tmp_path) -> Path:
    """A copy of the small run."""
    return Path(shutil.copy(small_archive, tmp_path / small_archive.name))


@pytest.fixture(scope="session")
def sharing_tables(committed_archive, newest_archive, small_archive) -> Callable[[], AbstractContextManager[None]]:
    """Within the context, tables of runs that are the newest archive's, or the small run's, are read once for all
    tests, which are not to change them, and not checked: another test does that. The committed archive is opened as it
    would be of today's sources."""

    def checksums(path: Path) -> dict[str, int]:
        if not path.is_file():
            return {}
        with zipfile.ZipFile(path) as packed:
            return {entry.filename: entry.CRC for entry in packed.infolist() if ".csv" in entry.filename}

    known = [(catalog.open_run(path), checksums(path)) for path in (small_archive, newest_archive)]

    def sharing(run: Run) -> Run:
        if run.loaded or run.record["format"] != known[0][0].record["format"]:
            return run
        held = checksums(run.path)
        for one, its in known:
            if held == its:
                return replace(run, loaded=one.loaded, sound=True)
        small, its = known[0]
        same = {name: read for name, read in small.loaded.items() if held.get(name) == its.get(name)}
        return replace(run, loaded=same)

    @contextmanager
    def context() -> Iterator[None]:
        open_run = catalog.open_run
        with pytest.MonkeyPatch.context() as patch:
            of_today = {committed_archive.resolve(): newest_archive}
            patch.setattr(catalog, "open_run", lambda path: sharing(open_run(of_today.get(path.resolve(), path))))
            yield

    return context


@pytest.fixture(scope="session")
def opened(sharing_tables) -> Callable[[Path], Run]:
    """Open a run, its tables shared where they are the newest archive's or the small run's."""

    def open_run(path: Path) -> Run:
        with sharing_tables():
            return catalog.open_run(path)

    return open_run


@pytest.fixture(scope="session")
def few_variants() -> dict[str, Any]:
    """A change of the configuration after which fa18 and fa17-final compare the small run's variants."""
    studies = load_yaml(settings.FILE.read_text())["studies"]
    fa18 = studies["fa18"] | {"variants": [*VARIANTS, *ON_CPU]}
    fa17 = studies["fa17-final"] | {"variants": [*OF_OTHER, *ON_CPU], "first_kernel": "direct", "show_profile_of": []}
    return {"studies": studies | {"fa18": fa18, "fa17-final": fa17}}


@pytest.fixture(scope="session")
def planned() -> Callable[..., Plan]:
    """Make the plan of the project's configuration with other values of some keys."""

    def make(**changes) -> Plan:
        return plan_of(load_yaml(settings.FILE.read_text()) | changes)

    return make


@pytest.fixture(scope="session")
def evidence_of(planned, opened, few_variants) -> Callable[..., Evidence]:
    """Make the evidence whose CPU and GPU figures are those of one run, under the policy that it was measured with, of
    few variants unless told otherwise."""

    def make(run_path: Path, **changes) -> Evidence:
        run = opened(run_path)
        made = planned(**{"gpu": "auto", "measuring": run.record["measuring"], **few_variants, **changes})
        made = plan.Plan(made.config, made.variants, "no device, for the test")
        evidence = Evidence(made, "fa18", run)
        evidence.gpu_run = run
        return evidence

    return make


@pytest.fixture(scope="session")
def ev(evidence_of, small_archive) -> Evidence:
    """The evidence of the small run, for tests that change nothing of it."""
    return evidence_of(small_archive)


@pytest.fixture(scope="session")
def chapter(ev):
    """Its chapter on optimizations."""
    from warpbook.report.views import milestone_4

    return milestone_4.milestone_4_view(ev)


@pytest.fixture(scope="session")
def sections(ev, chapter):
    """The sections of all its optimizations: the chapter's, and those in the supplement."""
    from warpbook.report.views import milestone_4

    return [*chapter.optimizations, *milestone_4.remaining_optimizations(ev)]
