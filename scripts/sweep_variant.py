"""Let Kernel Tuner try every configuration of one variant's parameters on a network's last layer: a row for each.

The variant's header names the parameters and their values (`sweep`). A configuration that does not reproduce the
float64 reference exactly on small integers gets no time.
"""

import argparse
import itertools
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from warpbook.common import expressions
from warpbook.common.errors import exit_status
from warpbook.kernels import variants
from warpbook.kernels.variants import Variant
from warpbook.machine import gpu_pool
from warpbook.machine.host import require_target
from warpbook.problems import case_sets, problem
from warpbook.problems.problem import Case
from warpbook.runs import tables

IMAGES = 1000
ITERATIONS = 7


def tune(variant: Variant, case: Case) -> list[dict[str, Any]]:
    """Columns of SWEEP from `configuration` on, one row for each combination of the parameters' values."""
    import kernel_tuner
    import numpy as np

    generator = np.random.default_rng(408)
    # Small integers: the order of additions does not change the result, so every configuration must match exactly.
    inputs = {
        name: generator.integers(one.least, one.most + 1, case.shape(name)).astype(one.dtype)
        for name, one in case.inputs.items()
    }
    expected = problem.compute(case, inputs, np)
    outputs = {name: np.zeros(case.shape(name), one.dtype) for name, one in case.problem.outputs.items()}
    arrays, sweep = {**inputs, **outputs}, variant.header.sweep

    def grid(parameters: dict[str, int]) -> tuple[int, ...]:
        if variant.header.grid:
            return expressions.values("grid", variant.header.grid, case.extents | variant.header.constants | parameters)
        across = -(-case.W_out // (parameters["BLOCK_X"] * parameters.get("COARSEN", 1)))
        return across * -(-case.H_out // parameters["BLOCK_Y"]), case.M, case.N

    extents = variants.launch_arguments(case)
    results, environment = kernel_tuner.tune_kernel(
        variant.kernel,
        variant.text,
        grid,
        [*arrays.values(), *extents],
        sweep,
        grid_div_x=[],
        grid_div_y=[],
        grid_div_z=[],
        answer=[
            *(expected[name].astype(one.dtype) if name in expected else None for name, one in arrays.items()),
            *[None] * len(extents),
        ],
        atol=0,
        block_size_names=["BLOCK_X", "BLOCK_Y", "BLOCK_Z"],
        iterations=ITERATIONS,
        lang="CuPy",
        quiet=True,
    )
    tool = f"Kernel Tuner {metadata.version('kernel_tuner')}, {environment.get('device_name', '')}".strip(", ")
    results_by_values = {tuple(int(result[name]) for name in sweep): result for result in results}
    rows = []
    for values in itertools.product(*sweep.values()):
        configuration = " ".join(f"{name}={value}" for name, value in zip(sweep, values, strict=True))
        time_ms = results_by_values[values]["time"] if values in results_by_values else None
        sound = isinstance(time_ms, float)
        reason = "" if sound else f"Kernel Tuner: {type(time_ms).__name__ if time_ms is not None else 'not tried'}"
        state = {"status": "ok" if sound else "launch_failed", "reason": reason}
        rows.append(
            {
                "configuration": configuration,
                "tool": tool,
                "time_ms": time_ms if sound else None,
                "n": ITERATIONS,
                **state,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--cases", required=True, help="the network or study whose cases it computes")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    require_target()
    variant = variants.read(arguments.variant)
    case = case_sets.find(arguments.cases).cases[-1].at(IMAGES)
    place = {"variant": variant.name, **tables.place(case.problem.name, arguments.cases, case.name), "size": IMAGES}
    try:
        with gpu_pool.acquire("gpu", arguments.out) as rows:
            rows += tune(variant, case.with_problem(variant.problem))
    except ImportError as error:
        reason = f"Kernel Tuner is not installed here ({error.name}): pip install kernel-tuner"
        nothing = {"configuration": "", "tool": "", "time_ms": None, "n": 0}
        rows = [{**nothing, "status": "unsupported", "reason": reason}]
        print(f"no sweep of {variant.name}: {reason}")
    tables.SWEEP.write(({**place, **row} for row in rows), arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
