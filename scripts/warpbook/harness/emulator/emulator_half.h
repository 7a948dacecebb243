// Numbers of 16 bits, <cuda_fp16.h>'s and <cuda_bf16.h>'s: arithmetic in float, each result rounded.
#pragma once

#include "emulator_math.h"

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

// bfloat16 is the upper half of a float.
inline uint16_t to_bfloat(float value)
{
    const uint32_t bits = same_bits<uint32_t>(value);
    if (std::isnan(value)) return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float from_bfloat(uint16_t bits) { return same_bits<float>(uint32_t(bits) << 16); }

// The nearest number, or where that lies on the wrong side its neighbour: bits count up away from zero.
template <class Number> Number towards(int mode, double value)
{
    Number made = float(value);
    const double difference = double(float(made)) - value;
    const bool up = mode == FE_UPWARD || (mode == FE_TOWARDZERO && value < 0);
    if (up ? difference < 0 : difference > 0) {
        const bool outward = up != (float(made) < 0 || (float(made) == 0 && !up));
        if (float(made) == 0) made.bits = uint16_t(up ? 0x0001 : 0x8001);
        else made.bits = uint16_t(made.bits + (outward ? 1 : -1));
    }
    return made;
}
}  // namespace emulator

#define EMULATOR_ROUNDS_TO(T, name, From) \
    inline T name##_rn(From a) { return T(float(a)); } \
    inline T name##_rz(From a) { return emulator::towards<T>(FE_TOWARDZERO, double(a)); } \
    inline T name##_ru(From a) { return emulator::towards<T>(FE_UPWARD, double(a)); } \
    inline T name##_rd(From a) { return emulator::towards<T>(FE_DOWNWARD, double(a)); }
#define EMULATOR_COMPARES(T, Pair, name, operation) \
    inline bool __h##name(T a, T b) { return float(a) operation float(b); } \
    inline Pair __h##name##2(Pair a, Pair b) { return {float(float(a.x) operation float(b.x)), float(float(a.y) operation float(b.y))}; } \
    inline bool __hb##name##2(Pair a, Pair b) { return float(a.x) operation float(b.x) && float(a.y) operation float(b.y); } \
    inline unsigned __h##name##2_mask(Pair a, Pair b) { return (float(a.x) operation float(b.x) ? 0xFFFFu : 0) | (float(a.y) operation float(b.y) ? 0xFFFF0000u : 0); }
// Comparisons whose names end in u are true where one is no number.
#define EMULATOR_COMPARES_ANY(T, Pair, name, opposite) \
    inline bool __h##name##u(T a, T b) { return !(float(a) opposite float(b)); } \
    inline Pair __h##name##u2(Pair a, Pair b) { return {float(!(float(a.x) opposite float(b.x))), float(!(float(a.y) opposite float(b.y)))}; } \
    inline bool __hb##name##u2(Pair a, Pair b) { return !(float(a.x) opposite float(b.x)) && !(float(a.y) opposite float(b.y)); }
#define EMULATOR_APPLIES(T, Pair, name, what) \
    inline T h##name(T number) { const float a = number; return float(what); } \
    inline Pair h2##name(Pair a) { return {h##name(a.x), h##name(a.y)}; }
#define EMULATOR_JOINS(T, Pair, name, what) \
    inline T __h##name(T a, T b) { return what; } \
    inline Pair __h##name##2(Pair a, Pair b) { return {__h##name(a.x, b.x), __h##name(a.y, b.y)}; }

// The functions of a number T and of its Pair, whose names have `name` in them.
#define EMULATOR_SMALL_NUMBERS(T, Pair, name, encode, decode) \
struct T { \
    uint16_t bits; \
    T() = default; \
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>> T(Number value) : bits(emulator::encode(float(value))) {} \
    operator float() const { return emulator::decode(bits); } \
    T& operator+=(T other) { return *this = T(float(*this) + float(other)); } \
    T& operator-=(T other) { return *this = T(float(*this) - float(other)); } \
    T& operator*=(T other) { return *this = T(float(*this) * float(other)); } \
    T& operator/=(T other) { return *this = T(float(*this) / float(other)); } \
    T& operator++() { return *this += T(1); } \
    T& operator--() { return *this -= T(1); } \
}; \
inline T operator+(const T& a, const T& b) { return float(a) + float(b); } \
inline T operator-(const T& a, const T& b) { return float(a) - float(b); } \
inline T operator*(const T& a, const T& b) { return float(a) * float(b); } \
inline T operator/(const T& a, const T& b) { return float(a) / float(b); } \
inline T operator-(const T& a) { return -float(a); } \
inline bool operator<(const T& a, const T& b) { return float(a) < float(b); } \
inline bool operator>(const T& a, const T& b) { return float(a) > float(b); } \
inline bool operator<=(const T& a, const T& b) { return float(a) <= float(b); } \
inline bool operator>=(const T& a, const T& b) { return float(a) >= float(b); } \
inline bool operator==(const T& a, const T& b) { return float(a) == float(b); } \
inline bool operator!=(const T& a, const T& b) { return float(a) != float(b); } \
struct alignas(4) Pair { \
    T x, y; \
    Pair() = default; \
    Pair(T a, T b) : x(a), y(b) {} \
    Pair& operator+=(Pair other) { x += other.x, y += other.y; return *this; } \
    Pair& operator-=(Pair other) { x -= other.x, y -= other.y; return *this; } \
    Pair& operator*=(Pair other) { x *= other.x, y *= other.y; return *this; } \
    Pair& operator/=(Pair other) { x /= other.x, y /= other.y; return *this; } \
}; \
inline Pair operator+(const Pair& a, const Pair& b) { return {a.x + b.x, a.y + b.y}; } \
inline Pair operator-(const Pair& a, const Pair& b) { return {a.x - b.x, a.y - b.y}; } \
inline Pair operator*(const Pair& a, const Pair& b) { return {a.x * b.x, a.y * b.y}; } \
inline Pair operator/(const Pair& a, const Pair& b) { return {a.x / b.x, a.y / b.y}; } \
inline Pair operator-(const Pair& a) { return {-a.x, -a.y}; } \
inline bool operator==(const Pair& a, const Pair& b) { return a.x == b.x && a.y == b.y; } \
inline T __float2##name(float a) { return a; } \
inline T __double2##name(double a) { return a; } \
inline float __##name##2float(T a) { return a; } \
EMULATOR_ROUNDS_TO(T, __float2##name, float) \
EMULATOR_ROUNDS_TO(T, __int2##name, int) \
EMULATOR_ROUNDS_TO(T, __uint2##name, unsigned) \
EMULATOR_ROUNDS_TO(T, __short2##name, short) \
EMULATOR_ROUNDS_TO(T, __ushort2##name, unsigned short) \
EMULATOR_ROUNDS_TO(T, __ll2##name, long long) \
EMULATOR_ROUNDS_TO(T, __ull2##name, unsigned long long) \
EMULATOR_TO_INTEGER(__##name##2int, T, int) \
EMULATOR_TO_INTEGER(__##name##2uint, T, unsigned) \
EMULATOR_TO_INTEGER(__##name##2short, T, short) \
EMULATOR_TO_INTEGER(__##name##2ushort, T, unsigned short) \
EMULATOR_TO_INTEGER(__##name##2ll, T, long long) \
EMULATOR_TO_INTEGER(__##name##2ull, T, unsigned long long) \
inline T __ushort_as_##name(unsigned short a) { return emulator::same_bits<T>(a); } \
inline T __short_as_##name(short a) { return emulator::same_bits<T>(a); } \
inline unsigned short __##name##_as_ushort(T a) { return a.bits; } \
inline short __##name##_as_short(T a) { return short(a.bits); } \
inline Pair make_##name##2(T a, T b) { return {a, b}; } \
inline Pair __halves2##name##2(T a, T b) { return {a, b}; } \
inline Pair __##name##2##name##2(T a) { return {a, a}; } \
inline Pair __float2##name##2_rn(float a) { return {a, a}; } \
inline Pair __floats2##name##2_rn(float a, float b) { return {a, b}; } \
inline Pair __float22##name##2_rn(float2 a) { return {a.x, a.y}; } \
inline float2 __##name##22float2(Pair a) { return {a.x, a.y}; } \
inline T __low2##name(Pair a) { return a.x; } \
inline T __high2##name(Pair a) { return a.y; } \
inline float __low2float(Pair a) { return a.x; } \
inline float __high2float(Pair a) { return a.y; } \
inline Pair __low2##name##2(Pair a) { return {a.x, a.x}; } \
inline Pair __high2##name##2(Pair a) { return {a.y, a.y}; } \
inline Pair __lows2##name##2(Pair a, Pair b) { return {a.x, b.x}; } \
inline Pair __highs2##name##2(Pair a, Pair b) { return {a.y, b.y}; } \
inline Pair __lowhigh2highlow(Pair a) { return {a.y, a.x}; } \
EMULATOR_JOINS(T, Pair, add, a + b) \
EMULATOR_JOINS(T, Pair, sub, a - b) \
EMULATOR_JOINS(T, Pair, mul, a * b) \
EMULATOR_JOINS(T, Pair, max, a < b || std::isnan(float(a)) ? b : a) \
EMULATOR_JOINS(T, Pair, min, b < a || std::isnan(float(a)) ? b : a) \
inline T __hadd_rn(T a, T b) { return a + b; } \
inline T __hsub_rn(T a, T b) { return a - b; } \
inline T __hmul_rn(T a, T b) { return a * b; } \
inline Pair __hadd2_rn(Pair a, Pair b) { return a + b; } \
inline Pair __hsub2_rn(Pair a, Pair b) { return a - b; } \
inline Pair __hmul2_rn(Pair a, Pair b) { return a * b; } \
inline T __hadd_sat(T a, T b) { return __saturatef(float(a) + float(b)); } \
inline T __hsub_sat(T a, T b) { return __saturatef(float(a) - float(b)); } \
inline T __hmul_sat(T a, T b) { return __saturatef(float(a) * float(b)); } \
inline T __hdiv(T a, T b) { return a / b; } \
inline Pair __h2div(Pair a, Pair b) { return a / b; } \
inline T __hneg(T a) { return -a; } \
inline Pair __hneg2(Pair a) { return -a; } \
inline T __habs(T a) { return std::fabs(float(a)); } \
inline Pair __habs2(Pair a) { return {__habs(a.x), __habs(a.y)}; } \
inline T __hfma(T a, T b, T c) { return float(a) * float(b) + float(c); } \
inline T __hfma_sat(T a, T b, T c) { return __saturatef(float(a) * float(b) + float(c)); } \
inline T __hfma_relu(T a, T b, T c) { return std::max(0.f, float(a) * float(b) + float(c)); } \
inline Pair __hfma2(Pair a, Pair b, Pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
inline Pair __hfma2_relu(Pair a, Pair b, Pair c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; } \
inline bool __hisnan(T a) { return std::isnan(float(a)); } \
inline int __hisinf(T a) { return std::isinf(float(a)) ? float(a) < 0 ? -1 : 1 : 0; } \
EMULATOR_COMPARES(T, Pair, eq, ==) \
EMULATOR_COMPARES(T, Pair, lt, <) \
EMULATOR_COMPARES(T, Pair, le, <=) \
EMULATOR_COMPARES(T, Pair, gt, >) \
EMULATOR_COMPARES(T, Pair, ge, >=) \
EMULATOR_COMPARES_ANY(T, Pair, ne, ==) \
EMULATOR_COMPARES_ANY(T, Pair, lt, >=) \
EMULATOR_COMPARES_ANY(T, Pair, le, >) \
EMULATOR_COMPARES_ANY(T, Pair, gt, <=) \
EMULATOR_COMPARES_ANY(T, Pair, ge, <) \
inline bool __hne(T a, T b) { return float(a) < float(b) || float(a) > float(b); } \
inline Pair __hne2(Pair a, Pair b) { return {float(__hne(a.x, b.x)), float(__hne(a.y, b.y))}; } \
EMULATOR_APPLIES(T, Pair, sqrt, std::sqrt(a)) \
EMULATOR_APPLIES(T, Pair, rsqrt, 1 / std::sqrt(a)) \
EMULATOR_APPLIES(T, Pair, rcp, 1 / a) \
EMULATOR_APPLIES(T, Pair, exp, std::exp(a)) \
EMULATOR_APPLIES(T, Pair, exp2, std::exp2(a)) \
EMULATOR_APPLIES(T, Pair, exp10, std::pow(10.f, a)) \
EMULATOR_APPLIES(T, Pair, log, std::log(a)) \
EMULATOR_APPLIES(T, Pair, log2, std::log2(a)) \
EMULATOR_APPLIES(T, Pair, log10, std::log10(a)) \
EMULATOR_APPLIES(T, Pair, sin, std::sin(a)) \
EMULATOR_APPLIES(T, Pair, cos, std::cos(a)) \
EMULATOR_APPLIES(T, Pair, tanh, std::tanh(a)) \
EMULATOR_APPLIES(T, Pair, ceil, std::ceil(a)) \
EMULATOR_APPLIES(T, Pair, floor, std::floor(a)) \
EMULATOR_APPLIES(T, Pair, trunc, std::trunc(a)) \
EMULATOR_APPLIES(T, Pair, rint, std::nearbyint(a))

EMULATOR_SMALL_NUMBERS(__half, __half2, half, to_half, from_half)
EMULATOR_SMALL_NUMBERS(__nv_bfloat16, __nv_bfloat162, bfloat16, to_bfloat, from_bfloat)
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using __half_raw = __half;
