// An allocator that counts, fails when told to, and hands out memory full of 0xFF (as floats: NaN), so that a read of what
// was never written shows.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <kvaxis/memory.hpp>

class counting_allocator {
 public:
  counting_allocator() = default;
  counting_allocator(const counting_allocator&) = delete;
  counting_allocator& operator=(const counting_allocator&) = delete;
  ~counting_allocator() { EXPECT_EQ(live_blocks, 0) << live_bytes << " bytes were never returned"; }

  // What the library is given; it must not outlive this object.
  kvaxis::allocator hook() { return {&allocate, &deallocate, this}; }

  int calls = 0;        // blocks asked for, refused ones included
  int fail_after = -1;  // calls served before every further one gets nullptr; -1: all are served
  int live_blocks = 0;
  std::size_t live_bytes = 0;
  std::size_t peak_bytes = 0;
  std::size_t total_bytes = 0;  // of all blocks ever handed out

 private:
  static void* allocate(void* context, std::size_t bytes, std::size_t alignment) noexcept {
    auto& self = *static_cast<counting_allocator*>(context);
    const int call = self.calls++;
    if (self.fail_after >= 0 && call >= self.fail_after) return nullptr;
    void* p = kvaxis::allocator::default_allocate(nullptr, bytes, alignment);
    if (p == nullptr) return nullptr;
    std::memset(p, 0xFF, bytes);
    ++self.live_blocks;
    self.live_bytes += bytes;
    self.total_bytes += bytes;
    if (self.live_bytes > self.peak_bytes) self.peak_bytes = self.live_bytes;
    return p;
  }
  static void deallocate(void* context, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    auto& self = *static_cast<counting_allocator*>(context);
    EXPECT_GE(self.live_bytes, bytes) << "more was returned than was taken";
    --self.live_blocks;
    self.live_bytes -= bytes;
    kvaxis::allocator::default_deallocate(nullptr, p, bytes, alignment);
  }
};
