// Numbers of heads, head sizes, tile lengths: those at which kernels take other paths, against the oracle.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "against_oracle.hpp"

namespace {

const char* const policies[] = {"k:int4-channel64-pre,v:int4-token64", "k:int8-token32-tile,v:int8s-channel32",
                                "k:int4s-channel32-auto,v:e4m3-token16", "k:f16,v:bf16-tensor",
                                "k:f32-channel64-hot2,v:f32"};

TEST(Shapes, query_heads_per_kv_head) {
  const kvaxis::rope rope = test::rope_of(64);
  for (const char* name : policies) {
    SCOPED_TRACE(name);
    test::shape s;
    s.kv_heads = 1;
    kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(s, rope));
    test::append_random(cache, 150, 5);
    const test::agreement check(cache, rope);
    for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 71, 256}) check.expect({group, 1, 149});
    if (HasFatalFailure()) return;
  }
}

struct dims {
  int key;
  int value;
  int rotary;  // from the last channels on where it is not all of them
};

void PrintTo(const dims& d, std::ostream* out) { *out << d.key << '/' << d.value; }

class Dims : public ::testing::TestWithParam<dims> {};

TEST_P(Dims, agree_with_the_oracle) {
  const dims d = GetParam();
  const kvaxis::rope rope = test::rope_of(d.key, d.rotary, d.key - d.rotary);
  for (const char* name : policies) {
    SCOPED_TRACE(name);
    test::shape s;
    s.head_dim = d.key;
    s.value_dim = d.value;
    s.tokens = 110;
    kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(s, rope));
    test::append_random(cache, s.tokens, 6);
    ASSERT_GT(cache.folded_tokens(), 0);
    const test::agreement check(cache, rope);
    check.expect({1, 1, 109});
    check.expect({4, 1, 109});
    check.expect({6, 1, 70});
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(key_and_value, Dims,
                         ::testing::Values(dims{8, 8, 8}, dims{20, 20, 20}, dims{40, 40, 40}, dims{46, 46, 46},
                                           dims{64, 64, 64}, dims{72, 72, 72}, dims{80, 80, 80}, dims{96, 96, 96},
                                           dims{100, 100, 100}, dims{128, 128, 128}, dims{192, 128, 64},
                                           dims{256, 256, 256}, dims{576, 512, 64}, dims{64, 256, 64}, dims{13, 9, 4}),
                         [](const auto& p) {
                           return std::to_string(p.param.key) + "_" + std::to_string(p.param.value);
                         });

TEST(Shapes, tile_lengths) {
  const kvaxis::rope rope = test::rope_of(64);
  for (const int tokens : {32, 64, 128, 256}) {
    const std::string length = std::to_string(tokens);
    for (const std::string& name :
         {"k:int4-channel" + length + "-pre,v:int4-token64",
          "k:int8-channel" + length + "-auto,v:int4-channel" + length, "k:int4-token64-tile,v:int8-channel" + length,
          std::string("k:e4m3-token64-pre,v:int4s-token64"), "k:f16,v:int4-channel" + length}) {
      SCOPED_TRACE(name);
      kvaxis::cache_config c = test::config_of({}, rope);
      c.tile_tokens = tokens;
      kvaxis::any_kv_cache cache = test::cache_of(name, c);
      test::append_random(cache, 2 * tokens + 37, 7);
      const test::agreement check(cache, rope);
      check.expect({2, 1, 2 * tokens + 36});
      check.expect({5, 1, tokens});
      if (HasFatalFailure()) return;
    }
  }
}

// More than one range of entries, merged; and tiles of fewer tokens than a vector has lanes.
TEST(Shapes, many_entries) {
  const kvaxis::rope rope = test::rope_of(16);
  test::shape s;
  s.head_dim = 16;
  s.window = 0;
  s.pins = 1;
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-auto,v:int4-token16", test::config_of(s, rope));
  for (int i = 0; i < 200; ++i) test::append_random(cache, 1 + i % 5, static_cast<std::uint64_t>(i), 10 * i);
  ASSERT_GT(cache.view().entry_count, 2 * kvaxis::detail::range_entries);
  const test::agreement check(cache, rope);
  for (const std::int64_t position : {std::int64_t{0}, std::int64_t{640}, std::int64_t{645}, std::int64_t{2000}}) {
    check.expect({3, 2, position});
  }
}

TEST(Shapes, rows_of_16_bits) {
  const kvaxis::rope rope = test::rope_of(80, 64);
  test::shape s;
  s.head_dim = 80;
  s.half_window = true;
  for (const char* name : policies) {
    SCOPED_TRACE(name);
    kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(s, rope));
    test::append_random(cache, 150, 8);
    const test::agreement check(cache, rope);
    check.expect({1, 1, 149});
    check.expect({5, 2, 148});
  }
}

}  // namespace
