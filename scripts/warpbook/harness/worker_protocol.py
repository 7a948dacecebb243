"""What a variant's process is handed by its judge: memory that they share, and requests. A process that needs no more
than this and the standard library starts in a tenth of the time of one that does."""

import ctypes
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
    """Of arrays by shape and NumPy's name of their type, the last `outputs` of them outputs, float64 as results."""
    places = [0]
    sizes = [nbytes(*one) + 2 * GUARD_BYTES for one in arrays]
    sizes += [8 * math.prod(shape) for shape, _ in arrays[len(arrays) - outputs :]]
    for size in sizes:
        places.append(places[-1] + -(-size // PAGE_BYTES) * PAGE_BYTES)
    return Layout(places[: len(arrays)], places[len(arrays) : -1], places[-1])


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of an array, by the digits of its type's name."""
    return math.prod(shape) * (int("".join(filter(str.isdecimal, dtype))) // 8)


READY = b"ready"  # what a process says first, before it loads anything of the variant's


def say_ready(number: int) -> None:
    """Tell the judge through the socket of a descriptor that this process has begun."""
    os.write(number, READY)


PROT_NONE, MAP_NORESERVE, MREMAP_MAYMOVE, MREMAP_FIXED = 0, 0x4000, 1, 2
"""Linux's numbers, which Python's `mmap` does not name."""


def map_sampled_arrays(memory: mmap.mmap, arrays: Sequence[Sequence[Any]], outputs: int) -> list[int]:
    """The address of each array of a sampled call: [first byte, bytes, shape, type, whether its images repeat] in the
    memory, the last `outputs` of them outputs. Inputs whose images do not repeat are copies of exactly their size, never
    freed."""
    allocate = ctypes.CDLL(None).malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    addresses: list[int] = []
    for number, (place, count, shape, dtype, repeats) in enumerate(arrays):
        if repeats:
            addresses.append(map_repeated(memory, place, count, nbytes(shape, dtype)))
        elif number < len(arrays) - outputs:
            addresses.append(allocate(count))
            ctypes.memmove(addresses[-1], memory[place : place + count], count)
        else:
            addresses.append(guard_array(memory, place, count))
    return addresses


def guard_array(memory: mmap.mmap, place: int, count: int) -> int:
    """The address of bytes of shared memory. AddressSanitizer reports accesses behind them, to the end of the next page."""
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory, place))
    end = (-(-(place + count) // PAGE_BYTES) + 1) * PAGE_BYTES - place
    _poison(begin + count, end - count)
    return begin


def map_repeated(memory: mmap.mmap, place: int, count: int, total: int) -> int:
    """The address of `total` bytes, read-only: the same pages of shared memory mapped again and again.

    The rest of the last page is closed. Raises MemoryError where the system has no room for so many."""
    library = ctypes.CDLL(None, use_errno=True)
    for name in ("mmap", "mremap"):
        getattr(library, name).restype = ctypes.c_void_p
    source = ctypes.addressof(ctypes.c_char.from_buffer(memory, place))
    whole = -(-total // count) * count
    taken = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    begin: int = library.mmap(None, ctypes.c_size_t(whole + PAGE_BYTES), PROT_NONE, taken, -1, ctypes.c_long(0))
    for at in range(0, whole, count):
        # Of a shared mapping, none of it moved: the same pages once more.
        moved = [ctypes.c_void_p(source), ctypes.c_size_t(0), ctypes.c_size_t(count), MREMAP_MAYMOVE | MREMAP_FIXED]
        if library.mremap(*moved, ctypes.c_void_p(begin + at)) != begin + at:
            raise MemoryError(f"{total} bytes cannot be mapped")
    library.mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(whole), mmap.PROT_READ)
    _poison(begin + total, whole - total)
    return begin


def _poison(address: int, count: int) -> None:
    ctypes.CDLL(None).__asan_poison_memory_region(ctypes.c_void_p(address), ctypes.c_size_t(count))


def serve(number: int, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the requests that come through the socket of a descriptor, until there are no more: a JSON object each,
    with `memory` where that is handed with it. An answer has the `id` of its request."""
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
        number = request.pop("id")
        judge.send(json.dumps({**answer(request), "id": number}).encode())
