// The pool as an allocator: what it takes from upstream, keeps, gives back and refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <kvaxis/cache/pool.hpp>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "numbers.hpp"

namespace {

using kvaxis::errc;
using kvaxis::tile_pool;

kvaxis::pool_class class_of(const tile_pool& pool, std::size_t bytes) {
  kvaxis::pool_class found;
  for (const kvaxis::pool_class& c : pool.classes()) {
    if (c.bytes == bytes) found = c;
  }
  return found;
}

void expect_counts(const tile_pool& pool, std::size_t used, std::size_t free, std::size_t peak, std::int64_t refusals,
                   const counting_allocator& upstream) {
  const kvaxis::pool_counts c = pool.counts();
  EXPECT_EQ(c.used, used);
  EXPECT_EQ(c.free, free);
  EXPECT_EQ(c.peak, peak);
  EXPECT_EQ(c.refusals, refusals);
  EXPECT_EQ(upstream.live_bytes, used + free);
  EXPECT_LE(upstream.peak_bytes, c.budget);
}

void expect_class(const tile_pool& pool, std::size_t bytes, std::int64_t used, std::int64_t free) {
  const kvaxis::pool_class c = class_of(pool, bytes);
  EXPECT_EQ(c.used, used) << bytes;
  EXPECT_EQ(c.free, free) << bytes;
}

TEST(Pool, keeps_what_comes_back_for_the_next_request_of_its_size) {
  counting_allocator upstream;
  {
    tile_pool pool(10000, upstream.hook());
    const kvaxis::allocator memory = pool.memory();
    void* const a = memory.allocate(1000);
    void* const b = memory.allocate(1000);
    void* const c = memory.allocate(72);
    for (void* const p : {a, b, c}) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0U);
    expect_counts(pool, 2072, 0, 2072, 0, upstream);
    memory.deallocate(a, 1000);
    memory.deallocate(b, 1000);
    expect_counts(pool, 72, 2000, 2072, 0, upstream);
    expect_class(pool, 1000, 0, 2);
    expect_class(pool, 72, 1, 0);
    const int calls = upstream.calls;
    EXPECT_EQ(memory.allocate(1000), b);
    EXPECT_EQ(memory.allocate(1000), a);
    EXPECT_EQ(upstream.calls, calls);
    void* const d = memory.allocate(1008);  // another size, though a close one
    EXPECT_EQ(upstream.calls, calls + 1);
    expect_counts(pool, 3080, 0, 3080, 0, upstream);
    for (void* const p : {a, b}) memory.deallocate(p, 1000);
    memory.deallocate(c, 72);
    memory.deallocate(d, 1008);
    EXPECT_EQ(pool.trim(), 3080U);
    EXPECT_EQ(pool.trim(), 0U);
    expect_counts(pool, 0, 0, 3080, 0, upstream);
    memory.deallocate(memory.allocate(1000), 1000);
  }
  EXPECT_EQ(upstream.live_blocks, 0);  // the destructor gives back what is free
}

TEST(Pool, refuses_what_the_budget_has_no_room_for) {
  counting_allocator upstream;
  tile_pool pool(4096, upstream.hook());
  const kvaxis::allocator memory = pool.memory();
  EXPECT_EQ(memory.name, std::string("tile_pool"));
  EXPECT_EQ(memory.allocate(4097), nullptr);
  EXPECT_EQ(memory.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(upstream.calls, 0);
  expect_counts(pool, 0, 0, 0, 2, upstream);
  void* const all = memory.allocate(4096);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(memory.allocate(64), nullptr);
  expect_counts(pool, 4096, 0, 4096, 3, upstream);
  memory.deallocate(all, 4096);
  expect_counts(pool, 0, 4096, 4096, 3, upstream);

  tile_pool nothing(0, upstream.hook());
  EXPECT_EQ(nothing.memory().allocate(64), nullptr);
}

TEST(Pool, gives_free_blocks_of_other_sizes_back_where_that_makes_room) {
  counting_allocator upstream;
  tile_pool pool(10000, upstream.hook());
  const kvaxis::allocator memory = pool.memory();
  kvaxis::check(pool.reserve(1000, 6));
  kvaxis::check(pool.reserve(500, 4));
  void* const used = memory.allocate(1500);
  expect_counts(pool, 1500, 8000, 1500, 0, upstream);
  // 500 bytes are left: of the larger class goes as little as is enough.
  void* const a = memory.allocate(2500);
  expect_class(pool, 1000, 0, 4);
  expect_class(pool, 500, 0, 4);
  expect_counts(pool, 4000, 6000, 4000, 0, upstream);
  // The refused request leaves the free blocks where they are.
  EXPECT_EQ(memory.allocate(6001), nullptr);
  expect_counts(pool, 4000, 6000, 4000, 1, upstream);
  void* const b = memory.allocate(2001);
  expect_class(pool, 1000, 0, 1);
  void* const c = memory.allocate(3999);
  expect_counts(pool, 10000, 0, 10000, 1, upstream);
  memory.deallocate(used, 1500);
  memory.deallocate(a, 2500);
  memory.deallocate(b, 2001);
  memory.deallocate(c, 3999);
}

TEST(Pool, reserve_sets_blocks_aside) {
  counting_allocator upstream;
  tile_pool pool(10000, upstream.hook());
  const kvaxis::allocator memory = pool.memory();
  kvaxis::check(pool.reserve(1000, 3));
  kvaxis::check(pool.reserve(1000, 0));
  kvaxis::check(pool.reserve(1000, 2));
  expect_counts(pool, 0, 5000, 0, 0, upstream);
  expect_class(pool, 1000, 0, 5);
  const int calls = upstream.calls;
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(memory.allocate(1000));
  EXPECT_EQ(upstream.calls, calls);
  expect_counts(pool, 5000, 0, 5000, 0, upstream);
  for (void* const p : blocks) memory.deallocate(p, 1000);

  const auto refused = [&](std::size_t bytes, std::int64_t count, errc code, const std::string& argument,
                           std::int64_t limit) {
    const kvaxis::status s = pool.reserve(bytes, count);
    EXPECT_EQ(s.code, code);
    EXPECT_EQ(s.argument, argument);
    EXPECT_EQ(s.limit, limit);
    expect_class(pool, 1000, 0, 5);
    EXPECT_EQ(upstream.live_bytes, 5000U);
  };
  // No free block is pushed out.
  refused(1000, 6, errc::out_of_memory, "tile_pool", 1000);
  refused(5008, 1, errc::out_of_memory, "tile_pool", 5008);
  refused(1000, INT64_MAX, errc::out_of_memory, "tile_pool", 1000);
  EXPECT_EQ(pool.counts().refusals, 3);
  refused(1000, -1, errc::out_of_range, "count", 0);
  refused(7, 1, errc::out_of_range, "bytes", sizeof(void*));
  EXPECT_EQ(pool.trim(1000, 2), 2000U);
  expect_class(pool, 1000, 0, 3);
  EXPECT_EQ(pool.trim(1000, -1), 0U);
  EXPECT_EQ(pool.trim(999, 1), 0U);
  EXPECT_EQ(pool.trim(1000, 100), 3000U);
}

TEST(Pool, reserve_is_all_or_nothing_when_upstream_fails) {
  for (int served = 0; served < 5; ++served) {
    counting_allocator upstream;
    tile_pool pool(10000, upstream.hook());
    kvaxis::check(pool.reserve(800, 1));
    upstream.fail_after = upstream.calls + served;
    const kvaxis::status s = pool.reserve(1000, 5);
    EXPECT_EQ(s.code, errc::out_of_memory);
    EXPECT_EQ(s.argument, std::string("tile_pool"));
    EXPECT_EQ(s.limit, 1000);
    expect_counts(pool, 0, 800, 0, 0, upstream);
    expect_class(pool, 1000, 0, 0);
    upstream.fail_after = -1;
    kvaxis::check(pool.reserve(1000, 5));
    expect_counts(pool, 0, 5800, 0, 0, upstream);
  }
}

TEST(Pool, a_failure_upstream_changes_nothing_and_is_tried_again_without_free_blocks) {
  counting_allocator upstream;
  tile_pool pool(10000, upstream.hook());
  const kvaxis::allocator memory = pool.memory();
  upstream.fail_after = 0;
  EXPECT_EQ(memory.allocate(1000), nullptr);
  EXPECT_EQ(upstream.calls, 1);
  expect_counts(pool, 0, 0, 0, 0, upstream);
  upstream.fail_after = -1;
  kvaxis::check(pool.reserve(2000, 2));
  upstream.fail_after = upstream.calls;
  EXPECT_EQ(memory.allocate(1000), nullptr);
  EXPECT_EQ(upstream.calls, upstream.fail_after + 2);
  expect_counts(pool, 0, 0, 0, 0, upstream);

  // An upstream allocator without room for both sizes: the free block makes the second attempt succeed.
  tile_pool narrow(1000, upstream.hook());
  upstream.fail_after = -1;
  tile_pool wide(10000, narrow.memory());
  kvaxis::check(wide.reserve(600, 1));
  void* const p = wide.memory().allocate(800);
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(wide.counts().used, 800U);
  EXPECT_EQ(wide.counts().free, 0U);
  wide.memory().deallocate(p, 800);
}

TEST(Pool, sizes_beyond_the_classes_are_not_kept) {
  counting_allocator upstream;
  tile_pool pool(1U << 20, upstream.hook());
  const kvaxis::allocator memory = pool.memory();
  const auto size = [](int i) { return static_cast<std::size_t>(64 * (i + 1)); };
  std::vector<void*> blocks;
  std::size_t bytes = 0;
  for (int i = 0; i < tile_pool::max_classes + 2; ++i) {
    blocks.push_back(memory.allocate(size(i)));
    bytes += size(i);
  }
  const std::size_t last = size(tile_pool::max_classes + 1);
  expect_class(pool, last, 0, 0);
  EXPECT_EQ(pool.counts().used, bytes);
  const kvaxis::status s = pool.reserve(last, 1);
  EXPECT_EQ(s.code, errc::out_of_range);
  EXPECT_EQ(s.argument, std::string("size classes"));
  EXPECT_EQ(s.limit, tile_pool::max_classes);
  // Given back, the block of a further size is not there any more.
  memory.deallocate(blocks.back(), last);
  EXPECT_EQ(pool.counts().free, 0U);
  EXPECT_EQ(upstream.live_bytes, bytes - last);
  // A class that has no block left makes place for another size; one that has a free one does not.
  memory.deallocate(blocks.front(), 64);
  blocks.back() = memory.allocate(last);
  expect_class(pool, last, 0, 0);
  EXPECT_EQ(pool.trim(), 64U);
  blocks.front() = memory.allocate(last);
  expect_class(pool, last, 1, 0);
  // Of the two blocks of this size, the first that comes back is kept.
  memory.deallocate(blocks.back(), last);
  expect_class(pool, last, 0, 1);
  memory.deallocate(blocks.front(), last);
  expect_class(pool, last, 0, 1);
  for (int i = 1; i <= tile_pool::max_classes; ++i) memory.deallocate(blocks[static_cast<std::size_t>(i)], size(i));
  EXPECT_EQ(pool.counts().used, 0U);
  EXPECT_EQ(upstream.live_bytes, pool.counts().free);
}

TEST(Pool, blocks_too_small_to_be_linked_are_not_kept) {
  counting_allocator upstream;
  tile_pool pool(100, upstream.hook());
  const kvaxis::allocator memory = pool.memory();
  void* const p = memory.allocate(sizeof(void*) - 1);
  expect_counts(pool, sizeof(void*) - 1, 0, sizeof(void*) - 1, 0, upstream);
  memory.deallocate(p, sizeof(void*) - 1);
  expect_counts(pool, 0, 0, sizeof(void*) - 1, 0, upstream);
}

// Random requests against a model that keeps a list: the counts are exact, the budget holds, and blocks are apart.
TEST(Pool, random_requests) {
  struct block {
    unsigned char* data;
    std::size_t bytes;
    unsigned char mark;
  };
  counting_allocator upstream;
  tile_pool pool(20000, upstream.hook());
  const kvaxis::allocator memory = pool.memory();
  test::numbers random(1);
  std::vector<block> blocks;
  std::size_t used = 0;
  std::size_t peak = 0;
  std::int64_t refusals = 0;
  for (int step = 0; step < 20000; ++step) {
    if (random.below(5) < 3) {
      const std::size_t bytes = 100U * static_cast<std::size_t>(1 + random.below(random.below(20) == 0 ? 100 : 10));
      auto* const p = static_cast<unsigned char*>(memory.allocate(bytes));
      ASSERT_EQ(p != nullptr, used + bytes <= 20000) << step;
      if (p == nullptr) {
        ++refusals;
      } else {
        used += bytes;
        peak = std::max(peak, used);
        blocks.push_back({p, bytes, static_cast<unsigned char>(step)});
        std::fill_n(p, bytes, blocks.back().mark);
      }
    } else if (!blocks.empty()) {
      std::swap(blocks[static_cast<std::size_t>(random.below(static_cast<int>(blocks.size())))], blocks.back());
      const block b = blocks.back();
      blocks.pop_back();
      ASSERT_EQ(std::count(b.data, b.data + b.bytes, b.mark), static_cast<std::ptrdiff_t>(b.bytes)) << step;
      memory.deallocate(b.data, b.bytes);
      used -= b.bytes;
    }
    const kvaxis::pool_counts c = pool.counts();
    ASSERT_EQ(c.used, used) << step;
    ASSERT_EQ(c.used + c.free, upstream.live_bytes) << step;
    std::size_t in_classes = 0;
    for (const kvaxis::pool_class& each : pool.classes()) {
      in_classes += each.bytes * static_cast<std::size_t>(each.used + each.free);
    }
    ASSERT_EQ(in_classes, upstream.live_bytes) << step;
  }
  EXPECT_GT(refusals, 100);
  expect_counts(pool, used, upstream.live_bytes - used, peak, refusals, upstream);
  for (const block& b : blocks) memory.deallocate(b.data, b.bytes);
}

}  // namespace
