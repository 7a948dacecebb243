"""What the compiler made of each kernel: here, or in the run cited for the GPU where nothing has changed since."""

from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import tables


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
