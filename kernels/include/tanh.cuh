#pragma once

// tanh(x * 2^-EXPONENT) * 2^EXPONENT, within 3e-7 * 2^EXPONENT: 1 - 2 / (1 + e^2x), and near 0, where that would lose
// digits, x + x^3 * a series.
template <int EXPONENT = 0> __device__ __forceinline__ float tanh_of(float x)
{
    constexpr float ONE = 1 << EXPONENT, PER_SQUARE = 1 / (ONE * ONE);
    float power, reciprocal;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * (2.88539008f / ONE)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(power + 1.0f));
    const float far = fmaf(-2 * ONE, reciprocal, ONE);
    const float square = x * x;
    constexpr float FIRST = -0.333329575f * PER_SQUARE, SECOND = 0.133209414f * PER_SQUARE * PER_SQUARE;
    constexpr float THIRD = -0.0526841161f * PER_SQUARE * PER_SQUARE * PER_SQUARE;
    constexpr float FOURTH = 0.0164587132f * PER_SQUARE * PER_SQUARE * PER_SQUARE * PER_SQUARE;
    const float series = fmaf(fmaf(fmaf(FOURTH, square, THIRD), square, SECOND), square, FIRST);
    return fabsf(x) < 0.55f * ONE ? fmaf(series * square, x, x) : far;
}
