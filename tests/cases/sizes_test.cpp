// Field cases about numbers beyond 32 bits; what the planner counts is in cache/plan_test.cpp.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <kvaxis/formats/half.hpp>
#include <string>

#include "policies.hpp"
#include "tokens.hpp"

namespace {

// Rows whose distance, in elements and in bytes, exceeds 32 bits: a view into a buffer of 2^33 elements, of which only
// the pages that hold rows come into being.
TEST(Sizes, B48_rows_further_apart_than_32_bits_count) {
  constexpr int heads = 2;
  constexpr int dim = 16;
  constexpr int tokens = 2;
  constexpr std::int64_t head_stride = (std::int64_t{1} << 31) + 4096;
  constexpr std::int64_t token_stride = (std::int64_t{1} << 32) + 3 * 4096;
  constexpr std::size_t bytes = sizeof(kvaxis::float16) * (token_stride + head_stride + 4096);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const rows = static_cast<kvaxis::float16*>(mapped);
  const auto expected = [](int token, int head, int channel) {
    return static_cast<float>(100 * token + 50 * head + channel);
  };
  for (int t = 0; t < tokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < dim; ++i) {
        rows[t * token_stride + h * head_stride + i] = kvaxis::to_float16(expected(t, h, i));
      }
    }
  }
  for (const int pins : {0, 1, 4}) {  // a call that fills one tile, or two
    kvaxis::cache_config c = test::rope_shape(heads, dim);
    c.pins = pins;
    kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel64-pre,v:int4-token16", c);
    const kvaxis::rows view(rows, token_stride, head_stride);
    kvaxis::check(cache.append(view, view, tokens));
    for (int t = 0; t < tokens; ++t) {
      for (int h = 0; h < heads; ++h) {
        float key[dim];
        float value[dim];
        kvaxis::check(cache.read_key(t, h, key));
        kvaxis::check(cache.read_value(t, h, value));
        for (int i = 0; i < dim; ++i) {
          EXPECT_EQ(key[i], expected(t, h, i)) << pins;
          EXPECT_EQ(value[i], expected(t, h, i)) << pins;
        }
      }
    }
  }
  munmap(mapped, bytes);
}

}  // namespace
