// CUDA's built-ins for a C++ compiler of the host: enough to run a kernel's own source under AddressSanitizer and
// UndefinedBehaviorSanitizer. One block at a time; its threads are fibers, which run in turn from barrier to barrier.
//
// What shows a mistake here that a GPU may hide: shared memory is filled with NaN for every block, one that tells which memory
// it was; a thread runs ahead of the others until its next barrier, so that a missing one lets it read what nobody has written;
// threads that wait at different barriers end the program, and so does a barrier that some wait at and others have left the
// kernel before.
//
// What the emulator does itself is in emulator.cpp, compiled once: each source is compiled with declarations and templates
// alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <math.h>
#include <string>
#include <sys/mman.h>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#include <sanitizer/asan_interface.h>

#include "emulator_types.h"

// What nvcc defines in both of its passes; __CUDA_ARCH__, which one of them has, is settled in architecture.py.
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8
#define __CUDACC_VER_BUILD__ 0

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline
#define __inline__ inline
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __builtin_align__(bytes) alignas(bytes)
#define __restrict__ __restrict
#define EMULATOR_UNWATCHED __attribute__((no_sanitize("address", "undefined"), optimize("O3")))

#define EMULATOR_LINE int line = __builtin_LINE()  // a function's last parameter: where it is called

#pragma GCC visibility push(hidden)
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emulator {

constexpr unsigned MOST_THREADS = 1024;
constexpr unsigned WARP = 32;

[[noreturn]] void stop(const char* words, int line);

// What is missing here, and says nothing about the kernel.
[[noreturn]] void beyond(const char* what, int line);

// What may explain a wrong result and is no fault by itself: the first such thing is kept.
extern std::string noted;
void note(const std::string& words, int line);

// The NaN that memory is filled with which nobody has written; it tells which memory that is.
unsigned unwritten_word(const std::string& what, int line);

// Note where the first NaN of an output that is memory nobody wrote comes from.
void explain(const float* y, size_t count);

struct Lanes;
enum class State : unsigned char { READY, BARRIER, NAMED, PHASE, WARP, DONE };

struct Fiber {
    void* stack_pointer;
    char* stack;
    uint3 index;
    State state;
    int line;       // where it waits
    unsigned mask;  // lanes that a warp's operation is of
    unsigned number;  // of the barrier where it waits, if that has one
    void* given;    // what it brings to that operation, or the mbarrier where it waits
    void (*work)(Lanes, int line);
};

struct Lanes {  // what a warp's operation sees when all have come
    Fiber* first;
    unsigned present;
    template <class T> T& of(unsigned lane) const { return *static_cast<T*>(first[lane].given); }
    bool has(unsigned lane) const { return present >> lane & 1; }
};

extern Fiber fibers[MOST_THREADS];
extern Fiber* current;
extern unsigned threads;
extern bool backwards;
extern bool may_return_early;  // before a barrier that others wait at
extern int launch_line;        // where the host launches; 0 where a driver does

void barrier(int line);
// Come to a barrier of so many of the block's threads, and wait for the others or go on.
void meet(unsigned number, unsigned count, bool waits, int line);

// An mbarrier, where the kernel has it in shared memory: a phase ends when so many threads have arrived.
struct Phases { unsigned short of, missing; unsigned mark; };  // mark: that somebody made it one, and the phase's parity
void begin_phases(Phases& here, unsigned of);
void arrive(Phases& here, int line);
void wait_for_phase(Phases& here, unsigned parity, int line);

inline unsigned thread_number() { return unsigned(current - fibers); }
inline unsigned lane() { return thread_number() % WARP; }
unsigned lanes_of(unsigned first, bool (*is)(const Fiber&));

// Wait for the lanes of a mask. Whoever comes last does `work` for all. Lanes that left the kernel are not waited for.
// A mask of 0 stands for those that come before no thread of the block can go on.
void together(unsigned mask, int line, void* given, void (*work)(Lanes, int line));

// Shared memory of the running block: memory for each declaration, so that the sanitizer knows its ends.
extern unsigned long block_number;
void renewed(char*& memory, unsigned& word, size_t bytes, int line);

template <class Array, int number> Array& shared(int line)
{
    static char* memory;
    static unsigned word;
    static unsigned long block = ~0ul;
    if (block != block_number) {
        block = block_number;
        renewed(memory, word, sizeof(Array), line);
    }
    return *reinterpret_cast<Array*>(memory);
}

// Dynamic shared memory of the running block: what its launch asks for. It counts beside the arrays of fixed size.
extern char* dynamic_base;
char* dynamic_shared(int line);
bool is_shared(const void* place);
bool is_local(const void* place);  // to a thread: on its stack
// Where something is in shared memory, as addresses are counted there: dynamic memory first, arrays of fixed size behind.
size_t offset_in_shared(const void* place, int line);
char* at_offset(size_t offset, size_t bytes, int line);

// Runs a grid's blocks and threads from the first to the last, or from the last to the first.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(void*), void* given);
template <class Kernel> void called(void* kernel) { (*static_cast<Kernel*>(kernel))(); }

template <class... Parameters, size_t... Places>
auto with_arguments(void (*kernel)(Parameters...), void** arguments, std::index_sequence<Places...>)
{
    return [=] { kernel(*static_cast<Parameters*>(arguments[Places])...); };
}

// A launch by a driver that knows nothing of the kernel's parameters.
template <class... Parameters>
void launch_untyped(void (*kernel)(Parameters...), const unsigned* grid, const unsigned* block, unsigned shared, void** arguments, int count, int reversed)
{
    if (count != sizeof...(Parameters)) {
        std::fprintf(stderr, "\nemulator: a kernel of %zu parameters is launched with %d arguments\n", sizeof...(Parameters), count);
        std::abort();
    }
    backwards = reversed;
    auto launched = with_arguments(kernel, arguments, std::index_sequence_for<Parameters...>());
    run_grid({grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, called<decltype(launched)>, &launched);
}

}  // namespace emulator
#pragma GCC visibility pop

#define __syncthreads() emulator::barrier(__LINE__)
