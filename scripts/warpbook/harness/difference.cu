// An output compared with the float64 values that a problem's reference gives.

#include "difference.cuh"

extern "C" __global__ void difference(
    const double* found, const double* expected, const double* magnitude, word64 count, Difference* partial)
{
    Difference mine = {0, 0, 0, 0, 0, 0};
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < count; i += (word64)gridDim.x * blockDim.x)
        mine.add(found[i], expected[i], magnitude[i]);
    store(mine, partial);
}
