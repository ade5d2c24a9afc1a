// Files of caches in memory, and what is done to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <kvaxis/io/cache_reader.hpp>
#include <kvaxis/io/cache_writer.hpp>
#include <string>
#include <vector>

#include "tokens.hpp"

namespace test {

using bytes = std::vector<std::byte>;

struct memory_sink {
  bytes file;
  bool operator()(const void* data, std::size_t n) {
    const auto* from = static_cast<const std::byte*>(data);
    file.insert(file.end(), from, from + n);
    return true;
  }
};

inline bytes save(const std::vector<const kvaxis::any_kv_cache*>& layers, const kvaxis::save_options& o = {}) {
  memory_sink sink;
  kvaxis::check(kvaxis::save(layers.data(), static_cast<int>(layers.size()), o, sink));
  return sink.file;
}
inline bytes save(const kvaxis::any_kv_cache& cache, const kvaxis::save_options& o = {}) { return save({&cache}, o); }

inline std::uint64_t saved_bytes(const kvaxis::any_kv_cache& cache, const kvaxis::save_options& o = {}) {
  const kvaxis::any_kv_cache* layer = &cache;
  std::uint64_t n = 0;
  kvaxis::check(kvaxis::saved_bytes(&layer, 1, o, n));
  return n;
}

inline kvaxis::status restore(const bytes& file, kvaxis::any_kv_cache& cache, const kvaxis::restore_options& o = {}) {
  kvaxis::any_kv_cache* layer = &cache;
  return kvaxis::restore(file.data(), file.size(), &layer, 1, o);
}

// Where the sections of a file begin; as many as are whole.
inline std::vector<std::size_t> sections(const bytes& file) {
  std::vector<std::size_t> at;
  std::size_t next = 0;
  while (file.size() - next >= kvaxis::detail::section_frame_bytes) {
    const auto payload = kvaxis::detail::load_little<std::uint64_t>(file.data() + next + 8);
    if (payload > file.size() - next - kvaxis::detail::section_frame_bytes) break;
    at.push_back(next);
    next += static_cast<std::size_t>(payload + kvaxis::detail::section_frame_bytes);
  }
  return at;
}

inline std::string section_name(const bytes& file, std::size_t at) {
  return {reinterpret_cast<const char*>(file.data() + at), 4};
}

// The beginning of the payload of the n-th section of a type.
inline std::size_t payload_of(const bytes& file, const std::string& type, int n = 0) {
  for (const std::size_t at : sections(file)) {
    if (section_name(file, at) == type && n-- == 0) return at + kvaxis::section_header_bytes;
  }
  throw std::runtime_error("no section " + type);
}

// Gives every whole section the checksum that it should have.
inline void fix_checksums(bytes& file) {
  for (const std::size_t at : sections(file)) {
    const auto payload = static_cast<std::size_t>(kvaxis::detail::load_little<std::uint64_t>(file.data() + at + 8));
    const std::size_t end = at + kvaxis::section_header_bytes + payload;
    kvaxis::detail::store_little(file.data() + end, kvaxis::crc32(file.data() + at, end - at));
  }
}

// A file with some bytes replaced by the number, and right checksums.
template <class T>
bytes with_number(bytes file, std::size_t at, T number) {
  kvaxis::detail::store_little(file.data() + at, number);
  fix_checksums(file);
  return file;
}

}  // namespace test
