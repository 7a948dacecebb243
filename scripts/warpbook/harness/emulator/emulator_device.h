// What CUDA's device code may call: mathematics, atomics, operations of a warp, half precision and tensor cores' tiles.
#pragma once

#include <tuple>

#include "emulator.h"

// Mixed types, as CUDA's have them.
template <class A, class B> constexpr auto min(A a, B b) -> std::common_type_t<A, B> { using T = std::common_type_t<A, B>; return T(b) < T(a) ? T(b) : T(a); }
template <class A, class B> constexpr auto max(A a, B b) -> std::common_type_t<A, B> { using T = std::common_type_t<A, B>; return T(a) < T(b) ? T(b) : T(a); }

inline int __float_as_int(float value) { int bits; std::memcpy(&bits, &value, 4); return bits; }
inline unsigned __float_as_uint(float value) { unsigned bits; std::memcpy(&bits, &value, 4); return bits; }
inline float __int_as_float(int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline float __uint_as_float(unsigned bits) { float value; std::memcpy(&value, &bits, 4); return value; }
template <class T> T __ldg(const T* address) { return *address; }
template <class T> T __ldcg(const T* address) { return *address; }
template <class T> T __ldca(const T* address) { return *address; }
template <class T> T __ldcs(const T* address) { return *address; }
template <class T> void __stcs(T* address, T value) { *address = value; }
template <class T> void __stcg(T* address, T value) { *address = value; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1 / a; }
#define __expf expf  // the C library declares functions of these names
#define __logf logf
#define __log2f log2f
#define __exp2f exp2f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
#define __sincosf sincosf
inline float rsqrtf(float a) { return 1 / std::sqrt(a); }
inline float cospif(float a) { return std::cos(a * float(M_PI)); }
inline float sinpif(float a) { return std::sin(a * float(M_PI)); }
inline float __saturatef(float a) { return std::min(std::max(a, 0.f), 1.f); }
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t)a * b >> 32); }
inline int __float2int_rn(float a) { return int(std::nearbyint(a)); }
inline int __float2int_rz(float a) { return int(a); }
inline int __float2int_rd(float a) { return int(std::floor(a)); }
inline int __float2int_ru(float a) { return int(std::ceil(a)); }
inline float __int2float_rn(int a) { return float(a); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned chosen)
{
    const uint64_t bytes = uint64_t(b) << 32 | a;
    unsigned made = 0;
    for (int i = 0; i < 4; ++i) made |= unsigned(bytes >> (chosen >> 4 * i & 7) * 8 & 255) << 8 * i;
    return made;
}
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __clz(int a) { return a ? __builtin_clz(a) : 32; }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline void __threadfence() { emulator::races::fence(); }
inline void __threadfence_block() { emulator::races::fence(); }
inline void __threadfence_system() { emulator::races::fence(); }
inline void __nanosleep(unsigned) {}
inline long long clock64() { static long long ticks; return ++ticks; }

namespace emulator {
template <class T> struct Same { using type = T; };
template <class T, class Change> __attribute__((no_sanitize("thread"))) T atomically(T* address, int line, bool monotone, Change change)
{
    races::atomic(address, sizeof(T), monotone, line);
    T before = *address;
    *address = change(before);
    return before;
}
}  // namespace emulator

template <class T> T atomicAdd(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, false, [=](T old) { return T(old + value); }); }
template <class T> T atomicSub(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, false, [=](T old) { return T(old - value); }); }
template <class T> T atomicExch(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, false, [=](T) { return value; }); }
template <class T> T atomicMin(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, true, [=](T old) { return value < old ? value : old; }); }
template <class T> T atomicMax(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, true, [=](T old) { return old < value ? value : old; }); }
template <class T> T atomicAnd(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, true, [=](T old) { return old & value; }); }
template <class T> T atomicOr(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, true, [=](T old) { return old | value; }); }
template <class T> T atomicXor(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return emulator::atomically(address, line, false, [=](T old) { return old ^ value; }); }
template <class T> T atomicCAS(T* address, typename emulator::Same<T>::type compared, typename emulator::Same<T>::type value, EMULATOR_LINE)
{
    return emulator::atomically(address, line, false, [=](T old) { return old == compared ? value : old; });
}
template <class T> T atomicAdd_block(T* address, typename emulator::Same<T>::type value, EMULATOR_LINE) { return atomicAdd(address, value, line); }

// ---- Operations of a warp, and barriers that tell ----

namespace emulator {

template <class T> struct Exchange { T value; unsigned from; T result; };

template <class T> T exchanged(unsigned mask, T value, unsigned from, int line)
{
    Exchange<T> mine{value, from, value};
    together(mask, line, &mine, [](Lanes lanes, int) {
        for (unsigned i = 0; i < WARP; ++i)
            if (lanes.has(i)) {
                auto& each = lanes.of<Exchange<T>>(i);
                if (lanes.has(each.from)) each.result = lanes.of<Exchange<T>>(each.from).value;
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

inline void warp_barrier(unsigned mask, int line) { together(mask, line, nullptr, [](Lanes, int) {}); }

// How many threads of a block say yes at a barrier.
inline int counted(bool yes, int line)
{
    static int votes[2];
    static unsigned long rounds[MOST_THREADS], block;
    if (block != block_number) block = block_number, std::memset(rounds, 0, sizeof rounds), votes[0] = votes[1] = 0;
    const unsigned long round = rounds[thread_number()]++ & 1;
    votes[round] += yes;
    barrier(line);
    const int count = votes[round];
    barrier(line);
    votes[round] = 0;
    return count;
}

inline unsigned alive() { return lanes_of(thread_number() / WARP * WARP, [](const Fiber& each) { return each.state != State::DONE; }); }

}  // namespace emulator

#define __syncthreads_count(yes) emulator::counted(yes, __LINE__)
#define __syncthreads_or(yes) (emulator::counted(yes, __LINE__) > 0)
#define __syncthreads_and(yes) (emulator::counted(!(yes), __LINE__) == 0)
inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) { emulator::warp_barrier(mask, line); }
inline unsigned __activemask() { return emulator::alive(); }
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
template <class T> T reduced_sync(unsigned mask, T value, int line, T (*joined)(T, T))
{
    T all = value;
    bool begun = false;
    for (unsigned i = 0; i < emulator::WARP; ++i) {
        if (!(mask >> i & 1)) continue;
        const T other = emulator::exchanged(mask, value, i, line);
        all = begun ? joined(all, other) : other;
        begun = true;
    }
    return all;
}
template <class T> T __reduce_add_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return T(a + b); }); }
template <class T> T __reduce_max_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return a < b ? b : a; }); }
template <class T> T __reduce_min_sync(unsigned mask, T value, int line = __builtin_LINE()) { return reduced_sync<T>(mask, value, line, [](T a, T b) { return b < a ? b : a; }); }

namespace cooperative_groups {
struct thread_block {
    static void sync(int line = __builtin_LINE()) { emulator::barrier(line); }
    static unsigned thread_rank() { return emulator::thread_number(); }
    static unsigned size() { return emulator::threads; }
    static unsigned num_threads() { return emulator::threads; }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }
template <unsigned count> struct thread_block_tile {
    static_assert(count <= 32 && (count & (count - 1)) == 0, "beyond the emulator: a tile of more than a warp");
    static unsigned mask() { return unsigned((1ull << count) - 1) << emulator::lane() / count * count; }
    static void sync(int line = __builtin_LINE()) { emulator::warp_barrier(mask(), line); }
    static unsigned thread_rank() { return emulator::lane() % count; }
    static unsigned meta_group_rank() { return emulator::thread_number() / count; }
    static constexpr unsigned size() { return count; }
    static constexpr unsigned num_threads() { return count; }
    template <class T> static T shfl(T value, int from, int line = __builtin_LINE()) { return __shfl_sync(mask(), value, from, count, line); }
    template <class T> static T shfl_down(T value, unsigned by, int line = __builtin_LINE()) { return __shfl_down_sync(mask(), value, by, count, line); }
    template <class T> static T shfl_up(T value, unsigned by, int line = __builtin_LINE()) { return __shfl_up_sync(mask(), value, by, count, line); }
    template <class T> static T shfl_xor(T value, int bits, int line = __builtin_LINE()) { return __shfl_xor_sync(mask(), value, bits, count, line); }
    static int any(int yes, int line = __builtin_LINE()) { return __any_sync(mask(), yes, line); }
    static int all(int yes, int line = __builtin_LINE()) { return __all_sync(mask(), yes, line); }
    static unsigned ballot(int yes, int line = __builtin_LINE()) { return __ballot_sync(mask(), yes, line) >> emulator::lane() / count * count; }
};
template <unsigned count, class Group> thread_block_tile<count> tiled_partition(const Group&) { return {}; }
template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <unsigned count, class T, class Join> T reduce(const thread_block_tile<count>& tile, T value, Join join, int line = __builtin_LINE())
{
    for (unsigned by = count / 2; by; by /= 2) value = join(value, tile.shfl_xor(value, int(by), line));
    return value;
}
template <class Group> void sync(const Group& group, int line = __builtin_LINE()) { group.sync(line); }
}  // namespace cooperative_groups

// ---- Half precision ----

namespace emulator {
#ifdef __F16C__
// The compiler's own operations: <immintrin.h>, which names them, takes longer to read than all else here.
typedef float Singles __attribute__((vector_size(16)));
typedef short Halves __attribute__((vector_size(16)));
#endif
EMULATOR_UNWATCHED inline uint16_t to_half(float value)
{
#ifdef __F16C__
    return uint16_t(__builtin_ia32_vcvtps2ph(Singles{value}, 0)[0]);
#else
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return uint16_t(sign | 0x7E00);
    if (rest >= 0x477FF000) return uint16_t(sign | 0x7C00);  // rounds to more than the largest
    if (rest < 0x38800000) {  // below the smallest normal number: units of 2**-24
        float magnitude;
        std::memcpy(&magnitude, &rest, 4);
        return uint16_t(sign | uint32_t(std::nearbyint(magnitude * 16777216.f)));
    }
    const uint32_t rounded = rest + 0xFFF + (rest >> 13 & 1);
    return uint16_t(sign | (rounded - 0x38000000) >> 13);
#endif
}
EMULATOR_UNWATCHED inline float from_half(uint16_t bits)
{
#ifdef __F16C__
    return __builtin_ia32_vcvtph2ps(Halves{short(bits)})[0];
#else
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3FF;
    uint32_t made = sign | (exponent + 112) << 23 | fraction << 13;
    if (exponent == 31) made = sign | 0x7F800000 | fraction << 13;
    float value;
    if (exponent) std::memcpy(&value, &made, 4);
    else value = (sign ? -1.f : 1.f) * float(fraction) / 16777216.f;
    return value;
#endif
}
}  // namespace emulator

struct __half {
    uint16_t bits;
    __half() = default;
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>> __half(Number value) : bits(emulator::to_half(float(value))) {}
    operator float() const { return emulator::from_half(bits); }
    __half& operator+=(__half other) { return *this = __half(float(*this) + float(other)); }
    __half& operator-=(__half other) { return *this = __half(float(*this) - float(other)); }
    __half& operator*=(__half other) { return *this = __half(float(*this) * float(other)); }
    __half& operator/=(__half other) { return *this = __half(float(*this) / float(other)); }
};
using half = __half;
using __half_raw = __half;
inline __half operator+(const __half& a, const __half& b) { return float(a) + float(b); }
inline __half operator-(const __half& a, const __half& b) { return float(a) - float(b); }
inline __half operator*(const __half& a, const __half& b) { return float(a) * float(b); }
inline __half operator/(const __half& a, const __half& b) { return float(a) / float(b); }
inline __half operator-(const __half& a) { return -float(a); }
inline bool operator<(const __half& a, const __half& b) { return float(a) < float(b); }
inline bool operator>(const __half& a, const __half& b) { return float(a) > float(b); }
inline bool operator<=(const __half& a, const __half& b) { return float(a) <= float(b); }
inline bool operator>=(const __half& a, const __half& b) { return float(a) >= float(b); }
inline bool operator==(const __half& a, const __half& b) { return float(a) == float(b); }
inline bool operator!=(const __half& a, const __half& b) { return float(a) != float(b); }
inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline __half __double2half(double a) { return a; }
inline float __half2float(__half a) { return a; }
inline __half __int2half_rn(int a) { return a; }
inline int __half2int_rn(__half a) { return int(std::nearbyint(float(a))); }
inline __half __ushort_as_half(unsigned short a) { __half made; made.bits = a; return made; }
inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline __half __hadd(__half a, __half b) { return a + b; }
inline __half __hadd_rn(__half a, __half b) { return a + b; }
inline __half __hsub(__half a, __half b) { return a - b; }
inline __half __hmul(__half a, __half b) { return a * b; }
inline __half __hmul_rn(__half a, __half b) { return a * b; }
inline __half __hdiv(__half a, __half b) { return a / b; }
inline __half __hneg(__half a) { return -a; }
inline __half __habs(__half a) { return std::fabs(float(a)); }
inline __half __hfma(__half a, __half b, __half c) { return float(a) * float(b) + float(c); }
inline __half __hmax(__half a, __half b) { return a < b ? b : a; }
inline __half __hmin(__half a, __half b) { return b < a ? b : a; }
inline bool __hgt(__half a, __half b) { return a > b; }
inline bool __hlt(__half a, __half b) { return a < b; }
inline bool __hge(__half a, __half b) { return a >= b; }
inline bool __hle(__half a, __half b) { return a <= b; }
inline bool __heq(__half a, __half b) { return a == b; }
inline bool __hisnan(__half a) { return std::isnan(float(a)); }

struct alignas(4) __half2 {
    __half x, y;
    __half2() = default;
    __half2(__half a, __half b) : x(a), y(b) {}
    __half2& operator+=(__half2 other) { x += other.x, y += other.y; return *this; }
    __half2& operator*=(__half2 other) { x *= other.x, y *= other.y; return *this; }
};
using half2 = __half2;
inline __half2 operator+(const __half2& a, const __half2& b) { return {a.x + b.x, a.y + b.y}; }
inline __half2 operator-(const __half2& a, const __half2& b) { return {a.x - b.x, a.y - b.y}; }
inline __half2 operator*(const __half2& a, const __half2& b) { return {a.x * b.x, a.y * b.y}; }
inline __half2 operator/(const __half2& a, const __half2& b) { return {a.x / b.x, a.y / b.y}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {a, a}; }
inline __half2 __floats2half2_rn(float a, float b) { return {a, b}; }
inline __half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline float __low2float(__half2 a) { return a.x; }
inline float __high2float(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half2 __hadd2(__half2 a, __half2 b) { return a + b; }
inline __half2 __hsub2(__half2 a, __half2 b) { return a - b; }
inline __half2 __hmul2(__half2 a, __half2 b) { return a * b; }
inline __half2 __h2div(__half2 a, __half2 b) { return a / b; }
inline __half2 __hneg2(__half2 a) { return {-a.x, -a.y}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }

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

struct Tile { float* d[4]; float c[4]; unsigned a[4], b[2]; };  // a lane's part of a (16 x k) * b (k x 8) + c

template <int k, bool halves> EMULATOR_UNWATCHED void multiplied(Lanes lanes)
{
    static float a[16][k], b[k][8], d[16][8];
    constexpr int registers = halves ? k / 4 : k / 2;  // of a; half as many of b
    auto put = [](unsigned bits, int at, auto place) {
        if (halves) {
            place(2 * (at % 4) + at / 4 * 8) = from_half(uint16_t(bits));
            place(2 * (at % 4) + at / 4 * 8 + 1) = from_half(uint16_t(bits >> 16));
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

template <int k, bool halves> void multiply(Tile mine, int line)
{
    together(~0u, line, &mine, [](Lanes lanes, int line) {
        if (~lanes.present) stop("a tensor core's product by less than a whole warp", line);
        multiplied<k, halves>(lanes);
    });
}

inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1, float c0, float c1, float c2, float c3, int line = __builtin_LINE())
{
    multiply<16, true>({{&d0, &d1, &d2, &d3}, {c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}}, line);
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned b0,
    float c0, float c1, float c2, float c3, int line = __builtin_LINE())
{
    multiply<8, true>({{&d0, &d1, &d2, &d3}, {c0, c1, c2, c3}, {a0, a1}, {b0}}, line);
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1, float c0, float c1, float c2, float c3, int line = __builtin_LINE())
{
    multiply<8, false>({{&d0, &d1, &d2, &d3}, {c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}}, line);
}
inline void cvt_rna_tf32_f32(unsigned& to, float value) { to = __float_as_uint(nvcuda::wmma::__float_to_tf32(value)); }
template <class T> void mov_u32(T& to, unsigned value) { to = T(value); }
inline void ex2_approx_ftz_f32(float& to, float value) { to = std::exp2(value); }
inline void rcp_approx_ftz_f32(float& to, float value) { to = 1 / value; }
inline void bar_sync(unsigned number, unsigned count, int line = __builtin_LINE()) { meet(number, count, true, line); }
inline void bar_arrive(unsigned number, unsigned count, int line = __builtin_LINE()) { meet(number, count, false, line); }
inline Phases& phases_at(unsigned place, int line)
{
    if (place % 8) stop("an mbarrier at a place that is no multiple of 8", line);
    return *reinterpret_cast<Phases*>(at_offset(place, 8, line));
}
inline void mbarrier_init_shared_cta_b64(unsigned place, unsigned of, int line = __builtin_LINE()) { begin_phases(phases_at(place, line), of); }
inline void mbarrier_arrive_shared_cta_b64(unsigned place, int line = __builtin_LINE()) { arrive(phases_at(place, line), line); }
inline void mbarrier_try_wait_parity_shared_cta_b64(bool& done, unsigned place, unsigned parity, int line = __builtin_LINE())
{
    wait_for_phase(phases_at(place, line), parity, line);
    done = true;
}
inline void selp_u32(unsigned& to, unsigned yes, unsigned no, bool which) { to = which ? yes : no; }
template <class T> void prefetch_global_L1(const T*) {}
template <class T> void prefetch_global_L2(const T*) {}

// Four 8 x 8 tiles of halves: lanes 8 * i and on say where the rows of tile i are, and lane l gets of each tile, in row
// l / 4, columns 2 * (l % 4) and the next.
struct Rows { unsigned row; unsigned* to[4]; };
void ldmatrix(Rows& mine, int line);
inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned& a, unsigned& b, unsigned& c, unsigned& d, unsigned row, int line = __builtin_LINE())
{
    Rows mine{row, {&a, &b, &c, &d}};
    ldmatrix(mine, line);
}

// A copy to shared memory arrives when its thread waits for it; until then nobody has written there.
void cp_async_cg_shared_global(unsigned place, const void* source, int bytes, int line = __builtin_LINE());
void cp_async_commit_group();
void cp_async_wait_group(unsigned left);
void cp_async_wait_all();
inline void fence_proxy_async() {}  // what other threads wrote is seen at once
inline void fence_proxy_async_shared_cta() {}

// A copy from shared memory to the device's is made when its thread waits for it, of what stands there then.
void cp_async_bulk_global_shared_cta_bulk_group(void* to, unsigned place, int bytes, int line = __builtin_LINE());
void cp_async_bulk_commit_group();
void cp_async_bulk_wait_group(unsigned left);
inline void cp_async_bulk_wait_group_read(unsigned left) { cp_async_bulk_wait_group(left); }

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
