#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <kvaxis/eval/learn_codebook.hpp>
#include <kvaxis/quantizers/codebook.hpp>
#include <limits>
#include <normal.hpp>
#include <vector>

namespace {

using kvaxis::errc;
using kvaxis::learn_codebook;

template <int Bits>
std::array<float, std::size_t{1} << Bits> learned(const std::vector<float>& x, const std::vector<float>& weights = {}) {
  std::array<float, std::size_t{1} << Bits> values{};
  kvaxis::check(learn_codebook<Bits>(x.data(), weights.empty() ? nullptr : weights.data(),
                                     static_cast<std::ptrdiff_t>(x.size()), values));
  return values;
}

template <std::size_t N>
double error_of(const std::array<float, N>& values, const std::vector<float>& x, const std::vector<float>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double least = HUGE_VAL;
    for (const float v : values) least = std::min(least, std::fabs(static_cast<double>(x[i]) - static_cast<double>(v)));
    sum += least * least * static_cast<double>(weights[i]);
  }
  return sum;
}

TEST(LearnCodebook, finds_the_table_of_the_normal_distribution) {
  const auto near_table = [](const auto& values, const auto& table, float tolerance) {
    for (std::size_t i = 0; i < table.size(); ++i) EXPECT_NEAR(values[i], table[i], tolerance) << i;
  };
  near_table(learned<2>(test::normal_deviates()), kvaxis::lloyd2_table::values, 0.01F);
  near_table(learned<3>(test::normal_deviates()), kvaxis::lloyd3_table::values, 0.02F);
  near_table(learned<4>(test::normal_deviates()), kvaxis::lloyd4_table::values, 0.05F);
}

TEST(LearnCodebook, few_different_numbers_are_found_exactly) {
  const std::vector<float> x = {3.0F, -1.0F, 0.5F, -2.0F, 3.0F, 3.0F, 3.0F, 3.0F, 3.0F, 0.5F};
  EXPECT_EQ(learned<2>(x), (std::array<float, 4>{-2.0F, -1.0F, 0.5F, 3.0F}));
  EXPECT_EQ(learned<1>({5.0F, 1.0F, 5.0F, 5.0F, 2.0F, 3.0F}), (std::array<float, 2>{2.0F, 5.0F}));
}

TEST(LearnCodebook, a_weight_counts_as_so_many_numbers) {
  test::numbers random(4);
  std::vector<float> x;
  std::vector<float> weights;
  std::vector<float> repeated;
  for (int i = 0; i < 3000; ++i) {
    x.push_back(random.bell());
    const int times = random.below(4);
    weights.push_back(static_cast<float>(times));
    repeated.insert(repeated.end(), static_cast<std::size_t>(times), x.back());
  }
  const auto values = learned<3>(x, weights);
  EXPECT_EQ(values, learned<3>(repeated));
  // Moving any value makes it worse, and so is the table without weights.
  const double least = error_of(values, x, weights);
  EXPECT_LT(least, error_of(learned<3>(x), x, weights));
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const float step : {-0.01F, 0.01F}) {
      auto other = values;
      other[i] += step;
      EXPECT_LT(least, error_of(other, x, weights)) << i;
    }
  }
}

// All ways to cut 12 numbers into 4 runs, tried one by one.
TEST(LearnCodebook, nothing_is_better) {
  test::numbers random(10);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<float> x = random.bells(12);
    std::vector<float> weights;
    for (int i = 0; i < 12; ++i) weights.push_back(static_cast<float>(1 + random.below(9)));
    std::sort(x.begin(), x.end());
    const auto mean = [&](std::size_t begin, std::size_t end) {
      double weight = 0;
      double product = 0;
      for (std::size_t i = begin; i < end; ++i) {
        weight += static_cast<double>(weights[i]);
        product += static_cast<double>(weights[i]) * static_cast<double>(x[i]);
      }
      return static_cast<float>(product / weight);
    };
    double least = HUGE_VAL;
    for (std::size_t a = 1; a < 10; ++a) {
      for (std::size_t b = a + 1; b < 11; ++b) {
        for (std::size_t c = b + 1; c < 12; ++c) {
          const std::array<float, 4> values = {mean(0, a), mean(a, b), mean(b, c), mean(c, 12)};
          least = std::min(least, error_of(values, x, weights));
        }
      }
    }
    EXPECT_NEAR(error_of(learned<2>(x, weights), x, weights), least, 1e-6 * least);
  }
}

TEST(LearnCodebook, the_order_of_the_sample_does_not_matter) {
  std::vector<float> x = test::numbers(9).bells(5000);
  const auto values = learned<4>(x);
  std::reverse(x.begin(), x.end());
  std::rotate(x.begin(), x.begin() + 1234, x.end());
  EXPECT_EQ(learned<4>(x), values);
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
}

void expect_refused(const kvaxis::status& s, errc code, const char* argument, std::int64_t limit) {
  EXPECT_EQ(s.code, code) << argument;
  EXPECT_STREQ(s.argument, argument);
  EXPECT_EQ(s.limit, limit);
}

TEST(LearnCodebook, wrong_arguments_change_nothing) {
  const std::array<float, 4> before = {9.0F, 9.0F, 9.0F, 9.0F};
  std::array<float, 4> values = before;
  std::vector<float> x = {1.0F, 2.0F, 3.0F, 4.0F};
  std::vector<float> weights(4, 1.0F);
  expect_refused(learn_codebook<2>(nullptr, nullptr, 4, values), errc::invalid_argument, "x", 0);
  expect_refused(learn_codebook<2>(x.data(), nullptr, 3, values), errc::out_of_range, "n", 4);
  weights[2] = 0.0F;
  expect_refused(learn_codebook<2>(x.data(), weights.data(), 4, values), errc::out_of_range, "x: different numbers", 4);
  weights[2] = -1.0F;
  expect_refused(learn_codebook<2>(x.data(), weights.data(), 4, values), errc::out_of_range, "weights", 0);
  weights[2] = std::numeric_limits<float>::infinity();
  expect_refused(learn_codebook<2>(x.data(), weights.data(), 4, values), errc::non_finite, "weights", 2);
  x[1] = std::numeric_limits<float>::quiet_NaN();
  expect_refused(learn_codebook<2>(x.data(), nullptr, 4, values), errc::non_finite, "x", 1);
  EXPECT_EQ(values, before);
}

}  // namespace
