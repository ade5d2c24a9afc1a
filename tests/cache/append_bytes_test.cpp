// Appended and folded bytes, answers and counts are those of the scalar code on every instruction set: every element
// type, both types of full-precision rows, dims with and without a rest of a vector, bad numbers at every place.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <isa_test.hpp>
#include <limits>
#include <string>
#include <vector>

#include "policies.hpp"
#include "tokens.hpp"

namespace {

class AppendBytes : public isa_test {};

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

// What an append leaves behind.
struct outcome {
  kvaxis::status answer;
  std::string contents;
};

void expect_equal(const outcome& got, const outcome& want) {
  ASSERT_EQ(got.answer.code, want.answer.code);
  ASSERT_STREQ(got.answer.argument, want.answer.argument);
  ASSERT_EQ(got.answer.limit, want.answer.limit);
  ASSERT_TRUE(got.contents == want.contents);
}

outcome append(const char* name, const kvaxis::cache_config& c, const kvaxis::rows& k, const kvaxis::rows& v, int n,
               kvaxis::isa isa) {
  const isa_scope scope(isa);
  kvaxis::any_kv_cache cache = test::cache_of(name, c);
  const kvaxis::status answer = cache.append(k, v, n);
  return {answer, test::contents(cache)};
}

void expect_append(const char* name, const kvaxis::cache_config& c, const kvaxis::rows& k, const kvaxis::rows& v,
                   int n) {
  expect_equal(append(name, c, k, v, n, kvaxis::active_isa()), append(name, c, k, v, n, kvaxis::isa::scalar));
}

TEST_P(AppendBytes, every_element_type_policy_and_shape) {
  for (const char* const name :
       {"k:int4-channel64-pre,v:int4-token64", "k:int4-channel32-auto,v:int8-channel32",
        "k:int8s-channel64-hot4,v:int4s-token16", "k:int4-token64-tile,v:e4m3-token32", "k:f16-post,v:bf16",
        "k:e5m2-channel64-tile,v:int4f32-token64", "k:f32-tile,v:f32",
        "k:int3-channel64-auto-lsq,v:int2-hadamard-token16-lsq", "k:int4-channel64-hot2x6-lsq,v:int5s-token32-lsq",
        "k:int6-token32-tile,v:int3-channel32"}) {
    for (const auto& [key_dim, value_dim] : {std::pair{128, 128}, {80, 96}, {23, 41}, {8, 8}, {46, 576}}) {
      for (const bool half_window : {false, true}) {
        SCOPED_TRACE(std::string(name) + " dims " + std::to_string(key_dim) + " " + std::to_string(value_dim));
        kvaxis::cache_config c = test::rope_shape(2, key_dim, value_dim);
        c.half_window = half_window;
        c.window = 40;
        const test::tokens data(c, 200, 17, 3.0F);
        std::vector<kvaxis::float16> half_k, half_v;
        std::vector<kvaxis::bfloat16> brain_k, brain_v;
        for (const float x : data.k) half_k.push_back(kvaxis::to_float16(x)), brain_k.push_back(kvaxis::to_bfloat16(x));
        for (const float x : data.v) half_v.push_back(kvaxis::to_float16(x)), brain_v.push_back(kvaxis::to_bfloat16(x));
        expect_append(name, c, data.k.data(), data.v.data(), 200);
        expect_append(name, c, half_k.data(), half_v.data(), 200);
        expect_append(name, c, brain_k.data(), brain_v.data(), 200);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(AppendBytes, a_bad_number_at_every_place) {
  constexpr int dim = 46;
  for (const bool refuse : {false, true}) {
    for (const bool half_window : {false, true}) {
      kvaxis::cache_config c = test::rope_shape(2, dim);
      c.half_window = half_window;
      c.non_finite = c.out_of_range = refuse ? kvaxis::on_bad_input::refuse : kvaxis::on_bad_input::replace;
      test::tokens data(c, 3, 18);
      for (std::size_t i = 0; i < data.k.size(); ++i) {
        for (const float bad : {nan, -nan, infinity, -infinity, 65505.0F, -1e30F}) {
          for (std::vector<float>* x : {&data.k, &data.v}) {
            const float good = (*x)[i];
            (*x)[i] = bad;
            expect_append("k:int4-channel32-pre,v:int4s-token32", c, data.k.data(), data.v.data(), 3);
            if (HasFatalFailure()) return;
            (*x)[i] = good;
          }
        }
      }
    }
  }
}

KVAXIS_ON_EVERY_ISA(AppendBytes);

}  // namespace
