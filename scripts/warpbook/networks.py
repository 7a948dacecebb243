"""The networks of the course, by shape: what each layer takes and gives.

Every network is conv1 - tanh - 2x2 max pool - [conv2 -] flatten - FC - tanh - FC 10. Convolutions are valid
cross-correlations of stride 1 without bias: y[n,m,h,w] = sum over c,p,q of x[n,c,h+p,w+q] * w[m,c,p,q].
Nothing follows conv2 before the flattening.
"""

import hashlib
from dataclasses import dataclass

from warpbook.errors import UserError, nearest


@dataclass(frozen=True)
class ConvLayer:
    """One convolution: C input maps of H x W, M output maps of (H-K+1) x (W-K+1), K x K taps."""

    name: str
    C: int
    H: int
    W: int
    M: int
    K: int

    @property
    def H_out(self) -> int:
        return self.H - self.K + 1

    @property
    def W_out(self) -> int:
        return self.W - self.K + 1

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
        return f"{self.C}x{self.H}x{self.W} * {self.M}@{self.K}x{self.K}"


@dataclass(frozen=True)
class Network:
    """A network of the course: square images of side `image`, its convolutions, one hidden FC layer, 10 classes."""

    name: str
    image: int
    convs: tuple[ConvLayer, ...]
    hidden: int
    weight_sets: tuple[str, ...] = ("trained",)
    classes: int = 10

    @property
    def features(self) -> int:
        """Length of the flattened activations that enter the first FC layer."""
        last = self.convs[-1]
        pooled = 2 if len(self.convs) == 1 else 1
        return last.M * (last.H_out // pooled) * (last.W_out // pooled)

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter by name, in the order of use."""
        shapes: dict[str, tuple[int, ...]] = {f"{conv.name}.weight": conv.w_shape for conv in self.convs}
        shapes |= {
            "fc1.weight": (self.hidden, self.features),
            "fc1.bias": (self.hidden,),
            "fc2.weight": (self.classes, self.hidden),
            "fc2.bias": (self.classes,),
        }
        return shapes

    @property
    def shapes_sha256(self) -> str:
        """Identity of the shapes: a recorded figure holds only for the shapes it was measured on."""
        return hashlib.sha256(repr((self.image, self.convs, self.hidden, self.classes)).encode()).hexdigest()

    def model(self, weight_set: str) -> str:
        """The name that the course's scripts print after `Model:`."""
        return self.name if len(self.weight_sets) == 1 else f"{self.name}-{weight_set}"


def _network(
    name: str, image: int, filters: list[tuple[int, int]], hidden: int, weight_sets: tuple[str, ...] = ("trained",)
) -> Network:
    convs, channels, side = [], 1, image
    for number, (maps, taps) in enumerate(filters, start=1):
        convs.append(ConvLayer(f"conv{number}", channels, side, side, maps, taps))
        channels, side = maps, (side - taps + 1) // 2
    return Network(name, image, tuple(convs), hidden, weight_sets)


NETWORKS = {
    network.name: network
    for network in (
        _network("fa17", 28, [(50, 5)], 500, ("high", "low")),
        _network("fa18", 64, [(6, 5), (16, 5)], 140),
        _network("sp19", 48, [(6, 5), (16, 5)], 140),
        _network("fa19", 72, [(12, 7), (24, 7)], 160),
    )
}


def find(name: str) -> Network:
    """The network called `name`; UserError with the nearest valid name when there is none."""
    if name not in NETWORKS:
        raise UserError(f"no network is called {name!r}: {nearest(name, list(NETWORKS))}")
    return NETWORKS[name]
