// Numbers in files: little-endian, at any address, on any host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "../config.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

inline constexpr bool big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

template <class T>
void store_little(std::byte* to, T x) noexcept {
  static_assert(std::is_unsigned_v<T>);
  for (std::size_t i = 0; i < sizeof x; ++i) to[i] = static_cast<std::byte>(x >> (8 * i));
}

template <class T>
[[nodiscard]] T load_little(const std::byte* from) noexcept {
  static_assert(std::is_unsigned_v<T>);
  T x = 0;
  for (std::size_t i = 0; i < sizeof x; ++i) x = static_cast<T>(x | static_cast<T>(from[i]) << (8 * i));
  return x;
}

template <class T>
[[nodiscard]] T load_native(const std::byte* from) noexcept {
  T x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

// Reverses the bytes of every word: what takes numbers of a big-endian host to the order of a file, and back.
inline void swap_words(std::byte* data, std::size_t bytes, std::size_t word) noexcept {
  for (std::size_t at = 0; at < bytes; at += word) {
    for (std::size_t i = 0; i < word / 2; ++i) std::swap(data[at + i], data[at + word - 1 - i]);
  }
}

// Takes numbers from bytes of which nobody knows whether they are enough; behind the end everything is 0.
class byte_reader {
 public:
  byte_reader(const void* data, std::size_t bytes) noexcept : at_(static_cast<const std::byte*>(data)), left_(bytes) {}

  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  [[nodiscard]] const std::byte* data() const noexcept { return at_; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

  // Null when so many bytes are not there.
  const std::byte* take(std::uint64_t bytes) noexcept {
    if (bytes > left_) {
      failed_ = true;
      return nullptr;
    }
    const std::byte* taken = at_;
    at_ += bytes;
    left_ -= static_cast<std::size_t>(bytes);
    return taken;
  }
  template <class T>
  T number() noexcept {
    const std::byte* from = take(sizeof(T));
    return from == nullptr ? T{0} : load_little<T>(from);
  }

 private:
  const std::byte* at_;
  std::size_t left_;
  bool failed_ = false;
};

}  // namespace detail
KVAXIS_END_NAMESPACE
