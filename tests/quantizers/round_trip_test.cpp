// Quantizing a matrix without a cache: the same numbers as the cache reads back, for groups of any length.
#include <gtest/gtest.h>

#include <kvaxis/quantizers/round_trip.hpp>
#include <policies.hpp>
#include <random>
#include <vector>

namespace {

using kvaxis::per_channel;
using kvaxis::per_tensor;
using kvaxis::per_token;

// Numbers whose spread differs between channels.
std::vector<float> matrix(int tokens, int channels) {
  std::mt19937 random(static_cast<unsigned>(tokens * 1000 + channels));
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> out(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto channel = static_cast<int>(i) % channels;
    out[i] = uniform(random) * static_cast<float>(1 + channel % 7) + static_cast<float>(channel % 3);
  }
  return out;
}

template <class Policy>
std::vector<float> decoded(const std::vector<float>& x, int tokens, int channels) {
  std::vector<float> out(x.size());
  const kvaxis::status s = kvaxis::round_trip<Policy>(x.data(), tokens, channels, out.data());
  EXPECT_TRUE(s.ok()) << s.argument;
  return out;
}

template <class Policy>
std::vector<float> decoded(const std::vector<float>& x, int tokens, int channels, float scale) {
  std::vector<float> out(x.size());
  const kvaxis::status s = kvaxis::round_trip<Policy>(x.data(), tokens, channels, scale, out.data());
  EXPECT_TRUE(s.ok()) << s.argument;
  return out;
}

TEST(RoundTrip, B59_the_axes_by_example) {
  const std::vector<float> x = {1, 14, 3,  4,  //
                                5, 7,  -7, 0};
  // A column has one scale: 14/7 = 2 for the second (7 is 3.5 steps, to even 4), 7/7 = 1 for the third.
  const std::vector<float> by_channel = decoded<per_channel<kvaxis::int4s, 2>>(x, 2, 4);
  EXPECT_EQ(by_channel[1], 14);
  EXPECT_EQ(by_channel[5], 8);
  EXPECT_EQ(by_channel[2], 3);
  EXPECT_EQ(by_channel[6], -7);
  // A row has one scale: 2 for the first, 1 for the second.
  const std::vector<float> by_token = decoded<per_token<kvaxis::int4s, 16>>(x, 2, 4);
  EXPECT_EQ(by_token, (std::vector<float>{0, 14, 4, 4, 5, 7, -7, 0}));
}

// 64 tokens fill one tile; D = 80 makes a short second group of channels.
constexpr int tile = 64;
constexpr int dim = 80;

std::vector<float> read_back(const std::string& policies, const std::vector<float>& x, bool keys) {
  kvaxis::cache_config config;
  config.kv_heads = 1;
  config.head_dim = dim;
  config.window = 0;
  config.pins = 0;
  kvaxis::any_kv_cache cache = test::cache_of(policies, config);
  kvaxis::check(cache.append(x.data(), x.data(), tile));
  EXPECT_EQ(cache.folded_tokens(), tile);
  std::vector<float> out(x.size());
  for (int t = 0; t < tile; ++t) {
    kvaxis::check(keys ? cache.read_key(t, 0, out.data() + t * dim) : cache.read_value(t, 0, out.data() + t * dim));
  }
  return out;
}

template <class Codec>
class RoundTripCodec : public ::testing::Test {};
using codecs = ::testing::Types<kvaxis::int4, kvaxis::int8, kvaxis::int4s, kvaxis::int8s, kvaxis::int4f32,
                                kvaxis::int8f32, kvaxis::e4m3, kvaxis::e5m2, kvaxis::f32, kvaxis::f16, kvaxis::bf16>;
TYPED_TEST_SUITE(RoundTripCodec, codecs);

TYPED_TEST(RoundTripCodec, is_what_a_cache_reads_back) {
  const std::vector<float> x = matrix(tile, dim);
  const std::string name = TypeParam::name;
  const std::string channel = "k:" + name + "-channel64,v:" + name + "-channel64";
  const std::vector<float> by_channel = decoded<per_channel<TypeParam, 64>>(x, tile, dim);
  EXPECT_EQ(by_channel, read_back(channel, x, true));
  EXPECT_EQ(by_channel, read_back(channel, x, false));
  const std::string token = "k:" + name + "-token64,v:" + name + "-token64";
  const std::vector<float> by_token = decoded<per_token<TypeParam, 64>>(x, tile, dim);
  EXPECT_EQ(by_token, read_back(token, x, true));
  EXPECT_EQ(by_token, read_back(token, x, false));
}

TYPED_TEST(RoundTripCodec, a_given_scale_is_what_a_cache_reads_back) {
  const std::vector<float> x = matrix(tile, dim);
  const std::string name = TypeParam::name;
  if constexpr (kvaxis::codec_parameters<TypeParam>::members == 0) {
    EXPECT_EQ(decoded<per_tensor<TypeParam>>(x, tile, dim), read_back("k:" + name + ",v:" + name, x, true));
  } else {
    // A positive range, so that numbers of an asymmetric codec stay inside without an offset.
    std::vector<float> positive = x;
    for (float& v : positive) v = v < 0 ? -v : v;
    const std::string policies = "k:" + name + "-tensor@2.0,v:" + name + "-tensor@2.0";
    EXPECT_EQ(decoded<per_tensor<TypeParam>>(positive, tile, dim, 2.0F), read_back(policies, positive, true));
  }
}

TEST(RoundTrip, groups_of_any_length_are_independent) {
  constexpr int tokens = 23;
  constexpr int channels = 100;
  const std::vector<float> x = matrix(tokens, channels);
  const std::vector<float> by_channel = decoded<per_channel<kvaxis::int4, 7>>(x, tokens, channels);
  for (int begin = 0; begin < tokens; begin += 7) {
    const int n = std::min(7, tokens - begin);
    const std::vector<float> part(x.begin() + begin * channels, x.begin() + (begin + n) * channels);
    const std::vector<float> alone = decoded<per_channel<kvaxis::int4, 1000>>(part, n, channels);
    EXPECT_EQ(alone,
              std::vector<float>(by_channel.begin() + begin * channels, by_channel.begin() + (begin + n) * channels));
  }
  const std::vector<float> by_token = decoded<per_token<kvaxis::int4, 48>>(x, tokens, channels);
  for (int t = 0; t < tokens; ++t) {
    for (int begin = 0; begin < channels; begin += 48) {
      const int n = std::min(48, channels - begin);
      const auto first = x.begin() + t * channels + begin;
      const std::vector<float> alone = decoded<per_token<kvaxis::int4, 1008>>({first, first + n}, 1, n);
      for (int i = 0; i < n; ++i) {
        EXPECT_EQ(alone[static_cast<std::size_t>(i)], by_token[static_cast<std::size_t>(t * channels + begin + i)]);
      }
    }
  }
}

TEST(RoundTrip, works_in_place) {
  const std::vector<float> x = matrix(10, 33);
  std::vector<float> y = x;
  kvaxis::check(kvaxis::round_trip<per_channel<kvaxis::int8, 4>>(y.data(), 10, 33, y.data()));
  EXPECT_EQ(y, (decoded<per_channel<kvaxis::int8, 4>>(x, 10, 33)));
  EXPECT_NE(y, x);
}

TEST(RoundTrip, a_given_scale_saturates) {
  const std::vector<float> x = {500, -500, 3, 0};
  EXPECT_EQ((decoded<per_tensor<kvaxis::e4m3>>(x, 1, 4, 1.0F)), (std::vector<float>{448, -448, 3, 0}));
  EXPECT_EQ((decoded<per_tensor<kvaxis::int8s>>(x, 1, 4, 0.5F)), (std::vector<float>{63.5F, -63.5F, 3, 0}));
}

void expect_refused(const kvaxis::status& s, kvaxis::errc code, const char* argument, std::int64_t limit) {
  EXPECT_EQ(s.code, code);
  EXPECT_STREQ(s.argument, argument);
  EXPECT_EQ(s.limit, limit);
}

TEST(RoundTrip, refuses_what_it_cannot_do) {
  using policy = per_channel<kvaxis::int4, 4>;
  std::vector<float> x = matrix(4, 16);
  std::vector<float> out(x.size(), 7.0F);
  const auto run = [&](int tokens, int channels) {
    return kvaxis::round_trip<policy>(x.data(), tokens, channels, out.data());
  };
  expect_refused(run(0, 16), kvaxis::errc::out_of_range, "tokens", 1);
  expect_refused(run(4, -1), kvaxis::errc::out_of_range, "channels", 1);
  expect_refused(kvaxis::round_trip<policy>(nullptr, 4, 16, out.data()), kvaxis::errc::invalid_argument, "x", 0);
  expect_refused(kvaxis::round_trip<policy>(x.data(), 4, 16, nullptr), kvaxis::errc::invalid_argument, "out", 0);
  x[40] = -65520.0F;
  expect_refused(run(4, 16), kvaxis::errc::out_of_range, "x", 65504);
  x[40] = kvaxis::bits_float(0x7FC00000U);
  expect_refused(run(4, 16), kvaxis::errc::non_finite, "x", 2);
  using fp8 = per_tensor<kvaxis::e4m3>;
  x[40] = 1.0F;
  expect_refused(kvaxis::round_trip<fp8>(x.data(), 4, 16, 0.0F, out.data()), kvaxis::errc::invalid_argument, "scale",
                 0);
  x[0] = 3e38F;
  using wide = per_channel<kvaxis::int4f32, 4>;
  expect_refused(kvaxis::round_trip<wide>(x.data(), 4, 16, out.data()), kvaxis::errc::out_of_range, "x", INT64_MAX);
  EXPECT_EQ(out, std::vector<float>(x.size(), 7.0F));
}

TEST(RoundTrip, bits_count_the_parameters_of_every_group) {
  static_assert(kvaxis::group_bits<per_channel<kvaxis::int4, 512>>(512, 128) == 4.0625);
  static_assert(kvaxis::group_bits<per_token<kvaxis::int4, 128>>(512, 128) == 4.25);
  static_assert(kvaxis::group_bits<per_token<kvaxis::int4, 64>>(512, 128) == 4.5);
  static_assert(kvaxis::group_bits<per_channel<kvaxis::int4f32, 64>>(512, 128) == 5.0);
  static_assert(kvaxis::group_bits<per_channel<kvaxis::e4m3, 64>>(512, 128) == 8.25);
  static_assert(kvaxis::group_bits<per_tensor<kvaxis::e4m3>>(512, 128) == 8.0);
  static_assert(kvaxis::group_bits<per_token<kvaxis::f16, 64>>(512, 128) == 16.0);
  EXPECT_DOUBLE_EQ((kvaxis::group_bits<per_token<kvaxis::int4, 64>>(1, 80)), 4 + 2 * 32 / 80.0);  // 64 + 16 channels
  EXPECT_EQ((kvaxis::group_bits<per_channel<kvaxis::int4, 64>>(64, 128)),
            (kvaxis::bits_per_value<per_channel<kvaxis::int4, 64>>(128)));
}

}  // namespace
