// Small floating-point or integer elements with a scale of one byte per group: the MX formats of the Open Compute Project
// (a power of two per 32 numbers) and NVFP4 (an E4M3 number per 16; its scale per tensor is 1 here). A group may have
// another length.
//
//   codec      elements              largest  smallest   bits with its scale
//   mxfp4      E2M1                  6        0.5        4.25
//   mxfp6e2m3  E2M3                  7.5      2^-3       6.25
//   mxfp6e3m2  E3M2                  28       2^-4       6.25
//   mxfp8e4m3  E4M3                  448      2^-9       8.25
//   mxfp8e5m2  E5M2                  57344    2^-16      8.25
//   mxint8     integer / 64          127/64   1/64       8.25
//   nvfp4      E2M1                  6        0.5        4.5
//
// Elements are x / scale, round to nearest even, saturating. The MX scale is the specification's: 2^(floor(log2 of the
// largest |x|) - the exponent of the largest element), with which the largest number may saturate.
// The scale byte 0 is that of a group of zeros, its codes are 0, and the smallest scale of all other groups has the byte 1; so no
// arithmetic meets an f32 subnormal.
#pragma once

#include <cfloat>
#include <cstdint>

#include "../formats/bits.hpp"
#include "../formats/float8.hpp"
#include "../formats/single.hpp"
#include "codec.hpp"

KVAXIS_BEGIN_NAMESPACE

// A scale 2^(bits - 127). The byte 0 reads as 0, not as the 2^-127 of the specification, and 0xFF is not finite.
struct float8_e8m0 {
  std::uint8_t bits;
};
struct float8_e4m3 {
  std::uint8_t bits;
};

[[nodiscard]] constexpr float to_float(float8_e8m0 x) noexcept {
  return bits_float(static_cast<std::uint32_t>(x.bits) << 23);
}
[[nodiscard]] constexpr float to_float(float8_e4m3 x) noexcept { return decode_e4m3(x.bits); }

namespace detail {

// A sign bit above exponent and mantissa. Codes above LargestCode, the infinities and NaNs of some formats, never occur.
template <int ExponentBits, int MantissaBits, std::uint32_t LargestCode>
struct float_element {
  static constexpr int bits = 1 + ExponentBits + MantissaBits;
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr std::uint32_t sign = 1U << (bits - 1);
  static constexpr std::uint32_t largest = expand_minifloat<MantissaBits, bias>(LargestCode);
  static constexpr int largest_exponent = static_cast<int>(LargestCode >> MantissaBits) - bias;

  static constexpr std::uint32_t encode(float x) noexcept {
    const std::uint32_t magnitude = float_bits(x) & 0x7FFFFFFFU;
    const std::uint32_t code = magnitude < largest ? round_to_minifloat<MantissaBits, bias>(magnitude) : LargestCode;
    return code | ((float_bits(x) >> 31) != 0 ? sign : 0U);
  }
  static constexpr float decode(std::uint32_t code) noexcept {
    const std::uint32_t magnitude = expand_minifloat<MantissaBits, bias>(code & (sign - 1U));
    return bits_float(magnitude | ((code & sign) != 0 ? 0x80000000U : 0U));
  }
};

using e2m1_element = float_element<2, 1, 0x07U>;

// Sixty-fourths in two's complement; -128 never occurs.
struct int8_element {
  static constexpr int bits = 8;
  static constexpr int largest_exponent = 0;

  static constexpr std::uint32_t encode(float x) noexcept {
    const std::uint32_t magnitude = float_bits(x) & 0x7FFFFFFFU;
    const int shift = 144 - static_cast<int>(magnitude >> 23);  // of the 24-bit significand, to units of 1/64
    std::uint32_t steps = 127;
    if (shift > 24) {
      steps = 0;
    } else if (magnitude < float_bits(127.0F / 64)) {
      steps = round_shift((magnitude & 0x007FFFFFU) | 0x00800000U, shift);
    }
    return ((float_bits(x) >> 31) != 0 ? 0U - steps : steps) & 0xFFU;
  }
  static constexpr float decode(std::uint32_t code) noexcept {
    // Divided in the exponent: under -ffast-math 1/64 times the smallest scale might come first, a subnormal.
    const float steps = static_cast<float>(static_cast<std::int8_t>(code));
    return (code & 0xFFU) == 0 ? 0.0F : bits_float(float_bits(steps) - (6U << 23));
  }
};

inline std::uint32_t largest_magnitude_bits(const float* x, int n) noexcept {
  std::uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint32_t bits = float_bits(x[i]) & 0x7FFFFFFFU;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

}  // namespace detail

template <class Element>
struct microscaling {
  static constexpr int bits = Element::bits;
  static constexpr float limit = FLT_MAX / 2;  // beyond it the inverse of a scale would be subnormal

  struct params {
    float8_e8m0 scale;
  };

  static params fit(const float* x, int n) noexcept {
    const auto exponent = static_cast<int>(detail::largest_magnitude_bits(x, n) >> 23);
    if (exponent == 0) return {};
    const int scale = exponent - Element::largest_exponent;
    return {{static_cast<std::uint8_t>(scale > 1 ? scale : 1)}};
  }

  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    // A product with a power of two is exact.
    const float inverse = bits_float((254U - p.scale.bits) << 23);
    for (int i = 0; i < n; ++i) codes[i] = p.scale.bits == 0 ? 0U : Element::encode(x[i] * inverse);
  }
  static float unit_value(std::uint32_t code) noexcept { return Element::decode(code); }
  static float decode(params p, std::uint32_t code) noexcept {
    return flush_subnormal(to_float(p.scale) * unit_value(code));
  }
};

struct nvfp4 {
  static constexpr int bits = 4;
  static constexpr const char* name = "nvfp4";
  static constexpr float limit = max_e4m3 * 6.0F;

  struct params {
    float8_e4m3 scale;
  };

  static params fit(const float* x, int n) noexcept {
    const float largest = flush_subnormal(bits_float(detail::largest_magnitude_bits(x, n)));
    const std::uint8_t scale = encode_e4m3(static_cast<float>(round_to_single(static_cast<double>(largest) / 6.0)));
    return {{largest > 0.0F && scale == 0 ? std::uint8_t{1} : scale}};
  }

  // By comparison with the middles between two elements, which times a scale are exact.
  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    constexpr float middles[7] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
    const float scale = to_float(p.scale);
    for (int i = 0; i < n; ++i) {
      const float magnitude = std::fabs(x[i]);
      std::uint32_t code = 0;
      for (int k = 0; k < 7; ++k) {
        const float middle = middles[k] * scale;
        code += magnitude > middle || (k % 2 != 0 && magnitude == middle) ? 1U : 0U;  // ties to the even code
      }
      const std::uint32_t sign = (float_bits(x[i]) >> 28) & 8U;
      codes[i] = p.scale.bits == 0 ? 0U : code | sign;
    }
  }
  static float unit_value(std::uint32_t code) noexcept { return detail::e2m1_element::decode(code); }
  static float decode(params p, std::uint32_t code) noexcept { return to_float(p.scale) * unit_value(code); }
};

struct mxfp4 : microscaling<detail::e2m1_element> {
  static constexpr const char* name = "mxfp4";
};
struct mxfp6e2m3 : microscaling<detail::float_element<2, 3, 0x1FU>> {
  static constexpr const char* name = "mxfp6e2m3";
};
struct mxfp6e3m2 : microscaling<detail::float_element<3, 2, 0x1FU>> {
  static constexpr const char* name = "mxfp6e3m2";
};
struct mxfp8e4m3 : microscaling<detail::float_element<4, 3, 0x7EU>> {
  static constexpr const char* name = "mxfp8e4m3";
};
struct mxfp8e5m2 : microscaling<detail::float_element<5, 2, 0x7BU>> {
  static constexpr const char* name = "mxfp8e5m2";
};
struct mxint8 : microscaling<detail::int8_element> {
  static constexpr const char* name = "mxint8";
};

KVAXIS_END_NAMESPACE
