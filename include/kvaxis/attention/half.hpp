// Binary16 arithmetic, where the CPU has it: scores of hot pairs whose codes have 4 bits, all that is summed of E4M3. Twice as
// many numbers to a register as f32; sums are taken to f32 once per tile.
//
// A hot pair (x, y) of a tile is scaled by a power of two, 2^e <= the larger of its scales < 2^(e + 1), and so is the
// query, that nothing overflows (2^E bounds the query's channels, m is the largest e of the tile):
//
//   q . turn(x, y) = 2^(E + m - 5) (q 2^(5 - E) 2^(e - m)) . turn((x, y) 2^-e)
//
// All factors are exact: what binary16 rounds is the query, the dequantized pair, its turn and the sums, each to 11 bits.
// A pair with an offset beyond 64 such scales would lose its codes in that: it stays in f32.
#pragma once

#include "integer.hpp"

KVAXIS_BEGIN_NAMESPACE

// One tile's hot pairs, made ready for the kernels. A channel of a tile has one scale and offset.
struct half_pairs {
  std::uint32_t* parameters = nullptr;  // [pair] scales, offsets: binary16, of both members
  float* exponents = nullptr;           // [channel] e
  std::uint16_t* queries = nullptr;     // [head][query_stride]
  float* factors = nullptr;             // [head] of the sums
  std::uint32_t* mask = nullptr;        // those that can be summed so
  std::uint32_t* left = nullptr;        // those that cannot
};

// out[head][lane] += the scores of the pairs of p.mask, each turned by the lane's angle.
struct half_request {
  const half_pairs* pairs = nullptr;
  const std::uint32_t* turn = nullptr;  // [pair][lane] cosine and sine, binary16; see half_turn_index
  int count = 0;                        // of these pairs
  float* out = nullptr;
  int out_stride = 0;
  read_ahead next;
};

struct half_kernels {
  using score_fn = void (*)(const block_view&, const half_request&, int first_head) noexcept;
  // Fills parameters, exponents and both masks from the pairs of `hot`; the answer is m, or less than -1000 if no pair is
  // in the mask.
  float (*prepare_pairs)(const block_view&, unit_kind, const std::uint32_t* hot, const half_pairs&) noexcept;
  // Fills queries and factors from [head][query_stride] f32 and the largest magnitude of each head, whatever its rotation.
  void (*prepare_queries)(unit_kind, float m, const float* queries, const float* largest, int heads, int channels,
                          const half_pairs&) noexcept;
  // For 1, 2, 3, 4 and 8 heads.
  std::array<score_fn, 5> scores_u4;
  std::array<score_fn, 5> scores_e4m3;
  // Rows [byte_stride] of folded numbers (see fold_rows) times the inverses of their steps.
  void (*round_rows)(const float* folded, const float* inverse, int rows, int count, std::uint16_t* out) noexcept;
  std::array<integer_kernels::sum_fn, 5> sums_e4m3;  // of integer_request::halves

  [[nodiscard]] const std::array<score_fn, 5>& scores(unit_kind unit) const noexcept {
    return unit == unit_kind::u4 ? scores_u4 : scores_e4m3;
  }
};

namespace detail {

// Null without FP16.
[[nodiscard]] KVAXIS_KERNEL const half_kernels* active_half() noexcept;

}  // namespace detail
KVAXIS_END_NAMESPACE

#if defined(KVAXIS_DEFINE_KERNELS)
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
#include "half.inl"
#endif

KVAXIS_BEGIN_NAMESPACE
namespace detail {

KVAXIS_KERNEL const half_kernels* active_half() noexcept {
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
  if (active_isa() >= isa::avx512_fp16) return &avx512_fp16::half;
#endif
  return nullptr;
}

}  // namespace detail
KVAXIS_END_NAMESPACE
#endif
