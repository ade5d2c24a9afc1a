// What append takes - element types, strides, numbers that need replacement, given scales - and what reading gives
// back.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "policies.hpp"
#include "tokens.hpp"

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> key_of(const kvaxis::any_kv_cache& cache, int token, int head = 0) {
  std::vector<float> out(static_cast<std::size_t>(cache.format()->head_dim));
  kvaxis::check(cache.read_key(token, head, out.data()));
  return out;
}
std::vector<float> value_of(const kvaxis::any_kv_cache& cache, int token, int head = 0) {
  std::vector<float> out(static_cast<std::size_t>(cache.format()->value_dim));
  kvaxis::check(cache.read_value(token, head, out.data()));
  return out;
}

TEST(Rows, exact_tokens_read_back_bit_for_bit) {
  for (const char* const name :
       {"k:int4-channel32-pre,v:int4-token32", "k:int8-token16-post,v:f16", "k:int4-channel32-auto,v:int8-channel32"}) {
    kvaxis::cache_config c = test::rope_shape(3, 23, 41);
    c.window = 1000;
    const test::tokens data(c, 100, 1);
    kvaxis::any_kv_cache cache = test::cache_of(name, c);
    data.append_all_to(cache, -40);
    for (int t = 0; t < 100; ++t) {
      for (int h = 0; h < 3; ++h) {
        EXPECT_EQ(key_of(cache, t, h), std::vector<float>(data.key(t) + 23 * h, data.key(t) + 23 * (h + 1)));
        EXPECT_EQ(value_of(cache, t, h), std::vector<float>(data.value(t) + 41 * h, data.value(t) + 41 * (h + 1)));
      }
    }
  }
}

// An f32 cache that folds gives back the bits; stored rotated and turned back, a few roundings away.
TEST(Rows, folded_f32_tokens_read_back_exactly) {
  for (const bool rotated : {false, true}) {
    kvaxis::cache_config c = test::rope_shape(2, 40);
    c.window = c.pins = 0;
    const test::tokens data(c, 200, 2);
    kvaxis::any_kv_cache cache = test::cache_of(rotated ? "k:f32-tile,v:f32" : "k:f32-pre,v:f32", c);
    data.append_all_to(cache, 1000);
    kvaxis::check(cache.flush());
    ASSERT_EQ(cache.folded_tokens(), 200);
    for (int t = 0; t < 200; ++t) {
      const std::vector<float> key = key_of(cache, t, 1);
      for (int i = 0; i < 40; ++i) {
        const auto at = static_cast<std::size_t>(i);
        EXPECT_NEAR(key[at], data.key(t)[40 + i], rotated ? 4e-7F : 0.0F);
      }
      EXPECT_EQ(value_of(cache, t, 0), std::vector<float>(data.value(t), data.value(t) + 40));
    }
  }
}

TEST(Rows, the_window_in_binary16_rounds_to_nearest_even_and_folds_what_it_holds) {
  kvaxis::cache_config c = test::rope_shape(2, 24);
  c.half_window = true;
  c.window = 64;
  const test::tokens data(c, 260, 3);
  kvaxis::any_kv_cache half = test::cache_of("k:int4-channel32-auto,v:int4-token32", c);
  data.append_all_to(half);
  test::tokens rounded = data;
  for (float& x : rounded.k) x = kvaxis::to_float(kvaxis::to_float16(x));
  for (float& x : rounded.v) x = kvaxis::to_float(kvaxis::to_float16(x));
  kvaxis::any_kv_cache single = test::cache_of("k:int4-channel32-auto,v:int4-token32", [&] {
    kvaxis::cache_config with = c;
    with.half_window = false;
    return with;
  }());
  rounded.append_all_to(single);
  ASSERT_GT(half.folded_tokens(), 100);
  for (int t = 0; t < 260; ++t) {
    EXPECT_EQ(key_of(half, t, 1), key_of(single, t, 1)) << t;
    EXPECT_EQ(value_of(half, t, 1), value_of(single, t, 1)) << t;
  }
  EXPECT_EQ(key_of(half, 259), std::vector<float>(rounded.key(259), rounded.key(259) + 24));
  EXPECT_EQ(2 * (half.bytes().exact - 64 * 3), single.bytes().exact - 64 * 3) << "the headers of 3 tiles do not shrink";
  EXPECT_EQ(half.bytes().folded, single.bytes().folded);
}

template <class T>
std::vector<T> as_type(const std::vector<float>& x) {
  std::vector<T> out;
  for (const float f : x) {
    if constexpr (std::is_same_v<T, float>) out.push_back(f);
    if constexpr (std::is_same_v<T, kvaxis::float16>) out.push_back(kvaxis::to_float16(f));
    if constexpr (std::is_same_v<T, kvaxis::bfloat16>) out.push_back(kvaxis::to_bfloat16(f));
  }
  return out;
}

// The bytes of rows in type T at any strides are those of their numbers as packed f32.
template <class T>
void strided_rows_equal_packed_ones(std::uint64_t seed) {
  kvaxis::cache_config c = test::rope_shape(3, 20, 12);
  c.window = 20;
  const test::tokens data(c, 100, seed);
  test::tokens exact = data;
  for (float& x : exact.k) x = kvaxis::to_float(as_type<T>({x})[0]);
  for (float& x : exact.v) x = kvaxis::to_float(as_type<T>({x})[0]);
  const char* const name = "k:int4-channel32-pre,v:int4-token16";
  kvaxis::any_kv_cache want = test::cache_of(name, c);
  exact.append_all_to(want);
  struct strides {
    std::int64_t token;
    std::int64_t head;
  };
  // Packed, with pitches, and with the heads outermost.
  for (const strides s : {strides{0, 0}, strides{75, 25}, strides{200, 20}, strides{20, 2100}, strides{41, 5000}}) {
    const std::int64_t head_stride = s.head == 0 ? 20 : s.head;
    const std::int64_t token_stride = s.token == 0 ? 60 : s.token;
    const std::vector<T> packed_k = as_type<T>(data.k);
    const std::vector<T> packed_v = as_type<T>(data.v);
    std::vector<T> k(static_cast<std::size_t>(99 * token_stride + 2 * head_stride + 20), as_type<T>({nan})[0]);
    std::vector<T> v(k.size(), as_type<T>({nan})[0]);
    for (std::int64_t t = 0; t < 100; ++t) {
      for (std::int64_t h = 0; h < 3; ++h) {
        const auto to = t * token_stride + h * head_stride;
        std::copy_n(packed_k.begin() + (t * 3 + h) * 20, 20, k.begin() + to);
        std::copy_n(packed_v.begin() + (t * 3 + h) * 12, 12, v.begin() + to);
      }
    }
    kvaxis::any_kv_cache cache = test::cache_of(name, c);
    kvaxis::check(cache.append({k.data(), s.token, s.head}, {v.data(), token_stride, head_stride}, 100));
    EXPECT_EQ(test::contents(cache) == test::contents(want), true) << s.token << " " << s.head;
  }
}

TEST(Rows, of_any_type_and_stride_give_the_same_bytes) {
  strided_rows_equal_packed_ones<float>(4);
  strided_rows_equal_packed_ones<kvaxis::float16>(5);
  strided_rows_equal_packed_ones<kvaxis::bfloat16>(6);
}

// NaN becomes 0, what is too large the end of the range; each number is counted, and everything else keeps its bytes.
TEST(Replace, B14_bad_numbers_are_replaced_where_that_was_asked_for_and_counted) {
  kvaxis::cache_config c = test::shape(2, 16);
  c.window = 0;
  c.pins = 0;
  const test::tokens clean(c, 64, 7);
  struct bad {
    float number;
    float stored;
  };
  for (const bad b : {bad{nan, 0.0F}, bad{-nan, 0.0F}, bad{infinity, 65504.0F}, bad{-infinity, -65504.0F},
                      bad{65505.0F, 65504.0F}, bad{-3e38F, -65504.0F}}) {
    for (const int at : {0, 31, 64 * 32 - 1}) {
      test::tokens dirty = clean;
      dirty.k[static_cast<std::size_t>(at)] = dirty.v[static_cast<std::size_t>(at)] = b.number;
      test::tokens replaced = clean;
      replaced.k[static_cast<std::size_t>(at)] = replaced.v[static_cast<std::size_t>(at)] = b.stored;
      kvaxis::cache_config with = c;
      with.non_finite = with.out_of_range = kvaxis::on_bad_input::replace;
      kvaxis::any_kv_cache cache = test::cache_of("k:int8-channel64-pre,v:int8-token16", with);
      kvaxis::any_kv_cache want = test::cache_of("k:int8-channel64-pre,v:int8-token16", with);
      dirty.append_all_to(cache);
      EXPECT_EQ(cache.replaced(), 2);
      replaced.append_all_to(want);
      EXPECT_EQ(want.replaced(), 0);
      ASSERT_EQ(cache.folded_tokens(), 64);
      for (int t = 0; t < 64; ++t) {
        for (int h = 0; h < 2; ++h) {
          EXPECT_EQ(key_of(cache, t, h), key_of(want, t, h));
          EXPECT_EQ(value_of(cache, t, h), value_of(want, t, h));
        }
      }
      cache.clear();
      EXPECT_EQ(cache.replaced(), 0);
    }
  }
}

TEST(Replace, one_kind_alone) {
  kvaxis::cache_config c = test::shape(1, 8);
  const std::vector<float> good(8, 1.0F);
  std::vector<float> k = good;
  c.non_finite = kvaxis::on_bad_input::replace;
  kvaxis::any_kv_cache finite = test::cache_of("k:int4-channel32,v:f16", c);
  k[3] = infinity;
  EXPECT_TRUE(finite.append(k.data(), good.data(), 1).ok());
  k[3] = 1e6F;
  EXPECT_EQ(finite.append(k.data(), good.data(), 1).code, kvaxis::errc::out_of_range);
  EXPECT_EQ(finite.size(), 1);
  EXPECT_EQ(finite.replaced(), 1);
  c.non_finite = kvaxis::on_bad_input::refuse;
  c.out_of_range = kvaxis::on_bad_input::replace;
  kvaxis::any_kv_cache ranged = test::cache_of("k:int4-channel32,v:f16", c);
  EXPECT_TRUE(ranged.append(k.data(), good.data(), 1).ok());
  EXPECT_EQ(key_of(ranged, 0)[3], 65504.0F);
  k[3] = nan;
  EXPECT_EQ(ranged.append(k.data(), good.data(), 1).code, kvaxis::errc::non_finite);
  EXPECT_EQ(ranged.replaced(), 1);
}

// Where 0 is out of a given range, NaN becomes the end next to it, in the window as in the tile that folds.
TEST(Replace, stays_within_a_given_range) {
  const float one = 1.0F;
  const float ten = 10.0F;
  kvaxis::cache_config c = test::shape(1, 8);
  c.pins = 0;
  c.k_scale = &one;
  c.k_offset = &ten;
  c.non_finite = kvaxis::on_bad_input::replace;
  kvaxis::any_kv_cache cache = test::cache_of("k:int8-tensor,v:f16", c);
  std::vector<float> k(8, 200.0F);
  k[2] = nan;
  k[5] = infinity;
  kvaxis::check(cache.append(k.data(), k.data(), 1));
  k[2] = ten;
  k[5] = 265.0F;
  EXPECT_EQ(key_of(cache, 0), k);
  kvaxis::check(cache.flush());
  EXPECT_EQ(key_of(cache, 0), k);
  EXPECT_EQ(cache.replaced(), 4);
}

// What is stored rotated can grow by sqrt(2); a window in binary16 holds less than f32 codecs do; given scales end
// where their codes do, per head. `limit` is the bound, towards zero.
TEST(Range, is_checked_when_tokens_come_in) {
  const float k_scale[] = {0.5F, 0.125F};
  const float v_scale[] = {2.0F, 1.0F};
  const float v_offset[] = {-10.0F, 100.0F};
  struct range {
    const char* name;
    bool half;
    int head;
    bool is_key;
    float low;
    float high;
  };
  for (const range& r :
       {range{"k:int4-channel32-pre,v:f32", false, 0, true, -65504, 65504},
        range{"k:int4-channel32-tile,v:f32", false, 0, true, -46318.3F, 46318.3F},
        range{"k:int4-channel32-auto,v:f32", false, 1, true, -46318.3F, 46318.3F},
        range{"k:f32,v:f32", true, 0, true, -65504, 65504}, range{"k:f32,v:f32", true, 1, false, -65504, 65504},
        range{"k:f32,v:bf16", false, 1, false, -3.3895e38F, 3.3895e38F},
        range{"k:int8f32-channel32-pre,v:f32", false, 1, true, -1.7014e38F, 1.7014e38F},
        range{"k:e4m3-tensor-pre,v:int8-tensor", false, 0, true, -224, 224},
        range{"k:e4m3-tensor-pre,v:int8-tensor", false, 1, true, -56, 56},
        range{"k:e4m3-tensor-tile,v:int8-tensor", false, 1, true, -39.597F, 39.597F},
        range{"k:e4m3-tensor-pre,v:int8-tensor", false, 0, false, -10, 500},
        range{"k:e4m3-tensor-pre,v:int8-tensor", false, 1, false, 100, 355},
        range{"k:int8s-tensor-pre,v:int4s-tensor", false, 0, true, -63.5F, 63.5F},
        range{"k:e5m2-tensor-pre,v:int4s-tensor", false, 1, true, -7168, 7168}}) {
    kvaxis::cache_config c = test::rope_shape(2, 8);
    c.half_window = r.half;
    c.k_scale = k_scale;
    c.v_scale = v_scale;
    c.v_offset = std::string(r.name).find("v:int8-tensor") != std::string::npos ? v_offset : nullptr;
    c.scales_count = 2;
    for (const float x : {r.low, r.high}) {
      kvaxis::any_kv_cache cache = test::cache_of(r.name, c);
      std::vector<float> k(16, 0.0F);
      std::vector<float> v(16, 0.0F);
      if (c.v_offset != nullptr) std::fill(v.begin() + 8, v.end(), 200.0F);
      float& tested = (r.is_key ? k : v)[static_cast<std::size_t>(8 * r.head + 5)];
      tested = x;
      EXPECT_TRUE(cache.append(k.data(), v.data(), 1).ok()) << r.name << " " << x;
      const float beyond = x == r.low ? -1.0F : 1.0F;
      tested = x + beyond * std::fabs(x) * 0.0002F;
      const kvaxis::status s = cache.append(k.data(), v.data(), 1);
      EXPECT_EQ(s.code, kvaxis::errc::out_of_range) << r.name << " " << x;
      EXPECT_EQ(s.argument, std::string(r.is_key ? "k" : "v")) << r.name;
      if (std::fabs(x) < 1e6F) {
        EXPECT_EQ(s.limit, static_cast<std::int64_t>(x)) << r.name;
      } else {
        EXPECT_EQ(s.limit, x < 0 ? INT64_MIN : INT64_MAX) << r.name;
      }
      EXPECT_EQ(cache.size(), 1);
    }
  }
}

}  // namespace
