// Every group has its own scale: amplitudes that differ by token, head, or side show one that was taken from a
// neighbour.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "against_oracle.hpp"

namespace {

float at(const std::vector<float>& x, std::size_t index) { return x[index]; }

// B46: each head and token with an amplitude of its own.
TEST(Scales, B46_of_every_head_and_token) {
  constexpr int heads = 3;
  constexpr int dim = 128;
  constexpr int tokens = 67;
  test::numbers random(1);
  std::vector<float> x;
  for (int t = 0; t < tokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      const float amplitude = std::ldexp(1.0F, (h * 67 + t) % 20 - 10);
      for (int c = 0; c < dim; ++c) x.push_back(random.uniform() * amplitude);
    }
  }
  struct storage {
    const char* side;
    double steps;  // of the range, or 0: a relative bound
    double relative;
  };
  for (const storage& s :
       {storage{"int4-token128", 15, 0}, storage{"int8-token128", 255, 0}, storage{"int8s-token128", 254, 0},
        storage{"int8f32-token64", 255, 0}, storage{"e4m3-token128", 0, 0x1p-4}}) {
    test::shape shape;
    shape.kv_heads = heads;
    shape.head_dim = dim;
    shape.window = 0;
    shape.pins = 0;
    const std::string name = "k:" + std::string(s.side) + "-pre,v:" + s.side;
    kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(shape, test::rope_of(dim)));
    kvaxis::check(cache.append(x.data(), x.data(), tokens));
    kvaxis::check(cache.flush());
    for (int t = 0; t < tokens; ++t) {
      for (int h = 0; h < heads; ++h) {
        const double amplitude = std::ldexp(1.0, (h * 67 + t) % 20 - 10);
        for (const bool key : {true, false}) {
          float row[dim];
          kvaxis::check(key ? cache.read_key(t, h, row) : cache.read_value(t, h, row));
          for (int c = 0; c < dim; ++c) {
            const double in = at(x, static_cast<std::size_t>((t * heads + h) * dim + c));
            const double bound = s.steps > 0 ? 2 * amplitude / s.steps / 2 * 1.02 + 0x1p-11 * 3 * amplitude
                                             : std::max(s.relative * std::fabs(in), 0x1p-10 / 448 * amplitude) * 1.02;
            ASSERT_LE(std::fabs(static_cast<double>(row[c]) - in), bound) << name << " token " << t << " head " << h;
          }
        }
      }
    }
  }
}

// The error of values does not know the size of keys, nor that of one head the size of another.
TEST(Scales, B23_of_keys_and_values_and_of_heads) {
  constexpr int dim = 64;
  constexpr int tokens = 64;
  for (const char* side : {"int8-channel64", "int8-token64", "int8s-channel64", "int8s-token64"}) {
    for (const bool between_heads : {false, true}) {
      test::shape shape;
      shape.window = 0;
      shape.pins = 0;
      const std::string name = "k:" + std::string(side) + ",v:" + side;
      kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(shape));
      const float head_size[2] = {between_heads ? 1000.0F : 1.0F, between_heads ? 0.001F : 1.0F};
      const float key_size = between_heads ? 1.0F : 200.0F;
      const float value_size = between_heads ? 1.0F : 0.05F;
      test::numbers random(2);
      std::vector<float> k;
      std::vector<float> v;
      for (int row = 0; row < tokens * 2; ++row) {
        for (int c = 0; c < dim; ++c) {
          k.push_back(random.uniform() * key_size * head_size[row % 2]);
          v.push_back(random.uniform() * value_size * head_size[row % 2]);
        }
      }
      kvaxis::check(cache.append(k.data(), v.data(), tokens));
      ASSERT_EQ(cache.folded_tokens(), tokens);
      for (int t = 0; t < tokens; ++t) {
        for (int h = 0; h < 2; ++h) {
          float row[dim];
          kvaxis::check(cache.read_value(t, h, row));
          const double bound = static_cast<double>(value_size * head_size[h]) / 127 / 2 * 1.01;
          for (int c = 0; c < dim; ++c) {
            const double in = at(v, static_cast<std::size_t>((t * 2 + h) * dim + c));
            ASSERT_LE(std::fabs(static_cast<double>(row[c]) - in), bound) << name << " head " << h << " token " << t;
          }
        }
      }
    }
  }
}

// B08: no number is set aside as an outlier, so ties among large ones cost nothing; and a token has the same error
// whether it came alone or with 511 others.
TEST(Scales, B08_outliers_are_treated_alike_in_every_append) {
  constexpr int dim = 64;
  constexpr int tokens = 512;
  test::shape shape;
  shape.kv_heads = 1;
  shape.window = 0;
  shape.pins = 0;
  std::vector<float> x = test::numbers(3).uniforms(tokens * dim);
  for (int t = 0; t < tokens; ++t) x[static_cast<std::size_t>(t * dim + 9)] = 5.0F;
  x[500 * dim + 20] = 50.0F;
  kvaxis::any_kv_cache at_once = test::cache_of("k:int4-channel64,v:int4-token64", test::config_of(shape));
  kvaxis::any_kv_cache one_by_one = test::cache_of("k:int4-channel64,v:int4-token64", test::config_of(shape));
  kvaxis::check(at_once.append(x.data(), x.data(), tokens));
  for (int t = 0; t < tokens; ++t) kvaxis::check(one_by_one.append(x.data() + t * dim, x.data() + t * dim, 1));
  EXPECT_EQ(at_once.bytes().folded, static_cast<std::size_t>(tokens / 64 * (64 + 2 * 64 * dim * 9 / 16)));
  for (int t = 0; t < tokens; ++t) {
    float a[dim];
    float b[dim];
    kvaxis::check(at_once.read_key(t, 0, a));
    kvaxis::check(one_by_one.read_key(t, 0, b));
    for (int c = 0; c < dim; ++c) ASSERT_EQ(a[c], b[c]) << t;
    EXPECT_EQ(a[9], 5.0F);
    kvaxis::check(at_once.read_value(t, 0, a));
    kvaxis::check(one_by_one.read_value(t, 0, b));
    for (int c = 0; c < dim; ++c) ASSERT_EQ(a[c], b[c]) << t;
  }
}

// B59: one options object serves caches of different shape and is not changed by them.
TEST(Scales, B59_options_are_only_read) {
  const float scales[2] = {0.05F, 0.06F};
  kvaxis::cache_config c = test::config_of({}, test::rope_of(64));
  c.k_scale = scales;
  c.scales_count = 2;
  const kvaxis::cache_config shared = c;
  kvaxis::any_kv_cache first = test::cache_of("k:e4m3-tensor-pre,v:int4-token64", shared);
  kvaxis::any_kv_cache second = test::cache_of("k:int4-channel32-tile,v:f16", shared);
  kvaxis::any_kv_cache third = test::cache_of("k:e4m3-tensor-pre,v:int4-token64", shared);
  for (kvaxis::any_kv_cache* cache : {&first, &second, &third}) test::append_random(*cache, 150, 4);
  EXPECT_EQ(second.format()->tokens, 32);
  EXPECT_EQ(first.format()->tokens, 64);
  EXPECT_EQ(shared.k_scale, scales);
  EXPECT_EQ(shared.tile_tokens, 64);
  std::vector<float> a(64);
  std::vector<float> b(64);
  for (int t = 0; t < 150; ++t) {
    kvaxis::check(first.read_key(t, 1, a.data()));
    kvaxis::check(third.read_key(t, 1, b.data()));
    EXPECT_EQ(a, b);
  }
}

}  // namespace
