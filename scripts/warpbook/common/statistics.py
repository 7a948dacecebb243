"""Medians and ratios with their 95 % intervals, and the verdicts that these allow."""

import math
from dataclasses import dataclass

import numpy as np

# Student's t, 97.5 % quantile, for 1 to 4 degrees of freedom (Abramowitz and Stegun, table 26.10): used below
# SMALLEST_RANKED samples, where no pair of order statistics covers the median with 95 % probability.
_T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
SMALLEST_RANKED = 6

AGREE_WITHIN = 0.02
"""A ratio of times taken apart that is no further from the paired one is not worth a word beside it."""

# Bootstrap resamples, drawn with a fixed seed so that the same samples give the same report.
_DRAWS, _SEED = 2000, 408


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

    def widen(self, drift: float) -> "Estimate":
        """The same, its ends farther by what may have differed between two measurements, as a share."""
        return Estimate(self.value, self.low / (1 + drift), self.high * (1 + drift), self.n)


def _rank(n: int) -> int:
    """0-based rank of the lower of the two order statistics, as far from both ends, that cover the median with at least 95 %
    probability, n >= 6. The number of samples below the median is binomial (n, 1/2): the distribution-free interval, David and
    Nagaraja, Order Statistics, section 7.1. Beyond a thousand samples, where 0.5**n underflows, its normal limit, widened by
    one."""
    if n > 1000:
        return math.floor(n / 2 - 1.96 * math.sqrt(n) / 2) - 1
    rank, probability = 0, 0.5**n
    tail = probability
    while True:
        probability *= (n - rank) / (rank + 1)
        if tail + probability > 0.025:
            return rank
        rank += 1
        tail += probability


def median(samples: np.ndarray, correlation_time: float = 1.0) -> Estimate:
    """Median of positive samples with a 95 % interval. From 6 samples on the interval lies between two order
    statistics, whatever the distribution; where `correlation_time` samples tell no more than one, it is as wide as that of so
    many fewer. From 2 to 5 it is Student's on the logarithms, around their mean, widened to hold the median."""
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
    middle = (n - 1) / 2
    first = max(0, math.floor(middle - (middle - _rank(n)) * math.sqrt(correlation_time)))
    return Estimate(centre, float(values[first]), float(values[n - 1 - first]), n)


def paired_ratio(numerators: np.ndarray, denominators: np.ndarray) -> Estimate:
    """Median of numerators over denominators, sample by sample in the order taken: neither side profits from a drift that
    both saw, and samples that come in bursts make the interval wider."""
    ratios = np.asarray(numerators, dtype=float) / np.asarray(denominators, dtype=float)
    return median(ratios, _correlation_time(ratios))


def _correlation_time(samples: np.ndarray) -> float:
    """How many neighbouring samples tell no more than one: 1, and twice the autocorrelations of their ranks, up to the first
    that may be chance (the integrated autocorrelation time: Sokal, Monte Carlo Methods in Statistical Mechanics, 1996)."""
    n = len(samples)
    _, place, count = np.unique(samples, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place] - (n + 1) / 2  # of equal samples the same, about 0
    if n < SMALLEST_RANKED or not ranks.any():
        return 1.0
    time = 1.0
    for lag in range(1, n // 3):
        correlation = float(ranks[:-lag] @ ranks[lag:] / (ranks @ ranks))
        if correlation < 1.96 / math.sqrt(n):
            break
        time += 2 * correlation
    return time


def unpaired_ratio(numerators: np.ndarray, denominators: np.ndarray) -> Estimate:
    """Ratio of two medians measured apart; its interval is made of theirs, and narrower than neither. In logarithms an
    end lies as far from the ratio as the two medians' ends from them, added as squares: Zou and Donner, Statistics in
    Medicine 27, 2008. The interval covers the samples' spread, but no drift between the two measurements."""
    above, below = median(numerators), median(denominators)
    down = math.hypot(math.log(above.value / above.low), math.log(below.high / below.value))
    up = math.hypot(math.log(above.high / above.value), math.log(below.value / below.low))
    value = above.value / below.value
    return Estimate(value, value * math.exp(-down), value * math.exp(up), min(above.n, below.n))


def agree(paired: Estimate, apart: Estimate) -> bool:
    """Whether a ratio of the same times taken apart is within a paired one's interval, or near it."""
    return paired.low <= apart.value <= paired.high or abs(apart.value / paired.value - 1) <= AGREE_WITHIN


def sum_of_medians(series: list[np.ndarray]) -> Estimate:
    """Sum of the medians of several series, with a bootstrap interval; NaN where a series has a single sample."""
    generator = np.random.default_rng(_SEED)
    value = float(sum(np.median(samples) for samples in series))
    n = min(len(samples) for samples in series)
    if n == 1:
        return Estimate(value, math.nan, math.nan, 1)
    return _bootstrap_estimate(value, np.sum([_bootstrap_medians(samples, generator) for samples in series], axis=0), n)


def ratio_of_sums(numerators: list[np.ndarray], denominators: list[np.ndarray], paired: bool) -> Estimate:
    """Ratio of two sums of medians, with a bootstrap interval; NaN where a series has a single sample. `paired`:
    samples of one round are drawn together; of few samples the rounds' ratios are. The interval is wider for bursts then."""
    generator = np.random.default_rng(_SEED)
    value = float(sum(map(np.median, numerators)) / sum(map(np.median, denominators)))
    n = min(len(samples) for samples in [*numerators, *denominators])
    if n == 1:
        return Estimate(value, math.nan, math.nan, 1)
    above, below = np.zeros(_DRAWS), np.zeros(_DRAWS)
    for top, bottom in zip(numerators, denominators, strict=True):
        if paired and len(top) < SMALLEST_RANKED:
            drawn = _bootstrap_medians(bottom, generator)
            above += drawn * _bootstrap_medians(top / bottom, generator)
            below += drawn
        elif paired:
            drawn = generator.integers(len(top), size=(_DRAWS, len(top)))
            above += _resample_medians(top, drawn)
            below += _resample_medians(bottom, drawn)
        else:
            above += _bootstrap_medians(top, generator)
            below += _bootstrap_medians(bottom, generator)
    ratios = [top / bottom for top, bottom in zip(numerators, denominators, strict=True)] if paired else []
    times = max(map(_correlation_time, ratios), default=1.0)
    return _bootstrap_estimate(value, value * (above / below / value) ** math.sqrt(times), n)


def _bootstrap_medians(samples: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draws of a median: by bootstrap; below SMALLEST_RANKED samples, of which that makes too little spread, from
    Student's distribution on the logarithms, as `median` has it."""
    n = len(samples)
    if n >= SMALLEST_RANKED:
        return _resample_medians(samples, generator.integers(n, size=(_DRAWS, n)))
    logs = np.log(samples)
    drawn = logs.mean() + generator.standard_t(n - 1, _DRAWS) * logs.std(ddof=1) / math.sqrt(n)
    medians: np.ndarray = np.exp(np.clip(drawn, -300, 300))  # with two samples, the tails overflow a float
    return medians


def _resample_medians(samples: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    values = np.sort(samples[drawn], axis=1)  # the same medians as np.median's in an eighth of its time
    middle = values.shape[1] // 2
    medians: np.ndarray = values[:, middle]
    return medians if values.shape[1] % 2 else (values[:, middle - 1] + medians) / 2


def _bootstrap_estimate(value: float, drawn: np.ndarray, n: int) -> Estimate:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(value, min(float(low), value), max(float(high), value), n)


def share(found: int, n: int) -> Estimate:
    """The share of `n` trials that found something, with Wilson's 95 % interval (Journal of the American Statistical
    Association 22, 1927)."""
    z2 = 1.96**2
    middle, half = found + z2 / 2, math.sqrt(z2 * (found * (n - found) / n + z2 / 4))
    return Estimate(found / n, (middle - half) / (n + z2), (middle + half) / (n + z2), n)


SAMPLES_MOST = 10_000  # of a series: more would be measured for hours


DECISIVE = 1.31
"""The width of a 99 % interval over that of a 95 % one, of a normal distribution. Of 376 comparisons of kernels with their own
copies on two GPUs, 95 % intervals called 2.7 % different and 99 % ones 0.5 %; of a difference of 2 % they found 98 % and 94 %."""


def samples_to_decide(speedup: Estimate, equivalence_margin: float, beyond: float) -> int | None:
    """How many samples would narrow the interval of `speedup`, by the square root of their number, until `verdict` is
    not ambiguous. None where no number would do."""
    below, above = speedup.value - speedup.low, speedup.high - speedup.value
    if not math.isfinite(below) or not math.isfinite(above):
        return None
    if speedup.value < 1 - beyond:
        ends = [(DECISIVE * above, 1 - beyond - speedup.value)]
    elif speedup.value > 1 + beyond:
        ends = [(DECISIVE * below, speedup.value - 1 - beyond)]
    else:
        ends = [(below, speedup.value - 1 + equivalence_margin), (above, 1 + equivalence_margin - speedup.value)]
    if any(room <= 0 for _, room in ends):
        return None
    return math.ceil(speedup.n * max(width / room for width, room in ends) ** 2)


def verdict(speedup: Estimate, equivalence_margin: float, beyond: float = 0.0) -> str:
    """A speedup's verdict: same where its interval lies within `equivalence_margin` of 1; faster or slower where that of 99 %
    lies `beyond` 1; else ambiguous."""
    if not math.isfinite(speedup.low):
        return "ambiguous"
    if 1 - equivalence_margin <= speedup.low and speedup.high <= 1 + equivalence_margin:
        return "same"
    if speedup.value - DECISIVE * (speedup.value - speedup.low) > 1 + beyond:
        return "faster"
    if speedup.value + DECISIVE * (speedup.high - speedup.value) < 1 - beyond:
        return "slower"
    return "ambiguous"


def agreed_verdict(by_host: Estimate, by_device: Estimate | None, equivalence_margin: float) -> str:
    """The verdict on a speedup that two clocks tell: faster or slower where that of the device's clock lies beyond the margin
    too, ambiguous where they differ. A process's core and its neighbours shift all of its times on the host's clock by
    microseconds: of identical kernels of 30 µs every second comparison differed significantly by that clock alone.
    """
    told = verdict(by_host, equivalence_margin)
    if by_device is None:
        return told
    second = verdict(by_device, equivalence_margin, beyond=equivalence_margin)
    return told if second == told or (told, second) == ("same", "ambiguous") else "ambiguous"
