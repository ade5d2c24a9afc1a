// Rotary position embedding as data: a list of channel pairs, each with its frequency. Every variant in use (half-split
// or interleaved, partial, the tail of an MLA key, scaled or arbitrary frequencies) is such a list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../config.hpp"
#include "../formats/bits.hpp"
#include "../formats/fused.hpp"
#include "scaling.hpp"
#include "sincos.hpp"

KVAXIS_BEGIN_NAMESPACE

constexpr int max_pairs = max_head_dim / 2;
constexpr double max_frequency = 0x1.921fb54442d18p+2;  // 2 pi, a full turn per position

// At position p the channels (a, b) turn by the angle p * frequency.
struct rope_pair {
  std::int32_t a = 0;
  std::int32_t b = 0;
  double frequency = 0.0;  // radians per position
};

// No pairs: no rotation. Channels in no pair pass through unchanged.
struct rope {
  int pairs_count = 0;
  double attention_factor = 1.0;  // multiplies the rotated channels of a query, once; stored keys carry none
  std::array<rope_pair, max_pairs> pairs{};
};

// Which channels form pair i of a rotary part of n channels: (i, i + n/2), as in Hugging Face code and GPT-NeoX, or
// (2i, 2i + 1), as in GPT-J, DeepSeek and the llama.cpp files of Llama models.
enum class rope_layout { half_split, interleaved };

struct rope_parameters {
  int head_dim = 0;
  int rotary_dim = 0;      // channels that rotate, even; 0: all from first_channel on
  int first_channel = 0;   // head_dim - 64 for an MLA key
  double theta = 10000.0;  // 1 to 2^64
  rope_layout layout = rope_layout::half_split;
  rope_scaling scaling{};
};

namespace detail {

[[nodiscard]] constexpr status check_head(int head_dim, int first_channel) noexcept {
  if (head_dim < min_head_dim) return {errc::out_of_range, "head_dim", min_head_dim};
  if (head_dim > max_head_dim) return {errc::out_of_range, "head_dim", max_head_dim};
  if (first_channel < 0 || first_channel > head_dim - 2) return {errc::out_of_range, "first_channel", head_dim - 2};
  return {};
}

}  // namespace detail

// Whether a rope fits a head: pairs on separate channels in range, |frequency| <= 2 pi, attention_factor within 1/1024
// and 1024.
[[nodiscard]] inline status check_rope(const rope& r, int head_dim) noexcept {
  if (const status s = detail::check_head(head_dim, 0); !s.ok()) return s;
  if (r.pairs_count < 0 || r.pairs_count > head_dim / 2) {
    return {errc::out_of_range, "rope.pairs_count", head_dim / 2};
  }
  if (!detail::is_within(r.attention_factor, 1.0 / max_attention_factor, max_attention_factor)) {
    return {errc::out_of_range, "rope.attention_factor", max_attention_factor};
  }
  std::array<bool, max_head_dim> taken{};
  for (int i = 0; i < r.pairs_count; ++i) {
    const rope_pair& pair = r.pairs[static_cast<std::size_t>(i)];
    for (const std::int32_t channel : {pair.a, pair.b}) {
      if (channel < 0 || channel >= head_dim) return {errc::out_of_range, "rope.pairs", head_dim - 1};
      bool& is_taken = taken[static_cast<std::size_t>(channel)];
      if (is_taken) return {errc::invalid_argument, "rope.pairs", channel};
      is_taken = true;
    }
    if (!detail::is_within(pair.frequency, -max_frequency, max_frequency)) {
      return {errc::out_of_range, "rope.pairs.frequency", 6};
    }
  }
  return {};
}

// A rope from the caller's own frequencies (LongRoPE, p-RoPE, the divided ones of a rope_freqs tensor):
// inverse_frequencies [count] in radians per position, each within +-2 pi. The pairs lie in the 2 * count channels from
// first_channel on. attention_factor is 1; set it afterwards where the model has one. `out` is unchanged unless the
// answer is ok.
[[nodiscard]] inline status make_rope(int head_dim, int first_channel, rope_layout layout,
                                      const double* inverse_frequencies, int count, rope& out) noexcept {
  if (const status s = detail::check_head(head_dim, first_channel); !s.ok()) return s;
  if (layout != rope_layout::half_split && layout != rope_layout::interleaved) {
    return {errc::invalid_argument, "layout", 0};
  }
  if (inverse_frequencies == nullptr) return {errc::invalid_argument, "inverse_frequencies", 0};
  if (count < 1 || count > (head_dim - first_channel) / 2) {
    return {errc::out_of_range, "count", (head_dim - first_channel) / 2};
  }
  rope made;
  made.pairs_count = count;
  for (int i = 0; i < count; ++i) {
    const double w = inverse_frequencies[i];
    if (!detail::is_within(w, -max_frequency, max_frequency)) {
      return {errc::out_of_range, "inverse_frequencies", 6};
    }
    const bool is_split = layout == rope_layout::half_split;
    const int a = first_channel + (is_split ? i : 2 * i);
    made.pairs[static_cast<std::size_t>(i)] = rope_pair{a, a + (is_split ? count : 1), w};
  }
  out = made;
  return {};
}

// The rope of a model's configuration. `out` is unchanged unless the answer is ok.
[[nodiscard]] inline status make_rope(const rope_parameters& p, rope& out) noexcept {
  if (const status s = detail::check_head(p.head_dim, p.first_channel); !s.ok()) return s;
  const int available = p.head_dim - p.first_channel;
  const int n = p.rotary_dim == 0 ? available : p.rotary_dim;
  if (n < 2 || n > available) return {errc::out_of_range, "rotary_dim", available};
  if (n % 2 != 0) return {errc::invalid_argument, "rotary_dim", available};
  if (!detail::is_within(p.theta, 1.0, max_rope_theta)) return {errc::out_of_range, "theta", 1};
  if (const status s = detail::check_scaling(p.scaling); !s.ok()) return s;
  if (p.scaling.kind == rope_scaling::rule::yarn && p.theta <= 1.0) return {errc::invalid_argument, "theta", 1};
  std::array<double, max_pairs> frequencies{};
  const double attention_factor = detail::make_frequencies(p.scaling, p.theta, n, frequencies.data());
  if (const status s = make_rope(p.head_dim, p.first_channel, p.layout, frequencies.data(), n / 2, out); !s.ok()) {
    return s;
  }
  out.attention_factor = attention_factor;
  return {};
}

// Turns the two channels of a pair, of a head vector in natural order. The form of the two sums is the library's: stored
// keys are rotated with the same bits.
inline void rotate_pair(const rope_pair& pair, std::int64_t position, float* head) noexcept {
  double sine = 0.0;
  double cosine = 0.0;
  sincos(static_cast<double>(position) * pair.frequency, sine, cosine);
  const auto s = static_cast<float>(sine);
  const auto c = static_cast<float>(cosine);
  const float a = head[pair.a];
  const float b = head[pair.b];
  head[pair.a] = fused(a, c, -(b * s));
  head[pair.b] = fused(a, s, b * c);
}

// Rotates one head vector [head_dim] in place. The attention factor is not applied.
inline void rotate(const rope& r, std::int64_t position, float* head) noexcept {
  for (int i = 0; i < r.pairs_count; ++i) rotate_pair(r.pairs[static_cast<std::size_t>(i)], position, head);
}

KVAXIS_END_NAMESPACE
