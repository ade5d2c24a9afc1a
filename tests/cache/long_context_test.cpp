// Attention's error does not grow with the context: 512, 8192 and 131,072 tokens against double on the same codes.
#include <gtest/gtest.h>

#include <kvaxis/eval/metrics.hpp>
#include <string>
#include <vector>

#include "calls.hpp"
#include "isa_test.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

constexpr int head_dim = 32;
constexpr int query_heads = 4;

double error_of(const std::vector<float>& out, const std::vector<double>& expected) {
  const auto size = static_cast<Eigen::Index>(out.size());
  return kvaxis::relative_error(Eigen::Map<const Eigen::VectorXd>(expected.data(), size),
                                Eigen::Map<const Eigen::VectorXf>(out.data(), size));
}

TEST(LongContext, errors_do_not_grow) {
  kvaxis::cache_config c = test::rope_shape(1, head_dim);
  c.window = 0;
  c.pins = 0;
  const test::tokens data(c, 1024, 5, 2.0F);
  const std::vector<float> q = test::numbers(6).uniforms(query_heads * head_dim, 4.0F);
  kvaxis::attend_options o;
  o.query_heads = query_heads;
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel64-auto,v:int4-token32", c);
  for (const int context : {512, 8192, 131072}) {
    while (cache.size() < context) kvaxis::check(data.append_to(cache, static_cast<int>(cache.size() % 1024), 512));
    kvaxis::check(cache.flush());
    const std::vector<double> expected = test::oracle(cache, c.rope).attend(q, 1, context, o).out;
    for (const kvaxis::isa which : isas_under_test()) {
      const isa_scope scope(which);
      o.arithmetic = kvaxis::arithmetic::f32;
      const double exact = error_of(test::attend(cache, q, 1, context, o).out, expected);
      o.arithmetic = kvaxis::arithmetic::automatic;
      const double rounded = error_of(test::attend(cache, q, 1, context, o).out, expected);
      EXPECT_LT(exact, 4e-6) << isa_name(which) << ", " << context;
      EXPECT_LT(rounded, 0.03) << isa_name(which) << ", " << context;
    }
  }
}

}  // namespace
