// What a caller asks of attention, and what the walk over the tiles needs to know.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "half.hpp"

KVAXIS_BEGIN_NAMESPACE

struct attend_options {
  int query_heads = 0;    // a multiple of kv_heads; 0: as many. Query head i uses kv head i / (query_heads / kv_heads).
  float scale = 0.0F;     // of the logits; 0: head_dim^-1/2
  float soft_cap = 0.0F;  // logits become cap * tanh(logit / cap), before the mask; 0: none
  int max_tasks = 16;     // the most tasks that are handed to parallel_for at once; each has a slice of the workspace
  kvaxis::arithmetic arithmetic = arithmetic::automatic;  // of the sums, see attention/integer.hpp
  // A query sees the keys of this many positions, its own the last; 0: all up to its own.
  std::int64_t sliding_window = 0;
  bool pins_visible = false;           // pinned tokens are seen beyond the sliding window too
  const float* sink_logits = nullptr;  // [query_heads]: e^sink joins the softmax's denominator; without scale or cap
  const std::int64_t* query_positions = nullptr;  // [n_query], any order, instead of first_position + query
};

// Scratch memory of one call, any alignment; see workspace_bytes(). One per concurrent call.
struct workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// One layer of one sequence.
struct sequence_view {
  const tile_format* format = nullptr;  // of new tiles; shape, rotation and tile length are those of all
  const entry* entries = nullptr;
  int entry_count = 0;
  std::array<const tile_format*, max_tiers> tiers{};  // [entry::tier]; null where there is no such tier
};

namespace detail {

// Entries of one partial result. Ranges are walked from scratch and merged in order, whoever walks them, so that the
// bits of a result depend neither on the number of threads nor on the number of queries in a call.
constexpr int range_entries = 64;

struct problem {
  sequence_view sequence;
  const float* q = nullptr;  // [query][query_head][head_dim], natural order
  std::int64_t first_position = 0;
  const std::int64_t* positions = nullptr;  // [query], instead of first_position + query
  int query_heads = 0;
  int group = 0;  // query heads per kv head
  float scale = 1.0F;
  float soft_cap = 0.0F;
  std::int64_t sliding_window = 0;
  bool pins_visible = false;
  const float* sink_logits = nullptr;
  kvaxis::arithmetic arithmetic = arithmetic::automatic;
  const integer_kernels* integer = nullptr;  // null: f32
  const half_kernels* half = nullptr;        // the same
};

// What one walk over the tiles works on: `queries` from `first` on, and of each the groups of some kv heads. A *row* is
// one query head of one query, [kv head][query][head of the group]; each tile is decoded once for all rows of a kv head.
struct query_block {
  int first = 0;
  int queries = 0;
  int head = 0;
  int heads = 1;
};

// Queries of a block lie between multiples of block_queries(), so that all are a small distance from a multiple of
// run_tokens: they are rotated to that position first, and from there to every tile together.
constexpr int max_rows = 64;  // of a kv head
[[nodiscard]] constexpr int block_queries(int group) noexcept {
  int queries = 1;
  while (2 * queries * group <= max_rows && 2 * queries <= run_tokens) queries *= 2;
  return queries;
}
[[nodiscard]] constexpr std::int64_t floor_to_multiple(std::int64_t x, int of) noexcept {
  return x >= 0 ? x / of * of : -((-x + of - 1) / of * of);
}

// The buffers of one task.
struct scratch {
  float* query =
      nullptr;  // [row][query_stride], stored order, scaled, rotated to the block's position; of all kv heads
  float* tile_queries = nullptr;  // of one kv head, as all that follows: rotated to the tile
  float* run_queries[2] = {};     // rotated to this run and to the next one, in turn
  double* angle_cos = nullptr;    // [pairs] of the distance from the queries to the current tile
  double* angle_sin = nullptr;
  float* turn_cos = nullptr;     // [step_entries][key_stride] the same, once per channel
  float* turn_sin = nullptr;     // minus for the first member of a pair
  float* scores = nullptr;       // [row][score_stride]
  float* tile_scores = nullptr;  // [row][score_stride], of a tile of which only a part is asked for
  float* key_scale = nullptr;    // parameters of the current blocks, widened
  float* key_offset = nullptr;
  float* value_scale = nullptr;
  float* value_offset = nullptr;
  float* value_weights = nullptr;    // [segment][row][score_stride], times the scale; see sum_request
  float* value_constants = nullptr;  // [row][segment]
  float* expanded = nullptr;         // decoded rows
  float* hot_rows = nullptr;         // [2 hot pairs][run_tokens], of codes in planes
  float* hot_queries = nullptr;      // [row][query_stride], the channels of hot pairs
  // Of integer sums: parameters of the rows that they cover, and what add_integer_sums makes, [segment][row].
  float* scales = nullptr;
  float* centres = nullptr;
  float* folded = nullptr;       // [byte_stride]
  std::int8_t* bytes = nullptr;  // [byte_stride]
  kvaxis::byte_weights* weights = nullptr;
  float* inverse = nullptr;         // of the step
  bool* coarse = nullptr;           // one byte is not enough
  std::uint16_t* halves = nullptr;  // of E4M3 instead of bytes
  float* largest = nullptr;         // [kv head][row] magnitude of a channel of `query`
  half_pairs pairs;
};

// Entries whose scores are taken together: at most max_tile_tokens tokens in runs.
constexpr int step_entries = max_tile_tokens / run_tokens;

// Softmax state of a block of rows: [row] maxima, [row] totals, [row][sum_stride] sums.
struct softmax_state {
  float* maxima = nullptr;
  float* totals = nullptr;
  float* sums = nullptr;
};

// Sums of latent values are those of the key's stored channels from a multiple of 16 on; here is the first value's.
[[nodiscard]] inline int first_sum(const tile_format& f) noexcept { return f.first_value % 16; }
// Values that were transformed before they were quantized have sums of their own, behind those of the others.
[[nodiscard]] inline int transformed_sums(const tile_format& f) noexcept {
  return round_up(first_sum(f) + f.value_dim, 32);
}
[[nodiscard]] inline int sum_stride(const tile_format& f) noexcept {
  return transformed_sums(f) * (f.value_codec->transformed ? 2 : 1);
}
// The sums of a row, those of transformed values among them: `sums` [sum_stride] is left with them in place.
[[nodiscard]] inline const float* join_sums(const tile_format& f, float* sums) noexcept {
  if (f.value_codec->transformed) {
    float* const transformed = sums + transformed_sums(f);
    hadamard(transformed, f.value_dim);
    for (int c = 0; c < f.value_dim; ++c) sums[c] += transformed[c];
  }
  return sums + first_sum(f);
}
[[nodiscard]] inline std::size_t state_floats(const tile_format& f, int rows) noexcept {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(sum_stride(f) + 2);
}
[[nodiscard]] inline softmax_state place_state(int rows, float* memory) noexcept {
  return {memory, memory + rows, memory + 2 * rows};
}

// The most of each kind that a tile of any tier needs.
struct block_sizes {
  std::size_t key_groups = 0;
  std::size_t value_groups = 0;
  std::size_t segments = 0;
  std::size_t row_numbers = 0;  // of a run, decoded
  std::size_t hot_numbers = 0;  // the same of hot pairs
  std::size_t half_rows = 0;    // of E4M3: 1
  bool half_pairs = false;      // some may be turned in binary16

  explicit block_sizes(const sequence_view& s) noexcept {
    const auto raise = [](std::size_t& size, int to) { size = std::max(size, static_cast<std::size_t>(to)); };
    for (const tile_format* f : s.tiers) {
      if (f == nullptr) continue;
      raise(key_groups, round_up(f->key.groups(), 16));
      raise(value_groups, round_up(f->value.groups(), 16));
      raise(segments, f->value.across || f->is_latent() ? 0 : f->value.groups_per_line());
      raise(row_numbers, run_tokens * std::max(f->key.rows, sum_stride(*f)));
      if (f->pairs > 0 && f->key.bits < 8) raise(hot_numbers, run_tokens * f->key.rows);
      if (f->key_codec->unit == unit_kind::e4m3 || f->value_codec->unit == unit_kind::e4m3) raise(half_rows, 1);
      if (turns_in_halves(*f)) half_pairs = true;
    }
  }
};

inline scratch place_scratch(const sequence_view& sequence, int kv_heads, int rows, arena& a) noexcept {
  const tile_format& f = *sequence.format;
  const block_sizes sizes(sequence);
  const auto heads = static_cast<std::size_t>(rows);
  const auto queries = heads * std::size_t{query_stride};
  const auto stride = static_cast<std::size_t>(f.key_stride);
  const std::size_t segments = sizes.segments;
  const std::size_t byte_rows = heads * std::max(segments, std::size_t{1});
  const std::size_t parameters = std::max(sizes.key_groups, sizes.value_groups);
  scratch s;
  s.query = a.take<float>(static_cast<std::size_t>(kv_heads) * queries);
  s.tile_queries = a.take<float>(queries);
  for (float*& run : s.run_queries) run = a.take<float>(queries);
  s.angle_cos = a.take<double>(static_cast<std::size_t>(round_up(f.pairs, 8)));
  s.angle_sin = a.take<double>(static_cast<std::size_t>(round_up(f.pairs, 8)));
  s.turn_cos = a.take<float>(std::size_t{step_entries} * stride);
  s.turn_sin = a.take<float>(std::size_t{step_entries} * stride);
  s.scores = a.take<float>(heads * std::size_t{score_stride});
  s.tile_scores = a.take<float>(heads * std::size_t{score_stride});
  s.key_scale = a.take<float>(sizes.key_groups);
  s.key_offset = a.take<float>(sizes.key_groups);
  s.value_scale = a.take<float>(sizes.value_groups);
  s.value_offset = a.take<float>(sizes.value_groups);
  s.value_weights = a.take<float>(segments * heads * std::size_t{score_stride});
  s.value_constants = a.take<float>(segments * heads);
  s.expanded = a.take<float>(sizes.row_numbers);
  s.hot_rows = a.take<float>(sizes.hot_numbers);
  s.hot_queries = a.take<float>(sizes.hot_numbers > 0 ? queries + 2 : 0);
  s.scales = a.take<float>(parameters);
  s.centres = a.take<float>(parameters);
  s.folded = a.take<float>(byte_rows * std::size_t{byte_stride});
  s.bytes = a.take<std::int8_t>(byte_rows * std::size_t{byte_stride});
  s.weights = a.take<kvaxis::byte_weights>(byte_rows);
  s.inverse = a.take<float>(byte_rows);
  s.coarse = a.take<bool>(byte_rows);
  s.halves = a.take<std::uint16_t>(sizes.half_rows * byte_rows * std::size_t{byte_stride});
  s.largest = a.take<float>(static_cast<std::size_t>(kv_heads) * heads);
  if (sizes.half_pairs) {
    s.pairs.parameters = a.take<std::uint32_t>(stride);
    s.pairs.exponents = a.take<float>(stride);
    s.pairs.queries = a.take<std::uint16_t>(queries);
    s.pairs.factors = a.take<float>(heads);
    s.pairs.mask = a.take<std::uint32_t>(max_pairs / 32 + 1);
    s.pairs.left = a.take<std::uint32_t>(max_pairs / 32 + 1);
  }
  return s;
}

[[nodiscard]] inline std::size_t scratch_bytes(const sequence_view& s, int kv_heads, int rows) noexcept {
  arena count(nullptr);
  place_scratch(s, kv_heads, rows, count);
  return count.used();
}

[[nodiscard]] inline std::int64_t position_of(const problem& p, int query) noexcept {
  return p.positions == nullptr ? p.first_position + query : p.positions[query];
}

// The positions of a block's queries: lowest and highest.
struct position_range {
  std::int64_t low;
  std::int64_t high;
};
[[nodiscard]] inline position_range positions_of(const problem& p, const query_block& b) noexcept {
  position_range r{position_of(p, b.first), position_of(p, b.first + b.queries - 1)};
  for (int i = 0; p.positions != nullptr && i < b.queries; ++i) {
    const std::int64_t at = p.positions[b.first + i];
    r = {at < r.low ? at : r.low, at > r.high ? at : r.high};
  }
  return r;
}

// The tokens of an entry that at least one of the queries at some positions sees, if they are next to each other: slots
// begin .. end - 1.
struct slot_range {
  int begin;
  int end;
};
[[nodiscard]] inline slot_range visible_slots(const problem& p, const entry& e, position_range queries) noexcept {
  const auto clamped = [&e](std::int64_t slot) {
    const int end = e.begin + e.count;
    return slot < e.begin ? e.begin : slot < end ? static_cast<int>(slot) : end;
  };
  const int end = clamped(queries.high - e.base_position + 1);
  if (p.sliding_window == 0 || (p.pins_visible && e.pinned)) return {e.begin, end};
  const int begin = clamped(queries.low - e.base_position - p.sliding_window + 1);
  return {begin < end ? begin : end, end};
}

}  // namespace detail

KVAXIS_END_NAMESPACE
