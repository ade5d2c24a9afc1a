// The 32-number blocks of ggml and llama.cpp, byte for byte: to compare with, and to read and write the caches of engines
// that hold them.
//
//   type     bytes  in this order                    decoded
//   q8_0     34     d, int8 qs[32]                   q * d
//   q4_0     18     d, qs[16]                        (q - 8) * d
//   q4_1     20     d, m, qs[16]                     q * d + m
//   q5_0     22     d, qh[4], qs[16]                 (q - 16) * d
//   q5_1     24     d, m, qh[4], qs[16]              q * d + m
//   iq4_nl   18     d, qs[16]                        table[q] * d
//
// d and m are float16. qs[j] holds the low four bits of numbers j (low nibble) and j + 16 (high nibble); bit j of the
// little-endian word qh is the fifth bit of number j.
//
// Encoding follows ggml's reference functions (quantize_row_*_ref, without contraction), whatever the flags here. ggml's
// own kernels for AVX2 and NEON round ties of q8_0 differently. Two kinds of block whose bytes may differ from ggml's decode to
// the same numbers: those with |d| < 2^-102, and iq4_nl blocks of numbers all below 1e-15, where ggml leaves the codes of
// the block before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../config.hpp"
#include "../formats/bits.hpp"
#include "../formats/half.hpp"
#include "../formats/single.hpp"

KVAXIS_BEGIN_NAMESPACE

enum class ggml_type : int { q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl };

constexpr int ggml_block_numbers = 32;

//   0    2                                  34
//   | d  | q0 | q1 | ...              | q31 |
struct ggml_q8_0 {
  float16 d;
  std::int8_t qs[32];
};

//   0    2                                           18
//   | d  | q16 q0 | q17 q1 | ...           | q31 q15 |     a byte's high nibble on the left
struct ggml_q4_0 {
  float16 d;
  std::uint8_t qs[16];
};

//   0    2    4                                           20
//   | d  | m  | q16 q0 | q17 q1 | ...           | q31 q15 |
struct ggml_q4_1 {
  float16 d;
  float16 m;
  std::uint8_t qs[16];
};

//   0    2                 6                                           22
//   | d  | fifth bits      | q16 q0 | q17 q1 | ...           | q31 q15 |
struct ggml_q5_0 {
  float16 d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};

//   0    2    4                 8                                           24
//   | d  | m  | fifth bits      | q16 q0 | q17 q1 | ...           | q31 q15 |
struct ggml_q5_1 {
  float16 d;
  float16 m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};

//   as q4_0
struct ggml_iq4_nl {
  static constexpr int table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  float16 d;
  std::uint8_t qs[16];
};

static_assert(sizeof(ggml_q8_0) == 34 && sizeof(ggml_q4_0) == 18 && sizeof(ggml_q4_1) == 20 &&
              sizeof(ggml_q5_0) == 22 && sizeof(ggml_q5_1) == 24 && sizeof(ggml_iq4_nl) == 18);

namespace detail {

// Subnormal numbers are zeros, on every CPU.
inline double ggml_number(float x) noexcept { return static_cast<double>(flush_subnormal(x)); }

// The nearest float16 of a number that round_to_single gave.
inline float16 ggml_half(double x) noexcept { return to_float16(static_cast<float>(x)); }

// The first of the numbers with the largest magnitude.
inline float ggml_extreme(const float* x) noexcept {
  float extreme = 0.0F;
  for (int i = 0; i < ggml_block_numbers; ++i) {
    if ((float_bits(x[i]) & 0x7FFFFFFFU) > (float_bits(extreme) & 0x7FFFFFFFU)) extreme = x[i];
  }
  return extreme;
}

inline double ggml_inverse(double d) noexcept { return d == 0.0 ? 0.0 : round_to_single(1.0 / d); }

// The codes of all symmetric types but q8_0: `levels` of them below zero. The extreme number is code 0.
inline float16 ggml_fit_signed(const float* x, int levels, int* codes) noexcept {
  const float extreme = ggml_extreme(x);
  const double d = ggml_number(extreme) / -levels;
  const double inverse = ggml_inverse(d);
  for (int i = 0; i < ggml_block_numbers; ++i) {
    const double steps = round_to_single(ggml_number(x[i]) * inverse);
    const auto code = static_cast<int>(round_to_single(steps + (levels + 0.5)));
    codes[i] = code < 2 * levels ? code : 2 * levels - 1;
  }
  // The sign is put in by hand, because flags decide that of a zero: in ggml d is -0 for a block of zeros.
  const auto magnitude = static_cast<std::uint16_t>(ggml_half(d).bits & 0x7FFFU);
  return float16{static_cast<std::uint16_t>(magnitude | ((float_bits(extreme) >> 31) != 0 ? 0U : 0x8000U))};
}

// Those of the types with a minimum, for codes up to `largest`.
inline void ggml_fit_range(const float* x, int largest, int* codes, float16& d_out, float16& m_out) noexcept {
  int low_at = 0;  // the first of equal numbers: zeros differ in their sign
  int high_at = 0;
  for (int i = 1; i < ggml_block_numbers; ++i) {
    if (ordered_bits(x[i]) < ordered_bits(x[low_at])) low_at = i;
    if (ordered_bits(x[i]) > ordered_bits(x[high_at])) high_at = i;
  }
  const float low = x[low_at];
  const double m = ggml_number(low);
  const double d = round_to_single(round_to_single(ggml_number(x[high_at]) - m) / largest);
  const double inverse = ggml_inverse(d);
  for (int i = 0; i < ggml_block_numbers; ++i) {
    const double steps = round_to_single(round_to_single(ggml_number(x[i]) - m) * inverse);
    const auto code = static_cast<int>(round_to_single(steps + 0.5));
    codes[i] = code < largest ? code : largest;
  }
  d_out = ggml_half(d);
  m_out = to_float16(low);
}

inline void ggml_pack_low(const int* codes, std::uint8_t* qs) noexcept {
  for (int j = 0; j < 16; ++j) qs[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}
inline void ggml_pack_fifth(const int* codes, std::uint8_t* qh) noexcept {
  for (int j = 0; j < 4; ++j) qh[j] = 0;
  for (int j = 0; j < 32; ++j) qh[j / 8] = static_cast<std::uint8_t>(qh[j / 8] | (codes[j] >> 4) << j % 8);
}

inline int ggml_low(const std::uint8_t* qs, int j) noexcept { return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4; }
inline int ggml_low_and_fifth(const std::uint8_t* qs, const std::uint8_t* qh, int j) noexcept {
  return ggml_low(qs, j) | (qh[j / 8] >> j % 8 & 1) << 4;
}

}  // namespace detail

// x: 32 finite numbers of |x| <= 65504. Products of a float16 and a code are exact, so decoding has one rounding at most.

inline void encode(const float* x, ggml_q8_0& out) noexcept {
  const double largest = detail::ggml_number(bits_float(float_bits(detail::ggml_extreme(x)) & 0x7FFFFFFFU));
  const double d = round_to_single(largest / 127.0);
  const double inverse = detail::ggml_inverse(d);
  for (int i = 0; i < ggml_block_numbers; ++i) {
    const double steps = round_to_single(detail::ggml_number(x[i]) * inverse);
    out.qs[i] = static_cast<std::int8_t>(steps + (steps < 0.0 ? -0.5 : 0.5));  // half away from zero
  }
  out.d = detail::ggml_half(d);
}
inline void decode(const ggml_q8_0& block, float* out) noexcept {
  const float d = to_float(block.d);
  for (int j = 0; j < ggml_block_numbers; ++j) out[j] = static_cast<float>(block.qs[j]) * d;
}

inline void encode(const float* x, ggml_q4_0& out) noexcept {
  int codes[ggml_block_numbers];
  out.d = detail::ggml_fit_signed(x, 8, codes);
  detail::ggml_pack_low(codes, out.qs);
}
inline void decode(const ggml_q4_0& block, float* out) noexcept {
  const float d = to_float(block.d);
  for (int j = 0; j < ggml_block_numbers; ++j) out[j] = static_cast<float>(detail::ggml_low(block.qs, j) - 8) * d;
}

inline void encode(const float* x, ggml_q4_1& out) noexcept {
  int codes[ggml_block_numbers];
  detail::ggml_fit_range(x, 15, codes, out.d, out.m);
  detail::ggml_pack_low(codes, out.qs);
}
inline void decode(const ggml_q4_1& block, float* out) noexcept {
  const float d = to_float(block.d);
  const float m = to_float(block.m);
  for (int j = 0; j < ggml_block_numbers; ++j) out[j] = static_cast<float>(detail::ggml_low(block.qs, j)) * d + m;
}

inline void encode(const float* x, ggml_q5_0& out) noexcept {
  int codes[ggml_block_numbers];
  out.d = detail::ggml_fit_signed(x, 16, codes);
  detail::ggml_pack_low(codes, out.qs);
  detail::ggml_pack_fifth(codes, out.qh);
}
inline void decode(const ggml_q5_0& block, float* out) noexcept {
  const float d = to_float(block.d);
  for (int j = 0; j < ggml_block_numbers; ++j) {
    out[j] = static_cast<float>(detail::ggml_low_and_fifth(block.qs, block.qh, j) - 16) * d;
  }
}

inline void encode(const float* x, ggml_q5_1& out) noexcept {
  int codes[ggml_block_numbers];
  detail::ggml_fit_range(x, 31, codes, out.d, out.m);
  detail::ggml_pack_low(codes, out.qs);
  detail::ggml_pack_fifth(codes, out.qh);
}
inline void decode(const ggml_q5_1& block, float* out) noexcept {
  const float d = to_float(block.d);
  const float m = to_float(block.m);
  for (int j = 0; j < ggml_block_numbers; ++j) {
    out[j] = static_cast<float>(detail::ggml_low_and_fifth(block.qs, block.qh, j)) * d + m;
  }
}

// The extreme number decides the codes; d is then refitted to them by least squares, each number weighted by its square.
inline void encode(const float* x, ggml_iq4_nl& out) noexcept {
  constexpr float negligible = 1e-15F;
  const float extreme = detail::ggml_extreme(x);
  if ((float_bits(extreme) & 0x7FFFFFFFU) < float_bits(negligible)) {
    out = {};
    return;
  }
  constexpr auto& table = ggml_iq4_nl::table;
  const double inverse = detail::ggml_inverse(round_to_single(static_cast<double>(extreme) / table[0]));
  int codes[ggml_block_numbers];
  double products = 0.0;
  double squares = 0.0;
  for (int i = 0; i < ggml_block_numbers; ++i) {
    const double number = detail::ggml_number(x[i]);
    const double twice = 2.0 * round_to_single(number * inverse);
    int code = 0;
    while (code < 15 && twice >= table[code] + table[code + 1]) ++code;
    codes[i] = code;
    const double weighted = round_to_single(round_to_single(number * number) * table[code]);
    products = round_to_single(products + round_to_single(weighted * number));
    squares = round_to_single(squares + round_to_single(weighted * table[code]));
  }
  out.d = detail::ggml_half(round_to_single(products / squares));
  detail::ggml_pack_low(codes, out.qs);
}
inline void decode(const ggml_iq4_nl& block, float* out) noexcept {
  const float d = to_float(block.d);
  for (int j = 0; j < ggml_block_numbers; ++j) {
    out[j] = static_cast<float>(ggml_iq4_nl::table[detail::ggml_low(block.qs, j)]) * d;
  }
}

namespace detail {

// f(block) with an empty block of the type; false if there is no such type.
template <class F>
constexpr bool with_ggml_block(ggml_type type, F&& f) noexcept {
  switch (type) {
    case ggml_type::q8_0: return f(ggml_q8_0{}), true;
    case ggml_type::q4_0: return f(ggml_q4_0{}), true;
    case ggml_type::q4_1: return f(ggml_q4_1{}), true;
    case ggml_type::q5_0: return f(ggml_q5_0{}), true;
    case ggml_type::q5_1: return f(ggml_q5_1{}), true;
    case ggml_type::iq4_nl: return f(ggml_iq4_nl{}), true;
  }
  return false;
}

inline status check_ggml_row(ggml_type type, const float* row, std::ptrdiff_t n, const void* blocks) noexcept {
  if (!with_ggml_block(type, [](auto) {})) return {errc::invalid_argument, "type", 0};
  if (n < ggml_block_numbers || n % ggml_block_numbers != 0) return {errc::out_of_range, "n", ggml_block_numbers};
  if (row == nullptr) return {errc::invalid_argument, "row", 0};
  if (blocks == nullptr) return {errc::invalid_argument, "blocks", 0};
  return {};
}

inline status check_ggml_numbers(const float* row, std::ptrdiff_t n) noexcept {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    if (!is_finite(row[i])) return {errc::non_finite, "row", i};
    if ((float_bits(row[i]) & 0x7FFFFFFFU) > float_bits(max_float16)) {
      return {errc::out_of_range, "row", static_cast<std::int64_t>(max_float16)};
    }
  }
  return {};
}

template <class Block>
bool ggml_is_finite(const Block& block) noexcept {
  if constexpr (std::is_same_v<Block, ggml_q4_1> || std::is_same_v<Block, ggml_q5_1>) {
    if (!is_finite(block.m)) return false;
  }
  return is_finite(block.d);
}

}  // namespace detail

// Bytes of one block, 0 for what is not a type.
[[nodiscard]] constexpr std::size_t ggml_block_bytes(ggml_type type) noexcept {
  std::size_t bytes = 0;
  detail::with_ggml_block(type, [&](auto block) { bytes = sizeof block; });
  return bytes;
}

// n numbers to n / 32 blocks at any address. Errors: n that is not a positive multiple of 32, a null pointer, a number that is
// not finite or beyond 65504.
inline status ggml_encode_row(ggml_type type, const float* row, std::ptrdiff_t n, std::byte* blocks) noexcept {
  if (const status s = detail::check_ggml_row(type, row, n, blocks); !s) return s;
  if (const status s = detail::check_ggml_numbers(row, n); !s) return s;
  detail::with_ggml_block(type, [&](auto block) {
    for (std::ptrdiff_t i = 0; i < n; i += ggml_block_numbers, blocks += sizeof block) {
      encode(row + i, block);
      std::memcpy(blocks, &block, sizeof block);
    }
  });
  return {};
}

// And back. Errors: as above, and a block whose d or m is not finite (`limit` is its index).
inline status ggml_decode_row(ggml_type type, const std::byte* blocks, std::ptrdiff_t n, float* row) noexcept {
  if (const status s = detail::check_ggml_row(type, row, n, blocks); !s) return s;
  status result;
  detail::with_ggml_block(type, [&](auto block) {
    const std::ptrdiff_t count = n / ggml_block_numbers;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      std::memcpy(&block, blocks + i * static_cast<std::ptrdiff_t>(sizeof block), sizeof block);
      if (!detail::ggml_is_finite(block)) return void(result = {errc::non_finite, "blocks", i});
    }
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      std::memcpy(&block, blocks + i * static_cast<std::ptrdiff_t>(sizeof block), sizeof block);
      decode(block, row + i * ggml_block_numbers);
    }
  });
  return result;
}

// What such a cache would give for the row, in place. Errors as for ggml_encode_row.
inline status ggml_round_trip(ggml_type type, float* row, std::ptrdiff_t n) noexcept {
  if (const status s = detail::check_ggml_row(type, row, n, row); !s) return s;
  if (const status s = detail::check_ggml_numbers(row, n); !s) return s;
  detail::with_ggml_block(type, [&](auto block) {
    for (std::ptrdiff_t i = 0; i < n; i += ggml_block_numbers) {
      encode(row + i, block);
      decode(block, row + i);
    }
  });
  return {};
}

KVAXIS_END_NAMESPACE
