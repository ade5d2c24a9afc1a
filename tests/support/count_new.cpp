#include "count_new.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long long> calls{0};

void* counted(std::size_t bytes, std::size_t alignment) noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (rounded < bytes) return nullptr;
  return std::aligned_alloc(alignment, rounded != 0 ? rounded : alignment);
}

void* counted_or_throw(std::size_t bytes, std::size_t alignment) {
  void* p = counted(bytes, alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

constexpr std::size_t plain = alignof(std::max_align_t);

}  // namespace

long long operator_new_calls() noexcept { return calls.load(std::memory_order_relaxed); }

void* operator new(std::size_t n) { return counted_or_throw(n, plain); }
void* operator new[](std::size_t n) { return counted_or_throw(n, plain); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return counted(n, plain); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return counted(n, plain); }
void* operator new(std::size_t n, std::align_val_t a) { return counted_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return counted_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return counted(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return counted(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
