// Sequences of several layers on a pool: how many fit, and memory set aside for them.
#include <gtest/gtest.h>

#include <kvaxis/cache/reserve.hpp>
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

kvaxis::cache_config config(int window, int pins) {
  kvaxis::cache_config c = test::rope_shape(2, 40);
  c.window = window;
  c.pins = pins;
  c.tile_tokens = 32;
  return c;
}

class ReserveSequences : public ::testing::Test {
 protected:
  ReserveSequences() : found_(test::find(policy)), other_(test::find(other_policy)) {
    layers_ = {{&config_, found_.keys, found_.values, 2}, {&exact_, other_.keys, other_.values, 1}};
  }
  [[nodiscard]] int layer_count() const { return static_cast<int>(layers_.size()); }
  // Three layers with room for `tokens` tokens; false where one was refused.
  [[nodiscard]] bool add_sequence(tile_pool& pool, std::int64_t tokens) {
    for (const char* const name : {policy, policy, other_policy}) {
      kvaxis::any_kv_cache cache;
      const kvaxis::cache_config& c = name == policy ? config_ : exact_;
      if (!test::make_cache(name, c, pool.memory(), cache).ok() || !cache.reserve(tokens).ok()) return false;
      caches_.push_back(std::move(cache));
    }
    return true;
  }

  kvaxis::cache_config config_ = config(50, 6);
  kvaxis::cache_config exact_ = config(64, 32);  // its pins' tile has the size of the others
  test::policies found_;
  test::policies other_;
  std::vector<kvaxis::planned_layers> layers_;
  std::vector<kvaxis::any_kv_cache> caches_;
};

TEST_F(ReserveSequences, as_many_fit_as_were_planned) {
  for (const std::int64_t tokens : {0, 1, 500}) {
    kvaxis::cache_bytes one;
    kvaxis::check(kvaxis::plan_sequence(layers_.data(), layer_count(), tokens, one));
    for (const std::size_t budget : {one.total() - 1, one.total(), 4 * one.total() - 1, 4 * one.total()}) {
      std::int64_t planned = 0;
      kvaxis::check(kvaxis::plan_sequences(layers_.data(), layer_count(), tokens, budget, planned));
      EXPECT_EQ(planned, static_cast<std::int64_t>(budget / one.total()));
      tile_pool pool(budget);
      for (int i = 0; i < planned; ++i) ASSERT_TRUE(add_sequence(pool, tokens)) << i;
      EXPECT_EQ(pool.counts().used, static_cast<std::size_t>(planned) * one.total());
      EXPECT_FALSE(add_sequence(pool, tokens));
      caches_.clear();
    }
  }
}

TEST_F(ReserveSequences, set_aside_they_need_nothing_from_upstream) {
  kvaxis::cache_bytes one;
  kvaxis::check(kvaxis::plan_sequence(layers_.data(), layer_count(), 500, one));
  counting_allocator upstream;
  tile_pool pool(3 * one.total(), upstream.hook());
  kvaxis::check(kvaxis::reserve_sequences(pool, layers_.data(), layer_count(), 500, 3));
  EXPECT_EQ(pool.counts().free, 3 * one.total());
  const int calls = upstream.calls;
  const test::tokens data(config_, 500, 7);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(add_sequence(pool, 500));
  for (kvaxis::any_kv_cache& cache : caches_) data.append_all_to(cache);
  EXPECT_EQ(upstream.calls, calls);
  EXPECT_EQ(pool.counts().free, 0U);
  caches_.clear();
}

TEST_F(ReserveSequences, setting_aside_is_all_or_nothing) {
  kvaxis::cache_bytes one;
  kvaxis::check(kvaxis::plan_sequence(layers_.data(), layer_count(), 500, one));
  int served = 0;
  for (;; ++served) {
    counting_allocator upstream;
    tile_pool pool(2 * one.total(), upstream.hook());
    upstream.fail_after = served;
    const kvaxis::status s = kvaxis::reserve_sequences(pool, layers_.data(), layer_count(), 500, 1);
    if (s.ok()) break;
    EXPECT_EQ(s.code, errc::out_of_memory);
    EXPECT_EQ(s.argument, std::string("tile_pool"));
    ASSERT_EQ(upstream.live_bytes, 0U) << served;
  }
  EXPECT_GT(served, 30);

  tile_pool pool(2 * one.total());
  const auto refused = [&](int n, std::int64_t tokens, std::int64_t sequences, errc code, const std::string& argument) {
    const std::size_t free = pool.counts().free;
    const kvaxis::status s = kvaxis::reserve_sequences(pool, layers_.data(), n, tokens, sequences);
    EXPECT_EQ(s.code, code);
    EXPECT_EQ(s.argument, argument);
    EXPECT_EQ(pool.counts().free, free);
  };
  refused(layer_count(), 500, 3, errc::out_of_range, "sequences");
  refused(layer_count(), 500, INT64_MAX, errc::out_of_range, "sequences");
  refused(layer_count(), 500, -1, errc::out_of_range, "sequences");
  refused(layer_count(), -1, 1, errc::out_of_range, "tokens");
  refused(0, 500, 1, errc::invalid_argument, "layers");
  kvaxis::check(kvaxis::reserve_sequences(pool, layers_.data(), layer_count(), 500, 0));
  kvaxis::check(kvaxis::reserve_sequences(pool, layers_.data(), layer_count(), 500, 1));
  refused(layer_count(), 500, 2, errc::out_of_memory, "tile_pool");  // beside what is set aside
  EXPECT_EQ(pool.counts().free, one.total());
}

}  // namespace
