"""Page-locked memory, as a driver has it."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")
from warpbook.harness import pinned_memory  # noqa: E402


@pytest.mark.gpu
def test_the_driver_takes_the_memory_for_page_locked():
    array = pinned_memory.pinned_zeros((5_000_000,))
    array[...] = np.arange(array.size) % 251
    attributes = cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data)
    assert attributes.type == cupy.cuda.runtime.memoryTypeHost
    on_device, back = cupy.asarray(array), pinned_memory.pinned_zeros(array.shape)
    on_device.get(out=back)
    assert np.array_equal(back, array)
