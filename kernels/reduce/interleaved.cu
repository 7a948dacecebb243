/*
title:     Interleaved addressing
idea:      A block of 256 threads joins 256 values in shared memory. In the first step every second thread adds its
           neighbour, in the next every fourth the one after, and so on. The sums of all blocks are added the same
           way, in launch after launch, until one is left.
expect:    The starting point that every step of the ladder is held against. All 8 warps of a block stay busy through
           most of 8 steps. Half of their lanes idle in the first and 31 of 32 in the fifth. The warps issue some 25
           instructions a step for 256 values, against 4 bytes a value to read, so less than half of the copy rate. A
           value takes part in log2(n) additions, so the error grows with the logarithm of n, the least of any order.
reference: https://developer.download.nvidia.com/assets/cuda/files/reduction.pdf
constants: {THREADS: 256, VALUES: 256}     # VALUES: that a block adds up
claims:
  - says:     less than half of the copy rate
    quantity: times_memory_bound
    value:    {at_least: 2}
    where:    {n: {at_least: 16777216}}
  - says:     the error grows with the logarithm of n, the least of any order
    undecidable: "one sum's error is chance, and the tests draw few; it takes the test of precision over many"
*/

// x (n), y (a sum for each block of VALUES); float32.
extern "C" __global__ void __launch_bounds__(THREADS) reduce(const float* __restrict__ x, float* __restrict__ y, int n)
{
    __shared__ float sums[THREADS];
    const int thread = threadIdx.x;
    const size_t place = (size_t)blockIdx.x * VALUES + thread;
    sums[thread] = place < n ? x[place] : 0.0f;
    __syncthreads();

    for (int step = 1; step < THREADS; step *= 2) {
        if (thread % (2 * step) == 0) sums[thread] += sums[thread + step];
        __syncthreads(); // sums of this step are complete before the next one reads them
    }
    if (thread == 0) y[blockIdx.x] = sums[0];
}
