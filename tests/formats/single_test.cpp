#include <gtest/gtest.h>

#include <cstdint>
#include <kvaxis/formats/single.hpp>
#include <numbers.hpp>

namespace {

TEST(RoundToSingle, nearest_with_ties_to_even) {
  const double step = 0x1p-23;
  EXPECT_EQ(kvaxis::round_to_single(1.0 + step / 2), 1.0);
  EXPECT_EQ(kvaxis::round_to_single(1.0 + step / 2 + 0x1p-52), 1.0 + step);
  EXPECT_EQ(kvaxis::round_to_single(1.0 + step * 3 / 2), 1.0 + 2 * step);
  EXPECT_EQ(kvaxis::round_to_single(-1.0 - step * 3 / 2), -1.0 - 2 * step);
  EXPECT_EQ(kvaxis::round_to_single(2.0 - step / 2), 2.0) << "into the next power of two";
  EXPECT_EQ(kvaxis::round_to_single(0.0), 0.0);
  EXPECT_EQ(kvaxis::round_to_single(0x1.000001p-140), 0x1p-140) << "24 bits below the normal numbers too";
}

// Twice the rest of the division, in integers, is at most the divisor.
TEST(RoundToSingle, quotients_are_the_nearest) {
  test::numbers random(3);
  for (int i = 0; i < 200000; ++i) {
    const auto a = static_cast<std::int64_t>(0x800000 + random.below(0x800000));
    const auto b = static_cast<std::int64_t>(0x800000 + random.below(0x800000));
    const int shift = a < b ? 24 : 23;  // the quotient has 24 bits
    const double q = kvaxis::round_to_single(static_cast<double>(a) / static_cast<double>(b));
    const auto units = static_cast<std::int64_t>(q * static_cast<double>(std::int64_t{1} << shift));
    const std::int64_t rest = (a << shift) - units * b;
    ASSERT_LE(2 * (rest < 0 ? -rest : rest), b) << a << " / " << b;
  }
}

}  // namespace
