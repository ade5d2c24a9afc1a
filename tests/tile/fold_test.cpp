// Folding and reading back, apart from how accurate the codecs are: order of the channels, short tiles, rotation there
// and back, 16-bit rows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers.hpp>
#include <vector>

#include "tile_under_test.hpp"

namespace {

using kvaxis::axis;

struct setting {
  int dim = 64;
  kvaxis::rope rope;
  const kvaxis::codec_table* codec = &test::scalar_table<kvaxis::int4>;
  kvaxis::policy keys{axis::channel, 64, kvaxis::pre};
  kvaxis::policy values{axis::token, 64};
  int tokens = 64;
  int kv_heads = 2;
  bool half_rows = false;
};

kvaxis::format_request request_of(const setting& s) {
  kvaxis::format_request q;
  q.kv_heads = s.kv_heads;
  q.head_dim = q.value_dim = s.dim;
  q.tokens = s.tokens;
  q.half_rows = s.half_rows;
  q.rope = &s.rope;
  q.key.codec = q.value.codec = s.codec;
  q.key.policy = s.keys;
  q.value.policy = s.values;
  return q;
}

std::vector<float> random_rows(const setting& s, std::uint64_t seed) {
  return test::numbers(seed).bells(static_cast<std::size_t>(s.tokens * s.kv_heads * s.dim));
}

const float* row_of(const setting& s, const std::vector<float>& all, int head, int token) {
  return all.data() + (token * s.kv_heads + head) * s.dim;
}

void fill(test::tile_under_test& tile, const setting& s, const std::vector<float>& keys,
          const std::vector<float>& values) {
  for (int t = 0; t < s.tokens; ++t) {
    for (int h = 0; h < s.kv_heads; ++h) {
      tile.set_key(h, t, row_of(s, keys, h, t));
      tile.set_value(h, t, row_of(s, values, h, t));
    }
  }
}

std::vector<kvaxis::rope> ropes() {
  kvaxis::rope crossed;  // any pairs, in any order
  crossed.pairs_count = 3;
  crossed.pairs[0] = {63, 0, 0.5};
  crossed.pairs[1] = {7, 40, 0.01};
  crossed.pairs[2] = {8, 1, -1.0};
  return {
      kvaxis::rope{},          test::make_rope(64),         test::make_rope(64, 0, 0, kvaxis::rope_layout::interleaved),
      test::make_rope(64, 32), test::make_rope(64, 20, 44), crossed};
}

TEST(Fold, stored_order_is_pair_after_pair_and_the_rest_behind) {
  for (const kvaxis::rope& rope : ropes()) {
    const setting s{64, rope};
    const test::tile_under_test tile(request_of(s));
    std::vector<bool> seen(64, false);
    for (int i = 0; i < rope.pairs_count; ++i) {
      EXPECT_EQ(tile.format().order[2 * i], rope.pairs[static_cast<std::size_t>(i)].a);
      EXPECT_EQ(tile.format().order[2 * i + 1], rope.pairs[static_cast<std::size_t>(i)].b);
    }
    for (int c = 0; c < 64; ++c) seen[static_cast<std::size_t>(tile.format().order[c])] = true;
    EXPECT_EQ(seen, std::vector<bool>(64, true)) << "every channel once";
    for (int c = 2 * rope.pairs_count + 1; c < 64; ++c) {
      EXPECT_LT(tile.format().order[c - 1], tile.format().order[c]) << "channels without a pair keep their order";
    }
  }
}

TEST(Fold, f32_codes_give_back_what_came_in) {
  for (const kvaxis::rope& rope : ropes()) {
    for (const int rotation : {kvaxis::pre, kvaxis::post, kvaxis::tile_rotated, kvaxis::automatic, 2}) {
      if (rotation > rope.pairs_count) continue;
      const setting s{64, rope, &test::scalar_table<kvaxis::f32>, {axis::channel, 64, rotation}};
      const std::vector<float> keys = random_rows(s, 1);
      const std::vector<float> values = random_rows(s, 2);
      test::tile_under_test tile(request_of(s));
      fill(tile, s, keys, values);
      tile.fold(s.tokens);
      for (int t = 0; t < s.tokens; ++t) {
        for (int h = 0; h < s.kv_heads; ++h) {
          const float* key = row_of(s, keys, h, t);
          const float* value = row_of(s, values, h, t);
          const std::vector<float> got = tile.key(h, t);
          EXPECT_EQ(tile.value(h, t), std::vector<float>(value, value + s.dim));
          for (int c = 0; c < s.dim; ++c) {
            const float back = got[static_cast<std::size_t>(c)];
            if (rotation == kvaxis::pre || rotation == kvaxis::post) {
              ASSERT_EQ(back, key[c]) << "token " << t << " channel " << c;
            } else {
              ASSERT_NEAR(back, key[c], 2e-6) << "rotated there and back, token " << t << " channel " << c;
            }
          }
        }
      }
    }
  }
}

// Cold pairs are stored turned by the offset in the tile: the blocks of f32 codes show the turned numbers themselves.
TEST(Fold, tile_rotated_keys_are_stored_rotated) {
  const kvaxis::rope rope = test::make_rope(64, 48, 8);
  const setting s{64, rope, &test::scalar_table<kvaxis::f32>, {axis::channel, 64, kvaxis::tile_rotated}};
  const std::vector<float> keys = random_rows(s, 3);
  test::tile_under_test tile(request_of(s));
  fill(tile, s, keys, keys);
  tile.fold(s.tokens);
  for (int t = 0; t < s.tokens; ++t) {
    std::vector<float> turned(row_of(s, keys, 1, t), row_of(s, keys, 1, t) + s.dim);
    kvaxis::rotate(rope, t, turned.data());
    for (int c = 0; c < s.dim; ++c) {
      const int row = c;
      float stored = 0;
      std::memcpy(&stored, tile.folded().key_block(1) + (row * s.tokens + t) * 4, 4);
      ASSERT_EQ(stored, turned[static_cast<std::size_t>(tile.format().order[c])]) << "token " << t << " row " << row;
    }
  }
}

// Rows behind the last token of a short tile may hold anything: spare tiles are used again.
TEST(Fold, B63_a_short_tile_does_not_see_what_lies_behind_it) {
  for (const kvaxis::codec_table* codec : test::scalar_tables) {
    for (const kvaxis::policy& p :
         {kvaxis::policy{axis::channel, 64, kvaxis::automatic}, kvaxis::policy{axis::channel, 64, 4},
          kvaxis::policy{axis::token, 16, kvaxis::pre}, kvaxis::policy{axis::token, 64, kvaxis::tile_rotated}}) {
      const setting s{64, test::make_rope(64), codec, p, {p.axis, p.group}};
      for (const int count : {1, 31, 32, 33, 63}) {
        std::vector<float> keys = random_rows(s, 4);
        std::vector<float> values = random_rows(s, 5);
        test::tile_under_test clean(request_of(s));
        for (std::size_t i = static_cast<std::size_t>(count * s.kv_heads * s.dim); i < keys.size(); ++i) {
          keys[i] = values[i] = 0.0F;
        }
        fill(clean, s, keys, values);
        clean.fold(count);
        test::tile_under_test dirty(request_of(s));
        for (std::size_t i = static_cast<std::size_t>(count * s.kv_heads * s.dim); i < keys.size(); ++i) {
          keys[i] = values[i] = kvaxis::bits_float(0xFFFFFFFFU);
        }
        fill(dirty, s, keys, values);
        dirty.fold(count);
        ASSERT_EQ(clean.bytes(), dirty.bytes()) << codec->name << " count " << count;
      }
    }
  }
}

TEST(Fold, rows_of_16_bits_fold_like_the_same_numbers_in_32) {
  setting s{64, test::make_rope(64)};
  s.keys.rotation = kvaxis::automatic;
  std::vector<float> keys = random_rows(s, 6);
  std::vector<float> values = random_rows(s, 7);
  for (std::vector<float>* rows : {&keys, &values}) {
    for (float& x : *rows) x = to_float(kvaxis::to_float16(x));
  }
  test::tile_under_test wide(request_of(s));
  fill(wide, s, keys, values);
  wide.fold(50);
  s.half_rows = true;
  test::tile_under_test narrow(request_of(s));
  const kvaxis::tile_format& f = narrow.format();
  for (int t = 0; t < s.tokens; ++t) {
    for (int h = 0; h < s.kv_heads; ++h) {
      auto* key = const_cast<kvaxis::float16*>(narrow.exact().key_row<kvaxis::float16>(h, t));
      auto* value = const_cast<kvaxis::float16*>(narrow.exact().value_row<kvaxis::float16>(h, t));
      for (int c = 0; c < s.dim; ++c) {
        key[c] = kvaxis::to_float16(row_of(s, keys, h, t)[f.order[c]]);
        value[c] = kvaxis::to_float16(row_of(s, values, h, t)[c]);
      }
    }
  }
  narrow.fold(50);
  EXPECT_EQ(narrow.bytes(), wide.bytes());
}

// Subnormal numbers count as zero: the group of a channel that holds nothing else is a zero group.
TEST(Fold, B10_subnormal_numbers_are_zero) {
  for (const kvaxis::codec_table* codec : test::scalar_tables) {
    if (codec->members == 0) continue;  // the identity codecs keep what they can
    const setting s{64, kvaxis::rope{}, codec};
    test::tile_under_test tile(request_of(s));
    const std::vector<float> tiny(static_cast<std::size_t>(s.tokens * s.kv_heads * s.dim),
                                  kvaxis::bits_float(0x80000001U));
    fill(tile, s, tiny, tiny);
    tile.fold(s.tokens);
    for (int t = 0; t < s.tokens; t += 9) {
      EXPECT_EQ(tile.key(0, t), std::vector<float>(64, 0.0F)) << codec->name;
      EXPECT_EQ(tile.value(1, t), std::vector<float>(64, 0.0F)) << codec->name;
    }
    const std::vector<std::uint8_t> bytes = tile.bytes();
    for (std::size_t i = tile.format().key.codes_bytes; i < tile.format().key.bytes; ++i)
      EXPECT_EQ(bytes[i], 0) << codec->name;
  }
}

}  // namespace
