// Puts a GGUF file together from its parts, sound or damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace gguf_parts {

using bytes = std::vector<std::uint8_t>;

enum : std::uint32_t {
  type_u8 = 0,
  type_u32 = 4,
  type_i32 = 5,
  type_f32 = 6,
  type_bool = 7,
  type_string = 8,
  type_array = 9,
  type_u64 = 10
};

template <class T>
void put(bytes& to, T value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof(T));
  std::memcpy(&to[at], &value, sizeof(T));
}

inline void put_text(bytes& to, const std::string& text) {
  put(to, std::uint64_t{text.size()});
  to.insert(to.end(), text.begin(), text.end());
}

inline void put_key(bytes& to, const std::string& key, std::uint32_t type) {
  put_text(to, key);
  put(to, type);
}

// The parts of a file, each of which a test can replace.
struct parts {
  std::uint32_t version = 3;
  std::uint64_t tensor_count = 0, value_count = 0;
  bytes values, tensors, data;

  template <class T>
  void add_number(const std::string& key, std::uint32_t type, T value) {
    ++value_count;
    put_key(values, key, type);
    put(values, value);
  }
  void add_text(const std::string& key, const std::string& text) {
    ++value_count;
    put_key(values, key, type_string);
    put_text(values, text);
  }
  template <class T>
  void add_numbers(const std::string& key, std::uint32_t type, const std::vector<T>& list) {
    add_list(key, type, list.size());
    for (const T value : list) put(values, value);
  }
  void add_texts(const std::string& key, const std::vector<std::string>& list) {
    add_list(key, type_string, list.size());
    for (const std::string& text : list) put_text(values, text);
  }
  // The elements, if any, must follow.
  void add_list(const std::string& key, std::uint32_t type, std::uint64_t count) {
    ++value_count;
    put_key(values, key, type_array);
    put(values, type);
    put(values, count);
  }
  void add_tensor(const std::string& name, const std::vector<std::uint64_t>& lengths, std::uint32_t type,
                  std::uint64_t offset) {
    ++tensor_count;
    put_text(tensors, name);
    put(tensors, static_cast<std::uint32_t>(lengths.size()));
    for (const std::uint64_t length : lengths) put(tensors, length);
    put(tensors, type);
    put(tensors, offset);
  }
  // `header_size`: of all that comes before the padding and the data.
  [[nodiscard]] bytes file(std::size_t* header_size = nullptr, std::size_t alignment = 32) const {
    bytes out{'G', 'G', 'U', 'F'};
    put(out, version);
    put(out, tensor_count);
    put(out, value_count);
    out.insert(out.end(), values.begin(), values.end());
    out.insert(out.end(), tensors.begin(), tensors.end());
    if (header_size != nullptr) *header_size = out.size();
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    out.insert(out.end(), data.begin(), data.end());
    return out;
  }
};

// One value of each kind that the example reads, and tensors of a few types.
inline parts sound() {
  parts p;
  p.add_number("small", type_u8, std::uint8_t{200});
  p.add_number("count", type_u32, std::uint32_t{7});
  p.add_number("huge", type_u64, std::numeric_limits<std::uint64_t>::max());
  p.add_number("real", type_f32, 0.5F);
  p.add_text("name", "a name");
  p.add_texts("words", {"one", "", "three"});
  p.add_numbers("numbers", type_i32, std::vector<std::int32_t>{-1, 5});
  p.add_numbers("reals", type_f32, std::vector<float>{0.25F, -2.0F});

  p.add_tensor("f32", {3, 2}, 0, 0);
  for (int i = 0; i < 6; ++i) put(p.data, static_cast<float>(i));
  p.data.resize(32);
  p.add_tensor("f16", {2}, 1, 32);
  put(p.data, std::uint16_t{0x3C00});  // 1
  put(p.data, std::uint16_t{0xC100});  // -2.5
  p.data.resize(64);
  p.add_tensor("q4_1", {32, 1}, 3, 64);
  put(p.data, std::uint16_t{0x3800});  // scale 0.5
  put(p.data, std::uint16_t{0xBC00});  // minimum -1
  for (int i = 0; i < 16; ++i) put(p.data, static_cast<std::uint8_t>(i | (15 - i) << 4));
  p.data.resize(96);
  p.add_tensor("q8_0", {32, 2}, 8, 96);
  for (int row = 0; row < 2; ++row) {
    put(p.data, std::uint16_t{0x3400});  // scale 0.25
    for (int i = 0; i < 32; ++i) put(p.data, static_cast<std::int8_t>(row == 0 ? i - 16 : -128 + 8 * i));
  }
  return p;
}

}  // namespace gguf_parts
