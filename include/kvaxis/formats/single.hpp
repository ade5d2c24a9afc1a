// f32 arithmetic that no compiler flag changes: a product, sum or quotient of two f32 numbers, taken in double and rounded
// here to f32, is the correctly rounded one. Products are exact in double, and the 53 bits of a sum leave no double
// rounding. A quotient of 24-bit numbers lies at least 2^-49 of itself away from the middle between two f32 numbers, so
// even a division that -ffast-math replaced by a product with the reciprocal gives the right one.
#pragma once

#include <cstdint>

#include "../config.hpp"
#include "bits.hpp"

KVAXIS_BEGIN_NAMESPACE

// x to 24 significant bits, ties to even, as a double; what lies below f32's normal numbers keeps all of the 24. Integer
// arithmetic, so the rounding is neither left out nor contracted with the operation before or after it.
[[nodiscard]] constexpr double round_to_single(double x) noexcept {
  const std::uint64_t bits = double_bits(x);
  const std::uint64_t odd = bits >> 29 & 1U;
  return bits_double((bits + 0x0FFFFFFFU + odd) & ~std::uint64_t{0x1FFFFFFFU});
}

KVAXIS_END_NAMESPACE
