// The eval example on a tiny model: simulated codecs, ways to prefill, and the figures of policies side by side.
#include <gtest/gtest.h>

#include <cmath>
#include <common/arguments.hpp>
#include <eval/text.hpp>
#include <kvaxis/eval/ggml_blocks.hpp>
#include <kvaxis/eval/metrics.hpp>
#include <kvaxis/quantizers/hadamard.hpp>
#include <numbers.hpp>
#include <string>
#include <vector>

#include "tiny_model.hpp"

namespace {

using eval::find_policy;
using eval::prefill;
using llm::matrix;

constexpr int dim = tiny_model::dim;

class Eval : public ::testing::Test {
 protected:
  static llm::model load(thread_pool& pool) {
    const gguf_parts::bytes file = tiny_model::file();
    return {llm::gguf_file(file.data(), file.size()), pool};
  }
  static std::vector<int> tokens(int count) {
    test::numbers random(5);
    std::vector<int> out;
    for (int i = 0; i < count; ++i) out.push_back(random.below(static_cast<int>(tiny_model::vocabulary().size())));
    return out;
  }
  [[nodiscard]] eval::cached_run run(const std::string& policy, const eval::cache_settings& settings, int count,
                                     const std::vector<int>& measured = {}) {
    eval::progress shown(count);
    return eval::runner(model, pool, settings).run(tokens(count), find_policy(policy, dim), measured, shown);
  }
  [[nodiscard]] matrix exact_states(int count) {
    eval::progress shown(count);
    return eval::runner(model, pool, {}).run_exact(tokens(count), shown).states;
  }

  thread_pool pool{2};
  const llm::model model = load(pool);
};

TEST_F(Eval, names_of_simulated_codecs) {
  EXPECT_EQ(find_policy("k:f32,v:f16", 64).cache_policy, "k:f32,v:f16");
  EXPECT_EQ(find_policy("k:f32,v:f16", 64).key_codec, nullptr);
  const eval::policy one = find_policy("sim:q4_0-hadamard", 64);
  EXPECT_EQ(one.key_codec, one.value_codec);
  EXPECT_EQ(one.simulated_bits, 4.5);
  const eval::policy two = find_policy("sim:q8_0,q5_1", 64);
  EXPECT_NE(two.key_codec, two.value_codec);
  EXPECT_EQ(two.simulated_bits, (8.5 + 6) / 2);
  for (const char* wrong : {"sim:", "sim:q4_0-", "sim:-hadamard", "sim:q4_0,", "sim:q3_0", "sim:q4_0,q4_0,q4_0"}) {
    EXPECT_THROW(find_policy(wrong, 64), usage_error) << wrong;
  }
  EXPECT_THROW(find_policy("sim:q4_0", 80), usage_error);
}

// What a cache gives back of one token's keys or values: the blocks' round trip behind the rotation, for folded tokens.
TEST_F(Eval, simulated_caches_hold_what_blocks_decode_to) {
  using kvaxis::ggml_type;
  const struct {
    const char* name;
    ggml_type key, value;
    bool hadamard;
  } cases[] = {{"sim:q4_0", ggml_type::q4_0, ggml_type::q4_0, false},
               {"sim:iq4_nl-hadamard", ggml_type::iq4_nl, ggml_type::iq4_nl, true},
               {"sim:q8_0,q5_1", ggml_type::q8_0, ggml_type::q5_1, false}};
  constexpr int count = 100, pins = 3;
  for (const auto& c : cases) {
    const eval::policy p = find_policy(c.name, dim);
    llm::cache_options options;
    options.policy = p.cache_policy;
    options.window = 10;
    options.pins = pins;
    options.key_codec = p.key_codec;
    options.value_codec = p.value_codec;
    llm::layer_caches caches(model.shape(), options, count, pool);
    test::numbers random(3);
    matrix rows[3] = {matrix(count, 2 * dim), matrix(count, dim), matrix(count, dim)};
    for (matrix& m : rows) {
      for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = random.bell();
    }
    static_cast<void>(caches.attend(0, rows[0], rows[1], rows[2]));  // rotates the keys
    const kvaxis::any_kv_cache& cache = caches.sequence()[0];
    ASSERT_EQ(cache.folded_tokens(), 64);
    for (const int token : {0, 2, 3, 40, 66, 67, 99}) {
      const bool folded = token >= pins && token < pins + 64;
      for (const bool key : {true, false}) {
        Eigen::RowVectorXf expected = rows[key ? 1 : 2].row(token), found(dim);
        if (folded && c.hadamard) kvaxis::hadamard(expected.data(), dim);
        if (folded) kvaxis::check(kvaxis::ggml_round_trip(key ? c.key : c.value, expected.data(), dim));
        if (folded && c.hadamard) kvaxis::hadamard(expected.data(), dim);
        kvaxis::check(key ? cache.read_key(token, 0, found.data()) : cache.read_value(token, 0, found.data()));
        EXPECT_EQ(found, expected) << c.name << " token " << token << " key " << key;
      }
    }
  }
}

TEST_F(Eval, streaming_is_one_token_at_a_time) {
  constexpr int count = 200;
  const char policy[] = "k:int4-channel32-pre,v:int4-token32";
  eval::cache_settings settings;
  settings.window = 40;
  const matrix found = run(policy, settings, count).states;
  llm::cache_options options;
  options.policy = policy;
  options.window = 40;
  options.arithmetic = kvaxis::arithmetic::f32;
  llm::layer_caches caches(model.shape(), options, count, pool);
  matrix expected(count, tiny_model::embedding);
  for (int i = 0; i < count; ++i) expected.row(i) = model.feed({tokens(count)[static_cast<std::size_t>(i)]}, caches);
  // Products of one row and of many may be rounded otherwise, and a rounding can move a code.
  EXPECT_LT(kvaxis::relative_error(expected, found), 1e-3);
  EXPECT_GT(kvaxis::relative_error(expected, exact_states(count)), 5e-3);
}

TEST_F(Eval, folded_prefill_quantizes_before_anything_attends) {
  eval::cache_settings settings;
  settings.window = 0;
  settings.pins = 0;
  settings.mode = prefill::folded;
  const char policy[] = "k:int4-channel32-pre,v:int4-token32";
  const eval::cached_run folded = run(policy, settings, 150);
  settings.mode = prefill::streaming;
  const eval::cached_run streaming = run(policy, settings, 150);
  const matrix exact = exact_states(150);
  EXPECT_GT(kvaxis::relative_error(exact.topRows(20), folded.states.topRows(20)), 5e-3);
  EXPECT_LT(kvaxis::relative_error(exact.topRows(20), streaming.states.topRows(20)), 1e-5);
  EXPECT_EQ(folded.exact_bytes, 0);
  EXPECT_EQ(folded.folded_values, 2.0 * 2 * dim * 150);
  EXPECT_EQ(streaming.folded_values, 2.0 * 2 * dim * 128);  // whole tiles of 32
}

TEST_F(Eval, one_prefill_sees_itself_exactly_and_is_folded_then) {
  eval::cache_settings settings;
  settings.window = 32;
  const char policy[] = "k:int4-channel32-pre,v:int4-token32";
  const eval::cached_run streaming = run(policy, settings, 200);
  settings.mode = prefill::one;
  const eval::cached_run one = run(policy, settings, 200);
  const matrix exact = exact_states(200);
  EXPECT_LT(kvaxis::relative_error(exact.topRows(100), one.states.topRows(100)), 1e-5);
  EXPECT_GT(kvaxis::relative_error(exact.middleRows(68, 32), streaming.states.middleRows(68, 32)), 2e-3);
  EXPECT_GT(kvaxis::relative_error(exact.bottomRows(100), one.states.bottomRows(100)), 2e-3);
  EXPECT_EQ(one.folded_bytes, streaming.folded_bytes);
  EXPECT_EQ(one.exact_bytes, streaming.exact_bytes);
}

TEST_F(Eval, errors_of_what_is_folded) {
  eval::cache_settings settings;
  settings.window = 0;
  settings.mode = prefill::folded;
  const auto errors = [&](const char* policy) {
    const std::vector<eval::head_error> out = run(policy, settings, 160, {0, 1}).errors;
    EXPECT_EQ(out.size(), 2U) << policy;  // one kv head in each layer
    return out.empty() ? eval::head_error{} : out.back();
  };
  for (const char* exact : {"k:f32,v:f32", "k:f32-post,v:f32", "k:f32-tile,v:f32"}) {
    EXPECT_LT(errors(exact).key, 1e-6) << exact;
    EXPECT_LT(errors(exact).logit, 1e-6) << exact;
    EXPECT_EQ(errors(exact).value, 0) << exact;
  }
  const eval::head_error keys = errors("k:int4-channel32-pre,v:f32"),
                         both = errors("k:int8-token32-post,v:int4-token32");
  EXPECT_NEAR(keys.key, 0.1, 0.05);
  EXPECT_NEAR(keys.logit, 0.1, 0.05);
  EXPECT_EQ(keys.value, 0);
  EXPECT_LT(both.key, 0.01);
  EXPECT_NEAR(both.value, 0.1, 0.05);
  settings.window = 200;
  settings.mode = prefill::streaming;
  EXPECT_TRUE(run("k:f16,v:f16", settings, 160, {0}).errors.empty());
}

TEST_F(Eval, policies_side_by_side) {
  eval::cache_settings settings;
  settings.window = 0;
  settings.pins = 0;
  settings.mode = prefill::folded;
  std::vector<eval::policy> policies;
  for (const char* name : {"k:f32,v:f32", "k:int8-channel64-pre,v:int8-token32", "sim:q4_0"}) {
    policies.push_back(find_policy(name, dim));
  }
  const std::vector<int> text = tokens(600);
  const std::vector<std::vector<int>> sequences{{text.begin(), text.begin() + 300}, {text.begin() + 300, text.end()}};
  const std::vector<eval::text_result> results = evaluate_texts(model, pool, sequences, policies, settings);
  ASSERT_EQ(results.size(), 4U);
  EXPECT_EQ(results[0].policy, "f32");
  EXPECT_EQ(results[0].kl.mean, 0);
  EXPECT_EQ(results[0].same_top.mean, 1);
  EXPECT_NEAR(results[1].kl.mean, 0, 1e-9);
  EXPECT_NEAR(results[1].perplexity.mean, results[0].perplexity.mean, 1e-4 * results[0].perplexity.mean);
  EXPECT_GT(results[2].kl.mean, 1e-8);
  EXPECT_GT(results[3].kl.mean, 20 * results[2].kl.mean);
  EXPECT_LT(results[3].same_top.mean, 1);
  EXPECT_GT(results[3].key_error.mean, 5 * results[2].key_error.mean);
  for (const eval::text_result& r : {results[2], results[3]}) {
    EXPECT_GT(r.kl.error, 0) << r.policy;
    EXPECT_LT(r.kl.error, r.kl.mean) << r.policy;
    EXPECT_NEAR(std::log(r.perplexity.mean / results[0].perplexity.mean), r.added_loss.mean, 1e-9) << r.policy;
  }
  EXPECT_EQ(results[0].bits, 32);
  EXPECT_EQ(results[3].bits, 4.5);
  EXPECT_EQ(results[3].folded_bytes, 2.0 * 2 * dim * 300 * 4.5 / 8);
  EXPECT_NEAR(results[2].bits, 8.75 * 320 / 300, 0.15);  // groups of 64 and of 32 numbers; headers, an unfilled tile
}

TEST_F(Eval, wrong_policies_show_before_the_work_begins) {
  EXPECT_THROW(eval::runner(model, pool, {}).check(find_policy("k:int4-channel63-pre,v:f32", dim)), kvaxis::error);
  EXPECT_THROW(eval::evaluate_texts(model, pool, {tokens(50)}, {find_policy("nothing", dim)}, {}), kvaxis::error);
}

}  // namespace
