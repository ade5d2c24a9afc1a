// Kernels of keys. Included once per instruction set by kernels.hpp, inside a target region. Only the vocabulary of simd/
// is used.
// For editors that open this file alone:
#ifndef KVAXIS_TARGET
#include "kernels.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// V neighbouring vectors of lanes of a block, quad after quad. Groups of parameters run along the lanes, all of these
// lanes in one group, or (Across) down the rows.
template <unit_kind U, int V, bool Across>
struct quad_reader {
  static constexpr int bits = unit_traits<U>::bits;
  static constexpr int parts = bits <= 8 ? 1 : bits / 8;  // vectors of words for one vector of lanes
  static constexpr bool scaled = unit_traits<U>::scaled;
  static constexpr bool planes = bits < 8 && bits != 4;
  const std::uint32_t* quad;  // the first word of the quad
  const float* scale;         // of the quad's row 0, or of its group and the first lane
  const float* offset;
  std::ptrdiff_t block_lanes;
  std::ptrdiff_t at[V];  // of a vector's first word in the quad
  bool high[V];          // 4 bits: the lanes of the high nibbles
  int group_quads;
  int quads_left;  // Across: before the next group
  vu words[V][parts];

  KVAXIS_INLINE quad_reader(const block_view& b, int index, int lane)
      : quad(b.words + index * quad_words(bits, b.lanes)), block_lanes(b.lanes) {
    const int parameter =
        Across ? 4 * index / b.group_length * b.lanes + lane : lane / b.group_length * b.rows + 4 * index;
    scale = scaled ? b.scale + parameter : nullptr;
    offset = scaled ? b.offset + parameter : nullptr;
    group_quads = b.group_length / 4;
    quads_left = Across ? group_quads - index % group_quads : 0;
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) {
      const int l = lane + v * lanes;
      high[v] = bits == 4 && l >= b.lanes / 2;
      at[v] = high[v] ? l - b.lanes / 2 : l;  // of planes: the lane
    }
  }

  // Word number `part` of vector v; codes in planes come as bytes.
  KVAXIS_INLINE vu word(int v, int part) const {
    if constexpr (planes) {
      return load_byte_codes<bits>(quad, static_cast<int>(block_lanes), static_cast<int>(at[v]));
    } else {
      return load_words(quad + part * block_lanes + at[v]);
    }
  }
  KVAXIS_INLINE void load() {
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) {
      KVAXIS_UNROLL
      for (int p = 0; p < parts; ++p) words[v][p] = word(v, p);
      if constexpr (bits == 4) {
        if (high[v]) words[v][0] = shift_right<4>(words[v][0]);
      }
    }
  }
  // Of a reader of the first quad, groups along the lanes: another one with the rows of a pair as its first two.
  KVAXIS_INLINE quad_reader pair(int number) const {
    static_assert(!Across);
    quad_reader at_pair = *this;
    const std::ptrdiff_t half = number % 2;
    at_pair.quad += number / 2 * (bits * block_lanes / 8);
    if constexpr (scaled) {
      at_pair.scale += 2 * number;
      at_pair.offset += 2 * number;
    }
    if constexpr (bits > 8) at_pair.quad += half * (bits * block_lanes / 16);
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) {
      KVAXIS_UNROLL
      for (int p = 0; p < (parts + 1) / 2; ++p) at_pair.words[v][p] = at_pair.word(v, p);
      if constexpr (bits <= 8) {
        at_pair.words[v][0] = shift_right_by(at_pair.words[v][0], static_cast<int>(16 * half) + (high[v] ? 4 : 0));
      }
    }
    return at_pair;
  }
  KVAXIS_INLINE void advance() {
    quad += bits * block_lanes / 8;
    if constexpr (scaled && Across) {
      if (--quads_left > 0) return;
      quads_left = group_quads;
      scale += block_lanes;
      offset += block_lanes;
    } else if constexpr (scaled) {
      scale += 4;
      offset += 4;
    }
  }

  // Rows 2 Half and 2 Half + 1 of the quad, as codes stand for them before scale and offset.
  template <int Half>
  KVAXIS_INLINE void units(vf* x, vf* y) const {
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) unit_traits<U>::template rows<Half>(words[v], x[v], y[v]);
  }
  // The same rows, dequantized.
  template <int Half>
  KVAXIS_INLINE void rows(vf* x, vf* y) const {
    if constexpr (!scaled) {
      units<Half>(x, y);
    } else if constexpr (Across) {
      units<Half>(x, y);
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) {
        const vf s = KVAXIS_TARGET::load(scale + v * lanes);
        const vf o = KVAXIS_TARGET::load(offset + v * lanes);
        x[v] = fma(s, x[v], o);
        y[v] = fma(s, y[v], o);
      }
    } else if constexpr (U == unit_kind::u4) {
      const nibble_values first = values_of_nibbles(set1(scale[2 * Half]), set1(offset[2 * Half]));
      const nibble_values second = values_of_nibbles(set1(scale[2 * Half + 1]), set1(offset[2 * Half + 1]));
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) {
        x[v] = look_up<16 * Half>(first, words[v][0]);
        y[v] = look_up<16 * Half + 8>(second, words[v][0]);
      }
    } else {
      units<Half>(x, y);
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) {
        x[v] = fma(set1(scale[2 * Half]), x[v], set1(offset[2 * Half]));
        y[v] = fma(set1(scale[2 * Half + 1]), y[v], set1(offset[2 * Half + 1]));
      }
    }
  }
};

// A few lines at once, between the stages.
constexpr std::size_t burst_bytes = 8 * 64;
KVAXIS_INLINE void fetch(read_ahead now) {
  for (std::size_t i = 0; i < now.bytes; i += 64) prefetch(now.data + i);
}

// Prefetches evenly over the steps of a kernel.
struct spread_prefetch {
  std::uintptr_t line;  // not pointers: they may run past the end, where a prefetch does nothing
  std::uintptr_t end;
  std::uintptr_t step;

  // For the heads from `first_head` on: only the first ones fetch.
  KVAXIS_INLINE spread_prefetch(const read_ahead& next, int first_head, int steps, int first_step) {
    const std::size_t bytes = first_head == 0 ? next.bytes : 0;
    step = (bytes + static_cast<std::size_t>(steps) - 1) / static_cast<std::size_t>(steps);
    end = reinterpret_cast<std::uintptr_t>(next.data) + static_cast<std::uintptr_t>(first_step) * step;
    line = (end + 63) / 64 * 64;
  }
  KVAXIS_INLINE void next_step() {
    end += step;
    for (; line < end; line += 64) prefetch(reinterpret_cast<const void*>(line));
  }
};

// --- Keys ----------------------------------------------------------------------------------------------------------

// The bits of a quad's two pairs in a mask with one bit a pair.
KVAXIS_INLINE std::uint32_t pair_bits(const std::uint32_t* mask, int quad) {
  return mask[quad >> 4] >> (2 * quad & 31);
}

// x and y turned by the angles of their pair.
template <int V>
KVAXIS_INLINE void rotate_pair(const float* cosine, const float* sine, vf* x, vf* y) {
  KVAXIS_UNROLL
  for (int v = 0; v < V; ++v) {
    const vf c = load(cosine + v * lanes);
    const vf s = load(sine + v * lanes);
    const vf turned = sub(mul(x[v], c), mul(y[v], s));
    y[v] = muladd(x[v], s, mul(y[v], c));
    x[v] = turned;
  }
}

// sums += a[h][0] x + a[h][1] y for H heads.
template <int H, int V, int Stride>
KVAXIS_INLINE void add_pair(const float* a, const vf* x, const vf* y, vf (*sums)[V]) {
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    const vf ax = set1(a[h * Stride]);
    const vf ay = set1(a[h * Stride + 1]);
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) sums[h][v] = muladd(ay, y[v], muladd(ax, x[v], sums[h][v]));
  }
}

template <unit_kind U, int H, int V>
KVAXIS_INLINE void score_lanes(const block_view& b, const score_request& r, int first_head, int lane) {
  float* out = r.out + first_head * score_stride + lane - r.first_lane;
  vf sums[H][V];
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) sums[h][v] = KVAXIS_TARGET::load(out + h * score_stride + v * lanes);
  }
  // Copies, because the compiler would read the members again after every prefetch.
  const int quads = b.rows / 4;
  const std::uint32_t* const rotate = r.rotate;
  const std::uint32_t* const hot = r.hot;
  const float* cosine = r.cos + (lane - r.first_lane);
  const float* sine = r.sin + (lane - r.first_lane);
  const float* run_queries = r.run_queries + first_head * query_stride;
  const float* tile_queries = r.tile_queries + first_head * query_stride;
  quad_reader<U, V, false> keys(b, 0, lane);
  spread_prefetch next(r.next, first_head, quads * b.lanes / (V * lanes), lane / (V * lanes) * quads);
  for (int index = 0; index < quads; ++index) {
    keys.load();
    next.next_step();
    const std::uint32_t turns = pair_bits(rotate, index);
    const std::uint32_t hots = pair_bits(hot, index);
    vf x[V];
    vf y[V];
    keys.template rows<0>(x, y);
    if ((turns & 1U) != 0) rotate_pair<V>(cosine, sine, x, y);
    add_pair<H, V, query_stride>((hots & 1U) != 0 ? run_queries : tile_queries, x, y, sums);
    keys.template rows<1>(x, y);
    if ((turns & 2U) != 0) rotate_pair<V>(cosine + run_tokens, sine + run_tokens, x, y);
    add_pair<H, V, query_stride>(((hots & 2U) != 0 ? run_queries : tile_queries) + 2, x, y, sums);
    keys.advance();
    cosine += 2 * run_tokens;
    sine += 2 * run_tokens;
    run_queries += 4;
    tile_queries += 4;
  }
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) store(out + h * score_stride + v * lanes, sums[h][v]);
  }
}

// Vectors of lanes side by side: enough independent sums to hide the latency of a multiply-add, few enough for the
// registers.
template <int H>
constexpr int score_vectors = lanes == 8 && H == 1   ? 4
                              : lanes == 4 && H <= 2 ? 4
                              : lanes == 8 && H == 8 ? 1
                                                     : 2;

template <unit_kind U, int H>
void scores(const block_view& b, const score_request& r, int first_head) noexcept {
  constexpr int step = score_vectors<H> * lanes;
  for (int lane = 0; lane < run_tokens; lane += step) {
    score_lanes<U, H, score_vectors<H>>(b, r, first_head, r.first_lane + lane);
  }
}

template <unit_kind U, bool Across>
KVAXIS_INLINE void expand_key_lanes(const block_view& b, const score_request& r, int lane, float* out) {
  const int quads = b.rows / 4;
  const std::uint32_t* const rotate = r.rotate;
  const float* cosine = r.cos + (lane - r.first_lane);
  const float* sine = r.sin + (lane - r.first_lane);
  quad_reader<U, 2, Across> keys(b, 0, lane);
  for (int index = 0; index < quads; ++index) {
    keys.load();
    const std::uint32_t turns = pair_bits(rotate, index);
    vf x[4][2];
    keys.template rows<0>(x[0], x[1]);
    if ((turns & 1U) != 0) rotate_pair<2>(cosine, sine, x[0], x[1]);
    keys.template rows<1>(x[2], x[3]);
    if ((turns & 2U) != 0) rotate_pair<2>(cosine + run_tokens, sine + run_tokens, x[2], x[3]);
    KVAXIS_UNROLL
    for (int c = 0; c < 4; ++c) {
      store(out + c * run_tokens, x[c][0]);
      store(out + c * run_tokens + lanes, x[c][1]);
    }
    keys.advance();
    out += 4 * run_tokens;
    cosine += 2 * run_tokens;
    sine += 2 * run_tokens;
  }
}

template <unit_kind U>
void expand_keys(const block_view& b, const score_request& r, float* out) noexcept {
  for (int lane = 0; lane < run_tokens; lane += 2 * lanes) {
    if (b.across) {
      expand_key_lanes<U, true>(b, r, r.first_lane + lane, out + lane);
    } else {
      expand_key_lanes<U, false>(b, r, r.first_lane + lane, out + lane);
    }
  }
}

template <unit_kind U, bool Across>
KVAXIS_INLINE void transpose_key_lanes(const block_view& b, int lane, int first_row, int end_row, int stride,
                                       float* out) {
  quad_reader<U, 2, Across> keys(b, first_row / 4, lane);
  for (int index = first_row / 4; index < end_row / 4; ++index) {
    keys.load();
    vf x[4][2];
    keys.template rows<0>(x[0], x[1]);
    keys.template rows<1>(x[2], x[3]);
    KVAXIS_UNROLL
    for (int v = 0; v < 2; ++v) {
      const vf four[] = {x[0][v], x[1][v], x[2][v], x[3][v]};
      store_four(out + v * lanes * stride, stride, four);
    }
    keys.advance();
    out += 4;
  }
}

template <unit_kind U>
void transpose_keys(const block_view& b, int first_lane, int first_row, int end_row, int stride, float* out) noexcept {
  for (int lane = 0; lane < run_tokens; lane += 2 * lanes) {
    float* const to = out + lane * stride;
    if (b.across) {
      transpose_key_lanes<U, true>(b, first_lane + lane, first_row, end_row, stride, to);
    } else {
      transpose_key_lanes<U, false>(b, first_lane + lane, first_row, end_row, stride, to);
    }
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
