// Scales by least squares: never a larger squared error than by the range, much less at 2 bits, and what becomes of an
// outlier.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <kvaxis/quantizers/round_trip.hpp>
#include <numbers.hpp>
#include <vector>

namespace {

using kvaxis::least_squares;
using kvaxis::per_channel;

template <class Codec>
std::vector<float> back(const std::vector<float>& x) {
  std::vector<float> out(x.size());
  kvaxis::check(kvaxis::round_trip<per_channel<Codec, 64>>(x.data(), static_cast<int>(x.size()), 1, out.data()));
  return out;
}

double squared_error(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
  return sum;
}

template <class Codec>
class LeastSquares : public testing::Test {};
using codecs = testing::Types<kvaxis::int2, kvaxis::int3, kvaxis::int4, kvaxis::int5, kvaxis::int6, kvaxis::int2s,
                              kvaxis::int3s, kvaxis::int4s, kvaxis::int6s>;
TYPED_TEST_SUITE(LeastSquares, codecs);

TYPED_TEST(LeastSquares, no_group_gets_worse) {
  test::numbers random(3);
  double refined = 0;
  double by_range = 0;
  for (int group = 0; group < 400; ++group) {
    std::vector<float> x = random.bells(64);
    const float centre = group % 3 == 0 ? 300.0F * random.uniform() : 0.0F;
    const float size = std::ldexp(1.0F, group % 20 - 10);
    for (float& number : x) number = number * size + centre;
    const double a = squared_error(x, back<least_squares<TypeParam>>(x));
    const double b = squared_error(x, back<TypeParam>(x));
    EXPECT_LE(a, b * 1.0001) << group;
    if (centre == 0.0F && size > 0.1F) {
      refined += a / (size * size);
      by_range += b / (size * size);
    }
  }
  const int levels = 1 << TypeParam::bits;
  EXPECT_LT(refined, by_range * (levels == 4 ? 0.75 : levels == 8 ? 0.9 : 1.0));
}

TEST(LeastSquaresGroups, constants_and_zeros_stay) {
  for (const float c : {0.0F, 3.0F, -250.0F, 60000.0F}) {
    const std::vector<float> x(64, c);
    for (const float y : back<least_squares<kvaxis::int3>>(x)) EXPECT_EQ(y, c);
  }
}

// An attention sink is one token whose keys are far from all others. By range it is kept and the others are coarse; by least
// squares it is clipped when that costs less. So sinks belong to the pins, which are never folded.
TEST(LeastSquaresGroups, a_sink_is_clipped) {
  test::numbers random(4);
  std::vector<float> x = random.bells(64);
  x[0] = 9.0F;
  const std::vector<float> by_range = back<kvaxis::int2>(x);
  const std::vector<float> refined = back<least_squares<kvaxis::int2>>(x);
  EXPECT_LT(std::fabs(by_range[0] - 9.0F), 0.1F) << "an end of the range";
  EXPECT_GT(std::fabs(refined[0] - 9.0F), 2.0F);
  std::vector<float> others(x.begin() + 1, x.end());
  EXPECT_LT(squared_error(others, {refined.begin() + 1, refined.end()}),
            0.5 * squared_error(others, {by_range.begin() + 1, by_range.end()}));
}

}  // namespace
