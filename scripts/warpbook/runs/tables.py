"""Every table of a run: its columns, with types, ranges and the meanings that the documentation prints. A row is one
observation; units end the column's name."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warpbook.runs.schema import COUNT, POSITIVE, TIME_MS, Range, Table, flag, real, text, whole, whole_or_none

if TYPE_CHECKING:
    import pandas as pd

SHARE = Range(0, 1)
NAME, REASON = 300, 2000  # characters that a name and a reason have at most

_VARIANT = text("stem of the kernel's file, its problem before it where that is not conv: gemm/tiled", most=NAME)
_NETWORK = text("network whose shapes it is", most=NAME)
_PLACE = {
    "problem": text("what is computed: a folder of kernels/"),
    "case": text(
        "fa18/conv1: a layer of a network; gemm/square: a case of a study; fa18: the whole network", most=NAME
    ),
}
_DEVICE = text("cpu or gpu")
_SIZE = whole("images in the dataset", POSITIVE)
_WATCHED_WEIGHTS = text("weight set of the watched program; empty: the network's first", later=True)
_STATUS = text("ok, or unsupported, compile_failed, launch_failed, wrong_result, timed_out or refused")
_REASON = text("why the status is not ok, with value, limit and remedy; empty when ok", most=REASON)
_OUTCOME = {"status": _STATUS, "reason": _REASON}
_STATE = text(
    "cold: L2 flushed before the call; hot: the call repeated on the same buffers; steady: calls without a pause for half a "
    "second; empty: a file of the course, whose rounds follow each other"
)
_MEASURED_ON = text("node and, for a GPU, its UUID hashed, first 12 digits: node7/3f2a1c4d5e6f", later=True)
_KIND = text(
    "gpu: the kernels on the device; op: the call, synchronised; layer: with host-device copies; host: a network from "
    "uint8 images in page-locked memory to labels there, in chunks that overlap; copy: its copies alone. Of a file of the "
    "course op is its Op Time, layer its Layer Time: prolog, convolution and epilog"
)
_ENERGY = real("energy of a call in joules, by NVML; empty but for a steady GPU", POSITIVE, later=True)
_SAMPLE = {
    "sample": whole("round in which it was taken: samples of one job and round are a pair", COUNT),
    "time_ms": real("the time; empty when the status is not ok", TIME_MS, needed=True),
    "sm_clock_mhz": real("SM clock read after the round; empty on a CPU", COUNT),
    "energy_j": _ENERGY,
    "throttled": flag(
        "a slowdown was active in the round, or other programs kept the CPU busy: kept, left out of summaries"
    ),
    "stop_reason": text("why the series ended: precise, time or samples"),
    **_OUTCOME,
    "measured_on": _MEASURED_ON,
}

BUILDS = Table(
    "builds.csv",
    "one kernel of one variant for one architecture",
    ("variant", "arch", "kernel"),
    {
        "variant": _VARIANT,
        "arch": text("architecture built for, as sm_90; for C++ the processor's, as x86_64"),
        "kernel": text("kernel function; empty when nothing was built"),
        "source_sha256": text("SHA-256 of what decides the machine code: code, constants, launch"),
        "options": text("options given to the compiler"),
        "compiler": text("compiler and its version"),
        "ok": flag("whether it was built"),
        "registers": whole_or_none("registers of a thread", COUNT),
        "shared_bytes": whole_or_none("static shared memory of a block; in Triton, all of it", COUNT),
        "local_bytes": whole_or_none("local memory (stack frame) of a thread", COUNT),
        "spill_bytes": whole_or_none("bytes that a thread spills to local memory, stores and loads together", COUNT),
        "log": text("the compiler's words where it complained"),
    },
)

CORRECTNESS = Table(
    "correctness.csv",
    "one test of one variant on one case at one size",
    ("problem", "case", "variant", "device", "size", "test"),
    {
        **_PLACE,
        "variant": _VARIANT,
        "device": _DEVICE,
        "size": _SIZE,
        "test": text(
            "integers: exact on small integers; reals: within tolerance; labels: real images; scores: a whole network's; "
            "races: no data race in an emulated call; indices: some blocks at the largest size; layers: of the course, in "
            "one process"
        ),
        "reference": text("what it was compared with"),
        "max_abs_err": real("largest absolute error of an output", COUNT),
        "rel_l2_err": real("norm of the error over norm of the reference", COUNT),
        "tolerance": real("largest error allowed where the sum of |x||w| is largest", COUNT),
        "worst_ratio": real("largest error over the tolerance of its own output; at most 1 passes", COUNT),
        "mismatched_labels": whole_or_none("images whose predicted label differs from the reference's", COUNT),
        "ok": flag("whether the test passed"),
        **_OUTCOME,
    },
)

SAMPLES = Table(
    "samples.csv.gz",
    "one timing sample",
    ("job", "problem", "case", "variant", "device", "size", "state", "kind", "sample"),
    {
        "job": text("variant whose job took the sample; aa:variant:n, its nth A/A test, beside its own copy"),
        **_PLACE,
        "variant": _VARIANT,
        "device": _DEVICE,
        "size": _SIZE,
        "state": _STATE,
        "kind": _KIND,
        **_SAMPLE,
    },
)

OP_TIMES = Table(
    "op_times.csv",
    "the summary of one series of samples",
    ("problem", "case", "variant", "device", "size", "state", "kind"),
    {
        **_PLACE,
        "variant": _VARIANT,
        "device": _DEVICE,
        "size": _SIZE,
        "state": _STATE,
        "kind": _KIND,
        "n": whole("samples summarised", COUNT),
        "median_ms": real("median time", TIME_MS, needed=True),
        "ci_low_ms": real("lower end of its 95 % interval; empty for fewer than 2 samples", POSITIVE),
        "ci_high_ms": real("upper end of its 95 % interval", POSITIVE),
        "energy_j": _ENERGY,
        "throttled_count": whole("samples left out because a slowdown was active or the CPU busy", COUNT),
        "refused_count": whole_or_none(
            "kernel times left out because they exceed twice their call's own", COUNT, later=True
        ),
        "method_bound_ms": real(
            "least time that the GPU allows the variant's own method: bytes at the copy rate measured, operations of a"
            " direct method at its precision's peak; empty on a CPU",
            POSITIVE,
        ),
        "fp32_bound_ms": real(
            "the same of the direct method in FP32, with which the report compares", POSITIVE, later=True
        ),
        "stop_reason": text("why the series ended: precise, time or samples"),
        **_OUTCOME,
    },
    ascending=("ci_low_ms", "median_ms", "ci_high_ms"),
)

PROGRAMS = Table(
    "programs.csv",
    "one run of the whole inference program",
    ("variant", "network", "weights", "device", "size", "run"),
    {
        "variant": _VARIANT,
        "network": _NETWORK,
        "weights": text("weight set"),
        "device": _DEVICE,
        "size": _SIZE,
        "run": whole("number of the run, from 0", COUNT),
        "user_s": real("user CPU time of the process", COUNT, needed=True),
        "system_s": real("system CPU time of the process", COUNT, needed=True),
        "elapsed_s": real("wall time of the process", Range(1e-6, 1e7), needed=True),
        "max_rss_kib": whole_or_none("peak resident memory of the process", COUNT),
        "major_faults": whole_or_none("page faults that had to read from a disk", COUNT, later=True),
        "minor_faults": whole_or_none("page faults that did not", COUNT, later=True),
        "input_blocks": whole_or_none("blocks of 512 bytes read from a disk", COUNT, later=True),
        "output_blocks": whole_or_none("blocks of 512 bytes written", COUNT, later=True),
        "accuracy": real("share of images whose label was predicted, 0 to 1", SHARE, needed=True),
        "output": text("what the program printed"),
        **_OUTCOME,
        "measured_on": _MEASURED_ON,
    },
)

ACTIVITIES = Table(
    "activities.csv.gz",
    "one traced event of one profiled program",
    ("tool", "variant", "network", "size", "weights", "event"),
    {
        "tool": text("profiler that saw it"),
        "variant": _VARIANT,
        "network": _NETWORK,
        "size": _SIZE,
        "weights": _WATCHED_WEIGHTS,
        "event": whole("number of the event in its program, from 0 in order of start", COUNT),
        "kind": text(
            "kernel, memcpy_htod, memcpy_dtoh, memcpy_dtod, memset, api_runtime, api_driver, or range (of NVTX)"
        ),
        "name": text("the profiler's name for it"),
        "start_ns": whole("start, from the program's first event", COUNT),
        "end_ns": whole("end, on the same clock", COUNT),
        "stream": whole_or_none("CUDA stream"),
        "correlation": whole_or_none("number that an API call shares with the work it started"),
        "grid": text("blocks of the grid, as 5x6x100"),
        "block": text("threads of a block"),
        "registers": whole_or_none("registers of a thread", COUNT),
        "shared_bytes": whole_or_none("shared memory of a block, static and dynamic", COUNT),
        "static_shared_bytes": whole_or_none("the static part of it; empty where it is not known", COUNT, later=True),
        "bytes": whole_or_none("bytes copied or set", COUNT),
    },
    ascending=("start_ns", "end_ns"),
)

PROFILES = Table(
    "profiles.csv",
    "one profiled program",
    ("tool", "variant", "network", "size", "weights"),
    {
        "tool": text("profiler: cupti, nsys or nvprof"),
        "variant": _VARIANT,
        "network": _NETWORK,
        "size": _SIZE,
        "weights": _WATCHED_WEIGHTS,
        "events": whole("events that it saw; 0 where there is no profile", COUNT),
        "elapsed_s": real("wall time of the profiler's command, the program within; no timing", POSITIVE),
        "output": text("what the program printed"),
        "report": text("the profiler's own file, in the run's profiles; empty where it writes none"),
        **_OUTCOME,
    },
    optional=True,
)

COUNTERS = Table(
    "counters.csv",
    "one hardware counter of one kernel launch; or, with status and reason, a layer that was not counted",
    ("tool", "problem", "case", "variant", "size", "launch", "metric"),
    {
        "tool": text("profiler that read it"),
        **_PLACE,
        "variant": _VARIANT,
        "size": whole("images of the call that was counted", POSITIVE, later=True),
        "launch": whole("number of the launch in the layer, from 0", COUNT),
        "kernel": text("the profiler's name for the kernel; empty when nothing was counted", later=True),
        "metric": text("the profiler's name for the counter; empty when nothing was counted"),
        "unit": text("the profiler's unit"),
        "value": real("the reading; empty where the profiler gave none"),
        "launches": whole_or_none(
            "launches of the whole call, of which only the first may be counted; empty: unknown", POSITIVE, later=True
        ),
        "status": replace(_STATUS, later=True),
        "reason": replace(_REASON, later=True),
    },
)

SUMMARIES = Table(
    "profile_summaries.csv",
    "one line of a profile that holds sums, not events",
    ("tool", "variant", "network", "size", "weights", "share_of", "row"),
    {
        "tool": text("profiler that printed it"),
        "variant": _VARIANT,
        "network": _NETWORK,
        "size": _SIZE,
        "weights": _WATCHED_WEIGHTS,
        "share_of": text(
            "what the shares are of: gpu (kernels, copies and sets), kernels, copies (and sets), api or range"
        ),
        "row": whole("place in the profiler's table, from 0: names can be alike", COUNT),
        "kind": text("as in activities"),
        "name": text("the profiler's name for it"),
        "share_percent": real(
            "its share of the time, 0 to 100; empty where printed as less than a bound", Range(0, 100)
        ),
        "total_ns": whole("time of all calls, to the digits printed", COUNT),
        "calls": whole_or_none("number of calls; this and what follows is empty where the file has lost it", COUNT),
        "avg_ns": real("mean time of a call", COUNT),
        "min_ns": whole_or_none("shortest call", COUNT),
        "max_ns": whole_or_none("longest call", COUNT),
    },
    optional=True,
)
"""Of imported profiles, and of programs with more events than a run keeps one by one."""

SANITIZER = Table(
    "sanitizer.csv",
    "one tool of NVIDIA's compute-sanitizer over one variant on every layer and ragged shapes, or over whole networks",
    ("variant", "tool"),
    {
        "variant": _VARIANT,
        "tool": text("memcheck, racecheck, initcheck or synccheck"),
        "version": text("the tool's own words on its version"),
        "errors": whole_or_none("errors that the tool counts; empty where it did not run", COUNT, needed=True),
        "status": _STATUS,
        "reason": text("the tool's first words where it found something, or why it did not run", most=REASON),
    },
    optional=True,
)

ATTACKS = Table(
    "attacks.csv",
    "one cheating or broken kernel that the harness was tried with",
    ("attack", "device"),
    {
        "attack": text("what the kernel does"),
        "device": text("gpu; emulator: the kernel's source on the CPU; cpu: a CPU variant that does so"),
        "caught": flag("whether a check failed it, as one must"),
        "status": _STATUS,
        "reason": text("the words of the check that caught it", most=REASON),
        "caught_by": text("the check that caught it", later=True),
    },
    optional=True,
)

PAIRS = Table(
    "pairs.csv",
    "one comparison of two kernels whose difference is known",
    ("device", "measured_on", "problem", "case", "variant", "slower_percent", "process", "number", "kind"),
    {
        **_PLACE,
        "variant": _VARIANT,
        "size": _SIZE,
        "device": _DEVICE,
        "slower_percent": whole("percent by which it is slower than what it is compared with; 0: than its copy", COUNT),
        "process": whole("number of the two processes, from 0", COUNT),
        "number": whole("number of the comparison in them, from 0", COUNT),
        "kind": _KIND,
        "n": whole("pairs of samples", COUNT),
        "speedup": real("time of the other over its own, the median of the pairs; empty: fewer than two", POSITIVE),
        "ci_low": real("lower end of its 95 % interval", POSITIVE),
        "ci_high": real("upper end of its 95 % interval", POSITIVE),
        **_OUTCOME,
        "measured_on": _MEASURED_ON,
    },
    optional=True,
)

SWEEP = Table(
    "sweep.csv",
    "one configuration of a tunable variant, as Kernel Tuner timed it on one layer",
    ("problem", "case", "variant", "size", "configuration"),
    {
        **_PLACE,
        "variant": _VARIANT,
        "size": _SIZE,
        "configuration": text("the constants, as BLOCK_X=32 BLOCK_Y=4"),
        "tool": text("the tuner and its version"),
        "time_ms": real("mean kernel time of its iterations; empty where it did not run", TIME_MS, needed=True),
        "n": whole("iterations", COUNT),
        **_OUTCOME,
    },
    optional=True,
)

JOBS = Table(
    "jobs.csv",
    "one part of the run that was made on a GPU, and how long its job held the GPU for it",
    ("part",),
    {
        "part": text("what was made: kind, device, network and variant, as samples/gpu/fa18/direct"),
        "measured_on": _MEASURED_ON,
        "alone": flag("a measurement, alone on its GPU; else a check, beside others"),
        "cores": text("the host's cores that the job was kept to, as 0-15,32-47"),
        "waited_s": real("from when the job was ready to when it had the GPU", COUNT),
        "began_s": real("when it had the GPU, since 1970 by the host's clock", COUNT),
        "ended_s": real("when it gave the GPU back, likewise", COUNT),
    },
    optional=True,
    ascending=("began_s", "ended_s"),
)

PRECISION = Table(
    "precision.csv",
    "one variant on one layer with inputs of one kind: its error against float64, and the direct convolution's",
    ("variant", "inputs", "layer"),
    {
        "variant": _VARIANT,
        "inputs": text(
            "reals: x and w in [-1, 1) with full mantissas; small, large: x times 2^-20, 2^20; mixed: each pixel times"
            " 2^e, e from -12 to 12; subnormal: x times 2^-130, w times 2^30; outliers: one of 997 values of x times 2^9;"
            " empty: none was tried"
        ),
        "layer": text("the convolution, as 6x30x30 * 16@5x5; empty: none was reached"),
        "precision": text("the class that the variant claims: fp32, tf32, fp16 or bf16"),
        "products": whole_or_none("products in a sum, C*K*K", POSITIVE),
        "images": whole_or_none("images of the call", POSITIVE),
        "rel_l2_err": real("norm of the error over norm of the float64 result", COUNT, needed=True),
        "direct_rel_l2_err": real("the same of `direct` on the same inputs", COUNT, needed=True),
        "fp32_class": flag("whether rel_l2_err is at most twice direct_rel_l2_err, and no output NaN"),
        **_OUTCOME,
    },
    optional=True,
)

_STREAM = {
    "network": text("network whose shapes it is"),
    "variant": text("stem of the kernel's file"),
    "images": whole("images of the stream: those of the data set again and again", POSITIVE),
    "shards": whole("parts of the stream that a worker each infers", POSITIVE),
    "workers": whole("workers that may run at a time: GPUs; 1 on a CPU, whose cores one takes", POSITIVE),
    "device": text("cpu or gpu"),
}
_STREAM_SHA256 = text("SHA-256 of the labels of the whole stream, a byte each, in its order")

STREAM_SHARDS = Table(
    "stream_shards.csv",
    "one shard of a stream of images: what one worker inferred",
    ("network", "variant", "images", "shards", "workers", "shard"),
    {
        **_STREAM,
        "weights": text("weight set"),
        "stream_sha256": _STREAM_SHA256,
        "shard": whole("number of the shard, from 1", POSITIVE),
        "first": whole("its first image", COUNT),
        "end": whole("the image that follows its last", POSITIVE),
        "measured_on": text("node and, for a GPU, its UUID hashed, first 12 digits: node7/3f2a1c4d5e6f"),
        "chunk": whole("images that were inferred at a time", POSITIVE),
        "labels_sum": whole("sum of its labels", COUNT),
        "labels_sha256": text("SHA-256 of its labels, a byte each"),
        "mismatched_labels": whole("images whose label is not that which infer.py predicts with this variant", COUNT),
        "began_s": real("start of the worker's process, after the start of the stream's first", COUNT),
        "first_read_s": real("when it began to read images, likewise", COUNT),
        "ended_s": real("when its last label was written, likewise", COUNT),
        "start_s": real("what the worker needed before: Python, libraries, device, weights, a first chunk", COUNT),
        "waited_s": real("how long it waited for its device meanwhile, no part of start_s", COUNT),
        "read_s": real("time in which it read images", COUNT),
        "copy_s": real("time of copies to and from the device; beside the rest. Empty on a CPU", COUNT),
        "compute_s": real("time of the network; on a GPU beside the rest", COUNT),
        "device_bytes": whole_or_none("most device memory in use, as the driver counts it; empty on a CPU", COUNT),
        "max_rss_kib": whole("peak resident memory of the worker", COUNT),
    },
    optional=True,
    ascending=("began_s", "first_read_s", "ended_s"),
)

STREAMS = Table(
    "streams.csv",
    "one stream of images",
    ("network", "variant", "images", "shards", "workers"),
    {
        **_STREAM,
        "stream_sha256": _STREAM_SHA256,
        "devices": whole("devices that had a shard", POSITIVE),
        "wall_s": real("time in which any worker ran, its start within", POSITIVE),
        "images_per_s": real("images over wall_s", POSITIVE),
        "efficiency": real(
            "images_per_s over that of one device times the devices; empty: that was not streamed", POSITIVE
        ),
        "streaming_s": real("time in which any worker was past its start", POSITIVE),
        "streaming_images_per_s": real("images over streaming_s", POSITIVE),
        "streaming_efficiency": real("as efficiency, of streaming_images_per_s", POSITIVE),
        "start_s": real("mean of its workers, as in stream_shards, as the three that follow", COUNT),
        "read_s": real("time in which a worker read images", COUNT),
        "copy_s": real("time of copies to and from the device", COUNT),
        "compute_s": real("time of the network", COUNT),
        "device_bytes": whole_or_none("most device memory of a worker", COUNT),
        "max_rss_kib": whole("most resident memory of a worker", COUNT),
        "labels_sum": whole("sum of all labels", COUNT),
        "mismatched_labels": whole("labels that are not the inference program's", COUNT),
    },
)
"""Not among RUN_TABLES: it follows from STREAM_SHARDS (`streams.summarize_streams`)."""

RUN_TABLES = (
    BUILDS, CORRECTNESS, SAMPLES, OP_TIMES, PROGRAMS, PROFILES,
    ACTIVITIES, SUMMARIES, COUNTERS, SANITIZER, ATTACKS, PAIRS, SWEEP, PRECISION, JOBS, STREAM_SHARDS,
)  # fmt: skip


def place(problem: str, cases: str, case: str = "") -> dict[str, str]:
    """The columns that say what was computed: a case of a network or study, or, without one, the whole network."""
    return {"problem": problem, "case": f"{cases}/{case}" if case else cases}


def with_places(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table's rows with their `case`: `network`, or a study's name, and `layer`, empty for a whole network."""
    if "case" not in frame:
        return frame
    parts = {case: str(case).partition("/") for case in frame.case.unique()}
    network, layer = ({case: held[end] for case, held in parts.items()} for end in (0, 2))
    return frame.assign(network=frame.case.map(network).astype(object), layer=frame.case.map(layer).astype(object))


def first_failure(correctness: Iterable[Mapping[Any, Any]]) -> dict[str, str] | None:
    """status and reason of the first failed test in rows of CORRECTNESS, unsupported layers aside, if any."""
    for row in correctness:
        if not row["ok"] and row["status"] != "unsupported":
            return {"status": row["status"], "reason": row["reason"]}
    return None
