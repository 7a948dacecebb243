"""Layers and batches by their extents: what a variant is for, and where a claim is about."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from warpbook.common.errors import nearest_name
from warpbook.problems.problem import Case, Problem

SPELLED_OUT = ("weights",)  # derived numbers that a sentence shows as what they are made of


class Bounds(BaseModel):
    """Values of one extent. A bare number in a header is `at_most`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    at_least: NonNegativeInt = 0
    at_most: PositiveInt | None = None
    exactly: PositiveInt | None = Field(default=None, alias="is")
    multiple_of: PositiveInt = 1

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, content: Any) -> Any:
        return {"at_most": content} if isinstance(content, int) else content

    @model_validator(mode="after")
    def _possible(self) -> "Bounds":
        least, most = max(self.at_least, 1), self.at_most
        if self.exactly is not None and (self.at_least or most is not None or self.multiple_of != 1):
            raise ValueError("`is` stands alone")
        if most is not None and most // self.multiple_of * self.multiple_of < least:
            raise ValueError("no number is within these bounds")
        return self

    @property
    def words(self) -> str:
        """Its bounds as a reader of formulas knows them: = 1, ≥ 2, ≤ 100, 44 to 66 in steps of 22."""
        if self.exactly is not None:
            return f"= {self.exactly}"
        steps = f" in steps of {self.multiple_of}" if self.multiple_of != 1 else ""
        if self.at_most is None:
            return f"≥ {self.at_least}{steps}"
        return f"{self.at_least} to {self.at_most}{steps}" if self.at_least else f"≤ {self.at_most}{steps}"

    def violation(self, extent: int) -> str:
        """Which bound an extent breaks, after its value: `exceeds its limit 5`. Empty where it breaks none."""
        if self.exactly is not None and extent != self.exactly:
            return f"must be {self.exactly}"
        if self.at_most is not None and extent > self.at_most:
            return f"exceeds its limit {self.at_most}"
        if extent < self.at_least:
            return f"is below its limit {self.at_least}"
        return f"must be a multiple of {self.multiple_of}" if extent % self.multiple_of else ""

    @property
    def is_least_alone(self) -> bool:
        """Whether they are a least value and no more."""
        return self.exactly is None and self.at_most is None and self.multiple_of == 1

    def nearest(self, extent: int) -> int:
        """The value within its bounds that is nearest to an extent, or the multiple below that."""
        if self.exactly is not None:
            return self.exactly
        least = -(-max(self.at_least, 1) // self.multiple_of) * self.multiple_of
        extent = extent if self.at_most is None else min(extent, self.at_most)
        return max(least, extent // self.multiple_of * self.multiple_of)


class Limits(BaseModel):
    """Cases that a variant supports: bounds of extents, and cases by name (conv1) or in short (6x30x30 * 16@5x5)."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Bounds] = Field(init=False)
    layers: list[str] = Field(default_factory=list)
    equal: list[str] = Field(default_factory=list, description="extents that must be equal: a square matrix")

    @property
    def bounds(self) -> dict[str, Bounds]:
        """The bounds that it sets, by the extent's name."""
        return dict(self.__pydantic_extra__ or {})

    def narrowed(self, bounds: dict[str, Any]) -> "Limits":
        """These limits, and further bounds."""
        kept = self.model_dump(by_alias=True, exclude_defaults=True)
        both = bounds.keys() & self.bounds.keys()
        joined = {name: bounds[name] if "is" in bounds[name] else kept[name] | bounds[name] for name in both}
        return Limits.model_validate(bounds | kept | joined)

    def check(self, problem: Problem) -> None:
        """Raises ValueError for a name that is none of the problem's."""
        known = [*problem.names, "layers", "equal"]
        if unknown := next((name for name in (*self.bounds, *self.equal) if name not in known), ""):
            raise ValueError(f"unknown key {unknown!r}: {nearest_name(unknown, known)}")

    def nearest(self, case: Case) -> Case:
        """A case whose extents these limits allow, as near to one as may be; that one where there is none."""
        facts, extents = case.problem.facts, dict(case.given)
        bounds = {name: one for name, one in self.bounds.items() if name in facts.extents}
        size = case.size if case.size is None or facts.size not in bounds else bounds[facts.size].nearest(case.size)
        for name, one in bounds.items():
            if name != facts.size and one.violation(case.extents[name]):
                extents[name] = one.nearest(case.extents[name])
        equal = [name for name in self.equal if name in facts.extents]
        if len({case.extents[name] for name in equal}) > 1:
            least = min(value for name in equal if (value := case.extents[name]) > 1)
            least = max([least, *(bounds[name].nearest(least) for name in equal if name in bounds)])
            extents |= {name: least for name in equal if name != facts.size}
            size = least if facts.size in equal else size
        try:
            changed = case.problem.case("", extents, case.optional)
            changed = changed if size is None else changed.at(size)
            return changed.with_name(str(changed))
        except ValueError:  # no outputs are left, for one
            return case

    @property
    def words(self) -> str:
        """The limits that it sets, in words: C ≥ 2, N ≤ 100 images."""
        bounds = sorted(f"{name} {one.words}" for name, one in self.bounds.items())
        return ", ".join([*bounds, *([" = ".join(self.equal)] if self.equal else []), *self.layers])

    def violation(self, case: Case) -> str:
        """Which limit a case breaks: value and limit. Empty where it breaks none."""
        if self.layers and not {case.name, str(case)} & set(self.layers):
            return f"it is not written for the layer {case.name}, but for {', '.join(self.layers)}"
        if len({case.extents[name] for name in self.equal}) > 1:
            values = ", ".join(f"{name} = {case.extents[name]}" for name in self.equal)
            return f"{values}: it is for equal ones alone"
        derived = case.problem.facts.derived
        for name in case.problem.names:
            if name in self.bounds and (words := self.bounds[name].violation(case.extents[name])):
                shown = derived[name] if name in SPELLED_OUT else name
                return f"{str(shown).replace(' ', '')} = {case.extents[name]} {words}"
        return ""
