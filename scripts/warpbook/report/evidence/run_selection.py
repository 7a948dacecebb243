"""Which recorded figures may be shown: those that are still about the sources, options, shapes and policy of today."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.common import intervals
from warpbook.config import settings
from warpbook.harness import building, timing
from warpbook.kernels import lower_bounds, whole_networks
from warpbook.kernels.variants import Variant
from warpbook.kernels.whole_networks import Implementation
from warpbook.problems.problem import Case
from warpbook.report.evidence.profile_values import layer_events
from warpbook.report.evidence.scope import EvidencePart, cached_method
from warpbook.runs import catalog, tables
from warpbook.runs.catalog import Run
from warpbook.runs.run_parts import WHOLE
from warpbook.runs.schema import Table
from warpbook.runs.tables import PRECISION

LEAST_SHARE = 0.5
"""Of the time that a profiler saw a call's kernels take: a call that takes less did not run them."""

Place = tuple[str, str, int]  # variant, layer, size


def impossible_times(run: Run, network: str, cases: Iterable[Case], variants: Iterable[Variant]) -> dict[Place, str]:
    """Why the GPU times of a variant on a layer at a size cannot be true, where they cannot."""
    layers, known = {case.name: case for case in cases}, {one.name: one for one in variants}
    samples = run.table(tables.SAMPLES)
    chosen = (samples.network == network) & samples.variant.isin(list(known)) & samples.layer.isin(list(layers))
    samples = samples[chosen & (samples.device == "gpu") & (samples.status == "ok")]
    places = ["variant", "layer", "size"]
    fastest = samples.groupby(places).time_ms.min()
    medians = samples[samples.kind == "op"].groupby(places).time_ms.median()
    found: dict[Place, str] = {}
    gpu = run.gpu
    assert gpu is not None  # GPU times are of a GPU
    rows: Iterable[Any] = fastest.reset_index().itertuples(index=False)
    for row in rows:
        case = layers[row.layer].at(int(row.size))
        bound = lower_bounds.method_bound_ms(case, known[row.variant].header, gpu, kept_bytes=gpu["l2_bytes"])
        if row.time_ms < bound:
            found[row.variant, row.layer, int(row.size)] = (
                f"impossible: a sample of {row.time_ms:.4g} ms is below the hardware's lower bound of {bound:.4g} ms"
            )
    ours = [one.name for one in known.values() if not one.header.peer]  # a library's first call may try algorithms
    for place, kernels_ms in _profiled_ms(run, network, layers, ours).items():
        if place in medians and medians[place] < LEAST_SHARE * kernels_ms:
            found.setdefault(
                place,
                f"impossible: calls of {medians[place]:.4g} ms, whose kernels take {kernels_ms:.4g} ms under the profiler",
            )
    return found


def _profiled_ms(run: Run, network: str, layers: Iterable[str], variants: list[str]) -> dict[Place, float]:
    """How long a variant's kernels ran in the profiled program, on each layer at the largest size."""
    events = run.table(tables.ACTIVITIES)
    events = events[(events.network == network) & (events.weights == "") & events.variant.isin(variants)]
    found: dict[Place, float] = {}
    size = int(events["size"].max()) if len(events) else 0
    for variant, of_program in events[events["size"] == size].groupby("variant"):
        of_tool = of_program[of_program.tool == of_program.tool.iloc[0]]
        for layer in layers:
            within: pd.DataFrame = layer_events(of_tool, layer, str(variant))
            kernels = within[within.kind == "kernel"]
            spans = zip(kernels.start_ns.astype(int), kernels.end_ns.astype(int), strict=True)
            found[str(variant), layer, size] = intervals.total_length(spans) / 1e6
    return found


HARNESS_TABLES = {tables.ATTACKS: "kernels that cheat", tables.PAIRS: "verdicts on known differences"}
"""What is in each table on tests of the harness itself, which any run on the same GPU model may supply."""

OTHER_RUN_TABLES = HARNESS_TABLES | {
    tables.COUNTERS: "hardware counters",
    tables.SANITIZER: "errors that compute-sanitizer counts",
    tables.SWEEP: "swept parameters",
    PRECISION: "errors over the length of sums",
}
"""What is in each table that a run holds only where it was asked to and that may be another run's: times that are held
against the study's are in none."""


def whole_network_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a table that are of whole networks, implementations called by their own names."""
    frame = frame[frame.problem == whole_networks.PROBLEM]
    bare = {column: frame[column].str.removeprefix(WHOLE) for column in ("variant", "job") if column in frame}
    return frame.assign(**bare)


class Selection(EvidencePart):
    """Rows of the runs cited that a report may draw on."""

    def run_with(self, table: Table) -> Run | None:
        """The run of a table's GPU figures: the study's own. Where that holds nothing of one of OTHER_RUN_TABLES, the
        newest older one that does, on the same GPU model and of today's sources; of HARNESS_TABLES, the newest of the model.
        Never for a submission."""
        own = self._ev.gpu_run
        if own is None or table not in OTHER_RUN_TABLES or self._ev.study.course or len(self._study_rows(own, table)):
            return own
        return self._other_with(table) or own

    @cached_method
    def _other_with(self, table: Table) -> Run | None:
        others = self._of_model if table in HARNESS_TABLES else self._older
        return next((run for run in others if self._holds_sound(run, table)), None)

    @cached_property
    def _of_model(self) -> list[Run]:
        assert self._ev.gpu_run is not None
        return catalog.runs_of_model(self._ev.gpu_run)

    @cached_property
    def _older(self) -> list[Run]:
        assert self._ev.gpu_run is not None  # than which they are older
        return catalog.earlier_runs_of_model(self._ev.gpu_run, self._ev.network.name)

    def _study_rows(self, run: Run, table: Table) -> pd.DataFrame:
        """Rows of a table that a report of the study may show: of its own network, or of all where it shows all."""
        frame = run.table(table)
        return frame[frame.network == self._ev.network.name] if table is tables.COUNTERS else frame

    def _holds_sound(self, run: Run, table: Table) -> bool:
        held = self._study_rows(run, table)
        if "variant" in held:
            ours = [*self.usable("gpu", run), *(one.full_name for one in self.implementations(run))]
            held = held[held.variant.isin(ours)]
        return not held.empty

    @cached_property
    def from_other_run(self) -> dict[Table, Run]:
        """The tables whose rows come from another run than the study's other GPU figures, each with that run."""
        found = {table: self.run_with(table) for table in OTHER_RUN_TABLES}
        return {table: run for table, run in found.items() if run and run is not self._ev.gpu_run}

    def kinds_from(self, run: Run, of: Iterable[Table] = OTHER_RUN_TABLES) -> list[str]:
        """What is taken from another run, in words, of these tables."""
        return [OTHER_RUN_TABLES[table] for table in of if self.from_other_run.get(table) is run]

    def other_run_note(self, table: Table) -> str:
        """To follow a caption: the other run that a table's figures are of; empty where they are of the study's own."""
        run, own = self.from_other_run.get(table), self._ev.gpu_run.run_id if self._ev.gpu_run else ""
        return f" Of the run {run.run_id}; the run {own} holds none." if run else ""

    def in_other_run(self, table: Table) -> str:
        """The same within a sentence: in the run …."""
        run = self.from_other_run.get(table)
        return f" in the run {run.run_id}" if run else ""

    def stale(self, variant: Variant, run: Run | None = None) -> str:
        """Why figures of a variant recorded in a run, that of its device's times where none is named, are no longer
        about what stands here; empty when they are, or there are none."""
        run, network = run or self._ev.run_for(variant.device), self._ev.network
        if run is None or variant.name not in run.record["variants"] or network.name not in run.record["networks"]:
            return ""
        if reason := self.stale_reason(run, variant.device, variant.name, variant.source_sha256):
            return reason
        builds = run.table(tables.BUILDS)
        for name, arch, options in zip(builds.variant, builds.arch, builds.options, strict=True):
            if name == variant.name and options != building.recorded_options(variant, arch):
                return f"the compile options differ: it was built with `{options}`"
        return ""

    def stale_reason(self, run: Run, device: str, variant: str, source_sha256: str) -> str:
        """Why what a run recorded of a variant is not what would be measured here of this source; empty when it is."""
        record, policy, network = run.record, run.record["measuring"], self._ev.network
        if reason := run.another_source(variant, source_sha256, network.name, network.shapes_sha256):
            return reason
        was = settings.policy_of_samples(policy, device)
        for key, now in settings.policy_of_samples(self._ev.config.measuring.model_dump(), device).items():
            if was[key] != now:
                return f"the measuring policy differs: `{key}` was {was[key]}, is {now}"
        if not timing.OLDEST_SHOWN <= record["protocol"] <= timing.PROTOCOL:
            return f"it was measured under timing protocol {record['protocol']}, this is {timing.PROTOCOL}"
        return ""

    def _tested(self, device: str, run: Run) -> list[str]:
        """Names of the study's variants that stand here as a run tested them: how times are taken is no matter of that."""
        network = self._ev.network
        recorded = run.record["variants"] if network.name in run.record["networks"] else {}
        return [
            one.name
            for one in self._ev.compared_variants(device)
            if one.name in recorded
            and not run.another_source(one.name, one.source_sha256, network.name, network.shapes_sha256)
        ]

    def stale_network_reason(self, one: Implementation, run: Run) -> str:
        """The same of figures of an implementation of the study's whole network."""
        if one.full_name not in run.record["variants"] or self._ev.network.name not in run.record["networks"]:
            return ""
        return self.stale_reason(run, "gpu", one.full_name, one.source_sha256)

    @cached_property
    def whole_networks(self) -> list[Implementation]:
        """Implementations of whole networks that are here."""
        return list(whole_networks.discover().values())

    def implementations(self, run: Run) -> list[Implementation]:
        """Implementations of whole networks checked on the study's whose figures are not stale."""
        checks = whole_network_rows(run.table(tables.CORRECTNESS))
        names = {*checks.variant[checks.network == self._ev.network.name]}
        known = (one for one in self.whole_networks if one.name in names)
        return [one for one in known if not self.stale_network_reason(one, run)]

    def usable(self, device: str, run: Run | None = None) -> list[str]:
        """Names of the study's variants on a device whose figures, those in `run` if named, are not stale."""
        return [variant.name for variant in self._ev.compared_variants(device) if not self.stale(variant, run)]

    def rows(self, table: Table) -> pd.DataFrame:
        """Rows of the study's network and variants, each from its device's run, stale ones left out."""
        frames = []
        for device in ("cpu", "gpu"):
            run = self._ev.local if device == "cpu" else self.run_with(table)
            if run is None:
                continue
            frame = run.table(table)
            frame = frame[frame.network == self._ev.network.name]
            if "device" in frame:
                frame = frame[frame.device == device]
            elif device == "cpu":
                continue  # only GPU programs are profiled
            if device == "gpu" and table in (tables.SAMPLES, tables.OP_TIMES):
                frame = self._refuse_impossible(frame)
            ours = self._tested(device, run) if table is tables.CORRECTNESS else self.usable(device, run)
            frames.append(frame[frame.variant.isin(ours)].assign(run_id=run.run_id))
        empty = tables.with_places(table.empty()).assign(run_id="")
        return pd.concat(frames, ignore_index=True) if frames else empty

    @cached_property
    def _impossible(self) -> dict[Place, str]:
        """Why recorded GPU times of a variant on a layer at a size are refused."""
        run = self._ev.gpu_run
        if run is None or run.gpu is None:
            return {}
        called = [one for one in self._ev.compared_variants("gpu") if not one.course]
        return impossible_times(run, self._ev.network.name, self._ev.layers, called)

    def _refuse_impossible(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows of times, those refused that cannot be true."""
        if not self._impossible:
            return frame
        places = zip(frame.variant, frame.layer, frame["size"], strict=True)
        reasons = pd.Series([self._impossible.get(place, "") for place in places], index=frame.index)
        refused = (reasons != "") & (frame.status == "ok")
        return frame.assign(
            status=frame.status.astype(str).mask(refused, "refused"),
            reason=frame.reason.astype(str).mask(refused, reasons),
        )

    @cached_method
    def at_sizes(self, table: Table) -> pd.DataFrame:
        """The same at the study's sizes."""
        frame = self.rows(table)
        return frame[frame["size"].isin(self._ev.sizes)]

    def run_rows(self, table: Table) -> pd.DataFrame:
        """A table that a GPU run may hold, as it is."""
        run = self.run_with(table)
        return run.table(table) if run else tables.with_places(table.empty())

    def optional_rows(self, table: Table) -> pd.DataFrame:
        """A table that a GPU run may hold, of all networks, without stale rows; whole networks have WHOLE."""
        run, frame = self.run_with(table), self.run_rows(table)
        if run is None or "variant" not in frame:
            return frame
        whole = [one.full_name for one in self.implementations(run)]
        return frame[frame.variant.isin([*self.usable("gpu", run), *whole])]
