"""Several launches of one function of the host that compute a result together, as the steps of a header."""

from typing import Any

from warpbook.kernels import launches
from warpbook.kernels.launch_inference.inferred_facts import UNKNOWN, InferredLaunch, UnreadableLaunch
from warpbook.kernels.launch_inference.single_launch import LaunchInference


class LaunchSequence:
    """Several launches of one function that compute a result together, in their order there."""

    def __init__(self, parts: list[LaunchInference]):
        self._parts = parts
        self._names = parts[0].names
        self._known = {*self._names.arrays, *self._names.optional}

    def infer(self) -> InferredLaunch:
        """The facts. Raises UnreadableLaunch with the remedy."""
        try:
            return self._infer()
        except UnreadableLaunch as unread:
            remedy = "say each launch in `steps`, or write a launcher in Python"
            raise UnreadableLaunch(f"{unread}; {remedy}") from None

    def _infer(self) -> InferredLaunch:
        variables = self._variables()
        arrays = self._roles(variables)
        scratch: dict[str, str | int] = {}
        before = self._held_before_result(arrays)
        for part in self._parts:
            for place in part.pointer_places:
                name = part.pointers[place][0]
                held = before if before and arrays.get(name) == self._names.output else arrays.get(name, "")
                if held and held not in self._known and held not in scratch:
                    scratch[held] = part.allocated_bytes(name)
                    if held == before and not scratch[held]:  # a sum of each block
                        grid = part.facts(dict.fromkeys(part.pointer_places, UNKNOWN))["grid"]
                        scratch[held] = " * ".join(["8", *(f"({extent})" for extent in grid)])
        lines = ", ".join(f"{part.kernel} in line {part.line}" for part in self._parts)
        for name, size in scratch.items():
            if not size:
                raise UnreadableLaunch(f"{lines}: nothing tells which array `{name}` is, nor how many bytes it has")
        steps: list[dict[str, Any]] = []
        done: set[int] = set()
        for part in self._parts:
            for place, name, value in part.fills():
                if value is None and arrays.get(name) in scratch:
                    raise UnreadableLaunch(f"{lines}: nothing tells what the host copies to `{name}`")
                if place not in done and arrays.get(name) in {self._names.output, *scratch}:
                    filled = value and arrays[name] in scratch
                    steps.append({"fill": {arrays[name]: value}} if filled else {"clear": arrays[name]})
                done.add(place)
            given: dict[int, str] = {}
            for place in part.pointer_places:
                name = arrays.get(part.pointers[place][0], "")
                if name in self._known:
                    part.check_type(place, name)
                text = launches.NULL if part.is_null(place) else (name or UNKNOWN) + part.offset(place)
                result = part is self._parts[-1] and not part.only_reads(place)
                given[place] = before if before and text == self._names.output and not result else text
            steps.append(part.facts(given))
        if reasons := list(dict.fromkeys(reason for part in self._parts for reason in part.reasons())):
            raise UnreadableLaunch(f"{'; '.join(reasons)} (launches of {lines})")
        self._share_loops(steps)
        notes = {name: words for part in self._parts for name, words in part.notes().items()}
        facts: dict[str, Any] = {"steps": steps} | ({"scratch": scratch} if scratch else {})
        limits: dict[str, Any] = {}
        for part, step in zip(self._parts, (step for step in steps if "kernel" in step), strict=True):
            limits |= part.limits(step, facts)
        facts |= {"limits": limits} if limits else {}
        if self._parts[0].untold({**facts, **limits}) and (flat := self._flat()):
            return flat
        self._parts[0].require_extents({**facts, **limits})
        return InferredLaunch(facts, self._parts[0].line, tuple(notes.values()))

    def _flat(self) -> InferredLaunch | None:
        """The facts where the one number that the kernels get is the length of a row, and there is one row."""
        flat = [part.of_one_row({name for each in self._parts for name in each.lengths}) for part in self._parts]
        return LaunchSequence([part for part in flat if part]).infer() if all(flat) else None

    def _held_before_result(self, arrays: dict[str, str]) -> str:
        """What the host's memory for the output is called up to the last launch, which reads there what each block of
        one before it left and writes the one value that is the result; empty where no launch does."""
        output, last = self._names.output, self._parts[-1]
        places = [place for place in last.pointer_places if arrays.get(last.pointers[place][0]) == output]
        both = {last.only_reads(place) for place in places} == {True, False}
        return f"{output}_memory" if both and self._names.count_of_array(output) == "1" else ""

    def hands_on(self) -> bool:
        """Whether they compute a result together; else each is another way to compute it. They do where each but the last
        writes what one behind it reads."""
        if sum(part.is_complete for part in self._parts) > 1 or all(part.is_complete for part in self._parts):
            return False
        given = [tuple(name for name, _ in part.pointers if name) for part in self._parts]
        if any(given.count(each) > 1 and len(each) >= len(self._names.arrays) for each in given):
            return False  # two that get the same arrays are two ways to compute the result
        behind: set[str] = set()
        for number, part in enumerate(reversed(self._parts)):
            places = [place for place in part.pointer_places if place < len(part.pointers)]
            written = {
                part.pointers[place][0] for place in places if not part.only_reads(place)
            } | part.device_variables
            if number and not behind & written:
                return False
            behind |= {part.pointers[place][0] for place in places if part.reads(place)} | part.device_variables
        return True

    def _variables(self) -> "dict[str, list[tuple[int, bool]]]":
        """The host's pointers in their order: the launches that get each, and whether that only reads it."""
        found: dict[str, list[tuple[int, bool]]] = {}
        for number, part in enumerate(self._parts):
            if len(part.pointers) != len(part.parameters):
                raise UnreadableLaunch(f"{part.kernel} takes {len(part.parameters)} arguments, line {part.line}")
            for place in part.pointer_places:
                if part.is_null(place):
                    continue
                name = part.pointers[place][0]
                if not name:
                    raise UnreadableLaunch(
                        f"an argument of {part.kernel} is no array, nor one and a number, line {part.line}"
                    )
                found.setdefault(name, []).append((number, part.only_reads(place)))
        return found

    def _roles(self, variables: "dict[str, list[tuple[int, bool]]]") -> dict[str, str]:
        """What each of the host's pointers is: an array of the problem's by its name, else scratch memory of its own.

        Of what goes by no array's name, what is first read is the missing input, and what is last written the output.
        """
        arrays = {name: self._names.find_array(name) for name in variables}
        missing = [name for name in self._names.arrays if name not in arrays.values()]
        if self._names.output in missing:
            last = len(self._parts) - 1
            written = [
                n for n, uses in variables.items() if not arrays[n] and any(use == (last, False) for use in uses)
            ]
            if len(written) == 1:
                arrays[written[0]] = self._names.output
        inputs = [name for name in missing if name != self._names.output]
        unwritten = [n for n, uses in variables.items() if not arrays[n] and all(constant for _, constant in uses)]
        if len(inputs) == len(unwritten) == 1:
            arrays[unwritten[0]] = inputs[0]
        missing = [name for name in self._names.arrays if name not in arrays.values()]
        if missing:
            names = " and ".join(part.kernel for part in self._parts)
            raise UnreadableLaunch(
                f"{names} are launched in a row, and no pointer is {' or '.join(missing)} by its name"
            )
        # Memory of the host's own may be called as an extent is.
        return {n: array or (f"{n}_memory" if self._names.is_taken(n) else n) for n, array in arrays.items()}

    def _share_loops(self, steps: list[dict[str, Any]]) -> None:
        """Give launches of one loop the same `loop`, whichever of them use its number."""
        loops = [step["loop"] for step in steps if step.get("loop")]
        if loops and all(loop == loops[0] for loop in loops):
            inside = [number for number, step in enumerate(steps) if step.get("loop")]
            for step in steps[inside[0] : inside[-1] + 1]:
                step["loop"] = loops[0]
