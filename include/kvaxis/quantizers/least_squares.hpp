// Scales by least squares instead of by the range: of a few clipped ranges, each refitted to the codes that it gives, the
// one with the smallest squared error. Only the encoder differs; never worse than the range in squared error, which pays
// at 2 and 3 bits. An outlier that must survive, such as an attention sink, is clipped: keep those tokens as pins.
#pragma once

#include "affine.hpp"

KVAXIS_BEGIN_NAMESPACE

template <class Codec>
struct least_squares : Codec {
  static_assert(code_kind_of<Codec> == code_kind::integer && codec_parameters<Codec>::member_bytes == 2,
                "least_squares: an integer codec with float16 parameters");
  static constexpr codec_name full_name{Codec::name, "-lsq"};
  static constexpr const char* name = full_name.text;
  static constexpr bool refined = true;
  using params = typename Codec::params;

  static params fit(const float* x, int n) noexcept {
    const auto number = [x](int i) { return scalar::vf{x[i]}; };
    const auto [low, high] = detail::extremes_of(x, n);
    scalar::vu scale;
    scalar::vu offset;
    constexpr bool has_offset = codec_parameters<Codec>::members == 2;
    scalar::fit_least_squares<has_offset>(number, n, {low}, {high}, Codec::zero, Codec::unit_max, scale, offset);
    params p;
    p.scale = {static_cast<std::uint16_t>(scale.v)};
    if constexpr (has_offset) p.offset = {static_cast<std::uint16_t>(offset.v)};
    return p;
  }
};

template <class Codec>
inline constexpr code_kind code_kind_of<least_squares<Codec>> = code_kind_of<Codec>;

KVAXIS_END_NAMESPACE
