// The bits of floating-point numbers, and rounding done on them. Everything here is integer arithmetic, so that results
// do not depend on -ffast-math, on the rounding mode, or on a CPU that treats subnormal numbers as zero.
#pragma once

#include <cstdint>

#include "../config.hpp"

KVAXIS_BEGIN_NAMESPACE

[[nodiscard]] constexpr std::uint32_t float_bits(float x) noexcept { return __builtin_bit_cast(std::uint32_t, x); }
[[nodiscard]] constexpr float bits_float(std::uint32_t bits) noexcept { return __builtin_bit_cast(float, bits); }
[[nodiscard]] constexpr std::uint64_t double_bits(double x) noexcept { return __builtin_bit_cast(std::uint64_t, x); }
[[nodiscard]] constexpr double bits_double(std::uint64_t bits) noexcept { return __builtin_bit_cast(double, bits); }

// Neither infinite nor NaN. std::isfinite may be folded to true under -ffast-math; this cannot.
[[nodiscard]] constexpr bool is_finite(float x) noexcept { return (float_bits(x) & 0x7F800000U) != 0x7F800000U; }
[[nodiscard]] constexpr bool is_finite(double x) noexcept {
  return (double_bits(x) & 0x7FF0000000000000U) != 0x7FF0000000000000U;
}

// Subnormal numbers and both zeros become +0, every other value (NaN too) stays as it is.
[[nodiscard]] constexpr float flush_subnormal(float x) noexcept {
  return (float_bits(x) & 0x7F800000U) == 0 ? 0.0F : x;
}

namespace detail {

// value / 2^shift, rounded to nearest, ties to even; 1 <= shift <= 24, value < 2^31.
constexpr std::uint32_t round_shift(std::uint32_t value, int shift) noexcept {
  const std::uint32_t odd = (value >> shift) & 1U;
  return (value + (std::uint32_t{1} << (shift - 1)) - 1U + odd) >> shift;
}

// The code of a non-negative finite float (given by its bits) in a format with a narrower exponent, MantissaBits and
// Bias, subnormals included. A result beyond the format's largest code is left to the caller.
template <int MantissaBits, int Bias>
constexpr std::uint32_t round_to_minifloat(std::uint32_t magnitude) noexcept {
  const int exponent = static_cast<int>(magnitude >> 23);
  if (exponent > 127 - Bias) {
    return round_shift(magnitude, 23 - MantissaBits) - (static_cast<std::uint32_t>(127 - Bias) << MantissaBits);
  }
  // The smallest subnormal is 2^(1 - Bias - MantissaBits); less than half of it rounds to zero.
  const int shift = 151 - Bias - MantissaBits - exponent;
  return shift > 24 ? 0U : round_shift((magnitude & 0x007FFFFFU) | 0x00800000U, shift);
}

// The inverse: the float's bits of a sign-less code, every exponent taken as a finite one. The bits are put together
// rather than scaled by a product, whose subnormal operand some CPU settings would read as zero.
template <int MantissaBits, int Bias>
constexpr std::uint32_t expand_minifloat(std::uint32_t code) noexcept {
  const std::uint32_t mantissa = code & ((1U << MantissaBits) - 1U);
  const std::uint32_t exponent = code >> MantissaBits;
  if (exponent != 0) return ((exponent + (127U - Bias)) << 23) | (mantissa << (23 - MantissaBits));
  if (mantissa == 0) return 0;
  const int top = 31 - __builtin_clz(mantissa);
  const auto biased = static_cast<std::uint32_t>(top + 128 - Bias - MantissaBits);
  return (biased << 23) | ((mantissa << (23 - top)) & 0x007FFFFFU);
}

// Signed integers in the order of the values; both zeros are 0. Not for NaN.
constexpr std::int32_t ordered_bits(float x) noexcept {
  const auto magnitude = static_cast<std::int32_t>(float_bits(x) & 0x7FFFFFFFU);
  return (float_bits(x) >> 31) != 0 ? -magnitude : magnitude;
}

}  // namespace detail

KVAXIS_END_NAMESPACE
