// The vocabulary of scalar.hpp on AVX2: eight f32 lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "intrinsics.hpp"

KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX2)
KVAXIS_BEGIN_NAMESPACE
namespace avx2 {

constexpr int lanes = 8;
constexpr int lanes_d = 4;

struct vf {
  __m256 v;
};
struct vu {
  __m256i v;
};
struct vd {
  __m256d v;
};

KVAXIS_INLINE vf load(const float* p) { return {_mm256_loadu_ps(p)}; }
KVAXIS_INLINE void store(float* p, vf a) { _mm256_storeu_ps(p, a.v); }
KVAXIS_INLINE vf set1(float x) { return {_mm256_set1_ps(x)}; }
KVAXIS_INLINE vf zero() { return {_mm256_setzero_ps()}; }
KVAXIS_INLINE vf add(vf a, vf b) { return {_mm256_add_ps(a.v, b.v)}; }
KVAXIS_INLINE vf sub(vf a, vf b) { return {_mm256_sub_ps(a.v, b.v)}; }
KVAXIS_INLINE vf mul(vf a, vf b) { return {_mm256_mul_ps(a.v, b.v)}; }
KVAXIS_INLINE vf fma(vf a, vf b, vf c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
KVAXIS_INLINE vf fnma(vf a, vf b, vf c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
KVAXIS_INLINE vf muladd(vf a, vf b, vf c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
KVAXIS_INLINE vf max(vf a, vf b) { return {_mm256_max_ps(a.v, b.v)}; }
KVAXIS_INLINE vf min(vf a, vf b) { return {_mm256_min_ps(a.v, b.v)}; }
KVAXIS_INLINE vf div(vf a, vf b) { return {_mm256_div_ps(a.v, b.v)}; }
KVAXIS_INLINE vf max_magnitude(vf a, vf b) {
  return {_mm256_max_ps(a.v, _mm256_andnot_ps(_mm256_set1_ps(-0.0F), b.v))};
}
KVAXIS_INLINE float sum(vf a) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
KVAXIS_INLINE float max_lane(vf a) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// Every quarter of a register ends as one number of each vector; the quarters are combined last.
KVAXIS_INLINE __m128 add_of_parts(__m256 x) {
  return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}
KVAXIS_INLINE void sum_four(const vf* a, float* out) {
  const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a[0].v, a[1].v), _mm256_unpackhi_ps(a[0].v, a[1].v));
  const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(a[2].v, a[3].v), _mm256_unpackhi_ps(a[2].v, a[3].v));
  const __m256 first = _mm256_shuffle_ps(ab, cd, 0x44);
  const __m256 second = _mm256_shuffle_ps(ab, cd, 0xEE);
  _mm_storeu_ps(out, add_of_parts(_mm256_add_ps(first, second)));
}
KVAXIS_INLINE __m128 max_of_parts(__m256 x) {
  return _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}
KVAXIS_INLINE void max_four(const vf* a, float* out) {
  const __m256 ab = _mm256_max_ps(_mm256_unpacklo_ps(a[0].v, a[1].v), _mm256_unpackhi_ps(a[0].v, a[1].v));
  const __m256 cd = _mm256_max_ps(_mm256_unpacklo_ps(a[2].v, a[3].v), _mm256_unpackhi_ps(a[2].v, a[3].v));
  const __m256 first = _mm256_shuffle_ps(ab, cd, 0x44);
  const __m256 second = _mm256_shuffle_ps(ab, cd, 0xEE);
  _mm_storeu_ps(out, max_of_parts(_mm256_max_ps(first, second)));
}
KVAXIS_INLINE float min_lane(vf a) {
  const __m128 four = _mm_min_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_min_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_min_ss(two, _mm_shuffle_ps(two, two, 1)));
}
KVAXIS_INLINE vf select_above(vf x, float threshold, vf value) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.v, _mm256_set1_ps(threshold), _CMP_GT_OQ), value.v)};
}
KVAXIS_INLINE vf clear_pairs(vf x, std::uint32_t pairs) {
  const __m256i bits = _mm256_setr_epi32(1, 1, 2, 2, 4, 4, 8, 8);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(pairs)), bits);
  return {_mm256_and_ps(x.v, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, _mm256_setzero_si256())))};
}
KVAXIS_INLINE vf load_swapped(const float* p, int i) { return {_mm256_permute_ps(_mm256_loadu_ps(p + i), 0xB1)}; }
KVAXIS_INLINE vf load_rotated(const float* p, const float* turn, int i) {
  const __m256 pairs = _mm256_loadu_ps(p + i);
  const __m256 angles = _mm256_loadu_ps(turn + i);
  const __m256 b = _mm256_mul_ps(_mm256_movehdup_ps(pairs), _mm256_permute_ps(angles, 0xB1));
  return {_mm256_fmaddsub_ps(_mm256_moveldup_ps(pairs), angles, b)};
}
KVAXIS_INLINE vf load_float16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
KVAXIS_INLINE vf load_bfloat16(const std::uint16_t* p) {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16))};
}
KVAXIS_INLINE __m256i exponent_of(vf a) {
  return _mm256_and_si256(_mm256_castps_si256(a.v), _mm256_set1_epi32(0x7F800000));
}
KVAXIS_INLINE void store_four(float* p, std::ptrdiff_t stride, const vf* a) {
  const __m256 ab[] = {_mm256_unpacklo_ps(a[0].v, a[1].v), _mm256_unpackhi_ps(a[0].v, a[1].v)};
  const __m256 cd[] = {_mm256_unpacklo_ps(a[2].v, a[3].v), _mm256_unpackhi_ps(a[2].v, a[3].v)};
  const auto rows = [&](float* to, __m256 two) {
    _mm_storeu_ps(to, _mm256_castps256_ps128(two));
    _mm_storeu_ps(to + 4 * stride, _mm256_extractf128_ps(two, 1));
  };
  rows(p, _mm256_shuffle_ps(ab[0], cd[0], 0x44));
  rows(p + stride, _mm256_shuffle_ps(ab[0], cd[0], 0xEE));
  rows(p + 2 * stride, _mm256_shuffle_ps(ab[1], cd[1], 0x44));
  rows(p + 3 * stride, _mm256_shuffle_ps(ab[1], cd[1], 0xEE));
}
KVAXIS_INLINE vf flush_subnormals(vf a) {
  const __m256i is_small = _mm256_cmpeq_epi32(exponent_of(a), _mm256_setzero_si256());
  return {_mm256_andnot_ps(_mm256_castsi256_ps(is_small), a.v)};
}
KVAXIS_INLINE vf inverse(vf a) {
  const __m256d one = _mm256_set1_pd(1.0);
  const __m128 low = _mm256_cvtpd_ps(_mm256_div_pd(one, _mm256_cvtps_pd(_mm256_castps256_ps128(a.v))));
  const __m128 high = _mm256_cvtpd_ps(_mm256_div_pd(one, _mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1))));
  return {_mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1)};
}
KVAXIS_INLINE bool all_within(vf a, vf low, vf high) {
  // An integer test for what is not finite: under -ffast-math the comparisons may take a NaN either way.
  const __m256i bad = _mm256_cmpeq_epi32(exponent_of(a), _mm256_set1_epi32(0x7F800000));
  const __m256 outside = _mm256_or_ps(_mm256_cmp_ps(a.v, low.v, _CMP_LT_OQ), _mm256_cmp_ps(a.v, high.v, _CMP_GT_OQ));
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_castsi256_ps(bad), outside)) == 0;
}

KVAXIS_INLINE vu load_words(const std::uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
KVAXIS_INLINE void store_words(std::uint32_t* p, vu a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
KVAXIS_INLINE vu set1_words(std::uint32_t x) { return {_mm256_set1_epi32(static_cast<int>(x))}; }
KVAXIS_INLINE vu add_words(vu a, vu b) { return {_mm256_add_epi32(a.v, b.v)}; }
KVAXIS_INLINE vu sub_words(vu a, vu b) { return {_mm256_sub_epi32(a.v, b.v)}; }
KVAXIS_INLINE vu bit_and(vu a, vu b) { return {_mm256_and_si256(a.v, b.v)}; }
template <int Count>
KVAXIS_INLINE vu shift_left(vu a) {
  return {_mm256_slli_epi32(a.v, Count)};
}
template <int Count>
KVAXIS_INLINE vu shift_right(vu a) {
  return {_mm256_srli_epi32(a.v, Count)};
}
KVAXIS_INLINE vu shift_right_by(vu a, int count) { return {_mm256_srl_epi32(a.v, _mm_cvtsi32_si128(count))}; }
template <int Bits, int Shift>
KVAXIS_INLINE vf narrow_to_float(vu a) {
  __m256i moved = a.v;
  if constexpr (Shift > 0 && Shift % 8 == 0) {
    // A byte comes to the front by a shuffle: shifts would take the units that multiply.
    constexpr int B = Shift / 8;
    const __m256i order = _mm256_setr_epi8(B, -1, -1, -1, B + 4, -1, -1, -1, B + 8, -1, -1, -1, B + 12, -1, -1, -1,  //
                                           B, -1, -1, -1, B + 4, -1, -1, -1, B + 8, -1, -1, -1, B + 12, -1, -1, -1);
    moved = _mm256_shuffle_epi8(a.v, order);
    if constexpr (Bits == 8) return {_mm256_cvtepi32_ps(moved)};
  } else if constexpr (Shift > 0) {
    moved = _mm256_srli_epi32(a.v, Shift);
  }
  return {_mm256_cvtepi32_ps(_mm256_and_si256(moved, _mm256_set1_epi32((1 << Bits) - 1)))};
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
// The halves of each word, as binary16 numbers. F16C handles subnormals whatever the denormal flags say.
KVAXIS_INLINE void half_pair(vu a, vf& x, vf& y) {
  const __m256i low_then_high = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                                 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  const __m256i sorted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(a.v, low_then_high), 0xD8);
  x = {_mm256_cvtph_ps(_mm256_castsi256_si128(sorted))};
  y = {_mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1))};
}
// Bytes 2 Half and 2 Half + 1 of each word, in the upper bytes of its halves.
template <int Half>
KVAXIS_INLINE __m256i spread_bytes(vu a) {
  const __m256i order = _mm256_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13,  //
                                         -1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13);
  return _mm256_shuffle_epi8(Half == 0 ? a.v : _mm256_srli_epi32(a.v, 16), order);
}
template <int Half>
KVAXIS_INLINE void e4m3_pair(vu a, vf& x, vf& y) {
  // E4M3 has binary16's order of fields: sign and magnitude moved there give 2^-8 of the value, subnormals included.
  const __m256i moved = _mm256_srai_epi16(spread_bytes<Half>(a), 1);
  half_pair({_mm256_and_si256(moved, _mm256_set1_epi16(static_cast<short>(0xBFFF)))}, x, y);
  x = mul(x, set1(256.0F));
  y = mul(y, set1(256.0F));
}
template <int Half>
KVAXIS_INLINE void e5m2_pair(vu a, vf& x, vf& y) {
  half_pair({spread_bytes<Half>(a)}, x, y);
}
KVAXIS_INLINE void bfloat_pair(vu a, vf& x, vf& y) {
  x = {_mm256_castsi256_ps(_mm256_slli_epi32(a.v, 16))};
  y = {_mm256_castsi256_ps(_mm256_and_si256(a.v, _mm256_set1_epi32(-65536)))};
}
KVAXIS_INLINE vf bits_to_float(vu a) { return {_mm256_castsi256_ps(a.v)}; }

KVAXIS_INLINE vu above(vf a, vf b) { return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ))}; }
KVAXIS_INLINE vf select(vu mask, vf a, vf b) { return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(mask.v))}; }
KVAXIS_INLINE vu to_half(vf a) { return {_mm256_cvtepu16_epi32(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT))}; }
KVAXIS_INLINE vu floor_to_half(vf a) { return {_mm256_cvtepu16_epi32(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEG_INF))}; }
KVAXIS_INLINE void store_quads(std::byte* words, std::size_t quad_bytes, int row, int rows, vu a) {
  const __m256i order = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                         0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m256i quads = _mm256_shuffle_epi8(a.v, order);
  std::byte* const at = words + static_cast<std::size_t>(row / 4) * quad_bytes;
  const auto store = [&](int q, __m128i quad) {
    if (row + 4 * q < rows) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at + static_cast<std::size_t>(q) * quad_bytes), quad);
    }
  };
  store(0, _mm256_castsi256_si128(quads));
  store(1, _mm256_extracti128_si256(quads, 1));
}

KVAXIS_INLINE vu exponent_bits(vf a) { return {_mm256_castps_si256(a.v)}; }
KVAXIS_INLINE vf fraction(vf s) { return {_mm256_sub_ps(s.v, _mm256_floor_ps(s.v))}; }
KVAXIS_INLINE vf scale_by_power(vf a, vf s) {
  const __m256i power = _mm256_cvtps_epi32(_mm256_floor_ps(s.v));
  const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(a.v), _mm256_slli_epi32(power, 23));
  return select_above(s, -126.0F, {_mm256_castsi256_ps(scaled)});
}

KVAXIS_INLINE vu round_to_words(vf x) { return {_mm256_cvtps_epi32(x.v)}; }
KVAXIS_INLINE vf words_to_float(vu a) { return {_mm256_cvtepi32_ps(a.v)}; }
KVAXIS_INLINE __m128i add_of_parts(__m256i x) {
  return _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}
KVAXIS_INLINE void sum_four(const vu* a, std::int32_t* out) {
  const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a[0].v, a[1].v), _mm256_unpackhi_epi32(a[0].v, a[1].v));
  const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(a[2].v, a[3].v), _mm256_unpackhi_epi32(a[2].v, a[3].v));
  const __m256i sums = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), add_of_parts(sums));
}
KVAXIS_INLINE void store_bytes(std::int8_t* p, vu a, vu b, vu c, vu d) {
  const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(a.v, b.v), _mm256_packs_epi32(c.v, d.v));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing works on halves
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(mixed, order));
}
KVAXIS_INLINE vu set_word(std::int32_t x) { return {_mm256_set1_epi32(x)}; }
KVAXIS_INLINE vu load_bytes(const std::int8_t* p) {
  std::int32_t word = 0;
  __builtin_memcpy(&word, p, sizeof word);
  return {_mm256_set1_epi32(word)};
}
KVAXIS_INLINE vu low_nibbles(vu a) { return {_mm256_and_si256(a.v, _mm256_set1_epi32(0x0F0F0F0F))}; }
template <int Bits>
KVAXIS_INLINE vu load_plane(const std::uint32_t* plane, int lane) {
  const auto* const stretch = reinterpret_cast<const __m128i*>(plane + lane / 32 * (4 * Bits));
  __m256i words;
  __m256i shifts;
  if constexpr (Bits == 2) {
    words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(stretch));
    shifts = _mm256_set1_epi32(lane % 32 / 8 * 2);
  } else {
    words = _mm256_broadcastsi128_si256(_mm_loadu_si128(stretch));
    shifts = _mm256_add_epi32(_mm256_set1_epi32(lane % 32 / 4), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
  }
  return {_mm256_and_si256(_mm256_srlv_epi32(words, shifts), _mm256_set1_epi32(0x01010101 * ((1 << Bits) - 1)))};
}

constexpr bool sums_in_words = false;
constexpr bool centred_bytes = false;
template <int Bits>
constexpr int quads_to_settle = 32767 / (2 * 127 * ((1 << Bits) - 1));
template <int Bits>
KVAXIS_INLINE vu add_products(vu sums, vu codes, vu weights) {
  return {_mm256_add_epi16(sums.v, _mm256_maddubs_epi16(codes.v, weights.v))};
}
KVAXIS_INLINE vu settle(vu total, vu sums) {
  return {_mm256_add_epi32(total.v, _mm256_madd_epi16(sums.v, _mm256_set1_epi16(1)))};
}

KVAXIS_INLINE vd load_d(const double* p) { return {_mm256_loadu_pd(p)}; }
KVAXIS_INLINE void store_d(double* p, vd a) { _mm256_storeu_pd(p, a.v); }
KVAXIS_INLINE vd mul_d(vd a, vd b) { return {_mm256_mul_pd(a.v, b.v)}; }
KVAXIS_INLINE vd fma_d(vd a, vd b, vd c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
KVAXIS_INLINE vd fnma_d(vd a, vd b, vd c) { return {_mm256_fnmadd_pd(a.v, b.v, c.v)}; }
KVAXIS_INLINE void store_twice(float* p, vd a) {
  const __m128 four = _mm256_cvtpd_ps(a.v);
  _mm_storeu_ps(p, _mm_unpacklo_ps(four, four));
  _mm_storeu_ps(p + 4, _mm_unpackhi_ps(four, four));
}
KVAXIS_INLINE void store_with_opposite(float* p, vd a) {
  const __m128 four = _mm256_cvtpd_ps(a.v);
  const __m128 opposite = _mm_xor_ps(four, _mm_set1_ps(-0.0F));
  _mm_storeu_ps(p, _mm_unpacklo_ps(opposite, four));
  _mm_storeu_ps(p + 4, _mm_unpackhi_ps(opposite, four));
}
KVAXIS_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace avx2
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP
