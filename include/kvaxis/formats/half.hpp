// The two 16-bit formats, IEEE binary16 and bfloat16: storage types, and conversions that give the bits of the F16C
// instructions on every CPU.
#pragma once

#include <cstdint>

#include "../config.hpp"
#include "bits.hpp"

KVAXIS_BEGIN_NAMESPACE

struct float16 {
  std::uint16_t bits;
};

struct bfloat16 {
  std::uint16_t bits;
};

constexpr float max_float16 = 65504.0F;

// Equality of the bits: the zeros differ, a NaN equals itself.
[[nodiscard]] constexpr bool operator==(float16 a, float16 b) noexcept { return a.bits == b.bits; }
[[nodiscard]] constexpr bool operator!=(float16 a, float16 b) noexcept { return a.bits != b.bits; }
[[nodiscard]] constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept { return a.bits == b.bits; }
[[nodiscard]] constexpr bool operator!=(bfloat16 a, bfloat16 b) noexcept { return a.bits != b.bits; }

[[nodiscard]] constexpr bool is_finite(float16 h) noexcept { return (h.bits & 0x7C00U) != 0x7C00U; }
[[nodiscard]] constexpr bool is_finite(bfloat16 b) noexcept { return (b.bits & 0x7F80U) != 0x7F80U; }

// Nearest, ties to even; from 65520 on infinity. A NaN becomes quiet and keeps its sign and upper payload.
[[nodiscard]] constexpr float16 to_float16(float x) noexcept {
  const std::uint32_t sign = (float_bits(x) >> 16) & 0x8000U;
  const std::uint32_t magnitude = float_bits(x) & 0x7FFFFFFFU;
  std::uint32_t code = 0x7C00U;
  if (magnitude > 0x7F800000U) {
    code = 0x7E00U | ((magnitude >> 13) & 0x01FFU);
  } else if (magnitude < 0x477FF000U) {
    code = detail::round_to_minifloat<10, 15>(magnitude);
  }
  return float16{static_cast<std::uint16_t>(sign | code)};
}

[[nodiscard]] constexpr float to_float(float16 h) noexcept {
  const std::uint32_t sign = (h.bits & 0x8000U) << 16;
  const std::uint32_t code = h.bits & 0x7FFFU;
  if (code < 0x7C00U) return bits_float(sign | detail::expand_minifloat<10, 15>(code));
  const std::uint32_t quiet = code == 0x7C00U ? 0U : 0x00400000U;
  return bits_float(sign | 0x7F800000U | quiet | ((code & 0x03FFU) << 13));
}

// Nearest, ties to even, overflow to infinity. A NaN becomes quiet and keeps its sign and upper payload.
[[nodiscard]] constexpr bfloat16 to_bfloat16(float x) noexcept {
  const std::uint32_t bits = float_bits(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return bfloat16{static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
  return bfloat16{static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

[[nodiscard]] constexpr float to_float(bfloat16 b) noexcept {
  return bits_float(static_cast<std::uint32_t>(b.bits) << 16);
}

// So that code for rows of any element type can be written once.
[[nodiscard]] constexpr float to_float(float x) noexcept { return x; }

// The neighbouring value of a finite h, or h itself at the end of the finite range. The zeros count as one value, and
// -0 is never the answer.
[[nodiscard]] constexpr float16 next_above(float16 h) noexcept {
  if (h.bits == 0x7BFFU) return h;
  if ((h.bits & 0x7FFFU) == 0) return float16{0x0001U};
  if (h.bits == 0x8001U) return float16{0x0000U};
  return float16{static_cast<std::uint16_t>((h.bits & 0x8000U) != 0 ? h.bits - 1 : h.bits + 1)};
}

[[nodiscard]] constexpr float16 next_below(float16 h) noexcept {
  if (h.bits == 0xFBFFU) return h;
  if ((h.bits & 0x7FFFU) == 0) return float16{0x8001U};
  return float16{static_cast<std::uint16_t>((h.bits & 0x8000U) != 0 ? h.bits + 1 : h.bits - 1)};
}

// The largest finite float16 that is <= x, never -0; for -65504 <= x <= 65504. Compared as integers, because a
// comparison of floats may take a subnormal x for zero.
[[nodiscard]] constexpr float16 floor_float16(float x) noexcept {
  const float16 nearest = to_float16(x);
  if (detail::ordered_bits(to_float(nearest)) > detail::ordered_bits(x)) return next_below(nearest);
  return nearest.bits == 0x8000U ? float16{0x0000U} : nearest;
}

KVAXIS_END_NAMESPACE
