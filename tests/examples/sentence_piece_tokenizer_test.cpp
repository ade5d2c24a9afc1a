// The SentencePiece tokenizer of the llm example, on a vocabulary of the 256 bytes and a few pieces.
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <llm/sentence_piece_tokenizer.hpp>

namespace {

using llm::token_kind;
using ids = std::vector<int>;
using pieces_of = std::vector<std::string>;

const std::string space = "\xE2\x96\x81";

struct vocabulary {
  std::vector<std::string> spellings;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;

  void add(const std::string& spelling, float score, token_kind kind = token_kind::normal) {
    spellings.push_back(spelling);
    scores.push_back(score);
    kinds.push_back(static_cast<std::int32_t>(kind));
  }
  [[nodiscard]] llm::sentence_piece_tokenizer make(bool space_prefix, llm::special_tokens special = {}) const {
    return {{spellings.begin(), spellings.end()}, scores, kinds, space_prefix, special};
  }
};

// Bytes are tokens 0 .. 255, <unk> and <bos> follow.
vocabulary tiny() {
  vocabulary v;
  for (unsigned byte = 0; byte < 256; ++byte) {
    char spelling[8];
    std::snprintf(spelling, sizeof(spelling), "<0x%02X>", byte);
    v.add(spelling, 0, token_kind::byte);
  }
  v.add("<unk>", 0, token_kind::unknown);
  v.add("<bos>", 0, token_kind::control);
  for (const char* const letter : {"h", "e", "l", "o", "b", "s", "<", ">", "\xC3\xA9"}) v.add(letter, -100);
  v.add(space, -100);
  v.add("ll", -1);
  v.add("he", -2);
  v.add("lo", -3);
  v.add("hell", -4);
  v.add("hello", -5);
  v.add(space + "he", -6);
  v.add("  ", -1000, token_kind::user_defined);  // as files spell two spaces
  v.add("   ", -1000, token_kind::user_defined);
  v.add("<b>", -1000, token_kind::user_defined);
  v.add("eo", 0, token_kind::unused);
  return v;
}

pieces_of pieces(const llm::tokenizer& t, std::string_view text) {
  pieces_of out;
  for (const int id : t.encode(text)) out.push_back(t.decode(id));
  return out;
}

TEST(SentencePiece, merges_the_highest_score_first) {
  const llm::sentence_piece_tokenizer t = tiny().make(false);
  EXPECT_EQ(pieces(t, "hello"), pieces_of({"hello"}));  // "ll" before "lo"
  EXPECT_EQ(pieces(t, "helo"), pieces_of({"he", "lo"}));
  EXPECT_EQ(pieces(t, "llloh"), pieces_of({"ll", "lo", "h"}));  // of equal scores the leftmost
  EXPECT_EQ(pieces(t, "he he"), pieces_of({"he", " he"}));
  EXPECT_EQ(pieces(t, "heo"), pieces_of({"he", "o"}));
  EXPECT_EQ(pieces(t, "beo"), pieces_of({"b", "e", "o"}));  // "eo" is not used
  EXPECT_EQ(pieces(t, ""), pieces_of());
}

TEST(SentencePiece, a_space_may_be_put_before_a_text) {
  const llm::sentence_piece_tokenizer t = tiny().make(true);
  EXPECT_EQ(pieces(t, "hehe"), pieces_of({" he", "he"}));
  EXPECT_EQ(pieces(t, " he"), pieces_of({"  ", "he"}));
  EXPECT_EQ(pieces(t, ""), pieces_of());
}

TEST(SentencePiece, characters_without_a_token_become_bytes) {
  const llm::sentence_piece_tokenizer t = tiny().make(false);
  EXPECT_EQ(t.encode("\n"), ids({10}));
  EXPECT_EQ(t.encode("\xE2\x82\xAC"), ids({0xE2, 0x82, 0xAC}));
  EXPECT_EQ(t.encode("\xC3\xA9").size(), 1U);
  EXPECT_EQ(t.encode("\xC3"), ids({0xC3}));
}

TEST(SentencePiece, user_defined_tokens_come_first_and_the_longest_of_them) {
  const llm::sentence_piece_tokenizer t = tiny().make(false);
  EXPECT_EQ(pieces(t, "he   he"), pieces_of({"he", "   ", "he"}));
  EXPECT_EQ(pieces(t, "he    he"), pieces_of({"he", "   ", " he"}));
  EXPECT_EQ(pieces(t, "he     he"), pieces_of({"he", "   ", "  ", "he"}));
  EXPECT_EQ(pieces(t, "<b>he<b"), pieces_of({"<b>", "he", "<", "b"}));
}

TEST(SentencePiece, control_tokens_are_not_found_in_text) {
  const llm::sentence_piece_tokenizer t = tiny().make(false, {256, 257});
  EXPECT_EQ(t.find("<bos>"), 257);
  EXPECT_EQ(t.decode(257), "<bos>");
  EXPECT_EQ(t.beginning(), ids({257}));
  EXPECT_EQ(pieces(t, "<bos>"), pieces_of({"<", "b", "o", "s", ">"}));
  EXPECT_EQ(pieces(t, "<0x0A>"), pieces_of({"<", "0", "x", "0", "A", ">"}));
}

TEST(SentencePiece, every_byte_comes_back) {
  const llm::sentence_piece_tokenizer t = tiny().make(false);
  std::string all = "hello  hello, <b> \xF0\x9F\x98\x80\n\n   x\xE2\x82 ", back;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const int id : t.encode(all)) back += t.decode(id);
  EXPECT_EQ(back, all);
}

// The work must not grow with the square of the length: this text is one piece.
TEST(SentencePiece, a_long_piece) {
  const llm::sentence_piece_tokenizer t = tiny().make(false);
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "hello";
  EXPECT_EQ(t.encode(text), ids(200000, t.find("hello")));
}

TEST(SentencePiece, a_byte_without_a_token) {
  vocabulary v;
  v.add("<unk>", 0, token_kind::unknown);
  v.add("a", -1);
  EXPECT_EQ(v.make(false, {0, -1}).encode("ab"), ids({1, 0}));
  EXPECT_THROW((void)v.make(false).encode("ab"), llm::gguf_error);
}

TEST(SentencePiece, bad_vocabularies_are_refused) {
  vocabulary v = tiny();
  v.scores.pop_back();
  EXPECT_THROW((void)v.make(false), llm::gguf_error);
  v = tiny();
  v.kinds.pop_back();
  EXPECT_THROW((void)v.make(false), llm::gguf_error);
  v = tiny();
  v.scores[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW((void)v.make(false), llm::gguf_error);
  for (const char* const bad : {"", "0x0A", "<0x0G>", "<0x0A", "<0x0A> ", "<0x+1>", "<0xA>"}) {
    v = tiny();
    v.add(bad, 0, token_kind::byte);
    EXPECT_THROW((void)v.make(false), llm::gguf_error) << bad;
  }
}

}  // namespace
