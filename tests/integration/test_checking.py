"""The harness attacked: cheating and broken variants, and which check catches each."""

import numpy as np
import pytest

from warpbook.harness import checking
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants
from warpbook.problems import networks

LAYER = networks.ConvLayer("odd", 3, 19, 23, 5, 4)
RIGHT = "y[...] = convolve(x, w)"


def reason_of(variant, layer=LAYER, images=2):
    """The reason of the first test that a variant fails."""
    rows = checking.check_layer(CpuBench(), variant, layer, images)
    failed = [row for row in rows if not row["ok"]]
    assert failed, "the variant passed"
    return failed[0]["reason"]


def test_a_right_variant_passes_exactly_on_integers_and_within_tolerance_on_reals(cpu_variant):
    integers, reals = checking.check_layer(CpuBench(), cpu_variant(RIGHT), LAYER, 2)
    assert integers["ok"]
    assert integers["max_abs_err"] == 0
    assert reals["ok"]
    assert 0 < reals["max_abs_err"] < reals["tolerance"]


CHEATS = {
    "writes nothing": ("pass", "leaves 3200 of 3200 outputs unwritten"),
    "writes zeros": ("y[...] = 0", "must be exact on small integers"),
    "skips the last row": ("y[:, :, :-1] = convolve(x, w)[:, :, :-1]", "leaves 200 of 3200 outputs unwritten"),
    "writes one element outside": (
        RIGHT + "\nbefore = np.lib.stride_tricks.as_strided(y, (1,), writeable=True)\n"
        "np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1).from_address(y.ctypes.data - 4))[0] = 1",
        "writes outside its output: 1 of the words around it",
    ),
    "reads outside": (
        RIGHT
        + "\nbeyond = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1).from_address(x.ctypes.data + x.nbytes))\n"
        "y[-1, -1, -1, -1] += beyond[0]",
        "1 outputs are NaN or infinite",
    ),
    "changes its input": (RIGHT + "\nx[0, 0, 0, 0] += 1", "changes its input x"),
    "changes its weights": (RIGHT + "\nw[...] = 0", "changes its input w"),
    "writes before its input": (
        RIGHT + "\nnp.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1).from_address(w.ctypes.data - 4))[0] = 1",
        "changes its input w, or the memory around it",
    ),
    "right for square shapes only": (
        "h = min(y.shape[2:])\ny[...] = 0\ny[:, :, :h, :h] = convolve(x, w)[:, :, :h, :h]",
        "must be exact on small integers",
    ),
    "swaps rows and columns": ("y[...] = convolve(x, w.transpose(0, 1, 3, 2))", "must be exact on small integers"),
    "convolves instead of correlating": (
        "y[...] = convolve(x, w[:, :, ::-1, ::-1])",
        "must be exact on small integers",
    ),
    "forgets the last channel": ("y[...] = convolve(x[:, :-1], w[:, :-1])", "must be exact on small integers"),
    "raises": ("raise ValueError('no such tile')", "mine, called: ValueError: no such tile"),
    "returns another shape": ("return convolve(x, w)[:, :1]", "returns shape"),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_variant_is_caught_that(cheat, cpu_variant):
    body, words = CHEATS[cheat]
    assert words in reason_of(cpu_variant(body))


def test_a_variant_is_caught_that_replays_its_previous_answer(cpu_variant):
    body = "if not kept: kept.append(convolve(x, w))\ny[...] = kept[0]"
    rows = checking.check_layer(CpuBench(), cpu_variant(body, before="kept = []"), LAYER, 2)
    assert [row["ok"] for row in rows] == [True, False]
    assert "exceeds what fp32 allows" in rows[1]["reason"]


def test_a_variant_is_caught_that_is_right_at_multiples_of_sixteen_images_only(cpu_variant):
    body = "y[...] = 0\nn = len(x) // 16 * 16\ny[:n] = convolve(x[:n], w)"
    variant = cpu_variant(body)
    assert all(row["ok"] for row in checking.check_layer(CpuBench(), variant, LAYER, 16))
    assert "must be exact" in reason_of(variant, images=17)


@pytest.mark.parametrize("layer", [layer for layer, _ in checking.RAGGED_LAYERS], ids=str)
def test_ragged_shapes_have_no_two_equal_extents(layer):
    extents = [layer.C, layer.H, layer.W, layer.M]
    assert len(set(extents)) == 4
    assert layer.H_out >= 1
    assert layer.W_out >= 1


def in_half(array):
    return f"{array}.astype(np.float16).astype(np.float32)"


@pytest.mark.parametrize("name", ["fa17", "fa18", "fa19"])
def test_a_variant_is_caught_that_computes_in_less_than_its_declared_precision(name, cpu_variant):
    for layer in networks.find(name).convs:
        variant = cpu_variant(f"y[...] = convolve({in_half('x')}, {in_half('w')})")
        assert "exceeds what fp32 allows" in reason_of(variant, layer, 1)


def test_a_lower_precision_passes_where_it_is_declared(cpu_variant):
    variant = cpu_variant(f"y[...] = convolve({in_half('x')}, {in_half('w')})", header="precision: fp16\n")
    assert all(row["ok"] for row in checking.check_layer(CpuBench(), variant, LAYER, 2))


def test_a_method_that_is_not_direct_need_not_be_exact_on_integers(cpu_variant):
    body = "y[...] = convolve(x, w) * (1 + 3e-7)"
    assert "must be exact" in reason_of(cpu_variant(body))
    assert all(
        row["ok"] for row in checking.check_layer(CpuBench(), cpu_variant(body, header="method: any\n"), LAYER, 2)
    )


def test_an_unsupported_layer_is_no_failure(cpu_variant):
    variant = cpu_variant("raise AssertionError('never called')", header="limits: {K: 3}\n")
    (row,) = checking.check_layer(CpuBench(), variant, LAYER, 2)
    assert row["status"] == "unsupported"
    assert "K = 4 exceeds its limit 3" in row["reason"]


def test_a_variant_that_asks_for_too_much_memory_is_unsupported_there(cpu_variant):
    variant = cpu_variant("raise MemoryError('140 GiB')")
    (row,) = checking.check_layer(CpuBench(), variant, LAYER, 2)
    assert row["status"] == "unsupported"


def test_inputs_are_fresh_on_every_check(cpu_variant, tmp_path):
    seen = tmp_path / "seen.txt"
    drawn = "str(__import__('zlib').crc32(x.tobytes() + w.tobytes()))"
    body = RIGHT + f"\nopen({str(seen)!r}, 'a').write({drawn} + '\\n')"
    for _ in range(3):
        checking.check_layer(CpuBench(), cpu_variant(body), LAYER, 2)
    assert len(set(seen.read_text().splitlines())) == 6


def test_drawn_reals_use_the_whole_mantissa_and_integers_stay_small():
    bench = CpuBench()
    values = np.empty(10_000, np.float32)
    bench.draw(values, 7, integers=False)
    assert np.abs(values).max() <= 1
    assert (values.astype(np.float16) != values).mean() > 0.99
    bench.draw(values, 7, integers=True)
    assert set(np.unique(values)) == set(range(-4, 5))


CPU = [name for name, variant in variants.discover().items() if variant.device == "cpu"]


@pytest.mark.parametrize("name", CPU)
@pytest.mark.parametrize(("layer", "images"), checking.RAGGED_LAYERS, ids=str)
def test_cpu_variant_is_right_on_ragged_shapes(name, layer, images):
    variant = variants.read(name)
    if variant.missing:
        pytest.skip(variant.missing)
    rows = checking.check_layer(CpuBench(), variant, layer, images)
    assert all(row["ok"] for row in rows), rows


GPU = [name for name, variant in variants.discover().items() if variant.device == "gpu"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU)
@pytest.mark.parametrize(("layer", "images"), checking.RAGGED_LAYERS, ids=str)
def test_gpu_variant_is_right_on_ragged_shapes(name, layer, images):
    from warpbook.harness.gpu_bench import GpuBench

    rows = checking.check_layer(GpuBench(), variants.read(name), layer, images)
    assert all(row["ok"] or row["status"] == "unsupported" for row in rows), rows


@pytest.mark.gpu
@pytest.mark.parametrize(("layer", "images"), checking.RAGGED_LAYERS, ids=str)
def test_device_reference_agrees_with_numpy(layer, images):
    from warpbook.harness import reference
    from warpbook.harness.gpu_bench import GpuBench

    bench = GpuBench()
    x, w, y = (
        bench.allocate_guarded(shape).values for shape in (layer.x_shape(images), layer.w_shape, layer.y_shape(images))
    )
    for seed, values in enumerate((x, w, y)):
        bench.draw(values, seed, integers=False)
    difference = bench.compare(layer, x, w, y)
    expected = reference.difference(x.get(), w.get(), y.get())
    assert difference.max_abs_err == pytest.approx(expected.max_abs_err, rel=1e-12)
    assert difference.rel_l2_err == pytest.approx(expected.rel_l2_err, rel=1e-12)
    assert difference.max_magnitude == pytest.approx(expected.max_magnitude, rel=1e-12)
