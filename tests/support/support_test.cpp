// The helpers themselves: a guard that does not guard would let every test that uses it pass.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>

#include "count_new.hpp"
#include "counting_allocator.hpp"
#include "guard_page.hpp"
#include "isa_test.hpp"

namespace {

template <class T>
T read(const T* p) {
  return *static_cast<const volatile T*>(p);
}

TEST(GuardDeathTest, an_element_outside_cannot_be_read) {
  guard_buffer<float> at_end(1000, guard::end);
  std::iota(at_end.begin(), at_end.end(), 0.0F);
  EXPECT_EQ(read(at_end.data() + 999), 999.0F);
  EXPECT_DEATH(read(at_end.data() + 1000), "");

  guard_buffer<std::uint8_t> at_begin(5000, guard::begin);
  EXPECT_EQ(read(at_begin.data()), 0);
  EXPECT_DEATH(read(at_begin.data() - 1), "");
}

TEST(CountingAllocator, counts_fills_and_fails) {
  counting_allocator memory;
  memory.fail_after = 1;
  const kvaxis::allocator hook = memory.hook();
  void* p = hook.allocate(100);
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0U);
  EXPECT_EQ(static_cast<unsigned char*>(p)[99], 0xFF);
  EXPECT_EQ(memory.live_bytes, 100U);
  EXPECT_EQ(hook.allocate(1), nullptr);
  EXPECT_EQ(memory.calls, 2);
  hook.deallocate(p, 100);
  EXPECT_EQ(memory.live_blocks, 0);
  EXPECT_EQ(memory.peak_bytes, 100U);
}

TEST(CountNew, every_form_is_counted) {
  struct alignas(64) wide {
    char bytes[64];
  };
  const long long before = operator_new_calls();
  const auto one = std::make_unique<int>(1);
  const auto many = std::make_unique<wide[]>(3);
  __asm__ volatile("" : : "r"(one.get()), "r"(many.get()) : "memory");  // else a compiler may leave the calls out
  void* raw = kvaxis::allocator::default_allocate(nullptr, 64, 64);
  EXPECT_EQ(operator_new_calls() - before, 3);
  EXPECT_EQ(*one, 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(many.get()) % 64, 0U);
  kvaxis::allocator::default_deallocate(nullptr, raw, 64, 64);
  EXPECT_EQ(kvaxis::allocator::default_allocate(nullptr, std::numeric_limits<std::size_t>::max(), 64), nullptr);
}

class Isa : public isa_test {};

TEST_P(Isa, the_fixture_makes_its_isa_the_active_one) {
  EXPECT_EQ(kvaxis::active_isa(), GetParam());
  const kvaxis::isa before = kvaxis::active_isa();
  {
    const isa_scope scope(kvaxis::isa::scalar);
    EXPECT_EQ(kvaxis::active_isa(), kvaxis::isa::scalar);
  }
  EXPECT_EQ(kvaxis::active_isa(), before);
}

KVAXIS_ON_EVERY_ISA(Isa);

}  // namespace
