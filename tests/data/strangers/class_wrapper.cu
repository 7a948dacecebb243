#include <string>
#include <stdexcept>

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

namespace {
enum { BLOCK_X = 32, BLOCK_Y = 4 };
}

__device__ __forceinline__ int offset(int a, int b, int c, int d, int B, int C, int D) { return ((a * B + b) * C + c) * D + d; }

__global__ void __launch_bounds__(BLOCK_X *BLOCK_Y)
forward(float const *img, float const *filter, float *result, unsigned n, unsigned channels, unsigned height,
        unsigned width, unsigned filters, unsigned ksize)
{
    const int across = blockIdx.x * BLOCK_X + threadIdx.x, down = blockIdx.y * BLOCK_Y + threadIdx.y;
    const int oh = height - ksize + 1, ow = width - ksize + 1;
    const int image = blockIdx.z;
    if (across >= ow || down >= oh) return;
    for (int f = 0; f < filters; ++f) {
        float sum = 0;
        for (int c = 0; c < channels; ++c)
            for (int p = 0; p < ksize; ++p)
                for (int q = 0; q < ksize; ++q)
                    sum += img[offset(image, c, down + p, across + q, channels, height, width)]
                           * filter[offset(f, c, p, q, channels, ksize, ksize)];
        result[offset(image, f, down, across, filters, oh, ow)] = sum;
    }
}

class Convolution {
  public:
    Convolution(unsigned filters, unsigned ksize) : filters_(filters), ksize_(ksize), name_("conv") {}
    void run(const float *d_img, const float *d_filter, float *d_result, unsigned n, unsigned channels, unsigned height,
             unsigned width)
    {
        if (ksize_ > height) throw std::runtime_error(name_);
        dim3 threads{BLOCK_X, BLOCK_Y};
        dim3 blocks;
        blocks.x = CEIL_DIV(width - ksize_ + 1, BLOCK_X);
        blocks.y = CEIL_DIV(height - ksize_ + 1, BLOCK_Y);
        blocks.z = n;
        forward<<<blocks, threads>>>(d_img, d_filter, d_result, n, channels, height, width, filters_, ksize_);
    }

  private:
    unsigned filters_, ksize_;
    std::string name_;
};
