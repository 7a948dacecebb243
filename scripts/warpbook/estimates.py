"""Medians, ratios and their 95 % intervals, and what may be concluded from them."""

import math
from dataclasses import dataclass

import numpy as np

# Student's t, 97.5 % quantile, for 1 to 4 degrees of freedom (Abramowitz and Stegun, table 26.10): used below
# SMALLEST_RANKED samples, where no pair of order statistics covers the median with 95 % probability.
_T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
SMALLEST_RANKED = 6


@dataclass(frozen=True)
class Estimate:
    """A centre and its 95 % interval; the interval is NaN where a single sample gives none."""

    value: float
    low: float
    high: float
    n: int

    @property
    def relative_noise(self) -> float:
        """Half the interval's width over the value; infinite where there is no interval."""
        return (self.high - self.low) / 2 / self.value if math.isfinite(self.low) else math.inf


def _ranks(n: int) -> tuple[int, int]:
    """0-based ranks of the two order statistics that cover the median with at least 95 % probability, n >= 6.

    The number of samples below the median is binomial (n, 1/2): the distribution-free interval, David and Nagaraja,
    Order Statistics, section 7.1. Beyond a thousand samples, where 0.5**n underflows, its normal limit, widened by one.
    """
    if n > 1000:
        rank = math.floor(n / 2 - 1.96 * math.sqrt(n) / 2) - 1
        return rank, n - 1 - rank
    rank, probability = 0, 0.5**n
    tail = probability
    while True:
        probability *= (n - rank) / (rank + 1)
        if tail + probability > 0.025:
            return rank, n - 1 - rank
        rank += 1
        tail += probability


def median(samples: np.ndarray) -> Estimate:
    """Median of positive samples with a 95 % interval.

    From 6 samples on the interval lies between two order statistics, whatever the distribution. From 2 to 5 it is Student's
    on the logarithms, around their mean, widened to hold the median.
    """
    values = np.sort(np.asarray(samples, dtype=float))
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    centre = float(np.median(values))
    if n == 1:
        return Estimate(centre, math.nan, math.nan, 1)
    if n < SMALLEST_RANKED:
        logs = np.log(values)
        half = _T_975[n - 1] * logs.std(ddof=1) / math.sqrt(n)
        low, high = math.exp(logs.mean() - half), math.exp(logs.mean() + half)
        return Estimate(centre, min(low, centre), max(high, centre), n)
    first, last = _ranks(n)
    return Estimate(centre, float(values[first]), float(values[last]), n)


def paired_ratio(numerators: np.ndarray, denominators: np.ndarray) -> Estimate:
    """Median of numerators over denominators, sample by sample: neither side profits from a drift that both saw."""
    return median(np.asarray(numerators, dtype=float) / np.asarray(denominators, dtype=float))


def unpaired_ratio(numerators: np.ndarray, denominators: np.ndarray, seed: int = 408) -> Estimate:
    """Ratio of two medians measured apart, with a bootstrap percentile interval; NaN when either has one sample.

    The interval knows the samples' spread and not a drift between the two measurements.
    """
    above, below = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    n = min(len(above), len(below))
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    value = float(np.median(above) / np.median(below))
    if n == 1:
        return Estimate(value, math.nan, math.nan, 1)
    generator = np.random.default_rng(seed)
    draws = 2000
    resampled = [np.median(generator.choice(side, (draws, len(side))), axis=1) for side in (above, below)]
    low, high = np.quantile(resampled[0] / resampled[1], [0.025, 0.975])
    return Estimate(value, float(low), float(high), n)


def verdict(speedup: Estimate, same_within: float) -> str:
    """faster, slower, same or ambiguous: what a speedup (baseline's time over the variant's) and its interval allow to say.

    same: the whole interval lies within `same_within` of 1. faster, slower: it lies beyond 1. Else ambiguous.
    """
    if not math.isfinite(speedup.low):
        return "ambiguous"
    if 1 - same_within <= speedup.low and speedup.high <= 1 + same_within:
        return "same"
    if speedup.low > 1:
        return "faster"
    if speedup.high < 1:
        return "slower"
    return "ambiguous"
