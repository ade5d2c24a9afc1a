#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/rope/rope.hpp>
#include <type_traits>
#include <vector>

#include "long_double.hpp"

namespace {

using kvaxis::rope_layout;
using kvaxis::rope_parameters;

static_assert(std::is_trivially_copyable_v<kvaxis::rope>);

constexpr rope_layout layouts[] = {rope_layout::half_split, rope_layout::interleaved};

kvaxis::rope made(const rope_parameters& p) {
  kvaxis::rope out;
  const kvaxis::status s = kvaxis::make_rope(p, out);
  EXPECT_TRUE(s.ok()) << s.argument;
  EXPECT_TRUE(kvaxis::check_rope(out, p.head_dim).ok());
  return out;
}

kvaxis::rope made(int head_dim, int first_channel, rope_layout layout, const std::vector<double>& frequencies) {
  kvaxis::rope out;
  const kvaxis::status s =
      kvaxis::make_rope(head_dim, first_channel, layout, frequencies.data(), static_cast<int>(frequencies.size()), out);
  EXPECT_TRUE(s.ok()) << s.argument;
  EXPECT_TRUE(kvaxis::check_rope(out, head_dim).ok());
  return out;
}

rope_parameters model(int head_dim, rope_layout layout, double theta = 1e4) {
  rope_parameters p;
  p.head_dim = head_dim;
  p.layout = layout;
  p.theta = theta;
  return p;
}

std::vector<float> rotated(const kvaxis::rope& r, std::int64_t position, std::vector<float> head) {
  kvaxis::rotate(r, position, head.data());
  return head;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "channel " << i;
}

// Numbers in -1 to 1, the same ones everywhere.
std::vector<float> some_vector(int n, std::uint32_t seed) {
  std::vector<float> out;
  for (int i = 0; i < n; ++i) {
    seed = seed * 1664525U + 1013904223U;
    out.push_back(static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31F);
  }
  return out;
}

const std::vector<float> sample = {1.0F, -2.0F, 3.0F, -4.0F, 0.5F, 0.25F, -0.125F, 2.0F};

TEST(Rope, interleaved_vector) {
  expect_near(rotated(made(model(8, rope_layout::interleaved)), 1000, sample),
              {2.21613816, -.297878612, .561494052, -4.96837241, -.283530487, -.481778438, -1.75047976, .975420739},
              6e-7);
}

TEST(Rope, half_split_vector) {
  expect_near(rotated(made(model(8, rope_layout::half_split)), 1000, sample),
              {.148939306, -1.59804633, -2.58521723, -3.84415119, 1.10806908, 1.228311, -1.52717939, -2.28527933},
              6e-7);
}

TEST(Rope, partial_vector_leaves_the_rest_alone) {
  rope_parameters p = model(8, rope_layout::half_split);
  p.rotary_dim = 4;
  const std::vector<float> got = rotated(made(p), 1000, sample);
  expect_near(got, {-1.91825955, -.497941385, 2.51401677, 4.44432834, .5, .25, -.125, 2}, 6e-7);
  for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(got[i], sample[i]);
}

// Proportional RoPE: exponents over the whole head, and the pairs of the second half stand still.
TEST(Rope, proportional_vector) {
  const std::vector<float> got = rotated(made(8, 0, rope_layout::half_split, {1.0, 0.1, 0.0, 0.0}), 1000, sample);
  expect_near(got, {.148939306, -1.59804633, 3, -4, 1.10806908, 1.228311, -.125, 2}, 6e-7);
  for (const std::size_t i : {2U, 3U, 6U, 7U}) EXPECT_EQ(got[i], sample[i]);
}

TEST(Rope, B24_two_conventions) {
  const std::vector<float> k = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> q = {0.5F, -1, 2, 0.25F, -0.75F, 1.5F, 1, -2};
  const std::vector<double> half_split = {-1.695593, 0.137552, 2.788682, 3.975982,
                                          -4.808842, 6.323059, 7.086837, 8.011964};
  const std::vector<double> interleaved = {-1.272233, -1.838865, 1.683929, 4.707907,
                                           4.817777,  6.147278,  6.975969, 8.020964};
  for (const rope_layout layout : layouts) {
    const std::vector<double>& want = layout == rope_layout::half_split ? half_split : interleaved;
    const std::vector<float> got = rotated(made(model(8, layout)), 3, k);
    expect_near(got, want, 1e-6);
    EXPECT_NEAR(std::sqrt(dot(got, got) / dot(k, k)), 1.0, 1e-6) << "a rotation keeps the norm";
    double logit = 0.0;
    for (std::size_t i = 0; i < 8; ++i) logit += static_cast<double>(q[i]) * want[i];
    EXPECT_NEAR(dot(q, got), logit, 1e-5);
  }
}

TEST(Rope, B24_the_conventions_differ_by_a_permutation) {
  constexpr std::size_t dim = 96;
  const std::vector<float> natural = some_vector(dim, 1);
  std::vector<float> permuted(dim);
  for (std::size_t i = 0; i < dim / 2; ++i) {
    permuted[2 * i] = natural[i];
    permuted[2 * i + 1] = natural[i + dim / 2];
  }
  const std::vector<float> half_split = rotated(made(model(dim, rope_layout::half_split)), 77, natural);
  const std::vector<float> interleaved = rotated(made(model(dim, rope_layout::interleaved)), 77, permuted);
  for (std::size_t i = 0; i < dim / 2; ++i) {
    EXPECT_EQ(interleaved[2 * i], half_split[i]);
    EXPECT_EQ(interleaved[2 * i + 1], half_split[i + dim / 2]);
  }
}

TEST(Rope, partial_dims_of_real_models) {
  const std::array<int, 2> shapes[] = {{96, 24}, {64, 16}, {128, 32}, {80, 20},  {160, 40},
                                       {64, 32}, {80, 32}, {128, 96}, {128, 64}, {256, 64}};
  for (const auto& [head_dim, n] : shapes) {
    for (const rope_layout layout : layouts) {
      rope_parameters p = model(head_dim, layout);
      p.rotary_dim = n;
      const kvaxis::rope r = made(p);
      ASSERT_EQ(r.pairs_count, n / 2);
      const kvaxis::rope whole = made(model(n, layout));
      for (std::size_t i = 0; i < static_cast<std::size_t>(n / 2); ++i) {
        EXPECT_EQ(r.pairs[i].a, whole.pairs[i].a);
        EXPECT_EQ(r.pairs[i].b, whole.pairs[i].b);
        EXPECT_EQ(r.pairs[i].frequency, whole.pairs[i].frequency) << "the exponent is over the rotary size";
      }
    }
  }
}

TEST(Rope, latent_keys_rotate_their_tail) {
  rope_parameters p = model(576, rope_layout::interleaved);
  p.first_channel = 512;
  const kvaxis::rope r = made(p);
  ASSERT_EQ(r.pairs_count, 32);
  EXPECT_EQ(r.pairs[0].a, 512);
  EXPECT_EQ(r.pairs[31].b, 575);
  const std::vector<float> before = some_vector(576, 5);
  const std::vector<float> after = rotated(r, 1234, before);
  for (std::size_t i = 0; i < 512; ++i) ASSERT_EQ(after[i], before[i]) << i;
  const kvaxis::rope tail = made(model(64, rope_layout::interleaved));
  const std::vector<float> want = rotated(tail, 1234, {before.begin() + 512, before.end()});
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(after[512 + i], want[i]) << i;
}

TEST(Rope, without_pairs_nothing_moves) {
  const kvaxis::rope none;
  EXPECT_TRUE(kvaxis::check_rope(none, 8).ok());
  EXPECT_EQ(rotated(none, 1000, sample), sample);
}

// The rotation of (1, 0) is (cosine, sine), each off by at most half a unit in the last place of an f32.
TEST(Rope, B26_angles_against_long_double_up_to_a_million) {
  for (const double theta : {1e4, 1e5, 1.3e5, 1.5e5, 2.5e5, 5e5, 1e6, 1e7}) {
    for (const rope_layout layout : layouts) {
      const kvaxis::rope r = made(model(128, layout, theta));
      std::vector<float> ones(128, 0.0F);
      for (std::size_t i = 0; i < 64; ++i) ones[static_cast<std::size_t>(r.pairs[i].a)] = 1.0F;
      for (const std::int64_t position :
           {0, 1, 63, 255, 257, 2049, 15962, 131071, 524287, 1048575, 1048576, -1, -1048576}) {
        const std::vector<float> got = rotated(r, position, ones);
        for (std::size_t i = 0; i < 64; ++i) {
          const long double angle =
              static_cast<long double>(position) * exact_power(theta, -2.0L * static_cast<long double>(i) / 128);
          const float cosine = got[static_cast<std::size_t>(r.pairs[i].a)];
          const float sine = got[static_cast<std::size_t>(r.pairs[i].b)];
          ASSERT_NEAR(cosine, static_cast<double>(exact_cosine(angle)), 3.1e-8) << theta << ' ' << position << ' ' << i;
          ASSERT_NEAR(sine, static_cast<double>(exact_sine(angle)), 3.1e-8) << theta << ' ' << position << ' ' << i;
        }
      }
    }
  }
}

TEST(Rope, B26_only_the_distance_counts_at_long_range) {
  for (const double theta : {1e4, 5e5, 1e6}) {
    const kvaxis::rope r = made(model(128, rope_layout::half_split, theta));
    const std::vector<float> q = some_vector(128, 11);
    const std::vector<float> k = some_vector(128, 12);
    for (const std::int64_t position : {5, 255, 257, 2049, 15962, 131071, 1048576}) {
      EXPECT_NEAR(dot(rotated(r, position, q), rotated(r, position - 5, k)), dot(rotated(r, 5, q), k), 1e-5)
          << position;
    }
  }
}

TEST(Rope, B31_frequencies_of_the_caller_are_honoured) {
  const std::vector<double> frequencies = {0.0, static_cast<double>(exact_pi), 0.7, -0.03};
  for (const rope_layout layout : layouts) {
    kvaxis::rope r = made(10, 2, layout, frequencies);
    r.attention_factor = 1.1386;
    ASSERT_TRUE(kvaxis::check_rope(r, 10).ok());
    const std::vector<float> before = some_vector(10, 3);
    for (const std::int64_t position : {1, 2, 1001}) {
      const std::vector<float> after = rotated(r, position, before);
      EXPECT_EQ(after[0], before[0]);
      EXPECT_EQ(after[1], before[1]);
      for (std::size_t i = 0; i < 4; ++i) {
        const auto a = static_cast<std::size_t>(r.pairs[i].a);
        const auto b = static_cast<std::size_t>(r.pairs[i].b);
        EXPECT_EQ(r.pairs[i].frequency, frequencies[i]);
        const double c = std::cos(static_cast<double>(position) * frequencies[i]);
        const double s = std::sin(static_cast<double>(position) * frequencies[i]);
        EXPECT_NEAR(after[a], before[a] * c - before[b] * s, 2e-7);
        EXPECT_NEAR(after[b], before[a] * s + before[b] * c, 2e-7);
      }
      EXPECT_NEAR(dot(after, after) / dot(before, before), 1.0, 1e-6) << "the attention factor is not a key's";
    }
  }
}

TEST(Rope, golden_bits_of_a_rotation) {
  std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
  for (const rope_layout layout : layouts) {
    const kvaxis::rope r = made(model(128, layout, 5e5));
    for (const std::int64_t position : {0, 1, 63, 4097, 1048576, -77}) {
      for (const float x : rotated(r, position, some_vector(128, 21))) {
        hash = (hash ^ kvaxis::float_bits(x)) * 0x100000001B3U;
      }
    }
  }
  EXPECT_EQ(hash, 0x0B897F4F43A3ACD6U);
}

}  // namespace
