// The MX formats and NVFP4: codes of a reference vector, every group against a search in double, and the error on normal
// deviates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/microscaling.hpp>
#include <normal.hpp>
#include <reference_numbers.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "codec_groups.hpp"

namespace {

using kvaxis::to_float;
using test::encoded;

// What the formats' tables say.
template <class Codec>
struct about;
struct e2m1 {
  static constexpr int mantissa_bits = 1, bias = 1, largest_exponent = 2;
  static constexpr std::uint32_t largest_code = 7;
};
template <>
struct about<kvaxis::mxfp4> : e2m1 {};
template <>
struct about<kvaxis::nvfp4> : e2m1 {};
template <>
struct about<kvaxis::mxfp6e2m3> {
  static constexpr int mantissa_bits = 3, bias = 1, largest_exponent = 2;
  static constexpr std::uint32_t largest_code = 31;
};
template <>
struct about<kvaxis::mxfp6e3m2> {
  static constexpr int mantissa_bits = 2, bias = 3, largest_exponent = 4;
  static constexpr std::uint32_t largest_code = 31;
};
template <>
struct about<kvaxis::mxfp8e4m3> {
  static constexpr int mantissa_bits = 3, bias = 7, largest_exponent = 8;
  static constexpr std::uint32_t largest_code = 0x7E;
};
template <>
struct about<kvaxis::mxfp8e5m2> {
  static constexpr int mantissa_bits = 2, bias = 15, largest_exponent = 15;
  static constexpr std::uint32_t largest_code = 0x7B;
};
template <>
struct about<kvaxis::mxint8> {
  static constexpr int largest_exponent = 0;
  static constexpr std::uint32_t largest_code = 127;
};

// The number that a code without its sign stands for.
template <class Codec>
double element(std::uint32_t code) {
  if constexpr (std::is_same_v<Codec, kvaxis::mxint8>) {
    return code / 64.0;
  } else {
    constexpr int m = about<Codec>::mantissa_bits;
    const auto exponent = static_cast<int>(code >> m);
    const int significand = static_cast<int>(code & ((1U << m) - 1U)) + (exponent == 0 ? 0 : 1 << m);
    return std::ldexp(significand, std::max(exponent, 1) - about<Codec>::bias - m);
  }
}

// The nearest code for x >= 0, the even one of two.
template <class Codec>
std::uint32_t nearest(double x) {
  std::uint32_t best = 0;
  for (std::uint32_t code = 1; code <= about<Codec>::largest_code; ++code) {
    const double now = std::fabs(element<Codec>(code) - x);
    const double before = std::fabs(element<Codec>(best) - x);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

template <class Codec>
std::uint32_t with_sign(std::uint32_t code, bool negative) {
  if (!negative) return code;
  if constexpr (std::is_same_v<Codec, kvaxis::mxint8>) return (0U - code) & 0xFFU;
  return code | 1U << (Codec::bits - 1);
}

template <class Codec>
class Microscaling : public ::testing::Test {};
using codecs = ::testing::Types<kvaxis::mxfp4, kvaxis::mxfp6e2m3, kvaxis::mxfp6e3m2, kvaxis::mxfp8e4m3,
                                kvaxis::mxfp8e5m2, kvaxis::mxint8, kvaxis::nvfp4>;
TYPED_TEST_SUITE(Microscaling, codecs);

TYPED_TEST(Microscaling, is_a_codec_with_one_byte) {
  static_assert(kvaxis::is_codec<TypeParam>);
  static_assert(sizeof(typename TypeParam::params) == 1);
  EXPECT_EQ(TypeParam::decode({}, 0), 0.0F) << "padding";
}

TYPED_TEST(Microscaling, codes_are_the_nearest_elements) {
  for (const test::group& g : test::codec_groups(std::min(TypeParam::limit, 1e30F))) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, g.x);
    const double scale = to_float(p.scale);
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const double x = g.x[i];
      const std::uint32_t code = scale > 0 ? nearest<TypeParam>(std::fabs(x) / scale) : 0;
      const bool negative = scale > 0 && kvaxis::float_bits(g.x[i]) >> 31 != 0;
      ASSERT_EQ(codes[i], with_sign<TypeParam>(code, negative)) << g.name << " x = " << x << " scale " << scale;
      const double exact = scale * element<TypeParam>(code) * (negative ? -1 : 1);
      ASSERT_EQ(TypeParam::decode(p, codes[i]), std::fabs(exact) < 0x1p-126 ? 0.0 : exact) << g.name << " x = " << x;
    }
  }
}

TYPED_TEST(Microscaling, a_zero_group_has_zero_bytes) {
  for (const float x : {0.0F, -0.0F}) {
    const std::vector<float> zeros(32, x);
    const auto p = TypeParam::fit(zeros.data(), 32);
    EXPECT_EQ(p.scale.bits, 0);
    EXPECT_EQ(encoded<TypeParam>(p, zeros), std::vector<std::uint32_t>(32, 0U));
  }
}

TYPED_TEST(Microscaling, the_limits_stay_finite) {
  for (const float largest : {TypeParam::limit, -TypeParam::limit, FLT_MIN, -FLT_MIN}) {
    const std::vector<float> x = {largest, largest / 2, 0.0F};
    const auto p = TypeParam::fit(x.data(), 3);
    EXPECT_GT(p.scale.bits, 0);
    for (const std::uint32_t code : encoded<TypeParam>(p, x)) {
      EXPECT_TRUE(kvaxis::is_finite(TypeParam::decode(p, code))) << largest;
      EXPECT_LE(std::fabs(TypeParam::decode(p, code)), std::fabs(largest) * 1.001F) << largest;
    }
  }
}

TYPED_TEST(Microscaling, every_power_of_two_has_the_scale_of_the_specification) {
  if constexpr (!std::is_same_v<TypeParam, kvaxis::nvfp4>) {
    for (int exponent = -126; exponent < 127; ++exponent) {
      const int scale = exponent + 127 - about<TypeParam>::largest_exponent;
      for (const float x : {std::ldexp(1.0F, exponent), -std::ldexp(1.9999999F, exponent)}) {
        EXPECT_EQ(TypeParam::fit(&x, 1).scale.bits, std::max(scale, 1)) << x;
      }
    }
  }
}

// Codes and scales computed independently by the specification's rule.
template <class Codec>
void expect_codes(unsigned scale, std::vector<std::uint32_t> first) {
  const std::vector<float> x = test::reference_numbers(32);
  const auto p = Codec::fit(x.data(), 32);
  EXPECT_EQ(p.scale.bits, scale) << Codec::name;
  std::vector<std::uint32_t> codes = encoded<Codec>(p, x);
  codes.resize(first.size());
  EXPECT_EQ(codes, first) << Codec::name;
}

std::uint32_t byte(int x) { return static_cast<std::uint32_t>(x) & 0xFFU; }

TEST(MicroscalingVectors, reference_codes) {
  expect_codes<kvaxis::mxfp8e4m3>(0x78, {0xFA, 0xD8, 0x79, 0xF6, 0x68, 0x7B, 0xF2, 0x71});
  expect_codes<kvaxis::mxfp8e5m2>(0x71, {0xF9, 0xE8, 0x78, 0xF7, 0x70, 0x7A, 0xF5, 0x74});
  expect_codes<kvaxis::mxfp6e3m2>(0x7C, {0x3D, 0x2C, 0x1C, 0x3B, 0x14, 0x1E, 0x39, 0x18});
  expect_codes<kvaxis::mxfp6e2m3>(0x7E, {0x3A, 0x22, 0x19, 0x36, 0x08, 0x1B, 0x32, 0x11});
  expect_codes<kvaxis::mxfp4>(0x7E, {0x0E, 0x08, 0x06, 0x0E, 0x02, 0x07, 0x0C, 0x04});
  expect_codes<kvaxis::mxint8>(0x80,
                               {byte(-78), byte(-4), byte(70), byte(-58), byte(16), byte(90), byte(-38), byte(36)});
}

// ggml's nvfp4 block of 64 numbers: the same scales, and codes that differ in the sign of zeros and where two are equally
// near, of which ggml takes the smaller.
TEST(MicroscalingVectors, nvfp4_is_that_of_ggml) {
  const std::vector<float> x = test::reference_numbers(64);
  const unsigned scales[] = {0x2F, 0x30, 0x30, 0x30};
  const char* const bytes[] = {"ffa966ee0277dd34", "77dc35ffb956ee91", "56ee0267dc247fca", "347fba56fe9166ed"};
  test::error_sum sum;
  for (std::size_t block = 0; block < 4; ++block) {
    const std::vector<float> part(x.begin() + static_cast<std::ptrdiff_t>(16 * block),
                                  x.begin() + static_cast<std::ptrdiff_t>(16 * block + 16));
    const auto p = kvaxis::nvfp4::fit(part.data(), 16);
    EXPECT_EQ(p.scale.bits, scales[block]);
    const std::vector<std::uint32_t> codes = encoded<kvaxis::nvfp4>(p, part);
    for (std::size_t j = 0; j < 16; ++j) {
      const std::string text(bytes[block] + 2 * (j % 8) + (j < 8 ? 1 : 0), 1);
      const auto expected = static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
      EXPECT_EQ(std::fabs(part[j] - kvaxis::nvfp4::decode(p, codes[j])),
                std::fabs(part[j] - kvaxis::nvfp4::decode(p, expected)))
          << block << ' ' << j;
      sum.add(part[j], kvaxis::nvfp4::decode(p, codes[j]));
    }
  }
  test::expect_within(sum.nmse(), 1.177646e-02, 1e-6, "nvfp4");
}

TEST(MicroscalingError, on_normal_deviates) {
  test::expect_within(test::nmse_of<kvaxis::mxfp4>(32), 1.324e-2, 0.01, "mxfp4");
  test::expect_within(test::nmse_of<kvaxis::mxfp6e2m3>(32), 8.076e-4, 0.01, "mxfp6e2m3");
  test::expect_within(test::nmse_of<kvaxis::mxfp6e3m2>(32), 2.906e-3, 0.01, "mxfp6e3m2");
  test::expect_within(test::nmse_of<kvaxis::mxfp8e4m3>(32), 8.668e-4, 0.01, "mxfp8e4m3");
  test::expect_within(test::nmse_of<kvaxis::mxfp8e5m2>(32), 2.906e-3, 0.01, "mxfp8e5m2");
  test::expect_within(test::nmse_of<kvaxis::mxint8>(32), 6.775e-5, 0.01, "mxint8");
  test::expect_within(test::nmse_of<kvaxis::nvfp4>(16), 9.024e-3, 0.01, "nvfp4");
}

}  // namespace
