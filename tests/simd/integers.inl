// Included once per instruction set, those with integer units of their own too, by integers_test.cpp. Calls of what such
// a namespace names anew are qualified: others would also find what it extends.
KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {
namespace integer_probe {

inline void rounded(const float* a, std::uint32_t* out, int n) {
  for (int i = 0; i < n; i += lanes) store_words(out + i, round_to_words(load(a + i)));
}
inline void to_numbers(const std::uint32_t* a, float* out, int n) {
  for (int i = 0; i < n; i += lanes) store(out + i, words_to_float(load_words(a + i)));
}
inline void to_bytes(const std::uint32_t* a, std::int8_t* out, int n) {
  for (int i = 0; i < n; i += 4 * lanes) {
    store_bytes(out + i, load_words(a + i), load_words(a + i + lanes), load_words(a + i + 2 * lanes),
                load_words(a + i + 3 * lanes));
  }
}
inline void vector_sums(const std::uint32_t* a, std::int32_t* out, int n) {
  for (int i = 0; i < n; i += 4 * lanes) {
    const vu four[] = {load_words(a + i), load_words(a + i + lanes), load_words(a + i + 2 * lanes),
                       load_words(a + i + 3 * lanes)};
    sum_four(four, out + i / lanes);
  }
}
inline void low_halves(const std::uint32_t* a, std::uint32_t* out, int n) {
  for (int i = 0; i < n; i += lanes) store_words(out + i, low_nibbles(load_words(a + i)));
}
inline void broadcast_word(std::int32_t x, std::uint32_t* out) { store_words(out, set_word(x)); }
inline void broadcast_bytes(const std::int8_t* p, std::uint32_t* out) { store_words(out, load_bytes(p)); }

template <int Bits>
void products(const std::uint32_t* codes, const std::uint32_t* weights, int quads, std::uint32_t* total) {
  vu sum = load_words(total);
  for (int first = 0; first < quads; first += quads_to_settle<4>) {
    vu part = sums_in_words ? sum : set_word(0);
    for (int q = first; q < quads && q < first + quads_to_settle<4>; ++q) {
      part = KVAXIS_TARGET::add_products<Bits>(part, load_words(codes + 16 * q), load_words(weights + 16 * q));
    }
    sum = sums_in_words ? part : settle(sum, part);
  }
  store_words(total, sum);
}
inline void settled(const std::uint32_t* a, std::uint32_t* total) {
  store_words(total, settle(load_words(total), load_words(a)));
}

inline constexpr integer_vocabulary table = {
    lanes,       sums_in_words, centred_bytes,  rounded,         to_numbers,  to_bytes,
    vector_sums, low_halves,    broadcast_word, broadcast_bytes, products<4>, sums_in_words ? products<8> : nullptr,
    settled};

}  // namespace integer_probe
}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
