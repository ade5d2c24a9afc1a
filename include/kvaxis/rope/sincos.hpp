// Sine and cosine of a double, with the same bits from every compiler, flag and CPU. A C library gives no such promise,
// and the bytes of stored keys depend on these numbers. Every step is an explicit fused multiply-add, a product of two,
// or an integer operation, so that there is nothing for -ffast-math or for contraction to rewrite.
#pragma once

#include <cstdint>

#include "../config.hpp"
#include "../formats/bits.hpp"
#include "../formats/fused.hpp"

KVAXIS_BEGIN_NAMESPACE

// For |x| < 2^35; both results are within 2e-16 of the exact ones. Meaningless, but harmless, for other arguments.
KVAXIS_INLINE void sincos(double x, double& sine, double& cosine) noexcept {
  // n = round(x / (pi/2)), read from the low bits of a sum whose last place is 1.
  constexpr double round_to_integer = 0x1.8p52;
  const double sum = fused(x, 0x1.45f306dc9c883p-1, round_to_integer);
  const auto n = static_cast<std::int64_t>(double_bits(sum) - double_bits(round_to_integer));

  // r = x - n pi/2 with pi/2 in two parts (Cody and Waite). The first step is exact: x and the product are multiples of
  // 2^-53 and the difference is below 1. The neglected third part stays under 2^-72.
  const auto turns = static_cast<double>(n);
  const double r = fused(turns, -0x1.1a62633145c07p-54, fused(turns, -0x1.921fb54442d18p+0, x));

  // Both series, fitted at the Chebyshev nodes of |r| <= 0.7855; the truncation errors are below 1.4e-17.
  const double z = r * r;
  double s = fused(z, 0x1.5e0ae5873e651p-33, -0x1.ae600a711c40ep-26);
  s = fused(z, s, 0x1.71de3795fe529p-19);
  s = fused(z, s, -0x1.a01a019e833f2p-13);
  s = fused(z, s, 0x1.1111111110bb1p-7);
  s = fused(z, s, -0x1.5555555555555p-3);
  s = fused(r * z, s, r);
  double c = fused(z, -0x1.907d6ee97cd28p-37, 0x1.1eeb68a05cf19p-29);
  c = fused(z, c, -0x1.27e4fa17941a8p-22);
  c = fused(z, c, 0x1.a01a019f4e7a2p-16);
  c = fused(z, c, -0x1.6c16c16c16966p-10);
  c = fused(z, c, 0x1.5555555555555p-5);
  c = fused(z, c, -0.5);
  c = fused(z, c, 1.0);

  const bool swap = (n & 1) != 0;
  const auto quadrant = static_cast<std::uint64_t>(n);
  sine = bits_double(double_bits(swap ? c : s) ^ ((quadrant & 2U) << 62));
  cosine = bits_double(double_bits(swap ? s : c) ^ (((quadrant + 1U) & 2U) << 62));
}

KVAXIS_END_NAMESPACE
