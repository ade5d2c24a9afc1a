// Integer arithmetic: sums over the rows of a block of codes of 2 to 6 or 8 bits, times weights that were rounded to bytes. The
// keys' weights are a query times the channels' scales, the values' the softmax weights times the tokens' scales.
//
//   f_r = x_r scale_r                       folded, f32
//   f_r ~ step w_r, |w_r| <= 127            one step per head and segment of lanes
//   sum x_r (scale_r c_r + offset_r) ~ step sum w_r (c_r - h) + sum x_r (offset_r + h scale_r),  h = 2^(bits - 1)
//
// so that what rounding disturbs are small centred numbers. Where one byte is too coarse, the remainder f - step w is
// rounded to bytes in turn (step / 254) and its sum added: the second limb.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels.hpp"

KVAXIS_BEGIN_NAMESPACE

// Bytes from one head's weights to the next.
constexpr int byte_stride = max_head_dim;
static_assert(byte_stride >= max_tile_tokens && byte_stride % 64 == 0);

// The weights of one head and segment: sum = step * (start + sum w c) + constant. Where the instructions take codes less h,
// the start is left out.
struct byte_weights {
  float step = 0.0F;
  float constant = 0.0F;
  std::int32_t start = 0;  // -h sum w, of all rows that a request names
};

// out[head][lane] += the sum, for all lanes.
struct integer_request {
  const std::int8_t* bytes = nullptr;     // [segment][head][byte_stride], by row
  const std::uint16_t* halves = nullptr;  // of E4M3 instead, binary16 (see half.hpp)
  const byte_weights* weights = nullptr;  // [segment][head]
  int heads = 0;
  float* out = nullptr;
  int out_stride = 0;
  int first_row = 0;  // multiples of 4
  int end_row = 0;
  read_ahead next;
};

struct integer_kernels {
  using sum_fn = void (*)(const block_view&, const integer_request&, int first_head) noexcept;
  // By the codes' bits, for 1, 2, 3, 4 and 8 heads; null for widths that do not exist, and for 8 bits where f32 is faster.
  std::array<std::array<sum_fn, 5>, 9> sums;
};

namespace detail {

[[nodiscard]] KVAXIS_KERNEL const integer_kernels& active_integer() noexcept;

}  // namespace detail
KVAXIS_END_NAMESPACE

#if defined(KVAXIS_DEFINE_KERNELS)
#define KVAXIS_INTEGER
#define KVAXIS_INL "../attention/integer.inl"
#include "../simd/foreach_isa.hpp"
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
#include "integer_amx.inl"
#endif

KVAXIS_BEGIN_NAMESPACE
namespace detail {

KVAXIS_KERNEL const integer_kernels& active_integer() noexcept {
  static constexpr std::array<const integer_kernels*, isa_count> tables = {
    &scalar::integer,
#if defined(__x86_64__) || defined(KVAXIS_EMULATE)
    &avx2::integer,
    &avx2_vnni::integer,
    &avx512::integer,
    &avx512_vnni::integer,
    &avx512_vnni::integer,
    &avx512_amx::integer,
#elif defined(__aarch64__)
    &neon::integer,
    &neon_dot::integer,
#endif
  };
  return *tables[static_cast<std::size_t>(active_isa())];
}

}  // namespace detail
KVAXIS_END_NAMESPACE
#endif
