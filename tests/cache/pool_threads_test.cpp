// One pool used from several threads; run under ThreadSanitizer as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <kvaxis/cache/pool.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "policies.hpp"
#include "threads.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::tile_pool;

const char* const policy = "k:int4-channel32-auto,v:int4-token16";

// Every block is filled with a mark of its own, which must still be there when it goes back. The upstream allocator is a
// pool too: it shows that the budget holds at every moment, or it would have to refuse.
TEST(PoolThreads, blocks_of_many_sizes) {
  constexpr int threads = 4;
  tile_pool upstream(40000);
  {
    tile_pool pool(40000, upstream.memory());
    std::atomic<int> damaged{0};
    test::on_threads(threads, [&](int thread) {
      const kvaxis::allocator memory = pool.memory();
      test::numbers random(static_cast<std::uint64_t>(thread));
      std::vector<std::pair<unsigned char*, std::size_t>> blocks;
      const auto mark = static_cast<unsigned char>(thread + 1);
      for (int step = 0; step < 3000; ++step) {
        const std::size_t bytes = 100U * static_cast<std::size_t>(1 + random.below(20));
        auto* const p = static_cast<unsigned char*>(memory.allocate(bytes));
        if (p != nullptr) {
          std::fill_n(p, bytes, mark);
          blocks.emplace_back(p, bytes);
        }
        if (p == nullptr || random.below(8) == 0) {
          for (int n = random.below(6); n > 0 && !blocks.empty(); --n) {
            const auto [data, size] = blocks.back();
            blocks.pop_back();
            damaged += std::count(data, data + size, mark) != static_cast<std::ptrdiff_t>(size) ? 1 : 0;
            memory.deallocate(data, size);
          }
        }
        if (step % 500 == 0) pool.trim();
        if (step % 300 == 0 && pool.reserve(200, 2).ok()) pool.trim(200, 1);
      }
      for (const auto& [data, size] : blocks) memory.deallocate(data, size);
    });
    EXPECT_EQ(damaged, 0);
    const kvaxis::pool_counts c = pool.counts();
    EXPECT_EQ(c.used, 0U);
    EXPECT_EQ(c.free, upstream.counts().used);
    EXPECT_GT(c.refusals, 0);
    EXPECT_LE(c.peak, c.budget);
    for (const kvaxis::pool_class& each : pool.classes()) EXPECT_EQ(each.used, 0);
  }
  EXPECT_EQ(upstream.counts().refusals, 0);
  EXPECT_EQ(upstream.counts().used, 0U);
}

// Sequences of one shape, made, filled, attended to and dropped on every thread: what each computes is what it computes
// alone.
TEST(PoolThreads, caches_on_one_pool) {
  const kvaxis::cache_config c = test::rope_shape(2, 32);
  constexpr int threads = 3;
  std::vector<test::tokens> data;
  std::vector<std::string> contents;
  std::vector<std::vector<float>> outputs;
  const std::vector<float> q(64, 0.25F);
  for (int i = 0; i < threads; ++i) {
    data.emplace_back(c, 400, static_cast<std::uint64_t>(i));
    kvaxis::any_kv_cache alone = test::cache_of(policy, c);
    data.back().append_all_to(alone);
    contents.push_back(test::contents(alone));
    outputs.push_back(test::attend(alone, q, 1, 400).out);
  }
  tile_pool pool(SIZE_MAX);
  std::atomic<int> right{0};
  test::on_threads(threads, [&](int thread) {
    const auto i = static_cast<std::size_t>(thread);
    for (int round = 0; round < 5; ++round) {
      kvaxis::any_kv_cache cache = test::cache_of(policy, c, pool.memory());
      for (int at = 0; at < 400; at += 20) {
        kvaxis::check(data[i].append_to(cache, at, 20));
        (void)test::attend(cache, q, 1, at + 20);
      }
      right += test::contents(cache) == contents[i] && test::attend(cache, q, 1, 400).out == outputs[i] ? 1 : 0;
      std::thread([taken = std::move(cache)]() mutable { taken = kvaxis::any_kv_cache(); }).join();
    }
  });
  EXPECT_EQ(right, threads * 5);
  EXPECT_EQ(pool.counts().used, 0U);
}

// More sequences than the budget has room for: who is refused has lost nothing, waits and goes on.
TEST(PoolThreads, refusals_under_contention) {
  kvaxis::cache_config c = test::rope_shape(1, 16);
  c.window = 32;
  const test::tokens data(c, 300, 9);
  kvaxis::any_kv_cache alone = test::cache_of(policy, c);
  data.append_all_to(alone);
  const std::string want = test::contents(alone);
  kvaxis::check(alone.reserve(600));
  tile_pool pool(2 * alone.bytes().total());
  std::atomic<int> right{0};
  std::atomic<int> damaged{0};
  test::on_threads(4, [&](int) {
    for (int round = 0; round < 8; ++round) {
      kvaxis::any_kv_cache cache;
      // Without all its memory a sequence starts again, or four halves could block each other for ever.
      while (!test::make_cache(policy, c, pool.memory(), cache).ok() || !cache.reserve(300).ok()) {
        damaged += cache.size() == 0 ? 0 : 1;
        cache = kvaxis::any_kv_cache();
        std::this_thread::yield();
      }
      data.append_all_to(cache);
      right += test::contents(cache) == want ? 1 : 0;
    }
  });
  EXPECT_EQ(right, 4 * 8);
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(pool.counts().used, 0U);
}

}  // namespace
