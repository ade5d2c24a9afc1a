// The vocabulary of neon.hpp with DotProd, which sums the four products of a lane's bytes in one step.
#pragma once

#include "neon.hpp"

#if defined(__aarch64__)
KVAXIS_TARGET_PUSH(KVAXIS_TARGET_NEON_DOT)
KVAXIS_BEGIN_NAMESPACE
namespace neon_dot {

using namespace neon;  // what is named below hides its own

template <int Bits>
KVAXIS_INLINE vu add_products(vu sums, vu codes, vu weights) {
  // Clang 14 declares the intrinsic only where the flags of the whole translation unit have it.
  const vu c = signed_codes<Bits>(codes);
  __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sums.v) : "w"(c.v), "w"(weights.v));
  return sums;
}

}  // namespace neon_dot
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP
#endif
