"""Every CPU variant is right on ragged shapes."""

import pytest

from warpbook.harness import checking
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants

CPU = [name for name, variant in variants.discover().items() if variant.device == "cpu"]


@pytest.mark.parametrize("name", CPU)
def test_cpu_variant_is_right_on_ragged_shapes(name):
    variant = variants.read(name)
    if variant.missing:
        pytest.skip(variant.missing)
    for layer, images in checking.RAGGED_LAYERS:
        rows = checking.check_case(CpuBench(), variant, layer.at(images))
        assert all(row["ok"] for row in rows), (layer, rows)
