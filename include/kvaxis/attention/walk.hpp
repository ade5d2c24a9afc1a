// The walk over a range of entries, per instruction set: scores, softmax state and weighted sums of a block of query
// heads that share one kv head. walk.inl is the code; this header gives it a table.
#pragma once

#include <array>

#include "kernels.hpp"
#include "options.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

struct walk_table {
  // The softmax state of a block of queries over the entries first .. end - 1, into `out`.
  void (*attend_range)(const problem&, const query_block&, int first, int end, const scratch&,
                       const softmax_state& out) noexcept;
  // into = into merged with `part`, which covers later entries.
  void (*merge)(const tile_format&, int rows, const softmax_state& part, const softmax_state& into) noexcept;
  // Logits [group][stride] of one query to all entries, the sequence's tokens in order; -infinity where masked.
  void (*score_all)(const problem&, const query_block&, const scratch&, float* out, std::ptrdiff_t stride) noexcept;
  // sums [group][sum_stride] = weights [group][stride] times the values.
  void (*sum_all)(const problem&, int head, const scratch&, const float* weights, std::ptrdiff_t stride,
                  float* sums) noexcept;
};

[[nodiscard]] KVAXIS_KERNEL const walk_table& active_walk() noexcept;

}  // namespace detail
KVAXIS_END_NAMESPACE

#if defined(KVAXIS_DEFINE_KERNELS)
#define KVAXIS_INL "../attention/softmax.inl"
#include "../simd/foreach_isa.hpp"
#define KVAXIS_INL "../attention/queries.inl"
#include "../simd/foreach_isa.hpp"
#define KVAXIS_INL "../attention/weights.inl"
#include "../simd/foreach_isa.hpp"
#define KVAXIS_INL "../attention/scores.inl"
#include "../simd/foreach_isa.hpp"
#define KVAXIS_INL "../attention/latent.inl"
#include "../simd/foreach_isa.hpp"
#define KVAXIS_INL "../attention/walk.inl"
#include "../simd/foreach_isa.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

KVAXIS_KERNEL const walk_table& active_walk() noexcept {
  static constexpr std::array<const walk_table*, isa_count> tables = KVAXIS_ISA_TABLE(walk);
  return *tables[static_cast<std::size_t>(active_isa())];
}

}  // namespace detail
KVAXIS_END_NAMESPACE
#endif
