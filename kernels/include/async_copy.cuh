// Copies that run beside the threads, and the barriers and fences that order them.

#pragma once

__device__ __forceinline__ unsigned smem_address(const void* pointer)
{
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// Ask for `count` floats to be in the L2 cache soon. Each of `threads` threads asks for its share of the lines.
__device__ __forceinline__ void prefetch_l2(const float* values, int count, int thread, int threads)
{
    for (int i = thread * 32; i < count; i += threads * 32)
        asm volatile("prefetch.global.L2 [%0];" :: "l"(values + i));
}

// cp.async: 16 bytes from global to shared memory. A thread waits for its own copies by groups.
__device__ __forceinline__ void cp_async_16(unsigned smem_destination, const void* source)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(smem_destination), "l"(source));
}
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;"); }
__device__ __forceinline__ void cp_async_wait_all_groups() { asm volatile("cp.async.wait_group 0;"); }

// cp.async.bulk: one thread starts a copy of any multiple of 16 bytes from shared to global memory.
__device__ __forceinline__ void bulk_store(void* destination, const void* smem_source, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(destination), "r"(smem_address(smem_source)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until shared memory may be written again.
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// Until the results are in global memory.
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Bulk copies and wgmma use the asynchronous proxy. They see what threads stored to shared memory only after a fence.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ __forceinline__ void fence_proxy_async_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier, by its number, of one warpgroup of a block.
__device__ __forceinline__ void warpgroup_barrier(int barrier)
{
    asm volatile("bar.sync %0, 128;" :: "r"(barrier) : "memory");
}

// mbarrier: a phase ends when `threads` threads have arrived. Arriving does not wait.
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, int threads)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(smem_address(barrier)), "r"(threads) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem_address(barrier)) : "memory");
}
// Wait for the end of phase 0, 1, 2 and so on, each in its order.
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, int phase)
{
    unsigned over;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(smem_address(barrier)), "r"(phase % 2) : "memory");
    } while (!over);
}
