// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace llm {

class mapped_file {
 public:
  explicit mapped_file(const std::string& path);  // throws std::runtime_error
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  ~mapped_file();

  [[nodiscard]] const std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace llm
