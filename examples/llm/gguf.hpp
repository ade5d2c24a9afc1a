// A reader of GGUF model files (versions 2 and 3, little-endian). Nothing in the file is trusted: every count, length,
// offset and type is checked against the file's size before it is used, and a damaged file ends in a gguf_error that
// says where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_types.hpp"

namespace llm {

class gguf_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct gguf_tensor {
  tensor_type type;
  std::size_t rows, columns;  // the numbers of a row are adjacent
  std::size_t row_blocks, row_bytes;
  const std::uint8_t* data;  // rows * row_bytes bytes, all inside the file
};

// Writes the `columns` numbers of row `row` to `out`.
void dequantize_row(const gguf_tensor& tensor, std::size_t row, float* out);

// The contents of a file that lies in memory and must stay there. The constructor reads everything but the tensors'
// data.
class gguf_file {
 public:
  gguf_file(const std::uint8_t* data, std::size_t size);  // throws gguf_error

  [[nodiscard]] bool has(const std::string& key) const { return metadata_.count(key) != 0; }
  // The value of `key`. These throw gguf_error if it is missing, of another kind, or outside [low, high], low >= 0.
  [[nodiscard]] std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] double real(const std::string& key) const;
  [[nodiscard]] std::string_view text(const std::string& key) const;
  [[nodiscard]] std::vector<std::string_view> texts(const std::string& key) const;
  [[nodiscard]] std::vector<std::int32_t> integers(const std::string& key) const;
  [[nodiscard]] std::vector<float> reals(const std::string& key) const;

  [[nodiscard]] const std::map<std::string, gguf_tensor>& tensors() const { return tensors_; }

 private:
  struct value {
    std::uint32_t type;
    std::uint64_t count;  // of elements; 1 for what is not an array
    bool is_array;
    const std::uint8_t* data;  // checked: `count` elements lie inside the file
  };
  class reader;

  [[nodiscard]] static value read_value(reader& from, const std::string& key);
  [[nodiscard]] static gguf_tensor read_tensor(reader& from, const std::string& name, std::uint64_t& offset);
  [[nodiscard]] const value& find(const std::string& key, bool is_array) const;
  template <class T>
  [[nodiscard]] std::vector<T> numbers(const std::string& key, std::uint32_t type, const char* kind) const;

  std::map<std::string, value> metadata_;
  std::map<std::string, gguf_tensor> tensors_;
};

}  // namespace llm
