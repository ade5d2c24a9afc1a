// No read or write outside the caller's buffers and the cache's own memory: each ends, and in a second run begins, at a
// page that cannot be touched.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "calls.hpp"
#include "guard_page.hpp"
#include "isa_test.hpp"
#include "policies.hpp"
#include "tokens.hpp"

namespace {

// Every block between pages that cannot be touched. The library asks for multiples of 64 bytes but for small tables,
// which are rounded up.
class guarded_allocator {
 public:
  explicit guarded_allocator(guard side) : side_(side) {}
  kvaxis::allocator hook() { return {&allocate, &deallocate, this}; }
  [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }

 private:
  static void* allocate(void* context, std::size_t bytes, std::size_t alignment) noexcept {
    auto& self = *static_cast<guarded_allocator*>(context);
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    auto block = std::make_unique<guard_buffer<std::byte>>(rounded, self.side_);
    void* p = block->data();
    std::memset(p, 0xFF, rounded);
    self.blocks_[p] = std::move(block);
    return p;
  }
  static void deallocate(void* context, void* p, std::size_t, std::size_t) noexcept {
    static_cast<guarded_allocator*>(context)->blocks_.erase(p);
  }
  guard side_;
  std::map<void*, std::unique_ptr<guard_buffer<std::byte>>> blocks_;
};

template <class T>
guard_buffer<T> guarded(const std::vector<T>& from, guard side) {
  return guard_buffer<T>(from.data(), from.size(), side);
}

struct call {
  int n_query;
  kvaxis::attend_options options;
  std::int64_t position;
};

// All calls on guarded buffers of exact sizes give what they give on ordinary ones.
void expect_equal_on_guarded_buffers(const kvaxis::any_kv_cache& cache, const call& c, guard side) {
  const kvaxis::tile_format& f = *cache.format();
  const int heads = c.options.query_heads == 0 ? f.kv_heads : c.options.query_heads;
  const auto rows = static_cast<std::size_t>(c.n_query * heads);
  const auto size = static_cast<std::size_t>(cache.size());
  const auto value_dim = static_cast<std::size_t>(f.value_dim);
  test::numbers random(11);
  const std::vector<float> q = random.uniforms(rows * static_cast<std::size_t>(f.head_dim));
  const std::vector<float> weights = random.uniforms(rows * size);
  guard_buffer<float> in = guarded(q, side);
  guard_buffer<float> w = guarded(weights, side);
  guard_buffer<float> out(rows * value_dim, side);
  guard_buffer<float> lse(rows, side);
  guard_buffer<float> logits(rows * size, side);
  guard_buffer<std::byte> memory(cache.workspace_bytes(c.n_query, c.options), side);
  const kvaxis::workspace workspace{memory.data(), memory.size()};
  const auto same = [](const guard_buffer<float>& got, const std::vector<float>& want) {
    return got.size() == want.size() && std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) == 0;
  };
  kvaxis::check(cache.attend(in.data(), c.n_query, c.position, c.options, out.data(), lse.data(), workspace));
  const test::attention a = test::attend(cache, q, c.n_query, c.position, c.options);
  EXPECT_TRUE(same(out, a.out));
  EXPECT_TRUE(same(lse, a.lse));
  kvaxis::check(cache.scores(in.data(), c.n_query, c.position, c.options, logits.data(), workspace));
  EXPECT_TRUE(same(logits, test::scores(cache, q, c.n_query, c.position, c.options)));
  kvaxis::check(cache.weighted_sum(w.data(), c.n_query, c.options, out.data(), workspace));
  EXPECT_TRUE(same(out, test::weighted_sum(cache, weights, c.n_query, c.options)));
}

struct setting {
  std::string policy;
  bool half = false;
};
const std::vector<setting> settings = {
    {"k:int4-channel32-pre,v:int4-token64"},        {"k:int8-channel32-auto,v:int8-channel32"},
    {"k:int4-token16-tile,v:e4m3-token16", true},   {"k:int3-channel32-hot2x5-lsq,v:int5-hadamard-token16"},
    {"k:int5-token16-tile,v:int6-channel32", true}, {"k:f16,v:f32"}};

// 1 to 65 tokens: up to two folded tiles, and what remains in full precision. The settings take turns.
void guard_all_calls(guard side) {
  for (const int dim : {8, 20, 40, 46, 64, 72, 80, 96, 100}) {
    guarded_allocator memory(side);
    std::vector<kvaxis::any_kv_cache> caches;
    kvaxis::cache_config c = test::rope_shape(1, dim, dim == 46 ? 100 : dim);
    c.window = 1;
    c.pins = 0;
    c.tile_tokens = 32;
    for (const setting& s : settings) {
      c.half_window = s.half;
      kvaxis::any_kv_cache cache;
      kvaxis::check(test::make_cache(s.policy, c, memory.hook(), cache));
      caches.push_back(std::move(cache));
    }
    for (int tokens = 1; tokens <= 65; ++tokens) {
      const std::size_t turn = static_cast<std::size_t>(tokens) % settings.size();
      SCOPED_TRACE(settings[turn].policy + ", " + std::to_string(dim) + " channels, " + std::to_string(tokens) +
                   " tokens");
      kvaxis::any_kv_cache& cache = caches[turn];
      cache.clear();
      const test::tokens data(c, tokens, 12);
      const guard_buffer<float> k = guarded(data.k, side);
      const guard_buffer<float> v = guarded(data.v, side);
      kvaxis::check(cache.append(k.data(), v.data(), tokens));
      guard_buffer<float> row(data.key_width, side);
      kvaxis::check(cache.read_key(tokens - 1, 0, row.data()));
      EXPECT_NEAR(row[data.key_width - 1], data.k.back(), 1e-3);
      guard_buffer<float> value(data.value_width, side);
      kvaxis::check(cache.read_value(0, 0, value.data()));
      EXPECT_NEAR(value[data.value_width - 1], data.v[data.value_width - 1], 0.1);
      kvaxis::attend_options o;
      o.query_heads = 1 + tokens % 6;
      o.soft_cap = tokens % 2 == 0 ? 5.0F : 0.0F;
      expect_equal_on_guarded_buffers(cache, {1, o, tokens}, side);
      expect_equal_on_guarded_buffers(cache, {3, o, tokens / 2}, side);
    }
    EXPECT_GT(memory.blocks(), 3 * settings.size());
    for (kvaxis::any_kv_cache& cache : caches) {
      kvaxis::check(cache.flush());
      expect_equal_on_guarded_buffers(cache, {1, {}, 65}, side);
      EXPECT_EQ(cache.folded_tokens(), cache.size());
    }
  }
}

class Guard : public isa_test {};
KVAXIS_ON_EVERY_ISA(Guard);

TEST_P(Guard, B51_buffers_that_end_at_a_page) { guard_all_calls(guard::end); }
TEST_P(Guard, B51_buffers_that_begin_at_a_page) { guard_all_calls(guard::begin); }

// Latent values are read out of the keys: nothing behind the last channel of the last key.
TEST_P(Guard, B51_latent_values) {
  for (const guard side : {guard::begin, guard::end}) {
    for (const setting& s : {setting{"k:int4-channel32-auto,v:latent"}, setting{"k:int8-token16-tile,v:latent", true},
                             setting{"k:bf16,v:latent"}, setting{"k:f32-post,v:latent", true}}) {
      for (const int dim : {12, 46, 72}) {
        SCOPED_TRACE(s.policy + ", " + std::to_string(dim) + " channels");
        kvaxis::cache_config c = test::shape(2, dim, dim - 4);
        kvaxis::check(kvaxis::make_rope({dim, 4, dim - 4, 10000.0, kvaxis::rope_layout::interleaved, {}}, c.rope));
        c.window = 1;
        c.pins = 2;
        c.tile_tokens = 32;
        c.half_window = s.half;
        guarded_allocator memory(side);
        kvaxis::any_kv_cache cache;
        kvaxis::check(test::make_cache(s.policy, c, memory.hook(), cache));
        kvaxis::attend_options o;
        o.query_heads = 2 * 9;
        o.scale = 0.3F;
        for (const int tokens : {1, 3, 32, 34, 36}) {
          const test::tokens data(c, tokens, 12);
          const guard_buffer<float> k = guarded(data.k, side);
          kvaxis::check(cache.append(k.data(), {}, tokens));
          guard_buffer<float> value(static_cast<std::size_t>(dim - 4), side);
          kvaxis::check(cache.read_value(cache.size() - 1, 1, value.data()));
          EXPECT_NEAR(value[value.size() - 1], data.key(tokens - 1)[2 * dim - 5], 0.1);
          expect_equal_on_guarded_buffers(cache, {1, o, cache.size()}, side);
          expect_equal_on_guarded_buffers(cache, {3, o, cache.size() - 3}, side);
        }
        kvaxis::check(cache.flush());
        expect_equal_on_guarded_buffers(cache, {1, o, 200}, side);
      }
    }
  }
}

// One task for blocks of one kv head each: its workspace is smaller than that of all kv heads together.
TEST_P(Guard, B51_many_heads_and_queries_in_one_task) {
  kvaxis::cache_config c = test::rope_shape(64, 16);
  c.window = 0;
  c.pins = 0;
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-auto,v:int4-token16", c);
  test::tokens(c, 40, 15).append_all_to(cache);
  kvaxis::attend_options o;
  o.query_heads = 64 * 16;
  o.max_tasks = 1;
  expect_equal_on_guarded_buffers(cache, {9, o, 20}, guard::end);
}

// Rows in 16 bits, with strides: the last row ends at the page.
TEST(GuardRows, B51_strided_rows_in_16_bits) {
  for (const guard side : {guard::begin, guard::end}) {
    for (const int dim : {8, 23, 46, 100}) {
      kvaxis::cache_config c = test::rope_shape(2, dim);
      c.window = 0;
      kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-pre,v:int4-token16", c);
      const std::int64_t head_stride = dim + 3;
      const std::int64_t token_stride = 2 * head_stride + 1;
      const auto n = static_cast<std::size_t>(39 * token_stride + head_stride + dim);
      guard_buffer<kvaxis::bfloat16> k(n, side);
      guard_buffer<kvaxis::float16> v(n, side);
      kvaxis::check(cache.append({k.data(), token_stride, head_stride}, {v.data(), token_stride, head_stride}, 40));
      EXPECT_EQ(cache.size(), 40);
    }
  }
}

// Every pointer of the caller 4 bytes (floats) or 2 bytes (halves) off an aligned address, for heads that are no
// multiple of anything.
TEST_P(Guard, B52_unaligned_pointers) {
  for (const int dim : {44, 46}) {
    kvaxis::cache_config c = test::rope_shape(1, dim);
    c.window = 30;
    c.tile_tokens = 32;
    const test::tokens data(c, 7 * 32, 13);
    const std::vector<float> q = test::numbers(14).uniforms(static_cast<std::size_t>(3 * dim));
    kvaxis::attend_options o;
    o.query_heads = 3;
    kvaxis::any_kv_cache want = test::cache_of("k:int4-channel32-auto,v:int8-token16", c);
    data.append_all_to(want);
    const test::attention expected = test::attend(want, q, 1, 7 * 32, o);

    struct alignas(64) line {
      float first;  // 64-byte aligned
      float numbers[15];
    };
    const auto shifted = [](std::vector<line>& memory, const std::vector<float>& x) {
      memory.resize(x.size() / 16 + 2);
      float* to = &memory[0].first + 1;
      std::copy(x.begin(), x.end(), to);
      return to;
    };
    std::vector<line> memory[5];
    kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-auto,v:int8-token16", c);
    kvaxis::check(cache.append(shifted(memory[0], data.k), shifted(memory[1], data.v), 7 * 32));
    EXPECT_EQ(test::contents(cache) == test::contents(want), true);
    kvaxis::any_kv_cache moved = std::move(cache);
    float* const in = shifted(memory[2], q);
    float* const out = shifted(memory[3], q);
    const std::size_t bytes = moved.workspace_bytes(1, o);
    float* const scratch = shifted(memory[4], std::vector<float>(bytes / 4 + 1));
    kvaxis::check(moved.attend(in, 1, 7 * 32, o, out, nullptr, {scratch, bytes}));
    EXPECT_EQ(std::memcmp(out, expected.out.data(), expected.out.size() * sizeof(float)), 0);

    std::vector<kvaxis::float16> halves(data.k.size() + 32);
    for (std::size_t i = 0; i < data.k.size(); ++i) halves[i + 1] = kvaxis::to_float16(data.k[i]);
    kvaxis::check(moved.append(halves.data() + 1, halves.data() + 1, 7 * 32));
    EXPECT_EQ(moved.size(), 2 * 7 * 32);
  }
}

}  // namespace
