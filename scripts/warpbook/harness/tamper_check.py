"""The functions that measure and judge, held from before any variant's code runs. A launcher shares the harness's
process and could replace a clock; here it shows."""

from collections.abc import Mapping
from typing import Any

_originals: dict[str, tuple[Mapping[str, Any], str, Any]] = {}


def remember(owner: Any, *names: str) -> None:
    """Hold attributes of a module or class: those named, or every function, method and class."""
    members = vars(owner)
    for name in names or [name for name, value in members.items() if callable(value) and not name.startswith("__")]:
        _originals[f"{owner.__name__}.{name}"] = (members, name, members[name])


def replaced_functions() -> list[str]:
    """Names of those that are no longer what they were."""
    return sorted(full for full, (members, name, value) in _originals.items() if members.get(name) is not value)
