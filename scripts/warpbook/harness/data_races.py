"""Data races of emulated kernels: one call on small cases, each access to memory looked at."""

from collections.abc import Sequence
from pathlib import Path

from warpbook.common.errors import MachineFault, UserError
from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking
from warpbook.harness.checking import Row
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case

TEST = "races"
FLOPS = 60_000_000  # of a call at most: each access takes some 20 ns


def find(variant: Variant, cases: Sequence[Case], sandboxed: bool, folder: Path, limit_s: float | None = None) -> Row:
    """The row of a variant: the first data race on these cases; those that take too long are left out. Other tests
    compare results and find faults. `limit_s` is for all calls together."""
    supported = [case for case in cases if not variant.unsupported(case)]
    small = [case for case in supported if case.flops <= FLOPS] or supported[:1]
    place = {"case": cases[0].name if cases else "", "size": cases[0].size if cases else 1, "test": TEST}
    if variant.read_error or not small:
        reason = (
            variant.read_error or f"data races were not looked for: {variant.name} is not written for any of the cases"
        )
        return {**place, **checking.NOT_COMPARED, "ok": False, "status": "unsupported", "reason": reason}
    row: Row = {}
    try:
        library = emulation.compile_host(variant, folder, sandboxed, races=True)
    except MachineFault:
        raise
    except (VariantFailure, UserError) as failure:
        reason = f"data races were not looked for: {failure}"
        return {**place, **checking.NOT_COMPARED, "ok": False, "status": "unsupported", "reason": reason}
    with IsolatedBench(variant, sandboxed, folder, library, races=True) as bench:
        bench.process.limit_s = limit_s
        for case in small:
            place |= {"case": case.name, "size": case.size}
            row = checking.check_case(bench, variant, case, ("reals",), diagnose=False)[-1]
            if bench.ended:
                break
    if emulation.RACE in row["reason"]:
        return {**row, **place}
    if bench.ended:
        reason = f"data races were not looked for: {row['reason']}"
        return {**place, **checking.NOT_COMPARED, "ok": False, "status": "unsupported", "reason": reason}
    return {**place, **checking.NOT_COMPARED, "ok": True, "status": "ok", "reason": ""}
