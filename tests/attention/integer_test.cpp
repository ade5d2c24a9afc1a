// Integer arithmetic: the kernels give the sums of integers exactly, and what rounding queries and weights, there and in
// binary16, adds to a result stays below a quarter of what the codes themselves err.
#include <gtest/gtest.h>

#include <calls.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <isa_test.hpp>
#include <kvaxis/packing/quads.hpp>
#include <numbers.hpp>
#include <oracle.hpp>
#include <policies.hpp>
#include <string>
#include <tokens.hpp>
#include <vector>

namespace {

using kvaxis::arithmetic;

// A block of codes, bytes for some heads and segments, and where the kernels add.
struct sums_case {
  int bits;
  int rows;
  int lanes;
  int group_length;
  int heads;
  int first_row;
  int end_row;
};

// `extreme`: the largest codes and weights, which no sum on the way may exceed.
void expect_exact_sums(const sums_case& c, bool extreme) {
  const kvaxis::integer_kernels& kernels = kvaxis::detail::active_integer();
  const auto& table = kernels.sums[static_cast<std::size_t>(c.bits)];
  const int index = c.heads >= 8 ? 4 : c.heads - 1;
  if (table[static_cast<std::size_t>(index)] == nullptr) return;  // this instruction set takes f32
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  test::numbers random(static_cast<std::uint64_t>(c.rows * c.lanes + c.heads));
  const auto largest = (1U << c.bits) - 1U;
  std::vector<std::uint32_t> codes(at(c.rows * c.lanes));
  for (std::uint32_t& x : codes)
    x = extreme ? largest : static_cast<std::uint32_t>(random.below(static_cast<int>(largest) + 1));
  const int quad = kvaxis::quad_words(c.bits, c.lanes);
  std::vector<std::uint32_t> words(at(c.rows / 4 * quad));
  for (int q = 0; q < c.rows / 4; ++q) {
    kvaxis::pack_quad(c.bits, c.lanes, codes.data() + q * 4 * c.lanes, words.data() + q * quad);
  }
  const int segments = (c.lanes + c.group_length - 1) / c.group_length;
  std::vector<std::int8_t> bytes(at(segments * c.heads * kvaxis::byte_stride));
  for (std::int8_t& x : bytes) {
    x = static_cast<std::int8_t>(extreme ? -127 : random.below(255) - 127);
  }
  std::vector<kvaxis::byte_weights> weights(at(segments * c.heads));
  for (int i = 0; i < segments * c.heads; ++i) {
    weights[at(i)] = {1.0F, 0.5F, 0};
    for (int row = c.first_row; row < c.end_row; ++row) {
      weights[at(i)].start -= (1 << (c.bits - 1)) * bytes[at(i * kvaxis::byte_stride + row)];
    }
  }
  const int stride = c.lanes + 16;
  std::vector<float> out(at(c.heads * stride), 3.0F);
  kvaxis::integer_request r;
  r.bytes = bytes.data();
  r.weights = weights.data();
  r.heads = c.heads;
  r.out = out.data();
  r.out_stride = stride;
  r.first_row = c.first_row;
  r.end_row = c.end_row;
  const kvaxis::block_view view{words.data(), nullptr, nullptr, c.rows, c.lanes, c.group_length, false};
  for (int h = 0; h < c.heads; h += 8) table[at(index)](view, r, h);
  for (int h = 0; h < c.heads; ++h) {
    for (int lane = 0; lane < stride; ++lane) {
      if (lane >= c.lanes) {
        ASSERT_EQ(out[at(h * stride + lane)], 3.0F) << "behind the last lane";
        continue;
      }
      const int row = lane / c.group_length * c.heads + h;
      std::int64_t sum = weights[at(row)].start;
      for (int i = c.first_row; i < c.end_row; ++i) {
        sum += static_cast<std::int64_t>(codes[at(i * c.lanes + lane)]) * bytes[at(row * kvaxis::byte_stride + i)];
      }
      ASSERT_EQ(out[at(h * stride + lane)], static_cast<float>(sum) + 3.5F)
          << c.bits << " bits, head " << h << ", lane " << lane;
    }
  }
}

class Integer : public isa_test {};

TEST_P(Integer, sums_are_exact) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int heads : {1, 2, 3, 4, 8, 16}) {
      for (const bool extreme : {false, true}) {
        expect_exact_sums({bits, 128, 64, 64, heads, 0, 128}, extreme);
        expect_exact_sums({bits, 576, 32, 32, heads, 0, 576}, extreme);
        expect_exact_sums({bits, 12, 256, 256, heads, 0, 12}, extreme);
        expect_exact_sums({bits, 64, 128, 64, heads, 4, 60}, extreme);
        expect_exact_sums({bits, 32, 96, 64, heads, 0, 32}, extreme);
        expect_exact_sums({bits, 256, 288, 48, heads, 0, 256}, extreme);
        expect_exact_sums({bits, 80, 64, 32, heads, 12, 76}, extreme);
        expect_exact_sums({bits, 576, 32, 32, heads, 572, 576}, extreme);
        if (bits == 8) expect_exact_sums({bits, 96, 80, 16, heads, 0, 96}, extreme);
      }
    }
  }
}

// Root mean square differences of logits and outputs: of `automatic`, or `int8`, to f32 on the same codes, and of those to
// the same on the numbers before quantization.
struct errors {
  double of_rounding = 0;
  double of_codes = 0;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

struct outcome {
  errors logits;
  errors outputs;
};
outcome measure(const std::string& policy, const kvaxis::cache_config& c, const test::tokens& data, int group,
                arithmetic how) {
  const int count = 300;
  kvaxis::any_kv_cache quantized = test::cache_of(policy, c);
  kvaxis::any_kv_cache plain = test::cache_of("k:f32,v:f32", c);
  for (kvaxis::any_kv_cache* cache : {&quantized, &plain}) {
    data.append_all_to(*cache);
    kvaxis::check(cache->flush());
  }
  kvaxis::attend_options o = test::exact();
  o.query_heads = group * c.kv_heads;
  const std::vector<float> q = test::numbers(5).uniforms(static_cast<std::size_t>(o.query_heads * c.head_dim), 2.0F);
  const std::vector<float> truth = test::scores(plain, q, 1, count, o);
  const std::vector<float> exact = test::scores(quantized, q, 1, count, o);
  const std::vector<float> exact_out = test::attend(quantized, q, 1, count, o).out;
  const std::vector<float> true_out = test::attend(plain, q, 1, count, o).out;
  o.arithmetic = how;
  outcome r;
  r.logits = {distance(test::scores(quantized, q, 1, count, o), exact), distance(exact, truth)};
  r.outputs = {distance(test::attend(quantized, q, 1, count, o).out, exact_out), distance(exact_out, true_out)};
  return r;
}

TEST_P(Integer, rounding_adds_less_than_a_quarter) {
  for (const char* policy : {"k:int4-channel64-auto,v:int4-token64", "k:int4-channel32-tile,v:int4-token16",
                             "k:int4-channel64-hot3,v:int4-token32", "k:int4s-channel128-tile,v:int4s-token64",
                             "k:int8-channel64-tile,v:int8-token64", "k:int4f32-channel256-auto,v:int8s-token128",
                             "k:int3-channel64-auto,v:int3-token64", "k:int5-channel64-tile,v:int5-token64",
                             "k:int6-channel64-hot2,v:int6-token32", "k:int2-channel64-auto-lsq,v:int2-token32-lsq",
                             "k:int4-channel64-hot2x6,v:int3-hadamard-token64", "k:int4-channel64-pre,v:int4-token64",
                             "k:e4m3-channel64-pre,v:e4m3-token64", "k:e4m3-channel32-auto,v:e4m3-token16",
                             "k:e4m3-channel128-tile,v:e4m3-token128"}) {
    for (const int dim : {8, 64, 80, 128, 576}) {
      for (const int group : {1, 3, 4, 9}) {
        kvaxis::cache_config c = test::rope_shape(2, dim);
        c.window = 0;
        c.pins = 0;
        const test::tokens data(c, 300, 7);
        const outcome r = measure(policy, c, data, group, arithmetic::automatic);
        EXPECT_LT(r.logits.of_rounding, 0.3 * r.logits.of_codes) << policy << ", dim " << dim << ", group " << group;
        EXPECT_LT(r.outputs.of_rounding, 0.5 * r.outputs.of_codes) << policy << ", dim " << dim << ", group " << group;
      }
    }
  }
}

// One cold channel with most of the folded query: a byte is too coarse for the others, and `automatic` adds a second.
TEST_P(Integer, outliers_get_a_second_limb) {
  kvaxis::cache_config c = test::rope_shape(1, 256);
  c.window = 0;
  c.pins = 0;
  test::tokens data(c, 300, 8);
  for (int t = 0; t < 300; ++t) {
    data.k[static_cast<std::size_t>(t * 256 + 127)] *= 60.0F;  // the slowest pair, which rotation hardly moves
  }
  const char* policy = "k:int4-channel64-tile,v:int4-token64";
  const outcome one = measure(policy, c, data, 4, arithmetic::int8);
  const outcome two = measure(policy, c, data, 4, arithmetic::automatic);
  // The outlier's own code error hides much: what counts is the rounding.
  EXPECT_LT(two.logits.of_rounding, 0.6 * one.logits.of_rounding);
  EXPECT_LT(two.logits.of_rounding, 0.25 * two.logits.of_codes);
}

KVAXIS_ON_EVERY_ISA(Integer);

#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
// Sums of integers are exact however they are taken: two blocks of eight query heads and one head.
TEST(IntegerUnits, matrix_products_change_no_bit) {
  if (!kvaxis::has_isa(kvaxis::isa::avx512_amx)) return;
  for (const char* policy : {"k:int4-channel64-auto,v:int4-token32", "k:int8-channel32-tile,v:int8-token16",
                             "k:int3-channel128-hot2x5,v:int2-token32", "k:int5-channel64-auto,v:int6-token64"}) {
    for (const int dim : {80, 96, 576}) {
      SCOPED_TRACE(std::string(policy) + ", dim " + std::to_string(dim));
      kvaxis::cache_config c = test::rope_shape(1, dim);
      c.window = 0;
      c.pins = 0;
      const test::tokens data(c, 300, 9);
      kvaxis::any_kv_cache cache = test::cache_of(policy, c);
      data.append_all_to(cache);
      kvaxis::check(cache.flush());
      kvaxis::attend_options o = test::exact();
      o.arithmetic = arithmetic::automatic;
      o.query_heads = 17;
      o.sliding_window = 250;  // sums over a part of a tile
      const std::vector<float> q = test::numbers(6).uniforms(static_cast<std::size_t>(o.query_heads * dim), 2.0F);
      const auto result_on = [&](kvaxis::isa which) {
        const isa_scope scope(which);
        return test::attend(cache, q, 1, 300, o).out;
      };
      EXPECT_EQ(result_on(kvaxis::isa::avx512_amx), result_on(kvaxis::isa::avx512_fp16));
    }
  }
}
#endif

}  // namespace
