// Scales for per_tensor policies from keys and values that were seen.
//
//   calibrator seen;
//   check(calibrator::create(config, seen));
//   check(seen.observe(k, v, n));                              // what append is given, any number of times
//   layer_scales scales;
//   check(seen.scales(bind<Keys>, bind<Values>, 1, 1.0F, scales));
//   check(cache.create(scales.apply(config), cache));          // takes everything that was seen
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <cstdint>

#include "../cache/rows.hpp"
#include "scales.hpp"

KVAXIS_BEGIN_NAMESPACE

// The largest magnitudes of one layer. For several threads, one calibrator each, merged at the end. 8 KB, no allocation.
class calibrator {
 public:
  // Of the configuration, the shape counts, whether there is RoPE, and half_window. `out` forgets what it has seen.
  [[nodiscard]] static status create(const cache_config& c, calibrator& out) noexcept;

  // n tokens as append takes them. NaN and infinity are refused; the limit is the token.
  [[nodiscard]] status observe(const rows& k, const rows& v, int n) noexcept;
  [[nodiscard]] status merge(const calibrator& other) noexcept;

  // Scales with which a cache of these policies just takes `margin` (at least 1) times what was seen: one, or one for
  // each kv head. Nothing but zeros has no scale; the limit is then the head.
  [[nodiscard]] status scales(const bound_policy& keys, const bound_policy& values, int count, float margin,
                              layer_scales& out) const noexcept;

 private:
  using magnitudes = std::array<std::uint32_t, max_kv_heads>;  // bits of the absolute value, ordered as the values

  status side_scales(const bound_policy& b, bool is_key, int count, float margin, float* out) const noexcept;

  int kv_heads_ = 0;
  int head_dim_ = 0;
  int value_dim_ = 0;
  bool has_rope_ = false;
  float limit_ = FLT_MAX;
  magnitudes k_{};
  magnitudes v_{};
};

inline status calibrator::create(const cache_config& c, calibrator& out) noexcept {
  if (status s = detail::check_shape(c); !s.ok()) return s;
  out = {};
  out.kv_heads_ = c.kv_heads;
  out.head_dim_ = c.head_dim;
  out.value_dim_ = c.value_dim == 0 ? c.head_dim : c.value_dim;
  out.has_rope_ = c.rope.pairs_count > 0;
  if (c.half_window) out.limit_ = max_float16;
  return {};
}

inline status calibrator::observe(const rows& k, const rows& v, int n) noexcept {
  if (kv_heads_ == 0) return {errc::invalid_argument, "calibrator: not created", 0};
  if (n < 0) return {errc::out_of_range, "n", 0};
  if (n == 0) return {};
  calibrator with = *this;
  for (const bool is_key : {true, false}) {
    const rows& r = is_key ? k : v;
    const int dim = is_key ? head_dim_ : value_dim_;
    magnitudes& largest = is_key ? with.k_ : with.v_;
    if (status s = detail::check_layout(r, dim, is_key); !s.ok()) return s;
    status found;
    detail::for_each_row(r, n, kv_heads_, dim, [&](const auto* row, int token, int head) {
      std::uint32_t in_row = 0;
      for (int i = 0; i < dim; ++i) in_row = std::max(in_row, float_bits(to_float(row[i])) & 0x7FFFFFFFU);
      std::uint32_t& in_head = largest[static_cast<std::size_t>(head)];
      in_head = std::max(in_head, in_row);
      if (found.ok() && !is_finite(bits_float(in_row))) found = {errc::non_finite, is_key ? "k" : "v", token};
    });
    if (!found.ok()) return found;
  }
  *this = with;
  return {};
}

inline status calibrator::merge(const calibrator& other) noexcept {
  if (kv_heads_ != other.kv_heads_ || head_dim_ != other.head_dim_ || value_dim_ != other.value_dim_) {
    return {errc::invalid_argument, "calibrator: another shape", kv_heads_};
  }
  for (std::size_t h = 0; h < static_cast<std::size_t>(kv_heads_); ++h) {
    k_[h] = std::max(k_[h], other.k_[h]);
    v_[h] = std::max(v_[h], other.v_[h]);
  }
  return {};
}

inline status calibrator::side_scales(const bound_policy& b, bool is_key, int count, float margin,
                                      float* out) const noexcept {
  if (b.codec == nullptr || !detail::needs_scale(b)) {
    return {errc::invalid_argument, is_key ? "key policy: takes no scale" : "value policy: takes no scale", 0};
  }
  const codec_table& codec = *b.codec;
  // Of scale 1, to either side of zero.
  const float reach = std::min(codec.unit_max + codec.offset_factor, -(codec.unit_min + codec.offset_factor));
  if (!(reach > 0.0F)) {
    return {errc::unsupported, is_key ? "key policy: needs an offset" : "value policy: needs an offset", 0};
  }
  const int rotation = b.policy.rotation;
  const bool rotated = is_key && has_rope_ && rotation != pre && rotation != post;
  const magnitudes& largest = is_key ? k_ : v_;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t* const head = largest.data() + i;
    const float seen = bits_float(count == 1 ? *std::max_element(head, head + kv_heads_) : *head);
    if (flush_subnormal(seen) == 0.0F) {
      return {errc::invalid_argument, is_key ? "k: nothing but zeros" : "v: nothing but zeros", i};
    }
    const status beyond = {errc::out_of_range, is_key ? "k" : "v", detail::integer_limit(limit_)};
    if (seen > limit_ || margin > FLT_MAX / seen) return beyond;
    const float wanted = seen * margin;
    const auto takes = [&](float scale) {
      detail::number_range r = detail::range_of(codec, {scale, codec.offset_factor * scale});
      if (rotated) r = detail::before_growth(r, 2);
      return wanted <= r.high && -wanted >= r.low;
    };
    if (!takes(FLT_MAX)) return beyond;
    float scale = detail::smallest_float_scale(rotated ? wanted * 1.4142135F : wanted, reach);
    while (!takes(scale)) scale = bits_float(float_bits(scale) + 1);  // rounding left it a little short
    out[i] = scale;
  }
  return {};
}

inline status calibrator::scales(const bound_policy& keys, const bound_policy& values, int count, float margin,
                                 layer_scales& out) const noexcept {
  if (kv_heads_ == 0) return {errc::invalid_argument, "calibrator: not created", 0};
  if (count != 1 && count != kv_heads_) return {errc::invalid_argument, "count", kv_heads_};
  if (!is_finite(margin) || margin < 1.0F) return {errc::out_of_range, "margin", 1};
  layer_scales found;
  found.count = count;
  if (status s = side_scales(keys, true, count, margin, found.k.data()); !s.ok()) return s;
  if (status s = side_scales(values, false, count, margin, found.v.data()); !s.ok()) return s;
  out = found;
  return {};
}

KVAXIS_END_NAMESPACE
