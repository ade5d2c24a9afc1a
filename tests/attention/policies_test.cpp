// Every codec on every axis with every rotation, as keys and as values, against the oracle.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "against_oracle.hpp"

namespace {

struct codec_name {
  const char* name;
  const char* given;  // scale, and offset where it has one, for numbers within +-3
};
constexpr codec_name codecs[] = {
    {"int4", "0.6,-4.5"},    {"int8", "0.035,-4.46"},    {"int4s", "0.65"},     {"int8s", "0.0355"},
    {"int4f32", "0.6,-4.5"}, {"int8f32", "0.035,-4.46"}, {"e4m3", "0.011"},     {"e5m2", "0.0001"},
    {"f32", nullptr},        {"f16", nullptr},           {"bf16", nullptr},     {"int2", "3.1,-4.6"},
    {"int3", "1.35,-4.6"},   {"int5", "0.3,-4.6"},       {"int6", "0.15,-4.6"}, {"int2s", "4.6"},
    {"int3s", "1.55"},       {"int5s", "0.31"},          {"int6s", "0.15"}};

// The names of a codec's sides: keys with each of the rotations, values without.
struct side_names {
  std::vector<std::string> keys;
  std::string value;
};
std::vector<side_names> sides_of(const codec_name& codec) {
  const std::string name = codec.name;
  const auto with = [&](const std::string& axis, std::initializer_list<const char*> rotations) {
    side_names s;
    s.value = name + axis;
    for (const char* r : rotations) s.keys.push_back(name + axis + r);
    return s;
  };
  const std::string tensor = codec.given == nullptr ? "-tensor" : "-tensor@" + std::string(codec.given);
  return {with("-channel64", {"-pre", "-auto", "-hot5", "-tile", "-post"}),
          with("-token32", {"-pre", "-tile", "-post"}), with("-token64", {"-pre", "-tile"}),
          with(tensor, {"-pre", "-tile", "-post"})};
}

class Policies : public ::testing::TestWithParam<codec_name> {};

TEST_P(Policies, agree_with_the_oracle) {
  const kvaxis::rope rope = test::rope_of(64);
  for (const side_names& side : sides_of(GetParam())) {
    for (const std::string& key : side.keys) {
      const std::string name = "k:" + key + ",v:" + side.value;
      SCOPED_TRACE(name);
      kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of({}, rope));
      test::append_random(cache, 150, 3);
      ASSERT_EQ(cache.folded_tokens(), 128);
      const test::agreement check(cache, rope);
      check.expect({1, 2, 149});
      check.expect({3, 1, 149});
      check.expect({8, 1, 120});
      if (HasFatalFailure()) return;
    }
  }
}

// Keys of one codec with values of another: nothing is shared between the two sides.
TEST_P(Policies, mix_with_other_value_codecs) {
  const kvaxis::rope rope = test::rope_of(64);
  for (const char* value : {"int4-token64", "e5m2-channel32", "f16", "f32"}) {
    const std::string name = "k:" + std::string(GetParam().name) + "-channel64,v:" + value;
    SCOPED_TRACE(name);
    kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of({}, rope));
    test::append_random(cache, 150, 4);
    const test::agreement check(cache, rope);
    check.expect({2, 1, 149});
    check.expect({6, 1, 149});
  }
}

// What changes the codec: least squares, transforms, hot pairs of another width, scales of one byte. In f32 and as integers
// on keys that have hot pairs and others.
TEST(PolicyVariants, agree_with_the_oracle) {
  for (const int dim : {64, 80}) {
    const kvaxis::rope rope = test::rope_of(dim);
    for (const char* name :
         {"k:int4-channel64-pre-lsq,v:int4-hadamard-token64-lsq", "k:int3-channel32-auto-lsq,v:int3-hadamard-token16",
          "k:int2-channel64-hot3x4,v:int2-token32-lsq", "k:int3-channel64-hot5x5-lsq,v:int5s-hadamard-token32",
          "k:int4-channel64-hot8x6,v:int3-token64-lsq", "k:int4-channel128-hot7x8,v:f32",
          "k:int4-channel64-hot1x5,v:int6-channel64", "k:int5-channel64-hot8x6-lsq,v:int8-hadamard-token64",
          "k:int4-hadamard-token64-post,v:int4-hadamard-token64", "k:int8-hadamard-token32-tile-lsq,v:int3s-token64",
          "k:mxfp4-token32-pre,v:nvfp4-token16", "k:mxfp6e2m3-channel32-hot2,v:mxfp8e4m3-token32",
          "k:mxint8-channel32-auto,v:mxfp6e3m2-token32", "k:mxfp8e5m2-token32-tile,v:mxfp4-token32",
          "k:int4s-centered-channel64-pre,v:int4-out2-token64",
          "k:int3-out1-channel64-hot3-lsq,v:e4m3-centered-token32"}) {
      SCOPED_TRACE(std::string(name) + " dim " + std::to_string(dim));
      kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of({2, dim}, rope));
      test::append_random(cache, 300, 5);
      const test::agreement check(cache, rope);
      check.expect({1, 2, 299});
      check.expect({4, 1, 299});
      check.expect({9, 1, 270});
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(codec, Policies, ::testing::ValuesIn(codecs), [](const auto& p) { return p.param.name; });

}  // namespace
