// Several threads on one cache, and several caches on several threads; run under ThreadSanitizer as well.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "policies.hpp"
#include "threads.hpp"
#include "tokens.hpp"

namespace {

const char* const policy = "k:int4-channel32-auto,v:int4-token16";

kvaxis::any_kv_cache filled(const kvaxis::cache_config& c, std::uint64_t seed) {
  kvaxis::any_kv_cache cache = test::cache_of(policy, c);
  test::tokens(c, 700, seed).append_all_to(cache);
  return cache;
}

// A pool as an engine has it: threads that wait for tasks.
class engine_threads {
 public:
  explicit engine_threads(int n) : threads_(n) {}
  void operator()(int n, kvaxis::task f) const {
    std::atomic<int> next{0};
    test::on_threads(threads_, [&](int) {
      for (int i = next++; i < n; i = next++) f(i);
    });
  }

 private:
  int threads_;
};

TEST(Threads, attend_on_one_cache_at_the_same_time) {
  const kvaxis::cache_config c = test::rope_shape(2, 32);
  const kvaxis::any_kv_cache cache = filled(c, 1);
  kvaxis::attend_options o;
  o.query_heads = 4;
  const std::vector<float> q = test::numbers(2).uniforms(3 * 4 * 32);
  const test::attention want = test::attend(cache, q, 3, 700, o);
  const std::vector<float> logits = test::scores(cache, q, 3, 700, o);
  const std::vector<float> sums = test::weighted_sum(cache, std::vector<float>(3 * 4 * 700, 0.01F), 3, o);
  std::vector<float> key(32);
  kvaxis::check(cache.read_key(50, 1, key.data()));
  std::atomic<int> right{0};
  test::on_threads(2, [&](int) {
    for (int round = 0; round < 10; ++round) {
      const test::attention got = test::attend(cache, q, 3, 700, o);
      right += got.out == want.out && got.lse == want.lse ? 1 : 0;
      right += test::scores(cache, q, 3, 700, o) == logits ? 1 : 0;
      right += test::weighted_sum(cache, std::vector<float>(3 * 4 * 700, 0.01F), 3, o) == sums ? 1 : 0;
      std::vector<float> read(32);
      right += cache.read_key(50, 1, read.data()).ok() && read == key && cache.bytes().total() > 0 ? 1 : 0;
    }
  });
  EXPECT_EQ(right, 2 * 10 * 4);
}

TEST(Threads, tasks_of_one_attend) {
  const kvaxis::any_kv_cache cache = filled(test::rope_shape(4, 32), 3);
  for (const int n_query : {1, 6, 70}) {
    const std::vector<float> q = test::numbers(4).uniforms(static_cast<std::size_t>(n_query * 4 * 32));
    const test::attention want = test::attend(cache, q, n_query, 700, {});
    for (const int threads : {2, 3, 4}) {
      const engine_threads pool(threads);
      const test::attention got = test::attend(cache, q, n_query, 700, {}, pool);
      EXPECT_EQ(got.out, want.out) << threads;
      EXPECT_EQ(got.lse, want.lse) << threads;
    }
  }
}

TEST(Threads, tasks_of_one_attend_on_latent_values) {
  kvaxis::cache_config c = test::shape(1, 80, 64);
  kvaxis::check(kvaxis::make_rope({80, 16, 64, 10000.0, kvaxis::rope_layout::interleaved, {}}, c.rope));
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-auto,v:latent", c);
  test::tokens(c, 5000, 3).append_all_to(cache);
  kvaxis::attend_options o;
  o.query_heads = 16;
  o.scale = 0.15F;
  for (const int n_query : {1, 6}) {
    const std::vector<float> q = test::numbers(4).uniforms(static_cast<std::size_t>(n_query * 16 * 80));
    const test::attention want = test::attend(cache, q, n_query, 5000, o);
    const test::attention got = test::attend(cache, q, n_query, 5000, o, engine_threads(3));
    EXPECT_EQ(got.out, want.out);
    EXPECT_EQ(got.lse, want.lse);
  }
}

// The first use of everything from two threads at once, on caches of different shapes that share nothing.
TEST(Threads, caches_of_their_own) {
  struct engine {
    kvaxis::cache_config config;
    std::string policy;
    std::vector<float> out;
  };
  const auto run = [](const engine& e) {
    kvaxis::any_kv_cache cache = test::cache_of(e.policy, e.config);
    const test::tokens data(e.config, 300, 5);
    std::vector<float> out;
    for (int i = 0; i < 300; i += 50) {
      kvaxis::check(data.append_to(cache, i, 50));
      out = test::attend(cache, std::vector<float>(data.key_width, 0.25F), 1, i + 50).out;
    }
    return out;
  };
  engine engines[] = {{test::rope_shape(2, 64), policy, {}},
                      {test::rope_shape(1, 128), "k:e4m3-token16-pre,v:f16", {}}};
  test::on_threads(2, [&](int i) { engines[i].out = run(engines[i]); });
  for (const engine& e : engines) EXPECT_EQ(e.out, run(e));
}

// Caches come from one thread and go on another, with memory from one allocator.
TEST(Threads, a_cache_may_end_on_another_thread) {
  std::atomic<int> live{0};
  const kvaxis::allocator memory{[](void* context, std::size_t bytes, std::size_t alignment) noexcept {
                                   ++*static_cast<std::atomic<int>*>(context);
                                   return kvaxis::allocator::default_allocate(nullptr, bytes, alignment);
                                 },
                                 [](void* context, void* p, std::size_t bytes, std::size_t alignment) noexcept {
                                   --*static_cast<std::atomic<int>*>(context);
                                   kvaxis::allocator::default_deallocate(nullptr, p, bytes, alignment);
                                 },
                                 &live};
  test::on_threads(2, [&](int thread) {
    const kvaxis::cache_config c = test::rope_shape(1, 16);
    for (int round = 0; round < 20; ++round) {
      kvaxis::any_kv_cache cache = test::cache_of(policy, c, memory);
      test::tokens(c, 200, static_cast<std::uint64_t>(thread)).append_all_to(cache);
      std::thread([taken = std::move(cache)]() mutable { taken = kvaxis::any_kv_cache(); }).join();
    }
  });
  EXPECT_EQ(live, 0);
}

}  // namespace
