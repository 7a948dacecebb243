"""How far the harness itself is to be trusted: A/A tests, and what a run holds only where it was asked to."""

from functools import cached_property

import pandas as pd

from warpbook import estimates, summaries, tables
from warpbook.report.evidence.scope import Scope
from warpbook.report.evidence.selection import Selection


class Trust:
    """Measurements of the harness, over all networks of the run that GPU figures come from."""

    def __init__(self, scope: Scope, selection: Selection):
        self._scope, self._selection = scope, selection

    @cached_property
    def aa_tests(self) -> pd.DataFrame:
        """A variant against its own copy: variant, network, layer, size, state, kind, value, low, high, verdict.
        Whatever is called faster or slower is an error."""
        columns = ["variant", "network", "layer", "size", "state", "kind", "value", "low", "high", "verdict"]
        rows = []
        run = self._scope.gpu_run
        samples = run.table(tables.SAMPLES) if run else tables.SAMPLES.empty()
        samples = samples[samples.job.str.startswith("aa:")]
        samples = samples.assign(sound_ms=summaries.sound_ms(samples))
        for key, group in samples.groupby(["job", *columns[1:6]], sort=False):
            name = str(key[0]).split(":")[1]
            sides = group.pivot(index="sample", columns="variant", values="sound_ms").dropna()
            if sides.shape[1] == 2 and len(sides):
                ratio = estimates.paired_ratio(sides[f"{name}:aa"].to_numpy(), sides[name].to_numpy())
                verdict = estimates.verdict(ratio, self._scope.config.measuring.same_within)
                rows.append([name, *key[1:], ratio.value, ratio.low, ratio.high, verdict])
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def attacks(self) -> pd.DataFrame:
        """Kernels that cheat, and what caught each."""
        return self._selection.optional(tables.ATTACKS)

    @cached_property
    def sanitizer(self) -> pd.DataFrame:
        """Errors that compute-sanitizer counted."""
        return self._selection.optional(tables.SANITIZER)

    @cached_property
    def sweep(self) -> pd.DataFrame:
        """Configurations of a variant's parameters that ran."""
        frame = self._selection.optional(tables.SWEEP)
        return frame[frame.status == "ok"]
