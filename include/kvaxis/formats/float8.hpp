// The 8-bit floating-point formats of the Open Compute Project: E4M3 (the "FN" variant: bias 7, largest value 448, no
// infinity, NaN only in 0x7F and 0xFF), E5M2 (bias 15, largest 57344), and E8M0, powers of two for scales.
// Encoders round the f32 to nearest, ties to even, and saturate: beyond the range, and for infinity, the largest finite
// code. A NaN stays a NaN.
#pragma once

#include <cstdint>

#include "../config.hpp"
#include "bits.hpp"

KVAXIS_BEGIN_NAMESPACE

constexpr float max_e4m3 = 448.0F;
constexpr float max_e5m2 = 57344.0F;

namespace detail {

template <int MantissaBits, int Bias>
constexpr std::uint8_t encode_float8(float x, std::uint32_t largest_code, float largest) noexcept {
  const std::uint32_t sign = (float_bits(x) >> 24) & 0x80U;
  const std::uint32_t magnitude = float_bits(x) & 0x7FFFFFFFU;
  std::uint32_t code = largest_code;
  if (magnitude > 0x7F800000U) {
    code = 0x7FU;
  } else if (magnitude < float_bits(largest)) {
    code = round_to_minifloat<MantissaBits, Bias>(magnitude);
  }
  return static_cast<std::uint8_t>(sign | code);
}

}  // namespace detail

[[nodiscard]] constexpr std::uint8_t encode_e4m3(float x) noexcept {
  return detail::encode_float8<3, 7>(x, 0x7EU, max_e4m3);
}

[[nodiscard]] constexpr float decode_e4m3(std::uint8_t code) noexcept {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  // The exponent 15 is an ordinary one here (256 to 448), except for this one code.
  if (magnitude == 0x7FU) return bits_float(sign | 0x7FC00000U);
  return bits_float(sign | detail::expand_minifloat<3, 7>(magnitude));
}

[[nodiscard]] constexpr std::uint8_t encode_e5m2(float x) noexcept {
  return detail::encode_float8<2, 15>(x, 0x7BU, max_e5m2);
}

[[nodiscard]] constexpr float decode_e5m2(std::uint8_t code) noexcept {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == 0x7CU) return bits_float(sign | 0x7F800000U);
  if (magnitude > 0x7CU) return bits_float(sign | 0x7FC00000U | ((magnitude & 3U) << 21));
  return bits_float(sign | detail::expand_minifloat<2, 15>(magnitude));
}

// E8M0 is 2^(code - 127), without sign or zero; 0xFF is NaN. Zero and what lies below 2^-127 become 0x00, a tie between
// two powers takes the even code, and negative numbers are NaN.
[[nodiscard]] constexpr std::uint8_t encode_e8m0(float x) noexcept {
  const std::uint32_t bits = float_bits(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U || bits > 0x80000000U) return 0xFFU;
  if (magnitude < 0x00800000U) return magnitude > 0x00600000U ? 0x01U : 0x00U;  // 2^-127 has the bits 0x00400000
  const std::uint32_t code = detail::round_shift(magnitude, 23);
  return static_cast<std::uint8_t>(code > 0xFEU ? 0xFEU : code);
}

// 0x00 is an f32 subnormal: a CPU set to read those as zero takes it for zero in later arithmetic.
[[nodiscard]] constexpr float decode_e8m0(std::uint8_t code) noexcept {
  if (code == 0x00U) return bits_float(0x00400000U);
  if (code == 0xFFU) return bits_float(0x7FC00000U);
  return bits_float(static_cast<std::uint32_t>(code) << 23);
}

KVAXIS_END_NAMESPACE
