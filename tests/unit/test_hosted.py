"""Networks from the host to the host: how images are shared among chunks, and page-locked memory they start from."""

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")

from warpbook.harness import host_to_host, pinned_memory  # noqa: E402


@given(
    st.integers(1, 60_000),
    st.lists(st.integers(1, 100), min_size=1, max_size=8) | st.sampled_from(host_to_host.SHARES),
    st.integers(1, 200),
)
def test_chunks_hold_every_image_and_all_but_the_last_fill_the_device(images, shares, multiprocessors):
    sizes = host_to_host.chunk_sizes(images, shares, multiprocessors)
    assert sum(sizes) == images
    assert all(size > 0 for size in sizes)
    assert len(sizes) <= len(shares)
    assert all(size % (host_to_host.BLOCKS * multiprocessors) == 0 for size in sizes[:-1])


def test_images_that_fill_the_device_once_go_in_one_chunk():
    assert [host_to_host.chunk_sizes(528, shares, 132) for shares in host_to_host.SHARES] == [[528]] * len(
        host_to_host.SHARES
    )


def test_ten_thousand_images_on_132_multiprocessors_begin_and_end_with_small_chunks_or_grow():
    *_, growing, many, ending = host_to_host.SHARES
    assert host_to_host.chunk_sizes(10_000, growing, 132) == [528, 1056, 1584, 2112, 2640, 2080]
    assert host_to_host.chunk_sizes(10_000, many, 132) == [528, 1056, 1056, 1584, 1584, 2112, 1584, 496]
    assert host_to_host.chunk_sizes(10_000, ending, 132) == [528, 1056, 1584, 2112, 2112, 1584, 1024]


def is_mapped(address):
    """Whether this process has memory there."""
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps]
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in spans)


def test_memory_is_locked_as_a_whole_and_unlocked_before_it_is_unmapped(monkeypatch):
    gc.collect()  # what earlier tests left is unlocked by the driver
    for shape in ((1,), (3, 1000, 1001)):
        locked, unlocked = {}, []
        monkeypatch.setattr(pinned_memory, "hostRegister", lambda at, count, flags, to=locked: to.update({at: count}))
        monkeypatch.setattr(pinned_memory, "hostUnregister", lambda at, to=unlocked: to.append((at, is_mapped(at))))
        array = pinned_memory.pinned_zeros(shape, np.float32)
        assert array.shape == shape and array.dtype == np.float32 and not array.any()
        assert locked[array.ctypes.data] >= array.nbytes
        address, part = array.ctypes.data, array.reshape(-1)[:1]
        del array
        gc.collect(0)
        assert not unlocked  # a part of it is still held
        del part
        gc.collect(0)
        assert unlocked == [(address, True)]


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this kernel has no huge pages")
def test_the_memory_is_asked_for_in_huge_pages(monkeypatch):
    monkeypatch.setattr(pinned_memory, "hostRegister", lambda *_: None)
    monkeypatch.setattr(pinned_memory, "hostUnregister", lambda _: None)
    address = pinned_memory.pinned_zeros((8 << 20,)).ctypes
    with open("/proc/self/smaps") as maps:
        lines = maps.read().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{address.data:x}-"))
    flags = next(line for line in lines[start:] if line.startswith("VmFlags"))
    assert " hg" in flags
