#include <gtest/gtest.h>

#include <kvaxis/formats/fused.hpp>

namespace {

// The product is 1 - e^2; rounded on its own it is 1.
TEST(Fused, one_rounding_whatever_the_flags) {
  volatile double e = 0x1p-30;
  EXPECT_EQ(kvaxis::fused(1.0 + e, 1.0 - e, -1.0), -0x1p-60);
  volatile float f = 0x1p-13F;
  EXPECT_EQ(kvaxis::fused(1.0F + f, 1.0F - f, -1.0F), -0x1p-26F);
}

TEST(Fused, the_sum_is_not_rounded_twice) {
  volatile float big = 0x1p24F;
  EXPECT_EQ(kvaxis::fused(1.0F + 0x1p-23F, big, 0x1p-30F), 0x1p24F + 2.0F);
  EXPECT_EQ(kvaxis::fused(3.0F, 1.0F / 3.0F, -1.0F), 0x1p-25F) << "the error of a third";
}

}  // namespace
