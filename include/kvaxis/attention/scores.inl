// Scores of one entry: the queries rotated to its tile and runs, then the kernels for a folded tile or the row kernel
// for a full-precision one. Included once per instruction set by walk.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

constexpr isa this_isa = isa::KVAXIS_TARGET;

// --- Rotation of the queries -----------------------------------------------------------------------------------------

// The queries of one kv head's group, in stored order and scaled; attention_factor^2 goes to the rotated channels, here
// once.
inline void load_queries(const problem& p, int query, int head, const scratch& s) noexcept {
  const tile_format& f = *p.sequence.format;
  for (int h = 0; h < p.group; ++h) {
    const float* from = p.q + (static_cast<std::ptrdiff_t>(query) * p.query_heads + head * p.group + h) * f.head_dim;
    float* to = s.query + h * query_stride;
    float* turned = s.turned_query + h * query_stride;
    for (int c = 0; c < f.key_stride; ++c) to[c] = turned[c] = 0.0F;
    for (int c = 0; c < f.head_dim; ++c)
      to[c] = from[f.order[c]] * (c < 2 * f.pairs ? p.scale * f.query_factor : p.scale);
    for (int i = 0; i < f.pairs; ++i) {
      turned[2 * i] = -to[2 * i + 1];
      turned[2 * i + 1] = to[2 * i];
    }
  }
  for (int c = 0; c < f.key_stride; ++c) {
    s.turn_cos[c] = 1.0F;
    s.turn_sin[c] = 0.0F;
  }
}

// The rotation from the query to a position in the sequence, in double. Neighbouring runs follow from one another by a
// complex product; every range starts from exact angles, so the result does not depend on how ranges were spread over
// threads.
struct angle_walk {
  const tile_format& format;
  const scratch& buffers;
  std::int64_t query_position;
  std::int64_t at = 0;
  bool started = false;

  void move_to(std::int64_t position) noexcept {
    if (started && position == at) return;
    const bool next_run = started && position == at + run_tokens;
    started = true;
    at = position;
    double* const cosine = buffers.angle_cos;
    double* const sine = buffers.angle_sin;
    const int pairs = detail::round_up(format.pairs, 8);  // the tables are padded
    if (!next_run) {
      const auto distance = static_cast<double>(query_position - position);
      for (int i = 0; i < pairs; ++i) sincos(distance * format.frequency[i], sine[i], cosine[i]);
    }
    for (int i = 0; i < pairs; i += lanes_d) {
      vd c = load_d(cosine + i);
      vd s = load_d(sine + i);
      if (next_run) {  // the distance falls by run_tokens
        const vd step_c = load_d(format.step_cos + i);
        const vd step_s = load_d(format.step_sin + i);
        const vd turned = fma_d(c, step_c, mul_d(s, step_s));
        s = fnma_d(c, step_s, mul_d(s, step_c));
        c = turned;
        store_d(cosine + i, c);
        store_d(sine + i, s);
      }
      store_twice(buffers.turn_cos + 2 * i, c);
      store_twice(buffers.turn_sin + 2 * i, s);
    }
  }
};

inline void rotate_queries(const tile_format& f, int group, const scratch& s, float* out) noexcept {
  const int stride = f.key_stride;
  for (int c = 0; c < stride; c += lanes) {
    const vf cosine = load(s.turn_cos + c);
    const vf sine = load(s.turn_sin + c);
    const float* from = s.query + c;
    const float* turned = s.turned_query + c;
    float* to = out + c;
    for (int h = 0; h < group; ++h) {
      store(to, muladd(load(turned), sine, mul(load(from), cosine)));
      from += query_stride;
      turned += query_stride;
      to += query_stride;
    }
  }
}

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
  const int groups = b.groups();
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

// How many of `left` heads the next kernel takes, and its place in the tables of kernels.
inline int next_heads(int left) noexcept { return left >= 8 ? 8 : left < 4 ? left : 4; }
inline std::size_t kernel_index(int heads) noexcept { return heads == 8 ? 4U : static_cast<std::size_t>(heads - 1); }

inline void score_heads(const unit_kernels& k, const block_view& b, const score_request& r, int group) noexcept {
  for (int h = 0; h < group;) {
    const int heads = next_heads(group - h);
    k.scores[kernel_index(heads)](b, r, h);
    h += heads;
  }
}

// Scores of the run that starts at r.first_lane of a folded key block.
inline void score_run(const problem& p, const tile& t, int head, const block_view& b, const score_request& run,
                      const scratch& s) noexcept {
  const tile_format& f = *t.format;
  static constexpr std::uint32_t nothing[max_pairs / 32 + 1] = {};
  const auto* linear =
      f.key_codec->kernels == nullptr ? nullptr : (*f.key_codec->kernels)[static_cast<std::size_t>(this_isa)];
  if (linear != nullptr && !b.across) return score_heads(*linear, b, run, p.group);
  score_request r = run;
  r.first_lane = 0;
  if (linear != nullptr) {
    linear->expand_keys(b, run, s.expanded);
    r.rotate = nothing;
  } else {
    for (int row = 0; row < f.key.rows; ++row) {
      float* to = s.expanded + row * run_tokens;
      f.key_codec->decode_row(f.key, f.key_given[head], t.key_block(head), row, run.first_lane, run_tokens, to);
    }
  }
  score_heads(kernels<unit_kind::f32>, view_rows(s.expanded, f.key.rows, run_tokens), r, p.group);
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
inline void score_rows(const problem& p, const tile& t, int head, int first, int end, const scratch& s,
                       float* scores) noexcept {
  const tile_format& f = *t.format;
  float* buffer = s.expanded;
  float* turned = s.expanded + f.key_stride;
  for (int token = first; token < end; ++token) {
    const float* row = as_floats(t.key_row<Row>(head, token), f.key_stride, buffer);
    if (f.pairs > 0) {
      const float* cosine = f.row_cos + token % run_tokens * f.key_stride;
      const float* sine = f.row_sin + token % run_tokens * f.key_stride;
      for (int c = 0; c < f.key_stride; c += lanes) {
        store(turned + c, muladd(load_swapped(row, c), load(sine + c), mul(load(row + c), load(cosine + c))));
      }
      row = turned;
    }
    for (int h = 0; h < p.group; h += 4) {
      const float* q = s.run_queries + h * query_stride;
      float* out = scores + h * score_stride + token;
      switch (p.group - h) {
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
  float* slots;  // [group][score_stride] by slot

  score_span(detail::slot_range visible, float* scores, int used) noexcept
      : first(visible.begin / run_tokens * run_tokens),
        end(detail::round_up(visible.end, run_tokens)),
        slots(scores + (used - first)) {}
  [[nodiscard]] int length() const noexcept { return end - first; }
};

// A block of a folded entry, which is read next; nobody looks whether it is folded, for that would wait for memory.
struct next_block {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};
inline next_block next_keys(const tile_format& f, const entry& e, int head) noexcept {
  return {e.tile->data() + f.head_offset + static_cast<std::size_t>(head) * f.head_bytes, f.key.bytes};
}
inline next_block next_values(const tile_format& f, const entry& e, int head) noexcept {
  return {next_keys(f, e, head).data + f.key.bytes, f.value.bytes};
}

// Scores of an entry's visible slots; the other slots of the span are masked.
inline void score_entry(const problem& p, const entry& e, detail::slot_range slots, int head, angle_walk& angles,
                        const score_span& span, next_block next, const scratch& s) noexcept {
  const tile_format& f = *p.sequence.format;
  const tile& t = *e.tile;
  block_view keys;
  score_request r;
  if (t.folded) {
    keys = view_block(f.key, *f.key_codec, f.key_given[head], t.key_block(head), s.key_scale, s.key_offset);
    r.hot = r.rotate = t.hot_mask(head);
    r.tile_queries = s.tile_queries;
    r.cos = f.run_cos;
    r.sin = f.run_sin;
    r.next = next.data;
    r.next_bytes = next.bytes;
  }
  for (int run = 0; run < slots.end; run += run_tokens) {
    if (f.pairs > 0) angles.move_to(e.base_position + run);
    if (run == 0 && t.folded) rotate_queries(f, p.group, s, s.tile_queries);
    if (run < span.first) continue;
    // The first run begins where the tile does, and without pairs nothing turns.
    const bool as_tile = t.folded && (run == 0 || f.pairs == 0);
    if (!as_tile) rotate_queries(f, p.group, s, s.run_queries);
    if (t.folded) {
      r.run_queries = as_tile ? s.tile_queries : s.run_queries;
      r.first_lane = run;
      r.out = span.slots + run;
      score_run(p, t, head, keys, r, s);
      continue;
    }
    const int first = slots.begin > run ? slots.begin : run;
    const int end = slots.end < run + run_tokens ? slots.end : run + run_tokens;
    if (f.half_rows) {
      score_rows<float16>(p, t, head, first, end, s, span.slots);
    } else {
      score_rows<float>(p, t, head, first, end, s, span.slots);
    }
  }
  for (int h = 0; h < p.group; ++h) {
    float* scores = span.slots + h * score_stride;
    if (p.soft_cap > 0.0F) {
      for (int i = span.first; i < slots.end; i += lanes) store(scores + i, soft_capped(load(scores + i), p.soft_cap));
    }
    for (int i = span.first; i < slots.begin; ++i) scores[i] = masked;
    for (int i = slots.end; i < span.end; ++i) scores[i] = masked;
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
