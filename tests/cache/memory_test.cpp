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

// 8 heads of 128 channels, 4 bits, keys in groups of 32 tokens and values in groups of 32 channels, each with two
// 16-bit parameters: 128 * 8 * (0.5 + 4 / 32) * 2 = 1280 bytes per token, and a header of 64 bytes per tile.
TEST(Plan, B60_printed_example) {
  const test::policies found = test::find("k:int4-channel32-pre,v:int4-token32");
  kvaxis::cache_bytes plan;
  kvaxis::check(kvaxis::plan_cache(test::rope_shape(8, 128), found.keys, found.values, 100132, plan));
  EXPECT_EQ(plan.folded, 100000U / 32U * (32U * 1280U + 64U));
}

TEST(Plan, refuses_what_create_refuses) {
  const test::policies found = test::find("k:int4-channel32-pre,v:int4-token32");
  const kvaxis::cache_config c = test::rope_shape(2, 64);
  kvaxis::cache_bytes plan;
  plan.folded = 77;
  const auto refused = [&](kvaxis::status s, kvaxis::errc code, const std::string& argument, std::int64_t limit) {
    EXPECT_EQ(s.code, code);
    EXPECT_EQ(s.argument, argument);
    EXPECT_EQ(s.limit, limit);
    EXPECT_EQ(plan.folded, 77U);
  };
  using kvaxis::errc;
  refused(kvaxis::plan_cache(c, found.keys, found.values, -1, plan), errc::out_of_range, "tokens",
          kvaxis::max_position);
  refused(kvaxis::plan_cache(c, found.keys, found.values, kvaxis::max_position + 1, plan), errc::out_of_range, "tokens",
          kvaxis::max_position);
  refused(kvaxis::plan_cache(c, {}, found.values, 1, plan), errc::invalid_argument, "key policy", 0);
  refused(kvaxis::plan_cache(c, found.keys, {}, 1, plan), errc::invalid_argument, "value policy", 0);
  kvaxis::cache_config wrong = c;
  wrong.kv_heads = 0;
  refused(kvaxis::plan_cache(wrong, found.keys, found.values, 1, plan), errc::out_of_range, "kv_heads",
          kvaxis::max_kv_heads);
}

// 2^31 - 1 tokens of 8 heads: more than 32 bits can count, and a refusal where the memory is not there.
TEST(Plan, counts_in_64_bits) {
  const test::policies found = test::find("k:int4-channel256-pre,v:int4-token64");
  kvaxis::cache_config c = test::rope_shape(64, 576);
  c.window = 0;
  c.pins = 0;
  kvaxis::cache_bytes plan;
  kvaxis::check(kvaxis::plan_cache(c, found.keys, found.values, std::int64_t{1} << 24, plan));
  const std::size_t key = 576 * 256 / 2 + 576 * 2 * 2;
  const std::size_t value = 256 * 576 / 2 + 256 * 9 * 2 * 2;
  EXPECT_EQ(plan.folded, (std::size_t{1} << 24) / 256 * (64 * (key + value) + 64));
  EXPECT_EQ(plan.exact, 0U);

  counting_allocator memory;
  kvaxis::any_kv_cache cache = make("k:int4-channel256-pre,v:int4-token64", test::rope_shape(8, 8), memory);
  const std::string before = test::snapshot(cache);
  memory.fail_after = memory.calls + 100;
  const kvaxis::status s = cache.reserve(kvaxis::max_position);
  EXPECT_EQ(s.code, kvaxis::errc::out_of_memory);
  EXPECT_EQ(s.argument, std::string("allocator"));
  EXPECT_GT(s.limit, 0);
  EXPECT_EQ(test::snapshot(cache) == before, true);
}

}  // namespace
