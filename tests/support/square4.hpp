// A codec of a user's own that is not linear, so that no kernel decodes it: its levels are squares.
#pragma once

#include <cmath>
#include <cstdint>
#include <kvaxis/formats/half.hpp>

namespace test {

struct square4 {
  static constexpr int bits = 4;
  static constexpr const char* name = "square4";
  struct params {
    kvaxis::float16 scale;
  };

  static params fit(const float* x, int n) noexcept {
    float largest = 0;
    for (int i = 0; i < n; ++i) largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
    return {kvaxis::to_float16(largest)};
  }
  static float decode(params p, std::uint32_t code) noexcept {
    const float u = static_cast<float>(static_cast<int>(code & 7U)) / 8.0F;
    return (code < 8 ? u * u : -u * u) * kvaxis::to_float(p.scale);
  }
  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    for (int i = 0; i < n; ++i) {
      codes[i] = 0;
      for (std::uint32_t c = 1; c < 16; ++c) {
        if (std::fabs(decode(p, c) - x[i]) < std::fabs(decode(p, codes[i]) - x[i])) codes[i] = c;
      }
    }
  }
};

}  // namespace test
