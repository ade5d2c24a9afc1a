// Sums of codes times bytes for eight heads as products of matrices; fewer heads are summed as without AMX. Included by
// integer.hpp.
//
//   sums [head][lane] += weights [head][64 rows] times codes [16 quads][lane][4 rows]
//
// which is how weights lie in a request, and the codes of a quad once they are bytes.
#include "../simd/amx.hpp"

KVAXIS_TARGET_PUSH(KVAXIS_TARGET_AVX512_AMX)
KVAXIS_BEGIN_NAMESPACE
namespace avx512_amx {

// What integer.inl gives to avx512 too is named in full.

// Of one multiplication.
constexpr int tmm_quads = 16;
constexpr int tmm_rows = 4 * tmm_quads;
static_assert(byte_stride % tmm_rows == 0);  // no load passes the end of a head's weights

// Two vectors of lanes have registers each: 0 and 1 for the sums, 2 and 3 for weights, 4 and 5 for codes.
inline constexpr tmm_shapes eight_heads = {1, 0, {}, {64, 64, 64, 64, 64, 64}, {8, 8, 8, 8, tmm_quads, tmm_quads}};

// A vector of lanes with its segment's weights from first_head on.
struct tmm_lanes {
  int lane;
  const std::int8_t* bytes;
  const byte_weights* weights;

  KVAXIS_INLINE tmm_lanes(const block_view& b, const integer_request& r, int first_head, int at) : lane(at) {
    const int row = lane / b.group_length * r.heads + first_head;
    bytes = r.bytes + static_cast<std::ptrdiff_t>(row) * byte_stride;
    weights = r.weights + row;
  }
  template <int Number>
  KVAXIS_INLINE void add_products(int first_row, const std::uint32_t* codes) const {
    load_tmm<2 + Number>(bytes + first_row, byte_stride);
    load_tmm<4 + Number>(codes, sizeof(std::uint32_t) * lanes);
    multiply_tmm<Number, 2 + Number, 4 + Number>();
  }
  template <int Number>
  KVAXIS_INLINE void add_sums(const integer_request& r, int first_head) const {
    alignas(64) std::uint32_t sums[8][lanes];
    store_tmm<Number>(sums, sizeof sums[0]);
    const std::ptrdiff_t stride = r.out_stride;
    float* out = r.out + first_head * stride + lane;
    KVAXIS_UNROLL
    for (int h = 0; h < 8; ++h, out += stride) {
      const vu total = add_words(load_words(sums[h]), set_word(weights[h].start));
      avx512_vnni::add_total(set1(weights[h].step), set1(weights[h].constant), total, out);
    }
  }
};

template <int Bits>
void eight_head_sums(const block_view& b, const integer_request& r, int first_head) noexcept {
  constexpr int parts = avx512_vnni::parts_of_word<Bits>;
  constexpr int vectors = Bits == 8 ? 1 : 2 / parts;  // below 8 bits, lanes are multiples of 32
  constexpr int count = parts * vectors;
  constexpr int step = vectors * lanes;
  const int words = b.lanes / parts;
  const int first = r.first_row / 4;
  const int end = r.end_row / 4;
  alignas(64) std::uint32_t codes[count][tmm_quads][lanes];
  configure_tmm(eight_heads);
  for (int word = 0; word < words; word += step) {
    const tmm_lanes one(b, r, first_head, word);
    const tmm_lanes other(b, r, first_head, word + (parts == 2 ? words : (count - 1) * lanes));
    spread_prefetch next(r.next, first_head, b.rows / 4 * (words / step), word / step * (b.rows / 4));
    clear_tmm<0>();
    if constexpr (count == 2) clear_tmm<1>();
    for (int base = first / tmm_quads * tmm_quads; base < end; base += tmm_quads) {
      const int from = base < first ? first : base;
      const int to = end < base + tmm_quads ? end : base + tmm_quads;
      if (to - from < tmm_quads) {  // other rows count for nothing
        for (auto& vector : codes) {
          for (auto& quad : vector) store_words(quad, set_word(0));
        }
      }
      for (int index = from; index < to; ++index) {
        vu quad[parts][vectors];
        avx512_vnni::load_codes<Bits, vectors>(b.words + index * quad_words(Bits, b.lanes), b.lanes, word, quad);
        KVAXIS_UNROLL
        for (int i = 0; i < count; ++i) store_words(codes[i][index - base], quad[i / vectors][i % vectors]);
        next.next_step();
      }
      one.add_products<0>(4 * base, codes[0][0]);
      if constexpr (count == 2) other.add_products<1>(4 * base, codes[1][0]);
    }
    one.add_sums<0>(r, first_head);
    if constexpr (count == 2) other.add_sums<1>(r, first_head);
  }
  release_tmm();
}

template <int Bits>
constexpr std::array<integer_kernels::sum_fn, 5> integer_table() {
  std::array<integer_kernels::sum_fn, 5> out = avx512_vnni::integer.sums[Bits];
  out[4] = &eight_head_sums<Bits>;
  return out;
}

inline constexpr integer_kernels integer = {{{{},
                                              {},
                                              avx512_amx::integer_table<2>(),
                                              avx512_amx::integer_table<3>(),
                                              avx512_amx::integer_table<4>(),
                                              avx512_amx::integer_table<5>(),
                                              avx512_amx::integer_table<6>(),
                                              {},
                                              avx512_amx::integer_table<8>()}}};

}  // namespace avx512_amx
KVAXIS_END_NAMESPACE
KVAXIS_TARGET_POP
