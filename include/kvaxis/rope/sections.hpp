// Tokens with several positions each, as in multimodal models (M-RoPE: time, height, width): every pair turns by one of
// them. A cache gives a token one position, its place in the sequence, which decides who sees it; what the others differ
// from it is turned into the key and the query before they go in. The relative rotation, and so the logit, is then that of
// the true positions, and a token can still be moved, all its positions together. Reading a key back gives the turned one.
#pragma once

#include <cstdint>

#include "rope.hpp"

KVAXIS_BEGIN_NAMESPACE

constexpr int max_position_axes = 4;

// Which position a pair takes. Other patterns than make_sections() makes, such as the interleaved one of Qwen3-VL, are
// filled in by hand.
struct rope_sections {
  int axes = 1;
  std::array<std::uint8_t, max_pairs> axis_of_pair{};
};

// Contiguous sections, as the mrope_section of Qwen2-VL's configuration has them ({16, 24, 24}): the first counts[0] pairs
// take position 0, and so on. The counts must sum to the pairs of the rope. `out` is unchanged unless the answer is ok.
[[nodiscard]] inline status make_sections(const rope& r, const int* counts, int axes, rope_sections& out) noexcept {
  if (counts == nullptr) return {errc::invalid_argument, "counts", 0};
  if (axes < 1 || axes > max_position_axes) return {errc::out_of_range, "axes", max_position_axes};
  rope_sections made;
  made.axes = axes;
  int pair = 0;
  for (int axis = 0; axis < axes; ++axis) {
    if (counts[axis] < 0 || counts[axis] > r.pairs_count - pair)
      return {errc::out_of_range, "counts", r.pairs_count - pair};
    for (const int end = pair + counts[axis]; pair < end; ++pair) {
      made.axis_of_pair[static_cast<std::size_t>(pair)] = static_cast<std::uint8_t>(axis);
    }
  }
  if (pair != r.pairs_count) return {errc::invalid_argument, "counts", r.pairs_count};
  out = made;
  return {};
}

// Turns a key or a query [head_dim], natural channel order, by what its positions [axes] differ from its place in the
// sequence, the position that goes to append() or attend().
inline void turn_to_place(const rope& r, const rope_sections& s, const std::int64_t* positions, std::int64_t place,
                          float* head) noexcept {
  for (int i = 0; i < r.pairs_count; ++i) {
    const std::int64_t difference = positions[s.axis_of_pair[static_cast<std::size_t>(i)]] - place;
    if (difference != 0) rotate_pair(r.pairs[static_cast<std::size_t>(i)], difference, head);
  }
}

KVAXIS_END_NAMESPACE
