"""Report files of Nsight Compute (.ncu-rep), read by NVIDIA's own package `ncu-report` where it is installed."""

import importlib
from pathlib import Path
from typing import Any

from warpbook.common.errors import UserError
from warpbook.profiling.counter_readings import Readings
from warpbook.profiling.ncu import DEVICE_NAME
from warpbook.profiling.profile_schema import Profile

PACKAGE = "ncu-report"
# What the report repeats of the device, and lists of other counters' names.
_NO_COUNTERS = ("device__attribute_", "breakdown:", "group:")


def read(path: Path, origin: str) -> Profile | None:
    """Counters of every kernel in a report in base units; None without the package. UserError without kernels."""
    try:
        package = importlib.import_module("ncu_report")
    except ImportError:
        return None
    try:
        report = package.load_report(str(path))
        actions = [action for part in report for action in part]
    except Exception as error:  # whatever its native code raises
        raise UserError(
            f"{origin}: {PACKAGE} cannot read it ({error}): the file is damaged, or newer than it"
        ) from error
    readings = Readings(origin)
    for number, action in enumerate(actions):
        try:
            key = readings.launch(number, action.name(action.NameBase_DEMANGLED), shape=_shape(action))
        except ValueError as error:
            raise UserError(f"{origin}, launch {number}: {error}") from error
        for name in action.metric_names():
            metric = action.metric_by_name(name)
            value = metric.value()
            if name == DEVICE_NAME:
                readings.devices[str(value)] = None
            elif not name.startswith(_NO_COUNTERS):
                if isinstance(value, str):
                    readings.words.add(name)
                else:
                    readings.add(0, key, name, metric.unit(), None if value is None else float(value))
    if not actions:
        raise UserError(f"{origin} holds no kernel that {PACKAGE} can read: it is damaged, or newer than the package")
    what = f"ncu report ({len(actions)} launches)"
    return readings.profile(what, "ncu")


def _shape(action: Any) -> str:
    """Grid and block as ncu prints them, empty where the report does not have them."""
    metrics = [action.metric_by_name(f"launch__{part}_dim_{axis}") for part in ("grid", "block") for axis in "xyz"]
    if any(metric is None for metric in metrics):
        return ""
    x, y, z, *block = (round(metric.as_double()) for metric in metrics)
    return f"({x}, {y}, {z})x({', '.join(map(str, block))})"
