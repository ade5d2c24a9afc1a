// The bytes of a cache depend on the tokens and their positions, not on the calls that brought them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "calls.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

const std::vector<std::string> policies = {
    "k:int4-channel64-pre,v:int4-token64",
    "k:int4-channel32-auto,v:int8-token16",
    "k:int8-channel64-hot4,v:int4s-token32",
    "k:int4f32-channel32-tile,v:int4-channel32",
    "k:int4-token32-post,v:e4m3-channel64",
    "k:e4m3-tensor@0.01-pre,v:int8-tensor@0.01,-1.28",
    "k:int4-channel256-pre,v:int8-channel128",
    "k:f16,v:bf16",
    "k:f32-tile,v:f32",
};

class Bytes : public ::testing::TestWithParam<std::string> {
 protected:
  Bytes() {
    config_.window = 40;
    config_.pins = 3;
  }
  [[nodiscard]] kvaxis::any_kv_cache make() const { return test::cache_of(GetParam(), config_); }
  [[nodiscard]] kvaxis::any_kv_cache one_by_one(const test::tokens& data) const {
    kvaxis::any_kv_cache cache = make();
    for (int i = 0; i < data.count; ++i) kvaxis::check(data.append_to(cache, i, 1));
    return cache;
  }
  kvaxis::cache_config config_ = test::rope_shape(2, 40, 24);
};

TEST_P(Bytes, are_the_same_token_by_token_in_one_call_and_in_any_chunks) {
  const test::tokens data(config_, 333, 1);
  const std::string want = test::contents(one_by_one(data));
  kvaxis::any_kv_cache at_once = make();
  data.append_all_to(at_once);
  EXPECT_EQ(test::contents(at_once) == want, true);
  EXPECT_GT(at_once.folded_tokens(), 200);
  for (const int chunk : {2, 31, 32, 33, 63, 64, 65, 128, 129, 300}) {
    kvaxis::any_kv_cache cache = make();
    for (int i = 0; i < data.count; i += chunk) {
      kvaxis::check(data.append_to(cache, i, chunk < data.count - i ? chunk : data.count - i));
    }
    EXPECT_EQ(test::contents(cache) == want, true) << "chunks of " << chunk;
  }
}

TEST_P(Bytes, are_the_same_when_folding_was_deferred) {
  const test::tokens data(config_, 333, 2);
  const std::string want = test::contents(one_by_one(data));
  for (const int chunk : {1, 50, 64, 333}) {
    kvaxis::any_kv_cache each = make();
    kvaxis::any_kv_cache last = make();
    for (int i = 0; i < data.count; i += chunk) {
      const int n = chunk < data.count - i ? chunk : data.count - i;
      kvaxis::check(data.append_to(each, i, n, kvaxis::next, kvaxis::fold_mode::deferred));
      kvaxis::check(each.fold());
      kvaxis::check(data.append_to(last, i, n, kvaxis::next, kvaxis::fold_mode::deferred));
    }
    EXPECT_EQ(test::contents(each) == want, true) << "chunks of " << chunk;
    EXPECT_EQ(last.folded_tokens(), 0);
    kvaxis::check(last.fold());
    EXPECT_EQ(test::contents(last) == want, true) << "chunks of " << chunk;
    kvaxis::check(last.fold());  // nothing is left to do
    EXPECT_EQ(test::contents(last) == want, true);
  }
  kvaxis::any_kv_cache mixed = make();
  kvaxis::check(data.append_to(mixed, 0, 200, kvaxis::next, kvaxis::fold_mode::deferred));
  kvaxis::check(data.append_to(mixed, 200, 133));  // folds what was left, too
  EXPECT_EQ(test::contents(mixed) == want, true);
}

TEST_P(Bytes, are_the_same_with_gaps_in_the_positions) {
  const test::tokens data(config_, 300, 3);
  struct piece {
    int count;
    std::int64_t position;
  };
  const std::vector<piece> pieces = {{2, -50}, {40, 7}, {64, 100}, {1, 90}, {90, 1000}, {103, -3000}};
  const auto fill = [&](int chunk) {
    kvaxis::any_kv_cache cache = make();
    int first = 0;
    for (const piece& p : pieces) {
      for (int done = 0; done < p.count; done += chunk) {
        const int n = chunk < p.count - done ? chunk : p.count - done;
        kvaxis::check(data.append_to(cache, first + done, n, p.position + done));
      }
      first += p.count;
    }
    return cache;
  };
  const kvaxis::any_kv_cache cache = fill(1000);
  EXPECT_EQ(cache.size(), 300);
  EXPECT_GT(cache.folded_tokens(), 150);
  for (const int chunk : {1, 5, 64}) EXPECT_EQ(test::contents(fill(chunk)) == test::contents(cache), true) << chunk;
}

TEST_P(Bytes, after_clear_are_those_of_a_new_cache_and_the_memory_is_kept) {
  const test::tokens before(config_, 250, 4);
  const test::tokens data(config_, 210, 5);
  kvaxis::any_kv_cache fresh = make();
  data.append_all_to(fresh, 11);
  kvaxis::any_kv_cache used = make();
  before.append_all_to(used, -70);
  kvaxis::check(used.flush());
  const std::size_t held = used.bytes().total();
  used.clear();
  EXPECT_EQ(used.size(), 0);
  EXPECT_EQ(used.next_position(), 0);
  EXPECT_EQ(used.view().entry_count, 0);
  EXPECT_EQ(used.bytes().total(), held);
  EXPECT_EQ(used.bytes().spare + used.bytes().bookkeeping, held);
  data.append_all_to(used, 11);
  EXPECT_EQ(test::contents(used) == test::contents(fresh), true);
}

TEST_P(Bytes, flush_folds_everything_that_is_not_pinned) {
  const test::tokens data(config_, 137, 6);
  kvaxis::any_kv_cache cache = make();
  kvaxis::check(cache.flush());  // nothing to fold
  EXPECT_EQ(cache.size(), 0);
  kvaxis::check(data.append_to(cache, 0, 2));
  kvaxis::check(cache.flush());  // pins only: they stay open for the third
  kvaxis::check(data.append_to(cache, 2, 98));
  EXPECT_EQ(cache.view().entries[0].count, config_.pins);
  kvaxis::check(cache.flush());
  EXPECT_EQ(cache.folded_tokens(), 97);
  EXPECT_EQ(cache.exact_tokens(), config_.pins);
  const std::string flushed = test::contents(cache);
  kvaxis::check(cache.flush());
  EXPECT_EQ(test::contents(cache) == flushed, true);
  const kvaxis::tile& last = *cache.view().entries[cache.view().entry_count - 1].tile;
  const std::string folded(reinterpret_cast<const char*>(last.data()), last.bytes);
  kvaxis::check(data.append_to(cache, 100, 37));  // a new tile, at the next position
  EXPECT_EQ(cache.size(), 137);
  EXPECT_EQ(cache.next_position(), 137);
  EXPECT_EQ(cache.view().entries[cache.view().entry_count - 1].base_position, cache.format()->tokens < 37 ? 132 : 100);
  EXPECT_EQ(folded.compare(0, folded.size(), reinterpret_cast<const char*>(last.data()), last.bytes), 0);
}

INSTANTIATE_TEST_SUITE_P(policies, Bytes, ::testing::ValuesIn(policies), test::policy_test_name);

// Unused slots of a short tile that folds hold code 0, and its parameters are those of its own tokens.
TEST(ShortTile, folds_like_a_full_one_and_its_unused_slots_hold_code_0) {
  for (const char* const name : {"k:int4-channel64-pre,v:int4-token32", "k:int8s-channel32-tile,v:int8-channel32",
                                 "k:e4m3-token16-pre,v:int8s-token16", "k:f32,v:f16"}) {
    kvaxis::cache_config c = test::rope_shape(2, 24);
    c.window = 0;
    c.pins = 0;
    kvaxis::any_kv_cache cache = test::cache_of(name, c);
    const test::tokens data(c, 20, 7);
    const test::tokens first(c, 64, 8);
    first.append_all_to(cache);  // the memory of its tiles serves again
    cache.clear();
    kvaxis::check(data.append_to(cache, 0, 17, 5));
    EXPECT_EQ(cache.folded_tokens(), 0);
    kvaxis::check(data.append_to(cache, 17, 3, 100));
    ASSERT_EQ(cache.folded_tokens(), 17) << name;
    const kvaxis::tile& t = *cache.view().entries[0].tile;
    const kvaxis::tile_format& f = *cache.format();
    const auto codes_are_zero = [&](const kvaxis::block_layout& b, const std::byte* block, bool tokens_are_lanes) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(block);
      const int quad_words = kvaxis::quad_words(b.bits, b.lanes);
      for (int row = 0; row < b.rows; ++row) {
        for (int lane = 0; lane < b.lanes; ++lane) {
          if ((tokens_are_lanes ? lane : row) < 17 && row < b.used_rows && lane < b.used_lanes) continue;
          const std::uint32_t code = kvaxis::unpack_code(b.bits, b.lanes, words + row / 4 * quad_words, row % 4, lane);
          ASSERT_EQ(code, 0U) << name << " row " << row << " lane " << lane;
        }
      }
    };
    for (int h = 0; h < 2; ++h) {
      codes_are_zero(f.key, t.key_block(h), true);
      codes_are_zero(f.value, t.value_block(h), false);
    }
  }
}

// Positions only shift the rotation: attention from the same distance gives the same numbers, at negative positions too;
// the same bits where queries and tokens move by a multiple of 32, to which queries are rotated first.
TEST(Positions, may_be_negative_and_only_distances_count) {
  kvaxis::cache_config c = test::rope_shape(2, 32);
  c.window = 30;
  const test::tokens data(c, 150, 9);
  const std::vector<float> q = test::numbers(10).uniforms(2 * 32);
  std::vector<float> want;
  for (const std::int64_t base : {0, -32, -160, -1000000, 1000000, -1, -150, 1000001}) {
    kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-auto,v:int8-token32", c);
    data.append_all_to(cache, base);
    EXPECT_EQ(cache.next_position(), base + 150);
    EXPECT_EQ(cache.view().entries[0].base_position, base);
    const std::vector<float> out = test::attend(cache, q, 1, base + 150).out;
    if (want.empty()) want = out;
    const float bound = base % 32 == 0 ? 0.0F : 2e-6F;
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], want[i], bound) << "base " << base;
  }
}

}  // namespace
