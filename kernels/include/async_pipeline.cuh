// Copies that run ahead by several groups. Beside async_copy.cuh, whose text is part of what recorded kernels are.

#pragma once
#include "async_copy.cuh"

// Wait until at most the last PENDING groups of this thread's copies are unfinished.
template <int PENDING> __device__ __forceinline__ void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}
