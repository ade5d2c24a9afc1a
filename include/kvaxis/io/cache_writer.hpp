// Saving caches: layers of one sequence as a stream of sections (sections.hpp), to a file, a pipe or another machine,
// at once or while the sequence is still being filled.
#pragma once

#include <algorithm>
#include <functional>

#include "growing_array.hpp"
#include "layer_record.hpp"
#include "tile_content.hpp"

KVAXIS_BEGIN_NAMESPACE

struct save_options {
  kv_head_share share;  // what the caches hold
  int first_head = 0;   // the heads to write, first_head .. end_head - 1 as the layer numbers them
  int end_head = 0;     // 0: all that the caches hold
  int first_layer = 0;  // what the reader must call the first of these layers
};

namespace detail {

// A tile of the cache, and its number in the file.
struct known_tile {
  kvaxis::tile* tile;
  std::uint32_t number;
  bool written;
  std::uint8_t tier;
  slot_span slots;
};

// The tiles of a layer that the file has or will have, in the order of their addresses. Each is referenced, so that no
// other tile can come to its address.
class known_tiles {
 public:
  [[nodiscard]] std::uint32_t size() const noexcept { return tiles_.size(); }

  // The tile, added if it is new; its slots grow by those of the entry.
  status find_or_add(const entry& e, const allocator& memory, known_tile*& out) noexcept {
    const std::uint32_t at = place_of(e.tile);
    const slot_span slots{e.begin, e.begin + e.count};
    if (at == tiles_.size() || tiles_[at].tile != e.tile) {
      if (status s = tiles_.insert(at, {e.tile, 0, false, e.tier, slots}, memory); !s.ok()) return s;
      add_reference(e.tile);
    }
    out = &tiles_[at];
    out->slots.first = std::min(out->slots.first, slots.first);
    out->slots.end = std::max(out->slots.end, slots.end);
    return {};
  }
  // A tile that was added.
  [[nodiscard]] known_tile& find(const tile* t) noexcept { return tiles_[place_of(t)]; }

  void free(const allocator& memory) noexcept {
    for (const known_tile& t : tiles_) release(t.tile);
    tiles_.free(memory);
  }

 private:
  [[nodiscard]] std::uint32_t place_of(const tile* t) const noexcept {
    const auto before = [](const known_tile& a, const tile* b) { return std::less<>()(a.tile, b); };
    return static_cast<std::uint32_t>(std::lower_bound(tiles_.begin(), tiles_.end(), t, before) - tiles_.begin());
  }
  growing_array<known_tile> tiles_;
};

struct layer_writer {
  const any_kv_cache* cache = nullptr;
  int first_head = 0;  // of the heads to write, as the cache numbers them
  int end_head = 0;
  std::uint32_t tiles_written = 0;
  known_tiles tiles;
};

}  // namespace detail

// One stream: any number of send_new(), then one finish(). The caches may be appended to, rolled back and so on between
// the calls, not during one. When a call fails the stream is cut off, and every later call fails too.
class cache_writer {
 public:
  cache_writer() noexcept = default;
  cache_writer(cache_writer&& other) noexcept { swap(other); }
  cache_writer& operator=(cache_writer&& other) noexcept {
    cache_writer(std::move(other)).swap(*this);
    return *this;
  }
  cache_writer(const cache_writer&) = delete;
  cache_writer& operator=(const cache_writer&) = delete;
  ~cache_writer() { free(); }

  // The caches must stay where they are until the writer is gone. `out` is unchanged unless the answer is ok.
  static status create(const any_kv_cache* const* layers, int count, const save_options& options,
                       cache_writer& out) noexcept {
    if (layers == nullptr) return {errc::invalid_argument, "layers", 0};
    return create([layers](int i) { return layers[i]; }, count, options, out);
  }
  static status create(const sequence& layers, const save_options& options, cache_writer& out) noexcept {
    return create([&layers](int i) { return &layers[i]; }, layers.layers(), options, out);
  }

  // Writes the folded tiles that were not written yet: they never change again.
  status send_new(const byte_sink& sink) noexcept { return write(&sink, false); }
  // Writes everything else.
  status finish(const byte_sink& sink) noexcept { return write(&sink, true); }
  // Instead of finish(): the bytes that it would write. The writer is finished, too.
  status count(std::uint64_t& out) noexcept;

 private:
  static status create(const detail::const_layer_of& layer, int count, const save_options& options,
                       cache_writer& out) noexcept;
  void swap(cache_writer& other) noexcept;
  void free() noexcept;
  status write(const byte_sink* sink, bool all) noexcept;
  status write_all(detail::section_writer& to, bool all) noexcept;
  status write_start(detail::section_writer& to) noexcept;
  status write_tiles(int layer, bool exact_too, detail::section_writer& to) noexcept;
  status write_tile(int layer, detail::known_tile& t, detail::section_writer& to) noexcept;
  status write_list(int layer, detail::section_writer& to) noexcept;

  save_options options_;
  allocator memory_;
  detail::layer_writer* layers_ = nullptr;
  int count_ = 0;
  bool started_ = false;
  bool ended_ = false;  // finished, or cut off
  std::uint64_t sent_ = 0;
};

// Everything at once.
[[nodiscard]] inline status save(const any_kv_cache* const* layers, int count, const save_options& options,
                                 const byte_sink& sink) noexcept {
  cache_writer writer;
  if (status s = cache_writer::create(layers, count, options, writer); !s.ok()) return s;
  return writer.finish(sink);
}
[[nodiscard]] inline status save(const sequence& layers, const save_options& options, const byte_sink& sink) noexcept {
  cache_writer writer;
  if (status s = cache_writer::create(layers, options, writer); !s.ok()) return s;
  return writer.finish(sink);
}

// The bytes that save() would write now.
[[nodiscard]] inline status saved_bytes(const any_kv_cache* const* layers, int count, const save_options& options,
                                        std::uint64_t& out) noexcept {
  cache_writer writer;
  if (status s = cache_writer::create(layers, count, options, writer); !s.ok()) return s;
  return writer.count(out);
}
[[nodiscard]] inline status saved_bytes(const sequence& layers, const save_options& options,
                                        std::uint64_t& out) noexcept {
  cache_writer writer;
  if (status s = cache_writer::create(layers, options, writer); !s.ok()) return s;
  return writer.count(out);
}

KVAXIS_END_NAMESPACE

#include "cache_writer_sections.hpp"
