// CUDA's vector types: one to four numbers under names, aligned as CUDA aligns them, and the functions that make them.
#pragma once

#define EMULATOR_VECTORS_AS(name, T, pair, four) \
    struct name##1 { T x; }; \
    struct alignas(pair) name##2 { T x, y; }; \
    struct name##3 { T x, y, z; }; \
    struct alignas(four) name##4 { T x, y, z, w; }; \
    inline name##1 make_##name##1(T x) { return {x}; } \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
// A type of at least 16 bytes is aligned to 16. Since CUDA 13, four numbers of 8 bytes say in their name to how many.
#define EMULATOR_VECTORS(name, T) \
    EMULATOR_VECTORS_AS(name, T, 2 * sizeof(T), (sizeof(T) < 4 ? 4 * sizeof(T) : 16))
#define EMULATOR_FOUR(name, T, bytes) \
    struct alignas(bytes) name##_##bytes##a { T x, y, z, w; }; \
    inline name##_##bytes##a make_##name##_##bytes##a(T x, T y, T z, T w) { return {x, y, z, w}; }
#define EMULATOR_FOURS(name, T) EMULATOR_FOUR(name, T, 16) EMULATOR_FOUR(name, T, 32)

EMULATOR_VECTORS(char, signed char)
EMULATOR_VECTORS(uchar, unsigned char)
EMULATOR_VECTORS(short, short)
EMULATOR_VECTORS(ushort, unsigned short)
EMULATOR_VECTORS(int, int)
EMULATOR_VECTORS(uint, unsigned)
EMULATOR_VECTORS(long, long)
EMULATOR_VECTORS(ulong, unsigned long)
EMULATOR_VECTORS(longlong, long long)
EMULATOR_VECTORS(ulonglong, unsigned long long)
EMULATOR_VECTORS(float, float)
EMULATOR_VECTORS(double, double)
EMULATOR_FOURS(long4, long)
EMULATOR_FOURS(ulong4, unsigned long)
EMULATOR_FOURS(longlong4, long long)
EMULATOR_FOURS(ulonglong4, unsigned long long)
EMULATOR_FOURS(double4, double)

struct dim3 : uint3 {
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : uint3{x, y, z} {}
    constexpr dim3(uint3 extents) : uint3(extents) {}
};
