#include "tokenizer.hpp"

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

std::size_t complete_utf8(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<std::uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // the lead byte comes before it
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::uint64_t tokenizer::pair_key(int left, int right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

tokenizer::tokenizer(const std::vector<std::string_view>& tokens, const std::vector<std::string_view>& merges,
                     pre_tokenizer kind, int unknown)
    : tokens_(tokens.begin(), tokens.end()), kind_(kind), unknown_(unknown) {
  for (int id = 0; id < size(); ++id) ids_.emplace(tokens_[static_cast<std::size_t>(id)], id);
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

namespace {

pre_tokenizer kind_of(const gguf_file& file) {
  if (file.text("tokenizer.ggml.model") != "gpt2") throw gguf_error("the tokenizer is not a byte-level BPE ('gpt2')");
  const std::string_view kind = file.text("tokenizer.ggml.pre");
  if (kind == "smollm") return pre_tokenizer::smollm;
  if (kind == "gpt-2") return pre_tokenizer::gpt2;
  throw gguf_error("the pre-tokenizer is neither 'smollm' nor 'gpt-2'");
}

int unknown_of(const gguf_file& file, std::int64_t tokens) {
  const std::string key = "tokenizer.ggml.unknown_token_id";
  return file.has(key) ? static_cast<int>(file.integer(key, 0, tokens - 1)) : -1;
}

}  // namespace

tokenizer::tokenizer(const gguf_file& file)
    : tokenizer(file.texts("tokenizer.ggml.tokens"), file.texts("tokenizer.ggml.merges"), kind_of(file),
                unknown_of(file, static_cast<std::int64_t>(file.texts("tokenizer.ggml.tokens").size()))) {}

int tokenizer::find(std::string_view spelling) const {
  const auto found = ids_.find(spelling);
  return found == ids_.end() ? -1 : found->second;
}

std::vector<int> tokenizer::encode(std::string_view text) const {
  std::vector<int> out;
  for (const std::string_view word : split_words(text, kind_)) encode_word(word, out);
  return out;
}

void tokenizer::encode_word(std::string_view word, std::vector<int>& out) const {
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
  for (const int symbol : symbols) {
    if (symbol < 0 && unknown_ < 0) throw gguf_error("the vocabulary has no token for a byte of the text");
    out.push_back(symbol < 0 ? unknown_ : symbol);
  }
}

std::string tokenizer::decode(int token) const {
  static const std::unordered_map<std::string_view, char> bytes = [] {
    std::unordered_map<std::string_view, char> out;
    for (std::size_t byte = 0; byte < 256; ++byte) out.emplace(alphabet()[byte], static_cast<char>(byte));
    return out;
  }();
  std::string_view spelling = tokens_.at(static_cast<std::size_t>(token));
  std::string out;
  while (!spelling.empty()) {
    const std::string_view letter = spelling.substr(0, first_character(spelling).bytes);
    const auto found = bytes.find(letter);
    if (found != bytes.end()) {
      out += found->second;
    } else {
      out += letter;  // not of the alphabet: a token that was written as it is
    }
    spelling.remove_prefix(letter.size());
  }
  return out;
}

}  // namespace llm
