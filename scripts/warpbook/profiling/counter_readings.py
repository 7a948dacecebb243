"""Readings of counters as a profile prints them: of one launch, or over all launches of a kernel."""

from collections.abc import Hashable, Sequence

from warpbook.common.errors import UserError
from warpbook.profiling.profile_schema import Row, clean

SPREAD = ("minimum", "maximum", "average")
_ROUNDING = 1e-3  # nvprof prints averages of rates outside their own extremes, by so much


class Readings:
    """The counters of one file. UserError with the line for a second reading of the same counter."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._launches: dict[Hashable, tuple[int, str, int | None]] = {}
        self._readings: dict[tuple[int, str], tuple[str, float | None]] = {}
        self.words: set[str] = set()
        """Counters whose reading is a word: none of their rows is kept."""

    def launch(self, key: Hashable, kernel: str, launches: int | None = None) -> Hashable:
        """Number the launch, or the kernel of so many launches, that `key` tells from others; gives the key back."""
        self._launches.setdefault(key, (len(self._launches), clean(kernel), launches))
        return key

    def add(self, line: int, key: Hashable, metric: str, unit: str, value: float | None) -> None:
        number, kernel, _ = self._launches[key]
        if (number, metric) in self._readings:
            raise UserError(
                f"{self._origin}, line {line}: a second value of {metric} for {kernel[:60]}; "
                "give the lines of one profile, as --lines 1-99"
            )
        self._readings[number, metric] = (clean(unit), value)

    def add_spread(self, line: int, key: Hashable, metric: str, spread: Sequence[tuple[str, float | None]]) -> None:
        """(unit, value) of least, most and average over a kernel's launches: one reading where there is one launch."""
        (_, least), (_, most), (unit, average) = spread
        one_unit = len({unit for unit, _ in spread}) == 1
        if one_unit and least is not None and most is not None and average is not None:
            slack = _ROUNDING * max(abs(least), abs(most))
            if not least - slack <= average <= most + slack:
                raise UserError(
                    f"{self._origin}, line {line}: the average of {metric}, {average:g}, is outside its {least:g} to "
                    f"{most:g}"
                )
        if self._launches[key][2] == 1:
            self.add(line, key, metric, unit, average)
            return
        for which, (unit, value) in zip(SPREAD, spread, strict=True):
            self.add(line, key, f"{metric} ({which})", unit, value)

    def __len__(self) -> int:
        return len(self._launches)

    def rows(self) -> list[Row]:
        """Rows of COUNTERS, as yet without variant and size; UserError where there are none."""
        if not self._readings:
            raise UserError(f"{self._origin} names counters and holds no reading of any")
        kernels = {number: (kernel, launches) for number, kernel, launches in self._launches.values()}
        rows = []
        for (number, metric), (unit, value) in self._readings.items():
            if metric not in self.words:
                kernel, launches = kernels[number]
                row = {"launch": number, "kernel": kernel, "metric": metric, "unit": unit, "value": value}
                rows.append({**row, "launches": launches})
        return rows

    @property
    def omissions(self) -> tuple[str, ...]:
        return (f"{len(self.words)} metrics that are words",) if self.words else ()
