// What a caller asks of attention, and what the walk over the tiles needs to know.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.hpp"

KVAXIS_BEGIN_NAMESPACE

struct attend_options {
  int query_heads = 0;    // a multiple of kv_heads; 0: as many. Query head i uses kv head i / (query_heads / kv_heads).
  float scale = 0.0F;     // of the logits; 0: head_dim^-1/2
  float soft_cap = 0.0F;  // logits become cap * tanh(logit / cap), before the mask; 0: none
  int max_tasks = 16;     // the most tasks that are handed to parallel_for at once; each has a slice of the workspace
};

// Scratch memory of one call, any alignment; see workspace_bytes(). One per concurrent call.
struct workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// One layer of one sequence.
struct sequence_view {
  const tile_format* format = nullptr;
  const entry* entries = nullptr;
  int entry_count = 0;
};

namespace detail {

// Entries of one partial result. Ranges are walked from scratch and merged in order, whoever walks them, so that the
// bits of a result depend neither on the number of threads nor on the number of queries in a call.
constexpr int range_entries = 64;

struct problem {
  sequence_view sequence;
  const float* q = nullptr;  // [query][query_head][head_dim], natural order
  std::int64_t first_position = 0;
  int query_heads = 0;
  int group = 0;  // query heads per kv head
  float scale = 1.0F;
  float soft_cap = 0.0F;
};

// The buffers of one task.
struct scratch {
  float* query = nullptr;         // [group][query_stride], stored order, scaled
  float* turned_query = nullptr;  // the same turned by a quarter: (-y, x) for each pair
  float* tile_queries = nullptr;  // rotated to the tile
  float* run_queries = nullptr;   // rotated to the run
  double* angle_cos = nullptr;    // [pairs] of the distance from the query to the current run
  double* angle_sin = nullptr;
  float* turn_cos = nullptr;  // [key_stride] the same, once per channel
  float* turn_sin = nullptr;
  float* scores = nullptr;     // [group][score_stride]
  float* key_scale = nullptr;  // parameters of the current blocks, widened
  float* key_offset = nullptr;
  float* value_scale = nullptr;
  float* value_offset = nullptr;
  float* value_weights = nullptr;    // [segment][group][score_stride], times the scale; see sum_request
  float* value_constants = nullptr;  // [group][segment]
  float* expanded = nullptr;         // decoded rows
};

// Softmax state of a group of query heads: [group] maxima, [group] totals, [group][sum_stride] sums.
struct softmax_state {
  float* maxima = nullptr;
  float* totals = nullptr;
  float* sums = nullptr;
};

[[nodiscard]] inline int sum_stride(const tile_format& f) noexcept { return round_up(f.value_dim, 32); }
[[nodiscard]] inline std::size_t state_floats(const tile_format& f, int group) noexcept {
  return static_cast<std::size_t>(group) * static_cast<std::size_t>(sum_stride(f) + 2);
}
[[nodiscard]] inline softmax_state place_state(int group, float* memory) noexcept {
  return {memory, memory + group, memory + 2 * group};
}

inline scratch place_scratch(const tile_format& f, int group, arena& a) noexcept {
  const auto heads = static_cast<std::size_t>(group);
  const auto queries = heads * std::size_t{query_stride};
  const auto stride = static_cast<std::size_t>(f.key_stride);
  const auto key_groups = static_cast<std::size_t>(round_up(f.key.groups(), 16));
  const auto value_groups = static_cast<std::size_t>(round_up(f.value.groups(), 16));
  const auto segments = static_cast<std::size_t>(f.value.across ? 0 : f.value.groups_per_line());
  const int key_rows = f.key.rows * run_tokens;
  const int value_rows = run_tokens * (f.value.lanes > f.value_stride ? f.value.lanes : f.value_stride);
  scratch s;
  s.query = a.take<float>(queries);
  s.turned_query = a.take<float>(queries);
  s.tile_queries = a.take<float>(queries);
  s.run_queries = a.take<float>(queries);
  s.angle_cos = a.take<double>(static_cast<std::size_t>(round_up(f.pairs, 8)));
  s.angle_sin = a.take<double>(static_cast<std::size_t>(round_up(f.pairs, 8)));
  s.turn_cos = a.take<float>(stride);
  s.turn_sin = a.take<float>(stride);
  s.scores = a.take<float>(heads * std::size_t{score_stride});
  s.key_scale = a.take<float>(key_groups);
  s.key_offset = a.take<float>(key_groups);
  s.value_scale = a.take<float>(value_groups);
  s.value_offset = a.take<float>(value_groups);
  s.value_weights = a.take<float>(segments * heads * std::size_t{score_stride});
  s.value_constants = a.take<float>(segments * heads);
  s.expanded = a.take<float>(static_cast<std::size_t>(key_rows > value_rows ? key_rows : value_rows));
  return s;
}

[[nodiscard]] inline std::size_t scratch_bytes(const tile_format& f, int group) noexcept {
  arena count(nullptr);
  place_scratch(f, group, count);
  return count.used();
}

// The tokens of an entry that a query at `position` sees: slots begin .. end - 1.
struct slot_range {
  int begin;
  int end;
};
[[nodiscard]] inline slot_range visible_slots(const entry& e, std::int64_t position) noexcept {
  const std::int64_t last = position - e.base_position + 1;
  const int end = e.begin + e.count;
  return {e.begin, last < e.begin ? e.begin : last < end ? static_cast<int>(last) : end};
}

}  // namespace detail

KVAXIS_END_NAMESPACE
