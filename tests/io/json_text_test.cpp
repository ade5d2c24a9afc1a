// JSON strings, compared character by character: escapes, UTF-8, and what is neither.
#include <gtest/gtest.h>

#include <kvaxis/io/json_text.hpp>
#include <string>
#include <string_view>

namespace {

using kvaxis::json_text;

// The whole string with its escapes resolved, or "malformed".
std::string resolved(std::string_view written) {
  std::string out;
  while (!written.empty()) {
    char utf8[4];
    const int n = json_text::take_character(written, utf8);
    if (n == 0) return "malformed";
    out.append(utf8, static_cast<std::size_t>(n));
  }
  return out;
}

TEST(JsonText, escapes_stand_for_their_characters) {
  EXPECT_EQ(resolved(R"(a\"b\\c\/d\be\ff\ng\rh\ti)"), "a\"b\\c/d\be\ff\ng\rh\ti");
  EXPECT_EQ(resolved(R"(\u0041\u00e9\u00E9\u20AC)"), "A\xC3\xA9\xC3\xA9\xE2\x82\xAC");
  EXPECT_EQ(resolved(R"(\ud83d\ude00)"), "\xF0\x9F\x98\x80");  // a pair of surrogates
  EXPECT_EQ(resolved(R"(\u0000)"), std::string(1, '\0'));
}

TEST(JsonText, utf8_of_every_length_passes) {
  // The first and the last of each length, and the neighbours of the surrogates.
  for (const char* text : {" ", "~", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(resolved(text), text);
  }
}

TEST(JsonText, what_is_no_character_is_refused) {
  for (const char* text : {"\x1F",
                           "\n",
                           "\"",
                           "\\",
                           "\\x",
                           "\\u",
                           "\\u12",
                           "\\u12g4",
                           "\\u+123",
                           "\\ud800",
                           "\\udc00",
                           "\\ud800\\u0041",
                           "\\ud800\\ud800",
                           "\\ud800x",
                           "\\ud83d\\ude0",
                           "\x80",
                           "\xBF",
                           "\xC0\x80",
                           "\xC1\xBF",
                           "\xC2",
                           "\xC2 ",
                           "\xE0\x9F\xBF",
                           "\xE2\x82",
                           "\xED\xA0\x80",
                           "\xED\xBF\xBF",
                           "\xF0\x8F\xBF\xBF",
                           "\xF4\x90\x80\x80",
                           "\xF8\x88\x80\x80\x80",
                           "\xFF"}) {
    EXPECT_EQ(resolved(text), "malformed") << testing::PrintToString(text);
  }
  EXPECT_EQ(resolved(std::string_view("\0", 1)), "malformed");
}

TEST(JsonText, comparisons_resolve_escapes) {
  const json_text name(R"(layers.\u0031\u0032.k)");
  EXPECT_TRUE(name == "layers.12.k");
  EXPECT_FALSE(name == "layers.12");
  EXPECT_FALSE(name == "layers.12.kv");
  EXPECT_FALSE(name == "");
  EXPECT_TRUE(json_text() == "");
  json_text rest = name;
  EXPECT_FALSE(rest.take("layers.13"));
  EXPECT_EQ(rest.written(), name.written());
  EXPECT_TRUE(rest.take("layers."));
  EXPECT_TRUE(rest.take("12"));
  EXPECT_TRUE(rest == ".k");
  // A prefix that ends within a character is none.
  json_text accented("\xC3\xA9");
  EXPECT_FALSE(accented.take("\xC3"));
  EXPECT_TRUE(accented.take("\xC3\xA9"));
}

}  // namespace
