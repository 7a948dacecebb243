"""What CUDA has for device and host code does in the emulator what it does on a GPU, by kind."""

import pytest

from warpbook.harness import checking
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import ece408, variants

pytestmark = pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")

FILE = """#include <cmath>
#include "gpu-new-forward.h"
{before}
#define NEED(fact) if (!(fact)) s = NAN
__global__ void conv(float *y, const float *x, const float *k, int M, int C, int H, int W, int K)
{{
    const int Ho = H - K + 1, Wo = W - K + 1, i = blockIdx.x * 128 + threadIdx.x, t = threadIdx.x;
    float s = 0;
    {{ {device} }}
    if (i >= Ho * Wo) return;
    for (int c = 0; c < C; c++)
        for (int p = 0; p < K; p++)
            for (int q = 0; q < K; q++)
                s += x[((blockIdx.z * C + c) * H + i / Wo + p) * W + i % Wo + q] * k[((blockIdx.y * C + c) * K + p) * K + q];
    y[(blockIdx.z * M + blockIdx.y) * Ho * Wo + i] = s;
}}
void GPUInterface::conv_forward_gpu_prolog(const float *hy, const float *hx, const float *hk, float **dy, float **dx, float **dk,
    const int B, const int M, const int C, const int H, const int W, const int K)
{{
    cudaMalloc(dy, sizeof(float) * B * M * (H - K + 1) * (W - K + 1));
    cudaMalloc(dx, sizeof(float) * B * C * H * W);
    cudaMalloc(dk, sizeof(float) * M * C * K * K);
    cudaMemcpy(*dx, hx, sizeof(float) * B * C * H * W, cudaMemcpyHostToDevice);
    cudaMemcpy(*dk, hk, sizeof(float) * M * C * K * K, cudaMemcpyHostToDevice);
}}
void GPUInterface::conv_forward_gpu(float *dy, const float *dx, const float *dk,
    const int B, const int M, const int C, const int H, const int W, const int K)
{{
    const dim3 grid(((H - K + 1) * (W - K + 1) + 127) / 128, M, B);
    bool right = true;
    {host}
    if (!right) cudaMemset(dy, 0, 4);
}}
void GPUInterface::conv_forward_gpu_epilog(float *hy, float *dy, float *dx, float *dk,
    const int B, const int M, const int C, const int H, const int W, const int K)
{{
    cudaMemcpy(hy, dy, sizeof(float) * B * M * (H - K + 1) * (W - K + 1), cudaMemcpyDeviceToHost);
    cudaFree(dy), cudaFree(dx), cudaFree(dk);
}}
"""
LAUNCH = "conv<<<grid, 128>>>(dy, dx, dk, M, C, H, W, K);"


@pytest.fixture
def verdict(tmp_path):
    """What a right file of the course with more code in it gets: its status, and why where that is not ok."""

    def judge(device="", host=LAUNCH, before=""):
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        built = folder / "built"
        built.mkdir(parents=True)
        (folder / "probe.cu").write_text(FILE.format(device=device, host=host, before=before))
        variant = variants.read("probe", folder)
        assert not variant.read_error
        with IsolatedBench(variant, False, built) as bench:
            row = checking.check_case(bench, variant, ece408.LAYERS[1].at(1), ("integers",))[-1]
        return "ok" if row["ok"] else f"{row['status']}: {row['reason']}"

    return judge


DEVICE = {
    "assert without its header, of a template's parameter too": """
        assert(sizeof(long) == 8); [](auto value) { assert(sizeof value == 4); }(1);""",
    "vector types of each kind, aligned as CUDA's": """
        static_assert(alignof(char2) == 2 && alignof(short4) == 8 && alignof(float2) == 8 && alignof(float4) == 16);
        static_assert(sizeof(float3) == 12 && alignof(double4) == 16 && alignof(ulonglong4) == 16);
        const uchar3 a = make_uchar3(1, 2, 3); const longlong2 b = make_longlong2(-4, 5); const float1 c = make_float1(6);
        NEED(a.z == 3 && b.x == -4 && c.x == 6 && make_double3(1, 2, 3).y == 2 && make_ushort4(1, 2, 3, 65535).w == 65535);""",
    "mathematics": """
        NEED(norm3df(2, 3, 6) == 7 && rnorm3d(2, 3, 6) == 1. / 7 && norm4df(2, 4, 5, 6) == 9 && umin(3u, 4u) == 3);
        NEED(sinpif(1) == 0 && cospif(1) == -1 && rsqrt(4.) == 0.5 && llmax(3ll, -4ll) == 3 && signbit(-1.f));
        NEED(fabsf(erfinvf(erff(0.5f)) - 0.5f) < 1e-6f && fabs(normcdfinv(normcdf(1.5)) - 1.5) < 1e-12);
        NEED(fabsf(cyl_bessel_i0f(1) - 1.2660659f) < 1e-6f && !isnan(CUDART_INF_F) && isinf(CUDART_INF_F));""",
    "rounding that a name says": """
        NEED(__fadd_ru(1, 1e-9f) > 1 && __fadd_rd(1, 1e-9f) == 1 && __fadd_rz(-1, -1e-9f) == -1);
        NEED(__fmaf_rz(1e-9f, 1, 1) == 1 && __fmaf_ru(1e-9f, 1, 1) > 1 && __fsqrt_rn(9) == 3 && __ddiv_rd(1, 3) < __ddiv_ru(1, 3));
        NEED(__float2int_ru(1.2f) == 2 && __float2int_rn(2.5f) == 2 && __float2int_rz(-1.9f) == -1 && __float2int_rd(-1.1f) == -2);
        NEED(__float2uint_rz(-5) == 0 && __float2int_rz(1e20f) == 0x7FFFFFFF && __int2float_rz(16777219) == 16777218);
        NEED(__double2float_ru(1 + 1e-12) > 1 && __hiloint2double(0x3FF00000, 0) == 1);""",
    "bits": """
        NEED(__brev(1) == 0x80000000u && __brevll(1) == 1ull << 63 && __popcll(~0ull) == 64 && __clzll(1) == 63);
        NEED(__ffsll(8) == 4 && __mulhi(1 << 30, 4) == 1 && __umul64hi(1ull << 63, 4) == 2 && __sad(-3, 4, 1) == 8);
        NEED(__funnelshift_l(0x80000000u, 1, 1) == 3 && __funnelshift_rc(1, 7, 40) == 7 && __byte_perm(0x3210, 0x7654, 0x5140) == 0x76325410);
        NEED(__dp4a(0x01020304, 0x01010101, 5) == 15 && __dp4a(0xFF, 1, 0) == -1 && __dp4a(0xFFu, 1u, 0u) == 255);
        NEED(__dp2a_lo(0x00020003, 0x0504, 1) == 23 && __vadd4(0x01FF0203u, 0x01010101u) == 0x02000304u);
        NEED(__vaddus4(0x01FF0203u, 0x01010101u) == 0x02FF0304u && __vcmpgtu4(0x05000000u, 0x01000000u) == 0xFF000000u);
        NEED(__vmaxs2(0xFFFF0001u, 0x00010000u) == 0x00010001u && __vsadu4(0x01020304u, 0) == 10 && __vabsdiffu4(1, 3) == 2);""",
    "atomic operations": """
        __shared__ unsigned n; __shared__ int low; __shared__ unsigned long long wide;
        if (t == 0) n = 0, low = 9, wide = 0;
        __syncthreads();
        atomicInc(&n, 99); atomicMin_block(&low, t); atomicAdd_system(&wide, 1ull);
        __syncthreads();
        NEED(n == 28 && low == 0 && wide == 128);
        __syncthreads();
        atomicDec(&n, 200);
        __syncthreads();
        NEED(n == 28 + 201 - 128);""",
    "lanes that match, and those that are there": """
        NEED(__match_any_sync(~0u, t / 4) == 0xFu << t % 32 / 4 * 4);
        int all; NEED(__match_all_sync(~0u, 7, &all) == ~0u && all);
        NEED(__match_all_sync(~0u, t, &all) == 0 && !all && __reduce_xor_sync(~0u, 1u << t % 32) == ~0u);
        if (t % 2) {
            const unsigned here = __activemask();
            NEED(__shfl_sync(here, t, __ffs(here) - 1) == t / 32 * 32 + __ffs(here) - 1);
        }""",
    "half precision and bfloat16": """
        const __half h = __float2half(1.5f); const __nv_bfloat16 b = __float2bfloat16(1.00390625f);
        NEED(__half2float(__hfma(h, h, h)) == 3.75f && __bfloat162float(b) == 1 && __half_as_ushort(h) == 0x3E00);
        NEED(float(__float2half_ru(1.0001f)) == 1.0009765625f && float(__float2half_rd(-1.0001f)) == -1.0009765625f);
        NEED(float(__float2half_rz(-1.0001f)) == -1 && float(__float2bfloat16_ru(1.001f)) == 1.0078125f);
        const __nv_bfloat162 p = __hmul2(__floats2bfloat162_rn(2, 3), __float2bfloat162_rn(2));
        NEED(__low2float(p) == 4 && __high2float(p) == 6 && __hbeq2(p, p) && __hgt(h, __half(1)) && float(hsqrt(__half(4))) == 2);""",
    "kinds of memory": """
        __shared__ float held[128]; float own = 1;
        held[t] = __ldcv(x + t); __stwt(held + t, __ldlu(held + t));
        NEED(__isShared(held) && __isLocal(&own) && __isGlobal(x) && !__isGlobal(held) && held[t] == x[t]);
        __builtin_assume(t < 128); if (t > 128) __trap();""",
    "copies that a thread waits for": """
        __shared__ float held[128]; __shared__ float4 four[32];
        __pipeline_memcpy_async(held + t, x + t, 4); __pipeline_commit();
        auto pipe = cuda::make_pipeline();
        __pipeline_wait_prior(0);
        NEED(held[t] == x[t]);
        pipe.producer_acquire();
        cuda::memcpy_async(held + t, k + t, sizeof(float), pipe);
        pipe.producer_commit(); pipe.consumer_wait();
        NEED(held[t] == k[t]);
        pipe.consumer_release();
        __syncthreads();
        cooperative_groups::memcpy_async(cooperative_groups::this_thread_block(), (float*)four, x, 512);
        cooperative_groups::wait(cooperative_groups::this_thread_block());
        NEED(four[31].w == x[127]);
        __shared__ cuda::barrier<cuda::thread_scope_block> bar;
        if (t == 0) init(&bar, 128);
        __syncthreads();
        bar.wait(bar.arrive());""",
    "cooperative groups": """
        namespace cg = cooperative_groups;
        auto tile = cg::tiled_partition<8>(cg::this_thread_block());
        cg::thread_block_tile<8> same = tile;
        NEED(same.thread_rank() == t % 8);
        NEED(cg::reduce(tile, t, cg::plus<int>()) == t / 8 * 64 + 28 && cg::reduce(tile, t, cg::greater<int>()) == t / 8 * 8 + 7);
        NEED(cg::inclusive_scan(tile, 1) == t % 8 + 1 && cg::exclusive_scan(tile, 1) == t % 8 && tile.ballot(t & 1) == 0xAA);
        auto part = cg::binary_partition(tile, t % 8 < 3);
        NEED(part.size() == (t % 8 < 3 ? 3 : 5) && part.shfl(t, 0) == t / 8 * 8 + (t % 8 < 3 ? 0 : 3));
        if (t % 3) { auto some = cg::coalesced_threads(); NEED(some.shfl(some.thread_rank() ? 1 : 2, 0) == 2); }
        NEED(cg::this_grid().thread_rank() < cg::this_grid().size() && cg::tiled_partition(cg::this_thread_block(), 16).size() == 16);""",
    "reductions and prefix sums of CUB": """
        using Reduce = cub::BlockReduce<int, 128>; using Scan = cub::BlockScan<int, 128>; using Warp = cub::WarpReduce<int>;
        __shared__ union { typename Reduce::TempStorage reduce; typename Scan::TempStorage scan; typename Warp::TempStorage warp[4]; } held;
        const int sum = Reduce(held.reduce).Sum(t + 1);
        NEED(t || sum == 8256);
        __syncthreads();
        int before, all, until;
        Scan(held.scan).ExclusiveSum(t + 1, before, all);
        __syncthreads();
        Scan(held.scan).InclusiveScan(t, until, cuda::maximum<>());
        NEED(before == t * (t + 1) / 2 && all == 8256 && until == t);
        __syncthreads();
        struct Most { int operator()(int& a, int& b) { return a > b ? a : b; } };  // CUB gives it variables, and it is none that is const
        NEED(Reduce(held.reduce).Reduce(t, Most()) == 127 || t);
        __syncthreads();
        const int most = Warp(held.warp[t / 32]).Reduce(t, cuda::maximum<>());
        NEED(t % 32 || most == t + 31);""",
    "PTX": """
        float f = 1, g; int n; unsigned u, lane; __shared__ float held[128];
        asm("fma.rn.f32 %0, %1, %2, %0;" : "+f"(f) : "f"(2.f), "f"(3.f)); NEED(f == 7);
        float a = 2, b = 3, c = 1; using T = int; T W = 5; long wide;
        asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(f) : "f"(b), "f"(a), "f"(c)); NEED(f == 7);
        asm("mul.wide.s32 %0, %1, %2;" : "=l"(wide) : "r"(W), "r"(T(a))); NEED(wide == 10);
        asm volatile("ld.global.nc.f32 %0, [%1+4];" : "=f"(g) : "l"(x + t)); NEED(g == x[t + 1]);
        asm("{ .reg .pred p; setp.ge.s32 p, %1, 3; mov.b32 %0, 2; @p mov.b32 %0, 1; }" : "=r"(n) : "r"(t)); NEED(n == (t >= 3 ? 1 : 2));
        asm("mad.lo.u32 %0, %1, %2, 0x10;" : "=r"(u) : "r"(3u), "r"(4u)); NEED(u == 28);
        asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(u) : "r"(1u), "r"(2u), "r"(4u)); NEED(u == 7);
        asm("bfe.s32 %0, %1, 4, 4;" : "=r"(n) : "r"(0xF0)); NEED(n == -1);
        asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane)); NEED(lane == t % 32);
        const unsigned place = (unsigned)__cvta_generic_to_shared(held + t);
        asm volatile("st.shared.f32 [%0], %1;" :: "r"(place), "f"(5.f)); NEED(held[t] == 5);
        asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(n) : "r"(t)); NEED(n == (t ^ 1));
        asm("fma.rn.f16x2 %0, %1, %1, %1;" : "=r"(u) : "r"(0x40003C00u)); NEED(u == 0x46004000u);
        asm volatile("bar.sync 0;");""",
    "the matrices' loads of PTX": """
        __shared__ __align__(16) unsigned short held[128]; held[t] = t;
        __syncthreads();
        unsigned a, b; const int l = t % 32;
        const unsigned place = (unsigned)__cvta_generic_to_shared(held + l % 16 * 8);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(place));
        NEED((a & 0xFFFF) == l % 4 * 16 + l / 4 && b == a + 0x00400040);
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(place));
        NEED((a & 0xFFFF) == l / 4 * 8 + l % 4 * 2);""",
    "the matrices' stores of PTX": """
        __shared__ __align__(16) unsigned short held[4][128]; const int l = t % 32;
        unsigned short* const mine = held[t / 32];
        const unsigned place = (unsigned)__cvta_generic_to_shared(mine + l % 16 * 8);
        const unsigned a = l | (l + 100) << 16, b = a + 0x00080008;
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" :: "r"(place), "r"(a), "r"(b) : "memory");
        NEED(mine[l] == l % 8 * 4 + l / 16 + l / 8 % 2 * 100 && mine[64 + l] == mine[l] + 8);
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(place), "r"(a) : "memory");
        NEED(mine[l] == l / 2 + l % 2 * 100);""",
    "a wait for an mbarrier between labels": """
        __shared__ __align__(8) unsigned long long all; __shared__ int held[128];
        const unsigned place = (unsigned)__cvta_generic_to_shared(&all);
        if (!t) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(place), "r"(128));
        __syncthreads();
        for (int j = 0; j < 3; ++j) {
            held[t] = t + j;
            asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" :: "r"(place) : "memory");
            asm volatile("{ .reg .pred over;\\nWAIT_%=:\\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\\n"
                "@over bra OVER_%=;\\nbra.uni WAIT_%=;\\nOVER_%=: }" :: "r"(place), "r"(j % 2) : "memory");
            NEED(held[127 - t] == 127 - t + j);
            __syncthreads();
        }""",
    "bulk stores": """
        __shared__ __align__(16) float held[128]; held[t] = i;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        float* const mine = stored[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x];
        if (t == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(mine),
                "r"((unsigned)__cvta_generic_to_shared(held)), "n"(512) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            NEED(mine[0] == i && mine[127] == i + 127);
        }""",
    "bulk loads that an mbarrier counts": """
        __shared__ __align__(16) float held[64]; __shared__ __align__(8) unsigned long long all;
        const unsigned place = (unsigned)__cvta_generic_to_shared(&all);
        if (!t) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(place));
        __syncthreads();
        for (int j = 0; j < 3; ++j) {
            if (t == 0) {
                asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], 256;" :: "r"(place) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                    :: "r"((unsigned)__cvta_generic_to_shared(held)), "l"(x + j * 4), "n"(256), "r"(place) : "memory");
            }
            asm volatile("{ .reg .pred over;\\nWAIT_%=:\\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%0], %1;\\n"
                "@!over bra WAIT_%=; }" :: "r"(place), "r"(j % 2) : "memory");
            NEED(held[t / 2] == x[j * 4 + t / 2]);
            __syncthreads();
        }""",
    "copies by cp.async that an mbarrier waits for": """
        __shared__ __align__(16) float held[512]; __shared__ __align__(8) unsigned long long all;
        const unsigned place = (unsigned)__cvta_generic_to_shared(&all);
        if (!t) asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" :: "r"(place));
        __syncthreads();
        for (int j = 0; j < 3; ++j) {
            asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;"
                :: "r"((unsigned)__cvta_generic_to_shared(held + t * 4)), "l"(x + (t + j) % 16 * 4));
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(place) : "memory");
            asm volatile("{ .reg .pred over;\\nWAIT_%=:\\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\\n"
                "@!over bra WAIT_%=; }" :: "r"(place), "r"(j % 2) : "memory");
            NEED(held[511 - t] == x[(127 - t / 4 + j) % 16 * 4 + 3 - t % 4]);
            __syncthreads();
        }""",
    "bulk copies by <cuda/ptx> and <cuda/barrier>": """
        namespace ptx = cuda::ptx; namespace cde = cuda::device::experimental;
        using block_barrier = cuda::barrier<cuda::thread_scope_block>;
        __shared__ alignas(16) float part[128]; __shared__ block_barrier came; __shared__ uint64_t word;
        if (t == 0) { init(&came, 128); ptx::mbarrier_init(&word, 1); ptx::fence_proxy_async(ptx::space_shared); }
        __syncthreads();
        if (t == 0) cuda::memcpy_async(part, (const float*)x, cuda::aligned_size_t<16>(256), came);
        block_barrier::arrival_token token = came.arrive();
        came.wait(std::move(token));
        NEED(part[t / 2] == x[t / 2]);
        __syncthreads();
        if (t == 0) {
            cde::cp_async_bulk_global_to_shared(part, x + 4, 256, came);
            token = cuda::device::barrier_arrive_tx(came, 1, 256);
        } else token = came.arrive();
        came.wait(std::move(token));
        NEED(part[t / 2] == x[4 + t / 2]);
        __syncthreads();
        if (t == 0) {
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, part, x + 8, 256, &word);
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &word, 256);
        }
        while (!ptx::mbarrier_try_wait_parity(&word, 0)) ;
        NEED(part[t / 2] == x[8 + t / 2]);
        __syncthreads();
        part[t] = i;
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        float* const mine = stored[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x];
        if (t == 0) {
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, mine, part, 512);
            ptx::cp_async_bulk_commit_group();
            ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
            NEED(mine[0] == i && mine[127] == i + 127);
        }""",
    "what nvcc defines": """
        #ifndef __CUDACC__
        s = NAN;
        #endif
        #if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
        s = NAN;
        #endif
        NEED(CUDART_VERSION >= 11000);""",
}  # fmt: skip


STORED = "__device__ __align__(16) float stored[4096][128];"


def test_device_code_gets_what_a_gpu_gives(verdict):
    """All in one file, which is compiled once; where that is wrong, each alone."""
    together = verdict(device="".join(f"{{ {code}\n }}" for code in DEVICE.values()), before=STORED)
    if together != "ok":
        alone = {name: verdict(device=code, before=STORED) for name, code in DEVICE.items()}
        assert {name: words for name, words in alone.items() if words != "ok"} == {}
    assert together == "ok"


COPIES = "copies that a thread waits for"
BULK_LOADS = "bulk loads that an mbarrier counts"
BY_CP_ASYNC = "copies by cp.async that an mbarrier waits for"
BY_BARRIER = "bulk copies by <cuda/ptx> and <cuda/barrier>"


def test_a_copy_that_is_not_waited_for_not_fenced_or_not_aligned_is_found(verdict):
    for name, right, wrong, words in [
        (COPIES, "__pipeline_wait_prior(0);\n        NEED", "NEED", "NaN"),
        (COPIES, "held + t, x + t, 4", "(char*)held + t * 4 + 2, x + t, 4", "its size does not align"),
        (
            "bulk stores",
            'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
            "",
            "executed fence.proxy.async",
        ),
        ("bulk stores", '"n"(512)', '"n"(500)', "no multiples of 16"),
        (BULK_LOADS, 'asm volatile("{ .reg', 'if (t == 99) asm volatile("{ .reg', "NaN"),
        (BY_CP_ASYNC, 'asm volatile("{ .reg', 'if (t == 99) asm volatile("{ .reg', "NaN"),
        (BULK_LOADS, '"n"(256)', '"n"(240)', "for other bytes than copies bring"),
        (BULK_LOADS, '"n"(256)', '"n"(255)', "no multiples of 16"),
        (
            BY_BARRIER,
            "came.wait(std::move(token));\n        NEED(part[t / 2] == x[t / 2]);",
            "NEED(part[t / 2] == x[t / 2]);",
            "NaN",
        ),
        (
            BY_BARRIER,
            "barrier_arrive_tx(came, 1, 256)",
            "barrier_arrive_tx(came, 1, 512)",
            "for other bytes than copies bring",
        ),
    ]:
        assert right in DEVICE[name]
        assert words in verdict(device=DEVICE[name].replace(right, wrong), before=STORED)


GRAPH = "a graph that a stream records"
HOST = {
    "a launch in a macro": ("#define GO(k, g, ...) do { k<<<g, 128>>>(__VA_ARGS__); } while (0)", """
        GO(conv, grid, dy, dx, dk, M, C, H, W, K);"""),
    "a launch as a macro's argument": ("#define CHECK(...) __VA_ARGS__; if (cudaGetLastError()) right = false", """
        CHECK((conv<<<grid, 128>>>(dy, dx, dk, M, C, H, W, K)));"""),
    "arguments that change something": ("", """
        cudaStream_t streams[2]; for (auto& one : streams) cudaStreamCreate(&one);
        int n = 1, maps = M;
        conv<<<grid, 128, 0, streams[n++ % 2]>>>(dy, dx, dk, maps++, C, H, W, K);
        right = n == 2 && maps == M + 1;
        cudaDeviceSynchronize();"""),
    "a launch by a kernel's address": ("", """
        int m = M, c = C, h = H, w = W, q = K; void* list[] = {&dy, &dx, &dk, &m, &c, &h, &w, &q};
        const void* address = (const void*)conv;
        right = !cudaLaunchKernel(address, grid, dim3(128), list, 0, 0) && cudaLaunchKernel((void*)&q, grid, dim3(128), list, 0, 0);
        cudaGetLastError();"""),
    "a launch by a description": ("", """
        cudaLaunchConfig_t how = {}; how.gridDim = grid; how.blockDim = 128;
        right = !cudaLaunchKernelEx(&how, conv, dy, dx, dk, M, C, H, W, K);"""),
    "threads of the host": ("#include <thread>", """
        std::thread all[3];
        for (auto& one : all) one = std::thread([=] { conv<<<grid, 128>>>(dy, dx, dk, M, C, H, W, K); });
        for (auto& one : all) one.join();"""),
    "memory in rows": ("", LAUNCH + """
        float rows[3][5], back[3][5]; float* t; size_t pitch; for (int i = 0; i < 15; ++i) rows[i / 5][i % 5] = i;
        cudaMallocPitch((void**)&t, &pitch, sizeof rows[0], 3);
        cudaMemset2D(t, pitch, 0, sizeof rows[0], 3);
        cudaMemcpy2D(t, pitch, rows, sizeof rows[0], sizeof rows[0], 3, cudaMemcpyHostToDevice);
        cudaMemcpy2D(back, sizeof back[0], t, pitch, sizeof back[0], 3, cudaMemcpyDeviceToHost);
        right = pitch % 512 == 0 && !memcmp(rows, back, sizeof rows);
        cudaPitchedPtr block; cudaMalloc3D(&block, make_cudaExtent(20, 3, 2)); cudaMemset3D(block, 0, make_cudaExtent(20, 3, 2));
        cudaFree(block.ptr), cudaFree(t);"""),
    "a texture": ("""__global__ void read(cudaTextureObject_t line, cudaTextureObject_t rows, int* wrong)
        {
            if (tex1Dfetch<float>(line, 5) != 5 || tex1Dfetch<float>(line, 99) != 0) ++*wrong;
            if (tex2D<float>(rows, 2.5f, 1.5f) != 6 || tex2D<float>(rows, -3.f, 9.f) != 8) ++*wrong;
        }""", LAUNCH + """
        float values[12]; for (int i = 0; i < 12; ++i) values[i] = i;
        float* memory; int *wrong, count = -1; cudaArray_t array; auto channels = cudaCreateChannelDesc<float>();
        cudaMalloc(&memory, sizeof values), cudaMalloc(&wrong, 4), cudaMemset(wrong, 0, 4);
        cudaMemcpy(memory, values, sizeof values, cudaMemcpyHostToDevice);
        cudaMallocArray(&array, &channels, 4, 3);
        cudaMemcpy2DToArray(array, 0, 0, values, 16, 16, 3, cudaMemcpyHostToDevice);
        cudaResourceDesc what = {}; cudaTextureDesc how = {}; cudaTextureObject_t line, rows;
        what.resType = cudaResourceTypeLinear; what.res.linear.devPtr = memory; what.res.linear.desc = channels;
        what.res.linear.sizeInBytes = sizeof values; how.readMode = cudaReadModeElementType;
        cudaCreateTextureObject(&line, &what, &how, nullptr);
        what = {}; what.resType = cudaResourceTypeArray; what.res.array.array = array;
        how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
        cudaCreateTextureObject(&rows, &what, &how, nullptr);
        read<<<1, 1>>>(line, rows, wrong);
        cudaMemcpy(&count, wrong, 4, cudaMemcpyDeviceToHost);
        right = count == 0;
        cudaDestroyTextureObject(line), cudaDestroyTextureObject(rows), cudaFreeArray(array), cudaFree(memory), cudaFree(wrong);"""),
    GRAPH: (
        "",
        """
        cudaStream_t s; cudaGraph_t graph; cudaGraphExec_t made; float first = 0, last = 0;
        cudaStreamCreate(&s); cudaMemset(dy, 0, 4);
        cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
        { int maps = M; conv<<<grid, 128, 0, s>>>(dy, dx, dk, maps, C, H, W, K); maps = -1; }
        cudaStreamEndCapture(s, &graph);
        cudaMemcpy(&first, dy, 4, cudaMemcpyDeviceToHost);
        cudaGraphInstantiate(&made, graph, NULL, NULL, 0);
        for (int i = 0; i < 2; ++i) cudaMemsetAsync(dy, 0, 4, s), cudaGraphLaunch(made, s);
        cudaStreamSynchronize(s);
        cudaMemcpy(&last, dy, 4, cudaMemcpyDeviceToHost);
        right = first == 0 && last != 0;
        cudaGraphExecDestroy(made), cudaGraphDestroy(graph), cudaStreamDestroy(s);""",
    ),
    "what the device and the driver are asked": ("", LAUNCH + """
        int low, high, version, count; size_t bytes; cudaStream_t s; cudaEvent_t e; cudaPointerAttributes of; bool called = false;
        cudaDeviceGetStreamPriorityRange(&low, &high); cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, high);
        cudaDriverGetVersion(&version); cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20); cudaDeviceGetLimit(&bytes, cudaLimitStackSize);
        cudaFuncSetAttribute(conv, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxL1);
        cudaDeviceGetAttribute(&count, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0); cudaPointerGetAttributes(&of, dx);
        cudaEventCreate(&e); cudaEventRecordWithFlags(e, s, cudaEventRecordDefault); cudaMemcpyPeerAsync(dy, 0, dy, 0, 4, s);
        cudaLaunchHostFunc(s, [](void* seen) { *(bool*)seen = true; }, &called);
        nvtxRangePushA("all"); cudaStreamSynchronize(s); nvtxRangePop();
        right = called && high < low && version >= 11000 && count == 99 << 10 && of.type == cudaMemoryTypeDevice;"""),
    "products of matrices of half precision": ("", LAUNCH + """
        cublasHandle_t handle; cublasCreate(&handle);
        __half a[4] = {1.f, 2.f, 3.f, 4.f}, *held; float c[4] = {}, *made, one = 1, none = 0;
        cudaMalloc(&held, sizeof a), cudaMalloc(&made, sizeof c), cudaMemcpy(held, a, sizeof a, cudaMemcpyHostToDevice);
        cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 2, &one, held, CUDA_R_16F, 2, held, CUDA_R_16F, 2, &none, made, CUDA_R_32F, 2,
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
        cudaMemcpy(c, made, sizeof c, cudaMemcpyDeviceToHost);
        right = c[0] == 10 && c[1] == 14 && c[2] == 14 && c[3] == 20;
        cublasDestroy(handle), cudaFree(held), cudaFree(made);"""),
}  # fmt: skip


# Each part's launch is what computes dy, which is the same after each.
PART = """{{
        bool right = true; cudaMemset(dy, 255, sizeof(float) * known.size());
        {code}
        std::vector<float> found(known.size());
        cudaMemcpy(found.data(), dy, sizeof(float) * found.size(), cudaMemcpyDeviceToHost);
        if (known[0] == 0) known = found;
        all_right &= right && found == known;
    }}
"""


def test_host_code_gets_what_cuda_s_runtime_gives(verdict):
    """All in one file, which is compiled once; where that is wrong, each alone. A file that records a graph has no macro
    that launches: it is another."""
    include, code = HOST[GRAPH]
    assert verdict(host=code, before=include) == "ok"
    others = [part for name, part in HOST.items() if name != GRAPH]
    before = "#include <vector>\n" + "".join(f"{include}\n" for include, _ in others)
    host = "bool all_right = true; std::vector<float> known(B * M * (H - K + 1) * (W - K + 1));\n"
    host += "".join(PART.format(code=code) for _, code in others) + "right = all_right;"
    together = verdict(host=host, before=before)
    if together != "ok":
        alone = {name: verdict(host=code, before=include) for name, (include, code) in HOST.items()}
        assert {name: words for name, words in alone.items() if words != "ok"} == {}
    assert together == "ok"


LACKING = {
    "curandState state; curand_init(1, i, 0, &state);": "‘curandState’ was not declared in this scope",
    "auto cluster = cooperative_groups::this_cluster();": "‘this_cluster’ is not a member of ‘cooperative_groups’",
    "cooperative_groups::this_grid().sync();": "use of deleted function ‘static void cooperative_groups::grid_group::sync()’",
    'asm("tex.1d.v4.f32.s32 {%0, %0, %0, %0}, [%1, {%2}];" : "=f"(s) : "l"(x), "r"(i));': "inline PTX (tex.1d.v4.f32.s32",
}


def test_what_the_emulator_lacks_of_cuda_is_unsupported_with_its_line(verdict):
    line = FILE.format(device="MARK", host="", before="").partition("MARK")[0].count("\n") + 1
    for code, words in LACKING.items():
        told = verdict(device=code)
        assert told.startswith("unsupported: "), code
        assert words in told
        assert told.rstrip().endswith(f"line {line}")


def test_what_neither_cuda_nor_the_file_declares_does_not_compile(verdict):
    for code in ("s += nobody_declares_this;", "__syncthread();", "int n = 3 __syncthreads();"):
        assert verdict(device=code).startswith("compile_failed: "), code


def test_a_false_assumption_and_a_trap_are_told_with_their_lines(verdict):
    assert "what __builtin_assume() was given is false at line" in verdict(device="__builtin_assume(t < 3);")


def test_blocks_run_on_more_than_one_multiprocessor(verdict):
    code = 'unsigned sm; asm volatile("mov.u32 %0, %%smid;" : "=r"(sm)); if (sm) s = 1;'
    assert verdict(device=code).startswith("wrong_result: ")


def test_a_branch_that_nvcc_leaves_out_makes_no_file_right(verdict):
    assert verdict(device="\n#ifdef __CUDACC__\n s = 1;\n#endif\n").startswith("wrong_result: ")
