// Safetensors files made in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <kvaxis/io/safetensors.hpp>
#include <string>
#include <vector>

namespace test {

// The size of the header, the header, the data.
inline std::string file_of(const std::string& header, const std::string& data = "") {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(header.size() >> 8 * i & 0xFFU));
  return out + header + data;
}

// Collects tensors; header() and data() are then those of a file with all of them.
class file_maker {
 public:
  template <class T>
  file_maker& add(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::vector<T>& numbers) {
    const std::size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
    header_ += std::string(header_.empty() ? "{" : ",") + '"' + name + "\":{\"dtype\":\"" + dtype +
               "\",\"shape\":" + shape + ",\"data_offsets\":[" + std::to_string(begin) + "," +
               std::to_string(data_.size()) + "]}";
    return *this;
  }
  [[nodiscard]] std::string file() const { return file_of(header_.empty() ? "{}" : header_ + "}", data_); }

 private:
  std::string header_;
  std::string data_;
};

inline kvaxis::safetensors opened(const std::string& file) {
  kvaxis::safetensors out;
  kvaxis::check(kvaxis::safetensors::open(file.data(), file.size(), out));
  return out;
}

}  // namespace test
