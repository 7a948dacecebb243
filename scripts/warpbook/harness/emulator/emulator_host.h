// CUDA's runtime for host code: memory, copies, streams, events and launches, all of them in the order of the calls, and the
// part of cuBLAS that makes a product of matrices. Device memory lies in allocations of its own, filled with NaN; the host's
// code cannot touch it, and kernels cannot touch the arrays that the host handed over (the sanitizer says where one does).
//
// A call that CUDA refuses does nothing and returns the error; the first such call is noted, for a wrong result's reason.
#pragma once

#include <chrono>
#include <map>

#include "emulator_groups.h"

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorCudartUnloading = 4,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidPitchValue = 12,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidTexture = 18,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorMissingConfiguration = 52,
    cudaErrorLaunchMaxDepthExceeded = 65,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidKernelImage = 200,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorInvalidPtx = 218,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorAssert = 710,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorNotPermitted = 800,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999,
};
using cudaError = cudaError_t;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum { cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2, cudaHostRegisterReadOnly = 8 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaMemAttachGlobal = 1, cudaMemAttachHost = 2, cudaCpuDeviceId = -1 };
struct cudaDeviceProp {
    char name[256] = "emulated by Warpbook";
    size_t totalGlobalMem = (size_t)48 << 30, sharedMemPerBlock = 48 << 10, totalConstMem = 64 << 10, sharedMemPerMultiprocessor = 100 << 10, sharedMemPerBlockOptin = 99 << 10;
    size_t memPitch = 0x7FFFFFFF, textureAlignment = 512;
    int regsPerBlock = 65536, regsPerMultiprocessor = 65536, warpSize = 32, maxThreadsPerBlock = 1024;
    int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {0x7FFFFFFF, 65535, 65535};
    int clockRate = 1740000, memoryClockRate = 7251000, memoryBusWidth = 384, major = 8, minor = 6, multiProcessorCount = 84, l2CacheSize = 6 << 20;
    int maxThreadsPerMultiProcessor = 1536, maxBlocksPerMultiProcessor = 16, concurrentKernels = 1, asyncEngineCount = 2, canMapHostMemory = 1;
    int integrated = 0, deviceOverlap = 1, kernelExecTimeoutEnabled = 0, computeMode = 0, ECCEnabled = 1, unifiedAddressing = 1, managedMemory = 1;
    int pciBusID = 1, pciDeviceID = 0, pciDomainID = 0, cooperativeLaunch = 1, concurrentManagedAccess = 1, pageableMemoryAccess = 0;
    int streamPrioritiesSupported = 1, globalL1CacheSupported = 1, localL1CacheSupported = 1, persistingL2CacheMaxSize = 3 << 20;
    int maxTexture1D = 131072, maxTexture1DLinear = 1 << 28, maxTexture2D[2] = {131072, 65536}, maxTexture3D[3] = {16384, 16384, 16384};
    int isMultiGpuBoard = 0, tccDriver = 0, singleToDoublePrecisionPerfRatio = 32, computePreemptionSupported = 1, hostNativeAtomicSupported = 0;
    size_t surfaceAlignment = 512, texturePitchAlignment = 32;
};

struct cudaFuncAttributes { size_t sharedSizeBytes = 0, constSizeBytes = 0, localSizeBytes = 0; int maxThreadsPerBlock = 1024, numRegs = 32, ptxVersion = 86, binaryVersion = 86, maxDynamicSharedSizeBytes = 48 << 10; };

namespace emulator {
struct Stream { unsigned number; };
struct Event { std::chrono::steady_clock::time_point at; races::Clock over; };
inline unsigned number_of(Stream* stream) { return stream > reinterpret_cast<Stream*>(2) ? stream->number : 1; }  // 1 and 2 are names of the default stream
}
using cudaStream_t = emulator::Stream*;
using cudaEvent_t = emulator::Event*;

#pragma GCC visibility push(hidden)
namespace emulator {

const char* words_of(cudaError_t error);
cudaError_t refused(cudaError_t error, const std::string& what, int line);
extern const char* allocated;  // what the host's code calls the memory that it asks for
cudaError_t allocate(void** address, size_t bytes, bool device, int line);
cudaError_t allocate_in(cudaStream_t stream, void** address, size_t bytes, int line);
cudaError_t release(void* address, int line, bool waits = true);
cudaError_t copy(const char* name, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, bool waits, cudaStream_t stream, int line);
cudaError_t fill(void* to, int value, size_t bytes, cudaStream_t stream, int line);
cudaError_t copy_symbol(char* symbol, size_t size, const void* other, size_t bytes, size_t offset, bool to_symbol, cudaMemcpyKind kind, bool waits, cudaStream_t stream, int line);
void reachable(void* symbol, size_t bytes);
cudaError_t allow_shared(const char* kernel, int bytes, int line);

struct Config {
    int line;
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    const char* kernel = "";  // empty: launched through a pointer
    Config(int line, dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr) : line(line), grid(grid), block(block), shared(shared), stream(stream) {}
    Config of(const char* name) const
    {
        Config named = *this;
        named.kernel = name;
        return named;
    }
};

void launch_called(const Config& config, void (*kernel)(void*), const void* given, size_t bytes);

// What host code enqueues while a stream records a graph, in its order; null while none does.
struct Graph { std::vector<std::function<void(cudaStream_t)>> work; };
extern Graph* recorded;

// A kernel's arguments can be copied byte by byte. Each source is compiled with this and what it instantiates: as little as can be.
template <class Kernel> void launch(const Config& config, Kernel kernel) { launch_called(config, called<Kernel>, &kernel, sizeof kernel); }

// What a driver says before it calls host code: whose arrays are the host's.
void host_array(const void* address, size_t bytes, const char* name);
void forget_host_arrays();
void begin_course(bool reversed, bool idle, bool others, bool whole, unsigned long* blocks);
extern bool other_inputs;
bool inputs_were_copied();

}  // namespace emulator

template <class T> cudaError_t cudaMalloc(T** address, size_t bytes, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, true, line); }
template <class T> cudaError_t cudaMallocAsync(T** address, size_t bytes, cudaStream_t stream, EMULATOR_LINE) { return emulator::allocate_in(stream, (void**)address, bytes, line); }
template <class T> cudaError_t cudaMallocManaged(T** address, size_t bytes, unsigned = 1, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, false, line); }
template <class T> cudaError_t cudaMallocHost(T** address, size_t bytes, unsigned = 0, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, false, line); }
template <class T> cudaError_t cudaHostAlloc(T** address, size_t bytes, unsigned, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, false, line); }
inline cudaError_t cudaFree(const void* address, EMULATOR_LINE) { return emulator::release(const_cast<void*>(address), line); }
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream, EMULATOR_LINE);
inline cudaError_t cudaFreeHost(const void* address, EMULATOR_LINE) { return emulator::release(const_cast<void*>(address), line); }
cudaError_t cudaHostRegister(const void* address, size_t bytes, unsigned, EMULATOR_LINE);
cudaError_t cudaHostUnregister(const void* address);
template <class T> cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) { *device = static_cast<T*>(host); return cudaSuccess; }

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, EMULATOR_LINE) { return emulator::copy("cudaMemcpy", to, from, bytes, kind, true, nullptr, line); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr, EMULATOR_LINE);
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind, EMULATOR_LINE);
inline cudaError_t cudaMemset(void* to, int value, size_t bytes, EMULATOR_LINE) { return emulator::fill(to, value, bytes, nullptr, line); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr, EMULATOR_LINE);

template <class T> cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice, EMULATOR_LINE)
{
    return emulator::copy_symbol((char*)&symbol, sizeof(T), from, bytes, offset, true, kind, true, nullptr, line);
}
template <class T> cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t stream = nullptr, EMULATOR_LINE)
{
    return emulator::copy_symbol((char*)&symbol, sizeof(T), from, bytes, offset, true, kind, false, stream, line);
}
template <class T> cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost, EMULATOR_LINE)
{
    return emulator::copy_symbol((char*)&symbol, sizeof(T), to, bytes, offset, false, kind, true, nullptr, line);
}
template <class T> cudaError_t cudaGetSymbolAddress(void** address, const T& symbol)
{
    *address = (void*)&symbol;
    emulator::reachable((void*)&symbol, sizeof(T));
    return cudaSuccess;
}

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
inline const char* cudaGetErrorString(cudaError_t error) { return emulator::words_of(error); }
inline const char* cudaGetErrorName(cudaError_t error) { return emulator::words_of(error); }
inline cudaError_t cudaDeviceSynchronize() { emulator::races::wait_for_device(); return cudaSuccess; }
inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
cudaError_t cudaDeviceReset();
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) { *properties = {}; return cudaSuccess; }
inline cudaError_t cudaMemGetInfo(size_t* left, size_t* total) { *left = *total = (size_t)6 << 30; return cudaSuccess; }
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, size_t, int, int) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetLimit(int, size_t) { return cudaSuccess; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
template <class Kernel> cudaError_t cudaFuncSetCacheConfig(Kernel, cudaFuncCache) { return cudaSuccess; }
// With a kernel's name where the call names one: see translation.py.
template <class Kernel> cudaError_t cudaFuncSetAttribute(const char* name, Kernel, cudaFuncAttribute attribute, int value, EMULATOR_LINE)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    return emulator::allow_shared(name, value, line);
}
template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute attribute, int value, EMULATOR_LINE) { return cudaFuncSetAttribute("", kernel, attribute, value, line); }
template <class Kernel> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) { *attributes = {}; return cudaSuccess; }
template <class Kernel> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int block, size_t) { *blocks = std::max(1, 1536 / block); return cudaSuccess; }
template <class Kernel> cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel, size_t = 0, int = 0) { *grid = 84, *block = 256; return cudaSuccess; }

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) { *stream = new emulator::Stream{emulator::races::new_stream(flags != cudaStreamNonBlocking)}; return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) { return cudaStreamCreateWithFlags(stream, flags); }
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { delete stream; return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) { emulator::races::wait_for_stream(emulator::number_of(stream)); return cudaSuccess; }
// Of two questions in a row the first says "not ready": whoever does not ask again has not waited.
inline cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    static bool asked;
    if (emulator::races::still_runs(emulator::number_of(stream)) && (asked = !asked)) return cudaErrorNotReady;
    return cudaStreamSynchronize(stream);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { *event = new emulator::Event; return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr)
{
    event->at = std::chrono::steady_clock::now();
    emulator::races::record(event->over, emulator::number_of(stream));
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) { emulator::races::wait_for_event(emulator::number_of(stream), event->over); return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) { emulator::races::wait_for_event(event->over); return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t event)
{
    static bool asked;
    if (emulator::races::still_runs(event->over) && (asked = !asked)) return cudaErrorNotReady;
    return cudaEventSynchronize(event);
}
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) { *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count(); return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { delete event; return cudaSuccess; }

// ---- cuBLAS ----

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3, CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_EXECUTION_FAILED = 13 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
struct cublasContext { cudaStream_t stream = nullptr; };
using cublasHandle_t = cublasContext*;
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) { *handle = new cublasContext; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) { delete handle; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) { handle->stream = stream; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
inline const char* cublasGetStatusString(cublasStatus_t status) { return status ? "a failure of cuBLAS" : "CUBLAS_STATUS_SUCCESS"; }

#pragma GCC visibility pop

#define EMULATOR_NAMED(address) (emulator::allocated = #address, address)
#define cudaMalloc(address, ...) cudaMalloc(EMULATOR_NAMED(address), __VA_ARGS__)
#define cudaMallocAsync(address, ...) cudaMallocAsync(EMULATOR_NAMED(address), __VA_ARGS__)
#define cudaMallocManaged(address, ...) cudaMallocManaged(EMULATOR_NAMED(address), __VA_ARGS__)
#define cudaMallocHost(address, ...) cudaMallocHost(EMULATOR_NAMED(address), __VA_ARGS__)
#define cudaHostAlloc(address, ...) cudaHostAlloc(EMULATOR_NAMED(address), __VA_ARGS__)
