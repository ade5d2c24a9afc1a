#include "tensor_types.hpp"

#include <cstring>
#include <kvaxis/formats/half.hpp>

namespace llm {
namespace {

float load_half(const std::uint8_t* from) {
  kvaxis::float16 out;
  std::memcpy(&out.bits, from, sizeof(out.bits));
  return kvaxis::to_float(out);
}

void f32(const std::uint8_t* from, float* out) { std::memcpy(out, from, sizeof(float)); }

void f16(const std::uint8_t* from, float* out) { *out = load_half(from); }

// Scale, minimum, 32 codes: the low nibbles are the first 16, the high ones the rest.
void q4_1(const std::uint8_t* from, float* out) {
  const float scale = load_half(from), minimum = load_half(from + 2);
  const std::uint8_t* const codes = from + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(codes[i] & 15) + minimum;
    out[i + 16] = scale * static_cast<float>(codes[i] >> 4) + minimum;
  }
}

// Scale, the fifth bits of 32 codes, the other bits as in q4_1. 16 is zero.
void q5_0(const std::uint8_t* from, float* out) {
  const float scale = load_half(from);
  std::uint32_t fifth_bits = 0;
  std::memcpy(&fifth_bits, from + 2, sizeof(fifth_bits));
  const std::uint8_t* const codes = from + 6;
  const auto number = [&](int low, int i) {
    const int code = low | static_cast<int>(fifth_bits >> i & 1) << 4;
    return scale * static_cast<float>(code - 16);
  };
  for (int i = 0; i < 16; ++i) {
    out[i] = number(codes[i] & 15, i);
    out[i + 16] = number(codes[i] >> 4, i + 16);
  }
}

// Scale, 32 signed codes.
void q8_0(const std::uint8_t* from, float* out) {
  const float scale = load_half(from);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(static_cast<std::int8_t>(from[2 + i]));
}

// Two scales, one of the scales and one of the minima of 8 runs of 32 numbers. Of these 6-bit codes, the first four
// scales are the low bits of bytes 0 .. 3, the first four minima those of bytes 4 .. 7; of the last four, the low
// halves are the nibbles of bytes 8 .. 11, and the upper two bits stand above the codes of the first four. Then come
// the runs, two to each 32 bytes: low nibbles, high nibbles.
void q4_k(const std::uint8_t* from, float* out) {
  const float scale = load_half(from), minimum_scale = load_half(from + 2);
  const std::uint8_t *const packed = from + 4, *const codes = from + 16;
  for (int run = 0; run < 8; ++run) {
    const int i = run % 4;
    const int scale_code = run < 4 ? packed[i] & 63 : (packed[i + 8] & 15) | packed[i] >> 6 << 4;
    const int minimum_code = run < 4 ? packed[i + 4] & 63 : packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4;
    const float run_scale = scale * static_cast<float>(scale_code);
    const float run_minimum = minimum_scale * static_cast<float>(minimum_code);
    const std::uint8_t* const bytes = codes + run / 2 * 32;
    for (int j = 0; j < 32; ++j) {
      const int code = run % 2 == 0 ? bytes[j] & 15 : bytes[j] >> 4;
      *out++ = run_scale * static_cast<float>(code) - run_minimum;
    }
  }
}

// The low four bits of 256 codes, their upper two, 16 signed scales of 16 numbers each, the scale of the scales. 32 is
// zero. Of each half of the codes, the four runs of 32 lie in 64 bytes of low bits (the low nibbles of the first 32 and
// of the last 32, then the high ones) and in 32 bytes of upper bits (two bits of each byte, from below).
void q6_k(const std::uint8_t* from, float* out) {
  const std::uint8_t *const low = from, *const upper = from + 128, *const scales = from + 192;
  const float scale = load_half(from + 208);
  for (int run = 0; run < 8; ++run) {
    const int half = run / 4, quarter = run % 4;
    const std::uint8_t* const nibbles = low + half * 64 + quarter % 2 * 32;
    for (int j = 0; j < 32; ++j) {
      const int low_bits = quarter < 2 ? nibbles[j] & 15 : nibbles[j] >> 4;
      const int code = low_bits | (upper[half * 32 + j] >> (2 * quarter) & 3) << 4;
      const auto run_scale = static_cast<std::int8_t>(scales[run * 2 + j / 16]);
      *out++ = scale * static_cast<float>(run_scale) * static_cast<float>(code - 32);
    }
  }
}

struct layout {
  tensor_type type;
  block_size size;
  void (*dequantize)(const std::uint8_t* block, float* out);
};

constexpr layout layouts[] = {{tensor_type::f32, {1, 4}, f32},
                              {tensor_type::f16, {1, 2}, f16},
                              {tensor_type::q4_1, {32, 2 + 2 + 16}, q4_1},
                              {tensor_type::q5_0, {32, 2 + 4 + 16}, q5_0},
                              {tensor_type::q8_0, {32, 2 + 32}, q8_0},
                              {tensor_type::q4_k, {256, 2 + 2 + 12 + 128}, q4_k},
                              {tensor_type::q6_k, {256, 128 + 64 + 16 + 2}, q6_k}};

}  // namespace

bool find_block_size(std::uint32_t type, block_size& out) {
  for (const layout& l : layouts) {
    if (static_cast<std::uint32_t>(l.type) != type) continue;
    out = l.size;
    return true;
  }
  return false;
}

void dequantize_blocks(tensor_type type, const std::uint8_t* from, std::size_t blocks, float* out) {
  for (const layout& l : layouts) {
    if (l.type != type) continue;
    for (std::size_t i = 0; i < blocks; ++i) l.dequantize(from + i * l.size.bytes, out + i * l.size.numbers);
  }
}

}  // namespace llm
