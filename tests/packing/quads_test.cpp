// Where codes lie. The places are written down here a second time, format by format, from the description of the
// layout.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <kvaxis/packing/quads.hpp>
#include <numbers.hpp>
#include <vector>

namespace {

constexpr int lane_counts[] = {16, 32, 48, 64, 96, 128, 256, 576};

std::vector<std::uint32_t> random_codes(int bits, int lanes, std::uint64_t seed) {
  test::numbers random(seed);
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(4 * lanes));
  for (std::uint32_t& c : codes) c = static_cast<std::uint32_t>(random.next() >> 32) & kvaxis::code_mask(bits);
  return codes;
}

std::vector<std::uint32_t> packed(int bits, int lanes, const std::vector<std::uint32_t>& codes) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(kvaxis::quad_words(bits, lanes)), 0xDEADBEEFU);
  kvaxis::pack_quad(bits, lanes, codes.data(), words.data());
  return words;
}

// The code of row c and a lane, read from the bytes of the quad (little-endian) without the library.
std::uint32_t code_in_bytes(int bits, int lanes, const std::vector<std::uint8_t>& bytes, int c, int lane) {
  const auto byte = [&](int at) { return std::uint32_t{bytes[static_cast<std::size_t>(at)]}; };
  const auto half = [&](int at) { return byte(at) | byte(at + 1) << 8; };
  const auto one_bit = [&](int plane) {
    return byte(plane + 16 * (lane / 32) + 4 * (lane % 4) + c) >> lane % 32 / 4 & 1U;
  };
  const auto two_bits = [&](int plane) {
    return byte(plane + 32 * (lane / 32) + 4 * (lane % 8) + c) >> 2 * (lane % 32 / 8) & 3U;
  };
  switch (bits) {
    case 2: return two_bits(0);
    case 3: return two_bits(0) | one_bit(lanes) << 2;
    case 5: return code_in_bytes(4, lanes, bytes, c, lane) | one_bit(2 * lanes) << 4;
    case 6: return code_in_bytes(4, lanes, bytes, c, lane) | two_bits(2 * lanes) << 4;
    case 4: {
      const bool high = lane >= lanes / 2;
      const std::uint32_t both = byte(4 * (high ? lane - lanes / 2 : lane) + c);
      return high ? both >> 4 : both & 15U;
    }
    case 8: return byte(4 * lane + c);
    case 16: return half((c < 2 ? 0 : 4 * lanes) + 4 * lane + 2 * (c % 2));
    default: return half(4 * (c * lanes + lane)) | half(4 * (c * lanes + lane) + 2) << 16;
  }
}

TEST(Quads, sizes) {
  for (const int bits : {2, 3, 4, 5, 6, 8, 16, 32}) {
    EXPECT_TRUE(kvaxis::packable(bits));
    EXPECT_EQ(kvaxis::quad_words(bits, 64) * 32, 4 * 64 * bits);
  }
  for (const int bits : {0, 1, 7, 12, 24, 64}) EXPECT_FALSE(kvaxis::packable(bits)) << bits;
  EXPECT_EQ(kvaxis::code_mask(4), 0xFU);
  EXPECT_EQ(kvaxis::code_mask(8), 0xFFU);
  EXPECT_EQ(kvaxis::code_mask(16), 0xFFFFU);
  EXPECT_EQ(kvaxis::code_mask(32), 0xFFFFFFFFU);
}

TEST(Quads, every_code_is_in_its_place_and_comes_back) {
  for (const int bits : {2, 3, 4, 5, 6, 8, 16, 32}) {
    for (const int lanes : lane_counts) {
      if (bits < 8 && bits != 4 && lanes % 32 != 0) continue;
      const std::vector<std::uint32_t> codes = random_codes(bits, lanes, static_cast<std::uint64_t>(bits * lanes));
      const std::vector<std::uint32_t> words = packed(bits, lanes, codes);
      std::vector<std::uint8_t> bytes(words.size() * 4);
      std::memcpy(bytes.data(), words.data(), bytes.size());
      for (int c = 0; c < 4; ++c) {
        for (int lane = 0; lane < lanes; ++lane) {
          const std::uint32_t code = codes[static_cast<std::size_t>(c * lanes + lane)];
          ASSERT_EQ(code_in_bytes(bits, lanes, bytes, c, lane), code) << bits << " bits, row " << c << " lane " << lane;
          ASSERT_EQ(kvaxis::unpack_code(bits, lanes, words.data(), c, lane), code);
        }
      }
    }
  }
}

// Every bit of the quad belongs to one code: setting one code alone sets its bits and no others.
TEST(Quads, places_do_not_overlap) {
  for (const int bits : {1, 2, 4, 8, 16, 32}) {
    constexpr int lanes = 32;
    std::vector<std::uint32_t> taken(static_cast<std::size_t>(kvaxis::quad_words(bits, lanes)), 0U);
    for (int c = 0; c < 4; ++c) {
      for (int lane = 0; lane < lanes; ++lane) {
        const kvaxis::code_place at = kvaxis::place_of(bits, lanes, c, lane);
        const std::uint32_t mine = kvaxis::code_mask(bits) << at.shift;
        EXPECT_EQ(taken[static_cast<std::size_t>(at.word)] & mine, 0U)
            << bits << " bits, row " << c << " lane " << lane;
        taken[static_cast<std::size_t>(at.word)] |= mine;
      }
    }
    for (const std::uint32_t word : taken) EXPECT_EQ(word, 0xFFFFFFFFU);
  }
}

// A quad of 8-bit codes, narrowed, is the quad of the narrow codes; and one code can be changed alone.
TEST(Quads, narrowing_and_single_codes) {
  for (const int bits : {2, 3, 4, 5, 6}) {
    for (const int lanes : {32, 96, 256}) {
      std::vector<std::uint32_t> codes = random_codes(bits, lanes, static_cast<std::uint64_t>(7 * bits * lanes));
      std::vector<std::uint32_t> narrow(static_cast<std::size_t>(kvaxis::quad_words(bits, lanes)), 0xDEADBEEFU);
      kvaxis::narrow_quad(bits, lanes, packed(8, lanes, codes).data(), narrow.data());
      EXPECT_EQ(narrow, packed(bits, lanes, codes)) << bits << " " << lanes;
      codes[static_cast<std::size_t>(2 * lanes + 17)] ^= kvaxis::code_mask(bits);
      kvaxis::pack_code(bits, lanes, narrow.data(), 2, 17, codes[static_cast<std::size_t>(2 * lanes + 17)]);
      EXPECT_EQ(narrow, packed(bits, lanes, codes)) << bits << " " << lanes;
    }
  }
}

TEST(Quads, bits_beyond_a_code_do_not_spill) {
  std::vector<std::uint32_t> codes(4 * 32, 0U);
  codes[33] = 0xFFFFFFFFU;
  const std::vector<std::uint32_t> words = packed(4, 32, codes);
  for (std::size_t w = 0; w < words.size(); ++w) EXPECT_EQ(words[w], w == 1 ? 0xF00U : 0U) << w;
}

TEST(Quads, a_small_quad_by_hand) {
  const std::vector<std::uint32_t> codes = {1,  2,  3,  4,   // row 0, lanes 0 to 3
                                            5,  6,  7,  8,   // row 1
                                            9,  10, 11, 12,  // row 2
                                            13, 14, 15, 0};  // row 3
  EXPECT_EQ(packed(4, 4, codes), (std::vector<std::uint32_t>{0xFDB97531U, 0x0ECA8642U}));
  EXPECT_EQ(packed(8, 4, codes), (std::vector<std::uint32_t>{0x0D090501U, 0x0E0A0602U, 0x0F0B0703U, 0x000C0804U}));
  EXPECT_EQ(packed(16, 4, codes),
            (std::vector<std::uint32_t>{0x00050001U, 0x00060002U, 0x00070003U, 0x00080004U,  // rows 1 0
                                        0x000D0009U, 0x000E000AU, 0x000F000BU, 0x0000000CU}));
  EXPECT_EQ(packed(32, 4, codes), codes);
}

}  // namespace
