// A cache from a policy's name (quantizers/names.hpp). Including this file instantiates the kernels of every codec, but for
// the units of KVAXIS_SEPARATE_KERNELS.
#pragma once

#include <string_view>

#include "../quantizers/centered.hpp"
#include "../quantizers/codebook.hpp"
#include "../quantizers/compact.hpp"
#include "../quantizers/microscaling.hpp"
#include "../quantizers/names.hpp"
#include "../quantizers/outliers.hpp"
#include "any_kv_cache.hpp"

KVAXIS_BEGIN_NAMESPACE

// The codec of that name, or nullptr.
[[nodiscard]] KVAXIS_KERNEL const codec_table* find_codec(std::string_view name) noexcept;

#if defined(KVAXIS_DEFINE_CODECS)
namespace detail {

template <class... Codecs>
const codec_table* find_among(std::string_view name) noexcept {
  for (const codec_table* t : {&table_of<Codecs>...}) {
    if (name == t->name) return t;
  }
  return nullptr;
}

// By range and by least squares, and both after a Hadamard transform.
template <class... Codecs>
const codec_table* find_variant(std::string_view name) noexcept {
  return find_among<Codecs..., least_squares<Codecs>..., with_hadamard<Codecs>...,
                    with_hadamard<least_squares<Codecs>>...>(name);
}

// One and two outliers of a group kept, by range and by least squares.
template <class... Codecs>
const codec_table* find_outliers(std::string_view name) noexcept {
  return find_among<outliers<Codecs, 1>..., outliers<Codecs, 2>..., outliers<least_squares<Codecs>, 1>...,
                    outliers<least_squares<Codecs>, 2>...>(name);
}

// Some pairs of a width among Wide, by range and by least squares.
template <class Codec, class... Wide>
const codec_table* find_wide(std::string_view name) noexcept {
  return find_among<wide_pairs<Codec, Wide>..., wide_pairs<least_squares<Codec>, least_squares<Wide>>...>(name);
}

}  // namespace detail

KVAXIS_KERNEL const codec_table* find_codec(std::string_view name) noexcept {
  using namespace detail;
  for (const auto find :
       {&find_variant<int2, int3, int4, int5, int6, int8>, &find_variant<int2s, int3s, int4s, int5s, int6s, int8s>,
        &find_wide<int2, int3, int4, int6>, &find_wide<int3, int4, int5>, &find_wide<int4, int5, int6, int8>,
        &find_wide<int5, int6>, &find_outliers<int2, int3, int4>,
        &find_among<int4f32, int8f32, e4m3, e5m2, f32, f16, bf16>,
        &find_among<mxfp4, mxfp6e2m3, mxfp6e3m2, mxfp8e4m3, mxfp8e5m2, mxint8, nvfp4>,
        &find_among<nf4, nf4a, lloyd2, lloyd2a, lloyd3, lloyd3a, lloyd4, lloyd4a>,
        &find_among<with_hadamard<nf4>, with_hadamard<lloyd2>, with_hadamard<lloyd3>, with_hadamard<lloyd4>>,
        &find_among<compact<2>, compact<3>, compact<4>, compact<5>, compact<6>>,
        &find_among<centered<int4s>, centered<int8s>, centered<nf4>, centered<lloyd4>, centered<e4m3>>}) {
    if (const codec_table* t = find(name)) return t;
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
    char whole[48];
    format_codec(side, whole, sizeof whole);
    to = {side.policy, find_codec(whole)};
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
