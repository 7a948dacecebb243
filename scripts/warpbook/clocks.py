"""The GPU's SM clock, power limit and slowdowns, read through NVML."""

import hashlib

import pynvml

from warpbook.devices import Device

# Reasons that mean that the device could not run as fast as it otherwise would.
_SLOWDOWNS = (
    pynvml.nvmlClocksThrottleReasonSwPowerCap
    | pynvml.nvmlClocksThrottleReasonHwSlowdown
    | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
)


class Clock:
    """The clock of one device. Where NVML does not answer, readings are None, and `problem` says why."""

    def __init__(self, device: Device):
        self._handle = None
        self.problem = ""
        try:
            pynvml.nvmlInit()
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                if _uuid_sha256(pynvml.nvmlDeviceGetUUID(handle)) == device.uuid_sha256:
                    self._handle = handle
            if self._handle is None:
                self.problem = "NVML lists no device with the UUID of the CUDA device"
        except pynvml.NVMLError as error:
            self.problem = f"NVML does not answer: {error}"

    def read(self) -> tuple[float | None, bool]:
        """(SM clock in MHz, whether a slowdown is active now)."""
        if self._handle is None:
            return None, False
        try:
            clock = float(pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM))
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        except pynvml.NVMLError as error:
            self._handle, self.problem = None, f"NVML stopped answering: {error}"
            return None, False
        return clock, bool(reasons & _SLOWDOWNS)

    def facts(self) -> dict[str, float | str | None]:
        """Clocks, power limit and driver, for the run's record; None for what NVML does not tell here."""

        def asked(read, *arguments, scale: float = 1.0) -> float | None:
            try:
                return read(self._handle, *arguments) * scale if self._handle else None
            except pynvml.NVMLError:
                return None

        try:
            driver = pynvml.nvmlSystemGetDriverVersion() if self._handle else None
        except pynvml.NVMLError:
            driver = None
        return {
            "driver": driver,
            "sm_clock_max_mhz": asked(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            "memory_clock_max_mhz": asked(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_MEM),
            "power_limit_w": asked(pynvml.nvmlDeviceGetEnforcedPowerLimit, scale=1e-3),
            "temperature_c": asked(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            "nvml_problem": self.problem or None,
        }


def _uuid_sha256(text: str) -> str:
    # NVML writes GPU-<hexadecimal with dashes>; the driver gives the same 16 bytes.
    return hashlib.sha256(bytes.fromhex(text.removeprefix("GPU-").replace("-", ""))).hexdigest()
