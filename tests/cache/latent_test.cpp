// The cache of latent values: what append takes, what is stored and counted, what is read back, and what is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <kvaxis/cache/plan.hpp>
#include <string>
#include <vector>

#include "calls.hpp"
#include "counting_allocator.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::errc;

// DeepSeek's: one kv head, a latent of 512 channels and 64 rotated ones.
kvaxis::cache_config mla(int head_dim = 576, int value_dim = 512, int rotary = 64) {
  kvaxis::cache_config c = test::shape(1, head_dim, value_dim);
  kvaxis::rope_parameters p;
  p.head_dim = head_dim;
  p.first_channel = head_dim - rotary;
  p.layout = kvaxis::rope_layout::interleaved;
  kvaxis::check(kvaxis::make_rope(p, c.rope));
  return c;
}

const std::vector<std::string> key_policies = {"int4-channel64-auto", "int8-channel32-pre", "int4-token64-tile",
                                               "e4m3-tensor@1-post", "f16"};

void expect_refused(const kvaxis::status& s, errc code, const std::string& argument, std::int64_t limit) {
  EXPECT_EQ(s.code, code);
  EXPECT_EQ(s.argument, argument);
  EXPECT_EQ(s.limit, limit);
}

TEST(Latent, values_are_the_first_channels_of_the_key) {
  for (const std::string& key : key_policies) {
    for (const bool half : {false, true}) {
      kvaxis::cache_config c = mla(50, 40, 6);
      c.kv_heads = 2;
      c.window = 40;
      c.half_window = half;
      kvaxis::any_kv_cache cache = test::cache_of("k:" + key + ",v:latent", c);
      const test::tokens data(c, 200, 1);
      data.append_all_to(cache);
      ASSERT_GT(cache.folded_tokens(), 0);
      float k[50];
      float v[40];
      for (int t = 0; t < 200; ++t) {
        for (int h = 0; h < 2; ++h) {
          kvaxis::check(cache.read_key(t, h, k));
          kvaxis::check(cache.read_value(t, h, v));
          ASSERT_EQ(std::memcmp(k, v, sizeof v), 0) << key << ", token " << t;
          ASSERT_NEAR(v[39], data.key(t)[h * 50 + 39], 0.15F) << key << ", token " << t;
        }
      }
    }
  }
}

// 576 channels of 4 bits with two 16-bit parameters for 64 tokens are 324 bytes a token, and the header of a tile 64.
TEST(Latent, bytes_are_those_of_the_keys_alone) {
  using keys = kvaxis::per_channel<kvaxis::int4, 64>;
  static_assert(kvaxis::bits_per_value<kvaxis::latent<keys>>(512, kvaxis::role::value) == 0.0);
  kvaxis::cache_config c = mla();
  c.window = 0;
  c.pins = 0;
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel64-pre,v:latent", c);
  test::tokens(c, 640, 2).append_all_to(cache);
  EXPECT_EQ(cache.bytes().folded, 10U * (64U * 324U + 64U));
  EXPECT_EQ(cache.format()->folded_bytes, 64U * 324U + 64U);
  EXPECT_EQ(cache.format()->exact_bytes(64), 64U * 576U * 4U + 64U);
}

TEST(Latent, bytes_are_those_really_allocated_and_those_planned) {
  for (const std::string& key : key_policies) {
    const std::string name = "k:" + key + ",v:latent";
    const kvaxis::cache_config c = mla(50, 40, 6);
    const test::policies found = test::find(name);
    const float scale = 1.0F;
    kvaxis::cache_config with_scale = c;
    with_scale.k_scale = &scale;
    counting_allocator memory;
    kvaxis::any_kv_cache cache;
    kvaxis::check(test::make_cache(name, c, memory.hook(), cache));
    const test::tokens data(c, 500, 3);
    for (const int tokens : {1, 4, 5, 200, 290}) {
      kvaxis::check(data.append_to(cache, 0, tokens));
      kvaxis::cache_bytes plan;
      kvaxis::check(kvaxis::plan_cache(with_scale, found.keys, found.values, cache.size(), plan));
      EXPECT_EQ(cache.bytes().total(), memory.live_bytes) << name;
      EXPECT_EQ(cache.bytes().folded, plan.folded) << name;
      EXPECT_EQ(cache.bytes().exact, plan.exact) << name;
      EXPECT_EQ(cache.bytes().total(), plan.total()) << name;
    }
  }
}

TEST(Latent, append_takes_keys_alone) {
  kvaxis::cache_config c = mla(50, 40, 6);
  c.kv_heads = 3;
  const test::tokens data(c, 300, 4);
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel64-auto,v:latent", c);
  kvaxis::check(cache.append(data.k.data(), {}, 300));
  const std::string whole = test::contents(cache);
  const std::string before = test::snapshot(cache);
  expect_refused(cache.append(data.k.data(), data.v.data(), 1), errc::invalid_argument, "v: latent values come with k",
                 0);
  expect_refused(cache.append({}, {}, 1), errc::invalid_argument, "k", 0);
  EXPECT_EQ(test::snapshot(cache) == before, true);

  // Cut anywhere, in strides, deferred: the same bytes.
  kvaxis::any_kv_cache other = test::cache_of("k:int4-channel64-auto,v:latent", c);
  std::vector<float> wide(300 * 3 * 60);
  for (int row = 0; row < 900; ++row) std::copy_n(data.k.data() + row * 50, 50, wide.data() + row * 60);
  for (int i = 0; i < 300; i += 70) {
    const int n = 300 - i < 70 ? 300 - i : 70;
    kvaxis::check(other.append({wide.data() + i * 180, 180, 60}, {}, n, kvaxis::next, kvaxis::fold_mode::deferred));
  }
  kvaxis::check(other.fold());
  EXPECT_EQ(test::contents(other) == whole, true);
}

TEST(Latent, keys_out_of_range_are_refused_and_bad_ones_replaced_once) {
  kvaxis::cache_config c = mla(50, 40, 6);
  std::vector<float> k(50, 1.0F);
  k[3] = 70000.0F;
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel64-pre,v:latent", c);
  expect_refused(cache.append(k.data(), {}, 1), errc::out_of_range, "k", 65504);
  c.out_of_range = kvaxis::on_bad_input::replace;
  cache = test::cache_of("k:int4-channel64-pre,v:latent", c);
  kvaxis::check(cache.append(k.data(), {}, 1));
  EXPECT_EQ(cache.replaced(), 1);
  float v[40];
  kvaxis::check(cache.read_value(0, 0, v));
  EXPECT_EQ(v[3], 65504.0F);
}

TEST(Latent, create_refuses_what_is_no_latent) {
  const auto refusal = [](const std::string& keys, const kvaxis::cache_config& c) {
    kvaxis::any_kv_cache out;
    return test::make_cache("k:" + keys + ",v:latent", c, {}, out);
  };
  expect_refused(refusal("f16", test::shape(1, 64, 65)), errc::out_of_range,
                 "value_dim: latent values are channels of the key", 64);
  for (const char* keys : {"int4-channel64-pre", "int4-channel64-auto", "int8-token64-tile"}) {
    expect_refused(refusal(keys, mla(576, 513)), errc::out_of_range,
                   "value_dim: latent values reach into rotated channels", 512);
    expect_refused(refusal(keys, mla(576, 0)), errc::out_of_range,
                   "value_dim: latent values reach into rotated channels", 512);
    expect_refused(refusal(keys, test::rope_shape(1, 64, 32)), errc::out_of_range,
                   "value_dim: latent values reach into rotated channels", 0);
    kvaxis::check(refusal(keys, mla(576, 512)));
  }
  // Keys that the engine has rotated: the values are what it appended, rotated or not.
  kvaxis::check(refusal("int4-token64-post", test::rope_shape(1, 64, 64)));

  kvaxis::any_kv_cache out;
  test::policies p = test::find("k:int4-channel64-pre,v:latent");
  p.values.codec = test::find("k:int8-channel64-pre,v:latent").keys.codec;
  expect_refused(kvaxis::any_kv_cache::create(mla(), p.keys, p.values, {}, out), errc::invalid_argument,
                 "value policy: latent of other keys", 0);
  p = test::find("k:int4-channel64-pre,v:int4-token64");
  p.keys.policy.axis = kvaxis::axis::latent;
  expect_refused(kvaxis::any_kv_cache::create(mla(), p.keys, p.values, {}, out), errc::unsupported,
                 "key policy: latent", 0);
}

// What lists of tiles do, on tiles without values of their own.
TEST(Latent, tiers_and_list_operations) {
  kvaxis::cache_config c = mla(48, 40, 8);
  c.kv_heads = 2;
  c.window = 40;
  const auto older = [&](const std::string& name, std::int64_t newer) {
    const test::policies p = test::find(name);
    c.older_tiers[static_cast<std::size_t>(c.older_tiers_count++)] = {p.keys, p.values, newer};
  };
  older("k:int8-token16-tile,v:latent", 80);
  older("k:int4-channel32-auto,v:latent", 150);
  kvaxis::any_kv_cache cache = test::cache_of("k:e4m3-channel32-pre,v:latent", c);
  const test::tokens data(c, 400, 6);
  kvaxis::check(data.append_to(cache, 0, 300));
  kvaxis::check(cache.demote());
  const auto expect_attention_of_what_reads_back = [&](const kvaxis::any_kv_cache& tested) {
    kvaxis::attend_options o = test::exact();
    o.query_heads = 2 * 9;
    o.scale = 0.3F;
    o.sliding_window = 120;
    const std::int64_t position = tested.next_position();
    const std::vector<float> q = test::numbers(7).uniforms(std::size_t{2 * 18 * 48}, 2.0F);
    const test::oracle oracle(tested, c.rope);
    const std::vector<float> got = test::attend(tested, q, 2, position, o).out;
    const std::vector<double> want = oracle.attend(q, 2, position, o).out;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], oracle.output_bound()) << i;
  };
  expect_attention_of_what_reads_back(cache);

  kvaxis::any_kv_cache fork;
  kvaxis::check(cache.fork(fork));
  kvaxis::check(fork.truncate(133));
  kvaxis::check(data.append_to(fork, 300, 100));
  kvaxis::check(fork.erase(40, 17));
  kvaxis::check(fork.move(60, 100, 1000));
  kvaxis::check(fork.demote());
  expect_attention_of_what_reads_back(fork);
  kvaxis::check(cache.splice(cache.size(), fork, 20, 90, 5000));
  expect_attention_of_what_reads_back(cache);
}

TEST(Latent, tiers_are_latent_or_none_is) {
  kvaxis::cache_config c = mla();
  const test::policies own_values = test::find("k:int4-channel64-pre,v:int4-token64");
  const test::policies latent = test::find("k:int4-channel64-pre,v:latent");
  c.older_tiers_count = 1;
  c.older_tiers[0] = {own_values.keys, own_values.values, 200};
  kvaxis::any_kv_cache out;
  expect_refused(test::make_cache("k:int8-channel64-pre,v:latent", c, {}, out), errc::unsupported,
                 "older_tiers: latent values", 0);
  c.older_tiers[0] = {latent.keys, latent.values, 200};
  expect_refused(test::make_cache("k:int8-channel64-pre,v:int4-token64", c, {}, out), errc::unsupported,
                 "older_tiers: latent values", 0);
  c.older_tiers[0].values.codec = test::find("k:int8-channel64-pre,v:latent").values.codec;
  expect_refused(test::make_cache("k:int8-channel64-pre,v:latent", c, {}, out), errc::invalid_argument,
                 "older_tiers: latent of other keys", 0);
}

// The default, head_dim^-1/2, would be that of 576 channels and not of the model's heads.
TEST(Latent, attend_wants_a_scale) {
  const kvaxis::cache_config c = mla();
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel64-auto,v:latent", c);
  test::tokens(c, 10, 5).append_all_to(cache);
  const std::vector<float> q(576, 0.1F);
  std::vector<float> out(512);
  kvaxis::attend_options o;
  EXPECT_EQ(cache.workspace_bytes(1, o), 0U);
  expect_refused(cache.attend(q.data(), 1, 10, o, out.data(), nullptr, {}), errc::invalid_argument,
                 "scale: latent values have no default", 0);
  o.scale = 0.0721688F;
  EXPECT_EQ(test::attend(cache, q, 1, 10, o).out.size(), 512U);
}

}  // namespace
