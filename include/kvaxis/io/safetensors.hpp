// Tensors of a safetensors file in memory, such as a mapped file: views by name, nothing copied, nothing allocated.
//
//   file   = size of the header, 8 bytes little-endian; header; data
//   header = {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {"a": "b"}}
//
// The tensors cover the data without hole or overlap. The header is JSON of these forms alone, so there is no nesting to
// follow, and nothing in the file is believed: every walk over the header checks all that it reads. A fault in the header
// is answered with its offset in the file as the limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../config.hpp"
#include "json_text.hpp"

KVAXIS_BEGIN_NAMESPACE

struct tensor_view {
  static constexpr int max_rank = 8;

  std::string_view dtype;  // "F32", "BF16", ...: one of the format's names, of static storage
  int rank = 0;
  std::array<std::uint64_t, max_rank> shape{};
  std::uint64_t count = 1;          // elements: the product of the shape
  const std::byte* data = nullptr;  // little-endian, row-major, not aligned
  std::size_t bytes = 0;
};

class safetensors {
 public:
  static constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's own limit

  // Checks everything but that names are unique, which find() does. The memory must outlive `out`.
  [[nodiscard]] static status open(const void* file, std::size_t bytes, safetensors& out) noexcept;

  // Goes through the whole header. A name that is missing, or there twice, is an error.
  [[nodiscard]] status find(std::string_view name, tensor_view& out) const noexcept;

  // Calls f(json_text name, const tensor_view&) for every tensor in the order of the header.
  template <class F>
  [[nodiscard]] status for_each(F&& f) const noexcept;

 private:
  const char* file_ = nullptr;
  std::size_t header_end_ = 0;
  std::size_t bytes_ = 0;
};

namespace detail {

// Reads a header from its first byte to its last. Functions answer whether all is well; the first fault stays.
class header_reader {
 public:
  header_reader(const char* file, std::size_t header_end, std::size_t bytes) noexcept
      : file_(file), end_(header_end), data_bytes_(bytes - header_end) {}

  template <class F>
  status read(F&& f) noexcept {
    bool has_metadata = false;
    const bool all = list('{', '}', [&] {
      json_text name;
      if (!text(name) || !expect(':')) return false;
      if (name == "__metadata__") {
        if (has_metadata) return fail("safetensors: __metadata__ given twice");
        has_metadata = true;
        return list('{', '}', [&] {
          json_text ignored;
          return text(ignored) && expect(':') && text(ignored);
        });
      }
      tensor_view t;
      if (!tensor(t)) return false;
      f(name, t);
      return true;
    });
    skip_blanks();
    if (all && at_ < end_) fail("safetensors: JSON");
    return fault_;
  }

 private:
  bool fail(const char* why, errc code = errc::invalid_argument) noexcept {
    if (fault_.ok()) fault_ = {code, why, static_cast<std::int64_t>(at_)};
    return false;
  }
  void skip_blanks() noexcept {
    while (at_ < end_ && (file_[at_] == ' ' || file_[at_] == '\n' || file_[at_] == '\r' || file_[at_] == '\t')) ++at_;
  }
  bool take(char c) noexcept {
    skip_blanks();
    const bool there = at_ < end_ && file_[at_] == c;
    at_ += there ? 1 : 0;
    return there;
  }
  bool expect(char c) noexcept { return take(c) || fail("safetensors: JSON"); }

  template <class F>
  bool list(char open, char close, F&& item) noexcept {
    if (!expect(open)) return false;
    if (take(close)) return true;
    do {
      if (!item()) return false;
    } while (take(','));
    return expect(close);
  }

  bool text(json_text& out) noexcept {
    if (!expect('"')) return false;
    const std::size_t begin = at_;
    while (at_ < end_ && file_[at_] != '"') {
      std::string_view rest(file_ + at_, end_ - at_);
      char utf8[4];
      if (json_text::take_character(rest, utf8) == 0) return fail("safetensors: text");
      at_ = end_ - rest.size();
    }
    out = json_text({file_ + begin, at_ - begin});
    return expect('"');
  }

  bool integer(std::uint64_t& out) noexcept {
    skip_blanks();
    const std::size_t begin = at_;
    for (out = 0; at_ < end_ && file_[at_] >= '0' && file_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(file_[at_] - '0');
      if (__builtin_mul_overflow(out, 10U, &out) || __builtin_add_overflow(out, digit, &out)) {
        return fail("safetensors: integer", errc::out_of_range);
      }
    }
    const bool has_leading_zero = at_ - begin > 1 && file_[begin] == '0';
    return (at_ > begin && !has_leading_zero) || fail("safetensors: integer");
  }
  bool integers(std::uint64_t* out, int most, int& n, const char* too_many) noexcept {
    return list('[', ']', [&] { return n < most ? integer(out[n++]) : fail(too_many, errc::unsupported); });
  }

  bool dtype(tensor_view& t, std::uint64_t& bits) noexcept {
    struct type {
      std::string_view name;
      std::uint64_t bits;
    };
    static constexpr type types[] = {
        {"F64", 64},    {"F32", 32},    {"F16", 16}, {"BF16", 16}, {"F8_E4M3", 8},     {"F8_E5M2", 8},
        {"U64", 64},    {"U32", 32},    {"U16", 16}, {"U8", 8},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
        {"I64", 64},    {"I32", 32},    {"I16", 16}, {"I8", 8},    {"F8_E8M0", 8},     {"BOOL", 8},
        {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},   {"C64", 64}};
    json_text name;
    if (!text(name)) return false;
    for (const type& known : types) {
      if (!(name == known.name)) continue;
      t.dtype = known.name;
      bits = known.bits;
      return true;
    }
    return fail("safetensors: dtype", errc::unsupported);
  }

  bool tensor(tensor_view& t) noexcept {
    enum field : unsigned { unknown = 0, type = 1, shape = 2, offsets = 4 };
    unsigned seen = 0;
    std::uint64_t bits = 0;
    std::uint64_t range[2] = {};
    int range_size = 0;
    const bool all = list('{', '}', [&] {
      json_text name;
      if (!text(name) || !expect(':')) return false;
      const field is = name == "dtype" ? type : name == "shape" ? shape : name == "data_offsets" ? offsets : unknown;
      if (is == unknown) return fail("safetensors: unknown field", errc::unsupported);
      if ((seen & is) != 0) return fail("safetensors: field given twice");
      seen |= is;
      if (is == type) return dtype(t, bits);
      return is == shape ? integers(t.shape.data(), tensor_view::max_rank, t.rank, "safetensors: shape: dimensions")
                         : integers(range, 2, range_size, "safetensors: data_offsets");
    });
    if (!all) return false;
    if (seen != (type | shape | offsets)) return fail("safetensors: field missing");
    bool overflow = false;
    for (int i = 0; i < t.rank; ++i) {
      overflow = overflow || __builtin_mul_overflow(t.count, t.shape[static_cast<std::size_t>(i)], &t.count);
    }
    if (overflow || __builtin_mul_overflow(t.count, bits, &bits)) return fail("safetensors: shape", errc::out_of_range);
    if (range_size != 2 || range[0] > range[1]) return fail("safetensors: data_offsets");
    if (range[1] > data_bytes_) return fail("safetensors: data_offsets", errc::out_of_range);
    if (bits % 8 != 0 || bits / 8 != range[1] - range[0]) return fail("safetensors: shape and data_offsets differ");
    t.data = reinterpret_cast<const std::byte*>(file_ + end_ + range[0]);
    t.bytes = static_cast<std::size_t>(bits / 8);
    return true;
  }

  const char* file_;
  std::size_t at_ = 8;
  std::size_t end_;
  std::size_t data_bytes_;
  status fault_;
};

}  // namespace detail

template <class F>
status safetensors::for_each(F&& f) const noexcept {
  if (file_ == nullptr) return {errc::invalid_argument, "safetensors: not opened", 0};
  return detail::header_reader(file_, header_end_, bytes_).read(f);
}

inline status safetensors::open(const void* file, std::size_t bytes, safetensors& out) noexcept {
  if (file == nullptr) return {errc::invalid_argument, "safetensors: file", 0};
  if (bytes < 8) return {errc::out_of_range, "safetensors: size of the file", 8};
  safetensors opened;
  opened.file_ = static_cast<const char*>(file);
  opened.bytes_ = bytes;
  std::uint64_t header = 0;
  for (int i = 7; i >= 0; --i) header = header << 8 | static_cast<unsigned char>(opened.file_[i]);
  const std::uint64_t most = bytes - 8 < max_header_bytes ? bytes - 8 : max_header_bytes;
  if (header > most) return {errc::out_of_range, "safetensors: size of the header", static_cast<std::int64_t>(most)};
  if (header == 0 || opened.file_[8] != '{') return {errc::invalid_argument, "safetensors: JSON", 8};
  opened.header_end_ = static_cast<std::size_t>(8 + header);

  // Tensors cover the data exactly if their begins and the data's end are the same numbers as their ends and 0. There is
  // no memory to sort them in, so sums of hashes are compared. Who forges equal sums gains nothing by it: every tensor
  // lies in the data all the same.
  const auto hash = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  };
  const auto* const data = reinterpret_cast<const std::byte*>(opened.file_ + opened.header_end_);
  std::uint64_t sum = hash(bytes - opened.header_end_) - hash(0);
  const status s = opened.for_each([&](json_text, const tensor_view& t) {
    const auto begin = static_cast<std::uint64_t>(t.data - data);
    sum += hash(begin) - hash(begin + t.bytes);
  });
  if (!s.ok()) return s;
  if (sum != 0) return {errc::invalid_argument, "safetensors: data_offsets: a hole or an overlap", 0};
  out = opened;
  return {};
}

inline status safetensors::find(std::string_view name, tensor_view& out) const noexcept {
  tensor_view found;
  int times = 0;
  const status s = for_each([&](json_text candidate, const tensor_view& t) {
    if (!(candidate == name)) return;
    found = t;
    ++times;
  });
  if (!s.ok()) return s;
  if (times == 0) return {errc::invalid_argument, "safetensors: no tensor of this name", 0};
  if (times > 1) return {errc::invalid_argument, "safetensors: name given twice", times};
  out = found;
  return {};
}

KVAXIS_END_NAMESPACE
