"""Readings of counters as a profile prints them: of one launch, or over all launches of a kernel."""

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache

from warpbook.common.errors import UserError
from warpbook.profiling.profile_schema import Profile, Row, clean, reject_strange_name

SPREAD = ("minimum", "maximum", "average")
_SPREAD_END = re.compile(rf" \((?:{'|'.join(SPREAD)})\)$")  # of a counter over several launches
_RATES = {f"{prefix}B/s": 1024**power for power, prefix in enumerate(("", "K", "M", "G", "T"))}
_NO_METRIC, _NO_UNIT = re.compile(r"^[^A-Za-z]*$|/$"), re.compile(r"^[\d.,]+$|\d[.,]\d|^/|/$")
_UNITS = (
    (r"__time_duration\.\w+$|/Duration$", r"[num]?s(ec(ond)?s?)?", "a time"),
    (r"__bytes(_\w+)?\.(sum|avg|min|max)$", r"[KMGT]?i?b(yte)?s?", "bytes"),
    (r"__bytes(_\w+)?\.\w+\.per_second$", r"[KMGT]?i?b(yte)?s?/(s|second)", "bytes a second"),
    (r"\.pct(_of_peak_\w+)?$|/(Achieved|Theoretical) Occupancy$|Hit Rate$", "%", "percent"),
    (r"Throughput$", r"%|[KMGT]?i?b(yte)?s?/(s|second)", "percent or bytes a second"),
    (r"Frequency$", r"(.* )?[KMGT]?hz|cycle/[num]?s(econd)?", "cycles a second"),
    (r"/(Elapsed|\w+ Active) Cycles$", r"cycles?", "cycles"),
)
"""Metrics of ncu, the units that they are printed in, and what they measure."""
_PEAK_PERCENT = 200.0
_SHARE = re.compile(r"_of_peak_\w+$|Throughput$|Occupancy$")
_ROUNDING = 1e-3
_LOST_OF_A_RATE = 10**6  # nvprof cuts averages off to whole 10^6 B/s, but not the extremes


def _contradiction(metric: str, unit: str, value: float | None) -> str:
    """Why a reading of ncu's cannot be right: another unit than its metric has, or an impossible amount; else empty."""
    wrong, most = _expected(metric, unit)
    if not wrong and value is not None and not 0 <= value <= most:
        return f"{metric} cannot be {value:g} {unit}".rstrip()
    return wrong


@cache  # a file has many launches of few metrics
def _expected(metric: str, unit: str) -> tuple[str, float]:
    """Why a metric cannot have a unit, else empty; and its most."""
    name = _SPREAD_END.sub("", metric)
    for pattern, units, what in _UNITS:
        if re.search(pattern, name) and not re.fullmatch(units, unit, re.IGNORECASE):
            return f"{metric} is {what}, and its unit is {unit or 'missing'}", math.inf
    return "", _PEAK_PERCENT if unit == "%" and _SHARE.search(name) else math.inf


@dataclass(frozen=True)
class _LaunchFacts:
    number: int
    kernel: str
    launches: int | None
    shape: str


class Readings:
    """The counters of one file. UserError with the line for a second reading of the same counter, and, where ncu printed
    them for others (`of_ncu`), for a reading that its metric cannot have."""

    def __init__(self, origin: str, of_ncu: bool = False) -> None:
        self.origin, self._of_ncu = origin, of_ncu
        self._launches: dict[Hashable, _LaunchFacts] = {}
        self._readings: dict[tuple[int, str], tuple[str, float | None]] = {}
        self.words: set[str] = set()
        """Counters whose reading is a word: none of their rows is kept."""
        self.devices: dict[str, None] = {}

    def launch(self, key: Hashable, kernel: str, launches: int | None = None, shape: str = "") -> Hashable:
        """Number the launch that `key` tells from others; gives the key back. ValueError where it contradicts."""
        reject_strange_name(clean(kernel))
        new = _LaunchFacts(len(self._launches), clean(kernel), launches, shape)
        known = self._launches.setdefault(key, new)
        if (known.kernel, known.launches) != (new.kernel, launches):
            raise ValueError(
                f"{launches} launches of {clean(kernel)[:60]}, and {known.launches} of {known.kernel[:60]} above: the "
                "line that names a kernel is missing between them"
            )
        return key

    def add(
        self, line: int, key: Hashable, metric: str, unit: str, value: float | None, once_more: bool = False
    ) -> None:
        """Add a reading. `once_more`: the same reading may stand there again, as in CSV."""
        launch = self._launches[key]
        for what, text, strange in (("name of a counter", metric, _NO_METRIC), ("unit", unit, _NO_UNIT)):
            if strange.search(text):
                raise UserError(f"{self.origin}, line {line}: {text[:60]!r} is no {what}: a cell is lost, or moved")
        unit = clean(unit).replace("\u00b5", "u").replace("\u03bc", "u")
        if self._of_ncu and (wrong := _contradiction(metric, unit, value)):
            raise UserError(f"{self.origin}, line {line}: {wrong}: a cell is lost, or another number stands there")
        reading = (unit, value)
        if self._readings.setdefault((launch.number, metric), reading) is not reading and not (
            once_more and self._readings[launch.number, metric] == reading
        ):
            raise UserError(
                f"{self.origin}, line {line}: a second value of {metric} for {launch.kernel[:60]}: a line stands "
                "twice, or the line that names the next launch is missing"
            )

    def add_spread(self, line: int, key: Hashable, metric: str, spread: Sequence[tuple[str, float | None]]) -> None:
        """(unit, value) of least, most and average over a kernel's launches: one reading where there is one launch."""
        units = {unit for unit, _ in spread}
        scaled = [value * _RATES.get(unit, 1) for unit, value in spread if value is not None]
        if len(scaled) == 3 and (len(units) == 1 or units <= _RATES.keys()):
            least, most, middle = scaled
            slack = _ROUNDING * max(abs(least), abs(most)) + _LOST_OF_A_RATE * (units <= _RATES.keys())
            if not least - slack <= middle <= most + slack:
                low, high, average = (f"{value:g} {unit}".rstrip() for unit, value in spread)
                raise UserError(
                    f"{self.origin}, line {line}: the average of {metric}, {average}, is outside its {low} to {high}"
                )
        if self._launches[key].launches == 1:
            if spread[0] != spread[1]:
                raise UserError(f"{self.origin}, line {line}: two values of {metric} over one launch")
            self.add(line, key, metric, *spread[0])
            return
        for which, (unit, value) in zip(SPREAD, spread, strict=True):
            self.add(line, key, f"{metric} ({which})", unit, value)

    def __len__(self) -> int:
        return len(self._launches)

    def rows(self) -> list[Row]:
        """Rows of COUNTERS without variant and size; of several shapes, each behind the name. UserError if none."""
        if not self._readings:
            raise UserError(f"{self.origin} names counters and holds no reading of any")
        launches = {launch.number: launch for launch in self._launches.values()}
        shapes = defaultdict(set)
        for launch in launches.values():
            shapes[launch.kernel].add(launch.shape)
        rows = []
        for (number, metric), (unit, value) in self._readings.items():
            if metric not in self.words:
                launch = launches[number]
                kernel = f"{launch.kernel} {launch.shape}" if len(shapes[launch.kernel]) > 1 else launch.kernel
                row = {"launch": number, "kernel": kernel.strip(), "metric": metric, "unit": unit, "value": value}
                rows.append({**row, "launches": launch.launches})
        return rows

    def profile(
        self, what: str, tool: str, ranges: dict[int, str] | None = None, left_out: Sequence[str] = ()
    ) -> Profile:
        """The profile that the readings make; `left_out` is what the file holds besides."""
        omissions = [f"{len(self.words)} metrics that are words"] if self.words else []
        held = {(number, _SPREAD_END.sub("", metric)) for number, metric in self._readings}
        launches, metrics = (len(set(keys)) for keys in zip(*held, strict=True)) if held else (0, 0)
        if missing := launches * metrics - len(held):
            omissions.append(f"{missing} counters that only other launches have")
        device = ", ".join(filter(None, self.devices))
        return Profile(what, tool, [], [], self.rows(), ranges or {}, (*omissions, *left_out), device)
