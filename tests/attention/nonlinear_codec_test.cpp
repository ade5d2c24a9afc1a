// A codec that the kernels do not know is decoded by its own scalar code: every way through attention, for any number
// of query heads, against the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <kvaxis/cache/kv_cache.hpp>
#include <vector>

#include "against_oracle.hpp"

namespace {

// Levels that grow like squares: a sign, 3 bits of the root, a scale.
struct square4 {
  static constexpr int bits = 4;
  static constexpr const char* name = "square4";
  struct params {
    kvaxis::float16 scale;
  };
  static params fit(const float* x, int n) noexcept {
    float most = 0.0F;
    for (int i = 0; i < n; ++i) most = std::fabs(x[i]) > most ? std::fabs(x[i]) : most;
    return {kvaxis::to_float16(most)};
  }
  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    const float scale = to_float(p.scale);
    for (int i = 0; i < n; ++i) {
      const float root = scale > 0.0F ? 7.0F * std::sqrt(std::fabs(x[i]) / scale) : 0.0F;
      codes[i] = static_cast<std::uint32_t>(root > 7.0F ? 7.0F : root + 0.5F) | (x[i] < 0.0F ? 8U : 0U);
    }
  }
  static float decode(params p, std::uint32_t code) noexcept {
    const auto root = static_cast<float>(code & 7U) / 7.0F;
    return ((code & 8U) != 0 ? -1.0F : 1.0F) * to_float(p.scale) * root * root;
  }
};

template <class Keys, class Values>
void expect_agreement() {
  const kvaxis::rope rope = test::rope_of(46, 32);
  test::shape s;
  s.head_dim = 46;
  s.value_dim = 40;
  kvaxis::any_kv_cache cache;
  kvaxis::check(
      kvaxis::any_kv_cache::create(test::config_of(s, rope), kvaxis::bind<Keys>, kvaxis::bind<Values>, {}, cache));
  test::append_random(cache, 100, 3);
  test::append_random(cache, 50, 4, 1000);
  kvaxis::check(cache.flush());
  const test::agreement check(cache, rope);
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}) check.expect({group, 2, 1048});
}

TEST(NonlinearCodec, agrees_with_the_oracle) {
  using kvaxis::per_channel;
  using kvaxis::per_token;
  expect_agreement<per_channel<square4, 64>, per_token<square4, 64>>();
  expect_agreement<per_channel<square4, 64, kvaxis::automatic>, per_channel<square4, 32>>();
  expect_agreement<per_token<square4, 32, kvaxis::tile_rotated>, per_token<square4, 16>>();
  expect_agreement<per_channel<square4, 32, kvaxis::post>, per_channel<square4, 32>>();
}

}  // namespace
