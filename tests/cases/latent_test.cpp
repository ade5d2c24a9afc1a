// B61: keys and values of different sizes, and values that are the first channels of the key. Everything reads back
// within its own group's bound, and attention is that of what reads back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "calls.hpp"
#include "isa_test.hpp"
#include "oracle.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

class KeyAndValueSizes : public isa_test {};
KVAXIS_ON_EVERY_ISA(KeyAndValueSizes);

constexpr int tokens = 100;

struct layer {
  int head_dim;
  int value_dim;
  int rotary;  // the last channels
  std::string policy;
  int query_heads;
  float scale;
};

// The largest error of numbers of this range in asymmetric codes with parameters in binary16.
double affine_bound(int bits, float low, float high) {
  const double range = static_cast<double>(high) - static_cast<double>(low);
  const double largest = std::max(std::fabs(static_cast<double>(low)), std::fabs(static_cast<double>(high)));
  return range / (std::exp2(bits) - 1) / 2 * 1.02 + std::exp2(-11) * (largest + range);
}

void expect_reads_back_and_agrees(const layer& l) {
  SCOPED_TRACE(l.policy + ' ' + std::to_string(l.head_dim) + '/' + std::to_string(l.value_dim));
  kvaxis::cache_config c = test::shape(1, l.head_dim, l.value_dim);
  c.window = 0;
  c.pins = 0;
  kvaxis::rope_parameters rope;
  rope.head_dim = l.head_dim;
  rope.first_channel = l.head_dim - l.rotary;
  rope.layout = kvaxis::rope_layout::interleaved;
  kvaxis::check(kvaxis::make_rope(rope, c.rope));
  kvaxis::any_kv_cache cache = test::cache_of(l.policy, c);
  const test::tokens data(c, tokens, 61);
  data.append_all_to(cache);
  ASSERT_GT(cache.folded_tokens(), 0);
  ASSERT_GT(cache.exact_tokens(), 0);

  // Uniform numbers within +-1, so 2 is the range of every group; pairs that are stored rotated reach sqrt(2).
  const int bits = l.policy.find("int8") != std::string::npos ? 8 : 4;
  const double half_step = affine_bound(bits, -1.0F, 1.0F);
  const double turned = 2 * affine_bound(bits, -1.4143F, 1.4143F);
  const bool is_latent = cache.format()->is_latent();
  std::vector<float> row(static_cast<std::size_t>(std::max(l.head_dim, l.value_dim)));
  for (int t = 0; t < tokens; ++t) {
    kvaxis::check(cache.read_key(t, 0, row.data()));
    for (int d = 0; d < l.head_dim; ++d) {
      const double bound = d < l.head_dim - l.rotary ? half_step : turned;
      ASSERT_NEAR(row[static_cast<std::size_t>(d)], data.key(t)[d], bound) << "key " << t << ' ' << d;
    }
    kvaxis::check(cache.read_value(t, 0, row.data()));
    const float* value = is_latent ? data.key(t) : data.value(t);
    for (int d = 0; d < l.value_dim; ++d) {
      ASSERT_NEAR(row[static_cast<std::size_t>(d)], value[d], half_step) << "value " << t << ' ' << d;
    }
  }

  kvaxis::attend_options o = test::exact();
  o.query_heads = l.query_heads;
  o.scale = l.scale;
  const std::vector<float> q =
      test::numbers(3).uniforms(static_cast<std::size_t>(2 * l.query_heads * l.head_dim), 2.0F);
  const test::attention got = test::attend(cache, q, 2, 98, o);
  const test::oracle oracle(cache, c.rope);
  const test::oracle::result want = oracle.attend(q, 2, 98, o);
  for (std::size_t i = 0; i < got.out.size(); ++i) ASSERT_NEAR(got.out[i], want.out[i], oracle.output_bound()) << i;
  for (std::size_t i = 0; i < got.lse.size(); ++i) ASSERT_NEAR(got.lse[i], want.lse[i], 1e-4) << i;
}

// The MQA mapping of DeepSeek's MLA: all query heads on one row of 512 latent and 64 rotated channels.
TEST_P(KeyAndValueSizes, B61_latent_of_512_in_a_key_of_576) {
  const float scale = 1.0F / std::sqrt(192.0F);
  for (const char* keys : {"int4-channel64-pre", "int4-channel64-auto", "int8-channel64-tile", "int4-token64-pre",
                           "int8-token64-tile", "int8-channel32-hot4"}) {
    expect_reads_back_and_agrees({576, 512, 64, "k:" + std::string(keys) + ",v:latent", 16, scale});
    if (HasFatalFailure()) return;
  }
}

// The GQA mapping of the same model, decompressed; and values longer than keys.
TEST_P(KeyAndValueSizes, B61_values_shorter_and_longer_than_keys) {
  for (const char* policy : {"k:int4-channel64-pre,v:int4-token64", "k:int8-channel64-auto,v:int8-token32",
                             "k:int4-token64-tile,v:int4-channel64"}) {
    expect_reads_back_and_agrees({192, 128, 64, policy, 4, 0.0F});
    expect_reads_back_and_agrees({64, 256, 64, policy, 4, 0.0F});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
