#define MASK_WIDTH 5
#define O_TILE 12
#define BLOCK (O_TILE + MASK_WIDTH - 1)

__global__ void conv_tiled(float* N_in, float* P_out, const float* __restrict__ Mask, int channels, int height, int width,
                           int out_maps)
{
    __shared__ float tile[BLOCK][BLOCK];
    int rows = height - MASK_WIDTH + 1, columns = width - MASK_WIDTH + 1;
    int across = (columns + O_TILE - 1) / O_TILE;
    int row = blockIdx.x / across * O_TILE + threadIdx.y, column = blockIdx.x % across * O_TILE + threadIdx.x;
    int map = blockIdx.y, image = blockIdx.z;
    float value = 0;
    for (int c = 0; c < channels; c++) {
        tile[threadIdx.y][threadIdx.x] =
            row < height && column < width ? N_in[((image * channels + c) * height + row) * width + column] : 0;
        __syncthreads();
        if (threadIdx.y < O_TILE && threadIdx.x < O_TILE)
            for (int i = 0; i < MASK_WIDTH; i++)
                for (int j = 0; j < MASK_WIDTH; j++)
                    value += Mask[((map * channels + c) * MASK_WIDTH + i) * MASK_WIDTH + j]
                             * tile[threadIdx.y + i][threadIdx.x + j];
        __syncthreads();
    }
    if (threadIdx.y < O_TILE && threadIdx.x < O_TILE && row < rows && column < columns)
        P_out[((image * out_maps + map) * rows + row) * columns + column] = value;
}

void convolution(float* input, float* output, const float* mask, int images, int channels, int height, int width, int out_maps)
{
    dim3 dimBlock(BLOCK, BLOCK, 1);
    int tiles = ((width - MASK_WIDTH + 1 - 1) / O_TILE + 1) * ((height - MASK_WIDTH) / O_TILE + 1);
    conv_tiled<<<dim3(tiles, out_maps, images), dimBlock>>>(input, output, mask, channels, height, width, out_maps);
}
