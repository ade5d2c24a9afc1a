// Kernels of values, and the table of all kernels of a unit. Included once per instruction set by kernels.hpp, inside a
// target region.
#ifndef KVAXIS_TARGET
#include "kernels.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

template <unit_kind U, int H, int V, int Half>
KVAXIS_INLINE void sum_rows(const quad_reader<U, V, false>& values, const float* weights, vf (*sums)[V]) {
  vf x[V];
  vf y[V];
  values.template units<Half>(x, y);
  add_pair<H, V, score_stride>(weights + 2 * Half, x, y, sums);
}

template <unit_kind U, int H, int V>
KVAXIS_INLINE void sum_lanes(const block_view& b, const sum_request& r, int first_head, int segment, int lane) {
  float* const out = r.sums + first_head * r.sum_stride + lane;
  vf sums[H][V];
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) sums[h][v] = load(out + h * r.sum_stride + v * lanes);
  }
  const int end = r.end_row / 4;
  const int quads = b.rows / 4;
  const float* weights = r.weights + segment * r.segment_stride + first_head * score_stride + r.first_row;
  quad_reader<U, V, false> values(b, r.first_row / 4, lane);
  spread_prefetch next(r.next, first_head, quads * b.lanes / (V * lanes), lane / (V * lanes) * quads);
  for (int index = r.first_row / 4; index < end; ++index) {
    values.load();
    next.next_step();
    sum_rows<U, H, V, 0>(values, weights, sums);
    sum_rows<U, H, V, 1>(values, weights, sums);
    values.advance();
    weights += 4;
  }
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    const int at = (first_head + h) * r.segments + segment;
    const vf constant = r.constants != nullptr ? set1(r.constants[at]) : zero();
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) store(out + h * r.sum_stride + v * lanes, add(sums[h][v], constant));
  }
}

// As many as the registers hold, then 16 lanes at a time: blocks and groups of channels are padded to that.
template <int H>
constexpr int sum_vectors = H <= 2                 ? 4
                            : lanes == 4 && H == 3 ? 4
                            : lanes == 16          ? 16 / H
                            : lanes == 8 && H == 8 ? 1
                                                   : 2;

template <unit_kind U, int H>
void sums(const block_view& b, const sum_request& r, int first_head) noexcept {
  constexpr int wide = sum_vectors<H>;
  constexpr int narrow = wide * lanes <= 16 ? wide : 16 / lanes;
  const int length = r.constants != nullptr ? b.group_length : b.lanes;
  for (int segment = 0, lane = 0; lane < b.lanes; ++segment) {
    const int end = lane + length < b.lanes ? lane + length : b.lanes;
    for (; lane + wide * lanes <= end; lane += wide * lanes) sum_lanes<U, H, wide>(b, r, first_head, segment, lane);
    for (; lane < end; lane += narrow * lanes) sum_lanes<U, H, narrow>(b, r, first_head, segment, lane);
  }
}

template <unit_kind U, bool Across>
KVAXIS_INLINE void expand_value_lanes(const block_view& b, int first_row, int end_row, int lane, float* out) {
  quad_reader<U, 1, Across> values(b, first_row / 4, lane);
  for (int index = first_row / 4; index < end_row / 4; ++index) {
    values.load();
    vf x[4];
    values.template rows<0>(x, x + 1);
    values.template rows<1>(x + 2, x + 3);
    KVAXIS_UNROLL
    for (int c = 0; c < 4; ++c) store(out + c * b.lanes, x[c]);
    values.advance();
    out += 4 * b.lanes;
  }
}

template <unit_kind U>
void expand_values(const block_view& b, int first_row, int end_row, float* out) noexcept {
  for (int lane = 0; lane < b.lanes; lane += lanes) {
    if (b.across) {
      expand_value_lanes<U, true>(b, first_row, end_row, lane, out + lane);
    } else {
      expand_value_lanes<U, false>(b, first_row, end_row, lane, out + lane);
    }
  }
}

// Codes in planes take many steps to decode: once, to f32 rows, is faster than for every few heads.
template <unit_kind U>
constexpr bool has_fused_kernels = unit_traits<U>::bits == 4 || unit_traits<U>::bits >= 8;

template <unit_kind U>
constexpr std::array<unit_kernels::score_fn, 5> score_table() {
  if constexpr (!has_fused_kernels<U>)
    return {};
  else
    return {&scores<U, 1>, &scores<U, 2>, &scores<U, 3>, &scores<U, 4>, &scores<U, 8>};
}
template <unit_kind U>
constexpr std::array<unit_kernels::score_fn, 5> hot_score_table() {
  if constexpr (U == unit_kind::u4 || U == unit_kind::u8 || U == unit_kind::f32) {
    return {&hot_scores<U, 1>, &hot_scores<U, 2>, &hot_scores<U, 3>, &hot_scores<U, 4>, &hot_scores<U, 8>};
  }
  return {};
}
template <unit_kind U>
constexpr std::array<unit_kernels::sum_fn, 5> sum_table() {
  if constexpr (!has_fused_kernels<U>)
    return {};
  else
    return {&sums<U, 1>, &sums<U, 2>, &sums<U, 3>, &sums<U, 4>, &sums<U, 8>};
}

template <unit_kind U>
constexpr unit_kernels make_kernels() {
  unit_kernels k{score_table<U>(), hot_score_table<U>(), sum_table<U>(),   &expand_keys<U>,
                 nullptr,          &transpose_keys<U>,   &expand_values<U>};
  if constexpr (unit_traits<U>::bits < 8) k.expand_hot = &expand_hot<U>;
  return k;
}
template <unit_kind U>
inline constexpr unit_kernels kernels = make_kernels<U>();

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
