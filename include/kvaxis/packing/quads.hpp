// Quads: how the codes of a block lie in memory, for every width and instruction set alike.
//
// A block is a matrix of codes, rows x lanes: channels x tokens for keys, tokens x channels for values. Four rows form
// a quad, stored as 32-bit words so that integer units, which sum adjacent bytes, sum over the rows:
//
//   8 bits    word l                  = rows 3 2 1 0 (high to low byte) of lane l
//   4 bits    word w (of lanes / 2)   = in byte c, row c: lane w in the low nibble, lane w + lanes / 2 in the high one
//   16 bits   words l, lanes + l      = rows 1 0 and rows 3 2 of lane l
//   32 bits   word c * lanes + l      = row c of lane l
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config.hpp"

KVAXIS_BEGIN_NAMESPACE

[[nodiscard]] constexpr bool packable(int bits) noexcept { return bits == 4 || bits == 8 || bits == 16 || bits == 32; }

// 32-bit words of one quad.
[[nodiscard]] constexpr int quad_words(int bits, int lanes) noexcept { return lanes * bits / 8; }

struct code_place {
  int word;   // within the quad
  int shift;  // of the code's lowest bit within the word
};

// Where row c (0..3) of a lane lies in its quad.
[[nodiscard]] constexpr code_place place_of(int bits, int lanes, int c, int lane) noexcept {
  if (bits < 8) {
    const int words = quad_words(bits, lanes);
    return {lane % words, 8 * c + bits * (lane / words)};
  }
  return {c * bits / 32 * lanes + lane, c * bits % 32};
}

[[nodiscard]] constexpr std::uint32_t code_mask(int bits) noexcept {
  return bits == 32 ? 0xFFFFFFFFU : (std::uint32_t{1} << bits) - 1U;
}

// Packs the four rows of a quad: codes[c * lanes + lane].
inline void pack_quad(int bits, int lanes, const std::uint32_t* codes, std::uint32_t* words) noexcept {
  const int count = quad_words(bits, lanes);
  for (int w = 0; w < count; ++w) words[w] = 0;
  for (int c = 0; c < 4; ++c) {
    for (int lane = 0; lane < lanes; ++lane) {
      const code_place at = place_of(bits, lanes, c, lane);
      words[at.word] |= (codes[c * lanes + lane] & code_mask(bits)) << at.shift;
    }
  }
}

[[nodiscard]] inline std::uint32_t unpack_code(int bits, int lanes, const std::uint32_t* words, int c,
                                               int lane) noexcept {
  const code_place at = place_of(bits, lanes, c, lane);
  return words[at.word] >> at.shift & code_mask(bits);
}

KVAXIS_END_NAMESPACE
