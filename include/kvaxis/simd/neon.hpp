// The vocabulary of scalar.hpp on NEON, as every Armv8-A machine has it: four f32 lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "intrinsics.hpp"

#if defined(__aarch64__)
KVAXIS_BEGIN_NAMESPACE
namespace neon {

constexpr int lanes = 4;
constexpr int lanes_d = 2;

struct vf {
  float32x4_t v;
};
struct vu {
  uint32x4_t v;
};
struct vd {
  float64x2_t v;
};

KVAXIS_INLINE vf load(const float* p) { return {vld1q_f32(p)}; }
KVAXIS_INLINE void store(float* p, vf a) { vst1q_f32(p, a.v); }
KVAXIS_INLINE vf set1(float x) { return {vdupq_n_f32(x)}; }
KVAXIS_INLINE vf zero() { return {vdupq_n_f32(0.0F)}; }
KVAXIS_INLINE vf add(vf a, vf b) { return {vaddq_f32(a.v, b.v)}; }
KVAXIS_INLINE vf sub(vf a, vf b) { return {vsubq_f32(a.v, b.v)}; }
KVAXIS_INLINE vf mul(vf a, vf b) { return {vmulq_f32(a.v, b.v)}; }
KVAXIS_INLINE vf fma(vf a, vf b, vf c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
KVAXIS_INLINE vf fnma(vf a, vf b, vf c) { return {vfmsq_f32(c.v, a.v, b.v)}; }
KVAXIS_INLINE vf muladd(vf a, vf b, vf c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
KVAXIS_INLINE vf max(vf a, vf b) { return {vmaxq_f32(a.v, b.v)}; }
KVAXIS_INLINE vf min(vf a, vf b) { return {vminq_f32(a.v, b.v)}; }
KVAXIS_INLINE vf div(vf a, vf b) { return {vdivq_f32(a.v, b.v)}; }
KVAXIS_INLINE vf max_magnitude(vf a, vf b) { return {vmaxq_f32(a.v, vabsq_f32(b.v))}; }
KVAXIS_INLINE float sum(vf a) { return vaddvq_f32(a.v); }
KVAXIS_INLINE float max_lane(vf a) { return vmaxvq_f32(a.v); }
KVAXIS_INLINE void sum_four(const vf* a, float* out) {
  vst1q_f32(out, vpaddq_f32(vpaddq_f32(a[0].v, a[1].v), vpaddq_f32(a[2].v, a[3].v)));
}
KVAXIS_INLINE void max_four(const vf* a, float* out) {
  vst1q_f32(out, vpmaxq_f32(vpmaxq_f32(a[0].v, a[1].v), vpmaxq_f32(a[2].v, a[3].v)));
}
KVAXIS_INLINE float min_lane(vf a) { return vminvq_f32(a.v); }
KVAXIS_INLINE vf bits_to_float(vu a) { return {vreinterpretq_f32_u32(a.v)}; }
KVAXIS_INLINE vu exponent_bits(vf a) { return {vreinterpretq_u32_f32(a.v)}; }
KVAXIS_INLINE vf select_above(vf x, float threshold, vf value) {
  return bits_to_float({vandq_u32(vcgtq_f32(x.v, vdupq_n_f32(threshold)), vreinterpretq_u32_f32(value.v))});
}
KVAXIS_INLINE vf clear_pairs(vf x, std::uint32_t pairs) {
  constexpr uint32x4_t bits = {1, 1, 2, 2};
  return bits_to_float({vbicq_u32(vreinterpretq_u32_f32(x.v), vtstq_u32(vdupq_n_u32(pairs), bits))});
}
KVAXIS_INLINE vf load_swapped(const float* p, int i) { return {vrev64q_f32(vld1q_f32(p + i))}; }
KVAXIS_INLINE vf load_rotated(const float* p, const float* turn, int i) {
  const float32x4_t pairs = vld1q_f32(p + i);
  const float32x4_t angles = vld1q_f32(turn + i);
  const float32x4_t b = vmulq_f32(vtrn2q_f32(pairs, pairs), vrev64q_f32(angles));
  constexpr uint32x4_t signs = {0x80000000U, 0, 0x80000000U, 0};
  const vf signed_b = bits_to_float({veorq_u32(vreinterpretq_u32_f32(b), signs)});
  return {vfmaq_f32(signed_b.v, vtrn1q_f32(pairs, pairs), angles)};
}
// Handles subnormals whatever the denormal flags say.
KVAXIS_INLINE vf halves_to_float(uint16x4_t a) { return {vcvt_f32_f16(vreinterpret_f16_u16(a))}; }
KVAXIS_INLINE vf load_float16(const std::uint16_t* p) { return halves_to_float(vld1_u16(p)); }
KVAXIS_INLINE vf load_bfloat16(const std::uint16_t* p) {
  return bits_to_float({vshlq_n_u32(vmovl_u16(vld1_u16(p)), 16)});
}
KVAXIS_INLINE void store_four(float* p, std::ptrdiff_t stride, const vf* a) {
  const float32x4x2_t ab = vtrnq_f32(a[0].v, a[1].v);
  const float32x4x2_t cd = vtrnq_f32(a[2].v, a[3].v);
  for (int odd = 0; odd < 2; ++odd) {
    vst1q_f32(p + odd * stride, vcombine_f32(vget_low_f32(ab.val[odd]), vget_low_f32(cd.val[odd])));
    vst1q_f32(p + (2 + odd) * stride, vcombine_f32(vget_high_f32(ab.val[odd]), vget_high_f32(cd.val[odd])));
  }
}
KVAXIS_INLINE vf flush_subnormals(vf a) {
  const uint32x4_t bits = exponent_bits(a).v;
  return bits_to_float({vandq_u32(bits, vtstq_u32(bits, vdupq_n_u32(0x7F800000)))});
}
KVAXIS_INLINE vf inverse(vf a) {
  const float64x2_t one = vdupq_n_f64(1.0);
  const float32x2_t low = vcvt_f32_f64(vdivq_f64(one, vcvt_f64_f32(vget_low_f32(a.v))));
  return {vcvt_high_f32_f64(low, vdivq_f64(one, vcvt_high_f64_f32(a.v)))};
}
KVAXIS_INLINE bool all_within(vf a, vf low, vf high) {
  // An integer test for what is not finite: under -ffast-math the comparisons may take a NaN either way.
  const uint32x4_t exponent = vdupq_n_u32(0x7F800000);
  const uint32x4_t bad = vceqq_u32(vandq_u32(exponent_bits(a).v, exponent), exponent);
  const uint32x4_t outside = vorrq_u32(vcltq_f32(a.v, low.v), vcgtq_f32(a.v, high.v));
  return vmaxvq_u32(vorrq_u32(bad, outside)) == 0;
}

KVAXIS_INLINE vu load_words(const std::uint32_t* p) { return {vld1q_u32(p)}; }
KVAXIS_INLINE void store_words(std::uint32_t* p, vu a) { vst1q_u32(p, a.v); }
KVAXIS_INLINE vu set1_words(std::uint32_t x) { return {vdupq_n_u32(x)}; }
KVAXIS_INLINE vu add_words(vu a, vu b) { return {vaddq_u32(a.v, b.v)}; }
KVAXIS_INLINE vu sub_words(vu a, vu b) { return {vsubq_u32(a.v, b.v)}; }
KVAXIS_INLINE vu bit_and(vu a, vu b) { return {vandq_u32(a.v, b.v)}; }
template <int Count>
KVAXIS_INLINE vu shift_left(vu a) {
  return {vshlq_n_u32(a.v, Count)};
}
template <int Count>
KVAXIS_INLINE vu shift_right(vu a) {
  return {vshrq_n_u32(a.v, Count)};
}
KVAXIS_INLINE vu shift_right_by(vu a, int count) { return {vshlq_u32(a.v, vdupq_n_s32(-count))}; }
template <int Bits, int Shift>
KVAXIS_INLINE vf narrow_to_float(vu a) {
  const uint32x4_t code = vandq_u32(a.v, vdupq_n_u32(((1U << Bits) - 1U) << Shift));
  if constexpr (Shift == 0) {
    return {vcvtq_f32_u32(code)};
  } else {
    return {vcvtq_n_f32_u32(code, Shift)};  // of a fixed-point number with Shift fraction bits: no shift is needed
  }
}
struct nibble_values {
  vf scale;
  vf offset;
};
KVAXIS_INLINE nibble_values values_of_nibbles(vf scale, vf offset) { return {scale, offset}; }
template <int Shift>
KVAXIS_INLINE vf look_up(nibble_values values, vu a) {
  return fma(values.scale, narrow_to_float<4, Shift>(a), values.offset);
}
KVAXIS_INLINE void half_pair(vu a, vf& x, vf& y) {
  x = halves_to_float(vmovn_u32(a.v));
  y = halves_to_float(vshrn_n_u32(a.v, 16));
}
// Bytes 2 Half of all words, then bytes 2 Half + 1, in the upper bytes of halves.
template <int Half>
KVAXIS_INLINE uint16x8_t spread_bytes(vu a) {
  constexpr int b = 2 * Half;
  constexpr uint8x16_t order = {255, b,     255, b + 4, 255, b + 8, 255, b + 12,  // an index of 255 gives zero
                                255, b + 1, 255, b + 5, 255, b + 9, 255, b + 13};
  return vreinterpretq_u16_u8(vqtbl1q_u8(vreinterpretq_u8_u32(a.v), order));
}
template <int Half>
KVAXIS_INLINE void e4m3_pair(vu a, vf& x, vf& y) {
  // E4M3 has binary16's order of fields: sign and magnitude moved there give 2^-8 of the value, subnormals included.
  const int16x8_t moved = vshrq_n_s16(vreinterpretq_s16_u16(spread_bytes<Half>(a)), 1);
  const uint16x8_t halves = vandq_u16(vreinterpretq_u16_s16(moved), vdupq_n_u16(0xBFFF));
  x = mul(halves_to_float(vget_low_u16(halves)), set1(256.0F));
  y = mul(halves_to_float(vget_high_u16(halves)), set1(256.0F));
}
template <int Half>
KVAXIS_INLINE void e5m2_pair(vu a, vf& x, vf& y) {
  const uint16x8_t halves = spread_bytes<Half>(a);
  x = halves_to_float(vget_low_u16(halves));
  y = halves_to_float(vget_high_u16(halves));
}
KVAXIS_INLINE void bfloat_pair(vu a, vf& x, vf& y) {
  x = bits_to_float({vshlq_n_u32(a.v, 16)});
  y = bits_to_float({vandq_u32(a.v, vdupq_n_u32(0xFFFF0000U))});
}

KVAXIS_INLINE vu above(vf a, vf b) { return {vcgtq_f32(a.v, b.v)}; }
KVAXIS_INLINE vf select(vu mask, vf a, vf b) { return {vbslq_f32(mask.v, a.v, b.v)}; }
KVAXIS_INLINE vu to_half(vf a) { return {vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(a.v)))}; }
KVAXIS_INLINE vu floor_to_half(vf a) {
  // The nearest, less one step where it lies above. It has the sign of a, so that the bits compare as the values do.
  const vu half = to_half(a);
  const uint32x4_t nearest = exponent_bits(halves_to_float(vmovn_u32(half.v))).v;
  const uint32x4_t bits = exponent_bits(a).v;
  const uint32x4_t of_positive = vaddq_u32(half.v, vcgtq_u32(nearest, bits));  // a mask that is set is -1
  const uint32x4_t of_negative = vsubq_u32(half.v, vcltq_u32(nearest, bits));
  return {vbslq_u32(vcltzq_s32(vreinterpretq_s32_u32(bits)), of_negative, of_positive)};
}
KVAXIS_INLINE void store_quads(std::byte* words, std::size_t quad_bytes, int row, int rows, vu a) {
  if (row >= rows) return;
  constexpr uint8x16_t order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  std::byte* const quad = words + static_cast<std::size_t>(row / 4) * quad_bytes;
  vst1q_u8(reinterpret_cast<std::uint8_t*>(quad), vqtbl1q_u8(vreinterpretq_u8_u32(a.v), order));
}

KVAXIS_INLINE vf fraction(vf s) { return {vsubq_f32(s.v, vrndmq_f32(s.v))}; }
KVAXIS_INLINE vf scale_by_power(vf a, vf s) {
  const int32x4_t power = vcvtq_n_s32_f32(vrndmq_f32(s.v), 23);  // times 2^23
  return select_above(s, -126.0F, bits_to_float({vaddq_u32(exponent_bits(a).v, vreinterpretq_u32_s32(power))}));
}

KVAXIS_INLINE vu round_to_words(vf x) { return {vreinterpretq_u32_s32(vcvtnq_s32_f32(x.v))}; }
KVAXIS_INLINE vf words_to_float(vu a) { return {vcvtq_f32_s32(vreinterpretq_s32_u32(a.v))}; }
KVAXIS_INLINE void sum_four(const vu* a, std::int32_t* out) {
  const uint32x4_t sums = vpaddq_u32(vpaddq_u32(a[0].v, a[1].v), vpaddq_u32(a[2].v, a[3].v));
  vst1q_s32(out, vreinterpretq_s32_u32(sums));
}
KVAXIS_INLINE void store_bytes(std::int8_t* p, vu a, vu b, vu c, vu d) {
  const uint16x8_t ab = vcombine_u16(vmovn_u32(a.v), vmovn_u32(b.v));
  const uint16x8_t cd = vcombine_u16(vmovn_u32(c.v), vmovn_u32(d.v));
  vst1q_s8(p, vreinterpretq_s8_u8(vcombine_u8(vmovn_u16(ab), vmovn_u16(cd))));
}
KVAXIS_INLINE vu set_word(std::int32_t x) { return {vreinterpretq_u32_s32(vdupq_n_s32(x))}; }
KVAXIS_INLINE vu load_bytes(const std::int8_t* p) {
  std::uint32_t word = 0;
  __builtin_memcpy(&word, p, sizeof word);
  return {vdupq_n_u32(word)};
}
KVAXIS_INLINE vu low_nibbles(vu a) { return {vandq_u32(a.v, vdupq_n_u32(0x0F0F0F0F))}; }
template <int Bits>
KVAXIS_INLINE vu load_plane(const std::uint32_t* plane, int lane) {
  constexpr int words = 4 * Bits;
  const uint32x4_t four = vld1q_u32(plane + lane / 32 * words + lane % words);
  const uint32x4_t moved = vshlq_u32(four, vdupq_n_s32(-Bits * (lane % 32 / words)));
  return {vandq_u32(moved, vdupq_n_u32(0x01010101U * ((1U << Bits) - 1U)))};
}

constexpr bool sums_in_words = true;
template <int Bits>
constexpr int quads_to_settle = 32767 / (2 * 127 * ((1 << Bits) - 1));
// There are products of signed bytes alone: codes of less than 8 bits are such, and those of 8 bits less 128.
constexpr bool centred_bytes = true;
template <int Bits>
KVAXIS_INLINE vu signed_codes(vu codes) {
  return {Bits < 8 ? codes.v : veorq_u32(codes.v, vdupq_n_u32(0x80808080U))};
}
template <int Bits>
KVAXIS_INLINE vu add_products(vu sums, vu codes, vu weights) {
  const int8x16_t w = vreinterpretq_s8_u32(weights.v);
  const int8x16_t c = vreinterpretq_s8_u32(signed_codes<Bits>(codes).v);
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(c), vget_low_s8(w)));
  const int32x4_t high = vpaddlq_s16(vmull_high_s8(c, w));
  return {vaddq_u32(sums.v, vreinterpretq_u32_s32(vpaddq_s32(low, high)))};
}
KVAXIS_INLINE vu settle(vu total, vu sums) { return {vaddq_u32(total.v, sums.v)}; }

KVAXIS_INLINE vd load_d(const double* p) { return {vld1q_f64(p)}; }
KVAXIS_INLINE void store_d(double* p, vd a) { vst1q_f64(p, a.v); }
KVAXIS_INLINE vd mul_d(vd a, vd b) { return {vmulq_f64(a.v, b.v)}; }
KVAXIS_INLINE vd fma_d(vd a, vd b, vd c) { return {vfmaq_f64(c.v, a.v, b.v)}; }
KVAXIS_INLINE vd fnma_d(vd a, vd b, vd c) { return {vfmsq_f64(c.v, a.v, b.v)}; }
KVAXIS_INLINE void store_twice(float* p, vd a) {
  const float32x2_t rounded = vcvt_f32_f64(a.v);
  const float32x2x2_t twice = {{rounded, rounded}};
  vst2_f32(p, twice);  // interleaves
}
KVAXIS_INLINE void store_with_opposite(float* p, vd a) {
  const float32x2_t x = vcvt_f32_f64(a.v);
  const float32x2_t opposite = vneg_f32(x);
  vst1q_f32(p, vcombine_f32(vzip1_f32(opposite, x), vzip2_f32(opposite, x)));
}
KVAXIS_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace neon
KVAXIS_END_NAMESPACE
#endif
