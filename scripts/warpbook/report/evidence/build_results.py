"""What the compiler made of each kernel: here, or in the run cited for the GPU where nothing has changed since; and the
occupancy that it allows."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.kernels import occupancy
from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import tables


@dataclass(frozen=True)
class Resources:
    """Of a variant's main kernel, for the architecture of the GPU cited. occupancy: None where it is not known."""

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    occupancy: float | None
    limiter: str


class BuildResults(EvidencePart):
    """Builds of the variants that the study compares; they need no GPU. table: those for a GPU."""

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
        share, limiter = self.occupancy(row) or (None, "unknown")
        return Resources(
            main, self._ev.arch, int(row.registers), int(row.shared_bytes), int(row.spill_bytes), share, limiter
        )

    def occupancy(self, row: Any) -> tuple[float, str] | None:
        """Theoretical occupancy of a kernel and its limit, in a profile's block or its header's, if any."""
        if not row.ok or row.arch not in occupancy.SM_LIMITS:
            return None
        sizes = reversed(self._ev.sizes)  # the largest that was traced
        by_size = (self._ev.profiles.launches(row.variant, size) for size in sizes)
        traced = [launch for launch in next(filter(None, by_size), []) if launch.name == row.kernel]
        if traced:
            main = max(traced, key=lambda launch: launch.total_ns)
            threads = math.prod(int(extent) for extent in main.block.split("x"))
            return occupancy.occupancy(row.arch, threads, int(row.registers), int(main.shared_bytes))
        variant = self._ev.plan.variants[row.variant]
        block = variant.header.block
        if block is None or variant.header.shared_bytes or row.kernel != variant.kernel.partition("<")[0]:
            return None
        return occupancy.occupancy(row.arch, math.prod(block), int(row.registers), int(row.shared_bytes))
