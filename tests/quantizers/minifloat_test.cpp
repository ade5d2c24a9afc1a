// FP8 codes with a scale, and the codecs without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/identity.hpp>
#include <kvaxis/quantizers/minifloat.hpp>
#include <vector>

#include "codec_groups.hpp"

namespace {

using kvaxis::bits_float;
using kvaxis::float16;
using kvaxis::float_bits;
using kvaxis::to_float;
using test::encoded;

template <class Codec>
struct format;
template <>
struct format<kvaxis::e4m3> {
  static std::uint8_t encode(float x) { return kvaxis::encode_e4m3(x); }
  static float decode(std::uint8_t c) { return kvaxis::decode_e4m3(c); }
  static constexpr double relative = 0x1p-4;  // half a step of three mantissa bits
  static constexpr double smallest_normal = 0x1p-6;
};
template <>
struct format<kvaxis::e5m2> {
  static std::uint8_t encode(float x) { return kvaxis::encode_e5m2(x); }
  static float decode(std::uint8_t c) { return kvaxis::decode_e5m2(c); }
  static constexpr double relative = 0x1p-3;
  static constexpr double smallest_normal = 0x1p-14;
};

template <class Codec>
class Minifloat : public ::testing::Test {};
using codecs = ::testing::Types<kvaxis::e4m3, kvaxis::e5m2>;
TYPED_TEST_SUITE(Minifloat, codecs);

TYPED_TEST(Minifloat, the_scale_is_the_smallest_that_does_not_saturate) {
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    double amax = 0.0;
    for (const float v : g.x) amax = std::max(amax, std::fabs(static_cast<double>(v)));
    std::uint16_t bits = amax > 0 ? 1 : 0;
    while (static_cast<double>(to_float(float16{bits})) * static_cast<double>(TypeParam::unit_max) < amax) ++bits;
    EXPECT_EQ(TypeParam::fit(g.x.data(), static_cast<int>(g.x.size())).scale.bits, bits) << g.name;
  }
}

TYPED_TEST(Minifloat, codes_are_those_of_the_scaled_numbers) {
  using f = format<TypeParam>;
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, g.x);
    const double scale = to_float(p.scale);
    const float inverse = scale > 0 ? static_cast<float>(1.0 / scale) : 0.0F;
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const double x = g.x[i];
      ASSERT_EQ(codes[i], f::encode(g.x[i] * inverse)) << g.name << " x = " << x;
      const double back = TypeParam::decode(p, codes[i]);
      ASSERT_EQ(back, scale * static_cast<double>(f::decode(static_cast<std::uint8_t>(codes[i])))) << g.name;
      const double bound = std::max(f::relative * std::fabs(x), f::relative * f::smallest_normal * scale) * (1 + 1e-6);
      ASSERT_LE(std::fabs(back - x), scale > 0 ? bound : 0.0) << g.name << " x = " << x;
    }
  }
}

TYPED_TEST(Minifloat, B10_a_zero_group_has_zero_codes) {
  for (const float x : {0.0F, -0.0F}) {
    const std::vector<float> zeros(64, x);
    const auto p = TypeParam::fit(zeros.data(), 64);
    EXPECT_EQ(p.scale.bits, 0);
    for (const std::uint32_t code : encoded<TypeParam>(p, zeros)) {
      EXPECT_EQ(code & 0x7FU, 0U);
      EXPECT_EQ(TypeParam::decode(p, code), 0.0F);
    }
  }
}

TEST(E4m3Codec, B17_groups_below_the_smallest_normal_code) {
  std::vector<float> x = {448.0F};  // makes the scale 1
  for (int n = 0; n <= 64; ++n) x.push_back(static_cast<float>(n) * 0x1p-12F);
  const auto p = kvaxis::e4m3::fit(x.data(), static_cast<int>(x.size()));
  EXPECT_EQ(to_float(p.scale), 1.0F);
  const std::vector<std::uint32_t> codes = encoded<kvaxis::e4m3>(p, x);
  for (std::size_t i = 1; i < x.size(); ++i)
    EXPECT_LE(std::fabs(kvaxis::e4m3::decode(p, codes[i]) - x[i]), 0x1p-10F) << x[i];
  for (std::uint32_t code = 0; code <= 8; ++code) {
    EXPECT_EQ(kvaxis::e4m3::decode(p, code), static_cast<float>(code) * 0.001953125F);
  }
}

TEST(E4m3Codec, B18_ties_to_even) {
  const float x[] = {1.0625F, 1.1875F, 4.25F, 4.75F, 248.0F, 0.0146484375F, 0x1p-10F, 3 * 0x1p-10F};
  const std::uint32_t expected[] = {0x38, 0x3A, 0x48, 0x4A, 0x78, 0x08, 0x00, 0x02};
  std::uint32_t codes[8];
  kvaxis::e4m3::encode_linear(1.0F, 0.0F, x, 8, codes);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(codes[i], expected[i]) << x[i];
}

TEST(E4m3Codec, a_given_scale_saturates_on_both_sides) {
  const float x[] = {900.0F, -900.0F, 896.0F, -896.0F, 1e38F, -1e38F};
  std::uint32_t codes[6];
  kvaxis::e4m3::encode_linear(2.0F, 0.0F, x, 6, codes);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(codes[i], i % 2 == 0 ? 0x7EU : 0xFEU) << x[i];
  kvaxis::e4m3::encode_linear(1.17549435e-38F, 0.0F, x, 6, codes);  // 1 / scale times x is beyond f32
  for (int i = 0; i < 6; ++i) EXPECT_EQ(codes[i], i % 2 == 0 ? 0x7EU : 0xFEU) << x[i];
}

template <class Codec>
class Identity : public ::testing::Test {};
using identities = ::testing::Types<kvaxis::f32, kvaxis::f16, kvaxis::bf16>;
TYPED_TEST_SUITE(Identity, identities);

TYPED_TEST(Identity, reads_back_the_nearest_number_of_the_format) {
  static_assert(kvaxis::codec_parameters<TypeParam>::members == 0);
  constexpr double relative = TypeParam::bits == 32 ? 0.0 : std::is_same_v<TypeParam, kvaxis::f16> ? 0x1p-11 : 0x1p-8;
  constexpr double floor = std::is_same_v<TypeParam, kvaxis::f16> ? 0x1p-25 : 0.0;
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, g.x);
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const double x = g.x[i];
      const double back = TypeParam::decode(p, codes[i]);
      ASSERT_LE(std::fabs(back - x), std::max(relative * std::fabs(x), floor)) << g.name << " x = " << x;
      const float again = TypeParam::decode(p, codes[i]);
      ASSERT_EQ(encoded<TypeParam>(p, {again})[0], codes[i]) << g.name;
    }
  }
  // The largest number that a codec takes does not become infinite.
  const auto p = TypeParam::fit(nullptr, 0);
  EXPECT_EQ(TypeParam::decode(p, encoded<TypeParam>(p, {TypeParam::limit})[0]), TypeParam::limit);
  EXPECT_EQ(TypeParam::decode(p, encoded<TypeParam>(p, {-TypeParam::limit})[0]), -TypeParam::limit);
}

}  // namespace
