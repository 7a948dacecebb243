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


def _lines(pattern: str, plain: str, begin: int = 0, end: int = -1) -> list[int]:
    """The lines that a pattern is in, from one character on and before another."""
    text = plain if end < 0 else plain[:end]
    number, place, found = 1, 0, []
    for match in re.compile(pattern).finditer(text, begin):
        number += text.count("\n", place, match.start())
        place = match.start()
        found.append(number)
    return found


def _launches(plain: str) -> list[tuple[str, int]]:
    """(method, line) of every launch in a method of GPUInterface, each character looked at once."""
    found = []
    end = 0
    while method := ece408.METHOD.search(plain, end):
        depth, end = 1, len(plain)
        for brace in re.compile("[{}]").finditer(plain, method.end()):
            depth += 1 if brace[0] == "{" else -1
            if not depth:
                end = brace.end()
                break
        found += [(method[1], line) for line in _lines("<<<", plain, method.end(), end)]
    return found
