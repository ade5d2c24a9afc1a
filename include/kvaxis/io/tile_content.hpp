// What of a tile goes into a file, and which content a tile of this library can have.
//
//   folded          per head: its hot-pair mask, if the tile stores one | codes of the keys | their parameters |
//                   codes of the values | their parameters
//   full precision  per head: keys [slot][head_dim] | values [slot][value_dim], for the slots that entries use
//   latent values have no codes, no parameters and no rows
//
// All as in memory (tile.hpp, block.hpp, quads.hpp) but for the host's order of bytes, headers and padding: codes and
// masks are 32-bit words, keys and their parameters lie in stored order.
#pragma once

#include "../cache/any_kv_cache.hpp"
#include "bytes.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

struct slot_span {
  std::int32_t first = 0;
  std::int32_t end = 0;
};

[[nodiscard]] inline std::size_t parameter_bytes(const block_layout& b) noexcept {
  return static_cast<std::size_t>(b.groups()) * static_cast<std::size_t>(b.members) *
         static_cast<std::size_t>(b.member_bytes);
}

// The capacity that a tile has in a file, and when it comes back. Full-precision ones that were the pins of another cache
// may have any; theirs is cut to what their tokens need.
[[nodiscard]] inline int saved_capacity(const any_kv_cache& cache, bool folded, int capacity,
                                        slot_span slots) noexcept {
  const int tokens = cache.format()->tokens;
  if (folded) return tokens;
  return capacity == tokens || capacity == round_up(cache.config().pins, 4) ? capacity : round_up(slots.end, 4);
}

// Numbers of a row that lie in the tile: latent values lie in the keys.
[[nodiscard]] inline int row_numbers(const tile_format& f, bool is_key) noexcept {
  if (is_key) return f.head_dim;
  return f.is_latent() ? 0 : f.value_dim;
}

// Bytes of one head in a file.
[[nodiscard]] inline std::uint64_t content_bytes(const tile_format& f, bool folded, slot_span slots) noexcept {
  if (!folded) {
    return static_cast<std::uint64_t>(slots.end - slots.first) *
           static_cast<std::uint64_t>(row_numbers(f, true) + row_numbers(f, false)) * f.row_bytes();
  }
  const auto block = [](const block_layout& b) { return std::uint64_t{b.codes_bytes} + parameter_bytes(b); };
  return std::uint64_t{f.masks()} * static_cast<std::uint64_t>(f.mask_stride) * 4U + block(f.key) + block(f.value);
}

[[nodiscard]] inline const std::byte* exact_row(const tile& t, bool is_key, int head, int slot) noexcept {
  const auto row = [&](auto* of_type) {
    using type = std::remove_pointer_t<decltype(of_type)>;
    return reinterpret_cast<const std::byte*>(is_key ? t.key_row<type>(head, slot) : t.value_row<type>(head, slot));
  };
  return t.format->half_rows ? row(static_cast<float16*>(nullptr)) : row(static_cast<float*>(nullptr));
}

// Calls visit(std::byte*, bytes, word) for every piece of a head's content, in the order of the file; a piece is numbers
// of `word` bytes.
template <class Visit>
void for_each_piece(const tile& t, int head, slot_span slots, Visit&& visit) noexcept {
  const tile_format& f = *t.format;
  const auto piece = [&visit](const void* data, std::size_t bytes, std::size_t word) {
    if (bytes > 0) visit(static_cast<std::byte*>(const_cast<void*>(data)), bytes, word);
  };
  if (t.folded) {
    const std::uint32_t* const masks[] = {t.hot_mask(head), t.wide_mask(head)};
    for (std::size_t i = 0; i < f.masks(); ++i) piece(masks[i], static_cast<std::size_t>(f.mask_stride) * 4U, 4);
    const auto block = [&piece](const block_layout& b, const std::byte* data) {
      piece(data, b.codes_bytes, 4);
      piece(data + b.codes_bytes, parameter_bytes(b), static_cast<std::size_t>(b.member_bytes));
    };
    block(f.key, t.key_block(head));
    block(f.value, t.value_block(head));
    return;
  }
  const std::size_t row = f.row_bytes();
  for (const bool is_key : {true, false}) {
    const auto channels = static_cast<std::size_t>(row_numbers(f, is_key));
    for (int slot = slots.first; slot < slots.end; ++slot) {
      piece(exact_row(t, is_key, head, slot), channels * row, row);
    }
  }
}

// --- Checks --------------------------------------------------------------------------------------------------------

// Which bits of a 32-bit word belong to the magnitudes of packed floating-point numbers that count here, so that adding
// `carry` reaches `sign` just where all of them are set: the number is then NaN or infinite.
struct float_pattern {
  std::uint32_t magnitude = 0;
  std::uint32_t carry = 0;
  std::uint32_t sign = 0;
};

[[nodiscard]] constexpr float_pattern pattern_of(unit_kind unit) noexcept {
  switch (unit) {
    case unit_kind::e4m3: return {0x7F7F7F7FU, 0x01010101U, 0x80808080U};
    case unit_kind::e5m2: return {0x7C7C7C7CU, 0x04040404U, 0x80808080U};
    case unit_kind::f16: return {0x7C007C00U, 0x04000400U, 0x80008000U};
    case unit_kind::bf16: return {0x7F807F80U, 0x00800080U, 0x80008000U};
    case unit_kind::f32: return {0x7F800000U, 0x00800000U, 0x80000000U};
    default: break;
  }
  return {};
}

// Bits that are set where they should not be: numbers that are not finite, and the signs if `unsigned_only`.
[[nodiscard]] inline bool has_bad_numbers(const std::byte* data, std::size_t bytes, const float_pattern& p,
                                          bool unsigned_only) noexcept {
  const std::uint32_t sign = unsigned_only ? p.sign : 0;
  std::uint32_t found = 0;
  const auto look_at = [&](const std::byte* from, std::size_t size) {
    std::uint32_t word = 0;
    std::memcpy(&word, from, size);
    found |= (((word & p.magnitude) + p.carry) & p.sign) | (word & sign);
  };
  std::size_t at = 0;
  for (; at + 4 <= bytes; at += 4) look_at(data + at, 4);
  if (at < bytes) look_at(data + at, bytes - at);
  return found != 0;
}

// Scales are not negative. A linear codec's codes give no number much beyond `limit`, the largest of a token: rotation
// and the errors of older tiles add less than half.
inline const char* check_parameters(const block_layout& b, const codec_table& codec, float limit,
                                    const std::byte* block) noexcept {
  const std::byte* const parameters = block + b.codes_bytes;
  const auto groups = static_cast<std::size_t>(b.groups());
  const auto width = static_cast<std::size_t>(b.member_bytes);
  const float_pattern pattern = pattern_of(width == 2 ? unit_kind::f16 : unit_kind::f32);
  const bool is_linear = codec.unit != unit_kind::none;
  if (width == 1) return nullptr;  // bytes mean what their codec says; what it decodes is looked at
  for (std::size_t m = 0; m < static_cast<std::size_t>(b.members); ++m) {
    const bool is_scale = m == 0 && is_linear;
    if (has_bad_numbers(parameters + m * groups * width, groups * width, pattern, is_scale)) {
      return "file: scale or offset";
    }
  }
  if (b.members == 0 || !is_linear) return nullptr;
  const auto number = [&](std::size_t index) {
    if (width == 2) return to_float(float16{load_native<std::uint16_t>(parameters + 2 * index)});
    return bits_float(load_native<std::uint32_t>(parameters + 4 * index));
  };
  for (std::size_t g = 0; g < groups; ++g) {
    const float scale = number(g);
    const float offset = b.members == 2 ? number(groups + g) : codec.offset_factor * scale;
    for (const float unit : {codec.unit_min, codec.unit_max}) {
      const float x = fused(scale, unit, offset);
      if (!is_finite(x) || std::fabs(x) > 1.5F * limit) return "file: scale or offset";
    }
  }
  return nullptr;
}

inline const char* check_block(const block_layout& b, const codec_table& codec, float limit,
                               const std::byte* block) noexcept {
  const float_pattern codes = pattern_of(codec.unit);
  if (codes.sign != 0 && has_bad_numbers(block, b.codes_bytes, codes, false)) return "file: code";
  for (int row = 0; row < b.used_rows && codec.unit == unit_kind::none; ++row) {
    float numbers[max_head_dim];
    codec.decode_row(b, {}, block, row, 0, b.used_lanes, numbers);
    for (int lane = 0; lane < b.used_lanes; ++lane) {
      if (!is_finite(numbers[lane])) return "file: code";
    }
  }
  return check_parameters(b, codec, limit, block);
}

// Only pairs that there are, and as many as the policy says; wide ones are hot.
inline const char* check_masks(const tile_format& f, const std::uint32_t* hot, const std::uint32_t* wide) noexcept {
  const bool has_wide = f.masks() == 2;
  const std::uint32_t* const chosen = has_wide ? wide : hot;
  int count = 0;
  for (int i = 0; i < 32 * f.mask_stride; ++i) {
    const auto is_in = [i](const std::uint32_t* mask) { return (mask[i / 32] >> (i % 32) & 1U) != 0; };
    const bool beyond = i >= f.pairs && (is_in(hot) || is_in(chosen));
    if (beyond || (is_in(chosen) && !is_in(hot))) return "file: hot pairs";
    count += is_in(chosen) ? 1 : 0;
  }
  const int wanted = f.key_policy.rotation;
  return wanted > 0 && count != wanted ? "file: hot pairs" : nullptr;
}

template <class Row>
bool row_within(const Row* row, int channels, const number_range& range) noexcept {
  bool within = true;
  for (int c = 0; c < channels; ++c) {
    const float x = to_float(row[c]);
    within = within && is_finite(x) && x >= range.low && x <= range.high;
  }
  return within;
}

inline const char* check_rows(const tile& t, int head, slot_span slots) noexcept {
  const tile_format& f = *t.format;
  for (const bool is_key : {true, false}) {
    number_range range = range_of(f, is_key, head);
    if (f.half_rows) range = {to_float(to_float16(range.low)), to_float(to_float16(range.high))};
    const int channels = row_numbers(f, is_key);
    for (int slot = slots.first; slot < slots.end; ++slot) {
      const std::byte* row = exact_row(t, is_key, head, slot);
      const bool within = f.half_rows ? row_within(reinterpret_cast<const float16*>(row), channels, range)
                                      : row_within(reinterpret_cast<const float*>(row), channels, range);
      if (!within) return is_key ? "file: key" : "file: value";
    }
  }
  return nullptr;
}

// Whether a head's content could have come from append, fold and demote, as far as attention relies on it; else what is
// wrong. `newest`: the format of new tiles.
inline const char* check_content(const tile_format& newest, const tile& t, int head, slot_span slots) noexcept {
  if (!t.folded) return check_rows(t, head, slots);
  const tile_format& f = *t.format;
  const char* wrong = f.stored_mask ? check_masks(f, t.hot_mask(head), t.wide_mask(head)) : nullptr;
  if (wrong == nullptr) wrong = check_block(f.key, *f.key_codec, newest.key_limit, t.key_block(head));
  if (wrong == nullptr) wrong = check_block(f.value, *f.value_codec, newest.value_limit, t.value_block(head));
  return wrong;
}

}  // namespace detail
KVAXIS_END_NAMESPACE
