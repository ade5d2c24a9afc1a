// The caches of the llm example, without a model: forks, roll back and context shifts of all layers at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <counting_allocator.hpp>
#include <llm/layer_caches.hpp>
#include <numbers.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using llm::layer_caches;
using llm::matrix;

constexpr llm::model_shape shape = {2,  0, 0, 4, 2,      32,
                                    32, 0, 0, 0, 10000.0};  // 2 layers, 4 query heads, 2 kv heads of 32

llm::cache_options options(int context) {
  llm::cache_options o;
  o.context = context;
  return o;
}

class LayerCaches : public ::testing::Test {
 protected:
  // `count` tokens through all layers, in steps as a model takes them; what attention gave, of all of them. The numbers
  // depend on the seed and on the tokens before.
  std::vector<float> feed(layer_caches& caches, int count, std::uint64_t seed) {
    test::numbers random(seed);
    std::vector<float> out;
    while (count > 0) {
      caches.make_room();
      const int step = caches.step_size(count);
      for (int layer = 0; layer < shape.layers; ++layer) {
        matrix rows[3] = {matrix(step, 4 * 32), matrix(step, 2 * 32), matrix(step, 2 * 32)};
        for (matrix& m : rows) {
          const std::vector<float> numbers = random.uniforms(static_cast<std::size_t>(m.size()));
          std::copy(numbers.begin(), numbers.end(), m.data());
        }
        const matrix attended = caches.attend(layer, rows[0], rows[1], rows[2]);
        out.insert(out.end(), attended.data(), attended.data() + attended.size());
      }
      count -= step;
    }
    return out;
  }
  // Keys and values of all layers and heads of one token.
  static std::vector<float> stored(const layer_caches& caches, int token) {
    std::vector<float> out;
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        float numbers[64];
        kvaxis::check(caches.sequence()[layer].read_key(token, head, numbers));
        kvaxis::check(caches.sequence()[layer].read_value(token, head, numbers + 32));
        out.insert(out.end(), numbers, numbers + 64);
      }
    }
    return out;
  }

  thread_pool pool{2};
};

TEST_F(LayerCaches, a_copy_shares_tiles_and_goes_its_own_way) {
  counting_allocator memory;
  layer_caches prefix(shape, options(0), 0, pool, memory.hook());
  feed(prefix, 300, 1);
  EXPECT_EQ(memory.live_bytes, prefix.sequence().bytes().total());
  EXPECT_EQ(prefix.bytes(), prefix.bytes_at(300));
  {
    layer_caches fork = prefix;
    EXPECT_LT(memory.live_bytes, prefix.sequence().bytes().total() * 11 / 10);
    layer_caches own(shape, options(0), 0, pool);
    feed(own, 300, 1);
    EXPECT_EQ(feed(fork, 150, 2), feed(own, 150, 2));
    EXPECT_EQ(fork.size(), 450);
    EXPECT_LT(memory.live_bytes, prefix.sequence().bytes().total() + fork.sequence().bytes().total());
  }
  EXPECT_EQ(prefix.size(), 300);
  EXPECT_EQ(memory.live_bytes, prefix.sequence().bytes().total());
}

TEST_F(LayerCaches, truncate_rolls_every_layer_back) {
  layer_caches caches(shape, options(0), 0, pool);
  feed(caches, 200, 1);
  const std::vector<float> answer = feed(caches, 40, 2);
  caches.truncate(200);
  EXPECT_EQ(caches.size(), 200);
  EXPECT_EQ(feed(caches, 40, 2), answer);
}

// Of 416 tokens behind the pins, four tiles are folded; three of them are the older half, in whole tiles.
TEST_F(LayerCaches, a_full_context_drops_the_older_half_behind_the_pins) {
  layer_caches caches(shape, options(420), 1000, pool);
  feed(caches, 419, 1);
  EXPECT_EQ(caches.make_room(), 0);
  feed(caches, 1, 2);
  std::vector<std::vector<float>> before;
  for (int i = 0; i < 420; ++i) before.push_back(stored(caches, i));
  const kvaxis::cache_bytes bytes = caches.sequence().bytes();

  EXPECT_EQ(caches.make_room(), 192);
  ASSERT_EQ(caches.size(), 228);
  EXPECT_EQ(caches.make_room(), 0);
  for (int i = 0; i < 228; ++i) {
    EXPECT_EQ(stored(caches, i), before[static_cast<std::size_t>(i < 4 ? i : i + 192)]) << i;
    EXPECT_EQ(caches.sequence()[1].position(i), i);
  }
  EXPECT_EQ(4 * caches.sequence().bytes().folded, bytes.folded);
  EXPECT_EQ(caches.sequence().bytes().exact, bytes.exact);

  feed(caches, 1000, 3);
  EXPECT_LE(caches.size(), 420);
  EXPECT_EQ(caches.sequence().next_position(), caches.size());
}

// Where only pins and two tokens fit, one goes at a time.
TEST_F(LayerCaches, the_smallest_context) {
  layer_caches caches(shape, options(6), 0, pool);
  feed(caches, 20, 1);
  EXPECT_EQ(caches.size(), 6);
  EXPECT_EQ(caches.make_room(), 1);
}

// As Gemma has them: the first of two layers sees 8 tokens and rotates with a theta of its own. What a token gets there
// is what it gets where no others are, and what it gets from the second layer does not depend on the first.
TEST_F(LayerCaches, local_layers_slide_and_rotate_on_their_own) {
  llm::model_shape global = shape, mixed = shape;
  global.pairs = mixed.pairs = kvaxis::rope_layout::half_split;
  mixed.global_every = 2;
  mixed.sliding_window = 8;
  mixed.local_theta = 100.0;
  llm::model_shape local = global;
  local.theta = mixed.local_theta;
  constexpr int count = 40;
  test::numbers random(1);
  matrix rows[3] = {matrix(count, 4 * 32), matrix(count, 2 * 32), matrix(count, 2 * 32)};
  for (matrix& m : rows) {
    const std::vector<float> numbers = random.uniforms(static_cast<std::size_t>(m.size()));
    std::copy(numbers.begin(), numbers.end(), m.data());
  }
  // What the last token gets from a layer that is given the last `tokens` tokens.
  const auto last = [&](layer_caches& caches, int layer, int tokens) {
    matrix queries = rows[0].bottomRows(tokens), keys = rows[1].bottomRows(tokens);
    const matrix values = rows[2].bottomRows(tokens);
    return matrix(caches.attend(layer, queries, keys, values).bottomRows(1));
  };
  for (const char* const policy : {"k:f32,v:f32", "k:int4-token64-post,v:int4-token64"}) {  // which rotates outside
    llm::cache_options o;
    o.policy = policy;
    layer_caches caches(mixed, o, 0, pool), all(global, o, 0, pool), few(local, o, 0, pool);
    const matrix first = last(caches, 0, count), second = last(caches, 1, count);
    EXPECT_TRUE(first.isApprox(last(few, 0, 8), 1e-5F)) << policy;
    EXPECT_TRUE(second.isApprox(last(all, 1, count), 1e-5F)) << policy;
    EXPECT_FALSE(first.isApprox(second, 1e-2F)) << policy;
  }
}

TEST_F(LayerCaches, keys_that_came_in_rotated_cannot_shift) {
  llm::cache_options o = options(100);
  o.policy = "k:int4-token64-post,v:int4-token64";
  EXPECT_THROW(layer_caches(shape, o, 0, pool), std::invalid_argument);
}

}  // namespace
