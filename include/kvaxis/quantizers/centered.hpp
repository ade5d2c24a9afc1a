// centered<Codec>: subtracts the middle of a group's range before another codec sees the numbers. For symmetric codecs,
// codebooks and minifloats on numbers far from zero, such as keys with a bias; it takes another float16 per group.
//
//   params  {inner: those of Codec, centre}     decoded Codec::decode(inner, code) + centre
//
// The middle rather than the mean: a codec that is scaled by the largest number then gets its smallest scale, and no number is
// farther from it than the largest is from zero. On normal numbers in groups of 64 the mean leaves 1.23 times the error with
// int4s, 1.06 with lloyd4, 1.02 with nf4 and 0.97 with e4m3; on exponential ones 2.6, 0.9, 0.44 and 0.28 times.
// int4s-centered costs as much as int4 and has an error 1.15 times as large. nf4-centered and nf4a are the same numbers.
#pragma once

#include "codec.hpp"

KVAXIS_BEGIN_NAMESPACE

// Codec encodes each number by itself: outliers<> cannot be centred, and has an offset of its own.
template <class Codec>
struct centered {
  static_assert(codec_parameters<Codec>::member_bytes == 2, "centered: a codec with float16 parameters");
  static constexpr int bits = Codec::bits;
  static constexpr codec_name full_name{Codec::name, "-centered"};
  static constexpr const char* name = full_name.text;
  static constexpr float limit = limit_of<Codec> < max_float16 ? limit_of<Codec> : max_float16;

  struct params {
    typename Codec::params inner;
    float16 centre;
  };

  static params fit(const float* x, int n) noexcept {
    const auto [low, high] = detail::extremes_of(x, n);
    const float16 middle = to_float16(low / 2 + high / 2);
    const float centre = to_float(middle);
    // Of a group longer than any in a cache every step-th number and the ends are looked at.
    float shifted[max_head_dim + 2] = {};
    const int step = (n + max_head_dim - 1) / max_head_dim;
    int count = 0;
    for (int i = 0; i < n; i += step) shifted[count++] = shift(x[i], centre);
    if (step > 1) {
      shifted[count++] = shift(low, centre);
      shifted[count++] = shift(high, centre);
    }
    return {Codec::fit(shifted, count), middle};
  }

  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    const float centre = to_float(p.centre);
    for (int i = 0; i < n; ++i) {
      const float shifted = shift(x[i], centre);
      Codec::encode(p.inner, &shifted, 1, codes + i);
    }
  }
  static float decode(params p, std::uint32_t code) noexcept {
    return Codec::decode(p.inner, code) + to_float(p.centre);
  }

 private:
  static float shift(float x, float centre) noexcept { return flush_subnormal(x - centre); }
};

KVAXIS_END_NAMESPACE
