// Where the codes and the parameters of one head's keys, or values, lie: a *block*.
//
//   +--------------------------------------+ 0, aligned to 64 bytes
//   | codes: rows / 4 quads (quads.hpp)    |
//   +--------------------------------------+ plane_bytes
//   | further bits of wide pairs           |   (quads of two pairs each, in the order of the mask)
//   +--------------------------------------+ codes_bytes
//   | parameters: member 0 of every group, |   (all scales)
//   |             then member 1, ...       |   (all offsets)
//   +--------------------------------------+ padded to a multiple of 64 bytes
//
// A key block has the channels as rows, in stored order (the two of a RoPE pair adjacent, channels without a pair last)
// and padded to a multiple of 4, and the tokens as lanes. A value block has the tokens as rows and the channels as
// lanes, padded to a multiple of 32 (16 from 8 bits on). A group of numbers with one set of parameters either runs
// *along* the lanes of a row (per-channel keys, per-token values; index [segment][row]) or *across* the rows of a lane
// (per-token keys, per-channel values; index [row group][lane]). The value block of latent values has no bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../config.hpp"
#include "../quantizers/policy.hpp"

KVAXIS_BEGIN_NAMESPACE

namespace detail {

template <class T>
constexpr T round_up(T x, T multiple) noexcept {
  return (x + multiple - 1) / multiple * multiple;
}

}  // namespace detail

struct block_layout {
  int rows = 0;       // padded
  int lanes = 0;      // padded
  int used_rows = 0;  // the rest is padding with code 0 and parameters 0
  int used_lanes = 0;
  int bits = 0;
  int members = 0;  // of the parameters; 0 when they are given (per tensor) or absent (identity codecs, latent)
  int member_bytes = 0;
  bool key = false;      // rows are channels and lanes tokens; the reverse for values
  bool across = false;   // groups run across the rows
  int group_length = 0;  // lanes of a segment, or rows of a row group; `rows` or `lanes` when one group takes all
  int wide_rows = 0;     // with further bits, padded to a multiple of 4
  int wide_extra = 0;
  std::size_t plane_bytes = 0;
  std::size_t codes_bytes = 0;
  std::size_t bytes = 0;  // of the block, padded

  [[nodiscard]] constexpr int groups_per_line() const noexcept {  // segments of a row, or row groups of a lane
    const int length = across ? rows : lanes;
    return (length + group_length - 1) / group_length;
  }
  [[nodiscard]] constexpr int groups() const noexcept { return groups_per_line() * (across ? lanes : rows); }
  [[nodiscard]] constexpr int group_index(int row, int lane) const noexcept {
    return across ? row / group_length * lanes + lane : lane / group_length * rows + row;
  }
  [[nodiscard]] constexpr std::size_t quad_bytes() const noexcept {
    return static_cast<std::size_t>(quad_words(bits, lanes)) * 4U;
  }
};

// The layout of a side. `tokens` is the tile's length; members and member_bytes are the codec's, ignored per tensor;
// wide_extra are the bits that a wide pair has more than others.
[[nodiscard]] constexpr block_layout make_block_layout(role side, const policy& p, int bits, int members,
                                                       int member_bytes, int head_dim, int tokens,
                                                       int wide_extra = 0) noexcept {
  block_layout b;
  const bool has_groups = p.axis == axis::channel || p.axis == axis::token;
  if (p.axis == axis::latent) bits = 0;
  const int padded_dim = detail::round_up(head_dim, side == role::key ? 4 : bits < 8 ? 32 : 16);
  b.key = side == role::key;
  b.used_rows = side == role::key ? head_dim : tokens;
  b.used_lanes = side == role::key ? tokens : head_dim;
  b.rows = side == role::key ? padded_dim : tokens;
  b.lanes = side == role::key ? tokens : padded_dim;
  b.bits = bits;
  b.members = has_groups ? members : 0;
  b.member_bytes = b.members == 0 ? 0 : member_bytes;
  b.across = has_groups && (side == role::key) == (p.axis == axis::token);
  const int line = b.across ? b.rows : b.lanes;
  b.group_length = has_groups && p.group <= line ? p.group : line;
  const auto bytes_of = [&](int rows, int width) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(b.lanes) * static_cast<std::size_t>(width) / 8U;
  };
  b.wide_extra = wide_extra;
  b.wide_rows = wide_extra > 0 ? detail::round_up(2 * p.rotation, 4) : 0;
  b.plane_bytes = bytes_of(b.rows, bits);
  b.codes_bytes = b.plane_bytes + bytes_of(b.wide_rows, wide_extra);
  b.bytes =
      detail::round_up(b.codes_bytes + static_cast<std::size_t>(b.groups()) * static_cast<std::size_t>(b.members) *
                                           static_cast<std::size_t>(b.member_bytes),
                       std::size_t{64});
  return b;
}

// Words (32 bits) of one head's hot-pair mask, a bit for every two stored rows; only `automatic` and a number of pairs
// need one in the tile. Where there are wide pairs theirs follows.
[[nodiscard]] constexpr int mask_words(int head_dim) noexcept { return (detail::round_up(head_dim, 4) / 2 + 31) / 32; }
[[nodiscard]] constexpr bool stores_mask(int rotation) noexcept { return rotation == automatic || rotation > 0; }

// The tile length of a pair of policies: the key's group when it is per channel, else the value's, else `tile_tokens`.
[[nodiscard]] constexpr int tile_length(const policy& key, const policy& value, int tile_tokens) noexcept {
  if (key.axis == axis::channel) return key.group;
  return value.axis == axis::channel ? value.group : tile_tokens;
}

// Bits per cached number of one side, with its parameters, masks and padding. `tokens`: the tile length, which a
// per-channel policy sets itself. Headers of tiles (64 bytes for all heads, keys and values) are not in it.
template <class Policy>
[[nodiscard]] constexpr double bits_per_value(int head_dim, role side = role::key, int tokens = 64) noexcept {
  using parameters = codec_parameters<typename Policy::codec>;
  constexpr policy p = Policy::value;
  if (p.axis == axis::channel) tokens = p.group;
  const block_layout b = make_block_layout(side, p, Policy::codec::bits, parameters::members, parameters::member_bytes,
                                           head_dim, tokens, detail::wide_extra<typename Policy::codec>);
  constexpr int masks = detail::wide_extra<typename Policy::codec> == 0 ? 1 : 2;
  const int mask = side == role::key && stores_mask(p.rotation) ? masks * 4 * mask_words(head_dim) : 0;
  return 8.0 * (static_cast<double>(b.bytes) + mask) / (static_cast<double>(head_dim) * tokens);
}

KVAXIS_END_NAMESPACE
