// Codecs that the library does not know, as a user writes them: they run on every instruction set, give the bytes and
// the numbers of their scalar code there, and serve as keys and as values on both axes.
#include <gtest/gtest.h>

#include <calls.hpp>
#include <cmath>
#include <cstdint>
#include <isa_test.hpp>
#include <kvaxis/kvaxis.hpp>
#include <kvaxis/quantizers/round_trip.hpp>
#include <oracle.hpp>
#include <square4.hpp>
#include <tokens.hpp>

namespace {

using test::square4;

// 8 bits: 85 levels in each of three parts, whose edges are four f32 parameters.
struct parts8 {
  static constexpr int bits = 8;
  static constexpr const char* name = "parts8";
  struct params {
    float edge[4];
  };

  static params fit(const float* x, int n) noexcept {
    float low = x[0];
    float high = x[0];
    for (int i = 1; i < n; ++i) {
      low = x[i] < low ? x[i] : low;
      high = x[i] > high ? x[i] : high;
    }
    const float quarter = (high - low) / 4;
    return {{low, low + quarter, high - quarter, high}};
  }
  static float decode(params p, std::uint32_t code) noexcept {
    const std::uint32_t part = code / 85 > 2 ? 2 : code / 85;
    const float step = (p.edge[part + 1] - p.edge[part]) / 85.0F;
    return p.edge[part] + (static_cast<float>(code - 85 * part) + 0.5F) * step;
  }
  static void encode(params p, const float* x, int n, std::uint32_t* codes) noexcept {
    for (int i = 0; i < n; ++i) {
      codes[i] = 0;
      for (std::uint32_t c = 1; c < 255; ++c) {
        if (std::fabs(decode(p, c) - x[i]) < std::fabs(decode(p, codes[i]) - x[i])) codes[i] = c;
      }
    }
  }
};

// 16 bits, no parameters: fixed point with 12 binary digits after the point.
struct fixed16 {
  static constexpr int bits = 16;
  static constexpr const char* name = "fixed16";
  static constexpr float limit = 7.0F;
  struct params {};

  static params fit(const float*, int) noexcept { return {}; }
  static float decode(params, std::uint32_t code) noexcept {
    return static_cast<float>(static_cast<int>(code) - 32768) / 4096.0F;
  }
  static void encode(params, const float* x, int n, std::uint32_t* codes) noexcept {
    for (int i = 0; i < n; ++i) codes[i] = static_cast<std::uint32_t>(static_cast<int>(x[i] * 4096.0F) + 32768);
  }
};

static_assert(kvaxis::is_codec<square4> && kvaxis::is_codec<parts8> && kvaxis::is_codec<fixed16>);
static_assert(!kvaxis::is_linear<square4>);
static_assert(kvaxis::bits_per_value<kvaxis::per_channel<square4>>(128) == 4 + 16 / 64.0);
static_assert(kvaxis::bits_per_value<kvaxis::per_channel<parts8>>(128) == 8 + 4 * 32 / 64.0);
static_assert(kvaxis::bits_per_value<kvaxis::per_channel<fixed16>>(128) == 16);
#if defined(__cpp_concepts)
static_assert(kvaxis::codec<square4>);
#endif

constexpr int kv_heads = 2;
constexpr int query_heads = 6;
constexpr int dim = 40;
constexpr int value_dim = 24;
constexpr int count = 3 * 64 + 20;

kvaxis::cache_config config() {
  kvaxis::cache_config c = test::rope_shape(kv_heads, dim, value_dim);
  c.window = 32;
  return c;
}

// What one instruction set makes of the same tokens.
struct outcome {
  std::string contents;
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> out;
};

template <class Keys, class Values>
outcome run(kvaxis::isa isa) {
  const kvaxis::isa before = kvaxis::active_isa();
  kvaxis::set_isa(isa);
  const test::tokens tokens(config(), count, 1);
  kvaxis::kv_cache<Keys, Values> cache;
  kvaxis::check(cache.create(config(), cache));
  tokens.append_all_to(cache);
  EXPECT_EQ(cache.folded_tokens(), 128);

  outcome r;
  r.contents = test::contents(cache);
  r.keys.resize(tokens.k.size());
  r.values.resize(tokens.v.size());
  for (int t = 0; t < count; ++t) {
    for (int h = 0; h < kv_heads; ++h) {
      kvaxis::check(cache.read_key(t, h, r.keys.data() + (t * kv_heads + h) * dim));
      kvaxis::check(cache.read_value(t, h, r.values.data() + (t * kv_heads + h) * value_dim));
    }
  }
  kvaxis::attend_options o = test::exact();
  o.query_heads = query_heads;
  const std::vector<float> q = test::numbers(2).uniforms(2 * query_heads * dim, 2.0F);
  r.out.resize(2 * query_heads * value_dim);
  std::vector<std::byte> memory(cache.workspace_bytes(2, o));
  kvaxis::check(cache.attend(q.data(), 2, count, o, r.out.data(), nullptr, {memory.data(), memory.size()}));
  const test::oracle oracle(cache, config().rope);
  const std::vector<double> exact = oracle.attend(q, 2, count, o).out;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(r.out[i]), exact[i], oracle.output_bound()) << kvaxis::isa_name(isa);
  }
  kvaxis::set_isa(before);
  return r;
}

template <class Policies>
class OwnCodec : public ::testing::Test {};

template <class Keys, class Values>
struct policies {
  using keys = Keys;
  using values = Values;
};
using kvaxis::per_channel;
using kvaxis::per_token;
using combinations = ::testing::Types<policies<per_channel<square4, 64>, per_token<parts8, 64>>,
                                      policies<per_channel<parts8, 64, kvaxis::automatic>, per_channel<square4, 32>>,
                                      policies<per_token<square4, 32, kvaxis::tile_rotated>, per_token<fixed16, 16>>,
                                      policies<per_channel<fixed16, 64>, per_token<kvaxis::int4, 64>>,
                                      policies<per_channel<kvaxis::int4, 64>, per_channel<parts8, 64>>>;
TYPED_TEST_SUITE(OwnCodec, combinations);

TYPED_TEST(OwnCodec, same_bytes_and_numbers_on_every_isa) {
  using keys = typename TypeParam::keys;
  using values = typename TypeParam::values;
  const outcome scalar = run<keys, values>(kvaxis::isa::scalar);
  for (const kvaxis::isa isa : every_isa()) {
    const outcome other = run<keys, values>(isa);
    EXPECT_TRUE(other.contents == scalar.contents) << kvaxis::isa_name(isa);
    EXPECT_EQ(other.keys, scalar.keys) << kvaxis::isa_name(isa);
    EXPECT_EQ(other.values, scalar.values) << kvaxis::isa_name(isa);
    for (std::size_t k = 0; k < scalar.out.size(); ++k) EXPECT_NEAR(other.out[k], scalar.out[k], 2e-6F);
  }
}

// The first tile (after the four pins) of one head, without the cache.
template <class Keys>
void expect_tile_is_round_trip() {
  const test::tokens tokens(config(), count, 1);
  const outcome r = run<Keys, per_token<kvaxis::int4, 64>>(kvaxis::best_isa());
  std::vector<float> tile(64 * dim);
  const auto at = [](int t, int c) { return static_cast<std::size_t>((t + 4) * kv_heads * dim + c); };
  for (int t = 0; t < 64; ++t) {
    for (int c = 0; c < dim; ++c) tile[static_cast<std::size_t>(t * dim + c)] = tokens.k[at(t, c)];
  }
  kvaxis::check(kvaxis::round_trip<Keys>(tile.data(), 64, dim, tile.data()));
  for (int t = 0; t < 64; ++t) {
    for (int c = 0; c < dim; ++c) ASSERT_EQ(r.keys[at(t, c)], tile[static_cast<std::size_t>(t * dim + c)]);
  }
}

TEST(OwnCodecReadBack, is_what_the_codec_alone_gives) {
  expect_tile_is_round_trip<per_channel<square4, 64>>();
  expect_tile_is_round_trip<per_channel<parts8, 64>>();
  expect_tile_is_round_trip<per_channel<fixed16, 64>>();
}

TEST(OwnCodecLimit, is_refused_beyond_and_taken_at_it) {
  kvaxis::kv_cache<per_channel<fixed16, 64>, per_token<fixed16, 64>> cache;
  kvaxis::check(cache.create(config(), cache));
  test::tokens tokens(config(), 3, 1);
  tokens.k[50] = -7.0F;
  kvaxis::check(tokens.append_to(cache, 0, 3));
  tokens.k[50] = -7.5F;
  const kvaxis::status s = tokens.append_to(cache, 0, 3);
  EXPECT_EQ(s.code, kvaxis::errc::out_of_range);
  EXPECT_STREQ(s.argument, "k");
  EXPECT_EQ(s.limit, -7);
  EXPECT_EQ(cache.size(), 3);
}

}  // namespace
