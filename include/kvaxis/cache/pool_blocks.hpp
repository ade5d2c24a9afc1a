// tile_pool: how blocks come and go.
#pragma once

#include "pool.hpp"

KVAXIS_BEGIN_NAMESPACE

inline void* tile_pool::take(std::size_t bytes) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_class* const c = find_or_make(bytes);
    if (c != nullptr && c->first != nullptr) {
      ++c->blocks.used;
      used_ += bytes;
      void* const block = pop_free(*c);
      if (used_ > peak_) peak_ = used_;
      return block;
    }
    if (!make_room(bytes)) {
      ++refusals_;
      return nullptr;
    }
    if (c != nullptr) ++c->blocks.used;
    used_ += bytes;
  }
  void* block = upstream_.allocate(bytes);
  // Perhaps what upstream lacks is what waits here.
  if (block == nullptr && trim() > 0) block = upstream_.allocate(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (block == nullptr) {
    (void)drop_used(bytes);
  } else if (used_ > peak_) {
    peak_ = used_;
  }
  return block;
}

inline void tile_pool::put(void* block, std::size_t bytes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (size_class* const c = drop_used(bytes)) {
    push_free(*c, block);
  } else {
    upstream_.deallocate(block, bytes);
  }
}

inline status tile_pool::reserve(std::size_t bytes, std::int64_t count) noexcept {
  if (bytes < sizeof(free_block)) return {errc::out_of_range, "bytes", sizeof(free_block)};
  if (count < 0) return {errc::out_of_range, "count", 0};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (static_cast<std::size_t>(count) > (budget_ - used_ - free_) / bytes) {
      ++refusals_;
      return {errc::out_of_memory, name, static_cast<std::int64_t>(bytes)};
    }
    size_class* const c = find_or_make(bytes);
    if (c == nullptr) return {errc::out_of_range, "size classes", max_classes};
    c->blocks.used += count;
    used_ += bytes * static_cast<std::size_t>(count);
  }
  free_block* chain = nullptr;
  std::int64_t made = 0;
  for (; made < count; ++made) {
    void* const block = upstream_.allocate(bytes);
    if (block == nullptr) break;
    chain = new (block) free_block{chain};
  }
  const bool complete = made == count;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (; made < count; ++made) (void)drop_used(bytes);
  while (chain != nullptr) {
    free_block* const block = chain;
    chain = chain->next;
    size_class* const c = drop_used(bytes);
    if (complete && c != nullptr) {
      push_free(*c, block);
    } else {
      upstream_.deallocate(block, bytes);
    }
  }
  if (complete) return {};
  return {errc::out_of_memory, name, static_cast<std::int64_t>(bytes)};
}

inline std::size_t tile_pool::trim() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::size_t bytes = 0;
  for (size_class& c : classes_) bytes += give_back(c, c.blocks.free);
  return bytes;
}

inline std::size_t tile_pool::trim(std::size_t bytes, std::int64_t count) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_class* const c = find(bytes);
  return c == nullptr ? 0 : give_back(*c, count);
}

inline tile_pool::size_class* tile_pool::find(std::size_t bytes) noexcept {
  for (size_class& c : classes_) {
    if (c.blocks.bytes == bytes) return &c;
  }
  return nullptr;
}

// A class without any block makes place for another size. Null when there is none, and for blocks that are too small
// to be linked.
inline tile_pool::size_class* tile_pool::find_or_make(std::size_t bytes) noexcept {
  if (bytes < sizeof(free_block)) return nullptr;
  if (size_class* const c = find(bytes)) return c;
  for (size_class& c : classes_) {
    if (!c.empty()) continue;
    c.blocks.bytes = bytes;
    return &c;
  }
  return nullptr;
}

// One block fewer in use. Answers its class; null for a block that was had when no class was left. If its size has got
// one since, any block may be the one too many: the last to come back.
inline tile_pool::size_class* tile_pool::drop_used(std::size_t bytes) noexcept {
  used_ -= bytes;
  size_class* const c = find(bytes);
  if (c == nullptr || c->blocks.used == 0) return nullptr;
  --c->blocks.used;
  return c;
}

inline bool tile_pool::make_room(std::size_t bytes) noexcept {
  if (bytes > budget_ - used_) return false;
  while (bytes > budget_ - used_ - free_) {
    size_class* largest = nullptr;
    std::size_t most = 0;
    for (size_class& c : classes_) {
      const std::size_t held = c.blocks.bytes * static_cast<std::size_t>(c.blocks.free);
      if (held <= most) continue;
      most = held;
      largest = &c;
    }
    const std::size_t missing = bytes - (budget_ - used_ - free_);
    give_back(*largest, static_cast<std::int64_t>((missing - 1) / largest->blocks.bytes + 1));
  }
  return true;
}

inline void tile_pool::push_free(size_class& c, void* block) noexcept {
  c.first = new (block) free_block{c.first};
  ++c.blocks.free;
  free_ += c.blocks.bytes;
}

inline void* tile_pool::pop_free(size_class& c) noexcept {
  free_block* const block = c.first;
  c.first = block->next;
  --c.blocks.free;
  free_ -= c.blocks.bytes;
  return block;
}

inline std::size_t tile_pool::give_back(size_class& c, std::int64_t count) noexcept {
  std::size_t bytes = 0;
  for (; count > 0 && c.first != nullptr; --count) {
    upstream_.deallocate(pop_free(c), c.blocks.bytes);
    bytes += c.blocks.bytes;
  }
  return bytes;
}

KVAXIS_END_NAMESPACE
