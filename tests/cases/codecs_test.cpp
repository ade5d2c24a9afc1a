// Field cases about what codecs do to keys, values and logits, on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "calls.hpp"
#include "isa_test.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

class Codecs : public isa_test {};
KVAXIS_ON_EVERY_ISA(Codecs);

kvaxis::cache_config all_folded(int kv_heads, int dim) {
  kvaxis::cache_config c = test::shape(kv_heads, dim);
  c.window = 0;
  c.pins = 0;
  return c;
}

// Every finite binary16 number, folded (two bytes of a word) and in a binary16 window, comes out of the kernels as it
// went in.
TEST_P(Codecs, B13_all_halves_through_the_kernels) {
  constexpr int dim = 256;
  constexpr int tokens = 65536 / dim;
  std::vector<float> v(65536);
  for (std::size_t i = 0; i < v.size(); ++i) {
    const kvaxis::float16 h{static_cast<std::uint16_t>(i)};
    v[i] = kvaxis::is_finite(h) ? kvaxis::to_float(h) : 0.0F;
  }
  std::vector<float> one_hot(tokens * tokens);
  for (std::size_t t = 0; t < tokens; ++t) one_hot[t * tokens + t] = 1.0F;
  for (const bool folded : {true, false}) {
    kvaxis::cache_config c = all_folded(1, dim);
    c.half_window = !folded;
    c.window = folded ? 0 : 1000;
    kvaxis::any_kv_cache cache = test::cache_of("k:f16,v:f16", c);
    kvaxis::check(cache.append(v.data(), v.data(), tokens));
    ASSERT_EQ(cache.folded_tokens(), folded ? tokens : 0);
    const std::vector<float> sums = test::weighted_sum(cache, one_hot, tokens);
    std::vector<float> q(dim * dim);
    for (std::size_t d = 0; d < dim; ++d) q[d * dim + d] = 1.0F;
    kvaxis::attend_options o = test::exact();
    o.scale = 1.0F;
    const std::vector<float> logits = test::scores(cache, q, dim, tokens, o);
    float row[dim];
    for (std::size_t t = 0; t < tokens; ++t) {
      kvaxis::check(cache.read_value(static_cast<std::int64_t>(t), 0, row));
      for (std::size_t d = 0; d < dim; ++d) {
        const float want = v[t * dim + d];
        // As floats, for -0 is stored as +0.
        ASSERT_EQ(sums[t * dim + d], want) << t * dim + d;
        ASSERT_EQ(logits[d * tokens + t], want) << t * dim + d;
        ASSERT_EQ(row[d], want) << t * dim + d;
      }
    }
  }
}

// The flavour is OCP's E4M3 "FN": largest 448, one NaN per sign, and -0 stored as 0. The stored bytes say so, and so do
// the kernels.
TEST_P(Codecs, B19_the_bytes_of_e4m3) {
  struct pair {
    float number;
    int code;
  };
  const std::vector<pair> known = {{1.0F, 0x38},    {2.0F, 0x40},         {-0.0F, 0x00},     {448.0F, 0x7E},
                                   {-448.0F, 0xFE}, {0.001953125F, 0x01}, {0.015625F, 0x08}, {0.0F, 0x00}};
  std::vector<float> rows(32 * 16);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = known[i % known.size()].number;
  kvaxis::cache_config c = all_folded(1, 16);
  c.tile_tokens = 32;
  kvaxis::any_kv_cache cache = test::cache_of("k:e4m3-tensor@1-pre,v:e4m3-tensor@1", c);
  kvaxis::check(cache.append(rows.data(), rows.data(), 32));
  ASSERT_EQ(cache.folded_tokens(), 32);
  EXPECT_EQ(cache.format()->value_codec->name, std::string("e4m3"));
  const kvaxis::tile& t = *cache.view().entries[0].tile;
  const auto* words = reinterpret_cast<const std::uint32_t*>(t.value_block(0));
  for (int token = 0; token < 32; ++token) {
    for (int d = 0; d < 16; ++d) {
      const std::uint32_t code = kvaxis::unpack_code(8, 16, words + token / 4 * 16, token % 4, d);
      EXPECT_EQ(static_cast<int>(code), known[static_cast<std::size_t>(d) % known.size()].code);
    }
  }
  std::vector<float> weights(32);
  weights[17] = 1.0F;
  const std::vector<float> sums = test::weighted_sum(cache, weights, 1);
  for (std::size_t d = 0; d < 16; ++d) EXPECT_EQ(sums[d], known[d % known.size()].number);
}

// Logits far beyond what binary16 holds: 16 * 40 * 40 * 8 / sqrt(128) = 18102.
TEST_P(Codecs, B64_logits_of_18102) {
  for (const std::string policy : {"k:int4-channel32-pre,v:int4-token32", "k:int8-token32-pre,v:f16", "k:f16,v:f32",
                                   "k:e4m3-channel32-pre,v:e4m3-token32"}) {
    for (const bool folded : {true, false}) {
      kvaxis::cache_config c = all_folded(1, 128);
      c.window = folded ? 0 : 100;
      kvaxis::any_kv_cache cache = test::cache_of(policy, c);
      std::vector<float> k(128, 40.0F);
      std::vector<float> v(128, 3.0F);
      kvaxis::check(cache.append(k.data(), v.data(), 1));
      if (folded) kvaxis::check(cache.flush());
      const std::vector<float> q(128, 40.0F);
      const test::attention one = test::attend(cache, q, 1, 1);
      for (const float x : one.out) EXPECT_NEAR(x, 3.0F, 2e-3) << policy;
      EXPECT_NEAR(one.lse[0], 204800 / std::sqrt(128.0), 9) << policy;  // binary16 scales: 2^-11
      if (folded) continue;
      k[77] += 1.0F * std::sqrt(128.0F) / 40.0F;  // one more in the logit
      std::fill(v.begin(), v.end(), -1.0F);
      kvaxis::check(cache.append(k.data(), v.data(), 1));
      const std::vector<float> weighted = test::attend(cache, q, 1, 1).out;
      for (const float x : weighted) EXPECT_NEAR(x, 0.269 * 3 - 0.731, 4e-2) << policy;
    }
  }
}

// Two channels with a large constant part and small queries: one scale per channel keeps the others apart, one per
// token loses them, and that is what the measurement must show.
TEST_P(Codecs, B67_constant_channels_of_300) {
  constexpr int dim = 128;
  constexpr int tokens = 256;
  const kvaxis::cache_config c = all_folded(1, dim);
  test::tokens data(c, tokens, 1);
  for (std::size_t t = 0; t < tokens; ++t) {
    data.k[t * dim] += 300.0F;
    data.k[t * dim + 1] += 300.0F;
  }
  std::vector<float> q = test::numbers(2).uniforms(8 * dim);
  for (std::size_t i = 0; i < 8; ++i) q[i * dim] = q[i * dim + 1] = 0.0F;
  const auto relative_error = [&](const std::string& policy) {
    kvaxis::any_kv_cache cache = test::cache_of(policy, c);
    data.append_all_to(cache);
    EXPECT_EQ(cache.folded_tokens(), tokens);
    const std::vector<float> logits = test::scores(cache, q, 8, tokens);
    double error = 0;
    double power = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      for (std::size_t t = 0; t < tokens; ++t) {
        double want = 0;
        for (std::size_t d = 0; d < dim; ++d) {
          want += static_cast<double>(q[i * dim + d]) * static_cast<double>(data.k[t * dim + d]);
        }
        want /= std::sqrt(static_cast<double>(dim));
        error += std::pow(static_cast<double>(logits[i * tokens + t]) - want, 2.0);
        power += want * want;
      }
    }
    return std::sqrt(error / power);
  };
  EXPECT_LE(relative_error("k:int4-channel64-pre,v:f16"), 0.08);
  EXPECT_LE(relative_error("k:int4-channel256-pre,v:f16"), 0.08);
  EXPECT_GE(relative_error("k:int4-token128-pre,v:f16"), 1.0);
  EXPECT_GE(relative_error("k:int4s-token128-pre,v:f16"), 1.0);
  EXPECT_LE(relative_error("k:int8-channel64-pre,v:f16"), 0.005);
}

}  // namespace
