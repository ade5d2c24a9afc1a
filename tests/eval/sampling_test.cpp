// Means of batches, and their sampling errors.
#include <gtest/gtest.h>

#include <cmath>
#include <kvaxis/eval/sampling.hpp>
#include <numbers.hpp>

namespace {

TEST(Sampling, equal_batches_by_hand) {
  kvaxis::batch_mean mean;
  for (const double sum : {4.0, 8.0, 12.0}) mean.add(sum, 4);  // means 1, 2, 3
  EXPECT_DOUBLE_EQ(mean.count(), 12);
  EXPECT_DOUBLE_EQ(mean.result().mean, 2);
  EXPECT_DOUBLE_EQ(mean.result().error, std::sqrt(1.0 / 3.0));  // standard deviation 1, of three
}

TEST(Sampling, batches_weigh_as_much_as_they_hold) {
  kvaxis::batch_mean mean;
  mean.add(10, 1);
  mean.add(6, 3);
  EXPECT_DOUBLE_EQ(mean.result().mean, 4);
  // Deviations of the sums from what the mean gives: 6 and -6.
  EXPECT_DOUBLE_EQ(mean.result().error, std::sqrt(72.0 * 2.0) / 4);
}

TEST(Sampling, no_error_without_two_batches) {
  kvaxis::batch_mean mean;
  EXPECT_TRUE(std::isnan(mean.result().mean));
  mean.add(3, 2);
  EXPECT_DOUBLE_EQ(mean.result().mean, 1.5);
  EXPECT_TRUE(std::isnan(mean.result().error));
}

// Numbers that come in runs of equal ones: one batch for each run tells the spread of repeated measurements, batches of single
// numbers would claim a fraction of it.
TEST(Sampling, the_error_is_that_of_repeated_measurements) {
  test::numbers random(1);
  constexpr int runs = 400, batches = 50, length = 16;
  double squares = 0, claimed = 0, claimed_alone = 0;
  for (int i = 0; i < runs; ++i) {
    kvaxis::batch_mean mean, alone;
    for (int b = 0; b < batches; ++b) {
      const double x = static_cast<double>(random.bell());
      mean.add(length * x, length);
      for (int j = 0; j < length; ++j) alone.add(x, 1);
    }
    squares += mean.result().mean * mean.result().mean;
    claimed += mean.result().error / runs;
    claimed_alone += alone.result().error / runs;
  }
  const double actual = std::sqrt(squares / runs);
  EXPECT_NEAR(claimed, actual, 0.12 * actual);
  EXPECT_NEAR(claimed_alone, actual / 4, 0.1 * actual);
}

}  // namespace
