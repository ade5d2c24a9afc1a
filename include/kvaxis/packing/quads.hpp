// Quads: how the codes of a block lie in memory, for every width and instruction set alike.
//
// A block is a matrix of codes, rows x lanes: channels x tokens for keys, tokens x channels for values. Four rows form
// a quad, stored as 32-bit words so that integer units, which sum adjacent bytes, sum over the rows:
//
//   8 bits    word l                  = rows 3 2 1 0 (high to low byte) of lane l
//   4 bits    word w (of lanes / 2)   = in byte c, row c: lane w in the low nibble, lane w + lanes / 2 in the high one
//   2 bits    8 words for 32 lanes    = in byte c of word w, row c: lanes w, w + 8, w + 16, w + 24 from the low bits up
//   1 bit     4 words for 32 lanes    = in byte c of word w, row c: lanes w, w + 4, ..., w + 28 from the low bit up
//   16 bits   words l, lanes + l      = rows 1 0 and rows 3 2 of lane l
//   32 bits   word c * lanes + l      = row c of lane l
//
// Other widths are two planes, one after the other: 3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2, the low bits first. Lanes below 4
// bits come in stretches of 32, so that a register finds its words in the same way whatever the length of a quad.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config.hpp"

KVAXIS_BEGIN_NAMESPACE

[[nodiscard]] constexpr bool packable(int bits) noexcept {
  return (bits >= 2 && bits <= 6) || bits == 8 || bits == 16 || bits == 32;
}

// 32-bit words of one quad, or of a plane of it.
[[nodiscard]] constexpr int quad_words(int bits, int lanes) noexcept { return lanes * bits / 8; }

// The width of the first plane.
[[nodiscard]] constexpr int low_plane(int bits) noexcept { return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits; }

struct code_place {
  int word;   // within the plane
  int shift;  // of the code's lowest bit within the word
};

// Where row c (0..3) of a lane lies in a plane of 1, 2, 4, 8, 16 or 32 bits.
[[nodiscard]] constexpr code_place place_of(int bits, int lanes, int c, int lane) noexcept {
  if (bits < 4) {
    const int words = 4 * bits;  // of 32 lanes
    return {lane / 32 * words + lane % words, 8 * c + bits * (lane % 32 / words)};
  }
  if (bits == 4) {
    const int words = quad_words(bits, lanes);
    return {lane % words, 8 * c + bits * (lane / words)};
  }
  return {c * bits / 32 * lanes + lane, c * bits % 32};
}

[[nodiscard]] constexpr std::uint32_t code_mask(int bits) noexcept {
  return bits == 32 ? 0xFFFFFFFFU : (std::uint32_t{1} << bits) - 1U;
}

[[nodiscard]] inline std::uint32_t unpack_code(int bits, int lanes, const std::uint32_t* words, int c,
                                               int lane) noexcept {
  const int low = low_plane(bits);
  const code_place at = place_of(low, lanes, c, lane);
  const std::uint32_t code = words[at.word] >> at.shift & code_mask(low);
  if (low == bits) return code;
  return code | unpack_code(bits - low, lanes, words + quad_words(low, lanes), c, lane) << low;
}

// Writes one code, whatever was there.
inline void pack_code(int bits, int lanes, std::uint32_t* words, int c, int lane, std::uint32_t code) noexcept {
  const int low = low_plane(bits);
  const code_place at = place_of(low, lanes, c, lane);
  words[at.word] = (words[at.word] & ~(code_mask(low) << at.shift)) | (code & code_mask(low)) << at.shift;
  if (low != bits) pack_code(bits - low, lanes, words + quad_words(low, lanes), c, lane, code >> low);
}

// Packs the four rows of a quad: codes[c * lanes + lane].
inline void pack_quad(int bits, int lanes, const std::uint32_t* codes, std::uint32_t* words) noexcept {
  const int count = quad_words(bits, lanes);
  for (int w = 0; w < count; ++w) words[w] = 0;
  for (int c = 0; c < 4; ++c) {
    for (int lane = 0; lane < lanes; ++lane) pack_code(bits, lanes, words, c, lane, codes[c * lanes + lane]);
  }
}

// The same from a quad of 8-bit codes, whole words at a time; `from` is the lowest bit of them that counts.
inline void narrow_quad(int bits, int lanes, const std::uint32_t* bytes, std::uint32_t* words, int from = 0) noexcept {
  const int low = low_plane(bits);
  const int step = low == 4 ? lanes / 2 : 4 * low;  // lanes that lie side by side
  const int stretch = low == 4 ? lanes : 32;
  const std::uint32_t mask = 0x01010101U * code_mask(low);
  for (int first = 0; first < lanes; first += stretch) {
    for (int w = 0; w < step; ++w, ++words) {
      *words = 0;
      for (int k = 0; k * step < stretch; ++k) *words |= (bytes[first + k * step + w] >> from & mask) << (low * k);
    }
  }
  if (low != bits) narrow_quad(bits - low, lanes, bytes, words, from + low);
}

KVAXIS_END_NAMESPACE
