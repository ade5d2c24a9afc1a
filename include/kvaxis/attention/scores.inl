// Scores of one entry: the queries rotated to its tile and runs, then the kernels for a folded tile or the row kernel
// for a full-precision one. Included once per instruction set by walk.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// --- Views of blocks -----------------------------------------------------------------------------------------------

inline void widen(const std::byte* from, int count, float* out) noexcept {
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
  int i = 0;
  for (; i + lanes <= count; i += lanes) store(out + i, load_float16(halves + i));
  for (; i < count; ++i) out[i] = to_float(float16{halves[i]});
}

// The block with its parameters as f32.
inline block_view view_block(const block_layout& b, const codec_table& codec, given_scale given, const std::byte* block,
                             float* scale, float* offset) noexcept {
  block_view v{reinterpret_cast<const std::uint32_t*>(block), scale, offset, b.rows, b.lanes, b.group_length, b.across};
  v.further = reinterpret_cast<const std::uint32_t*>(block + b.plane_bytes);
  v.wide_extra = b.wide_extra;
  const int groups = b.groups();
  for (int i = groups; i < detail::round_up(groups, 16); ++i) scale[i] = offset[i] = 0.0F;
  if (b.members == 0) {
    if (codec.members == 0) {  // an identity codec: no parameters
      v.scale = v.offset = nullptr;
      return v;
    }
    for (int i = 0; i < groups; ++i) {
      scale[i] = given.scale;
      offset[i] = given.offset;
    }
    return v;
  }
  const std::byte* parameters = block + b.codes_bytes;
  const std::ptrdiff_t member = static_cast<std::ptrdiff_t>(groups) * b.member_bytes;
  if (b.member_bytes == 2) {
    widen(parameters, groups, scale);
    if (b.members == 2) widen(parameters + member, groups, offset);
  } else {
    std::memcpy(scale, parameters, static_cast<std::size_t>(member));
    if (b.members == 2) std::memcpy(offset, parameters + member, static_cast<std::size_t>(member));
  }
  if (b.members == 1) {
    for (int i = 0; i < groups; ++i) offset[i] = codec.offset_factor * scale[i];
  }
  return v;
}

// f32 rows as a block: four rows of a quad follow one another.
inline block_view view_rows(const float* rows, int count, int row_lanes) noexcept {
  return {reinterpret_cast<const std::uint32_t*>(rows), nullptr, nullptr, count, row_lanes, row_lanes, false};
}

// --- Scores --------------------------------------------------------------------------------------------------------

// A mask without a pair.
inline constexpr std::uint32_t nothing[max_pairs / 32 + 1] = {};

// Hot pairs by rows of f32: those of the run decoded and rotated, the queries with their channels alone.
inline void score_hot_rows(const unit_kernels& linear, const block_view& b, const score_request& run, int hot_pairs,
                           int rows, const scratch& s) noexcept {
  const int channels = detail::round_up(2 * hot_pairs, 4);
  linear.expand_hot(b, run, s.hot_rows);
  for (int i = 2 * hot_pairs * run_tokens; i < channels * run_tokens; i += lanes) store(s.hot_rows + i, zero());
  for (int row = 0; row < rows; ++row) {
    const float* const from = run.run_queries + row * query_stride;
    float* to = s.hot_queries + row * query_stride;
    for (pair_walk at(run.hot, b.rows); at.more(); at.next(), to += 2) {
      std::memcpy(to, from + 2 * at.pair(), 2 * sizeof(float));
    }
    to[0] = to[1] = 0.0F;
  }
  score_request r = run;
  r.first_lane = 0;
  r.hot = r.rotate = nothing;
  r.run_queries = r.tile_queries = s.hot_queries;
  run_batches(kernels<unit_kind::f32>.scores, view_rows(s.hot_rows, channels, run_tokens), r, rows);
}

// All rows of the run as f32, rotated where the request says so if the codec is linear.
inline void expand_run(const tile& t, int head, const unit_kernels* linear, const block_view& b,
                       const score_request& run, const scratch& s) noexcept {
  const tile_format& f = *t.format;
  if (linear == nullptr) {
    for (int row = 0; row < f.key.rows; ++row) {
      float* to = s.expanded + row * run_tokens;
      f.key_codec->decode_row(f.key, f.key_given[head], t.key_block(head), row, run.first_lane, run_tokens, to);
    }
    return;
  }
  linear->expand_keys(b, run, s.expanded);
  if (b.wide_extra == 0) return;
  linear->expand_hot(b, run, s.hot_rows);
  const float* from = s.hot_rows;
  for (pair_walk at(run.hot, b.rows); at.more(); at.next(), from += 2 * run_tokens) {
    std::memcpy(s.expanded + 2 * at.pair() * run_tokens, from, 2 * run_tokens * sizeof(float));
  }
}

// Scores of the run that starts at r.first_lane of a folded key block; `hot_pairs`: of these alone, if there are any.
// Many rows take keys that were decoded once.
inline void score_run(const tile& t, int head, const block_view& b, const score_request& run, int hot_pairs, int rows,
                      const scratch& s) noexcept {
  const tile_format& f = *t.format;
  const bool hot = hot_pairs > 0;
  const auto* linear =
      f.key_codec->kernels == nullptr ? nullptr : (*f.key_codec->kernels)[static_cast<std::size_t>(this_isa)];
  const bool fused = linear != nullptr && !b.across && b.wide_extra == 0 && linear->scores[0] != nullptr;
  if (fused && rows <= 8) return run_batches(hot ? linear->hot_scores : linear->scores, b, run, rows);
  if (hot && !fused) return score_hot_rows(*linear, b, run, hot_pairs, rows, s);
  score_request r = run;
  r.first_lane = 0;
  expand_run(t, head, linear, b, run, s);
  if (linear != nullptr) r.rotate = nothing;
  const unit_kernels& rows_of_f32 = kernels<unit_kind::f32>;
  run_batches(hot ? rows_of_f32.hot_scores : rows_of_f32.scores, view_rows(s.expanded, f.key.rows, run_tokens), r,
              rows);
}

// One full-precision key row, rotated by its offset in the run, against the queries rotated to the run.
template <int H>
KVAXIS_INLINE void score_row(const float* row, const float* queries, int channels, float* out) {
  vf total[H];
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) total[h] = zero();
  for (int c = 0; c < channels; c += lanes) {
    const vf k = load(row + c);
    KVAXIS_UNROLL
    for (int h = 0; h < H; ++h) total[h] = muladd(k, load(queries + h * query_stride + c), total[h]);
  }
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) out[h * score_stride] = sum(total[h]);
}

// A row of a full-precision tile as f32: itself, or widened into `buffer`.
KVAXIS_INLINE const float* as_floats(const float* row, int, float*) { return row; }
KVAXIS_INLINE const float* as_floats(const float16* row, int count, float* buffer) {
  for (int c = 0; c < count; c += lanes) store(buffer + c, load_float16(&row[c].bits));
  return buffer;
}

template <class Row>
inline void score_rows(const tile& t, int head, int first, int end, const float* queries, int rows, const scratch& s,
                       float* scores) noexcept {
  const tile_format& f = *t.format;
  float* buffer = s.expanded;
  float* turned = s.expanded + f.key_stride;
  for (int token = first; token < end; ++token) {
    const float* row = as_floats(t.key_row<Row>(head, token), f.key_stride, buffer);
    if (f.pairs > 0) {
      const int at = token % run_tokens * f.key_stride;
      turn_rows(f.row_cos + at, f.row_sin + at, f.key_stride, row, 1, turned);
      row = turned;
    }
    for (int h = 0; h < rows; h += 4) {
      const float* q = queries + h * query_stride;
      float* out = scores + h * score_stride + token;
      switch (rows - h) {
        case 1: score_row<1>(row, q, f.key_stride, out); break;
        case 2: score_row<2>(row, q, f.key_stride, out); break;
        case 3: score_row<3>(row, q, f.key_stride, out); break;
        default: score_row<4>(row, q, f.key_stride, out); break;
      }
    }
  }
}

// Where the scores of an entry's slots lie: whole runs, those of several entries side by side in the rows of s.scores.
struct score_span {
  int first;     // slot, of the first visible one's run
  int end;       // slot, of the last run's end
  float* slots;  // [row][score_stride] by slot

  score_span(detail::slot_range visible, float* scores, int used) noexcept
      : first(visible.begin / run_tokens * run_tokens),
        end(detail::round_up(visible.end, run_tokens)),
        slots(scores + (used - first)) {}
  [[nodiscard]] int length() const noexcept { return end - first; }
};

// Blocks of an entry as if it were folded; nobody looks whether it is, for that would wait for memory.
inline read_ahead keys_of(const sequence_view& q, int entry, int head) noexcept {
  const tile_format& f = *q.tiers[q.entries[entry].tier];
  const std::byte* const tile = q.entries[entry].tile->data();
  return {tile + f.head_offset + static_cast<std::size_t>(head) * f.head_bytes, f.key.bytes};
}
inline read_ahead values_of(const sequence_view& q, int entry, int head) noexcept {
  return {keys_of(q, entry, head).data + q.tiers[q.entries[entry].tier]->key.bytes,
          q.tiers[q.entries[entry].tier]->value.bytes};
}

inline int count_pairs(const std::uint32_t* mask, int rows) noexcept {
  int count = 0;
  for (int first = 0; first < rows / 2; first += 32) count += __builtin_popcount(mask[first / 32]);
  return count;
}

// How the rows of a key block are summed.
struct key_plan {
  bool rounded = false;                 // pairs that are stored rotated: with rounded queries, else all rows in f32
  bool halves = false;                  // hot pairs, but for `left`: in binary16
  float top = 0.0F;                     // see half_kernels
  const std::uint32_t* left = nullptr;  // hot pairs that go to the kernels of f32
  int left_pairs = 0;
  int hot_pairs = 0;
};

inline key_plan plan_keys(const problem& p, const tile_format& f, const block_view& keys, const std::uint32_t* hot,
                          const scratch& s) noexcept {
  key_plan plan;
  plan.left = hot;
  plan.left_pairs = plan.hot_pairs = count_pairs(hot, keys.rows);
  if (!has_rounded_sums(p, keys, f.key_codec->unit)) return plan;
  if (p.half != nullptr && detail::turns_in_halves(f) && plan.hot_pairs > 0) {
    plan.top = p.half->prepare_pairs(keys, f.key_codec->unit, hot, s.pairs);
    plan.left = s.pairs.left;
    plan.left_pairs = count_pairs(plan.left, keys.rows);
    plan.halves = plan.left_pairs < plan.hot_pairs;
  }
  // Two passes do not pay where nearly all pairs go to the second, for which E4M3 has no kernel.
  plan.rounded = f.key_codec->unit == unit_kind::e4m3 ? plan.left_pairs == 0 : 8 * plan.left_pairs <= 3 * keys.rows;
  return plan;
}

// Such sums are those of all tokens of a tile; where the span is only a part of it, they go through a buffer.
inline void score_rounded(const problem& p, const tile_format& f, const block_view& keys, const key_plan& plan,
                          const std::uint32_t* hot, const float* largest, const score_span& span, int rows,
                          read_ahead next, const scratch& s) noexcept {
  const unit_kind unit = f.key_codec->unit;
  const bool whole = span.first == 0 && span.end == keys.lanes;
  const bool cold = 2 * plan.hot_pairs < keys.rows;
  float* const out = whole ? span.slots : s.tile_scores;
  for (int row = 0; row < rows && !whole; ++row) {
    float* scores = s.tile_scores + row * score_stride;
    for (int i = 0; i < keys.lanes; i += lanes) store(scores + i, zero());
  }
  if (plan.halves) {
    fetch(next.take(burst_bytes));
    p.half->prepare_queries(unit, plan.top, s.tile_queries, largest, rows, keys.rows, s.pairs);
    fetch(next.take(burst_bytes));
    half_request turned{&s.pairs, f.half_turn, plan.hot_pairs - plan.left_pairs, out, score_stride, {}};
    if (!cold) turned.next = next;
    run_batches(p.half->scores(unit), keys, turned, rows);
  }
  if (cold) {
    integer_request sums;
    sums.out = out;
    sums.out_stride = score_stride;
    sums.end_row = keys.rows;
    sums.next = next;
    centre_codes(keys.scale, keys.offset, f.key_stride, middle_code(unit, f.key.bits),
                 plan.hot_pairs > 0 ? hot : nullptr, s);
    add_rounded_sums(p, keys, unit, f.key.bits, {s.tile_queries, query_stride, 0}, sums, rows, s);
  }
  for (int row = 0; row < rows && !whole; ++row) {
    const float* from = s.tile_scores + row * score_stride;
    float* to = span.slots + row * score_stride;
    for (int i = span.first; i < span.end; i += lanes) store(to + i, load(from + i));
  }
}

// Scores of the runs first .. end - 1 of a folded tile; `largest`: of each row of queries.
inline void score_folded(const problem& p, const tile_format& f, const tile& t, int head, const float* largest,
                         const score_span& span, int rows, read_ahead next, const scratch& s) noexcept {
  const block_view keys =
      view_block(f.key, *f.key_codec, f.key_given[head], t.key_block(head), s.key_scale, s.key_offset);
  fetch(next.take(burst_bytes));
  for (int row = 0; row < rows && f.key_codec->transformed; ++row) {
    hadamard(s.tile_queries + row * query_stride, f.head_dim);
  }
  score_request r;
  r.hot = r.rotate = t.hot_mask(head);
  r.wide = t.wide_mask(head);
  r.tile_queries = s.tile_queries;
  r.cos = f.run_cos;
  r.sin = f.run_sin;
  const key_plan plan = plan_keys(p, f, keys, r.hot, s);
  if (plan.rounded) {
    const std::size_t later =
        plan.left_pairs > 0 ? burst_bytes * static_cast<std::size_t>(span.length() / run_tokens) : 0;
    score_rounded(p, f, keys, plan, r.hot, largest, span, rows, next.take(next.bytes > later ? next.bytes - later : 0),
                  s);
    if (plan.left_pairs == 0) return;
    r.hot = plan.left;
  } else {
    r.next = next.take(next.bytes);
  }
  const float* queries = s.tile_queries;
  for (int run = 0; run < span.end; run += run_tokens) {
    if (run > 0) queries = turn_queries(f, f.turn_stride, rows, queries, s);
    if (run < span.first) continue;
    r.run_queries = queries;
    r.first_lane = run;
    r.out = span.slots + run;
    fetch(next.take(burst_bytes));
    score_run(t, head, keys, r, plan.rounded ? plan.left_pairs : 0, rows, s);
  }
}

// The same for a full-precision tile's slots.
inline void score_exact(const tile& t, int head, const score_span& span, detail::slot_range slots, int rows,
                        const scratch& s) noexcept {
  const tile_format& f = *t.format;
  const float* queries = s.tile_queries;
  for (int run = 0; run < span.end; run += run_tokens) {
    if (run > 0) queries = turn_queries(f, f.key_stride, rows, queries, s);
    if (run < span.first) continue;
    const int first = slots.begin > run ? slots.begin : run;
    const int end = slots.end < run + run_tokens ? slots.end : run + run_tokens;
    if (f.half_rows) {
      score_rows<float16>(t, head, first, end, queries, rows, s, span.slots);
    } else {
      score_rows<float>(t, head, first, end, queries, rows, s, span.slots);
    }
  }
}

// Scores of an entry's slots for the rows of kv head b.head + `nth`, `slots` being those that some query sees; slots that
// a query does not see, and the others of the span, are masked. The entry is number `place` of its step.
inline void score_entry(const problem& p, const query_block& b, int nth, const entry& e, int place,
                        detail::slot_range slots, const score_span& span, read_ahead next, const scratch& s) noexcept {
  const tile_format& f = *p.sequence.format;
  const int rows = rows_of(p, b);
  fetch(next.take(burst_bytes));
  rotate_queries(f, s.query + nth * rows * query_stride, rows, place, s);
  for (int row = 0; row < rows; ++row) {
    float* scores = span.slots + row * score_stride;
    for (int i = span.first; i < span.end; i += lanes) store(scores + i, zero());
  }
  if (e.folded) {
    score_folded(p, *p.sequence.tiers[e.tier], *e.tile, b.head + nth, s.largest + nth * rows, span, rows, next, s);
  } else {
    score_exact(*e.tile, b.head + nth, span, slots, rows, s);
  }
  for (int row = 0; row < rows; ++row) {
    const std::int64_t position = detail::position_of(p, b.first + row / p.group);
    const detail::slot_range seen = detail::visible_slots(p, e, {position, position});
    float* scores = span.slots + row * score_stride;
    if (p.soft_cap > 0.0F) {
      for (int i = span.first; i < seen.end; i += lanes) store(scores + i, soft_capped(load(scores + i), p.soft_cap));
    }
    for (int i = span.first; i < seen.begin; ++i) scores[i] = masked;
    for (int i = seen.end > span.first ? seen.end : span.first; i < span.end; ++i) scores[i] = masked;
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
