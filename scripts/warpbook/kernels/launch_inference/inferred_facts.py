"""What is read of a launch: the header's facts, or why they were not read, and how they are written as YAML."""

import re
from dataclasses import dataclass, replace
from typing import Any

from warpbook.common.expressions import used_names

UNKNOWN = "?"
"""What stands in a fact that was not read."""
LAUNCH_KEYS = ("kernel", "arguments", "threads", "grid", "shared_bytes")
_PARTIAL = "partial"
"""Scratch memory for what each block leaves."""
_PLAIN = re.compile(r"[A-Za-z_?][\w .+*/()<>%-]*")


def yaml_line(value: Any) -> str:
    """A fact as YAML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml_line(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(yaml_line, value)) + "]"
    plain = not isinstance(value, str) or _PLAIN.fullmatch(value) or re.fullmatch(r"\([\w .+*/()%-]*", value)
    return str(value) if plain else f'"{value}"'


def yaml_lines(facts: dict[str, Any]) -> str:
    """Facts as lines of a YAML file."""
    return "\n".join(f"{key}: {yaml_line(value)}" for key, value in facts.items())


def fact_value(text: str) -> str | int:
    """A fact from an expression's text: a number where it is one."""
    return int(text) if text.isdigit() else text


def sum_of_blocks(facts: dict[str, Any], output: str, value_bytes: int = 4) -> dict[str, Any]:
    """The facts of a launch that leaves a value of each block, as steps that end with the sum of these."""
    step = {key: facts[key] for key in LAUNCH_KEYS if key in facts}
    step["arguments"] = [_PARTIAL if argument == output else argument for argument in facts["arguments"]]
    blocks = " * ".join(f"({extent})" for extent in facts["grid"] if extent != 1) or "1"
    rest = {key: value for key, value in facts.items() if key not in LAUNCH_KEYS}
    return {"scratch": {_PARTIAL: f"{value_bytes} * {blocks}"}, "steps": [step, {"sum": _PARTIAL}], **rest}


def conditional_steps(facts: dict[str, Any], when: str) -> dict[str, Any]:
    """The facts of launches as steps that are done where an expression is not 0; one of a loop's number decides only about
    what stands in the loop."""
    launch = {key: value for key, value in facts.items() if key in (*LAUNCH_KEYS, "loop")}
    cleared = [{"clear": name} for name in facts.get("clear", ())]
    steps = [*cleared, *(facts.get("steps") or [launch])]
    rest = {key: value for key, value in facts.items() if key not in {*launch, "steps", "clear"}}
    counted = {name for step in steps for name in step.get("loop", ())} & used_names(when)
    decided = [when != "1" and counted <= step.get("loop", {}).keys() for step in steps]
    return {
        "steps": [{**step, "when": when} if one else step for step, one in zip(steps, decided, strict=True)],
        **rest,
    }


@dataclass(frozen=True)
class InferredLaunch:
    """What a launch says: the header's facts, its line, and what was taken for what."""

    facts: dict[str, Any]
    line: int
    taken: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """It in words, to be seen by who wrote it."""
        facts = ", ".join(f"{key} {yaml_line(value)}" for key, value in self.facts.items())
        taken = f"; taken for the layer's by name: {', '.join(self.taken)}" if self.taken else ""
        return f"launch read from line {self.line}: {facts}{taken}"


def with_limits(launch: InferredLaunch, limits: dict[str, dict[str, int]]) -> InferredLaunch:
    """A launch that is for extents within further limits."""
    both = launch.facts.get("limits", {}) | limits
    return replace(launch, facts=launch.facts | ({"limits": both} if both else {}))


class UnreadableLaunch(Exception):
    """Why a launch was not read: a sentence. `facts` are the lines to write instead, what is not known marked;
    `is_final`, whether no lines help, since it computes something else."""

    def __init__(self, reason: str, facts: dict[str, Any] | None = None, is_final: bool = False):
        super().__init__(reason)
        self.facts, self.is_final = facts or {}, is_final
