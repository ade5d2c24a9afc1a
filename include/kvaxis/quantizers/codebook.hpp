// Codes that stand for the numbers of a table, times a scale: for bell-shaped numbers more steps near zero than far from it.
//
//   codebook<Table>         params {scale}           decoded fma(scale, values[code], 0)
//   codebook<Table, true>   params {scale, offset}   decoded fma(scale, values[code], offset); "a" behind the name
//
//   struct my_table {
//     static constexpr int bits = 2;                      // 1 to 8
//     static constexpr const char* name = "mine2";
//     static constexpr kvaxis::scale_rule rule = kvaxis::scale_rule::least_error;
//     static constexpr std::array<float, 4> values = {-1.5F, -0.5F, 0.5F, 1.5F};  // ascending, the first below 0, the last above
//   };
//
// The offset is the middle of the group's range; on normal numbers it leaves less error than the mean, but for groups of 128 and
// 2 bits.
// eval/learn_codebook.hpp finds values from a sample. The code is that of the nearest value, the lower one of two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../formats/fused.hpp"
#include "../formats/half.hpp"
#include "codec.hpp"

KVAXIS_BEGIN_NAMESPACE

enum class scale_rule : int {
  no_clipping,  // the smallest float16 with which the table reaches every number of the group
  // The one with the least squared error of 17 candidates, 4/16 to 20/16 of that. The last value of a table for a whole
  // distribution lies where numbers are rare, so the largest number of a group is a poor guide. So is the root mean square:
  // on normal numbers in groups of 64 and 4 bits it leaves 1.3 times the error of this search, with heavier tails 3 times.
  least_error,
};

namespace detail {

struct codebook_scale {
  float16 scale;
};
struct codebook_scale_and_offset {
  float16 scale;
  float16 offset;
};

template <std::size_t N>
constexpr bool is_ascending(const std::array<float, N>& values) noexcept {
  for (std::size_t i = 1; i < N; ++i) {
    if (!(values[i - 1] < values[i])) return false;
  }
  return true;
}

template <std::size_t N>
constexpr std::array<float, N - 1> middles_of(const std::array<float, N>& values) noexcept {
  std::array<float, N - 1> out{};
  for (std::size_t i = 0; i + 1 < N; ++i) out[i] = (values[i] + values[i + 1]) / 2;
  return out;
}

template <class Table>
constexpr auto name_with_a() noexcept {
  std::array<char, 32> out{};
  std::size_t n = 0;
  for (; Table::name[n] != '\0'; ++n) out[n] = Table::name[n];
  out[n] = 'a';
  return out;
}

inline float16 half_without_sign_of_zero(float x) noexcept {
  const float16 half = to_float16(x);
  return (half.bits & 0x7FFFU) == 0 ? float16{0} : half;
}

inline float inverse_or_zero(float scale) noexcept { return scale > 0.0F ? scalar::inverse({scale}).v : 0.0F; }

// The smallest float16 s >= 0 with s * reach >= span, or 65504; reach > 0.
inline float16 smallest_half_reaching(float span, float reach) noexcept {
  if (!(span > 0.0F)) return {};
  const auto goal = static_cast<double>(span);
  const auto step = static_cast<double>(reach);
  const float16 nearest = to_float16(static_cast<float>(goal / step));
  if (!is_finite(nearest)) return float16{0x7BFFU};
  return static_cast<double>(to_float(nearest)) * step < goal ? next_above(nearest) : nearest;
}

}  // namespace detail

template <class Table, bool HasOffset = false>
struct codebook {
  static_assert(Table::bits >= 1 && Table::bits <= 8, "codebook: tables of 1 to 8 bits");
  static_assert(Table::values.size() == std::size_t{1} << Table::bits, "codebook: 2^bits values");
  static_assert(detail::is_ascending(Table::values) && Table::values.front() < 0.0F && Table::values.back() > 0.0F,
                "codebook: values must ascend from below zero to above it");

 private:
  static constexpr auto extended_name = detail::name_with_a<Table>();
  static constexpr auto middles = detail::middles_of(Table::values);
  static constexpr float reach_below = -Table::values.front();
  static constexpr float reach_above = Table::values.back();
  static constexpr float reach = reach_below < reach_above ? reach_below : reach_above;

 public:
  static constexpr int bits = Table::bits;
  static constexpr const char* name = HasOffset ? extended_name.data() : Table::name;
  static constexpr float limit = reach < 1.0F ? reach * max_float16 : max_float16;
  static constexpr const float* unit_values = Table::values.data();

  using params = std::conditional_t<HasOffset, detail::codebook_scale_and_offset, detail::codebook_scale>;

  static params fit(const float* x, int n) noexcept {
    const auto [low, high] = detail::extremes_of(x, n);
    params p{};
    if constexpr (HasOffset) p.offset = detail::half_without_sign_of_zero(low / 2 + high / 2);
    const float above = flush_subnormal(high - offset_of(p));
    const float below = flush_subnormal(offset_of(p) - low);
    const float16 scale_above = detail::smallest_half_reaching(above, reach_above);
    const float16 scale_below = detail::smallest_half_reaching(below, reach_below);
    p.scale = scale_above.bits > scale_below.bits ? scale_above : scale_below;
    if constexpr (Table::rule == scale_rule::least_error) {
      p.scale = best_scale(p, x, n, above > below ? above : below);
    }
    return p;
  }

  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    const float inverse = detail::inverse_or_zero(to_float(p.scale));
    for (int i = 0; i < n; ++i) codes[i] = code_of(x[i], offset_of(p), inverse);
  }
  static float unit_value(std::uint32_t code) noexcept { return Table::values[code]; }
  static float decode(params p, std::uint32_t code) noexcept {
    return fused(to_float(p.scale), unit_value(code), offset_of(p));
  }

 private:
  static float offset_of([[maybe_unused]] params p) noexcept {
    if constexpr (HasOffset) return to_float(p.offset);
    return 0.0F;
  }

  static std::uint32_t code_of(float x, float offset, float inverse) noexcept {
    const float unit = (x - offset) * inverse;
    std::uint32_t code = 0;
    for (const float middle : middles) code += unit > middle ? 1U : 0U;
    return code;
  }

  // p has the scale with which nothing clips, `farthest` is the largest |x - offset|.
  static float16 best_scale(params p, const float* x, int n, float farthest) noexcept {
    constexpr std::uint16_t too_small = 16;  // scales of so few bits that their sixteenths are all alike
    if (p.scale.bits < too_small) return p.scale;
    // Errors as integers, `farthest` 2^15 to 2^16: their sum does not depend on the order. Before that a product that is exact in
    // double, one difference, and a power of two, which no flag changes.
    const double units = bits_double((std::uint64_t{1165} - (float_bits(farthest) >> 23)) << 52);
    const float offset = offset_of(p);
    float16 best = p.scale;
    std::int64_t least = INT64_MAX;
    for (int sixteenths = 4; sixteenths <= 20; ++sixteenths) {
      const float16 candidate = to_float16(to_float(p.scale) * static_cast<float>(sixteenths) / 16);
      if (!is_finite(candidate)) break;
      const float scale = to_float(candidate);
      const float inverse = detail::inverse_or_zero(scale);
      std::int64_t error = 0;
      for (int i = 0; i < n; ++i) {
        const auto value = static_cast<double>(unit_value(code_of(x[i], offset, inverse)));
        const double missed = static_cast<double>(x[i] - offset) - static_cast<double>(scale) * value;
        const auto steps = static_cast<std::int32_t>(missed * units);
        error += std::int64_t{steps} * steps;
      }
      if (error < least) {
        least = error;
        best = candidate;
      }
    }
    return best;
  }
};

namespace detail {

// The table of a distribution that is symmetric about 0, from its upper half.
template <std::size_t N>
constexpr std::array<float, 2 * N> mirrored(const std::array<float, N>& upper) noexcept {
  std::array<float, 2 * N> out{};
  for (std::size_t i = 0; i < N; ++i) {
    out[N - 1 - i] = -upper[i];
    out[N + i] = upper[i];
  }
  return out;
}

}  // namespace detail

// NF4 of QLoRA: equally probable values of a normal distribution, with an exact zero; scaled by the largest number.
struct nf4_table {
  static constexpr int bits = 4;
  static constexpr const char* name = "nf4";
  static constexpr scale_rule rule = scale_rule::no_clipping;
  static constexpr std::array<float, 16> values = {
      -1.0F,       -0.69619280F, -0.52507305F, -0.39491749F, -0.28444138F, -0.18477343F, -0.09105004F, 0.0F,
      0.07958030F, 0.16093020F,  0.24611230F,  0.33791524F,  0.44070983F,  0.56261700F,  0.72295684F,  1.0F};
};

// Lloyd and Max: the values with the least squared error on a normal distribution, in standard deviations.
struct lloyd2_table {
  static constexpr int bits = 2;
  static constexpr const char* name = "lloyd2";
  static constexpr scale_rule rule = scale_rule::least_error;
  static constexpr auto values = detail::mirrored<2>({0.45278F, 1.510418F});
};
struct lloyd3_table {
  static constexpr int bits = 3;
  static constexpr const char* name = "lloyd3";
  static constexpr scale_rule rule = scale_rule::least_error;
  static constexpr auto values = detail::mirrored<4>({0.245094F, 0.756005F, 1.343909F, 2.151946F});
};
struct lloyd4_table {
  static constexpr int bits = 4;
  static constexpr const char* name = "lloyd4";
  static constexpr scale_rule rule = scale_rule::least_error;
  static constexpr auto values =
      detail::mirrored<8>({0.128395F, 0.388048F, 0.656759F, 0.94234F, 1.256231F, 1.618046F, 2.069017F, 2.73259F});
};

using nf4 = codebook<nf4_table>;
using nf4a = codebook<nf4_table, true>;
using lloyd2 = codebook<lloyd2_table>;
using lloyd2a = codebook<lloyd2_table, true>;
using lloyd3 = codebook<lloyd3_table>;
using lloyd3a = codebook<lloyd3_table, true>;
using lloyd4 = codebook<lloyd4_table>;
using lloyd4a = codebook<lloyd4_table, true>;

KVAXIS_END_NAMESPACE
