"""How busy other programs keep this machine's processors while something is timed on them."""

import os
import re
import time
from pathlib import Path

from warpbook.common.files import COMMAND

WINDOW_S = 0.25
"""The kernel counts in ticks of 10 ms: over a shorter time its count is no measure of the processors."""

_STAT = Path("/proc/stat")


def _busy_s(processors: set[int]) -> float | None:
    """Seconds that processors have worked since the machine started, for whomever; None where that is unknown."""
    try:
        lines = re.findall(r"^cpu(\d+) (.+)", _STAT.read_text(), re.MULTILINE)
    except OSError:
        return None
    ticks = 0
    for number, counts in lines:
        if int(number) in processors:
            user, nice, system, _, _, interrupts, soft_interrupts, stolen, *_ = map(int, counts.split())
            ticks += user + nice + system + interrupts + soft_interrupts + stolen
    return ticks / os.sysconf("SC_CLK_TCK")


class LoadMeter:
    """Processors that others kept busy since it was last asked, of those that this process may use."""

    def __init__(self, tolerated: float = 0.0):
        """`tolerated`: processors that others may always take."""
        self._tolerated = tolerated
        self._processors = os.sched_getaffinity(0)
        self._begin()

    def _begin(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy_s(self._processors), time.process_time()

    @property
    def is_due(self) -> bool:
        """Whether the window is long enough to tell."""
        return time.monotonic() - self._began >= WINDOW_S

    def reason(self, children_s: float = 0.0) -> str | None:
        """Why nothing timed in this window is a figure, empty where others were not in the way; the next begins. None
        where the window is too short to tell: it goes on. `children_s`: processor time in it of what this process
        started. Others may take half of the processors that what is timed leaves idle."""
        if not self.is_due:
            return None  # at once: this is asked between two samples
        own, others = self._measure(children_s)
        if others <= max(self._tolerated, (len(self._processors) - own) / 2):
            return ""
        return (
            f"busy machine: other programs kept {others:.2g} of {len(self._processors)} processors busy; close them and "
            f"measure again: {COMMAND} report --forcerun run_program (tolerated_load in config.yaml)"
        )

    def share_of_others(self, children_s: float = 0.0) -> float:
        """What share of the processors others kept busy in this window, as for `reason`; 0 where the window is too short
        to tell."""
        return self._measure(children_s)[1] / len(self._processors) if self.is_due else 0.0

    def _measure(self, children_s: float) -> tuple[float, float]:
        """Processors that this process and what it started kept busy, and others; the next window begins."""
        wall_s = time.monotonic() - self._began
        busy = _busy_s(self._processors)
        own = (time.process_time() - self._own + children_s) / wall_s
        others = 0.0 if busy is None or self._busy is None else (busy - self._busy) / wall_s - own
        self._begin()
        return own, others
