// What a cache will cost, before it is made: the numbers that any_kv_cache::bytes() reports afterwards.
#pragma once

#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE

// The memory of one layer after `tokens` tokens appended in sequence with fold_mode::now.
[[nodiscard]] inline status plan_cache(const cache_config& c, const bound_policy& keys, const bound_policy& values,
                                       std::int64_t tokens, cache_bytes& out) noexcept {
  if (tokens < 0 || tokens > max_position) return {errc::out_of_range, "tokens", max_position};
  if (status s = detail::check_config(c, keys, values); !s.ok()) return s;
  const format_request q = detail::make_request(c, keys, values);
  tile_format f;
  detail::describe(f, q, {});

  const detail::entry_list none;
  detail::append_model model;
  model.entries = &none;
  model.pins_left = c.pins;
  model.window = c.window;
  model.tile_tokens = f.tokens;
  const detail::append_needs n = model.needs(tokens, false, true);
  // A folded tile gives its full-precision one back: of those had, the ones not in the list are spare.
  const int listed_exact = n.entries - n.pin_tiles - n.folded_tiles;
  const std::size_t tile = f.exact_bytes(f.tokens);
  cache_bytes b;
  b.folded = static_cast<std::size_t>(n.folded_tiles) * f.folded_bytes;
  b.exact = static_cast<std::size_t>(listed_exact) * tile;
  if (n.pin_tiles > 0) b.exact += f.exact_bytes(detail::round_up(c.pins, 4));
  b.spare = static_cast<std::size_t>(n.exact_tiles - listed_exact) * tile;
  b.bookkeeping = detail::format_bytes(q) + fold_scratch_floats(f) * 8U;
  if (n.entries > 0) b.bookkeeping += detail::entry_list::bytes_for(detail::entry_list::capacity_for(n.entries));
  out = b;
  return {};
}

KVAXIS_END_NAMESPACE
