// The one allocator hook. It may return nullptr; the library answers errc::out_of_memory and changes nothing.
#pragma once

#include <cstddef>
#include <new>

#include "config.hpp"

KVAXIS_BEGIN_NAMESPACE

struct allocator {
  using allocate_fn = void* (*)(void* context, std::size_t bytes, std::size_t alignment) noexcept;
  using deallocate_fn = void (*)(void* context, void* pointer, std::size_t bytes, std::size_t alignment) noexcept;

  static void* default_allocate(void*, std::size_t bytes, std::size_t alignment) noexcept {
    return ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
  }
  static void default_deallocate(void*, void* pointer, std::size_t, std::size_t alignment) noexcept {
    ::operator delete (pointer, std::align_val_t{alignment});
  }

  allocate_fn allocate_function = &default_allocate;
  deallocate_fn deallocate_function = &default_deallocate;
  void* context = nullptr;
  const char* name = "allocator";  // status::argument where it refuses

  static constexpr std::size_t line = 64;  // every request is aligned to a cache line

  [[nodiscard]] void* allocate(std::size_t bytes) const noexcept { return allocate_function(context, bytes, line); }
  void deallocate(void* pointer, std::size_t bytes) const noexcept {
    if (pointer != nullptr) deallocate_function(context, pointer, bytes, line);
  }
};

KVAXIS_END_NAMESPACE
