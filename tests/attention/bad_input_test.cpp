// Numbers that no codec can hold: refused with nothing changed, or replaced and counted, the same wherever they stand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "against_oracle.hpp"

namespace {

constexpr int dim = 32;
constexpr int tokens = 64;
const float nan_bits = kvaxis::bits_float(0x7FC00001U);
const float infinity = kvaxis::bits_float(0x7F800000U);

// One head, no window, no pins: everything folds at once.
kvaxis::any_kv_cache make(const std::string& name, kvaxis::on_bad_input what) {
  test::shape s;
  s.kv_heads = 1;
  s.head_dim = dim;
  s.window = 0;
  s.pins = 0;
  kvaxis::cache_config c = test::config_of(s);
  c.non_finite = c.out_of_range = what;
  return test::cache_of(name, c);
}

std::vector<float> rows_with(int token, int channel, float x) {
  std::vector<float> out;
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < dim; ++c) out.push_back(0.1F * static_cast<float>(c) - 0.01F * static_cast<float>(t));
  }
  out[static_cast<std::size_t>(token * dim + channel)] = x;
  return out;
}

// All folded bytes behind the headers.
std::vector<std::uint8_t> bytes_of(const kvaxis::any_kv_cache& cache) {
  std::vector<std::uint8_t> out;
  const kvaxis::sequence_view view = cache.view();
  for (int i = 0; i < view.entry_count; ++i) {
    const kvaxis::tile& t = *view.entries[i].tile;
    EXPECT_TRUE(t.folded);
    const auto* first = reinterpret_cast<const std::uint8_t*>(t.data());
    out.insert(out.end(), first + sizeof(kvaxis::tile), first + t.bytes);
  }
  return out;
}

struct storage {
  const char* name;
  float limit;  // of keys and values
};
constexpr storage storages[] = {
    {"k:int4-channel64,v:int4-token32", 65504.0F},   {"k:int8-token32,v:int8-channel64", 65504.0F},
    {"k:int8s-channel64,v:int4s-token32", 65504.0F}, {"k:e4m3-token32,v:e4m3-channel64", 65504.0F},
    {"k:e4m3-tensor@1,v:e4m3-tensor@1", 448.0F},     {"k:f16,v:f16", 65504.0F}};

struct bad_number {
  float x;
  float sign;  // of the limit that replaces it; 0: zero replaces it
};
const bad_number bad_numbers[] = {{nan_bits, 0.0F}, {kvaxis::bits_float(0xFFFFFFFFU), 0.0F},
                                  {infinity, 1.0F}, {-infinity, -1.0F},
                                  {1e38F, 1.0F},    {-1e38F, -1.0F}};

TEST(BadInput, B14_refused_at_every_position_and_nothing_changes) {
  for (const storage& s : storages) {
    kvaxis::any_kv_cache cache = make(s.name, kvaxis::on_bad_input::refuse);
    const std::vector<float> good = rows_with(0, 0, 0.0F);
    for (const bad_number& bad : bad_numbers) {
      for (int channel = 0; channel < dim; ++channel) {
        const std::vector<float> rows = rows_with(channel, channel, bad.x);
        for (const bool key : {true, false}) {
          const kvaxis::status answer =
              cache.append(key ? rows.data() : good.data(), key ? good.data() : rows.data(), tokens);
          const bool finite = kvaxis::is_finite(bad.x);
          EXPECT_EQ(answer.code, finite ? kvaxis::errc::out_of_range : kvaxis::errc::non_finite) << s.name;
          EXPECT_STREQ(answer.argument, key ? "k" : "v");
          EXPECT_EQ(answer.limit, finite ? static_cast<std::int64_t>(bad.sign * s.limit) : channel) << s.name;
        }
      }
    }
    EXPECT_EQ(cache.size(), 0);
    EXPECT_EQ(cache.next_position(), 0);
    EXPECT_EQ(cache.bytes().folded + cache.bytes().exact, 0U);
    kvaxis::check(cache.append(good.data(), good.data(), tokens));
    kvaxis::any_kv_cache solo = make(s.name, kvaxis::on_bad_input::refuse);
    kvaxis::check(solo.append(good.data(), good.data(), tokens));
    EXPECT_EQ(bytes_of(cache), bytes_of(solo));
  }
}

// NaN becomes zero, what is too large the end of the range: the bytes are those of rows with these numbers in place.
TEST(BadInput, B14_B15_replaced_at_every_position) {
  for (const storage& s : storages) {
    for (const bad_number& bad : bad_numbers) {
      for (int channel = 0; channel < dim; channel += 5) {
        const int token = 2 * channel + 1;
        const std::vector<float> rows = rows_with(token, channel, bad.x);
        const std::vector<float> replaced = rows_with(token, channel, bad.sign * s.limit);
        kvaxis::any_kv_cache cache = make(s.name, kvaxis::on_bad_input::replace);
        kvaxis::check(cache.append(rows.data(), rows.data(), tokens));
        EXPECT_EQ(cache.replaced(), 2);
        kvaxis::any_kv_cache clean = make(s.name, kvaxis::on_bad_input::refuse);
        kvaxis::check(clean.append(replaced.data(), replaced.data(), tokens));
        EXPECT_EQ(clean.replaced(), 0);
        EXPECT_EQ(bytes_of(cache), bytes_of(clean)) << s.name << ' ' << bad.x << " at " << channel;
      }
    }
  }
}

// A replaced number affects its own group: other channels of per-channel keys, other tokens of per-token values are as
// if it had never been there.
TEST(BadInput, B15_only_the_group_of_a_bad_number_is_touched) {
  for (const int channel : {0, 15, 31}) {
    kvaxis::any_kv_cache bad = make("k:int4-channel64,v:int4-token32", kvaxis::on_bad_input::replace);
    kvaxis::any_kv_cache good = make("k:int4-channel64,v:int4-token32", kvaxis::on_bad_input::replace);
    const std::vector<float> rows = rows_with(20, channel, infinity);
    const std::vector<float> without = rows_with(20, channel, 0.5F);
    kvaxis::check(bad.append(rows.data(), rows.data(), tokens));
    kvaxis::check(good.append(without.data(), without.data(), tokens));
    for (int t = 0; t < tokens; ++t) {
      float a[dim];
      float b[dim];
      kvaxis::check(bad.read_key(t, 0, a));
      kvaxis::check(good.read_key(t, 0, b));
      for (int c = 0; c < dim; ++c) {
        EXPECT_TRUE(kvaxis::is_finite(a[c]));
        if (c == channel) continue;
        EXPECT_EQ(a[c], b[c]) << "token " << t << " channel " << c;
      }
      kvaxis::check(bad.read_value(t, 0, a));
      kvaxis::check(good.read_value(t, 0, b));
      for (int c = 0; c < dim; ++c) {
        EXPECT_TRUE(kvaxis::is_finite(a[c]));
        if (t == 20) continue;
        EXPECT_EQ(a[c], b[c]) << "token " << t << " channel " << c;
      }
    }
  }
}

// B12: metadata of 16 bits cannot hold a minimum beyond 65504, so such numbers are refused; f32 metadata takes them.
TEST(BadInput, B12_outliers_beyond_the_range_of_half) {
  std::vector<float> values = test::numbers(1).uniforms(tokens * dim);
  std::vector<float> keys = test::numbers(2).uniforms(tokens * dim);
  const std::vector<float> plain_values = values;
  for (int c = 0; c < dim; ++c) values[static_cast<std::size_t>(c)] *= 1e5F;
  values[3] = 1e5F;
  for (int t = 0; t < tokens; ++t) keys[static_cast<std::size_t>(t * dim + 2)] += 8e4F;

  kvaxis::any_kv_cache half = make("k:int8-channel64,v:int8-token32", kvaxis::on_bad_input::refuse);
  const kvaxis::status by_key = half.append(keys.data(), plain_values.data(), tokens);
  EXPECT_EQ(by_key.code, kvaxis::errc::out_of_range);
  EXPECT_STREQ(by_key.argument, "k");
  EXPECT_EQ(by_key.limit, 65504);
  const kvaxis::status by_value = half.append(plain_values.data(), values.data(), tokens);
  EXPECT_STREQ(by_value.argument, "v");
  EXPECT_EQ(half.size(), 0);

  kvaxis::any_kv_cache clamped = make("k:int8-channel64,v:int8-token32", kvaxis::on_bad_input::replace);
  kvaxis::check(clamped.append(keys.data(), values.data(), tokens));
  EXPECT_GE(clamped.replaced(), tokens + 1);
  kvaxis::any_kv_cache wide = make("k:int8f32-channel64,v:int8f32-token32", kvaxis::on_bad_input::refuse);
  kvaxis::check(wide.append(keys.data(), values.data(), tokens));
  kvaxis::any_kv_cache plain = make("k:int8f32-channel64,v:int8f32-token32", kvaxis::on_bad_input::refuse);
  kvaxis::check(plain.append(keys.data(), plain_values.data(), tokens));
  for (int t = 0; t < tokens; ++t) {
    float k[dim];
    float v[dim];
    float without[dim];
    kvaxis::check(clamped.read_key(t, 0, k));
    EXPECT_EQ(k[2], 65504.0F) << "the end of the range";
    kvaxis::check(wide.read_key(t, 0, k));
    kvaxis::check(wide.read_value(t, 0, v));
    kvaxis::check(plain.read_value(t, 0, without));
    EXPECT_NEAR(k[2], keys[static_cast<std::size_t>(t * dim + 2)], 2.0F / 255 / 2 * 1.02F + 8e4F * 0x1p-22F);
    for (int c = 0; c < dim; ++c) {
      const float range = t == 0 ? 2e5F : 2.0F;
      EXPECT_NEAR(v[c], values[static_cast<std::size_t>(t * dim + c)], range / 255 / 2 * 1.02F);
      if (t == 0) continue;
      EXPECT_EQ(v[c], without[c]) << "another token's group";
    }
  }
}

// The range of f32 metadata and of bfloat16 has an end too, beyond what the answer's integer holds.
TEST(BadInput, ranges_of_f32_size_are_refused_at_their_end) {
  for (const char* name : {"k:int8f32-channel64,v:int8f32-token32", "k:bf16,v:bf16"}) {
    kvaxis::any_kv_cache cache = make(name, kvaxis::on_bad_input::refuse);
    const std::vector<float> good = rows_with(0, 0, 1e38F);
    kvaxis::check(cache.append(good.data(), good.data(), tokens));
    for (const float x : {3.4e38F, -3.4e38F}) {
      const std::vector<float> rows = rows_with(5, 5, x);
      const kvaxis::status answer = cache.append(good.data(), rows.data(), tokens);
      EXPECT_EQ(answer.code, kvaxis::errc::out_of_range) << name;
      EXPECT_EQ(answer.limit, x > 0 ? INT64_MAX : INT64_MIN) << name;
    }
    const test::oracle truth(cache, {});
    EXPECT_LE(truth.largest_value(), 1.01e38);
  }
}

}  // namespace
