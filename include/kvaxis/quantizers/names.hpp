// Policies by name, for tools, benchmarks and files:
//
//   name    = "k:" side "," "v:" side                         k:int4-channel64-pre,v:int4-token64
//   side    = codec [ "-hadamard" ] [ "-" axis ] [ "@" scale [ "," offset ] ] [ "-" rotation ] [ "-lsq" ]
//             or, for values, latent
//   codec   = int2 ... int6 | int8 | int2s ... int8s | int4f32 | int8f32 | e4m3 | e5m2 | mxfp4 ... | f32 | f16 | bf16
//             or one of these and -centered | -outK      int4s-centered, int4-out2
//   axis    = channelG | tokenG | tensor                      G: the group's length; left out for f32, f16, bf16
//   rotation (keys) = pre | auto | hotN | hotNxB | tile | post    left out: pre. hotNxB: the N widest pairs, in B bits; others as auto
//
// Hadamard transforms and least squares (lsq) belong to the codec, in whose own name they follow one another:
// int4-lsqx6 is the codec of k:int4-channel64-hot8x6-lsq, int4-lsq-hadamard that of v:int4-hadamard-token64-lsq. Not all
// combinations exist; make_cache.hpp lists them. A tensor axis without "@" takes its scale from the configuration.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "policy.hpp"

KVAXIS_BEGIN_NAMESPACE

struct side_name {
  std::string_view codec;  // its first part, with -centered or -outK
  bool refined = false;    // lsq
  int wide_bits = 0;
  bool transformed = false;  // hadamard
  kvaxis::policy policy;
  bool has_scale = false;
  bool has_offset = false;
  float scale = 1.0F;
  float offset = 0.0F;
};

struct policy_name {
  side_name key;
  side_name value;
};

namespace detail {

constexpr bool take_prefix(std::string_view& text, std::string_view prefix) noexcept {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

template <class T>
bool take_number(std::string_view& text, T& out) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

inline bool parse_axis(std::string_view& rest, policy& p) noexcept {
  std::string_view text = rest;
  int group = 0;
  if (take_prefix(text, "-tensor")) {
    p.axis = axis::tensor;
    p.group = 0;
  } else if (take_prefix(text, "-channel") && take_number(text, group) && group > 0) {
    p.axis = axis::channel;
    p.group = group;
  } else if (text = rest; take_prefix(text, "-token") && take_number(text, group) && group > 0) {
    p.axis = axis::token;
    p.group = group;
  } else {
    return false;
  }
  rest = text;
  return true;
}

inline bool parse_rotation(std::string_view& rest, policy& p, int& wide_bits) noexcept {
  std::string_view text = rest;
  int pairs = 0;
  if (take_prefix(text, "-pre")) {
    p.rotation = pre;
  } else if (take_prefix(text, "-auto")) {
    p.rotation = automatic;
  } else if (take_prefix(text, "-tile")) {
    p.rotation = tile_rotated;
  } else if (take_prefix(text, "-post")) {
    p.rotation = post;
  } else if (take_prefix(text, "-hot") && take_number(text, pairs) && pairs > 0) {
    p.rotation = pairs;
    if (take_prefix(text, "x") && !take_number(text, wide_bits)) return false;
  } else {
    return false;
  }
  rest = text;
  return true;
}

// One side up to its end: the comma before "v:" for keys. The codec is looked up by the caller.
inline bool parse_side(std::string_view& rest, bool is_key, side_name& out) noexcept {
  const std::string_view text = rest;
  rest.remove_prefix(std::min(rest.find_first_of("-@,"), rest.size()));
  if (int outliers = 0; !take_prefix(rest, "-centered") && take_prefix(rest, "-out") && !take_number(rest, outliers)) {
    return false;
  }
  out.codec = text.substr(0, text.size() - rest.size());
  const bool is_identity = out.codec == "f32" || out.codec == "f16" || out.codec == "bf16";
  if (!is_key && out.codec == "latent") {
    out.policy = {axis::latent, 0, pre};
    return true;
  }
  out.policy = {axis::tensor, 0, pre};
  out.transformed = take_prefix(rest, "-hadamard");
  if (!parse_axis(rest, out.policy) && !is_identity) return false;
  if (take_prefix(rest, "@")) {
    out.has_scale = true;
    if (out.policy.axis != axis::tensor || is_identity || !take_number(rest, out.scale)) return false;
    if (rest.substr(0, 3) != ",v:" && take_prefix(rest, ",")) {
      out.has_offset = true;
      if (!take_number(rest, out.offset)) return false;
    }
  }
  if (is_key) parse_rotation(rest, out.policy, out.wide_bits);
  out.refined = take_prefix(rest, "-lsq");
  return true;
}

}  // namespace detail

// Splits a name. The views point into `text`. The error names the side that does not follow the grammar above.
[[nodiscard]] inline status parse_policy(std::string_view text, policy_name& out) noexcept {
  policy_name parsed;
  std::string_view rest = text;
  if (!detail::take_prefix(rest, "k:") || !detail::parse_side(rest, true, parsed.key) ||
      !detail::take_prefix(rest, ",v:")) {
    return {errc::invalid_argument, "policy name: k:codec-axis[@scale][-rotation]", 0};
  }
  if (!detail::parse_side(rest, false, parsed.value) || !rest.empty()) {
    return {errc::invalid_argument, "policy name: v:codec-axis[@scale]", 0};
  }
  out = parsed;
  return {};
}

// The whole name of a side's codec, at most `size` characters with the final zero.
inline void format_codec(const side_name& side, char* out, std::size_t size) noexcept {
  char hot[16] = "";
  if (side.wide_bits > 0) std::snprintf(hot, sizeof hot, "x%d", side.wide_bits);
  std::snprintf(out, size, "%.*s%s%s%s", static_cast<int>(side.codec.size()), side.codec.data(),
                side.refined ? "-lsq" : "", hot, side.transformed ? "-hadamard" : "");
}

namespace detail {

// The parts of a codec's whole name.
inline side_name split_codec(std::string_view name) noexcept {
  side_name parts;
  const auto take_suffix = [&name](std::string_view suffix) {
    if (name.size() < suffix.size() || name.substr(name.size() - suffix.size()) != suffix) return false;
    name.remove_suffix(suffix.size());
    return true;
  };
  parts.transformed = take_suffix("-hadamard");
  const std::size_t cross = name.rfind('x');
  if (cross != std::string_view::npos && cross > 0) {
    std::string_view digits = name.substr(cross + 1);
    int bits = 0;
    if (take_number(digits, bits) && digits.empty()) {
      parts.wide_bits = bits;
      name = name.substr(0, cross);
    }
  }
  parts.refined = take_suffix("-lsq");
  parts.codec = name;
  return parts;
}

}  // namespace detail

// Writes one side's name, at most `size` characters with the final zero; the number that the whole name has.
inline int format_policy(const char* codec, const policy& p, role side, char* out, std::size_t size) noexcept {
  if (p.axis == axis::latent) return std::snprintf(out, size, "latent");
  const side_name parts = detail::split_codec(codec);
  char rotation[40] = "";
  char axis_name[24] = "-tensor";
  if (side == role::key) {
    switch (p.rotation) {
      case pre: std::snprintf(rotation, sizeof rotation, "-pre"); break;
      case automatic: std::snprintf(rotation, sizeof rotation, "-auto"); break;
      case tile_rotated: std::snprintf(rotation, sizeof rotation, "-tile"); break;
      case post: std::snprintf(rotation, sizeof rotation, "-post"); break;
      default:
        if (parts.wide_bits > 0) {
          std::snprintf(rotation, sizeof rotation, "-hot%dx%d", p.rotation, parts.wide_bits);
        } else {
          std::snprintf(rotation, sizeof rotation, "-hot%d", p.rotation);
        }
    }
  }
  if (p.axis != axis::tensor) {
    std::snprintf(axis_name, sizeof axis_name, "-%s%d", p.axis == axis::channel ? "channel" : "token", p.group);
  }
  return std::snprintf(out, size, "%.*s%s%s%s%s", static_cast<int>(parts.codec.size()), parts.codec.data(),
                       parts.transformed ? "-hadamard" : "", axis_name, rotation, parts.refined ? "-lsq" : "");
}

KVAXIS_END_NAMESPACE
