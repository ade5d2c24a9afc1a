// A tile: up to T consecutive tokens of one layer, for every kv head, in one allocation. A sequence is a list of
// *entries* that point to tiles. A folded tile is written once and never changed.
//
//   folded        | header, 64 bytes | masks of pairs [mask][kv_head], if stored | per kv head: key block, value block |
//   full precision| header, 64 bytes | keys [kv_head][token][key_stride] | values [kv_head][token][value_stride] |
//
// Full-precision keys lie in stored order (see tile_format::order), so that folding and the row kernel need no index.
// Latent values have no block and no rows of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "format.hpp"

KVAXIS_BEGIN_NAMESPACE

struct alignas(64) tile {
  std::atomic<int> references{1};
  int capacity = 0;  // tokens that it can hold
  bool folded = false;
  std::size_t bytes = 0;
  const tile_format* format = nullptr;
  tile* next_spare = nullptr;  // while it waits for use

  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this); }
  [[nodiscard]] const std::byte* data() const noexcept { return reinterpret_cast<const std::byte*>(this); }

  [[nodiscard]] const std::byte* key_block(int head) const noexcept {
    return data() + format->head_offset + static_cast<std::size_t>(head) * format->head_bytes;
  }
  [[nodiscard]] const std::byte* value_block(int head) const noexcept { return key_block(head) + format->key.bytes; }
  [[nodiscard]] const std::uint32_t* hot_mask(int head) const noexcept {
    if (!format->stored_mask) return format->implied_mask;
    return reinterpret_cast<const std::uint32_t*>(data() + 64) + head * format->mask_stride;
  }
  // Those of the hot pairs that have more bits; where the codec has some.
  [[nodiscard]] const std::uint32_t* wide_mask(int head) const noexcept {
    return reinterpret_cast<const std::uint32_t*>(data() + 64) + (format->kv_heads + head) * format->mask_stride;
  }

  // Where the rows of a full-precision tile begin.
  [[nodiscard]] const std::byte* exact_keys() const noexcept { return data() + 64; }
  [[nodiscard]] std::byte* exact_keys() noexcept { return data() + 64; }
  [[nodiscard]] std::size_t exact_key_bytes() const noexcept {
    return static_cast<std::size_t>(format->kv_heads) * static_cast<std::size_t>(capacity) *
           static_cast<std::size_t>(format->key_stride) * format->row_bytes();
  }
  [[nodiscard]] const std::byte* exact_values() const noexcept { return exact_keys() + exact_key_bytes(); }
  [[nodiscard]] std::byte* exact_values() noexcept { return exact_keys() + exact_key_bytes(); }

  // Full-precision rows; Row is float or float16, as the format says.
  template <class Row>
  [[nodiscard]] const Row* key_row(int head, int token) const noexcept {
    return reinterpret_cast<const Row*>(data() + 64) +
           (static_cast<std::ptrdiff_t>(head) * capacity + token) * format->key_stride;
  }
  template <class Row>
  [[nodiscard]] const Row* value_row(int head, int token) const noexcept {
    return reinterpret_cast<const Row*>(data() + 64) +
           static_cast<std::ptrdiff_t>(format->kv_heads) * capacity * format->key_stride +
           (static_cast<std::ptrdiff_t>(head) * capacity + token) * format->value_stride;
  }
};
static_assert(sizeof(tile) == 64);

// A stretch of tokens: slots begin .. begin + count - 1 of a tile whose slot 0 is at base_position.
struct entry {
  kvaxis::tile* tile = nullptr;
  std::int64_t base_position = 0;
  int begin = 0;
  int count = 0;
  bool open = false;      // the next token may still go into it
  bool pinned = false;    // never folded
  bool folded = false;    // as the tile is; here too, so that lists are handled without touching tiles
  std::uint8_t tier = 0;  // of a folded tile: which of the cache's formats it has
};

// The formats that the folded tiles of one cache may have: the newest tokens', and those of older ones.
constexpr int max_tiers = 4;

// A tile without content, or nullptr when memory is short.
inline tile* make_tile(const tile_format& f, bool folded, int capacity) noexcept {
  const std::size_t bytes = folded ? f.folded_bytes : f.exact_bytes(capacity);
  void* memory = f.memory.allocate(bytes);
  if (memory == nullptr) return nullptr;
  // Kernels read whole quads of rows and whole vectors; what no token has filled counts with weight 0, so it must be a
  // number.
  std::memset(memory, 0, bytes);
  auto* made = new (memory) tile;
  made->capacity = capacity;
  made->folded = folded;
  made->bytes = bytes;
  made->format = &f;
  f.references.fetch_add(1, std::memory_order_relaxed);
  return made;
}

inline void add_reference(tile* t) noexcept { t->references.fetch_add(1, std::memory_order_relaxed); }

// Whether nobody else holds a tile of which one reference is the caller's.
[[nodiscard]] inline bool is_owned(const tile* t) noexcept {
  return t->references.load(std::memory_order_acquire) == 1;
}

inline void release(tile* t) noexcept {
  if (t == nullptr || t->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const tile_format* f = t->format;
  const std::size_t bytes = t->bytes;
  t->~tile();
  f->memory.deallocate(t, bytes);
  release(f);
}

// Copies rows of a full-precision tile to the same slots of another one that has them.
inline void copy_exact_rows(const tile& from, int first, int count, tile& to) noexcept {
  const tile_format& f = *from.format;
  const auto copy = [&](const std::byte* source, std::byte* target, int stride) {
    const std::size_t row = static_cast<std::size_t>(stride) * f.row_bytes();
    for (int h = 0; h < f.kv_heads; ++h) {
      const auto at = [&](int capacity) {
        return (static_cast<std::size_t>(h) * static_cast<std::size_t>(capacity) + static_cast<std::size_t>(first)) *
               row;
      };
      std::memcpy(target + at(to.capacity), source + at(from.capacity), static_cast<std::size_t>(count) * row);
    }
  };
  copy(from.exact_keys(), to.exact_keys(), f.key_stride);
  copy(from.exact_values(), to.exact_values(), f.value_stride);
}

KVAXIS_END_NAMESPACE
