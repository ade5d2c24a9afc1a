// Folding the rows of one tile: widening, the choice of hot pairs, the rotation of the others. Included once per
// instruction set by fold.hpp, inside a target region; every instruction set gives the same bytes.
#ifndef KVAXIS_TARGET
#include "fold.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

KVAXIS_INLINE vf load_row(const float* p) { return load(p); }
KVAXIS_INLINE vf load_row(const float16* p) { return load_float16(&p->bits); }

// Rows as f32 with subnormals flushed. Behind the channels, and behind the last token up to a multiple of four, are
// zeros.
template <class Row>
KVAXIS_INLINE row_view widen(const Row* rows, int row_stride, int channels, int tokens, float* out) {
  const int stride = detail::fold_stride(channels);
  for (int t = 0; t < tokens; ++t) {
    float* to = out + t * stride;
    for (int c = 0; c < row_stride; c += lanes) {
      store(to + c, flush_subnormals(load_row(rows + static_cast<std::ptrdiff_t>(t) * row_stride + c)));
    }
    for (int c = row_stride; c < stride; c += lanes) store(to + c, zero());
  }
  const int padded = detail::round_up(tokens, 4);
  for (int i = tokens * stride; i < padded * stride; i += lanes) store(out + i, zero());
  return {out, stride, tokens, channels};
}

// The range of each channel of a pair over the tile's tokens, before and after rotation.
KVAXIS_INLINE void measure_pairs(const tile_format& f, const row_view& x, float* before, float* after) {
  for (int c = 0; c < 2 * f.pairs; c += lanes) {
    vf low = load(x.data + c);  // offset 0 does not rotate
    vf high = low;
    vf rotated_low = low;
    vf rotated_high = low;
    for (int t = 1; t < x.tokens; ++t) {
      const float* row = x.data + t * x.stride;
      const vf number = load(row + c);
      const vf rotated = load_rotated(row, f.turn + t * f.turn_stride, c);
      low = min(number, low);
      high = max(number, high);
      rotated_low = min(rotated, rotated_low);
      rotated_high = max(rotated, rotated_high);
    }
    store(before + c, sub(high, low));
    store(after + c, sub(rotated_high, rotated_low));
  }
}

// Chooses the hot pairs of a tile and head by what rotation would do to their summed range^2, and the wide ones, which are
// hot too, by that square itself.
KVAXIS_INLINE void choose_hot_pairs(const tile_format& f, const row_view& x, std::uint32_t* mask, std::uint32_t* wide) {
  float before[max_head_dim + 16];
  float after[max_head_dim + 16];
  float merit[max_pairs];
  const bool has_wide = f.key_codec->wide != nullptr;
  const bool by_growth = has_wide || f.key_policy.rotation == automatic;
  std::uint32_t* const chosen = has_wide ? wide : mask;
  for (int w = 0; w < f.mask_stride; ++w) mask[w] = chosen[w] = 0;
  measure_pairs(f, x, before, after);
  const auto set = [](std::uint32_t* to, int pair) { to[pair / 32] |= std::uint32_t{1} << (pair % 32); };
  for (int i = 0; i < f.pairs; ++i) {
    const auto squares = [i](const float* range) {
      return fused(range[2 * i + 1], range[2 * i + 1], range[2 * i] * range[2 * i]);
    };
    const float was = squares(before);
    const float is = squares(after);
    merit[i] = has_wide ? was : is - was;
    if (by_growth && is > f.growth * was) set(mask, i);
  }
  for (int n = 0; n < f.key_policy.rotation; ++n) {  // the largest first, ties to the lower index
    int best = -1;
    for (int i = 0; i < f.pairs; ++i) {
      if (!detail::is_hot(chosen, i) && (best < 0 || merit[i] > merit[best])) best = i;
    }
    set(chosen, best);
  }
  for (int w = 0; w < f.mask_stride && has_wide; ++w) mask[w] |= wide[w];
}

KVAXIS_INLINE void rotate_cold_pairs(const tile_format& f, const row_view& x, float* numbers,
                                     const std::uint32_t* mask) {
  float row[max_head_dim + 16];
  std::uint32_t hot[max_head_dim + 16];
  for (int c = 0; c < f.turn_stride; ++c) hot[c] = c < 2 * f.pairs && detail::is_hot(mask, c / 2) ? 0xFFFFFFFFU : 0U;
  for (int t = 0; t < x.tokens; ++t) {
    float* to = numbers + t * x.stride;
    std::memcpy(row, to, static_cast<std::size_t>(f.turn_stride) * sizeof(float));
    for (int c = 0; c < f.turn_stride; c += lanes) {
      const vf rotated = flush_subnormals(load_rotated(row, f.turn + t * f.turn_stride, c));
      store(to + c, select(load_words(hot + c), load(row + c), rotated));
    }
  }
}

inline void hadamard_rows(const row_view& x, float* numbers) noexcept {
  for (int t = 0; t < x.tokens; ++t) kvaxis::hadamard(numbers + t * x.stride, x.channels);
}

template <class Row>
KVAXIS_INLINE void fold_rows(const tile& exact, int first, int count, tile& out, const detail::fold_scratch& scratch,
                             std::size_t isa_index) {
  const tile_format& f = *out.format;
  for (int h = 0; h < f.kv_heads; ++h) {
    const row_view keys = widen(exact.key_row<Row>(h, first), f.key_stride, f.head_dim, count, scratch.numbers);
    if (f.stored_mask) {
      choose_hot_pairs(f, keys, const_cast<std::uint32_t*>(out.hot_mask(h)),
                       const_cast<std::uint32_t*>(out.wide_mask(h)));
    }
    if (f.pairs > 0 && f.key_policy.rotation != pre) rotate_cold_pairs(f, keys, scratch.numbers, out.hot_mask(h));
    auto* const key_block = const_cast<std::byte*>(out.key_block(h));
    if (f.key_codec->transformed) hadamard_rows(keys, scratch.numbers);
    f.key_codec->encode[isa_index](*f.key_codec, f.key, f.key_given[h], keys, scratch.codes, key_block);
    if (f.key_codec->wide != nullptr) detail::encode_wide_rows(f, keys, out.wide_mask(h), scratch.codes, key_block);
    if (f.is_latent()) continue;
    const row_view values = widen(exact.value_row<Row>(h, first), f.value_stride, f.value_dim, count, scratch.numbers);
    if (f.value_codec->transformed) hadamard_rows(values, scratch.numbers);
    f.value_codec->encode[isa_index](*f.value_codec, f.value, f.value_given[h], values, scratch.codes,
                                     const_cast<std::byte*>(out.value_block(h)));
  }
}

inline void fold_tile(const tile& exact, int first, int count, tile& out, const detail::fold_scratch& scratch,
                      std::size_t isa_index) noexcept {
  if (exact.format->half_rows) {
    fold_rows<float16>(exact, first, count, out, scratch, isa_index);
  } else {
    fold_rows<float>(exact, first, count, out, scratch, isa_index);
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
