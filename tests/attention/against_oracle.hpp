// The three calls of attention on one cache, on every instruction set, against the same in double on what the cache
// reads back. The bounds are the rounding of f32 sums, not the errors of the codecs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <calls.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <isa_test.hpp>
#include <numbers.hpp>
#include <oracle.hpp>
#include <policies.hpp>
#include <string>
#include <vector>

namespace test {

struct shape {
  int kv_heads = 2;
  int head_dim = 64;
  int value_dim = 0;
  int tokens = 150;
  int window = 16;
  int pins = 4;
  bool half_window = false;
};

inline kvaxis::cache_config config_of(const shape& s, const kvaxis::rope& rope = {}) {
  kvaxis::cache_config c;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.value_dim = s.value_dim;
  c.window = s.window;
  c.pins = s.pins;
  c.half_window = s.half_window;
  c.rope = rope;
  return c;
}

inline kvaxis::rope rope_of(int head_dim, int rotary_dim = 0, int first_channel = 0,
                            kvaxis::rope_layout layout = kvaxis::rope_layout::half_split) {
  kvaxis::rope_parameters p;
  p.head_dim = head_dim;
  p.rotary_dim = rotary_dim;
  p.first_channel = first_channel;
  p.layout = layout;
  kvaxis::rope r;
  kvaxis::check(kvaxis::make_rope(p, r));
  return r;
}

// Uniform numbers within +-3.
inline void append_random(kvaxis::any_kv_cache& cache, int tokens, std::uint64_t seed,
                          std::int64_t first_position = kvaxis::next) {
  const kvaxis::tile_format& f = *cache.format();
  numbers random(seed);
  const auto rows = static_cast<std::size_t>(tokens * f.kv_heads);
  const std::vector<float> k = random.uniforms(rows * static_cast<std::size_t>(f.head_dim), 3.0F);
  const std::vector<float> v = random.uniforms(rows * static_cast<std::size_t>(f.value_dim), 3.0F);
  kvaxis::check(
      cache.append(k.data(), f.is_latent() ? kvaxis::rows() : kvaxis::rows(v.data()), tokens, first_position));
}

struct question {
  int group = 1;  // query heads per kv head
  int n_query = 1;
  std::int64_t first_position = 0;
  float scale = 0.0F;
  float soft_cap = 0.0F;
  float amplitude = 2.0F;  // of the queries
};

// What f32 may add to the errors of its operands: the sums run over at most 576 products or some hundred tokens.
constexpr double rounding = 1.5e-6;

class agreement {
 public:
  agreement(const kvaxis::any_kv_cache& cache, const kvaxis::rope& rope) : cache_(cache), truth_(cache, rope) {}

  [[nodiscard]] const oracle& truth() const { return truth_; }

  void expect(const question& ask, std::uint64_t seed = 1) const {
    const kvaxis::tile_format& f = *cache_.format();
    kvaxis::attend_options o = test::exact();
    o.query_heads = ask.group * f.kv_heads;
    o.scale = ask.scale;
    o.soft_cap = ask.soft_cap;
    numbers random(seed);
    const auto rows = static_cast<std::size_t>(ask.n_query * o.query_heads);
    const std::vector<float> q = random.uniforms(rows * static_cast<std::size_t>(f.head_dim), ask.amplitude);
    const std::vector<float> weights = random.uniforms(rows * static_cast<std::size_t>(cache_.size()));
    const oracle::logits logits = truth_.scores(q, ask.n_query, ask.first_position, o);
    const oracle::result result = truth_.attend(q, ask.n_query, ask.first_position, o);
    const std::vector<double> sums = truth_.weighted_sum(weights, ask.n_query, o.query_heads);
    double top = 0;
    for (const double m : logits.magnitude) top = std::max(top, m);
    const double of_logit = rounding * top + 4e-7 * static_cast<double>(ask.soft_cap);
    for (const kvaxis::isa isa : isas_under_test()) {
      const isa_scope scope(isa);
      SCOPED_TRACE(std::string(kvaxis::isa_name(isa)) + ", group " + std::to_string(ask.group));
      const std::vector<float> got = scores(cache_, q, ask.n_query, ask.first_position, o);
      ASSERT_EQ(got.size(), logits.value.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (logits.value[i] < -1e300) {
          ASSERT_EQ(kvaxis::float_bits(got[i]), 0xFF800000U) << "a masked logit, " << i;
        } else {
          const double bound = rounding * logits.magnitude[i] + 4e-7 * static_cast<double>(ask.soft_cap) + 1e-37;
          ASSERT_NEAR(static_cast<double>(got[i]), logits.value[i], bound) << "logit " << i;
        }
      }
      const attention a = attend(cache_, q, ask.n_query, ask.first_position, o);
      expect_near(a.out, result.out, truth_.largest_value() * (3e-6 + 2 * of_logit) + 1e-37, "output");
      for (std::size_t i = 0; i < a.lse.size(); ++i) {
        if (result.lse[i] < -1e300) {
          ASSERT_EQ(kvaxis::float_bits(a.lse[i]), 0xFF800000U);
        } else {
          ASSERT_NEAR(static_cast<double>(a.lse[i]), result.lse[i], of_logit + 1e-6 * (1 + std::fabs(result.lse[i])));
        }
      }
      const double all = static_cast<double>(cache_.size()) * truth_.largest_value();
      expect_near(weighted_sum(cache_, weights, ask.n_query, o), sums, 5e-7 * all + 1e-37, "weighted sum");
    }
  }

 private:
  static void expect_near(const std::vector<float>& got, const std::vector<double>& expected, double bound,
                          const char* what) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(got[i]), expected[i], bound) << what << ' ' << i;
    }
  }

  const kvaxis::any_kv_cache& cache_;
  oracle truth_;
};

}  // namespace test
