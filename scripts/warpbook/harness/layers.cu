// The layers of a network around its convolutions. They are the same for every variant, and no part of what is compared.

enum Activation { NONE, TANH, RELU, SIGMOID, LEAKY_RELU };

// `slope` is what LEAKY_RELU multiplies negative values by.
__device__ float activated(float value, int activation, float slope)
{
    switch (activation) {
        case TANH: return tanhf(value);
        case RELU: return fmaxf(value, 0.0f);
        case SIGMOID: return 1.0f / (1.0f + expf(-value));
        case LEAKY_RELU: return value < 0.0f ? slope * value : value;
        default: return value;
    }
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

// y (count, H_out, W_out) from x (count, H, W): the largest value of each window of `rows` x `columns`, activated, or the
// average of its activated values. The first window begins `top` rows and `left` columns before the image, the next ones
// `down` rows or `right` columns further. What lies beyond the image does not count. As no activation falls, it may follow
// the largest value.
extern "C" __global__ void pool(
    const float* x, float* y, long long count, int H, int W, int H_out, int W_out, int rows, int columns, int down,
    int right, int top, int left, int average, int activation, float slope)
{
    const long long outputs = count * H_out * W_out;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < outputs; i += (long long)gridDim.x * blockDim.x) {
        const int row = int(i / W_out % H_out) * down - top, column = int(i % W_out) * right - left;
        const int first_row = max(row, 0), first_column = max(column, 0);
        const int end_row = min(row + rows, H), end_column = min(column + columns, W);
        const float* map = x + i / ((long long)W_out * H_out) * H * W;
        float value = average ? 0.0f : map[(long long)first_row * W + first_column];
        for (int h = first_row; h < end_row; ++h)
            for (int w = first_column; w < end_column; ++w) {
                const float input = map[(long long)h * W + w];
                value = average ? value + activated(input, activation, slope) : fmaxf(value, input);
            }
        const int values = (end_row - first_row) * (end_column - first_column);
        y[i] = average ? value / values : activated(value, activation, slope);
    }
}

// y (N, outputs) = x (N, inputs) times w (outputs, inputs) transposed, plus b, activated. 16x16 threads, a 16x16
// tile of y; each step brings 64 inputs, so that four loads of either operand are in flight in every thread.
extern "C" __global__ void fully_connected(
    const float* x, const float* w, const float* b, float* y, int N, int inputs, int outputs, int activation,
    float slope)
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
    if (image < N && output < outputs) y[(long long)image * outputs + output] = activated(sum + b[output], activation, slope);
}
