// The values of a codebook, learned from a sample by weighted k-means. In one dimension the best values can be found, not just
// good ones: each stands for a run of the sorted numbers, and the best cuts into runs follow from those into fewer.
//
// The sample holds numbers as a table sees them: those of a group, less the group's offset, over a measure of its size such
// as half its range or its root mean square. Which one hardly matters with scale_rule::least_error (quantizers/codebook.hpp), the
// rule for learned tables, as it searches the scale. A weight says what an error there costs, for example the square of
// that measure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../config.hpp"
#include "../formats/bits.hpp"
#include "../memory.hpp"

KVAXIS_BEGIN_NAMESPACE

namespace detail {

struct weighted_number {
  double weight;
  float x;
};

// Of the numbers before one: sums of the weights, the weighted numbers, and their weighted squares.
struct weight_sums {
  double weight;
  double product;
  double square;
};

struct runs {
  const weight_sums* sums;
  const double* fewer;  // the least error of the first i numbers in one run less
  double* least;        // in this many runs
  std::int32_t* cut;    // where the last of them then begins

  [[nodiscard]] double error(std::ptrdiff_t begin, std::ptrdiff_t end) const noexcept {
    const double weight = sums[end].weight - sums[begin].weight;
    const double product = sums[end].product - sums[begin].product;
    return sums[end].square - sums[begin].square - product * product / weight;
  }

  // least and cut of the first begin .. end - 1 numbers, whose cuts lie in low .. high. Cuts do not fall as numbers are added,
  // so the middle one halves the work for the others.
  void find(std::ptrdiff_t begin, std::ptrdiff_t end, std::ptrdiff_t low, std::ptrdiff_t high) const noexcept {
    if (begin >= end) return;
    const std::ptrdiff_t middle = begin + (end - begin) / 2;
    std::ptrdiff_t best = low;
    for (std::ptrdiff_t i = low; i <= high && i < middle; ++i) {
      const double now = fewer[i] + error(i, middle);
      if (i == low || now < least[middle]) {
        least[middle] = now;
        best = i;
      }
    }
    cut[middle] = static_cast<std::int32_t>(best);
    find(begin, middle, low, best);
    find(middle + 1, end, best, high);
  }
};

// Sorts the numbers and merges equal ones; how many are left.
inline std::ptrdiff_t merge_equal_numbers(weighted_number* numbers, std::ptrdiff_t n) noexcept {
  std::sort(numbers, numbers + n, [](const weighted_number& a, const weighted_number& b) {
    return a.x < b.x || (a.x == b.x && a.weight < b.weight);
  });
  std::ptrdiff_t merged = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    if (merged > 0 && numbers[merged - 1].x == numbers[i].x) {
      numbers[merged - 1].weight += numbers[i].weight;
    } else {
      numbers[merged++] = numbers[i];
    }
  }
  return merged;
}

}  // namespace detail

// values: the 2^Bits, ascending, with the least weighted squared error. weights: null, or one for each number, not negative. The
// sample's order does not matter. Takes 4 * 2^Bits + 56 bytes a number for the time of the call. Errors: fewer different numbers
// of a positive weight than values, more numbers than 2^31 - 2, a null pointer, a number or weight that is not finite, a
// negative weight, out of memory.
template <int Bits>
status learn_codebook(const float* x, const float* weights, std::ptrdiff_t n,
                      std::array<float, std::size_t{1} << Bits>& values) noexcept {
  static_assert(Bits >= 1 && Bits <= 8, "learn_codebook: 1 to 8 bits");
  constexpr std::ptrdiff_t k = std::ptrdiff_t{1} << Bits;
  if (x == nullptr) return {errc::invalid_argument, "x", 0};
  if (n < k) return {errc::out_of_range, "n", k};
  if (n > INT32_MAX - 1) return {errc::out_of_range, "n", INT32_MAX - 1};
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    if (!is_finite(x[i])) return {errc::non_finite, "x", i};
    if (weights == nullptr) continue;
    if (!is_finite(weights[i])) return {errc::non_finite, "weights", i};
    if (weights[i] < 0.0F) return {errc::out_of_range, "weights", 0};
  }
  const auto count = static_cast<std::size_t>(n) + 1;
  const std::size_t bytes = count * (sizeof(detail::weight_sums) + sizeof(detail::weighted_number) +
                                     2 * sizeof(double) + static_cast<std::size_t>(k) * sizeof(std::int32_t));
  const allocator memory;
  auto* const sums = static_cast<detail::weight_sums*>(memory.allocate(bytes));
  if (sums == nullptr) return {errc::out_of_memory, memory.name, static_cast<std::int64_t>(bytes)};
  auto* const numbers = reinterpret_cast<detail::weighted_number*>(sums + count);
  auto* fewer = reinterpret_cast<double*>(numbers + count);
  auto* least = fewer + count;
  auto* const cuts = reinterpret_cast<std::int32_t*>(least + count);

  std::ptrdiff_t used = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const float weight = weights == nullptr ? 1.0F : weights[i];
    if (weight > 0.0F) numbers[used++] = {static_cast<double>(weight), x[i]};
  }
  const std::ptrdiff_t different = detail::merge_equal_numbers(numbers, used);
  if (different >= k) {
    sums[0] = {0.0, 0.0, 0.0};
    for (std::ptrdiff_t i = 0; i < different; ++i) {
      const auto number = static_cast<double>(numbers[i].x);
      const double product = numbers[i].weight * number;
      sums[i + 1] = {sums[i].weight + numbers[i].weight, sums[i].product + product, sums[i].square + product * number};
    }
    fewer[0] = 0.0;
    for (std::ptrdiff_t runs = 1; runs <= k; ++runs) {
      const detail::runs search{sums, fewer, least, cuts + (runs - 1) * static_cast<std::ptrdiff_t>(count)};
      // A run has at least one number; the first begins at 0.
      search.find(runs, different + 1, runs - 1, runs == 1 ? 0 : different);
      std::swap(fewer, least);
    }
    std::ptrdiff_t end = different;
    for (std::ptrdiff_t i = k; i-- > 0;) {
      const std::ptrdiff_t begin = cuts[i * static_cast<std::ptrdiff_t>(count) + end];
      const double weight = sums[end].weight - sums[begin].weight;
      values[static_cast<std::size_t>(i)] = static_cast<float>((sums[end].product - sums[begin].product) / weight);
      end = begin;
    }
  }
  memory.deallocate(sums, bytes);
  if (different < k) return {errc::out_of_range, "x: different numbers", k};
  return {};
}

KVAXIS_END_NAMESPACE
