/*
title:     Three loops
idea:      The definition by one thread. For each row of C, each value of A in that row is multiplied with a row of B
           and added to the row of C. So the innermost loop goes along rows, and the compiler can vectorise it.
expect:    The starting point on a CPU, one core of however many, and each row of C is read and written k times.
claims:
  - says:     each row of C is read and written k times
    undecidable: no counter of the CPU is read
limits:    {m: 1024, n: 1024, k: 1024}
*/

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" void gemm(const float* a, const float* b, float* c, int m, int n, int k)
{
    for (int row = 0; row < m; ++row) {
        float* sums = c + (long)row * n;
        for (int column = 0; column < n; ++column) sums[column] = 0.0f;
        for (int i = 0; i < k; ++i) {
            const float value = a[(long)row * k + i];
            const float* values = b + (long)i * n;
            for (int column = 0; column < n; ++column) sums[column] += value * values[column];
        }
    }
}
