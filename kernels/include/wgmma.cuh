// wgmma.mma_async: a warpgroup (four warps) multiplies a 64 x 16 fragment of A, in registers, by a 16 x N tile of B, in
// shared memory, FP16 both, and adds the product to 64 x N FP32 values, or starts from zero. Warp w has rows 16 * w and
// on. With group_id = lane / 4 and lane_in_group = lane % 4, the lane's registers are:
//   a[0]  row group_id, K = 2 * lane_in_group and the next;  a[1]  row + 8;  a[2]  K + 8;  a[3]  row + 8, K + 8
//   d[4 * i]  row group_id, column 8 * i + 2 * lane_in_group;  [+ 1]  column + 1;  [+ 2]  row + 8;  [+ 3]  row + 8, column + 1
// The registers belong to the instruction until its group has been waited for.

#pragma once

// The descriptor of B in shared memory, not swizzled: 8 columns x 8 values of K are 128 bytes, the next 8 of K follow
// them, and the next 8 columns follow these. Address and distances are in units of 16 bytes.
constexpr unsigned long long WGMMA_STRIDES = 8ull << 16 | 16ull << 32;
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned smem_address)
{
    return (smem_address & 0x3ffff) >> 4 | WGMMA_STRIDES;
}

// Orders registers that other instructions wrote before the wgmma that read them.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Wait until at most the last PENDING groups are unfinished.
template <int PENDING> __device__ __forceinline__ void wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

template <int N, bool ACCUMULATE>
__device__ __forceinline__ void wgmma_m64k16(float* d, const unsigned (&a)[4], unsigned long long b)
{
    static_assert(N == 32 || N == 48 || N == 56, "the widths that kernels here need");
    if constexpr (N == 32)
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                     "{%16, %17, %18, %19}, %20, %21, 1, 1, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ACCUMULATE));
    if constexpr (N == 48)
        asm volatile("wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                     " %16, %17, %18, %19, %20, %21, %22, %23}, "
                     "{%24, %25, %26, %27}, %28, %29, 1, 1, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ACCUMULATE));
    if constexpr (N == 56)
        asm volatile("wgmma.mma_async.sync.aligned.m64n56k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                     " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27}, "
                     "{%28, %29, %30, %31}, %32, %33, 1, 1, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ACCUMULATE));
}
