// Appending from Eigen matrices and reading into them.
#include <gtest/gtest.h>

#include <kvaxis/eigen.hpp>
#include <policies.hpp>

namespace {

constexpr int kv_heads = 2;
constexpr int dim = 16;
constexpr int value_dim = 8;
constexpr int tokens = 70;

kvaxis::any_kv_cache empty_cache() {
  kvaxis::cache_config config;
  config.kv_heads = kv_heads;
  config.head_dim = dim;
  config.value_dim = value_dim;
  config.window = 0;
  return test::cache_of("k:f32,v:f32", config);
}

const kvaxis::row_matrix keys = kvaxis::row_matrix::Random(tokens, kv_heads* dim);
const kvaxis::row_matrix values = kvaxis::row_matrix::Random(tokens, kv_heads* value_dim);

void expect_holds_all(const kvaxis::any_kv_cache& cache) {
  ASSERT_EQ(cache.size(), tokens);
  kvaxis::row_matrix k(tokens, kv_heads * dim);
  kvaxis::row_matrix v(tokens, kv_heads * value_dim);
  ASSERT_TRUE(kvaxis::read_keys(cache, 0, k).ok());
  ASSERT_TRUE(kvaxis::read_values(cache, 0, v).ok());
  EXPECT_EQ(k, keys);
  EXPECT_EQ(v, values);
}

TEST(EigenViews, what_is_appended_is_read_back) {
  kvaxis::any_kv_cache cache = empty_cache();
  ASSERT_TRUE(kvaxis::append(cache, keys, values).ok());
  EXPECT_GT(cache.folded_tokens(), 0);
  expect_holds_all(cache);
}

TEST(EigenViews, blocks_single_rows_and_other_orders) {
  kvaxis::any_kv_cache cache = empty_cache();
  kvaxis::row_matrix wide(40, kv_heads * dim + 5);
  wide.setConstant(9);
  wide.middleCols(3, kv_heads * dim) = keys.topRows(40);
  ASSERT_TRUE(kvaxis::append(cache, wide.middleCols(3, kv_heads * dim), values.topRows(40)).ok());
  ASSERT_TRUE(kvaxis::append(cache, keys.row(40), values.row(40)).ok());
  const Eigen::MatrixXf by_column = keys.bottomRows(29);
  ASSERT_TRUE(kvaxis::append(cache, by_column, values.bottomRows(29)).ok());
  expect_holds_all(cache);

  kvaxis::row_matrix out = kvaxis::row_matrix::Constant(3, kv_heads * dim + 2, 7);
  ASSERT_TRUE(kvaxis::read_keys(cache, 50, out.middleCols(1, kv_heads * dim)).ok());
  EXPECT_EQ(out.middleCols(1, kv_heads * dim), keys.middleRows(50, 3));
  EXPECT_EQ(out(2, 0), 7);
  EXPECT_EQ(out(0, kv_heads * dim + 1), 7);
}

TEST(EigenViews, latent_values_come_with_the_keys) {
  kvaxis::cache_config config;
  config.kv_heads = kv_heads;
  config.head_dim = dim;
  config.value_dim = value_dim;
  kvaxis::any_kv_cache cache = test::cache_of("k:f32,v:latent", config);
  ASSERT_TRUE(kvaxis::append(cache, keys, kvaxis::row_matrix()).ok());
  EXPECT_STREQ(kvaxis::append(cache, keys, values).argument, "values: columns");
  ASSERT_EQ(cache.size(), tokens);
  kvaxis::row_matrix v(tokens, kv_heads * value_dim);
  ASSERT_TRUE(kvaxis::read_values(cache, 0, v).ok());
  EXPECT_EQ(v.leftCols(value_dim), keys.leftCols(value_dim));
  EXPECT_EQ(v.rightCols(value_dim), keys.middleCols(dim, value_dim));
}

void expect_refused(const kvaxis::status& s, const char* argument, std::int64_t limit) {
  EXPECT_FALSE(s.ok());
  EXPECT_STREQ(s.argument, argument);
  EXPECT_EQ(s.limit, limit);
}

TEST(EigenViews, shapes_that_do_not_fit_are_refused) {
  kvaxis::any_kv_cache none;
  expect_refused(kvaxis::append(none, keys, values), "cache: not created", 0);
  kvaxis::any_kv_cache cache = empty_cache();
  expect_refused(kvaxis::append(cache, keys.leftCols(31), values), "keys: columns", 32);
  expect_refused(kvaxis::append(cache, keys, keys), "values: columns", 16);
  expect_refused(kvaxis::append(cache, keys, values.topRows(69)), "values: rows", 70);
  EXPECT_EQ(cache.size(), 0);
  ASSERT_TRUE(kvaxis::append(cache, keys, values).ok());
  kvaxis::row_matrix k(tokens, kv_heads * dim);
  kvaxis::row_matrix v(tokens, kv_heads * value_dim);
  expect_refused(kvaxis::read_keys(none, 0, k), "cache: not created", 0);
  expect_refused(kvaxis::read_keys(cache, 0, v), "out: columns", 32);
  expect_refused(kvaxis::read_values(cache, 0, k), "out: columns", 16);
  expect_refused(kvaxis::read_values(cache, -1, v), "first_token", 0);
  expect_refused(kvaxis::read_keys(cache, 1, k), "first_token", 0);
}

}  // namespace
