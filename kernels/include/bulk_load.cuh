// Bulk copies from global to shared memory, which the TMA makes. One thread starts them, and an mbarrier counts the bytes
// that have arrived.

#pragma once
#include "async_copy.cuh"

// Arrives at a barrier whose phase then also waits for so many bytes.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned long long* barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(smem_address(barrier)), "r"(bytes) : "memory");
}

// Both places and the number of bytes are multiples of 16.
__device__ __forceinline__ void bulk_load(void* smem, const void* source, int bytes, unsigned long long* barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(smem_address(smem)), "l"(source), "r"(bytes), "r"(smem_address(barrier)) : "memory");
}

// Bulk copies see the barriers that this thread made.
__device__ __forceinline__ void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
