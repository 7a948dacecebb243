"""The emulator: every kernel of kernels/ is right in it, and what CUDA's threads must do it demands of them."""

import re

import pytest

from emulated import checked, reasons
from warpbook.common.supervision import VariantFailure
from warpbook.harness.emulator import emulation, translation
from warpbook.kernels import variants

CASES = {"conv": "fa17", "gemm": "gemm", "softmax": "softmax", "reduce": "reduce"}
"""A network, or a study, of each problem."""

needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)


@needs_compiler
def test_a_variant_s_own_source_is_right_under_the_sanitizers_whatever_the_order_of_threads():
    wrong, few = {}, {}
    for name, variant in variants.discover().items():
        if emulation.unsupported_reason(variant) or variant.header.limits.layers:
            continue
        rows = checked(variant.problem.folder, name, CASES[variant.problem.name])
        wrong |= {name: reasons(rows)} if reasons(rows) else {}
        right = sum(row["ok"] for row in rows)
        plain = [case for case in variant.problem.ragged if not case.unusual and not case.optional]
        few |= {name: right} if right < (1 + variant.problem.facts.exact) * (len(plain) - 1) else {}
    assert (wrong, few) == ({}, {})


def test_ptx_becomes_calls_with_each_instruction_s_operands_in_their_order():
    source = """__device__ unsigned f(float x) {
        unsigned y, z;
        asm volatile("mov.u32 %1, %%ctaid.y;\\n\\t"
                     "cvt.rna.tf32.f32\\n" "%0, %2;" : "=r"(y), "=r"(z) : "f"(x) : "memory");
        return y + z; }"""
    made = translation.to_host(source, "mine.cu", {})
    assert re.search(r"ptx::put\(z, .*blockIdx\.y.*\), emulator::ptx::cvt_rna_tf32_f32\(y, x\)\)", made)
    assert made.count("\n") == source.count("\n")


def test_ptx_that_is_not_emulated_is_named_with_its_line():
    for known, lacking in [
        ("cvt.rna.tf32.f32", "cvt.rz.tf32.f32"),
        ("mma.sync.aligned.m16n8k8", "mma.sync.aligned.m16n8k4"),
        ('%1;" : "=r"(bits)', '1.5;" : "=r"(bits)'),
    ]:
        source = (variants.FOLDER / "tensor_cores.cu").read_text()
        line = source.count("\n", 0, source.index(f'asm volatile("{known}' if "mma" in known else known)) + 1
        with pytest.raises(VariantFailure, match=rf"beyond the emulator: inline PTX \(.*\), line {line}") as refused:
            translation.to_host(source.replace(known, lacking), "tensor_cores.cu", {})
        assert refused.value.status == "unsupported"


STAGED = """
/*
launch:       {threads: [32, 4, 1], outputs_per_block: {W: 32, H: 4}}
shared_bytes: 16 * ceil(C * K * K / 4)
*/
extern "C" __global__ void conv_forward(
    const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
{
    extern __shared__ float4 taps[];
    float* const tap = (float*)taps;
    const float* source = w + blockIdx.y * C * K * K;
    const int count = C * K * K, thread = threadIdx.y * 32 + threadIdx.x;
    const bool aligned = blockIdx.y * count % 4 == 0;
    for (int i = thread; i < count; i += 128) {
        if (!aligned || i / 4 * 4 + 4 > count) tap[i] = source[i];
        else if (i % 4 == 0) {
            const unsigned place = (unsigned)__cvta_generic_to_shared(tap + i);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(place), "l"(source + i) : "memory");
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    const int H_out = H - K + 1, W_out = W - K + 1, across = (W_out + 31) / 32;
    const int row = blockIdx.x / across * 4 + threadIdx.y, column = blockIdx.x % across * 32 + threadIdx.x;
    if (row >= H_out || column >= W_out) return;
    float sum = 0;
    for (int c = 0; c < C; ++c)
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += x[((blockIdx.z * C + c) * H + row + p) * W + column + q] * tap[(c * K + p) * K + q];
    y[((blockIdx.z * M + blockIdx.y) * H_out + row) * W_out + column] = sum;
}
"""


@needs_compiler
def test_what_is_copied_to_shared_memory_is_there_once_it_was_waited_for(tmp_path):
    for old, new, words in [
        ("", "", ""),
        ('"cp.async.wait_all;"', '""', "outputs are NaN or infinite"),
        ('"r"(place)', '"r"(place + 4)', "no multiples of 16"),
        ('"r"(place)', '"r"(place + 4096)', "beyond the block's dynamic shared memory"),
    ]:
        (tmp_path / "staged.cu").write_text(STAGED.replace(old, new))
        failed = reasons(checked(tmp_path, "staged", wrong=bool(words)))
        assert any(words in reason for reason in failed) if words else not failed, words


NAMED = """
    __syncwarp();
    if (threadIdx.y == 0) asm volatile("bar.arrive 1, 128;" ::: "memory");
    else asm volatile("bar.sync 1, 128;" ::: "memory");
"""


@needs_compiler
def test_a_warp_that_only_arrives_at_a_barrier_is_waited_for_by_the_others(tmp_path):
    for old, new, words in [
        ("", "", ""),
        ('"bar.arrive 1, 128;"', '""', "threads wait at a barrier with a number for others that do not come"),
        ('"bar.arrive 1, 128;"', '"bar.arrive 1, 96;"', "say different numbers of threads"),
        ('"bar.sync 1, 128;"', '""', "outputs are NaN or infinite"),
    ]:
        one_warp = "i = threadIdx.y == 0 ? threadIdx.x : count; i < count; i += 32"
        source = STAGED.replace("i = thread; i < count; i += 128", one_warp).replace("__syncthreads();", NAMED)
        (tmp_path / "staged.cu").write_text(source.replace(old, new))
        failed = reasons(checked(tmp_path, "staged", wrong=bool(words)))
        assert any(words in reason for reason in failed) if words else not failed, words


@needs_compiler
def test_a_product_of_a_warpgroup_in_a_block_of_no_whole_ones_is_told(tmp_path):
    product = """
    float sums[4] = {};
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %4, %4, %4}, %5, 1, 1, 1, 0;"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(0u), "l"(0ull));
"""
    source = STAGED.replace("__syncthreads();", f"__syncthreads();\n{product}").replace("[32, 4, 1]", "[32, 3, 1]")
    (tmp_path / "staged.cu").write_text(source)
    failed = reasons(checked(tmp_path, "staged", wrong=True))
    assert "no whole number of warpgroups" in failed[-1]


@needs_compiler
def test_a_copy_reaches_an_array_of_fixed_size_in_shared_memory_and_nothing_behind_it(tmp_path):
    for place, words in [('"r"(place)', ""), ('"r"(place + 8192)', "beyond the block's arrays in shared memory")]:
        source = STAGED.replace("extern __shared__ float4 taps[]", "__shared__ float4 taps[512]")
        (tmp_path / "staged.cu").write_text(source.replace('"r"(place)', place))
        failed = reasons(checked(tmp_path, "staged", wrong=bool(words)))
        assert any(words in reason for reason in failed) if words else not failed, words
