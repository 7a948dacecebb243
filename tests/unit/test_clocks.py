"""A GPU in trouble, simulated where the harness asks CUDA and NVML: each trouble becomes a row that says so, and
figures that it may have touched are refused. No real device's settings are touched."""

import ctypes
import hashlib
import os
import re
import time
from functools import partial
from types import SimpleNamespace

import pynvml
import pytest

from policies import MEASURING, QUICK
from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking, clocks, timing
from warpbook.harness.bench import CpuBench
from warpbook.machine import cuda_devices
from warpbook.problems import networks

LAYER = networks.ConvLayer("odd", 2, 9, 11, 3, 4)
UUID = bytes(range(16))
DEVICE = cuda_devices.Device("a GPU", "sm_90", hashlib.sha256(UUID).hexdigest(), "13.0")
RIGHT = "y[...] = convolve(x, w)"


@pytest.fixture
def nvml(monkeypatch):
    """What NVML tells of one device, to be changed by a test; an exception is raised."""
    told = {
        "nvmlInit": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetUUID": f"GPU-{UUID.hex()}",
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetApplicationsClock": 1980,
        "nvmlDeviceGetPowerManagementLimit": 700_000,
        "nvmlDeviceGetTotalEccErrors": 0,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0,
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetTotalEnergyConsumption": error(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=os.getpid())],
        "nvmlDeviceGetProcessUtilization": error(pynvml.NVML_ERROR_NOT_SUPPORTED),
    }

    def answering(name):
        def answer(*arguments):
            if isinstance(told[name], Exception):
                raise told[name]
            return told[name]

        return answer

    for name in told:
        monkeypatch.setattr(pynvml, name, answering(name))
    monkeypatch.setattr(clocks, "ENDING_S", 0)
    monkeypatch.setattr(clocks, "SAMPLE_S", 0)
    return told


class WatchedBench(CpuBench):
    """The host, with the clock of a device that NVML describes."""

    def __init__(self):
        self.clock = clocks.Clock(DEVICE)

    def change(self):
        pass

    def read_clock(self):
        return self.clock.read()

    def distrust_reason(self):
        return self.clock.distrust_reason()


def error(number):
    return pynvml.NVMLError(number)


class Timed:
    """What is timed, without a process: each sample takes a millisecond."""

    def __init__(self, bench, variant):
        self.bench, self.variant = bench, variant

    def arrange(self, case):
        self.bench.change()
        return {("hot", "op"): lambda: 1.0}

    def verify(self, claimed_ms, doubted=False):
        pass


def measured(bench, variant):
    return timing.measure_case(bench, [Timed(bench, variant)], LAYER.at(3), QUICK, MEASURING)


def test_a_device_without_trouble_is_trusted(nvml, cpu_variant):
    rows = measured(WatchedBench(), cpu_variant(RIGHT))
    assert {(row["status"], row["sm_clock_mhz"], row["throttled"]) for row in rows} == {("ok", 1980.0, False)}


def test_the_energy_of_a_call_is_its_share_of_what_the_counter_moved_by(nvml, monkeypatch):
    watts, period_s = 250.0, 0.2
    began = time.perf_counter()

    def counter(*_):
        return int(watts * 1e3 * period_s * ((time.perf_counter() - began) // period_s))

    # It moves 0.2, 0.4 and 0.6 s after the beginning, and not at the end of the calls, after 0.75 s.
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", counter)
    monkeypatch.setattr(clocks, "STEADY_S", 0.7)
    monkeypatch.setattr(clocks, "WARMING_S", 0.05)

    def call(count):
        time.sleep(0.002 * count)
        return count

    found = clocks.Clock(DEVICE).steady_call(call, 2.0)
    assert found.time_ms == pytest.approx(2.0, rel=0.3)
    assert found.energy_j == pytest.approx(watts * found.time_ms / 1e3, rel=0.08)
    assert found.sm_clock_mhz == 1980


def test_a_device_that_tells_no_energy_has_none(nvml):
    assert clocks.Clock(DEVICE).steady_call(lambda count: count, 2.0) is None


def test_a_process_on_another_gpu_of_the_host_is_none_of_this_one_s(nvml, monkeypatch):
    uuids = {"ours": f"GPU-{UUID.hex()}", "theirs": f"GPU-{bytes(16).hex()}"}
    nvml["nvmlDeviceGetCount"] = 2
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: ["theirs", "ours"][index])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", uuids.get)
    running = {"ours": [SimpleNamespace(pid=os.getpid())], "theirs": [SimpleNamespace(pid=1), SimpleNamespace(pid=2)]}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", running.get)
    clock = clocks.Clock(DEVICE)
    assert clock.distrust_reason() == ""
    running["ours"] = other_process()
    assert clock.distrust_reason().startswith("1 more processes compute on the GPU")


def test_a_process_that_the_driver_still_lists_shortly_after_its_end_is_waited_for_and_no_longer(nvml, monkeypatch):
    answers = iter([other_process(), other_process(), [SimpleNamespace(pid=os.getpid())]])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda _: next(answers))
    monkeypatch.setattr(clocks, "ENDING_S", 60)
    began = time.monotonic()
    assert clocks.Clock(DEVICE).distrust_reason() == ""
    assert time.monotonic() - began < 1


def busy(pid, percent, at=1 << 62):
    return SimpleNamespace(pid=pid, smUtil=percent, memUtil=0, timeStamp=at)


def test_a_process_that_holds_the_device_and_computes_nothing_disturbs_no_figure(nvml):
    ours = busy(os.getpid(), 90)
    for samples, refused in [
        ([ours, busy(1, 0)], False),
        ([ours, busy(1, 80, at=5)], False),  # before the clock was there
        ([ours, busy(99, 80)], False),  # it is no more: one of ours, perhaps
        ([ours, busy(1, 3)], True),
        (error(pynvml.NVML_ERROR_NOT_FOUND), False),
        (error(pynvml.NVML_ERROR_NOT_SUPPORTED), True),
    ]:
        nvml |= {"nvmlDeviceGetProcessUtilization": samples, "nvmlDeviceGetComputeRunningProcesses": other_process()}
        assert clocks.Clock(DEVICE).distrust_reason().startswith("1 more processes") == refused, samples


def test_in_a_container_a_process_disturbs_that_computes_while_ours_do_not(nvml):
    nvml["nvmlDeviceGetComputeRunningProcesses"] = [SimpleNamespace(pid=pid) for pid in (1, 2)]
    for samples, refused in [([busy(1, 90, at=5), busy(2, 90, at=5)], False), ([busy(2, 1)], True)]:
        nvml["nvmlDeviceGetProcessUtilization"] = samples
        assert bool(clocks.Clock(DEVICE).distrust_reason()) == refused, samples


def other_process():
    return [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)]


BEFORE = {
    "MIG": ({"nvmlDeviceGetMigMode": [1, 1]}, "the GPU is divided by MIG"),
    "a slice with a UUID of its own": (
        {"nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetUUID": "GPU-00"}, "the GPU is divided by MIG",
    ),
    "another process": (
        {"nvmlDeviceGetComputeRunningProcesses": other_process()}, "1 more processes compute on the GPU; wait",
    ),
    "another process, from a container": (
        {"nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=pid) for pid in (1, 2, 3)]}, "2 more processes",
    ),
    "clocks locked low": ({"nvmlDeviceGetClockInfo": 345}, "the SM clock stayed at 345 of 1980 MHz"),
}  # fmt: skip


def test_figures_of_a_device_are_refused_that_has(nvml, cpu_variant):
    sound = dict(nvml)
    for trouble, (told, words) in BEFORE.items():
        nvml.update(sound | told)
        with pytest.raises(VariantFailure) as raised:
            measured(WatchedBench(), cpu_variant(RIGHT))
        assert (raised.value.status, words in str(raised.value)) == ("refused", True), (trouble, raised.value)


MEANWHILE = {
    "is lost": ({"nvmlDeviceGetClockInfo": error(15)}, "NVML stopped answering: GPU is lost"),
    "tells no settings any more": (
        {"nvmlDeviceGetPowerManagementLimit": error(15)}, "NVML no longer tells the power limit in mW",
    ),
    "has errors in its memory": (
        {"nvmlDeviceGetTotalEccErrors": 2}, r"uncorrected memory \(ECC\) errors was 0 and is 2",
    ),
    "has another power limit": (
        {"nvmlDeviceGetPowerManagementLimit": 300_000}, "the power limit in mW was 700000 and is 300000",
    ),
    "has other clocks": (
        {"nvmlDeviceGetApplicationsClock": 1200}, "the SM clock asked for in MHz was 1980 and is 1200",
    ),
}  # fmt: skip


class ChangingBench(WatchedBench):
    """One whose device comes to something while a variant is prepared, as a launcher may do it."""

    def __init__(self, change):
        super().__init__()
        self.change = change


def test_figures_are_refused_where_the_device_meanwhile(nvml, cpu_variant):
    sound = dict(nvml)
    for trouble, (told, words) in MEANWHILE.items():
        nvml.update(sound)
        with pytest.raises(VariantFailure) as raised:
            measured(ChangingBench(partial(nvml.update, told)), cpu_variant(RIGHT))
        assert raised.value.status == "refused", trouble
        assert re.search(words, str(raised.value)), trouble


def test_a_slowdown_is_marked_in_the_samples_and_is_no_locked_clock(nvml, cpu_variant):
    nvml["nvmlDeviceGetClockInfo"] = 345
    nvml["nvmlDeviceGetCurrentClocksThrottleReasons"] = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    rows = measured(WatchedBench(), cpu_variant(RIGHT))
    assert all(row["throttled"] and row["status"] == "ok" for row in rows)


def test_nvml_of_another_version_than_the_driver_is_told_and_reads_nothing(nvml):
    nvml["nvmlInit"] = error(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    clock = clocks.Clock(DEVICE)
    assert clock.read() == (None, False)
    assert "NVML/RM version mismatch" in clock.facts()["nvml_problem"]
    assert clock.distrust_reason() == ""


def test_a_driver_that_refuses_to_start_is_told_with_its_remedy(monkeypatch):
    status = 0
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(cuInit=lambda flags: status))
    for status, words in {
        803: "restart the machine after an update",
        804: "update the driver",
        999: "a device may be lost",
        7: "no usable device",
    }.items():
        told = cuda_devices.probe()
        assert told.startswith(f"the CUDA driver answers cuInit with error {status}: ")
        assert words in told


def raising(exception):
    def call(*arguments):
        raise exception

    return call


def troubles():
    cupy = pytest.importorskip("cupy")
    runtime = cupy.cuda.runtime
    return {
        "memory": (
            "allocate_guarded",
            cupy.cuda.memory.OutOfMemoryError(1 << 40, 1 << 30, 0),
            "unsupported",
            "Out of memory",
        ),
        "ecc": ("draw", runtime.CUDARuntimeError(214), "launch_failed", "uncorrectable ECC error"),
        "lost": ("compare", runtime.CUDARuntimeError(46), "launch_failed", "busy or unavailable"),
    }


def test_a_fault_of_the_device_in_the_harness_s_own_calls_is_a_row(cpu_variant):
    for trouble in ["memory", "ecc", "lost"]:
        method, exception, status, words = troubles()[trouble]
        variant, bench = cpu_variant(RIGHT), CpuBench()
        setattr(bench, method, raising(exception))
        row = checking.check_case(bench, variant, LAYER.at(2))[-1]
        assert (row["ok"], row["status"]) == (False, status)
        assert words in row["reason"]


def test_a_fault_of_the_harness_stays_one(cpu_variant):
    bench = CpuBench()
    bench.compare = raising(KeyError("harness"))
    with pytest.raises(KeyError):
        checking.check_case(bench, cpu_variant(RIGHT), LAYER.at(2))
