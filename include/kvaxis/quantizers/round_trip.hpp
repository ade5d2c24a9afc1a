// Quantizing and decoding a matrix without a cache: what a policy does to numbers, for studies and tests. Groups may
// have any length here; only the tiles of a cache limit it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../formats/fused.hpp"
#include "../memory.hpp"
#include "policy.hpp"

KVAXIS_BEGIN_NAMESPACE

namespace detail {

// The matrix as lines of `length` numbers, along which the groups run.
struct group_lines {
  std::ptrdiff_t count;
  std::ptrdiff_t length;
  std::ptrdiff_t line_step;  // from a line to the next
  std::ptrdiff_t step;       // between neighbours of a line
};

constexpr group_lines lines_of(axis a, int tokens, int channels) noexcept {
  if (a == axis::channel) return {channels, tokens, 1, channels};
  return {tokens, channels, channels, 1};
}

constexpr int group_length(const policy& p, std::ptrdiff_t line) noexcept {
  return p.axis == axis::tensor || p.group > line ? static_cast<int>(line) : p.group;
}

// One group in place: with parameters that the codec fits, or with a given scale (null: none).
template <class Codec>
void round_trip_group(float* x, int n, const float* scale, std::uint32_t* codes) noexcept {
  for (int i = 0; i < n; ++i) x[i] = flush_subnormal(x[i]);
  if constexpr (is_linear<Codec>) {
    if (scale != nullptr) {
      const float offset = Codec::offset_factor * *scale;
      Codec::encode_linear(*scale, offset, x, n, codes);
      for (int i = 0; i < n; ++i) x[i] = fused(*scale, Codec::unit_value(codes[i]), offset);
      return;
    }
  }
  const typename Codec::params p = Codec::fit(x, n);
  Codec::encode(p, x, n, codes);
  for (int i = 0; i < n; ++i) x[i] = Codec::decode(p, codes[i]);
}

template <class Codec>
status round_trip(const policy& p, const float* x, int tokens, int channels, const float* scale, float* out) noexcept {
  if (tokens < 1) return {errc::out_of_range, "tokens", 1};
  if (channels < 1) return {errc::out_of_range, "channels", 1};
  if (x == nullptr) return {errc::invalid_argument, "x", 0};
  if (out == nullptr) return {errc::invalid_argument, "out", 0};
  const group_lines lines = lines_of(p.axis, tokens, channels);
  for (std::ptrdiff_t i = 0; i < lines.count * lines.length; ++i) {
    if (!is_finite(x[i])) return {errc::non_finite, "x", i / channels};
    const float magnitude = x[i] < 0.0F ? -x[i] : x[i];
    if (scale == nullptr && magnitude > limit_of<Codec>) {
      return {errc::out_of_range, "x", integer_limit(limit_of<Codec>)};
    }
  }
  const int longest = group_length(p, lines.length);
  const std::size_t bytes = static_cast<std::size_t>(longest) * (sizeof(float) + sizeof(std::uint32_t));
  const allocator memory;
  auto* const numbers = static_cast<float*>(memory.allocate(bytes));
  if (numbers == nullptr) return {errc::out_of_memory, memory.name, static_cast<std::int64_t>(bytes)};
  auto* const codes = reinterpret_cast<std::uint32_t*>(numbers + longest);
  for (std::ptrdiff_t line = 0; line < lines.count; ++line) {
    for (std::ptrdiff_t begin = 0; begin < lines.length; begin += longest) {
      const std::ptrdiff_t left = lines.length - begin;
      const int n = left < longest ? static_cast<int>(left) : longest;
      const std::ptrdiff_t first = line * lines.line_step + begin * lines.step;
      for (int i = 0; i < n; ++i) numbers[i] = x[first + i * lines.step];
      round_trip_group<Codec>(numbers, n, scale, codes);
      for (int i = 0; i < n; ++i) out[first + i * lines.step] = numbers[i];
    }
  }
  memory.deallocate(numbers, bytes);
  return {};
}

}  // namespace detail

// out = decode(encode(x)), both [tokens][channels], row after row; they may be the same array. The last group of a line
// may be shorter than the policy's. Nothing is rotated; rotate keys first to study `post`. Errors: a size below 1, a
// null pointer, a number that is not finite or beyond the codec's limit, out of memory.
template <class Policy>
status round_trip(const float* x, int tokens, int channels, float* out) noexcept {
  static_assert(Policy::value.axis != axis::latent,
                "round_trip: latent values are those of the keys; try their policy");
  static_assert(Policy::value.axis != axis::tensor || codec_parameters<typename Policy::codec>::members == 0,
                "round_trip: a per_tensor policy needs its scale: round_trip<Policy>(x, tokens, channels, scale, out)");
  return detail::round_trip<typename Policy::codec>(Policy::value, x, tokens, channels, nullptr, out);
}

// The same for per_tensor with its given scale; numbers out of its range become the end of the range.
template <class Policy>
status round_trip(const float* x, int tokens, int channels, float scale, float* out) noexcept {
  static_assert(Policy::value.axis == axis::tensor && codec_parameters<typename Policy::codec>::members > 0,
                "round_trip: only a per_tensor policy whose codec has a scale takes one");
  if (!is_finite(scale) || !(scale >= FLT_MIN)) return {errc::invalid_argument, "scale", 0};
  return detail::round_trip<typename Policy::codec>(Policy::value, x, tokens, channels, &scale, out);
}

// Bits per number of that: codes and the parameters of every group, without the padding of tiles.
template <class Policy>
[[nodiscard]] constexpr double group_bits(int tokens, int channels) noexcept {
  using parameters = codec_parameters<typename Policy::codec>;
  constexpr policy p = Policy::value;
  if (p.axis == axis::latent) return 0.0;
  if (p.axis == axis::tensor) return Policy::codec::bits;
  const std::ptrdiff_t line = detail::lines_of(p.axis, tokens, channels).length;
  const std::ptrdiff_t group = detail::group_length(p, line);
  const auto groups = static_cast<double>((line + group - 1) / group);
  return Policy::codec::bits +
         8.0 * parameters::members * parameters::member_bytes * groups / static_cast<double>(line);
}

KVAXIS_END_NAMESPACE
