#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/rope/sincos.hpp>
#include <vector>

#include "long_double.hpp"

namespace {

using kvaxis::double_bits;

struct sine_cosine {
  double sine;
  double cosine;
};

sine_cosine evaluate(double x) {
  sine_cosine out{};
  kvaxis::sincos(x, out.sine, out.cosine);
  return out;
}

#if defined(__x86_64__)
KVAXIS_TARGET_PUSH("avx2,fma")
sine_cosine evaluate_in_region(double x) {
  sine_cosine out{};
  kvaxis::sincos(x, out.sine, out.cosine);
  return out;
}
KVAXIS_TARGET_POP
#endif

// Doubles of both signs, spread evenly over +-2^exponent, the same ones from every compiler.
std::vector<double> arguments(int count, int exponent) {
  std::vector<double> out;
  std::uint64_t state = 1;
  for (int i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto signed_53_bits = static_cast<std::int64_t>(state >> 10) - (std::int64_t{1} << 53);
    out.push_back(static_cast<double>(signed_53_bits) * std::ldexp(1.0, exponent - 53));
  }
  return out;
}

double error_at(double x) {
  const sine_cosine got = evaluate(x);
  const long double angle = x;
  const auto sine_error = static_cast<double>(got.sine - exact_sine(angle));
  const auto cosine_error = static_cast<double>(got.cosine - exact_cosine(angle));
  return std::max(std::fabs(sine_error), std::fabs(cosine_error));
}

// FNV-1a over the bits of all results.
template <class Evaluate>
std::uint64_t checksum(Evaluate evaluate_one) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const int exponent : {0, 10, 20, 34}) {
    for (const double x : arguments(5000, exponent)) {
      const sine_cosine value = evaluate_one(x);
      for (const double part : {value.sine, value.cosine}) hash = (hash ^ double_bits(part)) * 0x100000001B3U;
    }
  }
  return hash;
}

TEST(Sincos, is_exact_to_the_last_bits_at_every_scale) {
  for (const int exponent : {-30, -4, 0, 2, 6, 12, 20, 26, 33, 35}) {
    double worst = 0.0;
    for (const double x : arguments(20000, exponent)) worst = std::max(worst, error_at(x));
    EXPECT_LT(worst, 2e-16) << "up to 2^" << exponent;
  }
}

TEST(Sincos, is_exact_next_to_the_quadrant_borders) {
  double worst = 0.0;
  for (std::int64_t k = 1; k < (std::int64_t{1} << 34); k = k * 9 / 8 + 1) {
    const auto border = static_cast<double>(static_cast<long double>(k) * exact_pi / 4);
    for (const double x : {border, std::nextafter(border, 0.0), -border}) worst = std::max(worst, error_at(x));
  }
  EXPECT_LT(worst, 2e-16);
}

TEST(Sincos, zero_gives_zero_and_one) {
  const sine_cosine at_zero = evaluate(0.0);
  EXPECT_EQ(double_bits(at_zero.sine), 0U);
  EXPECT_EQ(at_zero.cosine, 1.0);
}

TEST(Sincos, golden_bits) {
  struct golden {
    double x;
    std::uint64_t sine, cosine;
  };
  const golden table[] = {
      {0.5, 0x3FDEAEE8744B05F0U, 0x3FEC1528065B7D50U},
      {1.0, 0x3FEAED548F090CEEU, 0x3FE14A280FB5068CU},
      {-2.0, 0xBFED18F6EAD1B446U, 0xBFDAA22657537205U},
      {0x1.921fb54442d18p-1, 0x3FE6A09E667F3BCCU, 0x3FE6A09E667F3BCDU},
      {1000.0, 0x3FEA75CC150A206CU, 0x3FE1FF026793F1BBU},
      {12345.678, 0xBFE687D5890974A5U, 0x3FE6B94C3BBE24B8U},
      {1048575.9, 0x3FCE07FA13370AFBU, 0x3FEF1B57557C0355U},
      {-8589934591.5, 0xBFDC7082D2332CBFU, 0x3FECAAC2A7D977A0U},
      {13493037704.5, 0xBF968BABE59C017CU, 0x3FEFFE03A27A5D3AU},
  };
  for (const golden& t : table) {
    const sine_cosine got = evaluate(t.x);
    EXPECT_EQ(double_bits(got.sine), t.sine) << t.x;
    EXPECT_EQ(double_bits(got.cosine), t.cosine) << t.x;
  }
}

TEST(Sincos, golden_bits_of_many) { EXPECT_EQ(checksum(evaluate), 0xC0C21CAFE80F905CU); }

#if defined(__x86_64__)
TEST(Sincos, golden_bits_inside_a_target_region) {
  const bool can_run = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  EXPECT_EQ(checksum(can_run ? evaluate_in_region : evaluate), 0xC0C21CAFE80F905CU);
}
#endif

}  // namespace
