// Means of measured numbers with their sampling errors.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "../config.hpp"

KVAXIS_BEGIN_NAMESPACE

struct estimate {
  double mean = 0.0;
  double error = 0.0;  // one standard deviation of the mean; NaN where fewer than two batches cannot tell
};

// The mean of numbers that come in batches. Numbers of one batch (neighbouring tokens, the answer to one question) may
// depend on each other, so the error is estimated from how the batches differ; batches may be of different sizes.
class batch_mean {
 public:
  void add(double sum, double count) { batches_.push_back({sum, count}); }

  [[nodiscard]] double count() const {
    double total = 0.0;
    for (const batch& b : batches_) total += b.count;
    return total;
  }
  // NaN without any number.
  [[nodiscard]] estimate result() const {
    double sum = 0.0;
    for (const batch& b : batches_) sum += b.sum;
    const double numbers = count();
    const double mean = sum / numbers;
    double squares = 0.0;
    for (const batch& b : batches_) squares += (b.sum - mean * b.count) * (b.sum - mean * b.count);
    const auto n = static_cast<double>(batches_.size());
    if (n < 2.0) return {mean, std::numeric_limits<double>::quiet_NaN()};
    return {mean, std::sqrt(squares * n / (n - 1.0)) / numbers};
  }

 private:
  struct batch {
    double sum;
    double count;
  };
  std::vector<batch> batches_;
};

KVAXIS_END_NAMESPACE
