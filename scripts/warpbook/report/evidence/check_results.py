"""What the compiler made of each kernel, and the tests of the variants' results."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.harness import reference
from warpbook.kernels import occupancy
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.profiling.counters import THEORETICAL
from warpbook.report.evidence.scope import EvidencePart, cached_method
from warpbook.runs import tables
from warpbook.runs.tables import PRECISION


@dataclass(frozen=True)
class Resources:
    """Of a variant's main kernel, for the architecture of the GPU cited. occupancy: None where it is not known. limiter:
    empty where the profiler read the occupancy alone."""

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    occupancy: float | None
    limiter: str


class BuildResults(EvidencePart):
    """Builds of the variants that the study compares: made here, which needs no GPU, or by the run cited for the GPU where
    nothing has changed since. table: those for a GPU."""

    @cached_property
    def table(self) -> pd.DataFrame:
        frame = self._builds_for("gpu")
        # A kernel in another language has no registers where there was no assembler.
        return frame[~frame.ok | frame.registers.notna()]

    @cached_property
    def host(self) -> pd.DataFrame:
        """Those of C++ for this machine's processor."""
        return self._builds_for("cpu")

    def _builds_for(self, device: str) -> pd.DataFrame:
        frame, cited = (run.table(tables.BUILDS) for run in (self._ev.local, self._ev.gpu_run or self._ev.local))
        frame = pd.concat([frame, cited[~cited.variant.isin(frame.variant)]])
        return frame[frame.variant.isin([variant.name for variant in self._ev.compared_variants(device)])]

    @cached_property
    def failed(self) -> pd.DataFrame:
        every = pd.concat([self.table, self.host])
        return every[~every.ok]

    def kernels(self, variant: str) -> pd.DataFrame:
        """A variant's kernels as built for the architecture of the GPU cited."""
        return self.table[(self.table.variant == variant) & (self.table.arch == self._ev.arch) & self.table.ok]

    def resource(self, variant: str, name: str, kernel: str) -> Any | None:
        """registers, shared_bytes, local_bytes or spill_bytes of a kernel there; None where it was not built."""
        kernels = self.kernels(variant)
        kernels = kernels[kernels.kernel == kernel]
        return kernels[name].iloc[0] if len(kernels) else None

    def main_kernel_resources(self, variant: str) -> Resources | None:
        """Of the program's longest kernel, else the header's; None for peers and what is not built."""
        main, of_main = self._ev.profiles.main_kernel(variant)
        if of_main.empty:
            return None
        row = of_main.iloc[0]
        share, limiter = self.occupancy(row) or (self._counted_occupancy(variant, main), "")
        return Resources(
            main, self._ev.arch, int(row.registers), int(row.shared_bytes), int(row.spill_bytes), share, limiter
        )

    def _counted_occupancy(self, variant: str, kernel: str) -> float | None:
        """Theoretical occupancy of a kernel as the profiler read it, the least of any case; None where it did not."""
        launches = [launch for launch in self._ev.counters.launches(variant) if launch.kernel == kernel]
        read = [launch.values[THEORETICAL] for launch in launches if THEORETICAL in launch.values]
        return min(read) / 100 if read else None

    def occupancy(self, row: Any) -> tuple[float, str] | None:
        """Theoretical occupancy of a kernel and its limit, in a profile's block or its header's, if any."""
        if not row.ok or row.arch not in occupancy.SM_LIMITS:
            return None
        sizes = reversed(self._ev.sizes)  # the largest that was traced
        by_size = (self._ev.profiles.launches(row.variant, size) for size in sizes)
        traced = [launch for launch in next(filter(None, by_size), []) if launch.name == row.kernel]
        main = max(traced, key=lambda launch: launch.total_ns, default=None)
        if main and main.shared_bytes is not None:
            threads = math.prod(int(extent) for extent in main.block.split("x"))
            return occupancy.occupancy(row.arch, threads, int(row.registers), main.shared_bytes)
        variant = self._ev.plan.variants[row.variant]
        block = variant.header.block
        if block is None or variant.header.shared_bytes or row.kernel != variant.kernel.partition("<")[0]:
            return None
        return occupancy.occupancy(row.arch, math.prod(block), int(row.registers), int(row.shared_bytes))


@dataclass(frozen=True)
class CheckTally:
    """A variant's tests in sum: worst error over its tolerance, most labels that differ, first failure; why one could
    not be made."""

    tests: int
    passed: int
    worst_ratio: float
    rel_l2_err: float
    labels: int | None
    failure: dict[str, Any] | None
    unsupported: str


def tally_checks(tests: pd.DataFrame) -> CheckTally | None:
    """Tests in sum; None where there are none."""
    if tests.empty:
        return None
    # Column by column: rows of two dozen columns, a test each, take longest to be copied.
    supported = tests.status != "unsupported"
    labels = tests.mismatched_labels[supported & (tests.test == "labels")]
    failed = tests[supported & ~tests.ok]
    return CheckTally(
        tests=int(supported.sum()),
        passed=int(tests.ok[supported].sum()),
        worst_ratio=tests.worst_ratio[supported].max(),
        rel_l2_err=tests.rel_l2_err[supported].max(),
        labels=int(labels.max()) if labels.notna().any() else None,
        failure=tables.first_failure(failed.head(1).to_dict("records")),
        unsupported=next(iter(tests.reason[~supported]), ""),
    )


class CheckResults(EvidencePart):
    """Correctness of the variants, on their device and emulated on the CPU."""

    @cached_property
    def table(self) -> pd.DataFrame:
        frame = self._ev.selection.rows(tables.CORRECTNESS)
        # CPU variants are tested chunk by chunk, at sizes that a study need not name.
        shown = frame["size"].isin(self._ev.sizes) | (frame.device == "cpu") | ~frame.layer.isin(self._network_layers)
        return frame[shown]

    @property
    def _network_layers(self) -> list[str]:
        """The network's layers, and the whole network as ""."""
        return ["", *self._ev.layer_names]

    @cached_property
    def errors(self) -> pd.DataFrame:
        """Errors over the length of sums and the range of inputs, with the `ratio` to that of `direct` on the same."""
        frame = self._ev.selection.optional_rows(PRECISION)
        exact = (frame.rel_l2_err == 0) & (frame.direct_rel_l2_err == 0)
        return frame.assign(ratio=(frame.rel_l2_err / frame.direct_rel_l2_err).mask(exact, 1.0))

    @cached_property
    def unit_errors(self) -> dict[str, pd.DataFrame]:
        """By variant, of its tests on reals the largest `error` of an output as a share of the magnitude that it is held
        against, and the `limit` of that share, by the terms of the longest sum."""
        cases: dict[Any, Case] = {case.name: case for case in self._ev.problem.ragged}
        cases |= {(case.name, size): case.at(size) for case in self._ev.layers for size in self._ev.sizes}
        local = self._ev.local.table(tables.CORRECTNESS)
        emulated = local[(local.network == self._ev.network.name) & (local.device == "emulator")]
        tests = pd.concat([self.table, emulated])
        tests = tests[(tests.test == "reals") & (tests.worst_ratio > 0)]
        found: dict[str, list[tuple[int, float, float]]] = {}
        row: Any
        for row in tests[["variant", "layer", "size", "worst_ratio"]].itertuples(index=False):
            variant = self._ev.plan.variants.get(row.variant)
            case = cases.get(row.layer) or cases.get((row.layer, row.size))
            if variant and case:
                limit = reference.unit_error(case, variant)
                found.setdefault(variant.name, []).append((case.sums, row.worst_ratio * limit, limit))
        columns = ["terms", "error", "limit"]
        return {name: pd.DataFrame(rows, columns=columns).groupby("terms").max() for name, rows in found.items()}

    @cached_method
    def for_variant(self, variant: str) -> CheckTally | None:
        """A variant's tests in sum; None where there are none."""
        return tally_checks(self.table[self.table.variant == variant])

    @cached_method
    def emulator_tally(self, variant: str) -> CheckTally | None:
        """The tests of a GPU variant on the CPU emulator, counted; None where it was not emulated."""
        tests = self._ev.local.table(tables.CORRECTNESS)
        emulated = (tests.network == self._ev.network.name) & (tests.device == "emulator")
        return tally_checks(tests[(tests.variant == variant) & emulated])

    @cached_property
    def without_time(self) -> list[tuple[Variant, CheckTally]]:
        """The study's GPU variants that have no time in the report, with their tests on the CPU emulator in sum; the user's
        own, too, where no test could be made."""
        timed = self._ev.ranking.timed_variants("gpu")
        untimed = [variant for variant in self._ev.compared_variants("gpu") if variant not in timed]
        tallies = [(variant, self.emulator_tally(variant.name)) for variant in untimed]
        return [(variant, tally) for variant, tally in tallies if tally and (tally.tests or variant.own)]

    @property
    def not_compared(self) -> list[tuple[Variant, CheckTally]]:
        """GPU variants that the study does not compare but the run checked on its network, with their tests in sum."""
        tests = self._ev.selection.run_rows(tables.CORRECTNESS)
        tests = tests[(tests.network == self._ev.network.name) & (tests.device == "gpu")]
        compared = {variant.name for variant in self._ev.compared_variants("gpu")}
        others = [self._ev.plan.variants.get(name) for name in dict.fromkeys(tests.variant) if name not in compared]
        shown = [one for one in others if one and not self._ev.selection.stale(one)]
        tallies = [(one, tally_checks(tests[tests.variant == one.name])) for one in shown]
        return [(one, tally) for one, tally in tallies if tally]

    def rows(self, test: str, variant: str | None = None, size: int | None = None) -> pd.DataFrame:
        """Tests of one kind on the network itself (ragged shapes left out), of one variant and size where named."""
        frame = self.table[(self.table.test == test) & self.table.layer.isin(self._network_layers)]
        if variant is not None:
            frame = frame[frame.variant == variant]
        return frame if size is None else frame[frame["size"] == size]
