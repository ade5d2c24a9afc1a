// UTF-8 decoding and the three classes of characters that the pattern of GPT-2 asks for.
#pragma once

#include <cstdint>
#include <string_view>

namespace llm {

struct character {
  std::uint32_t code;  // 0xFFFD for a byte that is not part of a valid sequence
  std::size_t bytes;
};

// The first character of `text`, which is not empty.
character first_character(std::string_view text);

enum class character_class { letter, number, space, other };

// Exact for ASCII, Latin-1 and spaces. Beyond, whole blocks of punctuation, symbols, marks and digits are listed and
// all else counts as a letter, the right answer for nearly every character of the world's running text. A wrong answer
// changes where a word is cut, never the text that the tokens stand for.
character_class classify(std::uint32_t code);

}  // namespace llm
