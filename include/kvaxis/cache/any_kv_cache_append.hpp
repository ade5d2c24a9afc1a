// any_kv_cache: making it, filling it, folding.
#pragma once

#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE
inline status any_kv_cache::create(const cache_config& c, const bound_policy& keys, const bound_policy& values,
                                   const allocator& memory, any_kv_cache& out) noexcept {
  if (status s = detail::check_config(c, keys, values); !s.ok()) return s;
  any_kv_cache made;
  made.config_ = c;
  made.config_.k_scale = made.config_.k_offset = made.config_.v_scale = made.config_.v_offset = nullptr;
  made.memory_ = memory;
  for (int i = 0; i <= c.older_tiers_count; ++i) {
    const format_request request = detail::make_request(c, keys, values, i);
    const tile_format* f = make_tile_format(request, memory);
    if (f == nullptr) {
      return {errc::out_of_memory, memory.name, static_cast<std::int64_t>(detail::format_bytes(request))};
    }
    made.formats_[static_cast<std::size_t>(i)] = f;
  }
  if (status s = made.make_scratch(); !s.ok()) return s;
  out = std::move(made);
  return {};
}

inline status any_kv_cache::make_scratch() noexcept {
  if (fold_scratch_.numbers != nullptr) return {};
  void* scratch = memory_.allocate(scratch_bytes());
  if (scratch == nullptr) return {errc::out_of_memory, memory_.name, static_cast<std::int64_t>(scratch_bytes())};
  fold_scratch_.numbers = static_cast<float*>(scratch);
  fold_scratch_.codes = static_cast<std::uint32_t*>(scratch) + fold_scratch_floats(*formats_[0]);
  return {};
}

inline void any_kv_cache::swap(any_kv_cache& other) noexcept {
  std::swap(config_, other.config_);
  std::swap(memory_, other.memory_);
  std::swap(formats_, other.formats_);
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
  if (formats_[0] == nullptr) return;
  clear();
  drop_spares({});
  memory_.deallocate(fold_scratch_.numbers, scratch_bytes());
  entries_.free(memory_);
  for (const tile_format*& f : formats_) {
    release(f);
    f = nullptr;
  }
}

inline void any_kv_cache::clear() noexcept {
  for (int i = 0; i < entries_.size(); ++i) recycle(entries_[i]);
  entries_.remove(0, entries_.size());
  recount();
  replaced_ = 0;
}

// Keeps an entry's tile for later if it is one of those that this cache takes, else gives it back.
inline void any_kv_cache::recycle(const entry& e) noexcept {
  if (!is_owned(e.tile) || e.tier > 0) return release(e.tile);
  if (e.folded) return spare_folded_.push(e.tile);
  if (e.tile->capacity == formats_[0]->tokens) return spare_exact_.push(e.tile);
  if (e.tile->capacity == pin_capacity()) return spare_pins_.push(e.tile);
  release(e.tile);
}

inline cache_bytes any_kv_cache::bytes() const noexcept {
  cache_bytes b;
  if (formats_[0] == nullptr) return b;
  for (int i = 0; i < entries_.size(); ++i) {
    const entry& e = entries_[i];
    if (i > 0 && e.tile == entries_[i - 1].tile) continue;  // a tile that was cut in two
    (e.folded ? b.folded : b.exact) += e.tile->bytes;
  }
  b.spare = spare_exact_.bytes() + spare_pins_.bytes() + spare_folded_.bytes();
  b.bookkeeping = entries_.bytes() + (fold_scratch_.numbers == nullptr ? 0 : scratch_bytes());
  for (const tile_format* f : formats_) b.bookkeeping += f == nullptr ? 0 : f->bytes;
  return b;
}

inline detail::append_model any_kv_cache::model() const noexcept {
  detail::append_model m;
  m.entries = &entries_;
  m.first_exact = first_exact_;
  m.exact_tokens = size_ - folded_tokens_ - pinned_tokens_;
  m.pins_left = pins_left();
  m.window = config_.window;
  m.tile_tokens = formats_[0]->tokens;
  m.spare_exact = spare_exact_.count();
  m.spare_folded = spare_folded_.count();
  return m;
}

inline void any_kv_cache::drop_spares(const spare_counts& to) noexcept {
  spare_exact_.drop_to(to.exact);
  spare_pins_.drop_to(to.pins);
  spare_folded_.drop_to(to.folded);
}

// All memory for an append, or none of it.
inline status any_kv_cache::prepare(const needs& n) noexcept {
  const spare_counts had = count_spares();
  const auto add = [&](detail::spare_tiles& spare, int count, bool is_folded, int capacity) {
    for (int i = 0; i < count; ++i) {
      tile* t = make_tile(*formats_[0], is_folded, capacity);
      if (t == nullptr) return false;
      spare.push(t);
    }
    return true;
  };
  const int new_pins = n.pin_tiles > had.pins ? n.pin_tiles - had.pins : 0;
  std::size_t missing = 0;
  const tile_format& f = *formats_[0];
  if (!add(spare_exact_, n.exact_tiles, false, f.tokens)) missing = f.exact_bytes(f.tokens);
  if (missing == 0 && !add(spare_pins_, new_pins, false, pin_capacity())) missing = f.exact_bytes(pin_capacity());
  if (missing == 0 && !add(spare_folded_, n.folded_tiles, true, f.tokens)) missing = f.folded_bytes;
  const int entries = entries_.size() + n.entries;
  if (missing == 0 && !entries_.reserve(entries, memory_)) {
    missing = detail::entry_list::bytes_for(detail::entry_list::capacity_for(entries));
  }
  if (missing == 0 && spare_folded_.count() > 0 && !make_scratch().ok()) missing = scratch_bytes();
  if (missing == 0) return {};
  drop_spares(had);
  return {errc::out_of_memory, memory_.name, static_cast<std::int64_t>(missing)};
}

inline status any_kv_cache::reserve(std::int64_t tokens) noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (tokens < 0 || tokens > max_position) return {errc::out_of_range, "tokens", max_position};
  if (tokens <= size_) return {};
  return prepare(model().needs(tokens - size_, false, true));
}

inline status any_kv_cache::check_append(const rows& k, const rows& v, int n, std::int64_t position) const noexcept {
  if (n < 0) return {errc::out_of_range, "n", 0};
  if (position < -max_position) return {errc::out_of_range, "first_position", -max_position};
  if (position > max_position - n) return {errc::out_of_range, "first_position", max_position - n};
  if (n == 0) return {};
  if (formats_[0]->is_latent() && v.data != nullptr) return {errc::invalid_argument, "v: latent values come with k", 0};
  for (const bool is_key : {true, false}) {
    if (!is_key && formats_[0]->is_latent()) break;
    const rows& r = is_key ? k : v;
    const int dim = is_key ? formats_[0]->head_dim : formats_[0]->value_dim;
    if (status s = detail::check_layout(r, dim, is_key); !s.ok()) return s;
    if (status s = detail::check_rows(*formats_[0], config_, r, n, is_key); !s.ok()) return s;
  }
  return {};
}

inline status any_kv_cache::append(const rows& k, const rows& v, int n, std::int64_t first_position,
                                   fold_mode mode) noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
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
  const tile_format& f = *formats_[0];
  for (int done = 0; done < n;) {
    const bool pinned = pins_left() > 0;
    if (entries_.size() == 0 || !entries_.back().open) open_tile(pinned, position + done);
    own_open_tile();
    const entry& open = entries_.back();
    const int slots = open.tile->capacity - open.begin - open.count;
    const int room = pinned ? std::min(pins_left(), slots) : slots;
    const int count = room < n - done ? room : n - done;
    copy_rows(detail::skip_tokens(k, done, f.kv_heads, f.head_dim),
              detail::skip_tokens(v, done, f.kv_heads, f.value_dim), count);
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

// A tile that somebody else holds too is copied before a token is put in.
inline void any_kv_cache::own_open_tile() noexcept {
  entry& e = entries_.back();
  if (is_owned(e.tile)) return;
  tile* own = (e.pinned ? spare_pins_ : spare_exact_).pop();
  copy_exact_rows(*e.tile, e.begin, e.count, *own);
  release(e.tile);
  e.tile = own;
}

// Copies `count` rows into the open tile: keys in stored order, everything in the type of full-precision rows.
inline void any_kv_cache::copy_rows(const rows& k, const rows& v, int count) noexcept {
  entry& e = entries_.back();
  const detail::row_functions& functions = detail::active_rows();
  functions.copy(*formats_[0], k, count, true, *e.tile, e.begin + e.count, replaced_);
  if (!formats_[0]->is_latent()) functions.copy(*formats_[0], v, count, false, *e.tile, e.begin + e.count, replaced_);
  e.count += count;
  size_ += count;
  if (e.pinned) pinned_tokens_ += count;
}

inline int any_kv_cache::next_foldable(int from) const noexcept {
  while (from < entries_.size() && !detail::is_foldable(entries_[from])) ++from;
  return from;
}

// How many of the oldest full-precision tiles are closed and leave at least `keep` unpinned full-precision tokens.
inline int any_kv_cache::foldable(std::int64_t keep) const noexcept {
  std::int64_t exact = size_ - folded_tokens_ - pinned_tokens_;
  int count = 0;
  for (int i = next_foldable(first_exact_); i < entries_.size(); i = next_foldable(i + 1)) {
    exact -= entries_[i].count;
    if (entries_[i].open || exact < keep) break;
    ++count;
  }
  return count;
}

// Folds the `count` oldest full-precision tiles into spare ones, which are there.
inline void any_kv_cache::fold_oldest(int count) noexcept {
  for (; count > 0; --count) {
    first_exact_ = next_foldable(first_exact_);
    entry& e = entries_[first_exact_++];
    tile* folded = spare_folded_.pop();
    fold_tile(*e.tile, e.begin, e.count, *folded, fold_scratch_);
    recycle(e);
    e.tile = folded;
    e.folded = true;
    e.base_position += e.begin;
    e.begin = 0;
    folded_tokens_ += e.count;
  }
}

inline int any_kv_cache::all_foldable() const noexcept {
  int count = 0;
  for (int i = next_foldable(first_exact_); i < entries_.size(); i = next_foldable(i + 1)) ++count;
  return count;
}

inline status any_kv_cache::prepare_folds(int count) noexcept {
  needs n;
  n.folded_tiles = count > spare_folded_.count() ? count - spare_folded_.count() : 0;
  return prepare(n);
}

inline status any_kv_cache::fold() noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const int count = foldable(config_.window);
  if (status s = prepare_folds(count); !s.ok()) return s;
  fold_oldest(count);
  return {};
}

inline status any_kv_cache::flush() noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  const int count = all_foldable();
  if (status s = prepare_folds(count); !s.ok()) return s;
  if (count > 0) entries_.back().open = false;
  fold_oldest(count);
  return {};
}

KVAXIS_END_NAMESPACE
