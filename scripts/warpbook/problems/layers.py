"""The layers of a network by shape: what each takes and gives.

Convolutions are cross-correlations without bias: y[n,m,h,w] = sum over c,p,q of x[n,c,S*h+p-P,w*S+q-P] * w[m,c,p,q],
where x is 0 outside the image.
"""

from dataclasses import dataclass
from typing import Literal

from warpbook.problems import problem
from warpbook.problems.problem import Case

Activation = Literal["none", "tanh", "relu"]
Maps = tuple[int, int, int]
"""Maps, height and width of what a layer takes or gives for one image."""


class ConvLayer(Case):
    """A convolution as a case of `conv`: C input maps of H x W, M output maps of H_out x W_out, K x K taps, stride S, P
    rows and columns of zeros added on each side, and `more` of what `conv` has. Its size is the number of images."""

    def __init__(
        self, name: str, C: int, H: int, W: int, M: int, K: int, S: int = 1, P: int = 0, bias: bool = False, **more: int
    ):
        extents = {"C": C, "H": H, "W": W, "M": M, "K": K, "S": S, "P": P, **more}
        super().__init__(problem.find("conv"), name, tuple(extents.items()), frozenset(["bias"] if bias else []))

    @property
    def gives(self) -> Maps:
        return (self.M, self.H_out, self.W_out)

    def y_shape(self, images: int) -> tuple[int, int, int, int]:
        return (images, *self.gives)

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return (self.M, self.C // self.G, self.K, self.KW)

    def __repr__(self) -> str:
        # Stride and padding only where they are not the usual: recorded runs know shapes by this text.
        unusual = "".join(f", {name}={value}" for name, value in self.unusual.items())
        bias = ", bias=True" * bool(self.optional)
        extents = f"C={self.C}, H={self.H}, W={self.W}, M={self.M}, K={self.K}{unusual}{bias}"
        return f"ConvLayer(name={self.name!r}, {extents})"


@dataclass(frozen=True)
class PoolLayer:
    """The largest value or the average of each `size` x `size` of an image, windows side by side.

    `ceil`: rows and columns that are left over make windows of their own, smaller ones; else they are dropped.
    """

    kind: Literal["max", "average"]
    size: int
    ceil: bool
    C: int
    H: int
    W: int

    @property
    def gives(self) -> Maps:
        left_over = self.size - 1 if self.ceil else 0
        return (self.C, (self.H + left_over) // self.size, (self.W + left_over) // self.size)


@dataclass(frozen=True)
class DenseLayer:
    """A fully connected layer, with bias."""

    name: str
    inputs: int
    outputs: int

    @property
    def gives(self) -> Maps:
        return (self.outputs, 1, 1)


Layer = ConvLayer | PoolLayer | DenseLayer


@dataclass(frozen=True)
class Step:
    """A layer and what follows each of its outputs."""

    layer: Layer
    activation: Activation = "none"
