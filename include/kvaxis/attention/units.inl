// How the codes of each unit come out of the words of a quad. Included once per instruction set by kernels.hpp, inside
// a target region.
#ifndef KVAXIS_TARGET
#include "kernels.hpp"
#define KVAXIS_TARGET scalar
#endif

KVAXIS_BEGIN_NAMESPACE
namespace KVAXIS_TARGET {

// The codes of a quad as bytes: of `lane`, a multiple of the lanes here, and of the ones behind it.
template <int Bits>
KVAXIS_INLINE vu load_byte_codes(const std::uint32_t* quad, int block_lanes, int lane) {
  if constexpr (Bits <= 2) {
    return load_plane<Bits>(quad, lane);
  } else if constexpr (Bits == 4) {
    const int half = block_lanes / 2;
    return low_nibbles(lane < half ? load_words(quad + lane) : shift_right<4>(load_words(quad + lane - half)));
  } else if constexpr (Bits == 8) {
    return load_words(quad + lane);
  } else {
    constexpr int low = low_plane(Bits);
    const vu high = load_plane<Bits - low>(quad + quad_words(low, block_lanes), lane);
    return add_words(KVAXIS_TARGET::load_byte_codes<low>(quad, block_lanes, lane), shift_left<low>(high));
  }
}

// How the rows 2 Half and 2 Half + 1 of a quad come out of its words.
template <unit_kind U>
struct unit_traits;

template <>
struct unit_traits<unit_kind::u4> {
  static constexpr int bits = 4;
  static constexpr bool scaled = true;
  template <int Half>
  KVAXIS_INLINE static void rows(const vu* w, vf& x, vf& y) {
    x = narrow_to_float<4, 16 * Half>(w[0]);
    y = narrow_to_float<4, 16 * Half + 8>(w[0]);
  }
};
// Codes whose planes were put together as bytes.
template <int Bits>
struct byte_traits {
  static constexpr int bits = Bits;
  static constexpr bool scaled = true;
  template <int Half>
  KVAXIS_INLINE static void rows(const vu* w, vf& x, vf& y) {
    x = narrow_to_float<8, 16 * Half>(w[0]);
    y = narrow_to_float<8, 16 * Half + 8>(w[0]);
  }
};
template <>
struct unit_traits<unit_kind::u2> : byte_traits<2> {};
template <>
struct unit_traits<unit_kind::u3> : byte_traits<3> {};
template <>
struct unit_traits<unit_kind::u5> : byte_traits<5> {};
template <>
struct unit_traits<unit_kind::u6> : byte_traits<6> {};
template <>
struct unit_traits<unit_kind::u8> : byte_traits<8> {};
template <>
struct unit_traits<unit_kind::e4m3> {
  static constexpr int bits = 8;
  static constexpr bool scaled = true;
  template <int Half>
  KVAXIS_INLINE static void rows(const vu* w, vf& x, vf& y) {
    e4m3_pair<Half>(w[0], x, y);
  }
};
template <>
struct unit_traits<unit_kind::e5m2> {
  static constexpr int bits = 8;
  static constexpr bool scaled = true;
  template <int Half>
  KVAXIS_INLINE static void rows(const vu* w, vf& x, vf& y) {
    e5m2_pair<Half>(w[0], x, y);
  }
};
template <>
struct unit_traits<unit_kind::f16> {
  static constexpr int bits = 16;
  static constexpr bool scaled = false;
  template <int Half>
  KVAXIS_INLINE static void rows(const vu* w, vf& x, vf& y) {
    half_pair(w[Half], x, y);
  }
};
template <>
struct unit_traits<unit_kind::bf16> {
  static constexpr int bits = 16;
  static constexpr bool scaled = false;
  template <int Half>
  KVAXIS_INLINE static void rows(const vu* w, vf& x, vf& y) {
    bfloat_pair(w[Half], x, y);
  }
};
template <>
struct unit_traits<unit_kind::f32> {
  static constexpr int bits = 32;
  static constexpr bool scaled = false;
  template <int Half>
  KVAXIS_INLINE static void rows(const vu* w, vf& x, vf& y) {
    x = bits_to_float(w[2 * Half]);
    y = bits_to_float(w[2 * Half + 1]);
  }
};

}  // namespace KVAXIS_TARGET
KVAXIS_END_NAMESPACE
