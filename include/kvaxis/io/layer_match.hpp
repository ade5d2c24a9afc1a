// Reading the description of a layer, and comparing it with a cache: any difference is named.
#pragma once

#include "layer_record.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

inline bool read_text(byte_reader& from, char* out, std::size_t size) noexcept {
  const std::byte* text = from.take(size);
  if (text == nullptr) return false;
  std::memcpy(out, text, size);
  std::size_t length = 0;
  while (length < size && out[length] > ' ' && out[length] <= '~') ++length;
  for (std::size_t i = length; i < size; ++i) {
    if (out[i] != 0) return false;
  }
  return length > 0 && length < size;
}

inline status read_side(byte_reader& from, bool is_key, side_record& out) noexcept {
  if (!read_text(from, out.codec, sizeof out.codec) || !read_text(from, out.unit, sizeof out.unit)) {
    return {errc::invalid_argument, is_key ? "file: key codec" : "file: value codec", 0};
  }
  for (const side_field& field : side_fields) out.*field.member = from.number<std::uint32_t>();
  if (out.axis > 3) return {errc::invalid_argument, is_key ? side_fields[0].key_name : side_fields[0].value_name, 3};
  return {};
}

// The record alone, with limits that a reader can rely on; pairs and scales follow in `from`, as many as it says.
inline status read_record(byte_reader& from, layer_record& out) noexcept {
  const std::size_t bytes = from.left();
  for (const layer_field& field : layer_fields) out.*field.member = from.number<std::uint32_t>();
  out.attention_factor = from.number<std::uint64_t>();
  if (out.older_tiers >= max_tiers) return {errc::out_of_range, "file: older_tiers_count", max_tiers - 1};
  for (std::size_t i = 0; i <= out.older_tiers; ++i) {
    out.tiers[i].newer_tokens = from.number<std::uint64_t>();
    if (status s = read_side(from, true, out.tiers[i].keys); !s.ok()) return s;
    if (status s = read_side(from, false, out.tiers[i].values); !s.ok()) return s;
  }
  if (out.kv_heads > max_kv_heads) return {errc::out_of_range, "file: kv_heads", max_kv_heads};
  if (out.end_head > out.kv_heads) return {errc::out_of_range, "file: end head", out.kv_heads};
  if (out.first_head >= out.end_head) return {errc::out_of_range, "file: first head", out.end_head};
  if (out.pairs > max_pairs) return {errc::out_of_range, "file: rope.pairs_count", max_pairs};
  if (bytes != description_bytes(out)) {
    return {errc::invalid_argument, "file: size of a description", static_cast<std::int64_t>(description_bytes(out))};
  }
  return {};
}

inline status compare_sides(const side_record& file, const side_record& cache, bool is_key) noexcept {
  if (std::memcmp(file.codec, cache.codec, sizeof file.codec) != 0 ||
      std::memcmp(file.unit, cache.unit, sizeof file.unit) != 0) {
    return {errc::invalid_argument, is_key ? "file: key codec" : "file: value codec", 0};
  }
  for (const side_field& field : side_fields) {
    if (file.*field.member != cache.*field.member) {
      return {errc::invalid_argument, is_key ? field.key_name : field.value_name,
              static_cast<std::int32_t>(cache.*field.member)};
    }
  }
  return {};
}

// Whether the description in `from` is that of the cache, whose head 0 is number `share.first` of the layer. `out` says
// which heads the file has.
inline status match_description(byte_reader from, const any_kv_cache& cache, kv_head_share share,
                                layer_record& out) noexcept {
  if (status s = read_record(from, out); !s.ok()) return s;
  const tile_format& f = *cache.format();
  const layer_record want =
      describe_layer(cache, share.of, static_cast<int>(out.first_head), static_cast<int>(out.end_head));
  for (const layer_field& field : layer_fields) {
    if (out.*field.member != want.*field.member) return {errc::invalid_argument, field.name, want.*field.member};
  }
  if (out.attention_factor != want.attention_factor) {
    return {errc::invalid_argument, "file: rope.attention_factor", 0};
  }
  for (std::size_t i = 0; i <= want.older_tiers; ++i) {
    if (out.tiers[i].newer_tokens != want.tiers[i].newer_tokens) {
      return {errc::invalid_argument, "file: older_tiers: newer_tokens", static_cast<std::int64_t>(i) - 1};
    }
    if (status s = compare_sides(out.tiers[i].keys, want.tiers[i].keys, true); !s.ok()) return s;
    if (status s = compare_sides(out.tiers[i].values, want.tiers[i].values, false); !s.ok()) return s;
  }
  for (int i = 0; i < f.pairs; ++i) {
    const rope_pair& pair = cache.config().rope.pairs[static_cast<std::size_t>(i)];
    const auto a = from.number<std::uint32_t>();
    const auto b = from.number<std::uint32_t>();
    const auto frequency = from.number<std::uint64_t>();
    if (a != static_cast<std::uint32_t>(pair.a) || b != static_cast<std::uint32_t>(pair.b)) {
      return {errc::invalid_argument, "file: rope.pairs", i};
    }
    if (frequency != double_bits(pair.frequency)) return {errc::invalid_argument, "file: rope.pairs.frequency", i};
  }
  static constexpr const char* names[] = {"file: k_scale", "file: k_offset", "file: v_scale", "file: v_offset"};
  for (int h = static_cast<int>(out.first_head); h < static_cast<int>(out.end_head); ++h) {
    const int head = h - share.first;
    const bool wanted = head >= 0 && head < f.kv_heads;
    const std::array<std::uint32_t, 4> here = wanted ? given_bits(f, head) : std::array<std::uint32_t, 4>{};
    for (std::size_t i = 0; i < 4; ++i) {
      const auto bits = from.number<std::uint32_t>();
      if (wanted && bits != here[i]) return {errc::invalid_argument, names[i], head};
    }
  }
  return {};
}

}  // namespace detail
KVAXIS_END_NAMESPACE
