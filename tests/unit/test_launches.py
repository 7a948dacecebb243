"""What CUDA refuses to launch is refused before, by value, limit and remedy."""

import ast
from contextlib import suppress
from types import SimpleNamespace

import pytest

from warpbook.kernels import occupancy, variants
from warpbook.problems import networks

with suppress(ImportError):
    import cupy  # noqa: F401  # it starts a process as it is imported, which no unit test may

CONV = networks.find("fa18").convs[0]


def test_a_header_that_asks_for_too_large_a_block_is_refused(cuda_variant):
    for threads, words in [
        ("[64, 64, 1]", "64 x 64 x 1 is 4096 a block, and CUDA allows 1024; take smaller blocks"),
        ("[2048, 1, 1]", "x = 2048 is outside 1 to 1024"),
        ("[1, 1, 65]", "z = 65 is outside 1 to 64"),
    ]:
        header = f"launch: {{threads: {threads}, outputs_per_block: {{W: 16, H: 16}}}}\n"
        assert f"mine.cu: launch.threads: {words}" in cuda_variant("", header=header).read_error


def test_the_largest_block_that_cuda_allows_is_allowed(cuda_variant):
    for threads in ("[1024, 1, 1]", "[1, 1024, 1]", "[16, 1, 64]"):
        header = f"launch: {{threads: {threads}, outputs_per_block: {{W: 16, H: 16}}}}\n"
        assert cuda_variant("", header=header).read_error == ""


def test_a_layer_whose_grid_is_too_large_is_unsupported(cuda_variant):
    variant = cuda_variant("", header="launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16}}\n")
    assert variant.unsupported(CONV.at(65_535)) == ""
    reason = variant.unsupported(CONV.at(65_536))
    assert "mine: grid: z = 65536 is outside 1 to 65535, which CUDA allows; let a block do more" in reason
    assert "`outputs_per_block` in mine.cu" in reason


def test_a_launch_outside_cuda_s_limits_is_told():
    wide = [((1, 1, 65_536), (1,)), ((2**31,), (1,)), ((0,), (1,)), ((-1,), (1,))]
    for grid, threads in [*wide, ((1,), (33, 32)), ((1, 1, 1, 1), (1,))]:
        reason = occupancy.launch_limit_reason(grid, threads)
        assert "CUDA" in reason and ("`limits`" in reason) == (min(grid) < 1), (grid, threads)
    assert occupancy.launch_limit_reason((2**31 - 1, 65_535, 65_535), (32, 32)) == ""


def test_a_launcher_repeats_no_constant_of_its_header():
    """A sweep, or an edit of the header, would otherwise launch the kernel with the old one's grid."""
    for name, variant in variants.discover().items():
        if variant.launcher is None:
            continue
        assigned = {
            node.id
            for statement in ast.parse(variant.launcher.read_text()).body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            for node in ast.walk(target)
            if isinstance(node, ast.Name)
        }
        assert not assigned & set(variant.header.constants), name


class Launched:
    """A kernel as CuPy has it: launches that ask for more dynamic shared memory than it may have are refused."""

    max_dynamic_shared_size_bytes = 48 << 10

    def __call__(self, grid, threads, arguments, shared_mem=0):
        assert shared_mem <= self.max_dynamic_shared_size_bytes


def test_a_kernel_prepared_for_two_layers_keeps_the_shared_memory_of_the_larger():
    gpu = pytest.importorskip("warpbook.harness.gpu_bench", reason="CuPy does not import here")
    kernel = Launched()
    kernels = gpu.GpuKernels(SimpleNamespace(get_function=lambda name: kernel), {})
    launches = [kernels.function("conv_forward", shared_bytes=kib << 10) for kib in (40, 100, 10)]
    for launch in launches:
        launch((1,), (32,), ())
