// B53: the extreme codes of every format in all positions, with queries of both signs; every instruction set against
// the scalar one and against the oracle.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "against_oracle.hpp"

namespace {

struct format {
  const char* side;  // with the scale given, so that numbers are codes
  float low;
  float high;
  float tolerance = 0.0F;  // of a read-back, relative: a group of two numbers holds its minimum and nearly its maximum
};
constexpr format formats[] = {{"int4-tensor@1,-8", -8, 7},
                              {"int8-tensor@1,-128", -128, 127},
                              {"int4s-tensor@1", -7, 7},
                              {"int8s-tensor@1", -127, 127},
                              {"int4f32-tensor@1,-8", -8, 7},
                              {"int8f32-tensor@1,-128", -128, 127},
                              {"e4m3-tensor@1", -448, 448},
                              {"e5m2-tensor@1", -57344, 57344},
                              {"f16-tensor", -65504, 65504},
                              {"bf16-tensor", -3e15F, 3e15F, 0x1p-8F},
                              {"f32-tensor", -1e18F, 1e18F},
                              {"int4-channel64", -15, 15, 0x1p-9F},
                              {"int4-token64", -1000, 5000, 0x1p-9F},
                              {"int8-channel64", -65504, 65504, 0x1p-9F},
                              {"int8-token64", 0, 65504, 0x1p-9F},
                              {"e4m3-channel64", -65504, 65504, 0x1p-9F},
                              {"int4s-token64", -65504, 65504, 0x1p-9F}};

// Which of the two extremes a number takes, by token and channel.
using pattern = std::function<bool(int token, int channel)>;
const std::vector<pattern>& patterns() {
  static const std::vector<pattern> all = {[](int, int) { return false; },
                                           [](int, int) { return true; },
                                           [](int, int c) { return c % 2 == 0; },
                                           [](int t, int) { return t % 2 == 0; },
                                           [](int t, int c) { return (t + c) % 2 == 0; },
                                           [](int t, int c) { return (t / 32 + c / 4) % 2 == 0; },
                                           [](int t, int c) { return t == c; },
                                           [](int t, int c) { return (t * 7 + c * 11) % 16 < 8; }};
  return all;
}

constexpr int dim = 64;
constexpr int tokens = 70;

kvaxis::any_kv_cache filled(const format& f, const pattern& is_high) {
  test::shape s;
  s.kv_heads = 1;
  s.window = 0;
  s.pins = 0;
  const std::string name = "k:" + std::string(f.side) + ",v:" + f.side;
  kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(s, {}));
  std::vector<float> x;
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < dim; ++c) x.push_back(is_high(t, c) ? f.high : f.low);
  }
  kvaxis::check(cache.append(x.data(), x.data(), tokens));
  kvaxis::check(cache.flush());
  return cache;
}

class ExtremeCodes : public ::testing::TestWithParam<format> {};

TEST_P(ExtremeCodes, B53_every_isa_gives_the_scalar_result) {
  const format f = GetParam();
  for (std::size_t p = 0; p < patterns().size(); ++p) {
    SCOPED_TRACE("pattern " + std::to_string(p));
    const kvaxis::any_kv_cache cache = filled(f, patterns()[p]);
    const test::oracle truth(cache, {});
    for (const int group : {1, 2, 4, 7, 8}) {
      std::vector<float> q;
      for (int i = 0; i < group * dim; ++i) q.push_back(i % 3 == 0 ? -1.0F : i % 3 == 1 ? 1.0F : 0.25F);
      kvaxis::attend_options o = test::exact();
      o.query_heads = group;
      o.scale = 1.0F;
      const test::oracle::logits expected = truth.scores(q, 1, tokens, o);
      std::vector<float> weights;
      for (int i = 0; i < group * tokens; ++i) weights.push_back(i % 2 == 0 ? 1.0F : -0.75F);
      const std::vector<double> expected_sums = truth.weighted_sum(weights, 1, group);
      std::vector<float> scalar_scores;
      std::vector<float> scalar_sums;
      for (const kvaxis::isa isa : every_isa()) {
        const isa_scope scope(isa);
        const std::vector<float> scores = test::scores(cache, q, 1, tokens, o);
        const std::vector<float> sums = test::weighted_sum(cache, weights, 1, o);
        if (isa == kvaxis::isa::scalar) {
          scalar_scores = scores;
          scalar_sums = sums;
        }
        for (std::size_t j = 0; j < scores.size(); ++j) {
          const double size = expected.magnitude[j];
          ASSERT_NEAR(static_cast<double>(scores[j]), static_cast<double>(scalar_scores[j]), 1e-5 * size);
          ASSERT_NEAR(static_cast<double>(scores[j]), expected.value[j], test::rounding * size);
        }
        for (std::size_t j = 0; j < sums.size(); ++j) {
          const double size = tokens * truth.largest_value();
          ASSERT_NEAR(static_cast<double>(sums[j]), static_cast<double>(scalar_sums[j]), 1e-5 * size);
          ASSERT_NEAR(static_cast<double>(sums[j]), expected_sums[j], test::rounding * size);
        }
      }
    }
  }
}

// The numbers of a given scale are the codes themselves: they come back exactly, the most negative one included.
TEST_P(ExtremeCodes, B53_read_back) {
  const format f = GetParam();
  for (const pattern& is_high : patterns()) {
    const kvaxis::any_kv_cache cache = filled(f, is_high);
    std::vector<float> row(dim);
    for (int t = 0; t < tokens; ++t) {
      for (const bool keys : {true, false}) {
        kvaxis::check(keys ? cache.read_key(t, 0, row.data()) : cache.read_value(t, 0, row.data()));
        for (int c = 0; c < dim; ++c) {
          const float expected = is_high(t, c) ? f.high : f.low;
          ASSERT_NEAR(row[static_cast<std::size_t>(c)], expected, f.tolerance * std::fabs(expected));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(format, ExtremeCodes, ::testing::ValuesIn(formats), [](const auto& p) {
  std::string name = p.param.side;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

}  // namespace
