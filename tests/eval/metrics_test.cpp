// Error metrics against values worked out by hand.
#include <gtest/gtest.h>

#include <kvaxis/eval/metrics.hpp>

namespace {

TEST(Metrics, relative_error_is_the_root_of_the_normalized_square_error) {
  Eigen::MatrixXf exact(2, 2);
  exact << 3, 0, 0, 4;
  Eigen::MatrixXf decoded(2, 2);
  decoded << 3, 2, -1, 4;
  EXPECT_DOUBLE_EQ(kvaxis::normalized_square_error(exact, decoded), 5.0 / 25.0);
  EXPECT_DOUBLE_EQ(kvaxis::relative_error(exact, decoded), std::sqrt(0.2));
  EXPECT_EQ(kvaxis::relative_error(exact, exact), 0.0);
  EXPECT_DOUBLE_EQ(kvaxis::relative_error(exact, Eigen::MatrixXf::Zero(2, 2)), 1.0);
}

TEST(Metrics, sums_are_in_double) {
  // In f32 the sum of the squares would stop at 2^24.
  const Eigen::VectorXf exact = Eigen::VectorXf::Ones(1 << 25);
  Eigen::VectorXf decoded = exact;
  decoded[0] = 2;
  EXPECT_DOUBLE_EQ(kvaxis::normalized_square_error(exact, decoded), 1.0 / (1 << 25));
}

TEST(Metrics, logit_error_sees_only_what_the_queries_see) {
  Eigen::MatrixXf keys(2, 2);
  keys << 1, 10, 2, 10;
  Eigen::MatrixXf decoded(2, 2);
  decoded << 1, 15, 2, 15;
  EXPECT_EQ(kvaxis::logit_error(Eigen::RowVector2f(1, 0), keys, decoded), 0.0);
  EXPECT_DOUBLE_EQ(kvaxis::logit_error(Eigen::RowVector2f(0, 3), keys, decoded), 0.5);
  EXPECT_DOUBLE_EQ(kvaxis::logit_error(Eigen::Matrix2f::Identity(), keys, decoded),
                   kvaxis::relative_error(keys, decoded));
}

TEST(Metrics, log_softmax_and_divergence_of_known_distributions) {
  Eigen::RowVector3f logits(std::log(2.0F), 0, std::log(5.0F));
  const Eigen::ArrayXd logs = kvaxis::log_softmax(logits.array().matrix() + Eigen::RowVector3f::Constant(100));
  const double probabilities[] = {0.25, 0.125, 0.625};
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(std::exp(logs[i]), probabilities[i], 1e-5) << i;
  EXPECT_NEAR(logs.exp().sum(), 1, 1e-15);
  const Eigen::ArrayXd other = kvaxis::log_softmax(Eigen::Vector3d(0, 0, 0));
  const double expected = 0.25 * std::log(0.75) + 0.125 * std::log(0.375) + 0.625 * std::log(1.875);
  EXPECT_NEAR(kvaxis::divergence(logs, other), expected, 1e-5);
  EXPECT_EQ(kvaxis::divergence(other, other), 0.0);
}

TEST(Metrics, softmax_divergence_of_known_distributions) {
  // Rows (1/2, 1/2) against (1/4, 3/4), and a row that only differs by a constant.
  Eigen::MatrixXd exact(2, 2);
  exact << 7, 7, 1000, 1001;
  Eigen::MatrixXd decoded(2, 2);
  decoded << 0, std::log(3.0), -1001, -1000;
  const double first = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(kvaxis::softmax_divergence(exact, decoded), first / 2, 1e-15);
  EXPECT_EQ(kvaxis::softmax_divergence(exact, exact), 0.0);
}

}  // namespace
