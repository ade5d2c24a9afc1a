// The scales that a checkpoint has for its FP8 or int8 KV cache: in each layer a tensor for keys and one for values, with
// one number or one for each kv head. Codes are multiplied with it; for E4M3 it is the largest magnitude / 448.
//
// Engines that store keys after RoPE calibrate them there. Before it a key may be larger, by up to sqrt(2); append answers
// out_of_range where a scale does not reach. A scale for the FNUZ formats (largest magnitude / 240) needs no conversion, as
// no codes come with it: it leaves a bit of the range unused.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../cache/config.hpp"
#include "safetensors.hpp"

KVAXIS_BEGIN_NAMESPACE

struct layer_scales {
  int count = 0;  // 1, or the number of kv heads
  std::array<float, max_kv_heads> k{};
  std::array<float, max_kv_heads> v{};

  // The configuration with these scales; it points into this object.
  [[nodiscard]] cache_config apply(const cache_config& c) const noexcept {
    cache_config with = c;
    with.k_scale = k.data();
    with.v_scale = v.data();
    with.k_offset = with.v_offset = nullptr;
    with.scales_count = count;
    return with;
  }
};

// The i-th number, i < count, of an F64, F32, F16 or BF16 tensor; false for other types.
[[nodiscard]] inline bool read_number(const tensor_view& t, std::uint64_t i, double& out) noexcept {
  const std::uint64_t size = t.bytes / t.count;
  std::uint64_t bits = 0;
  for (std::uint64_t b = size; b-- > 0;) bits = bits << 8 | std::to_integer<std::uint64_t>(t.data[i * size + b]);
  const auto bits32 = static_cast<std::uint32_t>(bits);
  const auto bits16 = static_cast<std::uint16_t>(bits);
  if (t.dtype == "F64") {
    out = bits_double(bits);
  } else if (t.dtype == "F32" || t.dtype == "F16" || t.dtype == "BF16") {
    out = t.dtype == "F32"   ? bits_float(bits32)
          : t.dtype == "F16" ? to_float(float16{bits16})
                             : to_float(bfloat16{bits16});
  } else {
    return false;
  }
  return true;
}

namespace detail {

// A module of a layer: "model.layers.{}.self_attn" and the number for the braces, if there are any.
struct layer_module {
  std::string_view before;
  std::string_view number;
  std::string_view after;
  char digits[12];

  layer_module(std::string_view pattern, int layer) noexcept : before(pattern.substr(0, pattern.find("{}"))) {
    number = after = pattern.substr(before.size());
    if (after.empty()) return;
    const auto end = std::to_chars(digits, digits + sizeof digits, layer).ptr;
    number = {digits, static_cast<std::size_t>(end - digits)};
    after.remove_prefix(2);
  }
  layer_module(const layer_module&) = delete;
  layer_module& operator=(const layer_module&) = delete;
};

struct sides {
  std::string_view key;
  std::string_view value;
};
inline constexpr sides scale_names[] = {
    {".k_scale", ".v_scale"},                                  // llm-compressor
    {".attn.k_scale", ".attn.v_scale"},                        // vLLM itself
    {".k_proj.k_scale", ".v_proj.v_scale"},                    // ModelOpt
    {".qkv_proj.k_scale", ".qkv_proj.v_scale"},                // the same with merged projections
    {".k_proj.output_scale", ".v_proj.output_scale"},          // compressed-tensors of 2024
    {".k_cache.scale", ".v_cache.scale"},                      // Hunyuan
    {".kv_scale", ".kv_scale"},                                // AutoFP8, one for both
    {".kv_cache_scaling_factor", ".kv_cache_scaling_factor"},  // TensorRT-LLM, one for both
};
// Of asymmetric codes, which these caches do not have. Symmetric ones may come with zeros.
inline constexpr sides zero_point_names[] = {
    {".k_zero_point", ".v_zero_point"},
    {".attn.k_zero_point", ".attn.v_zero_point"},
    {".k_proj.output_zero_point", ".v_proj.output_zero_point"},
    {".k_proj.k_bias", ".v_proj.v_bias"},
};

struct scale_faults {
  const char *missing, *twice, *zero_point, *shape, *dtype, *not_finite, *negative, *zero, *subnormal;
};
inline constexpr scale_faults key_faults = {
    "k_scale: missing",  "k_scale: more than one tensor", "k_scale: with a zero point", "k_scale: shape",
    "k_scale: dtype",    "k_scale: not a finite float",   "k_scale: negative",          "k_scale: zero",
    "k_scale: subnormal"};
inline constexpr scale_faults value_faults = {
    "v_scale: missing",  "v_scale: more than one tensor", "v_scale: with a zero point", "v_scale: shape",
    "v_scale: dtype",    "v_scale: not a finite float",   "v_scale: negative",          "v_scale: zero",
    "v_scale: subnormal"};

// One side's scales of a layer.
struct scale_source {
  const scale_faults& why;
  tensor_view tensor{};
  int times = 0;
  bool has_zero_point = false;

  void look_at(const json_text& name, const tensor_view& t, std::string_view sides::*side) noexcept {
    for (const sides& known : scale_names) {
      if (!(name == known.*side)) continue;
      tensor = t;
      ++times;
    }
    for (const sides& known : zero_point_names) {
      if (name == known.*side && std::any_of(t.data, t.data + t.bytes, [](std::byte b) { return b != std::byte{0}; })) {
        has_zero_point = true;
      }
    }
  }

  status read(int layer, int kv_heads, float* out, int& count) const noexcept {
    const auto refuse = [layer](const char* argument) { return status{errc::invalid_argument, argument, layer}; };
    if (times == 0) return refuse(why.missing);
    if (times > 1) return refuse(why.twice);
    if (has_zero_point) return {errc::unsupported, why.zero_point, layer};
    // Whatever the number of dimensions, at most one of them is not 1.
    const auto* const end = tensor.shape.begin() + tensor.rank;
    const auto heads = static_cast<std::uint64_t>(kv_heads);
    const bool per_head = tensor.count == heads && std::find(tensor.shape.begin(), end, heads) != end;
    if (tensor.count != 1 && !per_head) return refuse(why.shape);
    count = static_cast<int>(tensor.count);
    for (int i = 0; i < count; ++i) {
      double x = 0.0;
      if (!read_number(tensor, static_cast<std::uint64_t>(i), x)) return {errc::unsupported, why.dtype, layer};
      if (!is_finite(x) || x > static_cast<double>(FLT_MAX)) return refuse(why.not_finite);
      if (double_bits(x) << 1 == 0) return refuse(why.zero);
      if (x < 0.0) return refuse(why.negative);
      if (x < static_cast<double>(FLT_MIN)) return refuse(why.subnormal);
      out[i] = static_cast<float>(x);
    }
    return {};
  }
};

}  // namespace detail

// The scales of a layer from the files of a checkpoint, which may have keys in one and values in another. `module` is the
// name of its attention, with {} for the layer's number: "model.layers.{}.self_attn", "transformer.layers.{}.attention".
// Nothing is guessed: a scale that is not there, or there under two names, that is no positive normal number or has another
// shape is an error. It names the side and what is wrong with it; the limit is the layer. `out` is then unchanged.
[[nodiscard]] inline status load_scales(const safetensors* files, int n, std::string_view module, int layer,
                                        int kv_heads, layer_scales& out) noexcept {
  if (files == nullptr || n < 1) return {errc::invalid_argument, "files", 1};
  if (layer < 0) return {errc::out_of_range, "layer", 0};
  if (kv_heads < 1 || kv_heads > max_kv_heads) return {errc::out_of_range, "kv_heads", max_kv_heads};
  const detail::layer_module prefix(module, layer);
  detail::scale_source keys{detail::key_faults};
  detail::scale_source values{detail::value_faults};
  for (int i = 0; i < n; ++i) {
    const status s = files[i].for_each([&](json_text name, const tensor_view& t) {
      if (!name.take(prefix.before) || !name.take(prefix.number) || !name.take(prefix.after)) return;
      keys.look_at(name, t, &detail::sides::key);
      values.look_at(name, t, &detail::sides::value);
    });
    if (!s.ok()) return s;
  }
  layer_scales found;
  int key_count = 0;
  int value_count = 0;
  if (status s = keys.read(layer, kv_heads, found.k.data(), key_count); !s.ok()) return s;
  if (status s = values.read(layer, kv_heads, found.v.data(), value_count); !s.ok()) return s;
  found.count = std::max(key_count, value_count);
  if (key_count < found.count) std::fill_n(found.k.begin(), found.count, found.k[0]);
  if (value_count < found.count) std::fill_n(found.v.begin(), found.count, found.v[0]);
  out = found;
  return {};
}

KVAXIS_END_NAMESPACE
