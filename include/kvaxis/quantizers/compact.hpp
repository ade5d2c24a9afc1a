// Uniform integer codes whose scale and offset take a byte each: at the bits of a group of 64 with binary16 parameters, a
// group of 32.
//
//   scale   the upper eight bits of a positive binary16 number, five of the exponent and three of the mantissa
//   zero    a signed byte z: the offset is z * scale, so code 0 stands for that
//
// The offset cannot be far from zero: numbers around c get a scale of at least |c| / 128. For values and for keys without
// a bias; keys with one (Qwen) keep their binary16 minimum.
#pragma once

#include "codec.hpp"

KVAXIS_BEGIN_NAMESPACE

template <int Bits>
struct compact {
  static_assert(Bits >= 2 && Bits <= 6, "compact: codes of 2 to 6 bits");
  static constexpr int bits = Bits;
  static constexpr codec_name full_name{"int", digit_text(Bits), "m8"};
  static constexpr const char* name = full_name.text;
  static constexpr float limit = 32768.0F;

  struct params {
    std::uint8_t scale;
    std::uint8_t zero;
  };

  // Of the scales around the range's the one with the smallest squared error.
  static params fit(const float* x, int n) noexcept {
    const auto [low, high] = detail::extremes_of(x, n);
    const float needed = -low > 127.0F / 128.0F * high ? -low : high;  // so that the offset is within reach
    const float by_range = static_cast<float>(static_cast<double>(high - low) / largest);
    const float by_offset = high < 0.0F || low > 0.0F ? static_cast<float>(static_cast<double>(needed) / 120.0) : 0.0F;
    const float wanted = by_range > by_offset ? by_range : by_offset;
    if (!(wanted > 0.0F)) return {0, 0};
    const int nearest = to_float16(wanted < smallest_scale ? smallest_scale : wanted).bits >> 7;
    params best{};
    float best_error = FLT_MAX;
    for (int s = nearest - 3; s <= nearest + 1; ++s) {
      if (s < 1 || s > 0xF7) continue;
      const float scale = scale_of(static_cast<std::uint8_t>(s));
      const float inverse = scalar::inverse({scale}).v;
      const float first =
          static_cast<float>(0.5 * (static_cast<double>(low) + static_cast<double>(high))) * inverse - 0.5F * largest;
      for (int shift = 0; shift < 2; ++shift) {
        const int z = static_cast<int>(std::floor(first)) + shift;
        if (z < -128 || z > 127) continue;
        const params p{static_cast<std::uint8_t>(s), static_cast<std::uint8_t>(z)};
        float error = 0.0F;
        for (int i = 0; i < n; ++i) {
          const float e = x[i] - decode(p, code_of(p, inverse, x[i]));
          error = fused(e, e, error);
        }
        if (error < best_error) {
          best_error = error;
          best = p;
        }
      }
    }
    return best;
  }

  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    const float scale = scale_of(p.scale);
    const float inverse = scale > 0.0F ? scalar::inverse({scale}).v : 0.0F;
    for (int i = 0; i < n; ++i) codes[i] = code_of(p, inverse, x[i]);
  }
  static float decode(params p, std::uint32_t code) noexcept {
    return scale_of(p.scale) * static_cast<float>(static_cast<int>(code) + zero_of(p));
  }

 private:
  static constexpr float largest = static_cast<float>((1 << Bits) - 1);
  static constexpr float smallest_scale = 0x1p-14F;

  static float scale_of(std::uint8_t byte) noexcept { return to_float(float16{static_cast<std::uint16_t>(byte << 7)}); }
  static int zero_of(params p) noexcept { return p.zero < 128 ? p.zero : p.zero - 256; }
  static std::uint32_t code_of(params p, float inverse, float x) noexcept {
    const auto zero = static_cast<float>(zero_of(p));
    return scalar::integer_code({fused(x, inverse, -zero)}, {0.0F}, {1.0F}, 0, 0.0F, largest).v;
  }
};

KVAXIS_END_NAMESPACE
