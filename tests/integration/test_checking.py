"""Every CPU variant is right on ragged shapes."""

from small_run import shipped
from warpbook.harness import checking
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants

CPU = [name for name, variant in shipped().items() if variant.device == "cpu"]


def test_each_cpu_variant_whose_library_is_here_is_right_on_ragged_shapes():
    here = [variant for variant in map(variants.read, CPU) if not variant.missing]
    assert len(here) > 8
    for variant in here:
        plain = [case for case in variant.problem.ragged if not case.unusual and not case.optional]
        assert len(plain) > 3
        for case in plain:
            rows = checking.check_case(CpuBench(), variant, case)
            right = len(rows) == 1 + variant.problem.facts.exact and all(row["ok"] for row in rows)
            assert right, (variant.name, case, rows)
