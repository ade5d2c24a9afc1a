// What caches will cost, before they are made: the numbers that any_kv_cache::bytes() reports afterwards, with
// everything counted: parameters of the codes, headers and padding of tiles, full-precision tokens, spare tiles, tables
// and lists. Sizes are for tokens that come in sequence with fold_mode::now.
#pragma once

#include <cstddef>
#include <cstdint>

#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE

// Layers of one sequence that are alike. A whole model is a list of these.
struct planned_layers {
  const cache_config* config = nullptr;
  bound_policy keys;
  bound_policy values;
  int count = 1;
};
constexpr int max_planned_layers = 1024;  // so that no number of bytes exceeds 64 bits

namespace detail {

// The blocks of one cache.
struct planned_blocks {
  std::size_t tables = 0;
  std::size_t scratch = 0;
  std::size_t entries = 0;      // 0: none
  std::size_t pin_tile = 0;     // 0: none
  std::size_t exact_tile = 0;   // of one
  std::size_t folded_tile = 0;  // of one
  std::int64_t exact_tiles = 0;
  std::int64_t spare_tiles = 0;  // those of the exact ones that hold no token
  std::int64_t folded_tiles = 0;
  int tile_tokens = 0;
};

inline status plan_blocks(const cache_config& c, const bound_policy& keys, const bound_policy& values,
                          std::int64_t tokens, planned_blocks& out) noexcept {
  if (tokens < 0 || tokens > max_position) return {errc::out_of_range, "tokens", max_position};
  if (status s = check_config(c, keys, values); !s.ok()) return s;
  const format_request q = make_request(c, keys, values);
  tile_format f;
  describe(f, q, {});

  const entry_list none;
  append_model model;
  model.entries = &none;
  model.pins_left = c.pins;
  model.window = c.window;
  model.tile_tokens = f.tokens;
  // Once the window is full and a tile has folded, a tile's worth of tokens adds one entry and one folded tile.
  const std::int64_t steady = std::int64_t{c.pins} + c.window + 2 * f.tokens;
  const std::int64_t repeats = tokens > steady ? (tokens - steady) / f.tokens : 0;
  const append_needs n = model.needs(tokens - repeats * f.tokens, false, true);
  const int entries = n.entries + static_cast<int>(repeats);

  planned_blocks b;
  b.tables = format_bytes(q);
  b.scratch = fold_scratch_floats(f) * 8U;
  if (entries > 0) b.entries = entry_list::bytes_for(entry_list::capacity_for(entries));
  if (n.pin_tiles > 0) b.pin_tile = f.exact_bytes(round_up(c.pins, 4));
  b.exact_tile = f.exact_bytes(f.tokens);
  b.folded_tile = f.folded_bytes;
  b.exact_tiles = n.exact_tiles;
  // A folded tile gives its full-precision one back: of those had, the ones not in the list are spare.
  b.spare_tiles = n.exact_tiles - (n.entries - n.pin_tiles - n.folded_tiles);
  b.folded_tiles = n.folded_tiles + repeats;
  b.tile_tokens = f.tokens;
  out = b;
  return {};
}

[[nodiscard]] inline cache_bytes bytes_of(const planned_blocks& b) noexcept {
  cache_bytes out;
  out.folded = static_cast<std::size_t>(b.folded_tiles) * b.folded_tile;
  out.exact = b.pin_tile + static_cast<std::size_t>(b.exact_tiles - b.spare_tiles) * b.exact_tile;
  out.spare = static_cast<std::size_t>(b.spare_tiles) * b.exact_tile;
  out.bookkeeping = b.tables + b.scratch + b.entries;
  return out;
}

// Calls f(planned_blocks of one layer, number of such layers) for the items of the list, until one answers an error.
template <class F>
status for_each_layer(const planned_layers* layers, int n, std::int64_t tokens, F&& f) noexcept {
  if (layers == nullptr || n < 1) return {errc::invalid_argument, "layers", 1};
  int total = 0;
  for (int i = 0; i < n; ++i) {
    const planned_layers& l = layers[i];
    if (l.config == nullptr) return {errc::invalid_argument, "layers: config", i};
    if (l.count < 1 || l.count > max_planned_layers - total) {
      return {errc::out_of_range, "layers: count", max_planned_layers};
    }
    total += l.count;
    planned_blocks b;
    if (status s = plan_blocks(*l.config, l.keys, l.values, tokens, b); !s.ok()) return s;
    if (status s = f(b, l.count); !s.ok()) return s;
  }
  return {};
}

}  // namespace detail

// The memory of one layer after `tokens` tokens. Errors: tokens, and what create() refuses.
[[nodiscard]] inline status plan_cache(const cache_config& c, const bound_policy& keys, const bound_policy& values,
                                       std::int64_t tokens, cache_bytes& out) noexcept {
  detail::planned_blocks b;
  if (status s = detail::plan_blocks(c, keys, values, tokens, b); !s.ok()) return s;
  out = detail::bytes_of(b);
  return {};
}

// The memory of a sequence, the sum over its layers. Errors here and below: layers, and those of plan_cache().
[[nodiscard]] inline status plan_sequence(const planned_layers* layers, int n, std::int64_t tokens,
                                          cache_bytes& out) noexcept {
  cache_bytes sum;
  const status s = detail::for_each_layer(layers, n, tokens, [&](const detail::planned_blocks& b, int count) noexcept {
    const cache_bytes one = detail::bytes_of(b);
    const auto times = static_cast<std::size_t>(count);
    sum.folded += times * one.folded;
    sum.exact += times * one.exact;
    sum.spare += times * one.spare;
    sum.bookkeeping += times * one.bookkeeping;
    return status{};
  });
  if (s.ok()) out = sum;
  return s;
}

// What one more token of a sequence takes once its window is full: its share of a folded tile in every layer, exactly.
[[nodiscard]] inline status plan_token(const planned_layers* layers, int n, double& bytes) noexcept {
  double sum = 0;
  const status s = detail::for_each_layer(layers, n, 0, [&](const detail::planned_blocks& b, int count) noexcept {
    sum += count * static_cast<double>(b.folded_tile) / b.tile_tokens;
    return status{};
  });
  if (s.ok()) bytes = sum;
  return s;
}

// The most tokens with which a sequence takes at most `budget` bytes; 0 where it cannot have one.
[[nodiscard]] inline status plan_tokens(const planned_layers* layers, int n, std::size_t budget,
                                        std::int64_t& tokens) noexcept {
  std::int64_t fits = 0;
  std::int64_t beyond = max_position + 1;
  // A cache gives nothing back while tokens come, so the bytes never fall.
  while (beyond - fits > 1) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    cache_bytes b;
    if (status s = plan_sequence(layers, n, middle, b); !s.ok()) return s;
    (b.total() <= budget ? fits : beyond) = middle;
  }
  tokens = fits;
  return {};
}

// How many sequences of `tokens` tokens fit into `budget` bytes, such as a tile_pool's. Reserve the tokens of each: an
// entry list that grows bit by bit needs its old memory next to the new for a moment.
[[nodiscard]] inline status plan_sequences(const planned_layers* layers, int n, std::int64_t tokens, std::size_t budget,
                                           std::int64_t& sequences) noexcept {
  cache_bytes b;
  if (status s = plan_sequence(layers, n, tokens, b); !s.ok()) return s;
  sequences = static_cast<std::int64_t>(budget / b.total());
  return {};
}

KVAXIS_END_NAMESPACE
