"""Whole networks on a GPU: right ones pass at every size, and each way of cheating is caught."""

from contextlib import nullcontext
from threading import Event
from types import ModuleType

import numpy as np
import pytest

from warpbook.common.supervision import VariantFailure
from warpbook.config import settings
from warpbook.harness import reference
from warpbook.kernels import whole_networks
from warpbook.problems import fashion_mnist, networks, weights

pytestmark = pytest.mark.gpu

SERIES = settings.SeriesPolicy(warmup=1, min_samples=3, max_samples=5, max_time_s=0.05, min_samples_timeout_s=1)
MEASURING = settings.Measuring(
    target_rel_ci=0.01,
    equivalence_margin=0.01,
    gpu=SERIES,
    cpu=SERIES,
    programs={"runs": 1, "min_samples_timeout_s": 1},
    timeout_s=60,
)
IMAGES = 1001  # more than an implementation has other kernels for


@pytest.fixture(scope="module")
def bench_of():
    """The bench of a network on IMAGES images of the data set."""
    import cupy

    from warpbook.harness import gpu_bench, network_bench

    made = {}

    def bench(name):
        if name not in made:
            network = networks.find(name)
            parameters = weights.load(network, network.weight_sets[0])
            images = np.ascontiguousarray(fashion_mnist.load(network)[0][:IMAGES])
            scores = reference.scores(network, parameters, images)
            on_device = {key: cupy.asarray(array) for key, array in parameters.items()}
            made[name] = network_bench.NetworkBench(
                gpu_bench.GpuBench(), network_bench.NetworkData(network, images[:, 0], scores, on_device)
            )
        return made[name]

    return bench


NETWORKS = ["fa17", "fa18", "fa19", "ece408"]
OURS = ["unfused", "fused_mma", "fused_conv_fc_algebra", "fused_cublas", "fused_wgmma"]


def supported(one, sizes):
    """(network, images) that an implementation computes; the test is skipped where it computes none."""
    why = {(name, images): one.unsupported(networks.find(name), images) for name in NETWORKS for images in sizes}
    if all(why.values()):
        pytest.skip(next(iter(why.values())))
    return [place for place, reason in why.items() if not reason]


@pytest.mark.parametrize("name", [*OURS, "eager_fp32", "eager_tf32"])
def test_an_implementation_gives_the_scores_and_labels_of_float64(bench_of, name):
    one = whole_networks.read(name)
    for network, images in supported(one, (1, 7, 129, IMAGES)):
        samples, check = bench_of(network).measure([one], images, SERIES, MEASURING)
        assert check["ok"] and check["mismatched_labels"] == 0, (network, images)
        ours = set() if one.header.peer else {"host", "copy"}
        assert {"gpu", "op", "layer"} | ours == {row["kind"] for row in samples}


@pytest.mark.parametrize("name", OURS)
def test_an_implementation_orders_all_on_the_current_stream(name):
    import cupy

    from warpbook.harness import gpu_bench, network_bench

    one = whole_networks.read(name)
    places = supported(one, (7, IMAGES, 3000))
    kernels = network_bench.load_kernels(one, gpu_bench.GpuBench().device.arch)
    for network, images in places:
        of = networks.find(network)
        parameters = {key: cupy.asarray(array) for key, array in weights.load(of, of.weight_sets[0]).items()}
        call = one.prepare(kernels, of, images, parameters, False)
        x = cupy.zeros((images, of.input.channels, *of.image), np.float32)
        scores, labels = cupy.empty((images, 10), np.float32), cupy.empty(images, np.int32)
        call(x, scores, labels)
        labels.fill(-1)
        cupy.cuda.runtime.deviceSynchronize()
        stream, passed = cupy.cuda.Stream(non_blocking=True), Event()
        with stream:
            stream.launch_host_func(lambda passed: passed.wait(5), passed)
            call(x, scores, labels)
        cupy.cuda.Stream.null.synchronize()
        assert (labels.get() == -1).all(), (network, images)
        passed.set()
        stream.synchronize()
        assert (labels.get() >= 0).all(), (network, images)


RIGHT = """
import cupy, eager_fp32
def prepare(kernels, network, images, parameters):
    compute = eager_fp32.prepare(kernels, network, images, parameters)
"""
CHEATS = {
    "the answer of the first call is given again": (
        RIGHT + "    kept = []\n"
        "    def call(x, scores, labels):\n"
        "        if not kept:\n"
        "            compute(x, scores, labels)\n"
        "            kept.extend([scores.copy(), labels.copy()])\n"
        "        scores[...], labels[...] = kept\n"
        "    return call\n",
        "differ from float64",
    ),
    "one score of an image is wrong": (
        RIGHT + "    def call(x, scores, labels):\n        compute(x, scores, labels)\n        scores[0, 3] += 1\n"
        "    return call\n",
        "differ from float64",
    ),
    "labels are all the same": (
        RIGHT + "    def call(x, scores, labels):\n        compute(x, scores, labels)\n        labels[...] = 3\n"
        "    return call\n",
        "not that of its image's largest score",
    ),
    "half of the images are left out": (
        RIGHT + "    def call(x, scores, labels):\n"
        "        kept = scores[len(x) // 2:].copy(), labels[len(x) // 2:].copy()\n"
        "        compute(x, scores, labels)\n"
        "        scores[len(x) // 2:], labels[len(x) // 2:] = kept\n"
        "    return call\n",
        "unwritten",
    ),
    "images are changed": (
        RIGHT
        + "    def call(x, scores, labels):\n        compute(x, scores, labels)\n        x *= 2\n    return call\n",
        "changes its input x",
    ),
    "work goes on after the call": (
        RIGHT + "    stream = cupy.cuda.Stream(non_blocking=True)\n"
        "    code = 'extern \"C\" __global__ void wait() { const long long end = clock64() + 40000000;'\n"
        "    wait = cupy.RawKernel(code + ' while (clock64() < end) {} }', 'wait')\n"
        "    def call(x, scores, labels):\n"
        "        compute(x, scores, labels)\n"
        "        cupy.cuda.runtime.deviceSynchronize()\n"
        "        right = scores.copy()\n"
        "        scores[...] = 0\n"
        "        cupy.cuda.runtime.deviceSynchronize()\n"
        "        with stream:\n"
        "            wait((1,), (1,), ())\n"
        "            scores[...] = right\n"
        "    return call\n",
        "goes on writing",
    ),
}


@pytest.mark.parametrize(("launcher", "reason"), CHEATS.values(), ids=list(CHEATS))
def test_a_cheat_is_caught(bench_of, monkeypatch, launcher, reason):
    honest = whole_networks.read("eager_fp32")
    if honest.missing:
        pytest.skip(honest.missing)
    assert honest.module
    module = ModuleType("cheat")
    exec(launcher, module.__dict__)
    cheat = whole_networks.Implementation("cheat", honest.launcher, honest.header)
    monkeypatch.setattr(whole_networks.Implementation, "module", module)
    with pytest.raises(VariantFailure, match=reason):
        bench_of("fa18").measure([cheat], IMAGES, SERIES, MEASURING)


def test_tf32_is_refused_where_single_precision_is_claimed(bench_of):
    claimed, rounding = whole_networks.read("eager_fp32"), whole_networks.read("eager_tf32")
    if claimed.missing:
        pytest.skip(claimed.missing)
    false = whole_networks.Implementation("false", rounding.launcher, claimed.header)
    monkeyed = rounding.module
    object.__setattr__(false, "module", monkeyed)
    with pytest.raises(VariantFailure, match="differ from float64"):
        bench_of("fa18").measure([false], IMAGES, SERIES, MEASURING)


@pytest.mark.parametrize(("brightness", "refused"), [(1, False), (2, True)])
def test_an_implementation_that_takes_bytes_is_judged_by_its_scores_from_the_host(
    bench_of, monkeypatch, brightness, refused
):
    import cupy

    one = whole_networks.read("unfused")

    def prepare_bytes(kernels, network, images, parameters):
        call = one.module.prepare(kernels, network, images, parameters)
        x = cupy.empty((images, 1, *network.image), np.float32)

        def of_bytes(given, scores, labels):
            cupy.multiply(given[:, None], np.float32(brightness * network.input.scale), out=x)
            call(x, scores, labels)

        return of_bytes

    monkeypatch.setattr(one.module, "prepare_bytes", prepare_bytes, raising=False)
    expected = (
        pytest.raises(VariantFailure, match=r"differ from float64 .* from the host in chunks")
        if refused
        else nullcontext()
    )
    with expected:
        bench_of("fa18").measure([one], IMAGES, SERIES, MEASURING)
