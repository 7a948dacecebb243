"""The ways through a function of the host: which of its launches run together, and in which cases.

Each way is read as if there were no other; its steps are done `when` its conditions hold.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpbook.common import expressions
from warpbook.kernels.launch_inference import cpp_expressions as cpp
from warpbook.kernels.launch_inference.cpp_expressions import SymbolicValue
from warpbook.kernels.launch_inference.host_scope import Condition
from warpbook.kernels.launch_inference.inferred_facts import (
    InferredLaunch,
    UnreadableLaunch,
    conditional_steps,
    with_limits,
)
from warpbook.kernels.launch_inference.launch_sequence import LaunchSequence
from warpbook.kernels.launch_inference.single_launch import LaunchInference

_PATHS_MAX = 16


@dataclass(frozen=True)
class LaunchPath:
    """Launches that run together, in their order, and 1 in the cases in which they do."""

    when: SymbolicValue
    parts: tuple[LaunchInference, ...]

    @property
    def is_single(self) -> bool:
        """Whether it is one launch in every case."""
        return len(self.parts) == 1 and self.when.constant

    @property
    def is_whole(self) -> bool:
        """Whether it computes the result."""
        if len(self.parts) == 1:
            return self.parts[0].has_all_arrays
        return LaunchSequence(list(self.parts)).hands_on()

    def infer(self) -> InferredLaunch:
        """Its launches' facts, whatever decides whether they run. Raises UnreadableLaunch."""
        for part in self.parts:
            part.is_of_path = True
        return self.parts[0].infer() if len(self.parts) == 1 else LaunchSequence(list(self.parts)).infer()


def without_repeated(parts: Sequence[LaunchInference]) -> list[LaunchInference]:
    """Launches, of those that stand alike in both branches of a condition that cannot be read the first alone, as if there
    were no condition: whether it gets a stream, for one, is not asked."""
    kept: list[LaunchInference] = []
    for part in parts:
        for other in kept:
            apart = {*part.conditions} ^ {*other.conditions}
            statements = {one.statement for one in apart}
            if len(apart) == 2 and len(statements) == 1 and part.launches_as(other):
                other.settled |= statements
                break
        else:
            kept.append(part)
    return kept


def find_paths(parts: Sequence[LaunchInference]) -> list[LaunchPath]:
    """The ways through the function that some launches stand in, but those that launch nothing; one of all launches where
    the conditions cannot be read."""
    conditions = {id(part): part.conditions for part in parts}
    every = [condition for one in conditions.values() for condition in one]
    whole = LaunchPath(cpp.number(1), tuple(parts))
    if any(condition.truth is None for condition in every):
        return [whole]
    paths = [path for path in _split(list(parts), conditions, cpp.number(1)) if path.parts]
    readable = len(paths) <= _PATHS_MAX and all(len(path.when.text) <= expressions.LENGTH_MAX for path in paths)
    return paths if paths and readable else [whole]


def _split(
    parts: list[LaunchInference], conditions: dict[int, tuple[Condition, ...]], when: SymbolicValue
) -> Iterator[LaunchPath]:
    """The ways that the outermost branching statement around launches parts, and those within each."""
    if when.text == "0":
        return
    outermost = min((one.statement for part in parts for one in conditions[id(part)]), default=None)
    if outermost is None:
        yield LaunchPath(when, tuple(parts))
        return
    branches: dict[str, SymbolicValue] = {}
    chosen: dict[int, str] = {}
    rest: dict[int, tuple[Condition, ...]] = {}
    for part in parts:
        here = [one for one in conditions[id(part)] if one.statement == outermost]
        rest[id(part)] = tuple(one for one in conditions[id(part)] if one.statement != outermost)
        for one in here:
            assert one.truth is not None
            branches[one.branch] = one.truth
            chosen[id(part)] = one.branch
    other = cpp.number(1)
    for truth in branches.values():
        other = cpp.both(other, cpp.negation(truth))
    for branch, truth in {**branches, "": other}.items():
        inside = [part for part in parts if chosen.get(id(part), branch) == branch]
        yield from _split(inside, rest, cpp.both(when, truth))


def infer_paths(paths: Sequence[LaunchPath]) -> InferredLaunch:
    """The facts of all ways through a function: of one with its conditions as limits, where they are some; else as steps
    that are done in the cases of each. Raises UnreadableLaunch."""
    read = [path.infer() for path in paths]
    limits = _limits(paths[0], read[0].facts.get("limits", {})) if len(paths) == 1 else None
    if limits is not None:
        return with_limits(read[0], limits)
    steps: list[dict[str, Any]] = []
    scratch: dict[str, Any] = {}
    others: list[dict[str, Any]] = []
    for path, one in zip(paths, read, strict=True):
        facts = conditional_steps(one.facts, path.when.text)
        steps += facts.pop("steps")
        held = facts.pop("scratch", {})
        if any(scratch.get(name, size) != size for name, size in held.items()) or facts not in (others or [facts]):
            raise UnreadableLaunch("the ways through its function have other limits, or memory of other sizes")
        scratch |= held
        others.append(facts)
    made = {"steps": steps, **({"scratch": scratch} if scratch else {}), **others[0]}
    notes = {name: words for path in paths for part in path.parts for name, words in part.notes().items()}
    return InferredLaunch(made, min(one.line for one in read), tuple(notes.values()))


def _limits(path: LaunchPath, beside: Mapping[str, Any]) -> dict[str, dict[str, int]] | None:
    """A path's condition as limits of extents that have none; None where it is none of these."""
    limits = {} if path.when.text == "1" else cpp.limits_of(path.when)
    free = set(path.parts[0].names.base) - beside.keys()
    return limits if limits is not None and limits.keys() <= free else None
