// The byte-level BPE of the llm example, on a vocabulary of the 256 bytes and a few merges; and how a file chooses its
// tokenizer.
#include <gtest/gtest.h>

#include <llm/byte_pair_tokenizer.hpp>
#include <llm/unicode.hpp>

#include "gguf_parts.hpp"

namespace {

using llm::pre_tokenizer;
using words = std::vector<std::string_view>;

std::string utf8(int code) {  // below U+0800
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// The alphabet in which the vocabulary spells bytes: tokens 0 .. 255 stand for the printable ones, then for the others.
std::vector<std::string> alphabet() {
  std::vector<std::string> out;
  for (int code = 0x21; code <= 0xFF; ++code) {
    if (code <= 0x7E || (code >= 0xA1 && code != 0xAD)) out.push_back(utf8(code));
  }
  for (int code = 0x100; out.size() < 256; ++code) out.push_back(utf8(code));
  return out;
}

const std::string space = utf8(0x120);  // how the vocabulary spells a space

std::vector<std::string> spellings() {
  std::vector<std::string> out = alphabet();
  for (const std::string& merged : {std::string("he"), std::string("ll"), std::string("hell"), std::string("hello"),
                                    space + "h", std::string("lo"), std::string("<|end|>")}) {
    out.push_back(merged);
  }
  return out;
}

words views(const std::vector<std::string>& of) { return {of.begin(), of.end()}; }

const std::vector<std::string> tokens = spellings();
const std::vector<std::string> merges = {"h e", "l l", "he ll", "hell o", space + " h", "l o"};

struct tiny : testing::Test {
  llm::byte_pair_tokenizer t{views(tokens), views(merges), pre_tokenizer::smollm, {}};

  std::vector<std::string> pieces(const std::string& text) const {
    std::vector<std::string> out;
    for (const int id : t.encode(text)) out.push_back(t.decode(id));
    return out;
  }
};

using pieces_of = std::vector<std::string>;

TEST_F(tiny, merges_by_rank) {
  EXPECT_EQ(pieces("hello"), pieces_of({"hello"}));
  EXPECT_EQ(pieces("helo"), pieces_of({"he", "lo"}));
  EXPECT_EQ(pieces("lllo"), pieces_of({"ll", "lo"}));      // of two equal pairs the first is merged
  EXPECT_EQ(pieces(" hello"), pieces_of({" ", "hello"}));  // "he" comes before " h"
  EXPECT_EQ(pieces(" hi"), pieces_of({" h", "i"}));
  EXPECT_EQ(pieces(""), pieces_of());
}

TEST_F(tiny, every_byte_comes_back) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  all += " hello, 1818 \xC3\xA9t\xC3\xA9 \xF0\x9F\x98\x80\n\n  x\xE2\x82";
  std::string back;
  for (const int id : t.encode(all)) back += t.decode(id);
  EXPECT_EQ(back, all);
}

TEST_F(tiny, control_tokens_are_not_found_in_text) {
  const int control = t.find("<|end|>");
  ASSERT_EQ(control, 262);
  EXPECT_EQ(t.decode(control), "<|end|>");
  for (const int id : t.encode("<|end|>")) EXPECT_NE(id, control);
  EXPECT_EQ(t.find("<|start|>"), -1);
}

TEST(Tokenizer, a_byte_without_a_token) {
  std::vector<std::string> fewer = alphabet();
  fewer[0] = "<unknown>";  // was "!"
  const llm::byte_pair_tokenizer strict(views(fewer), {}, pre_tokenizer::gpt2, {}),
      lenient(views(fewer), {}, pre_tokenizer::gpt2, {0, -1});
  EXPECT_THROW((void)strict.encode("a!"), llm::gguf_error);
  EXPECT_EQ(lenient.encode("a!").back(), 0);
}

TEST(Tokenizer, bad_merges_are_refused) {
  for (const std::string bad : {"", "he", "h", "h e l", "zz y", "h zz", "x y", " "}) {
    EXPECT_THROW(llm::byte_pair_tokenizer(views(tokens), {bad}, pre_tokenizer::smollm, {}), llm::gguf_error) << bad;
  }
}

// A file's vocabulary of three tokens, for either tokenizer.
gguf_parts::parts vocabulary(const std::string& model) {
  gguf_parts::parts p;
  p.add_text("tokenizer.ggml.model", model);
  p.add_text("tokenizer.ggml.pre", "gpt-2");
  p.add_texts("tokenizer.ggml.tokens", {"<bos>", "a", "aa"});
  p.add_texts("tokenizer.ggml.merges", {"a a"});
  p.add_numbers("tokenizer.ggml.scores", gguf_parts::type_f32, std::vector<float>{0, -1, -2});
  p.add_numbers("tokenizer.ggml.token_type", gguf_parts::type_i32, std::vector<std::int32_t>{3, 1, 1});
  p.add_number("tokenizer.ggml.bos_token_id", gguf_parts::type_u32, std::uint32_t{0});
  return p;
}

std::unique_ptr<const llm::tokenizer> read(const gguf_parts::parts& p) {
  const gguf_parts::bytes file = p.file();
  return llm::read_tokenizer(llm::gguf_file(file.data(), file.size()));
}

TEST(Tokenizer, a_file_chooses_its_tokenizer) {
  for (const std::string model : {"gpt2", "llama"}) {
    gguf_parts::parts p = vocabulary(model);
    p.add_number("tokenizer.ggml.add_space_prefix", gguf_parts::type_u8, std::uint8_t{0});
    EXPECT_EQ(read(p)->encode("aaa"), (std::vector<int>{2, 1})) << model;
  }
  EXPECT_THROW(read(vocabulary("bert")), llm::gguf_error);
}

TEST(Tokenizer, a_file_says_what_a_text_begins_with) {
  EXPECT_EQ(read(vocabulary("gpt2"))->beginning(), std::vector<int>{});
  EXPECT_EQ(read(vocabulary("llama"))->beginning(), std::vector<int>{0});
  for (const std::string model : {"gpt2", "llama"}) {
    for (const bool wanted : {false, true}) {
      gguf_parts::parts p = vocabulary(model);
      p.add_number("tokenizer.ggml.add_bos_token", gguf_parts::type_bool, wanted);
      EXPECT_EQ(read(p)->beginning().size(), wanted ? 1U : 0U) << model;
    }
  }
  gguf_parts::parts p = vocabulary("llama");
  p.add_number("tokenizer.ggml.unknown_token_id", gguf_parts::type_u32, std::uint32_t{3});
  EXPECT_THROW(read(p), llm::gguf_error);  // there are three tokens, 0 to 2
}

TEST(Tokenizer, words_of_gpt2) {
  const auto split = [](std::string_view text) { return llm::split_words(text, pre_tokenizer::gpt2); };
  EXPECT_EQ(split("I'm here, aren't we'll?"), words({"I", "'m", " here", ",", " aren", "'t", " we", "'ll", "?"}));
  EXPECT_EQ(split("'S 's"), words({"'", "S", " '", "s"}));
  EXPECT_EQ(split("in 1818; x2"), words({"in", " 1818", ";", " x", "2"}));
  EXPECT_EQ(split("a  b\n\n c \n"), words({"a", " ", " b", "\n\n", " c", " \n"}));
  EXPECT_EQ(split("a\n\tb"), words({"a", "\n", "\t", "b"}));
  EXPECT_EQ(split(" "), words({" "}));
  EXPECT_EQ(split("   x"), words({"  ", " x"}));
  EXPECT_EQ(split(" ...\"--"), words({" ...\"--"}));
  EXPECT_EQ(split(""), words());
}

TEST(Tokenizer, words_of_smollm_split_off_every_digit) {
  const auto split = [](std::string_view text) { return llm::split_words(text, pre_tokenizer::smollm); };
  EXPECT_EQ(split("in 1818; x2"), words({"in", " ", "1", "8", "1", "8", ";", " x", "2"}));
  EXPECT_EQ(split("a  7"), words({"a", "  ", "7"}));  // the white space is the end of its piece
  EXPECT_EQ(split("12"), words({"1", "2"}));
  EXPECT_EQ(split("\xC2\xBD cup"), words({"\xC2\xBD", " cup"}));  // one half
}

TEST(Tokenizer, words_beyond_ascii) {
  const auto split = [](std::string_view text) { return llm::split_words(text, pre_tokenizer::gpt2); };
  EXPECT_EQ(split("d\xC3\xA9j\xC3\xA0 vu\xE2\x80\x94oui"), words({"d\xC3\xA9j\xC3\xA0", " vu", "\xE2\x80\x94", "oui"}));
  EXPECT_EQ(split("\xD0\xB4\xD0\xB0, \xE6\x97\xA5\xE6\x9C\xAC\xE3\x80\x82"),
            words({"\xD0\xB4\xD0\xB0", ",", " \xE6\x97\xA5\xE6\x9C\xAC", "\xE3\x80\x82"}));
  EXPECT_EQ(split("a\xC2\xA0\xC2\xA0z"), words({"a", "\xC2\xA0", "\xC2\xA0", "z"}));  // no-break spaces
  EXPECT_EQ(split("x\xFF\xC3z"), words({"x", "\xFF\xC3", "z"}));                      // not UTF-8: symbols
}

TEST(Unicode, decoding_refuses_what_is_not_utf8) {
  const auto code = [](std::string_view text) { return llm::first_character(text).code; };
  EXPECT_EQ(code("a"), std::uint32_t{'a'});
  EXPECT_EQ(code("\xC3\xA9"), 0xE9U);
  EXPECT_EQ(code("\xE2\x82\xAC"), 0x20ACU);
  EXPECT_EQ(code("\xF0\x9F\x98\x80"), 0x1F600U);
  EXPECT_EQ(llm::first_character("\xF0\x9F\x98\x80").bytes, 4U);
  for (const std::string_view bad : {"\x80", "\xC3", "\xC3z", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                                     "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xF0\x9F\x98"}) {
    EXPECT_EQ(code(bad), 0xFFFDU);
    EXPECT_EQ(llm::first_character(bad).bytes, 1U);
  }
}

TEST(Unicode, complete_utf8) {
  EXPECT_EQ(llm::complete_utf8(""), 0U);
  EXPECT_EQ(llm::complete_utf8("ab"), 2U);
  EXPECT_EQ(llm::complete_utf8("a\xC3"), 1U);
  EXPECT_EQ(llm::complete_utf8("a\xC3\xA9"), 3U);
  EXPECT_EQ(llm::complete_utf8("a\xE2\x82"), 1U);
  EXPECT_EQ(llm::complete_utf8("a\xE2\x82\xAC"), 4U);
  EXPECT_EQ(llm::complete_utf8("a\xF0\x9F\x98"), 1U);
  EXPECT_EQ(llm::complete_utf8("\xF0\x9F\x98\x80"), 4U);
  EXPECT_EQ(llm::complete_utf8("a\x80\x80\x80\x80"), 5U);  // no sequence begins there: nothing to wait for
}

}  // namespace
