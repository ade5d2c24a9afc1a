// The caches that a call saves or restores.
#pragma once

#include "../cache/any_kv_cache.hpp"
#include "sections.hpp"

KVAXIS_BEGIN_NAMESPACE

// Which of a layer's kv heads a cache holds, where they are spread over several machines: those from number `first` on,
// of `of`.
struct kv_head_share {
  int first = 0;
  int of = 0;  // 0: the cache holds all
};

namespace detail {

// The library's access to what a cache does not show.
struct cache_access {
  [[nodiscard]] static const cache_config& config(const any_kv_cache& c) noexcept { return c.config_; }
  static void replace(any_kv_cache& c, entry_list& entries, std::int64_t next_position,
                      std::int64_t replaced) noexcept {
    c.replace_tokens(entries, next_position, replaced);
  }
};

[[nodiscard]] inline int heads_of_layer(const any_kv_cache& cache, kv_head_share share) noexcept {
  return share.of == 0 ? cache.format()->kv_heads : share.of;
}

[[nodiscard]] inline int pin_capacity(const any_kv_cache& cache) noexcept {
  return round_up(cache_access::config(cache).pins, 4);
}

// The layers of a call, and that `share` fits them.
template <class Cache>
status check_layers(Cache* const* layers, int count, kv_head_share share) noexcept {
  if (layers == nullptr) return {errc::invalid_argument, "layers", 0};
  if (count < 1 || count > max_file_layers) return {errc::out_of_range, "count", max_file_layers};
  for (int i = 0; i < count; ++i) {
    if (layers[i] == nullptr || layers[i]->format() == nullptr) return {errc::invalid_argument, "layers", i};
    const int kv_heads = layers[i]->format()->kv_heads;
    if (share.of < 0 || share.of > max_kv_heads) return {errc::out_of_range, "share.of", max_kv_heads};
    const int of = heads_of_layer(*layers[i], share);
    if (share.first < 0 || share.first > of - kv_heads) return {errc::out_of_range, "share.first", of - kv_heads};
  }
  return {};
}

}  // namespace detail
KVAXIS_END_NAMESPACE
