// Pseudo-random numbers that are the same with every compiler, flag and C library: each is an integer times a power of
// two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace test {

class numbers {
 public:
  // Another multiplier than that of the steps, or the sequences of neighbouring seeds would overlap.
  explicit numbers(std::uint64_t seed) : state_((seed + 1) * 0xD1342543DE82EF95U) {}

  // Uniform over 64 bits (splitmix64).
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  // Uniform over 0 .. n - 1, n < 2^32.
  int below(int n) { return static_cast<int>((next() >> 32) * static_cast<std::uint64_t>(n) >> 32); }
  // Uniform over [-1, 1), a multiple of 2^-15.
  float uniform() { return static_cast<float>(static_cast<int>(next() >> 48) - 32768) * 0x1p-15F; }
  // Bell-shaped with variance 1 and |x| < 6: the sum of twelve uniform numbers, less its mean; a multiple of 2^-16.
  float bell() {
    int sum = 0;
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t bits = next();
      for (int part = 0; part < 4; ++part) sum += static_cast<int>(bits >> (16 * part) & 0xFFFFU);
    }
    return static_cast<float>(2 * sum - 12 * 65535) * 0x1p-17F;
  }

  std::vector<float> uniforms(std::size_t n, float amplitude = 1.0F) {
    std::vector<float> out(n);
    for (float& x : out) x = uniform() * amplitude;
    return out;
  }
  std::vector<float> bells(std::size_t n, float amplitude = 1.0F) {
    std::vector<float> out(n);
    for (float& x : out) x = bell() * amplitude;
    return out;
  }

 private:
  std::uint64_t state_;
};

}  // namespace test
