// Scales of a checkpoint: the names, types and shapes in use, and that nothing else passes for a scale.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <kvaxis/formats/half.hpp>
#include <kvaxis/io/scales.hpp>
#include <limits>
#include <string>
#include <vector>

#include "files.hpp"

namespace {

using kvaxis::errc;
using kvaxis::layer_scales;
using test::file_maker;

constexpr const char* module = "model.layers.{}.self_attn";
const std::string layer3 = "model.layers.3.self_attn";

kvaxis::status load(const std::string& file, int kv_heads, layer_scales& out, const char* from = module) {
  const kvaxis::safetensors f = test::opened(file);
  return kvaxis::load_scales(&f, 1, from, 3, kv_heads, out);
}

kvaxis::status load(const std::string& file, int kv_heads = 2) {
  layer_scales out;
  return load(file, kv_heads, out);
}

file_maker good_values() { return file_maker().add<float>(layer3 + ".v_scale", "F32", "[1]", {0.5F}); }

// The answer to a file whose k_scale is this tensor; the other answer has the sides exchanged.
template <class T>
void expect_refused(const std::string& dtype, const std::string& shape, const std::vector<T>& numbers, errc code,
                    const std::string& fault) {
  for (const bool is_key : {true, false}) {
    const std::string bad = is_key ? "k_scale" : "v_scale";
    const std::string good = is_key ? "v_scale" : "k_scale";
    layer_scales out;
    out.count = 77;
    const kvaxis::status s = load(file_maker()
                                      .add<float>(layer3 + "." + good, "F32", "[]", {1.0F})
                                      .add<T>(layer3 + "." + bad, dtype, shape, numbers)
                                      .file(),
                                  2, out);
    EXPECT_EQ(s.code, code) << fault;
    EXPECT_EQ(s.argument, bad + ": " + fault);
    EXPECT_EQ(s.limit, 3);
    EXPECT_EQ(out.count, 77);
  }
}

TEST(Scales, every_name_in_use) {
  struct names {
    const char* key;
    const char* value;
  };
  for (const names& n :
       {names{".k_scale", ".v_scale"}, names{".attn.k_scale", ".attn.v_scale"},
        names{".k_proj.k_scale", ".v_proj.v_scale"}, names{".qkv_proj.k_scale", ".qkv_proj.v_scale"},
        names{".k_proj.output_scale", ".v_proj.output_scale"}, names{".k_cache.scale", ".v_cache.scale"}}) {
    layer_scales out;
    const kvaxis::status s = load(file_maker()
                                      .add<float>(layer3 + ".q_scale", "F32", "[]", {9.0F})
                                      .add<float>("model.layers.33.self_attn" + std::string(n.key), "F32", "[]", {9.0F})
                                      .add<float>(layer3 + n.value, "F32", "[]", {0.25F})
                                      .add<float>("vision." + layer3 + n.key, "F32", "[]", {9.0F})
                                      .add<float>(layer3 + n.key, "F32", "[1]", {0.125F})
                                      .file(),
                                  8, out);
    ASSERT_TRUE(s.ok()) << s.argument;
    EXPECT_EQ(out.count, 1);
    EXPECT_EQ(out.k[0], 0.125F);
    EXPECT_EQ(out.v[0], 0.25F);
  }
}

TEST(Scales, one_for_keys_and_values) {
  layer_scales out;
  ASSERT_TRUE(load(file_maker().add<float>(layer3 + ".kv_scale", "F32", "[]", {0.75F}).file(), 2, out).ok());
  EXPECT_EQ(out.k[0], 0.75F);
  EXPECT_EQ(out.v[0], 0.75F);
  const std::string trt =
      file_maker()
          .add<float>("transformer.layers.3.attention.kv_cache_scaling_factor", "F32", "[1]", {0.5F})
          .add<float>("transformer.layers.3.attention.kv_cache_rcp_scaling_factor", "F32", "[1]", {2.0F})
          .file();
  ASSERT_TRUE(load(trt, 2, out, "transformer.layers.{}.attention").ok());
  EXPECT_EQ(out.k[0], 0.5F);
  EXPECT_EQ(out.v[0], 0.5F);
}

TEST(Scales, every_type_in_use) {
  const auto loaded = [](file_maker made) {
    layer_scales out;
    kvaxis::check(load(made.file(), 1, out));
    return out.k[0];
  };
  EXPECT_EQ(loaded(good_values().add<double>(layer3 + ".k_scale", "F64", "[]", {0.1})), 0.1F);
  EXPECT_EQ(loaded(good_values().add<float>(layer3 + ".k_scale", "F32", "[]", {0.1F})), 0.1F);
  EXPECT_EQ(loaded(good_values().add<std::uint16_t>(layer3 + ".k_scale", "F16", "[]", {0x3555})),
            kvaxis::to_float(kvaxis::float16{0x3555}));
  EXPECT_EQ(loaded(good_values().add<std::uint16_t>(layer3 + ".k_scale", "BF16", "[]", {0x3EAB})),
            kvaxis::to_float(kvaxis::bfloat16{0x3EAB}));
  // A subnormal binary16 is a normal float.
  EXPECT_EQ(loaded(good_values().add<std::uint16_t>(layer3 + ".k_scale", "F16", "[]", {0x0001})), 0x1p-24F);
  // In the file at an odd address.
  EXPECT_EQ(
      loaded(good_values().add<char>("odd", "U8", "[1]", {'x'}).add<float>(layer3 + ".k_scale", "F32", "[]", {0.1F})),
      0.1F);
}

TEST(Scales, one_or_one_for_each_head) {
  for (const char* shape : {"[3]", "[3,1,1]", "[1,3,1,1]", "[1,3]"}) {
    layer_scales out;
    ASSERT_TRUE(
        load(good_values().add<float>(layer3 + ".k_scale", "F32", shape, {1.0F, 2.0F, 3.0F}).file(), 3, out).ok());
    EXPECT_EQ(out.count, 3);
    for (std::size_t h = 0; h < 3; ++h) {
      EXPECT_EQ(out.k[h], static_cast<float>(h + 1));
      EXPECT_EQ(out.v[h], 0.5F);  // the one of all values, for each head
    }
  }
  for (const char* shape : {"[]", "[1]", "[1,1,1]"}) {
    layer_scales out;
    ASSERT_TRUE(load(good_values().add<float>(layer3 + ".k_scale", "F32", shape, {1.0F}).file(), 3, out).ok());
    EXPECT_EQ(out.count, 1);
  }
}

TEST(Scales, zero_points_must_be_zero) {
  file_maker made = good_values().add<float>(layer3 + ".k_scale", "F32", "[1]", {0.5F});
  EXPECT_TRUE(load(made.add<float>(layer3 + ".k_zero_point", "F32", "[1]", {0.0F}).file()).ok());
  EXPECT_TRUE(load(made.add<char>(layer3 + ".v_zero_point", "F8_E4M3", "[1]", {0}).file()).ok());
  for (const char* name : {".k_proj.output_zero_point", ".attn.k_zero_point", ".k_proj.k_bias"}) {
    file_maker asymmetric = made;
    const kvaxis::status s = load(asymmetric.add<char>(layer3 + name, "I8", "[2]", {0, 3}).file());
    EXPECT_EQ(s.code, errc::unsupported);
    EXPECT_STREQ(s.argument, "k_scale: with a zero point");
    EXPECT_EQ(s.limit, 3);
  }
  EXPECT_STREQ(load(made.add<char>(layer3 + ".v_proj.v_bias", "I8", "[1]", {1}).file()).argument,
               "v_scale: with a zero point");
}

TEST(Scales, missing_or_twice) {
  for (const bool is_key : {true, false}) {
    const std::string bad = is_key ? "k_scale" : "v_scale";
    const std::string good = is_key ? "v_scale" : "k_scale";
    file_maker made = file_maker().add<float>(layer3 + "." + good, "F32", "[]", {1.0F});
    kvaxis::status s = load(made.file());
    EXPECT_EQ(s.code, errc::invalid_argument);
    EXPECT_EQ(s.argument, bad + ": missing");
    EXPECT_EQ(s.limit, 3);
    made.add<float>(layer3 + ".attn." + bad, "F32", "[]", {1.0F}).add<float>(layer3 + "." + bad, "F32", "[]", {1.0F});
    s = load(made.file());
    EXPECT_EQ(s.code, errc::invalid_argument);
    EXPECT_EQ(s.argument, bad + ": more than one tensor");
    EXPECT_EQ(s.limit, 3);
  }
  // The inverse of a scale is none, nor is one of other things.
  for (const char* other :
       {".kv_cache_rcp_scaling_factor", ".q_scale", ".k_proj.weight_scale", ".k_proj.input_scale"}) {
    EXPECT_STREQ(load(file_maker().add<float>(layer3 + other, "F32", "[]", {1.0F}).file()).argument,
                 "k_scale: missing");
  }
}

TEST(Scales, what_is_no_scale_is_never_one) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto refused = [](float x, const char* fault) {
    expect_refused<float>("F32", "[]", {x}, errc::invalid_argument, fault);
    expect_refused<float>("F32", "[2]", {1.0F, x}, errc::invalid_argument, fault);
  };
  refused(0.0F, "zero");
  refused(-0.0F, "zero");
  refused(-1.0F, "negative");
  refused(-0x1p-140F, "negative");
  refused(0x1p-127F, "subnormal");
  refused(inf, "not a finite float");
  refused(-inf, "not a finite float");
  refused(std::numeric_limits<float>::quiet_NaN(), "not a finite float");
  expect_refused<double>("F64", "[]", {1e39}, errc::invalid_argument, "not a finite float");
  expect_refused<double>("F64", "[]", {1e-39}, errc::invalid_argument, "subnormal");
  expect_refused<double>("F64", "[]", {1e-320}, errc::invalid_argument, "subnormal");
  expect_refused<std::uint16_t>("F16", "[]", {0x7C00}, errc::invalid_argument, "not a finite float");
  expect_refused<std::uint16_t>("BF16", "[]", {0x0001}, errc::invalid_argument, "subnormal");
  expect_refused<char>("F8_E4M3", "[1]", {0x38}, errc::unsupported, "dtype");
  expect_refused<std::int32_t>("I32", "[1]", {1}, errc::unsupported, "dtype");
  expect_refused<float>("F32", "[0]", {}, errc::invalid_argument, "shape");
  expect_refused<float>("F32", "[3]", {1, 1, 1}, errc::invalid_argument, "shape");
  expect_refused<float>("F32", "[2,2]", {1, 1, 1, 1}, errc::invalid_argument, "shape");
}

// A matrix with as many numbers as there are heads is not one number for each.
TEST(Scales, a_matrix_is_no_list_of_heads) {
  const std::string file = good_values().add<float>(layer3 + ".k_scale", "F32", "[2,2]", {1, 1, 1, 1}).file();
  EXPECT_STREQ(load(file, 4).argument, "k_scale: shape");
}

TEST(Scales, from_files_that_share_a_layer) {
  const std::string first = file_maker().add<float>(layer3 + ".k_scale", "F32", "[]", {1.0F}).file();
  const std::string second = file_maker().add<float>(layer3 + ".v_scale", "F32", "[]", {2.0F}).file();
  const kvaxis::safetensors files[] = {test::opened(first), test::opened(second), test::opened(first)};
  layer_scales out;
  ASSERT_TRUE(kvaxis::load_scales(files, 2, module, 3, 4, out).ok());
  EXPECT_EQ(out.k[0], 1.0F);
  EXPECT_EQ(out.v[0], 2.0F);
  EXPECT_STREQ(kvaxis::load_scales(files, 1, module, 3, 4, out).argument, "v_scale: missing");
  EXPECT_STREQ(kvaxis::load_scales(files, 3, module, 3, 4, out).argument, "k_scale: more than one tensor");
}

TEST(Scales, arguments) {
  const std::string file = good_values().file();
  const kvaxis::safetensors f = test::opened(file);
  layer_scales out;
  EXPECT_STREQ(kvaxis::load_scales(nullptr, 1, module, 0, 1, out).argument, "files");
  EXPECT_STREQ(kvaxis::load_scales(&f, 0, module, 0, 1, out).argument, "files");
  EXPECT_STREQ(kvaxis::load_scales(&f, 1, module, -1, 1, out).argument, "layer");
  EXPECT_STREQ(kvaxis::load_scales(&f, 1, module, 0, 0, out).argument, "kv_heads");
  EXPECT_STREQ(kvaxis::load_scales(&f, 1, module, 0, kvaxis::max_kv_heads + 1, out).argument, "kv_heads");
  const kvaxis::safetensors closed;
  EXPECT_STREQ(kvaxis::load_scales(&closed, 1, module, 0, 1, out).argument, "safetensors: not opened");
  // A module without braces is meant as it is.
  const std::string whole = file_maker().add<float>("attention.kv_scale", "F32", "[]", {1.0F}).file();
  const kvaxis::safetensors w = test::opened(whole);
  EXPECT_TRUE(kvaxis::load_scales(&w, 1, "attention", 7, 1, out).ok());
  EXPECT_FALSE(kvaxis::load_scales(&w, 1, "atten", 7, 1, out).ok());
}

}  // namespace
