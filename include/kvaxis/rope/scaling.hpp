// RoPE frequencies theta^(-2i/n) and the rules that stretch them to a longer context. Logarithms and powers are
// computed in integers, and the few operations on doubles one at a time: the C library's pow differs between CPUs,
// -ffast-math rewrites the rest, and the bytes of stored keys depend on the result.
#pragma once

#include <cmath>
#include <cstdint>

#include "../config.hpp"
#include "../formats/bits.hpp"
#include "../formats/fused.hpp"

KVAXIS_BEGIN_NAMESPACE

// How a model that was trained on `original_context` tokens reads longer ones; n is the rotary size and w a frequency.
// linear: w / factor (position interpolation).
// ntk: theta * factor^(n / (n - 2)); for dynamic NTK pass its current factor f L / L0 - (f - 1).
// llama3: w if its wave fits more than high_frequency_factor times into the original context, w / factor if fewer than
//   low_frequency_factor times, a linear blend between (the rule of Meta's llama-models).
// yarn: the blend runs over the pair index, between the pairs that turn beta_fast and beta_slow times in the original
//   context (arXiv 2309.00071). truncate rounds these two indices outwards, as all models do but gpt-oss.
struct rope_scaling {
  enum class rule { none, linear, ntk, llama3, yarn };

  rule kind = rule::none;
  double factor = 1.0;            // 1 to 2^20
  double original_context = 0.0;  // tokens, 1 to 2^31; llama3 and yarn need it
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  double attention_factor = 0.0;  // 0: the rule's own, which is 0.1 ln(factor) + 1 for yarn and 1 otherwise
};

constexpr double max_rope_theta = 0x1p64;
constexpr std::int64_t max_attention_factor = 1024;  // its inverse is the smallest

namespace detail {

constexpr int log2_fraction_bits = 56;

constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) noexcept {
  const std::uint64_t low = 0xFFFFFFFFU;
  const std::uint64_t middle = (a >> 32) * (b & low) + (((a & low) * (b & low)) >> 32);
  const std::uint64_t other = (a & low) * (b >> 32) + (middle & low);
  return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32);
}

// log2(x) * 2^56 for 2^-127 < x < 2^127: squaring the mantissa doubles its logarithm, whose bits come out one by one.
constexpr std::int64_t fixed_log2(double x) noexcept {
  const std::uint64_t bits = double_bits(x);
  std::int64_t result = static_cast<std::int64_t>(bits >> 52) - 1023;
  std::uint64_t mantissa = (bits << 11) | (std::uint64_t{1} << 63);
  for (int i = 0; i < log2_fraction_bits; ++i) {
    mantissa = multiply_high(mantissa, mantissa);
    const auto carry = static_cast<std::int64_t>(mantissa >> 63);
    result = 2 * result + carry;
    if (carry == 0) mantissa <<= 1;
  }
  return result;
}

// 2^(-y / 2^56) for 0 <= y < 2^63: 2^(1 - fraction) by the exponential series, then an exact scaling.
constexpr double exp2_negative(std::int64_t y) noexcept {
  constexpr std::uint64_t one = std::uint64_t{1} << log2_fraction_bits;
  constexpr std::uint64_t ln2 = 0xB17217F7D1CF79ABU;  // times 2^64
  const std::uint64_t whole = static_cast<std::uint64_t>(y) >> log2_fraction_bits;
  const std::uint64_t fraction = static_cast<std::uint64_t>(y) & (one - 1);
  if (fraction == 0) return bits_double((1023U - whole) << 52);
  const std::uint64_t z = multiply_high((one - fraction) << (64 - log2_fraction_bits), ln2);
  std::uint64_t term = std::uint64_t{1} << 62;
  std::uint64_t sum = term;
  for (std::uint64_t j = 1; term != 0; ++j) {
    term = multiply_high(term, z) / j;
    sum += term;
  }
  return static_cast<double>(static_cast<std::int64_t>(sum)) * bits_double((1023U - 63U - whole) << 52);
}

// value * numerator / denominator, rounded down, for a value >= 0 whose product may not fit.
constexpr std::int64_t multiply_divide(std::int64_t value, int numerator, int denominator) noexcept {
  return value / denominator * numerator + value % denominator * numerator / denominator;
}

// A value that the compiler can neither merge with another operation nor take for a loop's invariant.
inline double opaque(double x) noexcept {
  const volatile double hidden = x;
  return hidden;
}

inline double divide(double a, double b) noexcept { return opaque(opaque(a) / opaque(b)); }
inline double multiply(double a, double b) noexcept { return opaque(opaque(a) * opaque(b)); }
inline double subtract(double a, double b) noexcept { return opaque(opaque(a) - opaque(b)); }

// share = 1 keeps the frequency, 0 divides it.
inline double blend(double frequency, double factor, double share) noexcept {
  if (share >= 1.0) return frequency;
  const double slow = divide(frequency, factor);
  if (share <= 0.0) return slow;
  return fused(share, subtract(frequency, slow), slow);
}

constexpr bool is_within(double x, double low, double high) noexcept { return is_finite(x) && x >= low && x <= high; }

[[nodiscard]] constexpr status check_scaling(const rope_scaling& s) noexcept {
  using rule = rope_scaling::rule;
  if (s.kind < rule::none || s.kind > rule::yarn) return {errc::invalid_argument, "scaling.kind", 0};
  if (!is_within(s.attention_factor, 0.0, 0.0) &&
      !is_within(s.attention_factor, 1.0 / max_attention_factor, max_attention_factor)) {
    return {errc::out_of_range, "scaling.attention_factor", max_attention_factor};
  }
  if (s.kind == rule::none) return {};
  constexpr double most = 0x1p20;
  constexpr double least = 0x1p-20;
  constexpr std::int64_t limit = std::int64_t{1} << 20;
  if (!is_within(s.factor, 1.0, most)) return {errc::out_of_range, "scaling.factor", limit};
  if (s.kind == rule::linear || s.kind == rule::ntk) return {};
  if (!is_within(s.original_context, 1.0, 0x1p31)) {
    return {errc::out_of_range, "scaling.original_context", std::int64_t{1} << 31};
  }
  if (s.kind == rule::llama3) {
    if (!is_within(s.low_frequency_factor, least, most)) {
      return {errc::out_of_range, "scaling.low_frequency_factor", limit};
    }
    if (!is_within(s.high_frequency_factor, least, most) || s.high_frequency_factor <= s.low_frequency_factor) {
      return {errc::invalid_argument, "scaling.high_frequency_factor", limit};
    }
    return {};
  }
  if (!is_within(s.beta_slow, least, most)) return {errc::out_of_range, "scaling.beta_slow", limit};
  if (!is_within(s.beta_fast, least, most) || s.beta_fast < s.beta_slow) {
    return {errc::invalid_argument, "scaling.beta_fast", limit};
  }
  return {};
}

// The index, in general no integer, of the pair that turns `turns` times in the original context:
// n ln(L0 / (2 pi turns)) / (2 ln theta).
inline double yarn_index(const rope_scaling& s, std::int64_t log2_theta, int n, double turns) noexcept {
  constexpr double two_pi = 0x1.921fb54442d18p+2;
  const std::int64_t ratio = fixed_log2(s.original_context) - fixed_log2(two_pi) - fixed_log2(turns);
  return divide(multiply(static_cast<double>(ratio), n), multiply(2.0, static_cast<double>(log2_theta)));
}

// Writes n / 2 frequencies in radians per position and returns the attention factor. The arguments have been checked.
inline double make_frequencies(const rope_scaling& s, double theta, int n, double* frequencies) noexcept {
  using rule = rope_scaling::rule;
  std::int64_t log2_theta = fixed_log2(theta);
  // A single pair has the frequency 1 whatever theta is.
  if (s.kind == rule::ntk && n > 2) log2_theta += multiply_divide(fixed_log2(s.factor), n, n - 2);
  double low = 0.0;
  double width = 1.0;
  if (s.kind == rule::yarn) {
    low = yarn_index(s, log2_theta, n, s.beta_fast);
    double high = yarn_index(s, log2_theta, n, s.beta_slow);
    if (s.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = low < 0.0 ? 0.0 : low;
    high = high > n - 1 ? n - 1 : high;
    width = subtract(high, low);
    if (width < 0.001) width = 0.001;
  }
  for (int i = 0; i < n / 2; ++i) {
    const double w = exp2_negative(multiply_divide(log2_theta, 2 * i, n));
    double share = 1.0;
    if (s.kind == rule::linear) share = 0.0;
    if (s.kind == rule::llama3) {
      constexpr double inverse_two_pi = 0x1.45f306dc9c883p-3;
      const double turns = multiply(multiply(s.original_context, w), inverse_two_pi);
      share =
          divide(subtract(turns, s.low_frequency_factor), subtract(s.high_frequency_factor, s.low_frequency_factor));
    }
    if (s.kind == rule::yarn) share = subtract(1.0, divide(subtract(i, low), width));
    frequencies[i] = blend(w, s.factor, share);
  }
  if (s.attention_factor > 0.0) return s.attention_factor;
  if (s.kind != rule::yarn) return 1.0;
  const double log2_factor = multiply(static_cast<double>(fixed_log2(s.factor)), 0x1p-56);
  constexpr double tenth_of_ln2 = 0x1.1be9bff2e94bfp-4;
  return fused(log2_factor, tenth_of_ln2, 1.0);
}

}  // namespace detail

KVAXIS_END_NAMESPACE
