#include <gtest/gtest.h>

#include <cstdint>
#include <kvaxis/formats/bits.hpp>

namespace {

using kvaxis::bits_double;
using kvaxis::bits_float;
using kvaxis::double_bits;
using kvaxis::float_bits;
using kvaxis::flush_subnormal;
using kvaxis::is_finite;

static_assert(float_bits(1.0F) == 0x3F800000U);
static_assert(double_bits(-2.0) == 0xC000000000000000U);
static_assert(bits_float(0x40490FDBU) == 3.14159274F);
static_assert(bits_double(0x3FE0000000000000U) == 0.5);
static_assert(!is_finite(bits_float(0x7F800000U)));
static_assert(float_bits(flush_subnormal(bits_float(0x00000001U))) == 0U);

TEST(Bits, finite_is_an_integer_test_of_the_exponent) {
  for (const std::uint32_t sign : {0U, 0x80000000U}) {
    for (const std::uint32_t bits : {0U, 1U, 0x007FFFFFU, 0x3F800000U, 0x7F7FFFFFU}) {
      EXPECT_TRUE(is_finite(bits_float(sign | bits))) << std::hex << bits;
    }
    for (const std::uint32_t bits : {0x7F800000U, 0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU}) {
      EXPECT_FALSE(is_finite(bits_float(sign | bits))) << std::hex << bits;
    }
  }
  for (const std::uint64_t bits : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0x7FEFFFFFFFFFFFFF}}) {
    EXPECT_TRUE(is_finite(bits_double(bits))) << std::hex << bits;
  }
  for (const std::uint64_t bits :
       {0x7FF0000000000000U, 0xFFF0000000000000U, 0x7FF0000000000001U, 0xFFF8000000000000U}) {
    EXPECT_FALSE(is_finite(bits_double(bits))) << std::hex << bits;
  }
}

TEST(Bits, flush_clears_zeros_and_subnormals_only) {
  for (const std::uint32_t bits : {0U, 0x80000000U, 1U, 0x80000001U, 0x007FFFFFU, 0x807FFFFFU}) {
    EXPECT_EQ(float_bits(flush_subnormal(bits_float(bits))), 0U) << std::hex << bits;
  }
  for (const std::uint32_t bits : {0x00800000U, 0x80800000U, 0x3F800000U, 0xFF7FFFFFU, 0x7F800000U, 0xFFC00001U}) {
    EXPECT_EQ(float_bits(flush_subnormal(bits_float(bits))), bits) << std::hex << bits;
  }
}

}  // namespace
