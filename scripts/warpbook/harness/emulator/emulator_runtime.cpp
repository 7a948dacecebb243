// Arrays and textures, and the kernels that host code launches by their addresses.
#include "emulator_runtime.h"

namespace emulator {

static std::map<const void*, Untyped>& kernels()
{
    static std::map<const void*, Untyped> known;
    return known;
}
void remember_kernel(const void* kernel, Untyped launch) { kernels()[kernel] = launch; }
Untyped launcher_of(const void* kernel)
{
    auto found = kernels().find(kernel);
    return found == kernels().end() ? nullptr : found->second;
}

static long long within(long long at, long long count, cudaTextureAddressMode mode)
{
    if (at >= 0 && at < count) return at;
    if (mode == cudaAddressModeBorder) return -1;
    if (mode == cudaAddressModeWrap) return (at % count + count) % count;
    return at < 0 ? 0 : count - 1;
}

const char* element_of(const Texture& texture, long long x, long long y)
{
    if (x < 0 || y < 0 || x >= (long long)texture.width || y >= (long long)texture.height) return nullptr;
    return texture.memory + size_t(y) * texture.pitch + size_t(x) * texture.element;
}

const char* element_at(const Texture& texture, float x, float y, int line)
{
    if (texture.how.normalizedCoords) x *= float(texture.width), y *= float(texture.height);
    const auto mode = [&](int axis) {
        const auto asked = texture.how.addressMode[axis];
        return asked == cudaAddressModeWrap && !texture.how.normalizedCoords ? cudaAddressModeClamp : asked;
    };
    return element_of(texture, within((long long)std::floor(x), (long long)texture.width, mode(0)), within((long long)std::floor(y), (long long)texture.height, mode(1)));
}

}  // namespace emulator

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int)
{
    const cudaDeviceProp of;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = of.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = of.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = of.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = of.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = of.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = of.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = of.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(of.sharedMemPerBlock); break;
    case cudaDevAttrTotalConstantMemory: *value = int(of.totalConstMem); break;
    case cudaDevAttrWarpSize: *value = of.warpSize; break;
    case cudaDevAttrMaxPitch: *value = int(of.memPitch); break;
    case cudaDevAttrMaxRegistersPerBlock: *value = of.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = of.clockRate; break;
    case cudaDevAttrTextureAlignment: *value = int(of.textureAlignment); break;
    case cudaDevAttrMultiProcessorCount: *value = of.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = of.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = of.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = of.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = of.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrAsyncEngineCount: *value = of.asyncEngineCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = of.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = of.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(of.sharedMemPerMultiprocessor); break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = of.regsPerMultiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(of.sharedMemPerBlockOptin); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = of.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrKernelExecTimeout: case cudaDevAttrIntegrated: case cudaDevAttrComputeMode: case cudaDevAttrPageableMemoryAccess: *value = 0; break;
    default: *value = 1;  // whether it has something
    }
    return cudaSuccess;
}

cudaError_t cudaMallocArray(cudaArray_t* made, const cudaChannelFormatDesc* channels, size_t width, size_t height, unsigned, int line)
{
    auto* array = new emulator::Array{nullptr, width, std::max<size_t>(height, 1), *channels};
    if (auto error = cudaMalloc(&array->memory, array->width * array->height * array->element(), line)) return error;
    *made = array;
    return cudaSuccess;
}

cudaError_t cudaFreeArray(cudaArray_t array, int line)
{
    if (!array) return cudaSuccess;
    const auto error = cudaFree(array->memory, line);
    delete array;
    return error;
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* made, const cudaResourceDesc* resource, const cudaTextureDesc* how, const cudaResourceViewDesc* view, int line)
{
    const auto bytes = [](const cudaChannelFormatDesc& of) { return size_t(of.x + of.y + of.z + of.w) / 8; };
    if (view || how->readMode != cudaReadModeElementType || how->sRGB) emulator::beyond("a texture that converts what it reads", line);
    emulator::Texture texture{nullptr, 0, 0, 1, 0, *how};
    if (resource->resType == cudaResourceTypeLinear) {
        const auto& of = resource->res.linear;
        texture = {static_cast<const char*>(of.devPtr), bytes(of.desc), 0, 1, of.sizeInBytes, *how};
        if (texture.element) texture.width = of.sizeInBytes / texture.element;
    } else if (resource->resType == cudaResourceTypePitch2D) {
        const auto& of = resource->res.pitch2D;
        texture = {static_cast<const char*>(of.devPtr), bytes(of.desc), of.width, of.height, of.pitchInBytes, *how};
        if (of.pitchInBytes % 32) return emulator::refused(cudaErrorInvalidValue, "cudaCreateTextureObject: the pitch is no multiple of 32 bytes", line);
    } else if (resource->resType == cudaResourceTypeArray) {
        const cudaArray& of = *resource->res.array.array;
        texture = {of.memory, of.element(), of.width, of.height, of.width * of.element(), *how};
    } else {
        emulator::beyond("a texture of this kind of memory", line);
    }
    if (!texture.memory || !texture.element || !texture.width) return emulator::refused(cudaErrorInvalidValue, "cudaCreateTextureObject: a texture of no memory", line);
    *made = reinterpret_cast<cudaTextureObject_t>(new emulator::Texture(texture));
    return cudaSuccess;
}

namespace emulator {

static size_t bytes_of(cudaDataType type, int line)
{
    if (type == CUDA_R_32F) return 4;
    if (type == CUDA_R_16F || type == CUDA_R_16BF) return 2;
    beyond("a product of matrices of this type", line);
}

EMULATOR_UNWATCHED static float read_number(const void* memory, size_t place, cudaDataType type)
{
    if (type == CUDA_R_16F) return from_half(static_cast<const uint16_t*>(memory)[place]);
    if (type == CUDA_R_16BF) return from_bfloat(static_cast<const uint16_t*>(memory)[place]);
    return static_cast<const float*>(memory)[place];
}

EMULATOR_UNWATCHED static void write_number(void* memory, size_t place, cudaDataType type, float value)
{
    if (type == CUDA_R_16F) static_cast<uint16_t*>(memory)[place] = to_half(value);
    else if (type == CUDA_R_16BF) static_cast<uint16_t*>(memory)[place] = to_bfloat(value);
    else static_cast<float*>(memory)[place] = value;
}

// A matrix of cuBLAS's in memory, or its transpose, and one of many that lie so far apart.
struct Matrix {
    const void* memory;
    cudaDataType type;
    bool transposed;
    int stride;
    long long apart;
};

EMULATOR_UNWATCHED static float element(const Matrix& of, int number, int row, int column)
{
    if (of.transposed) std::swap(row, column);
    return read_number(of.memory, size_t(number * of.apart) + (size_t)column * of.stride + row, of.type);
}

// C = alpha A B + beta C, `count` times: a launch, of a block for each tile of a C.
EMULATOR_UNWATCHED static void multiply(float alpha, const Matrix& a, const Matrix& b, float beta, const Matrix& c, void* made, int m, int n, int k, int count)
{
    constexpr int TILE = 32;
    const size_t tiles_m = (m + TILE - 1) / TILE, tiles = tiles_m * ((n + TILE - 1) / TILE), blocks = tiles * count;
    std::vector<float> part((size_t)k * TILE);
    float* const of_a = part.data();
    for (size_t place = 0, run = blocks_to_run(blocks); place < run; ++place) {
        const size_t block = block_at(place, blocks), tile = block % tiles;
        const int number = int(block / tiles), row = int(tile % tiles_m) * TILE, rows = std::min(TILE, m - row), begin = int(tile / tiles_m) * TILE;
        for (int p = 0; p < k; ++p)
            for (int r = 0; r < rows; ++r) of_a[p * TILE + r] = element(a, number, row + r, p);
        for (int column = begin; column < std::min(begin + TILE, n); ++column) {
            float sums[TILE] = {};
            for (int p = 0; p < k; ++p) {
                const float factor = element(b, number, p, column);
                for (int r = 0; r < rows; ++r) sums[r] += factor * of_a[p * TILE + r];
            }
            for (int r = 0; r < rows; ++r)
                write_number(made, size_t(number * c.apart) + (size_t)column * c.stride + row + r, c.type, alpha * sums[r] + (beta ? beta * element(c, number, row + r, column) : 0));
        }
    }
}

}  // namespace emulator

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda, long long stride_a, const void* b, cudaDataType b_type, int ldb, long long stride_b, const void* beta, void* c, cudaDataType c_type, int ldc, long long stride_c, int count, cublasComputeType_t compute, cublasGemmAlgo_t, int line)
{
    using namespace emulator;
    if (recorded) beyond("a graph that records a product of cuBLAS", line);
    const int a_rows = ta ? k : m, a_columns = ta ? m : k, b_rows = tb ? n : k, b_columns = tb ? k : n;
    if (m < 0 || n < 0 || k < 0 || count < 0 || lda < a_rows || ldb < b_rows || ldc < m) {
        refused(cudaErrorInvalidValue, "cuBLAS's product of matrices: a leading dimension is too small", line);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!m || !n || !count) return CUBLAS_STATUS_SUCCESS;
    const auto bytes = [&](cudaDataType type, int stride, int columns, int rows, long long apart) { return columns && rows ? bytes_of(type, line) * size_t((long long)stride * (columns - 1) + rows + apart * (count - 1)) : 0; };
    for (const auto& why : {beyond_device_memory(a, bytes(a_type, lda, a_columns, a_rows, stride_a), "A"), beyond_device_memory(b, bytes(b_type, ldb, b_columns, b_rows, stride_b), "B"), beyond_device_memory(c, bytes(c_type, ldc, n, m, stride_c), "C")})
        if (!why.empty()) stop(("cuBLAS's product of matrices: " + why).c_str(), line);
    races::enqueue(number_of(handle->stream), "cuBLAS's product", line);
    for (int i = 0; i < count; ++i) {
        races::access(static_cast<const char*>(a) + bytes_of(a_type, line) * i * stride_a, bytes(a_type, lda, a_columns, a_rows, 0), false, line);
        races::access(static_cast<const char*>(b) + bytes_of(b_type, line) * i * stride_b, bytes(b_type, ldb, b_columns, b_rows, 0), false, line);
        for (int j = 0; j < n; ++j) races::access(static_cast<char*>(c) + bytes_of(c_type, line) * (i * stride_c + (long long)j * ldc), bytes(c_type, ldc, 1, m, 0), true, line);
    }
    races::finish();
    const cudaDataType scale = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC ? CUDA_R_16F : CUDA_R_32F;
    if (!idle_device) multiply(read_number(alpha, 0, scale), {a, a_type, ta != CUBLAS_OP_N, lda, stride_a}, {b, b_type, tb != CUBLAS_OP_N, ldb, stride_b}, read_number(beta, 0, scale), {c, c_type, false, ldc, stride_c}, c, m, n, k, count);
    return CUBLAS_STATUS_SUCCESS;
}
