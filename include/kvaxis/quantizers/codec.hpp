// What a codec is: n floats to n integer codes and a small parameter struct, and (parameters, code) back to a float.
//
//   struct my_codec {
//     static constexpr int bits = 4;                     // 2 to 6, 8, 16 or 32: the width of a code
//     static constexpr const char* name = "my4";
//     struct params { kvaxis::float16 scale; };          // members all float16, all float or all bytes; may be empty
//     // n >= 1 finite numbers, f32 subnormals flushed:
//     static params fit(const float* x, int n) noexcept;
//     static void encode(params, const float* x, int n, std::uint32_t* codes) noexcept;
//     // Padding has all-zero params and code 0, which must give a finite number:
//     static float decode(params, std::uint32_t code) noexcept;
//     static constexpr float limit = 65504.0F;           // optional: the largest |x| that it takes
//   };
//
// That is enough to run on every instruction set. A *linear* codec has decode(p, c) == fma(scale, unit(c), offset) and
// names its unit, one of those that the kernels decode in registers:
//
//     static constexpr unit_kind unit = unit_kind::u4;
//     static constexpr float unit_min = 0, unit_max = 15;  // the range of unit(c)
//     static constexpr float offset_factor = 0;            // without a second member: offset = factor * scale
//     static void encode_linear(float scale, float offset, const float* x, int n, std::uint32_t* codes) noexcept;
//     static float unit_value(std::uint32_t code) noexcept;
//
// and its params are {scale} or {scale, offset}, or empty (scale 1, offset 0).
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "../config.hpp"
#include "../formats/fused.hpp"
#include "../formats/half.hpp"
#include "../packing/quads.hpp"

KVAXIS_BEGIN_NAMESPACE

// What the code of a linear codec stands for before scale and offset.
enum class unit_kind : int { u2, u3, u4, u5, u6, u8, e4m3, e5m2, f16, bf16, f32, none };

// That of unsigned integers of so many bits.
[[nodiscard]] constexpr unit_kind unsigned_unit(int bits) noexcept {
  constexpr unit_kind units[] = {unit_kind::u2, unit_kind::u3, unit_kind::u4, unit_kind::u5, unit_kind::u6};
  return bits == 8 ? unit_kind::u8 : units[bits - 2];
}

// A codec's name made of parts.
struct codec_name {
  char text[32] = {};

  constexpr codec_name(std::string_view a, std::string_view b, std::string_view c = {}) noexcept {
    std::size_t at = 0;
    for (const std::string_view part : {a, b, c}) {
      for (const char letter : part) text[at++] = letter;
    }
  }
};
[[nodiscard]] constexpr std::string_view digit_text(int digit) noexcept {
  return std::string_view("0123456789").substr(static_cast<std::size_t>(digit), 1);
}

namespace detail {

template <class C, class = void>
struct has_codec_members : std::false_type {};
template <class C>
struct has_codec_members<
    C, std::void_t<decltype(C::bits), decltype(C::name), typename C::params,
                   decltype(C::fit(std::declval<const float*>(), 0)),
                   decltype(C::encode(std::declval<typename C::params>(), std::declval<const float*>(), 0,
                                      std::declval<std::uint32_t*>())),
                   decltype(C::decode(std::declval<typename C::params>(), std::uint32_t{}))>>
    : std::bool_constant<std::is_same_v<decltype(C::fit(std::declval<const float*>(), 0)), typename C::params> &&
                         std::is_convertible_v<decltype(C::decode(std::declval<typename C::params>(), 0U)), float>> {};

template <class C, class = void>
struct linear_unit : std::integral_constant<unit_kind, unit_kind::none> {};
template <class C>
struct linear_unit<C, std::void_t<decltype(C::unit)>> : std::integral_constant<unit_kind, C::unit> {};

template <class C, class = void>
struct codec_limit {
  static constexpr float value = FLT_MAX;
};
template <class C>
struct codec_limit<C, std::void_t<decltype(C::limit)>> {
  static constexpr float value = C::limit;
};

}  // namespace detail

template <class C>
inline constexpr bool is_codec = detail::has_codec_members<C>::value;
template <class C>
inline constexpr unit_kind unit_of = detail::linear_unit<C>::value;
template <class C>
inline constexpr bool is_linear = unit_of<C> != unit_kind::none;
template <class C>
inline constexpr float limit_of = detail::codec_limit<C>::value;

// How folding computes codes in vectors. A codec of one's own is encoded by its own functions, also where it derives from
// one of these.
enum class code_kind : int { own, integer, minifloat, identity };
template <class C>
inline constexpr code_kind code_kind_of = code_kind::own;

#if defined(__cpp_concepts)
template <class C>
concept codec = is_codec<C>;
#endif

// The parameters of a codec as the block stores them: `members` numbers of `member_bytes` each.
template <class C>
struct codec_parameters {
  using params = typename C::params;
  static_assert(std::is_trivially_copyable_v<params>, "codec: params must be trivially copyable");
  static constexpr int member_bytes = std::is_empty_v<params> ? 0 : static_cast<int>(alignof(params));
  static constexpr int members = std::is_empty_v<params> ? 0 : static_cast<int>(sizeof(params) / alignof(params));
  static_assert(member_bytes == 0 || member_bytes == 1 || member_bytes == 2 || member_bytes == 4,
                "codec: the members of params must all be kvaxis::float16, all be float or all be bytes");
  static_assert(!is_linear<C> || (members <= 2 && member_bytes != 1),
                "codec: a linear codec has the params {scale} or {scale, offset}");

  // A linear codec's scale and offset as f32.
  static float scale(params p) noexcept { return members == 0 ? 1.0F : member(p, 0); }
  static float offset(params p) noexcept {
    if constexpr (members == 2) return member(p, 1);
    if constexpr (members == 1) return C::offset_factor * member(p, 0);
    return 0.0F;
  }

 private:
  static float member([[maybe_unused]] params p, [[maybe_unused]] int index) noexcept {
    if constexpr (member_bytes == 2) {
      float16 h[sizeof(params) / 2];
      std::memcpy(h, &p, sizeof p);
      return to_float(h[index]);
    } else if constexpr (member_bytes == 4) {
      float f[sizeof(params) / 4];
      std::memcpy(f, &p, sizeof p);
      return f[index];
    } else {
      return 0.0F;
    }
  }
};

KVAXIS_END_NAMESPACE

#define KVAXIS_INL "../quantizers/codes.inl"
#include "../simd/foreach_isa.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

// A bound as status::limit reports it; what an integer cannot hold becomes the largest that it can.
constexpr std::int64_t integer_limit(float bound) noexcept {
  if (bound >= 9.2e18F) return INT64_MAX;
  return bound <= -9.2e18F ? INT64_MIN : static_cast<std::int64_t>(bound);
}

struct extremes {
  float low;
  float high;
};
inline extremes extremes_of(const float* x, int n) noexcept {
  extremes e{x[0], x[0]};
  for (int i = 1; i < n; ++i) {
    e.low = x[i] < e.low ? x[i] : e.low;
    e.high = x[i] > e.high ? x[i] : e.high;
  }
  return e;
}

inline float largest_magnitude(const float* x, int n) noexcept {
  float largest = 0.0F;
  for (int i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// The smallest normal float s with s * levels >= span, by the product in double; span > 0.
inline float smallest_float_scale(float span, float levels) noexcept {
  const auto enough = [&](std::uint32_t bits) {
    return static_cast<double>(bits_float(bits)) * static_cast<double>(levels) >= static_cast<double>(span);
  };
  constexpr std::uint32_t smallest_normal = 0x00800000U;
  std::uint32_t bits = float_bits(static_cast<float>(static_cast<double>(span) / static_cast<double>(levels)));
  if (bits < smallest_normal) bits = smallest_normal;
  while (!enough(bits)) ++bits;
  while (bits > smallest_normal && enough(bits - 1)) --bits;
  return bits_float(bits);
}

// Scale and offset of an asymmetric codec in f32.
inline void fit_floats(float low, float high, float levels, float& scale, float& offset) noexcept {
  offset = flush_subnormal(low);
  const float span = flush_subnormal(high - offset);
  scale = span > 0.0F ? smallest_float_scale(span, levels) : 0.0F;
}

// codes[i] = the integer code of x[i] for a scale (0: there is no spread) and the number that code `zero` stands for.
inline void encode_integers(float scale, float centre, int zero, float low, float high, const float* x, int n,
                            std::uint32_t* codes) noexcept {
  const float inverse = scale > 0.0F ? scalar::inverse({scale}).v : 0.0F;
  for (int i = 0; i < n; ++i) codes[i] = scalar::integer_code({x[i]}, {centre}, {inverse}, zero, low, high).v;
}

}  // namespace detail

KVAXIS_END_NAMESPACE
