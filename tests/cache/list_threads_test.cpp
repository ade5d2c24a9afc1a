// Threads that share tiles: each has forks of one parent and does to them what it likes, all on one pool. What comes out
// is what each does alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <kvaxis/cache/pool.hpp>
#include <string>
#include <vector>

#include "policies.hpp"
#include "threads.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::any_kv_cache;

constexpr const char* policy = "k:int8-channel32-auto,v:int8-token16";

kvaxis::cache_config config() {
  kvaxis::cache_config c = test::rope_shape(1, 16);
  c.tile_tokens = 32;
  c.window = 40;
  c.pins = 3;
  const test::policies older = test::find("k:int4-channel32-auto,v:int4-token16");
  c.older_tiers_count = 1;
  c.older_tiers[0] = {older.keys, older.values, 90};
  return c;
}

// Random operations on three forks; the answer is all that they hold in the end, and what attention gave on the way.
std::string work(const any_kv_cache& parent, std::uint64_t seed, int steps) {
  test::numbers random(seed);
  const kvaxis::cache_config c = config();
  any_kv_cache caches[3];
  std::string result;
  for (any_kv_cache& cache : caches) kvaxis::check(parent.fork(cache));
  const test::tokens t(c, 80, seed + 100);
  std::vector<std::byte> memory;
  for (int step = 0; step < steps; ++step) {
    any_kv_cache& cache = caches[random.below(3)];
    any_kv_cache& other = caches[random.below(3)];
    const auto size = static_cast<int>(cache.size());
    switch (random.below(9)) {
      case 0:
      case 1: kvaxis::check(t.append_to(cache, 0, 1 + random.below(70))); break;
      case 2: kvaxis::check(cache.truncate(size - random.below(std::min(size, 40) + 1))); break;
      case 3: kvaxis::check(cache.erase(size / 2, std::min(size - size / 2, random.below(20)))); break;
      case 4: kvaxis::check(cache.move(size / 3, size - size / 3, random.below(40) - 20)); break;
      case 5: kvaxis::check(cache.keep_last(100 + random.below(100))); break;
      case 6: kvaxis::check(parent.fork(other)); break;
      case 7: kvaxis::check(cache.demote()); break;
      default:
        if (&cache != &other)
          kvaxis::check(cache.splice(size, other, 0, std::min<std::int64_t>(50, other.size()), size));
    }
    if (step % 8 == 0) {
      const std::vector<float> q = random.uniforms(16);
      std::vector<float> out(16);
      kvaxis::attend_options o;
      memory.resize(cache.workspace_bytes(1, o));
      kvaxis::check(
          cache.attend(q.data(), 1, cache.next_position(), o, out.data(), nullptr, {memory.data(), memory.size()}));
      result.append(reinterpret_cast<const char*>(out.data()), 64);
    }
  }
  for (const any_kv_cache& cache : caches) result += test::contents(cache);
  return result;
}

TEST(ListThreads, forks_of_one_parent_do_not_notice_each_other) {
  constexpr int threads = 4;
  constexpr int steps = 400;
  kvaxis::tile_pool pool(std::size_t{1} << 30);
  {
    any_kv_cache parent = test::cache_of(policy, config(), pool.memory());
    test::tokens(config(), 300, 1).append_all_to(parent);
    const std::string before = test::contents(parent);
    std::vector<std::string> alone;
    for (std::uint64_t i = 0; i < threads; ++i) alone.push_back(work(parent, i, steps));
    std::vector<std::string> together(threads);
    test::on_threads(threads, [&](int i) {
      together[static_cast<std::size_t>(i)] = work(parent, static_cast<std::uint64_t>(i), steps);
    });
    EXPECT_EQ(together, alone);
    EXPECT_EQ(test::contents(parent), before);
    EXPECT_EQ(pool.counts().used, parent.bytes().total());
  }
  EXPECT_EQ(pool.counts().used, 0U);
}

}  // namespace
