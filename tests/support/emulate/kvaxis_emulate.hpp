// The intrinsics of x86 in software, for a CPU that lacks them: SIMDe under the intrinsics' own names, and what
// SIMDe 0.7.4 lacks or rounds otherwise than the hardware. The build passes this header's name as KVAXIS_EMULATE.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#pragma GCC diagnostic pop

#if defined(__AVX__) || defined(__FMA__)
#error "the emulated build is for a compiler that was not told to use AVX"
#endif

#include <array>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "emulate_amx.hpp"

namespace kvaxis_emulate {

// A register as an array of its lanes, and back.
template <class T, class V>
auto lanes(V v) {
  std::array<T, sizeof(V) / sizeof(T)> out;
  std::memcpy(out.data(), &v, sizeof v);
  return out;
}
template <class V, class Array>
V vector(const Array& in) {
  V out;
  static_assert(sizeof out == sizeof in);
  std::memcpy(&out, in.data(), sizeof out);
  return out;
}

// R's lanes (type To) from V's (type From), by f.
template <class R, class To, class From, class V, class F>
R map(V v, F f) {
  const auto from = lanes<From>(v);
  std::array<To, sizeof(R) / sizeof(To)> to;
  static_assert(from.size() == to.size());
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = f(from[i]);
  return vector<R>(to);
}

// SIMDe multiplies and adds; the hardware rounds once.
template <class T, class V>
V fused(V a, V b, V c, T sign = T{1}) {
  const auto x = lanes<T>(a);
  const auto y = lanes<T>(b);
  auto z = lanes<T>(c);
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = std::fma(sign * x[i], y[i], z[i]);
  return vector<V>(z);
}

template <class V>
V fused_subtract_add(V a, V b, V c) {
  auto z = lanes<float>(c);
  for (std::size_t i = 0; i < z.size(); i += 2) z[i] = -z[i];
  return fused<float>(a, b, vector<V>(z));
}

// The compiler's tree: upper halves are combined with lower ones until one lane is left.
template <class T, class V, class F>
T reduce(V v, F f) {
  auto x = lanes<T>(v);
  for (std::size_t half = x.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) x[i] = f(x[i + half], x[i]);
  }
  return x[0];
}

inline simde__m512 permute(simde__m512 v, unsigned control) {
  const auto from = lanes<float>(v);
  auto to = from;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i / 4 * 4 + (control >> i % 4 * 2 & 3U)];
  return vector<simde__m512>(to);
}

inline simde__m512 half_to_float(simde__m256i v) {
  return map<simde__m512, float, std::uint16_t>(
      v, [](std::uint16_t bits) { return simde_float16_to_float32(simde_uint16_as_float16(bits)); });
}

// Binary16, rounded to nearest even or down; not for NaN.
template <int Rounding>
std::uint16_t float_to_half(double x) {
  const unsigned sign = std::signbit(x) ? 0x8000U : 0U;
  const double magnitude = std::fabs(x);
  if (magnitude >= 65536.0) return static_cast<std::uint16_t>(sign | 0x7C00U);
  const int exponent = magnitude < 0x1p-14 ? -24 : std::ilogb(magnitude) - 10;  // of the last bit
  const double steps = std::ldexp(magnitude, -exponent);
  const bool down = (Rounding & 3) == _MM_FROUND_TO_NEG_INF;
  const double rounded = !down ? std::nearbyint(steps) : sign != 0 ? std::ceil(steps) : std::floor(steps);
  return static_cast<std::uint16_t>(sign |
                                    (static_cast<unsigned>(exponent + 24) * 1024U + static_cast<unsigned>(rounded)));
}

// x - floor(x), rounded down as well.
template <int Control>
float fraction(float x) {
  static_assert(Control == _MM_FROUND_TO_NEG_INF);
  const double exact = static_cast<double>(x) - std::floor(static_cast<double>(x));  // or 1, of a small negative x
  const auto nearest = static_cast<float>(exact);
  return static_cast<double>(nearest) > exact || nearest == 1.0F ? std::nextafter(nearest, 0.0F) : nearest;
}

// a * 2^floor(b) in the lanes of the mask, 0 in the others. SIMDe takes a subnormal b for 0.
inline simde__m512 scale(simde__mmask16 mask, simde__m512 a, simde__m512 b) {
  auto x = lanes<float>(a);
  const auto y = lanes<float>(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (mask >> i & 1U) != 0 ? std::ldexp(x[i], static_cast<int>(std::floor(y[i]))) : 0.0F;
  }
  return vector<simde__m512>(x);
}

// To the nearest, ties to even, as the default rounding mode says; what does not fit becomes INT_MIN.
inline std::int32_t to_integer(float x) {
  return x >= -2147483648.0F && x < 2147483648.0F ? static_cast<std::int32_t>(std::nearbyint(x)) : INT_MIN;
}

// The lanes in which a and b have no bit in common.
inline simde__mmask16 disjoint(simde__m512i a, simde__m512i b) {
  const auto x = lanes<std::uint32_t>(a);
  const auto y = lanes<std::uint32_t>(b);
  unsigned out = 0;
  for (std::size_t i = 0; i < x.size(); ++i) out |= (x[i] & y[i]) == 0 ? 1U << i : 0U;
  return static_cast<simde__mmask16>(out);
}

// Products of a word's 16-bit halves, summed.
template <class V>
V multiply_halves(V a, V b) {
  const auto x = lanes<std::int16_t>(a);
  const auto y = lanes<std::int16_t>(b);
  std::array<std::int32_t, sizeof(V) / 4> out{};
  for (std::size_t i = 0; i < x.size(); ++i) out[i / 2] += x[i] * y[i];
  return vector<V>(out);
}

// Products of a word's bytes, unsigned times signed, added to a sum.
template <class V>
V multiply_bytes(V sums, V a, V b) {
  const auto x = lanes<std::uint8_t>(a);
  const auto y = lanes<std::int8_t>(b);
  auto out = lanes<std::int32_t>(sums);
  for (std::size_t i = 0; i < x.size(); ++i) out[i / 4] += x[i] * y[i];
  return vector<V>(out);
}

}  // namespace kvaxis_emulate

#undef _mm256_fmaddsub_ps
#undef _mm256_fmadd_ps
#undef _mm256_fnmadd_ps
#undef _mm256_fmadd_pd
#undef _mm256_fnmadd_pd
#undef _mm512_fmadd_ps
#undef _mm512_fnmadd_ps
#undef _mm512_fmadd_pd
#undef _mm512_fnmadd_pd
#define _mm256_fmaddsub_ps(a, b, c) kvaxis_emulate::fused_subtract_add(a, b, c)
#define _mm512_fmaddsub_ps(a, b, c) kvaxis_emulate::fused_subtract_add(a, b, c)
#define _mm256_fmadd_ps(a, b, c) kvaxis_emulate::fused<float>(a, b, c)
#define _mm256_fnmadd_ps(a, b, c) kvaxis_emulate::fused<float>(a, b, c, -1.0F)
#define _mm256_fmadd_pd(a, b, c) kvaxis_emulate::fused<double>(a, b, c)
#define _mm256_fnmadd_pd(a, b, c) kvaxis_emulate::fused<double>(a, b, c, -1.0)
#define _mm512_fmadd_ps(a, b, c) kvaxis_emulate::fused<float>(a, b, c)
#define _mm512_fnmadd_ps(a, b, c) kvaxis_emulate::fused<float>(a, b, c, -1.0F)
#define _mm512_fmadd_pd(a, b, c) kvaxis_emulate::fused<double>(a, b, c)
#define _mm512_fnmadd_pd(a, b, c) kvaxis_emulate::fused<double>(a, b, c, -1.0)

#undef _mm256_cvtps_epi32
#define _mm256_cvtps_epi32(a) kvaxis_emulate::map<simde__m256i, std::int32_t, float>(a, kvaxis_emulate::to_integer)
#define _mm512_cvtps_epi32(a) kvaxis_emulate::map<simde__m512i, std::int32_t, float>(a, kvaxis_emulate::to_integer)
#define _mm512_cvtepi32_ps(a) \
  kvaxis_emulate::map<simde__m512, float, std::int32_t>(a, [](std::int32_t x) { return static_cast<float>(x); })
#define _mm512_cvtepi32_epi16(a)                                   \
  kvaxis_emulate::map<simde__m256i, std::uint16_t, std::uint32_t>( \
      a, [](std::uint32_t x) { return static_cast<std::uint16_t>(x); })
#define _mm512_cvtepu16_epi32(a) \
  kvaxis_emulate::map<simde__m512i, std::uint32_t, std::uint16_t>(a, [](std::uint16_t x) { return std::uint32_t{x}; })
#define _mm512_cvtpd_ps(a) \
  kvaxis_emulate::map<simde__m256, float, double>(a, [](double x) { return static_cast<float>(x); })
#define _mm512_cvtps_pd(a) \
  kvaxis_emulate::map<simde__m512d, double, float>(a, [](float x) { return static_cast<double>(x); })
#define _mm512_extractf32x8_ps(a, i) simde_mm256_castpd_ps(simde_mm512_extractf64x4_pd(simde_mm512_castps_pd(a), i))
#define _mm512_broadcast_i32x8(a) simde_mm512_inserti64x4(simde_mm512_castsi256_si512(a), a, 1)
#undef _mm256_cvtps_ph
#undef _mm512_maskz_scalef_ps
#define _mm256_cvtps_ph(a, mode) \
  kvaxis_emulate::map<simde__m128i, std::uint16_t, float>(a, kvaxis_emulate::float_to_half<mode>)
#define _mm512_cvtps_ph(a, mode) \
  kvaxis_emulate::map<simde__m256i, std::uint16_t, float>(a, kvaxis_emulate::float_to_half<mode>)
#define _mm512_cvtph_ps(a) kvaxis_emulate::half_to_float(a)
#define _mm512_reduce_ps(a, control) \
  kvaxis_emulate::map<simde__m512, float, float>(a, kvaxis_emulate::fraction<control>)
#define _mm512_maskz_scalef_ps(mask, a, b) kvaxis_emulate::scale(mask, a, b)
#define _mm512_permute_ps(a, control) kvaxis_emulate::permute(a, control)
#define _mm512_reduce_add_ps(a) kvaxis_emulate::reduce<float>(a, [](float x, float y) { return x + y; })
#define _mm512_reduce_max_ps(a) kvaxis_emulate::reduce<float>(a, [](float x, float y) { return x > y ? x : y; })
#define _mm512_reduce_min_ps(a) kvaxis_emulate::reduce<float>(a, [](float x, float y) { return x < y ? x : y; })

#undef _mm512_madd_epi16
#undef _mm512_dpbusd_epi32
#define _mm512_testn_epi32_mask(a, b) kvaxis_emulate::disjoint(a, b)
#define _mm512_madd_epi16(a, b) kvaxis_emulate::multiply_halves(a, b)
#define _mm256_dpbusd_avx_epi32(sums, a, b) kvaxis_emulate::multiply_bytes(sums, a, b)
#define _mm512_dpbusd_epi32(sums, a, b) kvaxis_emulate::multiply_bytes(sums, a, b)

#include "emulate_fp16.hpp"
