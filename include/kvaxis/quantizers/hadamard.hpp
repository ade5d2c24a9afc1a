// The Walsh-Hadamard transform of a row: it spreads a large channel over many, so that they can share a scale.
//
// The matrix is H / sqrt(B), H the Sylvester matrix of B = hadamard_block(channels), once for each B channels:
//
//   channels 80 = 5 blocks of 16    96 = 3 of 32    128 = 1 of 128    576 = 9 of 64    an odd number: blocks of 1
//
// It is symmetric and orthogonal, so it is its own inverse, and products of two transformed rows are those of the rows.
#pragma once

#include <cstdint>

#include "../config.hpp"
#include "../formats/bits.hpp"

KVAXIS_BEGIN_NAMESPACE

// The largest power of two that divides the number of channels, at least 1.
[[nodiscard]] constexpr int hadamard_block(int channels) noexcept { return channels & -channels; }

namespace detail {

// What was computed before is in memory, where the compiler cannot regroup it with later sums under -ffast-math.
KVAXIS_INLINE void settle_in_memory(float* row) noexcept { __asm__ volatile("" : : "r"(row) : "memory"); }

}  // namespace detail

// In place; at least 1 channel. Numbers below 2^-96 count as 0: sums of the others are multiples of 2^-119, so that no result
// is an f32 subnormal, which some CPU settings would take for zero.
inline void hadamard(float* row, int channels) noexcept {
  constexpr std::uint32_t smallest = (127U - 96U) << 23;
  for (int i = 0; i < channels; ++i) row[i] = (float_bits(row[i]) & 0x7FFFFFFFU) < smallest ? 0.0F : row[i];
  const int block = hadamard_block(channels);
  int doublings = 0;
  for (int half = 1; half < block; half *= 2, ++doublings) {
    detail::settle_in_memory(row);
    for (int first = 0; first < channels; first += 2 * half) {
      for (int i = first; i < first + half; ++i) {
        const float a = row[i];
        const float b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
    }
  }
  detail::settle_in_memory(row);
  const float power = bits_float(static_cast<std::uint32_t>(127 - doublings / 2) << 23);
  const float scale = doublings % 2 == 0 ? power : power * 0.707106781F;  // 1 / sqrt(block)
  for (int i = 0; i < channels; ++i) row[i] *= scale;
  detail::settle_in_memory(row);
}

KVAXIS_END_NAMESPACE
