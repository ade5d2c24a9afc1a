// Which keys a query sees: sliding windows, pins, positions of single queries, sink logits; and many caches at once.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isa_test.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::any_kv_cache;
using kvaxis::attend_options;

constexpr int kv_heads = 2;
constexpr int query_heads = 6;
constexpr int dim = 24;
constexpr int tokens_count = 333;

// Every kind of storage: hot pairs with integer sums, f32, codes without a kernel for their axis, full precision.
const std::vector<std::string> policies = {"k:int4-channel64-auto,v:int4-token16",
                                           "k:int8-channel64-pre,v:int8-token16",
                                           "k:e4m3-token16-tile,v:int4-channel64", "k:f16,v:f32"};

struct filled {
  kvaxis::cache_config config;
  any_kv_cache cache;

  explicit filled(const std::string& policy) : config(test::rope_shape(kv_heads, dim)) {
    config.window = 70;
    config.pins = 3;
    cache = test::cache_of(policy, config);
    test::tokens(config, tokens_count, 5).append_all_to(cache, 1000);
  }
};

struct answer {
  std::vector<float> out;
  std::vector<float> lse;

  answer(const any_kv_cache& cache, const std::vector<float>& q, int n, std::int64_t first, const attend_options& o)
      : out(static_cast<std::size_t>(n * query_heads * dim), 12345.0F), lse(static_cast<std::size_t>(n * query_heads)) {
    std::vector<std::byte> memory(cache.workspace_bytes(n, o));
    kvaxis::check(cache.attend(q.data(), n, first, o, out.data(), lse.data(), {memory.data(), memory.size()}));
  }
};

class masks : public isa_test {
 protected:
  // Against the oracle, with f32 arithmetic.
  void expect_oracle(const filled& f, int n, std::int64_t first, attend_options o) {
    o.query_heads = query_heads;
    o.arithmetic = kvaxis::arithmetic::f32;
    const std::vector<float> q = random_.uniforms(static_cast<std::size_t>(n * query_heads * dim), 2.0F);
    const test::oracle oracle(f.cache, f.config.rope);
    const test::oracle::result expected = oracle.attend(q, n, first, o);
    const answer got(f.cache, q, n, first, o);
    for (std::size_t i = 0; i < got.out.size(); ++i) {
      ASSERT_NEAR(got.out[i], expected.out[i], oracle.output_bound()) << "number " << i;
    }
    for (std::size_t i = 0; i < got.lse.size(); ++i) {
      if (std::isinf(expected.lse[i])) {
        ASSERT_EQ(got.lse[i], -INFINITY);
      } else {
        ASSERT_NEAR(got.lse[i], expected.lse[i], 1e-4);
      }
    }
  }

  test::numbers random_{3};
};

TEST_P(masks, sliding_windows_of_every_policy) {
  for (const std::string& policy : policies) {
    SCOPED_TRACE(policy);
    const filled f(policy);
    for (const std::int64_t window : {1, 31, 64, 100, 332, 1000}) {
      for (const bool pins : {false, true}) {
        SCOPED_TRACE(window);
        attend_options o;
        o.sliding_window = window;
        o.pins_visible = pins;
        expect_oracle(f, 1, 1332, o);
        expect_oracle(f, 1, 1150, o);
        expect_oracle(f, 40, 1300, o);
        expect_oracle(f, 5, 2000, o);  // past all keys
        expect_oracle(f, 3, 998, o);   // the first of them sees none
      }
    }
  }
}

TEST_P(masks, sink_logits_join_the_denominator) {
  std::vector<float> sinks = {0.0F, 3.0F, -50.0F, 1000.0F, -1000.0F, 1.5F};
  for (const std::string& policy : policies) {
    SCOPED_TRACE(policy);
    const filled f(policy);
    attend_options o;
    o.sink_logits = sinks.data();
    expect_oracle(f, 1, 1332, o);
    expect_oracle(f, 17, 1310, o);
    expect_oracle(f, 1, 999, o);  // no key: out 0, the log-sum-exp is the sink
    o.soft_cap = 2.0F;
    o.sliding_window = 50;
    expect_oracle(f, 9, 1310, o);
  }
}

TEST_P(masks, queries_at_positions_of_their_own) {
  std::vector<std::int64_t> positions;
  for (int i = 0; i < 50; ++i) positions.push_back(1250 + random_.below(90));
  for (const std::string& policy : policies) {
    SCOPED_TRACE(policy);
    const filled f(policy);
    attend_options o;
    o.query_positions = positions.data();
    expect_oracle(f, 50, 0, o);
    o.sliding_window = 77;
    expect_oracle(f, 50, 0, o);
  }
}

TEST_P(masks, each_query_alone_has_the_same_bits) {
  std::vector<std::int64_t> positions;
  for (int i = 0; i < 24; ++i) positions.push_back(1180 + random_.below(160));
  const std::vector<float> q = random_.uniforms(24 * query_heads * dim, 2.0F);
  for (const std::string& policy : policies) {
    const filled f(policy);
    for (const int window : {0, 7, 120, 300}) {
      attend_options o;
      o.query_heads = query_heads;
      o.sliding_window = window;
      o.query_positions = positions.data();
      const answer together(f.cache, q, 24, 0, o);
      o.query_positions = nullptr;
      for (int i = 0; i < 24; ++i) {
        const auto at = static_cast<std::ptrdiff_t>(i) * query_heads * dim;
        const std::vector<float> one(q.begin() + at, q.begin() + at + query_heads * dim);
        const answer alone(f.cache, one, 1, positions[static_cast<std::size_t>(i)], o);
        const std::vector<float> part(together.out.begin() + at, together.out.begin() + at + query_heads * dim);
        ASSERT_EQ(part, alone.out) << policy << ", window " << window << ", query " << i;
      }
    }
  }
}

TEST_P(masks, a_batch_has_the_bits_of_its_calls) {
  std::vector<filled> caches;
  for (const std::string& policy : policies) caches.emplace_back(policy);
  kvaxis::check(caches[1].cache.truncate(0));
  kvaxis::check(caches[2].cache.truncate(5));
  const std::vector<float> q = random_.uniforms(20 * query_heads * dim, 2.0F);
  std::vector<kvaxis::attend_request> requests;
  std::vector<std::vector<float>> outs;
  std::vector<answer> alone;
  for (const int n : {1, 0, 20, 3}) {
    for (const filled& f : caches) {
      kvaxis::attend_request r;
      r.cache = &f.cache;
      r.q = q.data();
      r.n_query = n;
      r.first_position = 1320;
      r.options.query_heads = query_heads;
      alone.emplace_back(f.cache, q, n, 1320, r.options);
      outs.emplace_back(static_cast<std::size_t>(n * query_heads * dim), 12345.0F);
      requests.push_back(r);
    }
  }
  for (std::size_t i = 0; i < outs.size(); ++i) requests[i].out = outs[i].data();
  requests[4].out = requests[5].out = requests[6].out = requests[7].out = outs[0].data();  // of no query
  const int count = static_cast<int>(requests.size());
  for (const int tasks : {1, 3, 16, 100}) {
    for (std::vector<float>& out : outs) std::fill(out.begin(), out.end(), 12345.0F);
    std::vector<std::byte> memory(any_kv_cache::batch_bytes(requests.data(), count, tasks));
    int most_tasks = 0;
    const auto backwards = [&](int n, kvaxis::task f) {
      most_tasks = std::max(most_tasks, n);
      for (int i = n - 1; i >= 0; --i) f(i);
    };
    kvaxis::check(any_kv_cache::attend_batch(requests.data(), count, tasks, {memory.data(), memory.size()}, backwards));
    EXPECT_LE(most_tasks, tasks);
    for (std::size_t i = 0; i < outs.size(); ++i) ASSERT_EQ(outs[i], alone[i].out) << "request " << i;
  }
}

TEST_P(masks, a_batch_is_checked_before_it_runs) {
  const filled f(policies[0]);
  std::vector<float> q(query_heads * dim, 1.0F);
  std::vector<float> bad = q;
  bad[3] = NAN;
  std::vector<float> out(q.size(), 12345.0F);
  const std::vector<float> untouched = out;
  kvaxis::attend_request good;
  good.cache = &f.cache;
  good.q = q.data();
  good.n_query = 1;
  good.first_position = 1332;
  good.options.query_heads = query_heads;
  good.out = out.data();
  kvaxis::attend_request requests[] = {good, good};
  std::vector<std::byte> memory(any_kv_cache::batch_bytes(requests, 2, 4));
  const kvaxis::workspace workspace{memory.data(), memory.size()};
  const auto refusal = [&](const char* argument) {
    int failed = -2;
    const kvaxis::status s = any_kv_cache::attend_batch(requests, 2, 4, workspace, {}, &failed);
    EXPECT_STREQ(s.argument, argument);
    EXPECT_EQ(failed, 1);
    EXPECT_EQ(out, untouched);
  };
  requests[1].q = bad.data();
  refusal("q");
  requests[1] = good;
  requests[1].cache = nullptr;
  refusal("requests: cache");
  EXPECT_EQ(any_kv_cache::batch_bytes(requests, 2, 4), 0U);
  requests[1] = good;
  requests[1].out = nullptr;
  refusal("out");
  requests[1] = good;
  requests[1].options.query_heads = 5;
  refusal("query_heads");
  requests[1] = good;
  EXPECT_STREQ(any_kv_cache::attend_batch(requests, 2, 4, {memory.data(), memory.size() - 1}).argument, "workspace");
  EXPECT_EQ(out, untouched);
  EXPECT_TRUE(any_kv_cache::attend_batch(requests, 2, 4, workspace).ok());
  EXPECT_NE(out, untouched);
}

KVAXIS_ON_EVERY_ISA(masks);

}  // namespace
