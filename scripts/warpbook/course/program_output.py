"""What the course's own program prints, for students bring its output: op times, layer times and accuracy by batch."""

import re
from dataclasses import dataclass

MOST = 20
# No space here reaches over a line: a file of empty lines would be looked through again from each.
_BATCH = re.compile(r"^[ \t]*Test batch size: (\d{1,6})[ \t]*$", re.MULTILINE)
_OP = re.compile(r"^[ \t]*Op Time: (\d{1,9}(?:\.\d+)?(?:e[+-]?\d{1,2})?) ms", re.MULTILINE)
_LAYER = re.compile(r"^[ \t]*Layer Time: (\d{1,9}(?:\.\d+)?(?:e[+-]?\d{1,2})?) ms", re.MULTILINE)
_ACCURACY = re.compile(r"^[ \t]*Test Accuracy: ([01](?:\.\d+)?)[ \t]*$", re.MULTILINE)
_REAL = re.compile(r"^[ \t]*real[ \t]+(\d{1,4})m(\d{1,2}(?:\.\d+)?)s", re.MULTILINE)


@dataclass(frozen=True)
class ProgramOutput:
    """One run of the program. op_ms, layer_ms: of each layer; accuracy, elapsed_s: None where it does not say."""

    batch: int
    op_ms: tuple[float, ...]
    layer_ms: tuple[float, ...]
    accuracy: float | None
    elapsed_s: float | None


def parse_runs(text: str, layers: int) -> list[ProgramOutput]:
    """The runs in a program's output that tell an op time for each layer, the last of each batch size."""
    starts = [*_BATCH.finditer(text)]
    ends = [*(start.start() for start in starts[1:]), len(text)][: len(starts)]
    found: dict[int, ProgramOutput] = {}
    for start, end in list(zip(starts, ends, strict=True))[:MOST]:
        part = text[start.end() : end]
        ops, times = (tuple(map(float, pattern.findall(part))) for pattern in (_OP, _LAYER))
        accuracy, real = _ACCURACY.search(part), _REAL.search(part)
        if len(ops) == layers:
            found[int(start[1])] = ProgramOutput(
                batch=int(start[1]),
                op_ms=ops,
                layer_ms=times if len(times) == layers else (),
                accuracy=float(accuracy[1]) if accuracy else None,
                elapsed_s=60 * int(real[1]) + float(real[2]) if real else None,
            )
    return [found[batch] for batch in sorted(found)]
