// any_kv_cache: roll back, eviction, fork, shift, splice and tiers. Each is checked and gets its memory first; what then
// changes the list cannot fail.
#pragma once

#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

struct list_place {
  int index;   // of the entry
  int offset;  // in it
};

// Where a token lies; at the end of the list for size().
inline list_place find_place(const sequence_view& s, std::int64_t token) noexcept {
  int i = 0;
  while (i < s.entry_count && token >= s.entries[i].count) token -= s.entries[i++].count;
  return {i, static_cast<int>(token)};
}

inline std::int64_t position_in(const entry& e, int offset) noexcept { return e.base_position + e.begin + offset; }

}  // namespace detail

// --- Checks and memory -----------------------------------------------------------------------------------------------

inline status any_kv_cache::check_range(std::int64_t first, std::int64_t count) const noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (first < 0 || first > size_) return {errc::out_of_range, "first", size_};
  if (count < 0 || count > size_ - first) return {errc::out_of_range, "count", size_ - first};
  return {};
}

inline status any_kv_cache::prepare_entries(int more) noexcept {
  needs n;
  n.entries = more;
  return prepare(n);
}

inline status any_kv_cache::prepare_move(std::int64_t first, std::int64_t count, std::int64_t delta) noexcept {
  if (status s = check_range(first, count); !s.ok()) return s;
  if (count == 0) return {};
  if (formats_[0]->key_policy.rotation == post) {
    return {errc::unsupported, "move: the keys came in rotated (post)", 0};
  }
  if (delta < -2 * max_position || delta > 2 * max_position) return {errc::out_of_range, "delta", 2 * max_position};
  const detail::list_place end = detail::find_place(view(), first + count - 1);
  for (int i = detail::find_place(view(), first).index; i <= end.index; ++i) {
    const std::int64_t position = entries_[i].base_position + delta;
    if (position < -max_position) return {errc::out_of_range, "delta", -max_position - entries_[i].base_position};
    if (position + entries_[i].begin + entries_[i].count > max_position) {
      return {errc::out_of_range, "delta", max_position - detail::position_in(entries_[i], entries_[i].count)};
    }
  }
  return prepare_entries(2);
}

inline status any_kv_cache::prepare_splice(std::int64_t at, const any_kv_cache& other, std::int64_t first,
                                           std::int64_t count, std::int64_t position) noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (&other == this) return {errc::invalid_argument, "other: the cache itself; fork it first", 0};
  if (status s = other.check_range(first, count); !s.ok()) return s;
  if (at < pinned_tokens_) return {errc::out_of_range, "at", pinned_tokens_};
  if (at > size_) return {errc::out_of_range, "at", size_};
  if (config_.older_tiers_count != other.config_.older_tiers_count) {
    return {errc::invalid_argument, "other: older_tiers", config_.older_tiers_count};
  }
  for (std::size_t i = 0; i < formats_.size() && formats_[i] != nullptr; ++i) {
    if (status s = check_same_format(*formats_[i], *other.formats_[i]); !s.ok()) return s;
  }
  if (count == 0) return {};
  if (size_ > max_position - count) return {errc::out_of_range, "count", max_position - size_};
  const std::int64_t delta = position - other.position(first);
  if (delta != 0 && formats_[0]->key_policy.rotation == post) {
    return {errc::unsupported, "position: the keys came in rotated (post)", other.position(first)};
  }
  const int begin = detail::find_place(other.view(), first).index;
  const int end = detail::find_place(other.view(), first + count - 1).index + 1;
  for (int i = begin; i < end; ++i) {
    const entry& e = other.entries_[i];
    if (position < -max_position || e.base_position + delta < -max_position ||
        detail::position_in(e, e.count) + delta > max_position) {
      return {errc::out_of_range, "position", max_position};
    }
  }
  return prepare_entries(end - begin + 1);
}

// --- Changes of the list ---------------------------------------------------------------------------------------------

// What the entries say: counts, limits, and where the next token goes.
inline void any_kv_cache::recount() noexcept {
  size_ = folded_tokens_ = pinned_tokens_ = next_position_ = lowest_position_ = 0;
  first_exact_ = 0;
  for (int i = 0; i < entries_.size(); ++i) {
    const entry& e = entries_[i];
    const std::int64_t position = detail::position_in(e, 0);
    if (i == 0 || position < lowest_position_) lowest_position_ = position;
    size_ += e.count;
    if (e.folded) folded_tokens_ += e.count;
    if (e.pinned) pinned_tokens_ += e.count;
    if (first_exact_ == i && !detail::is_foldable(e)) ++first_exact_;
    next_position_ = position + e.count;
  }
}

// Other tokens instead of all that are there; `entries` gets the old list, empty.
inline void any_kv_cache::replace_tokens(detail::entry_list& entries, std::int64_t replaced) noexcept {
  clear();
  std::swap(entries_, entries);
  recount();
  replaced_ = replaced;
}

// The last tile takes the next token again, as if the dropped ones had never come.
inline void any_kv_cache::reopen_last() noexcept {
  if (entries_.size() == 0) return;
  entry& e = entries_.back();
  const int capacity = e.tile->capacity;
  const bool takes_more = e.pinned ? pins_left() > 0 : capacity == formats_[0]->tokens;
  e.open = !e.folded && takes_more && e.begin + e.count < capacity;
}

// The entry that begins with a token; one that holds it further on is cut in two.
inline int any_kv_cache::split_at(std::int64_t token) noexcept {
  const detail::list_place place = detail::find_place(view(), token);
  if (place.offset == 0) return place.index;
  entry& left = entries_[place.index];
  entry right = left;
  right.begin += place.offset;
  right.count -= place.offset;
  left.count = place.offset;
  left.open = false;
  add_reference(right.tile);
  entries_.insert(place.index + 1, &right, 1);
  return place.index + 1;
}

inline void any_kv_cache::do_truncate(std::int64_t tokens) noexcept {
  if (tokens == size_) return;
  const detail::list_place place = detail::find_place(view(), tokens);
  int end = place.index;
  if (place.offset > 0) entries_[end++].count = place.offset;
  for (int i = end; i < entries_.size(); ++i) release(entries_[i].tile);
  entries_.remove(end, entries_.size());
  recount();
  reopen_last();
}

inline void any_kv_cache::do_erase(std::int64_t first, std::int64_t count) noexcept {
  if (count == 0) return;
  if (first + count == size_) return do_truncate(first);
  const int begin = split_at(first);
  const int end = split_at(first + count);
  for (int i = begin; i < end; ++i) release(entries_[i].tile);
  entries_.remove(begin, end);
  recount();
}

inline void any_kv_cache::do_move(std::int64_t first, std::int64_t count, std::int64_t delta) noexcept {
  if (count == 0 || delta == 0) return;
  const int begin = split_at(first);
  const int end = split_at(first + count);
  for (int i = begin; i < end; ++i) entries_[i].base_position += delta;
  recount();
}

inline void any_kv_cache::do_splice(std::int64_t at, const any_kv_cache& other, std::int64_t first, std::int64_t count,
                                    std::int64_t position) noexcept {
  if (count == 0) return;
  const std::int64_t delta = position - other.position(first);
  const bool keeps_pins = size_ == 0 && first == 0 && config_.pins == other.config_.pins;
  const int to = split_at(at);
  if (to > 0) entries_[to - 1].open = false;
  detail::list_place from = detail::find_place(other.view(), first);
  int put = to;
  for (std::int64_t left = count; left > 0; ++from.index, from.offset = 0) {
    entry e = other.entries_[from.index];
    e.begin += from.offset;
    e.count = static_cast<int>(std::min<std::int64_t>(e.count - from.offset, left));
    e.base_position += delta;
    e.pinned = e.pinned && keeps_pins;
    e.open = false;
    add_reference(e.tile);
    entries_.insert(put++, &e, 1);
    left -= e.count;
  }
  recount();
  if (put == entries_.size()) reopen_last();
}

// --- Calls -----------------------------------------------------------------------------------------------------------

inline status any_kv_cache::truncate(std::int64_t tokens) noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (tokens < 0 || tokens > size_) return {errc::out_of_range, "tokens", size_};
  do_truncate(tokens);
  return {};
}

inline status any_kv_cache::erase(std::int64_t first, std::int64_t count) noexcept {
  if (status s = check_range(first, count); !s.ok()) return s;
  if (status s = prepare_entries(first + count == size_ ? 0 : 2); !s.ok()) return s;
  do_erase(first, count);
  return {};
}

inline status any_kv_cache::keep_last(std::int64_t tokens) noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (tokens < 1) return {errc::out_of_range, "tokens", 1};
  if (tokens >= size_ - pinned_tokens_) return {};
  return erase(pinned_tokens_, size_ - pinned_tokens_ - tokens);
}

inline status any_kv_cache::move(std::int64_t first, std::int64_t count, std::int64_t delta) noexcept {
  if (status s = prepare_move(first, count, delta); !s.ok()) return s;
  do_move(first, count, delta);
  return {};
}

inline status any_kv_cache::splice(std::int64_t at, const any_kv_cache& other, std::int64_t first, std::int64_t count,
                                   std::int64_t position) noexcept {
  if (status s = prepare_splice(at, other, first, count, position); !s.ok()) return s;
  do_splice(at, other, first, count, position);
  return {};
}

inline status any_kv_cache::fork(any_kv_cache& out) const noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  any_kv_cache made;
  made.config_ = config_;
  made.memory_ = memory_;
  if (!made.entries_.reserve(entries_.size(), memory_)) {
    const int capacity = detail::entry_list::capacity_for(entries_.size());
    return {errc::out_of_memory, memory_.name, static_cast<std::int64_t>(detail::entry_list::bytes_for(capacity))};
  }
  for (std::size_t i = 0; i < formats_.size() && formats_[i] != nullptr; ++i) {
    formats_[i]->references.fetch_add(1, std::memory_order_relaxed);
    made.formats_[i] = formats_[i];
  }
  for (int i = 0; i < entries_.size(); ++i) {
    add_reference(entries_[i].tile);
    made.entries_.push_back(entries_[i]);
  }
  made.recount();
  made.next_position_ = next_position_;
  made.replaced_ = replaced_;
  out = std::move(made);
  return {};
}

inline std::int64_t any_kv_cache::position(std::int64_t token) const noexcept {
  const detail::list_place place = detail::find_place(view(), token);
  return place.index == entries_.size() ? next_position_ : detail::position_in(entries_[place.index], place.offset);
}

inline std::int64_t any_kv_cache::find_position(std::int64_t position, std::int64_t from) const noexcept {
  std::int64_t index = 0;
  for (int i = 0; i < entries_.size(); index += entries_[i++].count) {
    const entry& e = entries_[i];
    std::int64_t offset = std::max<std::int64_t>(position - detail::position_in(e, 0), 0);
    offset = std::max(offset, from - index);
    if (offset < e.count) return index + offset;
  }
  return size_;
}

// --- Tiers -----------------------------------------------------------------------------------------------------------

// The tier that an entry belongs to once `following` tokens come after it.
inline int any_kv_cache::tier_of(const entry& e, std::int64_t following) const noexcept {
  int tier = e.tier;
  if (!e.folded || e.pinned) return tier;
  while (tier < config_.older_tiers_count &&
         following >= config_.older_tiers[static_cast<std::size_t>(tier)].newer_tokens) {
    ++tier;
  }
  return tier;
}

inline void any_kv_cache::demote_entry(entry& e, tile& exact, tile& made) noexcept {
  unfold_tile(*e.tile, e.begin, e.count, exact);
  fold_tile(exact, 0, e.count, made, fold_scratch_);
  release(e.tile);
  e.tile = &made;
  ++e.tier;
  e.base_position += e.begin;
  e.begin = 0;
}

inline status any_kv_cache::demote() noexcept {
  if (formats_[0] == nullptr) return {errc::invalid_argument, "cache: not created", 0};
  if (status s = make_scratch(); !s.ok()) return s;
  tile* exact = nullptr;  // full-precision rows on the way
  std::size_t missing = 0;
  std::int64_t following = size_;
  for (int i = 0; i < entries_.size() && missing == 0; ++i) {
    entry& e = entries_[i];
    following -= e.count;
    for (const int tier = tier_of(e, following); e.tier < tier && missing == 0;) {
      const tile_format& from = *formats_[0];
      const tile_format& to = *formats_[static_cast<std::size_t>(e.tier) + 1];
      if (exact == nullptr) exact = make_tile(from, false, from.tokens);
      if (exact == nullptr) missing = from.exact_bytes(from.tokens);
      tile* made = exact == nullptr ? nullptr : make_tile(to, true, to.tokens);
      if (exact != nullptr && made == nullptr) missing = to.folded_bytes;
      if (made != nullptr) demote_entry(e, *exact, *made);
    }
  }
  release(exact);
  if (missing == 0) return {};
  return {errc::out_of_memory, memory_.name, static_cast<std::int64_t>(missing)};
}

KVAXIS_END_NAMESPACE
