// Asymmetric codes: the parameters against a search over all numbers of the metadata's type, the codes and the
// read-back against double.
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
using kvaxis::float_bits;
using kvaxis::to_float;
using test::encoded;

float largest(const std::vector<float>& x) { return *std::max_element(x.begin(), x.end()); }
float smallest(const std::vector<float>& x) { return *std::min_element(x.begin(), x.end()); }

// The largest finite binary16 number <= x, by going through all of them.
float best_offset(float x, float16) {
  float best = -65504.0F;
  for (std::uint32_t bits = 0; bits < 0x7C00U; ++bits) {
    const float h = to_float(float16{static_cast<std::uint16_t>(bits)});
    if (h <= x && h > best) best = h;
    if (-h <= x && -h > best) best = bits == 0 ? 0.0F : -h;
  }
  return best;
}
float best_offset(float x, float) { return x == 0.0F ? 0.0F : x; }

// The smallest positive number s of the type with s * levels >= span, exactly.
float best_scale(float span, double levels, float16) {
  for (std::uint32_t bits = 1; bits < 0x7C00U; ++bits) {
    const float s = to_float(float16{static_cast<std::uint16_t>(bits)});
    if (static_cast<double>(s) * levels >= static_cast<double>(span)) return s;
  }
  return 0.0F;
}
float best_scale(float span, double levels, float) {
  std::uint32_t low = 0x007FFFFFU;  // too small (or smaller than a normal number), `high` is enough
  std::uint32_t high = 0x7F7FFFFFU;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    const bool enough = static_cast<double>(kvaxis::bits_float(middle)) * levels >= static_cast<double>(span);
    (enough ? high : low) = middle;
  }
  return kvaxis::bits_float(high);
}

template <class Codec>
class Affine : public ::testing::Test {};
using codecs = ::testing::Types<kvaxis::int4, kvaxis::int8, kvaxis::int4f32, kvaxis::int8f32>;
TYPED_TEST_SUITE(Affine, codecs);

TYPED_TEST(Affine, parameters_are_the_best_that_do_not_clip) {
  constexpr double levels = (1 << TypeParam::bits) - 1;
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const float offset = to_float(p.offset);
    EXPECT_EQ(float_bits(offset), float_bits(best_offset(smallest(g.x), p.offset))) << g.name;
    const float span = kvaxis::flush_subnormal(largest(g.x) - offset);
    EXPECT_EQ(to_float(p.scale), span == 0.0F ? 0.0F : best_scale(span, levels, p.scale)) << g.name;
  }
}

TYPED_TEST(Affine, codes_are_the_nearest_steps) {
  constexpr double levels = (1 << TypeParam::bits) - 1;
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, g.x);
    const double scale = to_float(p.scale);
    const float inverse = scale > 0 ? static_cast<float>(1.0 / scale) : 0.0F;
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const float above = g.x[i] - to_float(p.offset);
      const double step = std::nearbyint(static_cast<double>(above) * static_cast<double>(inverse));
      ASSERT_EQ(codes[i], std::min(std::max(step, 0.0), levels)) << g.name << " x = " << g.x[i];
    }
  }
}

TYPED_TEST(Affine, read_back_is_within_half_a_step) {
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, g.x);
    const double range = static_cast<double>(largest(g.x)) - static_cast<double>(smallest(g.x));
    const double size =
        std::max(std::fabs(static_cast<double>(largest(g.x))), std::fabs(static_cast<double>(smallest(g.x))));
    constexpr double metadata = sizeof(p.scale) == 2 ? 0x1p-11 : 0x1p-23;
    // At the bottom of the metadata's type its spacing takes the place of the relative bound.
    constexpr double floor = sizeof(p.scale) == 2 ? 0x1p-24 : 0x1p-126;
    const double bound = range / ((1 << TypeParam::bits) - 1) / 2 * 1.02 + metadata * (size + range) + floor;
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const double back = TypeParam::decode(p, codes[i]);
      ASSERT_LE(std::fabs(back - static_cast<double>(g.x[i])), bound) << g.name << " x = " << g.x[i];
      const double half_step = static_cast<double>(to_float(p.scale)) / 2;
      ASSERT_LE(std::fabs(back - static_cast<double>(g.x[i])), half_step * (1 + 1e-5) + 1e-7 * size + floor) << g.name;
    }
  }
}

TYPED_TEST(Affine, B09_zero_groups_are_zero) {
  for (const float zero : {0.0F, -0.0F}) {
    const std::vector<float> x(32, zero);
    const auto p = TypeParam::fit(x.data(), 32);
    EXPECT_EQ(float_bits(to_float(p.scale)), 0U);
    EXPECT_EQ(float_bits(to_float(p.offset)), 0U) << "a zero offset is stored as +0";
    for (const std::uint32_t code : encoded<TypeParam>(p, x)) {
      EXPECT_EQ(code, 0U);
      EXPECT_EQ(TypeParam::decode(p, code), 0.0F);
    }
  }
}

TYPED_TEST(Affine, B11_constants_that_the_metadata_holds_are_exact) {
  for (const float c : {3000.0F, -3000.0F, 5.0F, 65504.0F, -65504.0F, 0x1p-24F, -0x1p-24F, 0.333251953125F}) {
    const std::vector<float> x(32, c);
    const auto p = TypeParam::fit(x.data(), 32);
    EXPECT_EQ(to_float(p.scale), 0.0F) << c;
    for (const std::uint32_t code : encoded<TypeParam>(p, x)) EXPECT_EQ(TypeParam::decode(p, code), c);
  }
}

// Exact ties go to the even code, wherever they lie.
TYPED_TEST(Affine, B18_ties_to_even) {
  constexpr int levels = (1 << TypeParam::bits) - 1;
  std::vector<float> x = {0.0F, static_cast<float>(levels)};
  for (int n = 0; n < levels; ++n) x.push_back(static_cast<float>(n) + 0.5F);
  const auto p = TypeParam::fit(x.data(), static_cast<int>(x.size()));
  EXPECT_EQ(to_float(p.scale), 1.0F);
  const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, x);
  for (int n = 0; n < levels; ++n)
    EXPECT_EQ(codes[static_cast<std::size_t>(n) + 2], static_cast<std::uint32_t>(n + n % 2)) << n;
}

TYPED_TEST(Affine, a_group_of_ones_own_scale_reads_back_exactly) {
  constexpr int levels = (1 << TypeParam::bits) - 1;
  std::vector<float> x;
  for (int n = 0; n <= levels; ++n) x.push_back(static_cast<float>(n) * 0.375F - 20.0F);
  const auto p = TypeParam::fit(x.data(), static_cast<int>(x.size()));
  const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(codes[i], i);
    EXPECT_EQ(TypeParam::decode(p, codes[i]), x[i]);
  }
}

// The limits of 16-bit metadata and of f32 metadata.
TEST(AffineLimits, ranges_that_only_f32_metadata_holds) {
  EXPECT_EQ(kvaxis::int4::limit, 65504.0F);
  EXPECT_EQ(kvaxis::int8f32::limit, FLT_MAX / 2);
  const std::vector<float> x = {-1e30F, 1e30F, 0.0F, 5e29F};
  const auto p = kvaxis::int8f32::fit(x.data(), 4);
  const std::vector<std::uint32_t> codes = encoded<kvaxis::int8f32>(p, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::fabs(kvaxis::int8f32::decode(p, codes[i]) - x[i]), 2e30F / 255 / 2 * 1.02F);
  }
}

// A reference vector: 32 numbers, their 16-bit scale and offset, and codes.
TEST(AffineGolden, reference_codes) {
  std::vector<float> x;
  for (int j = 0; j < 32; ++j) x.push_back(static_cast<float>((37 * j + 11) % 101 - 50) / 16.0F);
  const auto first = [](const std::vector<std::uint32_t>& codes, std::size_t n) {
    return std::vector<std::uint32_t>(codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(n));
  };
  const auto p4 = kvaxis::int4::fit(x.data(), 32);
  EXPECT_EQ(p4.offset.bits, 0xC240);
  EXPECT_EQ(p4.scale.bits, 0x3689);
  EXPECT_EQ(first(encoded<kvaxis::int4>(p4, x), 8), (std::vector<std::uint32_t>{2, 7, 13, 3, 9, 15, 5, 10}));
  const auto p8 = kvaxis::int8::fit(x.data(), 32);
  EXPECT_EQ(p8.offset.bits, 0xC240);
  // The nearest, 0x2626, does not reach the maximum; it would give the same codes.
  EXPECT_EQ(p8.scale.bits, 0x2627);
  EXPECT_LT(static_cast<double>(to_float(float16{0x2626})) * 255.0, static_cast<double>(largest(x) - smallest(x)));
  EXPECT_EQ(first(encoded<kvaxis::int8>({float16{0x2626}, p8.offset}, x), 4), first(encoded<kvaxis::int8>(p8, x), 4));
  EXPECT_EQ(first(encoded<kvaxis::int8>(p8, x), 4), (std::vector<std::uint32_t>{29, 125, 221, 55}));
}

}  // namespace
