// Uniform integer codes: asymmetric with a stored minimum, and symmetric.
//
// asymmetric  offset = the minimum, rounded down to the metadata's type
//             scale  = the smallest s with s * L >= max - offset, L = 2^bits - 1, so that neither end clips
//             code   = round_even((x - offset) / scale), decoded as fma(scale, code, offset)
//             The minimum stays a number, not an integer zero point: a channel at 200 +- 1 keeps its offset.
// symmetric   scale  = the smallest s with s * h >= max|x|, h = 2^(bits-1) - 1 (narrow range)
//             stored as code + 2^(bits-1); the extreme code -2^(bits-1) never occurs
#pragma once

#include "codec.hpp"

KVAXIS_BEGIN_NAMESPACE

template <int Bits, class Meta>
struct affine {
  static_assert(Bits == 4 || Bits == 8, "affine: codes of 4 or 8 bits");
  static constexpr int bits = Bits;
  static constexpr const char* name =
      Bits == 4 ? (sizeof(Meta) == 2 ? "int4" : "int4f32") : (sizeof(Meta) == 2 ? "int8" : "int8f32");
  // Half of FLT_MAX for f32 metadata, so that max - min stays finite.
  static constexpr float limit = sizeof(Meta) == 2 ? max_float16 : FLT_MAX / 2;
  static constexpr unit_kind unit = Bits == 4 ? unit_kind::u4 : unit_kind::u8;
  static constexpr float unit_min = 0.0F;
  static constexpr float unit_max = static_cast<float>((1 << Bits) - 1);
  static constexpr float offset_factor = 0.0F;

  struct params {
    Meta scale;
    Meta offset;
  };

  static params fit(const float* x, int n) noexcept {
    float low = x[0];
    float high = x[0];
    for (int i = 1; i < n; ++i) {
      low = x[i] < low ? x[i] : low;
      high = x[i] > high ? x[i] : high;
    }
    params p{Meta{}, detail::floor_to(low, Meta{})};
    const float span = high - to_float(p.offset);
    // The flush keeps the test the same on a CPU that takes a subnormal difference for zero.
    if (flush_subnormal(span) > 0.0F) p.scale = detail::smallest_scale(span, unit_max, Meta{});
    return p;
  }

  static void encode_linear(float scale, float offset, const float* x, int n, std::uint32_t* codes) noexcept {
    if (!(scale > 0.0F)) {
      for (int i = 0; i < n; ++i) codes[i] = 0;
      return;
    }
    const float inverse = detail::inverse_of(scale);
    for (int i = 0; i < n; ++i) codes[i] = detail::round_code(x[i] - offset, inverse, unit_min, unit_max, 0);
  }

  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    encode_linear(to_float(p.scale), to_float(p.offset), x, n, codes);
  }
  static float unit_value(std::uint32_t code) noexcept { return static_cast<float>(code); }
  static float decode(params p, std::uint32_t code) noexcept {
    return fused(to_float(p.scale), unit_value(code), to_float(p.offset));
  }
};

template <int Bits>
struct symmetric {
  static_assert(Bits == 4 || Bits == 8, "symmetric: codes of 4 or 8 bits");
  static constexpr int bits = Bits;
  static constexpr const char* name = Bits == 4 ? "int4s" : "int8s";
  static constexpr float limit = max_float16;
  static constexpr unit_kind unit = Bits == 4 ? unit_kind::u4 : unit_kind::u8;
  static constexpr int zero = 1 << (Bits - 1);
  static constexpr float unit_min = 1.0F;
  static constexpr float unit_max = static_cast<float>(2 * zero - 1);
  static constexpr float offset_factor = -static_cast<float>(zero);

  struct params {
    float16 scale;
  };

  static params fit(const float* x, int n) noexcept {
    const float largest = detail::largest_magnitude(x, n);
    return {largest > 0.0F ? detail::smallest_scale(largest, static_cast<float>(zero - 1), float16{}) : float16{}};
  }

  // The offset of a symmetric codec is always -zero * scale; a different one is the caller's centre.
  static void encode_linear(float scale, float offset, const float* x, int n, std::uint32_t* codes) noexcept {
    if (!(scale > 0.0F)) {
      for (int i = 0; i < n; ++i) codes[i] = zero;
      return;
    }
    const float inverse = detail::inverse_of(scale);
    const float centre = fused(scale, static_cast<float>(zero), offset);
    const auto reach = static_cast<float>(zero - 1);
    for (int i = 0; i < n; ++i) codes[i] = detail::round_code(x[i] - centre, inverse, -reach, reach, zero);
  }

  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    const float scale = to_float(p.scale);
    encode_linear(scale, offset_factor * scale, x, n, codes);
  }
  static float unit_value(std::uint32_t code) noexcept { return static_cast<float>(code); }
  static float decode(params p, std::uint32_t code) noexcept {
    const float scale = to_float(p.scale);
    return fused(scale, unit_value(code), offset_factor * scale);
  }
};

using int4 = affine<4, float16>;
using int8 = affine<8, float16>;
using int4f32 = affine<4, float>;
using int8f32 = affine<8, float>;
using int4s = symmetric<4>;
using int8s = symmetric<8>;

KVAXIS_END_NAMESPACE
