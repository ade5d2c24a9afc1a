// An array that grows, for what the writer and the reader of files remember.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../memory.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// Its owner knows the allocator and must call free().
template <class T>
class growing_array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] T& operator[](std::uint32_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::uint32_t i) const noexcept { return data_[i]; }

  status insert(std::uint32_t at, const T& x, const allocator& memory) noexcept {
    if (size_ == capacity_) {
      if (capacity_ > max_capacity / 2) return {errc::out_of_range, "file: too many tiles or entries", max_capacity};
      const std::uint32_t capacity = capacity_ == 0 ? 16 : 2 * capacity_;
      auto* data = static_cast<T*>(memory.allocate(capacity * sizeof(T)));
      if (data == nullptr) {
        return {errc::out_of_memory, "allocator", static_cast<std::int64_t>(capacity * sizeof(T))};
      }
      if (size_ > 0) std::memcpy(data, data_, size_ * sizeof(T));
      memory.deallocate(data_, capacity_ * sizeof(T));
      data_ = data;
      capacity_ = capacity;
    }
    std::memmove(data_ + at + 1, data_ + at, (size_ - at) * sizeof(T));
    data_[at] = x;
    ++size_;
    return {};
  }
  void shrink(std::uint32_t size) noexcept { size_ = size; }
  void free(const allocator& memory) noexcept {
    memory.deallocate(data_, capacity_ * sizeof(T));
    *this = {};
  }

 private:
  static constexpr std::uint32_t max_capacity = std::uint32_t{1} << 26;
  T* data_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
};

}  // namespace detail
KVAXIS_END_NAMESPACE
