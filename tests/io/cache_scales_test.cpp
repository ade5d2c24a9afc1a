// Scales from a file, to the end: what attention gives.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <kvaxis/io/scales.hpp>
#include <string>
#include <vector>

#include "calls.hpp"
#include "files.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

constexpr int heads = 2;
constexpr int dim = 64;
constexpr int tokens = 200;

kvaxis::layer_scales scales_of(const std::vector<float>& k, const std::vector<float>& v) {
  const auto shape = [](const std::vector<float>& x) {
    return x.size() == 1 ? "[1]" : "[" + std::to_string(x.size()) + ",1,1]";
  };
  const std::string file = test::file_maker()
                               .add("model.layers.0.self_attn.k_scale", "F32", shape(k), k)
                               .add("model.layers.0.self_attn.v_scale", "F32", shape(v), v)
                               .file();
  const kvaxis::safetensors f = test::opened(file);
  kvaxis::layer_scales out;
  kvaxis::check(kvaxis::load_scales(&f, 1, "model.layers.{}.self_attn", 0, heads, out));
  return out;
}

kvaxis::any_kv_cache cache_with(const std::string& policy, const kvaxis::layer_scales& scales, int window) {
  kvaxis::cache_config c = test::rope_shape(heads, dim);
  c.window = window;
  c.pins = 0;
  return test::cache_of(policy, scales.apply(c));
}

class FileScales : public testing::TestWithParam<std::string> {};

// Everything 1024 times larger, the scales in the file too: the same codes, and outputs and logits 1024 times larger.
TEST_P(FileScales, B21_results_follow_the_scales) {
  const float reach = GetParam().find("int8s") != std::string::npos ? 127.0F : 256.0F;
  const test::tokens small(test::rope_shape(heads, dim), tokens, 1);
  const std::vector<float> q = test::numbers(2).uniforms(std::size_t{tokens} * 4 * dim);
  kvaxis::attend_options o = test::exact();
  o.query_heads = 4;
  for (const int window : {0, 100, 1000}) {
    for (const bool larger_keys : {false, true}) {
      test::tokens large = small;
      for (float& x : larger_keys ? large.k : large.v) x *= 1024;
      const std::vector<float> unit = {1.5F / reach};
      const std::vector<float> factor = {1024 * 1.5F / reach};
      kvaxis::any_kv_cache a = cache_with(GetParam(), scales_of(unit, unit), window);
      kvaxis::any_kv_cache b =
          cache_with(GetParam(), scales_of(larger_keys ? factor : unit, larger_keys ? unit : factor), window);
      small.append_all_to(a);
      large.append_all_to(b);
      EXPECT_EQ(a.folded_tokens() == 0, window == 1000);
      for (const int n : {1, tokens}) {
        const std::vector<float> x =
            larger_keys ? test::scores(a, q, n, tokens, o) : test::attend(a, q, n, tokens, o).out;
        const std::vector<float> y =
            larger_keys ? test::scores(b, q, n, tokens, o) : test::attend(b, q, n, tokens, o).out;
        float most = 0;
        for (const float number : x) most = std::max(most, std::fabs(number));
        ASSERT_GT(most, 0.0F);
        for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], 1024 * x[i], 1024 * 1e-6F * most) << i;
      }
    }
  }
}

// Keys of size 30 and values of size 0.02, which scales of 1 cannot pass for: one call of many queries, many of one, and
// a second cache with the scales from the file agree, and with attention in double on what is read back.
TEST_P(FileScales, B22_every_reader_has_the_scales) {
  const bool int8 = GetParam().find("int8s") != std::string::npos;
  const float reach = int8 ? 127.0F : 448.0F;
  const test::tokens t(test::rope_shape(heads, dim), tokens, 3, 30.0F, 0.02F);
  const kvaxis::layer_scales scales = scales_of({30 * 1.5F / reach}, {0.02F * 1.5F / reach});
  kvaxis::any_kv_cache cache = cache_with(GetParam(), scales, 40);
  kvaxis::any_kv_cache second = cache_with(GetParam(), scales, 40);
  t.append_all_to(cache);
  t.append_all_to(second);
  kvaxis::attend_options o = test::exact();
  o.scale = 0.001F;
  const std::vector<float> q = test::numbers(4).uniforms(std::size_t{tokens} * heads * dim);
  const std::vector<float> all = test::attend(cache, q, tokens, 0, o).out;
  EXPECT_EQ(test::attend(second, q, tokens, 0, o).out, all);
  const test::oracle oracle(cache, test::rope_shape(heads, dim).rope);
  const std::vector<double> expected = oracle.attend(q, tokens, 0, o).out;
  constexpr std::size_t width = heads * dim;
  for (int i = 0; i < tokens; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * width;
    const std::vector<float> one(q.begin() + static_cast<std::ptrdiff_t>(at),
                                 q.begin() + static_cast<std::ptrdiff_t>(at + width));
    const std::vector<float> out = test::attend(cache, one, 1, i, o).out;
    for (std::size_t c = 0; c < width; ++c) {
      ASSERT_NEAR(out[c], all[at + c], 1e-5F * 0.02F);
      ASSERT_NEAR(static_cast<double>(out[c]), expected[at + c], oracle.output_bound());
    }
  }
  // And what is read back is what went in.
  double error = 0;
  double energy = 0;
  for (int i = 0; i < tokens; ++i) {
    for (int h = 0; h < heads; ++h) {
      float row[dim];
      kvaxis::check(cache.read_value(i, h, row));
      for (int c = 0; c < dim; ++c) {
        const double x = static_cast<double>(t.value(i)[h * dim + c]);
        error += (static_cast<double>(row[c]) - x) * (static_cast<double>(row[c]) - x);
        energy += x * x;
      }
    }
  }
  EXPECT_LT(std::sqrt(error / energy), int8 ? 0.01 : 0.06);
}

INSTANTIATE_TEST_SUITE_P(Io, FileScales,
                         testing::Values("k:e4m3-tensor-pre,v:e4m3-tensor", "k:e4m3-tensor-tile,v:e5m2-tensor",
                                         "k:int8s-tensor-pre,v:int8s-tensor", "k:int8s-tensor-tile,v:int8s-tensor"),
                         test::policy_test_name);

// The error of int8 values does not know the size of keys, nor that of one head the size of another.
TEST(FileScales, B23_of_keys_and_values_and_of_heads) {
  for (const bool between_heads : {false, true}) {
    const float head_size[2] = {between_heads ? 1000.0F : 1.0F, between_heads ? 0.001F : 1.0F};
    const float key_size = between_heads ? 1.0F : 200.0F;
    const float value_size = between_heads ? 1.0F : 0.05F;
    test::tokens t(test::rope_shape(heads, dim), tokens, 5, key_size, value_size);
    for (auto* side : {&t.k, &t.v}) {
      for (std::size_t i = 0; i < side->size(); ++i) (*side)[i] *= head_size[i / dim % heads];
    }
    std::vector<float> k;
    std::vector<float> v;
    for (const float size : head_size) {
      k.push_back(key_size * size / 127);
      v.push_back(value_size * size / 127);
    }
    kvaxis::any_kv_cache cache = cache_with("k:int8s-tensor-pre,v:int8s-tensor", scales_of(k, v), 0);
    t.append_all_to(cache);
    ASSERT_GE(cache.folded_tokens(), 128);
    for (int i = 0; i < 128; ++i) {
      for (int h = 0; h < heads; ++h) {
        float row[dim];
        kvaxis::check(cache.read_value(i, h, row));
        const double bound = static_cast<double>(value_size * head_size[h]) / 127 / 2 * 1.01;
        for (int c = 0; c < dim; ++c) {
          ASSERT_NEAR(static_cast<double>(row[c]), static_cast<double>(t.value(i)[h * dim + c]), bound)
              << i << " " << h;
        }
      }
    }
  }
}

}  // namespace
