// FP8 codes with a scale: E4M3 ("FN", largest 448) and E5M2, round to nearest even, saturating, of x / scale.
// With a scale per group the scale is the smallest float16 with scale * largest >= max|x|, so nothing saturates.
#pragma once

#include "../formats/float8.hpp"
#include "codec.hpp"

KVAXIS_BEGIN_NAMESPACE

template <unit_kind Format>
struct minifloat {
  static_assert(Format == unit_kind::e4m3 || Format == unit_kind::e5m2, "minifloat: e4m3 or e5m2");
  static constexpr int bits = 8;
  static constexpr const char* name = Format == unit_kind::e4m3 ? "e4m3" : "e5m2";
  static constexpr float limit = max_float16;
  static constexpr unit_kind unit = Format;
  static constexpr int zero = 0;
  static constexpr float unit_max = Format == unit_kind::e4m3 ? max_e4m3 : max_e5m2;
  static constexpr float unit_min = -unit_max;
  static constexpr float offset_factor = 0.0F;

  struct params {
    float16 scale;
  };

  static params fit(const float* x, int n) noexcept {
    const float largest = detail::largest_magnitude(x, n);
    const scalar::vu scale = scalar::smallest_half_scale({largest}, unit_max);
    return {float16{static_cast<std::uint16_t>(scale.v)}};
  }

  static void encode_linear(float scale, float offset, const float* x, int n, std::uint32_t* codes) noexcept {
    const float inverse = scale > 0.0F ? scalar::inverse({scale}).v : 0.0F;
    for (int i = 0; i < n; ++i) {
      const float scaled = (x[i] - offset) * inverse;
      codes[i] = Format == unit_kind::e4m3 ? encode_e4m3(scaled) : encode_e5m2(scaled);
    }
  }

  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    encode_linear(to_float(p.scale), 0.0F, x, n, codes);
  }
  static float unit_value(std::uint32_t code) noexcept {
    const auto byte = static_cast<std::uint8_t>(code);
    return Format == unit_kind::e4m3 ? decode_e4m3(byte) : decode_e5m2(byte);
  }
  static float decode(params p, std::uint32_t code) noexcept {
    // A sum with an offset of zero, which would decide the sign of a zero, may be optimized away or not.
    return to_float(p.scale) * unit_value(code);
  }
};

template <unit_kind Format>
inline constexpr code_kind code_kind_of<minifloat<Format>> = code_kind::minifloat;

using e4m3 = minifloat<unit_kind::e4m3>;
using e5m2 = minifloat<unit_kind::e5m2>;

KVAXIS_END_NAMESPACE
