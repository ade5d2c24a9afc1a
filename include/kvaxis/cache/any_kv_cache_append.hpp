// any_kv_cache: making it, filling it, folding.
#pragma once

#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE
inline status any_kv_cache::create(const cache_config& c, const bound_policy& keys, const bound_policy& values,
                                   const allocator& memory, any_kv_cache& out) noexcept {
  if (status s = detail::check_config(c, keys, values); !s.ok()) return s;
  const format_request request = detail::make_request(c, keys, values);
  any_kv_cache made;
  made.config_ = c;
  made.config_.k_scale = made.config_.k_offset = made.config_.v_scale = made.config_.v_offset = nullptr;
  made.memory_ = memory;
  made.format_ = make_tile_format(request, memory);
  if (made.format_ == nullptr) {
    return {errc::out_of_memory, "allocator", static_cast<std::int64_t>(detail::format_bytes(request))};
  }
  const std::size_t scratch_bytes = fold_scratch_floats(*made.format_) * 8U;
  void* scratch = memory.allocate(scratch_bytes);
  if (scratch == nullptr) return {errc::out_of_memory, "allocator", static_cast<std::int64_t>(scratch_bytes)};
  made.fold_scratch_.numbers = static_cast<float*>(scratch);
  made.fold_scratch_.codes = static_cast<std::uint32_t*>(scratch) + fold_scratch_floats(*made.format_);
  out = std::move(made);
  return {};
}

inline void any_kv_cache::swap(any_kv_cache& other) noexcept {
  std::swap(config_, other.config_);
  std::swap(memory_, other.memory_);
  std::swap(format_, other.format_);
  std::swap(entries_, other.entries_);
  std::swap(spare_exact_, other.spare_exact_);
  std::swap(spare_pins_, other.spare_pins_);
  std::swap(spare_folded_, other.spare_folded_);
  std::swap(fold_scratch_, other.fold_scratch_);
  std::swap(first_exact_, other.first_exact_);
  std::swap(size_, other.size_);
  std::swap(folded_tokens_, other.folded_tokens_);
  std::swap(pinned_tokens_, other.pinned_tokens_);
  std::swap(next_position_, other.next_position_);
  std::swap(lowest_position_, other.lowest_position_);
  std::swap(replaced_, other.replaced_);
}

inline void any_kv_cache::destroy() noexcept {
  if (format_ == nullptr) return;
  clear();
  spare_exact_.drop_to(0);
  spare_pins_.drop_to(0);
  spare_folded_.drop_to(0);
  memory_.deallocate(fold_scratch_.numbers, fold_scratch_floats(*format_) * 8U);
  entries_.free(memory_);
  release(format_);
  format_ = nullptr;
}

inline void any_kv_cache::clear() noexcept {
  for (int i = 0; i < entries_.size(); ++i) {
    const entry& e = entries_[i];
    (e.tile->folded ? spare_folded_ : e.pinned ? spare_pins_ : spare_exact_).push(e.tile);
  }
  entries_.clear();
  first_exact_ = 0;
  size_ = folded_tokens_ = pinned_tokens_ = next_position_ = lowest_position_ = replaced_ = 0;
}

inline cache_bytes any_kv_cache::bytes() const noexcept {
  cache_bytes b;
  if (format_ == nullptr) return b;
  for (int i = 0; i < entries_.size(); ++i) {
    (entries_[i].tile->folded ? b.folded : b.exact) += entries_[i].tile->bytes;
  }
  b.spare = spare_exact_.bytes() + spare_pins_.bytes() + spare_folded_.bytes();
  b.bookkeeping = format_->bytes + entries_.bytes() + fold_scratch_floats(*format_) * 8U;
  return b;
}

inline detail::append_model any_kv_cache::model() const noexcept {
  detail::append_model m;
  m.entries = &entries_;
  m.first_exact = first_exact_;
  m.exact_tokens = size_ - folded_tokens_ - pinned_tokens_;
  m.pins_left = config_.pins - static_cast<int>(pinned_tokens_);
  m.window = config_.window;
  m.tile_tokens = format_->tokens;
  m.spare_exact = spare_exact_.count();
  m.spare_folded = spare_folded_.count();
  return m;
}

// All memory for an append, or none of it.
inline status any_kv_cache::prepare(const needs& n) noexcept {
  const int exact = spare_exact_.count();
  const int pins = spare_pins_.count();
  const int folded = spare_folded_.count();
  const auto add = [&](detail::spare_tiles& spare, int count, bool is_folded, int capacity) {
    for (int i = 0; i < count; ++i) {
      tile* t = make_tile(*format_, is_folded, capacity);
      if (t == nullptr) return false;
      spare.push(t);
    }
    return true;
  };
  const int new_pins = n.pin_tiles > pins ? n.pin_tiles - pins : 0;
  std::size_t missing = 0;
  if (!add(spare_exact_, n.exact_tiles, false, format_->tokens)) missing = format_->exact_bytes(format_->tokens);
  if (missing == 0 && !add(spare_pins_, new_pins, false, pin_capacity()))
    missing = format_->exact_bytes(pin_capacity());
  if (missing == 0 && !add(spare_folded_, n.folded_tiles, true, format_->tokens)) missing = format_->folded_bytes;
  const int entries = entries_.size() + n.entries;
  if (missing == 0 && !entries_.reserve(entries, memory_)) {
    missing = detail::entry_list::bytes_for(detail::entry_list::capacity_for(entries));
  }
  if (missing == 0) return {};
  spare_exact_.drop_to(exact);
  spare_pins_.drop_to(pins);
  spare_folded_.drop_to(folded);
  return {errc::out_of_memory, "allocator", static_cast<std::int64_t>(missing)};
}

inline status any_kv_cache::reserve(std::int64_t tokens) noexcept {
  if (format_ == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (tokens < 0 || tokens > max_position) return {errc::out_of_range, "tokens", max_position};
  if (tokens <= size_) return {};
  return prepare(model().needs(tokens - size_, false, true));
}

inline status any_kv_cache::check_append(const rows& k, const rows& v, int n, std::int64_t position) const noexcept {
  if (n < 0) return {errc::out_of_range, "n", 0};
  if (position < -max_position) return {errc::out_of_range, "first_position", -max_position};
  if (position > max_position - n) return {errc::out_of_range, "first_position", max_position - n};
  if (n == 0) return {};
  if (format_->is_latent() && v.data != nullptr) return {errc::invalid_argument, "v: latent values come with k", 0};
  for (const bool is_key : {true, false}) {
    if (!is_key && format_->is_latent()) break;
    const rows& r = is_key ? k : v;
    const int dim = is_key ? format_->head_dim : format_->value_dim;
    if (r.data == nullptr) return {errc::invalid_argument, is_key ? "k" : "v", 0};
    if (r.head_stride != 0 && r.head_stride < dim)
      return {errc::invalid_argument, is_key ? "k.head_stride" : "v.head_stride", dim};
    if (r.token_stride != 0 && r.token_stride < dim)
      return {errc::invalid_argument, is_key ? "k.token_stride" : "v.token_stride", dim};
    if (status s = detail::check_rows(*format_, config_, r, n, is_key); !s.ok()) return s;
  }
  return {};
}

inline status any_kv_cache::append(const rows& k, const rows& v, int n, std::int64_t first_position,
                                   fold_mode mode) noexcept {
  if (format_ == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const std::int64_t position = first_position == next ? next_position_ : first_position;
  if (status s = check_append(k, v, n, position); !s.ok()) return s;
  if (n == 0) return {};
  const bool gap = size_ > 0 && position != next_position_;
  const bool folds = mode == fold_mode::now;
  if (status s = prepare(model().needs(n, gap, folds)); !s.ok()) return s;
  if (gap) entries_.back().open = false;
  if (size_ == 0 || position < lowest_position_) lowest_position_ = position;
  store_tokens(k, v, n, position, folds);
  return {};
}

// Tile by tile, so that a tile which folds early serves again in the same call.
inline void any_kv_cache::store_tokens(const rows& k, const rows& v, int n, std::int64_t position,
                                       bool folds) noexcept {
  for (int done = 0; done < n;) {
    const bool pinned = pinned_tokens_ < config_.pins;
    if (entries_.size() == 0 || !entries_.back().open) open_tile(pinned, position + done);
    const std::int64_t room = pinned ? config_.pins - pinned_tokens_ : format_->tokens - entries_.back().count;
    const int count = room < n - done ? static_cast<int>(room) : n - done;
    copy_rows(detail::skip_tokens(k, done, format_->kv_heads, format_->head_dim),
              detail::skip_tokens(v, done, format_->kv_heads, format_->value_dim), count);
    done += count;
    entries_.back().open = count < room;
    if (folds) fold_oldest(foldable(config_.window));
  }
  next_position_ = position + n;
}

inline void any_kv_cache::open_tile(bool pinned, std::int64_t position) noexcept {
  entry e;
  e.tile = (pinned ? spare_pins_ : spare_exact_).pop();
  e.base_position = position;
  e.open = true;
  e.pinned = pinned;
  entries_.push_back(e);
  if (pinned) ++first_exact_;
}

// Copies `count` rows into the open tile: keys in stored order, everything in the type of full-precision rows.
inline void any_kv_cache::copy_rows(const rows& k, const rows& v, int count) noexcept {
  entry& e = entries_.back();
  const detail::row_functions& functions = detail::active_rows();
  functions.copy(*format_, k, count, true, *e.tile, e.count, replaced_);
  if (!format_->is_latent()) functions.copy(*format_, v, count, false, *e.tile, e.count, replaced_);
  e.count += count;
  size_ += count;
  if (e.pinned) pinned_tokens_ += count;
}

// How many of the oldest full-precision tiles are closed and leave at least `keep` unpinned full-precision tokens.
inline int any_kv_cache::foldable(std::int64_t keep) const noexcept {
  std::int64_t exact = size_ - folded_tokens_ - pinned_tokens_;
  int count = 0;
  for (int i = first_exact_; i < entries_.size(); ++i) {
    exact -= entries_[i].count;
    if (entries_[i].open || exact < keep) break;
    ++count;
  }
  return count;
}

// Folds the `count` oldest full-precision tiles into spare ones, which are there.
inline void any_kv_cache::fold_oldest(int count) noexcept {
  for (; count > 0; --count) {
    entry& e = entries_[first_exact_++];
    tile* folded = spare_folded_.pop();
    fold_tile(*e.tile, e.count, *folded, fold_scratch_);
    spare_exact_.push(e.tile);
    e.tile = folded;
    folded_tokens_ += e.count;
  }
}

inline status any_kv_cache::prepare_folds(int count) noexcept {
  needs n;
  n.folded_tiles = count > spare_folded_.count() ? count - spare_folded_.count() : 0;
  return prepare(n);
}

inline status any_kv_cache::fold() noexcept {
  if (format_ == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const int count = foldable(config_.window);
  if (status s = prepare_folds(count); !s.ok()) return s;
  fold_oldest(count);
  return {};
}

inline status any_kv_cache::flush() noexcept {
  if (format_ == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const int count = entries_.size() - first_exact_;
  if (status s = prepare_folds(count); !s.ok()) return s;
  if (count > 0) entries_.back().open = false;
  fold_oldest(count);
  return {};
}

KVAXIS_END_NAMESPACE
