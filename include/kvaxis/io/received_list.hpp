// What a reader holds of a layer until it is whole: tiles, and the list of entries with the checks on it.
#pragma once

#include <algorithm>
#include <climits>

#include "growing_array.hpp"
#include "layers.hpp"
#include "sections.hpp"
#include "tile_content.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

struct received_tile {
  kvaxis::tile* tile = nullptr;
  slot_span slots;  // that came
  std::uint8_t tier = 0;
  slot_span used{INT_MAX};  // by entries
  std::uint32_t place = 0;  // in the order of first use
};

struct received_entry {
  std::uint32_t tile = 0;
  std::uint32_t flags = 0;
  std::int64_t base_position = 0;
  std::int32_t begin = 0;
  std::int32_t count = 0;

  [[nodiscard]] bool open() const noexcept { return (flags & open_flag) != 0; }
  [[nodiscard]] bool pinned() const noexcept { return (flags & pinned_flag) != 0; }
};

struct received_list {
  growing_array<received_tile> tiles;
  growing_array<received_entry> entries;
  std::int64_t replaced = 0;

  // Numbers tiles in the order of their first use, and drops those that no entry names.
  void sort_tiles() noexcept {
    constexpr std::uint32_t unused = 0xFFFFFFFFU;
    for (received_tile& t : tiles) t.place = unused;
    std::uint32_t used = 0;
    for (received_entry& e : entries) {
      received_tile& t = tiles[e.tile];
      if (t.place == unused) t.place = used++;
      e.tile = t.place;
    }
    std::sort(tiles.begin(), tiles.end(),
              [](const received_tile& a, const received_tile& b) { return a.place < b.place; });
    for (std::uint32_t i = used; i < tiles.size(); ++i) release(tiles[i].tile);
    tiles.shrink(used);
  }

  void free(const allocator& memory) noexcept {
    for (const received_tile& t : tiles) release(t.tile);
    tiles.free(memory);
    entries.free(memory);
  }
};

// Whether every call on a cache can rely on a list that was received for it. Entry after entry.
class list_checker {
 public:
  list_checker(received_list& list, const any_kv_cache& cache) noexcept
      : list_(list), format_(*cache.format()), pins_(cache.config().pins) {}

  status check() noexcept {
    const growing_array<received_entry>& entries = list_.entries;
    for (std::uint32_t i = 0; i < entries.size(); ++i) {
      const char* const wrong = check_entry(entries[i], i + 1 == entries.size());
      if (wrong != nullptr) return {errc::invalid_argument, wrong, i};
    }
    for (std::uint32_t i = 0; i < list_.tiles.size(); ++i) {
      const received_tile& t = list_.tiles[i];
      const bool is_exact = t.used.first == t.slots.first && t.used.end == t.slots.end;
      if (!t.tile->folded && t.used.end > 0 && !is_exact) return {errc::invalid_argument, "file: slots of a tile", i};
    }
    if (list_.replaced < 0) return {errc::out_of_range, "file: replaced", 0};
    return {};
  }

 private:
  const char* check_entry(const received_entry& e, bool is_last) noexcept {
    if (e.tile >= list_.tiles.size()) return "file: tile of an entry";
    received_tile& t = list_.tiles[e.tile];
    const bool folded = t.tile->folded;
    const std::int64_t end = std::int64_t{e.begin} + e.count;
    if (e.begin < t.slots.first || e.count < 1 || end > t.slots.end) return "file: slots of an entry";
    if (e.base_position < -max_position || e.base_position > max_position - end) return "file: position of an entry";
    t.used = {std::min(t.used.first, e.begin), std::max(t.used.end, static_cast<std::int32_t>(end))};
    tokens_ += e.count;
    if (tokens_ > max_position) return "file: number of tokens";
    if (e.pinned()) {
      pinned_ += e.count;
      if (folded || pinned_ != tokens_ || pinned_ > pins_) return "file: pinned entry";
    } else if (e.count > format_.tokens) {
      return "file: slots of an entry";
    }
    if (!e.open()) return nullptr;
    const bool has_room = e.pinned() ? pinned_ < pins_ && end < t.tile->capacity
                                     : end < format_.tokens && t.tile->capacity == format_.tokens;
    return is_last && !folded && has_room ? nullptr : "file: open entry";
  }

  received_list& list_;
  const tile_format& format_;
  const int pins_;
  std::int64_t tokens_ = 0;
  std::int64_t pinned_ = 0;
};

}  // namespace detail
KVAXIS_END_NAMESPACE
