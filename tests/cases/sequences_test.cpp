// Field cases about several sequences on one pool, and about the end of the memory.
#include <gtest/gtest.h>

#include <climits>
#include <kvaxis/cache/plan.hpp>
#include <kvaxis/cache/pool.hpp>
#include <string>
#include <vector>

#include "calls.hpp"
#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

const char* const int4 = "k:int4-channel32-pre,v:int4-token32";
const char* const automatic = "k:int8-channel32-auto,v:int8-channel32";

kvaxis::cache_config with_window(int window, int pins) {
  kvaxis::cache_config c = test::rope_shape(2, 32);
  c.window = window;
  c.pins = pins;
  return c;
}

// The blocks of both have been a loud sequence's before.
TEST(Sequences, B07_on_one_pool_they_share_nothing) {
  const kvaxis::cache_config c = with_window(32, 4);
  const test::tokens quiet(c, 200, 1);
  const test::tokens loud(c, 200, 2, 1000.0F, 1000.0F);
  for (const char* const policy : {int4, automatic}) {
    counting_allocator upstream;
    kvaxis::tile_pool pool(SIZE_MAX, upstream.hook());
    {
      kvaxis::any_kv_cache before[] = {test::cache_of(policy, c, pool.memory()),
                                       test::cache_of(policy, c, pool.memory())};
      for (kvaxis::any_kv_cache& cache : before) loud.append_all_to(cache);
    }
    const int calls = upstream.calls;
    kvaxis::any_kv_cache a = test::cache_of(policy, c, pool.memory());
    kvaxis::any_kv_cache b = test::cache_of(policy, c, pool.memory());
    for (int t = 0; t < 200; ++t) {
      kvaxis::check(quiet.append_to(a, t, 1));
      kvaxis::check(loud.append_to(b, t, 1));
    }
    EXPECT_EQ(upstream.calls, calls) << policy;
    const std::vector<float> q(64, 0.5F);
    for (const auto& [cache, data] : {std::pair(&a, &quiet), std::pair(&b, &loud)}) {
      kvaxis::any_kv_cache alone = test::cache_of(policy, c);
      data->append_all_to(alone);
      EXPECT_EQ(test::contents(*cache) == test::contents(alone), true) << policy;
      EXPECT_EQ(test::attend(*cache, q, 1, 200).out, test::attend(alone, q, 1, 200).out) << policy;
    }
  }
}

// Prompts of three lengths, then 40 steps of decoding, all in turn. Each attends as it does alone; so does one whose
// positions begin below zero, as if it were padded on the left to the length of the longest.
TEST(Sequences, B30_a_ragged_batch) {
  constexpr int prompts[] = {5, 17, 64};
  constexpr int steps = 40;
  const kvaxis::cache_config c = with_window(16, 4);
  kvaxis::attend_options o = test::exact();
  o.query_heads = 6;
  for (const char* const policy : {int4, automatic}) {
    kvaxis::tile_pool pool(SIZE_MAX);
    std::vector<test::tokens> data;
    std::vector<kvaxis::any_kv_cache> together;
    std::vector<kvaxis::any_kv_cache> alone;
    std::vector<kvaxis::any_kv_cache> padded;
    for (const int prompt : prompts) {
      data.emplace_back(c, prompt + steps, static_cast<std::uint64_t>(prompt));
      together.push_back(test::cache_of(policy, c, pool.memory()));
      alone.push_back(test::cache_of(policy, c));
      padded.push_back(test::cache_of(policy, c));
    }
    const std::vector<float> q = test::numbers(3).uniforms(6 * 32);
    std::vector<std::vector<float>> outputs[3];
    for (int step = 0; step <= steps; ++step) {
      for (std::size_t i = 0; i < 3; ++i) {
        const int size = prompts[i] + step;
        const int added = step == 0 ? size : 1;
        kvaxis::check(data[i].append_to(together[i], size - added, added));
        outputs[i].push_back(test::attend(together[i], q, 1, size - 1, o).out);
      }
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const int shift = prompts[i] - 64;
      for (int step = 0; step <= steps; ++step) {
        const int size = prompts[i] + step;
        const int added = step == 0 ? size : 1;
        kvaxis::check(data[i].append_to(alone[i], size - added, added));
        const auto at = static_cast<std::size_t>(step);
        ASSERT_EQ(outputs[i][at], test::attend(alone[i], q, 1, size - 1, o).out) << policy << ' ' << i << ' ' << step;
        kvaxis::check(data[i].append_to(padded[i], size - added, added, step == 0 ? shift : kvaxis::next));
        const std::vector<float> out = test::attend(padded[i], q, 1, shift + size - 1, o).out;
        for (std::size_t x = 0; x < out.size(); ++x) ASSERT_NEAR(out[x], outputs[i][at][x], 1e-5) << policy << ' ' << i;
      }
      EXPECT_EQ(test::contents(together[i]) == test::contents(alone[i]), true) << policy << ' ' << i;
    }
  }
}

// A budget for exactly 100 tokens: four pinned ones and three tiles.
TEST(Sequences, B49_appending_beyond_the_budget) {
  const kvaxis::cache_config c = with_window(128, 4);
  const test::policies found = test::find(int4);
  const test::tokens data(c, 101, 4);
  const kvaxis::planned_layers layer{&c, found.keys, found.values, 1};
  kvaxis::cache_bytes plan;
  kvaxis::check(kvaxis::plan_sequence(&layer, 1, 100, plan));
  std::int64_t most = 0;
  kvaxis::check(kvaxis::plan_tokens(&layer, 1, plan.total(), most));
  ASSERT_EQ(most, 100);
  kvaxis::tile_pool pool(plan.total());
  const auto expect_refused = [](const kvaxis::status& s) {
    EXPECT_EQ(s.code, kvaxis::errc::out_of_memory);
    EXPECT_EQ(s.argument, std::string("tile_pool"));
  };
  {
    kvaxis::any_kv_cache cache = test::cache_of(int4, c, pool.memory());
    kvaxis::check(data.append_to(cache, 0, 99));
    const std::string before = test::snapshot(cache);
    expect_refused(data.append_to(cache, 99, 2));
    EXPECT_EQ(test::snapshot(cache) == before, true);
    kvaxis::check(data.append_to(cache, 99, 1));
    expect_refused(data.append_to(cache, 100, 1));
    EXPECT_EQ(cache.size(), 100);
  }
  kvaxis::any_kv_cache cache = test::cache_of(int4, c, pool.memory());
  expect_refused(data.append_to(cache, 0, 101));
  EXPECT_EQ(cache.size(), 0);
  kvaxis::check(data.append_to(cache, 0, 100));
}

// Without a budget a cache grows, and what it held stays as it was.
TEST(Sequences, B49_growing_beyond_what_was_reserved) {
  const kvaxis::cache_config c = with_window(20, 4);
  const test::tokens data(c, 400, 5);
  kvaxis::any_kv_cache want = test::cache_of(int4, c);
  data.append_all_to(want);
  for (const std::vector<int>& chunks : std::vector<std::vector<int>>{{99, 2, 299}, {101, 299}, {400}}) {
    kvaxis::any_kv_cache cache = test::cache_of(int4, c);
    kvaxis::check(cache.reserve(100));
    int size = 0;
    for (const int n : chunks) {
      kvaxis::check(data.append_to(cache, size, n));
      size += n;
    }
    EXPECT_EQ(test::contents(cache) == test::contents(want), true);
    // Numbers of tokens that are none: what SIZE_MAX becomes in an int, and more than there are positions.
    const std::string before = test::snapshot(cache);
    EXPECT_EQ(data.append_to(cache, 0, static_cast<int>(SIZE_MAX)).argument, std::string("n"));
    EXPECT_EQ(data.append_to(cache, 0, INT_MAX).argument, std::string("first_position"));
    EXPECT_EQ(test::snapshot(cache) == before, true);
  }
}

// What a token asks of the allocator does not depend on how many there are; bench/append_bench.cpp measures the time.
TEST(Sequences, B57_a_late_token_takes_no_more_memory_than_an_early_one) {
  kvaxis::cache_config c = test::rope_shape(4, 64);
  c.window = 64;
  counting_allocator memory;
  kvaxis::any_kv_cache cache;
  kvaxis::check(test::make_cache(int4, c, memory.hook(), cache));
  const test::tokens data(c, 64, 6);
  const auto append_until = [&](int size) {
    while (cache.size() < size) kvaxis::check(data.append_to(cache, static_cast<int>(cache.size() % 64), 1));
  };
  const auto taken_for_1024_tokens_at = [&](int size) {
    append_until(size);
    const std::size_t before = memory.total_bytes;
    append_until(size + 1024);
    return memory.total_bytes - before;
  };
  const std::size_t early = taken_for_1024_tokens_at(1024);
  const std::size_t late = taken_for_1024_tokens_at(65536);
  EXPECT_GT(early, 1024U * 4 * 64);
  EXPECT_LT(late, 2 * early);
}

}  // namespace
