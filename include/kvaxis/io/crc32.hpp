// CRC-32 of IEEE 802.3 (as in Ethernet, gzip and PNG), eight bytes at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "bytes.hpp"

KVAXIS_BEGIN_NAMESPACE

namespace detail {

// tables[k][b]: the remainder of the byte b followed by k zero bytes.
using crc32_tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr crc32_tables make_crc32_tables() noexcept {
  crc32_tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t before = tables[k - 1][b];
      tables[k][b] = before >> 8 ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

inline constexpr crc32_tables crc32_table = make_crc32_tables();

}  // namespace detail

// The checksum of bytes that follow others whose checksum is `before`.
[[nodiscard]] inline std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept {
  const detail::crc32_tables& t = detail::crc32_table;
  const auto* p = static_cast<const std::byte*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    const std::uint32_t low = detail::load_little<std::uint32_t>(p) ^ crc;
    const auto high = detail::load_little<std::uint32_t>(p + 4);
    crc = t[7][low & 0xFFU] ^ t[6][low >> 8 & 0xFFU] ^ t[5][low >> 16 & 0xFFU] ^ t[4][low >> 24] ^ t[3][high & 0xFFU] ^
          t[2][high >> 8 & 0xFFU] ^ t[1][high >> 16 & 0xFFU] ^ t[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++p) crc = crc >> 8 ^ t[0][(crc ^ static_cast<std::uint32_t>(*p)) & 0xFFU];
  return ~crc;
}

KVAXIS_END_NAMESPACE
