"""Attacks on the harness: cheating and broken kernels and launchers.

Each is a sound variant with a piece of its source replaced, or with a launcher that cheats, and must fail its checks
or its timing wherever it can show itself: emulated, as a CPU variant, on a GPU. Which check catches it is part of the
table.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.files import LIBRARY
from warpbook.config.settings import Measuring, ProgramRuns, SeriesPolicy
from warpbook.harness.attacks import cheating_launchers as launchers
from warpbook.kernels import variants
from warpbook.kernels.variants import Variant
from warpbook.runs import tables
from warpbook.runs.schema import Row

CHECK, MEASURE = LIBRARY / "scripts" / "check_variant.py", LIBRARY / "scripts" / "measure_variant.py"
STORE = "y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;"
FIRST = "if (image == 0 && map == 0 && row == 0 && column == 0)"
INPUT, ROUNDED = "input[p * W + q]", "__int_as_float(__float_as_int(input[p * W + q]) & 0xFFFFE000)"
SLOW = "float sum = 0.0f; __nanosleep({});"

TIMEOUT_S = 60
# As many samples as an attack waits for, however slow its calls: it ends in a verdict or at the time limit.
QUICK = SeriesPolicy(
    warmup=1, min_samples=launchers.CALLS_BEFORE_REPLAY, max_samples=20, max_time_s=0.5, min_samples_timeout_s=TIMEOUT_S
)
MEASURING = Measuring(
    target_rel_ci=0.05,
    equivalence_margin=0.01,
    gpu=QUICK,
    cpu=QUICK,
    programs=ProgramRuns(runs=1, min_samples_timeout_s=1),
    timeout_s=TIMEOUT_S,
    tolerated_load=1000,  # an attack's times are no figure
)
# A device without limits: its lower bound would catch some before the check that they are to try.
MACHINE = {"gpu": {"l2_bytes": 0, "copy_gb_per_s": 1e9, "peak_gflop_per_s": dict.fromkeys(variants.PRECISIONS)}}

DEVICES = ("emulator", "cpu", "gpu")
TIMED_IMAGES = {"cpu": 10, "gpu": 100}  # NumPy's convolution takes a millisecond for each

CHECKS = {
    "by which the harness judges it": "functions held from before its launcher ran",
    "not an array": "type of the result",
    "writes outside its output": "guard bands",
    "when timed:": "results of timed calls, chosen by chance",
    "by the judge's clock": "the judge's own clock",
    "stands still": "it runs only while it is asked",
    "leaves its own": "children of the judge",
    "gains nothing": "fresh inputs at every timed call",
    "answers what no variant's would": "numbers of requests",
    "its process died": "the end of its process",
    "outputs unwritten": "poisoned output",
    "changes its input": "hashes of the inputs",
    "work on a stream nobody waits for": "hashes of the result before and after the wait",
    "must be exact on small integers": "exact sums of small integers",
    "exceeds what": "tolerance on fresh reals",
    "outputs are NaN": "NaNs where nothing may be read",
    "wait at different barriers": "emulated barriers",
    "heap-buffer-overflow": "AddressSanitizer",
    "SEGV": "AddressSanitizer",
    "undefined behaviour": "UndefinedBehaviorSanitizer",
    "illegal memory access": "CUDA's own report",
    "ValueError": "exceptions of the launcher",
}
"""Words of a failure's reason, and the check that says them."""


GAINS_NOTHING = "it gains nothing: its samples take as long as its work does"
STANDS_STILL = "it stands still while it is not asked, and its samples take as long as its work does"


def check_behind(reason: str) -> str:
    """The check that gave a reason; empty for none of them."""
    return next((check for words, check in CHECKS.items() if words in reason), "")


@dataclass(frozen=True)
class Attack:
    """A sound variant's source with `old` replaced by `new`, or a launcher that cheats; the words that must be said
    by the emulator, on a GPU, and of a CPU variant. None: it does not show itself there.

    A CPU variant is the launcher, or `on_cpu`, the body of its call. One that is `timed` passes its checks, and its
    timing must fail; or, where `honest_ms` is said, three quarters of its samples must be as long: it gains nothing.
    `processes`: the check is made so often, each time in a process of its own.
    """

    emulated: str | None
    gpu: str | None
    old: str = ""
    new: str = ""
    of: str = "direct"
    launcher: str = ""
    cpu: str | None = None
    on_cpu: str = ""
    timed: bool = False
    honest_ms: float = 0
    processes: int = 1

    def expected_words(self, device: str) -> str | None:
        """What must be said on a device; None where it does not show itself."""
        return {"emulator": self.emulated, "gpu": self.gpu, "cpu": self.cpu}[device]


def everywhere(words: str, old: str = "", new: str = "", **more: Any) -> Attack:
    """An attack of which the same is said on every device."""
    return Attack(words, words, old, new, cpu=words, **more)


def when_timed(words: str, old: str = "", new: str = "", **more: Any) -> Attack:
    """An attack that passes its checks, and of which the same is said on the devices that time it."""
    return Attack(None, words, old, new, timed=True, cpu=words, **more)


ATTACKS = {
    "writes nothing": Attack(
        "leaves 3200 of 3200 outputs unwritten", "outputs unwritten", STORE, "",
        cpu="leaves 3200 of 3200 outputs unwritten", on_cpu="pass",
    ),
    "writes zeros": everywhere("must be exact on small integers", "= sum;", "= 0 * K;", on_cpu="y[...] = 0"),
    "skips the last row": Attack(
        "leaves 200 of 3200 outputs unwritten", "outputs unwritten", "row >= H_out", "row >= H_out - 1",
        cpu="leaves 200 of 3200 outputs unwritten", on_cpu="y[:, :, :-1] = convolve(x, w)[:, :, :-1]",
    ),
    "writes one element outside": Attack(
        "heap-buffer-overflow in conv_forward at mine.cu", "writes outside its output y: 1 of the words", STORE,
        f"{STORE} {FIRST} y[-1] = 1;", cpu="writes outside its output y: 1 of the words",
        on_cpu="launch(x, w, y); beside(y, -1)[0] = 1",
    ),
    "reads outside": Attack(
        "heap-buffer-overflow in conv_forward at mine.cu", "outputs are NaN", STORE,
        f"{FIRST} sum += 0 * x[(size_t)N * C * H * W]; {STORE}", cpu="1 outputs are NaN",
        on_cpu="launch(x, w, y); y[0, 0, 0, 0] += 0 * beside(x, x.size)[0]",
    ),
    "replays its previous answer": everywhere("exceeds what fp32 allows", launcher=launchers.REPLAY),
    "replays an answer once it is called often": when_timed(
        "when timed: mine is wrong", launcher=launchers.REPLAY_LATER,
    ),
    "remembers answers by the values of its inputs": when_timed(
        GAINS_NOTHING, "float sum = 0.0f;", SLOW.format(1_000_000), launcher=launchers.REMEMBER, honest_ms=0.3,
    ),
    "does nothing where its inputs are those of the call before": when_timed(
        GAINS_NOTHING, "float sum = 0.0f;", SLOW.format(1_000_000), launcher=launchers.DO_LESS, honest_ms=0.3,
    ),
    "claims a thousandth of the time that it takes": when_timed("by the judge's clock", launcher=launchers.FALSE_TIMES),
    "claims a thousandth, and is slow where few calls are timed at once": when_timed(
        "by the judge's clock", launcher=launchers.SLOW_IN_SHORT_BATCHES,
    ),
    "claims a fraction of its time, and works on all calls of an audit at the same time": Attack(
        None, None, launcher=launchers.ALL_AT_ONCE, timed=True, cpu="by the judge's clock",
    ),
    "leaves kernels at work on a stream of its own": Attack(
        None, "by the judge's clock", launcher=launchers.SPIN_ASIDE, timed=True,
    ),
    "claims a time that is no number": when_timed("answers what no variant's would", launcher=launchers.NO_NUMBER),
    "claims a thousandth, and keeps the processors busy with child processes that it never waits for": Attack(
        None, None, launcher=launchers.BUSY_CHILDREN, timed=True, cpu="by the judge's clock",
    ),
    "works when what it returned is handed over": when_timed("by the judge's clock", launcher=launchers.WORK_LATE),
    "works on its next inputs in the call that only wakes its threads": Attack(
        None, None, launcher=launchers.NEXT_INPUTS, timed=True, cpu=STANDS_STILL, honest_ms=10,
    ),
    "leaves a thread at work": Attack(
        None, None, timed=True, cpu=STANDS_STILL, honest_ms=0.3,
        on_cpu="import threading; launch(x, w, y); threading.active_count() > 1 or threading.Thread(target=forever, daemon=True).start()",
    ),
    "leaves a process at work that fled from its own": Attack(
        None, None, timed=True, cpu="a process that leaves its own",
        on_cpu="launch(x, w, y); import os, time; os.fork() or os._exit(0 if os.fork() else time.sleep(20))",
    ),
    "writes rows in the name of its judge": Attack(
        None, None, launcher=launchers.FORGE_ROWS, timed=True, cpu="when timed: mine is wrong",
    ),
    "reports a fault of the machine": everywhere("its process died", launcher=launchers.BLAME_THE_MACHINE),
    "maps memory of its own over its output": Attack(
        None, None, launcher=launchers.MAP_OVER, cpu="leaves 3200 of 3200 outputs unwritten",
    ),
    "answers before it is asked": everywhere("answers what no variant's would", launcher=launchers.ANSWER_EARLY),
    "answers with more than a parser can read": everywhere(
        "answers what no variant's would", launcher=launchers.ANSWER_WITHOUT_END,
    ),
    "closes the way to its judge": everywhere("its process died", launcher=launchers.CLOSE),
    "ends its process as if all was well": everywhere("its process died", launcher=launchers.EXIT),
    "leaves its work to another process": Attack(
        None, None, cpu="leaves 3200 of 3200 outputs unwritten",
        on_cpu="import os, time; os.fork() or (time.sleep(0.1), launch(x, w, y), os._exit(0))",
    ),
    "rounds to half precision once it is called often": when_timed(
        "when timed: mine is wrong", launcher=launchers.ROUND_LATE,
    ),
    "skips most calls once it is called often": when_timed("when timed: mine is wrong", launcher=launchers.SKIP_LATE),
    "writes outside its output once it is called often": Attack(
        None, None, launcher=launchers.WRITE_OUTSIDE_LATE, timed=True, cpu="writes outside its output y when timed",
    ),
    "replaces what it finds of the judge by the garbage collector": everywhere(
        "must be exact on small integers", launcher=launchers.COLLECTED,
    ),
    "answers from files that an earlier process wrote": everywhere(
        "must be exact on small integers", launcher=launchers.REMEMBER_ON_DISK, processes=2,
    ),
    "changes its input": everywhere(
        "changes its input x", STORE, f"{STORE} {FIRST} ((float*)x)[0] += 1;",
        on_cpu="launch(x, w, y); x[0, 0, 0, 0] += 1",
    ),
    "changes its weights": everywhere(
        "changes its input w", STORE, f"{STORE} {FIRST} ((float*)w)[1] = 0.5f;",
        on_cpu="launch(x, w, y); w[0, 0, 0, 0] = 0.5",
    ),
    "works on a stream nobody waits for": Attack(
        None, "work on a stream nobody waits for", "float sum = 0.0f;", SLOW.format(100_000),
        launcher=launchers.UNWAITED,
    ),
    "works in a graph on a stream nobody waits for": Attack(
        None, "work on a stream nobody waits for", "float sum = 0.0f;", SLOW.format(100_000), launcher=launchers.GRAPH,
    ),
    "works in a thread after its call": Attack(
        None, None, cpu="leaves 3200 of 3200 outputs unwritten",
        on_cpu="import threading; threading.Timer(0.1, launch, (x, w, y)).start()",
    ),
    "returns what computes when it is read": everywhere("returns a Lazy, not an array", launcher=launchers.LAZY),
    "replaces the clock by one that stands still": everywhere(
        "replaces time.perf_counter, by which the harness judges it", launcher=launchers.STILL_CLOCK,
    ),
    "replaces what reads CUDA's events": Attack(
        None, "replaces cupy.cuda.get_elapsed_time, by which the harness judges it", launcher=launchers.FALSE_EVENTS,
    ),
    "replaces the wait for the device": Attack(
        None, "deviceSynchronize, by which the harness judges it", launcher=launchers.NO_WAIT,
    ),
    "replaces the judge of its errors": everywhere(
        "replaces warpbook.harness.checking.comparison_columns, by which the harness judges it",
        launcher=launchers.KIND_JUDGE,
    ),
    "writes only where it sees poison": Attack(
        "exceeds what fp32 allows", "exceeds what fp32 allows", STORE,
        f"if (__float_as_int({STORE.partition(' = ')[0]}) == 0x7FF8DEAD) {STORE}",
    ),
    "works only when its output is poisoned": everywhere("exceeds what fp32 allows", launcher=launchers.FOR_POISON),
    "works only between margins of NaNs": Attack(
        "heap-buffer-overflow in conv_forward at mine.cu", "exceeds what fp32 allows", STORE,
        f"if (y[-1] != y[-1]) {STORE}", cpu="exceeds what fp32 allows",
        on_cpu="if np.isnan(beside(y, -1)[0]): launch(x, w, y)",
    ),
    "is right for square shapes only": Attack(
        "outputs unwritten", "outputs unwritten", "* H_out + row) * W_out", "* H_out + row) * H_out",
        cpu="must be exact on small integers",
        on_cpu="n = min(y.shape[2:]); y[...] = 0; y[:, :, :n, :n] = convolve(x, w)[:, :, :n, :n]",
    ),
    "is right at N divisible by 16 only": everywhere(
        "must be exact on small integers", "= sum;", "= image < N / 16 * 16 ? sum : 0.0f;",
        on_cpu="launch(x, w, y); y[len(x) // 16 * 16:] = 0",
    ),
    "computes in less than its declared precision": everywhere(
        "must be exact on small integers", f"sum += {INPUT}", f"sum += {ROUNDED}",
        on_cpu="y[...] = convolve(half(x), half(w))",
    ),
    "computes in half precision unless it sees small integers": everywhere(
        "exceeds what fp32 allows", f"sum += {INPUT}",
        f"sum += ({INPUT} == (float)(int){INPUT} ? {INPUT} : {ROUNDED})",
        on_cpu="exact = (x == x.round()).all(); y[...] = convolve(x, w) if exact else convolve(half(x), half(w))",
    ),
    "forgets a barrier": Attack(
        "outputs are NaN", None, "__syncthreads();  // the patch is complete before anyone reads it", "",
        of="shared_input",
    ),
    "waits at a barrier that others do not reach": Attack(
        "threads of one block wait at different barriers", None,
        "__shared__ float patch", "if (threadIdx.x == 3) __syncthreads(); __shared__ float patch", of="shared_input",
    ),
    "writes outside its shared memory": Attack(
        "undefined behaviour at mine.cu", None, "const int side = TILE + K - 1;", "const int side = TILE + K + 40;",
        of="shared_input",
    ),
    "indexes an array outside its bounds": Attack(
        "undefined behaviour at mine.cu", None, "float sum = 0.0f;", "float taken[2] = {}; float sum = taken[K + 1];",
    ),
    "faults at launch": Attack("SEGV", "illegal memory access", STORE, f"{STORE} {FIRST} *(volatile float*)16 = 1;"),
    "raises in its launcher": everywhere(
        "ValueError: no such tile",
        launcher="def prepare(kernels, layer, images, launch):\n    raise ValueError('no such tile')\n",
    ),
    "raises in a call on zeros, after tests that it passed": Attack(
        None, None, cpu="ValueError: invalid literal", on_cpu="launch(x, w, y); x.any() or int('no number')",
    ),
}  # fmt: skip


ON_CPU = '''"""
title: A variant that cheats
idea: None.
expect: Nothing.
device: cpu
"""
import ctypes
import numpy as np
from warpbook.harness.reference import convolve


def half(array):
    return array.astype(np.float16).astype(np.float32)


def beside(array, place):
    return np.ctypeslib.as_array((ctypes.c_float * 1).from_address(array.ctypes.data + 4 * place))


def launch(x, w, y):
    y[...] = convolve(x, w)


def forever():
    while True:
        pass

{cheat}

def given(prepare):
    return lambda layer, images: prepare(None, layer, images, launch)


prepare = given(prepare)
'''
CALL = """
def prepare(kernels, layer, images, launch):
    def call(x, w, y):
        {body}

    return call
"""


_GENERAL = re.compile(r"^general:.*\n(?:[ \t]+.*\n)*", re.MULTILINE)
"""What a header says of a case with something unusual."""


def forge(attack: Attack, folder: Path, device: str = "gpu") -> Variant:
    """Write the attacking variant, called `mine`, into a folder."""
    if device == "cpu":
        cheat = CALL.format(body=attack.on_cpu) if attack.on_cpu else attack.launcher
        (folder / "mine.py").write_text(ON_CPU.format(cheat=cheat))
        return variants.read("mine", folder)
    # Launchers that cheat take x, w and y: they are tried on what every kernel computes.
    source = _GENERAL.sub("", (variants.variant_folder(attack.of) / f"{attack.of}.cu").read_text())
    if attack.old not in source:
        raise ValueError(f"{attack.of}.cu does not hold {attack.old!r}")
    (folder / "mine.cu").write_text(source.replace(attack.old, attack.new, 1).replace("builds_on: direct\n", ""))
    if attack.launcher:
        (folder / "mine.py").write_text(attack.launcher)
    return variants.read("mine", folder)


def check_rows(folder: Path, name: str, device: str, network: str = "fa17", size: int = 1) -> list[Row]:
    """The rows that checking a folder's variant gives on `gpu`, `cpu` or `emulator` at a size, in a process of its own and in
    no sandbox, which would stop some attacks before the check that they are to try."""
    out = folder / f"{name}.{device}.csv"
    command = [sys.executable, str(CHECK), "--device", device, "--kernels", str(folder), "--variant", name]
    command += ["--cases", network, "--sandbox", "none"]
    subprocess.run(
        [*command, "--sizes", str(size), "--timeout", "60", "--out", str(out)], check=True, capture_output=True
    )
    return tables.CORRECTNESS.rows(out)


def timing_rows(folder: Path, name: str, device: str, network: str = "fa17") -> list[Row]:
    """The rows that timing a folder's variant gives, after `checked` and like it in a process of its own."""
    machine, out = folder / "machine.json", folder / f"{name}.{device}.samples.csv"
    machine.write_text(json.dumps(MACHINE))
    command = [sys.executable, str(MEASURE), "--device", device, "--kernels", str(folder), "--variant", name]
    command += ["--cases", network, "--sizes", str(TIMED_IMAGES[device])]
    command += ["--measuring", MEASURING.model_dump_json()]
    command += ["--correctness", str(folder / f"{name}.{device}.csv"), "--machine", str(machine)]
    command += ["--sandbox", "none", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return tables.SAMPLES.rows(out)


def try_attack(attack: Attack, device: str, folder: Path) -> dict[str, str] | None:
    """status and reason with which an attack fails its checks or its timing; None where it passes them."""
    forge(attack, folder, device)
    for _ in range(attack.processes):
        if failure := tables.first_failure(check_rows(folder, "mine", device)):
            return failure
    return try_timing(attack, device, folder) if attack.timed else None


def try_timing(attack: Attack, device: str, folder: Path) -> dict[str, str] | None:
    """status and reason with which an attack that passed its checks fails its timing; None where it passes that too."""
    samples = timing_rows(folder, "mine", device)
    if failure := tables.first_failure({**row, "ok": row["status"] == "ok"} for row in samples):
        return failure
    honest = attack.honest_ms and np.quantile([row["time_ms"] for row in samples], 0.25) >= attack.honest_ms
    return {"status": "ok", "reason": attack.expected_words(device) or ""} if honest else None


def document() -> str:
    """The attacks as a Markdown table: by which check each is caught, emulated, as a CPU variant and on a GPU."""
    lines = ["| A kernel or launcher that | emulated | on the CPU | on a GPU |", "| --- | --- | --- | --- |"]
    for name, attack in ATTACKS.items():
        caught = (check_behind(attack.expected_words(device) or "") or "-" for device in DEVICES)
        lines.append(f"| {name} | {' | '.join(caught)} |")
    return "\n".join(lines) + "\n"
