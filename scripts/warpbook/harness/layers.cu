// The layers of a network around its convolutions. They are the same for every variant, and no part of what is compared.

// y (count, H/2, W/2) = tanh of the largest of each 2x2 of x (count, H, W); H and W even. tanh grows, so it may come last.
extern "C" __global__ void max_pool_tanh(const float* x, float* y, long long count, int H, int W)
{
    const int H_out = H / 2, W_out = W / 2;
    const long long outputs = count * H_out * W_out;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < outputs; i += (long long)gridDim.x * blockDim.x) {
        const int column = i % W_out, row = i / W_out % H_out;
        const float* corner = x + (i / ((long long)W_out * H_out) * H + 2 * row) * W + 2 * column;
        y[i] = tanhf(fmaxf(fmaxf(corner[0], corner[1]), fmaxf(corner[W], corner[W + 1])));
    }
}

// y (N, outputs) = x (N, inputs) times w (outputs, inputs) transposed, plus b; tanh of it when asked. 16x16 threads, a 16x16
// tile of y; each step brings 64 inputs, so that four loads of either operand are in flight in every thread.
extern "C" __global__ void fully_connected(
    const float* x, const float* w, const float* b, float* y, int N, int inputs, int outputs, int apply_tanh)
{
    __shared__ float x_tile[16][65], w_tile[16][65];
    const int image = blockIdx.y * 16 + threadIdx.y;
    const int output = blockIdx.x * 16 + threadIdx.x;
    const int output_loaded = blockIdx.x * 16 + threadIdx.y;
    float sum = 0.0f;
    for (int start = 0; start < inputs; start += 64) {
        #pragma unroll
        for (int part = 0; part < 64; part += 16) {
            const int column = part + threadIdx.x;
            const int input = start + column;
            x_tile[threadIdx.y][column] = image < N && input < inputs ? x[(long long)image * inputs + input] : 0.0f;
            w_tile[threadIdx.y][column] = output_loaded < outputs && input < inputs ? w[(long long)output_loaded * inputs + input] : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 64; ++i) sum += x_tile[threadIdx.y][i] * w_tile[threadIdx.x][i];
        __syncthreads();
    }
    if (image < N && output < outputs) {
        const float value = sum + b[output];
        y[(long long)image * outputs + output] = apply_tanh ? tanhf(value) : value;
    }
}
