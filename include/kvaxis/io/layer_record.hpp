// The description of a layer in a file: all that gives its bytes their meaning, and what the cache that they are loaded
// into must have in common with the one that they come from.
//
//   numbers 4 each, in the order of layer_fields | attention factor 8
//   per tier, that of new tiles first: newer tokens 8 | keys | values
//     keys, values: codec 32 | unit 8 | numbers 4 each, in the order of side_fields
//   per pair of the rotation: channel 4 | channel 4 | frequency 8
//   per kv head of the file: key scale 4 | key offset 4 | value scale 4 | value offset 4   (1 and the codec's own offset
//                            where they are stored in the tiles)
//
// Floating-point numbers are IEEE 754 bits, texts are filled up with zeros.
#pragma once

#include <array>
#include <iterator>

#include "layers.hpp"
#include "sections.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

struct side_record {
  char codec[32] = {};
  char unit[8] = {};
  std::uint32_t axis = 0;  // 0 channel, 1 token, 2 tensor, 3 latent
  std::uint32_t group = 0;
  std::uint32_t rotation = 0;  // two's complement; policy.hpp
  std::uint32_t bits = 0;
  std::uint32_t members = 0;
  std::uint32_t member_bytes = 0;
};

struct tier_record {
  std::uint64_t newer_tokens = 0;  // older_tier::newer_tokens, 0 for the tier of new tiles
  side_record keys;
  side_record values;
};

struct layer_record {
  std::uint32_t kv_heads = 0;  // of the layer, on all machines together
  std::uint32_t first_head = 0;
  std::uint32_t end_head = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t value_dim = 0;
  std::uint32_t tile_tokens = 0;
  std::uint32_t window = 0;
  std::uint32_t pins = 0;
  std::uint32_t half_window = 0;
  std::uint32_t growth = 0;
  std::uint32_t pairs = 0;
  std::uint32_t older_tiers = 0;
  std::uint64_t attention_factor = 0;
  std::array<tier_record, max_tiers> tiers;
};

struct layer_field {
  const char* name;
  std::uint32_t layer_record::*member;
};
inline constexpr layer_field layer_fields[] = {
    {"file: kv_heads", &layer_record::kv_heads},       {"file: first head", &layer_record::first_head},
    {"file: end head", &layer_record::end_head},       {"file: head_dim", &layer_record::head_dim},
    {"file: value_dim", &layer_record::value_dim},     {"file: tile_tokens", &layer_record::tile_tokens},
    {"file: window", &layer_record::window},           {"file: pins", &layer_record::pins},
    {"file: half_window", &layer_record::half_window}, {"file: growth", &layer_record::growth},
    {"file: rope.pairs_count", &layer_record::pairs},  {"file: older_tiers_count", &layer_record::older_tiers},
};

struct side_field {
  const char* key_name;
  const char* value_name;
  std::uint32_t side_record::*member;
};
inline constexpr side_field side_fields[] = {
    {"file: key policy: axis", "file: value policy: axis", &side_record::axis},
    {"file: key policy: group length", "file: value policy: group length", &side_record::group},
    {"file: key policy: rotation", "file: value policy: rotation", &side_record::rotation},
    {"file: key codec: bits", "file: value codec: bits", &side_record::bits},
    {"file: key codec: members", "file: value codec: members", &side_record::members},
    {"file: key codec: bytes of a member", "file: value codec: bytes of a member", &side_record::member_bytes},
};

inline constexpr std::uint64_t pair_bytes = 16;
inline constexpr std::uint64_t given_bytes = 16;

[[nodiscard]] inline std::uint64_t description_bytes(const layer_record& r) noexcept {
  constexpr std::uint64_t side_bytes =
      sizeof(side_record::codec) + sizeof(side_record::unit) + 4 * std::size(side_fields);
  return 4 * std::size(layer_fields) + 8 + (std::uint64_t{r.older_tiers} + 1) * (8 + 2 * side_bytes) +
         r.pairs * pair_bytes + (r.end_head - r.first_head) * given_bytes;
}

// What codes stand for, with the flavour of 8-bit floating-point numbers: there are other formats called E4M3.
[[nodiscard]] constexpr const char* unit_name(unit_kind unit) noexcept {
  switch (unit) {
    case unit_kind::u2: return "u2";
    case unit_kind::u3: return "u3";
    case unit_kind::u4: return "u4";
    case unit_kind::u5: return "u5";
    case unit_kind::u6: return "u6";
    case unit_kind::u8: return "u8";
    case unit_kind::e4m3: return "e4m3fn";
    case unit_kind::e5m2: return "e5m2";
    case unit_kind::f16: return "f16";
    case unit_kind::bf16: return "bf16";
    case unit_kind::f32: return "f32";
    case unit_kind::none: break;
  }
  return "own";
}

// Without what has no meaning: the rotation of values, the group of what has none.
inline side_record describe_side(const policy& p, const codec_table& codec, role side) noexcept {
  side_record r;
  std::strncpy(r.codec, codec.name, sizeof r.codec - 1);
  std::strncpy(r.unit, unit_name(codec.unit), sizeof r.unit - 1);
  r.axis = static_cast<std::uint32_t>(p.axis);
  if (p.axis == axis::channel || p.axis == axis::token) r.group = static_cast<std::uint32_t>(p.group);
  if (side == role::key) r.rotation = static_cast<std::uint32_t>(p.rotation);
  r.bits = static_cast<std::uint32_t>(codec.bits);
  r.members = static_cast<std::uint32_t>(codec.members);
  r.member_bytes = static_cast<std::uint32_t>(codec.member_bytes);
  return r;
}

// `first_head` and `end_head` of the layer's `of`.
inline layer_record describe_layer(const any_kv_cache& cache, int of, int first_head, int end_head) noexcept {
  const tile_format& f = *cache.format();
  const cache_config& c = cache.config();
  layer_record r;
  r.kv_heads = static_cast<std::uint32_t>(of);
  r.first_head = static_cast<std::uint32_t>(first_head);
  r.end_head = static_cast<std::uint32_t>(end_head);
  r.head_dim = static_cast<std::uint32_t>(f.head_dim);
  r.value_dim = static_cast<std::uint32_t>(f.value_dim);
  r.tile_tokens = static_cast<std::uint32_t>(f.tokens);
  r.window = static_cast<std::uint32_t>(c.window);
  r.pins = static_cast<std::uint32_t>(c.pins);
  r.half_window = f.half_rows ? 1U : 0U;
  r.growth = float_bits(f.growth);
  r.pairs = static_cast<std::uint32_t>(f.pairs);
  r.older_tiers = static_cast<std::uint32_t>(c.older_tiers_count);
  r.attention_factor = double_bits(f.pairs > 0 ? c.rope.attention_factor : 1.0);
  const sequence_view view = cache.view();
  for (std::size_t i = 0; i <= r.older_tiers; ++i) {
    const tile_format& tier = *view.tiers[i];
    if (i > 0) r.tiers[i].newer_tokens = static_cast<std::uint64_t>(c.older_tiers[i - 1].newer_tokens);
    r.tiers[i].keys = describe_side(tier.key_policy, *tier.key_codec, role::key);
    r.tiers[i].values = describe_side(tier.value_policy, *tier.value_codec, role::value);
  }
  return r;
}

// The scales and offsets of one head, in the order of the file.
inline std::array<std::uint32_t, 4> given_bits(const tile_format& f, int head) noexcept {
  const given_scale k = f.key_given[head];
  const given_scale v = f.value_given[head];
  return {float_bits(k.scale), float_bits(k.offset), float_bits(v.scale), float_bits(v.offset)};
}

inline void write_side(const side_record& r, section_writer& to) noexcept {
  to.put_words(r.codec, sizeof r.codec, 1);
  to.put_words(r.unit, sizeof r.unit, 1);
  for (const side_field& field : side_fields) to.put(r.*field.member);
}

// `cache_head`: the cache's number of the first head in the file.
inline status write_description(int layer, const layer_record& r, const any_kv_cache& cache, int cache_head,
                                section_writer& to) noexcept {
  const tile_format& f = *cache.format();
  to.begin(section::layer, layer, description_bytes(r));
  for (const layer_field& field : layer_fields) to.put(r.*field.member);
  to.put(r.attention_factor);
  for (std::size_t i = 0; i <= r.older_tiers; ++i) {
    to.put(r.tiers[i].newer_tokens);
    write_side(r.tiers[i].keys, to);
    write_side(r.tiers[i].values, to);
  }
  for (int i = 0; i < f.pairs; ++i) {
    const rope_pair& pair = cache.config().rope.pairs[static_cast<std::size_t>(i)];
    to.put(static_cast<std::uint32_t>(pair.a));
    to.put(static_cast<std::uint32_t>(pair.b));
    to.put(double_bits(pair.frequency));
  }
  for (std::uint32_t h = r.first_head; h < r.end_head; ++h, ++cache_head) {
    for (const std::uint32_t bits : given_bits(f, cache_head)) to.put(bits);
  }
  return to.end();
}

}  // namespace detail
KVAXIS_END_NAMESPACE
