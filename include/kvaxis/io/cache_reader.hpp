// Restoring caches from a stream of sections (sections.hpp), which is not trusted: every field is checked before
// anything is allocated for it, and the caches change only at the end, all of them or none.
#pragma once

#include "layer_reader.hpp"

KVAXIS_BEGIN_NAMESPACE

struct restore_options {
  kv_head_share share;  // what the caches hold; heads of the file that they do not hold are left out
  int first_layer = 0;  // the first of these layers, as the writer called it
};

// Receives one stream, as its bytes come. The caches were created with the configuration of the saved ones. They may be
// used until commit(), which gives them the new content; they must stay where they are until the reader is gone.
class cache_reader {
 public:
  cache_reader() noexcept = default;
  cache_reader(cache_reader&& other) noexcept { swap(other); }
  cache_reader& operator=(cache_reader&& other) noexcept {
    cache_reader(std::move(other)).swap(*this);
    return *this;
  }
  cache_reader(const cache_reader&) = delete;
  cache_reader& operator=(const cache_reader&) = delete;
  ~cache_reader() { free(); }

  // `out` is unchanged unless the answer is ok.
  static status create(any_kv_cache* const* layers, int count, const restore_options& options,
                       cache_reader& out) noexcept {
    if (layers == nullptr) return {errc::invalid_argument, "layers", 0};
    return create([layers](int i) { return layers[i]; }, count, options, out);
  }
  static status create(sequence& layers, const restore_options& options, cache_reader& out) noexcept {
    return create([&layers](int i) { return &layers[i]; }, layers.layers(), options, out);
  }

  // How long the section is that begins with these section_header_bytes; an error if no section of its type is so long.
  // None is longer than a tile, a description or 25 KB.
  status section_bytes(const void* header, std::size_t& out) const noexcept;
  // Any number of whole sections. After an error the reader takes nothing more.
  status accept(const void* data, std::size_t bytes) noexcept;
  // Whether the end of the stream has come.
  [[nodiscard]] bool complete() const noexcept { return ended_; }
  // Adds the heads of another complete stream for the same caches, saved in the same state of the sequence.
  status join(const cache_reader& other) noexcept;
  // Gives the caches what came. They are untouched if the end of the stream, or a head, is missing.
  status commit() noexcept;

 private:
  static status create(const detail::layer_of& layer, int count, const restore_options& options,
                       cache_reader& out) noexcept;
  void swap(cache_reader& other) noexcept;
  void free() noexcept;
  status accept_section(const detail::section_view& section) noexcept;
  status accept_head(const detail::section_view& section) noexcept;
  status accept_end(const detail::section_view& section) noexcept;

  restore_options options_;
  allocator memory_;
  detail::layer_reader* layers_ = nullptr;
  int count_ = 0;
  bool started_ = false;
  bool ended_ = false;
  bool failed_ = false;
};

// A whole file in memory.
[[nodiscard]] inline status restore(const void* data, std::size_t bytes, any_kv_cache* const* layers, int count,
                                    const restore_options& options = {}) noexcept {
  cache_reader reader;
  if (status s = cache_reader::create(layers, count, options, reader); !s.ok()) return s;
  if (status s = reader.accept(data, bytes); !s.ok()) return s;
  return reader.commit();
}

[[nodiscard]] inline status restore(const void* data, std::size_t bytes, sequence& layers,
                                    const restore_options& options = {}) noexcept {
  cache_reader reader;
  if (status s = cache_reader::create(layers, options, reader); !s.ok()) return s;
  if (status s = reader.accept(data, bytes); !s.ok()) return s;
  return reader.commit();
}

inline status cache_reader::create(const detail::layer_of& layer, int count, const restore_options& options,
                                   cache_reader& out) noexcept {
  if (status s = detail::check_layers(layer, count, options.share); !s.ok()) return s;
  for (int i = 1; i < count; ++i) {
    for (int j = 0; j < i; ++j) {
      if (layer(i) == layer(j)) return {errc::invalid_argument, "layers", i};
    }
  }
  cache_reader made;
  made.options_ = options;
  made.memory_ = layer(0)->format()->memory;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(detail::layer_reader);
  made.layers_ = static_cast<detail::layer_reader*>(made.memory_.allocate(bytes));
  if (made.layers_ == nullptr) return {errc::out_of_memory, made.memory_.name, static_cast<std::int64_t>(bytes)};
  made.count_ = count;
  for (int i = 0; i < count; ++i) new (made.layers_ + i) detail::layer_reader(*layer(i), options.share);
  out = std::move(made);
  return {};
}

inline void cache_reader::swap(cache_reader& other) noexcept {
  std::swap(options_, other.options_);
  std::swap(memory_, other.memory_);
  std::swap(layers_, other.layers_);
  std::swap(count_, other.count_);
  std::swap(started_, other.started_);
  std::swap(ended_, other.ended_);
  std::swap(failed_, other.failed_);
}

inline void cache_reader::free() noexcept {
  for (int i = 0; i < count_; ++i) layers_[i].~layer_reader();
  memory_.deallocate(layers_, static_cast<std::size_t>(count_) * sizeof(detail::layer_reader));
  layers_ = nullptr;
  count_ = 0;
}

inline status cache_reader::section_bytes(const void* header, std::size_t& out) const noexcept {
  if (header == nullptr) return {errc::invalid_argument, "header", 0};
  detail::byte_reader from(header, section_header_bytes);
  const detail::section_header h = detail::load_header(from);
  std::uint64_t most = 0;
  if (h.type == detail::section::head) {
    most = detail::head_bytes;
  } else if (h.type != detail::section::end) {
    if (!detail::is_layer_section(h.type)) return {errc::invalid_argument, "file: type of a section", 0};
    if (h.layer >= static_cast<std::uint32_t>(count_)) return {errc::out_of_range, "file: layer", count_ - 1};
    most = layers_[h.layer].most_bytes(h.type);
  }
  if (h.bytes > most) return {errc::out_of_range, "file: size of a section", static_cast<std::int64_t>(most)};
  out = static_cast<std::size_t>(h.bytes + detail::section_frame_bytes);
  return {};
}

inline status cache_reader::accept(const void* data, std::size_t bytes) noexcept {
  if (failed_ || count_ == 0) return {errc::invalid_argument, "reader: failed or not created", 0};
  if (data == nullptr && bytes > 0) return {errc::invalid_argument, "data", 0};
  detail::byte_reader from(data, bytes);
  while (from.left() > 0) {
    detail::section_view section;
    status s = detail::take_section(from, section);
    if (s.ok()) s = accept_section(section);
    failed_ = !s.ok();
    if (failed_) return s;
  }
  return {};
}

inline status cache_reader::accept_section(const detail::section_view& section) noexcept {
  const detail::section_header& h = section.header;
  if (!started_) return accept_head(section);
  if (ended_) return {errc::invalid_argument, "file: order of sections", 0};
  if (h.type == detail::section::end) return accept_end(section);
  if (!detail::is_layer_section(h.type)) return {errc::invalid_argument, "file: type of a section", 0};
  if (h.layer >= static_cast<std::uint32_t>(count_)) return {errc::out_of_range, "file: layer", count_ - 1};
  return layers_[h.layer].accept(h.type, section.payload);
}

inline status cache_reader::accept_head(const detail::section_view& section) noexcept {
  int version = 0;
  int layers = 0;
  int first_layer = 0;
  if (status s = detail::read_head(section, version, layers, first_layer); !s.ok()) return s;
  if (layers != count_) return {errc::invalid_argument, "file: number of layers", count_};
  if (first_layer != options_.first_layer) {
    return {errc::invalid_argument, "file: first layer", options_.first_layer};
  }
  started_ = true;
  return {};
}

inline status cache_reader::accept_end(const detail::section_view& section) noexcept {
  if (section.header.layer != 0 || section.payload.left() != 0) return {errc::invalid_argument, "file: end", 0};
  for (int i = 0; i < count_; ++i) {
    if (!layers_[i].is_done()) return {errc::invalid_argument, "file: a layer is missing", i};
  }
  ended_ = true;
  return {};
}

inline status cache_reader::join(const cache_reader& other) noexcept {
  if (!ended_ || failed_) return {errc::invalid_argument, "reader: not complete", 0};
  if (!other.ended_ || other.failed_ || &other == this) return {errc::invalid_argument, "other: not complete", 0};
  if (other.count_ != count_) return {errc::invalid_argument, "other: layers", count_};
  for (int i = 0; i < count_; ++i) {
    if (status s = layers_[i].check_join(other.layers_[i]); !s.ok()) return s;
  }
  for (int i = 0; i < count_; ++i) layers_[i].join(other.layers_[i]);
  return {};
}

inline status cache_reader::commit() noexcept {
  if (failed_ || !ended_ || count_ == 0) return {errc::invalid_argument, "file: truncated", 0};
  for (int i = 0; i < count_; ++i) {
    if (status s = layers_[i].check_commit(); !s.ok()) return s;
  }
  for (int i = 0; i < count_; ++i) layers_[i].commit();
  free();
  return {};
}

KVAXIS_END_NAMESPACE
