// The claim that the library rests on, on real keys: at equal bits, 4-bit keys with a scale per channel have at most half the
// logit error of keys with a scale per token.
#include <gtest/gtest.h>

#include <calls.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "policies.hpp"

namespace {

struct header {
  std::int32_t layers, tokens, queries, kv_heads, query_heads, head_dim, interleaved;
};

struct layer {
  std::int32_t number = 0;
  std::vector<kvaxis::float16> keys, values, queries;
};

struct activations {
  header shape{};
  double theta = 0;
  std::vector<layer> layers;
};

// The layout stands in examples/eval/activations.hpp.
activations load() {
  std::ifstream file(std::string(KVAXIS_TEST_DATA) + "/smollm2_activations.bin", std::ios::binary);
  char magic[8] = {};
  activations a;
  file.read(magic, sizeof magic);
  file.read(reinterpret_cast<char*>(&a.shape), sizeof a.shape);
  file.read(reinterpret_cast<char*>(&a.theta), sizeof a.theta);
  if (std::memcmp(magic, "kvaxact1", sizeof magic) != 0) return {};
  const auto read = [&](std::vector<kvaxis::float16>& to, int rows, int heads) {
    to.resize(static_cast<std::size_t>(rows * heads * a.shape.head_dim));
    file.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size() * sizeof to[0]));
  };
  for (int i = 0; i < a.shape.layers; ++i) {
    layer& l = a.layers.emplace_back();
    file.read(reinterpret_cast<char*>(&l.number), sizeof l.number);
    read(l.keys, a.shape.tokens, a.shape.kv_heads);
    read(l.values, a.shape.tokens, a.shape.kv_heads);
    read(l.queries, a.shape.queries, a.shape.query_heads);
  }
  return file ? a : activations{};
}

// All logits of a layer's queries over the keys that each sees.
std::vector<float> logits(const activations& a, const layer& l, const char* policy) {
  kvaxis::cache_config c;
  c.kv_heads = a.shape.kv_heads;
  c.head_dim = a.shape.head_dim;
  c.window = 0;
  c.pins = 0;
  kvaxis::rope_parameters rope;
  rope.head_dim = a.shape.head_dim;
  rope.theta = a.theta;
  rope.layout = kvaxis::rope_layout::interleaved;
  kvaxis::check(kvaxis::make_rope(rope, c.rope));
  kvaxis::any_kv_cache cache = test::cache_of(policy, c);
  kvaxis::check(cache.append(l.keys.data(), l.values.data(), a.shape.tokens));
  kvaxis::check(cache.flush());
  std::vector<float> queries;
  for (const kvaxis::float16 x : l.queries) queries.push_back(kvaxis::to_float(x));
  kvaxis::attend_options options = test::exact();
  options.query_heads = a.shape.query_heads;
  std::vector<std::byte> memory(cache.workspace_bytes(a.shape.queries, options));
  std::vector<float> out(static_cast<std::size_t>(a.shape.queries * a.shape.query_heads * a.shape.tokens));
  kvaxis::check(cache.scores(queries.data(), a.shape.queries, a.shape.tokens - a.shape.queries, options, out.data(),
                             {memory.data(), memory.size()}));
  return out;
}

// Root mean square of the difference over the visible keys, after the mean of each row is taken out: softmax does not see it.
double error(const std::vector<float>& exact, const std::vector<float>& other, int row_length) {
  double total = 0;
  std::size_t count = 0;
  for (std::size_t row = 0; row < exact.size(); row += static_cast<std::size_t>(row_length)) {
    double sum = 0;
    double squares = 0;
    int visible = 0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(row_length); ++i) {
      if (!kvaxis::is_finite(exact[i])) continue;
      const double d = static_cast<double>(other[i]) - static_cast<double>(exact[i]);
      sum += d;
      squares += d * d;
      ++visible;
    }
    total += squares - sum * sum / visible;
    count += static_cast<std::size_t>(visible);
  }
  return std::sqrt(total / static_cast<double>(count));
}

TEST(RealKeys, per_channel_int4_has_at_most_half_the_logit_error_of_per_token_int4) {
  const activations a = load();
  ASSERT_EQ(a.layers.size(), 2U);
  for (const layer& l : a.layers) {
    const std::vector<float> exact = logits(a, l, "k:f32,v:f32");
    const double channel = error(exact, logits(a, l, "k:int4-channel64-pre,v:f32"), a.shape.tokens);
    const double token = error(exact, logits(a, l, "k:int4-token64-pre,v:f32"), a.shape.tokens);
    EXPECT_GT(channel, 0.01) << "layer " << l.number << ": too good to be 4 bits";
    EXPECT_LE(channel, token / 2) << "layer " << l.number;
    std::printf("layer %d: logit error per channel %.4f, per token %.4f\n", l.number, channel, token);
  }
}

}  // namespace
