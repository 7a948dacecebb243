"""Numbers for people: the only place that rounds and rescales."""

import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from warpbook.common.statistics import Estimate

MISSING = "–"


def significant(value: float, digits: int = 4) -> str:
    """A number with so many significant digits and no exponent: 3.778, 22.40, 1134, 0.0108."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return f"{value:,.0f}".replace(",", "\u202f") if decimals == 0 and abs(value) >= 10_000 else text


def milliseconds(value: float | None, digits: int = 4) -> str:
    """A time in ms, without its unit, for a table whose head names it."""
    return MISSING if value is None else significant(value, digits)


def time(ms: float | None, digits: int = 4) -> str:
    """A time in the unit that suits it: 8.97 µs, 3.778 ms, 15.27 s."""
    if ms is None or math.isnan(ms):
        return MISSING
    for scale, unit in ((1e3, "s"), (1.0, "ms"), (1e-3, "µs")):
        if abs(ms) >= scale:
            return f"{significant(ms / scale, digits)}\u202f{unit}"
    return f"{significant(ms * 1e6, digits)}\u202fns"


def spread(estimate: Estimate | None) -> str:
    """Half the interval's width in percent of the value: ±0.3 %. Empty where there is no interval."""
    if estimate is None or not math.isfinite(estimate.low):
        return ""
    noise = 100 * estimate.relative_noise
    if noise > 100:
        return "±>100\u202f%"
    return f"±{noise:.1f}\u202f%" if noise >= 0.05 else "±<0.1\u202f%"


def ratio(value: float | None) -> str:
    """A speedup: 1.14×, 12.9×, 1 523×."""
    if value is None or math.isnan(value):
        return MISSING
    if value >= 1000:
        return f"{value:,.0f}×".replace(",", "\u202f")
    return f"{significant(value, 3)}×"


def ratio_interval(estimate: Estimate | None) -> str:
    """The interval of a speedup, with enough digits to tell its ends apart: [1.138, 1.142]."""
    if estimate is None or not math.isfinite(estimate.low):
        return "no interval"
    decimals = _ratio_decimals(estimate)
    return f"[{estimate.low:.{decimals}f}, {estimate.high:.{decimals}f}]"


def ratio_ends(estimate: Estimate) -> str:
    """The ends of a speedup's interval as words, where no number between them is quoted: 16× to 30×."""
    decimals = _ratio_decimals(estimate)
    return f"{estimate.low:.{decimals}f}× to {estimate.high:.{decimals}f}×"


def ratio_beside_interval(estimate: Estimate) -> str:
    """A speedup with as many digits as its interval, beside which it stands: 1.140×."""
    if not math.isfinite(estimate.low) or estimate.value >= 1000:
        return ratio(estimate.value)
    return f"{estimate.value:.{_ratio_decimals(estimate)}f}×"


def ratio_and_interval(estimate: Estimate, mark: str = "") -> str:
    """Both, with a mark such as † behind the speedup: 1.140×† [1.138, 1.142]."""
    return f"{ratio_beside_interval(estimate)}{mark} {ratio_interval(estimate)}"


def _ratio_decimals(estimate: Estimate) -> int:
    width = max(estimate.high - estimate.low, estimate.value / 1e6)
    return max(0, min(1 - math.floor(math.log10(width)), 3 - math.floor(math.log10(estimate.value))))


def sample_size(estimates: Iterable[Estimate]) -> str:
    """The number of samples behind an interval, or the least and the most behind several: n 300, n 6 to 300."""
    sizes = sorted(estimate.n for estimate in estimates)
    if not sizes:
        return ""
    return f"n\u202f{sizes[0]}" if sizes[0] == sizes[-1] else f"n\u202f{sizes[0]} to {sizes[-1]}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1 in percent."""
    return MISSING if share is None or math.isnan(share) else f"{100 * share:.{digits}f}\u202f%"


def percent_interval(share: Estimate) -> str:
    """A share in percent with its interval, without the sign, for a table whose head names it: 2.7 [1.5, 4.9]."""
    value, low, high = (f"{100 * one:.1f}" for one in (share.value, share.low, share.high))
    return f"{value} [{low}, {high}]"


def nvprof_time(ns: float) -> str:
    """A time as nvprof prints it: 1.97931s, 118.49ms, 3.7341ms, 949.53us, 897ns."""
    # Five digits first: what rounds up to the next unit is printed in it.
    rounded = float(f"{ns:.5g}")
    if rounded >= 1e9:
        return f"{ns / 1e9:.5f}s"
    for scale, unit in ((1e6, "ms"), (1e3, "us")):
        if rounded >= scale:
            value = rounded / scale
            return f"{value:.{4 - math.floor(math.log10(value))}f}{unit}"
    return f"{ns:.0f}ns"


def gnu_time(run: Any) -> str:
    """GNU time's report on a row of PROGRAMS, in two lines; the first alone where the run counted no page faults."""
    minutes, seconds = divmod(run.elapsed_s, 60)
    cpu = 100 * (run.user_s + run.system_s) / run.elapsed_s
    first = (
        f"{run.user_s:.2f}user {run.system_s:.2f}system {minutes:.0f}:{seconds:05.2f}elapsed {cpu:.0f}%CPU "
        f"(0avgtext+0avgdata {run.max_rss_kib}maxresident)k"
    )
    counts = (run.input_blocks, run.output_blocks, run.major_faults, run.minor_faults)
    if not all(isinstance(count, Integral) for count in counts):
        return first
    inputs, outputs, major, minor = counts
    return f"{first}\n{inputs}inputs+{outputs}outputs ({major}major+{minor}minor)pagefaults 0swaps"


def mebibytes(kib: float | None) -> str:
    """Memory given in KiB, in MiB."""
    return MISSING if kib is None or math.isnan(kib) else f"{kib / 1024:.0f}"


def seconds(value: float | None) -> str:
    """A time in s, without its unit, to hundredths as GNU time has it."""
    return MISSING if value is None or math.isnan(value) else f"{value:.2f}"


def scientific(value: float | None) -> str:
    """A small number with two significant digits: 2.8e−07; 0 when it is."""
    if value is None or math.isnan(value):
        return MISSING
    return "0" if value == 0 else f"{value:.1e}".replace("-", "−")


def count(value: int) -> str:
    """A whole number with narrow no-break spaces between thousands, from 10 000 on."""
    return f"{value:,}".replace(",", "\u202f") if value >= 10_000 else str(value)


def number_word(number: int) -> str:
    """A small number as a sentence has it: two; one of more than ten in digits."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else count(number)


def join_some(names: Sequence[str], most: int = 5) -> str:
    """Names in a line, those beyond so many counted: a, b and 4 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def join_all(names: Sequence[str]) -> str:
    """All of some names in a sentence: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def quantity(value: float, name: str) -> str:
    """A figure whose quantity ends in its unit: op_ms, elapsed_s, max_rss_kib; accuracy has none."""
    if name.endswith("_ms"):
        return time(value)
    if name.endswith("_kib"):
        return f"{mebibytes(value)}\u202fMiB"
    return f"{seconds(value)}\u202fs" if name.endswith("_s") else significant(value)
