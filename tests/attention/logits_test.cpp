// Scale, soft cap, mask, and logits at the ends of the range.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "against_oracle.hpp"

namespace {

class Logits : public isa_test {};

// One kv head of 128 channels without RoPE. The keys are given, the value of token t is values[t] in every channel.
kvaxis::any_kv_cache cache_with(const std::string& name, const std::vector<std::vector<float>>& keys,
                                const std::vector<float>& values, int window) {
  test::shape s;
  s.kv_heads = 1;
  s.head_dim = 128;
  s.window = window;
  s.pins = 0;
  kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(s));
  for (std::size_t t = 0; t < keys.size(); ++t) {
    const std::vector<float> v(128, values[t]);
    kvaxis::check(cache.append(keys[t].data(), v.data(), 1));
  }
  if (window == 0) kvaxis::check(cache.flush());
  return cache;
}

const char* const storages[] = {"k:int4-channel64,v:int4-token64", "k:int8-token64,v:int8-token64",
                                "k:e4m3-tensor@1,v:e4m3-tensor@1", "k:f16,v:f16", "k:f32,v:f32"};

TEST(Options, scale_cap_and_mask_in_every_storage) {
  const kvaxis::rope rope = test::rope_of(64);
  for (const char* name :
       {"k:int4-channel64-pre,v:int4-token64", "k:int8-token64-tile,v:e4m3-channel64", "k:f16,v:f16"}) {
    SCOPED_TRACE(name);
    kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of({}, rope));
    test::append_random(cache, 200, 1);
    const test::agreement check(cache, rope);
    for (const float cap : {0.0F, 20.0F, 50.0F}) {
      for (const float scale : {0.0F, 1.0F, 0.01F}) check.expect({3, 1, 199, scale, cap});
      check.expect({1, 70, 130, 0.0F, cap});  // a causal chunk over the last tokens
      check.expect({5, 9, 0, 0.0F, cap});     // the first queries see only the first keys
    }
  }
}

// A causal mask by position, one key more for each query.
TEST_P(Logits, every_query_sees_the_keys_up_to_its_own_position) {
  std::vector<float> values;
  for (int t = 0; t < 100; ++t) values.push_back(static_cast<float>(t));
  const kvaxis::any_kv_cache cache =
      cache_with("k:f32,v:f32", std::vector<std::vector<float>>(100, std::vector<float>(128, 0.0F)), values, 40);
  const test::attention a = test::attend(cache, std::vector<float>(110 * 128, 1.0F), 110, -5);
  for (int i = 0; i < 110; ++i) {
    const int seen = std::min(std::max(i - 5 + 1, 0), 100);
    const float mean = seen == 0 ? 0.0F : static_cast<float>(seen - 1) / 2;
    EXPECT_NEAR(a.out[static_cast<std::size_t>(i * 128 + 77)], mean, 1e-5F * (1 + mean)) << i;
    if (seen == 0) {
      EXPECT_EQ(a.out[static_cast<std::size_t>(i * 128 + 77)], 0.0F);
      EXPECT_EQ(kvaxis::float_bits(a.lse[static_cast<std::size_t>(i)]), 0xFF800000U);
    } else {
      EXPECT_NEAR(a.lse[static_cast<std::size_t>(i)], std::log(static_cast<float>(seen)), 1e-5F);
    }
  }
}

TEST_P(Logits, B64_a_product_beyond_the_range_of_half) {
  const std::vector<float> q(128, 40.0F);
  for (const char* name : {"k:int4-channel64,v:f32", "k:int8-token64,v:f32", "k:e4m3-tensor@1,v:f32", "k:f16,v:f32"}) {
    const kvaxis::any_kv_cache one = cache_with(name, {std::vector<float>(128, 40.0F)}, {3.25F}, 0);
    ASSERT_EQ(one.folded_tokens(), 1);
    const test::attention a = test::attend(one, q, 1, 0);
    for (const float x : a.out) EXPECT_EQ(x, 3.25F) << name;
    EXPECT_NEAR(a.lse[0], 18101.93, 0.02) << name;
  }
  // Two keys in full precision whose logits differ by 1 at that level.
  std::vector<float> less(128, 40.0F);
  less[5] -= std::sqrt(128.0F) / 40.0F;
  const kvaxis::any_kv_cache two = cache_with("k:f32,v:f32", {std::vector<float>(128, 40.0F), less}, {1.0F, 0.0F}, 100);
  EXPECT_EQ(two.exact_tokens(), 2);
  EXPECT_NEAR(test::attend(two, q, 1, 1).out[0], 0.731F, 1e-2F);
}

// Logits of 100 and 90 before the cap of 50.
TEST_P(Logits, B65_the_cap_in_every_storage_and_in_both_halves) {
  kvaxis::attend_options o = test::exact();
  o.scale = 1.0F;
  std::vector<float> q(128, 0.0F);
  q[0] = 1.0F;
  std::vector<float> k100(128, 0.0F);
  std::vector<float> k90(128, 0.0F);
  k100[0] = 100.0F;
  k90[0] = 90.0F;
  for (const char* name : storages) {
    for (const int window : {0, 100}) {
      const kvaxis::any_kv_cache cache = cache_with(name, {k100, k90}, {1.0F, 0.0F}, window);
      std::vector<float> first(128);
      std::vector<float> second(128);
      kvaxis::check(cache.read_key(0, 0, first.data()));
      kvaxis::check(cache.read_key(1, 0, second.data()));
      const double capped[2] = {50 * std::tanh(static_cast<double>(first[0]) / 50),
                                50 * std::tanh(static_cast<double>(second[0]) / 50)};
      o.soft_cap = 50.0F;
      const std::vector<float> logits = test::scores(cache, q, 1, 1, o);
      EXPECT_NEAR(logits[0], capped[0], 2e-5) << name;
      EXPECT_NEAR(logits[1], capped[1], 2e-5) << name;
      if (first[0] == 100.0F && second[0] == 90.0F) {
        EXPECT_NEAR(logits[0], 48.2014, 1e-4) << name;
        EXPECT_NEAR(logits[1], 47.3403, 1e-4) << name;
        EXPECT_NEAR(test::attend(cache, q, 1, 1, o).out[0], 0.7029F, 1e-4F) << name;
        std::vector<float> two_queries = q;
        two_queries.insert(two_queries.end(), q.begin(), q.end());
        EXPECT_NEAR(test::attend(cache, two_queries, 2, 0, o).out[128], 0.7029F, 1e-4F) << name << ", two queries";
      }
      o.soft_cap = 0.0F;
      const double apart = static_cast<double>(first[0]) - static_cast<double>(second[0]);
      EXPECT_NEAR(test::attend(cache, q, 1, 1, o).out[0], 1 / (1 + std::exp(-apart)), 1e-5) << name << ", uncapped";
    }
  }
}

// Logits far below the others, far above what exp takes, and all equal.
TEST_P(Logits, spread_over_the_whole_range) {
  for (const float top : {0.0F, 1000.0F, -1000.0F, 3.0e4F}) {
    std::vector<std::vector<float>> keys;
    std::vector<float> values;
    for (int t = 0; t < 70; ++t) {
      std::vector<float> k(128, 0.0F);
      k[3] = top - static_cast<float>(t * t);
      keys.push_back(k);
      values.push_back(static_cast<float>(t % 7));
    }
    std::vector<float> q(128, 0.0F);
    q[3] = 1.0F;
    kvaxis::attend_options o = test::exact();
    o.scale = 1.0F;
    const kvaxis::any_kv_cache cache = cache_with("k:f32,v:f32", keys, values, 30);
    const test::oracle truth(cache, {});
    const test::attention a = test::attend(cache, q, 1, 69, o);
    const test::oracle::result expected = truth.attend(q, 1, 69, o);
    EXPECT_NEAR(a.out[0], expected.out[0], 1e-5) << top;
    EXPECT_NEAR(a.lse[0], expected.lse[0], 1e-6 * std::fabs(static_cast<double>(top)) + 1e-5) << top;
  }
}

KVAXIS_ON_EVERY_ISA(Logits);

}  // namespace
