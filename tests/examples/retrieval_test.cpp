// Texts for retrieval and what is measured on them, with a tiny model whose tokens are characters.
#include <gtest/gtest.h>

#include <common/arguments.hpp>
#include <eval/retrieval.hpp>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tiny_model.hpp"

namespace {

using eval::question;
using eval::retrieval_text;

class Retrieval : public ::testing::Test {
 protected:
  [[nodiscard]] std::string text_of(const std::vector<int>& tokens, int first, int count) const {
    std::string out;
    for (int i = first; i < first + count; ++i) out += tokenizer->decode(tokens[static_cast<std::size_t>(i)]);
    return out;
  }
  [[nodiscard]] retrieval_text text(int length, std::uint64_t seed) const {
    return eval::make_retrieval_text(*tokenizer, length, seed);
  }

  const gguf_parts::bytes file = tiny_model::file();
  const llm::gguf_file contents{file.data(), file.size()};
  const std::unique_ptr<const llm::tokenizer> tokenizer = llm::read_tokenizer(contents);
};

TEST_F(Retrieval, facts_and_then_some_of_them_again) {
  const retrieval_text made = text(1500, 1);
  const int size = static_cast<int>(made.tokens.size());
  EXPECT_LE(size, 1500);
  EXPECT_GT(size, 1500 - 50);
  const std::string whole = text_of(made.tokens, 0, size);
  EXPECT_EQ(whole.rfind("The secret of ", 0), 0U);
  EXPECT_EQ(whole.back(), '.');
  std::map<std::string, std::vector<std::size_t>> places;  // of each sentence
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = whole.find('.', begin)) != std::string::npos; begin = end + 2) {
    places[whole.substr(begin, end - begin)].push_back(begin);
  }
  const auto first_question = static_cast<std::size_t>(made.questions.front().first) - 30;
  std::size_t repeated = 0;
  for (const auto& [sentence, at] : places) {
    ASSERT_LE(at.size(), 2U) << sentence;
    if (at.size() == 1) continue;
    ++repeated;
    EXPECT_LT(at[0] + sentence.size() + 192, first_question + 30) << sentence;
  }
  EXPECT_EQ(repeated, made.questions.size());
  EXPECT_GE(repeated, 5U);
  std::map<std::string, int> names;
  for (const auto& place : places) ++names[place.first.substr(0, place.first.find(" is "))];
  for (const auto& [name, times] : names) EXPECT_EQ(times, 1) << name;
}

TEST_F(Retrieval, answers_are_the_word_and_the_number_of_the_first_statement) {
  const retrieval_text made = text(1500, 2);
  const std::string whole = text_of(made.tokens, 0, static_cast<int>(made.tokens.size()));
  std::vector<std::size_t> places[eval::depths];
  for (const question& q : made.questions) {
    const std::string answer = text_of(made.tokens, q.first, q.count);
    const std::string before = text_of(made.tokens, 0, q.first);
    const std::string asked = before.substr(before.rfind("The secret of "));
    std::string word, more;
    int number = 0;
    std::istringstream in(answer);
    ASSERT_TRUE(in >> word >> number) << answer;
    EXPECT_FALSE(in >> more) << answer;
    EXPECT_EQ(answer, " " + word + " " + std::to_string(number));
    EXPECT_GE(number, 100);
    EXPECT_LT(number, 1000);
    const std::size_t first = whole.find(asked + answer + ".");
    ASSERT_NE(first, std::string::npos) << asked << answer;
    EXPECT_LT(first, static_cast<std::size_t>(q.first) - asked.size());
    ASSERT_GE(q.depth, 0);
    ASSERT_LT(q.depth, eval::depths);
    places[q.depth].push_back(first);
  }
  for (int depth = 1; depth < eval::depths; ++depth) {
    for (const std::size_t older : places[depth - 1]) {
      for (const std::size_t newer : places[depth]) EXPECT_LT(older, newer);
    }
    EXPECT_NEAR(static_cast<double>(places[depth].size()), static_cast<double>(places[depth - 1].size()), 1);
  }
}

TEST_F(Retrieval, the_same_text_for_the_same_seed) {
  EXPECT_EQ(text(1200, 7).tokens, text(1200, 7).tokens);
  EXPECT_NE(text(1200, 7).tokens, text(1200, 8).tokens);
  // Written down once: no library or machine may change it.
  EXPECT_EQ(text_of(text(1200, 1).tokens, 0, 33), "The secret of Owen is candle 851.");
}

TEST_F(Retrieval, lengths_that_cannot_be) {
  EXPECT_THROW((void)text(300, 1), usage_error);
  EXPECT_THROW((void)text(100000, 1), usage_error);
}

TEST_F(Retrieval, as_many_texts_as_the_answers_need) {
  const std::vector<retrieval_text> texts = eval::make_retrieval_texts(*tokenizer, 1200, 3, 150);
  int answers = 0, last = 0;
  for (const retrieval_text& t : texts) {
    last = 0;
    for (const question& q : t.questions) last += q.count;
    answers += last;
  }
  EXPECT_GE(answers, 150);
  EXPECT_LT(answers - last, 150);
  EXPECT_EQ(texts[1].tokens, text(1200, 4).tokens);
}

TEST_F(Retrieval, results_by_length_and_depth) {
  thread_pool pool(2);
  const llm::model model(contents, pool);
  const std::vector<int> lengths{700, 1000};
  std::vector<std::vector<retrieval_text>> texts;
  for (const int length : lengths) texts.push_back(eval::make_retrieval_texts(*tokenizer, length, 1, 60));
  const std::vector<eval::policy> policies{eval::find_policy("k:f32,v:f32", tiny_model::dim),
                                           eval::find_policy("sim:q4_0", tiny_model::dim)};
  const std::vector<eval::retrieval_result> results =
      evaluate_retrieval(model, pool, lengths, texts, policies, eval::cache_settings{});
  ASSERT_EQ(results.size(), 3U * (1 + 2) * (1 + eval::depths));
  const std::string names[] = {"f32", "k:f32,v:f32", "sim:q4_0"};
  int tokens = 0, tokens_of_all = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const eval::retrieval_result& r = results[i];
    EXPECT_EQ(r.policy, names[i % 3]);
    EXPECT_EQ(r.answer_tokens, results[i / 3 * 3].answer_tokens);
    if (r.answer_tokens == 0) continue;  // short texts ask about some depths only
    if (i % 3 == 2) {
      EXPECT_GT(r.kl.mean, 1e-7);
    } else {
      EXPECT_NEAR(r.kl.mean, 0, i % 3 == 0 ? 0 : 1e-8);
    }
    EXPECT_NEAR(r.accuracy.mean - results[i / 3 * 3].accuracy.mean, r.added_accuracy.mean, 1e-12);
    if (i % 3 == 0 && r.length == 0 && r.depth < 0) tokens_of_all = r.answer_tokens;
    if (i % 3 == 0 && r.length != 0 && r.depth >= 0) tokens += r.answer_tokens;
  }
  EXPECT_GE(tokens, 120);
  EXPECT_EQ(tokens, tokens_of_all);
  EXPECT_EQ(results[2].bits, 4.5);
}

}  // namespace
