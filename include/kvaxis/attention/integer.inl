// Sums of codes times bytes. Included once per instruction set by integer.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "integer.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// Calls with vectors are qualified: others would also find the functions of the vocabulary that this one extends.

// Vectors of lanes whose codes lie in one vector of words and are taken together.
template <int Bits>
constexpr int parts_of_word = Bits == 4 ? 2 : 1;

// The codes of V vectors of words from `word` of a quad on, or of as many lanes.
template <int Bits, int V>
KVAXIS_INLINE void load_codes(const std::uint32_t* quad, int block_lanes, int word, vu (*codes)[V]) {
  KVAXIS_UNROLL
  for (int v = 0; v < V; ++v) {
    if constexpr (Bits == 4) {
      const vu words = load_words(quad + word + v * lanes);
      codes[0][v] = low_nibbles(words);
      codes[1][v] = low_nibbles(shift_right<4>(words));
    } else {
      codes[0][v] = load_byte_codes<Bits>(quad, block_lanes, word + v * lanes);
    }
  }
}

// Adds the products of the quads index .. end - 1.
template <int Bits, int H, int V>
KVAXIS_INLINE void add_quads(int index, int end, int block_lanes, int word, const std::uint32_t*& quad,
                             const std::int8_t** bytes, spread_prefetch& next, vu (*sums)[parts_of_word<Bits>][V]) {
  constexpr int parts = parts_of_word<Bits>;
  const std::ptrdiff_t quad_step = quad_words(Bits, block_lanes);
  for (; index < end; ++index) {
    vu codes[parts][V];
    KVAXIS_TARGET::load_codes<Bits, V>(quad, block_lanes, word, codes);
    next.next_step();
    KVAXIS_UNROLL
    for (int h = 0; h < H; ++h) {
      KVAXIS_UNROLL
      for (int p = 0; p < parts; ++p) {
        const vu w = load_bytes(bytes[p] + h * byte_stride);
        KVAXIS_UNROLL
        for (int v = 0; v < V; ++v) sums[h][p][v] = KVAXIS_TARGET::add_products<Bits>(sums[h][p][v], codes[p][v], w);
      }
    }
    quad += quad_step;
    KVAXIS_UNROLL
    for (int p = 0; p < parts; ++p) bytes[p] += 4;
  }
}

// out += step * total + constant.
KVAXIS_INLINE void add_total(vf step, vf constant, vu total, float* out) {
  store(out, muladd(step, words_to_float(total), add(load(out), constant)));
}

// V vectors of words from `word` of every quad on.
template <int Bits, int H, int V>
KVAXIS_INLINE void integer_lanes(const block_view& b, const integer_request& r, int first_head, int word) {
  constexpr int parts = parts_of_word<Bits>;
  int lane[parts];
  const std::int8_t* bytes[parts];
  const byte_weights* weights[parts];
  KVAXIS_UNROLL
  for (int p = 0; p < parts; ++p) {
    lane[p] = word + p * (b.lanes / 2);
    const int row = lane[p] / b.group_length * r.heads + first_head;
    bytes[p] = r.bytes + static_cast<std::ptrdiff_t>(row) * byte_stride + r.first_row;
    weights[p] = r.weights + row;
  }
  vu totals[H][parts][V];
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    KVAXIS_UNROLL
    for (int p = 0; p < parts; ++p) {
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) totals[h][p][v] = set_word(Bits == 8 && centred_bytes ? 0 : weights[p][h].start);
    }
  }
  const int end = r.end_row / 4;
  const std::uint32_t* quad = b.words + r.first_row / 4 * quad_words(Bits, b.lanes);
  const int quads = b.rows / 4;
  const int steps = b.lanes / (parts * V * lanes);
  spread_prefetch next(r.next, first_head, quads * steps, word / (V * lanes) * quads);
  if constexpr (sums_in_words) {
    KVAXIS_TARGET::add_quads<Bits, H, V>(r.first_row / 4, end, b.lanes, word, quad, bytes, next, totals);
  } else {
    for (int index = r.first_row / 4; index < end; index += quads_to_settle<Bits>) {
      vu sums[H][parts][V];
      KVAXIS_UNROLL
      for (int h = 0; h < H; ++h) {
        KVAXIS_UNROLL
        for (int p = 0; p < parts; ++p) {
          KVAXIS_UNROLL
          for (int v = 0; v < V; ++v) sums[h][p][v] = set_word(0);
        }
      }
      const int stop = index + quads_to_settle<Bits> < end ? index + quads_to_settle<Bits> : end;
      KVAXIS_TARGET::add_quads<Bits, H, V>(index, stop, b.lanes, word, quad, bytes, next, sums);
      KVAXIS_UNROLL
      for (int h = 0; h < H; ++h) {
        KVAXIS_UNROLL
        for (int p = 0; p < parts; ++p) {
          KVAXIS_UNROLL
          for (int v = 0; v < V; ++v) totals[h][p][v] = settle(totals[h][p][v], sums[h][p][v]);
        }
      }
    }
  }
  KVAXIS_UNROLL
  for (int h = 0; h < H; ++h) {
    KVAXIS_UNROLL
    for (int p = 0; p < parts; ++p) {
      float* out = r.out + (first_head + h) * r.out_stride + lane[p];
      const vf step = set1(weights[p][h].step);
      const vf constant = set1(weights[p][h].constant);
      KVAXIS_UNROLL
      for (int v = 0; v < V; ++v) KVAXIS_TARGET::add_total(step, constant, totals[h][p][v], out + v * lanes);
    }
  }
}

// Vectors of words side by side: as many sums as the registers hold, of which AVX2 has half as many as the others.
template <int Bits, int H>
constexpr int integer_vectors = (lanes == 8 ? 8 : 16) / (parts_of_word<Bits> * H);

template <int Bits, int H, int V>
KVAXIS_INLINE bool integer_block(const block_view& b, const integer_request& r, int first_head) {
  if constexpr (V > 1 && (lanes == 1 || V > integer_vectors<Bits, H>)) return false;
  constexpr int step = V * lanes;
  const int words = b.lanes / parts_of_word<Bits>;
  // Every stretch of lanes must lie in one segment; those are multiples of 16, and so are halves of a block.
  if (V > 1 && (b.group_length % step != 0 || words % step != 0)) return false;
  for (int w = 0; w < words; w += step) integer_lanes<Bits, H, V>(b, r, first_head, w);
  return true;
}

template <int Bits, int H>
void integer_sums(const block_view& b, const integer_request& r, int first_head) noexcept {
  if (integer_block<Bits, H, 4>(b, r, first_head) || integer_block<Bits, H, 2>(b, r, first_head)) return;
  static_cast<void>(integer_block<Bits, H, 1>(b, r, first_head));
}

// Eight heads take more registers than some instruction sets have.
template <int Bits>
void eight_integer_sums(const block_view& b, const integer_request& r, int first_head) noexcept {
  if constexpr (lanes == 16) return integer_sums<Bits, 8>(b, r, first_head);
  integer_sums<Bits, 4>(b, r, first_head);
  integer_sums<Bits, 4>(b, r, first_head + 4);
}

template <int Bits>
constexpr std::array<integer_kernels::sum_fn, 5> integer_table() {
  return {&integer_sums<Bits, 1>, &integer_sums<Bits, 2>, &integer_sums<Bits, 3>, &integer_sums<Bits, 4>,
          &eight_integer_sums<Bits>};
}
constexpr std::array<integer_kernels::sum_fn, 5> wide_integer_table() {
  if constexpr (sums_in_words) return integer_table<8>();
  return {};
}

inline constexpr integer_kernels integer = {{{{},
                                              {},
                                              integer_table<2>(),
                                              integer_table<3>(),
                                              integer_table<4>(),
                                              integer_table<5>(),
                                              integer_table<6>(),
                                              {},
                                              wide_integer_table()}}};

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
