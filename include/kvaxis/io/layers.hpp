// The caches that a call saves or restores.
#pragma once

#include "../cache/sequence.hpp"
#include "sections.hpp"

KVAXIS_BEGIN_NAMESPACE

// Which of a layer's kv heads a cache holds, where they are spread over several machines: those from number `first` on,
// of `of`.
struct kv_head_share {
  int first = 0;
  int of = 0;  // 0: the cache holds all
};

namespace detail {

[[nodiscard]] inline int heads_of_layer(const any_kv_cache& cache, kv_head_share share) noexcept {
  return share.of == 0 ? cache.format()->kv_heads : share.of;
}

// Layer i of a call.
using layer_of = function_ref<any_kv_cache*(int)>;
using const_layer_of = function_ref<const any_kv_cache*(int)>;

// Whether the layers are there, and `share` fits them.
inline status check_layers(const const_layer_of& layer, int count, kv_head_share share) noexcept {
  if (count < 1 || count > max_layers) return {errc::out_of_range, "count", max_layers};
  for (int i = 0; i < count; ++i) {
    if (layer(i) == nullptr || layer(i)->format() == nullptr) return {errc::invalid_argument, "layers", i};
    const int kv_heads = layer(i)->format()->kv_heads;
    if (share.of < 0 || share.of > max_kv_heads) return {errc::out_of_range, "share.of", max_kv_heads};
    const int of = heads_of_layer(*layer(i), share);
    if (share.first < 0 || share.first > of - kv_heads) return {errc::out_of_range, "share.first", of - kv_heads};
  }
  return {};
}

}  // namespace detail
KVAXIS_END_NAMESPACE
