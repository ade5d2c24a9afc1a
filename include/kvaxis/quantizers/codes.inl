// The formulas that turn numbers into parameters and codes: the one definition for the codecs' own functions, which take
// the scalar one, and for folding. Included once per instruction set by codec.hpp, inside a target region.
#ifndef KVAXIS_TARGET
#include "codec.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

KVAXIS_INLINE vf half_to_float(vu half) {
  vf low;
  vf high;
  half_pair(half, low, high);
  return low;
}

// The smallest float16 s >= 2^-24 with s * levels >= span (exactly), for 0 < span <= 65504 * levels and 2 * 65504; 0 for
// a span of 0.
KVAXIS_INLINE vu smallest_half_scale(vf span, float levels) {
  // The estimate is off by less than 2^-22, so its nearest float16 is the answer or the one below. s * levels is exact.
  const vu s = to_half(mul(span, set1(scalar::inverse({levels}).v)));
  return sub_words(s, above(span, mul(half_to_float(s), set1(levels))));
}

// Scale and offset of an asymmetric codec, as float16.
KVAXIS_INLINE void fit_halves(vf low, vf high, float levels, vu& scale, vu& offset) {
  offset = floor_to_half(low);
  // The flush keeps the result the same on a CPU that takes a subnormal difference for zero.
  scale = smallest_half_scale(flush_subnormals(sub(high, half_to_float(offset))), levels);
}

// Numbers are rounded by adding this: 1.5 * 2^23 leaves the integer in the low bits, ties to even. The sum is one
// explicit fma, so that no compiler flag changes how the product before it was rounded.
constexpr float round_magic = 12582912.0F;

// round_even((x - centre) * inverse) + zero, clamped to low .. high; zero is even, all of |.| < 2^22.
KVAXIS_INLINE vu integer_code(vf x, vf centre, vf inverse, int zero, float low, float high) {
  const vf shifted = fma(sub(x, centre), inverse, set1(round_magic + static_cast<float>(zero)));
  const vf inside = min(max(shifted, set1(round_magic + low)), set1(round_magic + high));
  return sub_words(exponent_bits(inside), set1_words(float_bits(round_magic)));
}

// As integer_code, as a number.
KVAXIS_INLINE vf integer_value(vf x, vf centre, vf inverse, int zero, float low, float high) {
  return words_to_float(integer_code(x, centre, inverse, zero, low, high));
}

// Scale and offset of an integer codec, as float16, with the smallest squared error that a few clipped ranges lead to,
// each refitted to the codes that it gives; one group a lane. number(i) are the i-th numbers, `low` and `high` the ranges. Sums are chains of
// explicit fma in the order of the numbers, so that every instruction set finds the same.
template <bool HasOffset, class Numbers>
KVAXIS_INLINE void fit_least_squares(const Numbers& number, int n, vf low, vf high, int zero_code, float largest,
                                     vu& scale, vu& offset) {
  constexpr int candidates = 8;
  const auto middle_code = static_cast<float>(zero_code);
  const float smallest = HasOffset ? 0.0F : 1.0F;
  const float levels = largest - middle_code;
  offset = set1_words(0);
  if constexpr (HasOffset) {
    fit_halves(low, high, levels, scale, offset);
  } else {
    low = max_magnitude(high, low);
    scale = smallest_half_scale(low, levels);
  }
  const vf base = HasOffset ? low : zero();
  const vf count = set1(static_cast<float>(n));
  const vf one_by_count = inverse(count);
  // What a pair of stored parameters costs.
  const auto error_of = [&](vf s, vf o) {
    const vf centre = fma(s, set1(middle_code), o);
    const vf by = select_above(s, 0.0F, inverse(s));
    vf error = zero();
    for (int i = 0; i < n; ++i) {
      const vf x = number(i);
      const vf e = sub(x, fma(s, integer_value(x, centre, by, zero_code, smallest, largest), o));
      error = fma(e, e, error);
    }
    return error;
  };
  const auto offset_of = [&](vf s, vu bits) { return HasOffset ? half_to_float(bits) : mul(s, set1(-middle_code)); };
  vf best = error_of(half_to_float(scale), offset_of(half_to_float(scale), offset));
  const vf span = HasOffset ? sub(high, low) : low;
  // No sum of products here that a compiler may fuse or not, and no division that it may replace.
  const float one_by_levels = scalar::inverse({levels}).v;
  const float step = (HasOffset ? 1.35F : 0.67F) / candidates * one_by_levels;
  for (int k = 0; k < candidates; ++k) {
    const float clipped = fused(static_cast<float>(-k), step, 1.0F);
    const vf wide = mul(span, set1(clipped * one_by_levels));
    const vf by = select_above(wide, 0.0F, inverse(wide));
    const vf centre = HasOffset ? fma(span, set1(fused(-0.5F, clipped, 0.5F)), low) : zero();
    vf sum_c = zero();
    vf sum_cc = zero();
    vf sum_x = zero();
    vf sum_xc = zero();
    for (int i = 0; i < n; ++i) {
      const vf x = number(i);
      const vf c = sub(integer_value(x, centre, by, zero_code, smallest, largest), set1(middle_code));
      const vf above_base = sub(x, base);
      sum_c = add(sum_c, c);
      sum_cc = fma(c, c, sum_cc);
      sum_x = add(sum_x, above_base);
      sum_xc = fma(above_base, c, sum_xc);
    }
    vf top = sum_xc;
    vf bottom = sum_cc;
    if constexpr (HasOffset) {
      top = fma(count, sum_xc, sub(zero(), mul(sum_x, sum_c)));
      bottom = fma(count, sum_cc, sub(zero(), mul(sum_c, sum_c)));
    }
    const vf s = min(select_above(bottom, 0.0F, mul(top, select_above(bottom, 0.0F, inverse(bottom)))), set1(65504.0F));
    const vf o = HasOffset ? fma(fnma(s, sum_c, sum_x), one_by_count, base) : zero();
    const vu scale_bits = to_half(select_above(s, 0.0F, s));
    const vu offset_bits = to_half(min(max(o, set1(-65504.0F)), set1(65504.0F)));
    const vf stored = half_to_float(scale_bits);
    const vf error = error_of(stored, offset_of(stored, offset_bits));
    const vu better = bit_and(above(best, error), above(stored, zero()));
    best = select(better, error, best);
    scale = exponent_bits(select(better, bits_to_float(scale_bits), bits_to_float(scale)));
    if constexpr (HasOffset) offset = exponent_bits(select(better, bits_to_float(offset_bits), bits_to_float(offset)));
  }
}

// What to_bfloat16 gives for a finite number.
KVAXIS_INLINE vu bfloat_code(vf x) {
  const vu bits = exponent_bits(x);
  const vu odd = bit_and(shift_right<16>(bits), set1_words(1U));
  return shift_right<16>(add_words(add_words(bits, odd), set1_words(0x7FFFU)));
}

// What encode_e4m3 and encode_e5m2 give for a number that is not NaN.
template <int MantissaBits, int Bias>
KVAXIS_INLINE vu minifloat_code(vf x, float largest) {
  constexpr int dropped = 23 - MantissaBits;
  const vu bits = exponent_bits(x);
  const vf magnitude = min(bits_to_float(bit_and(bits, set1_words(0x7FFFFFFFU))), set1(largest));
  const vu m = exponent_bits(magnitude);
  const vu odd = bit_and(shift_right<dropped>(m), set1_words(1U));
  const vu rounded = shift_right<dropped>(add_words(add_words(m, odd), set1_words((1U << (dropped - 1)) - 1U)));
  const vu normal = sub_words(rounded, set1_words(static_cast<std::uint32_t>(127 - Bias) << MantissaBits));
  const float smallest_normal = bits_float(static_cast<std::uint32_t>(128 - Bias) << 23);
  const float per_step = bits_float(static_cast<std::uint32_t>(126 + Bias + MantissaBits) << 23);
  const vf stepped = fma(magnitude, set1(per_step), set1(round_magic));
  const vu subnormal = sub_words(exponent_bits(stepped), set1_words(float_bits(round_magic)));
  const vf code = select(above(magnitude, set1(smallest_normal)), bits_to_float(normal), bits_to_float(subnormal));
  return add_words(exponent_bits(code), bit_and(shift_right<24>(bits), set1_words(0x80U)));
}

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
