// The bytes of folded tiles, and the bits of the numbers read back from them, against committed hashes: the same from
// every compiler, with every flag, on every CPU. A change of a hash is a change of the storage format and must be a
// decision. KVAXIS_WRITE_GOLDEN=<file> writes the table anew.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kvaxis/quantizers/codebook.hpp>
#include <kvaxis/quantizers/compact.hpp>
#include <kvaxis/quantizers/microscaling.hpp>
#include <kvaxis/quantizers/names.hpp>
#include <numbers.hpp>
#include <string>
#include <vector>

#include "tile_under_test.hpp"

namespace {

constexpr int heads = 2;
constexpr int tokens = 64;
constexpr int dims[] = {8, 46, 64, 80, 128, 576};

struct golden {
  const char* key;          // name of the key side; the value side has the same codec and axis
  std::uint64_t read_back;  // of all dims together
  std::uint64_t bytes[6];   // by dim
};
constexpr golden table[] = {
#include "golden.inc"
};

// FNV-1a, 64 bits.
struct hash {
  std::uint64_t state = 0xCBF29CE484222325U;
  void add(std::uint8_t byte) { state = (state ^ byte) * 0x100000001B3U; }
  void add(float x) {
    const std::uint32_t bits = kvaxis::float_bits(x);
    for (int shift = 0; shift < 32; shift += 8) add(static_cast<std::uint8_t>(bits >> shift));
  }
};

kvaxis::rope rope_of(int dim) {
  if (dim == 46) return test::make_rope(46, 32, 0, kvaxis::rope_layout::interleaved);
  if (dim == 576) return test::make_rope(576, 64, 512);
  return test::make_rope(dim);
}

// Channels of different sizes, some far from zero, some zero, a few numbers that are subnormal.
std::vector<float> rows_of(int dim, std::uint64_t seed) {
  test::numbers random(seed);
  std::vector<float> sizes;
  std::vector<float> centres;
  for (int c = 0; c < heads * dim; ++c) {
    sizes.push_back(kvaxis::bits_float(static_cast<std::uint32_t>(127 - 3 + random.below(8)) << 23));
    centres.push_back(random.below(5) == 0 ? static_cast<float>(random.below(512) - 256) : 0.0F);
    if (random.below(16) == 0) sizes.back() = 0.0F;
  }
  std::vector<float> out;
  for (int t = 0; t < tokens; ++t) {
    for (std::size_t c = 0; c < sizes.size(); ++c) {
      out.push_back(random.bell() * sizes[c] + centres[c]);
      if (random.below(97) == 0) out.back() = kvaxis::bits_float(0x80000123U);
    }
  }
  return out;
}

// Given scales that cover most of the numbers; the two heads differ.
struct given_scales {
  float scale[heads];
  float offset[heads];
  explicit given_scales(const kvaxis::codec_table& codec) {
    const float step = codec.bits == 4 ? 2.3125F : codec.unit_max < 300.0F ? 0.1640625F : 0.0351562F;
    scale[0] = step;
    scale[1] = step * 1.5F;
    offset[0] = codec.offset_factor * step;
    offset[1] = codec.unit_min == 0.0F ? -17.25F : codec.offset_factor * scale[1] + 0.75F;
  }
};

struct outcome {
  std::string key;
  std::uint64_t bytes[6];
  std::uint64_t read_back;
};

outcome fold_all(const kvaxis::codec_table& codec, const kvaxis::policy& policy) {
  char name[64];
  kvaxis::format_policy(codec.name, policy, kvaxis::role::key, name, sizeof name);
  outcome out{name, {}, 0};
  const given_scales given(codec);
  hash read_back;
  for (std::size_t d = 0; d < 6; ++d) {
    const int dim = dims[d];
    const kvaxis::rope rope = rope_of(dim);
    kvaxis::format_request q;
    q.kv_heads = heads;
    q.head_dim = q.value_dim = dim;
    q.tokens = tokens;
    q.rope = &rope;
    const bool is_given = policy.axis == kvaxis::axis::tensor && codec.members > 0;
    q.key.codec = &codec;
    q.key.policy = policy;
    if (is_given) {
      q.key.scale = given.scale;
      q.key.offset = given.offset;
      q.key.scales_count = heads;
    }
    q.value = q.key;
    const std::vector<float> keys = rows_of(dim, static_cast<std::uint64_t>(dim));
    const std::vector<float> values = rows_of(dim, static_cast<std::uint64_t>(1000 + dim));
    hash h;
    for (const int count : {tokens, 37}) {
      test::tile_under_test tile(q);
      for (int t = 0; t < tokens; ++t) {
        for (int head = 0; head < heads; ++head) {
          tile.set_key(head, t, keys.data() + (t * heads + head) * dim);
          tile.set_value(head, t, values.data() + (t * heads + head) * dim);
        }
      }
      tile.fold(count);
      for (const std::uint8_t byte : tile.bytes()) h.add(byte);
      for (int t = 0; t < count; ++t) {
        for (const float x : tile.key(t % heads, t)) read_back.add(x);
        for (const float x : tile.value(t % heads, t)) read_back.add(x);
      }
    }
    out.bytes[d] = h.state;
  }
  out.read_back = read_back.state;
  return out;
}

std::vector<outcome> fold_everything() {
  using kvaxis::axis;
  const kvaxis::policy policies[] = {
      {axis::channel, 64, kvaxis::pre},          {axis::channel, 64, kvaxis::automatic}, {axis::channel, 64, 4},
      {axis::channel, 64, kvaxis::tile_rotated}, {axis::channel, 64, kvaxis::post},      {axis::token, 64, kvaxis::pre},
      {axis::token, 64, kvaxis::tile_rotated},   {axis::token, 64, kvaxis::post},        {axis::tensor, 0, kvaxis::pre},
      {axis::tensor, 0, kvaxis::tile_rotated},   {axis::tensor, 0, kvaxis::post}};
  std::vector<outcome> out;
  for (const kvaxis::codec_table* codec : test::scalar_tables) {
    for (const kvaxis::policy& p : policies) out.push_back(fold_all(*codec, p));
  }
  // What changes another codec, and codecs that are encoded by their own functions.
  using kvaxis::int2, kvaxis::int4, kvaxis::int6, kvaxis::least_squares;
  const kvaxis::codec_table* const refined[] = {&test::scalar_table<least_squares<int2>>,
                                                &test::scalar_table<least_squares<int4>>,
                                                &test::scalar_table<least_squares<kvaxis::int3s>>};
  for (const kvaxis::codec_table* codec : refined) {
    for (const int i : {0, 1, 7}) out.push_back(fold_all(*codec, policies[i]));
  }
  for (const int i : {6, 7}) out.push_back(fold_all(test::scalar_table<kvaxis::with_hadamard<int4>>, policies[i]));
  out.push_back(fold_all(test::scalar_table<kvaxis::wide_pairs<int4, int6>>, policies[2]));
  const kvaxis::codec_table* const own[] = {&test::scalar_table<kvaxis::compact<4>>, &test::scalar_table<kvaxis::nf4a>,
                                            &test::scalar_table<kvaxis::mxfp4>};
  for (const kvaxis::codec_table* codec : own) {
    for (const int i : {0, 7}) out.push_back(fold_all(*codec, policies[i]));
  }
  return out;
}

void write_table(const char* path, const std::vector<outcome>& all) {
  std::FILE* file = std::fopen(path, "w");
  ASSERT_NE(file, nullptr) << path;
  const auto number = [&](std::uint64_t x, const char* behind) {
    std::fprintf(file, "0x%016llx%s", static_cast<unsigned long long>(x), behind);
  };
  for (const outcome& o : all) {
    std::fprintf(file, "{\"%s\", ", o.key.c_str());
    number(o.read_back, ",\n {");
    for (int d = 0; d < 6; ++d) number(o.bytes[d], d < 5 ? ", " : "}},\n");
  }
  std::fclose(file);
}

TEST(Golden, bytes_and_numbers_read_back) {
  const std::vector<outcome> all = fold_everything();
  if (const char* path = std::getenv("KVAXIS_WRITE_GOLDEN")) return write_table(path, all);
  ASSERT_EQ(all.size(), sizeof table / sizeof *table);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].key, table[i].key);
    for (int d = 0; d < 6; ++d) EXPECT_EQ(all[i].bytes[d], table[i].bytes[d]) << all[i].key << " dim " << dims[d];
    EXPECT_EQ(all[i].read_back, table[i].read_back) << all[i].key << ": the same bytes read back as other numbers";
  }
}

}  // namespace
