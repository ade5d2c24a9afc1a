// Everything that create() refuses, with the argument's name and its limit, and a target that stays as it was.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::axis;
using kvaxis::errc;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct request {
  kvaxis::cache_config config = test::rope_shape(4, 64);
  test::policies policies;
};

struct refusal {
  const char* test;
  const char* policy;
  std::function<void(request&)> change;
  errc code;
  std::string argument;
  std::int64_t limit;
};

const char* const usual = "k:int4-channel64-pre,v:int4-token64";
const char* const fp8 = "k:e4m3-tensor-pre,v:e4m3-tensor";
const float one = 1.0F;
const std::vector<float> scales = {1.0F, 2.0F, 3.0F, 4.0F};
const std::vector<float> with_zero = {1.0F, 2.0F, 0.0F, 4.0F};
const std::vector<float> with_nan = {1.0F, nan, 3.0F, 4.0F};
const std::vector<float> with_infinity = {1.0F, 2.0F, 3.0F, infinity};
const std::vector<float> with_negative = {-1.0F, 2.0F, 3.0F, 4.0F};
const std::vector<float> with_subnormal = {1.0F, 1e-39F, 3.0F, 4.0F};

void give(request& r, const std::vector<float>& k, const std::vector<float>& v) {
  r.config.k_scale = k.data();
  r.config.v_scale = v.data();
  r.config.scales_count = 4;
}

const std::vector<refusal> refusals = {
    {"no_heads", usual, [](request& r) { r.config.kv_heads = 0; }, errc::out_of_range, "kv_heads", 1024},
    {"negative_heads", usual, [](request& r) { r.config.kv_heads = -3; }, errc::out_of_range, "kv_heads", 1024},
    {"too_many_heads", usual, [](request& r) { r.config.kv_heads = 1025; }, errc::out_of_range, "kv_heads", 1024},
    {"short_head", usual, [](request& r) { r.config.head_dim = 7; }, errc::out_of_range, "head_dim", 8},
    {"long_head", usual, [](request& r) { r.config.head_dim = 577; }, errc::out_of_range, "head_dim", 576},
    {"short_value", usual, [](request& r) { r.config.value_dim = 7; }, errc::out_of_range, "value_dim", 8},
    {"negative_value", usual, [](request& r) { r.config.value_dim = -1; }, errc::out_of_range, "value_dim", 8},
    {"long_value", usual, [](request& r) { r.config.value_dim = 577; }, errc::out_of_range, "value_dim", 576},
    {"negative_window", usual, [](request& r) { r.config.window = -1; }, errc::out_of_range, "window",
     kvaxis::max_position},
    {"negative_pins", usual, [](request& r) { r.config.pins = -1; }, errc::out_of_range, "pins", 256},
    {"too_many_pins", usual, [](request& r) { r.config.pins = 257; }, errc::out_of_range, "pins", 256},
    {"tile_tokens", usual, [](request& r) { r.config.tile_tokens = 48; }, errc::invalid_argument, "tile_tokens", 256},
    {"growth", usual, [](request& r) { r.config.growth = 0.5F; }, errc::out_of_range, "growth", 1},
    {"growth_nan", usual, [](request& r) { r.config.growth = nan; }, errc::out_of_range, "growth", 1},
    {"rope_channel", usual, [](request& r) { r.config.rope.pairs[3].b = 64; }, errc::out_of_range, "rope.pairs", 63},
    {"rope_twice", usual, [](request& r) { r.config.rope.pairs[3].b = 0; }, errc::invalid_argument, "rope.pairs", 0},
    {"rope_pairs", usual, [](request& r) { r.config.rope.pairs_count = 33; }, errc::out_of_range, "rope.pairs_count",
     32},
    {"rope_frequency", usual, [](request& r) { r.config.rope.pairs[0].frequency = 7.0; }, errc::out_of_range,
     "rope.pairs.frequency", 6},
    {"rope_factor", usual, [](request& r) { r.config.rope.attention_factor = 0.0; }, errc::out_of_range,
     "rope.attention_factor", 1024},
    {"rope_of_a_longer_head", usual, [](request& r) { r.config.head_dim = 32; }, errc::out_of_range, "rope.pairs_count",
     16},
    {"key_codec", usual, [](request& r) { r.policies.keys.codec = nullptr; }, errc::invalid_argument, "key policy", 0},
    {"value_codec", usual, [](request& r) { r.policies.values.codec = nullptr; }, errc::invalid_argument,
     "value policy", 0},
    {"key_tile", usual, [](request& r) { r.policies.keys.policy.group = 48; }, errc::invalid_argument,
     "key policy: group length", 256},
    {"key_token_group", "k:int4-token64-pre,v:int4-token64", [](request& r) { r.policies.keys.policy.group = 24; },
     errc::invalid_argument, "key policy: group length", 16},
    {"value_token_group", usual, [](request& r) { r.policies.values.policy.group = 8; }, errc::invalid_argument,
     "value policy: group length", 16},
    {"value_tile", usual,
     [](request& r) {
       r.policies.values.policy = {axis::channel, 96, 0};
     },
     errc::invalid_argument, "value policy: group length", 256},
    {"value_tile_longer_than_the_keys", "k:int4-channel32-pre,v:int4-channel64", [](request&) {},
     errc::invalid_argument, "value policy: group length must divide the tile's", 32},
    {"hot_pairs", "k:int4-channel64-hot33,v:int4-token64", [](request&) {}, errc::out_of_range, "key policy: hot pairs",
     32},
    {"unknown_rotation", usual, [](request& r) { r.policies.keys.policy.rotation = -4; }, errc::out_of_range,
     "key policy: hot pairs", 32},
    {"hot_pairs_per_token", "k:int4-token64-hot4,v:int4-token64", [](request&) {}, errc::unsupported,
     "key policy: automatic and hot pairs need per_channel", 0},
    {"automatic_per_tensor", "k:e4m3-tensor-auto,v:f16", [](request& r) { r.config.k_scale = &one; }, errc::unsupported,
     "key policy: automatic and hot pairs need per_channel", 0},
    {"no_key_scale", fp8, [](request& r) { r.config.v_scale = &one; }, errc::invalid_argument, "k_scale", 1},
    {"no_value_scale", fp8, [](request& r) { r.config.k_scale = &one; }, errc::invalid_argument, "v_scale", 1},
    {"zero_scale", fp8, [](request& r) { give(r, with_zero, scales); }, errc::invalid_argument, "k_scale", 2},
    {"nan_scale", fp8, [](request& r) { give(r, scales, with_nan); }, errc::invalid_argument, "v_scale", 1},
    {"infinite_scale", fp8, [](request& r) { give(r, with_infinity, scales); }, errc::invalid_argument, "k_scale", 3},
    {"negative_scale", fp8, [](request& r) { give(r, scales, with_negative); }, errc::invalid_argument, "v_scale", 0},
    {"subnormal_scale", fp8, [](request& r) { give(r, with_subnormal, scales); }, errc::invalid_argument, "k_scale", 1},
    {"two_scales_for_four_heads", fp8, [](request& r) { give(r, scales, scales), r.config.scales_count = 2; },
     errc::invalid_argument, "scales_count", 4},
    {"no_scales", fp8, [](request& r) { give(r, scales, scales), r.config.scales_count = 0; }, errc::invalid_argument,
     "scales_count", 4},
    {"infinite_key_offset", fp8, [](request& r) { give(r, scales, scales), r.config.k_offset = with_infinity.data(); },
     errc::invalid_argument, "k_offset", 3},
    {"nan_value_offset", fp8, [](request& r) { give(r, scales, scales), r.config.v_offset = with_nan.data(); },
     errc::invalid_argument, "v_offset", 1},
};

class Create : public ::testing::TestWithParam<refusal> {};

TEST_P(Create, refuses_and_says_why) {
  const refusal& want = GetParam();
  request r;
  r.policies = test::find(want.policy);
  ASSERT_NE(r.policies.keys.codec, nullptr);
  ASSERT_NE(r.policies.values.codec, nullptr);
  want.change(r);

  counting_allocator memory;
  kvaxis::any_kv_cache empty;
  kvaxis::any_kv_cache used = test::cache_of(usual, test::rope_shape(1, 16));
  test::tokens(test::rope_shape(1, 16), 150, 1).append_all_to(used);
  const std::string before = test::snapshot(used);
  for (kvaxis::any_kv_cache* out : {&empty, &used}) {
    const kvaxis::status s =
        kvaxis::any_kv_cache::create(r.config, r.policies.keys, r.policies.values, memory.hook(), *out);
    EXPECT_EQ(s.code, want.code);
    EXPECT_EQ(s.argument, want.argument);
    EXPECT_EQ(s.limit, want.limit);
  }
  EXPECT_EQ(memory.calls, 0);
  EXPECT_EQ(empty.format(), nullptr);
  EXPECT_EQ(test::snapshot(used) == before, true);
}

INSTANTIATE_TEST_SUITE_P(requests, Create, ::testing::ValuesIn(refusals),
                         [](const auto& tested) { return std::string(tested.param.test); });

// The numbers just inside the limits are served.
TEST(Create, takes_the_limits_themselves) {
  kvaxis::cache_config c = test::shape(1024, 8, 576);
  c.window = std::numeric_limits<int>::max();
  c.pins = 256;
  c.tile_tokens = 256;
  c.growth = 1.0F;
  EXPECT_EQ(test::cache_of("k:f16,v:f16", c).format()->kv_heads, 1024);
  c = test::rope_shape(1, 576, 8);
  c.window = c.pins = 0;
  EXPECT_EQ(test::cache_of("k:int4-channel32-hot288,v:int4-token16", c).format()->pairs, 288);
  c = test::shape(4, 8);
  c.k_scale = c.v_scale = scales.data();
  c.scales_count = 4;
  EXPECT_EQ(test::cache_of(fp8, c).format()->key_given[3].scale, 4.0F);
  c.scales_count = 1;
  EXPECT_EQ(test::cache_of(fp8, c).format()->value_given[3].scale, 1.0F);
}

TEST(Create, a_codec_without_a_unit_has_no_given_scale) {
  test::policies p = test::find(fp8);
  kvaxis::codec_table without_unit = *p.keys.codec;
  without_unit.unit = kvaxis::unit_kind::none;
  request r;
  give(r, scales, scales);
  kvaxis::any_kv_cache out;
  p.keys.codec = &without_unit;
  EXPECT_EQ(kvaxis::any_kv_cache::create(r.config, p.keys, p.values, {}, out).argument,
            std::string("key policy: per_tensor codec"));
  p = test::find(fp8);
  p.values.codec = &without_unit;
  const kvaxis::status s = kvaxis::any_kv_cache::create(r.config, p.keys, p.values, {}, out);
  EXPECT_EQ(s.code, errc::unsupported);
  EXPECT_EQ(s.argument, std::string("value policy: per_tensor codec"));
}

// The caller's arrays and options may go, or serve another cache, once create() is done.
TEST(Create, copies_what_it_is_given) {
  std::vector<float> k = {0.5F, 0.25F};
  std::vector<float> v = {2.0F, 1.0F};
  kvaxis::cache_config c = test::shape(2, 16);
  c.window = c.pins = 0;
  c.k_scale = k.data();
  c.v_scale = v.data();
  c.scales_count = 2;
  kvaxis::any_kv_cache cache = test::cache_of(fp8, c);
  k = v = {9.0F, 9.0F};
  const std::vector<float> rows(2 * 16 * 64, 3.0F);
  kvaxis::check(cache.append(rows.data(), rows.data(), 64));
  ASSERT_EQ(cache.folded_tokens(), 64);
  float out[16];
  kvaxis::check(cache.read_key(63, 1, out));
  EXPECT_EQ(out[15], 3.0F);  // 12 * 0.25
  const kvaxis::tile& t = *cache.view().entries[0].tile;
  const auto first_code = [](const std::byte* block) { return static_cast<int>(block[0]); };
  EXPECT_EQ(first_code(t.key_block(0)), 0x4C);    // 6 = 3 / 0.5
  EXPECT_EQ(first_code(t.key_block(1)), 0x54);    // 12
  EXPECT_EQ(first_code(t.value_block(0)), 0x3C);  // 1.5
  EXPECT_EQ(first_code(t.value_block(1)), 0x44);  // 3
}

}  // namespace
