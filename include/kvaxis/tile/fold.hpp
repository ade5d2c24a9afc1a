// Folding: the full-precision rows of one tile into its quantized form, and reading tokens back. Scalar code, so the
// bytes are the same on every machine; x' = fma(a, c, -(b s)), y' = fma(a, s, b c) wherever a stored key is rotated.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>

#include "tile.hpp"

KVAXIS_BEGIN_NAMESPACE

// Scratch of fold_tile: numbers of a block and their codes.
[[nodiscard]] inline std::size_t fold_scratch_floats(const tile_format& f) noexcept {
  const auto key = static_cast<std::size_t>(f.key.rows) * static_cast<std::size_t>(f.key.lanes);
  const auto value = static_cast<std::size_t>(f.value.rows) * static_cast<std::size_t>(f.value.lanes);
  return key > value ? key : value;
}

namespace detail {

struct fold_scratch {
  float* numbers = nullptr;        // [fold_scratch_floats]
  std::uint32_t* codes = nullptr;  // [fold_scratch_floats]
};

[[nodiscard]] inline bool is_hot(const std::uint32_t* mask, int pair) noexcept {
  return (mask[pair / 32] >> (pair % 32) & 1U) != 0;
}

struct key_pair {
  float a;
  float b;
};
inline key_pair rotated(key_pair k, float c, float s) noexcept {
  return {fused(k.a, c, -(k.b * s)), fused(k.a, s, k.b * c)};
}

// Range of n numbers.
struct extent {
  float low;
  float high;
  explicit extent(float x) noexcept : low(x), high(x) {}
  void add(float x) noexcept {
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  [[nodiscard]] float range() const noexcept { return high - low; }
};

// The summed range^2 of each pair before and after rotation, over the tile's valid tokens.
struct pair_ranges {
  float before;
  float after;
};
inline pair_ranges measure_pair(const tile_format& f, const float* a, const float* b, int pair, int tokens) noexcept {
  const key_pair first = {a[0], b[0]};  // offset 0 does not rotate
  extent xa(first.a);
  extent xb(first.b);
  extent ra(first.a);
  extent rb(first.b);
  for (int j = 1; j < tokens; ++j) {
    const key_pair k = {a[j], b[j]};
    const key_pair r = rotated(k, f.tile_cos[j * f.pairs + pair], f.tile_sin[j * f.pairs + pair]);
    xa.add(k.a);
    xb.add(k.b);
    ra.add(r.a);
    rb.add(r.b);
  }
  const auto squares = [](float u, float v) { return fused(v, v, u * u); };
  return {squares(xa.range(), xb.range()), squares(ra.range(), rb.range())};
}

// Chooses the hot pairs of a tile and head by what rotation would do to their ranges.
inline void choose_hot_pairs(const tile_format& f, const float* x, int tokens, std::uint32_t* mask) noexcept {
  float growth[max_pairs];
  for (int w = 0; w < f.mask_stride; ++w) mask[w] = 0;
  const auto set = [&](int pair) { mask[pair / 32] |= std::uint32_t{1} << (pair % 32); };
  for (int i = 0; i < f.pairs; ++i) {
    const pair_ranges r = measure_pair(f, x + 2 * i * f.key.lanes, x + (2 * i + 1) * f.key.lanes, i, tokens);
    growth[i] = r.after - r.before;
    if (f.key_policy.rotation == automatic && r.after > f.growth * r.before) set(i);
  }
  for (int n = 0; n < f.key_policy.rotation; ++n) {  // the largest first, ties to the lower index
    int best = -1;
    for (int i = 0; i < f.pairs; ++i) {
      if (!is_hot(mask, i) && (best < 0 || growth[i] > growth[best])) best = i;
    }
    set(best);
  }
}

inline void rotate_cold_pairs(const tile_format& f, float* x, int tokens, const std::uint32_t* mask) noexcept {
  for (int i = 0; i < f.pairs; ++i) {
    if (is_hot(mask, i)) continue;
    float* a = x + 2 * i * f.key.lanes;
    float* b = a + f.key.lanes;
    for (int j = 0; j < tokens; ++j) {
      const key_pair r = rotated({a[j], b[j]}, f.tile_cos[j * f.pairs + i], f.tile_sin[j * f.pairs + i]);
      a[j] = r.a;
      b[j] = r.b;
    }
  }
}

template <class Row>
void fold_rows(const tile& exact, int count, tile& out, const fold_scratch& scratch) noexcept {
  const tile_format& f = *exact.format;
  for (int h = 0; h < f.kv_heads; ++h) {
    float* x = scratch.numbers;
    for (int t = 0; t < count; ++t) {
      const Row* row = exact.key_row<Row>(h, t);
      for (int c = 0; c < f.head_dim; ++c) x[c * f.key.lanes + t] = flush_subnormal(to_float(row[c]));
    }
    if (f.stored_mask) choose_hot_pairs(f, x, count, const_cast<std::uint32_t*>(out.hot_mask(h)));
    if (f.pairs > 0 && f.key_policy.rotation != pre) rotate_cold_pairs(f, x, count, out.hot_mask(h));
    f.key_codec->encode(f.key, f.key_given[h], x, f.head_dim, count, scratch.codes,
                        const_cast<std::byte*>(out.key_block(h)));
    for (int t = 0; t < count; ++t) {
      const Row* row = exact.value_row<Row>(h, t);
      for (int c = 0; c < f.value_dim; ++c) x[t * f.value.lanes + c] = to_float(row[c]);
    }
    f.value_codec->encode(f.value, f.value_given[h], x, count, f.value_dim, scratch.codes,
                          const_cast<std::byte*>(out.value_block(h)));
  }
}

template <class Row>
void read_exact_key(const tile& t, int head, int slot, float* out) noexcept {
  const Row* row = t.key_row<Row>(head, slot);
  for (int c = 0; c < t.format->head_dim; ++c) out[t.format->order[c]] = to_float(row[c]);
}

template <class Row>
void read_exact_value(const tile& t, int head, int slot, float* out) noexcept {
  const Row* row = t.value_row<Row>(head, slot);
  for (int c = 0; c < t.format->value_dim; ++c) out[c] = to_float(row[c]);
}

}  // namespace detail

// Folds the first `count` tokens of a full-precision tile into `out`, a folded tile of the same format. Unused slots
// get code 0.
inline void fold_tile(const tile& exact, int count, tile& out, const detail::fold_scratch& scratch) noexcept {
  if (exact.format->half_rows) {
    detail::fold_rows<float16>(exact, count, out, scratch);
  } else {
    detail::fold_rows<float>(exact, count, out, scratch);
  }
}

// The key of a slot as it was appended, natural order: decoded, and rotated back where the pair is stored rotated.
inline void read_key(const tile& t, int head, int slot, float* out) noexcept {
  const tile_format& f = *t.format;
  if (!t.folded) {
    if (f.half_rows) return detail::read_exact_key<float16>(t, head, slot, out);
    return detail::read_exact_key<float>(t, head, slot, out);
  }
  float stored[max_head_dim];
  for (int c = 0; c < f.head_dim; ++c) {
    f.key_codec->decode_row(f.key, f.key_given[head], t.key_block(head), c, slot, 1, &stored[c]);
  }
  const std::uint32_t* mask = t.hot_mask(head);
  for (int i = 0; i < f.pairs; ++i) {
    if (detail::is_hot(mask, i)) continue;
    const detail::key_pair back = detail::rotated({stored[2 * i], stored[2 * i + 1]}, f.tile_cos[slot * f.pairs + i],
                                                  -f.tile_sin[slot * f.pairs + i]);
    stored[2 * i] = back.a;
    stored[2 * i + 1] = back.b;
  }
  for (int c = 0; c < f.head_dim; ++c) out[f.order[c]] = stored[c];
}

inline void read_value(const tile& t, int head, int slot, float* out) noexcept {
  const tile_format& f = *t.format;
  if (t.folded) {
    f.value_codec->decode_row(f.value, f.value_given[head], t.value_block(head), slot, 0, f.value_dim, out);
  } else if (f.half_rows) {
    detail::read_exact_value<float16>(t, head, slot, out);
  } else {
    detail::read_exact_value<float>(t, head, slot, out);
  }
}

KVAXIS_END_NAMESPACE
