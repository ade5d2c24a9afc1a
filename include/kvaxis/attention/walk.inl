// Weighted sums of one entry's values, and the walk over entries. Included once per instruction set by walk.hpp, inside
// a target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// --- Values --------------------------------------------------------------------------------------------------------

// Weights times scales, and the sums of weights times offsets, for all rows and all segments of a value block. Whole
// vectors: weights before first_row and after end_row are zero up to a multiple of 16.
inline void fold_weights(const block_view& b, int rows, const scratch& s, sum_request& r) noexcept {
  const int first = r.first_row & ~15;
  const int end = (r.end_row + 15) & ~15;
  const int segments = (b.lanes + b.group_length - 1) / b.group_length;
  for (int g = 0; g < segments; ++g) {
    const float* scale = b.scale + g * b.rows;
    const float* offset = b.offset + g * b.rows;
    for (int h = 0; h < rows; ++h) {
      const float* weights = r.weights + h * score_stride;
      float* out = s.value_weights + (g * rows + h) * score_stride;
      vf constant = zero();
      for (int i = first; i < end; i += lanes) {
        const vf w = load(weights + i);
        store(out + i, mul(w, load(scale + i)));
        constant = muladd(w, load(offset + i), constant);
      }
      s.value_constants[h * segments + g] = sum(constant);
    }
  }
  r.weights = s.value_weights;
  r.segment_stride = static_cast<std::ptrdiff_t>(rows) * score_stride;
  r.constants = s.value_constants;
  r.segments = segments;
}

// Adds rows of a tile's values that must be decoded to f32 rows first, a run at a time, once for all rows of weights.
inline void sum_decoded(const tile& t, int head, const block_view* b, sum_request r, int rows,
                        const scratch& s) noexcept {
  const tile_format& f = *t.format;
  const int row_lanes = t.folded ? f.value.lanes : f.value_stride;
  const int last = r.end_row;
  for (int row = r.first_row; row < last; row += run_tokens) {
    const int end = row + run_tokens < last ? row + run_tokens : last;
    if (!t.folded) {
      for (int i = row; i < end; ++i) {
        as_floats(t.value_row<float16>(head, i), row_lanes, s.expanded + (i - row) * row_lanes);
      }
    } else if (b != nullptr) {
      (*f.value_codec->kernels)[static_cast<std::size_t>(this_isa)]->expand_values(*b, row, end, s.expanded);
    } else {
      for (int i = row; i < end; ++i) {
        f.value_codec->decode_row(f.value, f.value_given[head], t.value_block(head), i, 0, row_lanes,
                                  s.expanded + (i - row) * row_lanes);
      }
    }
    sum_request part = r;
    part.weights += row;
    part.first_row = 0;
    part.end_row = end - row;
    run_batches(kernels<unit_kind::f32>.sums, view_rows(s.expanded, end - row, row_lanes), part, rows);
  }
}

// sums += weights times the values of the entry's slots begin .. end - 1. `weights` [row][score_stride] by slot, zero
// for the other slots of the same runs.
inline void sum_entry(const problem& p, int head, const entry& e, detail::slot_range slots, const float* weights,
                      float* sums, int rows, read_ahead next, const scratch& s) noexcept {
  const tile_format& f = *p.sequence.tiers[e.tier];
  const tile& t = *e.tile;
  sum_request r;
  r.weights = weights;
  r.sums = sums;
  r.sum_stride = detail::sum_stride(f);
  r.first_row = slots.begin / 4 * 4;
  r.end_row = (slots.end + 3) / 4 * 4;
  r.next = next;
  if (f.is_latent()) return sum_latent(f, e, head, r, rows, s);
  if (!e.folded) {
    if (f.half_rows) return sum_decoded(t, head, nullptr, r, rows, s);
    const block_view values = view_rows(t.value_row<float>(head, 0), t.capacity, f.value_stride);
    return run_batches(kernels<unit_kind::f32>.sums, values, r, rows);
  }
  if (f.value_codec->transformed) sums = r.sums = sums + detail::transformed_sums(f);
  if (f.value_codec->kernels == nullptr) return sum_decoded(t, head, nullptr, r, rows, s);
  const block_view values =
      view_block(f.value, *f.value_codec, f.value_given[head], t.value_block(head), s.value_scale, s.value_offset);
  if (values.across) return sum_decoded(t, head, &values, r, rows, s);
  if (const unit_kind unit = f.value_codec->unit; has_rounded_sums(p, values, unit)) {
    const int bits = f.value.bits;
    const int segments = f.value.groups_per_line();
    centre_codes(values.scale, values.offset, detail::round_up(segments * values.rows, 16), middle_code(unit, bits),
                 nullptr, s);
    integer_request whole;
    whole.out = sums;
    whole.out_stride = r.sum_stride;
    whole.first_row = r.first_row;
    whole.end_row = r.end_row;
    fetch(next.take(burst_bytes));
    whole.next = next;
    return add_rounded_sums(p, values, unit, bits, {weights, score_stride, values.rows}, whole, rows, s);
  }
  const auto& table = (*f.value_codec->kernels)[static_cast<std::size_t>(this_isa)]->sums;
  if (table[0] == nullptr) return sum_decoded(t, head, &values, r, rows, s);
  if (values.scale != nullptr) fold_weights(values, rows, s, r);
  run_batches(table, values, r, rows);
}

// --- The walk ------------------------------------------------------------------------------------------------------

// The end of the entries from `first` on whose runs fit side by side into the rows of scores. What is visible does not
// count: sums are then cut at the same places for one query and for many.
inline int step_end(const problem& p, int first, int end, const scratch& s) noexcept {
  int used = 0;
  int i = first;
  for (; i < end; ++i) {
    const entry& e = p.sequence.entries[i];
    used += score_span({e.begin, e.begin + e.count}, s.scores, 0).length();
    if (used > max_tile_tokens || i - first == detail::step_entries) break;
  }
  return i;
}

// What a step reads: the keys of its entries, then their values.
struct step_blocks {
  const sequence_view* sequence;
  int begin = 0;
  int end = 0;
  int head = 0;

  [[nodiscard]] int entries() const noexcept { return end - begin; }
  [[nodiscard]] int count() const noexcept { return 2 * entries(); }
  [[nodiscard]] read_ahead operator[](int i) const noexcept {
    if (i >= count()) return {};
    return i < entries() ? keys_of(*sequence, begin + i, head) : values_of(*sequence, begin + i - entries(), head);
  }
};

// How many blocks before its turn a block is fetched: with one, its first lines come too late.
constexpr int blocks_ahead = 2;

// The rows of one kv head over the entries of a step, `after` being the next one.
inline void attend_step(const problem& p, const query_block& b, int nth, const step_blocks& step,
                        const step_blocks& after, const scratch& s, const softmax_state& out) noexcept {
  const tile_format& f = *p.sequence.format;
  const entry* const entries = p.sequence.entries;
  const int rows = rows_of(p, b);
  const detail::position_range queries = detail::positions_of(p, b);
  const auto ahead_of = [&](int block) {
    block += blocks_ahead;
    return block < step.count() ? step[block] : after[block - step.count()];
  };
  int used = 0;
  for (int i = step.begin; i < step.end; ++i) {
    const detail::slot_range slots = detail::visible_slots(p, entries[i], queries);
    if (slots.begin >= slots.end) continue;
    const int place = i - step.begin;
    const score_span span(slots, s.scores, used);
    score_entry(p, b, nth, entries[i], place, slots, span, ahead_of(place), s);
    used += span.length();
  }
  if (used == 0) return;
  take_scores(f, rows, used, s.scores, out);
  used = 0;
  for (int i = step.begin; i < step.end; ++i) {
    const detail::slot_range slots = detail::visible_slots(p, entries[i], queries);
    if (slots.begin >= slots.end) continue;
    const score_span span(slots, s.scores, used);
    const read_ahead next = ahead_of(step.entries() + i - step.begin);
    sum_entry(p, step.head, entries[i], slots, span.slots, out.sums, rows, next, s);
    used += span.length();
  }
}

// Several entries at a time: their scores, their weights, their sums. Each stage ends in a wait for its last results.
inline void attend_range(const problem& p, const query_block& b, int first, int end, const scratch& s,
                         const softmax_state& out) noexcept {
  const tile_format& f = *p.sequence.format;
  const entry* const entries = p.sequence.entries;
  const int rows = rows_of(p, b);
  const detail::position_range queries = detail::positions_of(p, b);
  const auto sees = [&](const entry& e) {
    const detail::slot_range slots = detail::visible_slots(p, e, queries);
    return slots.begin < slots.end;
  };
  clear_state(f, b.heads * rows, out);
  while (end > first && !sees(entries[end - 1])) --end;
  if (first == end) return;
  load_queries(p, b, s);
  angle_walk angles(p, b, s);
  for (int begin = first, stop = 0; begin < end; begin = stop) {
    stop = step_end(p, begin, end, s);
    for (int i = begin; i < stop && f.pairs > 0; ++i) angles.move_to(entries[i].base_position, i - begin);
    for (int nth = 0; nth < b.heads; ++nth) {
      const step_blocks step{&p.sequence, begin, stop, b.head + nth};
      const step_blocks after = nth + 1 < b.heads ? step_blocks{&p.sequence, begin, stop, b.head + nth + 1}
                                                  : step_blocks{&p.sequence, stop, step_end(p, stop, end, s), b.head};
      const int at = nth * rows;
      attend_step(p, b, nth, step, after, s, {out.maxima + at, out.totals + at, out.sums + at * detail::sum_stride(f)});
    }
  }
}

inline void score_all(const problem& p, const query_block& b, const scratch& s, float* out,
                      std::ptrdiff_t stride) noexcept {
  const tile_format& f = *p.sequence.format;
  const entry* const entries = p.sequence.entries;
  const int count = p.sequence.entry_count;
  load_queries(p, b, s);
  angle_walk angles(p, b, s);
  for (int i = 0; i < count; ++i) {
    const entry& e = entries[i];
    const detail::slot_range slots = detail::visible_slots(p, e, detail::positions_of(p, b));
    const score_span span(slots, s.scores, 0);
    const read_ahead next = i + blocks_ahead < count ? keys_of(p.sequence, i + blocks_ahead, b.head) : read_ahead{};
    if (f.pairs > 0) angles.move_to(e.base_position, 0);
    if (slots.begin < slots.end) score_entry(p, b, 0, e, 0, slots, span, next, s);
    for (int h = 0; h < p.group; ++h) {
      const float* scores = span.slots + h * score_stride;
      float* to = out + h * stride;
      for (int slot = e.begin; slot < slots.begin; ++slot) to[slot - e.begin] = bits_float(0xFF800000U);
      for (int slot = slots.begin; slot < slots.end; ++slot) to[slot - e.begin] = scores[slot];
      for (int slot = slots.end; slot < e.begin + e.count; ++slot) to[slot - e.begin] = bits_float(0xFF800000U);
    }
    out += e.count;
  }
}

inline void sum_all(const problem& p, int head, const scratch& s, const float* weights, std::ptrdiff_t stride,
                    float* sums) noexcept {
  const tile_format& f = *p.sequence.format;
  const entry* const entries = p.sequence.entries;
  const int count = p.sequence.entry_count;
  for (int i = 0; i < p.group * detail::sum_stride(f); ++i) sums[i] = 0.0F;
  for (int i = 0; i < count; ++i) {
    const entry& e = entries[i];
    const detail::slot_range slots{e.begin, e.begin + e.count};
    const score_span span(slots, s.scores, 0);
    for (int h = 0; h < p.group; ++h) {
      float* to = span.slots + h * score_stride;
      for (int slot = span.first; slot < span.end; ++slot) to[slot] = 0.0F;
      const float* from = weights + h * stride;
      for (int slot = slots.begin; slot < slots.end; ++slot) to[slot] = from[slot - e.begin];
    }
    const read_ahead next = i + blocks_ahead < count ? values_of(p.sequence, i + blocks_ahead, head) : read_ahead{};
    sum_entry(p, head, e, slots, span.slots, sums, p.group, next, s);
    weights += e.count;
  }
}

inline constexpr detail::walk_table walk = {&attend_range, &merge_states, &score_all, &sum_all};

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
