// The body of naive.hpp, for the namespace KVAXIS_NAIVE.
#include <Eigen/Dense>
#include <cstring>
#include <kvaxis/quantizers/policy.hpp>
#include <kvaxis/tile/block.hpp>

#include "naive.hpp"

namespace bench {
namespace KVAXIS_NAIVE {
namespace {

using kvaxis::block_layout;
using kvaxis::float16;

// All numbers of a block, row by row, into the columns of `out` (lanes x rows).
template <class Codec>
void decode_loop(const block_layout& b, const std::byte* block, Eigen::MatrixXf& out) {
  for (int row = 0; row < b.used_rows; ++row) {
    const std::byte* quad = block + static_cast<std::size_t>(row / 4) * b.quad_bytes();
    const auto* words = reinterpret_cast<const std::uint32_t*>(quad);
    float* to = &out(0, row);
    for (int begin = 0; begin < b.used_lanes; begin += b.group_length) {
      const auto p = kvaxis::detail::load_parameters<Codec>(b, block, b.group_index(row, begin));
      const float scale = kvaxis::codec_parameters<Codec>::scale(p);
      const float offset = kvaxis::codec_parameters<Codec>::offset(p);
      const int end = begin + b.group_length < b.used_lanes ? begin + b.group_length : b.used_lanes;
      for (int lane = begin; lane < end; ++lane) {
        const std::uint32_t code = kvaxis::unpack_code(Codec::bits, b.lanes, words, row % 4, lane);
        to[lane] = scale * Codec::unit_value(code) + offset;
      }
    }
  }
}

template <class Codec>
void decode_read_back(const block_layout& b, const std::byte* block, Eigen::MatrixXf& out) {
  constexpr kvaxis::codec_table table = kvaxis::detail::describe_codec<Codec>(nullptr);
  for (int row = 0; row < b.used_rows; ++row) table.decode_row(b, {}, block, row, 0, b.used_lanes, &out(0, row));
}

// Asymmetric 4-bit codes with binary16 parameters: byte row % 4 of word w holds lane w and, in its high nibble, lane
// w + lanes / 2.
void decode_nibbles(const block_layout& b, const std::byte* block, Eigen::MatrixXf& out) {
  const auto* parameters = reinterpret_cast<const float16*>(block + b.codes_bytes);
  const int half = b.lanes / 2;
  const int stretch = half < b.group_length ? half : b.group_length;
  for (int row = 0; row < b.used_rows; ++row) {
    const std::byte* quad = block + static_cast<std::size_t>(row / 4) * b.quad_bytes();
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(quad) + row % 4;
    for (int lane = 0; lane < half; lane += stretch) {
      const int low = b.group_index(row, lane);
      const int high = b.group_index(row, half + lane);
      const float low_scale = to_float(parameters[low]);
      const float low_offset = to_float(parameters[b.groups() + low]);
      const float high_scale = to_float(parameters[high]);
      const float high_offset = to_float(parameters[b.groups() + high]);
      const std::uint8_t* from = bytes + 4 * lane;
      float* to = &out(lane, row);
      for (int i = 0; i < stretch; ++i) {
        to[i] = low_scale * static_cast<float>(from[4 * i] & 15) + low_offset;
        to[half + i] = high_scale * static_cast<float>(from[4 * i] >> 4) + high_offset;
      }
    }
  }
}

using decode_fn = void (*)(const block_layout&, const std::byte*, Eigen::MatrixXf&);
struct block_reader {
  block_layout layout;
  decode_fn decode;
};

template <class Codec>
block_reader reader_for(const naive_input& in, naive_decode how, kvaxis::role side) {
  using parameters = kvaxis::codec_parameters<Codec>;
  const kvaxis::axis axis = parameters::members == 0    ? kvaxis::axis::tensor
                            : side == kvaxis::role::key ? kvaxis::axis::channel
                                                        : kvaxis::axis::token;
  return {kvaxis::make_block_layout(side, {axis, 64, kvaxis::pre}, Codec::bits, parameters::members,
                                    parameters::member_bytes, in.dim, in.tile_tokens),
          how == naive_decode::loop        ? &decode_loop<Codec>
          : how == naive_decode::read_back ? &decode_read_back<Codec>
                                           : &decode_nibbles};
}

block_reader reader_of(const naive_input& in, naive_decode how, kvaxis::role side) {
  if (std::strcmp(in.codec, "int4") == 0) return reader_for<kvaxis::int4>(in, how, side);
  if (std::strcmp(in.codec, "int8") == 0) return reader_for<kvaxis::int8>(in, how, side);
  if (std::strcmp(in.codec, "e4m3") == 0) return reader_for<kvaxis::e4m3>(in, how, side);
  return reader_for<kvaxis::f16>(in, how, side);
}

using rows = Eigen::Map<const Eigen::MatrixXf>;

void rotate_queries(const naive_input& in, int tile, float* out) {
  const float* cosine = in.tile_cos + tile * in.dim / 2;
  const float* sine = in.tile_sin + tile * in.dim / 2;
  for (int h = 0; h < in.heads; ++h) {
    const float* q = in.queries + h * in.dim;
    for (int i = 0; i < in.dim / 2; ++i) {
      *out++ = q[2 * i] * cosine[i] - q[2 * i + 1] * sine[i];
      *out++ = q[2 * i] * sine[i] + q[2 * i + 1] * cosine[i];
    }
  }
}

}  // namespace

void scores(const naive_input& in, naive_decode how, float* out) {
  const block_reader reader = reader_of(in, how, kvaxis::role::key);
  const int pairs = in.dim / 2;
  const rows cosine(in.offset_cos, in.tile_tokens, pairs);
  const rows sine(in.offset_sin, in.tile_tokens, pairs);
  Eigen::Map<Eigen::MatrixXf> scores(out, in.tiles * in.tile_tokens, in.heads);
  Eigen::MatrixXf keys(in.tile_tokens, in.dim);
  Eigen::MatrixXf turned(in.dim, in.heads);
  Eigen::ArrayXf x(in.tile_tokens);
  for (int t = 0; t < in.tiles; ++t) {
    reader.decode(reader.layout, in.key_blocks[t], keys);
    for (int i = 0; i < pairs; ++i) {
      auto a = keys.col(2 * i).array();
      auto b = keys.col(2 * i + 1).array();
      x = a * cosine.col(i).array() - b * sine.col(i).array();
      b = a * sine.col(i).array() + b * cosine.col(i).array();
      a = x;
    }
    rotate_queries(in, t, turned.data());
    scores.middleRows(t * in.tile_tokens, in.tile_tokens).noalias() = keys * turned;
  }
}

void sums(const naive_input& in, naive_decode how, const float* weights, float* out) {
  const block_reader reader = reader_of(in, how, kvaxis::role::value);
  const rows w(weights, in.tiles * in.tile_tokens, in.heads);
  Eigen::Map<Eigen::MatrixXf> sums(out, in.dim, in.heads);
  Eigen::MatrixXf values(in.dim, in.tile_tokens);
  sums.setZero();
  for (int t = 0; t < in.tiles; ++t) {
    reader.decode(reader.layout, in.value_blocks[t], values);
    sums.noalias() += values * w.middleRows(t * in.tile_tokens, in.tile_tokens);
  }
}

}  // namespace KVAXIS_NAIVE
}  // namespace bench
