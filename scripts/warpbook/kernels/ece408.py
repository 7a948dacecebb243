"""Files of the course ECE408 since 2020: a class `GPUInterface` whose host code allocates, copies and launches itself.
Such a file is a variant as it is. A driver calls its prolog, its convolution and its epilog, as the course's does."""

import re
from dataclasses import dataclass
from functools import cache

from warpbook.kernels import sources
from warpbook.problems.networks import ConvLayer

LAYERS = (ConvLayer("conv1", 1, 86, 86, 4, 7), ConvLayer("conv2", 4, 40, 40, 16, 7))
"""The course's convolutions. Its files may assume their extents, and that a batch is 100 images or a multiple."""
BATCH = 100
LESSER_BATCH = 20
ODD_BATCH = 3  # images that no tiling of a batch divides: what a file assumes shows here

HEADER, MATRIX_HEADER = "gpu-new-forward.h", "matmul.h"
"""What its files include of the course: the class, and since sp25 a product of matrices."""
METHOD = re.compile(r"\bGPUInterface\s*::\s*(~?\w+)\s*\(([^(){};]*)\)\s*\{")
"""The head of a method of the class: its name and parameters."""
_CALLS = ("conv_forward_gpu_prolog", "conv_forward_gpu", "conv_forward_gpu_epilog")
_PRECISE = (
    ("fp16", re.compile(r"\b(?:__half2?|half2?|__float2half\w*|__floats?2?2?half2\w*|cublasHgemm|CUDA_R_16F)\b")),
    ("bf16", re.compile(r"\b__nv_bfloat16")),
    ("tf32", re.compile(r"\b(?:precision\s*::\s*tf32|CUBLAS_TF32_TENSOR_OP_MATH|CUBLAS_COMPUTE_32F_FAST_TF32)\b")),
)


@dataclass(frozen=True)
class Interface:
    """The methods that a file defines: each one's name and parameters, as it writes them."""

    methods: tuple[tuple[str, str], ...]

    @property
    def has_stride(self) -> bool:
        """Whether a stride follows the extents, as in fa23."""
        return len(_parameters(dict(self.methods).get("conv_forward_gpu", ""))) == 10

    @property
    def is_one_call(self) -> bool:
        """Whether one function of the host's arrays does all, as in fa20."""
        return _CALLS[0] not in dict(self.methods)

    @property
    def problem(self) -> str:
        """Why no driver of a term of the course could call it; empty where one could."""
        methods = dict(self.methods)
        extents = 7 if self.has_stride else 6
        for name, arrays in ((_CALLS[0], 6), (_CALLS[1], 3), (_CALLS[2], 4)):
            if self.is_one_call and name != _CALLS[1]:
                continue
            if name not in methods:
                return f"GPUInterface has no {name}, which the course's program calls; it defines {', '.join(methods)}"
            if (taken := len(_parameters(methods[name]))) != arrays + extents:
                return f"GPUInterface::{name} takes {taken} arguments, as in no term of the course"
        return ""

    @property
    def declaration(self) -> str:
        """The class, as the course's header declares it, on one line."""
        methods = " ".join(f"void {name}({' '.join(listed.split())});" for name, listed in self.methods)
        return f"class GPUInterface {{ public: {methods} }};"

    @property
    def steps(self) -> tuple[str, str, str]:
        """C++ that makes ready, convolves and takes back: on x, w, y, B, M, C, H, W and K, the object `gpu` and, but in
        one call, the pointers device_x, device_w and device_y. In one call the first and the last are empty."""
        extents = "B, M, C, H, W, K" + (", 1" if self.has_stride else "")
        if self.is_one_call:
            return "", f"gpu.conv_forward_gpu(y, x, w, {extents});", ""
        return (
            f"gpu.conv_forward_gpu_prolog(y, x, w, &device_y, &device_x, &device_w, {extents});",
            f"gpu.conv_forward_gpu(device_y, device_x, device_w, {extents});",
            f"gpu.conv_forward_gpu_epilog(y, device_y, device_x, device_w, {extents});",
        )


@cache
def interface(code: str) -> Interface | None:
    """What a source defines of GPUInterface; None where it is no file of the course."""
    if "GPUInterface" not in code:
        return None
    found: dict[tuple[str, tuple[str, ...]], tuple[str, str]] = {}
    for name, listed in METHOD.findall(sources.without_comments(code)):
        if name not in ("GPUInterface", "~GPUInterface"):
            found.setdefault((name, tuple(_parameter_type(each) for each in _parameters(listed))), (name, listed))
    methods = tuple(found.values())
    return Interface(methods) if any(name.startswith("conv_forward") for name, _ in methods) else None


def declares_class(code: str) -> bool:
    """Whether a source declares GPUInterface itself, or a header of its own that stands in it."""
    return re.search(r"\b(?:class|struct)\s+GPUInterface\s*\{", sources.without_comments(code)) is not None


def precision(code: str) -> str:
    """The precision class that a file's code computes in: the least that it names."""
    plain = sources.without_comments(code)
    return next((name for name, pattern in _PRECISE if pattern.search(plain)), "fp32")


def makes_streams(code: str) -> bool:
    """Whether a file makes streams."""
    return re.search(r"\bcudaStreamCreate", sources.without_comments(code)) is not None


def _parameters(listed: str) -> list[str]:
    return [each.strip() for each in listed.split(",") if each.strip() not in ("", "void")]


def _parameter_type(parameter: str) -> str:
    """A parameter without its name and spaces: what tells overloads apart."""
    return re.sub(r"\s+", "", re.sub(r"\b(?!const\b|float\b|int\b)\w+\s*$", "", parameter))
