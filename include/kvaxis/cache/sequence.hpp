// All layers of one sequence. An engine appends to and attends with each layer; what concerns the sequence as a whole is
// done to every layer or, when one refuses, to none.
//
// Ranges are positions here, not indices: a layer that has evicted tokens (a sliding-window layer) has fewer than others,
// and what it no longer has is left out.
#pragma once

#include <new>

#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE

struct layer_config {
  cache_config config;
  bound_policy keys;
  bound_policy values;
};

class sequence {
 public:
  sequence() noexcept = default;
  sequence(sequence&& other) noexcept { swap(other); }
  sequence& operator=(sequence&& other) noexcept {
    sequence(std::move(other)).swap(*this);
    return *this;
  }
  sequence(const sequence&) = delete;
  sequence& operator=(const sequence&) = delete;
  ~sequence() {
    for (int i = 0; i < count_; ++i) layers_[i].~any_kv_cache();
    memory_.deallocate(layers_, array_bytes(count_));
  }

  // `out` is unchanged unless the answer is ok. Many sequences of one model: create one and fork it while it is empty, so
  // that they share their tables.
  static status create(const layer_config* layers, int count, const allocator& memory, sequence& out) noexcept {
    if (layers == nullptr) return {errc::invalid_argument, "layers", 0};
    sequence made;
    if (status s = made.make_array(count, memory); !s.ok()) return s;
    for (int i = 0; i < count; ++i) {
      const layer_config& l = layers[i];
      if (status s = any_kv_cache::create(l.config, l.keys, l.values, memory, made.layers_[i]); !s.ok()) return s;
    }
    out = std::move(made);
    return {};
  }

  [[nodiscard]] int layers() const noexcept { return count_; }
  [[nodiscard]] any_kv_cache& operator[](int layer) noexcept { return layers_[layer]; }
  [[nodiscard]] const any_kv_cache& operator[](int layer) const noexcept { return layers_[layer]; }

  [[nodiscard]] std::int64_t next_position() const noexcept { return count_ == 0 ? 0 : layers_[0].next_position(); }
  [[nodiscard]] cache_bytes bytes() const noexcept {
    cache_bytes sum;
    for (int i = 0; i < count_; ++i) sum += layers_[i].bytes();
    sum.bookkeeping += array_bytes(count_);
    return sum;
  }

  // Memory for a size of `tokens` in every layer, see any_kv_cache::reserve(). When it is short, layers that got theirs
  // keep it; clear() does not give it back, the sequence's end does.
  status reserve(std::int64_t tokens) noexcept {
    for (int i = 0; i < count_; ++i) {
      if (status s = layers_[i].reserve(tokens); !s.ok()) return s;
    }
    return {};
  }
  void clear() noexcept {
    for (int i = 0; i < count_; ++i) layers_[i].clear();
  }
  status fold() noexcept {
    for (int i = 0; i < count_; ++i) {
      any_kv_cache& c = layers_[i];
      if (status s = c.prepare_folds(c.foldable(c.config_.window)); !s.ok()) return s;
    }
    for (int i = 0; i < count_; ++i) static_cast<void>(layers_[i].fold());
    return {};
  }
  status flush() noexcept {
    for (int i = 0; i < count_; ++i) {
      if (status s = layers_[i].prepare_folds(layers_[i].all_foldable()); !s.ok()) return s;
    }
    for (int i = 0; i < count_; ++i) static_cast<void>(layers_[i].flush());
    return {};
  }
  // Layer by layer and tile by tile, see any_kv_cache::demote().
  status demote() noexcept {
    for (int i = 0; i < count_; ++i) {
      if (status s = layers_[i].demote(); !s.ok()) return s;
    }
    return {};
  }

  // Rolls back: the first token at `position` or later goes, and all after it.
  status truncate(std::int64_t position) noexcept {
    for (int i = 0; i < count_; ++i) layers_[i].do_truncate(layers_[i].find_position(position));
    return {};
  }
  // Drops the tokens from the first at `begin` or later up to the next at `end` or later.
  status erase(std::int64_t begin, std::int64_t end) noexcept {
    for (int i = 0; i < count_; ++i) {
      if (status s = layers_[i].prepare_entries(2); !s.ok()) return s;
    }
    for (int i = 0; i < count_; ++i) {
      const range r = find(layers_[i], begin, end);
      layers_[i].do_erase(r.first, r.count);
    }
    return {};
  }
  // Drops all but the pinned tokens and the newest `tokens`, in every layer.
  status keep_last(std::int64_t tokens) noexcept {
    if (tokens < 1) return {errc::out_of_range, "tokens", 1};
    for (int i = 0; i < count_; ++i) {
      if (status s = layers_[i].prepare_entries(2); !s.ok()) return s;
    }
    for (int i = 0; i < count_; ++i) static_cast<void>(layers_[i].keep_last(tokens));
    return {};
  }
  // Moves the same tokens as erase() would drop.
  status move(std::int64_t begin, std::int64_t end, std::int64_t delta) noexcept {
    for (int i = 0; i < count_; ++i) {
      const range r = find(layers_[i], begin, end);
      if (status s = layers_[i].prepare_move(r.first, r.count, delta); !s.ok()) return s;
    }
    for (int i = 0; i < count_; ++i) {
      const range r = find(layers_[i], begin, end);
      layers_[i].do_move(r.first, r.count, delta);
    }
    return {};
  }
  status fork(sequence& out) const noexcept {
    sequence made;
    if (count_ > 0) {
      if (status s = made.make_array(count_, memory_); !s.ok()) return s;
    }
    for (int i = 0; i < count_; ++i) {
      if (status s = layers_[i].fork(made.layers_[i]); !s.ok()) return s;
    }
    out = std::move(made);
    return {};
  }
  // Adds the tokens at begin .. end - 1 of another sequence of the same model behind the last one, moved by `delta`; their
  // tiles are shared.
  status splice(const sequence& other, std::int64_t begin, std::int64_t end, std::int64_t delta) noexcept {
    if (other.count_ != count_) return {errc::invalid_argument, "other: layers", count_};
    if (delta < -2 * max_position || delta > 2 * max_position) return {errc::out_of_range, "delta", 2 * max_position};
    for (int i = 0; i < count_; ++i) {
      any_kv_cache& c = layers_[i];
      const any_kv_cache& from = other.layers_[i];
      const range r = find(from, begin, end);
      if (status s = c.prepare_splice(c.size(), from, r.first, r.count, from.position(r.first) + delta); !s.ok())
        return s;
    }
    for (int i = 0; i < count_; ++i) {
      const any_kv_cache& from = other.layers_[i];
      const range r = find(from, begin, end);
      layers_[i].do_splice(layers_[i].size(), from, r.first, r.count, from.position(r.first) + delta);
    }
    return {};
  }

 private:
  struct range {
    std::int64_t first;
    std::int64_t count;
  };
  [[nodiscard]] static range find(const any_kv_cache& c, std::int64_t begin, std::int64_t end) noexcept {
    const std::int64_t first = c.find_position(begin);
    return {first, c.find_position(end, first) - first};
  }
  [[nodiscard]] static std::size_t array_bytes(int count) noexcept {
    return static_cast<std::size_t>(count) * sizeof(any_kv_cache);
  }
  status make_array(int count, const allocator& memory) noexcept {
    if (count < 1 || count > max_layers) return {errc::out_of_range, "layers", max_layers};
    void* array = memory.allocate(array_bytes(count));
    if (array == nullptr) {
      return {errc::out_of_memory, memory.name, static_cast<std::int64_t>(array_bytes(count))};
    }
    memory_ = memory;
    layers_ = static_cast<any_kv_cache*>(array);
    while (count_ < count) new (layers_ + count_++) any_kv_cache;
    return {};
  }
  void swap(sequence& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(layers_, other.layers_);
    std::swap(count_, other.count_);
  }

  allocator memory_;
  any_kv_cache* layers_ = nullptr;
  int count_ = 0;
};

KVAXIS_END_NAMESPACE
