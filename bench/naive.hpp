// The path that one writes first, with Eigen: per tile, decode channel by channel into a matrix, rotate with a table of
// cosines and sines, one product with the queries. Compiled twice from naive.inl, with the flags of a plain user (-O2)
// and with -O3 -march=native. Only plain data passes between those units and the rest: kvaxis and Eigen are other types
// in each of them.
#pragma once

#include <cstddef>

namespace bench {

// How numbers come out of a block.
enum class naive_decode {
  loop,       // per channel (or token) its scale and offset once, then code by code: scale * code + offset
  read_back,  // the library's decode_row: any codec, made to give the same bits everywhere
  nibbles,    // a loop written for the layout of 4-bit codes alone
};

// One kv head of a folded cache of whole tiles. Channels of queries and keys are in stored order: RoPE pairs adjacent.
struct naive_input {
  const char* codec = "";  // int4, int8, e4m3, f16
  int dim = 0;
  int tiles = 0;
  int tile_tokens = 0;
  const std::byte* const* key_blocks = nullptr;    // [tile]
  const std::byte* const* value_blocks = nullptr;  // [tile]
  const float* offset_cos = nullptr;               // [pair][token of a tile]
  const float* offset_sin = nullptr;
  const float* tile_cos = nullptr;  // [tile][pair]: the rotation from the tile's first position to the query's
  const float* tile_sin = nullptr;
  int heads = 0;
  const float* queries = nullptr;  // [head][dim], scaled
};

namespace naive_plain {
void scores(const naive_input& in, naive_decode how, float* out);                      // [head][token]
void sums(const naive_input& in, naive_decode how, const float* weights, float* out);  // [head][token] to [head][dim]
}  // namespace naive_plain
namespace naive_native {
void scores(const naive_input& in, naive_decode how, float* out);
void sums(const naive_input& in, naive_decode how, const float* weights, float* out);
}  // namespace naive_native

}  // namespace bench
