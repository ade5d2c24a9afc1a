// Codecs that change what another codec is given:
//
//   with_hadamard<Codec>    values, or per-token keys, after an orthonormal Hadamard transform over the head, which spreads
//                           an outlier evenly; attention transforms the query, or the result, instead of the numbers
//   wide_pairs<Codec, Wide> per-channel keys: the N pairs of the largest range have the width of Wide, all others that of
//                           Codec; per_channel<..., N> says how many
#pragma once

#include "codec.hpp"
#include "hadamard.hpp"

KVAXIS_BEGIN_NAMESPACE

template <class Codec>
struct with_hadamard : Codec {
  static constexpr codec_name full_name{Codec::name, "-hadamard"};
  static constexpr const char* name = full_name.text;
  static constexpr bool transformed = true;
};

template <class Codec, class Wide>
struct wide_pairs : Codec {
  static_assert(is_linear<Codec> && std::is_same_v<decltype(Codec::fit(nullptr, 0)), typename Codec::params>);
  static_assert(codec_parameters<Codec>::members == codec_parameters<Wide>::members &&
                    codec_parameters<Codec>::member_bytes == codec_parameters<Wide>::member_bytes,
                "wide_pairs: both codecs need the same parameters");
  static_assert(Wide::bits - Codec::bits == 1 || Wide::bits - Codec::bits == 2 || Wide::bits - Codec::bits == 4,
                "wide_pairs: 1, 2 or 4 bits more");
  static constexpr codec_name full_name{Codec::name, "x", digit_text(Wide::bits)};
  static constexpr const char* name = full_name.text;
  using wide = Wide;
};

template <class Codec>
inline constexpr code_kind code_kind_of<with_hadamard<Codec>> = code_kind_of<Codec>;
template <class Codec, class Wide>
inline constexpr code_kind code_kind_of<wide_pairs<Codec, Wide>> = code_kind_of<Codec>;

namespace detail {

template <class C, class = void>
struct is_refined : std::false_type {};
template <class C>
struct is_refined<C, std::void_t<decltype(C::refined)>> : std::true_type {};

template <class C, class = void>
struct is_transformed : std::false_type {};
template <class C>
struct is_transformed<C, std::void_t<decltype(C::transformed)>> : std::true_type {};

template <class C, class = void>
struct wide_of {
  using type = void;
};
template <class C>
struct wide_of<C, std::void_t<typename C::wide>> {
  using type = typename C::wide;
};

// The bits that such a pair has more than others.
template <class C>
constexpr int find_wide_extra() noexcept {
  using wide = typename wide_of<C>::type;
  if constexpr (!std::is_void_v<wide>) return wide::bits - C::bits;
  return 0;
}
template <class C>
inline constexpr int wide_extra = find_wide_extra<C>();

}  // namespace detail

KVAXIS_END_NAMESPACE
