"""Kernels on tensor cores, emulated: right on every layer that they are for, and faults planted in them are seen."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import check_variant
from emulated import FAULT, Fault, plant, reasons
from warpbook.harness import checking, reference
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import variants
from warpbook.problems import networks

pytestmark = pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")

# Layers of many channels: blocks of several sizes, channels and outputs that fill none of them.
MANY_CHANNELS = [
    networks.ConvLayer("padded", 48, 9, 43, 70, 3, P=1),
    networks.ConvLayer("deep", 36, 7, 7, 130, 2),
]
# The layers that each is tried on. One that names its layers is for no others of the networks.
LAYERS = {
    "fp16x3_mma": [("fa18", 0), ("fa18", 1), ("ece408", 1)],
    "fp16x3_wgmma": [("fa18", 1), ("sp19", 1), ("fa19", 1), ("ece408", 0), ("ece408", 1)],
    "implicit_gemm": [("many", 0), ("many", 1)],
}
NAMES_ITS_LAYERS = ["fp16x3_wgmma"]
FAULT_LAYERS = {"fp16x3_wgmma": [("fa18", 1)], "implicit_gemm": LAYERS["implicit_gemm"]}
FIRST_AND_LATER = [("fa18", 0), ("fa18", 1)]

WRONG = "outputs are wrong"
FAULTS = {
    "fp16x3_wgmma": [
        Fault("wgmma_wait_group<0>();", "wgmma_wait_group<1>();", "outputs are NaN or infinite"),
        Fault('asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");', "", "outputs are NaN or infinite"),
        Fault("| WGMMA_STRIDES", "| (PLANTED ? 16ull << 16 | 8ull << 32 : WGMMA_STRIDES)", WRONG),
        Fault("weights + lo_weights", "weights + hi_weights", WRONG),
        Fault("weights + lo_weights", "weights + 100 * lo_weights", "beyond the block's"),
        Fault("128 * (groups", "(96 if PLANTED else 128) * (groups", "at an mbarrier where others do not arrive"),
        Fault("mbarrier_wait(images.full + slot, turn / 2);", "", "outputs are"),
        Fault(
            "mbarrier_wait(images.full + slot, turn / 2);",
            "mbarrier_wait(images.full, 0);",
            "mbarrier where others do not arrive",
        ),
        Fault("mbarrier_arrive(full + slot);", "", "wait at an mbarrier where others do not arrive"),
        Fault("mbarrier_init(images.full + threadIdx.x, 128);", "", "that no mbarrier.init has made"),
        Fault(
            "(images.empty + threadIdx.x, 128",
            "(images.empty + threadIdx.x, (PLANTED ? 64 : 128)",
            "others do not arrive",
        ),
        Fault("mbarrier_wait(empty + slot, turn / 2);", "", "do not arrive at line"),
        Fault('asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");', "", "outputs unwritten"),
        Fault('asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");', "", WRONG),
        Fault("(turn ? 3 - turn : 2)", "(PLANTED ? 2 : turn ? 3 - turn : 2)", WRONG),
        Fault("hi[2] = left.x, lo[2] = left.y;", "", WRONG),
        Fault("i / 8 * 2 + i % 2}; }", "i / 8 * (PLANTED ? 1 : 2) + i % 2}; }", WRONG),
        Fault("(block - L::ROW_BLOCKS) % L::ROWS", "(block - L::ROW_BLOCKS) % 2", WRONG),
    ],
    "fp16x3_mma": [
        Fault('"r"(a.y), "r"(a.z)', '"r"(PLANTED ? a.z : a.y), "r"(PLANTED ? a.y : a.z)', WRONG),
        Fault(
            "(first - rounded.x, second - rounded.y)",
            "(PLANTED ? 0.0f : first - rounded.x, PLANTED ? 0.0f : second - rounded.y)",
            "exceeds what fp32 allows",
        ),
        Fault("__syncthreads_or(out_of_range) && threadIdx.x == 0", "false", "outputs are NaN or infinite"),
    ],
    "implicit_gemm": [
        Fault("a, b, 2 * units, [&]", "a, b, (PLANTED ? 0 : 2 * units), [&]", WRONG),
        Fault("tap / KW * D * pitch", "tap / KW * D * W", WRONG),
        Fault("max(layer.P, layer.P_end)", "(0 if PLANTED else max(layer.P, layer.P_end))", WRONG),
        Fault("cp_async_wait_group<AHEAD - 1>();", "cp_async_wait_group<AHEAD>();", "outputs are"),
    ],
    "tensor_cores": [
        Fault(
            'asm volatile("mma', 'if (!PLANTED || threadIdx.x) asm volatile("mma', "wait for others that do not come"
        ),
    ],
}
# Of numbers that FP16 cannot hold beside each other: no check of a variant draws such.
RANGE_FAULTS = {
    "fp16x3_mma": [
        Fault("if (threadIdx.x == 0) append_fallback(", "if (!PLANTED && threadIdx.x == 0) append_fallback("),
        Fault("any |= magnitude != 0 && magnitude < least;", ""),
        Fault("#define MIN_EXPONENT (-17)", "#define MIN_EXPONENT (PLANTED ? -200 : -17)"),
    ],
    "fp16x3_wgmma": [
        Fault("2 * exponent + too_small", "2 * exponent"),
        Fault("for (int q = 0; q < K; ++q) any |=", "for (int q = PLANTED ? 1 : 0; q < K; ++q) any |="),
    ],
    "implicit_gemm": [
        Fault("marked_places[1 + atomicAdd(marked_places, 1)] = place;", ""),
        Fault("exponent_of(largest_of_image(image_largest, image))", "exponent_of(largest_of_image(image_largest, 0))"),
        Fault("!(fmaxf(fabsf(first), fabsf(second)) <= most)", "false"),
    ],
}
IN_FETCHES, FETCH_LAYERS = FAULTS["fp16x3_wgmma"][-4:], [("fa18", 1), ("fa19", 1), ("ece408", 1)]
"""Faults in the order of what lanes fetch, and the layers whose orders differ."""
RANGE_FAULT_LAYERS = {
    "fp16x3_mma": [("sp19", 1), ("sp19", 0)],
    "fp16x3_wgmma": [("sp19", 1)],
    "implicit_gemm": [("many", 0)],
}


def layer_of(place):
    """A layer by its network and number there."""
    network, number = place
    return MANY_CHANNELS[number] if network == "many" else networks.find(network).convs[number]


def planted_in(name):
    return [*FAULTS[name], *RANGE_FAULTS.get(name, [])]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A function of a variant's name: it, its folder and its emulated library, as it is or with every fault that is
    planted in it; each made once. Where no fault is wanted it is as it is: that does for a kernel whose own source
    another test compiles."""

    @cache
    def compile_variant(name, planted):
        folder = tmp_path_factory.mktemp(name)
        texts = {file.name: file.read_text() for file in variants.read(name).files}
        for file, text in (plant(texts, planted_in(name)) if planted else texts).items():
            (folder / file).write_text(text)
        variant, built = variants.read(name, folder), folder / "built"
        built.mkdir()
        return variant, built, emulation.compile_host(variant, built, sandboxed=False)

    return lambda name, planted: compile_variant(name, planted or name not in NAMES_ITS_LAYERS)


def checked(variant, built, library, places):
    """The rows of each layer in turn, its threads from the last to the first; of several images where a block takes one
    after the other."""
    images = check_variant.SEVERAL_IMAGES if variant.name in NAMES_ITS_LAYERS else 3 if places[0][0] == "many" else 1
    cases = [layer_of(place).at(images) for place in places]
    rows = []
    with IsolatedBench(variant, False, built, library) as bench:
        bench.reversed_order = True
        for case in cases:
            rows.append(checking.check_case(bench, variant, case, diagnose=False))  # whose cause is known
            if bench.ended:
                break
    return rows


def test_products_are_right_on_every_layer_that_a_kernel_is_for(compiled):
    every = [(of.name, place) for of in networks.all_networks().values() for place in range(len(of.convs))]
    for name, places in LAYERS.items():
        variant, built, library = compiled(name, planted=False)
        if name in NAMES_ITS_LAYERS:
            supported = [
                (of, place) for of, place in every if not variant.unsupported(networks.find(of).convs[place].at(1))
            ]
            assert sorted(supported) == sorted(places)
        checks = checked(variant, built, library, places)
        assert not reasons(row for rows in checks for row in rows)
        for integers, reals in checks:
            assert integers["max_abs_err"] == 0
            assert 0 < reals["rel_l2_err"] < 1e-6  # of FP32 sums


def test_a_fault_in_a_kernel_on_tensor_cores_is_seen(compiled, monkeypatch):
    for name in FAULTS:
        for number, fault in enumerate(FAULTS[name], 1):
            monkeypatch.setenv(FAULT, str(number))
            places = FETCH_LAYERS if fault in IN_FETCHES else FAULT_LAYERS.get(name, FIRST_AND_LATER)
            rows = [row for rows in checked(*compiled(name, planted=True), places) for row in rows if not row["ok"]]
            assert {row["status"] for row in rows} == {"wrong_result"}, fault
            assert fault.seen in rows[-1]["reason"], fault


SCRIPT = """
from pathlib import Path
from warpbook.problems import networks
from warpbook.kernels import variants

folder, name, *places = arguments
variant, made = variants.read(name, Path(folder)), {}
for place in places:
    x, w = on_device(given[f"x {place}"]), on_device(given[f"w {place}"])
    *extents, padding = map(int, place.split("x"))
    conv = networks.ConvLayer("conv", *extents, P=padding).at(len(x))
    call = variant.prepare(conv, emulation.EmulatedKernels(library, variant.header.constants))
    y = on_device(np.empty(conv.shape("y"), np.float32))
    for _ in range(2):  # the second finds what the first left
        y[...] = np.nan
        call(x, w, y)
    made[place] = y
np.savez(out, **made)
"""


def drawn(layer):
    """Images, weights and float64's outputs: (1) as drawn, (2) every pixel by a power of two of its own, (3) half of
    the image far below the rest, (4) one infinite number among zeros, (5) all of it tiny, (6) one tiny number, one of 1,
    zeros, (7) one number far beyond the rest."""
    conv, source = layer.at(7), np.random.default_rng(5)
    x = source.standard_normal(conv.shape("x")).astype(np.float32)
    x[1] *= np.exp2(source.integers(-12, 13, x[1, 0].shape)).astype(np.float32)
    x[2, :, : conv.H // 2] *= np.float32(2.0**-30)
    x[3, :, 4, 5] = 0
    x[3, 0, 4, 5] = np.inf
    x[4] *= np.float32(2.0**-120)
    x[5] = 0
    x[5, 0, 2, 3], x[5, -1, -1, -1] = 2.0**-40, 1
    x[6, -1, 1, 5] = 2.0**9
    w = (source.standard_normal(conv.shape("w")) / 5).astype(np.float32)
    with np.errstate(invalid="ignore"):
        y = reference.convolve(x.astype(np.float64), w.astype(np.float64), padding=conv.P)
        magnitudes = reference.convolve(abs(x).astype(np.float64), abs(w).astype(np.float64), padding=conv.P)
    return SimpleNamespace(x=x, w=w, y=y, magnitudes=magnitudes)


# Of a sum of products' magnitudes. fp16x3_wgmma leaves whole sums to the tensor cores, which truncate: beside one large
# product the error is three times that of FP32 additions in turn.
MOST_ERROR = {"fp16x3_wgmma": 1.5e-6}


def of_fp32(made, drawn, most=1e-6):
    """Whether each output that is finite is apart from float64's by no more than FP32 sums of its products are, and all
    others are the same."""
    known = np.isfinite(drawn.y)
    with np.errstate(invalid="ignore"):
        apart = abs(made - drawn.y)[known]
    same = np.array_equal(made[~known], drawn.y[~known], equal_nan=True)
    return same and bool((apart <= most * drawn.magnitudes[known]).all())


@pytest.fixture
def outside_fp32(compiled, run_emulated):
    """A function of a variant, as it is or with faults planted, and layers: those on which an output is not FP32's."""

    def call(name, places, planted):
        variant, _, library = compiled(name, planted=planted)
        given = {"x".join(map(str, (c.C, c.H, c.W, c.M, c.K, c.P))): drawn(c) for c in map(layer_of, places)}
        arrays = {f"{kind} {place}": getattr(each, kind) for place, each in given.items() for kind in "xw"}
        made = run_emulated(SCRIPT, library, variant.files[0].parent, name, *given, **arrays)
        most = MOST_ERROR.get(name, 1e-6)
        return [
            place
            for place, (key, each) in zip(places, given.items(), strict=True)
            if not of_fp32(made[key], each, most)
        ]

    return call


def test_each_output_is_fp32_s_whatever_lies_beside_it_in_the_image(outside_fp32):
    for name, places in [
        ("fp16x3_mma", [("fa17", 0), ("fa18", 0), ("sp19", 1), ("ece408", 1), ("fa19", 1)]),
        ("fp16x3_wgmma", [("sp19", 1), ("fa19", 1), ("ece408", 0), ("ece408", 1)]),
        ("implicit_gemm", [("many", 0), ("many", 1)]),
    ]:
        assert outside_fp32(name, places, planted=False) == [], name


def test_an_output_that_fp16_cannot_give_is_seen(outside_fp32, monkeypatch):
    for name in RANGE_FAULTS:
        for number, fault in enumerate(RANGE_FAULTS[name]):
            monkeypatch.setenv(FAULT, str(1 + len(FAULTS[name]) + number))
            assert outside_fp32(name, RANGE_FAULT_LAYERS[name], planted=True), fault
