// The typed front of the cache: policies as types, checked by the compiler.
#pragma once

#include <type_traits>

#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE

template <class Keys = default_keys, class Values = default_values>
class kv_cache : public any_kv_cache {
  static_assert(Keys::value.axis != axis::channel || detail::is_tile_length(Keys::value.group),
                "kv_cache: per_channel keys need a group of 32, 64, 128 or 256 tokens, the length of a tile");
  static_assert(Values::value.axis != axis::channel || detail::is_tile_length(Values::value.group),
                "kv_cache: per_channel values need a group of 32, 64, 128 or 256 tokens");
  static_assert(Keys::value.axis != axis::channel || Values::value.axis != axis::channel ||
                    Keys::value.group % Values::value.group == 0,
                "kv_cache: the group of per_channel values must divide the group of the keys");

  static_assert(Values::value.axis != axis::latent || std::is_same_v<Values, latent<Keys>>,
                "kv_cache: latent values are those of the cache's own keys, latent<Keys>");

 public:
  kv_cache() noexcept = default;

  // `out` is unchanged unless the answer is ok.
  static status create(const cache_config& c, const allocator& memory, kv_cache& out) noexcept {
    return any_kv_cache::create(c, bind<Keys>, bind<Values>, memory, out);
  }
  static status create(const cache_config& c, kv_cache& out) noexcept { return create(c, allocator{}, out); }

  // Mean bits of a folded number, keys and values together; latent values are no numbers of their own.
  [[nodiscard]] static constexpr double bits(int head_dim, int value_dim = 0, int tile_tokens = 64) noexcept {
    const int dim = value_dim == 0 ? head_dim : value_dim;
    const int tokens = tile_length(Keys::value, Values::value, tile_tokens);
    const double keys = bits_per_value<Keys>(head_dim, role::key, tokens) * head_dim;
    const double values = bits_per_value<Values>(dim, role::value, tokens) * dim;
    return (keys + values) / (head_dim + (Values::value.axis == axis::latent ? 0 : dim));
  }
};

KVAXIS_END_NAMESPACE
