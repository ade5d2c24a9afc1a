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
  static_assert((Bits >= 2 && Bits <= 6) || Bits == 8, "affine: codes of 2 to 6 or 8 bits");
  static constexpr int bits = Bits;
  static constexpr codec_name full_name{"int", digit_text(Bits), sizeof(Meta) == 2 ? "" : "f32"};
  static constexpr const char* name = full_name.text;
  // Half of FLT_MAX for f32 metadata, so that max - min stays finite.
  static constexpr float limit = sizeof(Meta) == 2 ? max_float16 : FLT_MAX / 2;
  static constexpr unit_kind unit = unsigned_unit(Bits);
  static constexpr int zero = 0;
  static constexpr float unit_min = 0.0F;
  static constexpr float unit_max = static_cast<float>((1 << Bits) - 1);
  static constexpr float offset_factor = 0.0F;

  struct params {
    Meta scale;
    Meta offset;
  };

  static params fit(const float* x, int n) noexcept {
    const auto [low, high] = detail::extremes_of(x, n);
    return fit_range(low, high);
  }

  static params fit_range(float low, float high) noexcept {
    if constexpr (sizeof(Meta) == 2) {
      scalar::vu scale;
      scalar::vu offset;
      scalar::fit_halves({low}, {high}, unit_max, scale, offset);
      return {float16{static_cast<std::uint16_t>(scale.v)}, float16{static_cast<std::uint16_t>(offset.v)}};
    } else {
      params p;
      detail::fit_floats(low, high, unit_max, p.scale, p.offset);
      return p;
    }
  }

  static void encode_linear(float scale, float offset, const float* x, int n, std::uint32_t* codes) noexcept {
    detail::encode_integers(scale, offset, zero, unit_min, unit_max, x, n, codes);
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
  static_assert((Bits >= 2 && Bits <= 6) || Bits == 8, "symmetric: codes of 2 to 6 or 8 bits");
  static constexpr int bits = Bits;
  static constexpr codec_name full_name{"int", digit_text(Bits), "s"};
  static constexpr const char* name = full_name.text;
  static constexpr float limit = max_float16;
  static constexpr unit_kind unit = unsigned_unit(Bits);
  static constexpr int zero = 1 << (Bits - 1);
  static constexpr float unit_min = 1.0F;
  static constexpr float unit_max = static_cast<float>(2 * zero - 1);
  static constexpr float offset_factor = -static_cast<float>(zero);

  struct params {
    float16 scale;
  };

  static params fit(const float* x, int n) noexcept {
    const float largest = detail::largest_magnitude(x, n);
    return fit_range(-largest, largest);
  }

  static params fit_range(float low, float high) noexcept {
    const float largest = -low > high ? -low : high;
    const scalar::vu scale = scalar::smallest_half_scale({largest}, unit_max - static_cast<float>(zero));
    return {float16{static_cast<std::uint16_t>(scale.v)}};
  }

  // The offset of a symmetric codec is always -zero * scale; a different one is the caller's centre.
  static void encode_linear(float scale, float offset, const float* x, int n, std::uint32_t* codes) noexcept {
    const float centre = fused(scale, static_cast<float>(zero), offset);
    detail::encode_integers(scale, centre, zero, unit_min, unit_max, x, n, codes);
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

template <int Bits, class Meta>
inline constexpr code_kind code_kind_of<affine<Bits, Meta>> = code_kind::integer;
template <int Bits>
inline constexpr code_kind code_kind_of<symmetric<Bits>> = code_kind::integer;

using int2 = affine<2, float16>;
using int3 = affine<3, float16>;
using int4 = affine<4, float16>;
using int5 = affine<5, float16>;
using int6 = affine<6, float16>;
using int8 = affine<8, float16>;
using int4f32 = affine<4, float>;
using int8f32 = affine<8, float>;
using int2s = symmetric<2>;
using int3s = symmetric<3>;
using int4s = symmetric<4>;
using int5s = symmetric<5>;
using int6s = symmetric<6>;
using int8s = symmetric<8>;

KVAXIS_END_NAMESPACE
