// Every function of the vocabulary on every instruction set, against plain C++. Conversions, fma and the like are equal
// to the bit; only muladd may round once or twice.
#include "vocabulary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <isa_test.hpp>
#include <kvaxis/formats/bits.hpp>
#include <kvaxis/formats/float8.hpp>
#include <kvaxis/formats/half.hpp>
#include <numbers.hpp>
#include <vector>

namespace {

using kvaxis::bits_float;
using kvaxis::float_bits;

class Vocabulary : public isa_test {
 protected:
  const vocabulary& v = active_vocabulary();
};

// Words whose bits Shift .. Shift + Bits - 1 hold each code in turn, with noise around it; padded to a multiple of 16.
std::vector<std::uint32_t> words_with(int bits, int shift) {
  test::numbers random(static_cast<std::uint64_t>(100 * bits + shift));
  std::vector<std::uint32_t> words(std::size_t{1} << bits);
  const std::uint32_t mask = ((std::uint32_t{1} << bits) - 1U) << shift;
  for (std::uint32_t code = 0; code < words.size(); ++code) {
    words[code] = (static_cast<std::uint32_t>(random.next() >> 32) & ~mask) | code << shift;
  }
  return words;
}

// Codes of `bits` bits, `distance` bits (0: as many) from one place to the next.
template <std::size_t N, class Decode, class Skip>
void expect_conversion(const std::array<vocabulary::convert_fn, N>& by_place, int bits, Decode decode, Skip skip,
                       int distance = 0) {
  for (std::size_t place = 0; place < N; ++place) {
    const std::vector<std::uint32_t> words =
        words_with(bits, static_cast<int>(place) * (distance > 0 ? distance : bits));
    std::vector<float> out(words.size());
    by_place[place](words.data(), out.data(), static_cast<int>(words.size()));
    for (std::uint32_t code = 0; code < out.size(); ++code) {
      if (skip(code)) continue;
      ASSERT_EQ(float_bits(out[code]), float_bits(decode(code))) << "code " << code << " at place " << place;
    }
  }
}

bool none(std::uint32_t) { return false; }

bool is_nan(float x) { return (float_bits(x) & 0x7FFFFFFFU) > 0x7F800000U; }
bool is_half_nan(std::uint32_t code) { return (code & 0x7FFFU) > 0x7C00U; }

TEST_P(Vocabulary, integer_codes) {
  const auto number = [](std::uint32_t code) { return static_cast<float>(code); };
  expect_conversion(v.nibble, 4, number, none);
  expect_conversion(v.byte, 8, number, none);
  const auto number_of_nibble = [](std::uint32_t code) { return std::fma(0.37F, static_cast<float>(code), -2.5F); };
  expect_conversion(v.looked_up, 4, number_of_nibble, none, 8);
  const std::vector<std::uint32_t> words = words_with(4, 12);
  float out[16];
  v.shifted_nibble(words.data(), out, 16);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i], static_cast<float>(i));
}

TEST_P(Vocabulary, B53_every_e4m3_and_e5m2_code) {
  const auto e4m3 = [](std::uint32_t code) { return kvaxis::decode_e4m3(static_cast<std::uint8_t>(code)); };
  expect_conversion(v.e4m3, 8, e4m3, [](std::uint32_t code) { return (code & 0x7FU) == 0x7FU; });
  const auto e5m2 = [](std::uint32_t code) { return kvaxis::decode_e5m2(static_cast<std::uint8_t>(code)); };
  expect_conversion(v.e5m2, 8, e5m2, [](std::uint32_t code) { return (code & 0x7FU) > 0x7CU; });
}

TEST_P(Vocabulary, B13_every_half_and_bfloat) {
  const auto half = [](std::uint32_t code) { return to_float(kvaxis::float16{static_cast<std::uint16_t>(code)}); };
  expect_conversion(v.half, 16, half, is_half_nan);
  expect_conversion(
      v.bfloat, 16, [](std::uint32_t code) { return bits_float(code << 16); }, none);
  std::vector<std::uint16_t> halves(65536);
  std::vector<float> out(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  v.load_bfloat16(halves.data(), out.data(), 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) ASSERT_EQ(float_bits(out[i]), i << 16);
  v.load_float16(halves.data(), out.data(), 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    if (is_half_nan(i)) {
      ASSERT_TRUE(is_nan(out[i])) << i;
    } else {
      ASSERT_EQ(float_bits(out[i]), float_bits(half(i))) << i;
    }
  }
}

TEST_P(Vocabulary, bits_are_taken_as_they_are) {
  const std::vector<std::uint32_t> words = words_with(10, 20);
  std::vector<float> out(words.size());
  v.bits(words.data(), out.data(), static_cast<int>(words.size()));
  for (std::size_t i = 0; i < words.size(); ++i) EXPECT_EQ(float_bits(out[i]), words[i]);
}

// Three arrays of ordinary numbers over a range of exponents.
struct operands {
  std::vector<float> a, b, c, out;
  explicit operands(int n) {
    test::numbers random(7);
    for (std::vector<float>* x : {&a, &b, &c}) {
      *x = random.uniforms(static_cast<std::size_t>(n));
      for (float& y : *x) y = std::ldexp(y + std::copysign(0x1p-16F, y), random.below(20) - 10);
    }
    out.resize(a.size());
  }
};

TEST_P(Vocabulary, arithmetic) {
  constexpr int n = 4096;
  operands x(n);
  const auto check = [&](vocabulary::binary_fn run, auto expected, const char* name) {
    run(x.a.data(), x.b.data(), x.out.data(), n);
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(x.out[i], expected(x.a[i], x.b[i])) << name << " " << x.a[i] << " " << x.b[i];
  };
  check(
      v.add, [](float a, float b) { return a + b; }, "add");
  check(
      v.sub, [](float a, float b) { return a - b; }, "sub");
  check(
      v.mul, [](float a, float b) { return a * b; }, "mul");
  check(
      v.div, [](float a, float b) { return a / b; }, "div");
  check(
      v.max, [](float a, float b) { return a > b ? a : b; }, "max");
  check(
      v.min, [](float a, float b) { return a < b ? a : b; }, "min");
  check(
      v.max_magnitude, [](float a, float b) { return a > std::fabs(b) ? a : std::fabs(b); }, "max_magnitude");
  check(
      v.select_above_half, [](float a, float b) { return a > 0.5F ? b : 0.0F; }, "select_above");

  v.fma(x.a.data(), x.b.data(), x.c.data(), x.out.data(), n);
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(x.out[i], std::fma(x.a[i], x.b[i], x.c[i])) << i;
  v.fnma(x.a.data(), x.b.data(), x.c.data(), x.out.data(), n);
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(x.out[i], std::fma(-x.a[i], x.b[i], x.c[i])) << i;
  v.muladd(x.a.data(), x.b.data(), x.c.data(), x.out.data(), n);
  for (std::size_t i = 0; i < n; ++i) {
    const double product = static_cast<double>(x.a[i]) * static_cast<double>(x.b[i]);
    const double exact = product + static_cast<double>(x.c[i]);
    ASSERT_NEAR(static_cast<double>(x.out[i]), exact, 0x1p-24 * (std::fabs(product) + std::fabs(exact))) << i;
  }
}

TEST_P(Vocabulary, lanes_stay_in_their_places) {
  constexpr int n = 64;
  std::vector<float> a(n);
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<float>(i * i % 37) - 11.0F;
  v.swapped(a.data(), out.data(), n);
  for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], a[i ^ 1U]);
  v.broadcast_zero_and_one(a.data(), out.data(), n);
  for (const float one : out) EXPECT_EQ(one, 1.0F);
  for (const auto& sums : {v.sums, v.sums_of_four}) {
    sums(a.data(), out.data(), n);  // small integers: exact in any order
    for (int i = 0; i < n; i += v.lanes) {
      float sum = 0;
      for (int j = i; j < i + v.lanes; ++j) sum += a[static_cast<std::size_t>(j)];
      EXPECT_EQ(out[static_cast<std::size_t>(i / v.lanes)], sum);
    }
  }
  for (int place = 0; place < n; ++place) {  // the largest at every place
    std::vector<float> b = a;
    b[static_cast<std::size_t>(place)] = 100.0F;
    for (const auto& maxima : {v.maxima, v.maxima_of_four}) {
      maxima(b.data(), out.data(), n);
      for (int i = 0; i < n / v.lanes; ++i) {
        EXPECT_EQ(out[static_cast<std::size_t>(i)] == 100.0F, i == place / v.lanes) << place;
      }
    }
    b[static_cast<std::size_t>(place)] = -100.0F;
    v.minima(b.data(), out.data(), n);
    EXPECT_EQ(out[static_cast<std::size_t>(place / v.lanes)], -100.0F) << place;
  }
}

TEST_P(Vocabulary, chosen_pairs_are_cleared) {
  operands x(64);
  for (std::uint32_t pairs = 0; pairs < 256; ++pairs) {
    v.clear_pairs(x.a.data(), pairs | 0xA5A5A500U, x.out.data(), 64);  // with bits of no pair
    for (int i = 0; i < 64; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool cleared = (pairs >> (i % v.lanes / 2) & 1U) != 0;
      ASSERT_EQ(float_bits(x.out[at]), cleared ? 0U : float_bits(x.a[at])) << i << " of pairs " << pairs;
    }
  }
}

// Numbers of every exponent and both signs, subnormals included, and the zeros; finite.
std::vector<float> all_exponents() {
  test::numbers random(11);
  std::vector<float> out;
  for (std::uint32_t upper = 0; upper < 0x10000U; upper += 0x20U) {
    for (const std::uint32_t lower : {0U, 0x8000U, 0x1FFFFFU, static_cast<std::uint32_t>(random.next() & 0x1FFFFFU)}) {
      const float x = bits_float((upper << 16) + lower);
      out.push_back(kvaxis::is_finite(x) ? x : 0.0F);
    }
  }
  return out;
}

TEST_P(Vocabulary, conversions_that_decide_bytes) {
  const std::vector<float> x = all_exponents();
  const int n = static_cast<int>(x.size());
  std::vector<float> out(x.size());
  std::vector<std::uint32_t> words(x.size());
  v.flushed(x.data(), out.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(float_bits(out[i]), float_bits(kvaxis::flush_subnormal(x[i]))) << x[i];
  }
  v.inverse(x.data(), out.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(float_bits(out[i]), float_bits(static_cast<float>(1.0 / static_cast<double>(x[i])))) << x[i];
  }
  v.to_half(x.data(), words.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(words[i], kvaxis::to_float16(x[i]).bits) << x[i];
  std::vector<float> in_range = x;
  for (float& a : in_range) a = std::fabs(a) <= 65504.0F ? a + 0.0F : 1.0F;  // and no -0
  v.floor_to_half(in_range.data(), words.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(words[i], kvaxis::floor_float16(in_range[i]).bits) << in_range[i];
  }
}

TEST_P(Vocabulary, integers_and_choices) {
  operands x(4096);
  v.larger_of_c(x.a.data(), x.b.data(), x.c.data(), x.out.data(), 4096);
  for (std::size_t i = 0; i < 4096; ++i) ASSERT_EQ(x.out[i], x.a[i] > x.b[i] ? x.c[i] : x.a[i]);
  test::numbers random(12);
  std::uint32_t a[64];
  std::uint32_t b[64];
  std::uint32_t out[64];
  for (auto* words : {a, b}) {
    for (int i = 0; i < 64; ++i) words[i] = static_cast<std::uint32_t>(random.next());
  }
  v.words(a, b, out, 64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], ((a[i] << 3) + b[i] - 77U) & 0x0FF0F0FFU);
}

TEST_P(Vocabulary, pairs_turn_with_one_rounding_each) {
  operands x(4096);
  v.rotated(x.a.data(), x.b.data(), x.out.data(), 4096);
  for (std::size_t i = 0; i < 4096; i += 2) {
    const float c = x.b[i];
    const float s = x.b[i + 1];
    ASSERT_EQ(x.out[i], std::fma(x.a[i], c, -(x.a[i + 1] * s)));
    ASSERT_EQ(x.out[i + 1], std::fma(x.a[i], s, x.a[i + 1] * c));
  }
}

TEST_P(Vocabulary, one_number_out_of_range_is_seen_in_every_lane) {
  std::vector<float> a(static_cast<std::size_t>(v.lanes), 1.0F);
  const auto within = [&] { return v.all_within(a.data(), -2.0F, 3.0F); };
  EXPECT_TRUE(within());
  for (float& x : a) {
    for (const float inside : {-2.0F, 3.0F, 0.0F, -0.0F, bits_float(1U)}) {
      x = inside;
      EXPECT_TRUE(within()) << inside;
    }
    for (const std::uint32_t outside : {0x7F800000U, 0xFF800000U, 0x7FC00000U, 0xFFC00001U, 0x7F800001U}) {
      x = bits_float(outside);
      EXPECT_FALSE(within()) << outside;
    }
    for (const float outside : {std::nextafter(-2.0F, -3.0F), std::nextafter(3.0F, 4.0F), 3e38F, -3e38F}) {
      x = outside;
      EXPECT_FALSE(within()) << outside;
    }
    x = 1.0F;
  }
}

TEST_P(Vocabulary, four_vectors_become_rows_of_four) {
  const operands x(64);
  for (const int stride : {4, 5, 33}) {
    std::vector<float> out(static_cast<std::size_t>(stride * v.lanes), 77.0F);
    v.store_four(x.a.data(), stride, out.data());
    for (int i = 0; i < v.lanes; ++i) {
      for (int j = 0; j < stride; ++j) {
        const float expected = j < 4 ? x.a[static_cast<std::size_t>(j * v.lanes + i)] : 77.0F;
        ASSERT_EQ(out[static_cast<std::size_t>(i * stride + j)], expected) << stride;
      }
    }
  }
}

TEST_P(Vocabulary, rows_go_into_their_quads) {
  constexpr std::size_t quad_bytes = 48;
  std::uint32_t a[16];
  for (std::uint32_t i = 0; i < 16; ++i) a[i] = 0x03020100U + 0x04040404U * i;
  for (int rows = 4; rows <= 16; rows += 4) {
    std::vector<std::byte> quads(4 * quad_bytes + 64, std::byte{0xAB});
    for (int first = 0; first < 16; first += v.lanes)
      v.store_quads(a + first, quads.data() + 8, quad_bytes, first, rows);
    for (std::size_t i = 0; i < quads.size(); ++i) {
      const std::size_t quad = (i - 8) / quad_bytes;
      const std::size_t place = (i - 8) % quad_bytes;  // byte `place % 4` of word `place / 4`
      const bool written = i >= 8 && place < 16 && static_cast<int>(4 * quad) < rows;
      const std::size_t code = 4 * (4 * quad + place % 4) + place / 4;
      ASSERT_EQ(quads[i], written ? static_cast<std::byte>(code) : std::byte{0xAB}) << i << " of " << rows << " rows";
    }
  }
}

TEST_P(Vocabulary, powers_of_two) {
  std::vector<float> s;
  for (int n = -126; n < 128; ++n) {
    const auto whole = static_cast<float>(n);
    for (const float x : {whole, std::nextafter(whole, 1e9F), whole + 0.3F, std::nextafter(whole + 1.0F, -1e9F)}) {
      s.push_back(x);
    }
  }
  for (const float x : {-0.0F, 1e-30F, -1e-30F, -1e-40F, -126.5F, -127.5F, -1e3F, -3e9F, -3e38F, -HUGE_VALF}) {
    s.push_back(x);
  }
  s.resize((s.size() + 15) / 16 * 16);
  const int n = static_cast<int>(s.size());
  std::vector<float> a(s.size());
  std::vector<float> out(s.size());
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = 1.0F + static_cast<float>(i % 17) / 16.0F;
  v.fraction(s.data(), out.data(), n);
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] <= -126.0F) continue;
    const double exact = static_cast<double>(s[i]) - std::floor(static_cast<double>(s[i]));
    ASSERT_NEAR(static_cast<double>(out[i]), exact, s[i] > -1.0F && s[i] < 0.0F ? 0x1p-24 : 0.0) << s[i];
  }
  v.scale_by_power(a.data(), s.data(), out.data(), n);
  for (std::size_t i = 0; i < s.size(); ++i) {
    const bool counts = s[i] > -126.0F;
    ASSERT_EQ(out[i], counts ? std::ldexp(a[i], static_cast<int>(std::floor(s[i]))) : 0.0F) << a[i] << " by " << s[i];
  }
}

TEST_P(Vocabulary, doubles) {
  constexpr int n = 512;
  test::numbers random(3);
  std::vector<double> a(n), b(n), c(n), out(n);
  for (std::vector<double>* x : {&a, &b, &c}) {
    for (double& y : *x) y = static_cast<double>(static_cast<std::int64_t>(random.next())) * 0x1p-63;
  }
  v.mul_d(a.data(), b.data(), c.data(), out.data(), n);
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], a[i] * b[i]);
  v.fma_d(a.data(), b.data(), c.data(), out.data(), n);
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], std::fma(a[i], b[i], c[i]));
  v.fnma_d(a.data(), b.data(), c.data(), out.data(), n);
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], std::fma(-a[i], b[i], c[i]));
  std::vector<float> twice(2 * n);
  v.store_twice(a.data(), twice.data(), n);
  for (std::size_t i = 0; i < 2 * n; ++i) ASSERT_EQ(twice[i], static_cast<float>(a[i / 2])) << i;
  v.store_with_opposite(a.data(), twice.data(), n);
  for (std::size_t i = 0; i < 2 * n; ++i) {
    ASSERT_EQ(twice[i], static_cast<float>(i % 2 == 0 ? -a[i / 2] : a[i / 2])) << i;
  }
}

KVAXIS_ON_EVERY_ISA(Vocabulary);

}  // namespace
