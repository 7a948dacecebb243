// Programmatic dependent launch: blocks of a kernel may start while the kernel before it still runs, and do what does not
// need its results. Launched otherwise, both instructions do nothing.

#pragma once

// Let the next kernel's blocks start when all blocks of this one are here.
__device__ __forceinline__ void let_next_kernel_start()
{
    asm volatile("griddepcontrol.launch_dependents;");
}

// Wait for the end of the kernel before, and for what it wrote. Pointers to that are not `__restrict__`: the compiler may
// load what nobody writes before it waits.
__device__ __forceinline__ void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
