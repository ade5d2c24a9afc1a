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

// The smallest float16 s >= 2^-24 with s * levels >= span (exactly), for levels >= 7 and 0 < span <= 2 * 65504; 0 for a
// span of 0.
KVAXIS_INLINE vu smallest_half_scale(vf span, float levels) {
  // The estimate is off by less than 2^-22, so its nearest float16 is the answer or the one below. s * levels is exact.
  const vu s = to_half(mul(span, set1(1.0F / levels)));
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
