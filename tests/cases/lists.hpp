// Helpers of the cases about lists of tiles.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace cases {

using kvaxis::any_kv_cache;

inline constexpr const char* int4_policy = "k:int4-channel32-auto,v:int4-token16";

inline kvaxis::cache_config config_of(int window, int pins, int head_dim = 32, int kv_heads = 2) {
  kvaxis::cache_config c = test::rope_shape(kv_heads, head_dim);
  c.tile_tokens = 32;
  c.window = window;
  c.pins = pins;
  return c;
}

inline std::vector<float> attend(const any_kv_cache& cache, const std::vector<float>& q, std::int64_t position,
                                 kvaxis::attend_options o = {}) {
  const int heads = o.query_heads == 0 ? cache.format()->kv_heads : o.query_heads;
  const int n = static_cast<int>(q.size()) / (heads * cache.format()->head_dim);
  std::vector<float> out(static_cast<std::size_t>(n * heads * cache.format()->value_dim), 12345.0F);
  std::vector<std::byte> memory(cache.workspace_bytes(n, o));
  kvaxis::check(cache.attend(q.data(), n, position, o, out.data(), nullptr, {memory.data(), memory.size()}));
  return out;
}

inline std::vector<float> queries(const any_kv_cache& cache, int n, std::uint64_t seed, float amplitude = 2.0F) {
  const int width = cache.format()->kv_heads * cache.format()->head_dim;
  return test::numbers(seed).uniforms(static_cast<std::size_t>(n * width), amplitude);
}

inline void expect_oracle(const any_kv_cache& cache, const kvaxis::rope& rope, std::int64_t position) {
  kvaxis::attend_options o;
  o.arithmetic = kvaxis::arithmetic::f32;
  const std::vector<float> q = queries(cache, 1, 77);
  const test::oracle oracle(cache, rope);
  const test::oracle::result expected = oracle.attend(q, 1, position, o);
  const std::vector<float> got = attend(cache, q, position, o);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected.out[i], oracle.output_bound());
}

// Read-back of all tokens, keys then values.
inline std::vector<float> read_all(const any_kv_cache& cache, std::int64_t first = 0, std::int64_t count = -1) {
  const std::int64_t end = count < 0 ? cache.size() : first + count;
  const auto dim = static_cast<std::size_t>(cache.format()->head_dim);
  std::vector<float> all;
  std::vector<float> row(dim);
  for (std::int64_t t = first; t < end; ++t) {
    for (int h = 0; h < cache.format()->kv_heads; ++h) {
      kvaxis::check(cache.read_key(t, h, row.data()));
      all.insert(all.end(), row.begin(), row.end());
      kvaxis::check(cache.read_value(t, h, row.data()));
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  return all;
}

}  // namespace cases
