// The round-trip error of each codec on normal deviates, from both sides: an error that is too small would be as wrong
// as one that is too large. The figures were computed independently, over a million samples each.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/policy.hpp>
#include <normal.hpp>
#include <vector>

namespace {

using test::error_sum;
using test::expect_within;
using test::nmse_of;
using test::normal_deviates;

template <class Codec>
double nmse_of_given_scale(float scale) {
  const std::vector<float>& x = normal_deviates();
  std::vector<std::uint32_t> codes(x.size());
  Codec::encode_linear(scale, 0.0F, x.data(), static_cast<int>(x.size()), codes.data());
  error_sum sum;
  for (std::size_t i = 0; i < x.size(); ++i) sum.add(x[i], Codec::unit_value(codes[i]) * scale);
  return sum.nmse();
}

TEST(Nmse, integer_codes) {
  expect_within(nmse_of<kvaxis::int4>(32), 6.102e-3, 0.01, "int4 32");
  expect_within(nmse_of<kvaxis::int4>(64), 8.011e-3, 0.01, "int4 64");
  expect_within(nmse_of<kvaxis::int4>(128), 9.915e-3, 0.01, "int4 128");
  expect_within(nmse_of<kvaxis::int4f32>(64), 8.011e-3, 0.01, "int4f32 64");
  // An offset rounded down and a scale rounded up cost a little against rounding both to the nearest.
  expect_within(nmse_of<kvaxis::int8>(32), 2.113e-5, 0.02, "int8 32");
  expect_within(nmse_of<kvaxis::int8>(128), 3.425e-5, 0.02, "int8 128");
  expect_within(nmse_of<kvaxis::int8f32>(128), 3.425e-5, 0.01, "int8f32 128");
  expect_within(nmse_of<kvaxis::int4s>(32), 9.375e-3, 0.01, "int4s 32");
  expect_within(nmse_of<kvaxis::int8s>(32), 2.853e-5, 0.01, "int8s 32");
}

TEST(Nmse, floating_point_codes) {
  expect_within(nmse_of_given_scale<kvaxis::e4m3>(1.0F), 7.065e-4, 0.01, "e4m3 scale 1");
  expect_within(nmse_of_given_scale<kvaxis::e5m2>(1.0F), 2.782e-3, 0.01, "e5m2 scale 1");
  expect_within(nmse_of<kvaxis::e4m3>(128), 6.632e-4, 0.01, "e4m3 128");
  expect_within(nmse_of<kvaxis::bf16>(64), 2.764e-6, 0.01, "bf16");
  expect_within(nmse_of<kvaxis::f16>(64), 4.3e-8, 0.01, "f16");
  EXPECT_EQ(nmse_of<kvaxis::f32>(64), 0.0);
}

// The same number of bits spent on a local scale or on an exponent: about 14 dB on bell-shaped data.
TEST(Nmse, integers_with_a_local_scale_beat_fp8_of_the_same_size) {
  EXPECT_GT(10 * std::log10(nmse_of<kvaxis::e4m3>(32) / nmse_of<kvaxis::int8s>(32)), 13.0);
}

}  // namespace
