#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/formats/float8.hpp>
#include <vector>

#include "format_oracle.hpp"

namespace {

using kvaxis::bits_float;
using kvaxis::decode_e4m3;
using kvaxis::decode_e5m2;
using kvaxis::decode_e8m0;
using kvaxis::encode_e4m3;
using kvaxis::encode_e5m2;
using kvaxis::encode_e8m0;
using kvaxis::float_bits;

static_assert(encode_e4m3(448.0F) == 0x7E && decode_e4m3(0x01) == 0x1p-9F);
static_assert(encode_e5m2(3.14159274F) == 0x42 && decode_e5m2(0x7B) == kvaxis::max_e5m2);
static_assert(encode_e8m0(4.0F) == 129 && decode_e8m0(0x80) == 2.0F);

constexpr std::uint32_t infinity_bits = 0x7F800000U;
constexpr std::uint32_t sign_bit = 0x80000000U;
const float inf = bits_float(infinity_bits);

bool is_nan(float x) { return (float_bits(x) & ~sign_bit) > infinity_bits; }

std::uint8_t byte(int code) { return static_cast<std::uint8_t>(code); }

struct vector8 {
  float x;
  int code;
};

TEST(E4m3, every_code_has_its_value) {
  const std::vector<double> values = magnitudes(0x7F, 3, 7);
  for (int code = 0; code < 0x7F; ++code) {
    EXPECT_EQ(exact_magnitude(decode_e4m3(byte(code))), values[static_cast<std::size_t>(code)]) << code;
    EXPECT_EQ(float_bits(decode_e4m3(byte(code))) >> 31, 0U) << code;
    EXPECT_EQ(float_bits(decode_e4m3(byte(code | 0x80))), float_bits(decode_e4m3(byte(code))) | sign_bit) << code;
  }
  EXPECT_TRUE(is_nan(decode_e4m3(0x7F)));
  EXPECT_TRUE(is_nan(decode_e4m3(0xFF)));
  EXPECT_EQ(decode_e4m3(0x7E), kvaxis::max_e4m3);
  EXPECT_EQ(decode_e4m3(0x77), 240.0F) << "the exponent 15 is an ordinary one";
  EXPECT_EQ(decode_e4m3(0x78), 256.0F);
}

TEST(E4m3, B16_every_byte_survives_and_overflow_saturates) {
  for (int code = 0; code < 0x100; ++code) EXPECT_EQ(encode_e4m3(decode_e4m3(byte(code))), code);
  const vector8 table[] = {{448, 0x7E}, {449, 0x7E},  {464, 0x7E},   {464.1F, 0x7E}, {465, 0x7E},    {1000, 0x7E},
                           {inf, 0x7E}, {-inf, 0xFE}, {-1000, 0xFE}, {-0.0F, 0x80},  {3.4e38F, 0x7E}};
  for (const vector8& t : table) EXPECT_EQ(encode_e4m3(t.x), t.code) << t.x;
  for (const std::uint32_t nan : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU}) {
    EXPECT_EQ(encode_e4m3(bits_float(nan)), 0x7F) << std::hex << nan;
    EXPECT_EQ(encode_e4m3(bits_float(nan | sign_bit)), 0xFF) << std::hex << nan;
  }
}

TEST(E4m3, B17_subnormals_in_both_directions) {
  for (int code = 0; code <= 8; ++code) {
    EXPECT_EQ(decode_e4m3(byte(code)), static_cast<float>(code) * 0.001953125F);
    EXPECT_EQ(encode_e4m3(static_cast<float>(code) * 0.001953125F), code);
  }
  EXPECT_EQ(encode_e4m3(0x1p-10F), 0x00);
  EXPECT_EQ(encode_e4m3(-0x1p-10F), 0x80);
  EXPECT_EQ(encode_e4m3(1.001F * 0x1p-10F), 0x01);
  EXPECT_EQ(encode_e4m3(3 * 0x1p-10F), 0x02);
  for (int i = -4000; i <= 4000; ++i) {
    const float x = static_cast<float>(i) * (0x1p-6F / 4000);
    EXPECT_LE(std::fabs(decode_e4m3(encode_e4m3(x)) - x), 0x1p-10F) << x;
  }
}

TEST(E4m3, B18_known_conversions_and_ties) {
  const vector8 table[] = {{0.0F, 0x00},
                           {1.0F, 0x38},
                           {1.0625F, 0x38},
                           {1.1875F, 0x3A},
                           {0.3F, 0x2A},
                           {3.14159274F, 0x45},
                           {4.25F, 0x48},
                           {4.75F, 0x4A},
                           {17.0F, 0x58},
                           {19.0F, 0x5A},
                           {248.0F, 0x78},
                           {440.0F, 0x7E},
                           {0x1p-10F * 1.0001F, 0x01},
                           {0.00146484375F, 0x01},
                           {0.0146484375F, 0x08}};
  for (const vector8& t : table) {
    EXPECT_EQ(encode_e4m3(t.x), t.code) << t.x;
    EXPECT_EQ(encode_e4m3(-t.x), t.code | 0x80) << t.x;
  }
}

TEST(E4m3, B18_every_boundary_rounds_to_the_nearest_even) {
  const std::vector<double> grid = magnitudes(0x7F, 3, 7);  // 448 last: what lies beyond saturates
  for_every_boundary(grid, [&](float x) {
    const auto sign = (float_bits(x) >> 24) & 0x80U;
    ASSERT_EQ(encode_e4m3(x), sign | nearest(grid, exact_magnitude(x))) << std::hexfloat << x;
  });
}

// The FNUZ flavour would read each of these bytes as half of it, and 0x80 as NaN.
TEST(E4m3, B19_the_flavour_is_fn) {
  EXPECT_EQ(decode_e4m3(0x38), 1.0F);
  EXPECT_EQ(decode_e4m3(0x40), 2.0F);
  EXPECT_EQ(decode_e4m3(0x08), 0x1p-6F);
  EXPECT_EQ(float_bits(decode_e4m3(0x80)), sign_bit);
  EXPECT_EQ(decode_e4m3(0x7E), 448.0F);
}

TEST(E5m2, every_code_has_its_value) {
  const std::vector<double> values = magnitudes(0x7C, 2, 15);
  for (int code = 0; code < 0x7C; ++code) {
    EXPECT_EQ(exact_magnitude(decode_e5m2(byte(code))), values[static_cast<std::size_t>(code)]) << code;
    EXPECT_EQ(float_bits(decode_e5m2(byte(code | 0x80))), float_bits(decode_e5m2(byte(code))) | sign_bit) << code;
    EXPECT_EQ(encode_e5m2(decode_e5m2(byte(code))), code);
    EXPECT_EQ(encode_e5m2(decode_e5m2(byte(code | 0x80))), code | 0x80);
  }
  EXPECT_EQ(float_bits(decode_e5m2(0x7C)), infinity_bits);
  EXPECT_EQ(float_bits(decode_e5m2(0xFC)), infinity_bits | sign_bit);
  for (const int code : {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}) {
    EXPECT_TRUE(is_nan(decode_e5m2(byte(code)))) << code;
    EXPECT_EQ(encode_e5m2(decode_e5m2(byte(code))), code | 0x7F) << code;
  }
}

TEST(E5m2, known_conversions_and_saturation) {
  const vector8 table[] = {{0.0F, 0x00},     {1.0F, 0x3C},     {1.0625F, 0x3C},
                           {1.1875F, 0x3D},  {0.3F, 0x35},     {3.14159274F, 0x42},
                           {448.0F, 0x5F},   {0x1p-17F, 0x00}, {0x1p-17F * 1.0001F, 0x01},
                           {0x1p-16F, 0x01}, {0x1p-14F, 0x04}, {57344.0F, 0x7B},
                           {61440.0F, 0x7B}, {1e30F, 0x7B},    {inf, 0x7B}};
  for (const vector8& t : table) {
    EXPECT_EQ(encode_e5m2(t.x), t.code) << t.x;
    EXPECT_EQ(encode_e5m2(bits_float(float_bits(t.x) | sign_bit)), t.code | 0x80) << t.x;
  }
}

TEST(E5m2, B18_every_boundary_rounds_to_the_nearest_even) {
  const std::vector<double> grid = magnitudes(0x7C, 2, 15);
  for_every_boundary(grid, [&](float x) {
    const auto sign = (float_bits(x) >> 24) & 0x80U;
    ASSERT_EQ(encode_e5m2(x), sign | nearest(grid, exact_magnitude(x))) << std::hexfloat << x;
  });
}

TEST(E8m0, every_code_is_a_power_of_two) {
  for (int code = 0; code < 0xFF; ++code) {
    EXPECT_EQ(exact_magnitude(decode_e8m0(byte(code))), std::ldexp(1.0, code - 127)) << code;
    EXPECT_EQ(encode_e8m0(decode_e8m0(byte(code))), code);
  }
  EXPECT_EQ(float_bits(decode_e8m0(0x00)), 0x00400000U) << "2^-127, not zero";
  EXPECT_TRUE(is_nan(decode_e8m0(0xFF)));
  EXPECT_EQ(encode_e8m0(decode_e8m0(0xFF)), 0xFF);
}

TEST(E8m0, B18_every_boundary_rounds_to_the_nearest_even) {
  std::vector<double> grid;
  for (int code = 0; code < 0xFF; ++code) grid.push_back(std::ldexp(1.0, code - 127));
  for_every_boundary(grid, [&](float x) {
    const double magnitude = exact_magnitude(x);
    const bool is_negative = (float_bits(x) >> 31) != 0 && magnitude > 0.0;
    ASSERT_EQ(encode_e8m0(x), is_negative ? 0xFFU : nearest(grid, magnitude)) << std::hexfloat << x;
  });
}

TEST(E8m0, the_ends_of_the_range) {
  EXPECT_EQ(encode_e8m0(0.0F), 0x00);
  EXPECT_EQ(encode_e8m0(-0.0F), 0x00);
  EXPECT_EQ(encode_e8m0(inf), 0xFE);
  EXPECT_EQ(encode_e8m0(bits_float(0x7F7FFFFFU)), 0xFE);
  EXPECT_EQ(encode_e8m0(bits_float(0xFF800000U)), 0xFF) << "no negative numbers";
  EXPECT_EQ(encode_e8m0(bits_float(0x7FC00000U)), 0xFF);
}

}  // namespace
