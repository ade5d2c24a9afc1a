// The double-precision reference against attention worked out by hand, and an exact cache against the reference.
#include <gtest/gtest.h>

#include <kvaxis/eval/reference.hpp>
#include <policies.hpp>
#include <random>
#include <vector>

namespace {

std::vector<float> normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> out(count);
  for (float& x : out) x = distribution(random);
  return out;
}

// Two tokens, 8 channels of which only the first counts, values of one channel that counts.
struct two_tokens {
  std::vector<float> keys = std::vector<float>(16), values = std::vector<float>(16), q = std::vector<float>(8);
  kvaxis::reference_layer layer;

  two_tokens() {
    keys[0] = 1;
    keys[8] = 2;
    values[0] = 10;
    values[8] = 20;
    q[0] = 3;
    layer.head_dim = layer.value_dim = 8;
    layer.tokens = 2;
    layer.keys = keys.data();
    layer.values = values.data();
  }
};

TEST(Reference, softmax_by_hand) {
  const two_tokens t;
  const Eigen::MatrixXd scores = kvaxis::reference_scores(t.layer, t.q.data(), 1, 1, {});
  EXPECT_DOUBLE_EQ(scores(0, 0), 3 / std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(scores(0, 1), 6 / std::sqrt(8.0));
  Eigen::VectorXd lse;
  const Eigen::MatrixXd out = kvaxis::reference_attend(t.layer, t.q.data(), 1, 1, {}, &lse);
  const double a = std::exp(scores(0, 0));
  const double b = std::exp(scores(0, 1));
  EXPECT_NEAR(out(0, 0), (10 * a + 20 * b) / (a + b), 1e-14);
  EXPECT_EQ(out(0, 1), 0.0);
  EXPECT_NEAR(lse[0], std::log(a + b), 1e-14);
}

TEST(Reference, scale_and_soft_cap) {
  const two_tokens t;
  kvaxis::attend_options o;
  o.scale = 0.5F;
  o.soft_cap = 2.0F;
  const Eigen::MatrixXd scores = kvaxis::reference_scores(t.layer, t.q.data(), 1, 1, o);
  EXPECT_DOUBLE_EQ(scores(0, 1), 2 * std::tanh(3.0 / 2));
}

TEST(Reference, a_key_is_visible_if_its_position_is_not_beyond_the_query) {
  two_tokens t;
  std::vector<float> q(24);
  q[0] = q[8] = q[16] = 3;
  const std::int64_t positions[] = {5, 6};
  t.layer.positions = positions;
  Eigen::VectorXd lse;
  const Eigen::MatrixXd out = kvaxis::reference_attend(t.layer, q.data(), 3, 4, {}, &lse);
  EXPECT_EQ(out(0, 0), 0.0);
  EXPECT_LT(lse[0], -1e300);
  EXPECT_DOUBLE_EQ(out(1, 0), 10.0);
  EXPECT_GT(out(2, 0), 10.0);
}

TEST(Reference, rotation_is_relative_and_the_attention_factor_counts_twice) {
  two_tokens t;
  kvaxis::rope_parameters p;
  p.head_dim = 8;
  p.rotary_dim = 2;
  ASSERT_TRUE(kvaxis::make_rope(p, t.layer.rope).ok());  // one pair of frequency 1: channels 0 and 1
  const std::int64_t positions[] = {100, 103};
  t.layer.positions = positions;
  Eigen::MatrixXd scores = kvaxis::reference_scores(t.layer, t.q.data(), 1, 105, {});
  EXPECT_NEAR(scores(0, 0), 3 * std::cos(5.0) / std::sqrt(8.0), 1e-13);
  EXPECT_NEAR(scores(0, 1), 6 * std::cos(2.0) / std::sqrt(8.0), 1e-13);
  t.layer.rope.attention_factor = 2;
  scores = kvaxis::reference_scores(t.layer, t.q.data(), 1, 105, {});
  EXPECT_NEAR(scores(0, 1), 4 * 6 * std::cos(2.0) / std::sqrt(8.0), 1e-12);
}

TEST(Reference, an_exact_cache_agrees) {
  constexpr int kv_heads = 2;
  constexpr int query_heads = 6;
  constexpr int dim = 40;
  constexpr int value_dim = 24;
  constexpr int tokens = 150;
  constexpr int queries = 5;
  const std::vector<float> keys = normal(tokens * kv_heads * dim, 1);
  const std::vector<float> values = normal(tokens * kv_heads * value_dim, 2);
  const std::vector<float> q = normal(queries * query_heads * dim, 3);
  kvaxis::rope_parameters p;
  p.head_dim = dim;
  p.layout = kvaxis::rope_layout::interleaved;
  kvaxis::cache_config config;
  kvaxis::check(kvaxis::make_rope(p, config.rope));
  config.kv_heads = kv_heads;
  config.head_dim = dim;
  config.value_dim = value_dim;
  config.window = 32;
  kvaxis::any_kv_cache cache = test::cache_of("k:f32,v:f32", config);
  kvaxis::check(cache.append(keys.data(), values.data(), tokens));
  EXPECT_GT(cache.folded_tokens(), 0);

  kvaxis::attend_options o;
  o.query_heads = query_heads;
  o.soft_cap = 3.0F;
  std::vector<float> out(queries * query_heads * value_dim);
  std::vector<float> lse(queries * query_heads);
  std::vector<std::byte> memory(cache.workspace_bytes(queries, o));
  kvaxis::check(
      cache.attend(q.data(), queries, tokens - queries, o, out.data(), lse.data(), {memory.data(), memory.size()}));

  const kvaxis::reference_layer layer{kv_heads,    dim,           value_dim, tokens,
                                      keys.data(), values.data(), nullptr,   config.rope};
  Eigen::VectorXd exact_lse;
  const Eigen::MatrixXd exact = kvaxis::reference_attend(layer, q.data(), queries, tokens - queries, o, &exact_lse);
  for (int row = 0; row < queries * query_heads; ++row) {
    EXPECT_NEAR(lse[static_cast<std::size_t>(row)], exact_lse[row], 1e-5);
    for (int c = 0; c < value_dim; ++c) {
      EXPECT_NEAR(out[static_cast<std::size_t>(row * value_dim + c)], exact(row, c), 1e-5) << row << " " << c;
    }
  }
}

}  // namespace
