// Rounding queries and weights to bytes for the integer kernels; see integer.hpp. Included once per instruction set by
// walk.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "walk.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// A rounded sum may err by a quarter of what the codes themselves err. Both are uniform: the codes' error is f / sqrt(12)
// of each row, the weights' step / sqrt(12) times c - h, whose mean square is about 10 where sixteen codes span 64
// bell-shaped numbers, and grows with the square of the codes. So n rows of 4-bit codes need sum f^2 >= 16 * 10 * n * step^2.
constexpr float enough_per_row(int bits) noexcept {
  const float wider = static_cast<float>((1 << bits) - 1) / 15.0F;
  return 160.0F * wider * wider;
}

// Whether a block of these codes is summed with rounded weights: as integers, E4M3 in binary16.
inline bool has_rounded_sums(const problem& p, const block_view& b, unit_kind unit) noexcept {
  if (p.integer == nullptr || b.across) return false;
  if (unit == unit_kind::e4m3) return p.half != nullptr && b.scale != nullptr;
  if (unit > unit_kind::u8) return false;
  return unit != unit_kind::u8 || p.integer->sums[8][0] != nullptr;
}

// What is taken off the codes before they are multiplied (see integer.hpp).
constexpr int middle_code(unit_kind unit, int bits) noexcept { return unit == unit_kind::e4m3 ? 0 : 1 << (bits - 1); }

// What is multiplied by the codes: numbers x [row][stride], and the parameters of the codes' rows (see centre_codes),
// [segment][parameter_stride].
struct integer_input {
  const float* x = nullptr;
  std::ptrdiff_t stride = 0;
  std::ptrdiff_t parameter_stride = 0;
};

// R rows x[0 .. n) of one segment times the scales, into s.folded from row `at` on; their steps and constants, and
// whether one byte is enough. n is a multiple of 16; what is enough depends on all rows of the block, so that it is the same
// for a query that sees a part of them, alone or with others.
template <int R>
inline void fold_rows(const float* x, std::ptrdiff_t stride, const float* scales, const float* centres, int n,
                      float enough, const scratch& s, int at) noexcept {
  float* const folded = s.folded + at * byte_stride;
  vf top[4];
  vf squares[4];
  vf constant[4];
  KVAXIS_UNROLL
  for (int r = 0; r < 4; ++r) top[r] = squares[r] = constant[r] = zero();
  for (int i = 0; i < n; i += lanes) {
    const vf scale = load(scales + i);
    const vf centre = load(centres + i);
    KVAXIS_UNROLL
    for (int r = 0; r < R; ++r) {
      const vf number = load(x + r * stride + i);
      const vf f = mul(number, scale);
      store(folded + r * byte_stride + i, f);
      top[r] = max_magnitude(top[r], f);
      squares[r] = muladd(f, f, squares[r]);
      constant[r] = muladd(number, centre, constant[r]);
    }
  }
  float tops[4];
  float sums[4];
  float constants[4];
  max_four(top, tops);
  sum_four(squares, sums);
  sum_four(constant, constants);
  for (int r = 0; r < R; ++r) {
    const float most = tops[r] > 1e-30F ? tops[r] : 1e-30F;  // an inverse that stays finite
    const float step = most * (1.0F / 127.0F);
    s.inverse[at + r] = 1.0F / step;
    s.weights[at + r] = {step, constants[r], 0};
    s.coarse[at + r] = sums[r] < enough * step * step;
  }
}

// Bytes of folded / step; Second: of what is left then, / step * 254.
template <bool Second>
KVAXIS_INLINE vu round_vector(const float* folded, vf inverse) {
  const vf scaled = mul(load(folded), inverse);
  const vu whole = round_to_words(scaled);
  if constexpr (!Second) return whole;
  return round_to_words(mul(sub(scaled, words_to_float(whole)), set1(254.0F)));
}

// R rows from `at` on as bytes, and -h times their sums.
template <bool Second, int R>
inline void round_rows(int n, int half_code, const scratch& s, int at, std::int8_t* bytes) noexcept {
  vu totals[4];
  KVAXIS_UNROLL
  for (int r = 0; r < 4; ++r) totals[r] = set_word(0);
  KVAXIS_UNROLL
  for (int r = 0; r < R; ++r) {
    const float* const folded = s.folded + (at + r) * byte_stride;
    const vf inverse = set1(s.inverse[at + r]);
    for (int i = 0; i < n; i += 4 * lanes) {
      vu w[4];
      KVAXIS_UNROLL
      for (int v = 0; v < 4; ++v) {
        w[v] = i + v * lanes < n ? round_vector<Second>(folded + i + v * lanes, inverse) : set_word(0);
        totals[r] = add_words(totals[r], w[v]);
      }
      store_bytes(bytes + r * byte_stride + i, w[0], w[1], w[2], w[3]);
    }
  }
  std::int32_t sums[4];
  sum_four(totals, sums);
  for (int r = 0; r < R; ++r) s.weights[at + r].start = -half_code * sums[r];
}

// Adds the sums of `rows` rows of numbers for every segment of a block, whose parameters are in `s`.
inline void add_rounded_sums(const problem& p, const block_view& b, unit_kind unit, int bits, const integer_input& in,
                             integer_request r, int rows, const scratch& s) noexcept {
  const auto& table = p.integer->sums[static_cast<std::size_t>(bits)];
  const float enough = enough_per_row(bits) * static_cast<float>(b.rows);
  const int half_code = middle_code(unit, bits);
  const int first = r.first_row & ~15;
  const int count = ((r.end_row + 15) & ~15) - first;
  const int segments = (b.lanes + b.group_length - 1) / b.group_length;
  const int all = segments * rows;
  std::int8_t* const bytes = s.bytes + first;
  for (int g = 0; g < segments; ++g) {
    const float* scales = s.scales + g * in.parameter_stride + first;
    const float* centres = s.centres + g * in.parameter_stride + first;
    for (int row = 0; row < rows;) {
      const float* x = in.x + row * in.stride + first;
      const int at = g * rows + row;
      if (rows - row >= 4) {
        fold_rows<4>(x, in.stride, scales, centres, count, enough, s, at);
      } else if (rows - row >= 2) {
        fold_rows<2>(x, in.stride, scales, centres, count, enough, s, at);
      } else {
        fold_rows<1>(x, in.stride, scales, centres, count, enough, s, at);
      }
      row += rows - row >= 4 ? 4 : rows - row >= 2 ? 2 : 1;
    }
  }
  fetch(r.next.take(burst_bytes));
  r.weights = s.weights;
  r.heads = rows;
  if (unit == unit_kind::e4m3) {
    p.half->round_rows(s.folded, s.inverse, all, count, s.halves + first);
    r.halves = s.halves;
    return run_batches(p.half->sums_e4m3, b, r, rows);
  }
  for (int at = 0; at < all; at += 4) {
    if (all - at >= 4) {
      round_rows<false, 4>(count, half_code, s, at, bytes + at * byte_stride);
    } else {
      for (int i = at; i < all; ++i) round_rows<false, 1>(count, half_code, s, i, bytes + i * byte_stride);
    }
  }
  r.bytes = s.bytes;
  run_batches(table, b, r, rows);
  bool second = false;
  for (int i = 0; i < all; ++i) {
    s.coarse[i] = bits == 8 || (s.coarse[i] && p.arithmetic == arithmetic::automatic);
    second = second || s.coarse[i];
  }
  if (!second) return;
  r.next = {};
  for (int i = 0; i < all; ++i) {
    byte_weights& w = s.weights[i];
    if (s.coarse[i]) {
      round_rows<true, 1>(count, half_code, s, i, bytes + i * byte_stride);
      w.step *= 1.0F / 254.0F;
      w.constant = 0.0F;
    } else {
      w = {};
    }
  }
  for (int h = 0; h < rows;) {
    const int batch = next_heads(rows - h);
    bool needed = false;
    for (int g = 0; g < segments; ++g) {
      for (int i = h; i < h + batch; ++i) needed = needed || s.coarse[g * rows + i];
    }
    if (needed) table[kernel_index(batch)](b, r, h);
    h += batch;
  }
}

// The parameters of a block's rows as fold_rows takes them, n of them, a multiple of 16; pairs of `cleared` are
// left out.
inline void centre_codes(const float* scale, const float* offset, int n, int half_code, const std::uint32_t* cleared,
                         const scratch& s) noexcept {
  for (int i = 0; i < n; i += lanes) {
    vf a = load(scale + i);
    vf b = fma(a, set1(static_cast<float>(half_code)), load(offset + i));
    if (cleared != nullptr) {
      const std::uint32_t pairs = cleared[i / 64] >> (i / 2 % 32);
      a = clear_pairs(a, pairs);
      b = clear_pairs(b, pairs);
    }
    store(s.scales + i, a);
    store(s.centres + i, b);
  }
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
