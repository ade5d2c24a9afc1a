// What a cache takes from its allocator, and when.
#include <gtest/gtest.h>

#include <kvaxis/cache/plan.hpp>
#include <string>
#include <vector>

#include "calls.hpp"
#include "count_new.hpp"
#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

const std::vector<std::string> policies = {"k:int4-channel32-pre,v:int4-token64",
                                           "k:int8-channel128-auto,v:int8-token16",
                                           "k:int4-token32-tile,v:int4-channel64", "k:e4m3-tensor@1-post,v:f16"};

kvaxis::any_kv_cache make(const std::string& policy, const kvaxis::cache_config& c, counting_allocator& memory) {
  kvaxis::any_kv_cache cache;
  kvaxis::check(test::make_cache(policy, c, memory.hook(), cache));
  return cache;
}

class Memory : public ::testing::TestWithParam<std::string> {
 protected:
  kvaxis::cache_config config_ = test::rope_shape(2, 24, 40);
};

TEST_P(Memory, nothing_is_allocated_in_append_after_reserve) {
  const test::tokens data(config_, 700, 1);
  for (const int window : {0, 1, 100, 1000}) {
    for (const int pins : {0, 4, 5}) {
      for (const int chunk : {1, 64, 300}) {
        config_.window = window;
        config_.pins = pins;
        counting_allocator memory;
        kvaxis::any_kv_cache cache = make(GetParam(), config_, memory);
        kvaxis::check(cache.reserve(700));
        const std::size_t reserved = cache.bytes().total();
        const int calls = memory.calls;
        const long long news = operator_new_calls();
        for (int round = 0; round < 2; ++round) {
          for (int i = 0; i < 700; i += chunk) {
            kvaxis::check(data.append_to(cache, i, chunk < 700 - i ? chunk : 700 - i));
          }
          EXPECT_EQ(cache.size(), 700);
          EXPECT_EQ(cache.bytes().total(), reserved);
          cache.clear();
        }
        EXPECT_EQ(memory.calls, calls) << "window " << window << " pins " << pins << " chunk " << chunk;
        EXPECT_EQ(operator_new_calls(), news);
      }
    }
  }
}

TEST_P(Memory, reserve_counts_what_is_there_already) {
  config_.window = 70;
  const test::tokens data(config_, 900, 2);
  for (const int state : {0, 1, 2}) {  // an open tile, all flushed, folding deferred
    counting_allocator memory;
    kvaxis::any_kv_cache cache = make(GetParam(), config_, memory);
    const auto mode = state == 2 ? kvaxis::fold_mode::deferred : kvaxis::fold_mode::now;
    kvaxis::check(data.append_to(cache, 0, 333, kvaxis::next, mode));
    if (state == 1) kvaxis::check(cache.flush());
    const std::string before = test::contents(cache);
    kvaxis::check(cache.reserve(900));
    EXPECT_EQ(test::contents(cache) == before, true);
    const int calls = memory.calls;
    kvaxis::check(cache.reserve(900));
    kvaxis::check(cache.reserve(0));
    kvaxis::check(data.append_to(cache, 333, 200));
    kvaxis::check(cache.reserve(900));
    for (int i = 533; i < 900; ++i) kvaxis::check(data.append_to(cache, i, 1));
    EXPECT_EQ(memory.calls, calls) << state;
    EXPECT_EQ(cache.size(), 900);
  }
}

TEST_P(Memory, reading_and_attending_allocate_nothing) {
  counting_allocator memory;
  kvaxis::any_kv_cache cache = make(GetParam(), config_, memory);
  const test::tokens data(config_, 400, 3);
  data.append_all_to(cache);
  kvaxis::attend_options o;
  o.query_heads = 12;
  const std::vector<float> q = test::numbers(4).uniforms(3 * 12 * 24);
  std::vector<float> out(3 * 12 * 40);
  std::vector<float> lse(3 * 12);
  std::vector<float> weights(3 * 12 * 400);
  std::vector<float> row(40);
  int tasks = 0;
  const auto each = [&](int n, kvaxis::task f) {
    for (int i = 0; i < n; ++i) f(i);
    tasks += n;
  };
  const auto all_calls = [&](void* workspace, std::size_t bytes) {
    const kvaxis::workspace w{workspace, bytes};
    return cache.attend(q.data(), 3, 400, o, out.data(), lse.data(), w).ok() &&
           cache.attend(q.data(), 1, 400, o, out.data(), nullptr, w, each).ok() &&
           cache.scores(q.data(), 3, 400, o, weights.data(), w).ok() &&
           cache.weighted_sum(weights.data(), 3, o, out.data(), w).ok() && cache.read_key(7, 1, row.data()).ok() &&
           cache.read_value(399, 0, row.data()).ok() && cache.workspace_bytes(3, o, 1000) > 0;
  };
  const std::size_t bytes = cache.workspace_bytes(3, o) + cache.workspace_bytes(1, o);
  std::vector<char> workspace(bytes);
  const int calls = memory.calls;
  const long long news = operator_new_calls();
  EXPECT_TRUE(all_calls(workspace.data(), bytes));
  EXPECT_EQ(operator_new_calls(), news);
  EXPECT_EQ(memory.calls, calls);
  EXPECT_GT(tasks, 1);
}

// bytes() is the allocator's own count at every moment, and plan_cache() foresees it.
TEST_P(Memory, B60_bytes_are_those_really_allocated_and_those_planned) {
  const test::policies found = test::find(GetParam());
  const float scale = 1.0F;
  for (const auto [heads, dim, value_dim] : {std::array{1, 8, 8}, std::array{8, 128, 128}, std::array{3, 80, 46}}) {
    for (const int window : {0, 64, 129}) {
      for (const int pins : {0, 4, 33}) {
        for (const bool half : {false, true}) {
          kvaxis::cache_config c = test::rope_shape(heads, dim, value_dim);
          c.window = window;
          c.pins = pins;
          c.half_window = half;
          c.k_scale = &scale;
          counting_allocator memory;
          kvaxis::any_kv_cache cache = make(GetParam(), c, memory);
          const test::tokens data(c, 32, 5);
          const int tile = cache.format()->tokens;
          int size = 0;
          for (const int tokens :
               {0, 1, 31, 32, 33, window, window + tile, window + tile + pins, heads == 1 ? 10000 : 700}) {
            while (size < tokens) {
              const int n = tokens - size < 32 ? tokens - size : 32;
              kvaxis::check(data.append_to(cache, 0, n));
              size += n;
            }
            if (tokens != size) continue;
            ASSERT_EQ(cache.bytes().total(), memory.live_bytes) << tokens;
            kvaxis::cache_bytes plan;
            kvaxis::check(kvaxis::plan_cache(c, found.keys, found.values, size, plan));
            ASSERT_EQ(cache.bytes().folded, plan.folded) << tokens;
            ASSERT_EQ(cache.bytes().exact, plan.exact) << tokens;
            ASSERT_EQ(cache.bytes().spare, plan.spare) << tokens;
            ASSERT_EQ(cache.bytes().bookkeeping, plan.bookkeeping) << tokens;
          }
          kvaxis::cache_bytes plan;
          kvaxis::check(kvaxis::plan_cache(c, found.keys, found.values, size + 3000, plan));
          kvaxis::check(cache.reserve(size + 3000));
          EXPECT_EQ(cache.bytes().total(), memory.live_bytes);
          EXPECT_EQ(cache.bytes().total(), plan.total());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(policies, Memory, ::testing::ValuesIn(policies), test::policy_test_name);

}  // namespace
