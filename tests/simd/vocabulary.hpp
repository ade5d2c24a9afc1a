// Every function of the vocabulary on arrays, per instruction set: one table of plain function pointers each, so that
// the tests themselves need no target region. n is a multiple of 16, for *_of_four of 64.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <kvaxis/simd/isa.hpp>
#include <utility>

struct vocabulary {
  using convert_fn = void (*)(const std::uint32_t* words, float* out, int n);
  using unary_fn = void (*)(const float* a, float* out, int n);
  using binary_fn = void (*)(const float* a, const float* b, float* out, int n);
  using ternary_fn = void (*)(const float* a, const float* b, const float* c, float* out, int n);
  using word_fn = void (*)(const float* a, std::uint32_t* out, int n);
  using double_fn = void (*)(const double* a, const double* b, const double* c, double* out, int n);

  int lanes;
  int lanes_d;
  std::array<convert_fn, 8> nibble;     // by the position of the code in the word, low bits first
  std::array<convert_fn, 4> looked_up;  // 0.37 code - 2.5 of the nibbles at 0, 8, 16 and 24
  std::array<convert_fn, 4> byte;
  std::array<convert_fn, 4> e4m3;
  std::array<convert_fn, 4> e5m2;
  std::array<convert_fn, 2> half;
  std::array<convert_fn, 2> bfloat;
  convert_fn shifted_nibble;  // the word shifted right by 4, then the nibble at 8
  convert_fn bits;
  void (*load_float16)(const std::uint16_t* a, float* out, int n);
  void (*load_bfloat16)(const std::uint16_t* a, float* out, int n);
  binary_fn add, sub, mul, div, max, min, max_magnitude;
  ternary_fn fma, fnma, muladd;  // fnma: c - a * b
  binary_fn select_above_half;   // b where a > 0.5
  unary_fn swapped;
  unary_fn broadcast_zero_and_one;  // set1(1) - zero(), whatever a is
  unary_fn sums, maxima, minima;    // of each vector, out[i / lanes]
  unary_fn sums_of_four, maxima_of_four;
  void (*clear_pairs)(const float* a, std::uint32_t pairs, float* out, int n);
  binary_fn scale_by_power;  // a * 2^floor(b)
  unary_fn flushed, inverse, fraction;
  binary_fn rotated;       // the pairs of a by the angles of b
  ternary_fn larger_of_c;  // c where a > b, else a
  word_fn to_half, floor_to_half;
  void (*words)(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* out, int n);  // see integers_op
  bool (*all_within)(const float* a, float low, float high);                                 // of one vector
  // Rows first .. first + lanes - 1.
  void (*store_quads)(const std::uint32_t* a, std::byte* words, std::size_t quad_bytes, int first, int rows);
  double_fn mul_d, fma_d, fnma_d;  // a * b, a * b + c, c - a * b
  void (*store_twice)(const double* a, float* out, int n);
  void (*store_with_opposite)(const double* a, float* out, int n);
  void (*store_four)(const float* a, std::ptrdiff_t stride, float* out);  // four vectors
};

#define KVAXIS_INL <vocabulary.inl>
#include <kvaxis/simd/foreach_isa.hpp>

inline const vocabulary& active_vocabulary() {
  using namespace kvaxis;  // where the names of the table are
  static constexpr std::array<const vocabulary*, kvaxis::isa_count> tables = KVAXIS_ISA_TABLE(probe::table);
  return *tables[static_cast<std::size_t>(kvaxis::active_isa())];
}
