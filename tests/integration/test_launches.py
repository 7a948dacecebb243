"""What CUDA refuses to launch is refused before, by value, limit and remedy: header, launcher and build alike."""

import pytest

from warpbook.harness import building
from warpbook.harness.attacks import attack_registry
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants

needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)


@needs_compiler
def test_a_launcher_s_launch_that_cuda_refuses_fails_in_the_emulator_too(tmp_path):
    (tmp_path / "mine.cu").write_text((variants.FOLDER / "direct.cu").read_text())
    for launch, words in {
        "(1, 1, 70000), (16,)": "conv_forward: grid: z = 70000 is outside 1 to 65535",
        "(1,), (64, 64)": "conv_forward: threads: 64 x 64 is 4096 a block, and CUDA allows 1024",
    }.items():
        (tmp_path / "mine.py").write_text(
            "def prepare(kernels, layer, images, launch):\n"
            f"    return lambda x, w, y: kernels.function('conv_forward')({launch}, ())\n"
        )
        failure = next(row for row in attack_registry.check_rows(tmp_path, "mine", "emulator") if not row["ok"])
        assert failure["status"] == "launch_failed"
        assert words in failure["reason"]


@needs_compiler
def test_shared_arrays_beyond_what_a_block_gets_fail_in_the_emulator_too(tmp_path):
    text = (variants.FOLDER / "direct.cu").read_text()
    (tmp_path / "mine.cu").write_text(
        text.replace("\n{\n", "\n{\n    __shared__ float held[1 << 30]; held[K] = 0;\n", 1)
    )
    failure = next(row for row in attack_registry.check_rows(tmp_path, "mine", "emulator") if not row["ok"])
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


@needs_compiler
def test_a_launcher_learns_its_kernel_s_constants_and_kernels(header_reader):
    rows = attack_registry.check_rows(header_reader, "mine", "emulator")
    assert rows and all(row["ok"] for row in rows), next(row["reason"] for row in rows if not row["ok"])
