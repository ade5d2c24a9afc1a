// Caches whose memory is a pool's.
#include <gtest/gtest.h>

#include <algorithm>
#include <kvaxis/cache/pool.hpp>
#include <string>
#include <utility>
#include <vector>

#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::errc;
using kvaxis::tile_pool;

const char* const policy = "k:int4-channel32-auto,v:int4-token16";
const char* const other_policy = "k:int8-token32-post,v:f16";

kvaxis::cache_config config(int window = 50, int pins = 6) {
  kvaxis::cache_config c = test::rope_shape(2, 40);
  c.window = window;
  c.pins = pins;
  c.tile_tokens = 32;
  return c;
}

void expect_out_of_memory(const kvaxis::status& s) {
  EXPECT_EQ(s.code, errc::out_of_memory);
  EXPECT_EQ(s.argument, std::string("tile_pool"));
  EXPECT_GT(s.limit, 0);
}

TEST(PoolCaches, everything_that_a_cache_holds_counts) {
  counting_allocator upstream;
  tile_pool pool(SIZE_MAX, upstream.hook());
  const test::tokens data(config(), 300, 1);
  {
    kvaxis::any_kv_cache a = test::cache_of(policy, config(), pool.memory());
    kvaxis::any_kv_cache b = test::cache_of(other_policy, config(100, 0), pool.memory());
    const auto expect_exact = [&] {
      ASSERT_EQ(pool.counts().used, a.bytes().total() + b.bytes().total());
      ASSERT_EQ(pool.counts().used + pool.counts().free, upstream.live_bytes);
    };
    expect_exact();
    for (int i = 0; i < 300; ++i) {
      kvaxis::check(data.append_to(a, i, 1));
      if (i % 7 == 0) kvaxis::check(data.append_to(b, 0, 5));
      expect_exact();
    }
    kvaxis::check(a.reserve(2000));
    expect_exact();
    kvaxis::check(a.flush());
    b.clear();
    expect_exact();
    kvaxis::any_kv_cache moved = std::move(a);
    a = std::move(moved);
    expect_exact();
    b = kvaxis::any_kv_cache();
    expect_exact();
  }
  EXPECT_EQ(pool.counts().used, 0U);
  EXPECT_EQ(pool.counts().free, upstream.live_bytes);
}

TEST(PoolCaches, the_memory_of_a_dropped_cache_serves_the_next_one_of_its_shape) {
  counting_allocator upstream;
  tile_pool pool(SIZE_MAX, upstream.hook());
  const test::tokens data[] = {test::tokens(config(), 400, 2), test::tokens(config(), 400, 3)};
  const auto fill = [&](int i) {
    kvaxis::any_kv_cache cache = test::cache_of(policy, config(), pool.memory());
    for (int first = 0; first < 400; first += 100) kvaxis::check(data[i].append_to(cache, first, 100));
    return test::contents(cache);
  };
  const std::string first = fill(0);
  const int calls = upstream.calls;
  kvaxis::any_kv_cache alone = test::cache_of(policy, config());
  data[1].append_all_to(alone);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(fill(1) == test::contents(alone), true);
    EXPECT_EQ(fill(0) == first, true);
  }
  EXPECT_EQ(upstream.calls, calls);
}

// Budgets of every size, from none to enough: create, append and reserve do all they say or nothing.
TEST(PoolCaches, a_refusal_changes_nothing) {
  const test::tokens data(config(), 600, 4);
  kvaxis::any_kv_cache want = test::cache_of(policy, config());
  data.append_all_to(want);
  kvaxis::check(want.reserve(900));
  const std::size_t enough = want.bytes().total();
  int refused_calls = 0;
  std::vector<std::size_t> budgets = {enough - 1, enough};
  for (std::size_t budget = 0; budget < enough; budget += 1999) budgets.push_back(budget);
  for (const std::size_t budget : budgets) {
    tile_pool pool(budget);
    kvaxis::any_kv_cache cache;
    std::vector<kvaxis::status> answers;
    const auto attempt = [&](auto call) {
      const std::string before = test::snapshot(cache);
      const std::size_t used = pool.counts().used;
      answers.push_back(call());
      if (answers.back().ok()) return;
      ++refused_calls;
      expect_out_of_memory(answers.back());
      EXPECT_EQ(test::snapshot(cache) == before, true) << budget;
      EXPECT_EQ(pool.counts().used, used) << budget;
    };
    kvaxis::any_kv_cache made;
    answers.push_back(test::make_cache(policy, config(), pool.memory(), made));
    if (!answers[0].ok()) {
      expect_out_of_memory(answers[0]);
      EXPECT_EQ(made.format(), nullptr);
      EXPECT_EQ(pool.counts().used, 0U);
      continue;
    }
    cache = std::move(made);
    attempt([&] { return data.append_to(cache, 0, 250); });
    attempt([&] { return cache.reserve(600); });
    const int left = 600 - static_cast<int>(cache.size());
    attempt([&] { return data.append_to(cache, 600 - left, left); });
    attempt([&] { return cache.reserve(900); });
    EXPECT_EQ(answers.back().ok(), budget >= enough) << budget;
    if (cache.size() == 600) {
      EXPECT_EQ(test::contents(cache) == test::contents(want), true) << budget;
    }
  }
  EXPECT_GT(refused_calls, 100);
}

TEST(PoolCaches, shapes_in_turn_on_a_budget_for_one) {
  const test::tokens data(config(), 500, 5);
  std::size_t budget = 0;
  for (const char* const name : {policy, other_policy}) {
    kvaxis::any_kv_cache cache = test::cache_of(name, config());
    data.append_all_to(cache);
    budget = std::max(budget, cache.bytes().total() + 4096);  // for a list that grows
  }
  counting_allocator upstream;
  tile_pool pool(budget, upstream.hook());
  for (int round = 0; round < 4; ++round) {
    kvaxis::any_kv_cache cache = test::cache_of(round % 2 == 0 ? policy : other_policy, config(), pool.memory());
    for (int i = 0; i < 500; i += 20) kvaxis::check(data.append_to(cache, i, 20));
  }
  EXPECT_LE(upstream.peak_bytes, budget);
  EXPECT_EQ(pool.counts().refusals, 0);
}

TEST(PoolCaches, upstream_may_fail_at_every_allocation) {
  const test::tokens data(config(), 900, 6);
  kvaxis::any_kv_cache want = test::cache_of(policy, config());
  data.append_all_to(want);
  int served = 0;
  for (bool complete = false; !complete; ++served) {
    counting_allocator upstream;
    tile_pool pool(SIZE_MAX, upstream.hook());
    kvaxis::any_kv_cache cache = test::cache_of(policy, config(), pool.memory());
    kvaxis::check(data.append_to(cache, 0, 333));
    upstream.fail_after = upstream.calls + served;
    const std::string before = test::snapshot(cache);
    const kvaxis::status s = data.append_to(cache, 333, 567);
    complete = s.ok();
    if (!complete) {
      expect_out_of_memory(s);
      EXPECT_EQ(test::snapshot(cache) == before, true) << served;
      EXPECT_EQ(pool.counts().used, cache.bytes().total()) << served;
      EXPECT_EQ(pool.counts().used + pool.counts().free, upstream.live_bytes) << served;
      EXPECT_EQ(pool.counts().refusals, 0);
      upstream.fail_after = -1;
      kvaxis::check(data.append_to(cache, 333, 567));
    }
    EXPECT_EQ(test::contents(cache) == test::contents(want), true) << served;
  }
  EXPECT_GT(served, 10);
}

}  // namespace
