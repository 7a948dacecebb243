"""The GPU's SM clock, power limit and slowdowns, and whether its figures can be trusted, read through NVML."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from warpbook.harness.bench import OTHERS_COMPUTE, SteadyCall, WorkerProcess
from warpbook.machine.cuda_devices import Device

# Reasons that mean that the device could not run as fast as it otherwise would.
_SLOWDOWNS = (
    pynvml.nvmlClocksThrottleReasonSwPowerCap
    | pynvml.nvmlClocksThrottleReasonHwSlowdown
    | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
)

_STOPPED = "NVML stopped answering"

HELD_LOW = 0.6
"""A clock that no slowdown holds down, and that stays below this share of its most, was locked there."""

ENDING_S, POLL_INTERVAL_S = 1.0, 0.02  # the driver may list a process for so long after its end
SAMPLE_S = 1.0  # at most so much time of processes is in one of NVML's samples of how busy they keep a device


STEADY_S, WARMING_S, WATCHING_S, LEAST_MOVES = 0.5, 0.2, 0.002, 3
"""Of a row of calls for its energy: its length, that of one before it, how often the counter is read, and how often it has
to move."""


class Clock:
    """The clock of one device. Where NVML does not answer, readings are None, and `problem` says why."""

    def __init__(self, device: Device):
        self._handle = None
        self.problem = ""
        self._sliced = False
        self._highest_mhz = 0.0  # of the readings since the last question, slowdowns left out
        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            for handle in handles:
                if _uuid_sha256(pynvml.nvmlDeviceGetUUID(handle)) == device.uuid_sha256:
                    self._handle = handle
            # A slice may have a UUID of its own, which is not in the list.
            self._sliced = any(map(_mig_enabled, handles if self._handle is None else [self._handle]))
            if self._handle is None:
                self.problem = "NVML lists no device with the UUID of the CUDA device"
        except pynvml.NVMLError as error:
            self.problem = f"NVML does not answer: {error}"
        self._asked_us = time.time_ns() // 1000
        self._settings = self._read_settings()
        self.workers: Sequence[WorkerProcess] = ()
        """Processes that compute for this one."""

    def read(self) -> tuple[float | None, bool]:
        """(SM clock in MHz, whether a slowdown is active now)."""
        if self._handle is None:
            return None, False
        try:
            clock = float(pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM))
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        except pynvml.NVMLError as error:
            self._handle, self.problem = None, f"{_STOPPED}: {error}"
            return None, False
        if not reasons & (_SLOWDOWNS | pynvml.nvmlClocksThrottleReasonGpuIdle):
            self._highest_mhz = max(self._highest_mhz, clock)
        return clock, bool(reasons & _SLOWDOWNS)

    def steady_call(self, call: Callable[[int], int], call_ms: float) -> SteadyCall | None:
        """A call in a row of calls; `call` makes about so many, waits for them, and says how many; `call_ms` is about what
        one takes alone. None where NVML does not tell the device's energy."""
        if self._query(pynvml.nvmlDeviceGetTotalEnergyConsumption) is None:
            return None

        def take(seconds: float, each_ms: float) -> tuple[int, float]:
            """(calls made, seconds they took)."""
            began = time.perf_counter()
            made = call(max(1, round(seconds * 1e3 / each_ms)))
            return made, time.perf_counter() - began

        made, warming_s = take(WARMING_S, call_ms)
        moves: list[tuple[float, int]] = []
        done = threading.Event()
        watching = threading.Thread(target=self._watch_energy, args=(moves, done))
        watching.start()
        try:
            made, taken_s = take(STEADY_S, warming_s * 1e3 / made)
        finally:
            done.set()
            watching.join()
        if len(moves) < LEAST_MOVES:
            return None
        (begin_s, begin_mj), (end_s, end_mj) = moves[0], moves[-1]
        watts = (end_mj - begin_mj) / 1e3 / (end_s - begin_s)
        clock, _ = self.read()
        return SteadyCall(taken_s * 1e3 / made, watts * taken_s / made, clock)

    def _watch_energy(self, moves: list[tuple[float, int]], done: threading.Event) -> None:
        """Note each move of the energy counter, in mJ, and when it was, while calls are made."""
        last = None
        while not done.wait(WATCHING_S):
            now = self._query(pynvml.nvmlDeviceGetTotalEnergyConsumption)
            if now is None:
                return
            if last is not None and now != last:
                moves.append((time.perf_counter(), now))
            last = now

    def distrust_reason(self) -> str:
        """Why no figure taken since the last question is to be trusted: a changed setting, a memory error, another
        process, locked clocks, a slice of a device, a lost device. Empty where NVML knows of nothing."""
        highest, self._highest_mhz = self._highest_mhz, 0.0
        if self.problem.startswith(_STOPPED):
            return f"{self.problem}; nobody can tell its clocks, or whether it is still there"
        if self._sliced:
            return "the GPU is divided by MIG: others share its power and clocks; measure where MIG is off"
        now = self._read_settings()
        for name, before in self._settings.items():
            if before is not None and now[name] is None:
                return f"NVML no longer tells {name}: the GPU may be lost"
            if now[name] != before:
                return f"{name} was {before} and is {now[name]}: it changed while the GPU was measured"
        until = time.monotonic() + ENDING_S
        while others := self._other_processes():
            if time.monotonic() > until:
                return f"{others} {OTHERS_COMPUTE}; wait for their end, or end them"
            time.sleep(POLL_INTERVAL_S)
        self._asked_us = time.time_ns() // 1000
        most = self._query(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)
        if most and 0 < highest < HELD_LOW * most:
            return (
                f"the SM clock stayed at {highest:g} of {most:g} MHz, and no slowdown holds it there: it is locked; "
                "unlock it (nvidia-smi --reset-gpu-clocks)"
            )
        return ""

    def _query(self, read: Callable[..., Any], *arguments: int) -> Any:
        """What NVML tells of the device; None where it does not."""
        try:
            return read(self._handle, *arguments) if self._handle is not None else None
        except pynvml.NVMLError:
            return None

    def _read_settings(self) -> dict[str, Any]:
        uncorrected = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return {
            "the power limit in mW": self._query(pynvml.nvmlDeviceGetPowerManagementLimit),
            "the SM clock asked for in MHz": self._query(
                pynvml.nvmlDeviceGetApplicationsClock, pynvml.NVML_CLOCK_GRAPHICS
            ),
            "the memory clock asked for in MHz": self._query(
                pynvml.nvmlDeviceGetApplicationsClock, pynvml.NVML_CLOCK_MEM
            ),
            "the number of uncorrected memory (ECC) errors": self._query(
                pynvml.nvmlDeviceGetTotalEccErrors, *uncorrected
            ),
        }

    def _other_processes(self) -> int:
        """How many processes but ours kept the device busy since the last question; those that are on it where NVML
        does not tell how busy they are."""
        there = {process.pid for process in self._query(pynvml.nvmlDeviceGetComputeRunningProcesses) or ()}
        others = there - {os.getpid()}.union(*(one.pids() for one in self.workers))
        count, since_us = len(others), self._asked_us
        if os.getpid() not in there:  # in a container ours have other numbers, but they compute nothing meanwhile
            others, count = there, len(there) - 1 - len([one for one in self.workers if one.pids()])
            since_us = time.time_ns() // 1000 + int(SAMPLE_S * 1e6)
            time.sleep(2 * SAMPLE_S if count > 0 else 0)
        if count <= 0:
            return 0
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._handle, self._asked_us)
        except pynvml.NVMLError as error:
            return 0 if error.value in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND) else count  # 0: no sample
        return len({one.pid for one in samples if one.timeStamp >= since_us and (one.smUtil or one.memUtil)} & others)

    def facts(self) -> dict[str, Any]:
        """Clocks, power limit and driver, for the run's record; None for what NVML does not tell here."""

        def query_scaled(read: Callable[..., float], *arguments: int, scale: float = 1.0) -> float | None:
            told = self._query(read, *arguments)
            return None if told is None else told * scale

        try:
            driver = pynvml.nvmlSystemGetDriverVersion() if self._handle else None
        except pynvml.NVMLError:
            driver = None
        return {
            "driver": driver,
            "sm_clock_max_mhz": query_scaled(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            "memory_clock_max_mhz": query_scaled(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_MEM),
            "power_limit_w": query_scaled(pynvml.nvmlDeviceGetEnforcedPowerLimit, scale=1e-3),
            "temperature_c": query_scaled(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            "nvml_problem": self.problem or None,
        }


def _mig_enabled(handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
    except pynvml.NVMLError:  # older than MIG
        return False


def _uuid_sha256(text: str) -> str:
    # NVML writes GPU-<hexadecimal with dashes>; the driver gives the same 16 bytes.
    return hashlib.sha256(bytes.fromhex(text.removeprefix("GPU-").replace("-", ""))).hexdigest()
