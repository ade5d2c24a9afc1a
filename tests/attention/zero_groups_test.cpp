// Zero groups, constant groups, subnormal groups: exact where they can be, finite always.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "against_oracle.hpp"

namespace {

constexpr int dim = 64;

// Keys and values [token][channel] of one head, everything folded.
class Folded {
 public:
  Folded(const std::string& name, std::vector<float> keys, std::vector<float> values, const kvaxis::rope& rope = {})
      : tokens_(static_cast<int>(keys.size()) / dim) {
    test::shape s;
    s.kv_heads = 1;
    s.window = 0;
    s.pins = 0;
    kvaxis::cache_config c = test::config_of(s, rope);
    c.tile_tokens = 32;
    cache_ = test::cache_of(name, c);
    kvaxis::check(cache_.append(keys.data(), values.data(), tokens_));
    kvaxis::check(cache_.flush());
    test::agreement(cache_, rope).expect({3, 1, tokens_});
  }
  [[nodiscard]] const kvaxis::any_kv_cache& cache() const { return cache_; }
  [[nodiscard]] float key(int t, int c) const { return at(true, t, c); }
  [[nodiscard]] float value(int t, int c) const { return at(false, t, c); }

 private:
  [[nodiscard]] float at(bool is_key, int t, int c) const {
    float row[dim];
    kvaxis::check(is_key ? cache_.read_key(t, 0, row) : cache_.read_value(t, 0, row));
    return row[c];
  }
  int tokens_;
  kvaxis::any_kv_cache cache_;
};

std::vector<float> random_rows(int tokens, std::uint64_t seed, float amplitude = 1.0F) {
  return test::numbers(seed).uniforms(static_cast<std::size_t>(tokens * dim), amplitude);
}
float& at(std::vector<float>& x, int t, int c) { return x[static_cast<std::size_t>(t * dim + c)]; }

const char* const codecs[] = {"int4",  "int8",  "int4s", "int8s", "int4f32",   "int8f32", "e4m3", "e5m2",
                              "f32",   "f16",   "bf16",  "int2",  "int3",      "int5",    "int6", "int2s",
                              "int3s", "int5s", "int6s", "mxfp4", "mxfp6e3m2", "mxint8",  "nvfp4"};

// Channel 3 zero in all tokens, channel 5 in tokens 0 to 31 only, token 40 in all channels.
std::vector<float> with_zeros(std::uint64_t seed) {
  std::vector<float> x = random_rows(70, seed);
  for (int t = 0; t < 70; ++t) at(x, t, 3) = 0.0F;
  for (int t = 0; t < 32; ++t) at(x, t, 5) = -0.0F;
  for (int c = 0; c < dim; ++c) at(x, 40, c) = 0.0F;
  return x;
}

TEST(ZeroGroups, B09_zero_channels_tokens_and_stretches) {
  for (const std::string codec : codecs) {
    const bool has_offset = codec.substr(0, 3) == "int" && codec.back() != 's';
    for (const std::string axis : {"-channel32", "-token64"}) {
      SCOPED_TRACE(codec + axis);
      std::string name = "k:";
      name += codec;
      name += axis;
      name += "-pre,v:";
      name += codec;
      name += axis;
      const Folded f(name, with_zeros(1), with_zeros(2), test::rope_of(dim));
      for (const bool key : {true, false}) {
        const auto read = [&](int t, int c) { return key ? f.key(t, c) : f.value(t, c); };
        // A zero is exact in a group of zeros, and in any group of a codec without an offset.
        const bool channels = axis == "-channel32" || !has_offset;
        const bool token = axis == "-token64" || !has_offset;
        for (int t = 0; t < 70 && channels; ++t) EXPECT_EQ(read(t, 3), 0.0F) << t;
        for (int t = 0; t < 32 && channels; ++t) EXPECT_EQ(read(t, 5), 0.0F) << t;
        for (int c = 0; c < dim && token; ++c) EXPECT_EQ(read(40, c), 0.0F) << c;
      }
    }
  }
}

TEST(ZeroGroups, B09_nothing_but_zeros) {
  for (const std::string codec : codecs) {
    for (const std::string axis : {"-channel32", "-token64"}) {
      std::string name = "k:" + codec;
      name += axis + "-tile,v:";
      name += codec;
      name += axis;
      const std::vector<float> zeros(33 * dim, 0.0F);
      const Folded f(name, zeros, zeros, test::rope_of(dim));
      for (const kvaxis::isa isa : isas_under_test()) {
        const isa_scope scope(isa);
        for (const float x : test::attend(f.cache(), std::vector<float>(dim, 2.0F), 1, 32).out)
          EXPECT_EQ(x, 0.0F) << name;
      }
    }
  }
}

// The code of a token and channel in the value block.
std::uint32_t value_code(const kvaxis::any_kv_cache& cache, int token, int channel) {
  const kvaxis::sequence_view view = cache.view();
  int tile = 0;
  while (token >= view.entries[tile].count) token -= view.entries[tile++].count;
  const kvaxis::block_layout& b = view.format->value;
  const std::byte* quad =
      view.entries[tile].tile->value_block(0) + static_cast<std::size_t>(token / 4) * b.quad_bytes();
  return kvaxis::unpack_code(b.bits, b.lanes, reinterpret_cast<const std::uint32_t*>(quad), token % 4, channel);
}

TEST(ZeroGroups, B10_a_zero_channel_of_fp8_values) {
  for (const char* name : {"k:f16,v:e4m3-channel32", "k:f16,v:e5m2-channel32", "k:f16,v:e4m3-tensor@0.01"}) {
    std::vector<float> values = random_rows(64, 3);
    for (int t = 0; t < 64; ++t) at(values, t, 7) = 0.0F;
    const Folded f(name, random_rows(64, 4), values);
    for (int t = 0; t < 64; ++t) EXPECT_EQ(value_code(f.cache(), t, 7) & 0x7FU, 0U) << name << " token " << t;
    for (const kvaxis::isa isa : isas_under_test()) {
      const isa_scope scope(isa);
      const std::vector<float> out = test::attend(f.cache(), std::vector<float>(dim, 1.0F), 1, 63).out;
      EXPECT_EQ(out[7], 0.0F) << name;
      EXPECT_NE(out[8], 0.0F) << name;
    }
  }
}

TEST(ZeroGroups, B10_groups_of_the_smallest_numbers) {
  const float smallest = kvaxis::bits_float(1U);
  for (const std::string codec : codecs) {
    // The numbers of the MX formats are coarser, and the smallest scale of NVFP4 is 2^-9.
    if (codec == "nvfp4" || codec.substr(0, 2) == "mx") continue;
    for (const float size : {smallest, -smallest, 1e-38F, 1e-30F, -1e-20F}) {
      std::vector<float> x(33 * dim, 0.0F);
      for (int t = 0; t < 33; ++t) at(x, t, 7) = size;
      std::string name = "k:" + codec;
      name += "-channel32,v:" + codec;
      name += "-channel32";
      const Folded f(name, x, x);
      const bool half = codec.find("f32") == std::string::npos && codec != "bf16";
      const double bound = half ? 0x1p-24 : std::fabs(static_cast<double>(size)) * 0x1p-8;
      for (int t = 0; t < 33; ++t) {
        for (const float back : {f.key(t, 7), f.value(t, 7)}) {
          EXPECT_TRUE(kvaxis::is_finite(back)) << name;
          const double off = std::fabs(static_cast<double>(back) - static_cast<double>(size));
          EXPECT_LE(off, std::fabs(size) < 1.2e-38F ? 1e-38 + bound : bound) << name << ' ' << size;
        }
        EXPECT_EQ(f.key(t, 6), 0.0F);
      }
    }
  }
}

TEST(ConstantGroups, B11_large_constants_in_keys_values_and_queries) {
  for (const std::string codec : codecs) {
    if (codec == "nvfp4") continue;                                                         // ends at 2688
    const double part = codec == "e5m2" ? 0.13 : codec.substr(0, 2) == "mx" ? 0.03 : 0.01;  // of its coarse numbers
    for (const std::string axis : {"-channel32", "-token32"}) {
      for (const float c : {3000.0F, -3000.0F}) {
        std::string name = "k:" + codec;
        name += axis + ",v:";
        name += codec;
        name += axis;
        const std::vector<float> x(40 * dim, c);
        const Folded f(name, x, x);
        for (const kvaxis::isa isa : isas_under_test()) {
          const isa_scope scope(isa);
          const std::vector<float> q(dim, 3000.0F);
          const double exact = 3000.0 * static_cast<double>(c) * dim / 8;
          for (const float logit : test::scores(f.cache(), q, 1, 39)) {
            EXPECT_NEAR(static_cast<double>(logit), exact, (part == 0.03 ? part : 0.01) * std::fabs(exact)) << name;
          }
          for (const float out : test::attend(f.cache(), q, 1, 39).out) {
            EXPECT_NEAR(out, c, std::fabs(c) * part) << name;
          }
        }
      }
    }
  }
}

}  // namespace
