// CUDA's built-ins for a C++ compiler of the host: enough to run a kernel's own source under AddressSanitizer and
// UndefinedBehaviorSanitizer. One block at a time; its threads are fibers, which run in turn from barrier to barrier.
//
// What shows a mistake here that a GPU may hide: shared memory is filled with NaN for every block, one that tells which memory
// it was; a thread runs ahead of the others until its next barrier, so that a missing one lets it read what nobody has written;
// threads that wait at different barriers end the program, and so does a barrier that some wait at and others have left the
// kernel before.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#include <sanitizer/asan_interface.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define EMULATOR_UNWATCHED __attribute__((no_sanitize("address", "undefined"), optimize("O3")))

struct uint3 { unsigned x, y, z; };
struct int3 { int x, y, z; };
struct dim3 : uint3 {
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : uint3{x, y, z} {}
    constexpr dim3(uint3 extents) : uint3(extents) {}
};
struct alignas(8) int2 { int x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct float3 { float x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emulator {

constexpr size_t STACK_BYTES = 256 << 10;
constexpr unsigned MOST_THREADS = 1024;
constexpr unsigned WARP = 32;
constexpr size_t SHARED_MAX = 48 << 10;  // what CUDA gives a block's arrays of fixed size

[[noreturn]] inline void stop(const char* words, int line)
{
    std::fflush(stdout);
    std::fprintf(stderr, "\nemulator: %s at line %d\n", words, line);
    std::abort();
}

// What is missing here, and says nothing about the kernel.
[[noreturn]] inline void beyond(const char* what, int line)
{
    std::fflush(stdout);
    std::fprintf(stderr, "\nbeyond the emulator: %s, line %d\n", what, line);
    std::abort();
}

// What may explain a wrong result and is no fault by itself: the first such thing is kept.
inline std::string noted;
inline void note(const std::string& words, int line)
{
    if (noted.empty()) noted = words + " at line " + std::to_string(line);
}

// Memory that nobody has written, by the number that its NaN bears: arithmetic keeps it, and half precision the upper part.
inline std::vector<std::string> unwritten(1, "memory");

inline unsigned unwritten_word(const std::string& what, int line)
{
    constexpr size_t MOST = 48;
    const std::string named = line ? what + " at line " + std::to_string(line) : what;
    size_t place = std::find(unwritten.begin(), unwritten.end(), named) - unwritten.begin();
    if (place == unwritten.size()) {
        if (place < MOST) unwritten.push_back(named);
        else place = 0;
    }
    return 0x7FC07F80 | unsigned(place << 16 | place);  // either half of it is a NaN of half precision too
}

// The number in a NaN that was such a word, or half of one, before arithmetic; 0 for any other.
inline unsigned unwritten_place(unsigned word)
{
    if ((word & 0x7FC00000) != 0x7FC00000) return 0;
    const unsigned upper = word >> 16 & 63, kept = word >> 13 & 511;
    unsigned place = 0;
    if ((word & 0xFFFF) == (0x7F80 | upper)) place = upper;
    else if (word & 0x1FFF) return 0;
    else if (kept >> 6 >= 6) place = kept & 63;  // one half, read as such
    else if ((kept & 7) == 3 || (kept & 7) == 4) place = kept >> 3;  // cut off, or rounded
    return place < unwritten.size() ? place : 0;
}

// Note where the first such NaN of an output comes from.
EMULATOR_UNWATCHED inline void explain(const float* y, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        unsigned word;
        std::memcpy(&word, y + i, 4);
        if (const unsigned place = unwritten_place(word)) {
            if (noted.empty()) noted = "what nobody had written reached the output, from " + unwritten[place];
            return;
        }
    }
}

// Whether threads may return before a barrier that others wait at: CUDA counts those that have not, since Volta.
inline bool may_return_early = false;

struct Lanes;
enum class State : unsigned char { READY, BARRIER, WARP, DONE };

struct Fiber {
    void* stack_pointer;
    char* stack;
    uint3 index;
    State state;
    int line;       // where it waits
    unsigned mask;  // lanes that a warp's operation is of
    void* given;    // what it brings to that operation
    void (*work)(Lanes, int line);
};

struct Lanes {  // what a warp's operation sees when all have come
    Fiber* first;
    unsigned present;
    template <class T> T& of(unsigned lane) const { return *static_cast<T*>(first[lane].given); }
    bool has(unsigned lane) const { return present >> lane & 1; }
};

inline Fiber fibers[MOST_THREADS];
inline std::vector<char*> stacks;  // those that are free
inline void* scheduler;
inline Fiber* current;
inline unsigned threads, live, ready;
inline unsigned ready_in[MOST_THREADS / WARP];  // of each warp
inline std::function<void()> body;

// Changes stacks: what a function must keep for its caller is saved on the one that is left.
#if defined(__x86_64__)
extern "C" void emulator_switch(void** left, void* taken);
asm(R"(
    .pushsection .text
    .weak emulator_switch
    .hidden emulator_switch
    .type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulator_switch, .-emulator_switch
    .popsection
)");
EMULATOR_UNWATCHED inline void* fresh(char* stack, void (*entry)())
{
    void** top = reinterpret_cast<void**>(stack + STACK_BYTES - 64);
    *--top = nullptr;  // where the entry would return to
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    return top;
}
#else
inline void emulator_switch(void** left, void* taken)
{
    ucontext_t mine;
    *left = &mine;
    swapcontext(&mine, static_cast<ucontext_t*>(taken));
}
EMULATOR_UNWATCHED inline void* fresh(char* stack, void (*entry)())
{
    auto* context = reinterpret_cast<ucontext_t*>(stack + STACK_BYTES - sizeof(ucontext_t) - 64);
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = STACK_BYTES - sizeof(ucontext_t) - 128;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}
#endif

inline unsigned position;  // in a pass over the threads
inline bool backwards = false;

EMULATOR_UNWATCHED inline Fiber& at(unsigned place) { return fibers[backwards ? threads - 1 - place : place]; }

// The next thread of this pass that can run; none where the pass is over.
EMULATOR_UNWATCHED inline Fiber* upcoming()
{
    for (++position; position < threads; ++position)
        if (at(position).state == State::READY) return &at(position);
    return nullptr;
}

EMULATOR_UNWATCHED inline void taken(Fiber* fiber)
{
    current = fiber;
    threadIdx = fiber->index;
}

EMULATOR_UNWATCHED inline unsigned& ready_beside(const Fiber& fiber) { return ready_in[unsigned(&fiber - fibers) / WARP]; }

EMULATOR_UNWATCHED inline void made_ready(Fiber& fiber)
{
    fiber.state = State::READY;
    ++ready, ++ready_beside(fiber);
}

inline void fiber_main();

// Leave what runs for a thread, on its own stack, or where there is none for the scheduler.
EMULATOR_UNWATCHED inline void leave_for(Fiber* next, void** left)
{
    if (!next) return emulator_switch(left, scheduler);
    if (!next->stack_pointer) {
        next->stack = stacks.back();
        stacks.pop_back();
        next->stack_pointer = fresh(next->stack, fiber_main);
    }
    taken(next);
    emulator_switch(left, next->stack_pointer);
}

// Threads that never wait follow one another on one stack.
EMULATOR_UNWATCHED inline void fiber_main()
{
    for (;;) {
        body();
        current->state = State::DONE;
        --live, --ready, --ready_beside(*current);
        char* const stack = current->stack;
        Fiber* const next = upcoming();
        if (next && !next->stack_pointer) {
            next->stack = stack;
            next->stack_pointer = stack;  // it has begun
            taken(next);
            continue;
        }
        stacks.push_back(stack);
        void* never;
        leave_for(next, &never);
    }
}

EMULATOR_UNWATCHED inline void wait(State state, int line)
{
    Fiber* const mine = current;
    mine->state = state;
    mine->line = line;
    --ready, --ready_beside(*mine);
    leave_for(upcoming(), &mine->stack_pointer);
}

inline void barrier(int line) { wait(State::BARRIER, line); }

inline unsigned thread_number() { return unsigned(current - fibers); }
inline unsigned lane() { return thread_number() % WARP; }

EMULATOR_UNWATCHED inline unsigned lanes_of(unsigned first, bool (*is)(const Fiber&))
{
    unsigned bits = 0;
    for (unsigned i = 0; i < WARP && first + i < threads; ++i) bits |= unsigned(is(fibers[first + i])) << i;
    return bits;
}

// Does what lanes of a warp wait for, where all that are asked have come; whether it was done.
EMULATOR_UNWATCHED inline bool all_have_come(const Fiber& last)
{
    const unsigned number = unsigned(&last - fibers), first = number / WARP * WARP;
    const unsigned alive = lanes_of(first, [](const Fiber& each) { return each.state != State::DONE; });
    unsigned come = 1u << number % WARP;
    for (unsigned i = 0; i < WARP && first + i < threads; ++i) {
        const Fiber& other = fibers[first + i];
        if (other.state == State::WARP && other.mask == last.mask && other.line == last.line) come |= 1u << i;
    }
    if ((come & last.mask & alive) != (last.mask & alive)) return false;
    last.work(Lanes{fibers + first, come}, last.line);
    for (unsigned i = 0; i < WARP && first + i < threads; ++i)
        if (come >> i & 1 && fibers[first + i].state == State::WARP) made_ready(fibers[first + i]);
    return true;
}

// Wait for the lanes of a mask. Whoever comes last does `work` for all. Lanes that left the kernel are not waited for.
inline void together(unsigned mask, int line, void* given, void (*work)(Lanes, int line))
{
    if (!(mask >> lane() & 1)) stop("a lane takes part in a warp's operation whose mask leaves it out", line);
    current->mask = mask;
    current->given = given;
    current->line = line;
    current->work = work;
    const bool early = mask == ~0u && ready_beside(*current) > 1;  // others of the warp are yet to run
    if (early || !all_have_come(*current)) wait(State::WARP, line);
}

// Shared memory of the running block: memory for each declaration, so that the sanitizer knows its ends.
inline unsigned long block_number;
inline size_t shared_total;
inline void poisoned(char* memory, size_t bytes, unsigned word)
{
    for (size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(memory + i, &word, 4);
}

template <class Array, int number> Array& shared(int line)
{
    static char* memory;
    static unsigned long block = ~0ul;
    if (block != block_number) {
        block = block_number;
        shared_total += sizeof(Array);
        if (shared_total > SHARED_MAX) {
            std::fprintf(stderr, "\nemulator: shared arrays of %zu bytes a block, and CUDA allows %zu; take smaller tiles\n", shared_total, SHARED_MAX);
            std::abort();
        }
        if (!memory) memory = static_cast<char*>(std::malloc(sizeof(Array)));
        static const unsigned word = unwritten_word("shared memory declared", line);
        poisoned(memory, sizeof(Array), word);
    }
    return *reinterpret_cast<Array*>(memory);
}

// Dynamic shared memory of the running block: what its launch asks for. It counts beside the arrays of fixed size.
inline char* dynamic_base;
inline size_t dynamic_bytes;
inline int launch_line;  // where the host launches; 0 where a driver does

inline char* dynamic_shared(int line)
{
    if (!dynamic_bytes) stop("dynamic shared memory is used, and the launch asks for none (`shared_bytes`)", line);
    return dynamic_base;
}

inline void new_dynamic()
{
    static size_t bytes;
    if (bytes != dynamic_bytes) {
        std::free(dynamic_base);
        dynamic_base = dynamic_bytes ? static_cast<char*>(std::malloc(dynamic_bytes)) : nullptr;
        bytes = dynamic_bytes;
    }
    if (dynamic_bytes) poisoned(dynamic_base, dynamic_bytes, unwritten_word("dynamic shared memory of the launch", launch_line));
}

EMULATOR_UNWATCHED inline uint3 index_of(unsigned thread)
{
    return {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

// Nobody can go on: all that are left wait at one barrier, or something is wrong.
EMULATOR_UNWATCHED inline void release()
{
    const Fiber* one = nullptr;
    // Lanes that a mask names may have left since.
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::WARP && all_have_come(fibers[i])) return;
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::WARP) stop("lanes of a warp wait for others that do not come", fibers[i].line);
    for (unsigned i = 0; i < threads; ++i) {
        if (fibers[i].state != State::BARRIER) continue;
        if (one && fibers[i].line != one->line) {
            std::string words = "threads of one block wait at different barriers, at line " + std::to_string(one->line) + " and";
            stop(words.c_str(), fibers[i].line);
        }
        one = &fibers[i];
    }
    if (live < threads) {
        const char* words = "some threads wait at a barrier that others have returned before";
        if (!may_return_early) stop(words, one->line);
        note(words, one->line);
    }
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i].state == State::BARRIER) made_ready(fibers[i]);
}

EMULATOR_UNWATCHED inline void run_block()
{
    ++block_number;
    shared_total = 0;
    new_dynamic();
    live = threads, ready = 0;
    std::memset(ready_in, 0, sizeof ready_in);
    for (unsigned i = 0; i < threads; ++i) {
        made_ready(fibers[i]);
        fibers[i].index = index_of(i);
        fibers[i].stack_pointer = nullptr;
    }
    while (live) {
        if (!ready) release();
        position = ~0u;
        leave_for(upcoming(), &scheduler);
    }
}

// Runs a grid's blocks and threads from the first to the last, or from the last to the first.
EMULATOR_UNWATCHED inline void run_grid(dim3 grid, dim3 block, size_t shared_bytes, std::function<void()> kernel)
{
    if (stacks.empty()) {
        const size_t bytes = STACK_BYTES * (MOST_THREADS + 1);
        void* all = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) std::perror("emulator: no memory for stacks"), std::abort();
        // Not all at the same place of a page: they would displace each other in the processor's cache.
        for (unsigned i = MOST_THREADS; i-- > 0;) stacks.push_back(static_cast<char*>(all) + (i + 1) * STACK_BYTES - i % 32 * 448);
    }
    gridDim = grid;
    blockDim = block;
    dynamic_bytes = shared_bytes;
    body = std::move(kernel);
    threads = block.x * block.y * block.z;
    const size_t blocks = (size_t)grid.x * grid.y * grid.z;
    for (size_t i = 0; i < blocks; ++i) {
        const size_t b = backwards ? blocks - 1 - i : i;
        blockIdx = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)};
        run_block();
    }
}

template <class... Parameters, size_t... Places>
std::function<void()> called(void (*kernel)(Parameters...), void** arguments, std::index_sequence<Places...>)
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
    auto kernel_called = called(kernel, arguments, std::index_sequence_for<Parameters...>());
    run_grid({grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, kernel_called);
}

}  // namespace emulator

#define __syncthreads() emulator::barrier(__LINE__)
