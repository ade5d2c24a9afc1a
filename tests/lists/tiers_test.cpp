// Cheaper policies for older tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "isa_test.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::any_kv_cache;
using kvaxis::errc;

kvaxis::cache_config config_with(const std::vector<std::pair<std::string, int>>& tiers) {
  kvaxis::cache_config c = test::rope_shape(2, 48, 32);
  c.tile_tokens = 32;
  c.window = 40;
  c.pins = 3;
  for (const auto& [name, newer] : tiers) {
    const test::policies p = test::find(name);
    c.older_tiers[static_cast<std::size_t>(c.older_tiers_count++)] = {p.keys, p.values, newer};
  }
  return c;
}

const std::vector<std::pair<std::string, int>> two_tiers = {{"k:int8-token16-tile,v:int8-channel32", 100},
                                                            {"k:int4-channel32-auto,v:int4-token16", 200}};

class tiers : public isa_test {};

TEST_P(tiers, attention_reads_all_of_them) {
  const kvaxis::cache_config c = config_with(two_tiers);
  any_kv_cache cache = test::cache_of("k:e4m3-channel32-pre,v:f16", c);
  test::tokens(c, 400, 1).append_all_to(cache);
  kvaxis::check(cache.demote());
  int seen[3] = {};
  for (int i = 0; i < cache.view().entry_count; ++i) {
    const kvaxis::entry& e = cache.view().entries[i];
    if (e.folded) ++seen[e.tier];
  }
  for (const int n : seen) EXPECT_GT(n, 0);
  const std::vector<float> q = test::numbers(2).uniforms(std::size_t{5} * 4 * 48, 2.0F);
  const test::oracle oracle(cache, c.rope);
  for (const auto arithmetic : {kvaxis::arithmetic::f32, kvaxis::arithmetic::automatic}) {
    kvaxis::attend_options o;
    o.query_heads = 4;
    o.arithmetic = arithmetic;
    const test::oracle::result expected = oracle.attend(q, 5, 396, o);
    std::vector<float> out(std::size_t{5} * 4 * 32);
    std::vector<std::byte> memory(cache.workspace_bytes(5, o));
    kvaxis::check(cache.attend(q.data(), 5, 396, o, out.data(), nullptr, {memory.data(), memory.size()}));
    const double bound = arithmetic == kvaxis::arithmetic::f32 ? oracle.output_bound() : 0.02 * oracle.largest_value();
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected.out[i], bound);
  }
}

TEST_P(tiers, bytes_do_not_depend_on_when_demote_was_called) {
  const kvaxis::cache_config c = config_with(two_tiers);
  const test::tokens t(c, 500, 3);
  any_kv_cache often = test::cache_of("k:int8-channel32-auto,v:int8-token16", c);
  any_kv_cache once = test::cache_of("k:int8-channel32-auto,v:int8-token16", c);
  for (int i = 0; i < 500; ++i) {
    kvaxis::check(t.append_to(often, i, 1));
    kvaxis::check(often.demote());
  }
  t.append_all_to(once);
  kvaxis::check(once.demote());
  EXPECT_EQ(test::contents(often), test::contents(once));
}

KVAXIS_ON_EVERY_ISA(tiers);

TEST(Tiers, a_fork_keeps_the_better_tiles) {
  counting_allocator memory;
  const kvaxis::cache_config c = config_with({{"k:int4-channel32-auto,v:int4-token16", 40}});
  any_kv_cache cache = test::cache_of("k:int8-channel32-auto,v:int8-token16", c, memory.hook());
  test::tokens(c, 400, 1).append_all_to(cache);
  any_kv_cache fork;
  kvaxis::check(cache.fork(fork));
  const std::string before = test::contents(fork);
  const std::size_t folded = cache.bytes().folded;
  kvaxis::check(cache.demote());
  EXPECT_EQ(test::contents(fork), before);
  EXPECT_LT(cache.bytes().folded, folded * 2 / 3);
  const std::size_t both = memory.live_bytes;
  fork = any_kv_cache();
  EXPECT_LT(memory.live_bytes, both);
  EXPECT_EQ(memory.live_bytes, cache.bytes().total());
}

TEST(Tiers, tokens_that_follow_decide) {
  const kvaxis::cache_config c = config_with({{"k:int4-channel32-auto,v:int4-token16", 100}});
  any_kv_cache cache = test::cache_of("k:int8-channel32-auto,v:int8-token16", c);
  const test::tokens t(c, 200, 1);
  kvaxis::check(t.append_to(cache, 0, 3 + 32 + 99));
  kvaxis::check(cache.demote());
  EXPECT_EQ(cache.view().entries[1].tier, 0);
  kvaxis::check(t.append_to(cache, 134, 1));
  kvaxis::check(cache.demote());
  EXPECT_EQ(cache.view().entries[1].tier, 1);
  EXPECT_EQ(cache.view().entries[2].tier, 0);
}

TEST(Tiers, what_does_not_fit_is_refused_by_name) {
  const auto refusal = [](const std::vector<std::pair<std::string, int>>& older, const char* policy) {
    any_kv_cache out;
    const kvaxis::status s = test::make_cache(policy, config_with(older), {}, out);
    EXPECT_EQ(out.format(), nullptr);
    return std::string(s.argument);
  };
  const char* const policy = "k:int8-channel32-auto,v:int8-token16";
  EXPECT_EQ(refusal({{"k:int4-channel64-auto,v:int4-token16", 100}}, policy),
            "older_tiers: group length must be the tile's");
  EXPECT_EQ(refusal({{"k:int4-channel32-post,v:int4-token16", 100}}, policy), "older_tiers: rotation");
  EXPECT_EQ(refusal({{"k:e4m3-tensor@1-pre,v:int4-token16", 100}}, policy), "older_tiers: per_tensor");
  EXPECT_EQ(refusal({{"k:int4-channel32-auto,v:int4-token16", 39}}, policy), "older_tiers: newer_tokens");
  EXPECT_EQ(refusal({two_tiers[1], two_tiers[0]}, policy), "older_tiers: newer_tokens");
  kvaxis::cache_config c = config_with({});
  c.older_tiers_count = 1;
  any_kv_cache out;
  EXPECT_STREQ(test::make_cache(policy, c, {}, out).argument, "older_tiers: policy");
  c.older_tiers_count = 4;
  EXPECT_STREQ(test::make_cache(policy, c, {}, out).argument, "older_tiers_count");
}

// A number that an older tier could not hold is refused when it comes in.
TEST(Tiers, the_range_is_that_of_all_tiers) {
  const kvaxis::cache_config c = config_with({{"k:int4-channel32-auto,v:int4-token16", 100}});
  any_kv_cache cache = test::cache_of("k:f32,v:f32", c);
  test::tokens t(c, 200, 1);
  t.k[5] = 40000.0F;
  EXPECT_EQ(t.append_to(cache, 0, 200).code, errc::out_of_range);
  t.k[5] = 32000.0F;
  t.append_all_to(cache);
  kvaxis::check(cache.demote());
  std::vector<float> key(48);
  kvaxis::check(cache.read_key(40, 0, key.data()));
  for (const float x : key) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace
