"""What a term of the course ECE408 asks of a submission: its optimizations, their points, the bound on its times. The
facts are data, under `course` of a study in config.yaml."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from warpbook.kernels import sources

Baseline = Literal["basic", "unroll", "fused"]
"""A kernel of an earlier milestone: one thread an output, the input unrolled apart from the product, both in one."""
_BASELINES: tuple[Baseline, ...] = ("basic", "unroll", "fused")


class _TermModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CourseGpu(_TermModel):
    """A GPU, with the peak rate of its memory: what takes less than its bytes need there was not all done."""

    name: str
    arch: str
    gb_per_s: float = Field(gt=0)
    l2_mib: float = Field(ge=0)


class Milestone(_TermModel):
    description: str
    points: int | None = Field(None, ge=0)


class Performance(_TermModel):
    """Points for the final file's op times, layers added: all at `full_ms`, none above `none_ms`, else linear."""

    points: int | None = Field(None, gt=0)
    full_ms: float = Field(gt=0)
    none_ms: float = Field(gt=0)

    @model_validator(mode="after")
    def _falls(self) -> "Performance":
        if self.none_ms <= self.full_ms:
            raise ValueError(f"none_ms: {self.none_ms} is not above full_ms, {self.full_ms}")
        return self

    def share(self, op_ms: float) -> float:
        """Of its points, what op times of so many ms earn."""
        return min(1.0, max(0.0, (self.none_ms - op_ms) / (self.none_ms - self.full_ms)))


class PartialCredit(_TermModel):
    """Points of an optimization whose code lacks a word."""

    points: int = Field(ge=0)
    without: str


class CourseOptimization(_TermModel):
    """One that the term lists. shows: words that its code holds where it is what it is called."""

    title: str
    points: int = Field(gt=0)
    baseline: Baseline
    code_must_contain: list[str] = Field(default_factory=list)
    partial_credit: PartialCredit | None = None

    def worth(self, code: str) -> int:
        """Its points for a code."""
        return (
            self.partial_credit.points
            if self.partial_credit and not first_line_with(self.partial_credit.without, code)
            else self.points
        )


def _number(name: str) -> str:
    if not re.fullmatch(r"(req|op)_\d{1,2}", name):
        raise ValueError(f"{name!r} is no number of an optimization such as req_0 or op_3")
    return name


class Term(_TermModel):
    """A term. gpu: what its times are judged on; bounds_ms: what each baseline's op times have to stay below;
    optional_points: what optimizations called op_ count for at most; questions: asked of each optimization. Points are
    None where the term's texts do not say."""

    gpu: CourseGpu
    milestones: list[Milestone] = Field(min_length=3, max_length=3)
    bounds_ms: dict[Baseline, float]
    performance: Performance
    optional_points: int = Field(ge=0)
    questions: list[str] = Field(min_length=1, max_length=9)
    optimizations: dict[Annotated[str, AfterValidator(_number)], CourseOptimization]

    @model_validator(mode="after")
    def _adds_up(self) -> "Term":
        if self.milestones[-1].points is None or self.performance.points is None:
            return self
        total = sum(one.points for one in self.required.values()) + self.optional_points + self.performance.points
        if total != self.milestones[-1].points:
            raise ValueError(
                f"the last milestone has {self.milestones[-1].points} points, and what is required, optional_points "
                f"and performance add up to {total}"
            )
        return self

    @property
    def required(self) -> dict[str, CourseOptimization]:
        return {name: one for name, one in self.optimizations.items() if name.startswith("req_")}

    @property
    def baselines(self) -> list[Baseline]:
        """Those that its optimizations are compared with, in the order of the milestones."""
        return [name for name in _BASELINES if any(one.baseline == name for one in self.optimizations.values())]

    @property
    def earlier(self) -> list[Baseline]:
        """Files of earlier milestones that a report shows: those, and what has a bound."""
        return [name for name in _BASELINES if name in self.bounds_ms or name in self.baselines]


def sum_points(term: Term, points: Mapping[str, int]) -> int:
    """The sum of points of optimizations by number, optional ones up to what counts."""
    required = sum(worth for name, worth in points.items() if name in term.required)
    return required + min(term.optional_points, sum(points.values()) - required)


def first_line_with(word: str, code: str) -> int:
    """The first line of C++ whose code, not a comment, holds a word; 0 where none does."""
    before, found, _ = sources.without_comments(code).partition(word)
    return before.count("\n") + 1 if found else 0
