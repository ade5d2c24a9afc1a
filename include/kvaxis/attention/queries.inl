// The queries of a block, rotated to a position, to a tile and from run to run. Included once per instruction set by
// walk.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

using detail::query_block;

constexpr isa this_isa = isa::KVAXIS_TARGET;

// How many of `left` rows the next kernel takes, and its place in the tables of kernels.
inline int next_heads(int left) noexcept { return left >= 8 ? 8 : left < 4 ? left : 4; }
inline std::size_t kernel_index(int heads) noexcept { return heads == 8 ? 4U : static_cast<std::size_t>(heads - 1); }

// Runs the kernels of a table over all rows.
template <class Kernel, class Request>
inline void run_batches(const std::array<Kernel, 5>& table, const block_view& b, const Request& r, int rows) noexcept {
  for (int h = 0; h < rows; h += next_heads(rows - h)) table[kernel_index(next_heads(rows - h))](b, r, h);
}

inline int rows_of(const problem& p, const query_block& b) noexcept { return b.queries * p.group; }

// Turns rows of queries, or a key, by the angles of their pairs: `sine` has a minus for the first member of a pair.
inline void turn_rows(const float* cosine, const float* sine, int channels, const float* from, int rows,
                      float* to) noexcept {
  for (int c = 0; c < channels; c += lanes) {
    const vf cos_c = load(cosine + c);
    const vf sin_c = load(sine + c);
    for (int h = 0; h < rows; ++h) {
      const float* row = from + h * query_stride;
      store(to + h * query_stride + c, muladd(load_swapped(row, c), sin_c, mul(load(row + c), cos_c)));
    }
  }
}

// The queries in stored order, scaled, and rotated to the multiple of run_tokens at or below their positions;
// attention_factor^2 goes to the rotated channels, here once.
inline void load_queries(const problem& p, const query_block& b, const scratch& s) noexcept {
  const tile_format& f = *p.sequence.format;
  float* to = s.query;
  for (int row = 0; row < b.heads * rows_of(p, b); ++row, to += query_stride) {
    const int head = b.head + row / rows_of(p, b);
    const int query = b.first + row / p.group % b.queries;
    const float* from =
        p.q + (static_cast<std::ptrdiff_t>(query) * p.query_heads + head * p.group + row % p.group) * f.head_dim;
    float stored[max_head_dim + 16] = {};
    for (int c = 0; c < f.head_dim; ++c) {
      stored[c] = from[f.order[c]] * (c < 2 * f.pairs ? p.scale * f.query_factor : p.scale);
    }
    const std::int64_t position = detail::position_of(p, query);
    const auto offset = static_cast<int>(position - detail::floor_to_multiple(position, run_tokens));
    turn_rows(f.row_cos + offset * f.key_stride, f.row_sin + offset * f.key_stride, f.key_stride, stored, 1, to);
    if (p.half == nullptr) continue;
    vf largest = zero();
    for (int c = 0; c < f.key_stride; c += lanes) largest = max_magnitude(largest, load(to + c));
    s.largest[row] = max_lane(largest);
  }
}

// The rotation from the queries' common position to one in the sequence, in double. Neighbouring tiles follow from one
// another by a complex product; every range starts from exact angles, so the result does not depend on how ranges were
// spread over threads.
struct angle_walk {
  const tile_format& format;
  const scratch& buffers;
  std::int64_t query_position;
  std::int64_t at = 0;
  bool started = false;

  angle_walk(const problem& p, const query_block& b, const scratch& s) noexcept
      : format(*p.sequence.format),
        buffers(s),
        query_position(detail::floor_to_multiple(detail::position_of(p, b.first), run_tokens)) {
    for (int i = 0; i < detail::step_entries * format.key_stride; ++i) {  // also for channels without a pair
      s.turn_cos[i] = 1.0F;
      s.turn_sin[i] = 0.0F;
    }
  }

  // To a position, whose rotation becomes number `place` of the step's.
  void move_to(std::int64_t position, int place) noexcept {
    const bool next_tile = started && position == at + format.tokens;
    started = true;
    at = position;
    double* const cosine = buffers.angle_cos;
    double* const sine = buffers.angle_sin;
    const int pairs = detail::round_up(format.pairs, 8);  // the tables are padded
    if (!next_tile) {
      const auto distance = static_cast<double>(query_position - position);
      for (int i = 0; i < pairs; ++i) sincos(distance * format.frequency[i], sine[i], cosine[i]);
    }
    for (int i = 0; i < pairs; i += lanes_d) {
      vd c = load_d(cosine + i);
      vd s = load_d(sine + i);
      if (next_tile) {  // the distance falls by a tile's length
        const vd step_c = load_d(format.step_cos + i);
        const vd step_s = load_d(format.step_sin + i);
        const vd turned = fma_d(c, step_c, mul_d(s, step_s));
        s = fnma_d(c, step_s, mul_d(s, step_c));
        c = turned;
        store_d(cosine + i, c);
        store_d(sine + i, s);
      }
      store_twice(buffers.turn_cos + place * format.key_stride + 2 * i, c);
      store_with_opposite(buffers.turn_sin + place * format.key_stride + 2 * i, s);
    }
  }
};

// The rows of one kv head, to the position of an entry of the step.
inline void rotate_queries(const tile_format& f, const float* queries, int rows, int place, const scratch& s) noexcept {
  const int at = place * f.key_stride;
  turn_rows(s.turn_cos + at, s.turn_sin + at, f.key_stride, queries, rows, s.tile_queries);
}

// From one run to the next; the answer is where they are then, `queries` staying as they are.
inline const float* turn_queries(const tile_format& f, int channels, int rows, const float* queries,
                                 const scratch& s) noexcept {
  if (f.pairs == 0) return queries;
  float* const out = s.run_queries[queries == s.run_queries[0] ? 1 : 0];
  turn_rows(f.next_run_cos, f.next_run_sin, channels, queries, rows, out);
  return out;
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
