// Hot pairs with more bits than the others, and Hadamard transforms: that they are where they should be and do what they are
// for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <kvaxis/quantizers/hadamard.hpp>
#include <numbers.hpp>
#include <vector>

#include "tile_under_test.hpp"

namespace {

using kvaxis::int4;
using kvaxis::int6;

constexpr int dim = 64;
constexpr int tokens = 64;

kvaxis::format_request request_of(const kvaxis::codec_table& keys, int rotation, const kvaxis::codec_table& values,
                                  const kvaxis::rope& rope) {
  kvaxis::format_request q;
  q.kv_heads = 1;
  q.head_dim = q.value_dim = dim;
  q.tokens = tokens;
  q.rope = &rope;
  q.key.codec = &keys;
  q.key.policy = {kvaxis::axis::channel, tokens, rotation};
  q.value.codec = &values;
  q.value.policy = {kvaxis::axis::token, 64};
  return q;
}

// Channels of different sizes: pair i (channels i and i + 32) has the size of 1 + (7 i) % 32.
std::vector<float> keys_of(std::uint64_t seed) {
  test::numbers random(seed);
  std::vector<float> out;
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < dim; ++c) out.push_back(random.bell() * static_cast<float>(1 + 7 * (c % 32) % 32));
  }
  return out;
}

void fill(test::tile_under_test& tile, const std::vector<float>& keys, const std::vector<float>& values) {
  for (int t = 0; t < tokens; ++t) {
    tile.set_key(0, t, keys.data() + t * dim);
    tile.set_value(0, t, values.data() + t * dim);
  }
  tile.fold(tokens);
}

// Root mean square error of channel c.
double key_error(const test::tile_under_test& tile, const std::vector<float>& keys, int c) {
  double sum = 0;
  for (int t = 0; t < tokens; ++t) {
    const std::vector<float> back = tile.key(0, t);
    sum += std::pow(static_cast<double>(back[static_cast<std::size_t>(c)]) -
                        static_cast<double>(keys[static_cast<std::size_t>(t * dim + c)]),
                    2);
  }
  return std::sqrt(sum / tokens);
}

TEST(HotBits, the_widest_pairs_have_them) {
  const kvaxis::rope rope = test::make_rope(dim);
  const std::vector<float> keys = keys_of(1);
  test::tile_under_test tile(
      request_of(test::scalar_table<kvaxis::wide_pairs<int4, int6>>, 5, test::scalar_table<int4>, rope));
  fill(tile, keys, keys);
  test::tile_under_test plain(request_of(test::scalar_table<int4>, kvaxis::pre, test::scalar_table<int4>, rope));
  fill(plain, keys, keys);
  std::vector<double> ranges;
  for (int pair = 0; pair < 32; ++pair) {
    double sum = 0;
    for (const int c : {pair, pair + 32}) {
      float low = keys[static_cast<std::size_t>(c)];
      float high = low;
      for (int t = 0; t < tokens; ++t) {
        low = std::min(low, keys[static_cast<std::size_t>(t * dim + c)]);
        high = std::max(high, keys[static_cast<std::size_t>(t * dim + c)]);
      }
      sum += std::pow(static_cast<double>(high - low), 2);
    }
    ranges.push_back(sum);
  }
  std::vector<double> sorted = ranges;
  std::sort(sorted.rbegin(), sorted.rend());
  int hot = 0;
  for (int pair = 0; pair < 32; ++pair) {
    const bool is_hot = (tile.folded().wide_mask(0)[0] >> pair & 1U) != 0;
    hot += is_hot ? 1 : 0;
    EXPECT_EQ(is_hot, ranges[static_cast<std::size_t>(pair)] >= sorted[4]) << pair;
    for (const int c : {pair, pair + 32}) {
      if (!is_hot) continue;
      EXPECT_NEAR(key_error(plain, keys, c) / key_error(tile, keys, c), 63.0 / 15, 1.0) << c;
    }
  }
  EXPECT_EQ(hot, 5);
}

TEST(HotBits, count_in_the_bits) {
  using keys = kvaxis::per_channel<kvaxis::wide_pairs<int4, int6>, 64, 8>;
  // 16 of 128 rows with 2 more bits, and two masks of 64 bits for 64 x 128 numbers.
  EXPECT_DOUBLE_EQ(kvaxis::bits_per_value<keys>(128), 4.5 + 2.0 * 16 / 128 + 128.0 / (64 * 128));
  using odd = kvaxis::per_channel<kvaxis::wide_pairs<kvaxis::int3, kvaxis::int4>, 64, 3>;
  // Pads to a multiple of 4 rows, and the block to 64 bytes.
  EXPECT_DOUBLE_EQ(kvaxis::bits_per_value<odd>(64), 3.5 + 8.0 / 64 + 64.0 / (64 * 64));
}

// One channel of the values is large in every token: alone it sets the step of its group.
TEST(Hadamard, spreads_a_large_channel_of_the_values) {
  const kvaxis::rope rope = test::make_rope(dim);
  test::numbers random(2);
  std::vector<float> values = random.bells(tokens * dim);
  for (int t = 0; t < tokens; ++t) values[static_cast<std::size_t>(t * dim + 11)] += 20.0F;
  const auto error = [&](const kvaxis::codec_table& codec) {
    test::tile_under_test tile(request_of(test::scalar_table<int4>, kvaxis::pre, codec, rope));
    fill(tile, values, values);
    double sum = 0;
    for (int t = 0; t < tokens; ++t) {
      const std::vector<float> back = tile.value(0, t);
      for (int c = 0; c < dim; ++c) {
        sum += std::pow(static_cast<double>(back[static_cast<std::size_t>(c)]) -
                            static_cast<double>(values[static_cast<std::size_t>(t * dim + c)]),
                        2);
      }
    }
    return std::sqrt(sum / (tokens * dim));
  };
  const double with = error(test::scalar_table<kvaxis::with_hadamard<int4>>);
  EXPECT_LT(with, 0.6 * error(test::scalar_table<int4>));
  EXPECT_GT(with, 0.0);
}

}  // namespace
