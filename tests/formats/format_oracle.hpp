// What the conversions are compared with: the list of all values of a format in double, and a search for the nearest
// one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/formats/bits.hpp>
#include <vector>

// The magnitudes of a format with exponent bias `bias` and `mantissa_bits`, by code; every exponent counts as finite.
inline std::vector<double> magnitudes(int codes, int mantissa_bits, int bias) {
  std::vector<double> out;
  for (int code = 0; code < codes; ++code) {
    const int exponent = code >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    out.push_back(std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits));
  }
  return out;
}

// |x| without floating-point arithmetic on x: -ffast-math programs run with subnormal floats read as zero.
inline double exact_magnitude(float x) {
  const std::uint32_t bits = kvaxis::float_bits(x) & 0x7FFFFFFFU;
  const auto exponent = static_cast<int>(bits >> 23);
  const std::uint32_t mantissa = (bits & 0x7FFFFFU) | (exponent == 0 ? 0U : 0x800000U);
  return std::ldexp(static_cast<double>(mantissa), std::max(exponent, 1) - 150);
}

// The index of the nearest entry of an ascending list; of two equally near ones the even.
inline std::size_t nearest(const std::vector<double>& grid, double x) {
  const auto at = static_cast<std::size_t>(std::lower_bound(grid.begin(), grid.end(), x) - grid.begin());
  if (at == 0) return 0;
  if (at == grid.size()) return at - 1;
  const double below = x - grid[at - 1];
  const double above = grid[at] - x;
  if (below == above) return at % 2 == 0 ? at : at - 1;
  return below < above ? at - 1 : at;
}

// Calls check(float) for every value of the grid and every midpoint between two, for the floats next to each, and for a
// million floats over the whole range; all with both signs, all finite.
template <class Check>
void for_every_boundary(const std::vector<double>& grid, Check check) {
  const auto both_signs = [&](std::uint32_t bits) {
    if (bits >= 0x7F800000U) return;
    check(kvaxis::bits_float(bits));
    check(kvaxis::bits_float(bits | 0x80000000U));
  };
  const auto around = [&](double value) {
    // The float's bits, also of a subnormal one, by a scaling that keeps the conversion among normal numbers.
    std::uint32_t bits = 0;
    if (value >= 0x1p-126) {
      bits = kvaxis::float_bits(static_cast<float>(value));
    } else {
      bits = static_cast<std::uint32_t>(value * 0x1p149);
    }
    if (bits > 0) both_signs(bits - 1);
    both_signs(bits);
    both_signs(bits + 1);
  };
  for (std::size_t i = 0; i + 1 < grid.size(); ++i) {
    around(grid[i]);
    around((grid[i] + grid[i + 1]) / 2);
  }
  for (std::uint32_t bits = 0; bits < 0x7F800000U; bits += 4099) both_signs(bits);
}
