// Kernels of hot pairs alone. Included once per instruction set by kernels.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "kernels.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// The first, or second, pairs of some quads, which are all hot.
template <unit_kind U, int H, int V, int Half>
KVAXIS_INLINE void add_hot_pairs(const block_view& b, const score_request& r, int first_head, int lane, vf (*sums)[V]) {
  const float* const cosines = r.cos + (lane - r.first_lane) + Half * run_tokens;
  const float* const sines = r.sin + (lane - r.first_lane) + Half * run_tokens;
  const float* const queries = r.run_queries + first_head * query_stride + 2 * Half;
  const quad_list& list = r.hot_quads[Half];
  quad_reader<U, V, false> keys(b, 0, lane);
  for (int i = 0, at = 0; i < list.count; ++i) {
    const int index = list.quads[i];
    keys.move(index - at);
    at = index;
    keys.load();
    vf x[V];
    vf y[V];
    keys.template rows<Half>(x, y);
    // Rows of f32 were decoded, and rotated, before.
    if constexpr (U != unit_kind::f32) {
      rotate_pair<V>(cosines + 2 * run_tokens * index, sines + 2 * run_tokens * index, x, y);
    }
    add_pair<H, V, query_stride>(queries + 4 * index, x, y, sums);
  }
}

template <unit_kind U, int H>
void hot_scores(const block_view& b, const score_request& r, int first_head) noexcept {
  constexpr int V = score_vectors<H>;
  for (int lane = r.first_lane; lane < r.first_lane + run_tokens; lane += V * lanes) {
    float* out = r.out + first_head * score_stride + lane - r.first_lane;
    vf sums[H][V];
    KVAXIS_UNROLL
    for (int h = 0; h < H; ++h) {
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) sums[h][v] = load(out + h * score_stride + v * lanes);
    }
    add_hot_pairs<U, H, V, 0>(b, r, first_head, lane, sums);
    add_hot_pairs<U, H, V, 1>(b, r, first_head, lane, sums);
    KVAXIS_UNROLL
    for (int h = 0; h < H; ++h) {
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) store(out + h * score_stride + v * lanes, sums[h][v]);
    }
  }
}

// Further bits of the wide pair number `nth`, as numbers.
KVAXIS_INLINE void load_further_bits(const block_view& b, int nth, int lane, vf& x, vf& y) {
  const std::uint32_t* const quad = b.further + nth / 2 * quad_words(b.wide_extra, b.lanes);
  const vu codes = b.wide_extra == 1   ? load_byte_codes<1>(quad, b.lanes, lane)
                   : b.wide_extra == 2 ? load_byte_codes<2>(quad, b.lanes, lane)
                                       : load_byte_codes<4>(quad, b.lanes, lane);
  if (nth % 2 == 0) {
    byte_traits<8>::rows<0>(&codes, x, y);
  } else {
    byte_traits<8>::rows<1>(&codes, x, y);
  }
}

// One hot pair of two vectors of tokens; `nth`: the number among the wide ones, or -1.
template <unit_kind U, int Half>
KVAXIS_INLINE void expand_pair(const quad_reader<U, 2, false>& keys, const block_view& b, const score_request& r,
                               int nth, int index, int lane, float* out) {
  vf x[2];
  vf y[2];
  keys.template units<Half>(x, y);
  const float* const scale = keys.scale + 2 * Half;
  const float* const offset = keys.offset + 2 * Half;
  KVAXIS_UNROLL
  for (int v = 0; v < 2; ++v) {
    if (nth >= 0) {
      vf further_x;
      vf further_y;
      KVAXIS_TARGET::load_further_bits(b, nth, lane + v * lanes, further_x, further_y);
      const vf weight = set1(static_cast<float>(1 << unit_traits<U>::bits));
      x[v] = fma(weight, further_x, x[v]);
      y[v] = fma(weight, further_y, y[v]);
    }
    x[v] = fma(set1(scale[0]), x[v], set1(offset[0]));
    y[v] = fma(set1(scale[1]), y[v], set1(offset[1]));
  }
  const int angle = (2 * index + Half) * run_tokens + lane - r.first_lane;
  rotate_pair<2>(r.cos + angle, r.sin + angle, x, y);
  KVAXIS_UNROLL
  for (int v = 0; v < 2; ++v) {
    store(out + v * lanes, x[v]);
    store(out + run_tokens + v * lanes, y[v]);
  }
}

template <unit_kind U>
void expand_hot(const block_view& b, const score_request& r, float* out) noexcept {
  for (int lane = 0; lane < run_tokens; lane += 2 * lanes) {
    quad_reader<U, 2, false> keys(b, 0, r.first_lane + lane);
    float* to = out + lane;
    int at = 0;
    int nth = 0;
    for (int first = 0; first < b.rows / 2; first += 32) {
      for (std::uint32_t left = r.hot[first / 32]; left != 0; left &= left - 1, to += 2 * run_tokens) {
        const int pair = first + __builtin_ctz(left);
        const int place = b.wide_extra > 0 && (r.wide[first / 32] & left & (0U - left)) != 0 ? nth++ : -1;
        keys.move(pair / 2 - at);
        at = pair / 2;
        keys.load();
        if (pair % 2 == 0) {
          KVAXIS_TARGET::expand_pair<U, 0>(keys, b, r, place, at, r.first_lane + lane, to);
        } else {
          KVAXIS_TARGET::expand_pair<U, 1>(keys, b, r, place, at, r.first_lane + lane, to);
        }
      }
    }
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
