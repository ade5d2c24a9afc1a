// The grammar of policy names: what each part means, and what is refused.
#include <gtest/gtest.h>

#include <cstddef>
#include <kvaxis/quantizers/names.hpp>
#include <policies.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace {

using kvaxis::axis;

kvaxis::policy_name parsed(std::string_view name) {
  kvaxis::policy_name out;
  const kvaxis::status s = kvaxis::parse_policy(name, out);
  EXPECT_TRUE(s.ok()) << name << ": " << s.argument;
  return out;
}

void expect_policy(const kvaxis::policy& p, axis along, int group, int rotation) {
  EXPECT_EQ(p.axis, along);
  EXPECT_EQ(p.group, group);
  EXPECT_EQ(p.rotation, rotation);
}

TEST(Names, every_part_of_a_name) {
  const kvaxis::policy_name n = parsed("k:int4-channel64-pre,v:int8s-token32");
  EXPECT_EQ(n.key.codec, "int4");
  EXPECT_EQ(n.value.codec, "int8s");
  expect_policy(n.key.policy, axis::channel, 64, kvaxis::pre);
  expect_policy(n.value.policy, axis::token, 32, kvaxis::pre);
  EXPECT_FALSE(n.key.has_scale || n.key.has_offset || n.value.has_scale || n.value.has_offset);
}

TEST(Names, rotations) {
  const std::pair<const char*, int> all[] = {{"-pre", kvaxis::pre},
                                             {"-auto", kvaxis::automatic},
                                             {"-tile", kvaxis::tile_rotated},
                                             {"-post", kvaxis::post},
                                             {"-hot1", 1},
                                             {"-hot32", 32},
                                             {"", kvaxis::pre}};
  for (const auto& [text, rotation] : all) {
    const std::string name = "k:int4-channel128" + std::string(text) + ",v:f16";
    expect_policy(parsed(name).key.policy, axis::channel, 128, rotation);
  }
}

TEST(Names, identity_codecs_need_no_axis) {
  for (const char* codec : {"f32", "f16", "bf16"}) {
    const std::string name = "k:" + std::string(codec) + "-post,v:" + codec;
    const kvaxis::policy_name n = parsed(name);
    expect_policy(n.key.policy, axis::tensor, 0, kvaxis::post);
    expect_policy(n.value.policy, axis::tensor, 0, kvaxis::pre);
  }
}

TEST(Names, scales_and_offsets) {
  const std::string text = "k:int8-tensor@0.5,-1.25-tile,v:e4m3-tensor@1e-3";
  const kvaxis::policy_name n = parsed(text);
  EXPECT_TRUE(n.key.has_scale && n.key.has_offset && n.value.has_scale);
  EXPECT_FALSE(n.value.has_offset);
  EXPECT_EQ(n.key.scale, 0.5F);
  EXPECT_EQ(n.key.offset, -1.25F);
  EXPECT_EQ(n.key.policy.rotation, kvaxis::tile_rotated);
  EXPECT_EQ(n.value.scale, 1e-3F);

  const kvaxis::policy_name only_key = parsed("k:e4m3-tensor@2,v:int8-tensor");
  EXPECT_TRUE(only_key.key.has_scale);
  EXPECT_FALSE(only_key.key.has_offset || only_key.value.has_scale);
  EXPECT_EQ(parsed("k:f32,v:int8-tensor@0.1,0.5").value.offset, 0.5F);
}

TEST(Names, latent_values) {
  const kvaxis::policy_name n = parsed("k:int8-token64-post,v:latent");
  EXPECT_EQ(n.value.codec, "latent");
  expect_policy(n.value.policy, axis::latent, 0, kvaxis::pre);
  const test::policies found = test::find("k:int8-token64-post,v:latent");
  EXPECT_STREQ(found.values.codec->name, "int8") << "the codec of the keys";
  expect_policy(found.values.policy, axis::latent, 0, kvaxis::pre);
  char written[16];
  EXPECT_EQ(kvaxis::format_policy("int8", found.values.policy, kvaxis::role::value, written, sizeof written), 6);
  EXPECT_STREQ(written, "latent");
}

TEST(Names, what_does_not_follow_the_grammar_is_refused) {
  const char* keys[] = {"",
                        "k:",
                        "v:int4-token64",
                        "int4-channel64,v:f16",
                        "K:int4-channel64,v:f16",
                        "k:int4,v:f16",
                        "k:int4-channel,v:f16",
                        "k:int4-channel0,v:f16",
                        "k:int4-channel-64,v:f16",
                        "k:int4-channel+64,v:f16",
                        "k:int4-channel99999999999,v:f16",
                        "k:int4-chanel64,v:f16",
                        "k:int4-Channel64,v:f16",
                        "k:int4-channel64-hot,v:f16",
                        "k:int4-channel64-hot0,v:f16",
                        "k:int4-channel64-hot-4,v:f16",
                        "k:int4-channel64-hot4x,v:f16",
                        "k:int4-channel64-pre-auto,v:f16",
                        "k:int4-channel64-prefix,v:f16",
                        "k:int4-channel64@1,v:f16",
                        "k:int4-token64@1,v:f16",
                        "k:f16@1,v:f16",
                        "k:e4m3-tensor@,v:f16",
                        "k:e4m3-tensor@x,v:f16",
                        "k:e4m3-tensor@1,2,3,v:f16",
                        "k:e4m3-tensor@1e999,v:f16",
                        "k:int4-out-channel64,v:f16",
                        "k:int4-centered,v:f16",
                        "k:int4-channel64-pre v:f16",
                        "k:int4-channel64-pre,f16",
                        "k:int4-channel64-pre",
                        "k:int4-channel64-pre,",
                        "k:latent,v:latent",
                        " k:int4-channel64-pre,v:f16"};
  for (const char* name : keys) {
    kvaxis::policy_name out;
    out.key.codec = "untouched";
    const kvaxis::status s = kvaxis::parse_policy(name, out);
    EXPECT_EQ(s.code, kvaxis::errc::invalid_argument) << name;
    EXPECT_STREQ(s.argument, "policy name: k:codec-axis[@scale][-rotation]") << name;
    EXPECT_EQ(out.key.codec, "untouched") << name;
  }
  const char* values[] = {"k:f16,v:",
                          "k:f16,v:int4",
                          "k:f16,v:int4-token64-pre",
                          "k:f16,v:f16-post",
                          "k:f16,v:latent-token64",
                          "k:f16,v:latent@1",
                          "k:f16,v:latent512",
                          "k:f16,v:int4-token64 ",
                          "k:f16,v:int4-token64,",
                          "k:f16,v:int4-token64,v:f16",
                          "k:f16,v:int4-token0",
                          "k:f16,v:int4-token64@2",
                          "k:f16,v:e4m3-tensor@1,",
                          "k:f16,v:e4m3-tensor@1,x",
                          "k:f16,v:int4-token64\n"};
  for (const char* name : values) {
    kvaxis::policy_name out;
    const kvaxis::status s = kvaxis::parse_policy(name, out);
    EXPECT_EQ(s.code, kvaxis::errc::invalid_argument) << name;
    EXPECT_STREQ(s.argument, "policy name: v:codec-axis[@scale]") << name;
  }
}

const char* const codecs[] = {"int4", "int8", "int4s", "int8s", "int4f32", "int8f32", "e4m3",  "e5m2",  "f32",
                              "f16",  "bf16", "int2",  "int3",  "int5",    "int6",    "int2s", "int6s", "mxfp4"};

TEST(Names, every_codec_and_axis_is_found_and_writes_its_name_back) {
  for (const char* codec : codecs) {
    for (const char* along : {"-channel32", "-channel256", "-token16", "-token128", "-tensor"}) {
      for (const char* rotation : {"-pre", "-tile", "-post", "-auto", "-hot7"}) {
        const std::string key = codec + std::string(along) + rotation;
        const std::string value = codec + std::string(along);
        const test::policies found = test::find("k:" + key + ",v:" + value);
        ASSERT_NE(found.keys.codec, nullptr) << key;
        ASSERT_NE(found.values.codec, nullptr) << value;
        EXPECT_STREQ(found.keys.codec->name, codec);
        char written[64];
        const int length = kvaxis::format_policy(codec, found.keys.policy, kvaxis::role::key, written, sizeof written);
        EXPECT_EQ(written, key);
        EXPECT_EQ(length, static_cast<int>(key.size()));
        kvaxis::format_policy(codec, found.values.policy, kvaxis::role::value, written, sizeof written);
        EXPECT_EQ(written, value);
        const volatile std::size_t room = 4;  // the compiler would rightly warn of a text that it sees cut
        EXPECT_EQ(kvaxis::format_policy(codec, found.values.policy, kvaxis::role::value, written, room),
                  static_cast<int>(value.size()));
        EXPECT_EQ(std::string(written), value.substr(0, 3)) << "cut to the room there is";
      }
    }
  }
}

// A policy's name and the whole name of its codec.
TEST(Names, of_codecs_made_of_others) {
  struct pair {
    const char* policy;
    const char* codec;
  };
  for (const pair& p :
       {pair{"int4-channel64-pre-lsq", "int4-lsq"}, pair{"int4-channel64-hot8x6", "int4x6"},
        pair{"int3-channel32-hot4x5-lsq", "int3-lsqx5"}, pair{"int8-hadamard-token64-post", "int8-hadamard"},
        pair{"int2s-hadamard-token32-tile-lsq", "int2s-lsq-hadamard"},
        pair{"int4s-centered-channel64-pre", "int4s-centered"}, pair{"e4m3-centered-token64-post", "e4m3-centered"},
        pair{"int4-out2-token64-pre", "int4-out2"}, pair{"int2-out1-channel128-hot3-lsq", "int2-out1-lsq"}}) {
    const test::policies found = test::find("k:" + std::string(p.policy) + ",v:f16");
    ASSERT_NE(found.keys.codec, nullptr) << p.policy;
    EXPECT_STREQ(found.keys.codec->name, p.codec);
    char written[64];
    kvaxis::format_policy(p.codec, found.keys.policy, kvaxis::role::key, written, sizeof written);
    EXPECT_STREQ(written, p.policy);
  }
  for (const char* name :
       {"k:int4-channel64-hot8x7,v:f16", "k:int4-channel64-lsq-pre,v:f16", "k:f16-lsq,v:f16",
        "k:f16,v:int4-token64-hot2x6", "k:e4m3-hadamard-token64-post,v:f16", "k:int4-out3-channel64,v:f16",
        "k:int4-out-1-channel64,v:f16", "k:int4-out01-channel64,v:f16", "k:f16-centered-channel64,v:f16",
        "k:int4-channel64-centered,v:f16", "k:int4s-centered-out1-token64,v:f16"}) {
    EXPECT_EQ(test::find(name).keys.codec, nullptr) << name;
  }
}

TEST(Names, unknown_codecs_are_not_found) {
  for (const char* name : {"k:int7-channel64,v:f16", "k:f16,v:int16-token64", "k:INT4-channel64,v:f16",
                           "k:-channel64,v:f16", "k:fp8-tensor,v:f16", "k:int4sx-channel64,v:f16"}) {
    const test::policies found = test::find(name);
    EXPECT_EQ(found.keys.codec, nullptr) << name;
    EXPECT_EQ(found.values.codec, nullptr) << name;
  }
}

}  // namespace
