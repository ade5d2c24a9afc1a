// The calibrator: what it saw is what append takes, and what it writes is what is read.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <kvaxis/io/calibrator.hpp>
#include <kvaxis/io/save_scales.hpp>
#include <policies.hpp>
#include <string>
#include <tokens.hpp>
#include <vector>

#include "files.hpp"

namespace {

using kvaxis::calibrator;
using kvaxis::errc;
using kvaxis::layer_scales;

constexpr int heads = 3;
constexpr int dim = 64;

calibrator made(const kvaxis::cache_config& c) {
  calibrator out;
  kvaxis::check(calibrator::create(c, out));
  return out;
}

// Heads of very different size.
test::tokens sample(const kvaxis::cache_config& c, int n, std::uint64_t seed) {
  test::tokens t(c, n, seed);
  for (auto* side : {&t.k, &t.v}) {
    const std::size_t width = side->size() / static_cast<std::size_t>(n * c.kv_heads);
    for (std::size_t i = 0; i < side->size(); ++i) {
      (*side)[i] *= std::ldexp(1.7F, 5 * static_cast<int>(i / width % heads) - 4);
    }
  }
  return t;
}

float largest(const std::vector<float>& x, int head) {
  float most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (head < 0 || i / dim % heads == static_cast<std::size_t>(head)) most = std::max(most, std::fabs(x[i]));
  }
  return most;
}

struct codec {
  const char* name;
  float reach;
};

TEST(Calibrator, a_scale_is_the_largest_magnitude_over_the_largest_code) {
  const kvaxis::cache_config c = test::shape(heads, dim);
  const test::tokens t = sample(c, 50, 1);
  calibrator seen = made(c);
  ASSERT_TRUE(seen.observe(t.key(0), t.value(0), 50).ok());
  for (const codec& x : {codec{"e4m3", 448}, codec{"e5m2", 57344}, codec{"int8s", 127}, codec{"int4s", 7}}) {
    const test::policies p = test::find("k:" + std::string(x.name) + "-tensor-pre,v:" + x.name + "-tensor");
    layer_scales one;
    layer_scales each;
    layer_scales wider;
    ASSERT_TRUE(seen.scales(p.keys, p.values, 1, 1.0F, one).ok());
    ASSERT_TRUE(seen.scales(p.keys, p.values, heads, 1.0F, each).ok());
    ASSERT_TRUE(seen.scales(p.keys, p.values, 1, 1.25F, wider).ok());
    EXPECT_EQ(one.count, 1);
    EXPECT_EQ(each.count, heads);
    EXPECT_FLOAT_EQ(one.k[0], largest(t.k, -1) / x.reach);
    EXPECT_FLOAT_EQ(one.v[0], largest(t.v, -1) / x.reach);
    EXPECT_FLOAT_EQ(wider.k[0], 1.25F * largest(t.k, -1) / x.reach);
    for (int h = 0; h < heads; ++h) {
      EXPECT_FLOAT_EQ(each.k[static_cast<std::size_t>(h)], largest(t.k, h) / x.reach);
      EXPECT_FLOAT_EQ(each.v[static_cast<std::size_t>(h)], largest(t.v, h) / x.reach);
    }
  }
}

// Calibrated, written, read, and the same tokens appended: accepted at once, with nothing replaced.
class RoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, append_takes_what_was_seen) {
  kvaxis::cache_config c = test::rope_shape(heads, dim, 48);
  c.window = 0;
  c.pins = 0;
  const test::policies p = test::find(GetParam());
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const int count : {1, heads}) {
      const test::tokens t = sample(c, 64, seed);
      calibrator seen = made(c);
      ASSERT_TRUE(seen.observe(t.key(0), t.value(0), 64).ok());
      layer_scales scales;
      ASSERT_TRUE(seen.scales(p.keys, p.values, count, 1.0F, scales).ok());
      std::string file;
      ASSERT_TRUE(kvaxis::save_scales(&scales, 1, "model.layers.{}.self_attn", [&](const void* bytes, std::size_t n) {
                    file.append(static_cast<const char*>(bytes), n);
                    return true;
                  }).ok());
      const kvaxis::safetensors opened = test::opened(file);
      layer_scales loaded;
      ASSERT_TRUE(kvaxis::load_scales(&opened, 1, "model.layers.{}.self_attn", 0, heads, loaded).ok());
      EXPECT_EQ(loaded.count, scales.count);
      EXPECT_EQ(loaded.k, scales.k);
      EXPECT_EQ(loaded.v, scales.v);
      kvaxis::any_kv_cache cache = test::cache_of(GetParam(), loaded.apply(c));
      const kvaxis::status s = t.append_to(cache, 0, 64, 1000);
      ASSERT_TRUE(s.ok()) << s.argument << " " << s.limit;
      EXPECT_EQ(cache.folded_tokens(), 64);
      // A little less would not do.
      for (float& x : loaded.k) x *= 0.9999F;
      kvaxis::any_kv_cache narrow = test::cache_of(GetParam(), loaded.apply(c));
      EXPECT_EQ(t.append_to(narrow, 0, 64, 1000).code, errc::out_of_range);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Io, RoundTrip,
                         testing::Values("k:e4m3-tensor-pre,v:e4m3-tensor", "k:e4m3-tensor-tile,v:e5m2-tensor",
                                         "k:e4m3-tensor-post,v:int8s-tensor", "k:int8s-tensor-pre,v:int4s-tensor",
                                         "k:int8s-tensor-tile,v:e4m3-tensor", "k:e5m2-tensor-tile,v:e4m3-tensor",
                                         "k:int4s-tensor-tile,v:e4m3-tensor"),
                         test::policy_test_name);

TEST(Calibrator, sees_rows_as_append_does) {
  const kvaxis::cache_config c = test::shape(2, 8);
  const test::policies p = test::find("k:e4m3-tensor-post,v:e4m3-tensor");
  // [token][head][8] with strides; what lies between the rows is not seen.
  std::vector<kvaxis::float16> k(2 * 40, kvaxis::to_float16(60000.0F));
  std::vector<kvaxis::bfloat16> v(2 * 16, kvaxis::to_bfloat16(0.5F));
  for (const std::size_t row : {0U, 12U, 40U, 52U}) {
    for (std::size_t i = 0; i < 8; ++i) k[row + i] = kvaxis::to_float16(row == 52 ? -28.0F : 7.0F);
  }
  v[31] = kvaxis::to_bfloat16(-896.0F);
  calibrator seen = made(c);
  ASSERT_TRUE(seen.observe({k.data(), 40, 12}, v.data(), 2).ok());
  layer_scales scales;
  ASSERT_TRUE(seen.scales(p.keys, p.values, 2, 1.0F, scales).ok());
  EXPECT_EQ(scales.k[0], 7.0F / 448);
  EXPECT_EQ(scales.k[1], 28.0F / 448);
  EXPECT_EQ(scales.v[0], 0.5F / 448);
  EXPECT_EQ(scales.v[1], 2.0F);
}

TEST(Calibrator, merged_parts_equal_the_whole) {
  const kvaxis::cache_config c = test::shape(heads, dim);
  const test::policies p = test::find("k:e4m3-tensor-pre,v:int8s-tensor");
  const test::tokens t = sample(c, 90, 5);
  calibrator whole = made(c);
  ASSERT_TRUE(whole.observe(t.key(0), t.value(0), 90).ok());
  calibrator merged = made(c);
  for (int part = 0; part < 3; ++part) {
    calibrator one = made(c);
    ASSERT_TRUE(one.observe(t.key(30 * part), t.value(30 * part), 30).ok());
    ASSERT_TRUE(merged.merge(one).ok());
  }
  layer_scales a;
  layer_scales b;
  ASSERT_TRUE(whole.scales(p.keys, p.values, heads, 1.0F, a).ok());
  ASSERT_TRUE(merged.scales(p.keys, p.values, heads, 1.0F, b).ok());
  EXPECT_EQ(a.k, b.k);
  EXPECT_EQ(a.v, b.v);
  EXPECT_STREQ(merged.merge(made(test::shape(heads, dim, 32))).argument, "calibrator: another shape");
}

TEST(Calibrator, refuses_what_is_no_number_and_forgets_the_call) {
  const kvaxis::cache_config c = test::shape(heads, dim);
  const test::policies p = test::find("k:e4m3-tensor-pre,v:e4m3-tensor");
  test::tokens t = sample(c, 8, 6);
  calibrator seen = made(c);
  ASSERT_TRUE(seen.observe(t.key(0), t.value(0), 4).ok());
  layer_scales before;
  ASSERT_TRUE(seen.scales(p.keys, p.values, heads, 1.0F, before).ok());
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (auto* side : {&t.k, &t.v}) {
      test::tokens with = t;
      auto& numbers = side == &t.k ? with.k : with.v;
      for (float& x : numbers) x *= 100;
      numbers[6 * heads * dim + 70] = bad;
      const kvaxis::status s = seen.observe(with.key(0), with.value(0), 8);
      EXPECT_EQ(s.code, errc::non_finite);
      EXPECT_STREQ(s.argument, side == &t.k ? "k" : "v");
      EXPECT_EQ(s.limit, 6);
    }
  }
  layer_scales after;
  ASSERT_TRUE(seen.scales(p.keys, p.values, heads, 1.0F, after).ok());
  EXPECT_EQ(before.k, after.k);
  EXPECT_EQ(before.v, after.v);
}

TEST(Calibrator, only_zeros_have_no_scale) {
  const kvaxis::cache_config c = test::shape(heads, dim);
  const test::policies p = test::find("k:e4m3-tensor-pre,v:e4m3-tensor");
  test::tokens t = sample(c, 4, 7);
  for (int token = 0; token < 4; ++token) {
    for (int i = 0; i < dim; ++i)
      t.v[static_cast<std::size_t>((token * heads + 1) * dim + i)] = i % 2 == 0 ? -0.0F : 0x1p-130F;
  }
  layer_scales scales;
  scales.count = 77;
  calibrator seen = made(c);
  EXPECT_STREQ(seen.scales(p.keys, p.values, 1, 1.0F, scales).argument, "k: nothing but zeros");
  ASSERT_TRUE(seen.observe(t.key(0), t.value(0), 4).ok());
  const kvaxis::status s = seen.scales(p.keys, p.values, heads, 1.0F, scales);
  EXPECT_EQ(s.code, errc::invalid_argument);
  EXPECT_STREQ(s.argument, "v: nothing but zeros");
  EXPECT_EQ(s.limit, 1);
  EXPECT_EQ(scales.count, 77);
  EXPECT_TRUE(seen.scales(p.keys, p.values, 1, 1.0F, scales).ok());  // one for all heads
}

TEST(Calibrator, arguments) {
  kvaxis::cache_config c = test::rope_shape(heads, dim);
  c.half_window = true;
  const test::policies p = test::find("k:e4m3-tensor-tile,v:e4m3-tensor");
  layer_scales out;
  calibrator seen;
  const float x[heads * dim] = {1.0F, 1.0F};
  EXPECT_STREQ(seen.observe(x, x, 1).argument, "calibrator: not created");
  EXPECT_STREQ(seen.scales(p.keys, p.values, 1, 1.0F, out).argument, "calibrator: not created");
  EXPECT_STREQ(calibrator::create(test::shape(0, dim), seen).argument, "kv_heads");
  EXPECT_STREQ(calibrator::create(test::shape(1, 4), seen).argument, "head_dim");
  ASSERT_TRUE(calibrator::create(c, seen).ok());
  EXPECT_STREQ(seen.observe(x, x, -1).argument, "n");
  EXPECT_STREQ(seen.observe(kvaxis::rows(), x, 1).argument, "k");
  EXPECT_STREQ(seen.observe(x, {x, 0, 3}, 1).argument, "v.head_stride");
  EXPECT_TRUE(seen.observe(kvaxis::rows(), kvaxis::rows(), 0).ok());
  EXPECT_STREQ(seen.scales(p.keys, p.values, 2, 1.0F, out).argument, "count");
  for (const float margin : {0.99F, -1.0F, std::nanf(""), INFINITY}) {
    EXPECT_STREQ(seen.scales(p.keys, p.values, 1, margin, out).argument, "margin");
  }
  ASSERT_TRUE(seen.observe(x, x, 1).ok());
  const auto refused = [&](const char* names) {
    const test::policies q = test::find(names);
    return std::string(seen.scales(q.keys, q.values, 1, 1.0F, out).argument);
  };
  EXPECT_EQ(refused("k:int4-channel64-pre,v:e4m3-tensor"), "key policy: takes no scale");
  EXPECT_EQ(refused("k:e4m3-tensor-pre,v:f16"), "value policy: takes no scale");
  EXPECT_EQ(refused("k:int8-tensor-pre,v:e4m3-tensor"), "key policy: needs an offset");
  EXPECT_EQ(refused("k:e4m3-tensor-pre,v:int4f32-tensor"), "value policy: needs an offset");
  EXPECT_STREQ(seen.scales({}, p.values, 1, 1.0F, out).argument, "key policy: takes no scale");
  // What no scale makes acceptable: rows in binary16 end at 65504, rotated pairs at the largest float / sqrt(2).
  const float large[heads * dim] = {65536.0F};
  ASSERT_TRUE(seen.observe(large, x, 1).ok());
  EXPECT_EQ(seen.scales(p.keys, p.values, 1, 1.0F, out).code, errc::out_of_range);
  c.half_window = false;
  const float huge[heads * dim] = {3e38F};
  ASSERT_TRUE(calibrator::create(c, seen).ok());
  ASSERT_TRUE(seen.observe(huge, huge, 1).ok());
  EXPECT_STREQ(seen.scales(p.keys, p.values, 1, 1.0F, out).argument, "k");
  EXPECT_TRUE(seen.scales(test::find("k:e4m3-tensor-pre,v:f32").keys, p.values, 1, 1.0F, out).ok());
  EXPECT_EQ(seen.scales(p.keys, p.values, 1, 2.0F, out).code, errc::out_of_range);
}

TEST(SaveScales, names_types_and_shapes_that_vllm_reads) {
  std::vector<layer_scales> layers(12);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].count = i == 1 ? 4 : 1;
    layers[i].k.fill(static_cast<float>(i + 1));
    layers[i].v.fill(0.1F);
  }
  std::string file;
  const auto sink = [&](const void* bytes, std::size_t n) {
    file.append(static_cast<const char*>(bytes), n);
    return true;
  };
  ASSERT_TRUE(kvaxis::save_scales(layers.data(), 12, "model.layers.{}.self_attn", sink).ok());
  const kvaxis::safetensors f = test::opened(file);
  kvaxis::tensor_view t;
  ASSERT_TRUE(f.find("model.layers.11.self_attn.k_scale", t).ok());
  EXPECT_EQ(t.dtype, "F32");
  EXPECT_EQ(t.rank, 1);
  EXPECT_EQ(t.shape[0], 1U);
  const float twelve = 12.0F;
  EXPECT_EQ(std::memcmp(t.data, &twelve, 4), 0);
  ASSERT_TRUE(f.find("model.layers.1.self_attn.v_scale", t).ok());
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.shape[0], 4U);
  EXPECT_EQ(t.count, 4U);
  int tensors = 0;
  ASSERT_TRUE(f.for_each([&](kvaxis::json_text, const kvaxis::tensor_view&) { ++tensors; }).ok());
  EXPECT_EQ(tensors, 24);
  EXPECT_EQ(static_cast<unsigned char>(file[0]) % 8, 0);  // the data is aligned
}

TEST(SaveScales, arguments) {
  layer_scales layers[2];
  for (layer_scales& s : layers) {
    s.count = 1;
    s.k[0] = s.v[0] = 1.0F;
  }
  std::size_t written = 0;
  const auto sink = [&](const void*, std::size_t n) { return written += n, true; };
  EXPECT_STREQ(kvaxis::save_scales(nullptr, 1, "m.{}", sink).argument, "layers");
  EXPECT_STREQ(kvaxis::save_scales(layers, 0, "m.{}", sink).argument, "layers");
  EXPECT_STREQ(kvaxis::save_scales(layers, 2, "m", sink).argument, "module: no {}");
  EXPECT_STREQ(kvaxis::save_scales(layers, 1, "", sink).argument, "module");
  EXPECT_STREQ(kvaxis::save_scales(layers, 1, "a\"b", sink).argument, "module: characters");
  EXPECT_STREQ(kvaxis::save_scales(layers, 1, std::string(300, 'a'), sink).argument, "module: length");
  layers[1].v[0] = 0.0F;
  EXPECT_STREQ(kvaxis::save_scales(layers, 2, "m.{}", sink).argument, "v_scale");
  layers[1].count = 0;
  EXPECT_STREQ(kvaxis::save_scales(layers, 2, "m.{}", sink).argument, "layers: count");
  EXPECT_EQ(written, 0U);
  // A sink that gives up, at any piece.
  for (std::size_t most = 0; most < 120; most += 7) {
    std::size_t left = most;
    const auto full = [&](const void*, std::size_t n) { return n <= left ? (left -= n, true) : false; };
    EXPECT_STREQ(kvaxis::save_scales(layers, 1, "m.{}", full).argument, "sink");
  }
  EXPECT_TRUE(kvaxis::save_scales(layers, 1, std::string(256, 'a'), sink).ok());
}

}  // namespace
