/*
title:     One loop
idea:      One thread adds one value after the other to one sum.
expect:    The starting point on a CPU. Each addition waits 4 cycles for the one before, about a billion values a
           second, far below the memory's rate. The sum grows while values stay small, so that rounding errors grow
           with the square root of n or faster, the most of any order here.
limits:    {n: 67108864}
claims:
  - says:     Each addition waits 4 cycles for the one before
    undecidable: no counters of the CPU are read
*/

// x (n), y (1); float32.
extern "C" void reduce(const float* x, float* y, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i];
    y[0] = sum;
}
