// The vocabulary of the kernels, in plain C++: one lane. It is the specification of the other files of this folder,
// which define the same names in a namespace of their own:
//
//   vf  f32 lanes   load store set1 zero add sub mul div fma fnma muladd max min max_magnitude sum sum_four max_lane
//                   max_four min_lane select_above select above all_within clear_pairs load_swapped load_rotated
//                   load_float16 load_bfloat16 store_four flush_subnormals inverse fraction
//                   scale_by_power
//   vu  u32 lanes   load_words store_words set1_words add_words sub_words bit_and shift_left shift_right
//                   shift_right_by store_quads exponent_bits to_half floor_to_half, and to f32:
//                   narrow_to_float<Bits> look_up e4m3_pair e5m2_pair half_pair bfloat_pair bits_to_float
//       i32 lanes   round_to_words words_to_float store_bytes set_word load_bytes low_nibbles load_plane
//                   add_products settle
//   vd  f64 lanes   load_d store_d mul_d fma_d fnma_d store_twice store_with_opposite
//
// fma rounds once on every instruction set and serves what must be equal everywhere; muladd may round twice and serves
// sums.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../config.hpp"
#include "../formats/bits.hpp"
#include "../formats/float8.hpp"
#include "../formats/fused.hpp"
#include "../formats/half.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace scalar {

constexpr int lanes = 1;
constexpr int lanes_d = 1;

struct vf {
  float v;
};
struct vu {
  std::uint32_t v;
};
struct vd {
  double v;
};

KVAXIS_INLINE vf load(const float* p) { return {*p}; }
KVAXIS_INLINE void store(float* p, vf a) { *p = a.v; }
KVAXIS_INLINE vf set1(float x) { return {x}; }
KVAXIS_INLINE vf zero() { return {0.0F}; }
KVAXIS_INLINE vf add(vf a, vf b) { return {a.v + b.v}; }
KVAXIS_INLINE vf sub(vf a, vf b) { return {a.v - b.v}; }
KVAXIS_INLINE vf mul(vf a, vf b) {
  float product = a.v * b.v;
#if defined(__aarch64__)
  asm("" : "+w"(product));  // or the compiler may fuse it with a sum in one kernel and not in another
#endif
  return {product};
}
KVAXIS_INLINE vf fma(vf a, vf b, vf c) { return {fused(a.v, b.v, c.v)}; }
KVAXIS_INLINE vf fnma(vf a, vf b, vf c) { return {fused(-a.v, b.v, c.v)}; }
// Where the baseline has a fused product and sum the compiler takes it; said here, it takes the same one everywhere.
#if defined(__FP_FAST_FMAF)
KVAXIS_INLINE vf muladd(vf a, vf b, vf c) { return {fused(a.v, b.v, c.v)}; }
#else
KVAXIS_INLINE vf muladd(vf a, vf b, vf c) { return {a.v * b.v + c.v}; }
#endif
KVAXIS_INLINE vf max(vf a, vf b) { return {a.v > b.v ? a.v : b.v}; }
KVAXIS_INLINE vf min(vf a, vf b) { return {a.v < b.v ? a.v : b.v}; }
KVAXIS_INLINE vf div(vf a, vf b) { return {a.v / b.v}; }
KVAXIS_INLINE vf max_magnitude(vf a, vf b) { return max(a, {b.v < 0.0F ? -b.v : b.v}); }
KVAXIS_INLINE float sum(vf a) { return a.v; }
KVAXIS_INLINE float max_lane(vf a) { return a.v; }
// The same of four vectors at a time, which takes fewer steps.
KVAXIS_INLINE void sum_four(const vf* a, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = a[i].v;
}
KVAXIS_INLINE void max_four(const vf* a, float* out) { sum_four(a, out); }
KVAXIS_INLINE float min_lane(vf a) { return a.v; }
// `value` where x > threshold, else 0.
KVAXIS_INLINE vf select_above(vf x, float threshold, vf value) { return {x.v > threshold ? value.v : 0.0F}; }
// x, with 0 for both members of the pairs whose bit is set, the pair of lane 0 first.
KVAXIS_INLINE vf clear_pairs(vf x, std::uint32_t pairs) { return {(pairs & 1U) != 0 ? 0.0F : x.v}; }
// Lanes p[i ^ 1]: the two members of each pair exchanged. i is a multiple of the number of lanes.
KVAXIS_INLINE vf load_swapped(const float* p, int i) { return {p[i ^ 1]}; }
// Lane i of the pairs (a, b) = (p[2 j], p[2 j + 1]) turned by the angles whose (cosine, sine) lie in `turn` alike:
// a' = fma(a, c, -(b s)), b' = fma(a, s, b c), the one way in which the library rotates what it stores.
KVAXIS_INLINE vf load_rotated(const float* p, const float* turn, int i) {
  const float a = p[i & ~1];
  const float b = p[i | 1];
  return {i % 2 == 0 ? fused(a, turn[i], -(b * turn[i + 1])) : fused(a, turn[i], b * turn[i - 1])};
}
KVAXIS_INLINE vf load_float16(const std::uint16_t* p) { return {to_float(float16{*p})}; }
KVAXIS_INLINE vf load_bfloat16(const std::uint16_t* p) { return {to_float(bfloat16{*p})}; }
// p[stride * i + j] = lane i of a[j]: four vectors as rows of four.
KVAXIS_INLINE void store_four(float* p, std::ptrdiff_t, const vf* a) { sum_four(a, p); }
KVAXIS_INLINE vf flush_subnormals(vf a) { return {flush_subnormal(a.v)}; }
// 1 / a as a division of doubles, rounded: under -ffast-math a float division becomes an estimate that differs between
// CPU makers.
KVAXIS_INLINE vf inverse(vf a) { return {static_cast<float>(1.0 / static_cast<double>(a.v))}; }
// Whether every lane is a finite number in low .. high.
KVAXIS_INLINE bool all_within(vf a, vf low, vf high) { return is_finite(a.v) && a.v >= low.v && a.v <= high.v; }

KVAXIS_INLINE vu load_words(const std::uint32_t* p) { return {*p}; }
KVAXIS_INLINE void store_words(std::uint32_t* p, vu a) { *p = a.v; }
KVAXIS_INLINE vu set1_words(std::uint32_t x) { return {x}; }
KVAXIS_INLINE vu add_words(vu a, vu b) { return {a.v + b.v}; }
KVAXIS_INLINE vu sub_words(vu a, vu b) { return {a.v - b.v}; }
KVAXIS_INLINE vu bit_and(vu a, vu b) { return {a.v & b.v}; }
template <int Count>
KVAXIS_INLINE vu shift_left(vu a) {
  return {a.v << Count};
}
template <int Count>
KVAXIS_INLINE vu shift_right(vu a) {
  return {a.v >> Count};
}
KVAXIS_INLINE vu shift_right_by(vu a, int count) { return {a.v >> count}; }
// Bits Shift .. Shift + Bits - 1 of each word, as a number.
template <int Bits, int Shift>
KVAXIS_INLINE vf narrow_to_float(vu a) {
  return {static_cast<float>(a.v >> Shift & ((1U << Bits) - 1U))};
}
// The numbers scale * code + offset that 4-bit codes stand for: a multiply-add for each, or a table of all sixteen.
struct nibble_values {
  vf scale;
  vf offset;
};
KVAXIS_INLINE nibble_values values_of_nibbles(vf scale, vf offset) { return {scale, offset}; }
template <int Shift>
KVAXIS_INLINE vf look_up(nibble_values values, vu a) {
  return fma(values.scale, narrow_to_float<4, Shift>(a), values.offset);
}
// Two rows out of one word: bytes 2 Half and 2 Half + 1, E4M3 codes that are not NaN, or E5M2; or its two halves.
template <int Half>
KVAXIS_INLINE void e4m3_pair(vu a, vf& x, vf& y) {
  x = {decode_e4m3(static_cast<std::uint8_t>(a.v >> 16 * Half))};
  y = {decode_e4m3(static_cast<std::uint8_t>(a.v >> (16 * Half + 8)))};
}
template <int Half>
KVAXIS_INLINE void e5m2_pair(vu a, vf& x, vf& y) {
  x = {decode_e5m2(static_cast<std::uint8_t>(a.v >> 16 * Half))};
  y = {decode_e5m2(static_cast<std::uint8_t>(a.v >> (16 * Half + 8)))};
}
KVAXIS_INLINE void half_pair(vu a, vf& x, vf& y) {
  x = {to_float(float16{static_cast<std::uint16_t>(a.v)})};
  y = {to_float(float16{static_cast<std::uint16_t>(a.v >> 16)})};
}
KVAXIS_INLINE void bfloat_pair(vu a, vf& x, vf& y) {
  x = {bits_float(a.v << 16)};
  y = {bits_float(a.v & 0xFFFF0000U)};
}
KVAXIS_INLINE vf bits_to_float(vu a) { return {bits_float(a.v)}; }

// All ones where a > b, else 0; and a where a mask is all ones, b where it is 0.
KVAXIS_INLINE vu above(vf a, vf b) { return {a.v > b.v ? 0xFFFFFFFFU : 0U}; }
KVAXIS_INLINE vf select(vu mask, vf a, vf b) { return {mask.v != 0 ? a.v : b.v}; }
// The bits of the nearest binary16 number (ties to even), and of the largest at or below; |a| <= 65504, no -0.
KVAXIS_INLINE vu to_half(vf a) { return {to_float16(a.v).bits}; }
KVAXIS_INLINE vu floor_to_half(vf a) { return {floor_float16(a.v).bits}; }
// Byte k of lane i is the code of row `row` + i and word k of a block's quads (packing/quads.hpp); `words` is the first
// quad's first such word. Rows from `rows`, a multiple of 4, on are left out.
KVAXIS_INLINE void store_quads(std::byte* words, std::size_t quad_bytes, int row, int rows, vu a) {
  if (row >= rows) return;
  std::byte* const quad = words + static_cast<std::size_t>(row / 4) * quad_bytes + row % 4;
  for (int k = 0; k < 4; ++k) quad[4 * k] = static_cast<std::byte>(a.v >> 8 * k);
}

KVAXIS_INLINE vu exponent_bits(vf a) { return {float_bits(a.v)}; }

// Parts of the exponential, for s < 128. std::floor may be a call.
KVAXIS_INLINE std::int32_t floor_from_minus_127(vf s) {
  const float bounded = max(s, {-127.0F}).v;
  const auto toward_zero = static_cast<std::int32_t>(bounded);
  return static_cast<float>(toward_zero) > bounded ? toward_zero - 1 : toward_zero;
}
// s - floor(s), rounded to the nearest or down: 0 to 1, both included. Of s <= -126, anything.
KVAXIS_INLINE vf fraction(vf s) { return {s.v - static_cast<float>(floor_from_minus_127(s))}; }
// a * 2^floor(s), a from 1 to 2; 0 for s <= -126 whatever a is, so that nothing becomes subnormal.
KVAXIS_INLINE vf scale_by_power(vf a, vf s) {
  const std::uint32_t scaled = float_bits(a.v) + (static_cast<std::uint32_t>(floor_from_minus_127(s)) << 23);
  return select_above(s, -126.0F, {bits_float(scaled)});
}

// To the nearest integer, ties to even; |x| < 2^22.
KVAXIS_INLINE vu round_to_words(vf x) { return {float_bits(fused(x.v, 1.0F, 12582912.0F)) - 0x4B400000U}; }
KVAXIS_INLINE vf words_to_float(vu a) { return {static_cast<float>(static_cast<std::int32_t>(a.v))}; }
KVAXIS_INLINE void sum_four(const vu* a, std::int32_t* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<std::int32_t>(a[i].v);
}
// Four vectors of numbers within +-127, one after the other.
KVAXIS_INLINE void store_bytes(std::int8_t* p, vu a, vu b, vu c, vu d) {
  p[0] = static_cast<std::int8_t>(a.v);
  p[1] = static_cast<std::int8_t>(b.v);
  p[2] = static_cast<std::int8_t>(c.v);
  p[3] = static_cast<std::int8_t>(d.v);
}
KVAXIS_INLINE vu set_word(std::int32_t x) { return {static_cast<std::uint32_t>(x)}; }
// Four bytes, in every lane.
KVAXIS_INLINE vu load_bytes(const std::int8_t* p) {
  std::uint32_t word = 0;
  __builtin_memcpy(&word, p, sizeof word);
  return {word};
}
KVAXIS_INLINE vu low_nibbles(vu a) { return {a.v & 0x0F0F0F0FU}; }
// The codes of a plane of 1 or 2 bits (packing/quads.hpp) as bytes, those of `lane`, a multiple of the lanes here, and of
// the ones behind it.
template <int Bits>
KVAXIS_INLINE vu load_plane(const std::uint32_t* plane, int lane) {
  constexpr int words = 4 * Bits;
  return {plane[lane / 32 * words + lane % words] >> Bits * (lane % 32 / words) & 0x01010101U * ((1U << Bits) - 1U)};
}

// sums + the four products of a lane's bytes, unsigned codes times signed weights. Where sums_in_words they are those of
// whole words, and codes have up to 8 bits. Elsewhere they are of 16 bits, begin with 0, take quads_to_settle quads of
// codes of up to 6 bits, and are then added to a total by settle(). Where centred_bytes, codes of 8 bits count less 128.
constexpr bool sums_in_words = true;
constexpr bool centred_bytes = false;
template <int Bits>
KVAXIS_INLINE vu add_products(vu sums, vu codes, vu weights) {
  for (int shift = 0; shift < 32; shift += 8) {
    const auto weight = static_cast<std::int8_t>(weights.v >> shift);
    sums.v += (codes.v >> shift & 0xFFU) * static_cast<std::uint32_t>(weight);
  }
  return sums;
}
template <int Bits>
constexpr int quads_to_settle = 32767 / (2 * 127 * ((1 << Bits) - 1));
KVAXIS_INLINE vu settle(vu total, vu sums) { return {total.v + sums.v}; }

KVAXIS_INLINE vd load_d(const double* p) { return {*p}; }
KVAXIS_INLINE void store_d(double* p, vd a) { *p = a.v; }
KVAXIS_INLINE vd mul_d(vd a, vd b) { return {a.v * b.v}; }
KVAXIS_INLINE vd fma_d(vd a, vd b, vd c) { return {fused(a.v, b.v, c.v)}; }
KVAXIS_INLINE vd fnma_d(vd a, vd b, vd c) { return {fused(-a.v, b.v, c.v)}; }
// Each lane, rounded to f32, twice in a row: p[2 i] = p[2 i + 1] = a[i].
KVAXIS_INLINE void store_twice(float* p, vd a) {
  p[0] = static_cast<float>(a.v);
  p[1] = static_cast<float>(a.v);
}
// The same, the first of the two negated.
KVAXIS_INLINE void store_with_opposite(float* p, vd a) {
  p[0] = -static_cast<float>(a.v);
  p[1] = static_cast<float>(a.v);
}
KVAXIS_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace scalar
KVAXIS_END_NAMESPACE
