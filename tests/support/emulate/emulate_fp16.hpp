// What simd/avx512_fp16.hpp uses, in software: binary16 arithmetic in registers of integers, and what else SIMDe lacks.
// Included by kvaxis_emulate.hpp. Products and sums are made in double and rounded once.
#pragma once

namespace kvaxis_emulate {

inline double half_value(std::uint16_t bits) {
  return static_cast<double>(simde_float16_to_float32(simde_uint16_as_float16(bits)));
}
inline std::uint16_t to_half(double x) { return float_to_half<0>(x); }

inline simde__m512i fused_halves(simde__m512i a, simde__m512i b, simde__m512i c) {
  const auto x = lanes<std::uint16_t>(a);
  const auto y = lanes<std::uint16_t>(b);
  auto z = lanes<std::uint16_t>(c);
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = to_half(half_value(x[i]) * half_value(y[i]) + half_value(z[i]));
  return vector<simde__m512i>(z);
}

// Of complex numbers: one product is rounded, the other one is fused with the sum.
inline simde__m512i multiply_complex(simde__m512i a, simde__m512i b) {
  const auto x = lanes<std::uint16_t>(a);
  const auto y = lanes<std::uint16_t>(b);
  auto out = x;
  for (std::size_t i = 0; i < x.size(); i += 2) {
    const double re = half_value(x[i]);
    const double im = half_value(x[i + 1]);
    const double c = half_value(y[i]);
    const double s = half_value(y[i + 1]);
    out[i] = to_half(half_value(to_half(re * c)) - im * s);
    out[i + 1] = to_half(half_value(to_half(im * c)) + re * s);
  }
  return vector<simde__m512i>(out);
}

inline float exponent_of(float x) {
  return x == 0.0F ? -std::numeric_limits<float>::infinity() : static_cast<float>(std::ilogb(x));
}

inline simde__mmask8 not_above(simde__m512i a, simde__m512i b) {
  const auto x = lanes<std::uint64_t>(a);
  const auto y = lanes<std::uint64_t>(b);
  unsigned out = 0;
  for (std::size_t i = 0; i < x.size(); ++i) out |= x[i] <= y[i] ? 1U << i : 0U;
  return static_cast<simde__mmask8>(out);
}

}  // namespace kvaxis_emulate

#undef _mm512_scalef_ps
#undef _mm512_cmple_epu64_mask
#define _mm512_fmadd_ph(a, b, c) kvaxis_emulate::fused_halves(a, b, c)
#define _mm512_fmul_pch(a, b) kvaxis_emulate::multiply_complex(a, b)
#define _mm512_getexp_ps(a) kvaxis_emulate::map<simde__m512, float, float>(a, kvaxis_emulate::exponent_of)
#define _mm512_scalef_ps(a, b) kvaxis_emulate::scale(0xFFFF, a, b)
#define _mm512_cmple_epu64_mask(a, b) kvaxis_emulate::not_above(a, b)
