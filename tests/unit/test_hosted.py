"""Networks from the host to the host: how images are shared among chunks, and page-locked memory they start from."""

import gc
from pathlib import Path

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from warpbook.harness import host_to_host, pinned_memory  # noqa: E402


@pytest.mark.parametrize("images", [1, 10, 527, 528, 529, 1000, 5000, 10_000, 60_000])
@pytest.mark.parametrize("multiprocessors", [14, 84, 132])
@pytest.mark.parametrize("shares", host_to_host.SHARES, ids=str)
def test_chunks_hold_every_image_and_all_but_the_last_fill_the_device(images, multiprocessors, shares):
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


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 1000, 1001)], ids=str)
def test_memory_is_locked_as_a_whole_and_unlocked_before_it_is_unmapped(monkeypatch, shape):
    gc.collect()  # what earlier tests left is unlocked by the driver
    locked, unlocked = {}, []
    monkeypatch.setattr(pinned_memory, "hostRegister", lambda address, count, flags: locked.update({address: count}))
    monkeypatch.setattr(pinned_memory, "hostUnregister", lambda address: unlocked.append((address, is_mapped(address))))
    array = pinned_memory.pinned_zeros(shape, np.float32)
    assert array.shape == shape and array.dtype == np.float32 and not array.any()
    assert locked[array.ctypes.data] >= array.nbytes
    address, part = array.ctypes.data, array.reshape(-1)[:1]
    del array
    gc.collect()
    assert not unlocked  # a part of it is still held
    del part
    gc.collect()
    assert unlocked == [(address, True)]


@pytest.mark.gpu
def test_the_driver_takes_the_memory_for_page_locked():
    array = pinned_memory.pinned_zeros((5_000_000,))
    array[...] = np.arange(array.size) % 251
    attributes = cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data)
    assert attributes.type == cupy.cuda.runtime.memoryTypeHost
    on_device, back = cupy.asarray(array), pinned_memory.pinned_zeros(array.shape)
    on_device.get(out=back)
    assert np.array_equal(back, array)


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
