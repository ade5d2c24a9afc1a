#include "gguf.hpp"

#include <cstring>
#include <utility>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF files are read as they lie in memory: little-endian");

namespace llm {
namespace {

// The file's numbers for the types of metadata.
enum value_type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64, value_types };

constexpr std::size_t size_of_value[value_types] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: it varies

template <class T>
T load(const std::uint8_t* from) {
  T out;
  std::memcpy(&out, from, sizeof(T));
  return out;
}

// An unsigned number from 2^63 on comes out negative, below any limit that a caller sets.
std::int64_t load_integer(std::uint32_t type, const std::uint8_t* from) {
  switch (type) {
    case u8:
    case boolean: return load<std::uint8_t>(from);
    case i8: return static_cast<std::int64_t>(load<std::int8_t>(from));
    case u16: return load<std::uint16_t>(from);
    case i16: return load<std::int16_t>(from);
    case u32: return load<std::uint32_t>(from);
    case i32: return load<std::int32_t>(from);
    default: return load<std::int64_t>(from);
  }
}

[[noreturn]] void damaged(const std::string& what) { throw gguf_error("damaged GGUF file: " + what); }

// `key` comes from the file: it is shown only as far as it is short and printable.
std::string quoted(std::string_view key) {
  std::string out = "'";
  for (const char c : key.substr(0, 64)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (key.size() > 64 ? "...'" : "'");
}

}  // namespace

void dequantize_row(const gguf_tensor& tensor, std::size_t row, float* out) {
  dequantize_blocks(tensor.type, tensor.data + row * tensor.row_bytes, tensor.row_blocks, out);
}

// Walks through the file and never past its end. `what` names the part being read in the error.
class gguf_file::reader {
 public:
  reader(const std::uint8_t* data, std::size_t size) : begin_(data), at_(data), end_(data + size) {}

  [[nodiscard]] std::size_t position() const { return static_cast<std::size_t>(at_ - begin_); }
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  const std::uint8_t* take(std::uint64_t bytes, const std::string& what) {
    if (bytes > left()) {
      damaged(what + " at byte " + std::to_string(position()) + " needs " + std::to_string(bytes) + " bytes, " +
              std::to_string(left()) + " are left");
    }
    return std::exchange(at_, at_ + bytes);
  }
  template <class T>
  T number(const std::string& what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view text(const std::string& what) {
    const auto length = number<std::uint64_t>(what);
    return {reinterpret_cast<const char*>(take(length, what)), static_cast<std::size_t>(length)};
  }

 private:
  const std::uint8_t *begin_, *at_, *end_;
};

gguf_file::value gguf_file::read_value(reader& from, const std::string& key) {
  const std::string what = "the value of " + quoted(key);
  value out{from.number<std::uint32_t>(what), 1, false, nullptr};
  if (out.type == array) {
    out.is_array = true;
    out.type = from.number<std::uint32_t>(what);
    out.count = from.number<std::uint64_t>(what);
  }
  if (out.type >= value_types || out.type == array) damaged(what + " has type " + std::to_string(out.type));
  const std::size_t size = size_of_value[out.type];
  out.data = from.take(0, what);
  if (out.type == string) {
    for (std::uint64_t i = 0; i < out.count; ++i) from.text(what);
  } else if (out.count > from.left() / size) {
    damaged(what + " has " + std::to_string(out.count) + " elements, more than the file can hold");
  } else {
    from.take(out.count * size, what);
  }
  return out;
}

gguf_tensor gguf_file::read_tensor(reader& from, const std::string& name, std::uint64_t& offset) {
  const std::string what = "tensor " + quoted(name);
  const auto dimensions = from.number<std::uint32_t>(what);
  if (dimensions < 1 || dimensions > 4) damaged(what + " has " + std::to_string(dimensions) + " dimensions");
  gguf_tensor out{};
  std::uint64_t numbers = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto length = from.number<std::uint64_t>(what);
    // A file has far fewer than 2^48 numbers, so a product below that cannot have wrapped around.
    if (length == 0 || length > (std::uint64_t{1} << 48) / numbers) damaged(what + " has an impossible shape");
    numbers *= length;
    if (i == 0) out.columns = length;
  }
  const auto type = from.number<std::uint32_t>(what);
  block_size block{};
  if (!find_block_size(type, block)) {
    throw gguf_error(what + " has type " + std::to_string(type) + "; this reader knows " + known_tensor_types);
  }
  if (out.columns % block.numbers != 0) damaged(what + " has rows that are not whole blocks");
  out.type = static_cast<tensor_type>(type);
  out.rows = numbers / out.columns;
  out.row_blocks = out.columns / block.numbers;
  out.row_bytes = out.row_blocks * block.bytes;
  offset = from.number<std::uint64_t>(what);
  return out;
}

gguf_file::gguf_file(const std::uint8_t* data, std::size_t size) {
  reader from(data, size);
  if (size < 4 || std::memcmp(data, "GGUF", 4) != 0) throw gguf_error("not a GGUF file: it does not begin with 'GGUF'");
  from.take(4, "the magic number");
  const auto version = from.number<std::uint32_t>("the version");
  if (version != 2 && version != 3)
    throw gguf_error("GGUF version " + std::to_string(version) + "; this reader knows 2 and 3");
  const auto tensor_count = from.number<std::uint64_t>("the number of tensors");
  const auto value_count = from.number<std::uint64_t>("the number of metadata values");
  // The counts need no test of their own: every entry takes bytes, so an absurd count runs into the end of the file.
  for (std::uint64_t i = 0; i < value_count; ++i) {
    const std::string key(from.text("a metadata key"));
    if (!metadata_.emplace(key, read_value(from, key)).second) damaged("the key " + quoted(key) + " occurs twice");
  }

  std::vector<std::pair<gguf_tensor*, std::uint64_t>> offsets;
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    const std::string name(from.text("a tensor's name"));
    std::uint64_t offset = 0;
    const auto added = tensors_.emplace(name, read_tensor(from, name, offset));
    if (!added.second) damaged("tensor " + quoted(name) + " occurs twice");
    offsets.emplace_back(&added.first->second, offset);
  }

  const std::string alignment_key = "general.alignment";
  const auto alignment = static_cast<std::uint64_t>(has(alignment_key) ? integer(alignment_key, 1, 1 << 20) : 32);
  if ((alignment & (alignment - 1)) != 0) damaged("the alignment is not a power of two");
  if (tensor_count == 0) return;
  from.take((alignment - from.position() % alignment) % alignment, "the padding before the tensors' data");
  const std::uint8_t* const base = from.take(0, "the tensors' data");
  for (const auto& [tensor, offset] : offsets) {
    if (offset % alignment != 0) damaged("a tensor's offset is not aligned");
    if (offset > from.left() || tensor->rows > (from.left() - offset) / tensor->row_bytes) {
      damaged("a tensor of " + std::to_string(tensor->rows) + " x " + std::to_string(tensor->columns) + " at offset " +
              std::to_string(offset) + " reaches beyond the end of the file");
    }
    tensor->data = base + offset;
  }
}

const gguf_file::value& gguf_file::find(const std::string& key, bool is_array) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) throw gguf_error("the file has no metadata value " + quoted(key));
  if (found->second.is_array != is_array) throw gguf_error("metadata value " + quoted(key) + " has another type");
  return found->second;
}

std::int64_t gguf_file::integer(const std::string& key, std::int64_t low, std::int64_t high) const {
  const value& v = find(key, false);
  if (v.type == string || v.type == f32 || v.type == f64) {
    throw gguf_error("metadata value " + quoted(key) + " is not an integer");
  }
  const std::int64_t out = load_integer(v.type, v.data);
  if (out < low || out > high) {
    throw gguf_error("metadata value " + quoted(key) + " is " + std::to_string(out) + ", not in " +
                     std::to_string(low) + " .. " + std::to_string(high));
  }
  return out;
}

double gguf_file::real(const std::string& key) const {
  const value& v = find(key, false);
  if (v.type == f32) return load<float>(v.data);
  if (v.type == f64) return load<double>(v.data);
  throw gguf_error("metadata value " + quoted(key) + " is not a floating-point number");
}

std::string_view gguf_file::text(const std::string& key) const {
  const value& v = find(key, false);
  if (v.type != string) throw gguf_error("metadata value " + quoted(key) + " is not a string");
  return {reinterpret_cast<const char*>(v.data + 8), static_cast<std::size_t>(load<std::uint64_t>(v.data))};
}

std::vector<std::string_view> gguf_file::texts(const std::string& key) const {
  const value& v = find(key, true);
  if (v.type != string) throw gguf_error("metadata value " + quoted(key) + " is not a list of strings");
  std::vector<std::string_view> out;
  const std::uint8_t* at = v.data;
  for (std::uint64_t i = 0; i < v.count; ++i) {
    const auto length = load<std::uint64_t>(at);
    out.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return out;
}

template <class T>
std::vector<T> gguf_file::numbers(const std::string& key, std::uint32_t type, const char* kind) const {
  const value& v = find(key, true);
  if (v.type != type) throw gguf_error("metadata value " + quoted(key) + " is not a list of " + kind);
  std::vector<T> out(v.count);
  if (v.count != 0) std::memcpy(out.data(), v.data, v.count * sizeof(T));
  return out;
}

std::vector<std::int32_t> gguf_file::integers(const std::string& key) const {
  return numbers<std::int32_t>(key, i32, "integers");
}

std::vector<float> gguf_file::reals(const std::string& key) const {
  return numbers<float>(key, f32, "floating-point numbers");
}

}  // namespace llm
