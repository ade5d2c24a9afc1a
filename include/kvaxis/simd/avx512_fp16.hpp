// The vocabulary of avx512_vnni with FP16: arithmetic of binary16, two numbers to a lane of words: the two members of a
// pair of channels, or two rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vnni.hpp"

KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512_FP16)
KVAXIS_BEGIN_NAMESPACE
namespace avx512_fp16 {

using namespace avx512_vnni;

struct vh {
  __m512i v;
};

KVAXIS_INLINE vh load_halves(const std::uint32_t* two) { return {_mm512_loadu_si512(two)}; }
KVAXIS_INLINE vh set_halves(const std::uint32_t* two) { return {_mm512_set1_epi32(static_cast<int>(*two))}; }
KVAXIS_INLINE vh zero_halves() { return {_mm512_setzero_si512()}; }
// fma: a b + c. turn: pairs (x, y) by angles (cosine, sine), products of complex numbers.
#if defined(KVAXIS_EMULATE)
KVAXIS_INLINE vh fma(vh a, vh b, vh c) { return {_mm512_fmadd_ph(a.v, b.v, c.v)}; }
KVAXIS_INLINE vh turn(vh pairs, vh angles) { return {_mm512_fmul_pch(pairs.v, angles.v)}; }
#else
// Clang 14 has the type and the intrinsics only where the whole translation unit is compiled for FP16.
KVAXIS_INLINE vh fma(vh a, vh b, vh c) {
  __asm__("vfmadd231ph %2, %1, %0" : "+v"(c.v) : "v"(a.v), "v"(b.v));
  return c;
}
KVAXIS_INLINE vh turn(vh pairs, vh angles) {
  vh turned;
  __asm__("vfmulcph %2, %1, %0"
          : "=&v"(turned.v)
          : "v"(pairs.v), "v"(angles.v));  // the target must be another register
  return turned;
}
#endif
// The sum of both numbers of a lane, as f32.
KVAXIS_INLINE vf sum_lanes(vh a) {
  vf x;
  vf y;
  half_pair({a.v}, x, y);
  return add(x, y);
}
// Rounded to binary16.
KVAXIS_INLINE void store_halves(std::uint16_t* p, vf a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
// Of eight pairs of channels two words in turn, the members' scales and their offsets.
KVAXIS_INLINE void store_parameters(std::uint32_t* p, vf scales, vf offsets) {
  const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i s = _mm512_castsi256_si512(_mm512_cvtps_ph(scales.v, _MM_FROUND_TO_NEAREST_INT));
  const __m512i o = _mm512_castsi256_si512(_mm512_cvtps_ph(offsets.v, _MM_FROUND_TO_NEAREST_INT));
  _mm512_storeu_si512(p, _mm512_permutex2var_epi32(s, order, o));
}

// Bytes 2 Half and 2 Half + 1 of every word, as the low (or high) bytes of two numbers.
template <bool High>
KVAXIS_INLINE vu spread_pair(const std::uint32_t* words, int half) {
  constexpr char z = -1;
  alignas(16) static constexpr char orders[2][16] = {{0, z, 1, z, 4, z, 5, z, 8, z, 9, z, 12, z, 13, z},
                                                     {2, z, 3, z, 6, z, 7, z, 10, z, 11, z, 14, z, 15, z}};
  alignas(16) static constexpr char high_orders[2][16] = {{z, 0, z, 1, z, 4, z, 5, z, 8, z, 9, z, 12, z, 13},
                                                          {z, 2, z, 3, z, 6, z, 7, z, 10, z, 11, z, 14, z, 15}};
  const char* const order = High ? high_orders[half] : orders[half];
  return {_mm512_shuffle_epi8(_mm512_loadu_si512(words),
                              _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(order))))};
}
// Low or high nibbles of bytes that were spread low, times 2^-20: subnormal numbers, which cost nothing here and which no mode of the CPU takes for zero.
template <bool High>
KVAXIS_INLINE vh nibbles_to_halves(vu spread) {
  const __m512i bits = High ? spread.v : _mm512_slli_epi16(spread.v, 4);
  return {_mm512_and_si512(bits, _mm512_set1_epi16(0x00F0))};
}
// E4M3 codes that were spread high, times 2^-8.
KVAXIS_INLINE vh e4m3_to_halves(vu spread) {
  return {_mm512_and_si512(_mm512_srai_epi16(spread.v, 1), _mm512_set1_epi16(static_cast<short>(0xBFFF)))};
}

// floor(log2 |a|), and a 2^b for whole b: exact.
KVAXIS_INLINE vf exponent(vf a) { return {_mm512_getexp_ps(a.v)}; }
KVAXIS_INLINE vf times_power(vf a, vf b) { return {_mm512_scalef_ps(a.v, b.v)}; }
KVAXIS_INLINE vf larger_of_pair(vf a) { return {_mm512_max_ps(a.v, _mm512_permute_ps(a.v, 0xB1))}; }
// A bit for each of the eight pairs whose members are alike, not negative and at most `most`.
KVAXIS_INLINE std::uint32_t pairs_up_to(vf a, float most) {
  const __m512i limit = _mm512_castps_si512(_mm512_set1_ps(most));
  return _mm512_cmple_epu64_mask(_mm512_castps_si512(a.v), limit);
}
// a in the pairs of the mask, b in the others.
KVAXIS_INLINE vf select_pairs(std::uint32_t pairs, vf a, vf b) {
  const __m512i mixed =
      _mm512_mask_mov_epi64(_mm512_castps_si512(b.v), static_cast<unsigned char>(pairs), _mm512_castps_si512(a.v));
  return {_mm512_castsi512_ps(mixed)};
}
KVAXIS_INLINE float first_lane(vf a) { return _mm_cvtss_f32(_mm512_castps512_ps128(a.v)); }

}  // namespace avx512_fp16
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP
