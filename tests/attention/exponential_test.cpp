// The exponential of the softmax and the soft cap on every instruction set, against double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <isa_test.hpp>
#include <kvaxis/attention/walk.hpp>
#include <vector>

struct softmax_functions {
  void (*exponentials)(const float*, float*, int);
  void (*soft_caps)(const float*, float, float*, int);
  float (*one_exponential)(float);
};

#define KVAXIS_INL "../attention/softmax.inl"
#include <kvaxis/simd/foreach_isa.hpp>
#define KVAXIS_INL <exponential.inl>
#include <kvaxis/simd/foreach_isa.hpp>

namespace {

const softmax_functions& active_functions() {
  using namespace kvaxis;
  static constexpr std::array<const softmax_functions*, isa_count> tables = KVAXIS_ISA_TABLE(probe::table);
  return *tables[static_cast<std::size_t>(active_isa())];
}

class Exponential : public isa_test {
 protected:
  std::vector<float> exponentials(const std::vector<float>& x) const {
    std::vector<float> in = x;
    in.resize((x.size() + 15) / 16 * 16);
    std::vector<float> out(in.size());
    active_functions().exponentials(in.data(), out.data(), static_cast<int>(in.size()));
    out.resize(x.size());
    return out;
  }
  std::vector<float> soft_caps(const std::vector<float>& x, float cap) const {
    std::vector<float> in = x;
    in.resize((x.size() + 15) / 16 * 16);
    std::vector<float> out(in.size());
    active_functions().soft_caps(in.data(), cap, out.data(), static_cast<int>(in.size()));
    out.resize(x.size());
    return out;
  }
};

std::vector<float> grid(double from, double to, int count) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) x.push_back(static_cast<float>(from + (to - from) * i / (count - 1)));
  return x;
}

void expect_exponentials(const std::vector<float>& x, const std::vector<float>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<double>(x[i]);
    const double exact = std::exp(at);
    ASSERT_NEAR(static_cast<double>(y[i]), exact, (2e-7 + 8e-8 * std::fabs(at)) * exact) << x[i];
  }
}

TEST_P(Exponential, is_as_close_to_the_true_one_as_its_argument_allows) {
  for (const std::vector<float>& x : {grid(-87.33, 0, 200001), grid(-1, 1, 200001), grid(0, 88, 20001)}) {
    expect_exponentials(x, exponentials(x));
  }
}

TEST_P(Exponential, ends) {
  const std::vector<float> x = {0.0F, -0.0F, 1e-30F, -87.34F, -88.0F, -1000.0F, -2.0e38F, -3.4e38F, -1e-30F, -87.33F};
  const std::vector<float> y = exponentials(x);
  EXPECT_EQ(std::vector<float>(y.begin(), y.end() - 2), (std::vector<float>{1, 1, 1, 0, 0, 0, 0, 0}));
  expect_exponentials({x.end() - 2, x.end()}, {y.end() - 2, y.end()});
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(active_functions().one_exponential(x[i]), y[i]);
}

// No result is subnormal.
TEST_P(Exponential, ends_at_the_least_normal_number) {
  std::vector<float> x = {-87.34F};
  while (x.back() < -87.33F) x.push_back(std::nextafter(x.back(), 0.0F));
  for (const float y : exponentials(x)) EXPECT_TRUE(y == 0.0F || y >= 0x1p-126F) << y;
}

// The floats next to multiples of ln(2), where the power of two changes.
TEST_P(Exponential, is_as_accurate_where_the_power_changes) {
  std::vector<float> x;
  for (int n = 1; n < 100; ++n) {
    float at = -static_cast<float>(n) * 0.693147181F;
    for (int i = 0; i < 8; ++i) at = std::nextafter(at, -1e9F);
    for (int i = 0; i < 16; ++i, at = std::nextafter(at, 0.0F)) x.push_back(at);
    if (x.back() < -86.0F) break;
  }
  expect_exponentials(x, exponentials(x));
}

TEST_P(Exponential, soft_cap_is_within_3e_7_of_the_cap) {
  for (const float cap : {0.5F, 20.0F, 30.0F, 50.0F, 1000.0F}) {
    const auto c = static_cast<double>(cap);
    for (const double reach : {0.01, 1.0, 5.0, 50.0, 1e6}) {
      const std::vector<float> x = grid(-reach * c, reach * c, 4001);
      const std::vector<float> y = soft_caps(x, cap);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(y[i]), c * std::tanh(static_cast<double>(x[i]) / c), 3e-7 * c) << x[i];
      }
    }
  }
}

TEST_P(Exponential, B65_soft_cap_by_hand) {
  const std::vector<float> y = soft_caps({100.0F, 90.0F, 0.0F, -90.0F}, 50.0F);
  EXPECT_NEAR(y[0], 48.2014, 1e-4);
  EXPECT_NEAR(y[1], 47.3403, 1e-4);
  EXPECT_NEAR(y[2], 0.0, 1e-5);
  EXPECT_NEAR(y[3], -47.3403, 1e-4);
}

KVAXIS_ON_EVERY_ISA(Exponential);

}  // namespace
