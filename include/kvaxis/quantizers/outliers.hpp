// outliers<Codec, K>: the K numbers of a group that widen its range most are kept in the parameters, and the codes cover the
// range of the others. For groups of which single numbers are far from the rest.
//
//   params  {scale, offset, kept[K]}                      all float16
//   codes   0 .. L, L = 2^bits - 1 - K                    decoded fma(scale, code, offset), as in affine.hpp
//           2^bits - 1 - j for outlier j < K              decoded offset + kept[j]: far from zero a float16 of the number
//                                                         itself would be coarser than the codes
//   bits    those of the codec + 16 (2 + K) / group
//
// The outliers are the lowest and the highest numbers, as many of each as leave the smallest range; if that is undecided, more
// of the lowest. Of equal numbers the first. A group of n <= K numbers has n - 1 outliers.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "least_squares.hpp"

KVAXIS_BEGIN_NAMESPACE

template <class Codec, int K = 1>
struct outliers {
 private:
  using by_range = affine<Codec::bits, float16>;
  static constexpr bool refined = std::is_same_v<Codec, least_squares<by_range>>;
  static_assert(refined || std::is_same_v<Codec, by_range>,
                "outliers: of int2 to int8, or of least_squares<> of those");
  static_assert(K >= 1 && K <= 9 && K <= (1 << Codec::bits) - 2, "outliers: 1 to 9, and two codes for the others");
  static constexpr codec_name plain_name{by_range::name, "-out", digit_text(K)};

 public:
  static constexpr int bits = Codec::bits;
  static constexpr codec_name full_name{plain_name.text, refined ? "-lsq" : ""};
  static constexpr const char* name = full_name.text;
  static constexpr float limit = max_float16 / 2;  // of a number and of the offset, whose difference is kept

  struct params {
    float16 scale;
    float16 offset;
    float16 kept[K];
  };

  static params fit(const float* x, int n) noexcept {
    const selection s = select(x, n);
    scalar::vu scale;
    scalar::vu offset;
    if constexpr (refined) {
      const auto number = [&](int i) {
        for (int k = 0; k < s.count; ++k) i += i >= s.at[k] ? 1 : 0;
        return scalar::vf{x[i]};
      };
      scalar::fit_least_squares<true>(number, n - s.count, {s.low}, {s.high}, 0, largest, scale, offset);
    } else {
      scalar::fit_halves({s.low}, {s.high}, largest, scale, offset);
    }
    params p{float16{static_cast<std::uint16_t>(scale.v)}, float16{static_cast<std::uint16_t>(offset.v)}, {}};
    for (int k = 0; k < s.count; ++k) {
      // Beyond the limit where least squares puts the offset below all numbers.
      p.kept[k] = to_float16(std::min(x[s.at[k]] - to_float(p.offset), max_float16));
    }
    return p;
  }

  // The whole group that `p` was fitted to.
  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    detail::encode_integers(to_float(p.scale), to_float(p.offset), 0, 0.0F, largest, x, n, codes);
    const selection s = select(x, n);
    for (int k = 0; k < s.count; ++k) codes[s.at[k]] = last_code - static_cast<std::uint32_t>(k);
  }
  static float decode(params p, std::uint32_t code) noexcept {
    const std::uint32_t outlier = last_code - code;
    if (outlier < K) return to_float(p.offset) + to_float(p.kept[outlier]);
    return fused(to_float(p.scale), static_cast<float>(code), to_float(p.offset));
  }

 private:
  static constexpr std::uint32_t last_code = (1U << bits) - 1U;
  static constexpr auto largest = static_cast<float>(last_code - K);

  struct selection {
    int at[K];  // ascending
    int count;
    float low;  // of the others
    float high;
  };

  // The first `count` + 1 numbers in ascending order of sign * x, of equal ones the first first.
  static void find_first(const float* x, int n, float sign, int count, int* at) noexcept {
    int found = 0;
    for (int i = 0; i < n; ++i) {
      int to = found <= count ? found++ : count + 1;
      for (; to > 0 && sign * x[i] < sign * x[at[to - 1]]; --to) {
        if (to <= count) at[to] = at[to - 1];
      }
      if (to <= count) at[to] = i;
    }
  }

  static selection select(const float* x, int n) noexcept {
    const int count = n > K ? K : n - 1;
    int lowest[K + 1];
    int highest[K + 1];
    find_first(x, n, 1.0F, count, lowest);
    find_first(x, n, -1.0F, count, highest);
    // How many of the outliers are low ones. No number is both: the others would be equal, and so they are with one more of the
    // lowest.
    int low_count = 0;
    float least = FLT_MAX;
    for (int low = count; low >= 0; --low) {
      const float range = flush_subnormal(x[highest[count - low]] - x[lowest[low]]);
      if (range < least) {
        least = range;
        low_count = low;
      }
    }
    selection s{{}, count, x[lowest[low_count]], x[highest[count - low_count]]};
    std::copy_n(lowest, low_count, s.at);
    std::copy_n(highest, count - low_count, s.at + low_count);
    for (int i = 1; i < count; ++i) {  // by insertion; GCC 12 warns inside std::sort of so few numbers
      const int at = s.at[i];
      int to = i;
      for (; to > 0 && s.at[to - 1] > at; --to) s.at[to] = s.at[to - 1];
      s.at[to] = at;
    }
    return s;
  }
};

KVAXIS_END_NAMESPACE
