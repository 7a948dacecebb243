"""What a variant's process is handed by its judge: memory that they share, and requests.

A process that needs no more than this and the standard library starts in a tenth of the time of one that does.
"""

import json
import math
import mmap
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

ANSWER_BYTES = 128 << 10
GUARD_BYTES = 1 << 16  # on either side; keeps the alignment that allocators give
PAGE_BYTES = 1 << 12


class Layout(NamedTuple):
    """First byte of each array with its margins, and of each returned output, in the memory; and the bytes of it all."""

    arrays: list[int]
    returned: list[int]
    size: int


def layout(arrays: Sequence[tuple[Sequence[int], str]], outputs: int) -> Layout:
    """Of arrays by shape and NumPy's name of their type, the last `outputs` of them outputs. What a call returns is
    float64."""
    places = [0]
    sizes = [nbytes(*one) + 2 * GUARD_BYTES for one in arrays]
    sizes += [8 * math.prod(shape) for shape, _ in arrays[len(arrays) - outputs :]]
    for size in sizes:
        places.append(places[-1] + -(-size // PAGE_BYTES) * PAGE_BYTES)
    return Layout(places[: len(arrays)], places[len(arrays) : -1], places[-1])


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of an array, by the digits of its type's name."""
    return math.prod(shape) * (int("".join(filter(str.isdecimal, dtype))) // 8)


READY = b"ready"
"""What a process says first, before it loads anything of the variant's."""


def say_ready(number: int) -> None:
    """Tell the judge through the socket of a descriptor that this process has begun."""
    os.write(number, READY)


def serve(number: int, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the requests that come through the socket of a descriptor, until there are no more: a JSON object each,
    with `memory` where that is handed with it."""
    judge = socket.socket(fileno=number)
    judge.set_inheritable(False)
    while True:
        content, handed, _, _ = socket.recv_fds(judge, ANSWER_BYTES, 1)
        if not content:
            return
        request = json.loads(content)
        if handed:
            request["memory"] = mmap.mmap(handed[0], 0)
            os.close(handed[0])
        judge.send(json.dumps(answer(request)).encode())
