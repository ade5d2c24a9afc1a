// Normally distributed numbers from a fixed seed, the same with every standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

class normal_numbers {
 public:
  explicit normal_numbers(std::uint64_t seed) : random_(seed) {}

  // Box and Muller's method; std::normal_distribution differs between standard libraries.
  float operator()() {
    const double u = 1.0 - uniform();
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * uniform()));
  }
  void fill(float* x, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) x[i] = (*this)();
  }

 private:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  std::mt19937_64 random_;
};
