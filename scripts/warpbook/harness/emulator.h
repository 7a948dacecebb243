// CUDA's built-ins for a C++ compiler of the host: enough to run a plain kernel's own source under AddressSanitizer and
// UndefinedBehaviorSanitizer. One block at a time; its threads are fibers, which run in turn from barrier to barrier.
//
// What shows a mistake here that a GPU may hide: shared memory is allocated anew and filled with NaN for every block; a thread
// runs ahead of the others until its next barrier, so that a missing one lets it read what nobody has written; threads that
// wait at different barriers end the program, and so does a barrier that some wait at and others have left the kernel before.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <ucontext.h>
#include <utility>
#include <vector>

#if __has_include(<sanitizer/common_interface_defs.h>)
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct uint3 { unsigned x, y, z; };
struct dim3 : uint3 {
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : uint3{x, y, z} {}
};
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

using std::max;
using std::min;
inline int __float_as_int(float value) { int bits; std::memcpy(&bits, &value, 4); return bits; }
inline float __int_as_float(int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline float __ldg(const float* address) { return *address; }
template <class T> T atomicAdd(T* address, T value) { T before = *address; *address += value; return before; }

namespace emulator {

constexpr size_t STACK_BYTES = 256 << 10;
constexpr unsigned NAN_WORD = 0x7FC0BEEF;

[[noreturn]] inline void stop(const char* words, int line)
{
    std::fprintf(stderr, "emulator: %s at line %d\n", words, line);
    std::abort();
}

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
    uint3 index;
    bool done;
    int waits_at;  // line of the barrier; 0: it can run
    void* fake_stack;
};

inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline Fiber* current;
inline std::function<void()> body;
inline const void* scheduler_stack;
inline size_t scheduler_stack_size;
inline void* scheduler_fake_stack;

// Shared memory of the running block, an allocation for each declaration, so that the sanitizer knows its ends.
inline std::vector<std::pair<const void*, std::unique_ptr<char[]>>> shared_memory;
inline size_t shared_total;
constexpr size_t SHARED_MAX = 48 << 10;  // what CUDA gives a block's arrays of fixed size

inline char* shared_bytes(const void* declaration, size_t bytes)
{
    for (auto& [owner, memory] : shared_memory)
        if (owner == declaration) return memory.get();
    shared_total += bytes;
    if (shared_total > SHARED_MAX) {
        std::fprintf(stderr, "emulator: shared arrays of %zu bytes a block, and CUDA allows %zu; take smaller tiles\n", shared_total, SHARED_MAX);
        std::abort();
    }
    std::unique_ptr<char[]> memory(new char[bytes]);
    for (size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(memory.get() + i, &NAN_WORD, 4);
    shared_memory.emplace_back(declaration, std::move(memory));
    return shared_memory.back().second.get();
}

// Dynamic shared memory of the running block: what its launch asks for. It counts beside the arrays of fixed size.
inline char* dynamic_base;
inline size_t dynamic_bytes;

inline char* dynamic_shared(int line)
{
    if (!dynamic_bytes) stop("dynamic shared memory is used, and the launch asks for none (`shared_bytes`)", line);
    return dynamic_base;
}

inline void new_dynamic()
{
    static std::unique_ptr<char[]> memory;
    if (!dynamic_bytes) { dynamic_base = nullptr; return; }
    memory.reset(new char[dynamic_bytes]);
    dynamic_base = memory.get();
    for (size_t i = 0; i + 4 <= dynamic_bytes; i += 4) std::memcpy(dynamic_base + i, &NAN_WORD, 4);
}

template <class Array> Array& shared(const void* declaration) { return *reinterpret_cast<Array*>(shared_bytes(declaration, sizeof(Array))); }

// The sanitizer must be told of every change of stacks.
inline void leave(void** fake_stack, const void* stack, size_t size)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(fake_stack, stack, size);
#endif
}
inline void arrive(void* fake_stack, const void** from, size_t* size)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, from, size);
#endif
}

inline void to_scheduler(bool last)
{
    leave(last ? nullptr : &current->fake_stack, scheduler_stack, scheduler_stack_size);
    swapcontext(&current->context, &scheduler);
    arrive(current->fake_stack, &scheduler_stack, &scheduler_stack_size);
}

inline void barrier(int line)
{
    current->waits_at = line;
    to_scheduler(false);
}

inline void start()
{
    arrive(nullptr, &scheduler_stack, &scheduler_stack_size);
    body();
    current->done = true;
    to_scheduler(true);
}

inline void resume(Fiber& fiber)
{
    current = &fiber;
    threadIdx = fiber.index;
    leave(&scheduler_fake_stack, fiber.stack.get(), STACK_BYTES);
    swapcontext(&scheduler, &fiber.context);
    arrive(scheduler_fake_stack, nullptr, nullptr);
}

inline uint3 index_of(size_t thread)
{
    return {unsigned(thread % blockDim.x), unsigned(thread / blockDim.x % blockDim.y), unsigned(thread / blockDim.x / blockDim.y)};
}

inline void run_block(bool reversed)
{
    const size_t threads = (size_t)blockDim.x * blockDim.y * blockDim.z;
    shared_memory.clear();
    shared_total = 0;
    new_dynamic();
#ifndef EMULATOR_BARRIERS
    // Threads that never wait need no fibers: one after the other.
    for (size_t i = 0; i < threads; ++i) {
        threadIdx = index_of(reversed ? threads - 1 - i : i);
        body();
    }
    return;
#endif
    if (fibers.size() < threads) fibers = std::vector<Fiber>(threads);
    for (size_t i = 0; i < threads; ++i) {
        Fiber& fiber = fibers[i];
        fiber.index = index_of(i);
        fiber.done = false;
        fiber.waits_at = 0;
        fiber.fake_stack = nullptr;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK_BYTES;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, start, 0);
    }
    for (size_t left = threads; left > 0;) {
        for (size_t i = 0; i < threads; ++i) {
            Fiber& fiber = fibers[reversed ? threads - 1 - i : i];
            if (fiber.done) continue;
            resume(fiber);
            left -= fiber.done;
        }
        // Whoever is left waits at a barrier: all of them, and all at the same one.
        int line = 0;
        for (size_t i = 0; i < threads; ++i) {
            if (fibers[i].done) continue;
            if (line && fibers[i].waits_at != line) stop("threads of one block wait at different barriers", fibers[i].waits_at);
            line = fibers[i].waits_at;
        }
        if (line && left < threads) stop("some threads wait at a barrier that others have returned before", line);
    }
}

template <class... Parameters, size_t... Places>
void set_body(void (*kernel)(Parameters...), void** arguments, std::index_sequence<Places...>)
{
    body = [=] { kernel(*static_cast<Parameters*>(arguments[Places])...); };
}

// Runs a kernel's grid, blocks and threads from the first to the last, or from the last to the first.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), const unsigned* grid, const unsigned* block, unsigned shared, void** arguments, int count, int reversed)
{
    if (count != sizeof...(Parameters)) {
        std::fprintf(stderr, "emulator: a kernel of %zu parameters is launched with %d arguments\n", sizeof...(Parameters), count);
        std::abort();
    }
    dynamic_bytes = shared;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    emulator::set_body(kernel, arguments, std::index_sequence_for<Parameters...>());
    const size_t blocks = (size_t)grid[0] * grid[1] * grid[2];
    for (size_t i = 0; i < blocks; ++i) {
        const size_t b = reversed ? blocks - 1 - i : i;
        blockIdx = {unsigned(b % grid[0]), unsigned(b / grid[0] % grid[1]), unsigned(b / grid[0] / grid[1])};
        run_block(reversed);
    }
}

}  // namespace emulator

#define __syncthreads() emulator::barrier(__LINE__)
