// The vocabulary of scalar.hpp on AVX-512 (F, BW, DQ, VL): sixteen f32 lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "intrinsics.hpp"

KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512)
KVAXIS_BEGIN_NAMESPACE
namespace avx512 {

constexpr int lanes = 16;
constexpr int lanes_d = 8;

struct vf {
  __m512 v;
};
struct vu {
  __m512i v;
};
struct vd {
  __m512d v;
};

KVAXIS_INLINE vf load(const float* p) { return {_mm512_loadu_ps(p)}; }
KVAXIS_INLINE void store(float* p, vf a) { _mm512_storeu_ps(p, a.v); }
KVAXIS_INLINE vf set1(float x) { return {_mm512_set1_ps(x)}; }
KVAXIS_INLINE vf zero() { return {_mm512_setzero_ps()}; }
KVAXIS_INLINE vf add(vf a, vf b) { return {_mm512_add_ps(a.v, b.v)}; }
KVAXIS_INLINE vf sub(vf a, vf b) { return {_mm512_sub_ps(a.v, b.v)}; }
KVAXIS_INLINE vf mul(vf a, vf b) { return {_mm512_mul_ps(a.v, b.v)}; }
KVAXIS_INLINE vf fma(vf a, vf b, vf c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
KVAXIS_INLINE vf fnma(vf a, vf b, vf c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
KVAXIS_INLINE vf muladd(vf a, vf b, vf c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
KVAXIS_INLINE vf max(vf a, vf b) { return {_mm512_max_ps(a.v, b.v)}; }
KVAXIS_INLINE vf min(vf a, vf b) { return {_mm512_min_ps(a.v, b.v)}; }
KVAXIS_INLINE vf div(vf a, vf b) { return {_mm512_div_ps(a.v, b.v)}; }
KVAXIS_INLINE vf max_magnitude(vf a, vf b) { return {_mm512_max_ps(a.v, _mm512_abs_ps(b.v))}; }
KVAXIS_INLINE float sum(vf a) { return _mm512_reduce_add_ps(a.v); }
KVAXIS_INLINE float max_lane(vf a) { return _mm512_reduce_max_ps(a.v); }
// Every quarter of a register ends as one number of each vector; the quarters are combined last.
KVAXIS_INLINE __m128 add_of_parts(__m512 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}
KVAXIS_INLINE void sum_four(const vf* a, float* out) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a[0].v, a[1].v), _mm512_unpackhi_ps(a[0].v, a[1].v));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(a[2].v, a[3].v), _mm512_unpackhi_ps(a[2].v, a[3].v));
  const __m512 first = _mm512_shuffle_ps(ab, cd, 0x44);
  const __m512 second = _mm512_shuffle_ps(ab, cd, 0xEE);
  _mm_storeu_ps(out, add_of_parts(_mm512_add_ps(first, second)));
}
KVAXIS_INLINE __m128 max_of_parts(__m512 x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  return _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}
KVAXIS_INLINE void max_four(const vf* a, float* out) {
  const __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(a[0].v, a[1].v), _mm512_unpackhi_ps(a[0].v, a[1].v));
  const __m512 cd = _mm512_max_ps(_mm512_unpacklo_ps(a[2].v, a[3].v), _mm512_unpackhi_ps(a[2].v, a[3].v));
  const __m512 first = _mm512_shuffle_ps(ab, cd, 0x44);
  const __m512 second = _mm512_shuffle_ps(ab, cd, 0xEE);
  _mm_storeu_ps(out, max_of_parts(_mm512_max_ps(first, second)));
}
KVAXIS_INLINE float min_lane(vf a) { return _mm512_reduce_min_ps(a.v); }
KVAXIS_INLINE vf select_above(vf x, float threshold, vf value) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(threshold), _CMP_GT_OQ), value.v)};
}
KVAXIS_INLINE vf clear_pairs(vf x, std::uint32_t pairs) {
  const __m512i bits = _mm512_setr_epi32(1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 64, 64, 128, 128);
  return {_mm512_maskz_mov_ps(_mm512_testn_epi32_mask(_mm512_set1_epi32(static_cast<int>(pairs)), bits), x.v)};
}
KVAXIS_INLINE vf load_swapped(const float* p, int i) { return {_mm512_permute_ps(_mm512_loadu_ps(p + i), 0xB1)}; }
KVAXIS_INLINE vf load_rotated(const float* p, const float* turn, int i) {
  const __m512 pairs = _mm512_loadu_ps(p + i);
  const __m512 angles = _mm512_loadu_ps(turn + i);
  const __m512 b = _mm512_mul_ps(_mm512_permute_ps(pairs, 0xF5), _mm512_permute_ps(angles, 0xB1));
  return {_mm512_fmaddsub_ps(_mm512_permute_ps(pairs, 0xA0), angles, b)};
}
KVAXIS_INLINE vf load_float16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
KVAXIS_INLINE vf load_bfloat16(const std::uint16_t* p) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))};
}
KVAXIS_INLINE void store_four(float* p, std::ptrdiff_t stride, const vf* a) {
  const __m512 ab[] = {_mm512_unpacklo_ps(a[0].v, a[1].v), _mm512_unpackhi_ps(a[0].v, a[1].v)};
  const __m512 cd[] = {_mm512_unpacklo_ps(a[2].v, a[3].v), _mm512_unpackhi_ps(a[2].v, a[3].v)};
  const auto rows = [&](float* to, __m512 four) {
    _mm_storeu_ps(to, _mm512_castps512_ps128(four));
    _mm_storeu_ps(to + 4 * stride, _mm512_extractf32x4_ps(four, 1));
    _mm_storeu_ps(to + 8 * stride, _mm512_extractf32x4_ps(four, 2));
    _mm_storeu_ps(to + 12 * stride, _mm512_extractf32x4_ps(four, 3));
  };
  rows(p, _mm512_shuffle_ps(ab[0], cd[0], 0x44));
  rows(p + stride, _mm512_shuffle_ps(ab[0], cd[0], 0xEE));
  rows(p + 2 * stride, _mm512_shuffle_ps(ab[1], cd[1], 0x44));
  rows(p + 3 * stride, _mm512_shuffle_ps(ab[1], cd[1], 0xEE));
}
KVAXIS_INLINE vf flush_subnormals(vf a) {
  return {_mm512_maskz_mov_ps(_mm512_test_epi32_mask(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7F800000)), a.v)};
}
KVAXIS_INLINE vf inverse(vf a) {
  const __m512d one = _mm512_set1_pd(1.0);
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a.v));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1));
  return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(_mm512_div_pd(one, low))),
                             _mm512_cvtpd_ps(_mm512_div_pd(one, high)), 1)};
}
KVAXIS_INLINE bool all_within(vf a, vf low, vf high) {
  // An integer test for what is not finite: under -ffast-math the comparisons may take a NaN either way.
  const __m512i exponent = _mm512_set1_epi32(0x7F800000);
  const int bad = _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(a.v), exponent), exponent);
  return (bad | _mm512_cmp_ps_mask(a.v, low.v, _CMP_LT_OQ) | _mm512_cmp_ps_mask(a.v, high.v, _CMP_GT_OQ)) == 0;
}

KVAXIS_INLINE vu load_words(const std::uint32_t* p) { return {_mm512_loadu_si512(p)}; }
KVAXIS_INLINE void store_words(std::uint32_t* p, vu a) { _mm512_storeu_si512(p, a.v); }
KVAXIS_INLINE vu set1_words(std::uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
KVAXIS_INLINE vu add_words(vu a, vu b) { return {_mm512_add_epi32(a.v, b.v)}; }
KVAXIS_INLINE vu sub_words(vu a, vu b) { return {_mm512_sub_epi32(a.v, b.v)}; }
KVAXIS_INLINE vu bit_and(vu a, vu b) { return {_mm512_and_si512(a.v, b.v)}; }
template <int Count>
KVAXIS_INLINE vu shift_left(vu a) {
  return {_mm512_slli_epi32(a.v, Count)};
}
template <int Count>
KVAXIS_INLINE vu shift_right(vu a) {
  return {_mm512_srli_epi32(a.v, Count)};
}
KVAXIS_INLINE vu shift_right_by(vu a, int count) { return {_mm512_srl_epi32(a.v, _mm_cvtsi32_si128(count))}; }
// A look-up reads the low four bits of its index and ignores the rest: no mask, no conversion.
struct nibble_values {
  vf table;
};
KVAXIS_INLINE vf sixteen_numbers() { return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
KVAXIS_INLINE nibble_values values_of_nibbles(vf scale, vf offset) { return {fma(scale, sixteen_numbers(), offset)}; }
template <int Shift>
KVAXIS_INLINE vf look_up(nibble_values values, vu a) {
  return {_mm512_permutexvar_ps(_mm512_srli_epi32(a.v, Shift), values.table.v)};
}
template <int Bits, int Shift>
KVAXIS_INLINE vf narrow_to_float(vu a) {
  if constexpr (Bits == 4) {
    return look_up<Shift>(nibble_values{sixteen_numbers()}, a);
  } else {
    const __m512i shifted = _mm512_srli_epi32(a.v, Shift);
    if constexpr (Bits + Shift == 32) return {_mm512_cvtepi32_ps(shifted)};
    return {_mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32((1 << Bits) - 1)))};
  }
}
KVAXIS_INLINE void half_pair(vu a, vf& x, vf& y) {
  // The low halves of all words, then the high ones.
  const __m512i order =
      _mm512_set_epi64(0x001F001D001B0019, 0x0017001500130011, 0x000F000D000B0009, 0x0007000500030001,
                       0x001E001C001A0018, 0x0016001400120010, 0x000E000C000A0008, 0x0006000400020000);
  const __m512i sorted = _mm512_permutexvar_epi16(order, a.v);
  x = {_mm512_cvtph_ps(_mm512_castsi512_si256(sorted))};
  y = {_mm512_cvtph_ps(_mm512_extracti64x4_epi64(sorted, 1))};
}
template <int Half>
KVAXIS_INLINE __m512i spread_bytes(vu a) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13));
  return _mm512_shuffle_epi8(Half == 0 ? a.v : _mm512_srli_epi32(a.v, 16), order);
}
template <int Half>
KVAXIS_INLINE void e4m3_pair(vu a, vf& x, vf& y) {
  const __m512i moved = _mm512_srai_epi16(spread_bytes<Half>(a), 1);
  half_pair({_mm512_and_si512(moved, _mm512_set1_epi16(static_cast<short>(0xBFFF)))}, x, y);
  x = mul(x, set1(256.0F));
  y = mul(y, set1(256.0F));
}
template <int Half>
KVAXIS_INLINE void e5m2_pair(vu a, vf& x, vf& y) {
  half_pair({spread_bytes<Half>(a)}, x, y);
}
KVAXIS_INLINE void bfloat_pair(vu a, vf& x, vf& y) {
  x = {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))};
  y = {_mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(-65536)))};
}
KVAXIS_INLINE vf bits_to_float(vu a) { return {_mm512_castsi512_ps(a.v)}; }

KVAXIS_INLINE vu above(vf a, vf b) { return {_mm512_movm_epi32(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ))}; }
KVAXIS_INLINE vf select(vu mask, vf a, vf b) { return {_mm512_mask_mov_ps(b.v, _mm512_movepi32_mask(mask.v), a.v)}; }
KVAXIS_INLINE vu to_half(vf a) { return {_mm512_cvtepu16_epi32(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT))}; }
KVAXIS_INLINE vu floor_to_half(vf a) { return {_mm512_cvtepu16_epi32(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEG_INF))}; }
KVAXIS_INLINE void store_quads(std::byte* words, std::size_t quad_bytes, int row, int rows, vu a) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i quads = _mm512_shuffle_epi8(a.v, order);
  std::byte* const at = words + static_cast<std::size_t>(row / 4) * quad_bytes;
  const auto store = [&](int q, __m128i quad) {
    if (row + 4 * q < rows) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at + static_cast<std::size_t>(q) * quad_bytes), quad);
    }
  };
  store(0, _mm512_castsi512_si128(quads));
  store(1, _mm512_extracti32x4_epi32(quads, 1));
  store(2, _mm512_extracti32x4_epi32(quads, 2));
  store(3, _mm512_extracti32x4_epi32(quads, 3));
}

KVAXIS_INLINE vu exponent_bits(vf a) { return {_mm512_castps_si512(a.v)}; }
KVAXIS_INLINE vf fraction(vf s) { return {_mm512_reduce_ps(s.v, _MM_FROUND_TO_NEG_INF)}; }
KVAXIS_INLINE vf scale_by_power(vf a, vf s) {
  return {_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(s.v, _mm512_set1_ps(-126.0F), _CMP_GT_OQ), a.v, s.v)};
}

KVAXIS_INLINE vu round_to_words(vf x) { return {_mm512_cvtps_epi32(x.v)}; }
KVAXIS_INLINE vf words_to_float(vu a) { return {_mm512_cvtepi32_ps(a.v)}; }
KVAXIS_INLINE __m128i add_of_parts(__m512i x) {
  const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
}
KVAXIS_INLINE void sum_four(const vu* a, std::int32_t* out) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a[0].v, a[1].v), _mm512_unpackhi_epi32(a[0].v, a[1].v));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(a[2].v, a[3].v), _mm512_unpackhi_epi32(a[2].v, a[3].v));
  const __m512i sums = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), add_of_parts(sums));
}
KVAXIS_INLINE void store_bytes(std::int8_t* p, vu a, vu b, vu c, vu d) {
  const __m512i mixed = _mm512_packs_epi16(_mm512_packs_epi32(a.v, b.v), _mm512_packs_epi32(c.v, d.v));
  const __m512i order =
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);  // packing: by quarters
  _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, mixed));
}
KVAXIS_INLINE vu set_word(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
KVAXIS_INLINE vu load_bytes(const std::int8_t* p) {
  std::int32_t word = 0;
  __builtin_memcpy(&word, p, sizeof word);
  return {_mm512_set1_epi32(word)};
}
KVAXIS_INLINE vu low_nibbles(vu a) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(0x0F0F0F0F))}; }
template <int Bits>
KVAXIS_INLINE vu load_plane(const std::uint32_t* plane, int lane) {
  const std::uint32_t* const stretch = plane + lane / 32 * (4 * Bits);
  __m512i words;
  __m512i shifts;
  if constexpr (Bits == 2) {
    words = _mm512_broadcast_i32x8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(stretch)));
    shifts = _mm512_add_epi32(_mm512_set1_epi32(lane % 32 / 8 * 2),
                              _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2));
  } else {
    words = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(stretch)));
    shifts = _mm512_add_epi32(_mm512_set1_epi32(lane % 32 / 4),
                              _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
  }
  return {_mm512_and_si512(_mm512_srlv_epi32(words, shifts), _mm512_set1_epi32(0x01010101 * ((1 << Bits) - 1)))};
}

constexpr bool sums_in_words = false;
constexpr bool centred_bytes = false;
template <int Bits>
constexpr int quads_to_settle = 32767 / (2 * 127 * ((1 << Bits) - 1));
template <int Bits>
KVAXIS_INLINE vu add_products(vu sums, vu codes, vu weights) {
  return {_mm512_add_epi16(sums.v, _mm512_maddubs_epi16(codes.v, weights.v))};
}
KVAXIS_INLINE vu settle(vu total, vu sums) {
  return {_mm512_add_epi32(total.v, _mm512_madd_epi16(sums.v, _mm512_set1_epi16(1)))};
}

KVAXIS_INLINE vd load_d(const double* p) { return {_mm512_loadu_pd(p)}; }
KVAXIS_INLINE void store_d(double* p, vd a) { _mm512_storeu_pd(p, a.v); }
KVAXIS_INLINE vd mul_d(vd a, vd b) { return {_mm512_mul_pd(a.v, b.v)}; }
KVAXIS_INLINE vd fma_d(vd a, vd b, vd c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
KVAXIS_INLINE vd fnma_d(vd a, vd b, vd c) { return {_mm512_fnmadd_pd(a.v, b.v, c.v)}; }
KVAXIS_INLINE void store_twice(float* p, vd a) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  _mm512_storeu_ps(p, _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm512_cvtpd_ps(a.v))));
}
KVAXIS_INLINE void store_with_opposite(float* p, vd a) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m512 both = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm512_cvtpd_ps(a.v)));
  _mm512_storeu_ps(p, _mm512_xor_ps(both, _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000))));
}
KVAXIS_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace avx512
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP
