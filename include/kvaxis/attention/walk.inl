// Weighted sums of one entry's values, and the walk over entries. Included once per instruction set by walk.hpp, inside
// a target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// --- Values --------------------------------------------------------------------------------------------------------

// Weights times scales, and the sums of weights times offsets, for all heads and all segments of a value block. Whole
// vectors: weights before first_row and after end_row are zero up to a multiple of 16.
inline void fold_weights(const block_view& b, int group, const scratch& s, sum_request& r) noexcept {
  const int first = r.first_row & ~15;
  const int end = (r.end_row + 15) & ~15;
  const int segments = (b.lanes + b.group_length - 1) / b.group_length;
  for (int g = 0; g < segments; ++g) {
    const float* scale = b.scale + g * b.rows;
    const float* offset = b.offset + g * b.rows;
    for (int h = 0; h < group; ++h) {
      const float* weights = r.weights + h * score_stride;
      float* out = s.value_weights + (g * group + h) * score_stride;
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
  r.segment_stride = static_cast<std::ptrdiff_t>(group) * score_stride;
  r.constants = s.value_constants;
  r.segments = segments;
}

// Adds the rows r.first_row .. r.end_row - 1 of a block, in the codes' own unit `k`.
inline void sum_heads(const unit_kernels& k, const block_view& b, const sum_request& r, int group) noexcept {
  for (int h = 0; h < group;) {
    const int heads = next_heads(group - h);
    k.sums[kernel_index(heads)](b, r, h);
    h += heads;
  }
}

// Adds rows of a tile's values that must be decoded to f32 rows first, a run at a time, once for all heads.
inline void sum_decoded(const tile& t, int head, const block_view* b, sum_request r, int group,
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
    sum_heads(kernels<unit_kind::f32>, view_rows(s.expanded, end - row, row_lanes), part, group);
  }
}

// sums += weights times the values of the entry's slots begin .. end - 1. `weights` [group][score_stride] by slot, zero
// for the other slots of the same runs.
inline void sum_entry(const problem& p, const entry& e, detail::slot_range slots, int head, const float* weights,
                      float* sums, next_block next, const scratch& s) noexcept {
  const tile_format& f = *p.sequence.format;
  const tile& t = *e.tile;
  sum_request r;
  r.weights = weights;
  r.sums = sums;
  r.sum_stride = detail::sum_stride(f);
  r.first_row = slots.begin / 4 * 4;
  r.end_row = (slots.end + 3) / 4 * 4;
  r.next = next.data;
  r.next_bytes = next.bytes;
  if (!t.folded) {
    if (f.half_rows) return sum_decoded(t, head, nullptr, r, p.group, s);
    const block_view rows = view_rows(t.value_row<float>(head, 0), t.capacity, f.value_stride);
    return sum_heads(kernels<unit_kind::f32>, rows, r, p.group);
  }
  if (f.value_codec->kernels == nullptr) return sum_decoded(t, head, nullptr, r, p.group, s);
  const block_view values =
      view_block(f.value, *f.value_codec, f.value_given[head], t.value_block(head), s.value_scale, s.value_offset);
  if (values.across) return sum_decoded(t, head, &values, r, p.group, s);
  if (values.scale != nullptr) fold_weights(values, p.group, s, r);
  sum_heads(*(*f.value_codec->kernels)[static_cast<std::size_t>(this_isa)], values, r, p.group);
}

// --- The walk ------------------------------------------------------------------------------------------------------

// The end of the entries from `first` on whose visible runs fit side by side into the rows of scores.
inline int step_end(const problem& p, int first, int end, std::int64_t position, const scratch& s) noexcept {
  int used = 0;
  int i = first;
  for (; i < end; ++i) {
    const detail::slot_range slots = detail::visible_slots(p.sequence.entries[i], position);
    if (slots.begin < slots.end) used += score_span(slots, s.scores, 0).length();
    if (used > max_tile_tokens) break;
  }
  return i;
}

// Several entries at a time: their scores, their weights, their sums. Each stage ends in a wait for its last results.
inline void attend_range(const problem& p, int query, int head, int first, int end, const scratch& s,
                         const softmax_state& out) noexcept {
  const tile_format& f = *p.sequence.format;
  const entry* const entries = p.sequence.entries;
  const std::int64_t position = p.first_position + query;
  clear_state(f, p.group, out);
  load_queries(p, query, head, s);
  angle_walk angles{f, s, position};
  for (int begin = first, stop = 0; begin < end; begin = stop) {
    stop = step_end(p, begin, end, position, s);
    int used = 0;
    for (int i = begin; i < stop; ++i) {
      const detail::slot_range slots = detail::visible_slots(entries[i], position);
      if (slots.begin >= slots.end) continue;
      const score_span span(slots, s.scores, used);
      const next_block next = i + 1 < stop ? next_keys(f, entries[i + 1], head) : next_values(f, entries[begin], head);
      score_entry(p, entries[i], slots, head, angles, span, next, s);
      used += span.length();
    }
    if (used == 0) continue;
    take_scores(f, p.group, used, s.scores, out);
    used = 0;
    for (int i = begin; i < stop; ++i) {
      const detail::slot_range slots = detail::visible_slots(entries[i], position);
      if (slots.begin >= slots.end) continue;
      const score_span span(slots, s.scores, used);
      const next_block next = i + 1 < stop ? next_values(f, entries[i + 1], head)
                              : stop < end ? next_keys(f, entries[stop], head)
                                           : next_block{};
      sum_entry(p, entries[i], slots, head, span.slots, out.sums, next, s);
      used += span.length();
    }
  }
}

inline void score_all(const problem& p, int query, int head, const scratch& s, float* out,
                      std::ptrdiff_t stride) noexcept {
  const tile_format& f = *p.sequence.format;
  const entry* const entries = p.sequence.entries;
  const int count = p.sequence.entry_count;
  const std::int64_t position = p.first_position + query;
  load_queries(p, query, head, s);
  angle_walk angles{f, s, position};
  for (int i = 0; i < count; ++i) {
    const entry& e = entries[i];
    const detail::slot_range slots = detail::visible_slots(e, position);
    const score_span span(slots, s.scores, 0);
    const next_block next = i + 1 < count ? next_keys(f, entries[i + 1], head) : next_block{};
    if (slots.begin < slots.end) score_entry(p, e, slots, head, angles, span, next, s);
    for (int h = 0; h < p.group; ++h) {
      const float* scores = span.slots + h * score_stride;
      float* to = out + h * stride;
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
    const next_block next = i + 1 < count ? next_values(f, entries[i + 1], head) : next_block{};
    sum_entry(p, e, slots, head, span.slots, sums, next, s);
    weights += e.count;
  }
}

inline constexpr detail::walk_table walk = {&attend_range, &merge_states, &score_all, &sum_all};

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
