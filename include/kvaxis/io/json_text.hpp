// Strings of a JSON document, compared without a copy of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../config.hpp"

KVAXIS_BEGIN_NAMESPACE

// A JSON string as it is written, without the quotes.
class json_text {
 public:
  constexpr json_text() noexcept = default;
  constexpr explicit json_text(std::string_view written) noexcept : written_(written) {}

  [[nodiscard]] constexpr std::string_view written() const noexcept { return written_; }

  // Takes `text` from the front, escapes resolved. False, and nothing taken, if the string does not begin with it.
  bool take(std::string_view text) noexcept {
    std::string_view rest = written_;
    while (!text.empty()) {
      char utf8[4];
      const auto n = static_cast<std::size_t>(take_character(rest, utf8));
      if (n == 0 || text.substr(0, n) != std::string_view(utf8, n)) return false;
      text.remove_prefix(n);
    }
    written_ = rest;
    return true;
  }
  [[nodiscard]] bool operator==(std::string_view text) const noexcept {
    json_text rest = *this;
    return rest.take(text) && rest.written_.empty();
  }

  // Takes one character, an escape or UTF-8, and gives it in UTF-8: its bytes, or 0 if it is not well-formed.
  static int take_character(std::string_view& from, char* utf8) noexcept;

 private:
  std::string_view written_;
};

inline int json_text::take_character(std::string_view& from, char* utf8) noexcept {
  // Behind the end there are zeros, which are no part of a character.
  const auto byte = [&](std::size_t i) { return i < from.size() ? static_cast<std::uint32_t>(from[i]) & 0xFFU : 0U; };
  const auto four_digits = [&](std::size_t first) {
    std::uint32_t value = 0;
    for (std::size_t i = first; i < first + 4; ++i) {
      const std::uint32_t lower = byte(i) | 0x20U;
      const bool is_letter = lower >= 'a' && lower <= 'f';
      if (!is_letter && (byte(i) < '0' || byte(i) > '9')) return UINT32_MAX;
      value = value << 4 | (is_letter ? lower - 'a' + 10 : byte(i) - '0');
    }
    return value;
  };
  std::uint32_t c = byte(0);
  std::size_t length = 1;
  if (c == '\\' && byte(1) == 'u') {
    c = four_digits(2);
    length = 6;
    if (c >= 0xD800 && c < 0xDC00 && byte(6) == '\\' && byte(7) == 'u') {
      const std::uint32_t low = four_digits(8);
      if (low < 0xDC00 || low > 0xDFFF) return 0;
      c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      length = 12;
    }
  } else if (c == '\\') {
    const std::size_t letter = std::string_view("\"\\/bfnrt").find(static_cast<char>(byte(1)));
    if (letter == std::string_view::npos) return 0;
    c = static_cast<std::uint32_t>("\"\\/\b\f\n\r\t"[letter]);
    length = 2;
  } else if (c >= 0xC0 && c < 0xF8) {
    length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    c &= 0x7FU >> length;
    for (std::size_t i = 1; i < length; ++i) {
      if ((byte(i) & 0xC0U) != 0x80U) return 0;
      c = c << 6 | (byte(i) & 0x3FU);
    }
    if (c < (length == 2 ? 0x80U : length == 3 ? 0x800U : 0x10000U)) return 0;  // longer than it need be
  } else if (c < 0x20 || c == '"' || c >= 0x80) {
    return 0;
  }
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
  from.remove_prefix(length);
  const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = n - 1; i > 0; --i, c >>= 6) utf8[i] = static_cast<char>(0x80U | (c & 0x3FU));
  utf8[0] = static_cast<char>(n == 1 ? c : (0xF00U >> n | c) & 0xFFU);
  return n;
}

KVAXIS_END_NAMESPACE
