/*
title:     Channels summed by atomics
idea:      The channels are split over blocks instead of threads. Up to four blocks compute the
           same outputs from a quarter of the channels each, and add their sums to y with
           atomicAdd. A kernel before them sets y to zero.
expect:    As parallel as the tree, without shared memory or barriers. But y is written once
           more, for zeroing, and each sum is an atomic in L2. It is worse than the tree wherever
           memory counts, most on first layers. Their y is large, and their C = 1 leaves nothing
           to split. The order of the additions, and so the last bits, change from run to run.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum rises against channel_tree
builds_on: channel_tree
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#atomic-functions
constants: {TILE: 16, GROUPS: 4}
limits:    {M: 65535, N: 65535}
claims:
  - says:     worse than the tree wherever memory counts
    quantity: op_time
    change:   rises
  - says:     worse than the tree wherever memory counts, most on first layers
    quantity: op_time
    change:   rises
    where:    {C: {is: 1}}
    more_than: {C: {at_least: 2}}
  - says:     without shared memory or barriers
    quantity: shared_bytes
    change:   falls
    by:       100 %
  - says:     rises against channel_tree
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum
    change:   rises
  - says:     change from run to run
    undecidable: no test repeats a call to compare the last bits of its results
*/

// y[0 .. count) = 0, by as many threads as there are.
extern "C" __global__ void zero(float* __restrict__ y, long long count)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        y[i] = 0.0f;
}

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major. y holds zeros before.
extern "C" __global__ void conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int groups = min(C, GROUPS);
    const int group = blockIdx.x % groups;
    const int tile = blockIdx.x / groups;
    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int column = (tile % tiles_across) * TILE + threadIdx.x;
    const int row = (tile / tiles_across) * TILE + threadIdx.y;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    if (row >= H_out || column >= W_out) return;

    float sum = 0.0f;
    for (int c = group; c < C; c += groups) {
        const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
        const float* taps = w + ((size_t)map * C + c) * K * K;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += input[p * W + q] * taps[p * K + q];
    }
    atomicAdd(&y[(((size_t)image * M + map) * H_out + row) * W_out + column], sum);
}
