// What is in a file, for a tool, or to choose the cache that it goes into.
#pragma once

#include <cstdio>

#include "../quantizers/names.hpp"
#include "layer_match.hpp"

KVAXIS_BEGIN_NAMESPACE

struct saved_layer {
  int kv_heads = 0;    // of the layer
  int first_head = 0;  // of those in the file
  int end_head = 0;
  int head_dim = 0;
  int value_dim = 0;
  int tile_tokens = 0;
  int rope_pairs = 0;
  int older_tiers = 0;
  std::int64_t window = 0;
  std::int64_t pins = 0;
  std::int64_t tokens = 0;
  char policy[168] = "";  // of new tiles, see quantizers/names.hpp; without given scales
};

struct saved_file {
  int version = 0;
  int layers = 0;
  int first_layer = 0;
  std::int64_t tiles = 0;  // of all layers
};

namespace detail {

inline int saved_side_name(const side_record& r, role side, char* out, std::size_t size) noexcept {
  policy p;
  p.axis = static_cast<axis>(r.axis);
  p.group = static_cast<int>(r.group);
  p.rotation = static_cast<int>(r.rotation);
  return format_policy(r.codec, p, side, out, size);
}

inline void describe_saved(const layer_record& r, saved_layer& out) noexcept {
  out.kv_heads = static_cast<int>(r.kv_heads);
  out.first_head = static_cast<int>(r.first_head);
  out.end_head = static_cast<int>(r.end_head);
  out.head_dim = static_cast<int>(r.head_dim);
  out.value_dim = static_cast<int>(r.value_dim);
  out.tile_tokens = static_cast<int>(r.tile_tokens);
  out.rope_pairs = static_cast<int>(r.pairs);
  out.older_tiers = static_cast<int>(r.older_tiers);
  out.window = r.window;
  out.pins = r.pins;
  char keys[80];
  char values[80];
  saved_side_name(r.tiers[0].keys, role::key, keys, sizeof keys);
  saved_side_name(r.tiers[0].values, role::value, values, sizeof values);
  std::snprintf(out.policy, sizeof out.policy, "k:%s,v:%s", keys, values);
}

// A section of a layer, as far as it says something about it.
inline status inspect_section(const section_header& h, byte_reader payload, saved_layer& out) noexcept {
  const bool described = out.kv_heads > 0;
  if (described == (h.type == section::layer)) return {errc::invalid_argument, "file: order of sections", h.layer};
  if (h.type == section::layer) {
    layer_record record;
    if (status s = read_record(payload, record); !s.ok()) return s;
    describe_saved(record, out);
  } else if (h.type == section::list) {
    while (payload.left() >= entry_bytes) {
      payload.take(entry_bytes - 4);
      out.tokens += payload.number<std::uint32_t>();
    }
  }
  return {};
}

}  // namespace detail

// Describes a file and the first `capacity` of its layers. This checks the form and the checksums; whether the tiles make
// sense is seen when they are restored. `out` is unchanged unless the answer is ok.
[[nodiscard]] inline status inspect(const void* data, std::size_t bytes, saved_file& out, saved_layer* layers = nullptr,
                                    int capacity = 0) noexcept {
  if (data == nullptr && bytes > 0) return {errc::invalid_argument, "data", 0};
  if (layers == nullptr && capacity > 0) return {errc::invalid_argument, "layers", 0};
  detail::byte_reader from(data, bytes);
  detail::section_view section;
  if (status s = detail::take_section(from, section); !s.ok()) return s;
  saved_file file;
  if (status s = detail::read_head(section, file.version, file.layers, file.first_layer); !s.ok()) return s;
  for (int i = 0; i < file.layers && i < capacity; ++i) layers[i] = {};
  for (;;) {
    if (status s = detail::take_section(from, section); !s.ok()) return s;
    const detail::section_header& h = section.header;
    if (h.type == detail::section::end) break;
    if (!detail::is_layer_section(h.type)) return {errc::invalid_argument, "file: type of a section", 0};
    if (h.layer >= static_cast<std::uint32_t>(file.layers)) return {errc::out_of_range, "file: layer", file.layers - 1};
    if (h.type == detail::section::tile) ++file.tiles;
    if (h.layer >= static_cast<std::uint32_t>(capacity)) continue;
    if (status s = detail::inspect_section(h, section.payload, layers[h.layer]); !s.ok()) return s;
  }
  if (section.header.layer != 0 || section.payload.left() != 0 || from.left() != 0) {
    return {errc::invalid_argument, "file: end", 0};
  }
  out = file;
  return {};
}

KVAXIS_END_NAMESPACE
