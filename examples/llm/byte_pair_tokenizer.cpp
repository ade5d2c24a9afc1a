#include "byte_pair_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "unicode.hpp"

namespace llm {
namespace {

// The byte-level alphabet: a printable byte stands for itself (as a Latin-1 character), the other 68 for U+0100 and on.
std::array<std::string, 256> byte_alphabet() {
  std::array<std::string, 256> out;
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const std::uint32_t code = printable ? byte : next++;
    if (code < 0x80) {
      out[byte] = {static_cast<char>(code)};
    } else {
      out[byte] = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
  }
  return out;
}

const std::array<std::string, 256>& alphabet() {
  static const std::array<std::string, 256> all = byte_alphabet();
  return all;
}

// The length of the word at the front of `text` by the pattern of GPT-2, of which the first alternative that matches
// counts:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t first_word(std::string_view text) {
  for (const std::string_view suffix : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.substr(0, suffix.size()) == suffix) return suffix.size();
  }
  // The end of the run of characters of the class of the one at `from`, and where that run's last character begins.
  const auto run = [&](std::size_t from, std::size_t& last) {
    const character_class kind = classify(first_character(text.substr(from)).code);
    for (std::size_t at = from; at < text.size();) {
      const character c = first_character(text.substr(at));
      if (classify(c.code) != kind) return at;
      last = at;
      at += c.bytes;
    }
    return text.size();
  };
  std::size_t last = 0;
  const std::size_t start = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  if (classify(first_character(text.substr(start)).code) != character_class::space) return run(start, last);
  // White space before a word leaves its last character to the word, unless there is no more than that.
  const std::size_t end = run(0, last);
  return end == text.size() || last == 0 ? end : last;
}

}  // namespace

pre_tokenizer find_pre_tokenizer(std::string_view name) {
  if (name == "smollm") return pre_tokenizer::smollm;
  if (name == "gpt-2") return pre_tokenizer::gpt2;
  throw gguf_error("the pre-tokenizer is neither 'smollm' nor 'gpt-2'");
}

std::vector<std::string_view> split_words(std::string_view text, pre_tokenizer kind) {
  std::vector<std::string_view> out;
  std::size_t begin = 0;
  const auto cut_up_to = [&](std::size_t end) {  // the pattern does not look beyond `end`
    while (begin < end) {
      const std::size_t length = first_word(text.substr(begin, end - begin));
      out.push_back(text.substr(begin, length));
      begin += length;
    }
  };
  for (std::size_t at = 0; kind == pre_tokenizer::smollm && at < text.size();) {
    const character c = first_character(text.substr(at));
    if (classify(c.code) == character_class::number) {
      cut_up_to(at);
      out.push_back(text.substr(at, c.bytes));
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  cut_up_to(text.size());
  return out;
}

std::uint64_t byte_pair_tokenizer::pair_key(int left, int right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

byte_pair_tokenizer::byte_pair_tokenizer(const std::vector<std::string_view>& tokens,
                                         const std::vector<std::string_view>& merges, pre_tokenizer kind,
                                         special_tokens special)
    : tokenizer(tokens, special), kind_(kind) {
  for (const std::string& letter : alphabet()) byte_tokens_.push_back(find(letter));
  for (const std::string_view pair : merges) {
    const std::size_t gap = pair.find(' ');
    const int left = find(pair.substr(0, gap));
    const int right = gap == std::string_view::npos ? -1 : find(pair.substr(gap + 1));
    const int result = right < 0 ? -1 : find(std::string(pair.substr(0, gap)) + std::string(pair.substr(gap + 1)));
    if (left < 0 || result < 0) throw gguf_error("merge " + std::to_string(merges_.size()) + " is not of known tokens");
    merges_.emplace(pair_key(left, right), merge{static_cast<int>(merges_.size()), result});
  }
}

std::vector<int> byte_pair_tokenizer::encode(std::string_view text) const {
  std::vector<int> out;
  for (const std::string_view word : split_words(text, kind_)) encode_word(word, out);
  return out;
}

void byte_pair_tokenizer::encode_word(std::string_view word, std::vector<int>& out) const {
  std::vector<int> symbols;
  for (const char byte : word) symbols.push_back(byte_tokens_[static_cast<std::uint8_t>(byte)]);
  for (;;) {  // the first pair of the lowest rank is merged until no pair can be
    std::size_t best = 0;
    merge chosen{std::numeric_limits<int>::max(), -1};
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges_.find(pair_key(symbols[i], symbols[i + 1]));
      if (found != merges_.end() && found->second.rank < chosen.rank) {
        chosen = found->second;
        best = i;
      }
    }
    if (chosen.result < 0) break;
    symbols[best] = chosen.result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  for (const int symbol : symbols) out.push_back(known(symbol));
}

std::string byte_pair_tokenizer::decode(int token) const {
  static const std::unordered_map<std::string_view, char> bytes = [] {
    std::unordered_map<std::string_view, char> out;
    for (std::size_t byte = 0; byte < 256; ++byte) out.emplace(alphabet()[byte], static_cast<char>(byte));
    return out;
  }();
  std::string_view rest = spelling(token);
  std::string out;
  while (!rest.empty()) {
    const std::string_view letter = rest.substr(0, first_character(rest).bytes);
    const auto found = bytes.find(letter);
    if (found != bytes.end()) {
      out += found->second;
    } else {
      out += letter;  // not of the alphabet: a token that was written as it is
    }
    rest.remove_prefix(letter.size());
  }
  return out;
}

}  // namespace llm
