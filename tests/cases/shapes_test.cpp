// Field cases about shapes: head sizes, ragged groups, query heads, and what create() says about every combination.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "calls.hpp"
#include "isa_test.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

class Shapes : public isa_test {};
KVAXIS_ON_EVERY_ISA(Shapes);

kvaxis::cache_config all_folded(int kv_heads, int head_dim, int value_dim = 0) {
  kvaxis::cache_config c = test::rope_shape(kv_heads, head_dim, value_dim);
  c.window = 0;
  c.pins = 0;
  return c;
}

// The largest error of numbers between lo and hi in asymmetric codes of 2^bits - 1 steps with parameters in binary16.
double affine_bound(int bits, float lo, float hi) {
  const double range = static_cast<double>(hi) - static_cast<double>(lo);
  const double largest = std::max(std::fabs(static_cast<double>(lo)), std::fabs(static_cast<double>(hi)));
  return range / (std::exp2(bits) - 1) / 2 * 1.02 + std::exp2(-11) * (largest + range);
}

double symmetric_bound(int bits, float lo, float hi) {
  const double largest = std::max(std::fabs(static_cast<double>(lo)), std::fabs(static_cast<double>(hi)));
  return largest / (std::exp2(bits) - 2) * 1.02;
}

void expect_attention_as_the_oracle(const kvaxis::any_kv_cache& cache, const kvaxis::rope& rope, int query_heads,
                                    const std::string& what) {
  kvaxis::attend_options o = test::exact();
  o.query_heads = query_heads;
  const std::vector<float> q =
      test::numbers(3).uniforms(static_cast<std::size_t>(query_heads * cache.format()->head_dim), 2.0F);
  const test::attention got = test::attend(cache, q, 1, cache.next_position(), o);
  const test::oracle oracle(cache, rope);
  const test::oracle::result want = oracle.attend(q, 1, cache.next_position(), o);
  for (std::size_t i = 0; i < got.out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got.out[i])) << what;
    ASSERT_NEAR(got.out[i], want.out[i], oracle.output_bound()) << what << " column " << i;
  }
}

// Heads that are no multiple of a block: every channel reads back within its own group's bound, the last ones too.
TEST_P(Shapes, B01_heads_that_no_block_divides) {
  constexpr int tokens = 70;
  for (const int dim : {40, 72, 80, 96, 100, 112, 120}) {
    for (const int bits : {4, 8}) {
      for (const bool symmetric : {false, true}) {
        const std::string codec = "int" + std::to_string(bits) + (symmetric ? "s" : "");
        const std::string policy = "k:" + codec + "-channel32-pre,v:" + codec + "-token32";
        const kvaxis::cache_config c = all_folded(1, dim);
        const test::tokens data(c, tokens, static_cast<std::uint64_t>(dim));
        kvaxis::any_kv_cache cache = test::cache_of(policy, c);
        data.append_all_to(cache);
        kvaxis::check(cache.flush());
        ASSERT_EQ(cache.folded_tokens(), tokens);
        const auto bound = symmetric ? symmetric_bound : affine_bound;
        std::vector<float> row(static_cast<std::size_t>(dim));
        for (int t = 0; t < tokens; ++t) {
          const int begin = t / 32 * 32;
          const int end = std::min(begin + 32, tokens);
          kvaxis::check(cache.read_key(t, 0, row.data()));
          for (int d = 0; d < dim; ++d) {
            float lo = data.key(t)[d];
            float hi = lo;
            for (int i = begin; i < end; ++i) {
              lo = std::min(lo, data.key(i)[d]);
              hi = std::max(hi, data.key(i)[d]);
            }
            ASSERT_NEAR(row[static_cast<std::size_t>(d)], data.key(t)[d], bound(bits, lo, hi)) << policy << " " << d;
          }
          kvaxis::check(cache.read_value(t, 0, row.data()));
          for (int d = 0; d < dim; ++d) {
            const float* first = data.value(t) + d / 32 * 32;
            const auto [lo, hi] = std::minmax_element(first, first + std::min(32, dim - d / 32 * 32));
            ASSERT_NEAR(row[static_cast<std::size_t>(d)], data.value(t)[d], bound(bits, *lo, *hi))
                << policy << " " << d;
          }
        }
        expect_attention_as_the_oracle(cache, c.rope, 1, policy + " " + std::to_string(dim));
      }
    }
  }
}

// A group that does not divide the head is served from the start: its last, ragged group has a scale of its own.
TEST(Shapes, B02_ragged_last_group_of_a_head_of_96) {
  const kvaxis::cache_config c = all_folded(1, 96);
  test::tokens data(c, 64, 5);
  for (std::size_t i = 0; i < data.v.size(); ++i) data.v[i] *= i % 96 < 64 ? 100.0F : 0.01F;
  for (const int group : {32, 64, 128}) {
    const std::string policy = "k:int4-token" + std::to_string(group) + "-pre,v:int4-token" + std::to_string(group);
    kvaxis::any_kv_cache cache = test::cache_of(policy, c);
    data.append_all_to(cache);
    ASSERT_EQ(cache.folded_tokens(), 64);
    std::vector<float> row(96);
    for (int t = 0; t < 64; ++t) {
      kvaxis::check(cache.read_value(t, 0, row.data()));
      for (int d = 0; d < 96; ++d) {
        const int begin = d / group * group;
        const float* first = data.value(t) + begin;
        const auto [lo, hi] = std::minmax_element(first, first + std::min(group, 96 - begin));
        ASSERT_NEAR(row[static_cast<std::size_t>(d)], data.value(t)[d], affine_bound(4, *lo, *hi))
            << policy << " " << d;
      }
    }
  }
}

// Every head size there is, odd ones too: the whole output is written, and channels beyond 64 count.
TEST_P(Shapes, B03_no_column_is_left_out) {
  const auto check_dim = [](const std::string& policy, int dim, int value_dim) {
    const kvaxis::cache_config c = all_folded(2, dim, value_dim);
    test::tokens data(c, 5, static_cast<std::uint64_t>(dim));
    kvaxis::any_kv_cache cache = test::cache_of(policy, c);
    data.append_all_to(cache);
    kvaxis::check(cache.flush());
    const std::vector<float> q = test::numbers(6).uniforms(2 * static_cast<std::size_t>(dim));
    for (const float x : test::attend(cache, q, 1, 5).out) ASSERT_NE(x, 12345.0F) << dim;
    expect_attention_as_the_oracle(cache, c.rope, 2, policy + " " + std::to_string(dim));
  };
  for (int dim = kvaxis::min_head_dim; dim <= kvaxis::max_head_dim; ++dim) {
    if (dim > 264 && dim % 8 > 1 && dim < 570) continue;
    const int turn = dim % 4;
    check_dim(turn == 0   ? "k:int4-channel32-pre,v:int4-token64"
              : turn == 1 ? "k:int8-channel32-auto,v:f16"
              : turn == 2 ? "k:int4-token32-tile,v:int4-token16"
                          : "k:f32-pre,v:e4m3-channel32",
              dim, dim % 5 == 0 ? 8 + dim % 97 : dim);
  }
  for (const int dim : {65, 72, 129, 193, 257, 512, 576}) {
    for (const char* const policy : {"k:int4-channel32-auto,v:int4-token64", "k:int8-channel32-hot2,v:int8-token64",
                                     "k:int4-channel32-pre,v:f32"}) {
      check_dim(policy, dim, dim);
    }
  }
}

TEST_P(Shapes, B03_channels_beyond_64_change_the_output) {
  for (const int dim : {72, 100, 512, 576}) {
    kvaxis::cache_config c = test::shape(1, dim);
    c.window = c.pins = 0;
    std::vector<float> k(static_cast<std::size_t>(5 * dim));
    std::vector<float> v(k.size());
    for (int t = 0; t < 5; ++t) {
      for (int d = 64; d < dim; ++d) {
        k[static_cast<std::size_t>(t * dim + d)] = static_cast<float>(t) * 0.1F;
        v[static_cast<std::size_t>(t * dim + d)] = static_cast<float>(t + d);
      }
    }
    kvaxis::any_kv_cache cache = test::cache_of("k:int8-channel32-pre,v:int8-token64", c);
    kvaxis::check(cache.append(k.data(), v.data(), 5));
    kvaxis::check(cache.flush());
    std::vector<float> q(static_cast<std::size_t>(dim));
    const std::vector<float> before = test::attend(cache, q, 1, 5).out;
    q.back() = 30.0F;
    const std::vector<float> after = test::attend(cache, q, 1, 5).out;
    for (int d = 0; d < dim; ++d) {
      const auto at = static_cast<std::size_t>(d);
      if (d < 64) {
        EXPECT_EQ(before[at], 0.0F);
      } else {
        EXPECT_NEAR(before[at], d + 2, 0.02 * (d + 4)) << d;  // the mean of t + d
        EXPECT_GT(after[at], before[at] + 0.05F) << d;
      }
    }
  }
}

TEST_P(Shapes, B73_query_heads_find_their_kv_head) {
  struct heads {
    int query;
    int kv;
  };
  for (const heads h :
       {heads{1, 1}, heads{8, 8}, heads{28, 4}, heads{48, 2}, heads{12, 1}, heads{6, 3}, heads{40, 8}, heads{256, 1}}) {
    for (const char* const policy : {"k:int4-channel32-pre,v:int4f32-token16", "k:f16,v:f32"}) {
      const kvaxis::cache_config c = [&] {
        kvaxis::cache_config with = test::rope_shape(h.kv, 16);
        with.window = 10;
        return with;
      }();
      test::tokens data(c, 80, 7);
      for (std::size_t i = 0; i < data.v.size(); ++i) {
        data.v[i] = static_cast<float>(i / 16 % static_cast<std::size_t>(h.kv));
      }
      kvaxis::any_kv_cache cache = test::cache_of(policy, c);
      data.append_all_to(cache);
      ASSERT_GT(cache.folded_tokens(), 0);
      kvaxis::attend_options o = test::exact();
      o.query_heads = h.query;
      const std::vector<float> q = test::numbers(8).uniforms(static_cast<std::size_t>(2 * h.query * 16));
      const std::vector<float> out = test::attend(cache, q, 2, 80, o).out;
      for (int i = 0; i < 2 * h.query; ++i) {
        for (int d = 0; d < 16; ++d) {
          EXPECT_NEAR(out[static_cast<std::size_t>(i * 16 + d)], i % h.query * h.kv / h.query, 2e-6 * h.kv);
        }
      }
    }
  }
  kvaxis::attend_options o = test::exact();
  o.query_heads = 10;
  EXPECT_EQ(test::cache_of("k:f16,v:f16", test::shape(4, 16)).workspace_bytes(1, o), 0U);
}

// Every combination of codecs, axes, sizes, RoPE and window either works or is refused in words.
TEST_P(Shapes, B58_every_combination_works_or_is_refused_in_words) {
  int made = 0;
  int refused = 0;
  const float scale = 0.1F;
  const float middle = -12.8F;
  for (const std::string key :
       {"int4-channel32", "int8-channel64", "int4s-channel128", "int8s-token16", "int4f32-token64", "e4m3-tensor",
        "int8-tensor", "e5m2-channel32", "f32", "f16", "bf16"}) {
    for (const std::string rotation : {"-pre", "-auto", "-hot6", "-tile", "-post"}) {
      for (const std::string value : {"int4-token64", "int8-channel32", "int4s-token16", "e4m3-tensor", "int8-tensor",
                                      "bf16", "f32", "int8f32-channel256"}) {
        for (const int layout : {0, 1, 2}) {
          const int dim = made % 3 == 0 ? 64 : made % 3 == 1 ? 80 : 10;
          kvaxis::cache_config c = test::shape(1, dim, made % 2 == 0 ? 0 : 24);
          c.window = made % 5 == 0 ? 64 : 0;
          c.half_window = made % 7 == 0;
          c.k_scale = c.v_scale = &scale;
          c.k_offset = key == "int8-tensor" ? &middle : nullptr;
          c.v_offset = value == "int8-tensor" ? &middle : nullptr;
          if (layout > 0) {
            const auto kind = layout == 1 ? kvaxis::rope_layout::half_split : kvaxis::rope_layout::interleaved;
            kvaxis::check(kvaxis::make_rope({dim, layout == 1 ? 0 : 8, 0, 10000.0, kind, {}}, c.rope));
          }
          std::string policy = "k:";
          policy += key + rotation;
          policy += ",v:" + value;
          kvaxis::any_kv_cache cache;
          const kvaxis::status s = test::make_cache(policy, c, {}, cache);
          if (!s.ok()) {
            EXPECT_GT(std::string(s.argument).size(), 3U) << policy;
            EXPECT_EQ(cache.format(), nullptr) << policy;
            ++refused;
            continue;
          }
          ++made;
          test::tokens(c, 90, 9).append_all_to(cache);
          ASSERT_EQ(cache.size(), 90) << policy;
          expect_attention_as_the_oracle(cache, c.rope, 1 + made % 5, policy);
          ASSERT_FALSE(HasFatalFailure()) << policy;
        }
      }
    }
  }
  EXPECT_GT(made, 500);
  EXPECT_GT(refused, 100);
}

}  // namespace
