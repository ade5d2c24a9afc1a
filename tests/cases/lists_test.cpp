// Cases from the field: shift, roll back, fork. The names begin with their numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "lists.hpp"

namespace {

using namespace cases;
using kvaxis::errc;

// --- Shift -----------------------------------------------------------------------------------------------------------

// The exact form of the case's bound: nothing is quantized again, so the shifted cache is bit for bit one whose tokens were
// spliced in at their new positions, and its logits are those of the true positions.
TEST(Shift, B27_drop_tokens_and_move_the_rest_down) {
  for (const char* policy : {int4_policy, "k:int8-channel32-pre,v:int8-token16", "k:e4m3-token16-tile,v:f16"}) {
    SCOPED_TRACE(policy);
    const kvaxis::cache_config c = config_of(40, 4);
    const test::tokens t(c, 250, 9);
    any_kv_cache cache = test::cache_of(policy, c);
    kvaxis::check(t.append_to(cache, 0, 200));
    any_kv_cache before;
    kvaxis::check(cache.fork(before));
    kvaxis::check(cache.erase(4, 100));
    kvaxis::check(cache.move(4, 96, -100));
    EXPECT_EQ(cache.size(), 100);
    EXPECT_EQ(cache.next_position(), 100);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(cache.position(i), i);
    EXPECT_EQ(read_all(cache, 4), read_all(before, 104));
    any_kv_cache built;
    kvaxis::check(test::cache_of(policy, c).fork(built));
    kvaxis::check(built.splice(0, before, 0, 4, 0));
    kvaxis::check(built.splice(4, before, 104, 96, 4));
    const std::vector<float> q = queries(cache, 1, 1);
    EXPECT_EQ(attend(cache, q, 99), attend(built, q, 99));
    for (any_kv_cache* one : {&cache, &built}) kvaxis::check(t.append_to(*one, 200, 50));
    EXPECT_EQ(test::contents(cache), test::contents(built));
    EXPECT_EQ(attend(cache, q, 149), attend(built, q, 149));
    expect_oracle(cache, c.rope, 149);
  }
}

TEST(Shift, B27_keys_that_came_in_rotated_refuse_to_move) {
  any_kv_cache cache = test::cache_of("k:int4-channel32-post,v:int4-token16", config_of(40, 4));
  test::tokens(config_of(40, 4), 100, 1).append_all_to(cache);
  const std::string before = test::snapshot(cache);
  const kvaxis::status s = cache.move(4, 50, -3);
  EXPECT_EQ(s.code, errc::unsupported);
  EXPECT_STREQ(s.argument, "move: the keys came in rotated (post)");
  EXPECT_EQ(test::snapshot(cache), before);
}

TEST(Shift, positions_have_limits_and_may_be_negative) {
  const kvaxis::cache_config c = config_of(40, 0);
  any_kv_cache cache = test::cache_of(int4_policy, c);
  test::tokens(c, 100, 1).append_all_to(cache);
  const std::string before = test::snapshot(cache);
  EXPECT_EQ(cache.move(0, 100, kvaxis::max_position - 98).code, errc::out_of_range);
  EXPECT_EQ(cache.move(0, 100, -kvaxis::max_position - 1).code, errc::out_of_range);
  EXPECT_EQ(cache.move(0, 100, std::numeric_limits<std::int64_t>::min()).code, errc::out_of_range);
  EXPECT_EQ(cache.move(-1, 1, 0).code, errc::out_of_range);
  EXPECT_EQ(cache.move(50, 51, 0).code, errc::out_of_range);
  EXPECT_EQ(test::snapshot(cache), before);
  kvaxis::check(cache.move(0, 100, -500));
  EXPECT_EQ(cache.position(0), -500);
  EXPECT_EQ(cache.next_position(), -400);
  expect_oracle(cache, c.rope, -401);
}

// --- Roll back -------------------------------------------------------------------------------------------------------

TEST(RollBack, B28_by_length_and_by_position_leave_the_same) {
  const kvaxis::cache_config c = config_of(20, 2);
  const test::tokens t(c, 150, 2);
  for (const bool by_position : {false, true}) {
    any_kv_cache cache = test::cache_of(int4_policy, c);
    kvaxis::check(t.append_to(cache, 0, 150, 1000));
    const std::int64_t keep = by_position ? cache.find_position(1050) : 50;
    ASSERT_EQ(keep, 50);
    kvaxis::check(cache.truncate(keep));
    for (int i = 0; i < 50; ++i) EXPECT_EQ(cache.position(i), 1000 + i);
    EXPECT_EQ(cache.next_position(), 1050);
    expect_oracle(cache, c.rope, 1050);
  }
}

TEST(RollBack, B29_a_position_that_was_asked_for_stays_what_it_was) {
  any_kv_cache cache = test::cache_of(int4_policy, config_of(20, 2));
  const test::tokens t(config_of(20, 2), 20, 2);
  kvaxis::check(t.append_to(cache, 0, 10));
  const auto position = cache.next_position();
  const auto size = cache.size();
  kvaxis::check(t.append_to(cache, 10, 10));
  EXPECT_EQ(position, 10);
  EXPECT_EQ(size, 10);
  static_assert(!std::is_reference_v<decltype(cache.next_position())>);
}

TEST(RollBack, B32_lengths_out_of_range_change_nothing) {
  any_kv_cache cache = test::cache_of(int4_policy, config_of(20, 2));
  const test::tokens t(config_of(20, 2), 20, 2);
  kvaxis::check(t.append_to(cache, 0, 10));
  const std::string before = test::snapshot(cache);
  for (const std::int64_t tokens : {std::int64_t{11}, INT64_MAX, INT64_MIN, std::int64_t{-1}, std::int64_t{-5}}) {
    const kvaxis::status s = cache.truncate(tokens);
    EXPECT_EQ(s.code, errc::out_of_range);
    EXPECT_STREQ(s.argument, "tokens");
    EXPECT_EQ(s.limit, 10);
  }
  EXPECT_EQ(cache.erase(0, 11).code, errc::out_of_range);
  EXPECT_EQ(cache.erase(11, 0).code, errc::out_of_range);
  EXPECT_EQ(cache.erase(5, -1).code, errc::out_of_range);
  EXPECT_EQ(cache.erase(5, INT64_MAX).code, errc::out_of_range);
  EXPECT_EQ(cache.keep_last(0).code, errc::out_of_range);
  EXPECT_EQ(test::snapshot(cache), before);
  kvaxis::check(cache.truncate(0));
  EXPECT_EQ(cache.size(), 0);
  kvaxis::check(t.append_to(cache, 0, 10));
  EXPECT_EQ(cache.size(), 10);
}

TEST(RollBack, B33_nothing_of_what_was_cut_off_can_be_reached) {
  kvaxis::cache_config c = config_of(500, 0);
  const auto constant = [&](any_kv_cache& cache, int n, float x) {
    const std::vector<float> rows(static_cast<std::size_t>(n * c.kv_heads * c.head_dim), x);
    kvaxis::check(cache.append(rows.data(), rows.data(), n));
  };
  any_kv_cache cache = test::cache_of(int4_policy, c);
  constant(cache, 253, 1.0F);
  kvaxis::check(cache.truncate(17));
  constant(cache, 27, 2.0F);
  any_kv_cache fresh = test::cache_of(int4_policy, c);
  constant(fresh, 17, 1.0F);
  constant(fresh, 27, 2.0F);
  EXPECT_EQ(cache.size(), 44);
  EXPECT_EQ(test::contents(cache), test::contents(fresh));
  any_kv_cache fork;
  kvaxis::check(cache.fork(fork));
  EXPECT_EQ(fork.size(), 44);
  const std::vector<float> q = queries(cache, 1, 1);
  EXPECT_EQ(attend(cache, q, 44), attend(fresh, q, 44));
  EXPECT_EQ(attend(fork, q, 44), attend(fresh, q, 44));
}

// 200 rounds of speculative decoding, with drafts 50 times as large as the true tokens. The drafts never reach a fold, so
// that no trace of them is left: the same bytes as without.
TEST(RollBack, B34_rejected_drafts_leave_no_trace) {
  const kvaxis::cache_config c = config_of(40, 4);
  const test::tokens truth(c, 1400, 3);
  const test::tokens drafts(c, 1000, 4, 50.0F, 50.0F);
  test::numbers random(5);
  any_kv_cache cache = test::cache_of(int4_policy, c);
  any_kv_cache plain = test::cache_of(int4_policy, c);
  kvaxis::check(truth.append_to(cache, 0, 100));
  int taken = 100;
  for (int round = 0; round < 200; ++round) {
    const std::int64_t size = cache.size();
    const int accepted = random.below(6);
    // The accepted ones are the true tokens.
    kvaxis::check(truth.append_to(cache, taken, accepted, kvaxis::next, kvaxis::fold_mode::deferred));
    kvaxis::check(drafts.append_to(cache, 5 * round, 5 - accepted, kvaxis::next, kvaxis::fold_mode::deferred));
    kvaxis::check(cache.truncate(size + accepted));
    taken += accepted;
    kvaxis::check(truth.append_to(cache, taken++, 1));
  }
  kvaxis::check(truth.append_to(plain, 0, taken));
  EXPECT_EQ(cache.size(), taken);
  EXPECT_EQ(test::contents(cache), test::contents(plain));
}

// The same with drafts that fold at once: tokens below the lowest cut stay bit for bit, the rest within a step.
TEST(RollBack, B34_cuts_inside_folded_tiles_keep_what_is_left) {
  const kvaxis::cache_config c = config_of(0, 0);
  const test::tokens t(c, 400, 6);
  any_kv_cache cache = test::cache_of(int4_policy, c);
  kvaxis::check(t.append_to(cache, 0, 320));
  ASSERT_EQ(cache.folded_tokens(), 320);
  const std::vector<float> before = read_all(cache, 0, 301);
  kvaxis::check(cache.truncate(301));
  EXPECT_EQ(read_all(cache), before);
  kvaxis::check(t.append_to(cache, 320, 80));
  EXPECT_EQ(cache.size(), 381);
  EXPECT_EQ(read_all(cache, 0, 301), before);
  EXPECT_EQ(cache.view().entries[9].count, 13);  // of tile 9, tokens 288 to 300
  EXPECT_EQ(cache.view().entries[10].base_position, 301);
  expect_oracle(cache, c.rope, 381);
}

// --- Fork ------------------------------------------------------------------------------------------------------------

TEST(Fork, B38_ended_in_every_order) {
  counting_allocator memory;
  const kvaxis::cache_config c = config_of(40, 4);
  const test::tokens t(c, 300, 7);
  std::array<int, 4> order = {0, 1, 2, 3};
  any_kv_cache empty = test::cache_of(int4_policy, c, memory.hook());
  const std::size_t at_start = memory.live_bytes;
  do {
    std::array<std::unique_ptr<any_kv_cache>, 4> caches;
    for (auto& cache : caches) cache = std::make_unique<any_kv_cache>();
    kvaxis::check(empty.fork(*caches[0]));
    kvaxis::check(t.append_to(*caches[0], 0, 100));
    kvaxis::check(caches[0]->fork(*caches[1]));
    kvaxis::check(caches[0]->fork(*caches[2]));
    kvaxis::check(caches[1]->fork(*caches[3]));
    std::array<any_kv_cache, 4> alone;
    for (any_kv_cache& a : alone) {
      a = test::cache_of(int4_policy, c);
      kvaxis::check(t.append_to(a, 0, 100));
    }
    for (const int end : order) {
      caches[static_cast<std::size_t>(end)].reset();
      for (std::size_t i = 0; i < 4; ++i) {
        if (caches[i] == nullptr) continue;
        const int first = 100 + 40 * static_cast<int>(i);
        kvaxis::check(t.append_to(*caches[i], first, 40));
        kvaxis::check(t.append_to(alone[i], first, 40));
        ASSERT_EQ(test::contents(*caches[i]), test::contents(alone[i]));
      }
    }
    ASSERT_EQ(memory.live_bytes, at_start);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Fork, B39_in_the_middle_of_a_tile) {
  for (const char* policy : {int4_policy, "k:int8-channel32-pre,v:int8-token16", "k:f16,v:f16"}) {
    const kvaxis::cache_config c = config_of(20, 0);
    const test::tokens t(c, 137, 8);
    const test::tokens loud(c, 60, 9, 100.0F, 100.0F);
    any_kv_cache parent = test::cache_of(policy, c);
    kvaxis::check(t.append_to(parent, 0, 77));
    any_kv_cache child;
    kvaxis::check(parent.fork(child));
    EXPECT_EQ(test::contents(parent), test::contents(child));
    const std::vector<float> before = read_all(parent);
    EXPECT_EQ(read_all(child), before);
    kvaxis::check(loud.append_to(child, 0, 60));
    EXPECT_EQ(read_all(parent), before);
    kvaxis::check(t.append_to(parent, 77, 60));
    any_kv_cache alone = test::cache_of(policy, c);
    kvaxis::check(t.append_to(alone, 0, 137));
    EXPECT_EQ(test::contents(parent), test::contents(alone));
    any_kv_cache child_alone = test::cache_of(policy, c);
    kvaxis::check(t.append_to(child_alone, 0, 77));
    kvaxis::check(loud.append_to(child_alone, 0, 60));
    EXPECT_EQ(test::contents(child), test::contents(child_alone));
  }
}

TEST(Fork, B22_a_fork_reads_with_the_scales_of_the_writer) {
  kvaxis::cache_config c = config_of(30, 0);
  const float k_scale = 30.0F / 127;
  const float v_scale = 0.02F / 127;
  c.k_scale = &k_scale;
  c.v_scale = &v_scale;
  any_kv_cache cache = test::cache_of("k:int8s-tensor-pre,v:int8s-tensor", c);
  const test::tokens t(c, 200, 1, 29.9F, 0.0199F);
  t.append_all_to(cache);
  any_kv_cache fork;
  kvaxis::check(cache.fork(fork));
  const std::vector<float> q = queries(cache, 200, 3, 0.1F);
  const std::vector<float> together = attend(cache, q, 0);
  EXPECT_EQ(together, attend(fork, q, 0));
  const std::size_t width = q.size() / 200;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::vector<float> one(q.begin() + static_cast<std::ptrdiff_t>(i * width),
                                 q.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
    const std::vector<float> alone = attend(cache, one, static_cast<std::int64_t>(i));
    for (std::size_t j = 0; j < width; ++j) ASSERT_EQ(alone[j], together[i * width + j]);
  }
  EXPECT_LT(*std::max_element(together.begin(), together.end()), 0.0201F);
}

}  // namespace
