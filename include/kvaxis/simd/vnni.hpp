// The vocabularies of avx2.hpp and avx512.hpp with VNNI, which sums the four products of a lane's bytes in one step.
#pragma once

#include "avx2.hpp"
#include "avx512.hpp"

// GCC 12 copies every accumulator of its built-in function, twice as many instructions as the sums themselves.
#if defined(__GNUC__) && !defined(__clang__) && !defined(KVAXIS_EMULATE)
#define KVAXIS_COPIES_SUMS
#endif

KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX2_VNNI)
KVAXIS_BEGIN_NAMESPACE
namespace avx2_vnni {

using namespace avx2;  // what is named below hides its own

constexpr bool sums_in_words = true;
template <int Bits>
KVAXIS_INLINE vu add_products(vu sums, vu codes, vu weights) {
#if defined(KVAXIS_COPIES_SUMS)
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums.v) : "x"(codes.v), "x"(weights.v));
  return sums;
#else
  return {_mm256_dpbusd_avx_epi32(sums.v, codes.v, weights.v)};
#endif
}

}  // namespace avx2_vnni
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP

KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512_VNNI)
KVAXIS_BEGIN_NAMESPACE
namespace avx512_vnni {

using namespace avx512;

constexpr bool sums_in_words = true;
template <int Bits>
KVAXIS_INLINE vu add_products(vu sums, vu codes, vu weights) {
#if defined(KVAXIS_COPIES_SUMS)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums.v) : "v"(codes.v), "v"(weights.v));
  return sums;
#else
  return {_mm512_dpbusd_epi32(sums.v, codes.v, weights.v)};
#endif
}

}  // namespace avx512_vnni
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP
