// Folding: the full-precision rows of one tile into its quantized form, and reading tokens back. fold.inl is the code,
// which gives the same bytes on every instruction set.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "tile.hpp"

KVAXIS_BEGIN_NAMESPACE

namespace detail {

struct fold_scratch {
  float* numbers = nullptr;        // [fold_scratch_floats]
  std::uint32_t* codes = nullptr;  // [fold_scratch_floats]
};

// From one row to the next while a tile is folded: room for the padding of every block.
[[nodiscard]] constexpr int fold_stride(int channels) noexcept { return round_up(channels, 32); }

[[nodiscard]] inline bool is_hot(const std::uint32_t* mask, int pair) noexcept {
  return (mask[pair / 32] >> (pair % 32) & 1U) != 0;
}

// The rows of wide pairs again, with their own codec: parameters and low bits in their places, further bits behind.
inline void encode_wide_rows(const tile_format& f, const row_view& keys, const std::uint32_t* mask,
                             std::uint32_t* scratch, std::byte* block) noexcept {
  const block_layout& b = f.key;
  float numbers[max_tile_tokens];
  std::uint32_t codes[max_tile_tokens];
  std::memset(scratch, 0, static_cast<std::size_t>(b.wide_rows) * static_cast<std::size_t>(b.lanes) * 4U);
  for (int pair = 0, row = 0; pair < f.pairs; ++pair) {
    if (!is_hot(mask, pair)) continue;
    for (const int channel : {2 * pair, 2 * pair + 1}) {
      for (int t = 0; t < keys.tokens; ++t) numbers[t] = keys.data[t * keys.stride + channel];
      f.key_codec->wide->encode_group(b, {}, numbers, keys.tokens, channel, codes, block);
      auto* const quad =
          reinterpret_cast<std::uint32_t*>(block + static_cast<std::size_t>(channel / 4) * b.quad_bytes());
      for (int t = 0; t < keys.tokens; ++t) {
        pack_code(b.bits, b.lanes, quad, channel % 4, t, codes[t]);
        scratch[row * b.lanes + t] = codes[t] >> b.bits;
      }
      ++row;
    }
  }
  auto* further = reinterpret_cast<std::uint32_t*>(block + b.plane_bytes);
  for (int row = 0; row < b.wide_rows; row += 4, further += quad_words(b.wide_extra, b.lanes)) {
    pack_quad(b.wide_extra, b.lanes, scratch + row * b.lanes, further);
  }
}

// The number of a wide pair's row, the nth of these rows.
inline float decode_wide_number(const tile_format& f, const std::byte* block, int row, int nth, int lane) noexcept {
  const block_layout& b = f.key;
  const auto* const quad =
      reinterpret_cast<const std::uint32_t*>(block + static_cast<std::size_t>(row / 4) * b.quad_bytes());
  const auto* const further =
      reinterpret_cast<const std::uint32_t*>(block + b.plane_bytes) + nth / 4 * quad_words(b.wide_extra, b.lanes);
  const std::uint32_t code = unpack_code(b.bits, b.lanes, quad, row % 4, lane) |
                             unpack_code(b.wide_extra, b.lanes, further, nth % 4, lane) << b.bits;
  return f.key_codec->wide->decode(b, block, b.group_index(row, lane), code);
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

// Scratch of fold_tile: the numbers of a head, and as many words.
[[nodiscard]] inline std::size_t fold_scratch_floats(const tile_format& f) noexcept {
  const int dim = f.head_dim > f.value_dim ? f.head_dim : f.value_dim;
  return static_cast<std::size_t>(f.tokens) * static_cast<std::size_t>(detail::fold_stride(dim));
}

// Folds `count` tokens of a full-precision tile, from slot `first` on, into the first slots of `out`, a folded tile of
// the same shape, rotation and tile length. Unused slots get code 0.
KVAXIS_KERNEL void fold_tile(const tile& exact, int first, int count, tile& out,
                             const detail::fold_scratch& scratch) noexcept;

KVAXIS_END_NAMESPACE

#if defined(KVAXIS_DEFINE_KERNELS)
#define KVAXIS_INL "../tile/fold.inl"
#include "../simd/foreach_isa.hpp"

KVAXIS_BEGIN_NAMESPACE

KVAXIS_KERNEL void fold_tile(const tile& exact, int first, int count, tile& out,
                             const detail::fold_scratch& scratch) noexcept {
  static constexpr std::array<decltype(&scalar::fold_tile), isa_count> tables = KVAXIS_ISA_TABLE(fold_tile);
  const auto index = static_cast<std::size_t>(active_isa());
  tables[index](exact, first, count, out, scratch, index);
}

KVAXIS_END_NAMESPACE
#endif

KVAXIS_BEGIN_NAMESPACE

// The key of a slot as it was appended, natural order: decoded, and rotated back where the pair is stored rotated.
inline void read_key(const tile& t, int head, int slot, float* out) noexcept {
  const tile_format& f = *t.format;
  if (!t.folded) {
    if (f.half_rows) return detail::read_exact_key<float16>(t, head, slot, out);
    return detail::read_exact_key<float>(t, head, slot, out);
  }
  float stored[max_head_dim];
  const std::uint32_t* mask = t.hot_mask(head);
  for (int c = 0, wide_rows = 0; c < f.head_dim; ++c) {
    if (f.key_codec->wide != nullptr && c < 2 * f.pairs && detail::is_hot(t.wide_mask(head), c / 2)) {
      stored[c] = detail::decode_wide_number(f, t.key_block(head), c, wide_rows++, slot);
    } else {
      f.key_codec->decode_row(f.key, f.key_given[head], t.key_block(head), c, slot, 1, &stored[c]);
    }
  }
  if (f.key_codec->transformed) hadamard(stored, f.head_dim);
  for (int i = 0; i < f.pairs; ++i) {
    if (detail::is_hot(mask, i)) continue;
    const float* turn = f.turn + slot * f.turn_stride + 2 * i;
    const float back[] = {turn[0], -turn[1]};
    const float pair[] = {stored[2 * i], stored[2 * i + 1]};
    for (int member : {0, 1}) stored[2 * i + member] = scalar::load_rotated(pair, back, member).v;
  }
  for (int c = 0; c < f.head_dim; ++c) out[f.order[c]] = stored[c];
}

inline void read_value(const tile& t, int head, int slot, float* out) noexcept {
  const tile_format& f = *t.format;
  if (f.is_latent()) {
    float key[max_head_dim];
    read_key(t, head, slot, key);
    for (int c = 0; c < f.value_dim; ++c) out[c] = key[c];
  } else if (t.folded) {
    f.value_codec->decode_row(f.value, f.value_given[head], t.value_block(head), slot, 0, f.value_dim, out);
    if (f.value_codec->transformed) hadamard(out, f.value_dim);
  } else if (f.half_rows) {
    detail::read_exact_value<float16>(t, head, slot, out);
  } else {
    detail::read_exact_value<float>(t, head, slot, out);
  }
}

namespace detail {

template <class Row>
void unfold_rows(const tile& folded, int first, int count, tile& exact) noexcept {
  const tile_format& f = *exact.format;
  float row[max_head_dim];
  const auto put = [](Row* to, float x) {
    if constexpr (sizeof(Row) == 2)
      *to = to_float16(x);
    else
      *to = x;
  };
  for (int h = 0; h < f.kv_heads; ++h) {
    for (int t = 0; t < count; ++t) {
      auto* const key = const_cast<Row*>(exact.key_row<Row>(h, t));
      auto* const value = const_cast<Row*>(exact.value_row<Row>(h, t));
      kvaxis::read_key(folded, h, first + t, row);
      for (int c = 0; c < f.head_dim; ++c) put(key + c, row[f.order[c]]);
      if (f.is_latent()) continue;
      kvaxis::read_value(folded, h, first + t, row);
      for (int c = 0; c < f.value_dim; ++c) put(value + c, row[c]);
    }
  }
}

}  // namespace detail

// Decodes `count` tokens of a folded tile, from slot `first` on, into the first slots of a full-precision one.
inline void unfold_tile(const tile& folded, int first, int count, tile& exact) noexcept {
  if (exact.format->half_rows) return detail::unfold_rows<float16>(folded, first, count, exact);
  detail::unfold_rows<float>(folded, first, count, exact);
}

KVAXIS_END_NAMESPACE
