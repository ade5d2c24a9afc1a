// The list of entries and the spare tiles of one cache: all memory that it holds, and how much of each kind it will
// need.
#pragma once

#include <cstddef>
#include <cstring>

#include "../tile/tile.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// Tiles that wait for use.
class spare_tiles {
 public:
  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  void push(tile* t) noexcept {
    t->next_spare = first_;
    first_ = t;
    ++count_;
    bytes_ += t->bytes;
  }
  [[nodiscard]] tile* pop() noexcept {
    tile* t = first_;
    first_ = t->next_spare;
    --count_;
    bytes_ -= t->bytes;
    return t;
  }
  void drop_to(int count) noexcept {
    while (count_ > count) release(pop());
  }

 private:
  tile* first_ = nullptr;
  int count_ = 0;
  std::size_t bytes_ = 0;
};

// A growing array of entries. The capacity depends on the largest size only, not on how it was reached.
class entry_list {
 public:
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const entry* data() const noexcept { return data_; }
  [[nodiscard]] entry& operator[](int i) noexcept { return data_[i]; }
  [[nodiscard]] const entry& operator[](int i) const noexcept { return data_[i]; }
  [[nodiscard]] entry& back() noexcept { return data_[size_ - 1]; }
  [[nodiscard]] const entry& back() const noexcept { return data_[size_ - 1]; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_for(capacity_); }

  [[nodiscard]] static std::size_t bytes_for(int capacity) noexcept {
    return static_cast<std::size_t>(capacity) * sizeof(entry);
  }
  [[nodiscard]] static int capacity_for(int size) noexcept {
    int capacity = 16;
    while (capacity < size) capacity *= 2;
    return capacity;
  }

  [[nodiscard]] bool reserve(int size, const allocator& memory) noexcept {
    if (size <= capacity_) return true;
    const int capacity = capacity_for(size);
    auto* data = static_cast<entry*>(memory.allocate(bytes_for(capacity)));
    if (data == nullptr) return false;
    if (size_ > 0) std::memcpy(data, data_, bytes_for(size_));
    memory.deallocate(data_, bytes());
    data_ = data;
    capacity_ = capacity;
    return true;
  }
  // There must be room for what is put in.
  void push_back(const entry& e) noexcept { data_[size_++] = e; }
  void insert(int at, const entry* from, int count) noexcept {
    std::memmove(static_cast<void*>(data_ + at + count), data_ + at, bytes_for(size_ - at));
    std::memcpy(static_cast<void*>(data_ + at), from, bytes_for(count));
    size_ += count;
  }
  void remove(int begin, int end) noexcept {
    if (begin == end) return;  // also where there is no list yet
    std::memmove(static_cast<void*>(data_ + begin), data_ + end, bytes_for(size_ - end));
    size_ -= end - begin;
  }
  void free(const allocator& memory) noexcept {
    memory.deallocate(data_, bytes());
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

 private:
  entry* data_ = nullptr;
  int size_ = 0;
  int capacity_ = 0;
};

// What a number of appended tokens will take from the allocator, found by going through the same steps on counts alone,
// so that everything can be had before anything changes.
struct append_needs {
  int entries = 0;
  int exact_tiles = 0;
  int pin_tiles = 0;
  int folded_tiles = 0;
};

[[nodiscard]] inline bool is_foldable(const entry& e) noexcept { return !e.folded && !e.pinned; }

// The state of a cache that decides what an append does, and the two rules: tokens fill the open tile, and the oldest
// closed tile folds once W full-precision tokens remain without it.
struct append_model {
  const entry_list* entries = nullptr;
  int first_exact = 0;            // no entry before it can be folded
  std::int64_t exact_tokens = 0;  // unpinned
  int pins_left = 0;
  int window = 0;
  int tile_tokens = 0;
  int spare_exact = 0;
  int spare_folded = 0;

  // `gap`: the tokens do not follow the last one, so they open a new tile.
  [[nodiscard]] append_needs needs(std::int64_t tokens, bool gap, bool folds) const noexcept {
    append_needs n;
    if (tokens == 0) return n;
    const int listed = entries->size();
    const entry* const last = listed > 0 && entries->back().open && !gap ? &entries->back() : nullptr;
    int spare = spare_exact;
    const auto take_exact = [&] { spare > 0 ? --spare : ++n.exact_tiles; };
    if (last != nullptr && !is_owned(last->tile)) last->pinned ? void(++n.pin_tiles) : take_exact();
    if (pins_left > 0) {
      const int pinned = pins_left < tokens ? pins_left : static_cast<int>(tokens);
      if (last == nullptr || last->begin + last->count + pinned > last->tile->capacity) {
        ++n.pin_tiles;
        ++n.entries;
      }
      tokens -= pinned;
    }
    const int grown = pins_left == 0 && last != nullptr ? listed - 1 : -1;  // the listed entry that fills up, if any
    int open = grown < 0 ? 0 : last->begin + last->count;                   // slots taken in the open tile, 0: none
    int opened = listed;                                                    // entries so far, new pins left out
    int oldest = first_exact;
    std::int64_t held = exact_tokens;
    int folded = 0;
    while (tokens > 0) {
      if (open == 0) {
        take_exact();
        ++opened;
        ++n.entries;
      }
      const int room = tile_tokens - open;
      const int taken = room < tokens ? room : static_cast<int>(tokens);
      open = open + taken == tile_tokens ? 0 : open + taken;
      tokens -= taken;
      held += taken;
      for (; folds && oldest < opened - (open > 0 ? 1 : 0); ++oldest) {
        const entry* const e = oldest < listed ? &(*entries)[oldest] : nullptr;
        if (e != nullptr && !is_foldable(*e)) continue;
        const int count = e == nullptr ? tile_tokens : oldest == grown ? tile_tokens - e->begin : e->count;
        if (held - count < window) break;
        held -= count;
        ++folded;
        const bool comes_back =
            e == nullptr || oldest == grown || (is_owned(e->tile) && e->tile->capacity == tile_tokens);
        if (comes_back) ++spare;
      }
    }
    n.folded_tiles = folded > spare_folded ? folded - spare_folded : 0;
    return n;
  }
};

}  // namespace detail
KVAXIS_END_NAMESPACE
