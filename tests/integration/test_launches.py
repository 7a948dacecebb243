"""What CUDA refuses to launch is refused before, by value, limit and remedy: header, launcher and build alike."""

import ast
import shutil
from types import SimpleNamespace

import pytest

from warpbook.harness import building
from warpbook.harness.attacks import catalog
from warpbook.harness.emulator import emulation
from warpbook.kernels import occupancy, variants
from warpbook.problems import networks

needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)

CONV = networks.find("fa18").convs[0]


@pytest.mark.parametrize(
    ("threads", "words"),
    [
        ("[64, 64, 1]", "64 x 64 x 1 is 4096 a block, and CUDA allows 1024; take smaller blocks"),
        ("[2048, 1, 1]", "x = 2048 is outside 1 to 1024"),
        ("[1, 1, 65]", "z = 65 is outside 1 to 64"),
    ],
)
def test_a_header_that_asks_for_too_large_a_block_is_refused(cuda_variant, threads, words):
    header = f"launch: {{threads: {threads}, outputs_per_block: {{W: 16, H: 16}}}}\n"
    assert f"mine.cu: launch.threads: {words}" in cuda_variant("", header=header).problem


def test_the_largest_block_that_cuda_allows_is_allowed(cuda_variant):
    for threads in ("[1024, 1, 1]", "[1, 1024, 1]", "[16, 1, 64]"):
        header = f"launch: {{threads: {threads}, outputs_per_block: {{W: 16, H: 16}}}}\n"
        assert cuda_variant("", header=header).problem == ""


def test_a_layer_whose_grid_is_too_large_is_unsupported(cuda_variant):
    variant = cuda_variant("", header="launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16}}\n")
    assert variant.unsupported(CONV, 65_535) == ""
    reason = variant.unsupported(CONV, 65_536)
    assert "mine: grid: z = 65536 is outside 1 to 65535, which CUDA allows; let a block do more" in reason
    assert "`outputs_per_block` in mine.cu" in reason


@pytest.mark.parametrize(
    ("grid", "threads"),
    [((1, 1, 65_536), (1,)), ((2**31,), (1,)), ((0,), (1,)), ((-1,), (1,)), ((1,), (33, 32)), ((1, 1, 1, 1), (1,))],
)
def test_a_launch_outside_cuda_s_limits_is_told(grid, threads):
    assert "CUDA" in occupancy.launch_limit_reason(grid, threads)
    assert occupancy.launch_limit_reason((2**31 - 1, 65_535, 65_535), (32, 32)) == ""


@needs_compiler
@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ("(1, 1, 70000), (16,)", "conv_forward: grid: z = 70000 is outside 1 to 65535"),
        ("(1,), (64, 64)", "conv_forward: threads: 64 x 64 is 4096 a block, and CUDA allows 1024"),
    ],
)
def test_a_launcher_s_launch_that_cuda_refuses_fails_in_the_emulator_too(cuda_variant, tmp_path, launch, words):
    text = (variants.FOLDER / "direct.cu").read_text()
    (tmp_path / "mine.cu").write_text(text)
    (tmp_path / "mine.py").write_text(
        "def prepare(kernels, layer, images, launch):\n"
        f"    return lambda x, w, y: kernels.function('conv_forward')({launch}, ())\n"
    )
    failure = next(row for row in catalog.check_rows(tmp_path, "mine", "emulator") if not row["ok"])
    assert failure["status"] == "launch_failed"
    assert words in failure["reason"]


@needs_compiler
def test_shared_arrays_beyond_what_a_block_gets_fail_in_the_emulator_too(tmp_path):
    text = (variants.FOLDER / "direct.cu").read_text()
    (tmp_path / "mine.cu").write_text(
        text.replace("\n{\n", "\n{\n    __shared__ float held[1 << 30]; held[K] = 0;\n", 1)
    )
    failure = next(row for row in catalog.check_rows(tmp_path, "mine", "emulator") if not row["ok"])
    assert "shared arrays of 4294967296 bytes a block, and CUDA allows 49152; take smaller tiles" in failure["reason"]


GREEDY = """
    extern "C" __global__ void conv_forward(
        const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K) {
        float a[96];
        #pragma unroll
        for (int i = 0; i < 96; ++i) a[i] = x[i * N];
        #pragma unroll
        for (int i = 0; i < 96; ++i) y[i * M] = a[i] * a[95 - i];
    }
"""


def test_a_block_whose_registers_no_multiprocessor_has_does_not_build(cuda_variant):
    header = "launch: {{threads: [{}, 1, 1], outputs_per_block: {{W: 16, H: 16}}}}\n"
    made = building.build(cuda_variant(GREEDY, header=header.format(1024)), "sm_90")
    assert made.cubin is None
    assert "mine.cu: a block of 1024 threads with " in made.log
    assert "does not fit on sm_90, which has 65536 registers" in made.log
    assert building.build(cuda_variant(GREEDY, header=header.format(256)), "sm_90").cubin is not None
    bounded = cuda_variant(GREEDY.replace("void conv", "void __launch_bounds__(1024) conv"), header=header.format(1024))
    assert building.build(bounded, "sm_90").cubin is not None


def test_shared_arrays_beyond_the_compiler_s_limit_are_told_in_its_words(cuda_variant):
    code = GREEDY.replace(
        "float a[96];", "__shared__ float s[13000]; s[N] = x[K]; __syncthreads(); y[0] = s[M]; float a[96];"
    )
    made = building.build(cuda_variant(code), "sm_90")
    assert made.cubin is None
    assert made.log.startswith("ptxas error")
    assert "uses too much shared data" in made.log


@pytest.mark.gpu
def test_a_refused_launch_is_explained_on_a_gpu(tmp_path):
    shutil.copy(variants.FOLDER / "direct.cu", tmp_path / "mine.cu")
    (tmp_path / "mine.py").write_text(
        "def prepare(kernels, layer, images, launch):\n"
        "    return lambda x, w, y: kernels.function('conv_forward')((1, 1, 70000), (16,), ())\n"
    )
    failure = next(row for row in catalog.check_rows(tmp_path, "mine", "gpu") if not row["ok"])
    assert "conv_forward: grid: z = 70000 is outside 1 to 65535" in failure["reason"]


READS_ITS_HEADER = """
import numpy as np

def prepare(kernels, layer, images, launch):
    assert kernels.has("conv_forward") and not kernels.has("conv_backward")
    side = kernels.constants["TILE"]
    grid = (-(-layer.W_out // side) * -(-layer.H_out // side), layer.M, images)
    extents = [np.int32(extent) for extent in (images, layer.C, layer.H, layer.W, layer.M, layer.K)]
    return lambda x, w, y: kernels.function("conv_forward")(grid, (side, side), (x, w, y, *extents))
"""


@pytest.mark.parametrize(
    "device", [pytest.param("emulator", marks=needs_compiler), pytest.param("gpu", marks=pytest.mark.gpu)]
)
def test_a_launcher_learns_its_kernel_s_constants_and_kernels(tmp_path, device):
    text = (variants.FOLDER / "direct.cu").read_text()
    (tmp_path / "mine.cu").write_text(text.replace("TILE: 16", "TILE: 8"))
    (tmp_path / "mine.py").write_text(READS_ITS_HEADER)
    rows = catalog.check_rows(tmp_path, "mine", device)
    assert rows and all(row["ok"] for row in rows), next(row["reason"] for row in rows if not row["ok"])


def test_a_launcher_repeats_no_constant_of_its_header():
    """A sweep, or an edit of the header, would otherwise launch the kernel with the old one's grid."""
    for name, variant in variants.discover().items():
        launcher = variants.FOLDER / f"{name}.py"
        if not launcher.exists():
            continue
        assigned = {
            node.id
            for statement in ast.parse(launcher.read_text()).body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            for node in ast.walk(target)
            if isinstance(node, ast.Name)
        }
        assert not assigned & set(variant.header.constants), launcher.name


class Launched:
    """A kernel as CuPy has it: launches that ask for more dynamic shared memory than it may have are refused."""

    max_dynamic_shared_size_bytes = 48 << 10

    def __call__(self, grid, threads, arguments, shared_mem=0):
        assert shared_mem <= self.max_dynamic_shared_size_bytes


def test_a_kernel_prepared_for_two_layers_keeps_the_shared_memory_of_the_larger():
    gpu = pytest.importorskip("warpbook.harness.gpu_bench", reason="CuPy does not import here")
    kernel = Launched()
    kernels = gpu.Kernels(SimpleNamespace(get_function=lambda name: kernel), {})
    launches = [kernels.function("conv_forward", shared_bytes=kib << 10) for kib in (40, 100, 10)]
    for launch in launches:
        launch((1,), (32,), ())
