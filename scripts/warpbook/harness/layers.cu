// The layers of a network around its convolutions. They are the same for every variant, and no part of what is compared.

enum Activation { NONE, TANH, RELU };

__device__ float activated(float value, int activation)
{
    if (activation == TANH) return tanhf(value);
    return activation == RELU ? fmaxf(value, 0.0f) : value;
}

// x (images, channels, pixels), `count` values in all, from images (images, pixels) of bytes: each channel is the same grey
// image, scaled.
extern "C" __global__ void entering(
    const unsigned char* images, float* x, long long count, int channels, long long pixels, float scale)
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x)
        x[i] = images[i / (channels * pixels) * pixels + i % pixels] * scale;
}

// labels (N) from scores (N, classes): the first of the largest, or of those that are no numbers, as NumPy has it.
extern "C" __global__ void largest(const float* scores, unsigned char* labels, int N, int classes)
{
    const int image = blockIdx.x * blockDim.x + threadIdx.x;
    if (image >= N) return;
    const float* row = scores + (long long)image * classes;
    int found = 0;
    for (int label = 1; label < classes; ++label)
        if (row[label] > row[found] || (row[label] != row[label] && row[found] == row[found])) found = label;
    labels[image] = found;
}

// y (count, H_out, W_out) from x (count, H, W): the largest value of each size x size, activated, or the average of its
// activated values. The image's end may cut the last windows. tanh and ReLU grow, so they may follow the largest value.
extern "C" __global__ void pool(
    const float* x, float* y, long long count, int H, int W, int H_out, int W_out, int size, int average, int activation)
{
    const long long outputs = count * H_out * W_out;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < outputs; i += (long long)gridDim.x * blockDim.x) {
        const int left = i % W_out * size, top = i / W_out % H_out * size;
        const int columns = min(size, W - left), rows = min(size, H - top);
        const float* corner = x + (i / ((long long)W_out * H_out) * H + top) * W + left;
        float value = average ? 0.0f : corner[0];
        for (int row = 0; row < rows; ++row)
            for (int column = 0; column < columns; ++column) {
                const float input = corner[(long long)row * W + column];
                value = average ? value + activated(input, activation) : fmaxf(value, input);
            }
        y[i] = average ? value / (rows * columns) : activated(value, activation);
    }
}

// y (N, outputs) = x (N, inputs) times w (outputs, inputs) transposed, plus b, activated. 16x16 threads, a 16x16
// tile of y; each step brings 64 inputs, so that four loads of either operand are in flight in every thread.
extern "C" __global__ void fully_connected(
    const float* x, const float* w, const float* b, float* y, int N, int inputs, int outputs, int activation)
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
    if (image < N && output < outputs) y[(long long)image * outputs + output] = activated(sum + b[output], activation);
}
