/*
title:     First addition while loading
idea:      Each thread loads two values and adds them before the first step, since half of the threads were idle from
           that step on. A block adds up 512 values.
expect:    Half as many blocks do the same steps, each with twice the loads under way. Time falls by 30 to 50 %.
builds_on: sequential
reference: https://developer.download.nvidia.com/assets/cuda/files/reduction.pdf
constants: {THREADS: 256, VALUES: 512}     # VALUES: that a block adds up
claims:
  - says:     Time falls by 30 to 50 %
    quantity: gpu_time
    change:   falls
    by:       {at_least: 30 %, at_most: 50 %}
    where:    {n: {at_least: 16777216}}
*/

// x (n), y (a sum for each block of VALUES); float32.
extern "C" __global__ void __launch_bounds__(THREADS) reduce(const float* __restrict__ x, float* __restrict__ y, int n)
{
    static_assert(VALUES == 2 * THREADS, "two values for each thread");
    __shared__ float sums[THREADS];
    const int thread = threadIdx.x;
    const size_t place = (size_t)blockIdx.x * VALUES + thread;
    const float first = place < n ? x[place] : 0.0f;
    const float second = place + THREADS < n ? x[place + THREADS] : 0.0f;
    sums[thread] = first + second;
    __syncthreads();

    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (thread < half) sums[thread] += sums[thread + half];
        __syncthreads(); // sums of this step are complete before the next one reads them
    }
    if (thread == 0) y[blockIdx.x] = sums[0];
}
