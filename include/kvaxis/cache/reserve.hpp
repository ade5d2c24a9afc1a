// Memory of a pool for sequences that are still to come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "plan.hpp"
#include "pool.hpp"

KVAXIS_BEGIN_NAMESPACE

// Sets aside what so many sequences will take, all or nothing: made from this pool and reserved for `tokens` tokens each,
// they need nothing from its upstream allocator. Errors also: sequences, and those of tile_pool::reserve().
inline status reserve_sequences(tile_pool& pool, const planned_layers* layers, int n, std::int64_t tokens,
                                std::int64_t sequences) noexcept {
  std::int64_t most = 0;
  if (status s = plan_sequences(layers, n, tokens, pool.counts().budget, most); !s.ok()) return s;
  if (sequences < 0 || sequences > most) return {errc::out_of_range, "sequences", most};
  const auto visit = [&](auto&& f) noexcept {
    return detail::for_each_layer(layers, n, tokens, [&](const detail::planned_blocks& b, int count) noexcept {
      const std::pair<std::size_t, std::int64_t> sizes[] = {{b.tables, 1},
                                                            {b.scratch, 1},
                                                            {b.entries, 1},
                                                            {b.pin_tile, 1},
                                                            {b.exact_tile, b.exact_tiles},
                                                            {b.folded_tile, b.folded_tiles}};
      for (const auto& [bytes, each] : sizes) {
        if (bytes == 0) continue;
        if (status s = f(bytes, each * count * sequences); !s.ok()) return s;
      }
      return status{};
    });
  };
  int made = 0;
  const status s = visit([&](std::size_t bytes, std::int64_t count) noexcept {
    const status reserved = pool.reserve(bytes, count);
    if (reserved.ok()) ++made;
    return reserved;
  });
  if (s.ok()) return s;
  return visit([&](std::size_t bytes, std::int64_t count) noexcept {
    if (made-- == 0) return s;
    pool.trim(bytes, count);
    return status{};
  });
}

KVAXIS_END_NAMESPACE
