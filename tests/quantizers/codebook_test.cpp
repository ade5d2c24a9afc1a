// Codebooks: the scale against a search over all float16 numbers, codes against the nearest value, the error on normal
// deviates.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/codebook.hpp>
#include <normal.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "codec_groups.hpp"

namespace {

using kvaxis::float16;
using kvaxis::scale_rule;
using kvaxis::to_float;
using test::encoded;

// A user's own: lopsided, with a last value that few numbers reach.
struct lopsided_table {
  static constexpr int bits = 3;
  static constexpr const char* name = "lopsided";
  static constexpr scale_rule rule = scale_rule::no_clipping;
  static constexpr std::array<float, 8> values = {-0.5F, -0.25F, -0.0625F, 0.0F, 0.125F, 0.375F, 1.0F, 3.0F};
};
using lopsided = kvaxis::codebook<lopsided_table>;
using lopsided_a = kvaxis::codebook<lopsided_table, true>;

template <class Codec>
double offset_of(const typename Codec::params& p) {
  if constexpr (sizeof(p) == 4) return to_float(p.offset);
  return 0.0;
}

template <class Codec>
std::size_t size_of() {
  return std::size_t{1} << Codec::bits;
}

template <class Codec>
double largest_gap() {
  double gap = 0;
  for (std::size_t i = 1; i < size_of<Codec>(); ++i) {
    gap = std::max(gap, static_cast<double>(Codec::unit_values[i] - Codec::unit_values[i - 1]));
  }
  return gap;
}

template <class Codec>
class Codebook : public ::testing::Test {};
using codecs = ::testing::Types<kvaxis::nf4, kvaxis::nf4a, kvaxis::lloyd2, kvaxis::lloyd2a, kvaxis::lloyd3,
                                kvaxis::lloyd3a, kvaxis::lloyd4, kvaxis::lloyd4a, lopsided, lopsided_a>;
TYPED_TEST_SUITE(Codebook, codecs);

TYPED_TEST(Codebook, is_a_codec_with_float16_parameters) {
  static_assert(kvaxis::is_codec<TypeParam>);
  EXPECT_EQ(TypeParam::decode({}, 0), 0.0F) << "padding";
  const bool has_offset = sizeof(typename TypeParam::params) == 4;
  EXPECT_EQ(std::string(TypeParam::name).back() == 'a', has_offset);
}

TYPED_TEST(Codebook, codes_are_the_nearest_values) {
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const double scale = to_float(p.scale);
    const double offset = offset_of<TypeParam>(p);
    const std::vector<std::uint32_t> codes = encoded<TypeParam>(p, g.x);
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const double x = g.x[i];
      double least = HUGE_VAL;
      for (std::size_t k = 0; k < size_of<TypeParam>(); ++k) {
        least = std::min(least, std::fabs(x - offset - scale * static_cast<double>(TypeParam::unit_values[k])));
      }
      ASSERT_LT(codes[i], size_of<TypeParam>());
      const double value = TypeParam::unit_values[codes[i]];
      ASSERT_NEAR(std::fabs(x - offset - scale * value), least, 1e-6 * (std::fabs(x - offset) + scale))
          << g.name << " x = " << x;
      ASSERT_EQ(TypeParam::decode(p, codes[i]), static_cast<float>(std::fma(scale, value, offset))) << g.name;
    }
  }
}

TYPED_TEST(Codebook, zero_groups_are_zero) {
  for (const float zero : {0.0F, -0.0F}) {
    const std::vector<float> x(32, zero);
    const auto p = TypeParam::fit(x.data(), 32);
    EXPECT_EQ(p.scale.bits, 0);
    if constexpr (sizeof(p) == 4) {
      EXPECT_EQ(p.offset.bits, 0);
    }
    for (const std::uint32_t code : encoded<TypeParam>(p, x)) EXPECT_EQ(TypeParam::decode(p, code), 0.0F);
  }
}

template <class Codec>
class CodebookThatReaches : public ::testing::Test {};
using reaching = ::testing::Types<kvaxis::nf4, kvaxis::nf4a, lopsided, lopsided_a>;
TYPED_TEST_SUITE(CodebookThatReaches, reaching);

TYPED_TEST(CodebookThatReaches, the_scale_is_the_smallest_that_does_not_clip) {
  const double first = TypeParam::unit_values[0];
  const double last = TypeParam::unit_values[size_of<TypeParam>() - 1];
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const double low = *std::min_element(g.x.begin(), g.x.end());
    const double high = *std::max_element(g.x.begin(), g.x.end());
    if constexpr (sizeof(p) == 4) {
      const double middle = low / 2 + high / 2;
      EXPECT_NEAR(to_float(p.offset), middle, std::max(0x1p-11 * std::fabs(middle), 0x1p-25)) << g.name;
    }
    const double offset = offset_of<TypeParam>(p);
    // f32 differences, as the codec takes them.
    const auto above = static_cast<double>(kvaxis::flush_subnormal(static_cast<float>(high - offset)));
    const auto below = static_cast<double>(kvaxis::flush_subnormal(static_cast<float>(offset - low)));
    const auto enough = [&](std::uint16_t bits) {
      const double scale = to_float(float16{bits});
      return scale * last >= above && -scale * first >= below;
    };
    EXPECT_TRUE(enough(p.scale.bits) || p.scale.bits == 0x7BFF) << g.name;
    EXPECT_TRUE(p.scale.bits == 0 || !enough(static_cast<std::uint16_t>(p.scale.bits - 1))) << g.name;
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const double back = TypeParam::decode(p, encoded<TypeParam>(p, g.x)[i]);
      const double bound = largest_gap<TypeParam>() / 2 * static_cast<double>(to_float(p.scale));
      ASSERT_LE(std::fabs(back - static_cast<double>(g.x[i])), bound * 1.0001 + 2e-7 * std::fabs(offset) + 0x1p-24)
          << g.name;
    }
  }
}

template <class Codec>
double error_with(typename Codec::params p, const std::vector<float>& x) {
  const std::vector<std::uint32_t> codes = encoded<Codec>(p, x);
  test::error_sum sum;
  for (std::size_t i = 0; i < x.size(); ++i) sum.add(x[i], Codec::decode(p, codes[i]));
  return sum.error;
}

template <class Codec>
class CodebookThatSearches : public ::testing::Test {};
using searching =
    ::testing::Types<kvaxis::lloyd2, kvaxis::lloyd2a, kvaxis::lloyd3, kvaxis::lloyd3a, kvaxis::lloyd4, kvaxis::lloyd4a>;
TYPED_TEST_SUITE(CodebookThatSearches, searching);

TYPED_TEST(CodebookThatSearches, the_scale_is_within_a_few_percent_of_the_best) {
  test::numbers random(12);
  test::error_sum found;
  for (int i = 0; i < 50; ++i) {
    std::vector<float> x = random.bells(64, 0.3F);
    if (i % 2 == 0) x[5] *= 4.0F;
    auto p = TypeParam::fit(x.data(), 64);
    const double chosen = error_with<TypeParam>(p, x);
    double least = chosen;
    for (std::uint16_t bits = 0x2000; bits < 0x3C00; bits = static_cast<std::uint16_t>(bits + 4)) {
      p.scale = float16{bits};
      least = std::min(least, error_with<TypeParam>(p, x));
    }
    ASSERT_LE(chosen, 1.25 * least);
    found.error += chosen;
    found.power += least;
  }
  EXPECT_LE(found.nmse(), 1.06);
}

TEST(CodebookBytes, do_not_depend_on_flags) {
  EXPECT_EQ(test::hash_of_bytes<kvaxis::nf4>(), 2730073587295236734U);
  EXPECT_EQ(test::hash_of_bytes<kvaxis::nf4a>(), 14737705283897448165U);
  EXPECT_EQ(test::hash_of_bytes<kvaxis::lloyd2a>(), 13202072217298151568U);
  EXPECT_EQ(test::hash_of_bytes<kvaxis::lloyd3>(), 1752337242676576598U);
  EXPECT_EQ(test::hash_of_bytes<kvaxis::lloyd4a>(), 3214619020440321357U);
}

TEST(CodebookNames, say_the_table_and_the_offset) {
  EXPECT_STREQ(kvaxis::nf4::name, "nf4");
  EXPECT_STREQ(kvaxis::nf4a::name, "nf4a");
  EXPECT_STREQ(kvaxis::lloyd3a::name, "lloyd3a");
  EXPECT_STREQ(lopsided_a::name, "lopsideda");
}

TEST(CodebookTables, are_those_of_the_literature) {
  const float* const nf4 = kvaxis::nf4::unit_values;
  EXPECT_EQ(nf4[7], 0.0F);
  // Inverse normal probabilities at equal steps: 8 from 1/2 up, 7 from 1/2 down, as parts of the last one.
  const auto below = [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; };
  constexpr double end = 1 - (1.0 / 32 + 1.0 / 30) / 2;
  constexpr double last = 1.8481;  // where the probability below is `end`
  EXPECT_NEAR(below(last), end, 1e-5);
  for (int i = 0; i < 16; ++i) {
    const double steps = i < 7 ? 7.0 : 8.0;
    const double probability = 0.5 + (i - 7) * (end - 0.5) / steps;
    EXPECT_NEAR(below(last * static_cast<double>(nf4[i])), probability, 1e-5) << i;
  }
  // A Lloyd-Max value is the mean of the normal density between its thresholds.
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846); };
  const auto check = [&](const auto& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double low = i == 0 ? -40.0 : (static_cast<double>(values[i - 1]) + static_cast<double>(values[i])) / 2;
      const double high =
          i + 1 == values.size() ? 40.0 : (static_cast<double>(values[i]) + static_cast<double>(values[i + 1])) / 2;
      EXPECT_NEAR(values[i], (density(low) - density(high)) / (below(high) - below(low)), 1e-5) << i;
    }
  };
  check(kvaxis::lloyd2_table::values);
  check(kvaxis::lloyd3_table::values);
  check(kvaxis::lloyd4_table::values);
}

TEST(CodebookError, on_normal_deviates) {
  test::expect_within(test::nmse_of<kvaxis::nf4>(32), 7.614e-3, 0.01, "nf4 32");
  test::expect_within(test::nmse_of<kvaxis::nf4>(64), 8.430e-3, 0.01, "nf4 64");
  test::expect_within(test::nmse_of<kvaxis::lloyd2>(64), 0.11172, 0.01, "lloyd2 64");
  test::expect_within(test::nmse_of<kvaxis::lloyd3>(64), 0.02946, 0.01, "lloyd3 64");
  test::expect_within(test::nmse_of<kvaxis::lloyd4>(64), 7.07e-3, 0.01, "lloyd4 64");
  test::expect_within(test::nmse_of<kvaxis::lloyd4>(32), 6.03e-3, 0.01, "lloyd4 32");
  test::expect_within(test::nmse_of<kvaxis::lloyd2a>(64), 0.10931, 0.01, "lloyd2a 64");
  test::expect_within(test::nmse_of<kvaxis::lloyd3a>(64), 0.02710, 0.01, "lloyd3a 64");
  test::expect_within(test::nmse_of<kvaxis::lloyd4a>(64), 6.57e-3, 0.01, "lloyd4a 64");
}

}  // namespace
