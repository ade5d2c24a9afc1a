#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/formats/half.hpp>
#include <type_traits>
#include <vector>

#include "format_oracle.hpp"

namespace {

using kvaxis::bfloat16;
using kvaxis::bits_float;
using kvaxis::float16;
using kvaxis::float_bits;
using kvaxis::floor_float16;
using kvaxis::next_above;
using kvaxis::next_below;
using kvaxis::to_bfloat16;
using kvaxis::to_float;
using kvaxis::to_float16;

static_assert(to_float16(1.0F) == float16{0x3C00U});
static_assert(to_float(float16{0x0001U}) == 0x1p-24F);
static_assert(to_bfloat16(1.0F) == bfloat16{0x3F80U});
static_assert(to_float(bfloat16{0xC000U}) == -2.0F);
static_assert(floor_float16(0.1F) == float16{0x2E66U});
static_assert(next_above(float16{0x8001U}) == float16{0x0000U});
static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);

constexpr int float16_infinity = 0x7C00;
constexpr int bfloat16_infinity = 0x7F80;

float16 half(int bits) { return float16{static_cast<std::uint16_t>(bits)}; }
bfloat16 brain(int bits) { return bfloat16{static_cast<std::uint16_t>(bits)}; }

double signed_value(float x) { return (float_bits(x) >> 31) != 0 ? -exact_magnitude(x) : exact_magnitude(x); }

TEST(Float16, every_code_has_its_value) {
  const std::vector<double> values = magnitudes(float16_infinity, 10, 15);
  for (int code = 0; code < float16_infinity; ++code) {
    ASSERT_EQ(signed_value(to_float(half(code))), values[static_cast<std::size_t>(code)]) << code;
    ASSERT_EQ(float_bits(to_float(half(code | 0x8000))), float_bits(to_float(half(code))) | 0x80000000U) << code;
  }
  EXPECT_EQ(float_bits(to_float(half(0x7C00))), 0x7F800000U);
  EXPECT_EQ(float_bits(to_float(half(0xFC00))), 0xFF800000U);
  EXPECT_EQ(float_bits(to_float(half(0x7C01))), 0x7FC02000U) << "a signalling NaN becomes quiet";
  EXPECT_EQ(to_float(half(0x7BFF)), kvaxis::max_float16);
}

TEST(Float16, B13_every_code_survives_up_and_down) {
  for (int code = 0; code < 0x10000; ++code) {
    const bool is_nan = (code & 0x7FFF) > float16_infinity;
    ASSERT_EQ(to_float16(to_float(half(code))).bits, is_nan ? code | 0x0200 : code) << std::hex << code;
    ASSERT_EQ(is_finite(half(code)), (code & 0x7FFF) < float16_infinity) << std::hex << code;
  }
}

TEST(Float16, B13_known_conversions) {
  EXPECT_EQ(to_float16(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_float16(0x1p-14F).bits, 0x0400);
  EXPECT_EQ(to_float16(0x1p-24F).bits, 0x0001);
  EXPECT_EQ(to_float16(0x1p-25F).bits, 0x0000);
  EXPECT_EQ(to_float16(0x1p-25F * 1.0001F).bits, 0x0001);
  EXPECT_EQ(to_float16(1.0F + 0x1p-11F).bits, 0x3C00);
  EXPECT_EQ(to_float(to_float16(1.0F + 3 * 0x1p-11F)), 1.0F + 0x1p-9F);
  EXPECT_EQ(to_float16(-0.0F).bits, 0x8000);
  EXPECT_EQ(to_float16(bits_float(0x7F7FFFFFU)).bits, 0x7C00);
  EXPECT_EQ(to_float16(bits_float(0xFF800000U)).bits, 0xFC00);
  EXPECT_EQ(to_float16(bits_float(0x7FC00000U)).bits, 0x7E00);
  EXPECT_EQ(to_float16(bits_float(0xFF800001U)).bits, 0xFE00);
  EXPECT_EQ(to_float16(bits_float(0x7FFFFFFFU)).bits, 0x7FFF);
}

TEST(Float16, B13_B18_every_boundary_rounds_to_the_nearest_even) {
  const std::vector<double> grid =
      magnitudes(float16_infinity + 1, 10, 15);  // the last one, 65536, stands for infinity
  for_every_boundary(grid, [&](float x) {
    const auto sign = (float_bits(x) >> 16) & 0x8000U;
    ASSERT_EQ(to_float16(x).bits, sign | nearest(grid, exact_magnitude(x))) << std::hexfloat << x;
  });
}

TEST(Bfloat16, every_code_survives_up_and_down) {
  const std::vector<double> values = magnitudes(bfloat16_infinity, 7, 127);
  for (int code = 0; code < 0x10000; ++code) {
    const int magnitude = code & 0x7FFF;
    const bool is_nan = magnitude > bfloat16_infinity;
    ASSERT_EQ(to_bfloat16(to_float(brain(code))).bits, is_nan ? code | 0x0040 : code) << std::hex << code;
    ASSERT_EQ(is_finite(brain(code)), magnitude < bfloat16_infinity) << std::hex << code;
    if (magnitude < bfloat16_infinity) {
      ASSERT_EQ(exact_magnitude(to_float(brain(code))), values[static_cast<std::size_t>(magnitude)]) << code;
    }
  }
}

TEST(Bfloat16, B18_every_boundary_rounds_to_the_nearest_even) {
  const std::vector<double> grid = magnitudes(bfloat16_infinity + 1, 7, 127);
  for_every_boundary(grid, [&](float x) {
    const auto sign = (float_bits(x) >> 16) & 0x8000U;
    ASSERT_EQ(to_bfloat16(x).bits, sign | nearest(grid, exact_magnitude(x))) << std::hexfloat << x;
  });
}

TEST(Bfloat16, non_finite_values) {
  EXPECT_EQ(to_bfloat16(bits_float(0x7F800000U)).bits, 0x7F80);
  EXPECT_EQ(to_bfloat16(bits_float(0xFF800000U)).bits, 0xFF80);
  EXPECT_EQ(to_bfloat16(bits_float(0x7F800001U)).bits, 0x7FC0) << "not infinity";
  EXPECT_EQ(to_bfloat16(bits_float(0xFFFFFFFFU)).bits, 0xFFFF) << "not wrapped to zero";
  EXPECT_EQ(to_bfloat16(bits_float(0x7F7FFFFFU)).bits, 0x7F80);
}

TEST(ToFloat, float_is_the_identity) { EXPECT_EQ(to_float(0.1F), 0.1F); }

// All finite values from -65504 to 65504, zero once.
std::vector<float16> ascending() {
  std::vector<float16> out;
  for (int code = 0xFBFF; code > 0x8000; --code) out.push_back(half(code));
  for (int code = 0; code < float16_infinity; ++code) out.push_back(half(code));
  return out;
}

TEST(Float16, neighbours_walk_through_every_finite_value) {
  const std::vector<float16> all = ascending();
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    ASSERT_EQ(next_above(all[i]).bits, all[i + 1].bits) << i;
    ASSERT_EQ(next_below(all[i + 1]).bits, all[i].bits) << i;
  }
  EXPECT_EQ(next_above(half(0x8000)).bits, 0x0001) << "-0 is zero";
  EXPECT_EQ(next_below(half(0x8000)).bits, 0x8001);
  EXPECT_EQ(next_above(half(0x7BFF)).bits, 0x7BFF) << "the range ends";
  EXPECT_EQ(next_below(half(0xFBFF)).bits, 0xFBFF);
}

TEST(Float16, floor_is_the_largest_value_not_above) {
  const std::vector<float16> all = ascending();
  std::vector<double> values;
  for (const float16 h : all) values.push_back(signed_value(to_float(h)));
  const auto check = [&](float x) {
    if (exact_magnitude(x) > 65504.0) return;
    const auto above = std::upper_bound(values.begin(), values.end(), signed_value(x));
    ASSERT_EQ(floor_float16(x).bits, all[static_cast<std::size_t>(above - values.begin()) - 1].bits)
        << std::hexfloat << x;
  };
  for_every_boundary(magnitudes(float16_infinity, 10, 15), check);
  EXPECT_EQ(floor_float16(-0.0F).bits, 0x0000);
  EXPECT_EQ(floor_float16(bits_float(0x80000001U)).bits, 0x8001) << "below zero, however little";
  EXPECT_EQ(floor_float16(bits_float(0x00000001U)).bits, 0x0000);
}

}  // namespace
