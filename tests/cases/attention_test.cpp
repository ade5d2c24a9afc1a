// Field cases about what attention makes of a cache, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "counting_allocator.hpp"
#include "isa_test.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

class Attention : public isa_test {};
KVAXIS_ON_EVERY_ISA(Attention);

const char* const usual = "k:int4-channel32-pre,v:int4-token32";

kvaxis::cache_config with_window(int kv_heads, int dim, int window) {
  kvaxis::cache_config c = test::rope_shape(kv_heads, dim);
  c.window = window;
  return c;
}

// Amplitude 1 and 1024, a power of two so that codes stay the same: outputs and logits follow to the bit, whether
// tokens are folded, in full precision, or both.
TEST_P(Attention, B21_results_follow_the_scales) {
  struct path {
    int window;
    bool flush;
  };
  for (const std::string policy : {"k:int4-channel32-pre,v:int4-token32", "k:int8-token32-tile,v:int8s-channel32",
                                   "k:e4m3-channel32-auto,v:e4m3-token32", "k:e4m3-tensor-pre,v:e4m3-tensor"}) {
    for (const path p : {path{0, true}, path{1000, false}, path{40, false}}) {
      for (const int n_query : {1, 9}) {
        std::vector<float> out[2];
        std::vector<float> logits[2];
        for (int i = 0; i < 2; ++i) {
          const float amplitude = i == 0 ? 1.0F : 1024.0F;
          const float one = 1.0F / 256.0F;
          const float scaled = amplitude / 256.0F;
          kvaxis::cache_config c = with_window(2, 32, p.window);
          c.k_scale = &one;
          c.v_scale = &scaled;
          kvaxis::any_kv_cache values = test::cache_of(policy, c);
          std::swap(c.k_scale, c.v_scale);
          kvaxis::any_kv_cache keys = test::cache_of(policy, c);
          test::tokens data(c, 100, 1, 1.0F, amplitude);
          data.append_all_to(values);
          test::tokens(c, 100, 1, amplitude, 1.0F).append_all_to(keys);
          if (p.flush) {
            kvaxis::check(values.flush());
            kvaxis::check(keys.flush());
          }
          const std::vector<float> q = test::numbers(2).uniforms(static_cast<std::size_t>(n_query * 2 * 32));
          out[i] = test::attend(values, q, n_query, 100).out;
          logits[i] = test::scores(keys, q, n_query, 100);
        }
        for (float& x : out[0]) x *= 1024.0F;
        EXPECT_EQ(out[0], out[1]) << policy;
        for (float& x : logits[0]) x *= 1024.0F;
        EXPECT_EQ(logits[0], logits[1]) << policy;
        EXPECT_GT(*std::max_element(out[1].begin(), out[1].end()), 50.0F);
      }
    }
  }
}

TEST_P(Attention, B22_one_call_of_many_queries_equals_many_calls_of_one) {
  const kvaxis::cache_config c = with_window(2, 32, 60);
  const test::tokens data(c, 200, 3, 30.0F, 0.02F);
  for (const char* const policy : {usual, "k:e4m3-channel64-post,v:int8-token32",
                                   "k:int4-channel64-auto,v:int4-token32", "k:int8-channel128-tile,v:int4-channel32"}) {
    kvaxis::any_kv_cache cache = test::cache_of(policy, c);
    data.append_all_to(cache);
    kvaxis::check(cache.flush());  // queries in the middle of folded tiles
    const std::vector<float> q = test::numbers(4).uniforms(200 * 64, 0.1F);
    std::vector<float> all;
    for (const auto arithmetic : {kvaxis::arithmetic::automatic, kvaxis::arithmetic::f32}) {
      kvaxis::attend_options o;
      o.arithmetic = arithmetic;
      all = test::attend(cache, q, 200, 0, o).out;
      std::vector<float> each;
      for (int i = 0; i < 200; ++i) {
        const std::vector<float> one(q.begin() + 64 * i, q.begin() + 64 * (i + 1));
        const std::vector<float> out = test::attend(cache, one, 1, i, o).out;
        each.insert(each.end(), out.begin(), out.end());
      }
      EXPECT_EQ(all, each) << policy;
    }
    const test::oracle oracle(cache, c.rope);
    const std::vector<double> want = oracle.attend(q, 200, 0, {}).out;
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_NEAR(all[i], want[i], 1e-4 * 0.02 + 1e-7) << policy << " " << i;
  }
}

TEST_P(Attention, B25_keys_are_not_rotated_again_by_use) {
  const kvaxis::cache_config c = with_window(1, 32, 10);
  const test::tokens data(c, 50, 5);
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-auto,v:int4-token32", c);
  data.append_all_to(cache, 1000);
  const std::string before = test::contents(cache);
  const std::vector<float> q = test::numbers(6).uniforms(32);
  const std::vector<float> first = test::attend(cache, q, 1, 1050).out;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(test::attend(cache, q, 1, 1050).out, first) << i;
  EXPECT_EQ(test::contents(cache) == before, true);
}

// Keys go in before RoPE. Keys that the engine rotated itself, with `post` and a rotated query, give the same logits.
TEST_P(Attention, B25_rotated_keys_without_rope_equal_keys_with_rope) {
  const kvaxis::cache_config c = with_window(1, 32, 10);
  const test::tokens data(c, 50, 7);
  test::tokens rotated = data;
  for (int t = 0; t < 50; ++t) kvaxis::rotate(c.rope, 1000 + t, rotated.k.data() + 32 * t);
  std::vector<float> q = test::numbers(8).uniforms(32);
  kvaxis::any_kv_cache with = test::cache_of("k:f32-pre,v:f32", c);
  kvaxis::any_kv_cache post = test::cache_of("k:f32-post,v:f32", c);
  kvaxis::any_kv_cache without = test::cache_of("k:f32,v:f32", [&] {
    kvaxis::cache_config none = c;
    none.rope = {};
    return none;
  }());
  data.append_all_to(with, 1000);
  rotated.append_all_to(post, 1000);
  rotated.append_all_to(without, 1000);
  const std::vector<float> want = test::scores(with, q, 1, 1050);
  kvaxis::rotate(c.rope, 1050, q.data());
  for (const kvaxis::any_kv_cache* cache : {&post, &without}) {
    const std::vector<float> got = test::scores(*cache, q, 1, 1050);
    for (std::size_t i = 0; i < 50; ++i) EXPECT_NEAR(got[i], want[i], 1e-4);
  }
}

// The promise is equal bits: alone, as one row of 32, for any number of threads, again and again.
TEST_P(Attention, B35_the_shape_of_a_call_does_not_change_a_bit) {
  const kvaxis::cache_config c = with_window(2, 32, 128);
  const test::tokens data(c, 1000, 9);
  kvaxis::any_kv_cache cache = test::cache_of(usual, c);
  data.append_all_to(cache);
  const std::vector<float> q = test::numbers(10).uniforms(32 * 64, 3.0F);
  const std::vector<float> row(q.begin(), q.begin() + 64);
  const test::attention alone = test::attend(cache, row, 1, 1000);
  const std::vector<float> many = test::attend(cache, q, 32, 1000).out;
  EXPECT_EQ(std::vector<float>(many.begin(), many.begin() + 64), alone.out);
  for (int threads = 1; threads <= 4; ++threads) {
    const auto pool = [threads](int n, kvaxis::task f) {
      std::vector<std::thread> running;
      for (int first = 0; first < threads; ++first) {
        running.emplace_back([=] {
          for (int i = first; i < n; i += threads) f(i);
        });
      }
      for (std::thread& t : running) t.join();
    };
    for (int i = 0; i < 50; ++i) {
      const test::attention again = test::attend(cache, row, 1, 1000, test::exact(), pool);
      ASSERT_EQ(again.out, alone.out) << threads;
      ASSERT_EQ(again.lse, alone.lse) << threads;
    }
  }
}

TEST_P(Attention, B37_an_empty_cache) {
  const kvaxis::cache_config c = with_window(2, 32, 16);
  const test::tokens data(c, 100, 11);
  kvaxis::any_kv_cache cache = test::cache_of(usual, c);
  const std::vector<float> q = test::numbers(12).uniforms(3 * 64);
  const auto expect_nothing = [&] {
    for (const int n : {1, 3}) {
      const test::attention a = test::attend(cache, q, n, 0);
      for (const float x : a.out) EXPECT_EQ(kvaxis::float_bits(x), 0U);
      for (const float x : a.lse) EXPECT_EQ(kvaxis::float_bits(x), 0xFF800000U);
      EXPECT_TRUE(test::scores(cache, q, n, 0).empty());
      for (const float x : test::weighted_sum(cache, {}, n)) EXPECT_EQ(x, 0.0F);
    }
  };
  expect_nothing();
  kvaxis::check(data.append_to(cache, 0, 0));
  EXPECT_EQ(cache.size(), 0);
  expect_nothing();
  data.append_all_to(cache);
  cache.clear();
  expect_nothing();
  kvaxis::check(data.append_to(cache, 5, 1));
  for (const int n : {1, 3}) {
    const test::attention a = test::attend(cache, q, n, 0);
    for (std::size_t i = 0; i < a.out.size(); ++i) EXPECT_EQ(a.out[i], data.value(5)[i % 64]);
    for (const float x : a.lse) EXPECT_TRUE(std::isfinite(x));
  }
}

// Every way of appending against every way of reading.
TEST_P(Attention, B54_every_route_gives_the_same_result) {
  const kvaxis::cache_config c = with_window(2, 32, 40);
  const test::tokens data(c, 150, 13);
  for (const std::string policy : {usual, "k:int8-channel64-hot3,v:int8-token16", "k:e4m3-token32-pre,v:f16"}) {
    std::vector<kvaxis::any_kv_cache> caches;
    for (int route = 0; route < 4; ++route) {
      kvaxis::any_kv_cache cache = test::cache_of(policy, c);
      const int chunk = route == 0 ? 1 : route == 1 ? 150 : 47;
      for (int t = 0; t < 150; t += chunk) {
        const auto mode = route == 3 ? kvaxis::fold_mode::deferred : kvaxis::fold_mode::now;
        kvaxis::check(data.append_to(cache, t, std::min(chunk, 150 - t), kvaxis::next, mode));
        if (route == 3) kvaxis::check(cache.fold());
      }
      caches.push_back(std::move(cache));
    }
    const test::oracle oracle(caches[0], c.rope);
    kvaxis::attend_options o = test::exact();
    o.query_heads = 4;
    const std::vector<float> q = test::numbers(14).uniforms(64 * 4 * 32);
    const test::oracle::result want = oracle.attend(q, 64, 149, o);
    for (const kvaxis::any_kv_cache& cache : caches) {
      for (const int n : {1, 2, 7, 64}) {
        const std::vector<float> some(q.begin(), q.begin() + n * 4 * 32);
        const test::attention a = test::attend(cache, some, n, 149, o);
        for (std::size_t i = 0; i < a.out.size(); ++i) ASSERT_NEAR(a.out[i], want.out[i], 1e-5) << policy;
        std::vector<float> weights = test::scores(cache, some, n, 149, o);
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = std::exp(weights[i] - a.lse[i / 150]);
        const std::vector<float> out = test::weighted_sum(cache, weights, n, o);
        for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], want.out[i], 1e-5) << policy;
      }
    }
  }
}

// Memory that held NaN everywhere gives the bits of memory that held zeros.
TEST_P(Attention, B63_what_memory_held_before_does_not_matter) {
  const kvaxis::allocator zeros{[](void*, std::size_t bytes, std::size_t alignment) noexcept {
                                  void* p = kvaxis::allocator::default_allocate(nullptr, bytes, alignment);
                                  return p == nullptr ? p : std::memset(p, 0, bytes);
                                },
                                &kvaxis::allocator::default_deallocate, nullptr};
  for (const std::string policy : {usual, "k:int8-channel32-auto,v:int8-channel32", "k:f16-tile,v:bf16"}) {
    for (const int dim : {24, 65}) {
      for (const int tokens : {1, 31, 33, 65}) {
        for (const bool half : {false, true}) {
          kvaxis::cache_config c = with_window(2, dim, 10);
          c.tile_tokens = 32;
          c.half_window = half;
          const test::tokens data(c, tokens, 15);
          counting_allocator ones;  // 0xFF
          kvaxis::any_kv_cache a;
          kvaxis::any_kv_cache b;
          kvaxis::check(test::make_cache(policy, c, ones.hook(), a));
          kvaxis::check(test::make_cache(policy, c, zeros, b));
          data.append_all_to(a);
          data.append_all_to(b);
          const std::vector<float> q = test::numbers(16).uniforms(static_cast<std::size_t>(2 * dim));
          for (int round = 0; round < 2; ++round) {
            const test::attention got = test::attend(a, q, 1, tokens);
            const test::attention want = test::attend(b, q, 1, tokens);
            EXPECT_EQ(got.out, want.out) << policy << " " << dim << " " << tokens;
            EXPECT_EQ(got.lse, want.lse) << policy << " " << dim << " " << tokens;
            for (const float x : got.out) ASSERT_TRUE(std::isfinite(x));
            kvaxis::check(a.flush());
            kvaxis::check(b.flush());
          }
        }
      }
    }
  }
}

}  // namespace
