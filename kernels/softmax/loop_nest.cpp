/*
title:     Three loops
idea:      The definition by one thread. For each row a loop finds the maximum, one the exponentials and their sum, and
           one divides by it.
expect:    The starting point on a CPU, one core of however many. The C library's exponential takes most of the time.
claims:
  - says:     The C library's exponential takes most of the time
    undecidable: no profiler of the CPU is read
*/

#include <cmath>

// x (rows, columns), y (rows, columns); float32, row-major.
extern "C" void softmax(const float* x, float* y, int rows, int columns)
{
    for (int row = 0; row < rows; ++row) {
        const float* values = x + (long)row * columns;
        float* results = y + (long)row * columns;
        float max = values[0];
        for (int i = 1; i < columns; ++i) max = values[i] > max ? values[i] : max;
        float sum = 0.0f;
        for (int i = 0; i < columns; ++i) sum += results[i] = std::exp(values[i] - max);
        for (int i = 0; i < columns; ++i) results[i] /= sum;
    }
}
