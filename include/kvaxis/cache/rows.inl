// Checking and copying rows as they come in. Included once per instruction set by rows.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "rows.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

KVAXIS_INLINE vf load_row(const bfloat16* p) { return load_bfloat16(&p->bits); }

// Whether every number of every row is finite and in range.
inline bool rows_within(const tile_format& f, const rows& r, int tokens, bool is_key) noexcept {
  bool all = true;
  const int dim = is_key ? f.head_dim : f.value_dim;
  detail::for_each_row(r, tokens, f.kv_heads, dim, [&](const auto* row, int, int head) {
    const detail::number_range range = detail::range_of(f, is_key, head);
    const vf low = set1(range.low);
    const vf high = set1(range.high);
    int c = 0;
    for (; c + lanes <= dim; c += lanes) all = all && all_within(load_row(row + c), low, high);
    for (; c < dim; ++c) all = all && scalar::all_within({to_float(row[c])}, {range.low}, {range.high});
  });
  return all;
}

// The numbers of a row as they are stored, To being the type of full-precision rows; false if one of them is not
// admissible.
template <class To, class From>
KVAXIS_INLINE bool convert_row(const From* row, int dim, const detail::number_range& range, std::uint32_t* out) {
  const vf low = set1(range.low);
  const vf high = set1(range.high);
  bool all = true;
  int c = 0;
  for (; c + lanes <= dim; c += lanes) {
    const vf x = load_row(row + c);
    all = all && all_within(x, low, high);
    store_words(out + c, sizeof(To) == 2 ? to_half(x) : exponent_bits(x));
  }
  for (; c < dim; ++c) {
    const scalar::vf x = {to_float(row[c])};
    all = all && scalar::all_within(x, {range.low}, {range.high});
    out[c] = sizeof(To) == 2 ? scalar::to_half(x).v : scalar::exponent_bits(x).v;
  }
  return all;
}

// Copies rows to slots from `slot` on, keys in stored order.
template <class To>
KVAXIS_INLINE void copy_rows_as(const tile_format& f, const rows& from, int count, bool is_key, const tile& into,
                                int slot, std::int64_t& replaced) {
  const int dim = is_key ? f.head_dim : f.value_dim;
  detail::for_each_row(from, count, f.kv_heads, dim, [&](const auto* row, int token, int head) {
    const detail::number_range range = detail::range_of(f, is_key, head);
    const int at = slot + token;
    auto* const to = const_cast<To*>(is_key ? into.key_row<To>(head, at) : into.value_row<To>(head, at));
    std::uint32_t words[max_head_dim];
    if (!convert_row<To>(row, dim, range, words)) {
      for (int c = 0; c < dim; ++c) {
        const scalar::vf x = {detail::admissible(to_float(row[c]), range, replaced)};
        words[c] = sizeof(To) == 2 ? scalar::to_half(x).v : scalar::exponent_bits(x).v;
      }
    }
    if (is_key) {
      const int* const order = f.order;
      for (int c = 0; c < dim; ++c) std::memcpy(to + c, words + order[c], sizeof(To));
    } else if (sizeof(To) == 4) {
      std::memcpy(to, words, static_cast<std::size_t>(dim) * sizeof(To));
    } else {
      for (int c = 0; c < dim; ++c) std::memcpy(to + c, words + c, sizeof(To));
    }
  });
}

inline void copy_rows(const tile_format& f, const rows& from, int count, bool is_key, const tile& into, int slot,
                      std::int64_t& replaced) noexcept {
  if (f.half_rows) {
    copy_rows_as<float16>(f, from, count, is_key, into, slot, replaced);
  } else {
    copy_rows_as<float>(f, from, count, is_key, into, slot, replaced);
  }
}

inline constexpr detail::row_functions row_table = {&rows_within, &copy_rows};

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
