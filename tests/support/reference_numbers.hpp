// The numbers on which ggml's reference functions and the MX rules were run to get the bytes that tests expect.
#pragma once

#include <vector>

namespace test {

inline std::vector<float> reference_numbers(int n) {
  std::vector<float> x;
  for (int j = 0; j < n; ++j) x.push_back(static_cast<float>((37 * j + 11) % 101 - 50) / 16.0F);
  return x;
}

}  // namespace test
