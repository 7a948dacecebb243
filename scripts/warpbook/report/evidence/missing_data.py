"""What keeps variants and implementations of whole networks, or some of their times, out of the figures."""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import pandas as pd

from warpbook.common.files import COMMAND
from warpbook.kernels import whole_networks
from warpbook.kernels.variants import Variant
from warpbook.kernels.whole_networks import Implementation
from warpbook.problems.networks import Network
from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import tables
from warpbook.runs.run_parts import WHOLE

PROGRAM = "program"  # the kind of time that whole programs have
BUSY = "other programs kept the CPU busy"
"""What every refusal for a busy machine says here: how many samples it took, and how busy it was, the run's tables have."""
AGAIN = "report --forcerun measure_variant run_program"  # behind the command: what measures the CPU's times again
_NUMBER = re.compile(r"\d+")


class _Lack(NamedTuple):
    """What has no figure on a layer, at a size, of these kinds (empty, None: all); reasons alike but for numbers."""

    layer: str
    size: int | None
    kinds: tuple[str, ...]
    status: str
    reasons: tuple[str, ...]


class MissingData(EvidencePart):
    """What is without a figure, or without some, and why."""

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each problem: variant, device, layers, sizes and kinds of time (each empty where all are lacking),
        status, reason. An implementation of a whole network is named with WHOLE before it."""
        rows = [
            {"variant": variant.name, "device": device, **problem}
            for device in ("gpu", "cpu")
            for variant in self._ev.compared_variants(device)
            for problem in self._group_rows(self._variant_lacks(variant))
        ]
        rows += [
            {"variant": f"{WHOLE}{one.name}", "device": "gpu", **problem}
            for one in whole_networks.discover().values()
            for problem in self._group_rows(self._network_lacks(one))
        ]
        return pd.DataFrame(rows, columns=["variant", "device", "layers", "sizes", "kinds", "status", "reason"])

    @property
    def of_variants(self) -> pd.DataFrame:
        """The rows of variants alone."""
        return self.table[~self.table.variant.str.startswith(WHOLE)]

    def for_variant(self, variant: str) -> pd.DataFrame:
        """A variant's rows."""
        return self.table[self.table.variant == variant]

    @cached_property
    def why_no_cpu(self) -> str:
        """Why no CPU variant has a time for every layer; empty where one has."""
        if self._ev.ranking.measured_variants("cpu"):
            return ""
        none = "no CPU variant has a valid time on every layer; the chapter on what is left out has the reasons"
        return self._ev.missing_reason("cpu") or none

    def _group_rows(self, lacks: Iterable[_Lack]) -> Iterator[dict[str, Any]]:
        """One row for all layers and sizes that lack the same times for the same reason; numbers in it may differ."""
        alike: dict[tuple[str, str], list[_Lack]] = {}
        for lack in lacks:
            lack = lack._replace(reasons=tuple(dict.fromkeys(map(_without_load, lack.reasons))))
            alike.setdefault((lack.status, _NUMBER.sub("", lack.reasons[0])), []).append(lack)
        for of_reason in alike.values():
            sizes: dict[tuple[str, tuple[str, ...]], list[int | None]] = {}
            for lack in of_reason:
                sizes.setdefault((lack.layer, lack.kinds), []).append(lack.size)
            layers: dict[tuple[tuple[int | None, ...], tuple[str, ...]], list[str]] = {}
            for (layer, kinds), at in sizes.items():
                layers.setdefault((tuple(at), kinds), []).append(layer)
            first, *others = dict.fromkeys(reason for lack in of_reason for reason in lack.reasons)
            for (where, kinds), on in layers.items():
                yield {
                    "layers": () if "" in on or set(on) >= set(self._ev.layer_names) else tuple(on),
                    "sizes": () if None in where or set(where) >= set(self._ev.sizes) else where,
                    "kinds": kinds,
                    "status": of_reason[0].status,
                    "reason": f"{first}; likewise, with other numbers, elsewhere" if others else first,
                }

    def _variant_lacks(self, variant: Variant) -> Iterator[_Lack]:
        if problem := self._variant_problem(variant):
            status, reason = problem
            yield _Lack("", None, (), status, (reason,))
            return
        told: set[str] = set()
        summaries = self._ev.selection.at_sizes(tables.OP_TIMES)
        series = summaries[summaries.variant == variant.name]
        known = dict(iter(series.groupby(["layer", "size"])))
        for layer, size in product(self._ev.layer_names, self._ev.sizes):
            there = known.get((layer, size), series.head(0))
            if there.empty:
                yield _Lack(layer, size, (), "not_measured", (self._no_time_reason(variant.device),))
            for lack in _lacks(layer, size, there):
                told |= {*lack.reasons}
                yield lack
        programs = self._ev.selection.at_sizes(tables.PROGRAMS)
        failed = programs[(programs.variant == variant.name) & (programs.status != "ok")]
        for row in failed.drop_duplicates(["size", "reason"]).to_dict("records"):
            if row["reason"] not in told:
                yield _Lack("", row["size"], (PROGRAM,), row["status"], (row["reason"],))

    def _network_lacks(self, one: Implementation) -> Iterator[_Lack]:
        if reason := self._ev.networks.omission_reasons.get(one.name):
            network = self._ev.network
            if isinstance(network, Network) and (beyond := one.beyond_limits(network, self._ev.largest)):
                yield _Lack("", None, (), "unsupported", (beyond,))
            else:
                yield _Lack("", None, (), "stale" if self._ev.networks.stale_reason(one) else "not_measured", (reason,))
        elif one in self._ev.networks.recorded_implementations:
            for size in self._ev.sizes:
                there = self._ev.networks.outcomes(one.name, size)
                if there.empty:
                    yield _Lack("", size, (), "not_measured", (self._no_time_reason("gpu"),))
                yield from _lacks("", size, there)

    def _no_time_reason(self, device: str) -> str:
        run = self._ev.run_for(device)
        assert run is not None  # else nothing of a variant is there
        return f"the run {run.run_id} has no time of it"

    def _variant_problem(self, variant: Variant) -> tuple[str, str] | None:
        """(status, reason) where the report can show nothing of a variant; None where it can."""
        if variant.read_error:
            return "compile_failed", variant.read_error
        failed = self._ev.builds.failed
        failed = failed[failed.variant == variant.name]
        if len(failed):
            words = failed.log.iloc[0].splitlines() or ["the compiler said nothing"]
            return "compile_failed", f"for {', '.join(failed.arch)}: {words[0]}"
        emulated = self._ev.checks.emulator_tally(variant.name)
        if emulated and emulated.failure:
            return emulated.failure["status"], f"on the CPU emulator: {emulated.failure['reason']}"
        run = self._ev.run_for(variant.device)
        if run is None:
            return "not_measured", self._ev.source.why
        if reason := self._ev.selection.stale(variant):
            return "stale", f"recorded in {run.run_id}, but {reason}"
        if variant.name not in set(self._ev.selection.at_sizes(tables.OP_TIMES).variant):
            return "not_measured", self._no_time_reason(variant.device)
        return None


def without_remedy(reason: str) -> str:
    """A reason for a place that names the remedy apart, or for all such reasons at once."""
    return BUSY if reason.startswith(BUSY) else reason


def _without_load(reason: str) -> str:
    return f"{BUSY}; close them, and measure again: {COMMAND} {AGAIN}" if "other programs kept" in reason else reason


def _lacks(layer: str, size: int, there: pd.DataFrame) -> Iterator[_Lack]:
    """What failed of the series of one layer at one size: rows with state, kind, status and reason."""
    failed = there[there.status != "ok"]
    if failed.empty:  # as nearly always
        return
    alike = failed.reason.astype(str).str.replace(_NUMBER, "", regex=True)
    for (status, _), rows in failed.groupby([failed.status.astype(str), alike], sort=False):
        kinds: list[str] = []
        for kind, of_kind in rows.groupby(rows.kind.astype(str), sort=False):
            every = len(of_kind) == (there.kind == kind).sum()
            kinds += [kind] if every else [f"{state} {kind}" for state in of_kind.state]
        yield _Lack(
            layer, size, () if len(rows) == len(there) else tuple(kinds), str(status), tuple(rows.reason.unique())
        )
