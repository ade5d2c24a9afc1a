// Codecs without scales: the number itself in f32, binary16 or bfloat16 (round to nearest even). Baselines, and a
// folded cache for those who want no quantization.
#pragma once

#include "codec.hpp"

KVAXIS_BEGIN_NAMESPACE

template <unit_kind Format>
struct identity {
  static_assert(Format == unit_kind::f32 || Format == unit_kind::f16 || Format == unit_kind::bf16,
                "identity: f32, f16 or bf16");
  static constexpr int bits = Format == unit_kind::f32 ? 32 : 16;
  static constexpr const char* name = Format == unit_kind::f32 ? "f32" : Format == unit_kind::f16 ? "f16" : "bf16";
  // Beyond its last number bfloat16 would round to infinity.
  static constexpr float limit = Format == unit_kind::f32   ? FLT_MAX
                                 : Format == unit_kind::f16 ? max_float16
                                                            : bits_float(0x7F7F0000U);
  static constexpr unit_kind unit = Format;
  static constexpr float unit_min = -limit;
  static constexpr float unit_max = limit;
  static constexpr float offset_factor = 0.0F;

  struct params {};

  static params fit(const float*, int) noexcept { return {}; }
  static void encode_linear(float, float, const float* x, int n, std::uint32_t* codes) noexcept {
    for (int i = 0; i < n; ++i) {
      if constexpr (Format == unit_kind::f32) codes[i] = float_bits(x[i]);
      if constexpr (Format == unit_kind::f16) codes[i] = to_float16(x[i]).bits;
      if constexpr (Format == unit_kind::bf16) codes[i] = to_bfloat16(x[i]).bits;
    }
  }
  static void encode(params, const float* x, int n, std::uint32_t* codes) noexcept {
    encode_linear(1.0F, 0.0F, x, n, codes);
  }
  static float unit_value(std::uint32_t code) noexcept {
    if constexpr (Format == unit_kind::f32) return bits_float(code);
    if constexpr (Format == unit_kind::f16) return to_float(float16{static_cast<std::uint16_t>(code)});
    return bits_float(code << 16);
  }
  static float decode(params, std::uint32_t code) noexcept { return unit_value(code); }
};

template <unit_kind Format>
inline constexpr code_kind code_kind_of<identity<Format>> = code_kind::identity;

using f32 = identity<unit_kind::f32>;
using f16 = identity<unit_kind::f16>;
using bf16 = identity<unit_kind::bf16>;

KVAXIS_END_NAMESPACE
