// Encoding and decoding one block: here in scalar code for any codec, a user's own included; encode.inl encodes the
// library's own codecs in vectors, to the same bytes. A table of these functions per codec is what makes the rest of the
// container independent of the codec's type.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "../simd/isa.hpp"
#include "layout.hpp"

KVAXIS_BEGIN_NAMESPACE

// A scale and an offset that the caller gives instead of parameters stored in the block (axis::tensor).
struct given_scale {
  float scale = 1.0F;
  float offset = 0.0F;
};

// Numbers of one head as rows [token][channel]: finite, subnormals flushed. Encoders in vectors read whole vectors and
// whole quads of tokens: behind the channels, up to `stride`, and in the rows behind the tokens there are zeros.
struct row_view {
  const float* data = nullptr;
  int stride = 0;
  int tokens = 0;
  int channels = 0;
};

struct unit_kernels;  // attention/kernels.hpp

// A codec as data.
struct codec_table {
  const char* name;
  int bits;
  int members;
  int member_bytes;
  float limit;  // the largest |x| that the codec takes with parameters of its own
  unit_kind unit;
  float unit_min;
  float unit_max;
  float offset_factor;
  int zero;                 // integer codes: the one that stands for the offset's centre
  bool refined;             // parameters by least squares
  bool transformed;         // a Hadamard transform comes before it
  const codec_table* wide;  // that of the pairs with more bits, if there are any
  // Per instruction set. What has no number gets code 0 and parameters 0. `scratch` has a word for each number of the
  // padded block.
  using encode_fn = void (*)(const codec_table&, const block_layout&, given_scale, const row_view&,
                             std::uint32_t* scratch, std::byte* block) noexcept;
  std::array<encode_fn, isa_count> encode;
  // One group of n numbers: fits and stores its parameters in a block, and makes the codes; and one number back.
  void (*encode_group)(const block_layout&, given_scale, const float* x, int n, int group, std::uint32_t* codes,
                       std::byte* block) noexcept;
  float (*decode)(const block_layout&, const std::byte* block, int group, std::uint32_t code) noexcept;
  // out[i] = the number at (row, first_lane + i), for i < count.
  void (*decode_row)(const block_layout&, given_scale, const std::byte* block, int row, int first_lane, int count,
                     float* out) noexcept;
  // Per instruction set; null for a codec that is not linear, which is decoded by decode_row.
  const std::array<const unit_kernels*, isa_count>* kernels;
};

namespace detail {

// Parameters lie member by member; a group's are gathered and scattered.
template <class Codec>
typename Codec::params load_parameters([[maybe_unused]] const block_layout& b, [[maybe_unused]] const std::byte* block,
                                       [[maybe_unused]] int group) noexcept {
  typename Codec::params p{};
  if constexpr (codec_parameters<Codec>::members > 0) {
    constexpr std::size_t size = codec_parameters<Codec>::member_bytes;
    const auto count = static_cast<std::size_t>(b.groups());
    for (std::size_t m = 0; m < codec_parameters<Codec>::members; ++m) {
      std::memcpy(reinterpret_cast<std::byte*>(&p) + m * size,
                  block + b.codes_bytes + (m * count + static_cast<std::size_t>(group)) * size, size);
    }
  }
  return p;
}

template <class Codec>
void store_parameters([[maybe_unused]] const block_layout& b, [[maybe_unused]] std::byte* block,
                      [[maybe_unused]] int group, [[maybe_unused]] typename Codec::params p) noexcept {
  if constexpr (codec_parameters<Codec>::members > 0) {
    constexpr std::size_t size = codec_parameters<Codec>::member_bytes;
    const auto count = static_cast<std::size_t>(b.groups());
    for (std::size_t m = 0; m < codec_parameters<Codec>::members; ++m) {
      std::memcpy(block + b.codes_bytes + (m * count + static_cast<std::size_t>(group)) * size,
                  reinterpret_cast<const std::byte*>(&p) + m * size, size);
    }
  }
}

// Fits and encodes the n numbers of a group.
template <class Codec>
void encode_group(const block_layout& b, [[maybe_unused]] given_scale given, const float* x, int n, int group,
                  std::uint32_t* codes, std::byte* block) noexcept {
  if constexpr (is_linear<Codec>) {
    if (b.members == 0) {
      Codec::encode_linear(given.scale, given.offset, x, n, codes);
      return;
    }
  }
  const typename Codec::params p = Codec::fit(x, n);
  store_parameters<Codec>(b, block, group, p);
  Codec::encode(p, x, n, codes);
}

template <class Codec>
float decode_number(const block_layout& b, const std::byte* block, int group, std::uint32_t code) noexcept {
  return Codec::decode(load_parameters<Codec>(b, block, group), code);
}

inline void encode_block(const codec_table& codec, const block_layout& b, given_scale given, const row_view& x,
                         std::uint32_t* scratch, std::byte* block) noexcept {
  std::memset(block, 0, b.bytes);
  std::memset(scratch, 0, static_cast<std::size_t>(b.rows) * static_cast<std::size_t>(b.lanes) * sizeof(std::uint32_t));
  const int valid_rows = b.key ? x.channels : x.tokens;
  const int valid_lanes = b.key ? x.tokens : x.channels;
  const int lines = b.across ? valid_lanes : valid_rows;  // along which groups run
  const int line_length = b.across ? valid_rows : valid_lanes;
  std::array<float, max_head_dim + 16> numbers;
  std::array<std::uint32_t, max_head_dim + 16> codes;
  for (int line = 0; line < lines; ++line) {
    for (int begin = 0; begin < line_length; begin += b.group_length) {
      const int n = line_length - begin < b.group_length ? line_length - begin : b.group_length;
      const int row = b.across ? begin : line;
      const int lane = b.across ? line : begin;
      const bool over_tokens = b.across != b.key;
      const float* first = x.data + (b.key ? lane : row) * x.stride + (b.key ? row : lane);
      for (int i = 0; i < n; ++i) numbers[static_cast<std::size_t>(i)] = first[i * (over_tokens ? x.stride : 1)];
      codec.encode_group(b, given, numbers.data(), n, b.group_index(row, lane), codes.data(), block);
      std::uint32_t* to = scratch + row * b.lanes + lane;
      for (int i = 0; i < n; ++i) to[i * (b.across ? b.lanes : 1)] = codes[static_cast<std::size_t>(i)];
    }
  }
  for (int quad = 0; quad < b.rows / 4; ++quad) {
    pack_quad(b.bits, b.lanes, scratch + quad * 4 * b.lanes,
              reinterpret_cast<std::uint32_t*>(block + static_cast<std::size_t>(quad) * b.quad_bytes()));
  }
}

template <class Codec>
void decode_row(const block_layout& b, [[maybe_unused]] given_scale given, const std::byte* block, int row,
                int first_lane, int count, float* out) noexcept {
  const auto* words =
      reinterpret_cast<const std::uint32_t*>(block + static_cast<std::size_t>(row / 4) * b.quad_bytes());
  for (int i = 0; i < count; ++i) {
    const int lane = first_lane + i;
    const std::uint32_t code = unpack_code(b.bits, b.lanes, words, row % 4, lane);
    if constexpr (is_linear<Codec>) {
      if (b.members == 0 && codec_parameters<Codec>::members > 0) {
        out[i] = fused(given.scale, Codec::unit_value(code), given.offset);
        continue;
      }
    }
    out[i] = Codec::decode(load_parameters<Codec>(b, block, b.group_index(row, lane)), code);
  }
}

}  // namespace detail

KVAXIS_END_NAMESPACE

#define KVAXIS_INL "../tile/encode.inl"
#include "../simd/foreach_isa.hpp"

KVAXIS_BEGIN_NAMESPACE
namespace detail {

template <class Codec>
constexpr std::array<codec_table::encode_fn, isa_count> find_encoders() noexcept {
  constexpr code_kind kind = code_kind_of<Codec>;
  std::array<codec_table::encode_fn, isa_count> out{};
  if constexpr (kind == code_kind::integer) {
    out = KVAXIS_ISA_TABLE(encode_integers);
  } else if constexpr (kind == code_kind::minifloat) {
    out = KVAXIS_ISA_TABLE(encode_minifloats<unit_of<Codec>>);
  } else if constexpr (kind == code_kind::identity) {
    out = KVAXIS_ISA_TABLE(encode_identity<unit_of<Codec>>);
  } else {
    for (auto& encode : out) encode = &encode_block;
  }
  return out;
}

template <class Codec>
struct wide_table;

// The numbers that describe a linear codec, or neutral ones.
template <class Codec>
constexpr codec_table describe_codec(const std::array<const unit_kernels*, isa_count>* kernels) noexcept {
  codec_table t{};
  t.name = Codec::name;
  t.bits = Codec::bits;
  t.members = codec_parameters<Codec>::members;
  t.member_bytes = codec_parameters<Codec>::member_bytes;
  t.limit = limit_of<Codec>;
  t.unit = unit_of<Codec>;
  t.refined = is_refined<Codec>::value;
  t.transformed = is_transformed<Codec>::value;
  t.encode = find_encoders<Codec>();
  t.encode_group = &encode_group<Codec>;
  t.decode = &decode_number<Codec>;
  t.decode_row = &decode_row<Codec>;
  t.kernels = kernels;
  if constexpr (is_linear<Codec>) {
    t.unit_min = Codec::unit_min;
    t.unit_max = Codec::unit_max;
    t.offset_factor = Codec::offset_factor;
  }
  if constexpr (code_kind_of<Codec> == code_kind::integer) t.zero = Codec::zero;
  if constexpr (wide_extra<Codec> != 0) t.wide = &wide_table<typename wide_of<Codec>::type>::value;
  return t;
}

// Of the codec of wide pairs only the functions for single groups are used.
template <class Codec>
struct wide_table {
  static constexpr codec_table value = describe_codec<Codec>(nullptr);
};

}  // namespace detail

KVAXIS_END_NAMESPACE
