// The bytes that folding writes, on every instruction set: blocks against the generic encoder, which goes through a
// codec's own functions number by number, and whole tiles against the scalar ones, hot pairs included. golden_test.cpp
// pins what those are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <isa_test.hpp>
#include <numbers.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tile_under_test.hpp"

namespace {

using kvaxis::axis;
using kvaxis::role;

class Encode : public isa_test {};
class FoldBytes : public isa_test {};

enum class content { ordinary, constant, huge, tiny };
constexpr content contents[] = {content::ordinary, content::constant, content::huge, content::tiny};

// One number of a channel. Channels differ in size and centre, and some hold zeros or one number only.
float number_of(content what, float limit, int channel, test::numbers& random) {
  const float size = kvaxis::bits_float(static_cast<std::uint32_t>(122 + channel % 9) << 23);
  const float centre = channel % 5 == 1 ? static_cast<float>(channel % 97) - 40.25F : 0.0F;
  switch (what) {
    case content::constant: return channel % 3 == 0 ? 0.0F : centre;
    case content::huge: return random.uniform() * (limit < 1e38F ? limit : 1e38F) * 0.70703125F;
    case content::tiny: {  // around the smallest float16, the smallest normal float, and below
      const int exponent = channel % 2 == 0 ? random.below(4) : 98 + random.below(12);
      return kvaxis::bits_float(static_cast<std::uint32_t>(random.next()) & 0x807FFFFFU) +
             random.uniform() * kvaxis::bits_float(static_cast<std::uint32_t>(exponent + 1) << 23);
    }
    case content::ordinary: break;
  }
  if (random.below(50) == 0) return random.below(2) == 0 ? 0.0F : kvaxis::bits_float(0x80000123U);
  return random.bell() * size + centre;
}

template <class Codec>
void expect_block(const kvaxis::block_layout& b, kvaxis::given_scale given, int tokens, int channels, content what) {
  test::numbers random(static_cast<std::uint64_t>(1000 * channels + tokens));
  const int stride = (channels + 31) / 32 * 32;
  std::vector<float> x(static_cast<std::size_t>((tokens + 3) / 4 * 4 * stride));
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < channels; ++c) {
      const float number = number_of(what, Codec::limit, c, random);
      x[static_cast<std::size_t>(t * stride + c)] = kvaxis::flush_subnormal(number);
    }
  }
  const kvaxis::row_view rows = {x.data(), stride, tokens, channels};
  const int longest = b.key ? b.lanes : b.rows;
  std::vector<std::uint32_t> scratch(static_cast<std::size_t>(longest * stride), 0xFFFFFFFFU);
  std::vector<std::byte> want(b.bytes);
  kvaxis::detail::encode_block(test::scalar_table<Codec>, b, given, rows, scratch.data(), want.data());
  std::vector<std::byte> got(b.bytes + 64, std::byte{0xAB});
  const auto isa = static_cast<std::size_t>(kvaxis::active_isa());
  test::scalar_table<Codec>.encode[isa](test::scalar_table<Codec>, b, given, rows, scratch.data(), got.data());
  want.resize(got.size(), std::byte{0xAB});
  const auto differs = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
  ASSERT_EQ(differs, static_cast<std::ptrdiff_t>(got.size())) << "with parameters from byte " << b.codes_bytes << " on";
}

template <class Codec>
void expect_blocks(const std::vector<int>& dims = {8, 23, 46, 80, 96, 128, 576}) {
  const kvaxis::policy policies[] = {{axis::channel, 32}, {axis::channel, 64}, {axis::channel, 256}, {axis::token, 16},
                                     {axis::token, 64},   {axis::token, 1024}, {axis::tensor, 0}};
  for (const role side : {role::key, role::value}) {
    for (const kvaxis::policy& p : policies) {
      for (const int dim : dims) {
        for (const auto& [tokens, valid] : {std::pair{32, 32}, {64, 64}, {64, 37}, {64, 1}, {256, 255}}) {
          if ((tokens == 256 && dim != 46) || (dim == 576 && valid != 37)) continue;
          for (const content what : contents) {
            SCOPED_TRACE(std::string(Codec::name) + (side == role::key ? " keys" : " values") + ", axis " +
                         std::to_string(static_cast<int>(p.axis)) + " group " + std::to_string(p.group) + " dim " +
                         std::to_string(dim) + " tokens " + std::to_string(valid) + " of " + std::to_string(tokens) +
                         " content " + std::to_string(static_cast<int>(what)));
            using parameters = kvaxis::codec_parameters<Codec>;
            const kvaxis::block_layout b = kvaxis::make_block_layout(side, p, Codec::bits, parameters::members,
                                                                     parameters::member_bytes, dim, tokens);
            const float scale = Codec::bits == 4 ? 2.3125F : 0.1640625F;
            expect_block<Codec>(b, {scale, Codec::offset_factor * scale + 0.75F}, valid, dim, what);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(Encode, a_block_has_the_bytes_of_the_generic_encoder) {
  expect_blocks<kvaxis::int2>({8, 46, 96});
  expect_blocks<kvaxis::int3>({8, 46, 96});
  expect_blocks<kvaxis::int4>();
  expect_blocks<kvaxis::int5>({8, 46, 96});
  expect_blocks<kvaxis::int6>({8, 46, 96});
  expect_blocks<kvaxis::int2s>({8, 46, 96});
  expect_blocks<kvaxis::int5s>({8, 46, 96});
  expect_blocks<kvaxis::least_squares<kvaxis::int2>>({8, 46, 80});
  expect_blocks<kvaxis::least_squares<kvaxis::int4>>({8, 46, 80});
  expect_blocks<kvaxis::least_squares<kvaxis::int3s>>({8, 46, 80});
  expect_blocks<kvaxis::int8>();
  expect_blocks<kvaxis::int4s>();
  expect_blocks<kvaxis::int8s>();
  expect_blocks<kvaxis::int4f32>();
  expect_blocks<kvaxis::int8f32>();
  expect_blocks<kvaxis::e4m3>();
  expect_blocks<kvaxis::e5m2>();
  expect_blocks<kvaxis::f32>();
  expect_blocks<kvaxis::f16>();
  expect_blocks<kvaxis::bf16>();
}

// The formulas that folding does not take from the codecs, over all that they may meet.
TEST_P(Encode, every_code_of_a_number_without_scale) {
  const auto check = [](const auto& codec_of, int channels, const std::vector<float>& x) {
    using codec = std::decay_t<decltype(codec_of)>;
    const kvaxis::block_layout b =
        kvaxis::make_block_layout(role::value, {axis::tensor, 0}, codec::bits, 0, 0, channels, 4);
    std::vector<std::uint32_t> scratch(x.size() + 4096);
    std::vector<std::byte> want(b.bytes);
    std::vector<std::byte> got(b.bytes);
    const kvaxis::row_view rows = {x.data(), channels, 4, channels};
    kvaxis::detail::encode_block(test::scalar_table<codec>, b, {}, rows, scratch.data(), want.data());
    const auto isa = static_cast<std::size_t>(kvaxis::active_isa());
    test::scalar_table<codec>.encode[isa](test::scalar_table<codec>, b, {}, rows, scratch.data(), got.data());
    ASSERT_EQ(got, want) << codec::name;
  };
  constexpr int channels = 512;
  test::numbers random(5);
  std::vector<float> x(4 * channels);
  for (int upper = 0; upper < 65536; upper += 32) {  // every exponent, with mantissas near each tie
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto high = static_cast<std::uint32_t>(upper) + static_cast<std::uint32_t>(i / 256);
      const std::uint32_t low = i % 4 == 0   ? static_cast<std::uint32_t>(random.next() & 0xFFFFU)
                                : i % 4 == 1 ? 0x8000U
                                : i % 4 == 2 ? 0U
                                             : 0x7FFFU + static_cast<std::uint32_t>(i % 3);
      const float number = kvaxis::bits_float(high << 16 | (low & 0xFFFFU));
      x[i] = kvaxis::is_finite(number) ? kvaxis::flush_subnormal(number) : 0.0F;
    }
    check(kvaxis::e4m3{}, channels, x);
    check(kvaxis::e5m2{}, channels, x);
    check(kvaxis::bf16{}, channels, x);
    check(kvaxis::f16{}, channels, x);
    check(kvaxis::f32{}, channels, x);
    if (HasFatalFailure()) return;
  }
}

struct setting {
  const kvaxis::codec_table* codec = nullptr;
  kvaxis::policy keys;
  kvaxis::policy values;
  int dim = 128;
  int rotary = 128;
  int tokens = 64;
  bool half_rows = false;
};

std::vector<std::uint8_t> folded(const setting& s, int count, content what, kvaxis::isa isa) {
  const isa_scope scope(isa);
  const kvaxis::rope rope = test::make_rope(s.dim, s.rotary, s.dim - s.rotary);
  kvaxis::format_request q;
  q.kv_heads = 2;
  q.head_dim = q.value_dim = s.dim;
  q.tokens = s.tokens;
  q.half_rows = s.half_rows;
  q.growth = 1.25F;
  q.rope = &rope;
  q.key.codec = q.value.codec = s.codec;
  q.key.policy = s.keys;
  q.value.policy = s.values;
  test::numbers random(static_cast<std::uint64_t>(s.dim + count));
  const float limit = s.half_rows && s.codec->limit > 65504.0F ? 65504.0F : s.codec->limit;
  std::vector<float> row(static_cast<std::size_t>(s.dim));
  test::tile_under_test tile(q);
  for (int t = 0; t < s.tokens; ++t) {
    for (int h = 0; h < 2; ++h) {
      for (int side = 0; side < 2; ++side) {
        for (int c = 0; c < s.dim; ++c) row[static_cast<std::size_t>(c)] = number_of(what, limit, c, random);
        side == 0 ? tile.set_key(h, t, row.data()) : tile.set_value(h, t, row.data());
      }
    }
  }
  tile.fold(count);
  return tile.bytes();
}

void expect_fold(const setting& s) {
  for (const int count : {s.tokens, s.tokens - 27, 1}) {
    for (const content what : contents) {
      const auto want = folded(s, count, what, kvaxis::isa::scalar);
      const auto got = folded(s, count, what, kvaxis::active_isa());
      ASSERT_EQ(got, want) << s.codec->name << " rotation " << s.keys.rotation << " dim " << s.dim << " tokens "
                           << s.tokens << " count " << count << " content " << static_cast<int>(what)
                           << (s.half_rows ? " half rows" : "");
    }
  }
}

TEST_P(FoldBytes, every_rotation_and_shape) {
  for (const kvaxis::codec_table* codec : {&test::scalar_table<kvaxis::int4>, &test::scalar_table<kvaxis::int8s>}) {
    for (const auto& [dim, rotary] : {std::pair{8, 8}, {46, 20}, {80, 80}, {96, 64}, {128, 128}, {576, 64}}) {
      for (const int tokens : {32, 64, 256}) {
        if ((tokens == 256 && dim != 46) || (tokens == 64 && dim == 576)) continue;
        for (const int rotation : {kvaxis::pre, kvaxis::automatic, 4, kvaxis::tile_rotated, kvaxis::post}) {
          for (const bool half_rows : {false, true}) {
            expect_fold({codec, {axis::channel, tokens, rotation}, {axis::token, 64}, dim, rotary, tokens, half_rows});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(FoldBytes, every_codec_and_axis) {
  for (const kvaxis::codec_table* codec : test::scalar_tables) {
    for (const axis a : {axis::channel, axis::token, axis::tensor}) {
      const kvaxis::policy p = {a, 32, kvaxis::tile_rotated};
      expect_fold({codec, p, p, 80, 80, 32});
      if (HasFatalFailure()) return;
    }
  }
}

KVAXIS_ON_EVERY_ISA(Encode);
KVAXIS_ON_EVERY_ISA(FoldBytes);

}  // namespace
