// The registers of AMX and the instructions that simd/amx.hpp uses, in software. What the hardware refuses ends the
// program: a register without a shape, shapes that do not fit one another. So does configuring twice without a release.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvaxis_emulate {

struct amx_register {
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  std::uint8_t bytes[16][64] = {};
};

class amx_state {
 public:
  void configure(const void* shapes) {
    std::uint8_t bytes[64];
    std::memcpy(bytes, shapes, sizeof bytes);
    require(!configured_ && bytes[0] == 1 && bytes[1] == 0, "ldtilecfg");
    for (std::size_t i = 2; i < 16; ++i) require(bytes[i] == 0, "reserved bytes");
    for (std::size_t i = 0; i < 16; ++i) {
      const auto row_bytes = static_cast<std::size_t>(bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8);
      const std::size_t rows = bytes[48 + i];
      require(rows <= 16 && row_bytes <= 64 && (rows == 0) == (row_bytes == 0), "shape");
      require(i < 8 || rows == 0, "shape of a ninth register");
      if (i < 8) registers_[i] = {rows, row_bytes, {}};
    }
    configured_ = true;
  }
  void release() { *this = {}; }
  void zero(int number) {
    amx_register& to = at(number);
    to = {to.rows, to.row_bytes, {}};
  }
  void load(int number, const void* from, std::int64_t stride) {
    zero(number);
    amx_register& to = at(number);
    for (std::size_t i = 0; i < to.rows; ++i) {
      std::memcpy(to.bytes[i], static_cast<const char*>(from) + static_cast<std::int64_t>(i) * stride, to.row_bytes);
    }
  }
  void store(int number, void* to, std::int64_t stride) {
    const amx_register& from = at(number);
    for (std::size_t i = 0; i < from.rows; ++i) {
      std::memcpy(static_cast<char*>(to) + static_cast<std::int64_t>(i) * stride, from.bytes[i], from.row_bytes);
    }
  }
  void multiply(int sums, int signed_bytes, int unsigned_bytes) {
    amx_register& c = at(sums);
    const amx_register& a = at(signed_bytes);
    const amx_register& b = at(unsigned_bytes);
    require(a.rows == c.rows && b.row_bytes == c.row_bytes && a.row_bytes == 4 * b.rows, "tdpbsud");
    require(sums != signed_bytes && sums != unsigned_bytes && signed_bytes != unsigned_bytes, "tdpbsud");
    for (std::size_t m = 0; m < c.rows; ++m) {
      for (std::size_t n = 0; n < c.row_bytes; n += 4) {
        std::int32_t sum = 0;
        std::memcpy(&sum, c.bytes[m] + n, sizeof sum);
        for (std::size_t k = 0; k < a.row_bytes; ++k) {
          sum += static_cast<std::int8_t>(a.bytes[m][k]) * b.bytes[k / 4][n + k % 4];
        }
        std::memcpy(c.bytes[m] + n, &sum, sizeof sum);
      }
    }
  }

 private:
  static void require(bool valid, const char* what) {
    if (valid) return;
    std::fprintf(stderr, "AMX: invalid use: %s\n", what);
    std::abort();
  }
  amx_register& at(int number) {
    amx_register& r = registers_[number];
    require(configured_ && r.rows > 0, "a register without a shape");
    return r;
  }

  bool configured_ = false;
  amx_register registers_[8];
};

inline thread_local amx_state amx;

}  // namespace kvaxis_emulate

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbsud
#define _tile_loadconfig(shapes) kvaxis_emulate::amx.configure(shapes)
#define _tile_release() kvaxis_emulate::amx.release()
#define _tile_zero(number) kvaxis_emulate::amx.zero(number)
#define _tile_loadd(number, from, stride) kvaxis_emulate::amx.load(number, from, stride)
#define _tile_stored(number, to, stride) kvaxis_emulate::amx.store(number, to, stride)
#define _tile_dpbsud(sums, a, b) kvaxis_emulate::amx.multiply(sums, a, b)
