// What a cache is made of, and every check on it: a request that passes here cannot fail later but for memory.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "../attention/kernels.hpp"
#include "../memory.hpp"
#include "../rope/rope.hpp"

KVAXIS_BEGIN_NAMESPACE

enum class on_bad_input : int { refuse, replace };

// A policy with the functions of its codec.
struct bound_policy {
  kvaxis::policy policy;
  const codec_table* codec = nullptr;
};

template <class Policy>
inline constexpr bound_policy bind = {Policy::value, &table_of<typename Policy::codec>};

// Cheaper policies for older tokens; see any_kv_cache::demote().
struct older_tier {
  bound_policy keys;
  bound_policy values;
  std::int64_t newer_tokens = 0;  // a tile gets them when so many tokens follow it
};

struct cache_config {
  int kv_heads = 0;
  int head_dim = 0;   // of keys and queries, 8 to 576
  int value_dim = 0;  // of values; 0: head_dim. Latent values: the first channels of a key, none of which rotates
  int window = 128;   // at least so many of the newest tokens stay in full precision; at most tile_tokens - 1 more do
  int pins = 4;       // the first tokens of the sequence, never folded: attention sinks; at most 256
  int tile_tokens = 64;      // where no policy is per_channel: 32, 64, 128 or 256
  kvaxis::rope rope;         // see make_rope(); without pairs: no rotation
  bool half_window = false;  // tokens in full precision are binary16 instead of f32
  float growth = 2.0F;       // of a pair's range^2 under rotation, from which `automatic` keeps it hot

  // Scales and offsets for per_tensor policies, one or kv_heads of each; copied. An offset may be left out.
  const float* k_scale = nullptr;
  const float* k_offset = nullptr;
  const float* v_scale = nullptr;
  const float* v_offset = nullptr;
  int scales_count = 1;

  int older_tiers_count = 0;
  std::array<older_tier, max_tiers - 1> older_tiers{};  // with growing newer_tokens

  // `replace`: NaN becomes 0, infinity and numbers beyond the range its end; counted, see any_kv_cache::replaced().
  on_bad_input non_finite = on_bad_input::refuse;
  on_bad_input out_of_range = on_bad_input::refuse;
};

namespace detail {

[[nodiscard]] constexpr bool is_tile_length(int tokens) noexcept {
  return tokens == 32 || tokens == 64 || tokens == 128 || tokens == 256;
}

[[nodiscard]] constexpr bool needs_scale(const bound_policy& b) noexcept {
  return b.policy.axis == axis::tensor && b.codec->members > 0;
}

inline status check_policy(const bound_policy& b, const cache_config& c, bool is_key) noexcept {
  const policy& p = b.policy;
  if (is_key && p.axis == axis::latent) return {errc::unsupported, "key policy: latent", 0};
  const char* const group = is_key ? "key policy: group length" : "value policy: group length";
  if (p.axis == axis::token && (p.group < 16 || p.group % 16 != 0)) return {errc::invalid_argument, group, 16};
  if (p.axis == axis::channel && !is_tile_length(p.group)) return {errc::invalid_argument, group, max_tile_tokens};
  if (p.axis == axis::tensor && b.codec->unit == unit_kind::none) {
    return {errc::unsupported, is_key ? "key policy: per_tensor codec" : "value policy: per_tensor codec", 0};
  }
  if (b.codec->transformed && (p.axis == axis::channel || p.axis == axis::latent)) {
    return {errc::unsupported,
            is_key ? "key policy: hadamard needs per_token" : "value policy: hadamard needs per_token", 0};
  }
  if (p.axis == axis::tensor && b.codec->refined) {
    return {errc::unsupported, is_key ? "key policy: lsq with a given scale" : "value policy: lsq with a given scale",
            0};
  }
  if (!is_key) {
    const bool own = p.axis != axis::latent && b.codec->wide != nullptr;
    return own ? status{errc::unsupported, "value policy: wide pairs are of keys", 0} : status{};
  }
  if (b.codec->transformed && p.rotation == pre && c.rope.pairs_count > 0) {
    return {errc::unsupported, "key policy: hadamard needs the rotation tile or post", 0};
  }
  if (b.codec->wide != nullptr && (p.axis != axis::channel || p.rotation <= 0)) {
    return {errc::invalid_argument, "key policy: wide pairs need per_channel and their number", 0};
  }
  if (p.rotation < post || p.rotation > c.rope.pairs_count) {
    return {errc::out_of_range, "key policy: hot pairs", c.rope.pairs_count};
  }
  if (p.axis != axis::channel && (p.rotation == automatic || p.rotation > 0)) {
    return {errc::unsupported, "key policy: automatic and hot pairs need per_channel", 0};
  }
  return {};
}

// Latent values are read as they lie in the key: none may be of a pair that the cache rotates.
inline status check_latent(const bound_policy& key, const bound_policy& value, const cache_config& c) noexcept {
  if (value.codec != key.codec) return {errc::invalid_argument, "value policy: latent of other keys", 0};
  const int value_dim = c.value_dim == 0 ? c.head_dim : c.value_dim;
  int most = c.head_dim;
  if (value_dim > most) return {errc::out_of_range, "value_dim: latent values are channels of the key", most};
  for (int i = 0; i < c.rope.pairs_count && key.policy.rotation != post; ++i) {
    for (const int channel :
         {c.rope.pairs[static_cast<std::size_t>(i)].a, c.rope.pairs[static_cast<std::size_t>(i)].b}) {
      most = channel < most ? channel : most;
    }
  }
  if (value_dim > most) return {errc::out_of_range, "value_dim: latent values reach into rotated channels", most};
  return {};
}

// A given scale must be a positive finite number; it is never silently 1.
inline status check_scales(const float* scale, const float* offset, int count, bool is_key) noexcept {
  if (scale == nullptr) return {errc::invalid_argument, is_key ? "k_scale" : "v_scale", count};
  for (int i = 0; i < count; ++i) {
    if (!is_finite(scale[i]) || !(scale[i] >= FLT_MIN)) {
      return {errc::invalid_argument, is_key ? "k_scale" : "v_scale", i};
    }
    if (offset != nullptr && !is_finite(offset[i])) {
      return {errc::invalid_argument, is_key ? "k_offset" : "v_offset", i};
    }
  }
  return {};
}

inline status check_shape(const cache_config& c) noexcept {
  if (c.kv_heads < 1 || c.kv_heads > max_kv_heads) return {errc::out_of_range, "kv_heads", max_kv_heads};
  if (c.head_dim < min_head_dim) return {errc::out_of_range, "head_dim", min_head_dim};
  if (c.head_dim > max_head_dim) return {errc::out_of_range, "head_dim", max_head_dim};
  const int value_dim = c.value_dim == 0 ? c.head_dim : c.value_dim;
  if (value_dim < min_head_dim) return {errc::out_of_range, "value_dim", min_head_dim};
  if (value_dim > max_head_dim) return {errc::out_of_range, "value_dim", max_head_dim};
  return {};
}

// Older tiers have the shape, the rotation (all in the engine or all in the cache) and the tile length of the newest.
inline status check_tiers(const cache_config& c, const bound_policy& key, const bound_policy& value,
                          int tokens) noexcept {
  const bool latent = value.policy.axis == axis::latent;
  const bool transformed_values = value.codec->transformed;
  if (c.older_tiers_count < 0 || c.older_tiers_count >= max_tiers) {
    return {errc::out_of_range, "older_tiers_count", max_tiers - 1};
  }
  std::int64_t newer = c.window;
  for (int i = 0; i < c.older_tiers_count; ++i) {
    const older_tier& t = c.older_tiers[static_cast<std::size_t>(i)];
    if (t.keys.codec == nullptr || t.values.codec == nullptr) {
      return {errc::invalid_argument, "older_tiers: policy", i};
    }
    if (status s = check_policy(t.keys, c, true); !s.ok()) return s;
    if (status s = check_policy(t.values, c, false); !s.ok()) return s;
    if ((t.values.policy.axis == axis::latent) != latent) return {errc::unsupported, "older_tiers: latent values", i};
    if (latent && t.values.codec != t.keys.codec) {
      return {errc::invalid_argument, "older_tiers: latent of other keys", i};
    }
    if (t.values.codec->transformed != transformed_values) {
      return {errc::unsupported, "older_tiers: hadamard on values", i};
    }
    if (needs_scale(t.keys) || needs_scale(t.values)) return {errc::unsupported, "older_tiers: per_tensor", i};
    if (tile_length(t.keys.policy, t.values.policy, tokens) != tokens) {
      return {errc::invalid_argument, "older_tiers: group length must be the tile's", tokens};
    }
    if (t.values.policy.axis == axis::channel && tokens % t.values.policy.group != 0) {
      return {errc::invalid_argument, "older_tiers: group length must divide the tile's", tokens};
    }
    if ((t.keys.policy.rotation == post) != (key.policy.rotation == post)) {
      return {errc::unsupported, "older_tiers: rotation", i};
    }
    if (t.newer_tokens < newer || t.newer_tokens > max_position) {
      return {errc::out_of_range, "older_tiers: newer_tokens", newer};
    }
    newer = t.newer_tokens;
  }
  return {};
}

inline status check_config(const cache_config& c, const bound_policy& key, const bound_policy& value) noexcept {
  if (key.codec == nullptr) return {errc::invalid_argument, "key policy", 0};
  if (value.codec == nullptr) return {errc::invalid_argument, "value policy", 0};
  if (status s = check_shape(c); !s.ok()) return s;
  if (c.window < 0 || c.window > max_position) return {errc::out_of_range, "window", max_position};
  if (c.pins < 0 || c.pins > max_tile_tokens) return {errc::out_of_range, "pins", max_tile_tokens};
  if (!is_tile_length(c.tile_tokens)) return {errc::invalid_argument, "tile_tokens", max_tile_tokens};
  if (!is_finite(c.growth) || c.growth < 1.0F) return {errc::out_of_range, "growth", 1};
  if (status s = check_rope(c.rope, c.head_dim); !s.ok()) return s;
  if (status s = check_policy(key, c, true); !s.ok()) return s;
  if (status s = check_policy(value, c, false); !s.ok()) return s;
  if (value.policy.axis == axis::latent) {
    if (status s = check_latent(key, value, c); !s.ok()) return s;
  }
  const int tokens = tile_length(key.policy, value.policy, c.tile_tokens);
  if (value.policy.axis == axis::channel && tokens % value.policy.group != 0) {
    return {errc::invalid_argument, "value policy: group length must divide the tile's", tokens};
  }
  if (status s = check_tiers(c, key, value, tokens); !s.ok()) return s;
  if (needs_scale(key) || needs_scale(value)) {
    if (c.scales_count != 1 && c.scales_count != c.kv_heads)
      return {errc::invalid_argument, "scales_count", c.kv_heads};
  }
  if (needs_scale(key)) {
    if (status s = check_scales(c.k_scale, c.k_offset, c.scales_count, true); !s.ok()) return s;
  }
  if (needs_scale(value)) {
    if (status s = check_scales(c.v_scale, c.v_offset, c.scales_count, false); !s.ok()) return s;
  }
  return {};
}

// The largest magnitude that a policy takes, but for given scales.
[[nodiscard]] constexpr float limit_of_numbers(const bound_policy& b) noexcept {
  return needs_scale(b) ? FLT_MAX : b.codec->limit;
}

// A configuration that passed, as what the format of a tier's tiles is made from; tier 0 is that of new tiles.
inline format_request make_request(const cache_config& c, const bound_policy& keys, const bound_policy& values,
                                   int tier = 0) noexcept {
  const bound_policy& key = tier == 0 ? keys : c.older_tiers[static_cast<std::size_t>(tier - 1)].keys;
  const bound_policy& value = tier == 0 ? values : c.older_tiers[static_cast<std::size_t>(tier - 1)].values;
  format_request q;
  q.kv_heads = c.kv_heads;
  q.head_dim = c.head_dim;
  q.value_dim = c.value_dim == 0 ? c.head_dim : c.value_dim;
  q.tokens = tile_length(keys.policy, values.policy, c.tile_tokens);
  q.half_rows = c.half_window;
  q.growth = c.growth;
  q.rope = &c.rope;
  q.key = {key.codec, key.policy, nullptr, nullptr, c.scales_count, limit_of_numbers(key)};
  q.value = {value.codec, value.policy, nullptr, nullptr, c.scales_count, limit_of_numbers(value)};
  // A token must fit every tier that it may come to, rotated there and with the error of the one before.
  for (int i = 0; i < c.older_tiers_count; ++i) {
    const older_tier& t = c.older_tiers[static_cast<std::size_t>(i)];
    q.key.limit = std::min(q.key.limit, 0.5F * t.keys.codec->limit);
    q.value.limit = std::min(q.value.limit, 0.5F * t.values.codec->limit);
  }
  if (needs_scale(key)) {
    q.key.scale = c.k_scale;
    q.key.offset = c.k_offset;
  }
  if (needs_scale(value)) {
    q.value.scale = c.v_scale;
    q.value.offset = c.v_offset;
  }
  return q;
}

// The numbers that a head's keys, or values, may have: low .. high.
struct number_range {
  float low = -FLT_MAX;
  float high = FLT_MAX;
};

// What a codec takes with a given scale.
inline number_range range_of(const codec_table& codec, given_scale g) noexcept {
  number_range r{fused(g.scale, codec.unit_min, g.offset), fused(g.scale, codec.unit_max, g.offset)};
  if (!is_finite(r.low)) r.low = -FLT_MAX;
  if (!is_finite(r.high)) r.high = FLT_MAX;
  return r;
}

// A pair that is stored rotated can grow by sqrt(2), a transform of n numbers by sqrt(n), so keys and values must stay
// within the range / sqrt(n): a limit is checked when a token comes in, never met first at a later fold.
inline number_range before_growth(number_range r, int n) noexcept {
  const float smaller = -r.low < r.high ? -r.low : r.high;
  const auto part = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  const float inside = smaller > 0.0F ? smaller * part : 0.0F;
  return {-inside, inside};
}

// What a head takes.
inline number_range range_of(const tile_format& f, bool is_key, int head) noexcept {
  const codec_table& codec = is_key ? *f.key_codec : *f.value_codec;
  const policy& p = is_key ? f.key_policy : f.value_policy;
  const float limit = is_key ? f.key_limit : f.value_limit;
  number_range r{-limit, limit};
  if (p.axis == axis::tensor && codec.members > 0) {
    const number_range given = range_of(codec, is_key ? f.key_given[head] : f.value_given[head]);
    r = {std::max(r.low, given.low), std::min(r.high, given.high)};
  }
  if (is_key && rotates_tiles(f)) r = before_growth(r, 2);
  if (codec.transformed) r = before_growth(r, hadamard_block(is_key ? f.head_dim : f.value_dim));
  if (f.half_rows) {
    r.low = r.low < -max_float16 ? -max_float16 : r.low;
    r.high = r.high > max_float16 ? max_float16 : r.high;
  }
  return r;
}

}  // namespace detail
KVAXIS_END_NAMESPACE
