#include "sentence_piece_tokenizer.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <queue>

#include "unicode.hpp"

namespace llm {
namespace {

constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (;;) {
    const std::size_t at = text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

// The byte of a token such as "<0x0A>".
std::uint8_t byte_of(std::string_view spelling) {
  std::uint8_t out = 0;
  if (spelling.size() == 6 && spelling.substr(0, 3) == "<0x" && spelling[5] == '>') {
    const char* const end = spelling.data() + 5;
    const auto [stop, error] = std::from_chars(spelling.data() + 3, end, out, 16);
    if (error == std::errc() && stop == end) return out;
  }
  throw gguf_error("a token of a byte is not spelled like '<0x0A>'");
}

std::size_t first_byte(std::string_view text) { return static_cast<std::uint8_t>(text[0]); }

constexpr std::size_t none = std::string_view::npos;

// Adjacent parts of a piece, linked in their order. The text is empty once it belongs to the symbol before it.
struct symbol {
  std::string_view text;
  std::size_t previous, next;
};

// Two adjacent symbols that form a token, `bytes` long in all. It is out of date once their lengths are others.
struct merge {
  float score;
  std::size_t left, right, bytes;

  bool operator<(const merge& other) const {  // the highest score first, of equal ones the leftmost
    return score != other.score ? score < other.score : left > other.left;
  }
};

}  // namespace

sentence_piece_tokenizer::sentence_piece_tokenizer(const std::vector<std::string_view>& tokens,
                                                   std::vector<float> scores, const std::vector<std::int32_t>& kinds,
                                                   bool space_prefix, special_tokens special)
    : tokenizer(tokens, special), scores_(std::move(scores)), space_prefix_(space_prefix) {
  if (scores_.size() != tokens.size() || kinds.size() != tokens.size()) {
    throw gguf_error("the vocabulary does not have one score and one type for each token");
  }
  if (std::any_of(scores_.begin(), scores_.end(), [](float score) { return std::isnan(score); })) {
    throw gguf_error("the score of a token is not a number");
  }
  byte_tokens_.fill(-1);
  for (int id = 0; id < size(); ++id) {
    kinds_.push_back(static_cast<token_kind>(kinds[static_cast<std::size_t>(id)]));
    if (kind(id) == token_kind::byte) byte_tokens_[byte_of(spelling(id))] = id;
    if (kind(id) == token_kind::user_defined && !spelling(id).empty()) {
      const std::string marked = replaced(spelling(id), " ", space_mark);
      user_tokens_[first_byte(marked)].push_back({marked, id});
    }
  }
  for (std::vector<user_token>& same_byte : user_tokens_) {
    std::sort(same_byte.begin(), same_byte.end(),
              [](const user_token& a, const user_token& b) { return a.spelling.size() > b.spelling.size(); });
  }
}

int sentence_piece_tokenizer::find_normal(std::string_view spelling) const {
  const int id = find(spelling);
  return id >= 0 && kind(id) == token_kind::normal ? id : -1;
}

const sentence_piece_tokenizer::user_token* sentence_piece_tokenizer::first_user_token(std::string_view text) const {
  for (const user_token& token : user_tokens_[first_byte(text)]) {
    if (text.substr(0, token.spelling.size()) == token.spelling) return &token;
  }
  return nullptr;
}

std::vector<int> sentence_piece_tokenizer::encode(std::string_view text) const {
  std::vector<int> out;
  if (text.empty()) return out;
  const std::string marked = (space_prefix_ ? std::string(space_mark) : "") + replaced(text, " ", space_mark);
  const std::string_view all = marked;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < all.size();) {
    const std::string_view rest = all.substr(at);
    const user_token* const token = first_user_token(rest);
    if (token == nullptr) {
      at += first_character(rest).bytes;
      continue;
    }
    encode_piece(all.substr(begin, at - begin), out);
    out.push_back(token->id);
    at += token->spelling.size();
    begin = at;
  }
  encode_piece(all.substr(begin), out);
  return out;
}

void sentence_piece_tokenizer::encode_piece(std::string_view text, std::vector<int>& out) const {
  std::vector<symbol> symbols;
  while (!text.empty()) {
    const std::size_t i = symbols.size(), bytes = first_character(text).bytes;
    symbols.push_back({text.substr(0, bytes), i == 0 ? none : i - 1, bytes == text.size() ? none : i + 1});
    text.remove_prefix(bytes);
  }
  std::priority_queue<merge> merges;
  const auto propose = [&](std::size_t left, std::size_t right) {
    if (left == none || right == none) return;
    const std::string_view first = symbols[left].text;
    const std::string_view both(first.data(), first.size() + symbols[right].text.size());
    const int token = find_normal(both);
    if (token >= 0) merges.push({scores_[static_cast<std::size_t>(token)], left, right, both.size()});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) propose(i, symbols[i].next);
  while (!merges.empty()) {
    const merge m = merges.top();
    merges.pop();
    symbol &left = symbols[m.left], &right = symbols[m.right];
    if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != m.bytes) continue;
    left.text = {left.text.data(), m.bytes};
    right.text = {};
    left.next = right.next;
    if (left.next != none) symbols[left.next].previous = m.left;
    propose(left.previous, m.left);
    propose(m.left, left.next);
  }
  for (const symbol& s : symbols) {
    if (s.text.empty()) continue;
    const int token = find_normal(s.text);
    if (token >= 0) {
      out.push_back(token);
    } else {
      for (const char byte : s.text) out.push_back(known(byte_tokens_[static_cast<std::uint8_t>(byte)]));
    }
  }
}

std::string sentence_piece_tokenizer::decode(int token) const {
  if (kind(token) == token_kind::byte) return {static_cast<char>(byte_of(spelling(token)))};
  return replaced(spelling(token), space_mark, " ");
}

}  // namespace llm
