// Cases from the field: sliding windows, sinks, instances, long prompts, compaction. The names begin with their numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "lists.hpp"

namespace {

using namespace cases;

// --- Sliding windows and eviction ------------------------------------------------------------------------------------

// All logits are equal and the value of token t is t: the output is the mean of what is seen.
any_kv_cache counting_cache(int tokens, int pins, bool half = false) {
  kvaxis::cache_config c = test::shape(1, 8);
  c.pins = pins;
  c.half_window = half;
  any_kv_cache cache = test::cache_of("k:int8-channel64-pre,v:f32", c);
  std::vector<float> k(static_cast<std::size_t>(tokens * 8), 0.5F);
  std::vector<float> v(k.size());
  for (int t = 0; t < tokens; ++t) std::fill_n(v.begin() + 8 * t, 8, static_cast<float>(t));
  kvaxis::check(cache.append(k.data(), v.data(), tokens));
  return cache;
}

float mean_seen(const any_kv_cache& cache, std::int64_t position, std::int64_t window, bool pins = false) {
  kvaxis::attend_options o;
  o.sliding_window = window;
  o.pins_visible = pins;
  return attend(cache, std::vector<float>(8, 1.0F), position, o)[0];
}

TEST(SlidingWindow, B44_the_query_itself_is_one_of_them) {
  const any_kv_cache cache = counting_cache(300, 0);
  EXPECT_NEAR(mean_seen(cache, 9, 4), 7.5F, 1e-5F);
  for (const int t : {0, 5, 77, 299}) {
    EXPECT_NEAR(mean_seen(cache, t, 1), static_cast<float>(t), 1e-4F);
    EXPECT_NEAR(mean_seen(cache, t, 300), static_cast<float>(t) / 2, 1e-4F);
    EXPECT_NEAR(mean_seen(cache, t, 5000), static_cast<float>(t) / 2, 1e-4F);
  }
  kvaxis::attend_options o;
  o.sliding_window = 4;
  const std::vector<float> many = attend(cache, std::vector<float>(std::size_t{300} * 8, 1.0F), 0, o);
  for (int t = 0; t < 300; ++t) {
    EXPECT_NEAR(many[static_cast<std::size_t>(8 * t)], mean_seen(cache, t, 4), 1e-4F) << t;
  }
}

TEST(SlidingWindow, B45_masked_or_evicted_it_is_the_same) {
  struct expectation {
    int t;
    float mean;
  };
  const std::vector<expectation> expected = {{5, 2.5F}, {6, 3},     {7, 3.5F},  {8, 4.5F},
                                             {9, 5.5F}, {10, 6.5F}, {20, 16.5F}};
  const std::vector<expectation> with_sinks = {
      {9, (0 + 1 + 44) / 10.0F}, {10, (0 + 1 + 52) / 10.0F}, {20, (0 + 1 + 132) / 10.0F}};
  for (const int sinks : {0, 2}) {
    kvaxis::cache_config c = test::shape(1, 8);
    c.pins = sinks;
    c.window = 8;
    any_kv_cache evicting = test::cache_of("k:int8-channel64-pre,v:f32", c);
    for (int t = 0; t <= 20; ++t) {
      const std::vector<float> k(8, 0.5F);
      const std::vector<float> v(8, static_cast<float>(t));
      kvaxis::check(evicting.append(k.data(), v.data(), 1));
      kvaxis::check(evicting.keep_last(8));
      for (const expectation& e : sinks == 0 ? expected : with_sinks) {
        if (e.t != t) continue;
        EXPECT_NEAR(mean_seen(counting_cache(t + 1, sinks), t, 8, true), e.mean, 1e-4F) << t;
        EXPECT_NEAR(mean_seen(evicting, t, 0), e.mean, 1e-4F) << t;
      }
    }
  }
}

TEST(SlidingWindow, B45_memory_of_an_endless_sequence_is_bounded) {
  counting_allocator memory;
  const kvaxis::cache_config c = config_of(64, 4);
  const test::tokens t(c, 100, 1);
  any_kv_cache cache = test::cache_of(int4_policy, c, memory.hook());
  std::size_t after_1000 = 0;
  for (int i = 0; i < 10000; ++i) {
    kvaxis::check(t.append_to(cache, i % 100, 1));
    kvaxis::check(cache.keep_last(256));
    ASSERT_LE(cache.size(), 260);
    if (i == 1000) after_1000 = memory.peak_bytes;
  }
  EXPECT_EQ(memory.peak_bytes, after_1000);
  EXPECT_EQ(cache.next_position(), 10000);
  expect_oracle(cache, c.rope, 10000);
}

// --- Sinks, instances, order -----------------------------------------------------------------------------------------

TEST(Sinks, B66_every_storage_type_has_them_in_the_denominator) {
  for (const char* policy :
       {int4_policy, "k:int8-channel32-pre,v:int8-token16", "k:e4m3-token16-tile,v:f16", "k:f32,v:f32"}) {
    for (const int window : {0, 100}) {
      any_kv_cache cache = test::cache_of(policy, config_of(window, 0, 32, 1));
      const std::vector<float> k(32, 0.0F);
      const std::vector<float> v(32, 10.0F);
      kvaxis::check(cache.append(k.data(), v.data(), 1));
      kvaxis::check(cache.flush());
      kvaxis::attend_options o;
      float sink = 0.0F;
      o.sink_logits = &sink;
      const std::vector<float> q(32, 1.0F);
      for (const float x : attend(cache, q, 0, o)) EXPECT_NEAR(x, 5.0F, 1e-5F);
      sink = 1000.0F;
      for (const float x : attend(cache, q, 0, o)) EXPECT_NEAR(x, 0.0F, 1e-30F);
    }
  }
}

TEST(Instances, B50_each_cache_keeps_its_own_settings) {
  kvaxis::cache_config a = test::rope_shape(2, 64);
  kvaxis::cache_config b = test::shape(1, 128);
  kvaxis::rope_parameters p;
  p.head_dim = 128;
  p.theta = 1e6;
  kvaxis::check(kvaxis::make_rope(p, b.rope));
  const test::tokens ta(a, 300, 1);
  const test::tokens tb(b, 300, 2);
  const auto filled = [](const char* policy, const kvaxis::cache_config& c, const test::tokens& t) {
    any_kv_cache cache = test::cache_of(policy, c);
    t.append_all_to(cache);
    return cache;
  };
  const any_kv_cache first_a = filled("k:int4-channel64-auto,v:int4-token64", a, ta);
  const any_kv_cache only_b = filled("k:e4m3-token64-pre,v:e4m3-token64", b, tb);
  const any_kv_cache second_a = filled("k:int4-channel64-auto,v:int4-token64", a, ta);
  EXPECT_EQ(test::contents(first_a), test::contents(second_a));
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> q = queries(first_a, 1, 5);
    EXPECT_EQ(attend(first_a, q, 300), attend(second_a, q, 300));
    expect_oracle(only_b, b.rope, 300);
    expect_oracle(first_a, a.rope, 300);
  }
}

// Weights are rounded to 8 bits in integer arithmetic: one weight near 1 and a thousand small ones.
TEST(Weights, B20_small_weights_beside_a_large_one_have_no_bias) {
  test::numbers random(11);
  double error = 0;
  double square = 0;
  constexpr int trials = 64;
  for (int trial = 0; trial < trials; ++trial) {
    kvaxis::cache_config c = test::shape(1, 32);
    c.window = 0;
    c.pins = 0;
    any_kv_cache cache = test::cache_of("k:f32,v:int8-token32", c);
    std::vector<float> k(std::size_t{1001} * 32, 0.0F);
    std::vector<float> v = random.uniforms(k.size());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = 1.0F + 0.5F * v[i];
    const auto large = static_cast<std::size_t>(random.below(1001));
    k[large * 32] = 9.2103F;  // e^9.21 = 10^4
    kvaxis::check(cache.append(k.data(), v.data(), 1001));
    kvaxis::check(cache.flush());
    std::vector<float> q(32, 0.0F);
    q[0] = 1.0F;
    kvaxis::attend_options o;
    o.scale = 1.0F;
    const test::oracle oracle(cache, c.rope);
    const std::vector<double> expected = oracle.attend(q, 1, 1001, o).out;
    const std::vector<float> got = attend(cache, q, 1001, o);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double e = static_cast<double>(got[i]) - expected[i];
      error += e;
      square += e * e;
      ASSERT_LE(std::fabs(e), std::fabs(expected[i]) / 16);
    }
  }
  const double n = trials * 32;
  EXPECT_LE(std::fabs(error / n), std::max(std::sqrt(square / n) / 4, 1e-6));
}

TEST(Metrics, B68_logit_errors_of_integers_and_floats_with_and_without_an_outlier) {
  test::numbers random(12);
  const auto error_of = [&](const char* policy, float outlier) {
    kvaxis::cache_config c = test::shape(1, 128);
    c.window = 0;
    c.pins = 0;
    any_kv_cache cache = test::cache_of(policy, c);
    std::vector<float> k = random.bells(std::size_t{512} * 128);
    for (std::size_t i = 0; outlier > 1 && i < k.size(); i += 32)
      k[i + static_cast<std::size_t>(random.below(32))] *= outlier;
    kvaxis::check(cache.append(k.data(), k.data(), 512));
    double square = 0;
    double scale = 0;
    std::vector<float> key(128);
    for (int t = 0; t < 512; ++t) {
      const std::vector<float> q = random.bells(128);
      kvaxis::check(cache.read_key(t, 0, key.data()));
      double exact = 0;
      double rounded = 0;
      for (std::size_t i = 0; i < 128; ++i) {
        exact += static_cast<double>(q[i]) * static_cast<double>(k[static_cast<std::size_t>(t) * 128 + i]);
        rounded += static_cast<double>(q[i]) * static_cast<double>(key[i]);
      }
      square += (rounded - exact) * (rounded - exact);
      scale += exact * exact;
    }
    return std::sqrt(square / scale);
  };
  const double int8_plain = error_of("k:int8-token32-pre,v:f16", 1);
  const double fp8_plain = error_of("k:e4m3-token32-pre,v:f16", 1);
  EXPECT_GT(int8_plain, 0.0025);
  EXPECT_LT(int8_plain, 0.010);
  EXPECT_GT(fp8_plain, 0.012);
  EXPECT_LT(fp8_plain, 0.048);
  // With one number of 100 times the size in each group the floats gain on the integers.
  const double int8_outlier = error_of("k:int8-token32-pre,v:f16", 100);
  const double fp8_outlier = error_of("k:e4m3-token32-pre,v:f16", 100);
  EXPECT_LT(fp8_outlier / int8_outlier, 0.7 * fp8_plain / int8_plain);
}

TEST(Prompt, B71_chunks_up_to_the_end_then_decoding) {
  for (const int dim : {96, 256}) {
    const kvaxis::cache_config c = config_of(64, 4, dim, 1);
    for (const int prompt : {1024, 1023}) {
      const test::tokens t(c, 1024, 13);
      any_kv_cache cache = test::cache_of(int4_policy, c);
      kvaxis::check(cache.reserve(1024));
      for (int first = 0; first < prompt; first += 256) {
        kvaxis::check(t.append_to(cache, first, std::min(256, prompt - first)));
      }
      for (int i = prompt; i < 1024; ++i) kvaxis::check(t.append_to(cache, i, 1));
      any_kv_cache at_once = test::cache_of(int4_policy, c);
      t.append_all_to(at_once);
      EXPECT_EQ(test::contents(cache), test::contents(at_once));
      expect_oracle(cache, c.rope, 1024);
    }
  }
}

// Tokens are taken out of one shared list of many sequences' tokens: each third sequence, by range.
TEST(Compaction, B72_survivors_are_what_they_were) {
  for (const int total : {2040, 2048, 2056}) {
    const kvaxis::cache_config c = config_of(64, 0, 16, 1);
    const test::tokens t(c, total, 14);
    any_kv_cache cache = test::cache_of(int4_policy, c);
    t.append_all_to(cache);
    const std::vector<float> before = read_all(cache);
    const std::size_t per_token = before.size() / static_cast<std::size_t>(total);
    std::vector<float> survivors;
    std::vector<std::int64_t> positions;
    const int length = total / 50;
    for (int s = 49; s >= 0; --s) {
      const int end = s == 49 ? total : (s + 1) * length;
      if (s % 3 == 2) kvaxis::check(cache.erase(s * length, end - s * length));
    }
    for (int s = 0; s < 50; ++s) {
      const int end = s == 49 ? total : (s + 1) * length;
      for (int i = s * length; s % 3 != 2 && i < end; ++i) {
        const auto from = before.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * per_token);
        survivors.insert(survivors.end(), from, from + static_cast<std::ptrdiff_t>(per_token));
        positions.push_back(i);
      }
    }
    EXPECT_EQ(read_all(cache), survivors);
    EXPECT_EQ(test::positions_of(cache), positions);
    expect_oracle(cache, c.rope, total);
  }
}

}  // namespace
