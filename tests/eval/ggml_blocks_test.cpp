// ggml's blocks against bytes that its reference functions wrote, and what the row functions refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/eval/ggml_blocks.hpp>
#include <limits>
#include <normal.hpp>
#include <reference_numbers.hpp>
#include <string>
#include <vector>

namespace {

using kvaxis::errc;
using kvaxis::ggml_type;

constexpr ggml_type every_type[] = {ggml_type::q8_0, ggml_type::q4_0, ggml_type::q4_1,
                                    ggml_type::q5_0, ggml_type::q5_1, ggml_type::iq4_nl};
constexpr auto no_type = static_cast<ggml_type>(6);

std::vector<std::byte> encoded(ggml_type type, const std::vector<float>& x) {
  std::vector<std::byte> bytes(kvaxis::ggml_block_bytes(type) * x.size() / 32);
  EXPECT_TRUE(kvaxis::ggml_encode_row(type, x.data(), static_cast<std::ptrdiff_t>(x.size()), bytes.data()));
  return bytes;
}

std::vector<float> decoded(ggml_type type, const std::vector<std::byte>& bytes) {
  std::vector<float> x(bytes.size() / kvaxis::ggml_block_bytes(type) * 32);
  EXPECT_TRUE(kvaxis::ggml_decode_row(type, bytes.data(), static_cast<std::ptrdiff_t>(x.size()), x.data()));
  return x;
}

std::string hex(const std::vector<std::byte>& bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    for (const int shift : {4, 0}) out += "0123456789abcdef"[std::to_integer<int>(b) >> shift & 15];
  }
  return out;
}

double nmse(const std::vector<float>& x, const std::vector<float>& back) {
  test::error_sum sum;
  for (std::size_t i = 0; i < x.size(); ++i) sum.add(x[i], back[i]);
  return sum.nmse();
}

TEST(GgmlBlocks, bytes_of_the_reference_functions) {
  const std::vector<float> x = test::reference_numbers(32);
  const auto check = [&](ggml_type type, const char* bytes, double error) {
    EXPECT_EQ(hex(encoded(type, x)), bytes);
    test::expect_within(nmse(x, decoded(type, encoded(type, x))), error, 1e-6, bytes);
  };
  check(ggml_type::q8_0, "4d269dfb59b61472d02e8be947a50361be1c7ad73593f14fac0a68c62481df3d9af8", 1.364925e-05);
  check(ggml_type::q4_0, "4036f258be1379df359bf147ac0268ce248a", 4.465604e-03);
  check(ggml_type::q4_1, "893640c2f257bd1379cf358ae146ac0268bd2479", 3.957924e-03);
  check(ggml_type::q5_0, "4032b4b4a525f4bf7b27e3ae5a16d19d4904c08c38f4", 1.005683e-03);
  check(ggml_type::q5_1, "533240c2b4b4a525f3bf6b27e2ae5a16d19d4904c07c38f3", 9.967917e-04);
  check(ggml_type::iq4_nl, "5426f157ce137adf249cf036bd0258ce137a", 5.258147e-03);
}

TEST(GgmlBlocks, error_on_normal_deviates) {
  const auto check = [](ggml_type type, double expected, const char* what) {
    std::vector<float> x = test::normal_deviates();
    ASSERT_TRUE(kvaxis::ggml_round_trip(type, x.data(), static_cast<std::ptrdiff_t>(x.size())));
    test::expect_within(nmse(test::normal_deviates(), x), expected, 0.01, what);
  };
  check(ggml_type::q8_0, 2.853e-5, "q8_0");
  check(ggml_type::q4_0, 7.352e-3, "q4_0");
  check(ggml_type::q4_1, 6.102e-3, "q4_1");
  check(ggml_type::q5_0, 1.815e-3, "q5_0");
  check(ggml_type::q5_1, 1.427e-3, "q5_1");
  check(ggml_type::iq4_nl, 6.177e-3, "iq4_nl");
}

// ggml divides by -8 or -16, so the scale of zeros is -0; its codes are those of zero.
TEST(GgmlBlocks, zeros) {
  const std::vector<float> zeros(32, 0.0F);
  const std::string none(32, '0');
  EXPECT_EQ(hex(encoded(ggml_type::q8_0, zeros)), "0000" + none + none);
  EXPECT_EQ(hex(encoded(ggml_type::q4_0, zeros)), "0080" + std::string(32, '8'));
  EXPECT_EQ(hex(encoded(ggml_type::q4_1, zeros)), "00000000" + none);
  EXPECT_EQ(hex(encoded(ggml_type::q5_0, zeros)), "0080ffffffff" + none);
  EXPECT_EQ(hex(encoded(ggml_type::q5_1, zeros)), "0000000000000000" + none);
  EXPECT_EQ(hex(encoded(ggml_type::iq4_nl, zeros)), "0000" + none);
  for (const ggml_type type : every_type) {
    for (const float x : decoded(type, encoded(type, zeros))) EXPECT_EQ(x, 0.0F);
  }
  // The first of the smallest numbers is the minimum, with its sign.
  std::vector<float> signs(32, 0.0F);
  volatile std::uint32_t minus_zero = 0x80000000U;  // with -ffast-math a -0.0F need not be stored over a 0
  signs[0] = kvaxis::bits_float(minus_zero);
  EXPECT_EQ(hex(encoded(ggml_type::q4_1, signs)), "00000080" + none);
}

TEST(GgmlBlocks, ties_of_q8_0_go_away_from_zero) {
  std::vector<float> x(32, 0.0F);
  x[0] = 127.0F;  // makes d 1
  x[1] = 0.5F;
  x[2] = -0.5F;
  x[3] = 2.5F;
  x[4] = -2.5F;
  x[5] = 0.49999997F;
  kvaxis::ggml_q8_0 block;
  kvaxis::encode(x.data(), block);
  const int expected[] = {127, 1, -1, 3, -3, 0};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(block.qs[i], expected[i]) << i;
}

// A product that is rounded before 8.5 is added, as the reference does; contracted with the sum some codes
// would be others.
TEST(GgmlBlocks, products_are_rounded_before_the_sum) {
  std::vector<float> x(32, 0.0F);
  int found = 0;
  test::numbers random(7);
  for (int i = 0; i < 200000; ++i) {
    x[0] = 1.0F + random.uniform() / 4 + random.uniform() * 0x1p-10F;
    const float d = static_cast<float>(static_cast<double>(x[0]) / -8);
    const auto inverse = static_cast<float>(1.0 / static_cast<double>(d));
    x[1] = kvaxis::bits_float(kvaxis::float_bits(-0.5F * d) + static_cast<std::uint32_t>(random.below(33)) - 16U);
    const double exact = static_cast<double>(x[1]) * static_cast<double>(inverse);
    const double once = kvaxis::round_to_single(exact + 8.5);
    const double twice = kvaxis::round_to_single(kvaxis::round_to_single(exact) + 8.5);
    kvaxis::ggml_q4_0 block;
    kvaxis::encode(x.data(), block);
    EXPECT_EQ(block.qs[1] & 15, static_cast<int>(twice)) << x[0] << ' ' << x[1];
    found += static_cast<int>(once) != static_cast<int>(twice) ? 1 : 0;
  }
  EXPECT_GT(found, 100) << "numbers whose code contraction would change";
}

TEST(GgmlBlocks, a_row_is_its_blocks_one_after_the_other) {
  const std::vector<float> x = test::reference_numbers(96);
  for (const ggml_type type : every_type) {
    std::string expected;
    for (std::ptrdiff_t i = 0; i < 96; i += 32) {
      expected += hex(encoded(type, std::vector<float>(x.begin() + i, x.begin() + i + 32)));
    }
    EXPECT_EQ(hex(encoded(type, x)), expected);
    std::vector<float> round_trip = x;
    ASSERT_TRUE(kvaxis::ggml_round_trip(type, round_trip.data(), 96));
    EXPECT_EQ(round_trip, decoded(type, encoded(type, x)));
  }
}

TEST(GgmlBlocks, sizes) {
  const std::size_t expected[] = {34, 18, 20, 22, 24, 18};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(kvaxis::ggml_block_bytes(every_type[i]), expected[i]);
  EXPECT_EQ(kvaxis::ggml_block_bytes(no_type), 0U);
}

void expect_refused(const kvaxis::status& s, errc code, const char* argument, std::int64_t limit) {
  EXPECT_EQ(s.code, code) << argument;
  EXPECT_STREQ(s.argument, argument);
  EXPECT_EQ(s.limit, limit);
}

TEST(GgmlBlocks, wrong_arguments_change_nothing) {
  std::vector<float> x = test::reference_numbers(64);
  const std::vector<float> before = x;
  std::vector<std::byte> bytes(2 * 34, std::byte{0x5A});
  const std::vector<std::byte> bytes_before = bytes;
  for (const std::ptrdiff_t n : {-32, 0, 16, 33}) {
    expect_refused(kvaxis::ggml_encode_row(ggml_type::q8_0, x.data(), n, bytes.data()), errc::out_of_range, "n", 32);
    expect_refused(kvaxis::ggml_decode_row(ggml_type::q8_0, bytes.data(), n, x.data()), errc::out_of_range, "n", 32);
    expect_refused(kvaxis::ggml_round_trip(ggml_type::q8_0, x.data(), n), errc::out_of_range, "n", 32);
  }
  expect_refused(kvaxis::ggml_encode_row(no_type, x.data(), 32, bytes.data()), errc::invalid_argument, "type", 0);
  expect_refused(kvaxis::ggml_decode_row(no_type, bytes.data(), 32, x.data()), errc::invalid_argument, "type", 0);
  expect_refused(kvaxis::ggml_round_trip(no_type, x.data(), 32), errc::invalid_argument, "type", 0);
  expect_refused(kvaxis::ggml_encode_row(ggml_type::q4_0, nullptr, 32, bytes.data()), errc::invalid_argument, "row", 0);
  expect_refused(kvaxis::ggml_encode_row(ggml_type::q4_0, x.data(), 32, nullptr), errc::invalid_argument, "blocks", 0);
  expect_refused(kvaxis::ggml_decode_row(ggml_type::q4_0, nullptr, 32, x.data()), errc::invalid_argument, "blocks", 0);
  expect_refused(kvaxis::ggml_decode_row(ggml_type::q4_0, bytes.data(), 32, nullptr), errc::invalid_argument, "row", 0);
  expect_refused(kvaxis::ggml_round_trip(ggml_type::q4_0, nullptr, 32), errc::invalid_argument, "row", 0);
  EXPECT_EQ(x, before);
  EXPECT_EQ(bytes, bytes_before);
}

TEST(GgmlBlocks, numbers_that_float16_cannot_scale_are_refused) {
  std::vector<std::byte> bytes(2 * 34, std::byte{0x5A});
  const std::vector<std::byte> bytes_before = bytes;
  for (const ggml_type type : every_type) {
    std::vector<float> x = test::reference_numbers(64);
    x[40] = std::numeric_limits<float>::infinity();
    expect_refused(kvaxis::ggml_encode_row(type, x.data(), 64, bytes.data()), errc::non_finite, "row", 40);
    x[40] = std::numeric_limits<float>::quiet_NaN();
    expect_refused(kvaxis::ggml_round_trip(type, x.data(), 64), errc::non_finite, "row", 40);
    x[40] = -65505.0F;
    expect_refused(kvaxis::ggml_encode_row(type, x.data(), 64, bytes.data()), errc::out_of_range, "row", 65504);
    expect_refused(kvaxis::ggml_round_trip(type, x.data(), 64), errc::out_of_range, "row", 65504);
    EXPECT_EQ(x[0], test::reference_numbers(1)[0]);
    EXPECT_EQ(bytes, bytes_before);
    // At the limit everything stays finite.
    x[40] = -65504.0F;
    x[41] = 65504.0F;
    for (const float back : decoded(type, encoded(type, x))) EXPECT_LE(std::fabs(back), 65504.0F * 1.2F);
  }
}

TEST(GgmlBlocks, blocks_with_scales_that_are_not_finite_are_refused) {
  for (const ggml_type type : every_type) {
    const bool has_minimum = type == ggml_type::q4_1 || type == ggml_type::q5_1;
    for (std::size_t at = 1; at < (has_minimum ? 4U : 2U); at += 2) {
      std::vector<std::byte> bytes = encoded(type, test::reference_numbers(64));
      bytes[kvaxis::ggml_block_bytes(type) + at] = std::byte{0x7C};
      std::vector<float> out(64, 1.0F);
      expect_refused(kvaxis::ggml_decode_row(type, bytes.data(), 64, out.data()), errc::non_finite, "blocks", 1);
      EXPECT_EQ(out, std::vector<float>(64, 1.0F));
    }
  }
}

}  // namespace
