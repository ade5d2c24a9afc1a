// Saving lists that were rolled back, cut, moved, spliced and demoted, and streams of sequences to which that happens.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "counting_allocator.hpp"
#include "policies.hpp"
#include "saved_files.hpp"

namespace {

using kvaxis::any_kv_cache;

kvaxis::cache_config config_of(const char* older) {
  kvaxis::cache_config c = test::rope_shape(2, 16);
  c.tile_tokens = 32;
  c.window = 20;
  c.pins = 3;
  if (older != nullptr) {
    const test::policies p = test::find(older);
    c.older_tiers_count = 2;
    c.older_tiers[0] = {p.keys, p.values, 60};
    c.older_tiers[1] = {test::find("k:int4s-token16-tile,v:f16").keys, p.values, 100};
  }
  return c;
}

struct setting {
  const char* policy;
  const char* older;
};
class Lists : public ::testing::TestWithParam<setting> {
 protected:
  Lists() : config_(config_of(GetParam().older)), data_(config_, 400, 1, 0.5F, 0.5F) {}

  [[nodiscard]] any_kv_cache empty(const kvaxis::allocator& memory = {}) const {
    return test::cache_of(GetParam().policy, config_, memory);
  }
  // The cache out of a file of it, which saves as the same bytes again.
  [[nodiscard]] any_kv_cache restored(const any_kv_cache& cache, const kvaxis::allocator& memory = {}) const {
    const test::bytes file = test::save(cache);
    EXPECT_EQ(file.size(), test::saved_bytes(cache));
    any_kv_cache copy = empty(memory);
    const kvaxis::status s = test::restore(file, copy);
    EXPECT_TRUE(s.ok()) << s.argument << " " << s.limit;
    EXPECT_EQ(test::contents(copy) == test::contents(cache), true);
    EXPECT_EQ(test::save(copy) == file, true);
    return copy;
  }

  kvaxis::cache_config config_;
  test::tokens data_;
};

// Two caches to which the same happens; one of them goes through a file all the time.
TEST_P(Lists, random_operations_on_a_cache_and_on_its_restored_copy) {
  counting_allocator memory;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    test::numbers random(seed);
    any_kv_cache source = empty();  // of splices
    data_.append_all_to(source);
    any_kv_cache pair[2] = {empty(), empty(memory.hook())};
    for (int step = 0; step < 400; ++step) {
      const auto size = static_cast<int>(pair[0].size());
      const int operation = random.below(9);
      const int first = random.below(size + 1);
      const int count = random.below(std::min(size - first, 60) + 1);
      const int n = 1 + random.below(40);
      const std::int64_t delta = random.below(2000) - 1000;
      for (any_kv_cache& c : pair) {
        kvaxis::status s;
        if (size > 300) {
          s = c.truncate(n);
        } else if (operation < 3) {
          s = data_.append_to(c, n, n, operation == 0 ? delta : kvaxis::next);
        } else if (operation == 3) {
          s = c.truncate(size - count);
        } else if (operation == 4) {
          s = c.erase(first, count);
        } else if (operation == 5) {
          s = c.move(first, count, delta);
        } else if (operation == 6) {
          s = c.splice(std::max(first, 3), source, n, n, delta);
        } else if (operation == 7) {
          s = c.demote();
        } else {
          s = c.flush();
        }
        static_cast<void>(s);  // what one refuses, so does the other
      }
      ASSERT_EQ(test::contents(pair[0]) == test::contents(pair[1]), true) << step << ", operation " << operation;
      if (step % 3 == 0) pair[1] = restored(pair[1], memory.hook());
      if (HasFailure()) return;
    }
  }
}

TEST_P(Lists, B39_tiles_that_two_entries_share_stay_shared) {
  any_kv_cache cache = empty();
  kvaxis::check(data_.append_to(cache, 0, 200));
  kvaxis::check(cache.erase(50, 3));   // in a folded tile
  kvaxis::check(cache.erase(193, 2));  // in the open one
  const int tiles = 1 + 197 / 32 + 1;
  const int entries = cache.view().entry_count;
  ASSERT_GT(entries, tiles);
  const any_kv_cache copy = restored(cache);
  EXPECT_EQ(copy.bytes().folded, cache.bytes().folded);
  EXPECT_EQ(copy.bytes().exact, cache.bytes().exact);
  EXPECT_EQ(copy.view().entries[entries - 1].tile, copy.view().entries[entries - 2].tile);
}

TEST_P(Lists, B38_a_fork_is_saved_on_its_own) {
  any_kv_cache cache = empty();
  kvaxis::check(data_.append_to(cache, 0, 150));
  any_kv_cache fork;
  kvaxis::check(cache.fork(fork));
  kvaxis::check(data_.append_to(fork, 150, 100));
  const any_kv_cache copy = restored(fork);
  kvaxis::check(data_.append_to(cache, 200, 100));
  EXPECT_EQ(test::contents(copy) == test::contents(fork), true);
  static_cast<void>(restored(cache));
  // Into a cache that shares its tiles with another one.
  any_kv_cache target;
  kvaxis::check(cache.fork(target));
  const std::string before = test::contents(cache);
  kvaxis::check(test::restore(test::save(fork), target));
  EXPECT_EQ(test::contents(target) == test::contents(fork), true);
  EXPECT_EQ(test::contents(cache) == before, true);
}

TEST_P(Lists, B33_B34_rolled_back_while_it_is_sent) {
  any_kv_cache from = empty();
  const any_kv_cache* layer = &from;
  kvaxis::cache_writer writer;
  kvaxis::check(kvaxis::cache_writer::create(&layer, 1, {}, writer));
  test::memory_sink sink;
  kvaxis::check(data_.append_to(from, 0, 200));
  kvaxis::check(writer.send_new(sink));
  const std::size_t sent = sink.file.size();
  kvaxis::check(from.truncate(70));  // tiles that were sent are dropped, and their memory is used for others
  kvaxis::check(data_.append_to(from, 300, 100));
  kvaxis::check(from.demote());
  kvaxis::check(writer.send_new(sink));
  EXPECT_GT(sink.file.size(), sent);
  kvaxis::check(from.truncate(150));
  kvaxis::check(from.erase(20, 5));
  kvaxis::check(data_.append_to(from, 100, 60));
  kvaxis::check(writer.finish(sink));
  counting_allocator memory;
  any_kv_cache to = empty(memory.hook());
  kvaxis::check(test::restore(sink.file, to));
  EXPECT_EQ(test::contents(to) == test::contents(from), true);
  EXPECT_EQ(test::save(to) == test::save(from), true);
  EXPECT_LT(test::save(from).size(), sink.file.size());
  // Of what was dropped, nothing has stayed.
  EXPECT_EQ(memory.live_bytes, to.bytes().total());
}

// A writer keeps tiles that it has sent, so that an address cannot mean another tile; a finished one keeps nothing.
TEST_P(Lists, a_writer_holds_tiles_until_it_is_finished) {
  counting_allocator memory;
  any_kv_cache cache = empty(memory.hook());
  kvaxis::check(data_.append_to(cache, 0, 300));
  const any_kv_cache* layer = &cache;
  kvaxis::cache_writer writer;
  kvaxis::check(kvaxis::cache_writer::create(&layer, 1, {}, writer));
  test::memory_sink sink;
  kvaxis::check(writer.send_new(sink));
  cache = any_kv_cache();
  EXPECT_GT(memory.live_blocks, 200 / 32);
  writer = {};
  EXPECT_EQ(memory.live_blocks, 0);

  cache = empty(memory.hook());
  kvaxis::check(data_.append_to(cache, 0, 300));
  const std::size_t held = memory.live_bytes;
  const kvaxis::tile* open = cache.view().entries[cache.view().entry_count - 1].tile;
  kvaxis::check(kvaxis::cache_writer::create(&layer, 1, {}, writer));
  kvaxis::check(writer.finish(sink));
  EXPECT_EQ(memory.live_bytes, held);
  EXPECT_EQ(open->references.load(), 1);
}

// Head by head, cut and demoted lists too.
TEST_P(Lists, a_share_of_the_heads) {
  any_kv_cache cache = empty();
  kvaxis::check(data_.append_to(cache, 0, 300));
  kvaxis::check(cache.demote());
  kvaxis::check(cache.erase(33, 50));
  kvaxis::check(cache.move(40, 60, -7));
  kvaxis::cache_reader readers[2];
  any_kv_cache copy = empty();
  any_kv_cache* layer = &copy;
  for (int h = 0; h < 2; ++h) {
    kvaxis::save_options o;
    o.first_head = h;
    o.end_head = h + 1;
    const test::bytes file = test::save(cache, o);
    kvaxis::check(kvaxis::cache_reader::create(&layer, 1, {}, readers[h]));
    kvaxis::check(readers[h].accept(file.data(), file.size()));
  }
  kvaxis::check(readers[1].join(readers[0]));
  kvaxis::check(readers[1].commit());
  EXPECT_EQ(test::contents(copy) == test::contents(cache), true);
}

INSTANTIATE_TEST_SUITE_P(
    policy, Lists,
    ::testing::Values(setting{"k:int4-channel32-auto,v:int4-token16", nullptr},
                      setting{"k:int8-channel32-hot3,v:int8-token16", "k:int4-channel32-auto,v:int4-token16"},
                      setting{"k:f32-pre,v:int8f32-channel32", "k:int8f32-channel32-hot1,v:e4m3-token16"}),
    [](const auto& p) { return "kind" + std::to_string(p.index); });

// --- Tiers -----------------------------------------------------------------------------------------------------------

TEST(Tiers, B41_are_a_part_of_the_description) {
  const std::string policy = "k:int8-channel32-hot3,v:int8-token16";
  const auto filled = [&](const kvaxis::cache_config& c) {
    any_kv_cache cache = test::cache_of(policy, c);
    test::tokens(c, 200, 1).append_all_to(cache);
    kvaxis::check(cache.demote());
    return cache;
  };
  const kvaxis::cache_config tiers = config_of("k:int4-channel32-auto,v:int4-token16");
  const test::bytes file = test::save(filled(tiers));
  const auto refused = [&](const kvaxis::cache_config& c) {
    any_kv_cache cache = filled(c);
    const std::string before = test::snapshot(cache);
    const kvaxis::status s = test::restore(file, cache);
    EXPECT_EQ(test::snapshot(cache) == before, true);
    return std::string(s.argument);
  };
  EXPECT_EQ(refused(config_of(nullptr)), "file: older_tiers_count");
  kvaxis::cache_config c = tiers;
  c.older_tiers[0].newer_tokens = 61;
  EXPECT_EQ(refused(c), "file: older_tiers: newer_tokens");
  c = tiers;
  std::swap(c.older_tiers[0].keys, c.older_tiers[1].keys);
  EXPECT_EQ(refused(c), "file: key codec");
  c = tiers;
  c.older_tiers[1].values = test::find("k:f16,v:int4-token32").values;
  EXPECT_EQ(refused(c), "file: value policy: group length");
}

TEST(Tiers, of_a_tile) {
  const kvaxis::cache_config c = config_of("k:int4-channel32-auto,v:int4-token16");
  any_kv_cache cache = test::cache_of("k:int8-channel32-hot3,v:int8-token16", c);
  test::tokens(c, 200, 1).append_all_to(cache);
  kvaxis::check(cache.demote());
  const test::bytes file = test::save(cache);
  const std::size_t second = test::payload_of(file, "tile", 1);  // behind the pins
  ASSERT_EQ(file[second + 5], std::byte{2});
  const auto with_tier = [&](int tier) {
    return std::string(
        test::restore(test::with_number(file, second + 5, static_cast<std::uint8_t>(tier)), cache).argument);
  };
  EXPECT_EQ(with_tier(3), "file: tier of a tile");
  EXPECT_EQ(with_tier(255), "file: tier of a tile");
  EXPECT_EQ(with_tier(1), "file: size of a tile");
  EXPECT_EQ(with_tier(0), "file: size of a tile");
  const std::size_t pins = test::payload_of(file, "tile", 0);
  EXPECT_EQ(test::restore(test::with_number(file, pins + 5, std::uint8_t{1}), cache).argument,
            std::string("file: tier of a tile"));
}

// Numbers that a new token may not have, so that an older tier can take it, are not taken out of a file either.
TEST(Tiers, limits_of_older_tiers_hold_for_files) {
  kvaxis::cache_config c = config_of(nullptr);
  c.window = 0;
  c.pins = 0;
  any_kv_cache wide = test::cache_of("k:int8f32-token16-pre,v:f32", c);
  std::vector<float> big(static_cast<std::size_t>(32 * 2 * 16), 1e5F);
  kvaxis::check(wide.append(big.data(), big.data(), 32));
  const test::policies p = test::find("k:int4-token16-pre,v:f32");
  c.older_tiers_count = 1;
  c.older_tiers[0] = {p.keys, p.values, 10};
  any_kv_cache narrow = test::cache_of("k:int8f32-token16-pre,v:f32", c);
  ASSERT_FALSE(narrow.append(big.data(), big.data(), 32).ok());
  const std::vector<float> small(big.size(), 1.0F);
  kvaxis::check(narrow.append(small.data(), small.data(), 32));
  const test::bytes file = test::save(narrow);
  // The parameters of the first head's keys: 32 scales, 32 offsets.
  const std::size_t offset = test::payload_of(file, "tile") + 20 + 16 * 32 + 32 * 4;
  EXPECT_TRUE(test::restore(test::with_number(file, offset, kvaxis::float_bits(30000.0F)), narrow).ok());
  EXPECT_EQ(test::restore(test::with_number(file, offset, kvaxis::float_bits(1e5F)), narrow).argument,
            std::string("file: scale or offset"));
}

}  // namespace
