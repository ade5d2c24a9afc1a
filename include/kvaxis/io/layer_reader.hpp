// The sections of one layer, as they come.
#pragma once

#include "layer_match.hpp"
#include "received_list.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// The numbers before the content of a tile.
struct tile_head {
  const tile_format* format = nullptr;
  bool folded = false;
  std::uint8_t tier = 0;
  int capacity = 0;
  slot_span slots;
};

class layer_reader {
 public:
  layer_reader(any_kv_cache& cache, kv_head_share share) noexcept
      : cache_(&cache), format_(cache.format()), share_{share.first, heads_of_layer(cache, share)} {
    format_->references.fetch_add(1, std::memory_order_relaxed);
  }
  layer_reader(const layer_reader&) = delete;
  layer_reader& operator=(const layer_reader&) = delete;
  ~layer_reader() {
    list_.free(format_->memory);
    room_.free(format_->memory);
    release(format_);
  }

  [[nodiscard]] bool is_done() const noexcept { return done_; }
  [[nodiscard]] std::uint64_t most_bytes(std::uint32_t type) const noexcept;

  status accept(std::uint32_t type, byte_reader payload) noexcept {
    if (done_ || described_ == (type == section::layer)) return {errc::invalid_argument, "file: order of sections", 0};
    switch (type) {
      case section::layer: return accept_description(payload);
      case section::tile: return accept_tile(payload);
      case section::list: return accept_list(payload);
      default: return accept_done(payload);
    }
  }

  // Whether the heads of another reader of this layer can be added, and adding them.
  [[nodiscard]] status check_join(const layer_reader& other) const noexcept;
  void join(const layer_reader& other) noexcept;
  // Whether the cache can have it, and giving it.
  [[nodiscard]] status check_commit() const noexcept;
  void commit() noexcept;

 private:
  [[nodiscard]] bool has(int head) const noexcept { return has_[static_cast<std::size_t>(head)]; }
  status accept_description(byte_reader payload) noexcept;
  status accept_tile(byte_reader payload) noexcept;
  status read_tile_head(byte_reader& from, tile_head& out) const noexcept;
  status take_content(byte_reader& from, tile& t, slot_span slots, std::uint64_t per_head) const noexcept;
  status accept_list(byte_reader payload) noexcept;
  status accept_done(byte_reader payload) noexcept;

  any_kv_cache* cache_;
  const tile_format* format_;
  kv_head_share share_;
  bool described_ = false;
  bool done_ = false;
  int file_first_ = 0;  // heads of the file, as the cache numbers its own: some may lie outside
  int file_end_ = 0;
  std::array<bool, max_kv_heads> has_{};  // heads of the cache that have come
  received_list list_;
  entry_list room_;  // for the entries
};

inline std::uint64_t layer_reader::most_bytes(std::uint32_t type) const noexcept {
  switch (type) {
    case section::layer: return description_bytes(describe_layer(*cache_, share_.of, 0, share_.of));
    case section::list: return list_entries * entry_bytes;
    case section::done: return done_bytes;
    default: break;
  }
  std::uint64_t head = content_bytes(*format_, false, {0, max_tile_tokens});
  for (const tile_format* f : cache_->view().tiers) {
    if (f != nullptr) head = std::max(head, content_bytes(*f, true, {}));
  }
  return tile_head_bytes + head * static_cast<std::uint64_t>(share_.of);
}

inline status layer_reader::accept_description(byte_reader payload) noexcept {
  layer_record record;
  if (status s = match_description(payload, *cache_, share_, record); !s.ok()) return s;
  file_first_ = static_cast<int>(record.first_head) - share_.first;
  file_end_ = static_cast<int>(record.end_head) - share_.first;
  for (int h = 0; h < format_->kv_heads; ++h) has_[static_cast<std::size_t>(h)] = h >= file_first_ && h < file_end_;
  described_ = true;
  return {};
}

inline status layer_reader::read_tile_head(byte_reader& from, tile_head& out) const noexcept {
  const auto number = from.number<std::uint32_t>();
  const auto folded = from.number<std::uint8_t>();
  out.tier = from.number<std::uint8_t>();
  const auto nothing = from.number<std::uint16_t>();
  const auto capacity = from.number<std::uint32_t>();
  const auto first = from.number<std::uint32_t>();
  const auto end = from.number<std::uint32_t>();
  if (from.failed()) return {errc::invalid_argument, "file: size of a tile", tile_head_bytes};
  if (number != list_.tiles.size()) return {errc::invalid_argument, "file: number of a tile", list_.tiles.size()};
  if (folded > 1 || nothing != 0) return {errc::invalid_argument, "file: kind of a tile", 1};
  out.folded = folded == 1;
  const int tiers = out.folded ? cache_->config().older_tiers_count : 0;
  if (out.tier > tiers) return {errc::out_of_range, "file: tier of a tile", tiers};
  out.format = cache_->view().tiers[out.tier];
  if (first >= end || end > capacity || capacity > max_tile_tokens) {
    return {errc::out_of_range, "file: slots of a tile", max_tile_tokens};
  }
  out.capacity = static_cast<int>(capacity);
  out.slots = {static_cast<int>(first), static_cast<int>(end)};
  if (out.folded && (out.slots.first != 0 || out.slots.end != format_->tokens)) {
    return {errc::invalid_argument, "file: slots of a tile", format_->tokens};
  }
  if (out.capacity != saved_capacity(*cache_, out.folded, out.capacity, out.slots)) {
    return {errc::invalid_argument, "file: capacity of a tile", format_->tokens};
  }
  return {};
}

// Copies the heads that the cache has, and checks them.
inline status layer_reader::take_content(byte_reader& from, tile& t, slot_span slots,
                                         std::uint64_t per_head) const noexcept {
  for (int h = file_first_; h < file_end_; ++h) {
    if (h < 0 || h >= format_->kv_heads) {
      from.take(per_head);
      continue;
    }
    for_each_piece(t, h, slots, [&from](std::byte* to, std::size_t bytes, std::size_t word) {
      std::memcpy(to, from.take(bytes), bytes);
      if constexpr (big_endian) swap_words(to, bytes, word);
    });
    const char* const wrong = check_content(*format_, t, h, slots);
    if (wrong != nullptr) return {errc::invalid_argument, wrong, h};
  }
  return {};
}

inline status layer_reader::accept_tile(byte_reader payload) noexcept {
  tile_head head;
  if (status s = read_tile_head(payload, head); !s.ok()) return s;
  const tile_format& f = *head.format;
  const std::uint64_t per_head = content_bytes(f, head.folded, head.slots);
  const std::uint64_t content = per_head * static_cast<std::uint64_t>(file_end_ - file_first_);
  if (payload.left() != content) {
    return {errc::invalid_argument, "file: size of a tile", static_cast<std::int64_t>(tile_head_bytes + content)};
  }
  tile* t = make_tile(f, head.folded, head.capacity);
  if (t == nullptr) {
    const std::size_t bytes = head.folded ? f.folded_bytes : f.exact_bytes(head.capacity);
    return {errc::out_of_memory, "allocator", static_cast<std::int64_t>(bytes)};
  }
  status s = take_content(payload, *t, head.slots, per_head);
  if (s.ok()) s = list_.tiles.insert(list_.tiles.size(), {t, head.slots, head.tier}, format_->memory);
  if (!s.ok()) release(t);
  return s;
}

inline status layer_reader::accept_list(byte_reader payload) noexcept {
  const std::size_t bytes = payload.left();
  if (bytes == 0 || bytes % entry_bytes != 0 || bytes > list_entries * entry_bytes) {
    return {errc::invalid_argument, "file: size of a list", list_entries};
  }
  while (payload.left() > 0) {
    received_entry e;
    e.tile = payload.number<std::uint32_t>();
    e.flags = payload.number<std::uint32_t>();
    e.base_position = static_cast<std::int64_t>(payload.number<std::uint64_t>());
    const auto begin = payload.number<std::uint32_t>();
    const auto count = payload.number<std::uint32_t>();
    if (e.flags > (open_flag | pinned_flag)) return {errc::invalid_argument, "file: flags of an entry", 3};
    if (begin > max_tile_tokens || count > max_tile_tokens) {
      return {errc::invalid_argument, "file: slots of an entry", list_.entries.size()};
    }
    e.begin = static_cast<int>(begin);
    e.count = static_cast<int>(count);
    if (status s = list_.entries.insert(list_.entries.size(), e, format_->memory); !s.ok()) return s;
  }
  return {};
}

inline status layer_reader::accept_done(byte_reader payload) noexcept {
  if (payload.left() != done_bytes) return {errc::invalid_argument, "file: size of a layer's end", done_bytes};
  const auto entries = static_cast<int>(list_.entries.size());
  if (payload.number<std::uint32_t>() != list_.entries.size()) {
    return {errc::invalid_argument, "file: number of entries", entries};
  }
  if (payload.number<std::uint32_t>() != list_.tiles.size()) {
    return {errc::invalid_argument, "file: number of tiles", list_.tiles.size()};
  }
  list_.replaced = static_cast<std::int64_t>(payload.number<std::uint64_t>());
  if (status s = list_checker(list_, *cache_).check(); !s.ok()) return s;
  if (entries > 0 && !room_.reserve(entries, format_->memory)) {
    const std::size_t bytes = entry_list::bytes_for(entry_list::capacity_for(entries));
    return {errc::out_of_memory, "allocator", static_cast<std::int64_t>(bytes)};
  }
  list_.sort_tiles();
  done_ = true;
  return {};
}

inline status layer_reader::check_join(const layer_reader& other) const noexcept {
  const received_list& a = list_;
  const received_list& b = other.list_;
  if (other.cache_ != cache_ || other.format_ != format_) return {errc::invalid_argument, "other: layers", 0};
  for (int h = 0; h < format_->kv_heads; ++h) {
    if (has(h) && other.has(h)) return {errc::invalid_argument, "other: a head that is there", h};
  }
  const auto same_tile = [](const received_tile& x, const received_tile& y) {
    return x.tile->format == y.tile->format && x.tile->folded == y.tile->folded &&
           x.tile->capacity == y.tile->capacity && x.slots.first == y.slots.first && x.slots.end == y.slots.end;
  };
  const auto same_entry = [](const received_entry& x, const received_entry& y) {
    return x.tile == y.tile && x.flags == y.flags && x.base_position == y.base_position && x.begin == y.begin &&
           x.count == y.count;
  };
  if (!std::equal(a.tiles.begin(), a.tiles.end(), b.tiles.begin(), b.tiles.end(), same_tile) ||
      !std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(), same_entry)) {
    return {errc::invalid_argument, "other: another state of the sequence", 0};
  }
  return {};
}

inline void layer_reader::join(const layer_reader& other) noexcept {
  for (int h = 0; h < format_->kv_heads; ++h) {
    if (!other.has(h)) continue;
    has_[static_cast<std::size_t>(h)] = true;
    for (std::uint32_t i = 0; i < list_.tiles.size(); ++i) {
      const received_tile& from = other.list_.tiles[i];
      std::byte* const to = list_.tiles[i].tile->data();
      for_each_piece(*from.tile, h, from.slots, [&](const std::byte* piece, std::size_t bytes, std::size_t) {
        std::memcpy(to + (piece - from.tile->data()), piece, bytes);
      });
    }
  }
  list_.replaced = std::max(list_.replaced, other.list_.replaced);  // nobody knows how many of them are the same
}

inline status layer_reader::check_commit() const noexcept {
  if (cache_->format() != format_) return {errc::invalid_argument, "reader: a cache was made anew", 0};
  for (int h = 0; h < format_->kv_heads; ++h) {
    if (!has(h)) return {errc::invalid_argument, "file: a head is missing", h};
  }
  return {};
}

inline void layer_reader::commit() noexcept {
  for (const received_entry& from : list_.entries) {
    const received_tile& t = list_.tiles[from.tile];
    entry e;
    e.tile = t.tile;
    e.base_position = from.base_position;
    e.begin = from.begin;
    e.count = from.count;
    e.open = from.open();
    e.pinned = from.pinned();
    e.folded = t.tile->folded;
    e.tier = t.tier;
    add_reference(e.tile);
    room_.push_back(e);
  }
  cache_->replace_tokens(room_, list_.replaced);
}

}  // namespace detail
KVAXIS_END_NAMESPACE
