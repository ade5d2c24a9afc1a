// Random keys and values for a cache, and the cache's content as bytes.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <kvaxis/cache/any_kv_cache.hpp>
#include <string>
#include <vector>

#include "numbers.hpp"

namespace test {

inline kvaxis::cache_config shape(int kv_heads, int head_dim, int value_dim = 0) {
  kvaxis::cache_config c;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.value_dim = value_dim;
  return c;
}

// The same with half-split RoPE over all channels, or all but the last of an odd number.
inline kvaxis::cache_config rope_shape(int kv_heads, int head_dim, int value_dim = 0) {
  kvaxis::cache_config c = shape(kv_heads, head_dim, value_dim);
  kvaxis::rope_parameters p;
  p.head_dim = head_dim;
  p.rotary_dim = head_dim / 2 * 2;
  kvaxis::check(kvaxis::make_rope(p, c.rope));
  return c;
}

// For INSTANTIATE_TEST_SUITE_P over policy names.
inline std::string policy_test_name(const ::testing::TestParamInfo<std::string>& tested) {
  std::string name = tested.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

// n tokens, packed.
struct tokens {
  std::vector<float> k;
  std::vector<float> v;
  std::size_t key_width;
  std::size_t value_width;
  int count;

  tokens(const kvaxis::cache_config& c, int n, std::uint64_t seed, float key_amplitude = 1.0F,
         float value_amplitude = 1.0F)
      : key_width(static_cast<std::size_t>(c.kv_heads) * static_cast<std::size_t>(c.head_dim)),
        value_width(static_cast<std::size_t>(c.kv_heads) *
                    static_cast<std::size_t>(c.value_dim == 0 ? c.head_dim : c.value_dim)),
        count(n) {
    numbers random(seed);
    k = random.uniforms(key_width * static_cast<std::size_t>(n), key_amplitude);
    v = random.uniforms(value_width * static_cast<std::size_t>(n), value_amplitude);
  }

  [[nodiscard]] const float* key(int token) const { return k.data() + key_width * static_cast<std::size_t>(token); }
  [[nodiscard]] const float* value(int token) const { return v.data() + value_width * static_cast<std::size_t>(token); }

  // Appends tokens first .. first + n - 1.
  [[nodiscard]] kvaxis::status append_to(kvaxis::any_kv_cache& cache, int first, int n,
                                         std::int64_t position = kvaxis::next,
                                         kvaxis::fold_mode mode = kvaxis::fold_mode::now) const {
    const kvaxis::rows values = cache.format()->is_latent() ? kvaxis::rows() : kvaxis::rows(value(first));
    return cache.append(key(first), values, n, position, mode);
  }
  void append_all_to(kvaxis::any_kv_cache& cache, std::int64_t position = kvaxis::next) const {
    kvaxis::check(append_to(cache, 0, count, position));
  }
};

namespace detail {

template <class T>
void add(std::string& bytes, const T& x) {
  bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
}

}  // namespace detail

// What caches that were given the same tokens have in common, whatever the calls were: the entries, every byte of the
// folded tiles (their headers left out), and the rows of the tokens in full precision.
inline std::string contents(const kvaxis::any_kv_cache& cache) {
  std::string bytes;
  for (const std::int64_t n : {cache.size(), cache.next_position(), cache.folded_tokens(), cache.replaced()}) {
    detail::add(bytes, n);
  }
  const kvaxis::sequence_view view = cache.view();
  for (int i = 0; i < view.entry_count; ++i) {
    const kvaxis::entry& e = view.entries[i];
    detail::add(bytes, e.base_position);
    detail::add(bytes, e.begin);
    detail::add(bytes, e.count);
    bytes.push_back(static_cast<char>(e.open));
    bytes.push_back(static_cast<char>(e.pinned));
    bytes.push_back(static_cast<char>(e.tile->folded));
    if (e.tile->folded) {
      bytes.append(reinterpret_cast<const char*>(e.tile->data() + 64), e.tile->bytes - 64);
      continue;
    }
    const kvaxis::tile_format& f = *cache.format();
    const std::byte* rows = e.tile->data() + 64;
    for (const int stride : {f.key_stride, f.value_stride}) {
      const std::size_t row = static_cast<std::size_t>(stride) * f.row_bytes();
      for (int h = 0; h < f.kv_heads; ++h) {
        const std::byte* from = rows + static_cast<std::size_t>(h * e.tile->capacity + e.begin) * row;
        bytes.append(reinterpret_cast<const char*>(from), static_cast<std::size_t>(e.count) * row);
      }
      rows += static_cast<std::size_t>(f.kv_heads * e.tile->capacity) * row;
    }
  }
  return bytes;
}

// Everything about one cache, to see that a call changed nothing: content, unused slots, memory.
inline std::string snapshot(const kvaxis::any_kv_cache& cache) {
  std::string bytes = contents(cache);
  const kvaxis::cache_bytes b = cache.bytes();
  for (const std::size_t n : {b.folded, b.exact, b.spare, b.bookkeeping}) detail::add(bytes, n);
  const kvaxis::sequence_view view = cache.view();
  for (int i = 0; i < view.entry_count; ++i) {
    const kvaxis::tile* t = view.entries[i].tile;
    detail::add(bytes, t);
    bytes.append(reinterpret_cast<const char*>(t->data() + 64), t->bytes - 64);
  }
  return bytes;
}

}  // namespace test
