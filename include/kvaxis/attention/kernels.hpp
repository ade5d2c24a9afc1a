// The kernels of one block, per unit and instruction set: dequantize - rotate - dot for keys, dequantize - multiply -
// add for values. Written once in key_kernels.inl and value_kernels.inl; this header names what goes in and makes the
// tables of functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../tile/tile.hpp"

// Loops over a few vectors must become straight code, or GCC at -O2 keeps the vectors in memory.
#if defined(__clang__)
#define KVAXIS_UNROLL KVAXIS_PRAGMA(clang loop unroll(full))
#else
#define KVAXIS_UNROLL KVAXIS_PRAGMA(GCC unroll 16)
#endif

KVAXIS_BEGIN_NAMESPACE

// Floats from one head to the next, of queries and of scores or weights: constants, because a kernel has no register to
// spare.
constexpr int query_stride = max_head_dim;
constexpr int score_stride = max_tile_tokens + 16;

// One head's block with its parameters widened to f32 (tile/layout.hpp: along [segment][row], across [row
// group][lane]).
struct block_view {
  const std::uint32_t* words = nullptr;
  const float* scale = nullptr;
  const float* offset = nullptr;
  int rows = 0;
  int lanes = 0;
  int group_length = 0;
  bool across = false;
  const std::uint32_t* further = nullptr;  // further bits of wide pairs
  int wide_extra = 0;
};

// What will be read soon, to be prefetched. A core waits when more lines are on their way than it keeps track of (10 to
// 16), so every stage of the work on one block asks for a part of the next.
struct read_ahead {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;

  // The first `count` bytes, or as many as there are, which then are no longer here.
  read_ahead take(std::size_t count) noexcept {
    const read_ahead taken{data, count < bytes ? count : bytes};
    data += taken.bytes;
    bytes -= taken.bytes;
    return taken;
  }
};

// Adds the scores of one run of tokens. Queries are in stored channel order; pairs of `hot` take the queries rotated to
// the run, the other rows those rotated to the tile. Rows of pairs in `rotate` are turned by the token's offset in its run
// first.
struct score_request {
  const float* run_queries = nullptr;   // [head][query_stride]
  const float* tile_queries = nullptr;  // [head][query_stride]
  const float* cos = nullptr;           // [pair][run_tokens]
  const float* sin = nullptr;
  const std::uint32_t* hot = nullptr;
  const std::uint32_t* rotate = nullptr;
  const std::uint32_t* wide = nullptr;  // of the hot pairs those with further bits
  int first_lane = 0;                   // of the run in the block
  float* out = nullptr;                 // [head][score_stride], the run's tokens
  read_ahead next;
};

// sums[head][lane] += constant[head][segment] + weight[segment][head][row] * unit(row, lane), unit being what a code
// stands for before scale and offset, for the rows first_row .. end_row - 1, multiples of 4. A segment is a group of
// lanes with one scale and offset: the weights come times the scale, the constants are the sums of the weights times
// the offsets. Without constants all lanes are one segment.
struct sum_request {
  const float* weights = nullptr;  // [segment][head][score_stride]
  std::ptrdiff_t segment_stride = 0;
  const float* constants = nullptr;  // [head][segments]
  int segments = 0;
  float* sums = nullptr;  // [head][sum_stride]
  int sum_stride = 0;
  int first_row = 0;
  int end_row = 0;
  read_ahead next;
};

struct unit_kernels {
  // Each takes the heads from `first_head` on. A request is never copied: reading at once what was written piece by
  // piece stalls until all stores before it are done.
  using score_fn = void (*)(const block_view&, const score_request&, int first_head) noexcept;
  using sum_fn = void (*)(const block_view&, const sum_request&, int first_head) noexcept;
  // For 1, 2, 3, 4 and 8 heads, which share one decoding; for blocks with groups along the lanes. Null for units that are
  // decoded to f32 rows first.
  std::array<score_fn, 5> scores;
  std::array<score_fn, 5> hot_scores;  // of hot pairs alone, without prefetch; for codes of 4 and 8 bits and for f32
  std::array<sum_fn, 5> sums;
  // The run's keys as f32 rows [row][run_tokens], rotated where asked.
  void (*expand_keys)(const block_view&, const score_request&, float* out) noexcept;
  // The hot pairs alone, with their further bits and rotated: two rows for each, in the order of the mask.
  void (*expand_hot)(const block_view&, const score_request&, float* out) noexcept;
  // Rows first_row .. end_row - 1 of a run of keys the other way round, f32 [token][stride], multiples of 4.
  void (*transpose_keys)(const block_view&, int first_lane, int first_row, int end_row, int stride,
                         float* out) noexcept;
  // Rows first_row .. end_row - 1 as f32 [row][lanes].
  void (*expand_values)(const block_view&, int first_row, int end_row, float* out) noexcept;
};

KVAXIS_END_NAMESPACE

#define KVAXIS_INL "../attention/units.inl"
#include "../simd/foreach_isa.hpp"
#define KVAXIS_INL "../attention/key_kernels.inl"
#include "../simd/foreach_isa.hpp"
#define KVAXIS_INL "../attention/hot_kernels.inl"
#include "../simd/foreach_isa.hpp"
#define KVAXIS_INL "../attention/value_kernels.inl"
#include "../simd/foreach_isa.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

template <unit_kind U>
inline constexpr std::array<const unit_kernels*, isa_count> kernels_of = KVAXIS_ISA_TABLE(kernels<U>);

template <class Codec>
constexpr const std::array<const unit_kernels*, isa_count>* find_kernels() noexcept {
  if constexpr (is_linear<Codec>) return &kernels_of<unit_of<Codec>>;
  return nullptr;
}

}  // namespace detail

// A codec as the cache uses it: its scalar functions and its kernels.
template <class Codec>
inline constexpr codec_table table_of = detail::describe_codec<Codec>(detail::find_kernels<Codec>());

KVAXIS_END_NAMESPACE
