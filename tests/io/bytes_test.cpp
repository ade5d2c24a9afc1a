// The checksum, and numbers in files.
#include <gtest/gtest.h>

#include <kvaxis/io/bytes.hpp>
#include <kvaxis/io/crc32.hpp>
#include <string>
#include <vector>

#include "guard_page.hpp"
#include "numbers.hpp"

namespace {

std::vector<std::byte> random_bytes(std::size_t n) {
  test::numbers random(1);
  std::vector<std::byte> out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(random.below(256));
  return out;
}

// Bit by bit, as the polynomial says.
std::uint32_t slow_crc32(const std::byte* data, std::size_t n) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (std::size_t i = 0; i < n; ++i) {
    crc ^= static_cast<std::uint32_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? crc >> 1 ^ 0xEDB88320U : crc >> 1;
  }
  return ~crc;
}

TEST(Crc32, known_values) {
  const auto of = [](const std::string& text) { return kvaxis::crc32(text.data(), text.size()); };
  EXPECT_EQ(of(""), 0x00000000U);
  EXPECT_EQ(of("a"), 0xE8B7BE43U);
  EXPECT_EQ(of("123456789"), 0xCBF43926U);
  EXPECT_EQ(of("The quick brown fox jumps over the lazy dog"), 0x414FA339U);
  EXPECT_EQ(of(std::string(32, '\0')), 0x190A55ADU);
}

TEST(Crc32, every_length_and_alignment) {
  const std::vector<std::byte> data = random_bytes(200);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t n = 0; n + begin <= data.size(); ++n) {
      ASSERT_EQ(kvaxis::crc32(data.data() + begin, n), slow_crc32(data.data() + begin, n)) << begin << " " << n;
    }
  }
}

TEST(Crc32, in_parts) {
  const std::vector<std::byte> data = random_bytes(100);
  const std::uint32_t whole = kvaxis::crc32(data.data(), data.size());
  for (std::size_t cut = 0; cut <= data.size(); ++cut) {
    const std::uint32_t first = kvaxis::crc32(data.data(), cut);
    EXPECT_EQ(kvaxis::crc32(data.data() + cut, data.size() - cut, first), whole) << cut;
  }
}

TEST(Crc32, B51_reads_nothing_behind_its_bytes) {
  const std::vector<std::byte> data = random_bytes(40);
  for (std::size_t n = 0; n <= data.size(); ++n) {
    const guard_buffer<std::byte> guarded(data.data(), n, guard::end);
    EXPECT_EQ(kvaxis::crc32(guarded.data(), n), slow_crc32(data.data(), n));
  }
}

TEST(Bytes, numbers_are_little_endian) {
  std::byte at[9] = {};
  kvaxis::detail::store_little(at + 1, std::uint64_t{0x0102030405060708U});
  EXPECT_EQ(static_cast<int>(at[1]), 8);
  EXPECT_EQ(static_cast<int>(at[8]), 1);
  EXPECT_EQ(kvaxis::detail::load_little<std::uint64_t>(at + 1), 0x0102030405060708U);
  EXPECT_EQ(kvaxis::detail::load_little<std::uint32_t>(at + 3), 0x03040506U);
  EXPECT_EQ(kvaxis::detail::load_little<std::uint16_t>(at + 7), 0x0102U);
  EXPECT_EQ(kvaxis::detail::load_little<std::uint8_t>(at + 8), 0x01U);
}

// A host of the other order would store the words like this; the same call takes them back.
TEST(Bytes, swapped_words) {
  const auto swapped = [](std::vector<int> numbers, std::size_t word) {
    std::vector<std::byte> data;
    for (const int n : numbers) data.push_back(static_cast<std::byte>(n));
    kvaxis::detail::swap_words(data.data(), data.size(), word);
    for (std::size_t i = 0; i < data.size(); ++i) numbers[i] = static_cast<int>(data[i]);
    return numbers;
  };
  EXPECT_EQ(swapped({1, 2, 3, 4, 5, 6, 7, 8}, 1), (std::vector{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(swapped({1, 2, 3, 4, 5, 6, 7, 8}, 2), (std::vector{2, 1, 4, 3, 6, 5, 8, 7}));
  EXPECT_EQ(swapped({1, 2, 3, 4, 5, 6, 7, 8}, 4), (std::vector{4, 3, 2, 1, 8, 7, 6, 5}));
  EXPECT_EQ(swapped({1, 2, 3, 4, 5, 6, 7, 8}, 8), (std::vector{8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(swapped(swapped({1, 2, 3, 4, 5, 6}, 2), 2), (std::vector{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(swapped({}, 4), std::vector<int>{});
}

TEST(Bytes, a_reader_stops_at_the_end) {
  const std::vector<std::byte> data = random_bytes(6);
  const guard_buffer<std::byte> guarded(data.data(), data.size(), guard::end);
  kvaxis::detail::byte_reader from(guarded.data(), guarded.size());
  EXPECT_EQ(from.number<std::uint32_t>(), kvaxis::detail::load_little<std::uint32_t>(data.data()));
  EXPECT_EQ(from.left(), 2U);
  EXPECT_FALSE(from.failed());
  EXPECT_EQ(from.number<std::uint32_t>(), 0U);
  EXPECT_TRUE(from.failed());
  EXPECT_EQ(from.take(UINT64_MAX), nullptr);
  EXPECT_EQ(from.left(), 2U);
}

}  // namespace
