// A saved cache is a stream of sections. All numbers are little-endian; behind a field is its size in bytes.
//
//   +--------+---------+----------------+---------+-----------------------+
//   | type 4 | layer 4 | payload size 8 | payload | CRC-32 of the rest, 4 |
//   +--------+---------+----------------+---------+-----------------------+
//
//   "kvax"  first of all     version 4 | layers 4 | number of the first one 4 | 0 4
//   "layr"  one per layer    what gives its bytes their meaning: layer_record.hpp
//   "tile"  any number       number in its layer 4: 0, 1, ... | folded 1 | tier 1 | 0 2 | capacity 4 | first slot 4 |
//                            end slot 4 | content of these slots, head by head: tile_content.hpp
//   "list"  any number       up to 1024 entries of the layer: tile 4 | 1 open, 2 pinned 4 | base position 8 | begin 4 |
//                            count 4
//   "done"  one per layer    its entries 4 | its tiles 4 | replaced numbers 8
//   "end "  last of all      nothing
//
// Tiles come before the entries that name them. There may be tiles that no entry names: a sequence that was sent while
// it grew may have been rolled back. "layer" counts from 0 and is 0 for sections that belong to none.
#pragma once

#include "../function_ref.hpp"
#include "crc32.hpp"

KVAXIS_BEGIN_NAMESPACE

// Takes the next bytes of a file; false when it cannot.
using byte_sink = function_ref<bool(const void* data, std::size_t bytes)>;

constexpr int file_version = 1;
constexpr std::size_t section_header_bytes = 16;

namespace detail {

constexpr std::uint32_t section_type(const char (&name)[5]) noexcept {
  std::uint32_t type = 0;
  for (int i = 3; i >= 0; --i) type = type << 8 | static_cast<std::uint8_t>(name[i]);
  return type;
}

namespace section {
inline constexpr std::uint32_t head = section_type("kvax");
inline constexpr std::uint32_t layer = section_type("layr");
inline constexpr std::uint32_t tile = section_type("tile");
inline constexpr std::uint32_t list = section_type("list");
inline constexpr std::uint32_t done = section_type("done");
inline constexpr std::uint32_t end = section_type("end ");
}  // namespace section

[[nodiscard]] constexpr bool is_layer_section(std::uint32_t type) noexcept {
  return type == section::layer || type == section::tile || type == section::list || type == section::done;
}

inline constexpr std::uint64_t section_frame_bytes = section_header_bytes + 4;
inline constexpr std::uint64_t head_bytes = 16;
inline constexpr std::uint64_t tile_head_bytes = 20;
inline constexpr std::uint64_t entry_bytes = 24;
inline constexpr std::uint64_t done_bytes = 16;
inline constexpr std::uint32_t list_entries = 1024;  // of one section, so that none is large

inline constexpr std::uint32_t open_flag = 1;
inline constexpr std::uint32_t pinned_flag = 2;

struct section_header {
  std::uint32_t type = 0;
  std::uint32_t layer = 0;
  std::uint64_t bytes = 0;  // of the payload
};

[[nodiscard]] inline section_header load_header(byte_reader& from) noexcept {
  section_header h;
  h.type = from.number<std::uint32_t>();
  h.layer = from.number<std::uint32_t>();
  h.bytes = from.number<std::uint64_t>();
  return h;
}

struct section_view {
  section_header header;
  byte_reader payload{nullptr, 0};
};

// The next section, whole and with the right checksum.
inline status take_section(byte_reader& from, section_view& out) noexcept {
  const std::byte* const begin = from.data();
  out.header = load_header(from);
  const std::byte* const payload = from.take(out.header.bytes);
  const auto sum = from.number<std::uint32_t>();
  if (from.failed()) return {errc::invalid_argument, "file: truncated", 0};
  const auto bytes = static_cast<std::size_t>(out.header.bytes);
  if (crc32(begin, section_header_bytes + bytes) != sum) return {errc::invalid_argument, "file: checksum", 0};
  out.payload = byte_reader(payload, bytes);
  return {};
}

// The section that a file begins with.
inline status read_head(const section_view& s, int& version, int& layers, int& first_layer) noexcept {
  byte_reader from = s.payload;
  if (s.header.type != section::head || s.header.layer != 0 || from.left() != head_bytes) {
    return {errc::invalid_argument, "file: not one of saved caches", 0};
  }
  const auto number = [&from] { return from.number<std::uint32_t>(); };
  const std::uint32_t numbers[] = {number(), number(), number(), number()};
  if (numbers[0] != file_version) return {errc::unsupported, "file: version", file_version};
  if (numbers[1] < 1 || numbers[1] > max_layers) {
    return {errc::out_of_range, "file: number of layers", max_layers};
  }
  if (numbers[2] > INT32_MAX) return {errc::out_of_range, "file: first layer", INT32_MAX};
  if (numbers[3] != 0) return {errc::invalid_argument, "file: head", 0};
  version = static_cast<int>(numbers[0]);
  layers = static_cast<int>(numbers[1]);
  first_layer = static_cast<int>(numbers[2]);
  return {};
}

// Gives sections to a sink, small numbers many at a time. Without a sink it only counts.
class section_writer {
 public:
  section_writer(const byte_sink* sink, std::uint64_t bytes_before) noexcept : sink_(sink), sent_(bytes_before) {}

  [[nodiscard]] std::uint64_t bytes() const noexcept { return sent_ + used_; }
  [[nodiscard]] bool counts_only() const noexcept { return sink_ == nullptr; }
  void count(std::uint64_t bytes) noexcept { sent_ += bytes; }

  void begin(std::uint32_t type, int layer, std::uint64_t payload) noexcept {
    put(type);
    put(static_cast<std::uint32_t>(layer));
    put(payload);
  }
  template <class T>
  void put(T x) noexcept {
    if (used_ + sizeof x > sizeof buffer_) flush();
    store_little(buffer_ + used_, x);
    used_ += sizeof x;
  }
  // Numbers of `word` bytes each, in the host's order.
  void put_words(const void* data, std::size_t bytes, std::size_t word) noexcept {
    const auto* from = static_cast<const std::byte*>(data);
    if (!big_endian && bytes >= sizeof buffer_) {
      flush();
      return send(from, bytes);
    }
    while (bytes > 0) {
      if (used_ + word > sizeof buffer_) flush();
      const std::size_t room = (sizeof buffer_ - used_) / word * word;
      const std::size_t n = bytes < room ? bytes : room;
      std::memcpy(buffer_ + used_, from, n);
      if constexpr (big_endian) swap_words(buffer_ + used_, n, word);
      used_ += n;
      from += n;
      bytes -= n;
    }
  }
  status end() noexcept {
    flush();
    put(crc_);
    flush();
    crc_ = 0;
    return failed_ ? status{errc::sink_failed, "sink", static_cast<std::int64_t>(sent_)} : status{};
  }

 private:
  void flush() noexcept {
    const std::size_t n = used_;
    used_ = 0;
    send(buffer_, n);
  }
  void send(const std::byte* data, std::size_t bytes) noexcept {
    if (counts_only()) return count(bytes);
    if (failed_ || bytes == 0) return;
    crc_ = crc32(data, bytes, crc_);
    failed_ = !(*sink_)(data, bytes);
    if (!failed_) sent_ += bytes;
  }

  const byte_sink* sink_;
  std::uint64_t sent_;
  std::uint32_t crc_ = 0;
  bool failed_ = false;
  std::size_t used_ = 0;
  std::byte buffer_[1024];
};

}  // namespace detail
KVAXIS_END_NAMESPACE
