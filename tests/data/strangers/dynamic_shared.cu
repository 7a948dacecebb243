// Stages an input patch in dynamic shared memory. Long names, a helper for rounding up, a stream.
static inline int divUp(int a, int b) { return (a + b - 1) / b; }
constexpr int kTile = 8;

extern "C" __global__ void conv2d_shared(const float* __restrict__ in, const float* __restrict__ weights,
                                         float* __restrict__ out, int batch_size, int in_channels, int in_height,
                                         int in_width, int out_channels, int kernel_size)
{
    extern __shared__ float patch[];
    const int out_height = in_height - kernel_size + 1, out_width = in_width - kernel_size + 1;
    const int side = kTile + kernel_size - 1;
    const int top = blockIdx.y * kTile, left = blockIdx.x * kTile;
    const int image = blockIdx.z / out_channels, map = blockIdx.z % out_channels;
    const int row = top + threadIdx.y, column = left + threadIdx.x;
    float sum = 0.f;
    for (int c = 0; c < in_channels; ++c) {
        const float* plane = in + (size_t)(image * in_channels + c) * in_height * in_width;
        for (int i = threadIdx.y * kTile + threadIdx.x; i < side * side; i += kTile * kTile) {
            const int y = top + i / side, x = left + i % side;
            patch[i] = y < in_height && x < in_width ? plane[y * in_width + x] : 0.f;
        }
        __syncthreads();
        const float* taps = weights + (map * in_channels + c) * kernel_size * kernel_size;
        for (int p = 0; p < kernel_size; ++p)
            for (int q = 0; q < kernel_size; ++q)
                sum += patch[(threadIdx.y + p) * side + threadIdx.x + q] * taps[p * kernel_size + q];
        __syncthreads();
    }
    if (row < out_height && column < out_width)
        out[((size_t)(image * out_channels + map) * out_height + row) * out_width + column] = sum;
}

void launch_conv2d(const float* d_in, const float* d_weights, float* d_out, int batch_size, int in_channels,
                   int in_height, int in_width, int out_channels, int kernel_size, cudaStream_t stream)
{
    const int out_height = in_height - kernel_size + 1;
    const int out_width = in_width - kernel_size + 1;
    const dim3 block(kTile, kTile);
    const dim3 grid(divUp(out_width, block.x), divUp(out_height, block.y), batch_size * out_channels);
    const int side = kTile + kernel_size - 1;
    const size_t smem = side * side * sizeof(float);
    conv2d_shared<<<grid, block, smem, stream>>>(d_in, d_weights, d_out, batch_size, in_channels, in_height, in_width,
                                                 out_channels, kernel_size);
}
