// Memory that ends, or begins, exactly at a page that cannot be read: an over-read of one byte is a crash.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <type_traits>

enum class guard {
  begin,  // the unreadable page lies before the first element
  end,    // ... and after the last one
};

template <class T>
class guard_buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  guard_buffer(std::size_t n, guard side) : size_(n) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inner = (n * sizeof(T) + page - 1) / page * page;
    mapped_bytes_ = inner + 2 * page;
    mapped_ = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::runtime_error("guard_buffer: mmap failed");
    auto* first = static_cast<std::byte*>(mapped_) + page;
    if (inner != 0 && mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapped_, mapped_bytes_);
      throw std::runtime_error("guard_buffer: mprotect failed");
    }
    data_ = reinterpret_cast<T*>(side == guard::begin ? first : first + inner - n * sizeof(T));
  }
  guard_buffer(const T* from, std::size_t n, guard side) : guard_buffer(n, side) {
    if (n != 0) std::memcpy(data_, from, n * sizeof(T));
  }
  guard_buffer(const guard_buffer&) = delete;
  guard_buffer& operator=(const guard_buffer&) = delete;
  ~guard_buffer() { munmap(mapped_, mapped_bytes_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }

 private:
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};
