// The kernels of half.hpp, which includes this.
#include "../simd/avx512_fp16.hpp"

KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512_FP16)
KVAXIS_BEGIN_NAMESPACE
namespace avx512_fp16 {

// How the codes of a pair come out of a vector of words, times 2^-shift.
template <unit_kind U>
struct half_traits;

template <>
struct half_traits<unit_kind::u4> {
  static constexpr int parts = 2;
  static constexpr int code_shift = 20;
  static constexpr int shift = 6;  // of what is summed; scales are below 2^(1 + 20 - 6)
  static constexpr float largest = 15.0F;
  static constexpr bool high_bytes = false;
  template <int Part>
  KVAXIS_INLINE static vh codes(vu spread) {
    return nibbles_to_halves<Part == 1>(spread);
  }
};
template <>
struct half_traits<unit_kind::e4m3> {
  static constexpr int parts = 1;
  static constexpr int code_shift = 8;
  static constexpr int shift = 8;
  static constexpr float largest = 0.0F;  // of a code; what lies about zero needs no bound
  static constexpr bool high_bytes = true;
  template <int Part>
  KVAXIS_INLINE static vh codes(vu spread) {
    return e4m3_to_halves(spread);
  }
};

constexpr float query_power = 5.0F;
constexpr float most_offset = 64.0F;

// --- Hot pairs -----------------------------------------------------------------------------------------------------

template <unit_kind U>
KVAXIS_INLINE float prepare_pairs_of(const block_view& b, const std::uint32_t* hot, const half_pairs& to) {
  using traits = half_traits<U>;
  vf top = set1(-2000.0F);
  for (int w = 0; w < (b.rows / 2 + 31) / 32; ++w) to.mask[w] = to.left[w] = 0;
  for (int c = 0; c < b.rows; c += lanes) {
    const std::uint32_t wanted = hot[c / 64] >> (c / 2 % 32) & 0xFFU;
    if (wanted == 0) continue;
    const vf s = load(b.scale + c);
    const vf o = load(b.offset + c);
    const vf e = exponent(larger_of_pair(max_magnitude(set1(1e-30F), s)));
    const vf up = sub(set1(traits::code_shift - traits::shift), e);
    const vf down = sub(set1(-traits::shift), e);
    const vf furthest = max_magnitude(max_magnitude(zero(), o), muladd(set1(traits::largest), s, o));
    store_parameters(to.parameters + c, times_power(s, up), times_power(o, down));
    store(to.exponents + c, e);
    const std::uint32_t fit = pairs_up_to(larger_of_pair(times_power(furthest, sub(zero(), e))), most_offset);
    to.mask[c / 64] |= (wanted & fit) << (c / 2 % 32);
    to.left[c / 64] |= (wanted & ~fit) << (c / 2 % 32);
    top = max(top, select_pairs(wanted & fit, e, top));
  }
  return max_lane(top);
}

inline float prepare_pairs(const block_view& b, unit_kind unit, const std::uint32_t* hot,
                           const half_pairs& to) noexcept {
  return unit == unit_kind::u4 ? prepare_pairs_of<unit_kind::u4>(b, hot, to)
                               : prepare_pairs_of<unit_kind::e4m3>(b, hot, to);
}

inline void prepare_queries(unit_kind unit, float m, const float* queries, const float* largest, int heads,
                            int channels, const half_pairs& to) noexcept {
  const int shift = unit == unit_kind::u4 ? half_traits<unit_kind::u4>::shift : half_traits<unit_kind::e4m3>::shift;
  for (int h = 0; h < heads; ++h) {
    // Turning a pair makes a channel at most sqrt(2) times as large.
    const vf bound = add(exponent(max(set1(largest[h]), set1(1e-30F))), set1(2.0F));
    const vf down = sub(set1(query_power - m), bound);
    for (int c = 0; c < channels; c += lanes) {
      if ((to.mask[c / 64] >> (c / 2 % 32) & 0xFFU) == 0) continue;
      const vf q = load(queries + h * query_stride + c);
      store_halves(to.queries + h * query_stride + c, times_power(q, add(load(to.exponents + c), down)));
    }
    const vf up = min(sub(set1(static_cast<float>(shift)), down), set1(126.0F));  // finite, whatever the queries are
    to.factors[h] = first_lane(times_power(set1(1.0F), up));
  }
}

// Pairs of V vectors of words from `word` of every quad on.
template <unit_kind U, int H, int V>
KVAXIS_INLINE void score_half_lanes(const block_view& b, const half_request& r, int first_head, int word) {
  using traits = half_traits<U>;
  constexpr int parts = traits::parts;
  const half_pairs& pairs = *r.pairs;
  const std::ptrdiff_t block_lanes = b.lanes;
  const std::ptrdiff_t part_lanes = b.lanes / parts;  // and words of a quad
  const std::uint32_t* const words = b.words + word;
  const std::uint32_t* const turns = r.turn + word * parts;
  const auto* const queries = reinterpret_cast<const std::uint32_t*>(pairs.queries + first_head * query_stride);
  vh sums[H][parts][V];
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    KVAXIS_UNROLL
    for (int p = 0; p < parts; ++p) {
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) sums[h][p][v] = zero_halves();
    }
  }
  spread_prefetch next(r.next, first_head, r.count * (b.lanes / (parts * V * lanes)), word / (V * lanes) * r.count);
  for (pair_walk at(pairs.mask, b.rows); at.more(); at.next()) {
    const int pair = at.pair();
    next.next_step();
    const std::uint32_t* const angles = turns + pair * block_lanes;
    vh x[parts][V];
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) {
      const vu spread = spread_pair<traits::high_bytes>(words + pair / 2 * part_lanes + v * lanes, pair % 2);
      x[0][v] = traits::template codes<0>(spread);
      if constexpr (parts == 2) x[1][v] = traits::template codes<1>(spread);
    }
    const vh scale = set_halves(pairs.parameters + 2 * pair);
    const vh offset = set_halves(pairs.parameters + 2 * pair + 1);
    KVAXIS_UNROLL
    for (int p = 0; p < parts; ++p) {
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) {
        x[p][v] = turn(fma(x[p][v], scale, offset), load_halves(angles + (v * parts + p) * lanes));
      }
    }
    KVAXIS_UNROLL
    for (int h = 0; h < H; ++h) {
      const vh q = set_halves(queries + h * (query_stride / 2) + pair);
      KVAXIS_UNROLL
      for (int p = 0; p < parts; ++p) {
        KVAXIS_UNROLL
        for (int v = 0; v < V; ++v) sums[h][p][v] = fma(q, x[p][v], sums[h][p][v]);
      }
    }
  }
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    const vf factor = set1(pairs.factors[first_head + h]);
    KVAXIS_UNROLL
    for (int p = 0; p < parts; ++p) {
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) {
        float* const out = r.out + (first_head + h) * r.out_stride + word + p * part_lanes + v * lanes;
        store(out, muladd(factor, sum_lanes(sums[h][p][v]), load(out)));
      }
    }
  }
}

// Blocks of keys have a multiple of 32 lanes.
template <unit_kind U, int H>
void half_scores(const block_view& b, const half_request& r, int first_head) noexcept {
  constexpr int parts = half_traits<U>::parts;
  constexpr int wide = (H == 8 ? 2 : 4) / parts;
  constexpr int narrow = 2 / parts;
  const int words = b.lanes / parts;
  int word = 0;
  for (; word + wide * lanes <= words; word += wide * lanes) score_half_lanes<U, H, wide>(b, r, first_head, word);
  for (; word < words; word += narrow * lanes) score_half_lanes<U, H, narrow>(b, r, first_head, word);
}

template <unit_kind U>
constexpr std::array<half_kernels::score_fn, 5> half_score_table() {
  return {&half_scores<U, 1>, &half_scores<U, 2>, &half_scores<U, 3>, &half_scores<U, 4>, &half_scores<U, 8>};
}

// --- Sums of E4M3 rows ---------------------------------------------------------------------------------------------

inline void round_rows_to_halves(const float* folded, const float* inverse, int rows, int count,
                                 std::uint16_t* out) noexcept {
  for (int row = 0; row < rows; ++row) {
    const vf factor = set1(inverse[row]);
    for (int i = 0; i < count; i += lanes) {
      store_halves(out + row * byte_stride + i, mul(load(folded + row * byte_stride + i), factor));
    }
  }
}

template <int H, int V>
KVAXIS_INLINE void sum_half_lanes(const block_view& b, const integer_request& r, int first_head, int lane) {
  const int first = lane / b.group_length * r.heads + first_head;
  const byte_weights* const weights = r.weights + first;
  const auto* rows =
      reinterpret_cast<const std::uint32_t*>(r.halves + static_cast<std::ptrdiff_t>(first) * byte_stride + r.first_row);
  vh sums[H][V];
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) sums[h][v] = zero_halves();
  }
  const std::uint32_t* words = b.words + r.first_row / 4 * static_cast<std::ptrdiff_t>(b.lanes) + lane;
  spread_prefetch next(r.next, first_head, b.rows / 4 * (b.lanes / (V * lanes)), lane / (V * lanes) * (b.rows / 4));
  for (int row = r.first_row; row < r.end_row; row += 4, words += b.lanes, rows += 2) {
    next.next_step();
    KVAXIS_UNROLL
    for (int half = 0; half < 2; ++half) {
      vh x[V];
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) x[v] = e4m3_to_halves(spread_pair<true>(words + v * lanes, half));
      KVAXIS_UNROLL
      for (int h = 0; h < H; ++h) {
        const vh w = set_halves(rows + h * (byte_stride / 2) + half);
        KVAXIS_UNROLL
        for (int v = 0; v < V; ++v) sums[h][v] = fma(w, x[v], sums[h][v]);
      }
    }
  }
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    float* const out = r.out + (first_head + h) * r.out_stride + lane;
    const vf step = set1(0x1p8F * weights[h].step);
    const vf constant = set1(weights[h].constant);
    KVAXIS_UNROLL
    for (int v = 0; v < V; ++v) {
      store(out + v * lanes, muladd(step, sum_lanes(sums[h][v]), add(load(out + v * lanes), constant)));
    }
  }
}

// Segments are multiples of 16 lanes.
template <int H>
void half_sums(const block_view& b, const integer_request& r, int first_head) noexcept {
  constexpr int wide = H == 8 ? 2 : 4;
  const bool fits = b.group_length % (wide * lanes) == 0 && b.lanes % (wide * lanes) == 0;
  int lane = 0;
  for (; fits && lane < b.lanes; lane += wide * lanes) sum_half_lanes<H, wide>(b, r, first_head, lane);
  for (; lane < b.lanes; lane += lanes) sum_half_lanes<H, 1>(b, r, first_head, lane);
}

inline constexpr half_kernels half = {&prepare_pairs,
                                      &prepare_queries,
                                      half_score_table<unit_kind::u4>(),
                                      half_score_table<unit_kind::e4m3>(),
                                      &round_rows_to_halves,
                                      {&half_sums<1>, &half_sums<2>, &half_sums<3>, &half_sums<4>, &half_sums<8>}};

}  // namespace avx512_fp16
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP
