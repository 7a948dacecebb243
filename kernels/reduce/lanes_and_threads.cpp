/*
title:     64 sums for each thread, all cores
idea:      Each thread of OpenMP has a run of values of its own and 64 sums, one for each place in 64 values. So the
           compiler adds vectors, and no addition waits for the one before.
expect:    At least four times as fast as one loop where x fits the caches, and bound by memory where it does not.
           Sums of n / 64 values or fewer each lose less to rounding than one of n, so the error falls.
builds_on: loop
limits:    {n: 67108864}
claims:
  - says:     At least four times as fast as one loop where x fits the caches
    quantity: op_time
    change:   falls
    by:       75 %
    where:    {n: {at_most: 1048576}}
  - says:     so the error falls
    undecidable: "one sum's error is chance, and the tests draw few; it takes the test of precision over many"
*/

// x (n), y (1); float32.
extern "C" void reduce(const float* x, float* y, int n)
{
    constexpr int LANES = 64;
    const int rounds = n / LANES;
    float total = 0.0f;
    #pragma omp parallel reduction(+ : total) if (n > 65536)
    {
        float sums[LANES] = {};
        #pragma omp for schedule(static)
        for (int round = 0; round < rounds; ++round)
            for (int lane = 0; lane < LANES; ++lane) sums[lane] += x[round * LANES + lane];
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
        total += sums[0];
    }
    for (int i = rounds * LANES; i < n; ++i) total += x[i];
    y[0] = total;
}
