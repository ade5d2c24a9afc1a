// A cache from a policy's name (quantizers/names.hpp). Including this file instantiates the kernels of every codec, but for
// the units of KVAXIS_SEPARATE_KERNELS.
#pragma once

#include <string_view>

#include "../quantizers/names.hpp"
#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE

// The codec of that name, or nullptr.
[[nodiscard]] KVAXIS_KERNEL const codec_table* find_codec(std::string_view name) noexcept;

#if defined(KVAXIS_DEFINE_CODECS)
KVAXIS_KERNEL const codec_table* find_codec(std::string_view name) noexcept {
  static constexpr const codec_table* all[] = {
      &table_of<int4>, &table_of<int8>, &table_of<int4s>, &table_of<int8s>, &table_of<int4f32>, &table_of<int8f32>,
      &table_of<e4m3>, &table_of<e5m2>, &table_of<f32>,   &table_of<f16>,   &table_of<bf16>,
  };
  for (const codec_table* t : all) {
    if (name == t->name) return t;
  }
  return nullptr;
}
#endif

// What a name stands for: the two sides, and the scales that it gives.
struct named_policy {
  bound_policy keys;
  bound_policy values;
  policy_name name;

  // The configuration with the scales of the name, where it has any; it points into this object.
  [[nodiscard]] cache_config apply(const cache_config& c) const noexcept {
    cache_config with = c;
    const bool own_scales = name.key.has_scale || name.value.has_scale;
    if (own_scales) with.scales_count = 1;
    if (name.key.has_scale) {
      with.k_scale = &name.key.scale;
      with.k_offset = name.key.has_offset ? &name.key.offset : nullptr;
    }
    if (name.value.has_scale) {
      with.v_scale = &name.value.scale;
      with.v_offset = name.value.has_offset ? &name.value.offset : nullptr;
    }
    return with;
  }
};

[[nodiscard]] inline status find_policy(std::string_view name, named_policy& out) noexcept {
  named_policy found;
  if (status s = parse_policy(name, found.name); !s.ok()) return s;
  const auto bind_side = [](const side_name& side, bound_policy& to) {
    to = {side.policy, find_codec(side.codec)};
    return to.codec != nullptr;
  };
  if (!bind_side(found.name.key, found.keys)) return {errc::invalid_argument, "policy name: unknown key codec", 0};
  if (found.name.value.policy.axis == axis::latent) {
    found.values = {found.name.value.policy, found.keys.codec};
  } else if (!bind_side(found.name.value, found.values)) {
    return {errc::invalid_argument, "policy name: unknown value codec", 0};
  }
  out = found;
  return {};
}

// A per-tensor scale in the name goes before the one of the configuration. When only one side's name has a scale, the
// other side's must be one number as well. `out` is unchanged unless the answer is ok.
[[nodiscard]] inline status make_cache(std::string_view name, const cache_config& c, const allocator& memory,
                                       any_kv_cache& out) noexcept {
  named_policy policy;
  if (status s = find_policy(name, policy); !s.ok()) return s;
  const bool mixed = policy.name.key.has_scale != policy.name.value.has_scale && c.scales_count != 1;
  const bool other_needs =
      policy.name.key.has_scale ? detail::needs_scale(policy.values) : detail::needs_scale(policy.keys);
  if (mixed && other_needs) return {errc::invalid_argument, "scales_count", 1};
  return any_kv_cache::create(policy.apply(c), policy.keys, policy.values, memory, out);
}

KVAXIS_END_NAMESPACE
