// CUDA's mathematics: functions beside those of the C library, conversions and arithmetic that say how they round, integers,
// and words that hold two or four numbers.
#pragma once

#include <cfenv>
#include <limits>

#include "emulator.h"

// Mixed types, as CUDA's have them.
template <class A, class B> constexpr auto min(A a, B b) -> std::common_type_t<A, B> { using T = std::common_type_t<A, B>; return T(b) < T(a) ? T(b) : T(a); }
template <class A, class B> constexpr auto max(A a, B b) -> std::common_type_t<A, B> { using T = std::common_type_t<A, B>; return T(a) < T(b) ? T(b) : T(a); }
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

// ---- Bits of numbers ----

namespace emulator {
template <class To, class From> To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace emulator

inline int __float_as_int(float value) { return emulator::same_bits<int>(value); }
inline unsigned __float_as_uint(float value) { return emulator::same_bits<unsigned>(value); }
inline float __int_as_float(int bits) { return emulator::same_bits<float>(bits); }
inline float __uint_as_float(unsigned bits) { return emulator::same_bits<float>(bits); }
inline long long __double_as_longlong(double value) { return emulator::same_bits<long long>(value); }
inline double __longlong_as_double(long long bits) { return emulator::same_bits<double>(bits); }
inline int __double2hiint(double value) { return int(__double_as_longlong(value) >> 32); }
inline int __double2loint(double value) { return int(__double_as_longlong(value)); }
inline double __hiloint2double(int high, int low) { return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low)); }

// ---- Functions: one precision each, or float and double under CUDA's two names ----

#define EMULATOR_FUNCTION(name, parameters, of_double, arguments) \
    inline double name parameters(double) { return of_double; } \
    inline float name##f parameters(float) { return float(name arguments); }
#define EMULATOR_ONE(T) (T a)
#define EMULATOR_TWO(T) (T a, T b)
#define EMULATOR_THREE(T) (T a, T b, T c)
#define EMULATOR_FOUR_NUMBERS(T) (T a, T b, T c, T d)
EMULATOR_FUNCTION(rsqrt, EMULATOR_ONE, 1 / std::sqrt(a), (a))
EMULATOR_FUNCTION(rcbrt, EMULATOR_ONE, 1 / std::cbrt(a), (a))
inline double sine_of_half_turns(double a)  // 0 at whole ones
{
    const double rest = std::remainder(a, 2.);
    return std::sin((std::fabs(rest) > 0.5 ? std::copysign(1., rest) - rest : rest) * M_PI);
}
EMULATOR_FUNCTION(sinpi, EMULATOR_ONE, sine_of_half_turns(a), (a))
EMULATOR_FUNCTION(cospi, EMULATOR_ONE, sine_of_half_turns(0.5 - std::fabs(std::remainder(a, 2.))), (a))
EMULATOR_FUNCTION(rhypot, EMULATOR_TWO, 1 / std::hypot(a, b), (a, b))
EMULATOR_FUNCTION(norm3d, EMULATOR_THREE, std::hypot(a, b, c), (a, b, c))
EMULATOR_FUNCTION(rnorm3d, EMULATOR_THREE, 1 / std::hypot(a, b, c), (a, b, c))
EMULATOR_FUNCTION(norm4d, EMULATOR_FOUR_NUMBERS, std::hypot(std::hypot(a, b), std::hypot(c, d)), (a, b, c, d))
EMULATOR_FUNCTION(rnorm4d, EMULATOR_FOUR_NUMBERS, 1 / norm4d(a, b, c, d), (a, b, c, d))
EMULATOR_FUNCTION(normcdf, EMULATOR_ONE, std::erfc(-a * M_SQRT1_2) / 2, (a))
EMULATOR_FUNCTION(erfcx, EMULATOR_ONE, a < 26 ? std::exp(a * a) * std::erfc(a) : M_2_SQRTPI / 2 / a * (1 - 1 / (2 * a * a)), (a))
EMULATOR_FUNCTION(cyl_bessel_i0, EMULATOR_ONE, std::cyl_bessel_i(0, std::fabs(a)), (a))
EMULATOR_FUNCTION(cyl_bessel_i1, EMULATOR_ONE, std::copysign(std::cyl_bessel_i(1, std::fabs(a)), a), (a))
inline double erfinv(double a)
{
    if (!(std::fabs(a) < 1)) return a == 1 ? HUGE_VAL : a == -1 ? -HUGE_VAL : NAN;
    const double log = std::log1p(-a * a), middle = 2 / (M_PI * 0.147) + log / 2;
    double root = std::copysign(std::sqrt(std::sqrt(middle * middle - log / 0.147) - middle), a);
    for (int step = 0; step < 4; ++step) {  // Halley's, from Winitzki's approximation
        const double wrong = (std::erf(root) - a) / (M_2_SQRTPI * std::exp(-root * root));
        root -= wrong / (1 + root * wrong);
    }
    return root;
}
inline double erfcinv(double a) { return erfinv(1 - a); }
inline double normcdfinv(double a) { return M_SQRT2 * erfinv(2 * a - 1); }
inline float erfinvf(float a) { return float(erfinv(a)); }
inline float erfcinvf(float a) { return float(erfcinv(a)); }
inline float normcdfinvf(float a) { return float(normcdfinv(a)); }
#define EMULATOR_NORM(name, T, what) \
    inline T name(int count, const T* values) \
    { \
        double sum = 0; \
        for (int i = 0; i < count; ++i) sum += double(values[i]) * values[i]; \
        return T(what); \
    }
EMULATOR_NORM(norm, double, std::sqrt(sum))
EMULATOR_NORM(normf, float, std::sqrt(sum))
EMULATOR_NORM(rnorm, double, 1 / std::sqrt(sum))
EMULATOR_NORM(rnormf, float, 1 / std::sqrt(sum))
inline void sincospi(double a, double* sine, double* cosine) { *sine = sinpi(a), *cosine = cospi(a); }
inline void sincospif(float a, float* sine, float* cosine) { *sine = sinpif(a), *cosine = cospif(a); }
inline float fdividef(float a, float b) { return a / b; }

inline float __fdividef(float a, float b) { return a / b; }
#define __expf expf  // the C library declares functions of these names
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __exp2f exp2f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __tanhf tanhf
#define __powf powf
#define __sincosf sincosf
inline float __saturatef(float a) { return std::min(std::max(a, 0.f), 1.f); }

// ---- Rounding that the name says: to nearest, to zero, up, down ----

namespace emulator {
template <class Work> __attribute__((noinline)) auto rounded(int mode, const Work& work)
{
    const int before = std::fegetround();
    std::fesetround(mode);
    auto made = work();
    asm volatile("" : "+m"(made));  // made before the mode changes back
    std::fesetround(before);
    return made;
}

// As CUDA converts: what is beyond the type's ends becomes an end, and what is no number 0.
template <class To, class From> To saturated(From value)
{
    using Limits = std::numeric_limits<To>;
    if (std::isnan(value)) return 0;
    if (value <= From(Limits::min())) return Limits::min();
    return value >= From(Limits::max()) ? Limits::max() : To(value);
}
}  // namespace emulator

#define EMULATOR_ROUNDED(name, T, parameters, what) \
    inline T name##_rn parameters { return what; } \
    inline T name##_rz parameters { return emulator::rounded(FE_TOWARDZERO, [&] { return what; }); } \
    inline T name##_ru parameters { return emulator::rounded(FE_UPWARD, [&] { return what; }); } \
    inline T name##_rd parameters { return emulator::rounded(FE_DOWNWARD, [&] { return what; }); }
EMULATOR_ROUNDED(__fadd, float, (float a, float b), a + b)
EMULATOR_ROUNDED(__fsub, float, (float a, float b), a - b)
EMULATOR_ROUNDED(__fmul, float, (float a, float b), a * b)
EMULATOR_ROUNDED(__fdiv, float, (float a, float b), a / b)
EMULATOR_ROUNDED(__frcp, float, (float a), 1 / a)
EMULATOR_ROUNDED(__fsqrt, float, (float a), std::sqrt(a))
EMULATOR_ROUNDED(__fmaf, float, (float a, float b, float c), std::fma(a, b, c))
EMULATOR_ROUNDED(__fmaf_ieee, float, (float a, float b, float c), std::fma(a, b, c))
EMULATOR_ROUNDED(__dadd, double, (double a, double b), a + b)
EMULATOR_ROUNDED(__dsub, double, (double a, double b), a - b)
EMULATOR_ROUNDED(__dmul, double, (double a, double b), a * b)
EMULATOR_ROUNDED(__ddiv, double, (double a, double b), a / b)
EMULATOR_ROUNDED(__drcp, double, (double a), 1 / a)
EMULATOR_ROUNDED(__dsqrt, double, (double a), std::sqrt(a))
EMULATOR_ROUNDED(__fma, double, (double a, double b, double c), std::fma(a, b, c))
EMULATOR_ROUNDED(__double2float, float, (double a), float(a))
EMULATOR_ROUNDED(__int2float, float, (int a), float(a))
EMULATOR_ROUNDED(__uint2float, float, (unsigned a), float(a))
EMULATOR_ROUNDED(__ll2float, float, (long long a), float(a))
EMULATOR_ROUNDED(__ull2float, float, (unsigned long long a), float(a))
EMULATOR_ROUNDED(__ll2double, double, (long long a), double(a))
EMULATOR_ROUNDED(__ull2double, double, (unsigned long long a), double(a))
inline double __int2double_rn(int a) { return a; }
inline double __uint2double_rn(unsigned a) { return a; }
inline float __frsqrt_rn(float a) { return float(1 / std::sqrt(double(a))); }

#define EMULATOR_TO_INTEGER(name, From, To) \
    inline To name##_rn(From a) { return emulator::saturated<To>(std::nearbyint(a)); } \
    inline To name##_rz(From a) { return emulator::saturated<To>(std::trunc(a)); } \
    inline To name##_ru(From a) { return emulator::saturated<To>(std::ceil(a)); } \
    inline To name##_rd(From a) { return emulator::saturated<To>(std::floor(a)); }
EMULATOR_TO_INTEGER(__float2int, float, int)
EMULATOR_TO_INTEGER(__float2uint, float, unsigned)
EMULATOR_TO_INTEGER(__float2ll, float, long long)
EMULATOR_TO_INTEGER(__float2ull, float, unsigned long long)
EMULATOR_TO_INTEGER(__double2int, double, int)
EMULATOR_TO_INTEGER(__double2uint, double, unsigned)
EMULATOR_TO_INTEGER(__double2ll, double, long long)
EMULATOR_TO_INTEGER(__double2ull, double, unsigned long long)

// ---- Integers ----

// Products wrap, as they do on a GPU.
inline int __mul24(int a, int b) { return int(unsigned(a << 8 >> 8) * unsigned(b << 8 >> 8)); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xFFFFFF) * (b & 0xFFFFFF); }
inline int __mulhi(int a, int b) { return int((int64_t)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
inline unsigned __sad(int a, int b, unsigned c) { return c + unsigned(a < b ? (int64_t)b - a : (int64_t)a - b); }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a < b ? b - a : a - b); }
inline int __hadd(int a, int b) { return int(((int64_t)a + b) >> 1); }
inline int __rhadd(int a, int b) { return int(((int64_t)a + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((uint64_t)a + b) >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) { return unsigned(((uint64_t)a + b + 1) >> 1); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(int a) { return a ? __builtin_clz(a) : 32; }
inline int __clzll(long long a) { return a ? __builtin_clzll(a) : 64; }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline unsigned __brev(unsigned a)
{
    unsigned made = 0;
    for (int i = 0; i < 32; ++i) made |= (a >> i & 1) << (31 - i);
    return made;
}
inline unsigned long long __brevll(unsigned long long a) { return (unsigned long long)__brev(unsigned(a)) << 32 | __brev(unsigned(a >> 32)); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned chosen)
{
    const uint64_t bytes = uint64_t(b) << 32 | a;
    unsigned made = 0;
    for (int i = 0; i < 4; ++i) made |= unsigned(bytes >> (chosen >> 4 * i & 7) * 8 & 255) << 8 * i;
    return made;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) { return unsigned(((uint64_t)high << 32 | low) << (by & 31) >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) { return unsigned(((uint64_t)high << 32 | low) >> (by & 31)); }
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) { return by >= 32 ? low : __funnelshift_l(low, high, by); }
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) { return by >= 32 ? high : __funnelshift_r(low, high, by); }

// Sums of products of a word's parts: four bytes by four bytes, or two halves of a word by two bytes.
namespace emulator {
template <class Part, class Word> int part(Word word, int place) { return Part(word >> 8 * sizeof(Part) * place); }
template <class A, class B, int count, int first, class Left, class Right, class Sum> Sum multiply_parts(Left a, Right b, Sum sum)
{
    unsigned made = unsigned(sum);
    for (int i = 0; i < count; ++i) made += unsigned(part<A>(a, i)) * unsigned(part<B>(b, first + i));
    return Sum(made);
}
template <class Vector> unsigned packed(Vector of) { return same_bits<unsigned>(of); }
}  // namespace emulator
inline int __dp4a(int a, int b, int c) { return emulator::multiply_parts<int8_t, int8_t, 4, 0>(a, b, c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return emulator::multiply_parts<uint8_t, uint8_t, 4, 0>(a, b, c); }
inline int __dp4a(char4 a, char4 b, int c) { return __dp4a(int(emulator::packed(a)), int(emulator::packed(b)), c); }
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) { return __dp4a(emulator::packed(a), emulator::packed(b), c); }
#define EMULATOR_DP2A(name, first) \
    inline int name(int a, int b, int c) { return emulator::multiply_parts<int16_t, int8_t, 2, first>(a, b, c); } \
    inline unsigned name(unsigned a, unsigned b, unsigned c) { return emulator::multiply_parts<uint16_t, uint8_t, 2, first>(a, b, c); } \
    inline int name(short2 a, char4 b, int c) { return name(int(emulator::packed(a)), int(emulator::packed(b)), c); } \
    inline unsigned name(ushort2 a, uchar4 b, unsigned c) { return name(emulator::packed(a), emulator::packed(b), c); }
EMULATOR_DP2A(__dp2a_lo, 0)
EMULATOR_DP2A(__dp2a_hi, 2)

// ---- Two or four numbers in a word ----

namespace emulator {
template <class Part, class Work> unsigned by_parts(unsigned a, unsigned b, Work work)
{
    unsigned made = 0;
    for (int i = 0; i < int(4 / sizeof(Part)); ++i)
        made |= unsigned(std::make_unsigned_t<Part>(work(part<Part>(a, i), part<Part>(b, i)))) << 8 * sizeof(Part) * i;
    return made;
}
template <class Part> int clamped(int a) { return std::min<int>(std::max<int>(a, std::numeric_limits<Part>::min()), std::numeric_limits<Part>::max()); }
}  // namespace emulator

#define EMULATOR_PARTS_AS(name, Part, what) \
    inline unsigned name(unsigned first, unsigned second) \
    { \
        using P = Part; \
        return emulator::by_parts<P>(first, second, [](int a, int b) { return what; }); \
    }
#define EMULATOR_PARTS(name, sign, what) EMULATOR_PARTS_AS(name##2, sign##int16_t, what) EMULATOR_PARTS_AS(name##4, sign##int8_t, what)
#define EMULATOR_COMPARED(name, sign, what) EMULATOR_PARTS(__vcmp##name, sign, (what) ? -1 : 0) EMULATOR_PARTS(__vset##name, sign, what)
#define EMULATOR_PART_AS(name, Part, what) \
    inline unsigned name(unsigned first) \
    { \
        using P = Part; \
        return emulator::by_parts<P>(first, 0, [](int a, int) { return what; }); \
    }
#define EMULATOR_PART(name, what) EMULATOR_PART_AS(name##2, int16_t, what) EMULATOR_PART_AS(name##4, int8_t, what)
EMULATOR_PARTS(__vadd, u, a + b)
EMULATOR_PARTS(__vsub, u, a - b)
EMULATOR_PARTS(__vaddss, , emulator::clamped<P>(a + b))
EMULATOR_PARTS(__vsubss, , emulator::clamped<P>(a - b))
EMULATOR_PARTS(__vaddus, u, emulator::clamped<P>(a + b))
EMULATOR_PARTS(__vsubus, u, emulator::clamped<P>(a - b))
EMULATOR_PARTS(__vavgs, , (a + b + (a + b >= 0)) >> 1)
EMULATOR_PARTS(__vavgu, u, (a + b + 1) >> 1)
EMULATOR_PARTS(__vhaddu, u, (a + b) >> 1)
EMULATOR_PARTS(__vmaxs, , a < b ? b : a)
EMULATOR_PARTS(__vmaxu, u, a < b ? b : a)
EMULATOR_PARTS(__vmins, , b < a ? b : a)
EMULATOR_PARTS(__vminu, u, b < a ? b : a)
EMULATOR_PARTS(__vabsdiffs, , a < b ? b - a : a - b)
EMULATOR_PARTS(__vabsdiffu, u, a < b ? b - a : a - b)
EMULATOR_COMPARED(eq, u, a == b)
EMULATOR_COMPARED(ne, u, a != b)
EMULATOR_COMPARED(ges, , a >= b)
EMULATOR_COMPARED(geu, u, a >= b)
EMULATOR_COMPARED(gts, , a > b)
EMULATOR_COMPARED(gtu, u, a > b)
EMULATOR_COMPARED(les, , a <= b)
EMULATOR_COMPARED(leu, u, a <= b)
EMULATOR_COMPARED(lts, , a < b)
EMULATOR_COMPARED(ltu, u, a < b)
EMULATOR_PART(__vabs, a < 0 ? -a : a)
EMULATOR_PART(__vabsss, emulator::clamped<P>(a < 0 ? -a : a))
EMULATOR_PART(__vneg, -a)
EMULATOR_PART(__vnegss, emulator::clamped<P>(-a))
inline unsigned __vsads4(unsigned a, unsigned b) { return __dp4a(__vabsdiffs4(a, b), 0x01010101u, 0u); }
inline unsigned __vsadu4(unsigned a, unsigned b) { return __dp4a(__vabsdiffu4(a, b), 0x01010101u, 0u); }
inline unsigned __vsads2(unsigned a, unsigned b) { return __dp2a_lo(__vabsdiffs2(a, b), 0x0101u, 0u); }
inline unsigned __vsadu2(unsigned a, unsigned b) { return __dp2a_lo(__vabsdiffu2(a, b), 0x0101u, 0u); }
inline int __viaddmax_s32(int a, int b, int c) { return max(a + b, c); }
inline int __viaddmin_s32(int a, int b, int c) { return min(a + b, c); }
inline unsigned __viaddmax_u32(unsigned a, unsigned b, unsigned c) { return max(a + b, c); }
inline unsigned __viaddmin_u32(unsigned a, unsigned b, unsigned c) { return min(a + b, c); }
inline int __vimax3_s32(int a, int b, int c) { return max(max(a, b), c); }
inline int __vimin3_s32(int a, int b, int c) { return min(min(a, b), c); }
inline unsigned __vimax3_u32(unsigned a, unsigned b, unsigned c) { return max(max(a, b), c); }
inline unsigned __vimin3_u32(unsigned a, unsigned b, unsigned c) { return min(min(a, b), c); }
inline int __vimax_s32_relu(int a, int b) { return __vimax3_s32(a, b, 0); }
inline int __vimin_s32_relu(int a, int b) { return max(min(a, b), 0); }
inline int __viaddmax_s32_relu(int a, int b, int c) { return __vimax3_s32(a + b, c, 0); }

// ---- <math_constants.h> ----

#define CUDART_INF_F __int_as_float(0x7F800000)
#define CUDART_NAN_F __int_as_float(0x7FFFFFFF)
#define CUDART_MIN_DENORM_F __int_as_float(1)
#define CUDART_MAX_NORMAL_F __int_as_float(0x7F7FFFFF)
#define CUDART_NEG_ZERO_F (-0.0f)
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_TWO_TO_23_F 8388608.0f
#define CUDART_INF __longlong_as_double(0x7FF0000000000000LL)
#define CUDART_NAN __longlong_as_double(0x7FFFFFFFFFFFFFFFLL)
#define CUDART_NEG_ZERO (-0.0)
#define CUDART_ZERO 0.0
#define CUDART_ONE 1.0
#define CUDART_PI M_PI
#define CUDART_PIO2 M_PI_2
#define CUDART_PIO4 M_PI_4
#define CUDART_2OPI M_2_PI
#define CUDART_SQRT_TWO M_SQRT2
#define CUDART_SQRT_HALF M_SQRT1_2
#define CUDART_LN2 M_LN2
#define CUDART_L2E M_LOG2E
#define CUDART_PI_F float(M_PI)
#define CUDART_PIO2_F float(M_PI_2)
#define CUDART_PIO4_F float(M_PI_4)
#define CUDART_2OPI_F float(M_2_PI)
#define CUDART_SQRT_TWO_F float(M_SQRT2)
#define CUDART_SQRT_HALF_F float(M_SQRT1_2)
#define CUDART_LN2_F float(M_LN2)
#define CUDART_L2E_F float(M_LOG2E)
