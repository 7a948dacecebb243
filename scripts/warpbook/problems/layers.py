"""The layers of a network by shape: what each takes and gives. A convolution is a case of `conv`. Every layer may be
followed by an activation, which belongs to its step."""

from dataclasses import dataclass
from typing import Literal

from warpbook.problems import problem
from warpbook.problems.problem import Case

Activation = Literal["none", "tanh", "relu", "sigmoid", "leaky_relu"]
"""None of them falls where its input rises: a layer may take the largest value of some before or after it."""
Maps = tuple[int, int, int]  # maps, height and width of what a layer takes or gives for one image


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


@dataclass(frozen=True, repr=False)
class PoolLayer:
    """The largest value or the average of each window of an image; what a window has beyond the image does not count.

    `size` is the side of a window, or its (rows, columns); `stride` likewise, the size where it is None. `padding` is
    how far windows reach beyond the image: (top, left, bottom, right).
    `ceil`: rows and columns that are left over make windows of their own, smaller ones; else they are dropped.
    """

    kind: Literal["max", "average"]
    size: int | tuple[int, int]
    ceil: bool
    C: int
    H: int
    W: int
    stride: int | tuple[int, int] | None = None
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        return _pair(self.size)

    @property
    def strides(self) -> tuple[int, int]:
        """Rows and columns from a window to the next."""
        return self.window if self.stride is None else _pair(self.stride)

    @property
    def has_plain_windows(self) -> bool:
        """Whether windows are square, side by side, and within the image."""
        return isinstance(self.size, int) and self.strides == self.window and not any(self.padding)

    @property
    def gives(self) -> Maps:
        top, left, bottom, right = self.padding
        return (self.C, self._count(0, self.H, top, bottom), self._count(1, self.W, left, right))

    def _count(self, axis: int, extent: int, before: int, after: int) -> int:
        """Windows along an axis; of those left over, only one that begins before the padding at the end."""
        window, step = self.window[axis], self.strides[axis]
        count = (extent + before + after - window + (step - 1 if self.ceil else 0)) // step + 1
        return count - (self.ceil and (count - 1) * step >= extent + before)

    def spans(self, axis: int) -> list[tuple[int, int]]:
        """The rows of the image, or the columns where `axis` is 1, that each window covers: first and end."""
        extent, before = (self.H, self.W)[axis], self.padding[axis]
        begins = [number * self.strides[axis] - before for number in range(self.gives[1 + axis])]
        return [(max(begin, 0), min(begin + self.window[axis], extent)) for begin in begins]

    def __repr__(self) -> str:
        # Only what is said beyond the first fields: recorded runs know shapes by this text.
        more = "" if self.stride is None else f", stride={self.stride}"
        more += f", padding={self.padding}" * any(self.padding)
        return f"PoolLayer(kind={self.kind!r}, size={self.size}, ceil={self.ceil}, C={self.C}, H={self.H}, W={self.W}{more})"


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


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


@dataclass(frozen=True, repr=False)
class Step:
    """A layer and what follows each of its outputs. `slope` is what leaky_relu multiplies negative values by."""

    layer: Layer
    activation: Activation = "none"
    slope: float = 0.0

    def __repr__(self) -> str:
        more = f", slope={self.slope}" * (self.activation == "leaky_relu")  # recorded runs know shapes by this text
        return f"Step(layer={self.layer!r}, activation={self.activation!r}{more})"
