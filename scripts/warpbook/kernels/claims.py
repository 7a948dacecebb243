"""Claims: what a variant's `expect` says, so that figures can decide it: a quantity, a place, a direction, an amount.

    claims:
      - {says: Time falls most, quantity: op_time, change: falls, where: {C: {at_least: 2}}, more_than: {C: {is: 1}}}
      - {quantity: registers, change: rises, by: 10 %}

A claim compares the variant with what it builds on, or with `against`, on the layers and batches of `where`: on all
layers at a study's largest size where it says nothing. `value` is of the variant alone.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeFloat, field_validator, model_validator

from warpbook.common import expressions
from warpbook.common.errors import nearest_name
from warpbook.common.expressions import Expression
from warpbook.kernels.constraints import Limits
from warpbook.problems.problem import Problem

TIMES = {"op_time": "op time", "gpu_time": "GPU time"}  # quantities that have samples, and so intervals
RATIOS = {
    "times_bound": "GPU time over the FP32 bound",
    "times_memory_bound": "GPU time over that of a copy of its bytes",
    "fp32_peak_share": "rate of useful operations over the FP32 peak",
    "fma_share": "FP32 multiply-adds among all instructions",
}
"""Quantities of one variant alone on a layer."""
RESOURCES = {
    "registers": "registers a thread",
    "shared_bytes": "static shared memory a block",
    "local_bytes": "local memory a thread",
    "spill_bytes": "spilled bytes",
}
"""What the compiler gave the main kernel, on whatever layer."""
OF_TESTS = {"error": "largest relative error"}
QUANTITIES = TIMES | RATIOS | RESOURCES | OF_TESTS
"""Quantities besides the hardware counters, which go by Nsight Compute's names, in the report's words."""


def _share(value: Any) -> Any:
    """A share of 1, written as one or in percent: 0.1, 10 %."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return float(value.strip().removesuffix("%")) / 100
    return value


Share = Annotated[NonNegativeFloat, BeforeValidator(_share)]


class _ClaimModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Amount(_ClaimModel):
    """How much: shares of the baseline's value, bare `at_least` (with `stays` `at_most`), or a `count` within 2 %."""

    at_least: Share = 0.0
    at_most: Share | None = None
    count: Expression | None = None


class Value(_ClaimModel):
    """Bounds of the variant's own value."""

    at_least: Share | None = None
    at_most: Share | None = None

    @model_validator(mode="after")
    def _require_bound(self) -> "Value":
        if self.at_least is None and self.at_most is None:
            raise ValueError("say `at_least`, `at_most` or both")
        return self


class Claim(_ClaimModel):
    """One claim: the `change` of a quantity against the baseline, or its `value`, or why it is `undecidable`."""

    says: str = Field("", description="the words of `expect` that it stands for")
    quantity: str = Field("", description="one of the quantities below, or a counter by Nsight Compute's name")
    change: Literal["falls", "rises", "stays", ""] = ""
    by: Amount = Amount()
    value: Value | None = None
    where: Limits = Limits()
    more_than: Limits | None = Field(None, description="layers and sizes where the effect is smaller")
    against: str = Field("", description="variant to compare with, if not the baseline")
    undecidable: str = Field("", description="why no measurement can decide it")

    @model_validator(mode="before")
    @classmethod
    def _bare_amount(cls, content: Any) -> Any:
        if isinstance(content, dict) and isinstance(content.get("by"), str | int | float):
            side = "at_most" if content.get("change") == "stays" else "at_least"
            return content | {"by": {side: content["by"]}}
        return content

    @field_validator("quantity")
    @classmethod
    def _check_quantity(cls, quantity: str) -> str:
        if quantity and quantity not in QUANTITIES and "__" not in quantity:
            raise ValueError(f"{quantity!r} is no quantity: {nearest_name(quantity, list(QUANTITIES))}")
        return quantity

    @model_validator(mode="after")
    def _whole(self) -> "Claim":
        if bool(self.undecidable) == bool(self.quantity):
            raise ValueError("say the `quantity` that it is about, or why it is `undecidable`")
        if self.quantity and bool(self.change) == (self.value is not None):
            raise ValueError("say its `change` against the baseline, or its `value`; one of the two")
        if self.quantity in RATIOS and self.change:
            raise ValueError(f"{self.quantity} is of the variant alone: say its `value`")
        if self.quantity in TIMES and self.value is not None:
            raise ValueError(f"{self.quantity} is compared: say its `change`, or use times_bound")
        if self.change == "stays" and self.by.at_most is None:
            raise ValueError("what stays does so within some amount: `by: 5 %`")
        if self.more_than is not None and self.change not in ("falls", "rises"):
            raise ValueError("`more_than` goes with `falls` or `rises`")
        return self

    def check(self, problem: Problem) -> None:
        """Raises ValueError, the key before the reason, for a name that is none of the problem's."""
        if self.by.count is not None:
            try:
                expressions.check("count", [self.by.count], set(problem.names))
            except ValueError as error:
                raise ValueError(f"by.count: {error}") from None
        for key, limits in (("where", self.where), ("more_than", self.more_than)):
            try:
                if limits:
                    limits.check(problem)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None

    @property
    def counter(self) -> str:
        """The hardware counter that it needs; empty where it needs none."""
        return "" if self.quantity in QUANTITIES else self.quantity
