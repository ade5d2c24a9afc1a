// Sequences of several layers with policies of their own, as an engine uses them.
#include <gtest/gtest.h>

#include <kvaxis/cache/sequence.hpp>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::errc;

// A global layer, a sliding-window layer of another shape, and one whose keys come in rotated.
class Sequence : public ::testing::Test {
 protected:
  Sequence() {
    for (const char* policy : {"k:int4-channel32-auto,v:int4-token16", "k:int8-token16-tile,v:int8-token16"}) {
      kvaxis::layer_config l;
      l.config = layers_.empty() ? test::rope_shape(2, 16) : test::rope_shape(1, 24, 16);
      l.config.tile_tokens = 32;
      l.config.window = 40;
      l.config.pins = 3;
      l.keys = test::find(policy).keys;
      l.values = test::find(policy).values;
      layers_.push_back(l);
    }
  }
  kvaxis::sequence make() {
    kvaxis::sequence s;
    kvaxis::check(kvaxis::sequence::create(layers_.data(), static_cast<int>(layers_.size()), memory_.hook(), s));
    return s;
  }
  void append(kvaxis::sequence& s, int n, std::uint64_t seed) {
    for (int i = 0; i < s.layers(); ++i) {
      const test::tokens t(layers_[static_cast<std::size_t>(i)].config, n, seed + static_cast<std::uint64_t>(i));
      t.append_all_to(s[i]);
    }
  }
  static std::vector<std::string> contents(const kvaxis::sequence& s) {
    std::vector<std::string> all;
    for (int i = 0; i < s.layers(); ++i) all.push_back(test::contents(s[i]));
    return all;
  }

  counting_allocator memory_;
  std::vector<kvaxis::layer_config> layers_;
};

TEST_F(Sequence, forks_share_and_go_their_own_ways) {
  kvaxis::sequence parent = make();
  append(parent, 200, 1);
  const std::size_t one = memory_.live_bytes;
  kvaxis::sequence child;
  kvaxis::check(parent.fork(child));
  EXPECT_LT(memory_.live_bytes - one, std::size_t{16384});  // two lists and what says how to read them
  append(child, 50, 2);
  append(parent, 50, 3);
  kvaxis::sequence alone = make();
  append(alone, 200, 1);
  append(alone, 50, 2);
  EXPECT_EQ(contents(child), contents(alone));
}

TEST_F(Sequence, rolls_back_layers_that_are_not_equally_far) {
  kvaxis::sequence s = make();
  append(s, 100, 1);
  const test::tokens t(layers_[0].config, 5, 9);
  t.append_all_to(s[0]);  // the second layer's append failed, say
  kvaxis::check(s.truncate(100));
  EXPECT_EQ(s[0].size(), 100);
  EXPECT_EQ(s[1].size(), 100);
  EXPECT_EQ(s.next_position(), 100);
}

TEST_F(Sequence, positions_mean_the_same_tokens_where_a_layer_has_evicted) {
  kvaxis::sequence s = make();
  append(s, 200, 1);
  kvaxis::check(s[1].keep_last(64));  // has 0, 1, 2 and 136 .. 199
  kvaxis::check(s.erase(100, 150));
  EXPECT_EQ(s[0].size(), 150);
  EXPECT_EQ(s[1].size(), 3 + 50);
  EXPECT_EQ(s[0].position(100), 150);
  EXPECT_EQ(s[1].position(3), 150);
  kvaxis::check(s.move(150, 200, -50));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(s[i].position(s[i].size() - 1), 149);
    EXPECT_EQ(s[i].next_position(), 150);
  }
  kvaxis::sequence other = make();
  kvaxis::check(other.splice(s, 90, 120, 1000));
  EXPECT_EQ(other[0].size(), 30);
  EXPECT_EQ(other[1].size(), 20);
  EXPECT_EQ(other[0].position(0), 1090);
  EXPECT_EQ(other[1].position(0), 1100);
  EXPECT_EQ(other.next_position(), 1120);
  kvaxis::check(s.truncate(140));
  EXPECT_EQ(s[0].next_position(), 140);
  EXPECT_EQ(s[1].next_position(), 140);
  kvaxis::check(s.keep_last(10));
  EXPECT_EQ(s[0].size(), 13);
  EXPECT_EQ(s[1].size(), 13);
}

TEST_F(Sequence, a_layer_that_cannot_move_keeps_all_where_they_are) {
  layers_.push_back(layers_[0]);
  layers_[2].keys = test::find("k:int4-channel32-post,v:int4-token16").keys;
  kvaxis::sequence s = make();
  append(s, 100, 1);
  const std::vector<std::string> before = contents(s);
  EXPECT_EQ(s.move(10, 20, 5).code, errc::unsupported);
  EXPECT_EQ(contents(s), before);
  kvaxis::sequence other = make();
  EXPECT_EQ(other.splice(s, 10, 20, 5).code, errc::unsupported);
  EXPECT_EQ(other[0].size(), 0);
  kvaxis::check(other.splice(s, 10, 20, 0));
  EXPECT_EQ(other[2].size(), 10);
}

TEST_F(Sequence, bytes_are_what_was_allocated) {
  kvaxis::sequence s = make();
  append(s, 333, 1);
  EXPECT_EQ(s.bytes().total(), memory_.live_bytes);
  kvaxis::check(s.reserve(1000));
  EXPECT_EQ(s.bytes().total(), memory_.live_bytes);
  const int calls = memory_.calls;
  append(s, 600, 2);
  EXPECT_EQ(memory_.calls, calls);
  kvaxis::check(s.flush());
  EXPECT_EQ(s[0].folded_tokens(), 930);
  EXPECT_EQ(s.bytes().total(), memory_.live_bytes);
}

TEST_F(Sequence, bad_calls_are_refused_by_name) {
  kvaxis::sequence s = make();
  EXPECT_STREQ(kvaxis::sequence::create(nullptr, 1, {}, s).argument, "layers");
  EXPECT_STREQ(kvaxis::sequence::create(layers_.data(), 0, {}, s).argument, "layers");
  layers_[1].config.head_dim = 7;
  EXPECT_STREQ(kvaxis::sequence::create(layers_.data(), 2, {}, s).argument, "head_dim");
  EXPECT_EQ(s.layers(), 2);
  kvaxis::sequence smaller;
  kvaxis::check(kvaxis::sequence::create(layers_.data(), 1, {}, smaller));
  EXPECT_STREQ(s.splice(smaller, 0, 1, 0).argument, "other: layers");
  EXPECT_STREQ(s.keep_last(0).argument, "tokens");
}

// What a splice refuses, by the name of what differs.
TEST(Splice, other_formats_are_refused_by_name) {
  kvaxis::cache_config c = test::rope_shape(2, 32);
  c.tile_tokens = 32;
  const char* const policy = "k:int4-channel32-auto,v:int4-token16";
  kvaxis::any_kv_cache cache = test::cache_of(policy, c);
  test::tokens(c, 100, 1).append_all_to(cache);
  const std::string before = test::snapshot(cache);
  const auto refusal = [&](const char* other_policy, const kvaxis::cache_config& other_config) {
    kvaxis::any_kv_cache other = test::cache_of(other_policy, other_config);
    test::tokens(other_config, 10, 1).append_all_to(other);
    const kvaxis::status s = cache.splice(100, other, 0, 10, 100);
    EXPECT_EQ(test::snapshot(cache), before);
    return std::string(s.argument);
  };
  EXPECT_EQ(refusal(policy, test::rope_shape(1, 32)), "other: kv_heads");
  EXPECT_EQ(refusal(policy, test::rope_shape(2, 64)), "other: head_dim");
  EXPECT_EQ(refusal(policy, test::rope_shape(2, 32, 16)), "other: value_dim");
  EXPECT_EQ(refusal("k:int4-channel64-auto,v:int4-token16", c), "other: tile length");
  EXPECT_EQ(refusal("k:int8-channel32-auto,v:int4-token16", c), "other: key policy");
  EXPECT_EQ(refusal("k:int4-channel32-pre,v:int4-token16", c), "other: key policy");
  EXPECT_EQ(refusal("k:int4-channel32-auto,v:int4-token32", c), "other: value policy");
  EXPECT_EQ(refusal("k:int4-channel32-auto,v:e4m3-token16", c), "other: value policy");
  kvaxis::cache_config half = c;
  half.half_window = true;
  EXPECT_EQ(refusal(policy, half), "other: half_window");
  kvaxis::cache_config theta = c;
  kvaxis::rope_parameters p;
  p.head_dim = 32;
  p.theta = 5e5;
  kvaxis::check(kvaxis::make_rope(p, theta.rope));
  EXPECT_EQ(refusal(policy, theta), "other: rope.pairs.frequency");
  p.theta = 1e4;
  p.layout = kvaxis::rope_layout::interleaved;
  kvaxis::check(kvaxis::make_rope(p, theta.rope));
  EXPECT_EQ(refusal(policy, theta), "other: rope.pairs");
  theta = c;
  theta.rope.attention_factor = 1.1;
  EXPECT_EQ(refusal(policy, theta), "other: rope.attention_factor");
  EXPECT_STREQ(cache.splice(100, cache, 0, 10, 100).argument, "other: the cache itself; fork it first");
  kvaxis::any_kv_cache same = test::cache_of(policy, c);
  test::tokens(c, 10, 1).append_all_to(same);
  EXPECT_STREQ(cache.splice(101, same, 0, 10, 100).argument, "at");
  EXPECT_STREQ(cache.splice(3, same, 0, 10, 100).argument, "at");  // among the pins
  EXPECT_STREQ(cache.splice(100, same, 0, 11, 100).argument, "count");
  EXPECT_STREQ(cache.splice(100, same, 0, 10, kvaxis::max_position).argument, "position");
  EXPECT_EQ(test::snapshot(cache), before);
  EXPECT_TRUE(cache.splice(100, same, 0, 10, 100).ok());
}

}  // namespace
