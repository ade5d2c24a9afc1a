// Outliers: which they are, that they are kept, and that the others are coded as if they were alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/outliers.hpp>
#include <normal.hpp>
#include <vector>

#include "codec_groups.hpp"

namespace {

using kvaxis::least_squares;
using kvaxis::outliers;
using kvaxis::to_float;
using test::encoded;

template <class Codec>
constexpr std::uint32_t last_code = (1U << Codec::bits) - 1U;

template <class Codec>
constexpr int kept_count = kvaxis::codec_parameters<Codec>::members - 2;

// The positions that carry an outlier's code, the first outlier first.
template <class Codec>
std::vector<std::size_t> outlier_positions(const std::vector<float>& x) {
  const std::vector<std::uint32_t> codes = encoded<Codec>(Codec::fit(x.data(), static_cast<int>(x.size())), x);
  std::vector<std::size_t> at;
  for (int k = 0; k < kept_count<Codec>; ++k) {
    const auto found = std::find(codes.begin(), codes.end(), last_code<Codec> - static_cast<std::uint32_t>(k));
    if (found != codes.end()) at.push_back(static_cast<std::size_t>(found - codes.begin()));
  }
  return at;
}

template <class Codec>
std::vector<float> back(const std::vector<float>& x) {
  const auto p = Codec::fit(x.data(), static_cast<int>(x.size()));
  std::vector<float> out;
  for (const std::uint32_t code : encoded<Codec>(p, x)) out.push_back(Codec::decode(p, code));
  return out;
}

template <class Codec>
class Outliers : public ::testing::Test {};
using codecs = ::testing::Types<outliers<kvaxis::int2>, outliers<kvaxis::int2, 2>, outliers<kvaxis::int3>,
                                outliers<kvaxis::int4>, outliers<kvaxis::int4, 2>, outliers<kvaxis::int8, 9>,
                                outliers<least_squares<kvaxis::int2>>, outliers<least_squares<kvaxis::int4>, 2>>;
TYPED_TEST_SUITE(Outliers, codecs);

TYPED_TEST(Outliers, is_a_codec_with_float16_parameters) {
  static_assert(kvaxis::is_codec<TypeParam> && !kvaxis::is_linear<TypeParam>);
  EXPECT_EQ(TypeParam::decode({}, 0), 0.0F) << "padding";
}

// By trying each number of lowest ones in the sorted group.
TYPED_TEST(Outliers, leave_the_smallest_range) {
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const std::size_t n = g.x.size();
    const std::size_t count = std::min(static_cast<std::size_t>(kept_count<TypeParam>), n - 1);
    std::vector<float> sorted = g.x;
    std::sort(sorted.begin(), sorted.end());
    float least = HUGE_VALF;
    for (std::size_t low = 0; low <= count; ++low) {
      least = std::min(least, sorted[n - 1 - (count - low)] - sorted[low]);
    }
    const std::vector<std::size_t> at = outlier_positions<TypeParam>(g.x);
    ASSERT_EQ(at.size(), count) << g.name;
    ASSERT_TRUE(std::is_sorted(at.begin(), at.end())) << g.name;
    float low = HUGE_VALF;
    float high = -HUGE_VALF;
    for (std::size_t i = 0; i < n; ++i) {
      if (std::find(at.begin(), at.end(), i) != at.end()) continue;
      low = std::min(low, g.x[i]);
      high = std::max(high, g.x[i]);
    }
    ASSERT_LE(high - low, std::max(least, FLT_MIN)) << g.name;
  }
}

TYPED_TEST(Outliers, are_kept_and_the_others_are_coded_as_if_alone) {
  for (const test::group& g : test::codec_groups(TypeParam::limit)) {
    const auto p = TypeParam::fit(g.x.data(), static_cast<int>(g.x.size()));
    const float offset = to_float(p.offset);
    const std::vector<std::size_t> at = outlier_positions<TypeParam>(g.x);
    const std::vector<float> got = back<TypeParam>(g.x);
    std::vector<float> others;
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      const float error = std::fabs(got[i] - g.x[i]);
      ASSERT_TRUE(kvaxis::is_finite(got[i])) << g.name;
      if (std::find(at.begin(), at.end(), i) != at.end()) {
        ASSERT_LE(error, std::max(0x1p-11F * std::fabs(g.x[i] - offset) + 0x1p-23F * std::fabs(offset), 0x1p-25F))
            << g.name << " x = " << g.x[i];
      } else {
        others.push_back(g.x[i]);
      }
    }
    // They alone, followed by enough equal numbers far off to be the outliers.
    std::vector<float> again = others;
    again.insert(again.end(), at.size(), TypeParam::limit);
    const auto q = TypeParam::fit(again.data(), static_cast<int>(again.size()));
    if (g.x.size() > 2 * at.size() && *std::max_element(others.begin(), others.end()) < 0.4F * TypeParam::limit) {
      ASSERT_EQ(p.scale.bits, q.scale.bits) << g.name;
      ASSERT_EQ(p.offset.bits, q.offset.bits) << g.name;
    }
  }
}

TEST(OutlierRange, the_others_do_not_clip) {
  using codec = outliers<kvaxis::int4>;
  for (const test::group& g : test::codec_groups(codec::limit)) {
    const auto p = codec::fit(g.x.data(), static_cast<int>(g.x.size()));
    const std::vector<std::uint32_t> codes = encoded<codec>(p, g.x);
    for (std::size_t i = 0; i < g.x.size(); ++i) {
      if (codes[i] == 15) continue;
      const float bound = 0.501F * to_float(p.scale) + 0x1p-22F * std::fabs(g.x[i]);
      ASSERT_LE(std::fabs(codec::decode(p, codes[i]) - g.x[i]), bound) << g.name;
    }
  }
}

TEST(OutlierChoice, of_equal_numbers_the_first_of_equal_ranges_the_lowest) {
  using one = outliers<kvaxis::int4>;
  using two = outliers<kvaxis::int4, 2>;
  using positions = std::vector<std::size_t>;
  EXPECT_EQ(outlier_positions<one>({0, 1, 9, 2, 9, 1}), positions{0}) << "without a 9 the other one is left";
  EXPECT_EQ(outlier_positions<two>({0, 1, 9, 2, 9, 1}), (positions{2, 4}));
  EXPECT_EQ(outlier_positions<one>({0, 5, -5, 1, 5}), positions{2});
  EXPECT_EQ(outlier_positions<one>({0, 5, -5}), positions{2}) << "equal ranges";
  EXPECT_EQ(outlier_positions<two>({0, 50, -5, 1, 2}), (positions{1, 2}));
  EXPECT_EQ(outlier_positions<two>({7, 0, 7, 7, 7, 8}), (positions{1, 5}));
  EXPECT_EQ(outlier_positions<two>({3, 3, 3, 3}), (positions{0, 1}));
  EXPECT_EQ(outlier_positions<two>({3}), positions{});
  EXPECT_EQ(outlier_positions<two>({3, 4}), positions{0});
  EXPECT_EQ(outlier_positions<two>({3, 4, 9}), (positions{0, 1}));
}

TEST(OutlierChoice, a_far_number_comes_back_unchanged_and_the_others_keep_their_accuracy) {
  test::numbers random(6);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> x(64);
    for (float& number : x) number = static_cast<float>(random.below(15));
    x[0] = 0.0F;
    x[1] = 14.0F;
    const auto first = static_cast<std::size_t>(2 + random.below(31));
    const auto second = static_cast<std::size_t>(33 + random.below(31));
    x[first] = 1000.0F;
    EXPECT_EQ(back<outliers<kvaxis::int4>>(x), x);
    x[second] = -700.0F;
    std::vector<float> fewer = x;
    for (float& number : fewer) number = number > 13.0F && number < 100.0F ? 13.0F : number;
    EXPECT_EQ((back<outliers<kvaxis::int4, 2>>(fewer)), fewer);
  }
}

TEST(OutlierChoice, constants_stay) {
  for (const float c : {0.0F, 3.0F, -250.0F, 32752.0F}) {
    const std::vector<float> x(64, c);
    EXPECT_EQ(back<outliers<kvaxis::int3>>(x), x);
    EXPECT_EQ((back<outliers<least_squares<kvaxis::int4>, 2>>(x)), x);
  }
}

// A level fewer makes the steps longer; without far numbers the range becomes a little shorter.
TEST(OutlierError, without_far_numbers_is_that_of_one_code_fewer) {
  const auto levels_cost = [](double levels, double k) { return std::pow(levels / (levels - k), 2); };
  EXPECT_LE(test::nmse_of<outliers<kvaxis::int4>>(64), test::nmse_of<kvaxis::int4>(64) * levels_cost(15, 1));
  EXPECT_LE((test::nmse_of<outliers<kvaxis::int4, 2>>(64)), test::nmse_of<kvaxis::int4>(64) * levels_cost(15, 2));
  EXPECT_LE(test::nmse_of<outliers<kvaxis::int3>>(64), test::nmse_of<kvaxis::int3>(64) * levels_cost(7, 1));
  EXPECT_LE(test::nmse_of<outliers<kvaxis::int2>>(64), test::nmse_of<kvaxis::int2>(64) * levels_cost(3, 1));
}

TEST(OutlierError, with_a_far_number_in_each_group) {
  std::vector<float> x = test::normal_deviates();
  for (std::size_t i = 7; i < x.size(); i += 64) x[i] = i % 128 == 7 ? 20.0F : -30.0F;
  EXPECT_LT(test::nmse_of<outliers<kvaxis::int4>>(64, x), 0.1 * test::nmse_of<kvaxis::int4>(64, x));
  EXPECT_LT((test::nmse_of<outliers<kvaxis::int4, 2>>(128, x)), 0.1 * test::nmse_of<kvaxis::int4>(64, x));
  EXPECT_LT(test::nmse_of<outliers<least_squares<kvaxis::int2>>>(64, x),
            0.7 * test::nmse_of<outliers<kvaxis::int2>>(64, x));
}

TEST(OutlierBytes, do_not_depend_on_flags) {
  EXPECT_EQ((test::hash_of_bytes<outliers<kvaxis::int4, 2>>()), 1879316856670692560U);
  EXPECT_EQ(test::hash_of_bytes<outliers<least_squares<kvaxis::int2>>>(), 1706011526388172263U);
}

TEST(OutlierNames, say_how_many) {
  EXPECT_STREQ(outliers<kvaxis::int4>::name, "int4-out1");
  EXPECT_STREQ((outliers<kvaxis::int2, 2>::name), "int2-out2");
  EXPECT_STREQ((outliers<least_squares<kvaxis::int3>, 2>::name), "int3-out2-lsq");
}

}  // namespace
