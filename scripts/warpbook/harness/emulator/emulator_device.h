// What CUDA's device code may call: mathematics, atomics, operations of a warp, half precision and tensor cores' tiles.
#pragma once

#include <tuple>

#include "emulator_half.h"

namespace emulator { template <class T> struct Same { using type = T; }; }  // a parameter that no type is deduced from

template <class T> T __ldg(const T* address, EMULATOR_LINE)
{
    emulator::races::read_only(address, sizeof(T), line);
    return *address;
}
template <class T> T __ldcg(const T* address) { return *address; }
template <class T> T __ldca(const T* address) { return *address; }
template <class T> T __ldcs(const T* address) { return *address; }
template <class T> void __stcs(T* address, typename emulator::Same<T>::type value) { *address = value; }
template <class T> T __ldcv(const T* address) { return *address; }
template <class T> T __ldlu(const T* address) { return *address; }
template <class T> void __stcg(T* address, typename emulator::Same<T>::type value) { *address = value; }
template <class T> void __stwb(T* address, typename emulator::Same<T>::type value) { *address = value; }
template <class T> void __stwt(T* address, typename emulator::Same<T>::type value) { *address = value; }
inline void __threadfence() { emulator::races::fence(); }
inline void __threadfence_block() { emulator::races::fence(true); }
inline void __threadfence_system() { emulator::races::fence(); }
inline void __nanosleep(unsigned) {}
inline long long clock64() { static long long ticks; return ++ticks; }
inline clock_t clock() { return clock_t(clock64()); }
inline bool __isShared(const void* place) { return emulator::is_shared(place); }
inline bool __isLocal(const void* place) { return emulator::is_local(place); }
inline bool __isConstant(const void*) { return false; }  // memory that is written once lies with the rest
inline bool __isGlobal(const void* place) { return !__isShared(place) && !__isLocal(place); }
#define __trap() emulator::stop("__trap() was called", __LINE__)
#define __brkpt() emulator::stop("__brkpt() was called", __LINE__)
#define __builtin_assume(fact) emulator::assume(fact, __LINE__)
namespace emulator { inline void assume(bool fact, int line) { if (!fact) stop("what __builtin_assume() was given is false", line); } }

namespace emulator {
inline bool block_scope;  // of the atomic operation that runs
struct BlockScope {
    BlockScope() { block_scope = true; }
    ~BlockScope() { block_scope = false; }
};
template <class T, class Change> __attribute__((no_sanitize("thread"))) T atomically(T* address, int line, bool monotone, Change change)
{
    races::atomic(address, sizeof(T), monotone, block_scope, line);
    atomic_ran = true;
    if (sampled && !blocks_met) blocks_met = !is_shared(address) && !is_local(address);
    T before = *address;
    *address = change(before);
    return before;
}
}  // namespace emulator

template <class T> T atomicAdd(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE)
{
    return emulator::atomically(address, line, false, [=](T old) {
        if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(old) + std::make_unsigned_t<T>(value));  // it wraps around
        else return T(old + value);
    });
}
template <class T> T atomicSub(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE)
{
    return emulator::atomically(address, line, false, [=](T old) { return T(std::make_unsigned_t<T>(old) - std::make_unsigned_t<T>(value)); });
}
template <class T> T atomicExch(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, false, [=](T) { return value; }); }
template <class T> T atomicMin(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, true, [=](T old) { return value < old ? value : old; }); }
template <class T> T atomicMax(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, true, [=](T old) { return old < value ? value : old; }); }
template <class T> T atomicAnd(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, true, [=](T old) { return old & value; }); }
template <class T> T atomicOr(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, true, [=](T old) { return old | value; }); }
template <class T> T atomicXor(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, false, [=](T old) { return old ^ value; }); }
template <class T> T atomicCAS(T* address, typename emulator::Same<T>::type compared, typename emulator::Same<T>::type value, EMULATOR_LINE)
{
    emulator::races::compares(address, sizeof(T));
    return emulator::atomically(address, line, false, [=](T old) { return old == compared ? value : old; });
}
inline unsigned atomicInc(unsigned* address, unsigned most, EMULATOR_LINE) { return emulator::atomically(address, line, false, [=](unsigned old) { return old >= most ? 0 : old + 1; }); }
inline unsigned atomicDec(unsigned* address, unsigned most, EMULATOR_LINE) { return emulator::atomically(address, line, false, [=](unsigned old) { return !old || old > most ? most : old - 1; }); }
#define EMULATOR_OF_BLOCK(name) template <class T> T name##_block(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { const emulator::BlockScope scope; return name(address, value, line); }
EMULATOR_OF_BLOCK(atomicAdd)
EMULATOR_OF_BLOCK(atomicSub)
EMULATOR_OF_BLOCK(atomicExch)
EMULATOR_OF_BLOCK(atomicMin)
EMULATOR_OF_BLOCK(atomicMax)
EMULATOR_OF_BLOCK(atomicAnd)
EMULATOR_OF_BLOCK(atomicOr)
EMULATOR_OF_BLOCK(atomicXor)
EMULATOR_OF_BLOCK(atomicInc)
EMULATOR_OF_BLOCK(atomicDec)
template <class T> T atomicCAS_block(T* address, typename emulator::Same<T>::type compared, typename emulator::Same<T>::type value, EMULATOR_LINE)
{
    const emulator::BlockScope scope;
    return atomicCAS(address, compared, value, line);
}
#define atomicAdd_system atomicAdd
#define atomicSub_system atomicSub
#define atomicExch_system atomicExch
#define atomicMin_system atomicMin
#define atomicMax_system atomicMax
#define atomicAnd_system atomicAnd
#define atomicOr_system atomicOr
#define atomicXor_system atomicXor
#define atomicInc_system atomicInc
#define atomicDec_system atomicDec
#define atomicCAS_system atomicCAS

// ---- Operations of a warp, and barriers that tell ----

namespace emulator {

template <class T> struct Exchange { T value; unsigned from; T result; };

// CUDA does not define what a lane gets from one that takes no part.
inline unsigned word_of_absent_lane(int line)
{
    static int last = -1;
    static unsigned word;
    if (line != last) last = line, word = unwritten_word("a lane that takes no part in the shuffle", line);
    return word;
}
template <class T> T exchanged(unsigned mask, T value, unsigned from, int line)
{
    Exchange<T> mine{value, from, value};
    together(mask, line, &mine, [](Lanes lanes, int line) {
        for (unsigned i = 0; i < WARP; ++i)
            if (lanes.has(i)) {
                auto& each = lanes.of<Exchange<T>>(i);
                if (lanes.has(each.from)) each.result = lanes.of<Exchange<T>>(each.from).value;
                else fill_unset(each.result, word_of_absent_lane(line));
            }
    });
    return mine.result;
}

// The lane that is asked, or the own one where that is outside the part of the warp.
inline unsigned asked(int lane_asked, unsigned width)
{
    const int begin = int(lane() / width * width);
    return lane_asked < begin || lane_asked >= begin + int(width) ? lane() : unsigned(lane_asked);
}

inline unsigned voted(unsigned mask, bool yes, int line)
{
    Exchange<unsigned> mine{yes, 0, 0};
    together(mask, line, &mine, [](Lanes lanes, int) {
        unsigned bits = 0;
        for (unsigned i = 0; i < WARP; ++i)
            if (lanes.has(i) && lanes.of<Exchange<unsigned>>(i).value) bits |= 1u << i;
        for (unsigned i = 0; i < WARP; ++i)
            if (lanes.has(i)) lanes.of<Exchange<unsigned>>(i).result = bits;
    });
    return mine.result;
}

inline void warp_barrier(unsigned mask, int line) { together(mask, line, nullptr, [](Lanes, int) {}, true); }

// How many threads of a block say yes at a barrier.
inline int counted(bool yes, int line)
{
    if (votes.block != block_number) votes = {}, votes.block = block_number;
    const unsigned long round = votes.rounds[thread_number()]++ & 1;
    votes.yes[round] += yes;
    barrier(line);
    const int count = votes.yes[round];
    barrier(line);
    votes.yes[round] = 0;
    return count;
}

inline unsigned alive() { return lanes_of(thread_number() / WARP * WARP, [](const Fiber& each) { return each.state != State::DONE; }); }

// The lanes that are here at once: those that come before all others of the block wait.
inline unsigned converged(int line)
{
    unsigned mine = 0;
    together(0, line, &mine, [](Lanes lanes, int) {
        for (unsigned i = 0; i < WARP; ++i)
            if (lanes.has(i)) lanes.of<unsigned>(i) = lanes.present;
    });
    return mine;
}

}  // namespace emulator

#define __syncthreads_count(yes) emulator::counted(yes, __LINE__)
#define __syncthreads_or(yes) (emulator::counted(yes, __LINE__) > 0)
#define __syncthreads_and(yes) (emulator::counted(!(yes), __LINE__) == 0)
inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) { emulator::warp_barrier(mask, line); }
inline unsigned __activemask(int line = __builtin_LINE()) { return emulator::converged(line); }
inline unsigned __ballot_sync(unsigned mask, int yes, int line = __builtin_LINE()) { return emulator::voted(mask, yes, line); }
inline int __any_sync(unsigned mask, int yes, int line = __builtin_LINE()) { return emulator::voted(mask, yes, line) != 0; }
inline int __all_sync(unsigned mask, int yes, int line = __builtin_LINE()) { return emulator::voted(mask, !yes, line) == 0; }
template <class T> T __shfl_sync(unsigned mask, T value, int from, int width = 32, int line = __builtin_LINE())
{
    return emulator::exchanged(mask, value, emulator::lane() / width * width + unsigned(from) % width, line);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, int line = __builtin_LINE())
{
    return emulator::exchanged(mask, value, emulator::asked(int(emulator::lane()) - int(by), width), line);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, int line = __builtin_LINE())
{
    return emulator::exchanged(mask, value, emulator::asked(int(emulator::lane() + by), width), line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE())
{
    return emulator::exchanged(mask, value, emulator::asked(int(emulator::lane()) ^ bits, width), line);
}
namespace emulator {
template <class T> struct Match { T value; unsigned lanes; };
template <class T> unsigned lanes_with_same(unsigned mask, T value, int line)
{
    Match<T> mine{value, 0};
    together(mask, line, &mine, [](Lanes lanes, int) {
        for (unsigned i = 0; i < WARP; ++i)
            for (unsigned j = 0; lanes.has(i) && j < WARP; ++j)
                if (lanes.has(j) && lanes.of<Match<T>>(j).value == lanes.of<Match<T>>(i).value) lanes.of<Match<T>>(i).lanes |= 1u << j;
    });
    return mine.lanes;
}
}  // namespace emulator
template <class T> unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) { return emulator::lanes_with_same(mask, value, line); }
template <class T> unsigned __match_all_sync(unsigned mask, T value, int* all, int line = __builtin_LINE())
{
    *all = emulator::lanes_with_same(mask, value, line) == (mask & emulator::alive());
    return *all ? mask : 0;
}
template <class T> T reduced_sync(unsigned mask, T value, int line, T (*join)(T, T))
{
    struct Mine { T value; T (*join)(T, T); } mine{value, join};
    emulator::together(mask, line, &mine, [](emulator::Lanes lanes, int) {
        const Mine& first = lanes.of<Mine>(unsigned(__builtin_ctz(lanes.present)));
        T all = first.value;
        for (unsigned i = 0; i < emulator::WARP; ++i)
            if (lanes.has(i) && &lanes.of<Mine>(i) != &first) all = first.join(all, lanes.of<Mine>(i).value);
        for (unsigned i = 0; i < emulator::WARP; ++i)
            if (lanes.has(i)) lanes.of<Mine>(i).value = all;
    });
    return mine.value;
}
template <class T> T __reduce_add_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return T(a + b); }); }
template <class T> T __reduce_max_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return a < b ? b : a; }); }
template <class T> T __reduce_and_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return T(a & b); }); }
template <class T> T __reduce_or_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return T(a | b); }); }
template <class T> T __reduce_xor_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return T(a ^ b); }); }
template <class T> T __reduce_min_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return b < a ? b : a; }); }

// ---- Tensor cores' tiles: a warp's lanes hold a thirty-second of a tile each, in order ----

namespace nvcuda::wmma {

namespace precision { struct tf32 {}; }
struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <class T> struct stored { using type = T; };
template <> struct stored<precision::tf32> { using type = float; };

template <class Use, int m, int n, int k, class T, class Layout = void> struct fragment {
    static constexpr int rows = std::is_same_v<Use, matrix_b> ? k : m, columns = std::is_same_v<Use, matrix_a> ? k : n;
    static_assert((m == 16 && n == 16 && (k == 16 || k == 8)) || (m * n == 256 && k == 16), "beyond the emulator: tiles of this shape");
    static constexpr int num_elements = rows * columns / 32;
    typename stored<T>::type x[num_elements];
};

inline float __float_to_tf32(float value) { return __uint_as_float((__float_as_uint(value) + 0x1000) & ~0x1FFFu); }

template <class Fragment, class Place> void each(Fragment& tile, Place place)
{
    for (int i = 0; i < Fragment::num_elements; ++i) {
        const int at = int(emulator::lane()) * Fragment::num_elements + i;
        place(tile.x[i], at / Fragment::columns, at % Fragment::columns);
    }
}

template <class Fragment, class T> void fill_fragment(Fragment& tile, T value)
{
    for (auto& element : tile.x) element = value;
}

template <class Use, int m, int n, int k, class T, class Layout, class Memory>
void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& tile, const Memory* memory, unsigned stride, int line = __builtin_LINE())
{
    emulator::warp_barrier(~0u, line);
    each(tile, [=](auto& element, int row, int column) {
        element = std::is_same_v<Layout, col_major> ? memory[column * stride + row] : memory[row * stride + column];
    });
}

template <int m, int n, int k, class T, class Memory>
void load_matrix_sync(fragment<accumulator, m, n, k, T>& tile, const Memory* memory, unsigned stride, layout_t layout, int line = __builtin_LINE())
{
    emulator::warp_barrier(~0u, line);
    each(tile, [=](auto& element, int row, int column) {
        element = layout == mem_col_major ? memory[column * stride + row] : memory[row * stride + column];
    });
}

template <int m, int n, int k, class T, class Memory>
void store_matrix_sync(Memory* memory, const fragment<accumulator, m, n, k, T>& tile, unsigned stride, layout_t layout, int line = __builtin_LINE())
{
    each(tile, [=](auto& element, int row, int column) {
        (layout == mem_col_major ? memory[column * stride + row] : memory[row * stride + column]) = element;
    });
    emulator::warp_barrier(~0u, line);
}

template <class D, class A, class B, class C> struct Product { D* d; const A* a; const B* b; const C* c; };

template <class Fragment> EMULATOR_UNWATCHED void gathered(const Fragment& part, unsigned lane, float* whole)
{
    for (int i = 0; i < Fragment::num_elements; ++i) whole[lane * Fragment::num_elements + i] = float(part.x[i]);
}
EMULATOR_UNWATCHED inline void truncated(float* values, int count)
{
    for (int i = 0; i < count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, values + i, 4);
        bits &= ~0x1FFFu;
        std::memcpy(values + i, &bits, 4);
    }
}
template <int m, int n, int k> EMULATOR_UNWATCHED void multiplied(const float* a, const float* b, float* d)
{
    for (int i = 0; i < m; ++i)
        for (int p = 0; p < k; ++p)
            for (int j = 0; j < n; ++j) d[i * n + j] += a[i * k + p] * b[p * n + j];
}

template <int m, int n, int k, class TD, class TA, class LA, class TB, class LB, class TC>
void mma_sync(fragment<accumulator, m, n, k, TD>& d, const fragment<matrix_a, m, n, k, TA, LA>& a,
              const fragment<matrix_b, m, n, k, TB, LB>& b, const fragment<accumulator, m, n, k, TC>& c, bool = false, int line = __builtin_LINE())
{
    using Given = Product<fragment<accumulator, m, n, k, TD>, fragment<matrix_a, m, n, k, TA, LA>, fragment<matrix_b, m, n, k, TB, LB>, fragment<accumulator, m, n, k, TC>>;
    Given mine{&d, &a, &b, &c};
    emulator::together(~0u, line, &mine, [](emulator::Lanes lanes, int line) {
        if (~lanes.present) emulator::stop("a tensor core's product by less than a whole warp", line);
        static float wholes[3][16 * 16 * 4];
        auto [whole_a, whole_b, whole_d] = wholes;
        for (unsigned i = 0; i < emulator::WARP; ++i) {
            const auto& each = lanes.of<Given>(i);
            gathered(*each.a, i, whole_a), gathered(*each.b, i, whole_b), gathered(*each.c, i, whole_d);
        }
        if (std::is_same_v<TA, precision::tf32>) truncated(whole_a, m * k), truncated(whole_b, k * n);
        multiplied<m, n, k>(whole_a, whole_b, whole_d);
        for (unsigned i = 0; i < emulator::WARP; ++i) {
            auto& out = *lanes.of<Given>(i).d;
            for (int e = 0; e < out.num_elements; ++e) out.x[e] = whole_d[i * out.num_elements + e];
        }
    });
}

}  // namespace nvcuda::wmma
using nvcuda::wmma::__float_to_tf32;

// ---- PTX that may stand in a source: see translation.py. Sums are rounded here, where a tensor core cuts off. ----

namespace emulator::ptx {

// A number as one of another type, as a register holds it: its bits where the sizes are the same, else its value.
template <class To, class From> To as(From from)
{
    if constexpr (std::is_same_v<To, From>) return from;
    else if constexpr (std::is_pointer_v<From>) return To(reinterpret_cast<uintptr_t>(from));
    else if constexpr (std::is_pointer_v<To>) return reinterpret_cast<To>(uintptr_t(from));
    else if constexpr (sizeof(To) == sizeof(From) && std::is_floating_point_v<To> != std::is_floating_point_v<From>) return same_bits<To>(from);
    else return To(from);
}
template <class To, class From> void put(To& to, From from) { to = as<To>(from); }

// An address so many bytes on.
template <class Place> Place moved(Place place, long bytes)
{
    if constexpr (std::is_pointer_v<Place>) return reinterpret_cast<Place>(reinterpret_cast<uintptr_t>(place) + bytes);
    else return place + Place(bytes);
}

template <class T> volatile T* strong(T* address) { return address; }  // what a flag is read and written through

// Numbers in memory, aligned to all of them.
template <class T, int count, class Place> T* memory(Place place, int line)
{
    T* const made = as<T*>(place);
    if (reinterpret_cast<uintptr_t>(made) % (count * sizeof(T))) stop("an access in PTX to an address that its size does not align", line);
    return made;
}

inline unsigned lop3(unsigned a, unsigned b, unsigned c, unsigned table)
{
    unsigned made = 0;
    for (int i = 0; i < 32; ++i) made |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
    return made;
}
// So many bits of a number from a place on, the last of them its sign where it has one; and the same bits of another.
template <class T> T bits_of(T number, unsigned place, unsigned count)
{
    constexpr unsigned ALL = 8 * sizeof(T);
    place &= 255, count &= 255;
    if (!count) return 0;
    if (place >= ALL) return std::is_signed_v<T> && number < 0 ? T(-1) : T(0);
    count = std::min(count, ALL - place);
    return T(T(std::make_unsigned_t<T>(number) << (ALL - place - count)) >> (ALL - count));
}
template <class T> T bits_in(T bits, T number, unsigned place, unsigned count)
{
    for (unsigned i = 0; i < (count & 255) && (place & 255) + i < 8 * sizeof(T); ++i) {
        const T mask = T(T(1) << ((place & 255) + i));
        number = T((number & ~mask) | (bits >> i & 1 ? mask : 0));
    }
    return number;
}

enum class Small { HALF, BFLOAT, TF32 };
struct Tile { float* d[4]; float c[4]; unsigned a[4], b[2]; };  // a lane's part of a (16 x k) * b (k x 8) + c

template <int k, Small kind> EMULATOR_UNWATCHED void multiplied(Lanes lanes)
{
    static float a[16][k], b[k][8], d[16][8];
    constexpr bool halves = kind != Small::TF32;
    constexpr int registers = halves ? k / 4 : k / 2;  // of a; half as many of b
    const auto number = [](uint16_t bits) { return kind == Small::HALF ? from_half(bits) : from_bfloat(bits); };
    auto put = [&](unsigned bits, int at, auto place) {
        if (halves) {
            place(2 * (at % 4) + at / 4 * 8) = number(uint16_t(bits));
            place(2 * (at % 4) + at / 4 * 8 + 1) = number(uint16_t(bits >> 16));
        } else {
            bits &= ~0x1FFFu;
            std::memcpy(&place(at % 4 + at / 4 * 4), &bits, 4);
        }
    };
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Tile& tile = lanes.of<Tile>(lane);
        const int g = lane / 4, t = lane % 4;
        for (int r = 0; r < registers; ++r) put(tile.a[r], t + r / 2 * 4, [&](int i) -> float& { return a[g + r % 2 * 8][i]; });
        for (int r = 0; r < registers / 2; ++r) put(tile.b[r], t + r * 4, [&](int i) -> float& { return b[i][g]; });
        for (int i = 0; i < 4; ++i) d[g + i / 2 * 8][2 * t + i % 2] = tile.c[i];
    }
    nvcuda::wmma::multiplied<16, 8, k>(*a, *b, *d);
    for (unsigned lane = 0; lane < WARP; ++lane)
        for (int i = 0; i < 4; ++i) *lanes.of<Tile>(lane).d[i] = d[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
}

template <int k, Small kind> void multiply(Tile mine, int line)
{
    together(~0u, line, &mine, [](Lanes lanes, int line) {
        if (~lanes.present) stop("a tensor core's product by less than a whole warp", line);
        multiplied<k, kind>(lanes);
    });
}

inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1, float c0, float c1, float c2, float c3, int line = __builtin_LINE())
{
    multiply<16, Small::HALF>({{&d0, &d1, &d2, &d3}, {c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}}, line);
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1, float c0, float c1, float c2, float c3, int line = __builtin_LINE())
{
    multiply<16, Small::BFLOAT>({{&d0, &d1, &d2, &d3}, {c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}}, line);
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned b0,
    float c0, float c1, float c2, float c3, int line = __builtin_LINE())
{
    multiply<8, Small::HALF>({{&d0, &d1, &d2, &d3}, {c0, c1, c2, c3}, {a0, a1}, {b0}}, line);
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1, float c0, float c1, float c2, float c3, int line = __builtin_LINE())
{
    multiply<8, Small::TF32>({{&d0, &d1, &d2, &d3}, {c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}}, line);
}
inline void cvt_rna_tf32_f32(unsigned& to, float value) { to = __float_as_uint(nvcuda::wmma::__float_to_tf32(value)); }
inline void bar_sync_all(unsigned, int line = __builtin_LINE()) { barrier(line); }  // whatever its number: of the whole block
inline void bar_warp_sync(unsigned mask, int line = __builtin_LINE()) { warp_barrier(mask, line); }
inline void setmaxnreg_inc_sync_aligned_u32(unsigned) {}
inline void setmaxnreg_dec_sync_aligned_u32(unsigned) {}
inline void griddepcontrol_wait() {}  // kernels run one after another
inline void griddepcontrol_launch_dependents() {}
inline void bar_sync(unsigned number, unsigned count, int line = __builtin_LINE()) { meet(number, count, true, line); }
inline void bar_arrive(unsigned number, unsigned count, int line = __builtin_LINE()) { meet(number, count, false, line); }
inline Phases& phases_at(unsigned place, int line)
{
    if (place % 8) stop("an mbarrier at a place that is no multiple of 8", line);
    return *reinterpret_cast<Phases*>(at_offset(place, 8, line));
}
inline void mbarrier_init_shared_cta_b64(unsigned place, unsigned of, int line = __builtin_LINE()) { begin_phases(phases_at(place, line), of); }
inline void mbarrier_arrive_shared_cta_b64(unsigned place, int line = __builtin_LINE()) { arrive(phases_at(place, line), line); }
inline void mbarrier_arrive_shared_cta_b64(uint64_t&, unsigned place, int line = __builtin_LINE()) { arrive(phases_at(place, line), line); }  // its state is for mbarrier.wait
inline void mbarrier_try_wait_parity_shared_cta_b64(bool& done, unsigned place, unsigned parity, int line = __builtin_LINE())
{
    wait_for_phase(phases_at(place, line), parity, line);
    done = true;
}
void mbarrier_expect_tx_shared_cta_b64(unsigned place, unsigned bytes, int line = __builtin_LINE());
inline void mbarrier_arrive_expect_tx_shared_cta_b64(unsigned place, unsigned bytes, int line = __builtin_LINE())
{
    mbarrier_expect_tx_shared_cta_b64(place, bytes, line);
    mbarrier_arrive_shared_cta_b64(place, line);
}
inline void mbarrier_arrive_expect_tx_shared_cta_b64(uint64_t&, unsigned place, unsigned bytes, int line = __builtin_LINE())
{
    mbarrier_arrive_expect_tx_shared_cta_b64(place, bytes, line);
}
template <class T> void prefetch_global_L1(const T*) {}
template <class T> void prefetch_global_L2(const T*) {}

// One, two or four 8 x 8 tiles of halves: lanes 8 * i and on say where the rows of tile i are, and lane l has of each tile,
// in row l / 4, columns 2 * (l % 4) and the next; of a transposed tile the same of its columns.
struct Rows { unsigned row; unsigned* words[4]; unsigned tiles; bool transposed; };
void ldmatrix(Rows& mine, int line);
void stmatrix(Rows& mine, int line);
template <bool transposed> void ldmatrix(int line, unsigned& a, unsigned row)
{
    Rows mine{row, {&a}, 1, transposed};
    ldmatrix(mine, line);
}
template <bool transposed> void ldmatrix(int line, unsigned& a, unsigned& b, unsigned row)
{
    Rows mine{row, {&a, &b}, 2, transposed};
    ldmatrix(mine, line);
}
template <bool transposed> void ldmatrix(int line, unsigned& a, unsigned& b, unsigned& c, unsigned& d, unsigned row)
{
    Rows mine{row, {&a, &b, &c, &d}, 4, transposed};
    ldmatrix(mine, line);
}
template <bool transposed, class... Words> void stmatrix(int line, unsigned row, Words... given)
{
    unsigned words[] = {given...};
    Rows mine{row, {}, sizeof...(given), transposed};
    for (unsigned tile = 0; tile < mine.tiles; ++tile) mine.words[tile] = words + tile;
    stmatrix(mine, line);
}

// A copy to shared memory arrives when its thread waits for it; until then nobody has written there.
void cp_async_cg_shared_global(unsigned place, const void* source, int bytes, int line = __builtin_LINE());
// Bytes beyond those that are read are filled with zeros.
void cp_async_filled(unsigned place, const void* source, int bytes, int read, int line = __builtin_LINE());
inline void cp_async_ca_shared_global(unsigned place, const void* source, int bytes, int line = __builtin_LINE()) { cp_async_filled(place, source, bytes, bytes, line); }
void cp_async_commit_group();
void cp_async_wait_group(unsigned left);
void cp_async_wait_all();
// The thread arrives at an mbarrier, and its copies come before the end of that phase.
void cp_async_mbarrier_arrive_noinc_shared_cta_b64(unsigned place, int line = __builtin_LINE());
// What threads wrote is seen by bulk copies behind such a fence.
void fence_proxy_async();
inline void fence_proxy_async_shared_cta() { fence_proxy_async(); }

// A copy from shared memory to the device's is made when its thread waits for it, of what stands there then.
void cp_async_bulk_global_shared_cta_bulk_group(void* to, unsigned place, int bytes, int line = __builtin_LINE());
void cp_async_bulk_commit_group();
void cp_async_bulk_wait_group(unsigned left);
inline void cp_async_bulk_wait_group_read(unsigned left) { cp_async_bulk_wait_group(left); }

// Copies that the phase of an mbarrier waits for beside threads. A bulk copy's bytes are those that the phase expects.
void copy_for_phase(void* to, const void* from, size_t bytes, Phases& here, int line);
void cp_async_bulk_shared_cta_global_mbarrier_complete_tx_bytes(unsigned place, const void* source, unsigned bytes, unsigned barrier, int line = __builtin_LINE());

// A lane's part of d += a (64 x 16) * b (16 x columns), of which its warp has 16 rows. Sums are NaN until the thread has
// waited for the group that they belong to.
struct Ahead { float* d[128]; int columns; unsigned a[4]; uint64_t b; bool add; };
void multiply_ahead(Ahead& mine, int line);
inline void wgmma_fence_sync_aligned() {}
void wgmma_commit_group_sync_aligned();
void wgmma_wait_group_sync_aligned(unsigned left);

template <int columns, class Operands, size_t... sums>
void wgmma_m64k16(int line, const Operands& operands, std::index_sequence<sums...>)
{
    constexpr int behind = sizeof...(sums);
    static_assert(behind == columns / 2 && std::tuple_size_v<Operands> == behind + 9, "beyond the emulator: operands of wgmma");
    if (!std::get<behind + 6>(operands) || !std::get<behind + 7>(operands) || std::get<behind + 8>(operands))
        beyond("wgmma that negates or transposes", line);
    Ahead mine{{&std::get<sums>(operands)...}, columns,
               {std::get<behind>(operands), std::get<behind + 1>(operands), std::get<behind + 2>(operands), std::get<behind + 3>(operands)},
               std::get<behind + 4>(operands), bool(std::get<behind + 5>(operands))};
    multiply_ahead(mine, line);
}
template <int columns, class... Operands> void wgmma(int line, Operands&&... operands)
{
    wgmma_m64k16<columns>(line, std::forward_as_tuple(operands...), std::make_index_sequence<columns / 2>());
}

}  // namespace emulator::ptx

inline size_t __cvta_generic_to_shared(const void* place, int line = __builtin_LINE()) { return emulator::offset_in_shared(place, line); }
inline size_t __cvta_generic_to_global(const void* place) { return reinterpret_cast<size_t>(place); }
inline void* __cvta_global_to_generic(size_t place) { return reinterpret_cast<void*>(place); }
inline void* __cvta_shared_to_generic(size_t place, int line = __builtin_LINE()) { return emulator::at_offset(place, 1, line); }
