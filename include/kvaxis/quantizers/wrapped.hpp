// Codecs that change what another codec is given:
//
//   with_hadamard<Codec>    values, or per-token keys, after an orthonormal Hadamard transform over the head, which spreads
//                           an outlier evenly; attention transforms the query, or the result, instead of the numbers
//   hot_bits<Codec, Hot>    per-channel keys: the hot pairs have the width of Hot, the others that of Codec
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

template <class Codec, class Hot>
struct hot_bits : Codec {
  static_assert(is_linear<Codec> && std::is_same_v<decltype(Codec::fit(nullptr, 0)), typename Codec::params>);
  static_assert(codec_parameters<Codec>::members == codec_parameters<Hot>::members &&
                    codec_parameters<Codec>::member_bytes == codec_parameters<Hot>::member_bytes,
                "hot_bits: both codecs need the same parameters");
  static_assert(Hot::bits - Codec::bits == 1 || Hot::bits - Codec::bits == 2 || Hot::bits - Codec::bits == 4,
                "hot_bits: hot pairs have 1, 2 or 4 bits more");
  static constexpr codec_name full_name{Codec::name, "x", digit_text(Hot::bits)};
  static constexpr const char* name = full_name.text;
  using hot = Hot;
};

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
struct hot_of {
  using type = void;
};
template <class C>
struct hot_of<C, std::void_t<typename C::hot>> {
  using type = typename C::hot;
};

// The bits that a hot pair has more than others.
template <class C>
constexpr int find_hot_extra() noexcept {
  using hot = typename hot_of<C>::type;
  if constexpr (!std::is_void_v<hot>) return hot::bits - C::bits;
  return 0;
}
template <class C>
inline constexpr int hot_extra = find_hot_extra<C>();

}  // namespace detail

KVAXIS_END_NAMESPACE
