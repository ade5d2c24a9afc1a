// eval as a program: what it prints of a tiny model, and its options.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "programs.hpp"
#include "tiny_model.hpp"

namespace {

// A model file that goes when the test ends.
class tiny_model_file {
 public:
  tiny_model_file() {
    const gguf_parts::bytes contents = tiny_model::file();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(contents.data()), static_cast<std::streamsize>(contents.size()));
  }
  tiny_model_file(const tiny_model_file&) = delete;
  tiny_model_file& operator=(const tiny_model_file&) = delete;
  ~tiny_model_file() { std::remove(path.c_str()); }

  const std::string path = testing::TempDir() + "kvaxis_tiny.gguf";
};

TEST(EvalExample, tables_and_json_have_the_same_figures) {
  const tiny_model_file model;
  const std::string policies = " --policy k:int4-channel64-pre,v:int4-token32 --policy sim:q8_0,q4_0-hadamard";
  const std::string text = "eval --model " + model.path + " --text " KVAXIS_TEST_DATA "/persuasion.txt --tokens 200";
  expect_same_figures(
      text + " --sequences 2 --window 0 --pins 0" + policies,
      {"kl_mean", "kl_error", "bits_per_value", "folded_bytes", "exact_bytes", "top1_agreement", "perplexity",
       "perplexity_error", "key_error", "value_error", "logit_error", "logit_error_error"});
  expect_same_figures("eval --model " + model.path + " --retrieval --lengths 700,900 --answers 40" + policies,
                      {"kl_mean", "kl_error", "bits_per_value", "answer_tokens", "accuracy", "accuracy_error"});

  const outcome json = run(text + " --token-offset 30 --window 64 --prefill one --json" + policies);
  ASSERT_EQ(json.exit_code, 0) << json.text;
  EXPECT_EQ(number(json.text, "token_offset"), 30);
  EXPECT_EQ(number(json.text, "window"), 64);
  EXPECT_NE(json.text.find(R"("prefill": "one")"), std::string::npos);
  const std::vector<std::string> rows = lines_with(json.text, "\"kl_mean\"");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(number(rows[0], "kl_mean"), 0);
  EXPECT_GT(number(rows[1], "kl_mean"), 0);
  EXPECT_EQ(number(rows[2], "bits_per_value"), 6.5);
  EXPECT_EQ(lines_with(json.text, "200 tokens in").size(), 3U);  // the progress, a line for each run

  EXPECT_EQ(run("eval --retrieval --lengths 2000 --model " + model.path).exit_code, 2);  // beyond the context
  EXPECT_EQ(run(text + " --token-offset 200000").exit_code, 2);
  EXPECT_EQ(run(text + " --policy sim:none").exit_code, 2);
  EXPECT_EQ(run(text + " --policy none").exit_code, 1);
}

TEST(EvalExample, activations) {
  const tiny_model_file model;
  const std::string to = testing::TempDir() + "kvaxis_activations.bin";
  const std::string command = "eval --model " + model.path +
                              " --text " KVAXIS_TEST_DATA "/persuasion.txt --tokens 40 --dump-activations " + to +
                              " --layers ";
  EXPECT_EQ(run(command + "2").exit_code, 2);
  ASSERT_EQ(run(command + "1,0").exit_code, 0);
  std::ifstream file(to, std::ios::binary);
  const std::string contents{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(contents.substr(0, 8), "kvaxact1");
  const std::size_t numbers = 40 * 2 * tiny_model::dim + 5 * tiny_model::heads * tiny_model::dim;
  EXPECT_EQ(contents.size(), 8 + 7 * 4 + 8 + 2 * (4 + 2 * numbers));
  EXPECT_EQ(std::remove(to.c_str()), 0);
}

}  // namespace
