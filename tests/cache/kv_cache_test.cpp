// The typed front, the cache by name, and moving.
#include <gtest/gtest.h>

#include <kvaxis/kvaxis.hpp>
#include <string>
#include <type_traits>

#include "calls.hpp"
#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using keys = kvaxis::per_channel<kvaxis::f32, 64>;
using values = kvaxis::per_token<kvaxis::f32, 64>;
using typed = kvaxis::kv_cache<keys, values>;
using int4_cache = kvaxis::kv_cache<kvaxis::per_channel<kvaxis::int4, 64>, kvaxis::per_token<kvaxis::int4, 64>>;

static_assert(std::is_base_of_v<kvaxis::any_kv_cache, typed>);
static_assert(std::is_nothrow_default_constructible_v<typed>);
static_assert(std::is_nothrow_move_constructible_v<typed> && std::is_nothrow_move_assignable_v<typed>);
static_assert(!std::is_copy_constructible_v<typed> && !std::is_copy_assignable_v<typed>);
static_assert(std::is_nothrow_move_constructible_v<kvaxis::any_kv_cache>);
static_assert(!std::is_copy_constructible_v<kvaxis::any_kv_cache>);
static_assert(sizeof(typed) == sizeof(kvaxis::any_kv_cache), "the front adds nothing");
static_assert(noexcept(typed::create({}, std::declval<typed&>())));

// 4 bits, and two 16-bit parameters for 64 numbers; a head of 80 channels has values in groups of 64 and 16, and lies
// in 96.
static_assert(int4_cache::bits(64) == 4.5);
static_assert(int4_cache::bits(128) == 4.5);
static_assert(int4_cache::bits(80) == (4.5 * 80 + 8.0 * (96 * 0.5 + 2 * 4)) / 160);
static_assert(kvaxis::kv_cache<kvaxis::per_channel<kvaxis::int8, 128>, kvaxis::per_tensor<kvaxis::e4m3>>::bits(64) ==
              (8.25 + 8) / 2);
static_assert(kvaxis::kv_cache<keys, kvaxis::latent<keys>>::bits(576, 512) == 32.0, "stored once");
static_assert(kvaxis::bits_per_value<kvaxis::per_channel<kvaxis::int4, 256>>(64) == 4.125);
static_assert(kvaxis::bits_per_value<kvaxis::per_channel<kvaxis::int4, 64, 4>>(64) == 4.5 + 32.0 / (64 * 64));
static_assert(kvaxis::bits_per_value<kvaxis::per_token<kvaxis::int4f32, 32>>(64, kvaxis::role::value) == 6.0);

kvaxis::cache_config config() {
  kvaxis::cache_config c = test::rope_shape(2, 24);
  c.window = 50;
  return c;
}

TEST(KvCache, the_typed_front_is_the_cache_of_the_same_name) {
  typed cache;
  kvaxis::check(typed::create(config(), cache));
  kvaxis::any_kv_cache named = test::cache_of("k:f32-channel64-pre,v:f32-token64", config());
  const test::tokens data(config(), 300, 1);
  data.append_all_to(cache);
  data.append_all_to(named);
  EXPECT_EQ(test::contents(cache) == test::contents(named), true);
  EXPECT_GT(cache.folded_tokens(), 0);
  counting_allocator memory;
  kvaxis::check(typed::create(config(), memory.hook(), cache));
  EXPECT_EQ(cache.size(), 0);
  EXPECT_GT(memory.live_bytes, 0U);
  cache = typed();
}

TEST(KvCache, B58_says_what_is_in_force) {
  EXPECT_EQ(kvaxis::any_kv_cache().format(), nullptr);
  kvaxis::cache_config c = config();
  c.value_dim = 48;
  const kvaxis::any_kv_cache cache = test::cache_of("k:int8s-channel128-hot3,v:e4m3-token32", c);
  const kvaxis::tile_format& f = *cache.format();
  EXPECT_EQ(f.kv_heads, 2);
  EXPECT_EQ(f.head_dim, 24);
  EXPECT_EQ(f.value_dim, 48);
  EXPECT_EQ(f.tokens, 128);
  EXPECT_EQ(f.pairs, 12);
  EXPECT_EQ(f.key_codec->name, std::string("int8s"));
  EXPECT_EQ(f.key_policy.axis, kvaxis::axis::channel);
  EXPECT_EQ(f.key_policy.rotation, 3);
  EXPECT_EQ(f.value_codec->name, std::string("e4m3"));
  EXPECT_EQ(f.value_policy.axis, kvaxis::axis::token);
  EXPECT_EQ(f.value_policy.group, 32);
  EXPECT_NE(kvaxis::isa_name(kvaxis::active_isa()), std::string());
}

TEST(KvCache, moves_and_leaves_an_empty_cache_behind) {
  counting_allocator memory;
  const test::tokens data(config(), 200, 2);
  const std::vector<float> q(2 * 24, 0.5F);
  typed a;
  kvaxis::check(typed::create(config(), memory.hook(), a));
  data.append_all_to(a);
  const std::string content = test::snapshot(a);
  const std::vector<float> out = test::attend(a, q, 1, 200).out;
  const std::size_t bytes = memory.live_bytes;
  const int calls = memory.calls;

  typed b = std::move(a);
  EXPECT_EQ(test::snapshot(b) == content, true);
  EXPECT_EQ(a.format(), nullptr);  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(a.size(), 0);
  EXPECT_EQ(a.bytes().total(), 0U);

  typed c;
  kvaxis::check(typed::create(config(), memory.hook(), c));
  data.append_all_to(c);
  c = std::move(b);  // frees what c held
  EXPECT_EQ(memory.live_bytes, bytes);
  EXPECT_EQ(test::snapshot(c) == content, true);
  EXPECT_EQ(test::attend(c, q, 1, 200).out, out);

  typed& same = c;
  c = std::move(same);
  EXPECT_EQ(test::snapshot(c) == content, true);

  kvaxis::any_kv_cache erased = std::move(c);
  EXPECT_EQ(test::snapshot(erased) == content, true);
  data.append_all_to(erased);
  EXPECT_EQ(erased.size(), 400);
  a = typed();
  kvaxis::check(typed::create(config(), memory.hook(), a));  // a cache that was moved from is made again
  data.append_all_to(a);
  EXPECT_EQ(a.size(), 200);
  EXPECT_GT(memory.calls, calls);
}

TEST(KvCache, errors_throw_where_that_was_asked_for) {
  kvaxis::any_kv_cache cache;
  try {
    kvaxis::check(cache.flush());
    FAIL() << "no exception";
  } catch (const kvaxis::error& e) {
    EXPECT_EQ(e.what_happened.code, kvaxis::errc::invalid_argument);
    EXPECT_EQ(e.what(), std::string("kvaxis: invalid argument: cache: not created (limit 0)"));
  }
}

TEST(MakeCache, unknown_names_are_refused) {
  kvaxis::any_kv_cache cache = test::cache_of("k:f16,v:f16", config());
  const std::string before = test::snapshot(cache);
  for (const char* const name : {"", "int4", "k:int4-channel64-pre", "k:int9-channel64-pre,v:int4-token64",
                                 "k:int4-channel64-pre,v:int7-token64", "k:int4-channel64-pre,v:int4-token64 ",
                                 "k:int4-channel0-pre,v:int4-token64", "k:int4-channel64-sideways,v:int4-token64",
                                 "k:int4-channel64-pre,v:int4-token64-pre", "k:int4,v:int4", "k:e4m3-tensor@,v:f16",
                                 "k:e4m3-tensor@1x,v:f16", "k:f16@1,v:f16", "k:int4-channel64@1-pre,v:f16"}) {
    const kvaxis::status s = test::make_cache(name, config(), {}, cache);
    EXPECT_EQ(s.code, kvaxis::errc::invalid_argument) << name;
    EXPECT_EQ(std::string(s.argument).substr(0, 11), "policy name") << name;
  }
  EXPECT_EQ(test::snapshot(cache) == before, true);
}

// A scale in the name is checked like one of the configuration, and goes before it.
TEST(MakeCache, scales_in_the_name) {
  kvaxis::any_kv_cache cache;
  for (const char* const name :
       {"k:e4m3-tensor@0-pre,v:f16", "k:e4m3-tensor@-1-pre,v:f16", "k:e4m3-tensor@nan-pre,v:f16",
        "k:e4m3-tensor@inf-pre,v:f16", "k:e4m3-tensor@1e-45-pre,v:f16"}) {
    const kvaxis::status s = test::make_cache(name, config(), {}, cache);
    EXPECT_EQ(s.code, kvaxis::errc::invalid_argument) << name;
  }
  const float scales[] = {3.0F, 4.0F};
  kvaxis::cache_config c = config();
  c.k_scale = c.v_scale = scales;
  c.scales_count = 2;
  kvaxis::check(test::make_cache("k:e4m3-tensor@0.5-pre,v:int8-tensor@2,-7.5", c, {}, cache));
  EXPECT_EQ(cache.format()->key_given[1].scale, 0.5F);
  EXPECT_EQ(cache.format()->value_given[1].scale, 2.0F);
  EXPECT_EQ(cache.format()->value_given[1].offset, -7.5F);
  EXPECT_EQ(test::make_cache("k:e4m3-tensor@0.5-pre,v:e4m3-tensor", c, {}, cache).argument,
            std::string("scales_count"));
  c.scales_count = 1;
  kvaxis::check(test::make_cache("k:e4m3-tensor@0.5-pre,v:e4m3-tensor", c, {}, cache));
  EXPECT_EQ(cache.format()->key_given[0].scale, 0.5F);
  EXPECT_EQ(cache.format()->value_given[0].scale, 3.0F);
}

}  // namespace
