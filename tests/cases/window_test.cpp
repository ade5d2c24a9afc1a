// Field cases about the window and about what a cache keeps apart: sequences, heads, strides, calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "calls.hpp"
#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

bool reads_back_exactly(const kvaxis::any_kv_cache& cache, const test::tokens& data, int token) {
  std::vector<float> key(static_cast<std::size_t>(cache.format()->head_dim));
  std::vector<float> value(static_cast<std::size_t>(cache.format()->value_dim));
  kvaxis::check(cache.read_key(token, 0, key.data()));
  kvaxis::check(cache.read_value(token, 0, value.data()));
  return std::equal(key.begin(), key.end(), data.key(token)) &&
         std::equal(value.begin(), value.end(), data.value(token));
}

kvaxis::cache_config with_window(int window, int pins = 0) {
  kvaxis::cache_config c = test::rope_shape(1, 32);
  c.window = window;
  c.pins = pins;
  return c;
}

TEST(Window, B04_the_newest_tokens_stay_exact_after_every_step) {
  const kvaxis::cache_config c = with_window(64);
  const test::tokens data(c, 400, 1);
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-pre,v:int4-token32", c);
  for (int size = 300; size <= 400; ++size) {
    kvaxis::check(size == 300 ? data.append_to(cache, 0, 300) : data.append_to(cache, size - 1, 1));
    for (int back = 1; back <= 64; ++back) {
      ASSERT_TRUE(reads_back_exactly(cache, data, size - back)) << size - back << " of " << size;
    }
    ASSERT_GT(cache.folded_tokens(), 200);
  }
}

TEST(Window, B05_no_chunk_size_lets_the_window_grow) {
  for (const std::vector<int>& chunks :
       std::vector<std::vector<int>>{{100, 60}, {127, 2}, {129}, {1000}, {100, 60, 7, 300}}) {
    const kvaxis::cache_config c = with_window(128);
    const test::tokens data(c, 1000, 2);
    kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel64-pre,v:int4-token32", c);
    const auto append = [&](int n) {
      kvaxis::check(data.append_to(cache, 0, n));
      ASSERT_LE(cache.exact_tokens(), 128 + 64 - 1) << "after " << cache.size() << " tokens";
      ASSERT_GE(cache.exact_tokens(), std::min<std::int64_t>(128, cache.size()));
    };
    for (const int n : chunks) append(n);
    for (int i = 0; i < 200; ++i) append(1);
  }
}

TEST(Window, B06_a_long_generation_is_quantized) {
  counting_allocator memory;
  kvaxis::cache_config c = test::rope_shape(1, 64);
  c.window = 32;
  c.pins = 0;
  kvaxis::any_kv_cache cache;
  kvaxis::check(test::make_cache("k:int4-channel32-pre,v:int4-token64", c, memory.hook(), cache));
  const test::tokens data(c, 32, 3);
  data.append_all_to(cache);
  std::size_t reported = 0;
  std::size_t allocated = 0;
  while (cache.size() < 4096 + 32) {
    kvaxis::check(data.append_to(cache, static_cast<int>(cache.size() % 32), 1));
    if (cache.size() == 1024) {
      reported = cache.bytes().total();
      allocated = memory.live_bytes;
    }
    if (cache.size() == 4096) {
      const double half_bytes = (4096 - 1024) * 2.0 * 64 * 2;
      EXPECT_LT(static_cast<double>(cache.bytes().total() - reported), 0.35 * half_bytes);
      EXPECT_LT(static_cast<double>(memory.live_bytes - allocated), 0.35 * half_bytes);
    }
  }
  EXPECT_LE(cache.exact_tokens(), 63);
}

TEST(Window, B36_a_partly_filled_last_chunk) {
  const kvaxis::cache_config c = with_window(64);
  const test::tokens data(c, 130, 4);
  kvaxis::any_kv_cache chunks = test::cache_of("k:int4-channel64-pre,v:int4-token32", c);
  for (const int first : {0, 64, 128}) kvaxis::check(data.append_to(chunks, first, std::min(64, 130 - first)));
  EXPECT_EQ(chunks.size(), 130);
  EXPECT_EQ(chunks.next_position(), 130);
  for (int t = 66; t < 130; ++t) EXPECT_TRUE(reads_back_exactly(chunks, data, t)) << t;
  kvaxis::any_kv_cache singles = test::cache_of("k:int4-channel64-pre,v:int4-token32", c);
  for (int t = 0; t < 130; ++t) kvaxis::check(data.append_to(singles, t, 1));
  EXPECT_EQ(test::contents(singles) == test::contents(chunks), true);
}

// A quiet sequence beside a loud one, token by token in turn: the quiet one's bytes and outputs are those it has alone.
TEST(Apart, B07_sequences_do_not_share_scales) {
  const kvaxis::cache_config c = with_window(32, 4);
  const test::tokens quiet(c, 200, 5);
  const test::tokens loud(c, 200, 6, 1000.0F, 1000.0F);
  for (const char* const policy : {"k:int4-channel32-pre,v:int4-token32", "k:int8-channel32-auto,v:int8-channel32"}) {
    kvaxis::any_kv_cache a = test::cache_of(policy, c);
    kvaxis::any_kv_cache b = test::cache_of(policy, c);
    for (int t = 0; t < 200; ++t) {
      kvaxis::check(quiet.append_to(a, t, 1));
      kvaxis::check(loud.append_to(b, t, 1));
    }
    kvaxis::any_kv_cache alone = test::cache_of(policy, c);
    quiet.append_all_to(alone);
    EXPECT_EQ(test::contents(a) == test::contents(alone), true) << policy;
    const std::vector<float> q(32, 1.0F);
    EXPECT_EQ(test::attend(a, q, 1, 200).out, test::attend(alone, q, 1, 200).out) << policy;
  }
}

// Two caches of one shape, used in turn through the same workspace; and one that is cleared and filled again.
TEST(Apart, B70_nothing_is_left_of_another_sequence_of_the_same_length) {
  const kvaxis::cache_config c = with_window(20, 4);
  const char* const policy = "k:int4-channel32-pre,v:int4-token32";
  const test::tokens data[] = {test::tokens(c, 100, 7), test::tokens(c, 100, 8)};
  const std::vector<float> q = test::numbers(9).uniforms(32);
  std::vector<float> want[2];
  kvaxis::any_kv_cache caches[2];
  for (int i = 0; i < 2; ++i) {
    kvaxis::any_kv_cache alone = test::cache_of(policy, c);
    data[i].append_all_to(alone);
    want[i] = test::attend(alone, q, 1, 100).out;
    caches[i] = test::cache_of(policy, c);
    data[i].append_all_to(caches[i]);
  }
  EXPECT_NE(want[0], want[1]);
  std::vector<char> memory(caches[0].workspace_bytes(1, {}));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 2; ++i) {
      std::vector<float> out(32);
      kvaxis::check(
          caches[i].attend(q.data(), 1, 100, test::exact(), out.data(), nullptr, {memory.data(), memory.size()}));
      EXPECT_EQ(out, want[i]);
    }
  }
  caches[0].clear();
  data[1].append_all_to(caches[0]);
  EXPECT_EQ(test::attend(caches[0], q, 1, 100).out, want[1]);
  EXPECT_EQ(test::contents(caches[0]) == test::contents(caches[1]), true);
}

TEST(Apart, B47_every_head_keeps_its_rows) {
  kvaxis::cache_config c = test::rope_shape(5, 16);
  c.window = 40;
  for (const char* const policy : {"k:int4f32-channel32-pre,v:int4f32-token16", "k:f32,v:f32"}) {
    kvaxis::any_kv_cache cache = test::cache_of(policy, c);
    kvaxis::check(cache.reserve(4096));
    test::tokens data(c, 330, 10);
    const auto expected = [](int h, int t) { return static_cast<float>(h * 10000 + t); };
    for (int t = 0; t < 330; ++t) {
      for (int h = 0; h < 5; ++h) {
        std::fill_n(data.v.begin() + (t * 5 + h) * 16, 16, expected(h, t));
      }
    }
    for (int t = 0; t < 330; t += 33) kvaxis::check(data.append_to(cache, t, 33));
    ASSERT_GT(cache.folded_tokens(), 200);
    for (int t = 0; t < 330; ++t) {
      for (int h = 0; h < 5; ++h) {
        float value[16];
        kvaxis::check(cache.read_value(t, h, value));
        for (const float x : value) ASSERT_EQ(x, expected(h, t)) << policy;
      }
    }
  }
}

// q, k and v as slices of one buffer with a wide pitch; small values beside large keys.
TEST(Apart, B69_slices_of_one_buffer) {
  constexpr int query_heads = 8;
  constexpr int kv_heads = 2;
  constexpr int dim = 24;
  constexpr int tokens = 100;
  kvaxis::cache_config c = test::rope_shape(kv_heads, dim);
  c.window = 10;
  const test::tokens data(c, tokens, 11, 100.0F, 0.01F);
  const char* const policy = "k:int4-channel32-pre,v:int4-token16";
  kvaxis::any_kv_cache want = test::cache_of(policy, c);
  data.append_all_to(want);
  for (const int extra : {0, 3}) {
    const int pitch = (query_heads + 2 * kv_heads) * dim + extra;
    std::vector<float> buffer(static_cast<std::size_t>(tokens * pitch), -7e4F);
    for (int t = 0; t < tokens; ++t) {
      float* row = buffer.data() + t * pitch + query_heads * dim;
      std::copy_n(data.key(t), kv_heads * dim, row);
      std::copy_n(data.value(t), kv_heads * dim, row + kv_heads * dim);
    }
    kvaxis::any_kv_cache cache = test::cache_of(policy, c);
    const float* k = buffer.data() + query_heads * dim;
    kvaxis::check(cache.append({k, pitch}, {k + kv_heads * dim, pitch}, tokens));
    EXPECT_EQ(test::contents(cache) == test::contents(want), true) << pitch;
  }
}

}  // namespace
