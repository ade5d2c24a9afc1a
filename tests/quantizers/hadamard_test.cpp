#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/hadamard.hpp>
#include <numbers.hpp>
#include <vector>

namespace {

constexpr int channel_counts[] = {1, 2, 8, 12, 16, 64, 80, 96, 105, 112, 128, 160, 192, 256, 512, 575, 576};

std::vector<float> transformed(std::vector<float> row) {
  kvaxis::hadamard(row.data(), static_cast<int>(row.size()));
  return row;
}

// An entry of the matrix by its definition: the sign is the parity of the common bits of row and column.
double entry(int block, int i, int j) {
  if (i / block != j / block) return 0.0;
  const int sign = __builtin_parity(static_cast<unsigned>(i % block & j % block));
  return (sign != 0 ? -1.0 : 1.0) / std::sqrt(block);
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

TEST(Hadamard, blocks_are_the_largest_powers_of_two) {
  EXPECT_EQ(kvaxis::hadamard_block(128), 128);
  EXPECT_EQ(kvaxis::hadamard_block(80), 16);
  EXPECT_EQ(kvaxis::hadamard_block(96), 32);
  EXPECT_EQ(kvaxis::hadamard_block(576), 64);
  EXPECT_EQ(kvaxis::hadamard_block(575), 1);
  EXPECT_EQ(kvaxis::hadamard_block(1), 1);
}

TEST(Hadamard, is_the_product_with_the_matrix) {
  test::numbers random(5);
  for (const int n : channel_counts) {
    const std::vector<float> x = random.bells(static_cast<std::size_t>(n));
    const std::vector<float> y = transformed(x);
    for (int i = 0; i < n; ++i) {
      double expected = 0;
      for (int j = 0; j < n; ++j) {
        expected += entry(kvaxis::hadamard_block(n), i, j) * static_cast<double>(x[static_cast<std::size_t>(j)]);
      }
      ASSERT_NEAR(y[static_cast<std::size_t>(i)], expected, 4e-6) << n << " channels, " << i;
    }
  }
}

TEST(Hadamard, keeps_products_and_is_its_own_inverse) {
  test::numbers random(6);
  for (const int n : channel_counts) {
    const std::vector<float> k = random.bells(static_cast<std::size_t>(n), 3.0F);
    const std::vector<float> q = random.bells(static_cast<std::size_t>(n));
    const std::vector<float> k2 = transformed(k);
    const double size = std::sqrt(dot(k, k) * dot(q, q));
    EXPECT_NEAR(dot(k2, transformed(q)), dot(k, q), 2e-6 * size) << n;
    EXPECT_NEAR(dot(k2, k2), dot(k, k), 2e-6 * dot(k, k)) << n;
    const std::vector<float> back = transformed(k2);
    for (std::size_t i = 0; i < k.size(); ++i) ASSERT_NEAR(back[i], k[i], 1e-5) << n;
  }
}

TEST(Hadamard, spreads_an_outlier_evenly_over_its_block) {
  for (const int n : channel_counts) {
    const int block = kvaxis::hadamard_block(n);
    const int at = n - 1 - (n - 1) % 3;
    std::vector<float> x(static_cast<std::size_t>(n), 0.0F);
    x[static_cast<std::size_t>(at)] = 100.0F;
    const std::vector<float> y = transformed(x);
    for (int i = 0; i < n; ++i) {
      const double expected = i / block == at / block ? 100.0 / std::sqrt(block) : 0.0;
      ASSERT_NEAR(std::fabs(y[static_cast<std::size_t>(i)]), expected, 1e-5) << n << " channels, " << i;
    }
  }
}

// Bits, so that a change of the order of operations is seen: rows of caches depend on them.
TEST(Hadamard, bits_do_not_depend_on_flags) {
  std::uint64_t hash = 0;
  test::numbers random(8);
  for (const int n : channel_counts) {
    for (const float y : transformed(random.bells(static_cast<std::size_t>(n), 0.1F))) {
      hash = (hash ^ kvaxis::float_bits(y)) * 0x9E3779B97F4A7C15U;
    }
  }
  EXPECT_EQ(hash, 7228919273414107733U);
}

TEST(Hadamard, numbers_too_small_to_matter_are_zero) {
  std::vector<float> x(16, 0x1p-97F);
  x[3] = -0x1p-97F;
  for (const float y : transformed(x)) EXPECT_EQ(kvaxis::float_bits(y), 0U);
  // The smallest result that is not zero: a difference of one unit in the last place, over sqrt(512).
  std::vector<float> least(512, 0.0F);
  least[0] = 0x1.000002p-96F;
  least[1] = -0x1p-96F;
  for (const float y : transformed(least)) EXPECT_GE(kvaxis::float_bits(y) & 0x7FFFFFFFU, 0x00800000U);
}

}  // namespace
