// Symmetric codes: narrow range, centred, without an offset.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/affine.hpp>
#include <vector>

#include "codec_groups.hpp"

namespace {

using kvaxis::float16;
using kvaxis::to_float;
using test::encoded;

float largest_magnitude(const std::vector<float>& x) {
  float most = 0.0F;
  for (const float v : x) most = std::max(most, std::fabs(v));
  return most;
}

float16 best_scale(float amax, int levels) {
  if (amax == 0.0F) return float16{0};
  std::uint16_t bits = 1;
  while (static_cast<double>(to_float(float16{bits})) * levels < static_cast<double>(amax)) ++bits;
  return float16{bits};
}

template <class Codec>
class Symmetric : public ::testing::Test {
 protected:
  static constexpr int zero = 1 << (Codec::bits - 1);
};
using codecs = ::testing::Types<kvaxis::int4s, kvaxis::int8s>;
TYPED_TEST_SUITE(Symmetric, codecs);

TYPED_TEST(Symmetric, the_scale_is_the_smallest_that_does_not_clip) {
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    EXPECT_EQ(p.scale, best_scale(largest_magnitude(g.x), this->zero - 1)) << g.name;
  }
}

TYPED_TEST(Symmetric, B53_the_extreme_code_never_occurs) {
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, g.x);
    const double scale = to_float(p.scale);
    const float inverse = scale > 0 ? static_cast<float>(1.0 / scale) : 0.0F;
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      ASSERT_GE(codes[i], 1U) << g.name;
      ASSERT_LE(codes[i], static_cast<std::uint32_t>(2 * this->zero - 1)) << g.name;
      const double step = std::nearbyint(static_cast<double>(g.x[i]) * static_cast<double>(inverse));
      ASSERT_EQ(static_cast<double>(codes[i]) - this->zero, step) << g.name << " x = " << g.x[i];
    }
  }
}

TYPED_TEST(Symmetric, read_back_is_within_half_a_step) {
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, g.x);
    const double amax = largest_magnitude(g.x);
    // Scales are multiples of 2^-24.
    const double bound = amax / (this->zero - 1) / 2 * 1.02 + 0x1p-25;
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const double back = TypeParam::decode(p, codes[i]);
      ASSERT_LE(std::fabs(back - static_cast<double>(g.x[i])), bound) << g.name << " x = " << g.x[i];
      ASSERT_EQ(back, (static_cast<double>(codes[i]) - this->zero) * to_float(p.scale)) << g.name;
    }
  }
}

TYPED_TEST(Symmetric, zero_is_exact_and_signs_mirror) {
  test::numbers random(5);
  std::vector<float> x = random.bells(64, 3.0F);
  x[7] = 0.0F;
  std::vector<float> minus = x;
  for (float& v : minus) v = -v;
  const auto p = TypeParam::fit(x.data(), 64);
  EXPECT_EQ(TypeParam::fit(minus.data(), 64).scale, p.scale);
  const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, x);
  const std::vector<std::uint32_t> mirrored = encoded<TypeParam>(p, minus);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_EQ(static_cast<int>(codes[i]) + static_cast<int>(mirrored[i]), 2 * this->zero);
  }
  EXPECT_EQ(TypeParam::decode(p, codes[7]), 0.0F);
}

TYPED_TEST(Symmetric, B09_zero_groups_are_zero) {
  const std::vector<float> x(32, -0.0F);
  const auto p = TypeParam::fit(x.data(), 32);
  EXPECT_EQ(p.scale.bits, 0);
  for (const std::uint32_t code : encoded<TypeParam>(p, x)) {
    EXPECT_EQ(code, static_cast<std::uint32_t>(this->zero));
    EXPECT_EQ(TypeParam::decode(p, code), 0.0F);
  }
}

TYPED_TEST(Symmetric, B18_ties_to_even) {
  const int most = this->zero - 1;
  std::vector<float> x = {static_cast<float>(most)};
  for (int n = -most; n < most; ++n) x.push_back(static_cast<float>(n) + 0.5F);
  const auto p = TypeParam::fit(x.data(), static_cast<int>(x.size()));
  EXPECT_EQ(to_float(p.scale), 1.0F);
  const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, x);
  for (std::size_t i = 1; i < x.size(); ++i) {
    EXPECT_EQ(static_cast<float>(static_cast<int>(codes[i]) - this->zero), std::nearbyint(x[i])) << x[i];
  }
}

// With a scale and a centre from the caller: symmetric around the centre, clamped at both ends.
TYPED_TEST(Symmetric, a_given_offset_moves_the_centre) {
  const float centre = 10.0F;
  const float scale = 0.25F;
  const float offset = centre - scale * static_cast<float>(this->zero);
  const std::vector<float> x = {centre, centre + scale, centre - scale, 1e6F, -1e6F};
  std::vector<std::uint32_t> codes(x.size());
  TypeParam::encode_linear(scale, offset, x.data(), static_cast<int>(x.size()), codes.data());
  const auto middle = static_cast<std::uint32_t>(this->zero);
  EXPECT_EQ(codes, (std::vector<std::uint32_t>{middle, middle + 1, middle - 1, 2 * middle - 1, 1}));
}

// The scale and codes of a common 8-bit block (largest magnitude / 127) on a reference vector.
TEST(SymmetricGolden, reference_codes) {
  std::vector<float> x;
  for (int j = 0; j < 32; ++j) x.push_back(static_cast<float>((37 * j + 11) % 101 - 50) / 16.0F);
  const auto p = kvaxis::int8s::fit(x.data(), 32);
  EXPECT_EQ(p.scale.bits, 0x264D);
  const std::vector<std::uint32_t> codes = encoded<kvaxis::int8s>(p, x);
  const int expected[] = {0x9D - 256, 0xFB - 256, 0x59, 0xB6 - 256, 0x14, 0x72, 0xD0 - 256, 0x2E};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(static_cast<int>(codes[i]) - 128, expected[i]) << i;
}

}  // namespace
