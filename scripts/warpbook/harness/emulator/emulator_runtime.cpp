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

// A matrix's columns, each behind the other, as float.
EMULATOR_UNWATCHED static std::vector<float> read_matrix(const void* memory, cudaDataType type, size_t first, int rows, int columns, int stride)
{
    std::vector<float> made((size_t)rows * columns);
    for (int j = 0; j < columns; ++j)
        for (int i = 0; i < rows; ++i) made[(size_t)j * rows + i] = read_number(memory, first + (size_t)j * stride + i, type);
    return made;
}

}  // namespace emulator

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda, long long stride_a, const void* b, cudaDataType b_type, int ldb, long long stride_b, const void* beta, void* c, cudaDataType c_type, int ldc, long long stride_c, int count, cublasComputeType_t compute, cublasGemmAlgo_t, int line)
{
    using namespace emulator;
    if (recorded) beyond("a graph that records a product of cuBLAS", line);
    const int a_rows = ta ? k : m, a_columns = ta ? m : k, b_rows = tb ? n : k, b_columns = tb ? k : n;
    if (m < 0 || n < 0 || k < 0 || count < 0 || lda < a_rows || ldb < b_rows || ldc < m) {
        refused(cudaErrorInvalidValue, "cuBLAS's product of matrices: a leading dimension is too small", line);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!m || !n || !k || !count) return CUBLAS_STATUS_SUCCESS;
    const auto bytes = [&](cudaDataType type, int stride, int columns, int rows, long long apart) { return bytes_of(type, line) * size_t((long long)stride * (columns - 1) + rows + apart * (count - 1)); };
    for (const auto& why : {beyond_device_memory(a, bytes(a_type, lda, a_columns, a_rows, stride_a), "A"), beyond_device_memory(b, bytes(b_type, ldb, b_columns, b_rows, stride_b), "B"), beyond_device_memory(c, bytes(c_type, ldc, n, m, stride_c), "C")})
        if (!why.empty()) stop(("cuBLAS's product of matrices: " + why).c_str(), line);
    const cudaDataType scale = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC ? CUDA_R_16F : CUDA_R_32F;
    const float by = read_number(alpha, 0, scale), kept = read_number(beta, 0, scale);
    for (int i = 0; i < count; ++i) {
        const auto first = read_matrix(a, a_type, size_t(i * stride_a), a_rows, a_columns, lda), second = read_matrix(b, b_type, size_t(i * stride_b), b_rows, b_columns, ldb);
        std::vector<float> made = kept ? read_matrix(c, c_type, size_t(i * stride_c), m, n, ldc) : std::vector<float>((size_t)m * n);
        gemm(ta, tb, m, n, k, by, first.data(), a_rows, second.data(), b_rows, kept, made.data(), m);
        for (int column = 0; column < n; ++column)
            for (int row = 0; row < m; ++row) write_number(c, size_t(i * stride_c) + (size_t)column * ldc + row, c_type, made[(size_t)column * m + row]);
    }
    return CUBLAS_STATUS_SUCCESS;
}
