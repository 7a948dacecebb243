"""The harness attacked: cheating and broken kernels.

Each is a sound variant with a piece of its source replaced, or with a launcher that cheats, and must fail its checks,
on the emulator and on a GPU, wherever it can show itself there.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from warpbook import tables, variants
from warpbook.tables import Row
from warpbook.variants import Variant

CHECK = Path(__file__).parents[1] / "check_variant.py"
STORE = "y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;"
FIRST = "if (image == 0 && map == 0 && row == 0 && column == 0)"


@dataclass(frozen=True)
class Attack:
    """A sound variant's source with `old` replaced by `new`, or a launcher that cheats; the words that must be said
    by the emulator and on a GPU. None: it does not show itself there."""

    emulated: str | None
    gpu: str | None
    old: str = ""
    new: str = ""
    of: str = "direct"
    launcher: str = ""


REPLAY = """
def prepare(kernels, layer, images, launch):
    kept = []

    def call(x, w, y):
        if not kept:
            launch(x, w, y)
            kept.append(y.copy())
        y[...] = kept[0]

    return call
"""

UNWAITED = """
import cupy, numpy

def prepare(kernels, layer, images, launch):
    stream = cupy.cuda.Stream(non_blocking=True)
    extents = [numpy.int32(e) for e in (images, layer.C, layer.H, layer.W, layer.M, layer.K)]
    function = kernels.function("conv_forward")
    grid = (-(-layer.W_out // 16) * -(-layer.H_out // 16), layer.M, images)

    def call(x, w, y):
        cupy.cuda.runtime.deviceSynchronize()
        function(grid, (16, 16, 1), (x, w, y, *extents), stream=stream)

    return call
"""

ATTACKS = {
    "writes nothing": Attack("leaves 3200 of 3200 outputs unwritten", "outputs unwritten", STORE, ""),
    "writes zeros": Attack("must be exact on small integers", "must be exact", "= sum;", "= 0 * K;"),
    "skips the last row": Attack(
        "leaves 200 of 3200 outputs unwritten", "outputs unwritten", "row >= H_out", "row >= H_out - 1"
    ),
    "writes one element outside": Attack(
        "heap-buffer-overflow in conv_forward at mine.cu",
        "writes outside its output: 1 of the words",
        STORE,
        f"{STORE} {FIRST} y[-1] = 1;",
    ),
    "reads outside": Attack(
        "heap-buffer-overflow in conv_forward at mine.cu",
        "outputs are NaN",
        STORE,
        f"{FIRST} sum += 0 * x[(size_t)N * C * H * W]; {STORE}",
    ),
    "replays its previous answer": Attack("exceeds what fp32 allows", "exceeds what fp32 allows", launcher=REPLAY),
    "changes its input": Attack(
        "changes its input x", "changes its input x", STORE, f"{STORE} {FIRST} ((float*)x)[0] += 1;"
    ),
    "changes its weights": Attack(
        "changes its input w", "changes its input w", STORE, f"{STORE} {FIRST} ((float*)w)[1] = 0.5f;"
    ),
    "works on a stream nobody waits for": Attack(
        None, "work on a stream nobody waits for", "float sum = 0.0f;", "float sum = 0.0f; __nanosleep(100000);",
        launcher=UNWAITED,
    ),
    "is right for square shapes only": Attack(
        "outputs unwritten", "outputs unwritten", "* H_out + row) * W_out", "* H_out + row) * H_out"
    ),
    "is right at N divisible by 16 only": Attack(
        "must be exact on small integers", "must be exact", "= sum;", "= image < N / 16 * 16 ? sum : 0.0f;"
    ),
    "computes in less than its declared precision": Attack(
        "exceeds what fp32 allows", "exceeds what fp32 allows", "sum += input[p * W + q]",
        "sum += __int_as_float(__float_as_int(input[p * W + q]) & 0xFFFFE000)",
    ),
    "forgets a barrier": Attack(
        "outputs are NaN",
        None,
        "__syncthreads();  // the patch is complete before anyone reads it",
        "",
        of="shared_input",
    ),
    "waits at a barrier that others have left": Attack(
        "some threads wait at a barrier that others have returned before", None,
        "__shared__ float patch", "if (threadIdx.x == 3) return; __shared__ float patch", of="shared_input",
    ),
    "writes outside its shared memory": Attack(
        "undefined behaviour at mine.cu", None, "const int side = TILE + K - 1;", "const int side = TILE + K + 40;",
        of="shared_input",
    ),
    "indexes an array outside its bounds": Attack(
        "undefined behaviour at mine.cu", None, "float sum = 0.0f;", "float taken[2] = {}; float sum = taken[K + 1];"
    ),
    "faults at launch": Attack(
        "SEGV", "illegal memory access", STORE, f"{STORE} {FIRST} *(volatile float*)16 = 1;"
    ),
    "raises in its launcher": Attack(
        "ValueError: no such tile", "ValueError: no such tile",
        launcher="def prepare(kernels, layer, images, launch):\n    raise ValueError('no such tile')\n",
    ),
}  # fmt: skip


def forge(attack: Attack, folder: Path) -> Variant:
    """Write the attacking variant, called `mine`, into a folder."""
    source = (variants.FOLDER / f"{attack.of}.cu").read_text()
    if attack.old not in source:
        raise ValueError(f"{attack.of}.cu does not hold {attack.old!r}")
    (folder / "mine.cu").write_text(source.replace(attack.old, attack.new, 1).replace("builds_on: direct\n", ""))
    if attack.launcher:
        (folder / "mine.py").write_text(attack.launcher)
    return variants.read("mine", folder)


def checked(folder: Path, name: str, device: str, network: str = "fa17") -> list[Row]:
    """The rows that checking a folder's variant gives on `gpu` or `emulator`, in a process of its own."""
    out = folder / f"{name}.{device}.csv"
    command = [sys.executable, CHECK, "--device", device, "--kernels", folder, "--variant", name, "--network", network]
    subprocess.run([*command, "--sizes", "1", "--timeout", "60", "--out", out], check=True, capture_output=True)
    return tables.CORRECTNESS.rows(out)


def failure_of(attack: Attack, device: str, folder: Path) -> dict[str, str] | None:
    """status and reason with which an attack fails its checks; None where it passes them."""
    forge(attack, folder)
    return tables.failure(checked(folder, "mine", device))
