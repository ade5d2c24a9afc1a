// One memory budget for many caches. A pool is an allocator: caches made with pool.memory() take everything from it,
// and what one gives back serves the next request of the same size, from whichever cache it comes.
//
//   tile_pool pool(std::size_t{8} << 30);
//   cache.create(config, pool.memory(), cache);
//
// Blocks of one size form a class: the folded tiles of one shape and pair of codecs, the full-precision tiles of one
// shape, and so on. All calls may be made from any thread. The pool must outlive what was made from it.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "../memory.hpp"

KVAXIS_BEGIN_NAMESPACE

// The blocks of one size.
struct pool_class {
  std::size_t bytes = 0;  // of a block
  std::int64_t used = 0;
  std::int64_t free = 0;
};

struct pool_counts {
  std::size_t budget = 0;
  std::size_t used = 0;       // bytes of the blocks that are in use
  std::size_t free = 0;       // bytes of the blocks that wait for use
  std::size_t peak = 0;       // the most bytes that were in use at once
  std::int64_t refusals = 0;  // requests for which the budget had no room
};

class tile_pool {
 public:
  // Blocks of further sizes are not kept but go straight back to the upstream allocator.
  static constexpr int max_classes = 64;
  // status::argument of a call that got no memory, because of the budget (counted in `refusals`) or from upstream.
  static constexpr const char* name = "tile_pool";

  // At no time more than `budget` bytes, used and free ones together, are taken from `upstream`.
  explicit tile_pool(std::size_t budget, const allocator& upstream = {}) noexcept
      : upstream_(upstream), budget_(budget) {}
  tile_pool(const tile_pool&) = delete;
  tile_pool& operator=(const tile_pool&) = delete;
  ~tile_pool() {
    trim();
    assert(used_ == 0 && "a tile_pool must outlive the caches that were made from it");
  }

  // When a request does not fit the budget beside the free blocks, these go back upstream, the largest class first;
  // when it does not fit even then, it is refused, and they stay.
  [[nodiscard]] allocator memory() noexcept { return {&allocate, &deallocate, this, name}; }

  // Makes `count` more free blocks, or none: so many further requests for this number of bytes need nothing from
  // upstream. It pushes no free block out; a later request of another size may. Errors: bytes (less than a pointer's),
  // count, size classes (all are in use), out of memory.
  status reserve(std::size_t bytes, std::int64_t count) noexcept;

  // Gives all free blocks, or at most `count` of one size, back to the upstream allocator and answers how many bytes
  // they had. Other calls wait meanwhile.
  std::size_t trim() noexcept;
  std::size_t trim(std::size_t bytes, std::int64_t count) noexcept;

  [[nodiscard]] pool_counts counts() const noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {budget_, used_, free_, peak_, refusals_};
  }
  // In no order; places without a block are zero.
  [[nodiscard]] std::array<pool_class, max_classes> classes() const noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::array<pool_class, max_classes> out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!classes_[i].empty()) out[i] = classes_[i].blocks;
    }
    return out;
  }

 private:
  struct free_block {
    free_block* next;
  };
  struct size_class {
    pool_class blocks;
    free_block* first = nullptr;

    [[nodiscard]] bool empty() const noexcept { return blocks.used == 0 && blocks.free == 0; }
  };

  static void* allocate(void* pool, std::size_t bytes, std::size_t) noexcept {
    return static_cast<tile_pool*>(pool)->take(bytes);
  }
  static void deallocate(void* pool, void* block, std::size_t bytes, std::size_t) noexcept {
    static_cast<tile_pool*>(pool)->put(block, bytes);
  }

  void* take(std::size_t bytes) noexcept;
  void put(void* block, std::size_t bytes) noexcept;

  // The rest is called with the mutex held.
  [[nodiscard]] size_class* find(std::size_t bytes) noexcept;
  [[nodiscard]] size_class* find_or_make(std::size_t bytes) noexcept;
  [[nodiscard]] size_class* drop_used(std::size_t bytes) noexcept;
  [[nodiscard]] bool make_room(std::size_t bytes) noexcept;
  void push_free(size_class& c, void* block) noexcept;
  [[nodiscard]] void* pop_free(size_class& c) noexcept;
  std::size_t give_back(size_class& c, std::int64_t count) noexcept;

  const allocator upstream_;
  const std::size_t budget_;
  mutable std::mutex mutex_;
  std::array<size_class, max_classes> classes_;
  std::size_t used_ = 0;  // also what is on its way from upstream
  std::size_t free_ = 0;
  std::size_t peak_ = 0;
  std::int64_t refusals_ = 0;
};

KVAXIS_END_NAMESPACE

#include "pool_blocks.hpp"
