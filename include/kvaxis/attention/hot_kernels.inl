// Kernels of hot pairs alone. Included once per instruction set by kernels.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "kernels.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// The pairs of a mask, in order; a block has a pair for every two rows. No function that takes a function: sums of vectors
// that it captures would go through memory.
struct pair_walk {
  const std::uint32_t* mask;
  int end;
  int first = 0;
  std::uint32_t left;

  KVAXIS_INLINE pair_walk(const std::uint32_t* pairs, int rows) : mask(pairs), end(rows / 2), left(pairs[0]) { skip(); }
  KVAXIS_INLINE void skip() {
    while (left == 0 && (first += 32) < end) left = mask[first / 32];
  }
  [[nodiscard]] KVAXIS_INLINE bool more() const { return left != 0; }
  [[nodiscard]] KVAXIS_INLINE int pair() const { return first + __builtin_ctz(left); }
  KVAXIS_INLINE void next() {
    left &= left - 1;
    skip();
  }
};

template <unit_kind U, int H>
void hot_scores(const block_view& b, const score_request& r, int first_head) noexcept {
  constexpr int V = score_vectors<H>;
  const float* const queries = r.run_queries + first_head * query_stride;
  for (int lane = 0; lane < run_tokens; lane += V * lanes) {
    float* out = r.out + first_head * score_stride + lane;
    vf sums[H][V];
    KVAXIS_UNROLL
    for (int h = 0; h < H; ++h) {
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) sums[h][v] = load(out + h * score_stride + v * lanes);
    }
    const quad_reader<U, V, false> keys(b, 0, r.first_lane + lane);
    for (pair_walk at(r.hot, b.rows); at.more(); at.next()) {
      const int pair = at.pair();
      vf x[V];
      vf y[V];
      keys.pair(pair).template rows<0>(x, y);
      // Rows of f32 were decoded, and rotated, before.
      if constexpr (U != unit_kind::f32) {
        rotate_pair<V>(r.cos + pair * run_tokens + lane, r.sin + pair * run_tokens + lane, x, y);
      }
      add_pair<H, V, query_stride>(queries + 2 * pair, x, y, sums);
    }
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

// One hot pair of two vectors of tokens, as f32; `nth`: the number among the wide ones, or -1.
template <unit_kind U>
KVAXIS_INLINE void expand_pair(const quad_reader<U, 2, false>& key, const block_view& b, const score_request& r,
                               int nth, int pair, int lane, float* out) {
  vf x[2];
  vf y[2];
  key.template units<0>(x, y);
  KVAXIS_UNROLL
  for (int v = 0; v < 2; ++v) {
    if (nth >= 0) {
      vf further_x;
      vf further_y;
      KVAXIS_TARGET::load_further_bits(b, nth, r.first_lane + lane + v * lanes, further_x, further_y);
      const vf weight = set1(static_cast<float>(1 << unit_traits<U>::bits));
      x[v] = fma(weight, further_x, x[v]);
      y[v] = fma(weight, further_y, y[v]);
    }
    x[v] = fma(set1(key.scale[0]), x[v], set1(key.offset[0]));
    y[v] = fma(set1(key.scale[1]), y[v], set1(key.offset[1]));
  }
  const int angle = pair * run_tokens + lane;
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
    const quad_reader<U, 2, false> keys(b, 0, r.first_lane + lane);
    float* to = out + lane;
    int wide = 0;
    for (pair_walk at(r.hot, b.rows); at.more(); at.next(), to += 2 * run_tokens) {
      const int pair = at.pair();
      const bool is_wide = b.wide_extra > 0 && (r.wide[pair / 32] >> pair % 32 & 1U) != 0;
      KVAXIS_TARGET::expand_pair<U>(keys.pair(pair), b, r, is_wide ? wide++ : -1, pair, lane, to);
    }
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
