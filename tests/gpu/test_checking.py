"""Every GPU variant is right on ragged shapes, and so is the device's reference."""

import pytest

from warpbook.harness import checking
from warpbook.kernels import variants

pytestmark = pytest.mark.gpu

GPU = [name for name, variant in variants.discover().items() if variant.device == "gpu"]


@pytest.mark.parametrize("name", GPU)
def test_gpu_variant_is_right_on_ragged_shapes(name):
    from warpbook.harness.gpu_bench import GpuBench

    for layer, images in checking.RAGGED_LAYERS:
        rows = checking.check_case(GpuBench(), variants.read(name), layer.at(images))
        assert all(row["ok"] or row["status"] == "unsupported" for row in rows), (layer, rows)


def test_device_reference_agrees_with_numpy():
    from warpbook.harness import reference
    from warpbook.harness.gpu_bench import GpuBench

    bench = GpuBench()
    for layer, images in checking.RAGGED_LAYERS:
        shapes = layer.at(images).shape("x"), layer.w_shape, layer.at(images).shape("y")
        x, w, y = (bench.allocate_guarded(shape).values for shape in shapes)
        for seed, values in enumerate((x, w, y)):
            bench.draw(values, seed, integers=False)
        found = bench.compare(layer, x, w, y)
        expected = reference.difference(x.get(), w.get(), y.get())
        for fact in ("max_abs_err", "rel_l2_err", "max_magnitude"):
            assert getattr(found, fact) == pytest.approx(getattr(expected, fact), rel=1e-12), (layer, fact)
