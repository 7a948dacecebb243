"""How far the harness itself is to be trusted: A/A tests, kernels whose difference is known, and what else a run holds only
where it was asked to."""

from functools import cached_property

import pandas as pd

from warpbook.common import statistics
from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import summaries, tables


class MeasurementValidity(EvidencePart):
    """Measurements of the harness, over all networks of the run that GPU figures come from."""

    @cached_property
    def aa_tests(self) -> pd.DataFrame:
        """Variants against their own copies, a ratio and verdict each; faster or slower is an error."""
        columns = ["variant", "network", "layer", "size", "state", "kind", "value", "low", "high", "verdict"]
        samples = self._ev.selection.run_rows(tables.SAMPLES)
        samples = samples[samples.job.str.startswith("aa:")]
        samples = samples.assign(sound_ms=summaries.sound_ms(samples))
        series = ["job", *columns[1:6]]
        copies, own = samples.variant.str.endswith(":aa"), samples.variant == samples.job.str.split(":").str[1]
        beside = samples.loc[own, [*series, "sample", "sound_ms"]]
        pairs = samples[copies].merge(beside, on=[*series, "sample"], suffixes=("_aa", ""))
        pairs = pairs[pairs.sound_ms.notna() & pairs.sound_ms_aa.notna()]
        ratios = {
            key: statistics.paired_ratio(group.sound_ms_aa.to_numpy(), group.sound_ms.to_numpy())
            for key, group in pairs.groupby(series, sort=False)
        }
        rows = []
        for (job, *place, kind), ratio in ratios.items():
            second = ratios.get((job, *place, "gpu")) if kind == "op" else None
            verdict = statistics.agreed_verdict(ratio, second, self._ev.config.measuring.equivalence_margin)
            rows.append([str(job).split(":")[1], *place, kind, ratio.value, ratio.low, ratio.high, verdict])
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def pair_verdicts(self) -> list[summaries.PairVerdicts]:
        """Verdicts on kernels whose difference is known, on the study's GPU."""
        rows = self._ev.selection.run_rows(tables.PAIRS)
        return summaries.judge_pairs(rows[rows.device == "gpu"], self._ev.config.measuring.equivalence_margin)

    @cached_property
    def attacks(self) -> pd.DataFrame:
        """Kernels that cheat, and what caught each."""
        return self._ev.selection.optional_rows(tables.ATTACKS)

    @cached_property
    def sanitizer(self) -> pd.DataFrame:
        """Errors that compute-sanitizer counted."""
        return self._ev.selection.optional_rows(tables.SANITIZER)

    @cached_property
    def sweep(self) -> pd.DataFrame:
        """Configurations of a variant's parameters that ran."""
        frame = self._ev.selection.optional_rows(tables.SWEEP)
        return frame[frame.status == "ok"]
