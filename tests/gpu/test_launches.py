"""Launches on a GPU: those that CUDA refuses, and those before the kernel ahead has ended."""

import shutil

import pytest

from warpbook.harness import building
from warpbook.harness.attacks import attack_registry
from warpbook.kernels import variants

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("early", [False, True])
def test_a_refused_launch_is_explained_on_a_gpu(tmp_path, early):
    shutil.copy(variants.FOLDER / "direct.cu", tmp_path / "mine.cu")
    (tmp_path / "mine.py").write_text(
        "def prepare(kernels, layer, images, launch):\n"
        f"    return lambda x, w, y: kernels.function('conv_forward', early={early})((1, 1, 70000), (16,), ())\n"
    )
    failure = next(row for row in attack_registry.check_rows(tmp_path, "mine", "gpu") if not row["ok"])
    assert "conv_forward: grid: z = 70000 is outside 1 to 65535" in failure["reason"]


EARLY = """
__device__ unsigned long long now()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time) :: "memory");
    return time;
}
extern "C" __global__ void slow(float* y, unsigned long long* times)
{
    asm volatile("griddepcontrol.launch_dependents;");
    const unsigned long long start = now();
    while (now() < start + 3000000) {}
    y[threadIdx.x] = 1.0f;
    times[0] = now();
}
extern "C" __global__ void next(const volatile float* y, float* z, unsigned long long* times, int added)
{
    times[1] = now();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    z[threadIdx.x] = y[threadIdx.x] + added;
}
"""


def test_a_kernel_that_is_launched_early_starts_before_the_one_ahead_has_ended():
    import cupy
    import numpy as np

    from warpbook.harness import gpu_bench

    arch = gpu_bench.GpuBench().device.arch
    if int(arch.removeprefix("sm_").rstrip("af")) < 90:
        pytest.skip(f"{arch} has no programmatic dependent launch")
    cubin, log = building.compile_source(EARLY, "early.cu", building.compiler_options(arch, []))
    assert cubin, log
    kernels = gpu_bench.GpuKernels(gpu_bench.load_module(cubin), {})

    def started_before_the_end(early):
        y, z, times = cupy.zeros(32, np.float32), cupy.zeros(32, np.float32), cupy.zeros(2, np.uint64)
        kernels.function("slow")((1,), (32,), (y, times))
        kernels.function("next", early=early)((1,), (32,), (y, z, times, np.int32(2)))
        assert (z.get() == 3).all()
        ended, started = times.get()
        return started < ended

    started_before_the_end(True)  # CUDA loads a kernel at its first launch, and waits for the device
    assert started_before_the_end(True) and not started_before_the_end(False)


def test_a_launcher_learns_its_kernel_s_constants_and_kernels(header_reader):
    rows = attack_registry.check_rows(header_reader, "mine", "gpu")
    assert rows and all(row["ok"] for row in rows), next(row["reason"] for row in rows if not row["ok"])
