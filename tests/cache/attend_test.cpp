// Attention over a whole cache, on every instruction set: what may be cut, spread and moved without changing a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "isa_test.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

class Attend : public isa_test {};
KVAXIS_ON_EVERY_ISA(Attend);

// Bits, so that -0 and 0 differ.
void expect_same(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}
void expect_same(const test::attention& a, const test::attention& b, const std::string& what) {
  expect_same(a.out, b.out, what);
  expect_same(a.lse, b.lse, what);
}

// Three ranges of 64 entries: full tiles, tiles cut short by gaps, pins and a window.
kvaxis::any_kv_cache long_cache(const std::string& policy, const kvaxis::cache_config& c) {
  const test::tokens data(c, 4600, 1);
  kvaxis::any_kv_cache cache = test::cache_of(policy, c);
  int first = 0;
  for (int i = 0; i < 70; ++i) {
    kvaxis::check(data.append_to(cache, first, 20 + i % 13, i == 0 ? 0 : cache.next_position() + 1));
    first += 20 + i % 13;
  }
  kvaxis::check(data.append_to(cache, first, data.count - first));
  return cache;
}

kvaxis::cache_config long_shape() {
  kvaxis::cache_config c = test::rope_shape(2, 16);
  c.window = 100;
  c.tile_tokens = 32;
  return c;
}

const std::vector<std::string> long_policies = {"k:int4-channel32-pre,v:int4-token16", "k:int8-channel32-auto,v:f16",
                                                "k:int4-token16-tile,v:int8-channel32"};

TEST_P(Attend, any_grouping_of_queries_gives_the_same_bits) {
  for (const std::string& policy : long_policies) {
    const kvaxis::any_kv_cache cache = long_cache(policy, long_shape());
    ASSERT_GT(cache.view().entry_count, 130);
    kvaxis::attend_options o = test::exact();
    o.query_heads = 6;
    const std::size_t row = 6 * 16;
    const std::vector<float> q = test::numbers(2).uniforms(7 * row, 4.0F);
    const std::int64_t first = cache.next_position() - 5;  // some keys are masked
    const test::attention all = test::attend(cache, q, 7, first, o);
    for (const int size : {1, 2, 3, 6}) {
      test::attention parts;
      for (int i = 0; i < 7; i += size) {
        const int n = size < 7 - i ? size : 7 - i;
        const auto begin = q.begin() + static_cast<std::ptrdiff_t>(row) * i;
        const std::vector<float> some(begin, begin + static_cast<std::ptrdiff_t>(row) * n);
        const test::attention part = test::attend(cache, some, n, first + i, o);
        parts.out.insert(parts.out.end(), part.out.begin(), part.out.end());
        parts.lse.insert(parts.lse.end(), part.lse.begin(), part.lse.end());
      }
      expect_same(parts, all, policy + ", groups of " + std::to_string(size));
    }
  }
}

TEST_P(Attend, any_number_of_tasks_on_any_threads_gives_the_same_bits) {
  const auto backwards = [](int n, kvaxis::task f) {
    for (int i = n; i-- > 0;) f(i);
  };
  const auto threads = [](int n, kvaxis::task f) {
    std::vector<std::thread> pool;
    for (int i = 0; i < n; ++i) pool.emplace_back([&f, i] { f(i); });
    for (std::thread& t : pool) t.join();
  };
  for (const std::string& policy : long_policies) {
    const kvaxis::any_kv_cache cache = long_cache(policy, long_shape());
    for (const int n_query : {1, 5}) {
      const std::vector<float> q = test::numbers(3).uniforms(static_cast<std::size_t>(n_query * 2 * 16), 4.0F);
      const test::attention serial = test::attend(cache, q, n_query, cache.next_position());
      for (const int tasks : {1, 2, 3, 5, 16, 1000}) {
        kvaxis::attend_options o = test::exact();
        o.max_tasks = tasks;
        const std::string what = policy + ", tasks " + std::to_string(tasks);
        expect_same(test::attend(cache, q, n_query, cache.next_position(), o), serial, what);
        expect_same(test::attend(cache, q, n_query, cache.next_position(), o, backwards), serial, what);
        expect_same(test::attend(cache, q, n_query, cache.next_position(), o, threads), serial, what);
      }
    }
  }
}

TEST_P(Attend, the_workspace_may_lie_anywhere_and_hold_anything) {
  const kvaxis::any_kv_cache cache = long_cache(long_policies[0], long_shape());
  const std::vector<float> q = test::numbers(4).uniforms(2 * 16);
  const test::attention want = test::attend(cache, q, 1, cache.next_position(), {});
  const std::size_t bytes = cache.workspace_bytes(1, {});
  for (const int shift : {0, 1, 4, 33, 63}) {
    for (const char fill : {'\0', '\x7F', '\xFF'}) {
      std::vector<char> memory(bytes + 64, fill);
      test::attention a{std::vector<float>(2 * 16), std::vector<float>(2)};
      kvaxis::check(cache.attend(q.data(), 1, cache.next_position(), {}, a.out.data(), a.lse.data(),
                                 {memory.data() + shift, bytes}));
      expect_same(a, want, "shift " + std::to_string(shift));
    }
  }
}

TEST(Workspace, for_a_later_size_is_enough_until_then) {
  for (const int window : {0, 100}) {
    for (const int pins : {0, 4, 255}) {
      kvaxis::cache_config c = long_shape();
      c.window = window;
      c.pins = pins;
      kvaxis::any_kv_cache cache = test::cache_of("k:f16,v:f16", c);
      const test::tokens data(c, 100, 5);
      for (const int n_query : {1, 4}) {
        cache.clear();
        const std::size_t later = cache.workspace_bytes(n_query, {}, 6000);
        while (cache.size() < 6000) {
          data.append_all_to(cache);
          ASSERT_LE(cache.workspace_bytes(n_query, {}), later) << cache.size();
        }
      }
    }
  }
}

// attend is softmax of scores, times the values: the three calls agree.
TEST_P(Attend, scores_and_weighted_sum_make_the_same_result) {
  for (const std::string& policy : long_policies) {
    const kvaxis::any_kv_cache cache = long_cache(policy, long_shape());
    kvaxis::attend_options o = test::exact();
    o.query_heads = 4;
    o.soft_cap = 3.0F;
    const std::vector<float> q = test::numbers(6).uniforms(2 * 4 * 16, 5.0F);
    const std::int64_t first = cache.next_position() - 1000;
    const test::attention want = test::attend(cache, q, 2, first, o);
    std::vector<float> weights = test::scores(cache, q, 2, first, o);
    const auto tokens = static_cast<std::size_t>(cache.size());
    for (std::size_t row = 0; row < 8; ++row) {
      double total = 0;
      for (std::size_t t = 0; t < tokens; ++t) {
        float& w = weights[row * tokens + t];
        const bool masked = cache.size() - static_cast<std::int64_t>(t) < 900;
        EXPECT_TRUE(!masked || std::isinf(w)) << t;
        w = std::exp(w - want.lse[row]);
        total += static_cast<double>(w);
      }
      EXPECT_NEAR(total, 1.0, 1e-5) << policy;
    }
    const std::vector<float> out = test::weighted_sum(cache, weights, 2, o);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], want.out[i], 1e-5) << policy;
  }
}

// A query sees the keys at its own position and before it, and a query that sees none gets zeros; its neighbours keep
// their bits.
TEST_P(Attend, B62_no_visible_key) {
  kvaxis::cache_config c = test::rope_shape(2, 16);
  c.window = 8;
  const test::tokens data(c, 80, 7);
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-pre,v:int4-token16", c);
  kvaxis::check(data.append_to(cache, 0, 80, 100));
  ASSERT_GT(cache.folded_tokens(), 0);
  const std::vector<float> q = test::numbers(8).uniforms(5 * 2 * 16);
  const test::attention a = test::attend(cache, q, 5, 97);  // 97 .. 101: the fourth sees one key, the fifth two
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t h = 0; h < 2; ++h) {
      const float* out = a.out.data() + (i * 2 + h) * 16;
      for (int d = 0; d < 16; ++d) {
        if (i < 3) {
          EXPECT_EQ(kvaxis::float_bits(out[d]), 0U);
        } else if (i == 3) {
          EXPECT_EQ(out[d], data.value(0)[16 * h + static_cast<std::size_t>(d)]);
        }
      }
      EXPECT_EQ(std::isinf(a.lse[i * 2 + h]), i < 3);
      EXPECT_EQ(std::signbit(a.lse[i * 2 + h]) || i >= 3, true);
    }
  }
  const std::vector<float> last(q.end() - 32, q.end());
  const test::attention alone = test::attend(cache, last, 1, 101);
  expect_same(alone.out, std::vector<float>(a.out.end() - 32, a.out.end()), "the neighbour");
  const std::vector<float> masked = test::scores(cache, last, 1, 99);
  for (const float s : masked) EXPECT_TRUE(std::isinf(s) && s < 0);
  const test::attention before = test::attend(cache, last, 1, -1000000);
  for (const float x : before.out) EXPECT_EQ(x, 0.0F);
}

// Positions count, not the order in which tokens came: pieces that lie before, behind and between one another.
TEST_P(Attend, positions_in_any_order) {
  kvaxis::cache_config c = test::rope_shape(2, 24);
  c.window = 33;
  c.pins = 5;
  const test::tokens data(c, 250, 11);
  for (const std::string policy : {"k:int4-channel32-auto,v:int4-token32", "k:f16,v:f32"}) {
    kvaxis::any_kv_cache cache = test::cache_of(policy, c);
    int first = 0;
    struct piece {
      int count;
      std::int64_t position;
    };
    for (const piece p :
         {piece{3, 500}, piece{40, -700}, piece{70, 20}, piece{1, 1000000}, piece{96, 400}, piece{40, -70}}) {
      kvaxis::check(data.append_to(cache, first, p.count, p.position));
      first += p.count;
    }
    const test::oracle oracle(cache, c.rope);
    const std::vector<float> q = test::numbers(12).uniforms(3 * 48, 3.0F);
    for (const std::int64_t position : {-701, -650, -31, 0, 50, 430, 502, 999999, 1000001}) {
      const test::attention got = test::attend(cache, q, 3, position);
      const test::oracle::result want = oracle.attend(q, 3, position, {});
      for (std::size_t i = 0; i < got.out.size(); ++i) {
        EXPECT_NEAR(got.out[i], want.out[i], oracle.output_bound()) << policy << " at " << position;
      }
    }
  }
}

TEST_P(Attend, a_context_of_20000_tokens) {
  kvaxis::cache_config c = test::rope_shape(1, 32);
  c.tile_tokens = 64;
  const test::tokens data(c, 20000, 9);
  for (const std::string policy : {"k:int4-channel64-pre,v:int4-token32", "k:int8-channel64-hot4,v:int8-token32"}) {
    kvaxis::any_kv_cache cache = test::cache_of(policy, c);
    data.append_all_to(cache);
    EXPECT_EQ(cache.exact_tokens(), 4 + 128 + (20000 - 4 - 128) % 64);
    kvaxis::attend_options o = test::exact();
    o.query_heads = 2;
    const std::vector<float> q = test::numbers(10).uniforms(2 * 32, 6.0F);
    const test::attention got = test::attend(cache, q, 1, 20000, o);
    const test::oracle oracle(cache, c.rope);
    const test::oracle::result want = oracle.attend(q, 1, 20000, o);
    for (std::size_t i = 0; i < got.out.size(); ++i) EXPECT_NEAR(got.out[i], want.out[i], oracle.output_bound());
    for (std::size_t i = 0; i < got.lse.size(); ++i) EXPECT_NEAR(got.lse[i], want.lse[i], 2e-5);
  }
}

}  // namespace
