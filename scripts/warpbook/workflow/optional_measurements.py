"""Optional measurements of a run: `optional_measurements` in config.yaml names those that are wanted. All but pairs need a GPU."""

from collections.abc import Callable

from warpbook.kernels.variants import full_name
from warpbook.runs.run_parts import PARTS, WHOLE
from warpbook.workflow.plan import Plan

AA_TESTS = 4  # A/A tests of a variant on each layer at each size, on all GPUs together or one on each


def _starting_points(plan: Plan, cases: str) -> list[str]:
    """CUDA C++ variants of a set of cases that build on no other, without files of the course."""
    every = plan.problem_variants(cases).items()
    return [name for name, one in every if one.cuda_source and not one.header.builds_on and not one.course]


def _kernels(plan: Plan) -> list[str]:
    """GPU variants that the chosen studies compare and that are built."""
    compared = {name for cases in plan.case_sets for name in plan.variants_for(cases, "gpu")}
    return sorted(compared & set(plan.variants_to_build))


def _own_networks(plan: Plan) -> list[str]:
    """Whole networks with kernels of ours."""
    return [f"{WHOLE}{name}" for name, one in plan.implementations.items() if not one.header.peer]


def _against_baseline(plan: Plan) -> list[str]:
    """GPU variants that the chosen studies compare and that do not add up FP32 products in FP32, with what each builds
    on, and the baseline of their problem, where that names cases for it. Where sums are of no products, all: what they
    change is the order of the sum. Another order of the arrays in memory is none of numbers; files of the course run
    otherwise."""
    chosen: set[str] = set()
    for cases in plan.case_sets:
        compared = {name: plan.variants[name] for name in plan.variants_for(cases, "gpu")}
        for name, one in compared.items():
            problem = one.problem
            baseline = full_name(problem, problem.facts.baseline)
            rounds = not one.header.sums_in_fp32 or len(problem.inputs) == 1
            rounds &= not one.problem.dtypes and one.header.order == "NCHW" and not one.course
            if problem.facts.precision and baseline in compared and (rounds or name == baseline):
                chosen |= {name, one.header.builds_on} & set(compared)
    return sorted(chosen)


PAIRED_PROCESSES, PAIRED_TESTS = 12, 10
"""So often a pair of kernels whose difference is known gets processes of its own, on all GPUs together, and is compared
so often in each."""


def _each_gpu(plan: Plan) -> list[str]:
    """What the parts are called that each of the GPUs makes."""
    return ["gpu"] if plan.gpus == 1 else [f"gpu-{number}" for number in range(plan.gpus)]


OPTIONAL_PARTS: dict[str, Callable[[Plan], list[str]]] = {
    "aa": lambda plan: [
        f"{PARTS}/aa/{gpu}/{cases}/{name}.csv.gz"
        for cases in plan.networks
        for name in _starting_points(plan, cases)
        for gpu in _each_gpu(plan)
    ],
    "pairs": lambda plan: [
        f"{PARTS}/pairs/{place}.csv"
        for device in plan.devices
        for place in (_each_gpu(plan) if device == "gpu" else [device])
    ],
    "attacks": lambda plan: [f"{PARTS}/attacks.csv"],
    "precision": lambda plan: [f"{PARTS}/precision/{name}.csv" for name in _against_baseline(plan)],
    "sanitizer": lambda plan: [f"{PARTS}/sanitizer/{name}.csv" for name in [*_kernels(plan), *_own_networks(plan)]],
    "sweep": lambda plan: [f"{PARTS}/sweep/{name}.csv" for name in _kernels(plan) if plan.variants[name].header.sweep],
}
"""Each with the parts that it makes, wanted or not; a rule in rules/optional.smk makes one."""
