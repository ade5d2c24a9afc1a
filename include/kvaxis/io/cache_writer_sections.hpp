// cache_writer: checks, and what goes into the sections.
#pragma once

#include "cache_writer.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// Names that identify a codec in a file.
inline bool is_file_name(const char* name) noexcept {
  std::size_t length = 0;
  while (length < sizeof(side_record::codec) && name[length] > ' ' && name[length] <= '~') ++length;
  return length > 0 && length < sizeof(side_record::codec) && name[length] == 0;
}

}  // namespace detail

inline status cache_writer::create(const detail::const_layer_of& layer, int count, const save_options& options,
                                   cache_writer& out) noexcept {
  if (status s = detail::check_layers(layer, count, options.share); !s.ok()) return s;
  if (options.first_layer < 0) return {errc::out_of_range, "first_layer", 0};
  const bool whole = options.first_head == 0 && options.end_head == 0;
  const int first = options.share.first;
  for (int i = 0; i < count; ++i) {
    const tile_format& f = *layer(i)->format();
    if (!detail::is_file_name(f.key_codec->name) || !detail::is_file_name(f.value_codec->name)) {
      return {errc::unsupported, "codec name: 1 to 31 printable characters", i};
    }
    if (whole) continue;
    const int end = first + f.kv_heads;
    if (options.end_head <= first || options.end_head > end) return {errc::out_of_range, "end_head", end};
    if (options.first_head < first || options.first_head >= options.end_head) {
      return {errc::out_of_range, "first_head", options.end_head - 1};
    }
  }
  cache_writer made;
  made.options_ = options;
  made.memory_ = layer(0)->format()->memory;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(detail::layer_writer);
  made.layers_ = static_cast<detail::layer_writer*>(made.memory_.allocate(bytes));
  if (made.layers_ == nullptr) return {errc::out_of_memory, made.memory_.name, static_cast<std::int64_t>(bytes)};
  made.count_ = count;
  for (int i = 0; i < count; ++i) {
    auto* l = new (made.layers_ + i) detail::layer_writer;
    l->cache = layer(i);
    l->first_head = whole ? 0 : options.first_head - first;
    l->end_head = whole ? l->cache->format()->kv_heads : options.end_head - first;
  }
  out = std::move(made);
  return {};
}

inline void cache_writer::swap(cache_writer& other) noexcept {
  std::swap(options_, other.options_);
  std::swap(memory_, other.memory_);
  std::swap(layers_, other.layers_);
  std::swap(count_, other.count_);
  std::swap(started_, other.started_);
  std::swap(ended_, other.ended_);
  std::swap(sent_, other.sent_);
}

inline void cache_writer::free() noexcept {
  for (int i = 0; i < count_; ++i) layers_[i].tiles.free(memory_);
  memory_.deallocate(layers_, static_cast<std::size_t>(count_) * sizeof(detail::layer_writer));
  layers_ = nullptr;
  count_ = 0;
}

// One call, with or without a sink. A finished writer holds no tile any more, nor does a failed one: an open tile that two
// hold would be copied by the next append.
inline status cache_writer::write(const byte_sink* sink, bool all) noexcept {
  if (ended_ || count_ == 0) return {errc::invalid_argument, "writer: finished, failed or not created", 0};
  detail::section_writer to(sink, sent_);
  const status s = write_all(to, all);
  sent_ = to.bytes();
  ended_ = all || !s.ok();
  if (ended_) free();
  return s;
}

inline status cache_writer::count(std::uint64_t& out) noexcept {
  const std::uint64_t before = sent_;
  if (status s = write(nullptr, true); !s.ok()) return s;
  out = sent_ - before;
  return {};
}

inline status cache_writer::write_all(detail::section_writer& to, bool all) noexcept {
  if (!started_) {
    if (status s = write_start(to); !s.ok()) return s;
    started_ = true;
  }
  for (int i = 0; i < count_; ++i) {
    if (status s = write_tiles(i, all, to); !s.ok()) return s;
  }
  if (!all) return {};
  for (int i = 0; i < count_; ++i) {
    if (status s = write_list(i, to); !s.ok()) return s;
  }
  to.begin(detail::section::end, 0, 0);
  return to.end();
}

inline status cache_writer::write_start(detail::section_writer& to) noexcept {
  to.begin(detail::section::head, 0, detail::head_bytes);
  to.put(std::uint32_t{file_version});
  to.put(static_cast<std::uint32_t>(count_));
  to.put(static_cast<std::uint32_t>(options_.first_layer));
  to.put(std::uint32_t{0});
  if (status s = to.end(); !s.ok()) return s;
  for (int i = 0; i < count_; ++i) {
    const detail::layer_writer& l = layers_[i];
    const int first = options_.share.first;
    const detail::layer_record record = detail::describe_layer(
        *l.cache, detail::heads_of_layer(*l.cache, options_.share), first + l.first_head, first + l.end_head);
    if (status s = detail::write_description(i, record, *l.cache, l.first_head, to); !s.ok()) return s;
  }
  return {};
}

inline status cache_writer::write_tiles(int layer, bool exact_too, detail::section_writer& to) noexcept {
  detail::layer_writer& l = layers_[layer];
  const sequence_view view = l.cache->view();
  detail::known_tile* t = nullptr;
  for (int i = 0; i < view.entry_count; ++i) {  // which slots of a tile are used is known after the last entry only
    const entry& e = view.entries[i];
    if (!e.folded && !exact_too) continue;
    if (status s = l.tiles.find_or_add(e, memory_, t); !s.ok()) return s;
  }
  for (int i = 0; i < view.entry_count; ++i) {
    const entry& e = view.entries[i];
    if (!e.folded && !exact_too) continue;
    detail::known_tile& known = l.tiles.find(e.tile);
    if (known.written) continue;
    if (status s = write_tile(layer, known, to); !s.ok()) return s;
  }
  return {};
}

inline status cache_writer::write_tile(int layer, detail::known_tile& known, detail::section_writer& to) noexcept {
  const tile& t = *known.tile;
  const detail::slot_span slots = t.folded ? detail::slot_span{0, t.capacity} : known.slots;
  detail::layer_writer& l = layers_[layer];
  const std::uint64_t content =
      static_cast<std::uint64_t>(l.end_head - l.first_head) * detail::content_bytes(*t.format, t.folded, slots);
  known.number = l.tiles_written++;
  known.written = true;
  to.begin(detail::section::tile, layer, detail::tile_head_bytes + content);
  to.put(known.number);
  to.put(static_cast<std::uint8_t>(t.folded));
  to.put(known.tier);
  to.put(std::uint16_t{0});
  to.put(static_cast<std::uint32_t>(detail::saved_capacity(*l.cache, t.folded, t.capacity, slots)));
  to.put(static_cast<std::uint32_t>(slots.first));
  to.put(static_cast<std::uint32_t>(slots.end));
  if (to.counts_only()) {
    to.count(content);
    return to.end();
  }
  for (int h = l.first_head; h < l.end_head; ++h) {
    detail::for_each_piece(
        t, h, slots, [&](const std::byte* data, std::size_t n, std::size_t word) { to.put_words(data, n, word); });
  }
  return to.end();
}

inline status cache_writer::write_list(int layer, detail::section_writer& to) noexcept {
  detail::layer_writer& l = layers_[layer];
  const sequence_view view = l.cache->view();
  for (int first = 0; first < view.entry_count;) {
    const int left = view.entry_count - first;
    const int end = first + std::min(left, static_cast<int>(detail::list_entries));
    to.begin(detail::section::list, layer, static_cast<std::uint64_t>(end - first) * detail::entry_bytes);
    for (; first < end; ++first) {
      const entry& e = view.entries[first];
      to.put(l.tiles.find(e.tile).number);
      to.put((e.open ? detail::open_flag : 0U) | (e.pinned ? detail::pinned_flag : 0U));
      to.put(static_cast<std::uint64_t>(e.base_position));
      to.put(static_cast<std::uint32_t>(e.begin));
      to.put(static_cast<std::uint32_t>(e.count));
    }
    if (status s = to.end(); !s.ok()) return s;
  }
  to.begin(detail::section::done, layer, detail::done_bytes);
  to.put(static_cast<std::uint32_t>(view.entry_count));
  to.put(l.tiles_written);
  to.put(static_cast<std::uint64_t>(l.cache->replaced()));
  return to.end();
}

KVAXIS_END_NAMESPACE
