"""What a rule can tell of a submission's final file by its code: one stream, kernels within conv_forward_gpu."""

import re
from dataclasses import dataclass

from warpbook.kernels import ece408, sources

_BESIDE = ("conv_forward_gpu_prolog", "conv_forward_gpu_epilog")


@dataclass(frozen=True)
class Rule:
    """One of the course's rules for the final file. kept: None where a person must say."""

    asks: str
    kept: bool | None
    words: str


def final_rules(code: str) -> list[Rule]:
    """What the code of a final file keeps and does not."""
    plain = sources.without_comments(code)
    launches = [f"{method}, line {line}" for method, line in _launches(plain) if method in _BESIDE]
    streams = [f"line {line}" for line in _lines(r"\bcudaStreamCreate", plain)]
    precision = ece408.precision(code)
    return [
        Rule(
            "Kernels are launched within conv_forward_gpu",
            not launches,
            f"launched in {'; '.join(launches)}" if launches else "no launch in prolog or epilog",
        ),
        Rule(
            "One stream", not streams, f"streams are made in {', '.join(streams)}" if streams else "no stream is made"
        ),
        Rule(
            "Accuracy as in full precision",
            True if precision == "fp32" else None,
            "its code names no lower precision"
            if precision == "fp32"
            else f"its code names {precision}: whether accuracy suffers, the course's run must show",
        ),
    ]


def _lines(pattern: str, plain: str) -> list[int]:
    return [plain.count("\n", 0, found.start()) + 1 for found in re.finditer(pattern, plain)]


def _launches(plain: str) -> list[tuple[str, int]]:
    """(method, line) of every launch that stands in a method of GPUInterface."""
    found = []
    for method in ece408.METHOD.finditer(plain):
        depth, end = 1, method.end()
        while depth and end < len(plain):
            depth += {"{": 1, "}": -1}.get(plain[end], 0)
            end += 1
        body = plain[method.end() : end]
        before = plain.count("\n", 0, method.end())
        found += [(method[1], before + line) for line in _lines("<<<", body)]
    return found
