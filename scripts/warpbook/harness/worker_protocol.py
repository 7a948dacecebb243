"""What a variant's process is handed by its judge: memory that they share, and requests.

A process that needs no more than this and the standard library starts in a tenth of the time of one that does.
"""

import json
import math
import mmap
import os
import socket
from collections.abc import Callable
from typing import Any

from warpbook.problems.layers import ConvLayer

ANSWER_BYTES = 128 << 10
GUARD_WORDS = 1 << 14  # 64 KiB on either side; keeps the alignment that allocators give
PAGE_WORDS = 1 << 10


def layout(layer: ConvLayer, images: int) -> tuple[list[int], int]:
    """The words where x, w, y with their margins and a returned array begin in the memory, and the bytes of it all."""
    places = [0]
    for shape in shapes(layer, images):
        words = math.prod(shape) + 2 * GUARD_WORDS
        places.append(places[-1] + -(-words // PAGE_WORDS) * PAGE_WORDS)
    return places, 4 * places[-1] + 8 * math.prod(layer.y_shape(images))


def shapes(layer: ConvLayer, images: int) -> tuple[tuple[int, ...], ...]:
    """Those of x, w and y."""
    return layer.x_shape(images), layer.w_shape, layer.y_shape(images)


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
