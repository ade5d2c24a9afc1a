// The examples as programs: what they print, their options, and that the README shows the code that they are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <isa_test.hpp>
#include <policies.hpp>
#include <string>
#include <vector>

#include "programs.hpp"

namespace {

// The result of `axes --json` for one codec and axis.
std::string axes_row(const std::string& json, const std::string& keys, const std::string& groups,
                     const std::string& codec, const std::string& axis) {
  const std::vector<std::string> rows = lines_with(json, R"("keys": ")" + keys + R"(", "groups": ")" + groups +
                                                             R"(", "codec": ")" + codec + R"(", "axis": ")" + axis);
  EXPECT_EQ(rows.size(), 1U) << keys << " " << groups << " " << codec << " " << axis;
  return rows.empty() ? "" : rows[0];
}

struct axes_figures {
  double bits, tensor, normal, logit, balanced;
};

// Within 12 %, what another sample may differ by.
void expect_axes(const std::string& row, const axes_figures& expected) {
  EXPECT_NEAR(number(row, "bits_per_value"), expected.bits, 1e-4) << row;
  EXPECT_NEAR(number(row, "tensor_error"), expected.tensor, 0.12 * expected.tensor) << row;
  EXPECT_NEAR(number(row, "normal_channel_error"), expected.normal, 0.12 * expected.normal) << row;
  EXPECT_NEAR(number(row, "logit_error"), expected.logit, 0.12 * expected.logit) << row;
  EXPECT_NEAR(number(row, "balanced_logit_error"), expected.balanced, 0.12 * expected.balanced) << row;
}

TEST(Axes, figures_of_the_experiment) {
  for (const char* seed : {"1", "2"}) {
    const outcome o = run(std::string("axes --json --seed ") + seed);
    ASSERT_EQ(o.exit_code, 0) << o.text;
    expect_axes(axes_row(o.text, "before RoPE", "whole", "int4", "per token"), {4.25, 0.25, 2.65, 0.25, 2.6});
    expect_axes(axes_row(o.text, "before RoPE", "whole", "int4", "per channel"), {4.0625, 0.12, 0.118, 0.12, 0.118});
    expect_axes(axes_row(o.text, "before RoPE", "64", "int4", "per token"), {4.5, 0.175, 1.88, 0.175, 1.83});
    expect_axes(axes_row(o.text, "before RoPE", "64", "int4", "per channel"), {4.5, 0.091, 0.09, 0.091, 0.09});
    for (const char* keys : {"before RoPE", "after RoPE"}) {
      for (const char* codec : {"int4", "int8"}) {
        // A gain of two or so in the whole tensor, of more than ten where it matters.
        const std::string ratio = axes_row(o.text, keys, "64", codec, "ratio");
        EXPECT_LT(number(ratio, "tensor_error"), 3.0) << ratio;
        EXPECT_GT(number(ratio, "normal_channel_error"), 15.0) << ratio;
        EXPECT_GT(number(ratio, "balanced_logit_error"), 15.0) << ratio;
      }
      const std::string e4m3 = axes_row(o.text, keys, "64", "e4m3", "ratio");
      EXPECT_NEAR(number(e4m3, "normal_channel_error"), 1.0, 0.1) << e4m3;
    }
  }
}

TEST(Examples, tables_and_json_have_the_same_figures) {
  expect_same_figures("axes", {"bits_per_value", "tensor_error", "normal_channel_error", "balanced_logit_error"});
  expect_same_figures("latent", {"bits_per_value", "bytes_per_token", "logit_error", "divergence", "output_error"});
  expect_same_figures("plan --model Qwen3-8B --memory 8", {"bits_per_value", "bytes_per_token", "gib_at_context",
                                                           "share_of_f16", "tokens_in_memory", "sequences_in_memory"});
  expect_same_figures("scales", {"clipped", "k_scale", "v_scale", "key_error", "worst_key_error", "value_error"});
  expect_same_figures("own_codec", {"bits_per_value", "key_error", "weights_divergence", "attention_error"});
}

TEST(Plan, B60_bytes_of_a_known_model) {
  const outcome o = run("plan --model llama-3.1-70b --json");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const std::string f16 = lines_with(o.text, "\"f16 arrays\"").at(0);
  EXPECT_EQ(number(f16, "bytes_per_token"), 320 * 1024);
  EXPECT_EQ(number(f16, "bytes_at_context"), 40.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(number(f16, "gib_at_context"), 40);
  // Keys: 128 channels of 64 codes and two f16. Values: 64 tokens of 128 codes and two groups with two f16. A header.
  const double key_block = 128 * (64 / 2 + 4);
  const double value_block = 64 * (128 / 2 + 2 * 4);
  const std::string int4 = lines_with(o.text, "k:int4-channel64-pre,v:int4-token64").at(0);
  EXPECT_EQ(number(int4, "bytes_per_token"), 80 * (8 * (key_block + value_block) + 64) / 64);
  EXPECT_NEAR(number(int4, "share_of_f16"), 4.5 / 16, 0.01);
}

TEST(Plan, B60_latent_is_counted_once) {
  const outcome o = run("plan --model DeepSeek-V3 --json");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  EXPECT_EQ(number(lines_with(o.text, "\"f16 arrays\"").at(0), "bytes_per_token"), 70272);
  const std::string int4 = lines_with(o.text, "k:int4-channel64-pre,v:latent").at(0);
  EXPECT_EQ(number(int4, "bytes_per_token"), 61 * (576 * 4.5 / 8 + 1));
}

TEST(Plan, B60_equals_what_a_cache_takes) {
  kvaxis::cache_config config;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.value_dim = 48;
  config.window = 100;
  config.pins = 2;
  kvaxis::rope_parameters rope;
  rope.head_dim = 64;
  kvaxis::check(kvaxis::make_rope(rope, config.rope));
  const std::vector<float> numbers(1000 * 3 * 64, 1.0F);
  for (const std::string policy : {"k:int4-channel64-pre,v:int4-token64", "k:int8-token32-post,v:e4m3-tensor@1.0"}) {
    kvaxis::any_kv_cache cache = test::cache_of(policy, config);
    kvaxis::check(cache.append(numbers.data(), numbers.data(), 1000));
    const outcome o =
        run("plan --layers 5 --kv-heads 3 --head-dim 64 --value-dim 48 --window 100 --pins 2 "
            "--context 1000 --json --policy " +
            policy);
    ASSERT_EQ(o.exit_code, 0) << o.text;
    EXPECT_EQ(number(lines_with(o.text, policy).at(0), "bytes_at_context"),
              5.0 * static_cast<double>(cache.bytes().total()));
  }
}

TEST(Plan, B60_the_tokens_that_fit_are_the_most_that_do) {
  const std::string shape = "plan --model SmolLM2-135M --json --policy k:int4-channel64-pre,v:int4-token64 ";
  const double tokens = number(lines_with(run(shape + "--memory 0.25").text, "k:int4").at(0), "tokens_in_memory");
  ASSERT_GT(tokens, 30000);
  const auto bytes = [&](double n) {
    return number(lines_with(run(shape + "--context " + std::to_string(static_cast<long>(n))).text, "k:int4").at(0),
                  "bytes_at_context");
  };
  EXPECT_LE(bytes(tokens), 0x1p28);
  EXPECT_GT(bytes(tokens + 1), 0x1p28);
  const outcome at_context = run(shape + "--memory 0.25 --context 1000");
  EXPECT_EQ(number(lines_with(at_context.text, "k:int4").at(0), "sequences_in_memory"),
            std::floor(0x1p28 / bytes(1000)));
}

// A latent is stored once, for all heads, and each axis errs by about as much on it as on the heads' own keys.
TEST(LatentExample, figures_of_both_axes_and_mappings) {
  const outcome o = run("latent --json");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const auto row = [&](const std::string& layer, const std::string& codec, const std::string& axis) {
    return lines_with(o.text, R"("layer": ")" + layer + R"(", "codec": ")" + codec + R"(", "axis": ")" + axis).at(0);
  };
  for (const char* layer : {"MLA latent", "MLA decompressed", "GQA", "MQA"}) {
    for (const char* codec : {"int4", "int8"}) {
      const std::string channel = row(layer, codec, "per channel");
      const std::string token = row(layer, codec, "per token");
      EXPECT_EQ(number(channel, "bits_per_value"), codec[3] == '4' ? 4.5 : 8.5);
      EXPECT_EQ(number(token, "bits_per_value"), codec[3] == '4' ? 4.5 : 8.5);
      EXPECT_GT(number(token, "logit_error"), 1.3 * number(channel, "logit_error")) << layer;
      EXPECT_GT(number(token, "divergence"), 1.7 * number(channel, "divergence")) << layer;
      EXPECT_GT(number(token, "output_error"), 1.1 * number(channel, "output_error")) << layer;
    }
    EXPECT_LT(number(row(layer, "int8", "per channel"), "logit_error"), 0.01);
  }
  EXPECT_EQ(number(row("MLA latent", "int4", "per channel"), "bytes_per_token"), 576 * 4.5 / 8 + 1);
  const double on_latent = number(row("MLA latent", "int4", "per channel"), "output_error");
  EXPECT_NEAR(on_latent, number(row("MLA decompressed", "int4", "per channel"), "output_error"), 0.2 * on_latent);
}

TEST(OwnCodec, is_better_than_int4_and_the_same_on_every_isa) {
  const outcome o = run("own_codec --json");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const std::vector<std::string> own = lines_with(o.text, "\"power4\"");
  const std::vector<std::string> int4 = lines_with(o.text, "\"int4\"");
  ASSERT_EQ(own.size(), every_isa().size());
  ASSERT_EQ(int4.size(), own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_LT(number(own[i], "key_error"), number(int4[i], "key_error"));
    EXPECT_LT(number(own[i], "attention_error"), 0.2);
    EXPECT_EQ(number(own[i], "key_error"), number(own[0], "key_error"));
    EXPECT_LT(number(own[i], "difference_to_scalar"), 1e-6);
  }
}

TEST(Scales, calibrated_ones_clip_nothing_and_serve_every_head) {
  const std::string file = testing::TempDir() + "kvaxis_scales.safetensors";
  const outcome o = run("scales --json --write " + file);
  ASSERT_EQ(o.exit_code, 0) << o.text;
  for (const char* codec : {"e4m3", "int8s"}) {
    const auto row = [&](const char* scales) {
      return lines_with(o.text, "\"codec\": \"" + std::string(codec) + "\", \"scales\": \"" + scales + "\"").at(0);
    };
    EXPECT_GT(number(row("1"), "clipped"), 100);
    EXPECT_EQ(number(row("one"), "clipped"), 0);
    EXPECT_EQ(number(row("one per head"), "clipped"), 0);
    for (const char* error : {"key_error", "worst_key_error", "value_error", "worst_value_error"}) {
      EXPECT_LT(number(row("one"), error), number(row("1"), error) + 1e-9) << error;
      EXPECT_LT(number(row("one per head"), error), 0.06) << error;
    }
  }
  const outcome shown = run("scales --json --show " + file);
  ASSERT_EQ(shown.exit_code, 0) << shown.text;
  const std::string k = lines_with(shown.text, "model.layers.0.self_attn.k_scale").at(0);
  EXPECT_NE(k.find(R"("dtype": "F32", "shape": "[4,1,1]")"), std::string::npos) << k;
  EXPECT_NEAR(number(k, "largest") / number(k, "smallest"), 8, 2);  // the sizes of the heads
  ASSERT_EQ(std::remove(file.c_str()), 0);
  EXPECT_EQ(run("scales --show " + file).exit_code, 1);
}

TEST(Quickstart, prints_what_it_saved) {
  const outcome o = run("quickstart");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  long total = 0;
  long exact = 0;
  long f16 = 0;
  const std::string line = lines_with(o.text, "bytes: ").at(0);
  ASSERT_EQ(
      std::sscanf(line.c_str(), "bytes: %ld, of these %ld exact (the newest tokens and the first four); as f16: %ld",
                  &total, &exact, &f16),
      3)
      << line;
  EXPECT_EQ(f16, 2L * 2 * 4096 * 8 * 128);
  EXPECT_LT(160 * (total - exact), 46 * f16);
  EXPECT_LT(10 * total, 4 * f16);
}

// The program fails where the bits differ.
TEST(Threads, one_row_for_each_adapter_and_number_of_threads) {
  const outcome o = run("threads --json --threads 3 --tokens 3000");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  for (const char* adapter : {"\"thread_pool\"", "\"openmp\""}) {
    const std::vector<std::string> rows = lines_with(o.text, adapter);
    if (rows.empty() && std::string(adapter) == "\"openmp\"") continue;  // built without it
    ASSERT_EQ(rows.size(), 3U) << o.text;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(number(rows[i], "threads"), static_cast<double>(i + 1));
      EXPECT_GT(number(rows[i], "milliseconds"), 0);
    }
  }
}

TEST(Ship, two_processes_and_half_of_the_heads) {
  const outcome o = run("ship --json --layers 2 --tokens 900 --chunk 200");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  EXPECT_EQ(number(o.text, "shipped_heads"), 4);
  const std::vector<std::string> sent = lines_with(o.text, "\"bytes\"");
  ASSERT_EQ(sent.size(), 6U);
  // In two layers, four heads of a tile of 64 tokens: keys and values of 4.5 bits, and a mask of the hot pairs.
  const double tile = 4 * (2 * 128 * 64 * 4.5 / 8 + 8) + 40;
  const int tiles[] = {1, 3, 3, 3, 2};  // all but 4 pinned tokens and the window of 128
  for (std::size_t i = 1; i < 5; ++i) EXPECT_EQ(number(sent[i], "bytes"), 2 * tiles[i] * tile);
  EXPECT_GT(number(sent[0], "bytes"), 2 * tile);
  const double rows = 2 * 4 * 132 * 2 * 128 * 4.0;
  EXPECT_GT(number(sent[5], "bytes"), rows);
  EXPECT_LT(number(sent[5], "bytes"), rows + 2000);
}

TEST(Examples, help_and_options_that_are_wrong) {
  for (const char* name : {"axes", "eval", "latent", "llm", "own_codec", "plan", "scales", "ship", "threads"}) {
    const outcome help = run(std::string(name) + " --help");
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.text.rfind("usage:", 0), 0U) << help.text;
    const outcome wrong = run(std::string(name) + " --no-such-option");
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_NE(wrong.text.find("--help"), std::string::npos) << wrong.text;
  }
  for (const char* command : {"plan",
                              "plan --model nothing",
                              "plan --model Qwen3-8B --context 0",
                              "plan --list --json",
                              "plan --layers 1 --kv-heads 1 --head-dim 577",
                              "axes --seed",
                              "axes --seed x",
                              "scales --show",
                              "scales --show a --seed 1",
                              "ship --chunk 0",
                              "ship --layers 200",
                              "threads --threads -1",
                              "threads --tokens 0",
                              "llm",
                              "llm --lists --prompt x",
                              "llm --lists --context 1",
                              "llm --prompt x --context 5 --pins 4",
                              "llm --lists --policy k:f32,v:f32 --policy k:f16,v:f16",
                              "eval",
                              "eval --text x --retrieval",
                              "eval --text x --lengths 600",
                              "eval --retrieval --tokens 600",
                              "eval --retrieval --lengths 600,600",
                              "eval --retrieval --lengths 600,x",
                              "eval --text x --prefill folded",
                              "eval --text x --prefill none",
                              "eval --text x --layers 1"}) {
    EXPECT_EQ(run(command).exit_code, 2) << command;
  }
  EXPECT_EQ(run("plan --model Qwen3-8B --policy k:int5,v:f16").exit_code, 1);
}

TEST(Readme, shows_the_code_of_the_examples) {
  const std::string readme = file_text("README.md");
  const std::string quickstart = file_text("examples/quickstart.cpp");
  const std::string program = quickstart.substr(quickstart.find("#include"));
  EXPECT_NE(readme.find(program), std::string::npos) << "examples/quickstart.cpp";
  const std::string own = file_text("examples/own_codec.cpp");
  const std::size_t begin = own.find("struct power4");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_NE(readme.find(own.substr(begin, own.find("\n};\n") + 4 - begin)), std::string::npos)
      << "examples/own_codec.cpp";
}

}  // namespace
