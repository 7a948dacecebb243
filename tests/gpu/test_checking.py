"""Every GPU variant is right on ragged shapes, and so is what compares its outputs; values of every type are checked."""

import pytest

from warpbook.harness import checking, reference
from warpbook.kernels import variants
from warpbook.problems import networks, problem

pytestmark = pytest.mark.gpu

GPU = [name for name, variant in variants.discover().items() if variant.device == "gpu"]
OF_NAMED_LAYERS = [name for name in GPU if variants.read(name).header.limits.layers]
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8")


@pytest.fixture(scope="module")
def judge():
    """The judge of this device, which each test gives processes of its own."""
    from warpbook.harness.isolated_gpu import IsolatedGpuBench

    return IsolatedGpuBench(sandboxed=False)


def failures(judge, variant, cases):
    """(case, reason) of the first case on which a variant is wrong, if any."""
    with judge as bench:  # one process: it compiles the variant once
        for case in cases:
            for row in checking.check_case(bench, variant, case):
                if not row["ok"] and row["status"] != "unsupported":
                    return [(str(case), row["reason"])]
    return []


def test_each_gpu_variant_is_right_on_ragged_shapes(judge):
    every = [variants.read(name) for name in GPU]
    assert all(variant.problem.ragged for variant in every)
    found = {variant.name: failures(judge, variant, variant.problem.ragged) for variant in every}
    assert {name: its for name, its in found.items() if its} == {}


def test_a_variant_of_named_layers_is_right_on_those_of_our_networks(judge):
    convs = [conv for network in networks.all_networks().values() for conv in network.convs]
    layers = [conv.at(images) for conv in convs for images in (1, 7)]
    for name in OF_NAMED_LAYERS:
        variant = variants.read(name)
        computed = [layer for layer in layers if not variant.unsupported(layer)]
        assert computed, variant.unsupported(layers[0])
        assert failures(judge, variant, computed) == [], name


def test_device_reference_agrees_with_numpy():
    from warpbook.harness.bench import allocate
    from warpbook.harness.gpu_bench import GpuBench

    bench = GpuBench()
    for case in [case for name in problem.names() for case in problem.find(name).ragged]:
        buffers = allocate(bench, case)
        drawn = {**buffers.input_values, **buffers.output_values}
        for seed, (array, values) in enumerate(drawn.items()):
            bench.draw(values, seed, False, case.arrays[array])
        on_host = {array: values.get() for array, values in drawn.items()}
        inputs, outputs = ({each: on_host[each] for each in held} for held in (buffers.inputs, buffers.outputs))
        found = bench.compare(case, buffers.input_values, buffers.output_values)
        expected = reference.differences(case, inputs, outputs)
        assert found.keys() == expected.keys()
        for output, difference in expected.items():
            assert found[output].not_finite == 0
            for fact in ("max_abs_err", "rel_l2_err", "max_magnitude"):
                known = getattr(difference, fact)
                assert getattr(found[output], fact) == pytest.approx(known, rel=1e-12), (case, output, fact)


COPY = '''"""
title: A copy
extents: {{m: rows}}
inputs: {{x: {{shape: [m, 3], dtype: {dtype}}}}}
outputs: {{y: {{shape: [m, 3], dtype: {dtype}}}}}
exact: true
ragged: [{{m: 5}}]
"""

def reference(x):
    return x
'''
CALL = '''"""
title: A copy by CuPy
"""

def prepare(case, size):
    def call(x, y):
        {body}
    return call
'''


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_is_drawn_guarded_and_compared(dtype, tmp_path, judge):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    (tmp_path / problem.FILE).write_text(COPY.format(dtype=dtype))
    (case,) = problem.read(tmp_path).ragged
    unwritten = "must be exact" if dtype in ("int8", "uint8") else "leaves 3 of 15 outputs unwritten"
    for name, body, words in (
        ("right", "y[...] = x", ""),
        ("part", "y[1:] = x[1:]", unwritten),
        ("wrong", "y[...] = x; y[4] += 1", "must be exact"),
        ("changing", "y[...] = x; x[...] = y[::-1].copy()", "changes its input x"),
    ):
        (tmp_path / f"{name}.py").write_text(CALL.format(body=body))
        with judge as bench:
            row = checking.check_case(bench, variants.read(name, tmp_path), case)[0]
        assert (row["ok"], words in row["reason"]) == (not words, True), (name, row)
