// Which pairs are stored before RoPE, against the same choice made in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers.hpp>
#include <vector>

#include "tile_under_test.hpp"

namespace {

struct request {
  kvaxis::rope rope;
  int rotation = kvaxis::automatic;
  int tokens = 64;
  int kv_heads = 1;
  float growth = 2.0F;
};

class Tile : public test::tile_under_test {
 public:
  explicit Tile(const request& r) : tile_under_test(format_of(r)) {}

  [[nodiscard]] bool hot(int head, int pair) const {
    return (folded().hot_mask(head)[pair / 32] >> (pair % 32) & 1U) != 0;
  }
  [[nodiscard]] std::vector<int> hot_pairs(int head = 0) const {
    std::vector<int> out;
    for (int i = 0; i < format().pairs; ++i) {
      if (hot(head, i)) out.push_back(i);
    }
    return out;
  }
  // keys [token][channel] for one head
  void fill(const std::vector<float>& keys, int head = 0) {
    for (int t = 0; t < format().tokens; ++t) set_key(head, t, keys.data() + t * format().head_dim);
  }

 private:
  static kvaxis::format_request format_of(const request& r) {
    kvaxis::format_request q;
    q.kv_heads = r.kv_heads;
    q.head_dim = 128;
    q.value_dim = 8;
    q.tokens = r.tokens;
    q.growth = r.growth;
    q.rope = &r.rope;
    q.key.codec = q.value.codec = &test::scalar_table<kvaxis::int4>;
    q.key.policy = {kvaxis::axis::channel, r.tokens, r.rotation};
    q.value.policy = {kvaxis::axis::token, 64};
    return q;
  }
};

struct growth {
  double before;
  double after;
};

// The summed squared ranges of every pair, in double, from natural channel order.
std::vector<growth> measure(const kvaxis::rope& rope, const std::vector<float>& keys, int dim, int count) {
  std::vector<growth> out;
  for (int i = 0; i < rope.pairs_count; ++i) {
    const kvaxis::rope_pair& pair = rope.pairs[static_cast<std::size_t>(i)];
    std::vector<double> column[4];
    for (int t = 0; t < count; ++t) {
      const double a = keys[static_cast<std::size_t>(t * dim + pair.a)];
      const double b = keys[static_cast<std::size_t>(t * dim + pair.b)];
      const double angle = t * pair.frequency;
      column[0].push_back(a);
      column[1].push_back(b);
      column[2].push_back(a * std::cos(angle) - b * std::sin(angle));
      column[3].push_back(a * std::sin(angle) + b * std::cos(angle));
    }
    double squares[4];
    for (int c = 0; c < 4; ++c) {
      const auto [low, high] = std::minmax_element(column[c].begin(), column[c].end());
      squares[c] = (*high - *low) * (*high - *low);
    }
    out.push_back({squares[0] + squares[1], squares[2] + squares[3]});
  }
  return out;
}

// Keys whose pairs have very different sizes and centres.
std::vector<float> random_keys(int tokens, std::uint64_t seed) {
  test::numbers random(seed);
  std::vector<float> size(128);
  std::vector<float> centre(128);
  for (std::size_t c = 0; c < 128; ++c) {
    size[c] = std::ldexp(1.0F, random.below(6) - 3);
    centre[c] = random.below(4) == 0 ? random.uniform() * 20.0F : 0.0F;
  }
  std::vector<float> keys;
  for (int t = 0; t < tokens; ++t) {
    for (std::size_t c = 0; c < 128; ++c) keys.push_back(random.bell() * size[c] + centre[c]);
  }
  return keys;
}

std::vector<kvaxis::rope> ropes() {
  return {test::make_rope(128), test::make_rope(128, 0, 0, kvaxis::rope_layout::interleaved, 1e6),
          test::make_rope(128, 64), test::make_rope(128, 48, 80)};
}

TEST(HotPairs, automatic_takes_those_that_rotation_would_widen) {
  int seen[2] = {0, 0};
  for (const kvaxis::rope& rope : ropes()) {
    for (const float factor : {1.25F, 2.0F, 8.0F}) {
      for (const int count : {64, 33, 2}) {
        Tile tile({rope, kvaxis::automatic, 64, 1, factor});
        const std::vector<float> keys = random_keys(64, static_cast<std::uint64_t>(count));
        tile.fill(keys);
        tile.fold(count);
        const std::vector<growth> expected = measure(rope, keys, 128, count);
        for (int i = 0; i < rope.pairs_count; ++i) {
          const growth& g = expected[static_cast<std::size_t>(i)];
          const double ratio = g.after / g.before / static_cast<double>(factor);
          if (std::fabs(ratio - 1) < 1e-5) continue;  // too close for f32
          EXPECT_EQ(tile.hot(0, i), ratio > 1) << "pair " << i << " ratio " << ratio;
          ++seen[ratio > 1];
        }
      }
    }
  }
  EXPECT_GT(seen[0], 200);
  EXPECT_GT(seen[1], 200);
}

TEST(HotPairs, a_number_takes_those_of_largest_growth) {
  for (const kvaxis::rope& rope : ropes()) {
    const std::vector<float> keys = random_keys(64, 5);
    const std::vector<growth> measured = measure(rope, keys, 128, 64);
    std::vector<double> sorted;
    for (const growth& g : measured) sorted.push_back(g.after - g.before);
    std::sort(sorted.rbegin(), sorted.rend());
    for (const int n : {1, 2, 4, 8, 16, rope.pairs_count}) {
      Tile tile({rope, n});
      tile.fill(keys);
      tile.fold(64);
      EXPECT_EQ(tile.hot_pairs().size(), static_cast<std::size_t>(n));
      const double last = sorted[static_cast<std::size_t>(n) - 1];
      for (const int i : tile.hot_pairs()) {
        const growth& g = measured[static_cast<std::size_t>(i)];
        EXPECT_GE(g.after - g.before, last - 1e-4 * std::fabs(last)) << "pair " << i << " of " << n;
      }
    }
  }
}

// A fixed number must not leave out what the automatic choice would take, if there is room: pairs with a large constant
// part, at high and at low frequency.
TEST(HotPairs, biased_pairs_are_found) {
  const kvaxis::rope rope = test::make_rope(128);
  for (const int biased : {2, 4, 8, 16}) {
    for (const bool high_frequency : {true, false}) {
      std::vector<float> keys = test::numbers(9).bells(64 * 128);
      std::vector<int> expected;
      for (int i = 0; i < biased; ++i) {
        // Pair 40 turns by 0.0032 radians per token, 0.2 over the tile: 300 becomes a range of 60.
        const int pair = high_frequency ? i : 40 - i;
        expected.push_back(pair);
        for (int t = 0; t < 64; ++t) keys[static_cast<std::size_t>(t * 128 + pair)] += 300.0F;
      }
      std::sort(expected.begin(), expected.end());
      for (const int rotation : {biased, kvaxis::automatic}) {
        Tile tile({rope, rotation});
        tile.fill(keys);
        tile.fold(64);
        EXPECT_EQ(tile.hot_pairs(), expected) << biased << " at " << (high_frequency ? "high" : "low") << " frequency";
      }
    }
  }
}

TEST(HotPairs, ties_go_to_the_lower_index) {
  double same[8];
  std::fill(same, same + 8, 0.25);
  kvaxis::rope rope;
  ASSERT_TRUE(kvaxis::make_rope(128, 0, kvaxis::rope_layout::interleaved, same, 8, rope).ok());
  std::vector<float> keys(64 * 128);
  test::numbers random(4);
  for (int t = 0; t < 64; ++t) {
    const float a = random.bell() + 10.0F;
    const float b = random.bell();
    for (int i = 0; i < 8; ++i) {
      keys[static_cast<std::size_t>(t * 128 + 2 * i)] = a;
      keys[static_cast<std::size_t>(t * 128 + 2 * i + 1)] = b;
    }
  }
  for (const int n : {1, 3, 7}) {
    Tile tile({rope, n});
    tile.fill(keys);
    tile.fold(64);
    std::vector<int> expected;
    for (int i = 0; i < n; ++i) expected.push_back(i);
    EXPECT_EQ(tile.hot_pairs(), expected);
  }
  // No range at all: a tile of one token.
  Tile single({rope, 2});
  single.fill(keys);
  single.fold(1);
  EXPECT_EQ(single.hot_pairs(), (std::vector<int>{0, 1}));
  Tile automatic({rope, kvaxis::automatic});
  automatic.fill(keys);
  automatic.fold(1);
  EXPECT_TRUE(automatic.hot_pairs().empty());
}

TEST(HotPairs, every_head_chooses_for_itself) {
  Tile tile({test::make_rope(128), 4, 64, 3});
  std::vector<std::vector<int>> alone;
  for (int head = 0; head < 3; ++head) {
    const std::vector<float> keys = random_keys(64, static_cast<std::uint64_t>(20 + head));
    tile.fill(keys, head);
    Tile single({test::make_rope(128), 4});
    single.fill(keys);
    single.fold(64);
    alone.push_back(single.hot_pairs());
  }
  tile.fold(64);
  for (int head = 0; head < 3; ++head) EXPECT_EQ(tile.hot_pairs(head), alone[static_cast<std::size_t>(head)]);
  EXPECT_NE(alone[0], alone[1]);
}

TEST(HotPairs, without_a_choice_the_mask_is_all_or_nothing_and_not_stored) {
  for (const int rotation : {kvaxis::pre, kvaxis::tile_rotated, kvaxis::post}) {
    Tile tile({test::make_rope(128), rotation});
    EXPECT_FALSE(tile.format().stored_mask);
    EXPECT_EQ(tile.format().head_offset, 64U);
    tile.fill(random_keys(64, 1));
    tile.fold(64);
    EXPECT_EQ(tile.hot_pairs().size(), rotation == kvaxis::pre ? 64U : 0U);
  }
  EXPECT_EQ(Tile({test::make_rope(128), 4, 64, 3}).format().head_offset, 64U + 64U) << "3 masks of 8 bytes, padded";
}

}  // namespace
