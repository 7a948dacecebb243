/*
title:     One thread for each row
idea:      A thread goes through its row three times, for the maximum, for the sum of exponentials and for the results.
           Threads next to each other take rows next to each other.
expect:    The starting point that every step of the ladder is held against. The lanes of a warp read 32 rows at a
           time, so that each load touches 32 sectors for 32 values, eight times the least. Less than a tenth of the
           copy rate. With 256 rows, two blocks do all the work.
threads:   [128]
grid:      [ceil(rows / 128)]
claims:
  - says:     Less than a tenth of the copy rate
    quantity: times_memory_bound
    value:    {at_least: 10}
*/

// x (rows, columns), y (rows, columns); float32, row-major.
extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int rows, int columns)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* values = x + (size_t)row * columns;
    float* results = y + (size_t)row * columns;

    float max = values[0];
    for (int i = 1; i < columns; ++i) max = fmaxf(max, values[i]);
    float sum = 0.0f;
    for (int i = 0; i < columns; ++i) sum += expf(values[i] - max);
    for (int i = 0; i < columns; ++i) results[i] = expf(values[i] - max) / sum;
}
