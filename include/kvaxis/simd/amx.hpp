// The vocabulary of avx512_vnni with AMX-INT8: products of matrices of bytes in eight registers of up to 16 rows of 64
// bytes. Intel calls these tiles, another thing in this library; here they are tmm. They exist from configure_tmm() to
// release_tmm(): a thread that kept them would pay for 8 KB at every switch.
#pragma once

#include <cstdint>

#include "vnni.hpp"

KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512_AMX)
KVAXIS_BEGIN_NAMESPACE
namespace avx512_amx {

using namespace avx512_vnni;

// As the processor reads it.
struct alignas(64) tmm_shapes {
  std::uint8_t palette;
  std::uint8_t start_row;
  std::uint8_t reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};

// In memory, rows of a tmm are `stride` bytes apart. multiply_tmm:
//   sums[m][n] += signed[m][4 k + i] unsigned[k][4 n + i], summed over k and the bytes i of a word; n counts words.
#if defined(KVAXIS_EMULATE)
KVAXIS_INLINE void configure_tmm(const tmm_shapes& shapes) { _tile_loadconfig(&shapes); }
KVAXIS_INLINE void release_tmm() { _tile_release(); }
template <int Tmm>
KVAXIS_INLINE void clear_tmm() {
  _tile_zero(Tmm);
}
template <int Tmm>
KVAXIS_INLINE void load_tmm(const void* rows, std::int64_t stride) {
  _tile_loadd(Tmm, rows, stride);
}
template <int Tmm>
KVAXIS_INLINE void store_tmm(void* rows, std::int64_t stride) {
  _tile_stored(Tmm, rows, stride);
}
template <int Sums, int Signed, int Unsigned>
KVAXIS_INLINE void multiply_tmm() {
  _tile_dpbsud(Sums, Signed, Unsigned);
}
#else
// The intrinsics of GCC 12 take no number but a literal, and do not tell the compiler which memory they read.
KVAXIS_INLINE void configure_tmm(const tmm_shapes& shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); }
KVAXIS_INLINE void release_tmm() { __asm__ volatile("tilerelease"); }
template <int Tmm>
KVAXIS_INLINE void clear_tmm() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(Tmm));
}
template <int Tmm>
KVAXIS_INLINE void load_tmm(const void* rows, std::int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(Tmm) : "memory");
}
template <int Tmm>
KVAXIS_INLINE void store_tmm(void* rows, std::int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1)" : : "r"(rows), "r"(stride), "i"(Tmm) : "memory");
}
template <int Sums, int Signed, int Unsigned>
KVAXIS_INLINE void multiply_tmm() {
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Signed), "i"(Unsigned));
}
#endif

}  // namespace avx512_amx
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP
