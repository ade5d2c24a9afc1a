// Keys with a bias of +-300 on some pairs, as in Qwen's models: no rotation that is recommended, and no arithmetic, may
// make the logits much worse than those of the same keys without it. Rotation smears such a bias over the range of both
// channels of its pair; choosing a fixed number of hot pairs leaves the others to that.
#include <gtest/gtest.h>

#include <calls.hpp>
#include <cmath>
#include <cstddef>
#include <isa_test.hpp>
#include <numbers.hpp>
#include <policies.hpp>
#include <string>
#include <tokens.hpp>
#include <vector>

namespace {

constexpr int dim = 128;
constexpr int count = 256;

class BiasedKeys : public isa_test {};

// The first pairs have the highest frequencies.
enum class where { high, low, both };

void add_bias(test::tokens& t, int pairs, where at) {
  for (int i = 0; i < pairs; ++i) {
    const int pair = at == where::high  ? i
                     : at == where::low ? dim / 2 - 1 - i
                     : i % 2 == 0       ? i / 2
                                        : dim / 2 - 1 - i / 2;
    for (int token = 0; token < count; ++token) {
      float* const key = t.k.data() + token * dim;
      key[pair] += i % 2 == 0 ? 300.0F : -300.0F;
      key[pair + dim / 2] += i % 3 == 0 ? 300.0F : -250.0F;
    }
  }
}

// Root mean square error of the logits of several queries.
double logit_error(const std::string& keys, const kvaxis::cache_config& c, const test::tokens& t,
                   kvaxis::arithmetic how) {
  kvaxis::any_kv_cache quantized = test::cache_of("k:" + keys + ",v:f16", c);
  kvaxis::any_kv_cache plain = test::cache_of("k:f32,v:f16", c);
  for (kvaxis::any_kv_cache* cache : {&quantized, &plain}) {
    t.append_all_to(*cache);
    kvaxis::check(cache->flush());
  }
  kvaxis::attend_options o = test::exact();
  o.query_heads = 8;
  const std::vector<float> q = test::numbers(5).bells(static_cast<std::size_t>(o.query_heads * dim));
  const std::vector<float> truth = test::scores(plain, q, 1, count, o);
  o.arithmetic = how;
  const std::vector<float> got = test::scores(quantized, q, 1, count, o);
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    sum += std::pow(static_cast<double>(got[i]) - static_cast<double>(truth[i]), 2);
  }
  return std::sqrt(sum / static_cast<double>(got.size()));
}

TEST_P(BiasedKeys, cost_the_recommended_rotations_little) {
  kvaxis::cache_config c = test::rope_shape(1, dim);
  c.window = 0;
  c.pins = 0;
  const test::tokens plain(c, count, 11);
  for (const char* keys : {"int4-channel64-pre", "int4-channel64-auto", "int4-channel64-hot4x6-lsq",
                           "int4-channel64-hot8x6-lsq", "int5-channel64-auto", "int3-channel64-hot8x5-lsq"}) {
    for (const kvaxis::arithmetic how : {kvaxis::arithmetic::f32, kvaxis::arithmetic::automatic}) {
      const double without = logit_error(keys, c, plain, how);
      for (const int pairs : {2, 4, 8, 16}) {
        for (const where at : {where::high, where::low, where::both}) {
          test::tokens biased = plain;
          add_bias(biased, pairs, at);
          EXPECT_LT(logit_error(keys, c, biased, how), 1.2 * without)
              << keys << ", " << pairs << " pairs "
              << (at == where::high  ? "high"
                  : at == where::low ? "low"
                                     : "both")
              << (how == kvaxis::arithmetic::f32 ? " f32" : " automatic");
        }
      }
    }
  }
}

// What the test above would not let pass.
TEST_P(BiasedKeys, ruin_rotated_keys_and_too_few_hot_pairs) {
  kvaxis::cache_config c = test::rope_shape(1, dim);
  c.window = 0;
  c.pins = 0;
  test::tokens biased(c, count, 11);
  const double without = logit_error("int4-channel64-pre", c, biased, kvaxis::arithmetic::f32);
  add_bias(biased, 8, where::high);
  for (const char* keys : {"int4-channel64-tile", "int4-channel64-hot4"}) {
    EXPECT_GT(logit_error(keys, c, biased, kvaxis::arithmetic::f32), 5 * without) << keys;
  }
}

KVAXIS_ON_EVERY_ISA(BiasedKeys);

}  // namespace
