// Every allocation of every list operation refused in turn: the answer is out_of_memory and nothing has changed.
#include <gtest/gtest.h>

#include <functional>
#include <kvaxis/cache/sequence.hpp>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::any_kv_cache;
using kvaxis::errc;
using kvaxis::status;

constexpr const char* policy = "k:int8-channel32-auto,v:int8-token16";
constexpr const char* older = "k:int4-channel32-auto,v:int4-token16";

kvaxis::cache_config config() {
  kvaxis::cache_config c = test::rope_shape(2, 16);
  c.tile_tokens = 32;
  c.window = 40;
  c.pins = 3;
  const test::policies p = test::find(older);
  c.older_tiers_count = 1;
  c.older_tiers[0] = {p.keys, p.values, 80};
  return c;
}

// 16 entries, so that the list is full: pins, tiles, and single tokens between gaps.
void fill(any_kv_cache& cache) {
  const test::tokens t(config(), 300, 1);
  kvaxis::check(t.append_to(cache, 0, 250));
  for (int i = 0; cache.view().entry_count < 16; ++i) kvaxis::check(t.append_to(cache, 250 + i, 1, 1000 + 2 * i));
}

// The whole state of a cache but its spare memory and the room in its list, which a refused call may have grown.
std::string state(const any_kv_cache& cache) { return test::contents(cache); }

using operation = std::function<status(any_kv_cache&, const any_kv_cache&)>;

// Runs an operation with the first, the second ... allocation refused, until none is; each on caches of its own.
void refuse_each(const operation& run, int at_least) {
  int refused = 0;
  for (int allowed = 0;; ++allowed) {
    counting_allocator memory;
    any_kv_cache cache = test::cache_of(policy, config(), memory.hook());
    any_kv_cache other = test::cache_of(policy, config(), memory.hook());
    fill(cache);
    fill(other);
    any_kv_cache fork;
    kvaxis::check(cache.fork(fork));
    const std::string before = test::snapshot(cache);
    memory.fail_after = memory.calls + allowed;
    const status s = run(cache, other);
    memory.fail_after = -1;
    if (s.ok()) break;
    ++refused;
    ASSERT_EQ(s.code, errc::out_of_memory);
    ASSERT_GT(s.limit, 0);
    ASSERT_EQ(test::snapshot(cache), before) << "allocation " << allowed;
    ASSERT_EQ(state(fork), state(cache));
    kvaxis::check(run(cache, other));  // and once more with memory
  }
  EXPECT_GE(refused, at_least);
}

const test::tokens& more_tokens() {
  static const test::tokens t(config(), 100, 7);
  return t;
}

TEST(OutOfMemory, append_to_a_shared_tile) {
  refuse_each([](any_kv_cache& c, const any_kv_cache&) { return more_tokens().append_to(c, 0, 1); }, 1);
  refuse_each([](any_kv_cache& c, const any_kv_cache&) { return more_tokens().append_to(c, 0, 100); }, 5);
}

TEST(OutOfMemory, erase) {
  refuse_each([](any_kv_cache& c, const any_kv_cache&) { return c.erase(20, 5); }, 1);
}

TEST(OutOfMemory, move) {
  refuse_each([](any_kv_cache& c, const any_kv_cache&) { return c.move(20, 5, 3); }, 1);
}

TEST(OutOfMemory, splice) {
  refuse_each([](any_kv_cache& c, const any_kv_cache& other) { return c.splice(100, other, 10, 100, 50); }, 1);
}

TEST(OutOfMemory, fork) {
  refuse_each(
      [](any_kv_cache& c, const any_kv_cache&) {
        any_kv_cache out;
        const status s = c.fork(out);
        EXPECT_EQ(out.format() == nullptr, !s.ok());
        return s;
      },
      1);
}

TEST(OutOfMemory, flush_and_fold_after_a_fork) {
  refuse_each(
      [](any_kv_cache& c, const any_kv_cache&) {
        any_kv_cache fork;
        kvaxis::status s = c.fork(fork);
        return s.ok() ? fork.flush() : s;
      },
      3);
}

// Needs no memory at all.
TEST(OutOfMemory, truncate_keep_last_and_clear_always_work) {
  counting_allocator memory;
  any_kv_cache cache = test::cache_of(policy, config(), memory.hook());
  fill(cache);
  memory.fail_after = memory.calls;
  kvaxis::check(cache.truncate(200));
  kvaxis::check(cache.keep_last(20));
  EXPECT_EQ(cache.size(), 23);
  cache.clear();
  EXPECT_EQ(cache.size(), 0);
  memory.fail_after = -1;
}

// Tile by tile: what was done stays, every token still reads back, and the next call does the rest.
TEST(OutOfMemory, demote_goes_on_where_it_stopped) {
  counting_allocator memory;
  any_kv_cache whole = test::cache_of(policy, config());
  fill(whole);
  kvaxis::check(whole.demote());
  for (int allowed = 0; allowed < 4; ++allowed) {
    any_kv_cache cache = test::cache_of(policy, config(), memory.hook());
    fill(cache);
    memory.fail_after = memory.calls + allowed;
    EXPECT_EQ(cache.demote().code, errc::out_of_memory);
    memory.fail_after = -1;
    EXPECT_EQ(cache.size(), whole.size());
    kvaxis::check(cache.demote());
    EXPECT_EQ(state(cache), state(whole));
  }
}

TEST(OutOfMemory, a_sequence_changes_all_layers_or_none) {
  const test::policies p = test::find(policy);
  const kvaxis::layer_config layer{config(), p.keys, p.values};
  const kvaxis::layer_config layers[] = {layer, layer, layer};
  using change = std::function<status(kvaxis::sequence&, const kvaxis::sequence&)>;
  const std::vector<change> changes = {
      [](kvaxis::sequence& s, const kvaxis::sequence&) { return s.erase(20, 25); },
      [](kvaxis::sequence& s, const kvaxis::sequence&) { return s.move(20, 25, 2000); },
      [](kvaxis::sequence& s, const kvaxis::sequence& other) { return s.splice(other, 10, 100, 5000); },
      [](kvaxis::sequence& s, const kvaxis::sequence&) { return s.flush(); },
      [](kvaxis::sequence& s, const kvaxis::sequence&) {
        kvaxis::sequence out;
        const status answer = s.fork(out);
        EXPECT_EQ(out.layers(), answer.ok() ? 3 : 0);
        return answer;
      },
  };
  for (const change& run : changes) {
    int refused = 0;
    for (int allowed = 0;; ++allowed) {
      counting_allocator memory;
      kvaxis::sequence sequence;
      kvaxis::sequence other;
      kvaxis::check(kvaxis::sequence::create(layers, 3, memory.hook(), sequence));
      kvaxis::check(kvaxis::sequence::create(layers, 3, memory.hook(), other));
      std::vector<std::string> before;
      for (int i = 0; i < 3; ++i) {
        fill(sequence[i]);
        fill(other[i]);
        before.push_back(state(sequence[i]));
      }
      memory.fail_after = memory.calls + allowed;
      const status s = run(sequence, other);
      memory.fail_after = -1;
      if (s.ok()) break;
      ++refused;
      for (int i = 0; i < 3; ++i) ASSERT_EQ(state(sequence[i]), before[static_cast<std::size_t>(i)]);
    }
    EXPECT_GE(refused, 3);
  }
  counting_allocator memory;
  for (int allowed = 0; allowed < 10; ++allowed) {  // a table per layer and tier, scratch, and the array
    memory.fail_after = memory.calls + allowed;
    kvaxis::sequence sequence;
    EXPECT_EQ(kvaxis::sequence::create(layers, 3, memory.hook(), sequence).code, errc::out_of_memory);
    EXPECT_EQ(memory.live_blocks, 0);
  }
}

}  // namespace
