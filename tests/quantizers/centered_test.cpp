// Centred codecs: the centre is the middle of the range, and the inner codec sees what is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/affine.hpp>
#include <kvaxis/quantizers/centered.hpp>
#include <kvaxis/quantizers/codebook.hpp>
#include <kvaxis/quantizers/minifloat.hpp>
#include <normal.hpp>
#include <string>
#include <vector>

#include "codec_groups.hpp"

namespace {

using kvaxis::centered;
using kvaxis::to_float;
using test::encoded;

template <class Inner>
class Centered : public ::testing::Test {};
using inner_codecs = ::testing::Types<kvaxis::int4s, kvaxis::int8s, kvaxis::nf4, kvaxis::lloyd4, kvaxis::e4m3>;
TYPED_TEST_SUITE(Centered, inner_codecs);

TYPED_TEST(Centered, is_a_codec_with_one_more_float16) {
  using codec = centered<TypeParam>;
  static_assert(kvaxis::is_codec<codec> && !kvaxis::is_linear<codec>);
  static_assert(kvaxis::codec_parameters<codec>::members == kvaxis::codec_parameters<TypeParam>::members + 1);
  EXPECT_EQ(codec::decode({}, 0), TypeParam::decode({}, 0)) << "padding";
  EXPECT_EQ(std::string(codec::name), std::string(TypeParam::name) + "-centered");
}

TYPED_TEST(Centered, the_inner_codec_sees_the_distance_to_the_middle) {
  using codec = centered<TypeParam>;
  for (const test::group& g : test::codec_groups(codec::limit)) {
    const auto n = static_cast<int>(g.x.size());
    const auto p = codec::fit(g.x.data(), n);
    const float centre = to_float(p.centre);
    const auto [low, high] = std::minmax_element(g.x.begin(), g.x.end());
    const double middle = (static_cast<double>(*low) + static_cast<double>(*high)) / 2;
    ASSERT_NEAR(centre, middle, std::max(0x1p-11 * std::fabs(middle), 0x1p-25)) << g.name;
    std::vector<float> shifted = g.x;
    for (float& x : shifted) x = kvaxis::flush_subnormal(x - centre);
    const auto inner = TypeParam::fit(shifted.data(), n);
    ASSERT_EQ(p.inner.scale.bits, inner.scale.bits) << g.name;
    const std::vector<std::uint32_t> codes = encoded<codec>(p, g.x);
    ASSERT_EQ(codes, encoded<TypeParam>(inner, shifted)) << g.name;
    for (const std::uint32_t code : codes) {
      const float back = codec::decode(p, code);
      ASSERT_EQ(back, TypeParam::decode(inner, code) + centre) << g.name;
      ASSERT_TRUE(kvaxis::is_finite(back)) << g.name;
    }
  }
}

TYPED_TEST(Centered, a_bias_costs_nothing) {
  using codec = centered<TypeParam>;
  const std::vector<float>& x = test::normal_deviates();
  const double unbiased = test::nmse_of<codec>(64);
  EXPECT_LE(unbiased, test::nmse_of<TypeParam>(64) * 1.01) << "never worse than without a centre";
  std::vector<float> biased = x;
  for (float& number : biased) number += 50.0F;
  // Against the power of x, without that of the bias.
  double bias_power = 0;
  double power = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    bias_power += std::pow(static_cast<double>(biased[i]), 2);
    power += std::pow(static_cast<double>(x[i]), 2);
  }
  const double scaled = bias_power / power;
  test::expect_within(test::nmse_of<codec>(64, biased) * scaled, unbiased, 0.03, codec::name);
  EXPECT_GT(test::nmse_of<TypeParam>(64, biased) * scaled, 20 * unbiased) << "without a centre";
}

TEST(CenteredGroups, constants_keep_their_float16) {
  for (const float c : {0.0F, 3.0F, -250.0F, 60000.0F}) {
    const std::vector<float> x(64, c);
    const auto p = centered<kvaxis::int4s>::fit(x.data(), 64);
    EXPECT_EQ(p.inner.scale.bits, 0);
    for (const std::uint32_t code : encoded<centered<kvaxis::int4s>>(p, x)) {
      EXPECT_EQ(centered<kvaxis::int4s>::decode(p, code), c);
    }
  }
}

TEST(CenteredGroups, longer_than_any_in_a_cache_do_not_clip) {
  using codec = centered<kvaxis::int8s>;
  test::numbers random(5);
  for (const std::size_t n : {576U, 577U, 5000U}) {
    std::vector<float> x = random.uniforms(n);
    x[n - 2] = 40.0F;
    x[n - 4] = -20.0F;
    const auto p = codec::fit(x.data(), static_cast<int>(n));
    const std::vector<std::uint32_t> codes = encoded<codec>(p, x);
    const float step = to_float(p.inner.scale);
    EXPECT_LE(step, 1.001F * 30.0F / 127);
    for (std::size_t i = 0; i < n; ++i) ASSERT_LE(std::fabs(codec::decode(p, codes[i]) - x[i]), 0.501F * step) << i;
  }
}

TEST(CenteredBytes, do_not_depend_on_flags) {
  EXPECT_EQ(test::hash_of_bytes<centered<kvaxis::int4s>>(), 10402049375494162465U);
  EXPECT_EQ(test::hash_of_bytes<centered<kvaxis::lloyd4>>(), 6281952063707594061U);
  EXPECT_EQ(test::hash_of_bytes<centered<kvaxis::e4m3>>(), 17174302175866141156U);
}

}  // namespace
