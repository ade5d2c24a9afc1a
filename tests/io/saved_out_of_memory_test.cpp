// The allocator may fail at any call of a save or a restore: then errc::out_of_memory, and nothing has changed or stays
// allocated.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "policies.hpp"
#include "saved_files.hpp"

namespace {

const std::string policy = "k:int4-channel32-auto,v:int4-token16";

kvaxis::cache_config small() {
  kvaxis::cache_config c = test::rope_shape(2, 24);
  c.window = 10;
  c.pins = 3;
  return c;
}

kvaxis::any_kv_cache filled(counting_allocator& memory, int n) {
  kvaxis::any_kv_cache cache = test::cache_of(policy, small(), memory.hook());
  test::tokens(small(), n, 1).append_all_to(cache);
  return cache;
}

// Runs `call` with an allocator that serves 0, 1, 2, ... further calls until it succeeds; how many it needs.
template <class Call>
int fail_at_every_allocation(counting_allocator& memory, const Call& call) {
  const std::size_t held = memory.live_bytes;
  for (int served = 0;; ++served) {
    memory.fail_after = memory.calls + served;
    const kvaxis::status s = call();
    memory.fail_after = -1;
    if (s.ok()) return served;
    EXPECT_EQ(s.code, kvaxis::errc::out_of_memory) << served;
    EXPECT_EQ(s.argument, std::string("allocator")) << served;
    EXPECT_GT(s.limit, 0) << served;
    EXPECT_EQ(memory.live_bytes, held) << served;
    if (served == 1000) return -1;
  }
}

TEST(SaveOutOfMemory, save_and_its_size) {
  counting_allocator memory;
  const kvaxis::any_kv_cache cache = filled(memory, 1000);  // more tiles than the first list has room for
  const std::size_t held = memory.live_bytes;
  const test::bytes want = test::save(cache);
  const kvaxis::any_kv_cache* layer = &cache;
  const int served = fail_at_every_allocation(memory, [&] {
    test::memory_sink sink;
    const kvaxis::status s = kvaxis::save(&layer, 1, {}, sink);
    EXPECT_EQ(sink.file == want, s.ok());
    return s;
  });
  EXPECT_GT(served, 2);
  std::uint64_t bytes = 0;
  EXPECT_EQ(fail_at_every_allocation(memory, [&] { return kvaxis::saved_bytes(&layer, 1, {}, bytes); }), served);
  EXPECT_EQ(bytes, want.size());
  EXPECT_EQ(memory.live_bytes, held);
}

TEST(SaveOutOfMemory, restore) {
  counting_allocator memory;
  counting_allocator other;
  const test::bytes file = test::save(filled(other, 1000));
  kvaxis::any_kv_cache cache = filled(memory, 100);
  kvaxis::any_kv_cache second = filled(memory, 50);
  const kvaxis::any_kv_cache* from[] = {&cache, &cache};
  test::memory_sink two;
  {
    kvaxis::any_kv_cache source = filled(other, 1000);
    from[0] = from[1] = &source;
    kvaxis::check(kvaxis::save(from, 2, {}, two));
  }
  const std::string before = test::snapshot(cache) + test::snapshot(second);
  kvaxis::any_kv_cache* layers[] = {&cache, &second};
  const int served = fail_at_every_allocation(memory, [&] {
    const kvaxis::status s = kvaxis::restore(two.file.data(), two.file.size(), layers, 2);
    EXPECT_EQ(test::snapshot(cache) + test::snapshot(second) == before, !s.ok());
    return s;
  });
  EXPECT_GT(served, 2 * (1000 / 32));
  for (const kvaxis::any_kv_cache* layer : layers) EXPECT_EQ(test::save(*layer) == file, true);
}

TEST(SaveOutOfMemory, everything_is_returned) {
  counting_allocator memory;
  {
    kvaxis::any_kv_cache cache = filled(memory, 300);
    const std::size_t held = memory.live_bytes;
    const test::bytes file = test::save(cache);
    EXPECT_EQ(memory.live_bytes, held);
    kvaxis::any_kv_cache* layer = &cache;
    kvaxis::cache_reader reader;
    kvaxis::check(kvaxis::cache_reader::create(&layer, 1, {}, reader));
    kvaxis::check(reader.accept(file.data(), file.size()));
    EXPECT_GT(memory.live_bytes, held);
    reader = {};
    EXPECT_EQ(memory.live_bytes, held);
    kvaxis::check(test::restore(file, cache));
    // Lists of a restored cache hold what they need, not what the file's reader needed.
    EXPECT_EQ(cache.bytes().total(), memory.live_bytes);
  }
  EXPECT_EQ(memory.live_blocks, 0);
}

}  // namespace
