// Rows of keys or values as the engine has them: [token][kv_head][dim], f32, binary16 or bfloat16, with strides.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "../formats/half.hpp"
#include "../tile/fold.hpp"
#include "config.hpp"

KVAXIS_BEGIN_NAMESPACE

enum class element : int { single, half, brain };

struct rows {
  const void* data = nullptr;
  element type = element::single;
  std::int64_t token_stride = 0;  // in elements; 0: packed, kv_heads * head_stride
  std::int64_t head_stride = 0;   // in elements; 0: packed, the number of channels

  constexpr rows() noexcept = default;
  constexpr rows(const float* p, std::int64_t per_token = 0, std::int64_t per_head = 0) noexcept  // NOLINT
      : data(p), type(element::single), token_stride(per_token), head_stride(per_head) {}
  constexpr rows(const float16* p, std::int64_t per_token = 0, std::int64_t per_head = 0) noexcept  // NOLINT
      : data(p), type(element::half), token_stride(per_token), head_stride(per_head) {}
  constexpr rows(const bfloat16* p, std::int64_t per_token = 0, std::int64_t per_head = 0) noexcept  // NOLINT
      : data(p), type(element::brain), token_stride(per_token), head_stride(per_head) {}
};

namespace detail {

inline status check_layout(const rows& r, int dim, bool is_key) noexcept {
  if (r.data == nullptr) return {errc::invalid_argument, is_key ? "k" : "v", 0};
  if (r.head_stride != 0 && r.head_stride < dim)
    return {errc::invalid_argument, is_key ? "k.head_stride" : "v.head_stride", dim};
  if (r.token_stride != 0 && r.token_stride < dim)
    return {errc::invalid_argument, is_key ? "k.token_stride" : "v.token_stride", dim};
  return {};
}

// Calls f(const T* row, token, head) for every row.
template <class F>
void for_each_row(const rows& r, int tokens, int heads, int dim, F&& f) noexcept {
  const std::int64_t head_stride = r.head_stride == 0 ? dim : r.head_stride;
  const std::int64_t token_stride = r.token_stride == 0 ? heads * head_stride : r.token_stride;
  const auto visit = [&](const auto* data) {
    for (int t = 0; t < tokens; ++t) {
      for (int h = 0; h < heads; ++h) f(data + t * token_stride + h * head_stride, t, h);
    }
  };
  switch (r.type) {
    case element::single: return visit(static_cast<const float*>(r.data));
    case element::half: return visit(static_cast<const float16*>(r.data));
    case element::brain: return visit(static_cast<const bfloat16*>(r.data));
  }
}

[[nodiscard]] inline rows skip_tokens(const rows& r, int tokens, int heads, int dim) noexcept {
  const std::int64_t head_stride = r.head_stride == 0 ? dim : r.head_stride;
  const std::int64_t token_stride = r.token_stride == 0 ? heads * head_stride : r.token_stride;
  const std::int64_t bytes = tokens * token_stride * (r.type == element::single ? 4 : 2);
  rows later = r;
  if (r.data != nullptr) later.data = static_cast<const char*>(r.data) + bytes;  // latent values have no rows
  return later;
}

// The number to store for x, and whether it is another one.
inline float admissible(float x, const number_range& range, std::int64_t& replaced) noexcept {
  const bool is_number = is_finite(x);
  if (is_number && x >= range.low && x <= range.high) return x;
  ++replaced;
  if (!is_number) {
    const bool is_nan = (float_bits(x) & 0x007FFFFFU) != 0;
    x = is_nan ? 0.0F : (float_bits(x) >> 31) != 0 ? range.low : range.high;
  }
  return x < range.low ? range.low : x > range.high ? range.high : x;
}

// Per instruction set; rows.inl is the code.
struct row_functions {
  bool (*within)(const tile_format&, const rows&, int tokens, bool is_key) noexcept;
  void (*copy)(const tile_format&, const rows&, int count, bool is_key, const tile& into, int slot,
               std::int64_t& replaced) noexcept;
};

[[nodiscard]] KVAXIS_KERNEL const row_functions& active_rows() noexcept;

}  // namespace detail
KVAXIS_END_NAMESPACE

#if defined(KVAXIS_DEFINE_KERNELS)
#define KVAXIS_INL "../cache/rows.inl"
#include "../simd/foreach_isa.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

KVAXIS_KERNEL const row_functions& active_rows() noexcept {
  static constexpr std::array<const row_functions*, isa_count> tables = KVAXIS_ISA_TABLE(row_table);
  return *tables[static_cast<std::size_t>(active_isa())];
}

}  // namespace detail
KVAXIS_END_NAMESPACE
#endif

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// Whether every number is finite and in range, as far as the configuration refuses. `limit` is the token of a
// non-finite number, or the bound that was passed.
inline status check_rows(const tile_format& f, const cache_config& c, const rows& r, int tokens, bool is_key) noexcept {
  status found;
  if (active_rows().within(f, r, tokens, is_key)) return found;
  const int dim = is_key ? f.head_dim : f.value_dim;
  for_each_row(r, tokens, f.kv_heads, dim, [&](const auto* row, int token, int head) {
    if (!found.ok()) return;
    const number_range range = range_of(f, is_key, head);
    for (int i = 0; i < dim; ++i) {
      const float x = to_float(row[i]);
      if (!is_finite(x)) {
        if (c.non_finite == on_bad_input::replace) continue;
        found = {errc::non_finite, is_key ? "k" : "v", token};
        return;
      }
      if ((x < range.low || x > range.high) && c.out_of_range == on_bad_input::refuse) {
        const float bound = x < range.low ? range.low : range.high;
        found = {errc::out_of_range, is_key ? "k" : "v", integer_limit(bound)};
        return;
      }
    }
  });
  return found;
}

}  // namespace detail
KVAXIS_END_NAMESPACE
