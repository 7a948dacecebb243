// CUDA's runtime for host code: memory, copies, streams, events and launches, all of them in the order of the calls, and the
// part of cuBLAS that makes a product of matrices. Device memory lies in allocations of its own, filled with NaN; the host's
// code cannot touch it, and kernels cannot touch the arrays that the host handed over (the sanitizer says where one does).
//
// A call that CUDA refuses does nothing and returns the error; the first such call is noted, for a wrong result's reason.
#pragma once

#include <chrono>
#include <map>

#include "emulator_device.h"

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorLaunchFailure = 719,
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
enum cudaDeviceAttr { cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrWarpSize = 10, cudaDevAttrMultiProcessorCount = 16 };

struct cudaDeviceProp {
    char name[256] = "emulated by Warpbook";
    size_t totalGlobalMem = (size_t)48 << 30, sharedMemPerBlock = 48 << 10, totalConstMem = 64 << 10, sharedMemPerMultiprocessor = 100 << 10, sharedMemPerBlockOptin = 99 << 10;
    size_t memPitch = 0x7FFFFFFF, textureAlignment = 512;
    int regsPerBlock = 65536, regsPerMultiprocessor = 65536, warpSize = 32, maxThreadsPerBlock = 1024;
    int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {0x7FFFFFFF, 65535, 65535};
    int clockRate = 1740000, memoryClockRate = 7251000, memoryBusWidth = 384, major = 8, minor = 6, multiProcessorCount = 84, l2CacheSize = 6 << 20;
    int maxThreadsPerMultiProcessor = 1536, maxBlocksPerMultiProcessor = 16, concurrentKernels = 1, asyncEngineCount = 2, canMapHostMemory = 1;
    int integrated = 0, deviceOverlap = 1, kernelExecTimeoutEnabled = 0, computeMode = 0, ECCEnabled = 1, unifiedAddressing = 1, managedMemory = 1;
};

struct cudaFuncAttributes { size_t sharedSizeBytes = 0, constSizeBytes = 0, localSizeBytes = 0; int maxThreadsPerBlock = 1024, numRegs = 32; };

namespace emulator { struct Stream {}; struct Event { std::chrono::steady_clock::time_point at; }; }
using cudaStream_t = emulator::Stream*;
using cudaEvent_t = emulator::Event*;

namespace emulator {

struct Region { size_t bytes; bool reachable; };  // reachable from both sides: pinned or managed
inline std::map<char*, Region> device_memory, host_arrays;
inline cudaError_t last_error = cudaSuccess;
inline size_t allowed_shared = 48 << 10;

inline const char* words_of(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorHostMemoryAlreadyRegistered: return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered: return "pointer does not correspond to a registered memory region";
    default: return "unspecified error";
    }
}

inline cudaError_t refused(cudaError_t error, const std::string& what, int line)
{
    last_error = error;
    note(what + " (" + words_of(error) + ")", line);
    return error;
}

inline std::pair<char* const, Region>* holding(std::map<char*, Region>& regions, const void* address)
{
    auto after = regions.upper_bound(static_cast<char*>(const_cast<void*>(address)));
    if (after == regions.begin()) return nullptr;
    auto& found = *std::prev(after);
    return static_cast<const char*>(address) < found.first + std::max<size_t>(found.second.bytes, 1) ? &found : nullptr;
}

inline void closed(std::map<char*, Region>& regions, bool close)
{
    for (auto& [begin, region] : regions) {
        if (region.reachable) continue;
        if (close) ASAN_POISON_MEMORY_REGION(begin, region.bytes);
        else ASAN_UNPOISON_MEMORY_REGION(begin, region.bytes);
    }
}

// While one lives the device's memory is open and the host's closed.
struct OnDevice {
    OnDevice() { closed(device_memory, false), closed(host_arrays, true); }
    ~OnDevice() { closed(host_arrays, false), closed(device_memory, true); }
};

EMULATOR_UNWATCHED inline void copied(char* to, const char* from, size_t bytes)
{
    if (to < from || to >= from + bytes)
        for (size_t i = 0; i < bytes; ++i) { to[i] = from[i]; asm volatile("" ::: ); }
    else
        for (size_t i = bytes; i-- > 0;) to[i] = from[i];
}

EMULATOR_UNWATCHED inline void filled(char* to, int value, size_t bytes)
{
    for (size_t i = 0; i < bytes; ++i) { to[i] = char(value); asm volatile("" ::: ); }
}

EMULATOR_UNWATCHED inline void filled_with_nan(char* to, size_t bytes, unsigned word)
{
    for (size_t i = 0; i + 4 <= bytes; i += 4) *reinterpret_cast<volatile unsigned*>(to + i) = word;
}

// Why a range cannot be one side of a copy; empty where it can.
inline std::string beyond_ends(const void* address, size_t bytes, bool device, const char* role)
{
    if (!address) return std::string(role) + " is no memory";
    auto* found = holding(device_memory, address);
    if (device) {
        if (!found) return std::string(role) + " is no memory of the device";
        const size_t left = found->first + found->second.bytes - static_cast<const char*>(address);
        if (bytes > left) return std::string(role) + " has " + std::to_string(left) + " bytes left, of " + std::to_string(bytes);
        return "";
    }
    if (found && !found->second.reachable) return std::string(role) + " is memory of the device";
    // Only a sanitizer knows the ends of the host's memory.
    if (bytes && __asan_region_is_poisoned(const_cast<void*>(address), bytes)) return std::string(role) + " is shorter than the " + std::to_string(bytes) + " bytes";
    return "";
}

// The same of a source. Where it is the device's and the call says that it is the host's, CUDA finds it all the same.
inline std::string beyond_source(const char* name, const void* from, size_t bytes, bool device, int line)
{
    auto* found = holding(device_memory, from);
    if (!device && found && !found->second.reachable) {
        note(std::string(name) + " is told that its source is the host's, and it is the device's", line);
        device = true;
    }
    return beyond_ends(from, bytes, device, "the source");
}

inline cudaError_t copy(const char* name, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, int line)
{
    if (!bytes) return cudaSuccess;
    const auto on_device = [](const void* address) { return holding(device_memory, address) != nullptr; };
    const bool to_device = kind == cudaMemcpyDefault ? on_device(to) : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDefault ? on_device(from) : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    std::string reason = beyond_ends(to, bytes, to_device, "the destination");
    if (reason.empty()) reason = beyond_source(name, from, bytes, from_device, line);
    if (!reason.empty()) {
        // Past the ends of the host's memory a copy is no refused call but a fault.
        if (reason.find("is shorter than") != std::string::npos) stop((std::string(name) + ": " + reason).c_str(), line);
        return refused(cudaErrorInvalidValue, std::string(name) + ": " + reason, line);
    }
    copied(static_cast<char*>(to), static_cast<const char*>(from), bytes);
    return cudaSuccess;
}

inline cudaError_t allocate(void** address, size_t bytes, bool device, int line)
{
    if (bytes > (size_t)6 << 30) return refused(cudaErrorMemoryAllocation, "memory of " + std::to_string(bytes) + " bytes is asked for", line);
    if (!bytes) { *address = nullptr; return cudaSuccess; }
    char* memory = static_cast<char*>(std::malloc(bytes));
    if (!memory) return refused(cudaErrorMemoryAllocation, "memory of " + std::to_string(bytes) + " bytes is asked for", line);
    filled_with_nan(memory, bytes, unwritten_word("memory allocated", line));
    device_memory[memory] = {bytes, !device};
    if (device) ASAN_POISON_MEMORY_REGION(memory, bytes);
    *address = memory;
    return cudaSuccess;
}

inline cudaError_t release(void* address, int line)
{
    if (!address) return cudaSuccess;
    auto found = device_memory.find(static_cast<char*>(address));
    if (found == device_memory.end()) return refused(cudaErrorInvalidValue, "memory is freed that is not the device's", line);
    ASAN_UNPOISON_MEMORY_REGION(found->first, found->second.bytes);
    device_memory.erase(found);
    std::free(address);
    return cudaSuccess;
}

struct Config {
    int line;
    dim3 grid, block;
    size_t shared;
    Config(int line, dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr) : line(line), grid(grid), block(block), shared(shared) {}
};

template <class Kernel> void launch(const Config& config, Kernel kernel)
{
    const auto& [line, grid, block, shared] = config;
    std::string reason;
    const auto extents = [](dim3 e) { return std::to_string(e.x) + " x " + std::to_string(e.y) + " x " + std::to_string(e.z); };
    if ((uint64_t)block.x * block.y * block.z - 1 >= 1024 || block.x > 1024 || block.y > 1024 || block.z > 64) reason = "blocks of " + extents(block) + " threads";
    else if (!grid.x || !grid.y || !grid.z || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535) reason = "a grid of " + extents(grid) + " blocks";
    else if (shared > allowed_shared) reason = std::to_string(shared) + " bytes of dynamic shared memory";
    if (!reason.empty()) {
        refused(cudaErrorInvalidConfiguration, "a launch with " + reason, line);
        return;
    }
    OnDevice open;
    launch_line = line;
    run_grid(grid, block, shared, kernel);
}

}  // namespace emulator

#define EMULATOR_LINE int line = __builtin_LINE()

template <class T> cudaError_t cudaMalloc(T** address, size_t bytes, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, true, line); }
template <class T> cudaError_t cudaMallocAsync(T** address, size_t bytes, cudaStream_t, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, true, line); }
template <class T> cudaError_t cudaMallocManaged(T** address, size_t bytes, unsigned = 1, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, false, line); }
template <class T> cudaError_t cudaMallocHost(T** address, size_t bytes, unsigned = 0, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, false, line); }
template <class T> cudaError_t cudaHostAlloc(T** address, size_t bytes, unsigned, EMULATOR_LINE) { return emulator::allocate((void**)address, bytes, false, line); }
inline cudaError_t cudaFree(const void* address, EMULATOR_LINE) { return emulator::release(const_cast<void*>(address), line); }
inline cudaError_t cudaFreeAsync(const void* address, cudaStream_t, EMULATOR_LINE) { return emulator::release(const_cast<void*>(address), line); }
inline cudaError_t cudaFreeHost(const void* address, EMULATOR_LINE) { return emulator::release(const_cast<void*>(address), line); }
inline cudaError_t cudaHostRegister(const void* address, size_t bytes, unsigned, EMULATOR_LINE)
{
    if (auto* found = emulator::holding(emulator::host_arrays, address)) {
        if (found->second.reachable) return emulator::last_error = cudaErrorHostMemoryAlreadyRegistered;
        const size_t left = found->first + found->second.bytes - static_cast<const char*>(address);
        if (bytes > left + 4096) return emulator::refused(cudaErrorInvalidValue, "more memory is registered than there is", line);
        found->second.reachable = true;
    }
    return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(const void* address)
{
    if (auto* found = emulator::holding(emulator::host_arrays, address)) {
        if (!found->second.reachable) return emulator::last_error = cudaErrorHostMemoryNotRegistered;
        found->second.reachable = false;
    }
    return cudaSuccess;
}
template <class T> cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) { *device = static_cast<T*>(host); return cudaSuccess; }

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, EMULATOR_LINE) { return emulator::copy("cudaMemcpy", to, from, bytes, kind, line); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t = nullptr, EMULATOR_LINE) { return emulator::copy("cudaMemcpyAsync", to, from, bytes, kind, line); }
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind, EMULATOR_LINE)
{
    for (size_t row = 0; row < height; ++row)
        if (auto error = emulator::copy("cudaMemcpy2D", (char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, kind, line)) return error;
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes, EMULATOR_LINE)
{
    auto reason = emulator::beyond_ends(to, bytes, true, "the destination");
    if (bytes && !reason.empty()) return emulator::refused(cudaErrorInvalidValue, "cudaMemset: " + reason, line);
    emulator::filled(static_cast<char*>(to), value, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr, EMULATOR_LINE) { return cudaMemset(to, value, bytes, line); }

namespace emulator {
inline cudaError_t copy_symbol(char* symbol, size_t size, const void* other, size_t bytes, size_t offset, bool to_symbol, cudaMemcpyKind kind, int line)
{
    const char* name = to_symbol ? "cudaMemcpyToSymbol" : "cudaMemcpyFromSymbol";
    if (offset + bytes > size)
        return refused(cudaErrorInvalidValue, std::string(name) + ": the symbol has " + std::to_string(size) + " bytes, and the copy ends at " + std::to_string(offset + bytes), line);
    const bool device = kind == cudaMemcpyDeviceToDevice || (kind == cudaMemcpyDefault && holding(device_memory, other));
    if (kind == (to_symbol ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice)) return refused(cudaErrorInvalidMemcpyDirection, name, line);
    auto reason = to_symbol ? beyond_source(name, other, bytes, device, line) : beyond_ends(other, bytes, device, "the destination");
    if (bytes && !reason.empty()) {
        if (reason.find("is shorter than") != std::string::npos) stop((std::string(name) + ": " + reason).c_str(), line);
        return refused(cudaErrorInvalidValue, std::string(name) + ": " + reason, line);
    }
    if (to_symbol) copied(symbol + offset, static_cast<const char*>(other), bytes);
    else copied(static_cast<char*>(const_cast<void*>(other)), symbol + offset, bytes);
    return cudaSuccess;
}
}  // namespace emulator
template <class T> cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice, EMULATOR_LINE)
{
    return emulator::copy_symbol((char*)&symbol, sizeof(T), from, bytes, offset, true, kind, line);
}
template <class T> cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t = nullptr, EMULATOR_LINE)
{
    return emulator::copy_symbol((char*)&symbol, sizeof(T), from, bytes, offset, true, kind, line);
}
template <class T> cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost, EMULATOR_LINE)
{
    return emulator::copy_symbol((char*)&symbol, sizeof(T), to, bytes, offset, false, kind, line);
}
template <class T> cudaError_t cudaGetSymbolAddress(void** address, const T& symbol)
{
    *address = (void*)&symbol;
    emulator::device_memory[(char*)&symbol] = {sizeof(T), true};
    return cudaSuccess;
}

inline cudaError_t cudaGetLastError() { return std::exchange(emulator::last_error, cudaSuccess); }
inline cudaError_t cudaPeekAtLastError() { return emulator::last_error; }
inline const char* cudaGetErrorString(cudaError_t error) { return emulator::words_of(error); }
inline const char* cudaGetErrorName(cudaError_t error) { return emulator::words_of(error); }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaThreadSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) { *properties = {}; return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int)
{
    *value = attribute == cudaDevAttrMaxThreadsPerBlock ? 1024 : attribute == cudaDevAttrWarpSize ? 32 : attribute == cudaDevAttrMultiProcessorCount ? 84 : 48 << 10;
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(size_t* left, size_t* total) { *left = *total = (size_t)6 << 30; return cudaSuccess; }
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, size_t, int, int) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetLimit(int, size_t) { return cudaSuccess; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
template <class Kernel> cudaError_t cudaFuncSetCacheConfig(Kernel, cudaFuncCache) { return cudaSuccess; }
template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute attribute, int value, EMULATOR_LINE)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value > 227 << 10) return emulator::refused(cudaErrorInvalidValue, "cudaFuncSetAttribute: " + std::to_string(value) + " bytes of shared memory", line);
    emulator::allowed_shared = std::max<size_t>(emulator::allowed_shared, value);
    return cudaSuccess;
}
template <class Kernel> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) { *attributes = {}; return cudaSuccess; }
template <class Kernel> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int block, size_t) { *blocks = std::max(1, 1536 / block); return cudaSuccess; }
template <class Kernel> cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel, size_t = 0, int = 0) { *grid = 84, *block = 256; return cudaSuccess; }

inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { *stream = new emulator::Stream; return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { delete stream; return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { *event = new emulator::Event; return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) { event->at = std::chrono::steady_clock::now(); return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) { *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count(); return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { delete event; return cudaSuccess; }

// ---- cuBLAS: products of matrices in float32 ----

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3, CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_EXECUTION_FAILED = 13 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
struct cublasContext {};
using cublasHandle_t = cublasContext*;
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) { *handle = new cublasContext; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) { delete handle; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
inline const char* cublasGetStatusString(cublasStatus_t status) { return status ? "a failure of cuBLAS" : "CUBLAS_STATUS_SUCCESS"; }

namespace emulator {
// C (m, n) = alpha op(A) op(B) + beta C, column-major.
EMULATOR_UNWATCHED inline void gemm(bool ta, bool tb, int m, int n, int k, float alpha, const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc)
{
    std::vector<float> column(m);
    for (int j = 0; j < n; ++j) {
        float* sums = column.data();
        for (int i = 0; i < m; ++i) sums[i] = 0;
        for (int p = 0; p < k; ++p) {
            const float factor = tb ? b[(size_t)p * ldb + j] : b[(size_t)j * ldb + p];
            if (ta) for (int i = 0; i < m; ++i) sums[i] += factor * a[(size_t)i * lda + p];
            else for (int i = 0; i < m; ++i) sums[i] += factor * a[(size_t)p * lda + i];
        }
        for (int i = 0; i < m; ++i) c[(size_t)j * ldc + i] = alpha * sums[i] + (beta ? beta * c[(size_t)j * ldc + i] : 0);
    }
}
}  // namespace emulator

inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha, const float* a, int lda, long long stride_a, const float* b, int ldb, long long stride_b, const float* beta, float* c, int ldc, long long stride_c, int count, EMULATOR_LINE)
{
    const auto failed = [line](const std::string& why) {
        emulator::refused(cudaErrorInvalidValue, "cuBLAS's product of matrices: " + why, line);
        return CUBLAS_STATUS_INVALID_VALUE;
    };
    if (m < 0 || n < 0 || k < 0 || count < 0 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return failed("a leading dimension is too small");
    if (!m || !n || !count) return CUBLAS_STATUS_SUCCESS;
    const auto bytes = [count](int ld, int columns, int rows, long long stride) { return (size_t)(4 * ((long long)ld * (columns - 1) + rows + stride * (count - 1))); };
    const std::pair<const void*, size_t> sides[] = {{a, k ? bytes(lda, ta ? m : k, ta ? k : m, stride_a) : 0}, {b, k ? bytes(ldb, tb ? k : n, tb ? n : k, stride_b) : 0}, {c, bytes(ldc, n, m, stride_c)}};
    for (int i = 0; i < 3; ++i) {
        const char* names[] = {"A", "B", "C"};
        auto reason = emulator::beyond_ends(sides[i].first, sides[i].second, true, names[i]);
        if (!reason.empty()) emulator::stop(("cuBLAS's product of matrices: " + reason).c_str(), line);
    }
    for (int i = 0; i < count; ++i) emulator::gemm(ta, tb, m, n, k, *alpha, a + i * stride_a, lda, b + i * stride_b, ldb, *beta, c + i * stride_c, ldc);
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc, EMULATOR_LINE)
{
    return cublasSgemmStridedBatched(handle, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1, line);
}

namespace emulator {
// What a driver says before it calls host code: whose arrays are the host's.
inline void host_array(const void* address, size_t bytes) { host_arrays[static_cast<char*>(const_cast<void*>(address))] = {bytes, false}; }
inline void forget_host_arrays() { host_arrays.clear(); }
inline void begin_course(bool reversed)
{
    backwards = reversed;
    may_return_early = true;
    noted.clear();
    last_error = cudaSuccess;
}
}  // namespace emulator
