"""Every CPU variant is right on ragged shapes."""

import pytest

from small_run import shipped
from warpbook.harness import checking
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants

CPU = [name for name, variant in shipped().items() if variant.device == "cpu"]


@pytest.mark.parametrize("name", CPU)
def test_cpu_variant_is_right_on_ragged_shapes(name):
    variant = variants.read(name)
    if variant.missing:
        pytest.skip(variant.missing)
    plain = [case for case in variant.problem.ragged if not case.unusual and not case.optional]
    assert len(plain) > 3
    for case in plain:
        rows = checking.check_case(CpuBench(), variant, case)
        assert len(rows) == 1 + variant.problem.facts.exact and all(row["ok"] for row in rows), (case, rows)
