// CUDA's built-ins for a C++ compiler of the host: enough to run a kernel's own source under AddressSanitizer and
// UndefinedBehaviorSanitizer. One block at a time; its threads are fibers, which run in turn from barrier to barrier.
//
// What shows a mistake here that a GPU may hide: shared memory is filled with NaN for every block, one that tells which memory
// it was; a thread runs ahead of the others until its next barrier, so that a missing one lets it read what nobody has written;
// threads that wait at different barriers end the program.
//
// What the emulator does itself is in emulator.cpp, compiled once: each source is compiled with declarations and templates
// alone.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <math.h>
#include <string>
#include <string_view>
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
#define EMULATOR_UNWATCHED __attribute__((no_sanitize("address", "undefined", "thread"), optimize("O3")))

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
extern unsigned long* finished_blocks;  // counted where whoever limits the time can see it; null: nowhere
[[noreturn]] void beyond(const char* what, int line);

// What may explain a wrong result and is no fault by itself: the first such thing is kept.
extern std::string noted;
void note(const std::string& words, int line);

// The NaN that fills uninitialized memory. It holds the number of that memory; a call has at most so many numbers.
constexpr size_t MOST_UNWRITTEN = 48, MOST_VARIABLES = 32;  // the rest is for arrays: a kernel may have hundreds of variables
unsigned unwritten_word(const std::string& what, int line, size_t most = MOST_UNWRITTEN);

// Comparisons, fmaxf and fminf pass over a NaN. So calls may ask for a number that is large in any type of floating point
// instead: in all such memory, or in that of one number.
constexpr unsigned LARGE = 0x7BFF7BFF, ALL_LARGE = ~0u;
extern unsigned large;
unsigned filled(unsigned word);
inline unsigned filling(unsigned word) { return large ? filled(word) : word; }  // what stands for a word now

// Fill what has no value, so that a result computed from it names where it comes from.
template <class T> inline void fill_unset(T& value, unsigned word)
{
    word = filling(word);
    for (size_t i = 0; i + 4 <= sizeof value; i += 4) std::memcpy(reinterpret_cast<char*>(&value) + i, &word, 4);
}
#ifdef EMULATOR_RACES
#define EMULATOR_UNSET(name) ((void)0)
#else
#define EMULATOR_UNSET(name) [&] { static const unsigned word = emulator::unwritten_word("the variable " #name " declared", __LINE__, emulator::MOST_VARIABLES); emulator::fill_unset(name, word); }()
#endif

// Note where the first NaN of an output that is memory nobody wrote comes from.
void explain(const float* y, size_t count);

// What the compiler does not report of a source's accesses, calls of the C library: said in each source, since a
// precompiled header does not keep it.
#ifdef EMULATOR_RACES
#define EMULATOR_SEE_C_LIBRARY                                                                          \
    extern "C" void* memcpy(void*, const void*, size_t) noexcept __asm__("emulator_memcpy");   \
    extern "C" void* memmove(void*, const void*, size_t) noexcept __asm__("emulator_memmove"); \
    extern "C" void* memset(void*, int, size_t) noexcept __asm__("emulator_memset");
#else
#define EMULATOR_SEE_C_LIBRARY
#endif

// What orders accesses to memory, and accesses that no compiler reports: races.cpp judges them. Other builds judge nothing.
namespace races {
using Clock = std::vector<unsigned>;
#ifdef EMULATOR_RACES
constexpr bool looks = true;
void watch(const void* address, size_t bytes, const std::string& name, int line, bool of_block);
void forget(const void* address);
void access(const void* address, size_t bytes, bool writes, int line);
void read_only(const void* address, size_t bytes, int line);  // through the cache of what no thread of the launch writes
void atomic(const void* address, size_t bytes, bool monotone, bool of_block, int line);
void compares(const void* address, size_t bytes);  // a compare-and-swap, before it is done
void fence(bool of_block = false);
void wait_in_loop();  // perhaps: a loop begins another round
void begin_launch();
void end_launch();
void new_block();
void barrier();
void meet_in_warp(unsigned first, unsigned come, bool orders_memory);
void arrive_at(unsigned number);
void complete(unsigned number);
void leave(unsigned number);
void arrive_at(const void* phases);
void leave(const void* phases);
unsigned new_stream(bool blocking);
void enqueue(unsigned stream, const char* kind, int line);
void finish();
void wait_for_stream(unsigned stream);
void wait_for_device();
bool still_runs(unsigned stream);  // whether the host may not have waited for all that is in it
bool still_runs(const Clock& event);
Clock enqueued();
void wait_for_later(const Clock& before);  // than what was enqueued then
void record(Clock& event, unsigned stream);
void wait_for_event(unsigned stream, const Clock& event);
void wait_for_event(const Clock& event);
#else
constexpr bool looks = false;
inline void watch(const void*, size_t, const std::string&, int, bool) {}
inline void forget(const void*) {}
inline void access(const void*, size_t, bool, int) {}
inline void read_only(const void*, size_t, int) {}
inline void atomic(const void*, size_t, bool, bool, int) {}
inline void compares(const void*, size_t) {}
inline void fence(bool = false) {}
inline void wait_in_loop() {}
inline void begin_launch() {}
inline void end_launch() {}
inline void new_block() {}
inline void barrier() {}
inline void meet_in_warp(unsigned, unsigned, bool) {}
inline void arrive_at(unsigned) {}
inline void complete(unsigned) {}
inline void leave(unsigned) {}
inline void arrive_at(const void*) {}
inline void leave(const void*) {}
inline unsigned new_stream(bool) { return 0; }
inline void enqueue(unsigned, const char*, int) {}
inline void finish() {}
inline void wait_for_stream(unsigned) {}
inline void wait_for_device() {}
inline bool still_runs(unsigned) { return false; }
inline bool still_runs(const Clock&) { return false; }
inline Clock enqueued() { return {}; }
inline void wait_for_later(const Clock&) {}
inline void record(Clock&, unsigned) {}
inline void wait_for_event(unsigned, const Clock&) {}
inline void wait_for_event(const Clock&) {}
#endif
}  // namespace races

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
    bool orders_memory;  // that operation
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
extern int launch_line;        // where the host launches; 0 where a driver does

// Each round of a loop that may wait for another thread comes here, so that the other can run.
extern unsigned rounds;
bool let_others_run();
inline bool pause()
{
    races::wait_in_loop();
    return ++rounds % 16 || let_others_run();
}

// What a kernel says of the threads of its blocks; CUDA launches no more.
inline void limit_threads(int line, int most, ...)
{
    if (int(threads) > most) stop(("a block of " + std::to_string(threads) + " threads is launched; __launch_bounds__ allows " + std::to_string(most)).c_str(), line);
}
#define EMULATOR_LAUNCH_BOUNDS(...) emulator::limit_threads(__LINE__, __VA_ARGS__)

// What a kernel says of the blocks of its clusters; CUDA launches whole clusters.
inline void check_clusters(int line, unsigned x, unsigned y = 1, unsigned z = 1)
{
    if (x * y * z > 8) stop("clusters of more than 8 blocks, which CUDA refuses unasked,", line);
    if (gridDim.x % x || gridDim.y % y || gridDim.z % z) stop("a grid is launched that is no whole clusters of blocks", line);
}
#define EMULATOR_CLUSTER_DIMS(...) emulator::check_clusters(__LINE__, __VA_ARGS__)

void barrier(int line);
// Come to a barrier of so many of the block's threads, and wait for the others or go on.
void meet(unsigned number, unsigned count, bool waits, int line);

// An mbarrier, where the kernel has it in shared memory: a phase ends when so many threads have arrived.
struct Phases { unsigned short of, missing; unsigned mark; };  // mark: that somebody made it one, and the phase's parity
void begin_phases(Phases& here, unsigned of);
void arrive(Phases& here, int line);
void wait_for_phase(Phases& here, unsigned parity, int line);
void complete_tx(Phases& here, int line);  // of bytes that a phase waits for beside threads

// What emulator_device.cpp knows of an mbarrier's bulk copies.
namespace ptx {
long tx_count(const Phases& here);
void phase_ended(const Phases& here);
void make_bulk_copies(const Phases& here);  // those of phases that have ended
}  // namespace ptx

// What threads of the running block say at barriers that count.
struct Votes { int yes[2]; unsigned long rounds[MOST_THREADS], block; };
extern Votes votes;
bool waits_for_copies();  // some thread of the running block

inline unsigned thread_number() { return unsigned(current - fibers); }
inline unsigned lane() { return thread_number() % WARP; }
unsigned lanes_of(unsigned first, bool (*is)(const Fiber&));

// Wait for the lanes of a mask. Whoever comes last does `work` for all. Lanes that left the kernel are not waited for.
// A mask of 0 stands for those that come before no thread of the block can go on. Barriers alone order memory:
// shuffles, votes and matrix products (mma) do not.
void together(unsigned mask, int line, void* given, void (*work)(Lanes, int line), bool orders_memory = false);

// What CUDA gives a block of shared memory, of fixed size and dynamic: unasked, which is also the most of fixed size, and to a
// kernel that asks by cudaFuncSetAttribute, as a driver does.
constexpr size_t LEAST_SHARED = 48 << 10, MOST_SHARED = 227 << 10;
extern size_t shared_room;

// Shared memory of the running block: memory for each declaration, so that the sanitizer knows its ends.
extern unsigned long block_number;
void renewed(char*& memory, unsigned& word, size_t bytes, const char* name, int line);

template <class Array, int number> Array& shared(const char* name, int line)
{
    static char* memory;
    static unsigned word;
    static unsigned long block = ~0ul;
    if (block != block_number) {
        block = block_number;
        renewed(memory, word, sizeof(Array), name, line);
    }
    return *reinterpret_cast<Array*>(memory);
}

// Dynamic shared memory of the running block: what its launch asks for. It counts beside the arrays of fixed size.
extern char* dynamic_base;
char* dynamic_shared(const char* name, int line);
bool is_shared(const void* place);
bool is_local(const void* place);  // to a thread: on its stack
// Where something is in shared memory, as addresses are counted there: dynamic memory first, arrays of fixed size behind.
size_t offset_in_shared(const void* place, int line);
char* at_offset(size_t offset, size_t bytes, int line);

// How many blocks of a launch run where not all do, at the sizes that are measured; and launches so far.
extern unsigned sampled, launches;
extern bool blocks_met;  // by atomic operations in global memory: what some blocks did says nothing without the others
size_t blocks_to_run(size_t blocks);  // of another launch
size_t block_at(size_t place, size_t blocks);

// Of a large launch whose blocks write nothing any more, most are left out: they lie beyond the data. Whoever allocates
// memory says what is `written`, in a hash of it; without that, and where atomic operations run, every block does.
extern size_t (*written)();
extern unsigned long left_out;  // blocks, so far
extern bool atomic_ran;

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
void launch_untyped(void (*kernel)(Parameters...), const char* const* names, const unsigned* grid, const unsigned* block, unsigned shared, void** arguments, void** arrays, const size_t* bytes, int count, int reversed)
{
    if (count != sizeof...(Parameters)) {
        std::fprintf(stderr, "\nemulator: a kernel of %zu parameters is launched with %d arguments\n", sizeof...(Parameters), count);
        std::abort();
    }
    backwards = reversed;
    for (int i = 0; i < count; ++i) races::watch(arrays[i], bytes[i], *names ? *names++ : "", 0, false);
    races::enqueue(1, "the kernel", 0);
    auto launched = with_arguments(kernel, arguments, std::index_sequence_for<Parameters...>());
    run_grid({grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, called<decltype(launched)>, &launched);
    races::wait_for_device();
}

}  // namespace emulator
#pragma GCC visibility pop

#define __syncthreads() emulator::barrier(__LINE__)
