"""Layers and batches by their extents: what a variant is for, and where a claim is about."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from warpbook.kernels import launches
from warpbook.problems.networks import ConvLayer


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


class Limits(BaseModel):
    """Layers that a variant supports: bounds of extents, and layers by name (conv1) or shape (6x30x30 * 16@5x5)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    N: Bounds = Bounds()
    C: Bounds = Bounds()
    H: Bounds = Bounds()
    W: Bounds = Bounds()
    M: Bounds = Bounds()
    K: Bounds = Bounds()
    H_out: Bounds = Bounds()
    W_out: Bounds = Bounds()
    S: Bounds = Bounds()
    P: Bounds = Bounds()
    weights: Bounds = Bounds()
    layers: list[str] = Field(default_factory=list)

    @property
    def words(self) -> str:
        """The limits that it sets, in words: C ≥ 2, N ≤ 100 images."""
        said = [f"{name} {getattr(self, name).words}" for name in self.model_fields_set if name != "layers"]
        return ", ".join([*sorted(said), *self.layers])

    def violation(self, layer: ConvLayer, images: int) -> str:
        """Which limit a layer breaks: value and limit. Empty where it breaks none."""
        if self.layers and not {layer.name, str(layer)} & set(self.layers):
            return f"it is not written for the layer {layer.name}, but for {', '.join(self.layers)}"
        values = launches.extents(layer, images) | {"weights": layer.M * layer.accumulation}
        for name in Limits.model_fields:
            if name != "layers" and (words := getattr(self, name).violation(values[name])):
                return f"{'M*C*K*K' if name == 'weights' else name} = {values[name]} {words}"
        return ""
