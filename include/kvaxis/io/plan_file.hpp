// How large a file will be, before there is a cache: what saved_bytes() answers later.
#pragma once

#include <algorithm>

#include "../cache/plan.hpp"
#include "layer_record.hpp"
#include "tile_content.hpp"

KVAXIS_BEGIN_NAMESPACE

namespace detail {

// The sections of one layer.
inline std::uint64_t planned_bytes(const planned_blocks& b, const cache_config& c, const bound_policy& keys,
                                   const bound_policy& values, std::int64_t tokens) noexcept {
  tile_format f;
  describe(f, make_request(c, keys, values), {});
  layer_record record;
  record.end_head = static_cast<std::uint32_t>(f.kv_heads);
  record.pairs = static_cast<std::uint32_t>(f.pairs);
  record.older_tiers = static_cast<std::uint32_t>(c.older_tiers_count);
  const auto tile = [&f](bool folded, std::int64_t slots) {
    const std::uint64_t head = content_bytes(f, folded, {0, static_cast<int>(slots)});
    return section_frame_bytes + tile_head_bytes + static_cast<std::uint64_t>(f.kv_heads) * head;
  };
  auto entries = static_cast<std::uint64_t>(b.folded_tiles);
  std::uint64_t bytes = entries * tile(true, 0);
  std::int64_t left = tokens - b.folded_tiles * f.tokens;
  for (std::int64_t room = c.pins > 0 ? c.pins : f.tokens; left > 0; room = f.tokens) {
    const std::int64_t slots = std::min(left, room);
    bytes += tile(false, slots);
    left -= slots;
    ++entries;
  }
  const std::uint64_t lists = (entries + list_entries - 1) / list_entries;
  return bytes + entries * entry_bytes + description_bytes(record) + done_bytes + (lists + 2) * section_frame_bytes;
}

}  // namespace detail

// The file of a sequence with all heads after `tokens` tokens that came in sequence with fold_mode::now. Errors: layers,
// and those of plan_cache().
[[nodiscard]] inline status plan_file(const planned_layers* layers, int n, std::int64_t tokens,
                                      std::uint64_t& out) noexcept {
  std::uint64_t bytes = 2 * detail::section_frame_bytes + detail::head_bytes;
  const planned_layers* l = layers;
  const status s = detail::for_each_layer(layers, n, tokens, [&](const detail::planned_blocks& b, int count) noexcept {
    bytes += static_cast<std::uint64_t>(count) * detail::planned_bytes(b, *l->config, l->keys, l->values, tokens);
    ++l;
    return status{};
  });
  if (s.ok()) out = bytes;
  return s;
}

KVAXIS_END_NAMESPACE
