// Normal deviates and the error that a format leaves on them, for comparison with figures computed independently over a
// million samples each.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "numbers.hpp"

namespace test {

// Box and Muller.
inline const std::vector<float>& normal_deviates() {
  static const std::vector<float> all = [] {
    numbers random(2024);
    std::vector<float> out;
    for (int i = 0; i < 1 << 17; ++i) {
      const double u = (static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53;
      const double angle = static_cast<double>(random.next() >> 11) * 0x1p-52 * 3.14159265358979323846;
      out.push_back(static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(angle)));
      out.push_back(static_cast<float>(std::sqrt(-2 * std::log(u)) * std::sin(angle)));
    }
    return out;
  }();
  return all;
}

struct error_sum {
  double error = 0;
  double power = 0;
  void add(double x, double back) {
    error += (x - back) * (x - back);
    power += x * x;
  }
  [[nodiscard]] double nmse() const { return error / power; }
};

// Of x in groups, each with parameters of its own.
template <class Codec>
double nmse_of(int group, const std::vector<float>& x = normal_deviates()) {
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(group));
  error_sum sum;
  for (std::size_t begin = 0; begin + codes.size() <= x.size(); begin += codes.size()) {
    const auto p = Codec::fit(x.data() + begin, group);
    Codec::encode(p, x.data() + begin, group, codes.data());
    for (std::size_t i = 0; i < codes.size(); ++i) sum.add(x[begin + i], Codec::decode(p, codes[i]));
  }
  return sum.nmse();
}

// From both sides: an error that is too small would be as wrong as one that is too large.
inline void expect_within(double got, double expected, double tolerance, const char* what) {
  EXPECT_GE(got, expected * (1 - tolerance)) << what;
  EXPECT_LE(got, expected * (1 + tolerance)) << what;
}

}  // namespace test
