#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/rope/rope.hpp>
#include <vector>

#include "long_double.hpp"

namespace {

using kvaxis::rope_parameters;
using rule = kvaxis::rope_scaling::rule;

const double thetas[] = {1e4, 1e5, 1.3e5, 1.5e5, 2.5e5, 5e5, 1e6, 1e7, 1e9};

kvaxis::rope made(const rope_parameters& p) {
  kvaxis::rope out;
  const kvaxis::status s = kvaxis::make_rope(p, out);
  EXPECT_TRUE(s.ok()) << s.argument;
  return out;
}

rope_parameters model(double theta, int n, rule kind = rule::none, double factor = 1.0, double original_context = 0.0) {
  rope_parameters p;
  p.head_dim = n;
  p.theta = theta;
  p.scaling.kind = kind;
  p.scaling.factor = factor;
  p.scaling.original_context = original_context;
  return p;
}

double frequency(const kvaxis::rope& r, int i) { return r.pairs.at(static_cast<std::size_t>(i)).frequency; }

long double unscaled(double theta, int n, int i) { return exact_power(theta, -2.0L * i / n); }

// theta^(-2i/n) / frequency, as tables of divisors are printed.
double divisor(const rope_parameters& p, const kvaxis::rope& r, int i) {
  return static_cast<double>(unscaled(p.theta, p.head_dim, i) / frequency(r, i));
}

double relative_error(double got, long double want) { return static_cast<double>(std::fabs(got / want - 1.0L)); }

constexpr double rounding = 3e-16;

TEST(Frequencies, are_powers_of_theta_to_the_last_bit_or_two) {
  for (const double theta : thetas) {
    for (const int n : {8, 10, 20, 24, 40, 64, 80, 96, 128, 256, 512, 576}) {
      const kvaxis::rope r = made(model(theta, n));
      ASSERT_EQ(r.pairs_count, n / 2);
      EXPECT_EQ(frequency(r, 0), 1.0);
      EXPECT_EQ(r.attention_factor, 1.0);
      for (int i = 0; i < n / 2; ++i) {
        ASSERT_LT(relative_error(frequency(r, i), unscaled(theta, n, i)), rounding) << theta << ' ' << n << ' ' << i;
      }
    }
  }
}

TEST(Frequencies, extremes_of_theta) {
  EXPECT_EQ(frequency(made(model(1.0, 64)), 31), 1.0);
  EXPECT_EQ(frequency(made(model(0x1p64, 8)), 1), 0x1p-16);
  EXPECT_EQ(frequency(made(model(0x1p64, 8)), 3), 0x1p-48);
}

TEST(Scaling, linear_divides_every_frequency) {
  const rope_parameters p = model(1e6, 256, rule::linear, 8.0);
  const kvaxis::rope r = made(p);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(frequency(r, i), frequency(made(model(1e6, 256)), i) / 8);
  EXPECT_EQ(r.attention_factor, 1.0);
  const kvaxis::rope thirds = made(model(1e4, 64, rule::linear, 3.0));
  for (int i = 0; i < 32; ++i) EXPECT_LT(relative_error(frequency(thirds, i), unscaled(1e4, 64, i) / 3), rounding);
}

TEST(Scaling, ntk_raises_theta) {
  for (const double factor : {1.0, 2.0, 4.0, 7.5, 1048576.0}) {
    for (const int n : {8, 64, 128, 576}) {
      const kvaxis::rope r = made(model(1e4, n, rule::ntk, factor));
      const long double theta = 1e4L * exact_power(factor, static_cast<long double>(n) / (n - 2));
      for (int i = 0; i < n / 2; ++i) {
        const long double want = exact_power(theta, -2.0L * i / n);
        ASSERT_LT(relative_error(frequency(r, i), want), rounding) << factor << ' ' << n << ' ' << i;
      }
      EXPECT_EQ(r.attention_factor, 1.0);
    }
  }
  rope_parameters one_pair = model(1e4, 8, rule::ntk, 4.0);
  one_pair.rotary_dim = 2;
  EXPECT_EQ(frequency(made(one_pair), 0), 1.0) << "n - 2 is zero";
}

TEST(Scaling, llama3_divisors_of_llama_3_1) {
  const rope_parameters p = model(5e5, 128, rule::llama3, 8.0, 8192.0);
  const kvaxis::rope r = made(p);
  for (int i = 0; i <= 28; ++i) EXPECT_NEAR(divisor(p, r, i), 1.0, 1e-15) << i;
  const double between[] = {1.207484, 1.553415, 2.026313, 2.694530, 3.684253, 5.257327};
  for (int i = 29; i <= 34; ++i) EXPECT_NEAR(divisor(p, r, i), between[i - 29], 5e-7) << i;
  for (int i = 35; i < 64; ++i) EXPECT_NEAR(divisor(p, r, i), 8.0, 8e-15) << i;
  EXPECT_EQ(r.attention_factor, 1.0);
}

TEST(Scaling, llama3_divisors_of_llama_3_2) {
  const rope_parameters p = model(5e5, 64, rule::llama3, 32.0, 8192.0);
  const kvaxis::rope r = made(p);
  for (int i = 0; i <= 14; ++i) EXPECT_NEAR(divisor(p, r, i), 1.0, 1e-15) << i;
  const double between[] = {1.651329, 3.292262, 9.666729};
  for (int i = 15; i <= 17; ++i) EXPECT_NEAR(divisor(p, r, i), between[i - 15], 5e-7) << i;
  for (int i = 18; i < 32; ++i) EXPECT_NEAR(divisor(p, r, i), 32.0, 4e-14) << i;
}

TEST(Scaling, llama3_blend_against_long_double) {
  for (const double theta : thetas) {
    const kvaxis::rope r = made(model(theta, 128, rule::llama3, 8.0, 8192.0));
    for (int i = 0; i < 64; ++i) {
      const long double w = unscaled(theta, 128, i);
      const long double wavelength = 2 * exact_pi / w;
      long double want = w;
      if (wavelength > 8192.0L) {
        want = w / 8;
      } else if (wavelength >= 8192.0L / 4) {
        const long double share = (8192.0L / wavelength - 1) / 3;
        want = (1 - share) * w / 8 + share * w;
      }
      EXPECT_LT(relative_error(frequency(r, i), want), 1e-14) << theta << ' ' << i;
    }
  }
}

TEST(Scaling, yarn_of_gpt_oss_is_not_truncated) {
  rope_parameters p = model(1.5e5, 64, rule::yarn, 32.0, 4096.0);
  p.scaling.truncate = false;
  const kvaxis::rope r = made(p);
  for (int i = 0; i <= 8; ++i) EXPECT_NEAR(divisor(p, r, i), 1.0, 1e-15) << i;
  EXPECT_NEAR(divisor(p, r, 10), 1.247749, 5e-7);
  EXPECT_NEAR(divisor(p, r, 12), 1.685695, 5e-7);
  EXPECT_NEAR(divisor(p, r, 16), 5.656254, 5e-7);
  for (int i = 20; i < 32; ++i) EXPECT_NEAR(divisor(p, r, i), 32.0, 4e-14) << i;
  EXPECT_NEAR(r.attention_factor, 1.3465736, 5e-8);
  EXPECT_NEAR(r.attention_factor * r.attention_factor, 1.81326, 5e-6);
}

TEST(Scaling, yarn_of_deepseek_v3) {
  rope_parameters p = model(1e4, 64, rule::yarn, 40.0, 4096.0);
  p.scaling.attention_factor = 1.0;  // the model puts its factor into the softmax scale instead
  const kvaxis::rope r = made(p);
  for (int i = 0; i <= 10; ++i) EXPECT_NEAR(divisor(p, r, i), 1.0, 1e-15) << i;
  EXPECT_NEAR(divisor(p, r, 12), 1.176471, 5e-7);
  EXPECT_NEAR(divisor(p, r, 16), 1.818182, 5e-7);
  EXPECT_NEAR(divisor(p, r, 20), 4.0, 1e-12);
  for (int i = 23; i < 32; ++i) EXPECT_NEAR(divisor(p, r, i), 40.0, 4e-14) << i;
  EXPECT_EQ(r.attention_factor, 1.0);
}

TEST(Scaling, yarn_of_qwen_2_5_blends_between_pairs_23_and_40) {
  const rope_parameters p = model(1e6, 128, rule::yarn, 4.0, 32768.0);
  const kvaxis::rope r = made(p);
  for (int i = 0; i < 64; ++i) {
    const long double w = unscaled(1e6, 128, i);
    const long double ramp = std::fmin(std::fmax((i - 23) / 17.0L, 0.0L), 1.0L);
    EXPECT_LT(relative_error(frequency(r, i), w / 4 * ramp + w * (1 - ramp)), 1e-15) << i;
  }
  EXPECT_NEAR(r.attention_factor, static_cast<double>(0.1L * exact_log(4.0L) + 1), 1e-15);
}

// The formula of the paper, c(r) = n ln(L0 / 2 pi r) / 2 ln theta, also where its bounds leave the list or coincide.
TEST(Scaling, yarn_against_long_double) {
  struct yarn_case {
    double theta, factor, original_context, beta_fast, beta_slow;
    bool truncate;
  };
  const yarn_case cases[] = {
      {1e4, 4, 4096, 32, 1, true},     {1e6, 4, 32768, 32, 1, true},    {1.5e5, 32, 4096, 32, 1, false},
      {1e4, 16, 64, 32, 1, true},      {1e4, 8, 0x1p31, 1e6, 1, true},  {1e4, 8, 0x1p31, 1e6, 1, false},
      {1e4, 3, 4096, 6.9, 6.9, false}, {1e4, 3, 4096, 6.9, 6.5, false}, {5e5, 7, 8192, 4, 4, true},
      {1e4, 5, 1, 32, 1, true},        {1e4, 40, 4096, 100, 0.5, true}};
  constexpr int n = 64;
  for (const yarn_case& c : cases) {
    rope_parameters p = model(c.theta, n, rule::yarn, c.factor, c.original_context);
    p.scaling.beta_fast = c.beta_fast;
    p.scaling.beta_slow = c.beta_slow;
    p.scaling.truncate = c.truncate;
    const kvaxis::rope r = made(p);
    const auto index = [&](double turns) {
      return n * exact_log(c.original_context / (2 * exact_pi * turns)) / (2 * exact_log(c.theta));
    };
    long double low = index(c.beta_fast);
    long double high = index(c.beta_slow);
    if (c.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::fmax(low, 0.0L);
    high = std::fmin(high, n - 1.0L);
    const long double width = std::fmax(high - low, 0.001L);
    for (int i = 0; i < n / 2; ++i) {
      const long double w = unscaled(c.theta, n, i);
      const long double ramp = std::fmin(std::fmax((i - low) / width, 0.0L), 1.0L);
      EXPECT_LT(relative_error(frequency(r, i), w / c.factor * ramp + w * (1 - ramp)), 2e-14)
          << c.theta << ' ' << c.original_context << ' ' << i;
    }
    EXPECT_NEAR(r.attention_factor, static_cast<double>(0.1L * exact_log(c.factor) + 1), 3e-16);
  }
}

TEST(Scaling, attention_factor_of_the_caller_replaces_the_rules_own) {
  rope_parameters p = model(1e4, 64, rule::yarn, 4.0, 4096.0);
  p.scaling.attention_factor = 1.25;
  EXPECT_EQ(made(p).attention_factor, 1.25);
  p.scaling.kind = rule::none;
  EXPECT_EQ(made(p).attention_factor, 1.25);
}

// Stored keys depend on these bits; a change must be a decision.
TEST(Scaling, golden_bits_of_the_frequencies) {
  rope_parameters gpt_oss = model(1.5e5, 64, rule::yarn, 32.0, 4096.0);
  gpt_oss.scaling.truncate = false;
  const rope_parameters models[] = {model(1e4, 128),
                                    model(5e5, 80),
                                    gpt_oss,
                                    model(5e5, 128, rule::llama3, 8.0, 8192.0),
                                    model(1e4, 96, rule::ntk, 3.7),
                                    model(1e6, 128, rule::yarn, 4.0, 32768.0),
                                    model(1e4, 64, rule::linear, 3.0)};
  std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
  for (const rope_parameters& p : models) {
    const kvaxis::rope r = made(p);
    for (int i = 0; i < r.pairs_count; ++i) {
      hash = (hash ^ kvaxis::double_bits(frequency(r, i))) * 0x100000001B3U;
    }
    hash = (hash ^ kvaxis::double_bits(r.attention_factor)) * 0x100000001B3U;
  }
  EXPECT_EQ(hash, 0x97E5140439EB39C5U);
  EXPECT_EQ(kvaxis::double_bits(frequency(made(model(1e4, 128)), 1)), 0x3FEBB5FAD00AB22CU);
}

}  // namespace
