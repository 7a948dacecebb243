// More of CUDA's runtime: memory in rows, textures, launches by a call, what host code asks the device and the driver, and
// NVTX's ranges. All of it in terms of emulator_host.h.
#pragma once

#include "emulator_host.h"

#pragma GCC visibility push(hidden)

// ---- Memory in rows, each of which begins at a multiple of 512 bytes ----

struct cudaPitchedPtr { void* ptr; size_t pitch, xsize, ysize; };
struct cudaExtent { size_t width, height, depth; };
struct cudaPos { size_t x, y, z; };
inline cudaPitchedPtr make_cudaPitchedPtr(void* address, size_t pitch, size_t width, size_t height) { return {address, pitch, width, height}; }
inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth) { return {width, height, depth}; }
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }

template <class T> cudaError_t cudaMallocPitch(T** address, size_t* pitch, size_t width, size_t height, EMULATOR_LINE)
{
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(address, *pitch * height, line);
}
inline cudaError_t cudaMalloc3D(cudaPitchedPtr* made, cudaExtent extent, EMULATOR_LINE)
{
    made->xsize = extent.width, made->ysize = extent.height;
    return cudaMallocPitch(&made->ptr, &made->pitch, extent.width, extent.height * extent.depth, line);
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream = nullptr, EMULATOR_LINE)
{
    if (width > to_pitch || width > from_pitch) return emulator::refused(cudaErrorInvalidPitchValue, "cudaMemcpy2DAsync: rows are wider than a pitch", line);
    for (size_t row = 0; row < height; ++row)
        if (auto error = cudaMemcpyAsync((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, kind, stream, line)) return error;
    return cudaSuccess;
}
inline cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream = nullptr, EMULATOR_LINE)
{
    if (width > pitch) return emulator::refused(cudaErrorInvalidPitchValue, "cudaMemset2D: rows are wider than the pitch", line);
    for (size_t row = 0; row < height; ++row)
        if (auto error = cudaMemsetAsync((char*)to + row * pitch, value, width, stream, line)) return error;
    return cudaSuccess;
}
inline cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height, EMULATOR_LINE) { return cudaMemset2DAsync(to, pitch, value, width, height, nullptr, line); }
inline cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent, EMULATOR_LINE)
{
    for (size_t slice = 0; slice < extent.depth; ++slice)
        if (auto error = cudaMemset2D((char*)to.ptr + slice * to.pitch * to.ysize, to.pitch, value, extent.width, extent.height, line)) return error;
    return cudaSuccess;
}

// ---- Copies between devices, of which there is one ----

inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes, EMULATOR_LINE) { return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice, line); }
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream = nullptr, EMULATOR_LINE) { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream, line); }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
template <class T> cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t = nullptr, EMULATOR_LINE) { return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind, line); }
template <class T> cudaError_t cudaGetSymbolSize(size_t* bytes, const T&) { *bytes = sizeof(T); return cudaSuccess; }

// ---- What the device and the driver are asked and told ----

#define CUDART_VERSION 12080
#define CUDA_VERSION 12080
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX, cudaDevAttrMaxBlockDimY, cudaDevAttrMaxBlockDimZ, cudaDevAttrMaxGridDimX,
    cudaDevAttrMaxGridDimY, cudaDevAttrMaxGridDimZ, cudaDevAttrMaxSharedMemoryPerBlock, cudaDevAttrTotalConstantMemory, cudaDevAttrWarpSize,
    cudaDevAttrMaxPitch, cudaDevAttrMaxRegistersPerBlock, cudaDevAttrClockRate, cudaDevAttrTextureAlignment, cudaDevAttrGpuOverlap,
    cudaDevAttrMultiProcessorCount, cudaDevAttrKernelExecTimeout, cudaDevAttrIntegrated, cudaDevAttrCanMapHostMemory, cudaDevAttrComputeMode,
    cudaDevAttrConcurrentKernels = 31, cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth, cudaDevAttrL2CacheSize,
    cudaDevAttrMaxThreadsPerMultiProcessor, cudaDevAttrAsyncEngineCount, cudaDevAttrUnifiedAddressing, cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor, cudaDevAttrStreamPrioritiesSupported = 78, cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor, cudaDevAttrManagedMemory, cudaDevAttrPageableMemoryAccess = 88,
    cudaDevAttrConcurrentManagedAccess = 89, cudaDevAttrCooperativeLaunch = 95, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106, cudaDevAttrMemoryPoolsSupported = 115,
};
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
enum cudaMemoryAdvise { cudaMemAdviseSetReadMostly = 1, cudaMemAdviseUnsetReadMostly, cudaMemAdviseSetPreferredLocation, cudaMemAdviseUnsetPreferredLocation, cudaMemAdviseSetAccessedBy, cudaMemAdviseUnsetAccessedBy };
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaErrorInvalidDevice; }  // a device has no access to itself
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaErrorInvalidDevice; }
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitDevRuntimeSyncDepth, cudaLimitDevRuntimePendingLaunchCount, cudaLimitMaxL2FetchGranularity, cudaLimitPersistingL2CacheSize };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxL1 = 0, cudaSharedmemCarveoutMaxShared = 100 };
enum { cudaDeviceScheduleAuto, cudaDeviceScheduleSpin, cudaDeviceScheduleYield, cudaDeviceScheduleBlockingSync = 4, cudaDeviceMapHost = 8, cudaEventInterprocess = 4, cudaEventWaitDefault = 0, cudaEventRecordDefault = 0 };
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)
inline cudaError_t cudaDriverGetVersion(int* version) { *version = CUDA_VERSION; return cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { *version = CUDART_VERSION; return cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) { *value = 1 << 20; return cudaSuccess; }
inline cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) { *config = cudaFuncCachePreferNone; return cudaSuccess; }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { *least = 0, *greatest = -5; return cudaSuccess; }
inline cudaError_t cudaDeviceGetPCIBusId(char* id, int count, int) { std::snprintf(id, size_t(count), "0000:01:00.0"); return cudaSuccess; }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaInitDevice(int, unsigned, unsigned) { return cudaSuccess; }
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { *priority = 0; return cudaSuccess; }
inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) { *flags = 0; return cudaSuccess; }
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, const void*, size_t = 0, unsigned = 4) { return cudaSuccess; }
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr, unsigned = 0) { return cudaEventRecord(event, stream); }
inline cudaError_t cudaFuncSetSharedMemConfig(const void*, cudaSharedMemConfig) { return cudaSuccess; }
template <class Kernel> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Kernel kernel, int block, size_t shared, unsigned) { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, block, shared); }
template <class Kernel> cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, Kernel, int, int) { *bytes = 48 << 10; return cudaSuccess; }

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes { cudaMemoryType type; int device; void *devicePointer, *hostPointer; };
namespace emulator {
bool is_of_device(const void* address);
std::string beyond_device_memory(const void* address, size_t bytes, const char* name);  // why they are not all of the device; empty where they are
extern bool idle_device;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* made, const void* address)
{
    void* const there = const_cast<void*>(address);
    *made = emulator::is_of_device(address) ? cudaPointerAttributes{cudaMemoryTypeDevice, 0, there, nullptr} : cudaPointerAttributes{cudaMemoryTypeUnregistered, 0, nullptr, there};
    return cudaSuccess;
}

// A function that the stream calls: what comes before it in the stream is done.
using cudaHostFn_t = void (*)(void*);
using cudaStreamCallback_t = void (*)(cudaStream_t, cudaError_t, void*);
inline cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* given) { cudaStreamSynchronize(stream), function(given); return cudaSuccess; }
inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* given, unsigned) { cudaStreamSynchronize(stream), function(stream, cudaSuccess, given); return cudaSuccess; }

// ---- Launches by a call ----

namespace emulator {

using Untyped = void (*)(const Config& config, void* kernel, void** arguments);
void remember_kernel(const void* kernel, Untyped launch);
Untyped launcher_of(const void* kernel);

template <class... Parameters> void launch_pointers(const Config& config, void* kernel, void** arguments)
{
    auto launched = with_arguments(reinterpret_cast<void (*)(Parameters...)>(kernel), arguments, std::index_sequence_for<Parameters...>());
    launch(config, launched);
}

// The address that a call may launch a kernel by: see translation.py.
template <class... Parameters> void* address_of_kernel(void (*kernel)(Parameters...))
{
    remember_kernel(reinterpret_cast<void*>(kernel), launch_pointers<Parameters...>);
    return reinterpret_cast<void*>(kernel);
}
template <class T> T address_of_kernel(T other) { return other; }

}  // namespace emulator

inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr, EMULATOR_LINE)
{
    const auto launch = emulator::launcher_of(kernel);
    if (!launch) return emulator::refused(cudaErrorInvalidDeviceFunction, "cudaLaunchKernel: what is launched is no kernel", line);
    launch({line, grid, block, shared, stream}, const_cast<void*>(kernel), arguments);
    return cudaPeekAtLastError();
}
template <class... Parameters> cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr, EMULATOR_LINE)
{
    return cudaLaunchKernel(emulator::address_of_kernel(kernel), grid, block, arguments, shared, stream, line);
}
template <class Kernel> cudaError_t cudaLaunchCooperativeKernel(Kernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr, EMULATOR_LINE)
{
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream, line);
}

enum cudaLaunchAttributeID { cudaLaunchAttributeCooperative = 2, cudaLaunchAttributeProgrammaticStreamSerialization = 6, cudaLaunchAttributePriority = 8 };
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    union { struct { unsigned x, y, z; } clusterDim; int cooperative, priority, programmaticStreamSerializationAllowed; } val;
};
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; size_t dynamicSmemBytes; cudaStream_t stream; cudaLaunchAttribute* attrs; unsigned numAttrs; };
template <class... Parameters, class... Arguments> cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments)
{
    std::tuple<Parameters...> held(std::forward<Arguments>(arguments)...);
    emulator::launch(emulator::Config(0, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream), [&] { std::apply(kernel, held); });
    return cudaPeekAtLastError();
}

// ---- Graphs that a stream records: what was enqueued meanwhile is enqueued once more ----

using cudaGraph_t = emulator::Graph*;
using cudaGraphExec_t = emulator::Graph*;
struct cudaGraphNode;
using cudaGraphNode_t = cudaGraphNode*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode, EMULATOR_LINE)
{
    if (!stream || emulator::recorded) return emulator::refused(cudaErrorInvalidValue, "cudaStreamBeginCapture: the default stream, or a second stream, cannot record", line);
    emulator::recorded = new emulator::Graph;
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph, EMULATOR_LINE)
{
    if (!emulator::recorded) return emulator::refused(cudaErrorInvalidValue, "cudaStreamEndCapture: no stream records", line);
    *graph = std::exchange(emulator::recorded, nullptr);
    return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) { *status = emulator::recorded ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone; return cudaSuccess; }
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long = 0) { *made = new emulator::Graph(*graph); return cudaSuccess; }
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, cudaGraphNode_t*, char*, size_t) { return cudaGraphInstantiate(made, graph); }
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long = 0) { return cudaGraphInstantiate(made, graph); }
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    for (auto& work : graph->work) work(stream);
    return cudaPeekAtLastError();
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) { delete graph; return cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { delete graph; return cudaSuccess; }

// ---- Textures: memory in a line or in rows, read element by element, with coordinates outside clamped or read as 0 ----

enum cudaChannelFormatKind { cudaChannelFormatKindSigned, cudaChannelFormatKindUnsigned, cudaChannelFormatKindFloat, cudaChannelFormatKindNone };
struct cudaChannelFormatDesc { int x, y, z, w; cudaChannelFormatKind f; };
inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) { return {x, y, z, w, kind}; }
namespace emulator {
template <class T, class = void> struct Channel { using type = T; };
template <class T> struct Channel<T, std::void_t<decltype(T::x)>> { using type = decltype(T::x); };
}
template <class T> cudaChannelFormatDesc cudaCreateChannelDesc()
{
    using One = typename emulator::Channel<T>::type;
    const int bits = 8 * sizeof(One), count = sizeof(T) / sizeof(One);
    const auto kind = std::is_floating_point_v<One> ? cudaChannelFormatKindFloat : std::is_signed_v<One> ? cudaChannelFormatKindSigned : cudaChannelFormatKindUnsigned;
    return {bits, count > 1 ? bits : 0, count > 2 ? bits : 0, count > 3 ? bits : 0, kind};
}
// What is left out of these the compiler names: a texture that interpolates, mirrors or converts.
enum cudaResourceType { cudaResourceTypeArray, cudaResourceTypeLinear = 2, cudaResourceTypePitch2D };
enum cudaTextureAddressMode { cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeBorder = 3 };
enum cudaTextureFilterMode { cudaFilterModePoint };
enum cudaTextureReadMode { cudaReadModeElementType };
namespace emulator { struct Array { char* memory; size_t width, height; cudaChannelFormatDesc channels; size_t element() const { return size_t(channels.x + channels.y + channels.z + channels.w) / 8; } }; }
using cudaArray_t = emulator::Array*;
using cudaArray = emulator::Array;
using cudaArray_const_t = const emulator::Array*;
struct cudaResourceDesc {
    cudaResourceType resType;
    union {
        struct { cudaArray_t array; } array;
        struct { void* devPtr; cudaChannelFormatDesc desc; size_t sizeInBytes; } linear;
        struct { void* devPtr; cudaChannelFormatDesc desc; size_t width, height, pitchInBytes; } pitch2D;
    } res;
};
struct cudaTextureDesc {
    cudaTextureAddressMode addressMode[3];
    cudaTextureFilterMode filterMode;
    cudaTextureReadMode readMode;
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
};
struct cudaResourceViewDesc;
namespace emulator { struct Texture { const char* memory; size_t element, width, height, pitch; cudaTextureDesc how; }; }
using cudaTextureObject_t = unsigned long long;

cudaError_t cudaMallocArray(cudaArray_t* made, const cudaChannelFormatDesc* channels, size_t width, size_t height = 0, unsigned = 0, EMULATOR_LINE);
cudaError_t cudaFreeArray(cudaArray_t array, EMULATOR_LINE);
inline cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width, size_t height, cudaMemcpyKind kind, EMULATOR_LINE)
{
    const size_t row = to->width * to->element();
    return cudaMemcpy2D(to->memory + y * row + x, row, from, pitch, width, height, kind == cudaMemcpyDeviceToDevice ? kind : cudaMemcpyHostToDevice, line);
}
inline cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes, cudaMemcpyKind kind, EMULATOR_LINE)
{
    return cudaMemcpy(to->memory + y * to->width * to->element() + x, from, bytes, kind, line);
}
cudaError_t cudaCreateTextureObject(cudaTextureObject_t* made, const cudaResourceDesc* resource, const cudaTextureDesc* how, const cudaResourceViewDesc*, EMULATOR_LINE);
inline cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture) { delete reinterpret_cast<emulator::Texture*>(texture); return cudaSuccess; }

namespace emulator {
// Where an element is, by whole numbers or by coordinates; null where it reads as 0.
const char* element_of(const Texture& texture, long long x, long long y);
const char* element_at(const Texture& texture, float x, float y, int line);
template <class T> T read_element(const Texture& texture, const char* element, int line)
{
    if (sizeof(T) != texture.element) stop("a texture is read as elements of another size than it has", line);
    return element ? *reinterpret_cast<const T*>(element) : T();
}
inline const Texture& texture_of(cudaTextureObject_t texture) { return *reinterpret_cast<const Texture*>(texture); }
}  // namespace emulator
template <class T> T tex1Dfetch(cudaTextureObject_t texture, int x, EMULATOR_LINE) { return emulator::read_element<T>(emulator::texture_of(texture), emulator::element_of(emulator::texture_of(texture), x, 0), line); }
template <class T> T tex1D(cudaTextureObject_t texture, float x, EMULATOR_LINE) { return emulator::read_element<T>(emulator::texture_of(texture), emulator::element_at(emulator::texture_of(texture), x, 0, line), line); }
template <class T> T tex2D(cudaTextureObject_t texture, float x, float y, EMULATOR_LINE) { return emulator::read_element<T>(emulator::texture_of(texture), emulator::element_at(emulator::texture_of(texture), x, y, line), line); }
template <class T> void tex1Dfetch(T* value, cudaTextureObject_t texture, int x, EMULATOR_LINE) { *value = tex1Dfetch<T>(texture, x, line); }
template <class T> void tex2D(T* value, cudaTextureObject_t texture, float x, float y, EMULATOR_LINE) { *value = tex2D<T>(texture, x, y, line); }

// ---- cuBLAS: products of matrices ----

enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
using cudaDataType = cudaDataType_t;
enum cublasComputeType_t { CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC = 65, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69, CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_DFALT_TENSOR_OP = 99, CUBLAS_GEMM_ALGO0 = 0, CUBLAS_GEMM_ALGO0_TENSOR_OP = 100 };

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda, long long stride_a, const void* b, cudaDataType b_type, int ldb, long long stride_b, const void* beta, void* c, cudaDataType c_type, int ldc, long long stride_c, int count, cublasComputeType_t compute, cublasGemmAlgo_t, EMULATOR_LINE);
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b, cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm, EMULATOR_LINE)
{
    return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, compute, algorithm, line);
}
inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha, const float* a, int lda, long long stride_a, const float* b, int ldb, long long stride_b, const float* beta, float* c, int ldc, long long stride_c, int count, EMULATOR_LINE)
{
    return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, stride_a, b, CUDA_R_32F, ldb, stride_b, beta, c, CUDA_R_32F, ldc, stride_c, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT, line);
}
inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc, EMULATOR_LINE)
{
    return cublasSgemmStridedBatched(handle, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1, line);
}
// The type that products are summed in, as cuBLAS took it before it had names for ways to compute.
inline cublasComputeType_t emulator_compute_type(cudaDataType type) { return type == CUDA_R_16F ? CUBLAS_COMPUTE_16F : CUBLAS_COMPUTE_32F; }
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b, cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type, int ldc, cudaDataType compute, cublasGemmAlgo_t algorithm, EMULATOR_LINE)
{
    return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, emulator_compute_type(compute), algorithm, line);
}
inline cublasStatus_t cublasHgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const __half* alpha, const __half* a, int lda, const __half* b, int ldb, const __half* beta, __half* c, int ldc, EMULATOR_LINE)
{
    return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, CUDA_R_16F, lda, b, CUDA_R_16F, ldb, beta, c, CUDA_R_16F, ldc, CUBLAS_COMPUTE_16F, CUBLAS_GEMM_DEFAULT, line);
}

// ---- NVTX: names for a profiler ----

using nvtxRangeId_t = uint64_t;
struct nvtxDomainRegistration;
using nvtxDomainHandle_t = nvtxDomainRegistration*;
enum { NVTX_VERSION = 3, NVTX_COLOR_ARGB = 1, NVTX_MESSAGE_TYPE_ASCII = 1 };
struct nvtxEventAttributes_t {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    union { uint64_t ullValue; int64_t llValue; double dValue; uint32_t uiValue; int32_t iValue; float fValue; } payload;
    int32_t messageType;
    union { const char* ascii; const wchar_t* unicode; } message;
};
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE uint16_t(sizeof(nvtxEventAttributes_t))
inline int nvtxRangePushA(const char*) { return 0; }
inline int nvtxRangePush(const char*) { return 0; }
inline int nvtxRangePushEx(const nvtxEventAttributes_t*) { return 0; }
inline int nvtxRangePop() { return 0; }
inline nvtxRangeId_t nvtxRangeStartA(const char*) { return 0; }
inline nvtxRangeId_t nvtxRangeStart(const char*) { return 0; }
inline void nvtxRangeEnd(nvtxRangeId_t) {}
inline void nvtxMarkA(const char*) {}
inline void nvtxMark(const char*) {}
inline nvtxDomainHandle_t nvtxDomainCreateA(const char*) { return nullptr; }
inline void nvtxDomainDestroy(nvtxDomainHandle_t) {}
inline int nvtxDomainRangePushEx(nvtxDomainHandle_t, const nvtxEventAttributes_t*) { return 0; }
inline int nvtxDomainRangePop(nvtxDomainHandle_t) { return 0; }
inline void nvtxNameOsThreadA(uint32_t, const char*) {}
inline void nvtxNameCudaStreamA(cudaStream_t, const char*) {}

#pragma GCC visibility pop
