// Latent values, channels of the key that are stored once: every key policy and the shapes at which the decoding of
// channels takes other paths, against the oracle.
#include <gtest/gtest.h>

#include <kvaxis/cache/kv_cache.hpp>
#include <square4.hpp>
#include <string>
#include <vector>

#include "against_oracle.hpp"

namespace {

using kvaxis::rope_layout;

// Of the 576 channels of DeepSeek's MLA the last 64 rotate; the softmax scale is that of its heads of 128 + 64 channels.
constexpr float mla_scale = 0.0721688F;

struct latent_shape {
  int head_dim;
  int value_dim;
  int rotary;  // the last channels
};

test::shape shape_of(const latent_shape& l) {
  test::shape s;
  s.kv_heads = 1;
  s.head_dim = l.head_dim;
  s.value_dim = l.value_dim;
  return s;
}

kvaxis::rope rope_of(const latent_shape& l) {
  if (l.rotary == 0) return {};
  return test::rope_of(l.head_dim, l.rotary, l.head_dim - l.rotary, rope_layout::interleaved);
}

kvaxis::any_kv_cache filled(const std::string& keys, const test::shape& s, const kvaxis::rope& rope) {
  kvaxis::any_kv_cache cache = test::cache_of("k:" + keys + ",v:latent", test::config_of(s, rope));
  test::append_random(cache, s.tokens, 3);
  EXPECT_GT(cache.folded_tokens(), 0);
  return cache;
}

TEST(Latent, every_key_policy_agrees_with_the_oracle) {
  const latent_shape l{46, 30, 10};
  test::shape s = shape_of(l);
  s.kv_heads = 2;
  for (const std::string codec :
       {"int4", "int8", "int4s", "int8s", "int4f32", "int8f32", "e4m3", "e5m2", "f32", "f16", "bf16"}) {
    std::vector<std::string> keys;
    for (const char* rotation : {"-pre", "-auto", "-hot2", "-tile", "-post"}) {
      keys.push_back(codec + "-channel64" + rotation);
    }
    for (const char* rotation : {"-pre", "-tile", "-post"}) {
      keys.push_back(codec + "-token16" + rotation);
      keys.push_back(codec + "-token64" + rotation);
    }
    if (codec == "e4m3") keys.insert(keys.end(), {"e4m3-tensor@0.011-pre", "e4m3-tensor@0.011-post"});
    if (codec == "int4") keys.insert(keys.end(), {"int4-tensor@0.6,-4.5-tile", "int4-channel32-pre"});
    for (const std::string& key : keys) {
      SCOPED_TRACE(key);
      const kvaxis::any_kv_cache cache = filled(key, s, rope_of(l));
      const test::agreement check(cache, rope_of(l));
      check.expect({1, 2, 149, 0.2F});
      check.expect({9, 1, 149, 0.2F});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Latent, the_shape_of_DeepSeek) {
  const latent_shape l{576, 512, 64};
  for (const char* key : {"int4-channel64-pre", "int4-channel64-auto", "int8-channel32-tile", "int4-token64-post",
                          "int8-token64-pre", "e4m3-tensor@0.011-pre", "f16", "f32"}) {
    SCOPED_TRACE(key);
    const kvaxis::any_kv_cache cache = filled(key, shape_of(l), rope_of(l));
    const test::agreement check(cache, rope_of(l));
    for (const int group : {1, 16}) check.expect({group, 1, 149, mla_scale, 0, 0.5F});
    if (std::string(key) == "int4-channel64-auto") check.expect({128, 1, 149, mla_scale, 0, 0.5F});
    if (HasFatalFailure()) return;
  }
}

// Values that begin in the middle of a vector and end behind the last row of a block; channels between the values and
// the rotated ones; no rotation at all.
TEST(Latent, shapes) {
  for (const latent_shape l : {latent_shape{40, 34, 6},
                               {70, 33, 36},
                               {24, 8, 16},
                               {64, 64, 0},
                               {13, 9, 4},
                               {10, 8, 2},
                               {100, 81, 18},
                               {33, 17, 0},
                               {192, 128, 64}}) {
    for (const char* key : {"int4-channel32-pre", "int8-channel64-auto", "int4s-token16-tile", "bf16-post", "f32"}) {
      for (const bool half : {false, true}) {
        SCOPED_TRACE(std::string(key) + ' ' + std::to_string(l.head_dim) + '/' + std::to_string(l.value_dim));
        test::shape s = shape_of(l);
        s.half_window = half;
        const kvaxis::any_kv_cache cache = filled(key, s, rope_of(l));
        const test::agreement check(cache, rope_of(l));
        check.expect({3, 1, 149, 0.1F});
        check.expect({8, 1, 149, 0.1F, 3.0F});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A query in a tile, in the window, among the pins and before everything; queries of one block that see different parts
// of a tile; a gap in the positions.
TEST(Latent, parts_of_tiles) {
  const latent_shape l{80, 64, 16};
  test::shape s = shape_of(l);
  for (const char* key : {"int4-channel64-auto", "int8-channel32-pre", "int4-token64-tile"}) {
    SCOPED_TRACE(key);
    kvaxis::any_kv_cache cache = filled(key, s, rope_of(l));
    test::append_random(cache, 77, 4, 1000);
    kvaxis::check(cache.flush());
    test::append_random(cache, 41, 5, 5000);
    const test::agreement check(cache, rope_of(l));
    for (const std::int64_t position : {-1, 2, 5, 37, 67, 100, 149, 500, 1033, 1076, 5003, 5040, 9000}) {
      check.expect({4, 3, position, 0.1F});
      if (HasFatalFailure()) return;
    }
    check.expect({2, 70, 990, 0.1F});
  }
}

TEST(Latent, tiles_of_every_length) {
  const latent_shape l{48, 32, 16};
  for (const std::string length : {"32", "64", "128", "256"}) {
    test::shape s = shape_of(l);
    s.tokens = 300;
    const kvaxis::any_kv_cache cache = filled("int4-channel" + length + "-auto", s, rope_of(l));
    const test::agreement check(cache, rope_of(l));
    check.expect({5, 1, 299, 0.1F});
    check.expect({5, 1, 170, 0.1F});
  }
}

template <class Keys>
void expect_own_codec_agrees() {
  const latent_shape l{46, 30, 10};
  kvaxis::kv_cache<Keys, kvaxis::latent<Keys>> cache;
  kvaxis::check(cache.create(test::config_of(shape_of(l), rope_of(l)), cache));
  test::append_random(cache, 150, 3);
  ASSERT_GT(cache.folded_tokens(), 0);
  const test::agreement check(cache, rope_of(l));
  for (const int group : {1, 4, 12}) check.expect({group, 2, 148, 0.1F});
}

TEST(Latent, a_codec_that_the_kernels_do_not_know) {
  expect_own_codec_agrees<kvaxis::per_channel<test::square4, 64, kvaxis::automatic>>();
  expect_own_codec_agrees<kvaxis::per_token<test::square4, 16, kvaxis::post>>();
}

// Integer sums round the queries alone: values are summed in f32.
TEST(Latent, integer_arithmetic_stays_near) {
  const latent_shape l{576, 512, 64};
  const kvaxis::any_kv_cache cache = filled("int4-channel64-auto", shape_of(l), rope_of(l));
  const std::vector<float> q = test::numbers(7).uniforms(16 * 576, 0.5F);
  const std::vector<float> weights = test::numbers(8).uniforms(16 * 150);
  kvaxis::attend_options o = test::exact();
  o.query_heads = 16;
  o.scale = mla_scale;
  for (const kvaxis::isa isa : isas_under_test()) {
    const isa_scope scope(isa);
    o.arithmetic = kvaxis::arithmetic::f32;
    const std::vector<float> exact = test::attend(cache, q, 1, 149, o).out;
    const std::vector<float> sums = test::weighted_sum(cache, weights, 1, o);
    o.arithmetic = kvaxis::arithmetic::automatic;
    EXPECT_EQ(test::weighted_sum(cache, weights, 1, o), sums) << kvaxis::isa_name(isa);
    const std::vector<float> rounded = test::attend(cache, q, 1, 149, o).out;
    double difference = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      difference = std::max(difference, std::fabs(static_cast<double>(exact[i] - rounded[i])));
    }
    EXPECT_GT(difference, 0) << kvaxis::isa_name(isa);
    EXPECT_LT(difference, 0.02) << kvaxis::isa_name(isa);
  }
}

}  // namespace
