"""The CUDA devices of this machine, as the driver describes them: a cheap question that needs no CuPy."""

import ctypes
import hashlib
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from warpbook.common.errors import UserError


@dataclass(frozen=True)
class Device:
    """A CUDA device. A job uses one: the first visible one, or that of several which it holds."""

    name: str
    arch: str
    uuid_sha256: str
    driver_cuda: str
    memory_bytes: int = 0
    selector: str = field(default="", repr=False)
    """What CUDA_VISIBLE_DEVICES names it by: its UUID, which no run records."""
    pci: str = field(default="", repr=False)
    """Its place on the PCI bus, as the system names it: 0000:1b:00.0. Empty where the driver does not tell."""

    @property
    def model(self) -> str:
        """What figures of one GPU have in common with those of its like: name and architecture."""
        return f"{self.name}, {self.arch}"


CUDA_INIT = {
    46: "another process has the device to itself; wait for its end",
    100: "it sees no device (is CUDA_VISIBLE_DEVICES empty?)",
    802: "the system is not ready yet; start the fabric manager, or wait for it",
    803: "the driver in the kernel is not the one that its libraries belong to; restart the machine after an update",
    804: "the driver is too old for the CUDA libraries on this device; update the driver",
    999: "no reason given; a device may be lost: see the kernel's log for Xid",
}
"""What cuInit's errors mean here, and what to do (CUresult in cuda.h)."""


def probe() -> Device | str:
    """The first visible CUDA device, or a sentence saying what was looked for and not found."""
    found = visible_devices()
    return found if isinstance(found, str) else found[0]


def visible_devices() -> list[Device] | str:
    """The CUDA devices that CUDA_VISIBLE_DEVICES leaves, one at least, or a sentence saying why there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver: libcuda.so.1 is not on the loader's path"
    status = cuda.cuInit(0)
    if status != 0:
        meaning = CUDA_INIT.get(status, "no usable device")
        return f"the CUDA driver answers cuInit with error {status}: {meaning}"
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the CUDA driver counts no devices (is CUDA_VISIBLE_DEVICES empty?)"
    found: list[Device] = []
    for number in range(count.value):
        device = _describe(cuda, number)
        if isinstance(device, str) and not found:
            return device
        found += [device] if isinstance(device, Device) else []  # one that is lost takes no other with it
    return found


UNAVAILABLE = 46
FAULTS = {
    UNAVAILABLE: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    214: "CUDA_ERROR_ECC_UNCORRECTABLE",
    220: "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    226: "CUDA_ERROR_CONTAINED",
    702: "CUDA_ERROR_LAUNCH_TIMEOUT",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    999: "CUDA_ERROR_UNKNOWN",
}
"""Errors that mean the device, where no program of anybody's ran on it (CUresult in cuda.h)."""
FILLED_BYTES = 16 << 20
COMPUTE_MODE = 20  # an attribute: 0 where several processes may use a device


def self_test() -> str:
    """What is wrong with the first visible device, which fills memory and gives it back; empty where nothing is. That
    another process has the memory, or the device to itself, is no fault of the device."""
    cuda = ctypes.CDLL("libcuda.so.1")
    handle, mode, context, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    held, size = ctypes.create_string_buffer(FILLED_BYTES), ctypes.c_size_t(FILLED_BYTES)
    for call, *arguments in (
        (cuda.cuInit, 0),
        (cuda.cuDeviceGet, ctypes.byref(handle), 0),
        (cuda.cuDeviceGetAttribute, ctypes.byref(mode), COMPUTE_MODE, handle),
        (cuda.cuDevicePrimaryCtxRetain, ctypes.byref(context), handle),
        (cuda.cuCtxSetCurrent, context),
        (cuda.cuMemAlloc_v2, ctypes.byref(memory), size),
        (cuda.cuMemsetD8_v2, memory, ctypes.c_ubyte(0xA5), size),
        (cuda.cuMemcpyDtoH_v2, held, memory, size),
    ):
        if status := call(*arguments):
            innocent = status not in FAULTS or (status == UNAVAILABLE and mode.value)
            return "" if innocent else f"{FAULTS[status]} of {call.__name__}"
    return "" if held.raw == b"\xa5" * FILLED_BYTES else "memory that it filled holds something else"


def _describe(cuda: ctypes.CDLL, number: int) -> Device | str:
    handle = ctypes.c_int()
    name = ctypes.create_string_buffer(100)
    identity = (ctypes.c_ubyte * 16)()
    pci = ctypes.create_string_buffer(16)
    version = ctypes.c_int()
    major, minor = ctypes.c_int(), ctypes.c_int()
    memory = ctypes.c_size_t()
    calls = [
        cuda.cuDeviceGet(ctypes.byref(handle), number),
        cuda.cuDeviceGetName(name, len(name), handle),
        cuda.cuDeviceGetUuid(identity, handle),
        cuda.cuDriverGetVersion(ctypes.byref(version)),
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle),
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, handle),  # compute capability, major
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, handle),  # and minor
    ]
    if any(calls):
        return f"the CUDA driver fails to describe device {number} (errors {calls})"
    known = cuda.cuDeviceGetPCIBusId(pci, len(pci), handle) == 0
    return Device(
        name=name.value.decode(),
        arch=f"sm_{major.value}{minor.value}",
        uuid_sha256=hashlib.sha256(bytes(identity)).hexdigest(),
        driver_cuda=f"{version.value // 1000}.{version.value % 1000 // 10}",
        memory_bytes=memory.value,
        selector=f"GPU-{uuid.UUID(bytes=bytes(identity))}",
        pci=pci.value.decode().lower() if known else "",
    )


def select_alike(found: Sequence[Device], count: int | str) -> list[Device]:
    """So many of the devices, or `all`, of one model. Raises UserError where there are fewer, or others among all."""
    models = Counter(device.model for device in found)
    shown = " and ".join(f"{number} of {model}" for model, number in models.items())
    if count == "all" and len(models) > 1:
        raise UserError(
            f"gpus: all, and the devices are {shown}: a run belongs to one model; name the devices of one in "
            "CUDA_VISIBLE_DEVICES"
        )
    same = [device for device in found if device.model == found[0].model]
    if isinstance(count, int) and count > len(same):
        raise UserError(
            f"gpus: {count}, and the devices here are {shown}: set gpus to {len(same)} at most, or make more of one "
            "model visible (CUDA_VISIBLE_DEVICES)"
        )
    return same[:count] if isinstance(count, int) else same
