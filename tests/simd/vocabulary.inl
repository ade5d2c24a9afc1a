// Included once per instruction set by vocabulary.hpp.
KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {
namespace probe {

template <class Op>
void convert(const std::uint32_t* words, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, Op::run(load_words(words + i)));
}
template <class Op>
void one(const float* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, Op::run(load(a + i)));
}
template <class Op>
void to_words(const float* a, std::uint32_t* out, int n) {
  for (int i = 0; i < n; i += lanes) store_words(out + i, Op::run(load(a + i)));
}
template <class Op>
void two_words(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* out, int n) {
  for (int i = 0; i < n; i += lanes) store_words(out + i, Op::run(load_words(a + i), load_words(b + i)));
}
template <class Op>
void two(const float* a, const float* b, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, Op::run(load(a + i), load(b + i)));
}
template <class Op>
void three(const float* a, const float* b, const float* c, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, Op::run(load(a + i), load(b + i), load(c + i)));
}
template <class Op>
void three_d(const double* a, const double* b, const double* c, double* out, int n) {
  for (int i = 0; i < n; i += lanes_d) store_d(out + i, Op::run(load_d(a + i), load_d(b + i), load_d(c + i)));
}

template <int Shift>
struct nibble_op {
  KVAXIS_INLINE static vf run(vu w) { return narrow_to_float<4, Shift>(w); }
};
template <int Shift>
struct look_up_op {
  KVAXIS_INLINE static vf run(vu w) { return look_up<Shift>(values_of_nibbles(set1(0.37F), set1(-2.5F)), w); }
};
template <int Shift>
struct byte_op {
  KVAXIS_INLINE static vf run(vu w) { return narrow_to_float<8, Shift>(w); }
};
template <int Shift>
struct e4m3_op {
  KVAXIS_INLINE static vf run(vu w) {
    vf x;
    vf y;
    e4m3_pair<Shift / 16>(w, x, y);
    return Shift % 16 == 0 ? x : y;
  }
};
template <int Shift>
struct e5m2_op {
  KVAXIS_INLINE static vf run(vu w) {
    vf x;
    vf y;
    e5m2_pair<Shift / 16>(w, x, y);
    return Shift % 16 == 0 ? x : y;
  }
};
template <int Shift>
struct half_op {
  KVAXIS_INLINE static vf run(vu w) {
    vf x;
    vf y;
    half_pair(w, x, y);
    return Shift % 32 == 0 ? x : y;
  }
};
template <int Shift>
struct bfloat_op {
  KVAXIS_INLINE static vf run(vu w) {
    vf x;
    vf y;
    bfloat_pair(w, x, y);
    return Shift % 32 == 0 ? x : y;
  }
};
struct shifted_nibble_op {
  KVAXIS_INLINE static vf run(vu w) { return narrow_to_float<4, 8>(shift_right<4>(w)); }
};
struct bits_op {
  KVAXIS_INLINE static vf run(vu w) { return bits_to_float(w); }
};
struct add_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return add(a, b); }
};
struct sub_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return sub(a, b); }
};
struct mul_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return mul(a, b); }
};
struct div_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return div(a, b); }
};
struct max_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return max(a, b); }
};
struct min_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return min(a, b); }
};
struct max_magnitude_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return max_magnitude(a, b); }
};
struct fma_op {
  KVAXIS_INLINE static vf run(vf a, vf b, vf c) { return fma(a, b, c); }
};
struct fnma_op {
  KVAXIS_INLINE static vf run(vf a, vf b, vf c) { return fnma(a, b, c); }
};
struct muladd_op {
  KVAXIS_INLINE static vf run(vf a, vf b, vf c) { return muladd(a, b, c); }
};
struct select_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return select_above(a, 0.5F, b); }
};
struct scale_op {
  KVAXIS_INLINE static vf run(vf a, vf b) { return scale_by_power(a, b); }
};
struct flush_op {
  KVAXIS_INLINE static vf run(vf a) { return flush_subnormals(a); }
};
struct inverse_op {
  KVAXIS_INLINE static vf run(vf a) { return inverse(a); }
};
struct larger_op {
  KVAXIS_INLINE static vf run(vf a, vf b, vf c) { return select(above(a, b), c, a); }
};
struct fraction_op {
  KVAXIS_INLINE static vf run(vf a) { return fraction(a); }
};
struct half_bits_op {
  KVAXIS_INLINE static vu run(vf a) { return to_half(a); }
};
struct floor_op {
  KVAXIS_INLINE static vu run(vf a) { return floor_to_half(a); }
};
// ((a << 3) + b - 77) & 0x0FF0F0FF
struct integers_op {
  KVAXIS_INLINE static vu run(vu a, vu b) {
    return bit_and(sub_words(add_words(shift_left<3>(a), b), set1_words(77U)), set1_words(0x0FF0F0FFU));
  }
};
struct mul_d_op {
  KVAXIS_INLINE static vd run(vd a, vd b, vd) { return mul_d(a, b); }
};
struct fma_d_op {
  KVAXIS_INLINE static vd run(vd a, vd b, vd c) { return fma_d(a, b, c); }
};
struct fnma_d_op {
  KVAXIS_INLINE static vd run(vd a, vd b, vd c) { return fnma_d(a, b, c); }
};

inline void read_halves(const std::uint16_t* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, KVAXIS_TARGET::load_float16(a + i));
}
inline void read_bfloats(const std::uint16_t* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, KVAXIS_TARGET::load_bfloat16(a + i));
}
inline void rotate(const float* a, const float* b, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, load_rotated(a, b, i));
}
inline bool vector_within(const float* a, float low, float high) {
  return KVAXIS_TARGET::all_within(load(a), set1(low), set1(high));
}
inline void store_rows(const std::uint32_t* a, std::byte* words, std::size_t quad_bytes, int first, int rows) {
  KVAXIS_TARGET::store_quads(words, quad_bytes, first, rows, load_words(a));
}
inline void swap_neighbours(const float* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, load_swapped(a, i));
}
inline void one_less_zero(const float*, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, sub(set1(1.0F), zero()));
}
inline void sum_vectors(const float* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes) out[i / lanes] = sum(load(a + i));
}
inline void max_vectors(const float* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes) out[i / lanes] = max_lane(load(a + i));
}
inline void min_vectors(const float* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes) out[i / lanes] = min_lane(load(a + i));
}
inline void sum_vectors_by_four(const float* a, float* out, int n) {
  for (int i = 0; i < n; i += 4 * lanes) {
    const vf four[] = {load(a + i), load(a + i + lanes), load(a + i + 2 * lanes), load(a + i + 3 * lanes)};
    sum_four(four, out + i / lanes);
  }
}
inline void max_vectors_by_four(const float* a, float* out, int n) {
  for (int i = 0; i < n; i += 4 * lanes) {
    const vf four[] = {load(a + i), load(a + i + lanes), load(a + i + 2 * lanes), load(a + i + 3 * lanes)};
    max_four(four, out + i / lanes);
  }
}
inline void clear_some(const float* a, std::uint32_t pairs, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, KVAXIS_TARGET::clear_pairs(load(a + i), pairs));
}
inline void double_up(const double* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes_d) KVAXIS_TARGET::store_twice(out + 2 * i, load_d(a + i));
}
inline void with_opposite(const double* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes_d) KVAXIS_TARGET::store_with_opposite(out + 2 * i, load_d(a + i));
}
inline void four_by_lane(const float* a, std::ptrdiff_t stride, float* out) {
  const vf four[] = {load(a), load(a + lanes), load(a + 2 * lanes), load(a + 3 * lanes)};
  store_four(out, stride, four);
}

inline constexpr vocabulary table = {
    lanes,
    lanes_d,
    {convert<nibble_op<0>>, convert<nibble_op<4>>, convert<nibble_op<8>>, convert<nibble_op<12>>,
     convert<nibble_op<16>>, convert<nibble_op<20>>, convert<nibble_op<24>>, convert<nibble_op<28>>},
    {convert<look_up_op<0>>, convert<look_up_op<8>>, convert<look_up_op<16>>, convert<look_up_op<24>>},
    {convert<byte_op<0>>, convert<byte_op<8>>, convert<byte_op<16>>, convert<byte_op<24>>},
    {convert<e4m3_op<0>>, convert<e4m3_op<8>>, convert<e4m3_op<16>>, convert<e4m3_op<24>>},
    {convert<e5m2_op<0>>, convert<e5m2_op<8>>, convert<e5m2_op<16>>, convert<e5m2_op<24>>},
    {convert<half_op<0>>, convert<half_op<16>>},
    {convert<bfloat_op<0>>, convert<bfloat_op<16>>},
    convert<shifted_nibble_op>,
    convert<bits_op>,
    read_halves,
    read_bfloats,
    two<add_op>,
    two<sub_op>,
    two<mul_op>,
    two<div_op>,
    two<max_op>,
    two<min_op>,
    two<max_magnitude_op>,
    three<fma_op>,
    three<fnma_op>,
    three<muladd_op>,
    two<select_op>,
    swap_neighbours,
    one_less_zero,
    sum_vectors,
    max_vectors,
    min_vectors,
    sum_vectors_by_four,
    max_vectors_by_four,
    clear_some,
    two<scale_op>,
    one<flush_op>,
    one<inverse_op>,
    one<fraction_op>,
    rotate,
    three<larger_op>,
    to_words<half_bits_op>,
    to_words<floor_op>,
    two_words<integers_op>,
    vector_within,
    store_rows,
    three_d<mul_d_op>,
    three_d<fma_d_op>,
    three_d<fnma_d_op>,
    double_up,
    with_opposite,
    four_by_lane};

}  // namespace probe
}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
