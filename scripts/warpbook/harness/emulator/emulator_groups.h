// What CUDA's libraries have for device code: cooperative groups, asynchronous copies and barriers of <cuda/...>, atomic
// references, and CUB's reductions and prefix sums over a warp or a block.
#pragma once

#include <functional>

#include "emulator_device.h"

// ---- Copies to shared memory that a thread waits for ----

namespace emulator {
void copy_async(void* to, const void* from, size_t bytes, size_t zeros, int line);
inline void wait_for_copies(unsigned left) { ptx::cp_async_wait_group(left); }
}  // namespace emulator

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0, EMULATOR_LINE) { emulator::copy_async(to, from, bytes, zeros, line); }
inline void __pipeline_commit() { emulator::ptx::cp_async_commit_group(); }
inline void __pipeline_wait_prior(unsigned left) { emulator::wait_for_copies(left); }

// ---- Lanes of a mask that join what they bring, in parts of a width: whoever comes last does it for all ----

namespace emulator {

template <class T, class Join> struct Joining { T value; Join* join; unsigned width, count; };

// All of a part's first `count` lanes, in its first lane.
template <class T, class Join> T joined_lanes(unsigned mask, T value, Join& join, unsigned width, unsigned count, int line)
{
    using Lane = Joining<T, Join>;
    Lane mine{value, &join, width, count};
    together(mask, line, &mine, [](Lanes lanes, int line) {
        for (unsigned by = 1; by < WARP; by *= 2)
            for (unsigned i = 0; i + by < WARP; ++i) {
                if (!lanes.has(i)) continue;
                Lane& lane = lanes.of<Lane>(i);
                const unsigned other = i % lane.width + by;
                if (other >= lane.count || other >= lane.width) continue;
                T theirs = lane.value;
                if (lanes.has(i + by)) theirs = lanes.of<Lane>(i + by).value;
                else fill_unset(theirs, word_of_absent_lane(line));
                lane.value = T((*lane.join)(lane.value, theirs));
            }
    });
    return mine.value;
}

// What a part's lanes up to each make together, in that lane.
template <class T, class Join> T scanned_lanes(unsigned mask, T value, Join& join, unsigned width, int line)
{
    using Lane = Joining<T, Join>;
    Lane mine{value, &join, width, width};
    together(mask, line, &mine, [](Lanes lanes, int) {
        for (unsigned i = 1; i < WARP; ++i) {
            if (!lanes.has(i) || !lanes.has(i - 1)) continue;
            Lane& lane = lanes.of<Lane>(i);
            if (i % lane.width) lane.value = T((*lane.join)(lanes.of<Lane>(i - 1).value, lane.value));
        }
    });
    return mine.value;
}

}  // namespace emulator

// ---- Cooperative groups ----

namespace cooperative_groups {

// Some threads of a block: those of a warp in a mask, or, without one, all.
struct thread_group {
    unsigned mask;
    void sync(EMULATOR_LINE) const { mask ? emulator::warp_barrier(mask, line) : emulator::barrier(line); }
    unsigned size() const { return mask ? unsigned(__popc(mask)) : emulator::threads; }
    unsigned num_threads() const { return size(); }
    unsigned thread_rank() const { return mask ? unsigned(__popc(mask & ((1u << emulator::lane()) - 1))) : emulator::thread_number(); }
};

struct thread_block {
    operator thread_group() const { return {0}; }
    static void sync(EMULATOR_LINE) { emulator::barrier(line); }
    static unsigned thread_rank() { return emulator::thread_number(); }
    static unsigned size() { return emulator::threads; }
    static unsigned num_threads() { return emulator::threads; }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

struct grid_group {
    static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    static unsigned long long block_rank() { return ((unsigned long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
    static unsigned long long thread_rank() { return block_rank() * emulator::threads + emulator::thread_number(); }
    static unsigned long long size() { return num_blocks() * emulator::threads; }
    static unsigned long long num_threads() { return size(); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return blockIdx; }
    static bool is_valid() { return true; }
    static void sync() = delete;  // blocks run one after another: the compiler names the line
};
inline grid_group this_grid() { return {}; }

// Lanes of a warp, numbered from 0: those of a mask, and tiles of a size that is known or told.
struct coalesced_group {
    unsigned mask;
    unsigned lane_of(unsigned rank) const
    {
        for (unsigned i = 0; i < emulator::WARP; ++i)
            if (mask >> i & 1 && !rank--) return i;
        return emulator::lane();
    }
    unsigned thread_rank() const { return unsigned(__popc(mask & ((1u << emulator::lane()) - 1))); }
    unsigned size() const { return unsigned(__popc(mask)); }
    unsigned num_threads() const { return size(); }
    void sync(EMULATOR_LINE) const { emulator::warp_barrier(mask, line); }
    template <class T> T shfl(T value, int from, EMULATOR_LINE) const { return emulator::exchanged(mask, value, lane_of(unsigned(from) % size()), line); }
    template <class T> T shfl_down(T value, unsigned by, EMULATOR_LINE) const { return emulator::exchanged(mask, value, lane_of(thread_rank() + by), line); }
    template <class T> T shfl_up(T value, unsigned by, EMULATOR_LINE) const { return emulator::exchanged(mask, value, by > thread_rank() ? emulator::lane() : lane_of(thread_rank() - by), line); }
    template <class T> T shfl_xor(T value, unsigned bits, EMULATOR_LINE) const { return emulator::exchanged(mask, value, lane_of(thread_rank() ^ bits), line); }
    int any(int yes, EMULATOR_LINE) const { return __any_sync(mask, yes, line); }
    int all(int yes, EMULATOR_LINE) const { return __all_sync(mask, yes, line); }
    unsigned ballot(int yes, EMULATOR_LINE) const { return ranks(__ballot_sync(mask, yes, line)); }
    template <class T> unsigned match_any(T value, EMULATOR_LINE) const { return ranks(__match_any_sync(mask, value, line)); }
    template <class T> unsigned match_all(T value, int& all, EMULATOR_LINE) const { return ranks(__match_all_sync(mask, value, &all, line)); }
    operator thread_group() const { return {mask}; }
    unsigned ranks(unsigned lanes) const
    {
        unsigned made = 0, rank = 0;
        for (unsigned i = 0; i < emulator::WARP; ++i)
            if (mask >> i & 1) made |= (lanes >> i & 1) << rank++;
        return made;
    }
};
inline coalesced_group coalesced_threads(EMULATOR_LINE) { return {emulator::converged(line)}; }

inline unsigned tile_mask(unsigned count) { return unsigned((1ull << count) - 1) << emulator::lane() / count * count; }

template <unsigned count, class Parent = void> struct thread_block_tile {
    thread_block_tile() = default;
    template <class Other> thread_block_tile(const thread_block_tile<count, Other>&) {}
    static_assert(count <= 32 && (count & (count - 1)) == 0, "beyond the emulator: a tile of more than a warp");
    static unsigned mask() { return tile_mask(count); }
    static coalesced_group lanes() { return {mask()}; }
    static void sync(EMULATOR_LINE) { emulator::warp_barrier(mask(), line); }
    static unsigned thread_rank() { return emulator::lane() % count; }
    static unsigned meta_group_rank() { return emulator::thread_number() / count; }
    static unsigned meta_group_size() { return (emulator::threads + count - 1) / count; }
    static constexpr unsigned size() { return count; }
    static constexpr unsigned num_threads() { return count; }
    template <class T> static T shfl(T value, int from, EMULATOR_LINE) { return __shfl_sync(mask(), value, from, count, line); }
    template <class T> static T shfl_down(T value, unsigned by, EMULATOR_LINE) { return __shfl_down_sync(mask(), value, by, count, line); }
    template <class T> static T shfl_up(T value, unsigned by, EMULATOR_LINE) { return __shfl_up_sync(mask(), value, by, count, line); }
    template <class T> static T shfl_xor(T value, int bits, EMULATOR_LINE) { return __shfl_xor_sync(mask(), value, bits, count, line); }
    static int any(int yes, EMULATOR_LINE) { return lanes().any(yes, line); }
    static int all(int yes, EMULATOR_LINE) { return lanes().all(yes, line); }
    static unsigned ballot(int yes, EMULATOR_LINE) { return lanes().ballot(yes, line); }
    template <class T> static unsigned match_any(T value, EMULATOR_LINE) { return lanes().match_any(value, line); }
    template <class T> static unsigned match_all(T value, int& all, EMULATOR_LINE) { return lanes().match_all(value, all, line); }
    operator thread_group() const { return {mask()}; }
};
template <unsigned count, class Group> thread_block_tile<count, Group> tiled_partition(const Group&) { return {}; }
template <class Group> thread_group tiled_partition(const Group&, unsigned count) { return {tile_mask(count)}; }
template <class Group> unsigned mask_of(const Group&) { return tile_mask(Group::size()); }
inline unsigned mask_of(const coalesced_group& group) { return group.mask; }
template <class Group, class Label> coalesced_group labeled_partition(const Group& group, Label label, EMULATOR_LINE) { return {__match_any_sync(mask_of(group), label, line)}; }
template <class Group> coalesced_group binary_partition(const Group& group, bool yes, EMULATOR_LINE) { return labeled_partition(group, int(yes), line); }

template <class T = void> struct plus : std::plus<T> {};
template <class T = void> struct bit_and : std::bit_and<T> {};
template <class T = void> struct bit_or : std::bit_or<T> {};
template <class T = void> struct bit_xor : std::bit_xor<T> {};
template <class T = void> struct less { template <class U> U operator()(U a, U b) const { return b < a ? b : a; } };
template <class T = void> struct greater { template <class U> U operator()(U a, U b) const { return a < b ? b : a; } };

template <class Group, class T, class Join> T reduce(const Group& group, T value, Join join, EMULATOR_LINE)
{
    T all = group.shfl(value, 0, line);
    for (unsigned i = 1; i < group.size(); ++i) all = T(join(all, group.shfl(value, int(i), line)));
    return all;
}
template <unsigned count, class Parent, class T, class Join> T reduce(const thread_block_tile<count, Parent>& tile, T value, Join join, EMULATOR_LINE)
{
    return tile.shfl(emulator::joined_lanes(tile.mask(), value, join, count, count, line), 0, line);
}
template <class Group, class T, class Join = plus<>> T inclusive_scan(const Group& group, T value, Join join = {}, EMULATOR_LINE)
{
    for (unsigned by = 1; by < group.size(); by *= 2) {
        const T other = group.shfl_up(value, by, line);
        if (group.thread_rank() >= by) value = T(join(other, value));
    }
    return value;
}
template <class Group, class T, class Join = plus<>> T exclusive_scan(const Group& group, T value, Join join = {}, EMULATOR_LINE)
{
    const T before = group.shfl_up(inclusive_scan(group, value, join, line), 1, line);
    return group.thread_rank() ? before : T();
}
template <class Group> void sync(const Group& group, EMULATOR_LINE) { group.sync(line); }

// A group's copy is shared out among its threads.
template <class Group, class T> void memcpy_async(const Group& group, T* to, const T* from, size_t bytes, EMULATOR_LINE)
{
    for (size_t i = group.thread_rank() * sizeof(T); i + sizeof(T) <= bytes; i += group.size() * sizeof(T))
        emulator::copy_async(reinterpret_cast<char*>(to) + i, reinterpret_cast<const char*>(from) + i, sizeof(T), 0, line);
    __pipeline_commit();
}
template <unsigned left, class Group> void wait_prior(const Group& group, EMULATOR_LINE) { emulator::wait_for_copies(left), group.sync(line); }
template <class Group> void wait(const Group& group, EMULATOR_LINE) { wait_prior<0>(group, line); }

}  // namespace cooperative_groups

// ---- <cuda/pipeline>, <cuda/barrier>, <cuda/atomic> ----

namespace cuda {

namespace std { using namespace ::std; }
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };
template <size_t bytes> struct aligned_size_t {
    size_t value;
    explicit aligned_size_t(size_t value) : value(value) {}
    operator size_t() const { return value; }
};

template <thread_scope scope = thread_scope_thread, unsigned stages = 1> struct pipeline_shared_state { emulator::Phases released[stages]; };
template <thread_scope scope = thread_scope_thread> struct pipeline {
    emulator::Phases* stages = nullptr;
    unsigned count = 1, committed = 0, waited = 0, acquired = 0, released = 0;
    void producer_acquire(EMULATOR_LINE)
    {
        if (stages && acquired >= count) emulator::wait_for_phase(stages[acquired % count], (acquired / count - 1) & 1, line);
        ++acquired;
    }
    void producer_commit() { __pipeline_commit(), ++committed; }
    void consumer_wait(EMULATOR_LINE)
    {
        emulator::wait_for_copies(committed - ++waited);
        if (scope != thread_scope_thread) emulator::barrier(line);  // until the copies of all threads are there
    }
    void consumer_release(EMULATOR_LINE) { if (stages) emulator::arrive(stages[released++ % count], line); }
};
inline pipeline<> make_pipeline() { return {}; }
template <class Group, thread_scope scope, unsigned stages> pipeline<scope> make_pipeline(const Group& group, pipeline_shared_state<scope, stages>* state, EMULATOR_LINE)
{
    for (auto& each : state->released)
        if (!group.thread_rank()) emulator::begin_phases(each, unsigned(group.size()));
    group.sync(line);
    return {state->released, stages};
}
template <unsigned left, thread_scope scope> void pipeline_consumer_wait_prior(pipeline<scope>& of) { emulator::wait_for_copies(left), of.waited = of.committed - left; }
template <class T, class Bytes, thread_scope scope> void memcpy_async(T* to, const T* from, Bytes bytes, pipeline<scope>&, EMULATOR_LINE) { emulator::copy_async(to, from, bytes, 0, line); }
template <class Group, class T, class Bytes, thread_scope scope> void memcpy_async(const Group& group, T* to, const T* from, Bytes bytes, pipeline<scope>&, EMULATOR_LINE)
{
    for (size_t i = group.thread_rank() * sizeof(T); i + sizeof(T) <= bytes; i += group.size() * sizeof(T))
        emulator::copy_async(reinterpret_cast<char*>(to) + i, reinterpret_cast<const char*>(from) + i, sizeof(T), 0, line);
}

template <thread_scope scope> struct barrier {
    emulator::Phases phases;
    struct arrival_token { unsigned parity; };
    arrival_token arrive(EMULATOR_LINE)
    {
        const arrival_token token{phases.mark & 1};
        emulator::arrive(phases, line);
        return token;
    }
    void wait(arrival_token token, EMULATOR_LINE) { emulator::wait_for_phase(phases, token.parity, line); }
    void arrive_and_wait(EMULATOR_LINE) { wait(arrive(line), line); }
};
template <thread_scope scope> void init(barrier<scope>* made, unsigned count) { emulator::begin_phases(made->phases, count); }
template <class T, class Bytes, thread_scope scope> void memcpy_async(T* to, const T* from, Bytes bytes, barrier<scope>& of, EMULATOR_LINE) { emulator::ptx::copy_for_phase(to, from, bytes, of.phases, line); }
template <class Group, class T, class Bytes, thread_scope scope> void memcpy_async(const Group& group, T* to, const T* from, Bytes bytes, barrier<scope>& of, EMULATOR_LINE)
{
    if (!group.thread_rank()) memcpy_async(to, from, bytes, of, line);
}

// <cuda/ptx>, as far as bulk copies need it.
namespace ptx {

inline constexpr struct space_global_t {} space_global;
inline constexpr struct space_shared_t {} space_shared;
inline constexpr struct space_cluster_t {} space_cluster;
inline constexpr struct sem_acquire_t {} sem_acquire;
inline constexpr struct sem_release_t {} sem_release;
inline constexpr struct sem_relaxed_t {} sem_relaxed;
inline constexpr struct scope_cta_t {} scope_cta;
inline constexpr struct scope_cluster_t {} scope_cluster;
template <int n> struct n32_t {};
inline unsigned place_of(const void* smem, int line) { return unsigned(emulator::offset_in_shared(smem, line)); }
inline uint64_t parity_of(const uint64_t* barrier, int line) { return emulator::ptx::phases_at(place_of(barrier, line), line).mark & 1; }
inline void fence_proxy_async() { emulator::ptx::fence_proxy_async(); }
template <class Space> void fence_proxy_async(Space) { fence_proxy_async(); }
inline void fence_mbarrier_init(sem_release_t, scope_cluster_t) {}
inline void mbarrier_init(uint64_t* barrier, unsigned count, EMULATOR_LINE) { emulator::ptx::mbarrier_init_shared_cta_b64(place_of(barrier, line), count, line); }
inline uint64_t mbarrier_arrive(uint64_t* barrier, EMULATOR_LINE)
{
    const uint64_t token = parity_of(barrier, line);
    emulator::ptx::mbarrier_arrive_shared_cta_b64(place_of(barrier, line), line);
    return token;
}
template <class Order, class Scope> uint64_t mbarrier_arrive(Order, Scope, space_shared_t, uint64_t* barrier, EMULATOR_LINE) { return mbarrier_arrive(barrier, line); }
template <class Order, class Scope> uint64_t mbarrier_arrive_expect_tx(Order, Scope, space_shared_t, uint64_t* barrier, unsigned bytes, EMULATOR_LINE)
{
    emulator::ptx::mbarrier_expect_tx_shared_cta_b64(place_of(barrier, line), bytes, line);
    return mbarrier_arrive(barrier, line);
}
inline bool mbarrier_try_wait_parity(uint64_t* barrier, unsigned parity, EMULATOR_LINE)
{
    emulator::wait_for_phase(emulator::ptx::phases_at(place_of(barrier, line), line), parity, line);
    return true;
}
inline bool mbarrier_try_wait(uint64_t* barrier, uint64_t token, EMULATOR_LINE) { return mbarrier_try_wait_parity(barrier, unsigned(token), line); }
template <class Space> void cp_async_bulk(Space, space_global_t, void* to, const void* from, unsigned bytes, uint64_t* barrier, EMULATOR_LINE)
{
    emulator::ptx::cp_async_bulk_shared_cta_global_mbarrier_complete_tx_bytes(place_of(to, line), from, bytes, place_of(barrier, line), line);
}
inline void cp_async_bulk(space_global_t, space_shared_t, void* to, const void* from, unsigned bytes, EMULATOR_LINE)
{
    emulator::ptx::cp_async_bulk_global_shared_cta_bulk_group(to, place_of(from, line), int(bytes), line);
}
inline void cp_async_bulk_commit_group() { emulator::ptx::cp_async_bulk_commit_group(); }
template <int n> void cp_async_bulk_wait_group(n32_t<n>) { emulator::ptx::cp_async_bulk_wait_group(n); }
template <int n> void cp_async_bulk_wait_group_read(n32_t<n>) { emulator::ptx::cp_async_bulk_wait_group_read(n); }

}  // namespace ptx

// The same by barriers, as <cuda/barrier> has it.
namespace device {

template <thread_scope scope> uint64_t* barrier_native_handle(barrier<scope>& of) { return reinterpret_cast<uint64_t*>(&of); }
template <thread_scope scope> void barrier_expect_tx(barrier<scope>& of, size_t bytes, EMULATOR_LINE)
{
    emulator::ptx::mbarrier_expect_tx_shared_cta_b64(ptx::place_of(&of, line), unsigned(bytes), line);
}
template <thread_scope scope> typename barrier<scope>::arrival_token barrier_arrive_tx(barrier<scope>& of, size_t count, size_t bytes, EMULATOR_LINE)
{
    barrier_expect_tx(of, bytes, line);
    const auto token = of.arrive(line);
    for (size_t i = 1; i < count; ++i) of.arrive(line);
    return token;
}
template <class T, class Bytes, thread_scope scope> void memcpy_async_tx(T* to, const T* from, Bytes bytes, barrier<scope>& of, EMULATOR_LINE)
{
    ptx::cp_async_bulk(ptx::space_shared, ptx::space_global, to, from, unsigned(bytes), barrier_native_handle(of), line);
}

namespace experimental {
template <thread_scope scope> void cp_async_bulk_global_to_shared(void* to, const void* from, unsigned bytes, barrier<scope>& of, EMULATOR_LINE)
{
    ptx::cp_async_bulk(ptx::space_shared, ptx::space_global, to, from, bytes, barrier_native_handle(of), line);
}
inline void cp_async_bulk_shared_to_global(void* to, const void* from, unsigned bytes, EMULATOR_LINE) { ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, to, from, bytes, line); }
inline void fence_proxy_async_shared_cta() { ptx::fence_proxy_async(); }
inline void cp_async_bulk_commit_group() { ptx::cp_async_bulk_commit_group(); }
template <int n> void cp_async_bulk_wait_group() { ptx::cp_async_bulk_wait_group(ptx::n32_t<n>{}); }
template <int n> void cp_async_bulk_wait_group_read() { ptx::cp_async_bulk_wait_group_read(ptx::n32_t<n>{}); }
}  // namespace experimental

}  // namespace device

enum memory_order { memory_order_relaxed, memory_order_consume, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };

// What an atomic operation orders, and for whom: a fence before it where it releases, one behind it where it acquires.
struct Ordering {
    const int order;
    const bool of_block, before = emulator::block_scope;
    Ordering(int order, thread_scope scope) : order(order), of_block(scope >= thread_scope_block)
    {
        if (order >= memory_order_release) emulator::races::fence(of_block);
        emulator::block_scope = of_block;
    }
    ~Ordering()
    {
        emulator::block_scope = before;
        if (order != memory_order_relaxed && order != memory_order_release) emulator::races::fence(of_block);
    }
};
inline void atomic_thread_fence(int order, thread_scope scope = thread_scope_system)
{
    if (order != memory_order_relaxed) emulator::races::fence(scope >= thread_scope_block);
}

template <class T, thread_scope scope = thread_scope_system> struct atomic_ref {
    T* address;
    explicit atomic_ref(T& of) : address(&of) {}
    T load(int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); return atomicAdd(address, T(0), line); }
    void store(T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); atomicExch(address, value, line); }
    T exchange(T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); return atomicExch(address, value, line); }
    T fetch_add(T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); return atomicAdd(address, value, line); }
    T fetch_sub(T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); return atomicSub(address, value, line); }
    T fetch_min(T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); return atomicMin(address, value, line); }
    T fetch_max(T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); return atomicMax(address, value, line); }
    T fetch_and(T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); return atomicAnd(address, value, line); }
    T fetch_or(T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { const Ordering ordering(order, scope); return atomicOr(address, value, line); }
    T operator++(int) const { return fetch_add(1); }
    T operator+=(T value) const { return fetch_add(value) + value; }
    bool compare_exchange_strong(T& expected, T value, int order = memory_order_seq_cst, EMULATOR_LINE) const
    {
        const Ordering ordering(order, scope);
        const T found = atomicCAS(address, expected, value, line), wanted = expected;
        expected = found;
        return found == wanted;
    }
    bool compare_exchange_weak(T& expected, T value, int order = memory_order_seq_cst, EMULATOR_LINE) const { return compare_exchange_strong(expected, value, order, line); }
};
template <class T, thread_scope scope = thread_scope_system> struct atomic {
    T value;
    atomic() = default;
    atomic(T value) : value(value) {}
    atomic_ref<T, scope> of() { return atomic_ref<T, scope>(value); }
    T load(int order = memory_order_seq_cst, EMULATOR_LINE) { return of().load(order, line); }
    void store(T given, int order = memory_order_seq_cst, EMULATOR_LINE) { of().store(given, order, line); }
    T exchange(T given, int order = memory_order_seq_cst, EMULATOR_LINE) { return of().exchange(given, order, line); }
    T fetch_add(T given, int order = memory_order_seq_cst, EMULATOR_LINE) { return of().fetch_add(given, order, line); }
    T fetch_sub(T given, int order = memory_order_seq_cst, EMULATOR_LINE) { return of().fetch_sub(given, order, line); }
    T fetch_min(T given, int order = memory_order_seq_cst, EMULATOR_LINE) { return of().fetch_min(given, order, line); }
    T fetch_max(T given, int order = memory_order_seq_cst, EMULATOR_LINE) { return of().fetch_max(given, order, line); }
    T operator++(int) { return fetch_add(1); }
};
template <class T = void> struct minimum { template <class U> U operator()(U a, U b) const { return b < a ? b : a; } };
template <class T = void> struct maximum { template <class U> U operator()(U a, U b) const { return a < b ? b : a; } };

}  // namespace cuda

// ---- CUB: a warp's lanes exchange, and a block's warps leave their parts in TempStorage ----

namespace cub {

struct Line {  // which no number of the caller's is taken for
    int number;
    explicit Line(int number) : number(number) {}
    operator int() const { return number; }
};
#define EMULATOR_AT Line line = Line(__builtin_LINE())

struct Sum { template <class T> T operator()(T a, T b) const { return a + b; } };
using Min = cuda::minimum<>;
using Max = cuda::maximum<>;
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int width = 32> struct WarpReduce {
    struct TempStorage { T unused[width]; };
    explicit WarpReduce(TempStorage&) {}
    template <class Join> T Reduce(T value, Join join, int valid, EMULATOR_AT) { return emulator::joined_lanes(cooperative_groups::tile_mask(width), value, join, width, unsigned(valid), line); }
    template <class Join> T Reduce(T value, Join join, EMULATOR_AT) { return Reduce(value, join, width, line); }
    T Sum(T value, EMULATOR_AT) { return Reduce(value, cub::Sum(), width, line); }
};

template <class T, int width = 32> struct WarpScan {
    struct TempStorage { T unused[width]; };
    explicit WarpScan(TempStorage&) {}
    template <class Join> void InclusiveScan(T value, T& made, Join join, EMULATOR_AT) { made = emulator::scanned_lanes(cooperative_groups::tile_mask(width), value, join, width, line); }
    void InclusiveSum(T value, T& made, EMULATOR_AT) { InclusiveScan(value, made, cub::Sum(), line); }
    void ExclusiveSum(T value, T& made, EMULATOR_AT)
    {
        T whole;
        InclusiveSum(value, whole, line);
        const T before = __shfl_up_sync(cooperative_groups::tile_mask(width), whole, 1, width, line);
        made = emulator::lane() % width ? before : T();
    }
};

template <class T, int x, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int y = 1, int z = 1> struct BlockReduce {
    static constexpr int THREADS = x * y * z, WARPS = (THREADS + 31) / 32;
    struct TempStorage { T parts[WARPS]; };
    TempStorage& held;
    explicit BlockReduce(TempStorage& held) : held(held) {}
    template <class Join> T Reduce(T value, Join join, int valid, EMULATOR_AT)
    {
        if (emulator::threads != THREADS) emulator::stop("cub::BlockReduce is of another number of threads than the block has", line);
        const int first = int(emulator::thread_number() / 32 * 32);
        value = emulator::joined_lanes(~0u, value, join, 32, unsigned(std::min(32, std::max(0, valid - first))), line);
        if (emulator::lane() == 0) held.parts[first / 32] = value;
        emulator::barrier(line);
        if (!emulator::thread_number())
            for (int warp = 1; warp < (std::min(valid, THREADS) + 31) / 32; ++warp) value = T(join(value, held.parts[warp]));
        return value;
    }
    template <class Join> T Reduce(T value, Join join, EMULATOR_AT) { return Reduce(value, join, THREADS, line); }
    template <int items, class Join> T Reduce(T (&values)[items], Join join, EMULATOR_AT)
    {
        T value = values[0];
        for (int i = 1; i < items; ++i) value = T(join(value, values[i]));
        return Reduce(value, join, THREADS, line);
    }
    T Sum(T value, EMULATOR_AT) { return Reduce(value, cub::Sum(), THREADS, line); }
    template <int items> T Sum(T (&values)[items], EMULATOR_AT) { return Reduce(values, cub::Sum(), line); }
};

template <class T, int x, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int y = 1, int z = 1> struct BlockScan {
    static constexpr int THREADS = x * y * z, WARPS = (THREADS + 31) / 32;
    struct TempStorage { T parts[WARPS]; };
    TempStorage& held;
    explicit BlockScan(TempStorage& held) : held(held) {}
    // What all threads before this one make together, told whether there are any, and the whole block.
    template <class Join> std::tuple<bool, T, T> before(T value, Join join, Line line)
    {
        if (emulator::threads != THREADS) emulator::stop("cub::BlockScan is of another number of threads than the block has", line);
        const unsigned thread = emulator::thread_number(), warp = thread / 32;
        const T inclusive = emulator::scanned_lanes(~0u, value, join, 32, line);
        T made = __shfl_up_sync(~0u, inclusive, 1, 32, line);
        if (thread % 32 == 31 || thread + 1 == THREADS) held.parts[warp] = inclusive;
        emulator::barrier(line);
        T all = held.parts[0];
        for (unsigned i = 1; i < WARPS; ++i) {
            if (i == warp) made = thread % 32 ? T(join(all, made)) : all;
            all = T(join(all, held.parts[i]));
        }
        return {thread > 0, made, all};
    }
    template <class Join> void InclusiveScan(T value, T& made, Join join, T& all, EMULATOR_AT)
    {
        auto [any, less, whole] = before(value, join, line);
        made = any ? T(join(less, value)) : value;
        all = whole;
    }
    template <class Join> void InclusiveScan(T value, T& made, Join join, EMULATOR_AT) { T all; InclusiveScan(value, made, join, all, line); }
    template <class Join> void ExclusiveScan(T value, T& made, T first, Join join, EMULATOR_AT)
    {
        auto [any, less, whole] = before(value, join, line);
        made = any ? T(join(first, less)) : first;
    }
    void InclusiveSum(T value, T& made, T& all, EMULATOR_AT) { InclusiveScan(value, made, cub::Sum(), all, line); }
    void InclusiveSum(T value, T& made, EMULATOR_AT) { InclusiveScan(value, made, cub::Sum(), line); }
    void ExclusiveSum(T value, T& made, EMULATOR_AT) { ExclusiveScan(value, made, T(), cub::Sum(), line); }
    void ExclusiveSum(T value, T& made, T& all, EMULATOR_AT)
    {
        const auto [any, less, whole] = before(value, cub::Sum(), line);
        made = any ? less : T();
        all = whole;
    }
    template <int items> void ExclusiveSum(T (&values)[items], T (&made)[items], EMULATOR_AT) { sums(values, made, false, line); }
    template <int items> void InclusiveSum(T (&values)[items], T (&made)[items], EMULATOR_AT) { sums(values, made, true, line); }
    template <int items> void sums(T (&values)[items], T (&made)[items], bool inclusive, Line line)
    {
        T sum = T(), running;
        for (const T& value : values) sum = T(sum + value);
        ExclusiveSum(sum, running, line);
        for (int i = 0; i < items; ++i) {
            const T value = values[i];
            made[i] = inclusive ? T(running + value) : running;
            running = T(running + value);
        }
    }
};

}  // namespace cub
