"""Fixtures: databases in the profilers' own schemas, each of the same invented events."""

import shutil
import sqlite3
from pathlib import Path

import pytest

CONV = "conv_forward(const float *, const float *, float *, int, int, int, int, int, int)"
POOL = "void (anonymous namespace)::pool<float, (int)2>(const T1 *, T1 *, int)"

_LAUNCH = (
    "registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, "
    "localMemoryPerThread, localMemoryTotal"
)
# As `nsys export --lazy=false` of Nsight Systems 2023.4 (schema 3.7.2) makes them.
NSYS = {
    "StringIds": "id INTEGER PRIMARY KEY, value",
    "TARGET_INFO_GPU": "vmId, id, name",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER PRIMARY KEY, name, label",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, contextId, greenContextId, streamId, correlationId, "
    "globalPid, demangledName, shortName, mangledName, launchType, cacheConfig, "
    f"{_LAUNCH}, gridId, sharedMemoryExecuted, graphNodeId, sharedMemoryLimitConfig",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, contextId, greenContextId, streamId, correlationId, "
    "globalPid, bytes, copyKind, deprecatedSrcId, srcKind, dstKind, srcDeviceId, srcContextId, dstDeviceId, "
    "dstContextId, migrationCause, graphNodeId, virtualAddress",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, contextId, greenContextId, streamId, correlationId, "
    "globalPid, value, bytes, graphNodeId, memKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId",
    "NVTX_EVENTS": "start, end, eventType, rangeId, category, color, text, globalTid, endGlobalTid, textId, domainId, "
    "uint64Value, int64Value, doubleValue, uint32Value, int32Value, floatValue, jsonTextId, jsonText",
}
# Without what came after the schema reference of 2021.5: enumerations, green contexts, mangled names, JSON texts.
NSYS_OLD = {
    "StringIds": "id INTEGER PRIMARY KEY, value",
    "TARGET_INFO_CUDA_GPU": "id, name",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, "
    f"shortName, launchType, cacheConfig, {_LAUNCH}, gridId, sharedMemoryExecuted, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, "
    "copyKind, srcKind, dstKind, srcDeviceId, srcContextId, dstDeviceId, dstContextId, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, contextId, streamId, correlationId, globalPid, value, bytes, "
    "graphNodeId, memKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId",
    "NVTX_EVENTS": "start, end, eventType, rangeId, category, color, text, globalTid, endGlobalTid, textId, domainId",
}
_ID = "_id_ INTEGER PRIMARY KEY AUTOINCREMENT"
_NVPROF_KERNEL = (
    f"{_ID}, cacheConfig, sharedMemoryConfig, registersPerThread, partitionedGlobalCacheRequested, "
    "partitionedGlobalCacheExecuted, start, end, completed, deviceId, contextId, streamId, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, "
    "correlationId, gridId, name"
)
# As nvprof of CUDA 8 to 12 makes them (every table is there, most of them empty).
NVPROF = {
    "StringTable": f"{_ID}, value",
    "Version": "version",
    "CUPTI_ACTIVITY_KIND_KERNEL": _NVPROF_KERNEL,
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": _NVPROF_KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_ID}, copyKind, srcKind, dstKind, flags, bytes, start, end, deviceId, contextId, "
    "streamId, correlationId, runtimeCorrelationId",
    "CUPTI_ACTIVITY_KIND_MEMCPY2": f"{_ID}, copyKind, srcKind, dstKind, flags, bytes, start, end, deviceId, contextId, "
    "streamId, srcDeviceId, srcContextId, dstDeviceId, dstContextId, correlationId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_ID}, value, bytes, start, end, deviceId, contextId, streamId, correlationId, "
    "flags, memoryKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_ID}, cbid, start, end, processId, threadId, correlationId, returnValue",
    "CUPTI_ACTIVITY_KIND_DRIVER": f"{_ID}, cbid, start, end, processId, threadId, correlationId, returnValue",
    "CUPTI_ACTIVITY_KIND_MARKER": f"{_ID}, flags, timestamp, id, objectKind, objectId, name, domain",
}


class Database:
    """An SQLite file of a schema given as {table: columns}, to be filled row by row."""

    def __init__(self, path: Path, schema: dict[str, str], strings: str):
        self.connection = sqlite3.connect(path)
        self.strings = strings
        self.columns = {table: {column.split()[0] for column in of.split(", ")} for table, of in schema.items()}
        for table, of in schema.items():
            columns = ", ".join(f'"{column}" INT' if " " not in column else column for column in of.split(", "))
            self.connection.execute(f"CREATE TABLE {table} ({columns})")

    def add(self, table: str, **values) -> None:
        values = {name: value for name, value in values.items() if name in self.columns[table]}
        names = ", ".join(f'"{name}"' for name in values)
        self.connection.execute(
            f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
        )

    def string(self, text: str) -> int:
        row = self.connection.execute(f"SELECT rowid FROM {self.strings} WHERE value = ?", [text]).fetchone()
        if row:
            return row[0]
        return self.connection.execute(f"INSERT INTO {self.strings} (value) VALUES (?)", [text]).lastrowid


# (kind, name or kind of copy, start, duration in ns, stream): the events of every database below.
EVENTS = [
    ("call", "cudaMalloc_v3020", 1_000_000, 81_234_567, None),
    ("call", "cudaMemcpyAsync_v3020", 82_235_067, 5_100, None),
    ("copy", 1, 82_240_667, 105_657, 7),
    ("call", "cudaMemcpyAsync_v3020", 82_440_667, 5_100, None),
    ("copy", 1, 82_446_267, 830, 7),
    ("call", "cuLaunchKernel", 82_646_267, 4_321, None),
    ("kernel", CONV, 82_651_088, 3_734_112, 7),
    ("call", "cuLaunchKernel", 86_651_088, 4_322, None),
    ("kernel", CONV, 86_655_910, 3_701_003, 7),
    ("call", "cuLaunchKernel", 90_655_910, 4_323, None),
    ("kernel", CONV, 90_660_733, 3_699_998, 7),
    ("call", "cudaLaunchKernel_v7000", 94_660_733, 6_000, None),
    ("kernel", POOL, 94_667_233, 512_345, 13),
    ("call", "cudaMemsetAsync_v3020", 95_267_233, 2_222, None),
    ("set", None, 95_269_955, 1_440, 7),
    ("call", "cudaMemcpyAsync_v3020", 95_274_955, 5_100, None),
    ("copy", 2, 95_280_555, 1_900, 7),
    ("call", "cudaDeviceSynchronize_v3020", 95_285_555, 11_000_123, None),
]
RANGES = [("inference", 1_000_100, 105_286_078), ("layer: conv1", 82_000_000, 24_286_169)]
SIZES = {82_240_667: 4_194_304, 82_446_267: 1_200, 95_280_555: 40_000}
KERNELS = {
    CONV: dict(zip(_LAUNCH.split(", "), (40, 25, 6, 10_000, 16, 16, 1, 1600, 0, 0, 0), strict=True)),
    POOL: dict(zip(_LAUNCH.split(", "), (16, 100, 1, 1, 256, 1, 1, 0, 4096, 0, 0), strict=True)),
}


def write_nsys(path: Path, schema: dict[str, str]) -> Path:
    database = Database(path, schema, "StringIds")
    correlation = 0
    for kind, what, start, duration, stream in EVENTS:
        correlation += kind == "call"
        row = {"start": start, "end": start + duration, "correlationId": correlation, "streamId": stream}
        if kind == "kernel":
            name = database.string(what)
            database.add("CUPTI_ACTIVITY_KIND_KERNEL", **row, demangledName=name, shortName=name, **KERNELS[what])
        elif kind == "call":
            database.add("CUPTI_ACTIVITY_KIND_RUNTIME", **row, nameId=database.string(what), globalTid=4711)
        elif kind == "copy":
            database.add("CUPTI_ACTIVITY_KIND_MEMCPY", **row, copyKind=what, bytes=SIZES[start])
        else:
            database.add("CUPTI_ACTIVITY_KIND_MEMSET", **row, value=0, bytes=400)
    pushed, started = RANGES
    database.add("NVTX_EVENTS", start=pushed[1], end=sum(pushed[1:]), eventType=59, text=pushed[0])
    database.add(
        "NVTX_EVENTS", start=started[1], end=sum(started[1:]), eventType=60, textId=database.string(started[0])
    )
    database.add("NVTX_EVENTS", start=82_000_000, end=None, eventType=34, text="a mark")
    database.add("NVTX_EVENTS", start=82_000_000, end=None, eventType=59, text="never popped")
    database.connection.commit()
    database.connection.close()
    return path


def write_nvprof(path: Path) -> Path:
    callbacks = {
        "cudaMalloc_v3020": 20, "cudaMemcpyAsync_v3020": 41, "cuLaunchKernel": 307, "cudaLaunchKernel_v7000": 211,
        "cudaMemsetAsync_v3020": 51, "cudaDeviceSynchronize_v3020": 165,
    }  # fmt: skip
    database = Database(path, NVPROF, "StringTable")
    database.add("Version", version=11)
    correlation = 0
    for kind, what, start, duration, stream in EVENTS:
        correlation += kind == "call"
        row = {"start": start, "end": start + duration, "correlationId": correlation, "streamId": stream}
        if kind == "kernel":
            name = database.string({CONV: "_Z12conv_forwardPKfS0_Pfiiiiii", POOL: POOL}[what])
            database.add("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", **row, name=name, **KERNELS[what])
        elif kind == "call":
            table = "CUPTI_ACTIVITY_KIND_" + ("RUNTIME" if what.startswith("cuda") else "DRIVER")
            database.add(table, **row, cbid=callbacks[what], processId=1, threadId=2)
        elif kind == "copy":
            database.add("CUPTI_ACTIVITY_KIND_MEMCPY", **row, copyKind=what, bytes=SIZES[start])
        else:
            database.add("CUPTI_ACTIVITY_KIND_MEMSET", **row, value=0, bytes=400)
    for number, (name, start, duration) in enumerate(RANGES, 1):
        marker = {"id": number, "objectKind": 2}
        database.add("CUPTI_ACTIVITY_KIND_MARKER", **marker, flags=2, timestamp=start, name=database.string(name))
        database.add("CUPTI_ACTIVITY_KIND_MARKER", **marker, flags=4, timestamp=start + duration, name=0)
    # a record that found no room in the device's buffer
    database.add("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", start=0, end=0, name=1, **KERNELS[CONV])
    database.connection.commit()
    database.connection.close()
    return path


@pytest.fixture(scope="session")
def databases(tmp_path_factory) -> dict[str, Path]:
    """A database of each tool, not to be changed."""
    folder = tmp_path_factory.mktemp("databases")
    return {
        "nsys": write_nsys(folder / "new.sqlite", NSYS),
        "nsys old": write_nsys(folder / "old.sqlite", NSYS_OLD),
        "nvprof": write_nvprof(folder / "run.nvvp"),
    }


@pytest.fixture
def nsys_database(databases, tmp_path) -> Path:
    """A database of Nsight Systems, to be changed."""
    return Path(shutil.copy(databases["nsys"], tmp_path / "file.sqlite"))


@pytest.fixture
def written_events() -> list[tuple]:
    """What every database holds: (kind, name or kind of copy, start, duration in ns, stream)."""
    return EVENTS


@pytest.fixture
def written_ranges() -> list[tuple[str, int, int]]:
    """The ranges that every database holds: (name, start, duration in ns)."""
    return RANGES
