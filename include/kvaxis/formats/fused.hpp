// fused(a, b, c) is a * b + c with one rounding, whatever the flags; it is what decides stored bytes and decoded
// values. std::fma nearly is, but Clang with -ffast-math splits it into a product and a sum where the CPU it compiles
// for has no such instruction. A call through a pointer that it must read cannot be split.
#pragma once

#include <cmath>

#include "../config.hpp"

KVAXIS_BEGIN_NAMESPACE

#if defined(__clang__) && defined(__FAST_MATH__) && !defined(__FMA__) && !defined(__aarch64__)

namespace detail {
inline double (*const volatile library_fma)(double, double, double) = &::fma;
inline float (*const volatile library_fmaf)(float, float, float) = &::fmaf;
}  // namespace detail

KVAXIS_INLINE double fused(double a, double b, double c) noexcept { return detail::library_fma(a, b, c); }
KVAXIS_INLINE float fused(float a, float b, float c) noexcept { return detail::library_fmaf(a, b, c); }

#else

KVAXIS_INLINE double fused(double a, double b, double c) noexcept { return std::fma(a, b, c); }
KVAXIS_INLINE float fused(float a, float b, float c) noexcept { return std::fma(a, b, c); }

#endif

KVAXIS_END_NAMESPACE
