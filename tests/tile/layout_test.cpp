// Where codes and parameters of a block lie, and how many bits that is. A codec that reports which numbers it was given
// shows the groups; their places are computed here a second time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <kvaxis/tile/block.hpp>
#include <string>
#include <vector>

#include "tile_under_test.hpp"

namespace {

using kvaxis::bits_per_value;
using kvaxis::block_layout;
using kvaxis::role;

template <class P>
constexpr double key_bits(int dim, int tokens = 64) {
  return bits_per_value<P>(dim, role::key, tokens);
}
template <class P>
constexpr double value_bits(int dim, int tokens = 64) {
  return bits_per_value<P>(dim, role::value, tokens);
}

// Codes, and 32 bits of parameters per group.
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4, 64>>(128) == 4.5);
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4, 128>>(128) == 4.25);
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4, 256>>(128) == 4.125);
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4f32, 64>>(128) == 5.0);
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4s, 64>>(128) == 4.25);
static_assert(key_bits<kvaxis::per_channel<kvaxis::int8, 64>>(64) == 8.5);
static_assert(key_bits<kvaxis::per_token<kvaxis::int4, 32>>(128) == 5.0);
static_assert(value_bits<kvaxis::per_token<kvaxis::int4, 64>>(128) == 4.5);
static_assert(value_bits<kvaxis::per_token<kvaxis::int8s, 32>>(64) == 8.5);
static_assert(value_bits<kvaxis::per_channel<kvaxis::int4, 64>>(64) == 4.5);
static_assert(value_bits<kvaxis::per_tensor<kvaxis::e4m3>>(128) == 8.0 &&
              key_bits<kvaxis::per_tensor<kvaxis::e4m3>>(64) == 8.0);
static_assert(key_bits<kvaxis::per_tensor<kvaxis::f16>>(128) == 16.0 &&
              value_bits<kvaxis::per_tensor<kvaxis::f32>>(64) == 32.0);
// A mask of 64 pairs is 8 bytes per tile and head; all pairs or none need no mask.
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4, 64, kvaxis::automatic>>(128) == 4.5 + 64.0 / (128 * 64));
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4, 64, 4>>(128) == 4.5 + 64.0 / (128 * 64));
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4, 64, kvaxis::tile_rotated>>(128) == 4.5);
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4, 64, kvaxis::post>>(128) == 4.5);
// Padding counts: 80 channels lie in 96, in two groups per token; 8 channels lie in 32.
static_assert(value_bits<kvaxis::per_token<kvaxis::int4, 64>>(80) == (96 * 4 + 2 * 32) / 80.0);
static_assert(value_bits<kvaxis::per_token<kvaxis::int4, 64>>(8) == (32 * 4 + 32) / 8.0);
static_assert(key_bits<kvaxis::per_channel<kvaxis::int4, 64>>(46) == 48 * 4.5 / 46);
// A tile of 32 tokens for policies that have no length of their own.
static_assert(key_bits<kvaxis::per_token<kvaxis::int4, 64>>(64, 32) == 4.5);

TEST(Bits, B60_bytes_of_a_token_by_example) {
  // 8 heads of 128 channels, 4 bits, groups of 32 with 2 x 16 bits of parameters, keys and values.
  const double keys = key_bits<kvaxis::per_channel<kvaxis::int4, 32>>(128);
  const double values = value_bits<kvaxis::per_token<kvaxis::int4, 32>>(128, 32);
  EXPECT_EQ(8 * 128 * (keys + values) / 8, 1280.0);
}

// Parameters: the extremes of the group. Codes: the index of the number within its group.
template <int Bits>
struct witness {
  static constexpr int bits = Bits;
  static constexpr const char* name = "witness";
  struct params {
    float lowest, highest, count;
  };
  static params fit(const float* x, int n) noexcept {
    return {*std::min_element(x, x + n), *std::max_element(x, x + n), static_cast<float>(n)};
  }
  static void encode(params, const float*, int n, std::uint32_t* codes) noexcept {
    for (int i = 0; i < n; ++i) codes[i] = static_cast<std::uint32_t>(i) & kvaxis::code_mask(Bits);
  }
  static float decode(params p, std::uint32_t code) noexcept { return p.lowest * 1000 + static_cast<float>(code); }
};

struct shape {
  role side;
  kvaxis::policy policy;
  int dim;
  int tokens;
  int valid_tokens;
};

// A key block has channels as rows and tokens as lanes, a value block the reverse.
template <int Bits>
void check_block(const shape& s) {
  using codec = witness<Bits>;
  const bool is_key = s.side == role::key;
  const auto described = std::string(is_key ? "keys" : "values") + " bits " + std::to_string(Bits) + " dim " +
                         std::to_string(s.dim) + " tokens " + std::to_string(s.tokens) + " group " +
                         std::to_string(s.policy.group) + " axis " + std::to_string(static_cast<int>(s.policy.axis));
  SCOPED_TRACE(described);
  const block_layout b = kvaxis::make_block_layout(s.side, s.policy, Bits, 3, 4, s.dim, s.tokens);
  const int padded_dim = is_key ? (s.dim + 3) / 4 * 4 : Bits == 4 ? (s.dim + 31) / 32 * 32 : (s.dim + 15) / 16 * 16;
  const int rows = is_key ? padded_dim : s.tokens;
  const int lanes = is_key ? s.tokens : padded_dim;
  ASSERT_EQ(b.rows, rows);
  ASSERT_EQ(b.lanes, lanes);
  ASSERT_EQ(b.codes_bytes, static_cast<std::size_t>(rows * lanes * Bits / 8));
  EXPECT_EQ(b.bytes % 64, 0U);

  // The numbers: row and lane, so that the extremes of a group are its corners.
  const auto number = [&](int row, int lane) { return static_cast<float>(1 + row * lanes + lane); };
  const int stride = padded_dim + 3;
  std::vector<float> x(static_cast<std::size_t>(s.tokens * stride), 1e30F);  // what is not valid must not be read
  for (int token = 0; token < s.valid_tokens; ++token) {
    for (int channel = 0; channel < s.dim; ++channel) {
      x[static_cast<std::size_t>(token * stride + channel)] = is_key ? number(channel, token) : number(token, channel);
    }
  }
  std::vector<std::uint32_t> scratch(static_cast<std::size_t>(rows * lanes));
  std::vector<std::byte> block(b.bytes, std::byte{0xAB});
  kvaxis::detail::encode_block(test::scalar_table<codec>, b, {}, {x.data(), stride, s.valid_tokens, s.dim},
                               scratch.data(), block.data());

  const bool along_tokens = s.policy.axis == kvaxis::axis::channel;
  const int longest = along_tokens ? s.tokens : padded_dim;
  const int length = s.policy.group > longest ? longest : s.policy.group;
  const int per_line = (longest + length - 1) / length;
  const int groups = per_line * (along_tokens ? padded_dim : s.tokens);
  ASSERT_EQ(b.groups(), groups);
  ASSERT_LE(b.codes_bytes + static_cast<std::size_t>(groups) * 12U, b.bytes);
  for (int row = 0; row < rows; ++row) {
    for (int lane = 0; lane < lanes; ++lane) {
      const int channel = is_key ? row : lane;
      const int token = is_key ? lane : row;
      const int at = along_tokens ? token : channel;  // along the group
      const int line = along_tokens ? channel : token;
      const int lines = along_tokens ? padded_dim : s.tokens;
      const int first = at / length * length;
      const int end = std::min(first + length, along_tokens ? s.valid_tokens : s.dim);
      const int group = at / length * lines + line;  // [segment][line], for keys and for values
      float p[3];
      for (int m = 0; m < 3; ++m) {
        std::memcpy(&p[m], block.data() + b.codes_bytes + static_cast<std::size_t>(m * groups + group) * 4U, 4);
      }
      const bool valid = token < s.valid_tokens && channel < s.dim;
      const bool filled = line < (along_tokens ? s.dim : s.valid_tokens) && end > first;
      const auto corner = [&](int i) {
        return along_tokens ? (is_key ? number(line, i) : number(i, line))
                            : (is_key ? number(i, line) : number(line, i));
      };
      ASSERT_EQ(p[0], filled ? corner(first) : 0.0F) << row << ' ' << lane;
      ASSERT_EQ(p[1], filled ? corner(end - 1) : 0.0F) << row << ' ' << lane;
      ASSERT_EQ(p[2], filled ? static_cast<float>(end - first) : 0.0F) << row << ' ' << lane;
      const std::uint32_t code = kvaxis::unpack_code(
          Bits, lanes,
          reinterpret_cast<const std::uint32_t*>(block.data() + static_cast<std::size_t>(row / 4) * b.quad_bytes()),
          row % 4, lane);
      const auto expected = valid ? static_cast<std::uint32_t>(at - first) & kvaxis::code_mask(Bits) : 0U;
      ASSERT_EQ(code, expected) << row << ' ' << lane;
      float back = 0;
      kvaxis::detail::decode_row<codec>(b, {}, block.data(), row, lane, 1, &back);
      ASSERT_EQ(back, codec::decode({p[0], p[1], p[2]}, code)) << row << ' ' << lane;
    }
  }
  for (std::size_t i = b.codes_bytes + static_cast<std::size_t>(groups) * 12U; i < b.bytes; ++i) {
    ASSERT_EQ(block[i], std::byte{0}) << "padding behind the parameters";
  }
}

TEST(Layout, groups_codes_and_parameters_are_in_their_places) {
  using kvaxis::axis;
  for (const role side : {role::key, role::value}) {
    for (const int dim : {8, 46, 64, 80, 576}) {
      for (const auto& [tokens, valid] : {std::pair{32, 32}, {64, 64}, {64, 37}, {64, 1}}) {
        for (const kvaxis::policy& p :
             {kvaxis::policy{axis::channel, tokens}, kvaxis::policy{axis::channel, 32}, kvaxis::policy{axis::token, 64},
              kvaxis::policy{axis::token, 16}, kvaxis::policy{axis::token, 1024}}) {
          check_block<4>({side, p, dim, tokens, valid});
          if (dim > 80) continue;
          check_block<8>({side, p, dim, tokens, valid});
          check_block<16>({side, p, dim, tokens, valid});
          check_block<32>({side, p, dim, tokens, valid});
        }
      }
    }
  }
}

}  // namespace
