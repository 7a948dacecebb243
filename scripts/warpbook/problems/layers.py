"""The layers of a network by shape: what each takes and gives.

Convolutions are cross-correlations without bias: y[n,m,h,w] = sum over c,p,q of x[n,c,S*h+p-P,w*S+q-P] * w[m,c,p,q],
where x is 0 outside the image.
"""

from dataclasses import dataclass
from typing import Literal

Activation = Literal["none", "tanh", "relu"]
Maps = tuple[int, int, int]
"""Maps, height and width of what a layer takes or gives for one image."""


@dataclass(frozen=True, repr=False)
class ConvLayer:
    """One convolution: C input maps of H x W, M output maps of H_out x W_out, K x K taps, stride S, and P rows and
    columns of zeros added on each side."""

    name: str
    C: int
    H: int
    W: int
    M: int
    K: int
    S: int = 1
    P: int = 0

    @property
    def H_out(self) -> int:
        return (self.H + 2 * self.P - self.K) // self.S + 1

    @property
    def W_out(self) -> int:
        return (self.W + 2 * self.P - self.K) // self.S + 1

    @property
    def gives(self) -> Maps:
        return (self.M, self.H_out, self.W_out)

    @property
    def accumulation(self) -> int:
        """Products summed into one output."""
        return self.C * self.K * self.K

    def x_shape(self, images: int) -> tuple[int, int, int, int]:
        return (images, self.C, self.H, self.W)

    def y_shape(self, images: int) -> tuple[int, int, int, int]:
        return (images, self.M, self.H_out, self.W_out)

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return (self.M, self.C, self.K, self.K)

    def flops(self, images: int) -> int:
        """Floating-point operations of the direct method, a multiply and an add for each product."""
        return 2 * images * self.M * self.H_out * self.W_out * self.accumulation

    def bytes(self, images: int) -> int:
        """Least traffic in float32: every input, weight and output moved once."""
        x = images * self.C * self.H * self.W
        w = self.M * self.C * self.K * self.K
        y = images * self.M * self.H_out * self.W_out
        return 4 * (x + w + y)

    def __str__(self) -> str:
        unusual = f" stride {self.S}" * (self.S != 1) + f" padding {self.P}" * (self.P != 0)
        return f"{self.C}x{self.H}x{self.W} * {self.M}@{self.K}x{self.K}{unusual}"

    def __repr__(self) -> str:
        # Stride and padding only where they are not the usual: recorded runs know shapes by this text.
        unusual = f", S={self.S}" * (self.S != 1) + f", P={self.P}" * (self.P != 0)
        return f"ConvLayer(name={self.name!r}, C={self.C}, H={self.H}, W={self.W}, M={self.M}, K={self.K}{unusual})"


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
