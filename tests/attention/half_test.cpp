// Binary16 arithmetic, where the CPU has it. What its rounding adds is measured with that of integers (integer_test.cpp); here
// are its limits: sums that must not overflow, pairs that it must leave to f32, parts of tiles.
#include <gtest/gtest.h>

#include <calls.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <isa_test.hpp>
#include <numbers.hpp>
#include <policies.hpp>
#include <string>
#include <tokens.hpp>
#include <vector>

namespace {

using kvaxis::arithmetic;

class Half : public isa_test {
 protected:
  const kvaxis::half_kernels* const kernels_ = kvaxis::detail::active_half();
};

kvaxis::cache_config shape(int head_dim) {
  kvaxis::cache_config c = test::rope_shape(1, head_dim);
  c.window = 0;
  c.pins = 0;
  return c;
}

kvaxis::any_kv_cache folded(const std::string& policy, const kvaxis::cache_config& c, const test::tokens& data) {
  kvaxis::any_kv_cache cache = test::cache_of(policy, c);
  data.append_all_to(cache);
  kvaxis::check(cache.flush());
  return cache;
}

// Whether some largest difference is below `relative` of the largest number.
void expect_close(const std::vector<float>& a, const std::vector<float>& b, double relative, const std::string& what) {
  double most = 0;
  double difference = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(b[i])));
    difference = std::max(difference, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  EXPECT_GT(most, 0.0) << what;
  EXPECT_LE(difference, relative * most) << what;  // also refuses what is not a number
}

// Keys, values and queries as large and as alike as they can be, so that every product adds to the same sum.
TEST_P(Half, sums_do_not_overflow) {
  for (const char* policy :
       {"k:e4m3-channel256-tile,v:e4m3-token64", "k:e4m3-channel256-pre,v:e4m3-token576", "k:e4m3-channel64-auto,v:f16",
        "k:int4-channel256-pre,v:int4-token64", "k:int4s-channel64-pre,v:int4-token64"}) {
    for (const float key : {1e-4F, 1.0F, 3e4F}) {
      for (const float query : {1e-30F, 1.0F, 1e30F}) {
        const kvaxis::cache_config c = shape(576);
        test::tokens data(c, 256, 3);
        for (std::size_t i = 0; i < data.k.size(); ++i) {
          data.k[i] = i / 576 % 2 == 0 ? key : -key;
          data.v[i] = key;
        }
        const kvaxis::any_kv_cache cache = folded(policy, c, data);
        const std::vector<float> q(9 * 576, query);
        kvaxis::attend_options o = test::exact();
        o.query_heads = 9;
        const std::vector<float> exact = test::scores(cache, q, 1, 256, o);
        const std::vector<float> exact_out = test::attend(cache, q, 1, 256, o).out;
        o.arithmetic = arithmetic::automatic;
        const std::string what =
            std::string(policy) + ", keys " + std::to_string(key) + ", log query " + std::to_string(std::log10(query));
        expect_close(test::scores(cache, q, 1, 256, o), exact, 0.01, what);
        expect_close(test::attend(cache, q, 1, 256, o).out, exact_out, 0.01, what);
      }
    }
  }
}

// Queries of one head may differ by any factor from channel to channel, and keys too.
TEST_P(Half, small_channels_next_to_large_ones_lose_nothing_that_counts) {
  const kvaxis::cache_config c = shape(128);
  test::tokens data(c, 192, 4);
  std::vector<float> q = test::numbers(5).bells(std::size_t{9} * 128);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] *= std::ldexp(1.0F, static_cast<int>(i % 64) / 4 - 8);
  for (std::size_t i = 0; i < data.k.size(); ++i) data.k[i] *= std::ldexp(1.0F, 4 - static_cast<int>(i % 16));
  for (const char* policy : {"k:e4m3-channel64-pre,v:f32", "k:int4-channel64-pre,v:f32"}) {
    const kvaxis::any_kv_cache cache = folded(policy, c, data);
    kvaxis::attend_options o = test::exact();
    o.query_heads = 9;
    const std::vector<float> exact = test::scores(cache, q, 1, 192, o);
    o.arithmetic = arithmetic::automatic;
    expect_close(test::scores(cache, q, 1, 192, o), exact, 0.003, policy);
  }
}

// A window that ends within a tile, and tiles that end within a vector's lanes: the same bits as without.
TEST_P(Half, a_part_of_a_tile_has_the_scores_of_the_whole) {
  for (const char* policy : {"k:e4m3-channel64-pre,v:e4m3-token16", "k:e4m3-channel32-auto,v:e4m3-token64",
                             "k:int4-channel64-pre,v:int4-token64", "k:int4-channel128-auto,v:int4-token32",
                             "k:e4m3-channel32-hot3,v:e4m3-token128"}) {
    for (const int dim : {8, 80, 96, 576}) {
      const kvaxis::cache_config c = shape(dim);
      const test::tokens data(c, 300, 9);
      const kvaxis::any_kv_cache cache = folded(policy, c, data);
      kvaxis::attend_options o = test::exact();
      o.query_heads = 17;
      const std::vector<float> q = test::numbers(6).uniforms(static_cast<std::size_t>(17 * dim), 2.0F);
      const std::vector<float> exact = test::attend(cache, q, 1, 300, o).out;
      o.arithmetic = arithmetic::automatic;
      const std::string what = std::string(policy) + ", dim " + std::to_string(dim);
      if (policy[2] == 'e') expect_close(test::attend(cache, q, 1, 300, o).out, exact, 0.01, what);
      const std::vector<float> whole = test::scores(cache, q, 1, 300, o);
      o.sliding_window = 235;
      const std::vector<float> part = test::scores(cache, q, 1, 300, o);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        if (!std::isfinite(part[i])) continue;
        ASSERT_EQ(part[i], whole[i]) << what << ", " << i;
      }
    }
  }
}

TEST_P(Half, pairs_with_far_offsets_are_left) {
  if (kernels_ == nullptr) return;  // this instruction set takes f32
  constexpr int rows = 36;          // the last quad in a vector of its own
  std::vector<float> scale(48, 0.5F);
  std::vector<float> offset(48, -4.0F);
  offset[2] = 100.0F;  // pair 1, beyond 64 times 0.5
  offset[9] = -40.0F;  // pair 4
  scale[11] = 2.0F;    // pair 5: the larger scale counts
  offset[10] = 100.0F;
  scale[12] = scale[13] = 0.0F;  // pair 6: constants
  scale[14] = scale[15] = offset[14] = offset[15] = 0.0F;
  offset[34] = 25.0F;  // pair 17: 25 + 15 * 0.5 is too far
  const kvaxis::block_view block{nullptr, scale.data(), offset.data(), rows, 64, 64, false};
  std::uint32_t hot[kvaxis::max_pairs / 32 + 1] = {0x000300FAU};  // without pairs 0 and 2, and 8 .. 15
  std::uint32_t mask[kvaxis::max_pairs / 32 + 1];
  std::uint32_t left[kvaxis::max_pairs / 32 + 1];
  std::vector<std::uint32_t> parameters(48);
  std::vector<float> exponents(48);
  kvaxis::half_pairs pairs;
  pairs.parameters = parameters.data();
  pairs.exponents = exponents.data();
  pairs.mask = mask;
  pairs.left = left;
  EXPECT_EQ(kernels_->prepare_pairs(block, kvaxis::unit_kind::u4, hot, pairs), 1.0F);  // 2^1 <= 2
  EXPECT_EQ(left[0], 0x00020052U);
  EXPECT_EQ(mask[0], 0x000100A8U);
  EXPECT_EQ(exponents[6], -1.0F);
  EXPECT_EQ(parameters[6], 0x74007400U);   // 0.5 * 2^(1 + 14)
  EXPECT_EQ(parameters[7], 0xB000B000U);   // -4 * 2^(1 - 6)
  EXPECT_EQ(parameters[10], 0x74006C00U);  // 2 and 0.5, times 2^(-1 + 14)
  hot[0] = 2;
  EXPECT_LT(kernels_->prepare_pairs(block, kvaxis::unit_kind::u4, hot, pairs), -1000.0F);
  EXPECT_EQ(left[0], 2U);
  EXPECT_EQ(mask[0], 0U);
}

KVAXIS_ON_EVERY_ISA(Half);

}  // namespace
