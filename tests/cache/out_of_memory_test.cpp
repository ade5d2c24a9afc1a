// The allocator may fail at any call: then errc::out_of_memory, nothing has changed, and trying again later works.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

const std::vector<std::string> policies = {"k:int4-channel32-auto,v:int4-token64",
                                           "k:int8-tensor@0.01,-1.3-post,v:f16"};

class OutOfMemory : public ::testing::TestWithParam<std::string> {
 protected:
  OutOfMemory() {
    config_.window = 50;
    config_.pins = 6;
    config_.tile_tokens = 32;
  }
  [[nodiscard]] kvaxis::any_kv_cache make(counting_allocator& memory) const {
    kvaxis::any_kv_cache cache;
    kvaxis::check(test::make_cache(GetParam(), config_, memory.hook(), cache));
    return cache;
  }

  // Runs `call` on caches prepared by `setup`, with an allocator that serves 0, 1, 2, ... further calls, until it
  // succeeds. Answers how many it needs.
  template <class Setup, class Call>
  int fail_at_every_allocation(const Setup& setup, const Call& call) const {
    counting_allocator plenty;
    kvaxis::any_kv_cache want = make(plenty);
    setup(want);
    kvaxis::check(call(want));
    for (int served = 0;; ++served) {
      counting_allocator memory;
      kvaxis::any_kv_cache cache = make(memory);
      setup(cache);
      const std::string before = test::snapshot(cache);
      const std::size_t held = memory.live_bytes;
      memory.fail_after = memory.calls + served;
      const kvaxis::status s = call(cache);
      if (s.ok()) {
        EXPECT_EQ(test::contents(cache) == test::contents(want), true);
        return served;
      }
      EXPECT_EQ(s.code, kvaxis::errc::out_of_memory) << served;
      EXPECT_EQ(s.argument, std::string("allocator")) << served;
      EXPECT_GT(s.limit, 0) << served;
      EXPECT_EQ(test::snapshot(cache) == before, true) << served;
      EXPECT_EQ(memory.live_bytes, held) << served;
      EXPECT_EQ(call(cache).code, kvaxis::errc::out_of_memory) << served;
      memory.fail_after = -1;
      kvaxis::check(call(cache));
      EXPECT_EQ(test::contents(cache) == test::contents(want), true) << served;
      if (served == 1000) return -1;
    }
  }
  kvaxis::cache_config config_ = test::rope_shape(2, 40);
};

TEST_P(OutOfMemory, create_leaves_the_target_as_it_was) {
  const test::tokens data(config_, 100, 1);
  int served = 0;
  for (;; ++served) {
    counting_allocator old_memory;
    kvaxis::any_kv_cache cache = make(old_memory);
    data.append_all_to(cache);
    const std::string before = test::snapshot(cache);
    counting_allocator memory;
    memory.fail_after = served;
    const kvaxis::status s = test::make_cache(GetParam(), config_, memory.hook(), cache);
    if (s.ok()) {
      EXPECT_EQ(cache.size(), 0);
      EXPECT_EQ(old_memory.live_blocks, 0);
      cache = kvaxis::any_kv_cache();  // before the memory goes
      break;
    }
    EXPECT_EQ(s.code, kvaxis::errc::out_of_memory);
    EXPECT_EQ(s.argument, std::string("allocator"));
    EXPECT_GT(s.limit, 0);
    EXPECT_EQ(memory.live_blocks, 0);
    EXPECT_EQ(test::snapshot(cache) == before, true);
  }
  EXPECT_GT(served, 1);
}

TEST_P(OutOfMemory, append_of_many_tokens_to_an_empty_cache) {
  const test::tokens data(config_, 300, 2);
  const int served = fail_at_every_allocation([](auto&) {}, [&](auto& cache) { return data.append_to(cache, 0, 300); });
  EXPECT_GT(served, 8);
}

TEST_P(OutOfMemory, append_to_a_cache_with_an_open_tile_and_more_entries_than_the_list_has_room_for) {
  const test::tokens data(config_, 900, 3);
  const int served = fail_at_every_allocation([&](auto& cache) { kvaxis::check(data.append_to(cache, 0, 390)); },
                                              [&](auto& cache) { return data.append_to(cache, 390, 510); });
  EXPECT_GT(served, 10);
}

TEST_P(OutOfMemory, append_after_a_gap) {
  const test::tokens data(config_, 300, 4);
  const int served = fail_at_every_allocation([&](auto& cache) { kvaxis::check(data.append_to(cache, 0, 103)); },
                                              [&](auto& cache) { return data.append_to(cache, 103, 80, 1000); });
  EXPECT_GT(served, 1);
}

TEST_P(OutOfMemory, single_tokens) {
  const test::tokens data(config_, 200, 5);
  for (int n = 0; n < 200; ++n) {
    const int served = fail_at_every_allocation([&](auto& cache) { kvaxis::check(data.append_to(cache, 0, n)); },
                                                [&](auto& cache) { return data.append_to(cache, n, 1); });
    ASSERT_GE(served, 0);
    ASSERT_LE(served, 3);
  }
}

TEST_P(OutOfMemory, deferred_append_and_fold) {
  const test::tokens data(config_, 300, 6);
  const auto deferred = [&](auto& cache) {
    return data.append_to(cache, 0, 300, kvaxis::next, kvaxis::fold_mode::deferred);
  };
  EXPECT_GT(fail_at_every_allocation([](auto&) {}, deferred), 8);
  const int served = fail_at_every_allocation([&](auto& cache) { kvaxis::check(deferred(cache)); },
                                              [&](auto& cache) { return cache.fold(); });
  EXPECT_EQ(served, (300 - 6 - 50) / 32);
}

TEST_P(OutOfMemory, flush) {
  const test::tokens data(config_, 150, 7);
  const int served = fail_at_every_allocation([&](auto& cache) { data.append_all_to(cache); },
                                              [&](auto& cache) { return cache.flush(); });
  EXPECT_GT(served, 1);
}

TEST_P(OutOfMemory, reserve) {
  const test::tokens data(config_, 400, 8);
  for (const int n : {0, 1, 77}) {
    const int served = fail_at_every_allocation([&](auto& cache) { kvaxis::check(data.append_to(cache, 0, n)); },
                                                [&](auto& cache) { return cache.reserve(800); });
    EXPECT_GT(served, 8);
  }
  // Memory that was reserved serves where the allocator has no more.
  counting_allocator memory;
  kvaxis::any_kv_cache cache = make(memory);
  kvaxis::check(cache.reserve(400));
  memory.fail_after = memory.calls;
  kvaxis::check(data.append_to(cache, 0, 400));
  EXPECT_EQ(data.append_to(cache, 0, 400).code, kvaxis::errc::out_of_memory);
  EXPECT_EQ(cache.size(), 400);
}

INSTANTIATE_TEST_SUITE_P(policies, OutOfMemory, ::testing::ValuesIn(policies), test::policy_test_name);

}  // namespace
