// The functions of the integer kernels on every instruction set, those with integer units of their own too.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <isa_test.hpp>
#include <numbers.hpp>
#include <vector>

// On arrays, as plain function pointers; n is a multiple of 64. One vector where there is no n.
struct integer_vocabulary {
  int lanes;
  bool sums_in_words;
  bool centred_bytes;
  void (*round_to_words)(const float* a, std::uint32_t* out, int n);
  void (*words_to_float)(const std::uint32_t* a, float* out, int n);
  void (*store_bytes)(const std::uint32_t* a, std::int8_t* out, int n);
  void (*sum_four)(const std::uint32_t* a, std::int32_t* out, int n);  // out[i / lanes]
  void (*low_nibbles)(const std::uint32_t* a, std::uint32_t* out, int n);
  void (*set_word)(std::int32_t x, std::uint32_t* out);
  void (*load_bytes)(const std::int8_t* p, std::uint32_t* out);
  // total += the products of codes[16 q + lane] and weights[16 q + lane]; the second may be null.
  using products_fn = void (*)(const std::uint32_t* codes, const std::uint32_t* weights, int quads,
                               std::uint32_t* total);
  products_fn products_4, products_8;
  void (*settle)(const std::uint32_t* a, std::uint32_t* total);
};

#define KVAXIS_INTEGER
#define KVAXIS_INL <integers.inl>
#include <kvaxis/simd/foreach_isa.hpp>

namespace {

const integer_vocabulary& active_integers() {
  using namespace kvaxis;
  static constexpr std::array<const integer_vocabulary*, isa_count> tables = {
    &scalar::integer_probe::table,
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
    &avx2::integer_probe::table,
    &avx2_vnni::integer_probe::table,
    &avx512::integer_probe::table,
    &avx512_vnni::integer_probe::table,
    &avx512_vnni::integer_probe::table,  // FP16 is another vocabulary
    &avx512_vnni::integer_probe::table,  // AMX adds products of matrices alone
#elif defined(__aarch64__)
    &neon::integer_probe::table,
    &neon_dot::integer_probe::table,
#endif
  };
  return *tables[static_cast<std::size_t>(active_isa())];
}

class Integers : public isa_test {
 protected:
  const integer_vocabulary& v = active_integers();
};

std::vector<std::uint32_t> random_words(std::size_t n, std::uint64_t seed) {
  test::numbers random(seed);
  std::vector<std::uint32_t> out(n);
  for (std::uint32_t& x : out) x = static_cast<std::uint32_t>(random.next() >> 32);
  return out;
}

TEST_P(Integers, rounding_is_to_nearest_and_ties_to_even) {
  std::vector<float> a;
  for (int i = -512; i < 512; ++i) a.push_back(static_cast<float>(i) / 4.0F);
  test::numbers random(21);
  for (const float x : random.uniforms(1024)) a.push_back(x * 0x1p22F);
  for (float& x : a) x = std::fabs(x) < 0x1p22F ? x : 0.0F;
  std::vector<std::uint32_t> words(a.size());
  std::vector<float> back(a.size());
  v.round_to_words(a.data(), words.data(), static_cast<int>(a.size()));
  v.words_to_float(words.data(), back.data(), static_cast<int>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(static_cast<std::int32_t>(words[i]), static_cast<std::int32_t>(std::nearbyint(a[i]))) << a[i];
    ASSERT_EQ(back[i], std::nearbyint(a[i])) << a[i];
  }
}

TEST_P(Integers, any_word_becomes_the_nearest_number) {
  const std::vector<std::uint32_t> words = random_words(1024, 22);
  std::vector<float> out(words.size());
  v.words_to_float(words.data(), out.data(), 1024);
  for (std::size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<float>(static_cast<std::int32_t>(words[i])));
  }
}

TEST_P(Integers, bytes_keep_their_order) {
  std::uint32_t words[256];
  std::int8_t out[257];
  for (int i = 0; i < 256; ++i) words[i] = static_cast<std::uint32_t>(i % 255 - 127);
  out[256] = 77;
  v.store_bytes(words, out, 256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(out[i], i % 255 - 127) << i;
  EXPECT_EQ(out[256], 77);
}

TEST_P(Integers, sums_of_four_vectors) {
  const std::vector<std::uint32_t> words = random_words(256, 23);
  std::vector<std::int32_t> out(words.size());
  v.sum_four(words.data(), out.data(), 256);
  const auto lanes = static_cast<std::size_t>(v.lanes);
  for (std::size_t i = 0; i < words.size() / lanes; ++i) {
    std::uint32_t sum = 0;
    for (std::size_t j = 0; j < lanes; ++j) sum += words[i * lanes + j];
    ASSERT_EQ(static_cast<std::uint32_t>(out[i]), sum) << i;
  }
}

TEST_P(Integers, one_value_in_every_lane) {
  std::uint32_t out[16] = {};
  const auto expect_all = [&](std::uint32_t expected) {
    for (int i = 0; i < v.lanes; ++i) EXPECT_EQ(out[i], expected) << i;
  };
  v.set_word(-123456789, out);
  expect_all(static_cast<std::uint32_t>(-123456789));
  const std::int8_t bytes[] = {99, -127, 1, 127, -2, 55};
  v.load_bytes(bytes + 1, out);
  std::uint32_t expected = 0;
  std::memcpy(&expected, bytes + 1, sizeof expected);
  expect_all(expected);
}

TEST_P(Integers, low_nibbles_of_every_byte) {
  const std::vector<std::uint32_t> words = random_words(64, 24);
  std::vector<std::uint32_t> out(words.size());
  v.low_nibbles(words.data(), out.data(), 64);
  for (std::size_t i = 0; i < words.size(); ++i) EXPECT_EQ(out[i], words[i] & 0x0F0F0F0FU);
}

// Codes below 2^bits times weights within +-127, `sign` of both extremes or 0: random ones. More quads than are settled
// at a time, and not a multiple of that.
void expect_products(const integer_vocabulary& v, int bits, int sign) {
  const auto products = bits == 4 ? v.products_4 : v.products_8;
  constexpr int quads = 19;
  const auto largest = (1 << bits) - 1;
  test::numbers random(static_cast<std::uint64_t>(10 * bits + sign));
  std::vector<std::uint32_t> codes(16 * quads);
  std::vector<std::uint32_t> weights(codes.size());
  std::uint32_t total[16];
  std::int64_t expected[16];
  for (int i = 0; i < 16; ++i) {
    expected[i] = 1000 * i - 7000;
    total[i] = static_cast<std::uint32_t>(expected[i]);
  }
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (int shift = 0; shift < 32; shift += 8) {
      const int code = sign != 0 ? largest : random.below(largest + 1);
      const int weight = sign != 0 ? sign * 127 : random.below(255) - 127;
      codes[i] |= static_cast<std::uint32_t>(code) << shift;
      weights[i] |= (static_cast<std::uint32_t>(weight) & 0xFFU) << shift;
      expected[i % 16] += (bits == 8 && v.centred_bytes ? code - 128 : code) * weight;
    }
  }
  products(codes.data(), weights.data(), quads, total);
  for (int i = 0; i < v.lanes; ++i) {
    ASSERT_EQ(static_cast<std::int32_t>(total[i]), expected[i]) << bits << " bits, lane " << i;
  }
}

TEST_P(Integers, products_of_bytes_are_summed_exactly) {
  EXPECT_EQ(v.products_8 != nullptr, v.sums_in_words);
  for (const int sign : {-1, 0, 1}) {
    expect_products(v, 4, sign);
    if (v.products_8 != nullptr) expect_products(v, 8, sign);
  }
}

// Below 2^15, a word is the sum of its halves: the same for sums in words and others.
TEST_P(Integers, settled_sums_are_added) {
  std::vector<std::uint32_t> a = random_words(16, 25);
  for (std::uint32_t& x : a) x &= 0x7FFFU;
  std::vector<std::uint32_t> total = random_words(16, 26);
  const std::vector<std::uint32_t> before = total;
  v.settle(a.data(), total.data());
  for (std::size_t i = 0; i < static_cast<std::size_t>(v.lanes); ++i) EXPECT_EQ(total[i], before[i] + a[i]) << i;
}

KVAXIS_ON_EVERY_ISA(Integers);

}  // namespace
