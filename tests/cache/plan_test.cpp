// The planner: what caches will take, per token, per sequence and per budget. That plan_cache() foresees bytes() for all
// policies and shapes is in memory_test.cpp; what a pool then really holds in pool_caches_test.cpp.
#include <gtest/gtest.h>

#include <kvaxis/cache/plan.hpp>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::errc;

// Token by token, through the filling of the window and the first folds, where tiles are had, given back and used again.
TEST(Plan, B60_equals_bytes_after_every_token) {
  for (const char* const name : {"k:int4-channel32-pre,v:int4-token64", "k:int8-channel128-auto,v:int8-token16"}) {
    const test::policies found = test::find(name);
    for (const int window : {0, 1, 31, 32, 33, 100, 128, 300}) {
      for (const int pins : {0, 4, 33}) {
        kvaxis::cache_config c = test::rope_shape(1, 8);
        c.window = window;
        c.pins = pins;
        const test::tokens data(c, 1, 1);
        kvaxis::any_kv_cache cache = test::cache_of(name, c);
        std::size_t before = 0;
        for (int tokens = 0; tokens <= 1100; ++tokens) {
          if (tokens > 0) kvaxis::check(data.append_to(cache, 0, 1));
          kvaxis::cache_bytes plan;
          kvaxis::check(kvaxis::plan_cache(c, found.keys, found.values, tokens, plan));
          ASSERT_EQ(plan.folded, cache.bytes().folded) << tokens;
          ASSERT_EQ(plan.exact, cache.bytes().exact) << tokens;
          ASSERT_EQ(plan.spare, cache.bytes().spare) << tokens;
          ASSERT_EQ(plan.bookkeeping, cache.bytes().bookkeeping) << tokens;
          ASSERT_GE(plan.total(), before) << tokens;
          before = plan.total();
        }
      }
    }
  }
}

// The figures for Llama-3.1-70B: 2 x 80 layers x 8 kv heads x 128 channels x 2 bytes, and a tile's header.
TEST(Plan, B60_a_token_of_a_known_model) {
  const kvaxis::cache_config c = test::rope_shape(8, 128);
  const test::policies half = test::find("k:f16,v:f16");
  const test::policies int4 = test::find("k:int4-channel32-pre,v:int4-token32");
  double bytes = 0;
  kvaxis::planned_layers layers{&c, half.keys, half.values, 80};
  kvaxis::check(kvaxis::plan_token(&layers, 1, bytes));
  EXPECT_EQ(bytes, 320 * 1024 + 80 * 64.0 / 64);
  layers = {&c, int4.keys, int4.values, 1};
  kvaxis::check(kvaxis::plan_token(&layers, 1, bytes));
  EXPECT_EQ(bytes, 1280 + 64.0 / 32);
}

// A model whose layers differ in shape, policy and window.
class PlanSequence : public ::testing::Test {
 protected:
  PlanSequence() {
    config_.window = 100;
    wide_.window = 10;
    wide_.pins = 0;
    layers_ = {{&config_, int4_.keys, int4_.values, 3}, {&wide_, int8_.keys, int8_.values, 1}};
  }
  [[nodiscard]] int count() const { return static_cast<int>(layers_.size()); }
  [[nodiscard]] std::size_t bytes(std::int64_t tokens) const {
    kvaxis::cache_bytes b;
    kvaxis::check(kvaxis::plan_sequence(layers_.data(), count(), tokens, b));
    return b.total();
  }

  kvaxis::cache_config config_ = test::rope_shape(2, 24, 40);
  kvaxis::cache_config wide_ = test::rope_shape(1, 64);
  test::policies int4_ = test::find("k:int4-channel128-auto,v:int4-token16");
  test::policies int8_ = test::find("k:int8-token32-post,v:int8-channel32");
  std::vector<kvaxis::planned_layers> layers_;
};

TEST_F(PlanSequence, B60_is_the_sum_over_its_layers) {
  const test::tokens data(config_, 700, 2);
  const test::tokens wide(wide_, 700, 3);
  kvaxis::any_kv_cache a = test::cache_of("k:int4-channel128-auto,v:int4-token16", config_);
  kvaxis::any_kv_cache b = test::cache_of("k:int8-token32-post,v:int8-channel32", wide_);
  for (int tokens = 0; tokens <= 700; tokens += 70) {
    kvaxis::cache_bytes plan;
    kvaxis::check(kvaxis::plan_sequence(layers_.data(), count(), tokens, plan));
    EXPECT_EQ(plan.folded, 3 * a.bytes().folded + b.bytes().folded) << tokens;
    EXPECT_EQ(plan.exact, 3 * a.bytes().exact + b.bytes().exact) << tokens;
    EXPECT_EQ(plan.spare, 3 * a.bytes().spare + b.bytes().spare) << tokens;
    EXPECT_EQ(plan.bookkeeping, 3 * a.bytes().bookkeeping + b.bytes().bookkeeping) << tokens;
    if (tokens == 700) break;
    kvaxis::check(data.append_to(a, tokens, 70));
    kvaxis::check(wide.append_to(b, tokens, 70));
  }
  // Once the windows are full, 128 tokens are one tile in three layers and two tiles in the other.
  double per_token = 0;
  kvaxis::check(kvaxis::plan_token(layers_.data(), count(), per_token));
  kvaxis::cache_bytes before;
  kvaxis::cache_bytes after;
  kvaxis::check(kvaxis::plan_sequence(layers_.data(), count(), 1000, before));
  kvaxis::check(kvaxis::plan_sequence(layers_.data(), count(), 1128, after));
  EXPECT_EQ(static_cast<double>(after.folded - before.folded), 128 * per_token);
}

TEST_F(PlanSequence, B60_the_tokens_that_fit_are_the_most_that_do) {
  const std::size_t empty = bytes(0);
  for (const std::size_t budget : {empty, bytes(1), bytes(1) + 1, bytes(700) - 1, bytes(700), bytes(5000) + 99,
                                   std::size_t{1} << 30, std::size_t{1} << 36}) {
    std::int64_t tokens = -1;
    kvaxis::check(kvaxis::plan_tokens(layers_.data(), count(), budget, tokens));
    EXPECT_LE(bytes(tokens), budget);
    EXPECT_GT(bytes(tokens + 1), budget);
  }
  std::int64_t tokens = -1;
  for (const std::size_t budget : {std::size_t{0}, empty - 1}) {
    kvaxis::check(kvaxis::plan_tokens(layers_.data(), count(), budget, tokens));
    EXPECT_EQ(tokens, 0);
  }
  kvaxis::check(kvaxis::plan_tokens(layers_.data(), count(), SIZE_MAX, tokens));
  EXPECT_EQ(tokens, kvaxis::max_position);
}

TEST_F(PlanSequence, refuses_lists_that_mean_nothing) {
  kvaxis::cache_bytes b;
  b.folded = 77;
  double per_token = 77;
  std::int64_t fits = 77;
  const auto refused = [&](const kvaxis::planned_layers* layers, int n, errc code, const std::string& argument,
                           std::int64_t limit) {
    for (const kvaxis::status& s :
         {kvaxis::plan_sequence(layers, n, 100, b), kvaxis::plan_token(layers, n, per_token),
          kvaxis::plan_tokens(layers, n, 1U << 20, fits), kvaxis::plan_sequences(layers, n, 100, 1U << 20, fits)}) {
      EXPECT_EQ(s.code, code);
      EXPECT_EQ(s.argument, argument);
      EXPECT_EQ(s.limit, limit);
    }
  };
  refused(nullptr, 1, errc::invalid_argument, "layers", 1);
  refused(layers_.data(), 0, errc::invalid_argument, "layers", 1);
  layers_[1].config = nullptr;
  refused(layers_.data(), 2, errc::invalid_argument, "layers: config", 1);
  layers_[1].config = &config_;
  for (const int count : {0, -1, kvaxis::max_planned_layers - 2}) {
    layers_[1].count = count;
    refused(layers_.data(), 2, errc::out_of_range, "layers: count", kvaxis::max_planned_layers);
  }
  layers_[1].count = 1;
  layers_[1].values = {};
  refused(layers_.data(), 2, errc::invalid_argument, "value policy", 0);
  layers_[1].values = int8_.values;
  EXPECT_EQ(kvaxis::plan_sequence(layers_.data(), 2, -1, b).code, errc::out_of_range);
  EXPECT_EQ(kvaxis::plan_sequences(layers_.data(), 2, kvaxis::max_position + 1, 1U << 20, fits).code,
            errc::out_of_range);
  EXPECT_EQ(b.folded, 77U);
  EXPECT_EQ(per_token, 77);
  EXPECT_EQ(fits, 77);
}

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
TEST(Plan, B48_counts_in_64_bits) {
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
  kvaxis::any_kv_cache cache =
      test::cache_of("k:int4-channel256-pre,v:int4-token64", test::rope_shape(8, 8), memory.hook());
  const std::string before = test::snapshot(cache);
  memory.fail_after = memory.calls + 100;
  const kvaxis::status s = cache.reserve(kvaxis::max_position);
  EXPECT_EQ(s.code, kvaxis::errc::out_of_memory);
  EXPECT_EQ(s.argument, std::string("allocator"));
  EXPECT_GT(s.limit, 0);
  EXPECT_EQ(test::snapshot(cache) == before, true);
}

// The most that the limits of the library allow, in full precision or quantized.
TEST(Plan, B48_the_largest_sequence_is_counted_in_64_bits) {
  const test::policies found = test::find("k:f32,v:f32");
  kvaxis::cache_config c = test::shape(kvaxis::max_kv_heads, kvaxis::max_head_dim);
  const kvaxis::planned_layers layers{&c, found.keys, found.values, kvaxis::max_planned_layers};
  for (const int window : {0, 1 << 30}) {
    c.window = window;
    kvaxis::cache_bytes one;
    kvaxis::cache_bytes all;
    kvaxis::check(kvaxis::plan_cache(c, found.keys, found.values, kvaxis::max_position, one));
    kvaxis::check(kvaxis::plan_sequence(&layers, 1, kvaxis::max_position, all));
    EXPECT_GT(one.total(), std::size_t{1} << 53);
    EXPECT_EQ(all.total() / kvaxis::max_planned_layers, one.total());
    EXPECT_EQ(all.total() % kvaxis::max_planned_layers, 0U);
  }
}

}  // namespace
