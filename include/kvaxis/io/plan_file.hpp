// How large a file will be, before there is a cache: what saved_bytes() answers then.
#pragma once

#include <algorithm>

#include "../cache/plan.hpp"
#include "layer_record.hpp"
#include "tile_content.hpp"

KVAXIS_BEGIN_NAMESPACE

// A file of one layer, all heads, after `tokens` tokens appended in sequence with fold_mode::now.
[[nodiscard]] inline status plan_file(const cache_config& c, const bound_policy& keys, const bound_policy& values,
                                      std::int64_t tokens, std::uint64_t& out) noexcept {
  cache_bytes memory;
  if (status s = plan_cache(c, keys, values, tokens, memory); !s.ok()) return s;
  tile_format f;
  detail::describe(f, detail::make_request(c, keys, values), {});
  detail::layer_record record;
  record.end_head = static_cast<std::uint32_t>(f.kv_heads);
  record.pairs = static_cast<std::uint32_t>(f.pairs);
  record.older_tiers = static_cast<std::uint32_t>(c.older_tiers_count);

  const auto section = [](std::uint64_t payload) { return detail::section_frame_bytes + payload; };
  const auto tile = [&](bool folded, std::int64_t slots) {
    const std::uint64_t head = detail::content_bytes(f, folded, {0, static_cast<int>(slots)});
    return section(detail::tile_head_bytes + static_cast<std::uint64_t>(f.kv_heads) * head);
  };
  std::uint64_t bytes = section(detail::head_bytes) + section(detail::description_bytes(record)) +
                        section(detail::done_bytes) + section(0);
  std::uint64_t entries = memory.folded / f.folded_bytes;
  bytes += entries * tile(true, 0);
  std::int64_t left = tokens - static_cast<std::int64_t>(entries) * f.tokens;
  for (std::int64_t room = c.pins > 0 ? c.pins : f.tokens; left > 0; room = f.tokens) {
    const std::int64_t slots = std::min(left, room);
    bytes += tile(false, slots);
    left -= slots;
    ++entries;
  }
  const std::uint64_t lists = (entries + detail::list_entries - 1) / detail::list_entries;
  out = bytes + lists * section(0) + entries * detail::entry_bytes;
  return {};
}

KVAXIS_END_NAMESPACE
