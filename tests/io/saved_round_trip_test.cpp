// What is saved comes back: state, bytes, and what the cache does next.
#include <gtest/gtest.h>

#include <kvaxis/io/plan_file.hpp>
#include <string>
#include <vector>

#include "calls.hpp"
#include "guard_page.hpp"
#include "policies.hpp"
#include "saved_files.hpp"

namespace {

const std::vector<std::string> policies = {
    "k:int4-channel64-pre,v:int4-token64",
    "k:int4-channel32-auto,v:int8-token16",
    "k:int8-channel64-hot4,v:int4s-token32",
    "k:int8s-channel64-post,v:int8s-channel32",
    "k:int4f32-channel32-tile,v:int8f32-token16",
    "k:int8f32-token16-pre,v:int4f32-channel32",
    "k:int4-token32-post,v:e4m3-channel64",
    "k:e5m2-channel32-pre,v:e5m2-token64",
    "k:e4m3-tensor@0.01-pre,v:int8-tensor@0.01,-1.28",
    "k:int8-tensor@0.05,2.0-post,v:int8-tensor@0.05,2.0",
    "k:int4-channel64-hot2x6-lsq,v:int3-hadamard-token16",
    "k:int5-channel32-auto,v:mxfp4-token32",
    "k:int2-token16-post,v:int4m8-token16",
    "k:f16,v:bf16",
    "k:f32-tile,v:f32",
    "k:bf16-post,v:f16",
};

struct shape {
  int kv_heads;
  int head_dim;
  int value_dim;
};
const std::vector<shape> shapes = {{3, 46, 80}, {1, 8, 8}, {5, 100, 72}, {2, 128, 128}};

kvaxis::cache_config config_of(const shape& s) {
  kvaxis::cache_config c = test::rope_shape(s.kv_heads, s.head_dim, s.value_dim);
  c.window = 8;
  c.pins = 5;
  c.tile_tokens = 32;
  return c;
}

// Numbers that the policy takes: those with an offset of 2 have no zero.
test::tokens tokens_of(const std::string& policy, const kvaxis::cache_config& c, int n, std::uint64_t seed) {
  test::tokens t(c, n, seed, 0.5F, 0.5F);
  if (policy.find(",2.0") == std::string::npos) return t;
  for (std::vector<float>* x : {&t.k, &t.v}) {
    for (float& number : *x) number += 2.75F;
  }
  return t;
}

void expect_same_results(const kvaxis::any_kv_cache& a, const kvaxis::any_kv_cache& b) {
  kvaxis::attend_options o;
  const int heads = a.format()->kv_heads;
  o.query_heads = 2 * heads;
  const auto numbers = static_cast<std::size_t>(2 * heads * a.format()->head_dim);
  const std::vector<float> q = test::numbers(9).uniforms(numbers, 2.0F);
  const test::attention x = test::attend(a, q, 1, a.next_position(), o);
  const test::attention y = test::attend(b, q, 1, b.next_position(), o);
  EXPECT_EQ(x.out, y.out);
  EXPECT_EQ(x.lse, y.lse);
}

void expect_same(const kvaxis::any_kv_cache& a, const kvaxis::any_kv_cache& b) {
  EXPECT_EQ(test::contents(a) == test::contents(b), true);
  EXPECT_EQ(a.size(), b.size());
  EXPECT_EQ(a.next_position(), b.next_position());
  EXPECT_EQ(a.folded_tokens(), b.folded_tokens());
  EXPECT_EQ(a.replaced(), b.replaced());
  EXPECT_EQ(a.bytes().folded, b.bytes().folded);
  EXPECT_EQ(a.bytes().exact, b.bytes().exact);
}

class RoundTrip : public ::testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, B40_B43_B52_state_bytes_and_what_comes_next) {
  for (const shape& s : shapes) {
    for (const bool half : {false, true}) {
      SCOPED_TRACE(std::to_string(s.kv_heads) + " heads, " + std::to_string(s.head_dim) + " channels" +
                   (half ? ", half" : ""));
      kvaxis::cache_config c = config_of(s);
      c.half_window = half;
      const test::tokens data = tokens_of(GetParam(), c, 300, 1);
      kvaxis::any_kv_cache cache = test::cache_of(GetParam(), c);
      kvaxis::check(data.append_to(cache, 0, 77));
      ASSERT_GT(cache.folded_tokens(), 0);
      const test::bytes file = test::save(cache);
      EXPECT_EQ(file.size(), test::saved_bytes(cache));
      kvaxis::any_kv_cache copy = test::cache_of(GetParam(), c);
      ASSERT_TRUE(test::restore(file, copy).ok());
      expect_same(copy, cache);
      expect_same_results(copy, cache);
      EXPECT_EQ(test::save(copy) == file, true);
      for (const auto& [first, n] : {std::pair{77, 1}, {78, 30}, {108, 192}}) {
        kvaxis::check(data.append_to(cache, first, n));
        kvaxis::check(data.append_to(copy, first, n));
        expect_same(copy, cache);
        expect_same_results(copy, cache);
      }
    }
  }
}

TEST_P(RoundTrip, every_number_of_tokens) {
  kvaxis::cache_config c = config_of({1, 20, 24});
  const test::tokens data = tokens_of(GetParam(), c, 140, 2);
  kvaxis::any_kv_cache cache = test::cache_of(GetParam(), c);
  kvaxis::any_kv_cache copy = test::cache_of(GetParam(), c);
  const test::policies sides = test::find(GetParam());
  const float scale = 1.0F;
  kvaxis::cache_config with_scale = c;
  with_scale.k_scale = with_scale.v_scale = &scale;
  for (int n = 0; n <= 140; ++n) {
    const test::bytes file = test::save(cache);
    ASSERT_TRUE(test::restore(file, copy).ok()) << n;  // into what the last one left
    expect_same(copy, cache);
    EXPECT_EQ(test::save(copy) == file, true) << n;
    std::uint64_t planned = 0;
    const kvaxis::planned_layers layer{&with_scale, sides.keys, sides.values};
    kvaxis::check(kvaxis::plan_file(&layer, 1, n, planned));
    EXPECT_EQ(planned, file.size()) << n;
    if (n < 140) kvaxis::check(data.append_to(cache, n, 1));
  }
}

// The size of a file, added up by hand.
TEST(Saved, B40_size_of_a_file) {
  kvaxis::cache_config c = config_of({3, 40, 48});
  c.window = 20;
  c.pins = 6;
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-auto,v:int8s-token16", c);
  test::tokens(c, 77, 3).append_all_to(cache);
  ASSERT_EQ(cache.folded_tokens(), 32);
  const std::size_t frame = 16 + 4;
  const std::size_t side = 32 + 8 + 6 * 4;
  const std::size_t description = 12 * 4 + 8 + (8 + 2 * side) + 20 * 16 + 3 * 16;
  const std::size_t mask = 4;
  const std::size_t keys = 40 * 32 / 2 + 40 * 2 * 2;        // scale and offset of every channel
  const std::size_t values = 32 * 48 + 32 * (48 / 16) * 2;  // scale of every token and group
  const std::size_t folded = 20 + 3 * (mask + keys + values);
  const std::size_t row = 3 * (40 + 48) * 4;
  const std::size_t exact_tiles = (20 + 6 * row) + (20 + 32 * row) + (20 + 7 * row);  // pins, a whole one, the open one
  const std::size_t size = (frame + 16) + (frame + description) + (4 * frame + folded + exact_tiles) +
                           (frame + 4 * 24) + (frame + 16) + frame;
  EXPECT_EQ(test::saved_bytes(cache), size);
  EXPECT_EQ(test::save(cache).size(), size);
}

TEST(Saved, B42_sizes_beyond_32_bits) {
  kvaxis::cache_config c = test::rope_shape(8, 128);
  c.window = 0;
  c.pins = 0;
  const test::policies sides = test::find("k:int4-channel64-pre,v:int4-token64");
  const auto planned = [&](std::int64_t tokens, int layers = 1) {
    const kvaxis::planned_layers layer{&c, sides.keys, sides.values, layers};
    std::uint64_t bytes = 0;
    kvaxis::check(kvaxis::plan_file(&layer, 1, tokens, bytes));
    return bytes;
  };
  const std::uint64_t tile = 20 + 20 + 8 * (128 * (64 / 2 + 4) + 64 * (128 / 2 + 2 * 4));
  const std::uint64_t nothing = planned(0);
  for (const std::uint64_t border : {std::uint64_t{1} << 31, std::uint64_t{1} << 32}) {
    const std::uint64_t tiles = border / tile + 1;
    const std::uint64_t lists = (tiles + 1023) / 1024;
    const std::uint64_t bytes = planned(static_cast<std::int64_t>(tiles * 64));
    EXPECT_EQ(bytes, nothing + tiles * (tile + 24) + lists * 20);
    EXPECT_GT(bytes, border);
  }
  // The longest sequence of a large model: 126 layers of 2^31 - 1 tokens, 4.5 bits a number.
  const std::uint64_t head = 20 + 16 + 20;
  EXPECT_EQ(planned(kvaxis::max_position, 126), head + 126 * (planned(kvaxis::max_position) - head));
  EXPECT_GT(planned(kvaxis::max_position, 126), std::uint64_t{126} * 2147483647 * 2 * 8 * 128 * 9 / 16);
  std::uint64_t bytes = 0;
  const kvaxis::planned_layers layer{&c, sides.keys, sides.values};
  EXPECT_EQ(kvaxis::plan_file(&layer, 1, -1, bytes).argument, std::string("tokens"));
  EXPECT_EQ(kvaxis::plan_file(nullptr, 1, 1, bytes).argument, std::string("layers"));
  EXPECT_EQ(bytes, 0U);
}

// Values that are channels of the keys: 24 of 40, the last 16 rotate.
TEST(Saved, latent_values_are_not_in_the_file) {
  kvaxis::cache_config c = config_of({2, 40, 24});
  kvaxis::rope_parameters rope;
  rope.head_dim = 40;
  rope.first_channel = 24;
  kvaxis::check(kvaxis::make_rope(rope, c.rope));
  for (const std::string keys : {"int4-channel32-auto", "int8f32-token16-tile", "e5m2-tensor@0.01-post", "f16"}) {
    for (const bool half : {false, true}) {
      SCOPED_TRACE(keys);
      c.half_window = half;
      const test::tokens data(c, 120, 7, 0.5F, 0.5F);
      kvaxis::any_kv_cache cache = test::cache_of("k:" + keys + ",v:latent", c);
      kvaxis::check(data.append_to(cache, 0, 90));
      ASSERT_GT(cache.folded_tokens(), 0);
      const test::bytes file = test::save(cache);
      kvaxis::any_kv_cache copy = test::cache_of("k:" + keys + ",v:latent", c);
      ASSERT_TRUE(test::restore(file, copy).ok());
      expect_same(copy, cache);
      EXPECT_EQ(test::save(copy) == file, true);
      kvaxis::any_kv_cache apart = test::cache_of("k:" + keys + ",v:f16", c);
      EXPECT_EQ(test::restore(file, apart).argument,
                std::string(keys == "f16" ? "file: value policy: axis" : "file: value codec"));
      kvaxis::check(data.append_to(cache, 90, 30));
      kvaxis::check(data.append_to(copy, 90, 30));
      expect_same(copy, cache);
      kvaxis::attend_options o;
      o.scale = 0.1F;
      const std::vector<float> q = test::numbers(8).uniforms(2 * 40);
      EXPECT_EQ(test::attend(copy, q, 1, 200, o).out, test::attend(cache, q, 1, 200, o).out);
    }
  }
}

// More entries than one section has room for, at positions that go up and down.
TEST(Saved, B43_a_list_of_many_short_entries) {
  kvaxis::cache_config c = test::rope_shape(1, 8);
  c.window = 3;
  c.pins = 2;
  kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-tile,v:int8-token16", c);
  const test::tokens data(c, 2500, 4);
  for (int t = 0; t < 2500; ++t) {
    kvaxis::check(data.append_to(cache, t, 1, t % 2 == 0 ? -7 * t : 1000000 + 3 * t));
  }
  ASSERT_GT(cache.view().entry_count, 2 * 1024);
  const test::bytes file = test::save(cache);
  kvaxis::any_kv_cache copy = test::cache_of("k:int4-channel32-tile,v:int8-token16", c);
  ASSERT_TRUE(test::restore(file, copy).ok());
  expect_same(copy, cache);
  expect_same_results(copy, cache);
  EXPECT_EQ(test::save(copy) == file, true);
  // The farthest query that the positions allow is the same one.
  const std::vector<float> q(8, 1.0F);
  const auto lowest = -7 * std::int64_t{2498};
  const std::size_t room = copy.workspace_bytes(1, {});
  std::vector<std::byte> memory(room);
  std::vector<float> out(8);
  for (const kvaxis::any_kv_cache* which : {&cache, &copy}) {
    const std::int64_t last = kvaxis::max_position + lowest - 1;
    EXPECT_TRUE(which->attend(q.data(), 1, last, {}, out.data(), nullptr, {memory.data(), room}).ok());
    EXPECT_FALSE(which->attend(q.data(), 1, last + 1, {}, out.data(), nullptr, {memory.data(), room}).ok());
  }
}

TEST(Saved, what_deferred_folding_flush_and_replaced_numbers_leave) {
  kvaxis::cache_config c = config_of({2, 24, 24});
  c.non_finite = kvaxis::on_bad_input::replace;
  const std::string policy = "k:int4-channel32-auto,v:int4-token16";
  const auto round_trip = [&](const kvaxis::any_kv_cache& cache) {
    kvaxis::any_kv_cache copy = test::cache_of(policy, c);
    const test::bytes file = test::save(cache);
    EXPECT_TRUE(test::restore(file, copy).ok());
    expect_same(copy, cache);
    EXPECT_EQ(test::save(copy) == file, true);
    return copy;
  };
  test::tokens data(c, 200, 5);
  data.k[100] = kvaxis::bits_float(0x7F800000U);
  kvaxis::any_kv_cache cache = test::cache_of(policy, c);
  kvaxis::check(data.append_to(cache, 0, 100, kvaxis::next, kvaxis::fold_mode::deferred));
  ASSERT_EQ(cache.folded_tokens(), 0);
  ASSERT_EQ(cache.replaced(), 1);
  kvaxis::any_kv_cache copy = round_trip(cache);
  kvaxis::check(cache.fold());
  kvaxis::check(copy.fold());
  expect_same(copy, cache);
  copy = round_trip(cache);
  kvaxis::check(cache.flush());
  kvaxis::check(copy.flush());
  expect_same(copy, cache);
  copy = round_trip(cache);
  kvaxis::check(data.append_to(cache, 100, 100));
  kvaxis::check(data.append_to(copy, 100, 100));
  expect_same(copy, cache);
}

TEST(Saved, several_layers_of_different_kinds) {
  const std::vector<std::string> names = {"k:int4-channel32-auto,v:int4-token16", "k:e4m3-tensor@0.02-pre,v:f16",
                                          "k:int8-token16-post,v:int8-channel32"};
  std::vector<kvaxis::any_kv_cache> caches;
  std::vector<kvaxis::any_kv_cache> copies;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const int n = static_cast<int>(i);
    const kvaxis::cache_config c = config_of({1 + n, 16 + 8 * n, 40 - 8 * n});
    caches.push_back(test::cache_of(names[i], c));
    copies.push_back(test::cache_of(names[i], c));
    test::tokens(c, 50 + 60 * n, i).append_all_to(caches.back(), 1000 * n);
  }
  const test::bytes file = test::save({&caches[0], &caches[1], &caches[2]});
  kvaxis::any_kv_cache* layers[] = {&copies[0], &copies[1], &copies[2]};
  ASSERT_TRUE(kvaxis::restore(file.data(), file.size(), layers, 3).ok());
  for (std::size_t i = 0; i < names.size(); ++i) expect_same(copies[i], caches[i]);

  // The last two alone, as layers 7 and 8 of the model.
  kvaxis::save_options seventh;
  seventh.first_layer = 7;
  const test::bytes part = test::save({&caches[1], &caches[2]}, seventh);
  for (kvaxis::any_kv_cache* layer : layers) layer->clear();
  EXPECT_EQ(kvaxis::restore(part.data(), part.size(), layers + 1, 2).argument, std::string("file: first layer"));
  kvaxis::restore_options o;
  o.first_layer = 7;
  ASSERT_TRUE(kvaxis::restore(part.data(), part.size(), layers + 1, 2, o).ok());
  EXPECT_EQ(copies[0].size(), 0);
  expect_same(copies[1], caches[1]);
  expect_same(copies[2], caches[2]);
}

// The file at the end, and at the beginning, of readable memory, and at odd addresses.
TEST(Saved, B51_B52_nothing_is_read_outside_the_file) {
  for (const int tokens : {0, 1, 5, 33, 70}) {
    const kvaxis::cache_config c = config_of({1, 46, 23});
    kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel32-auto,v:int4s-token16", c);
    test::tokens(c, tokens, 6).append_all_to(cache);
    const test::bytes file = test::save(cache);
    kvaxis::any_kv_cache copy = test::cache_of("k:int4-channel32-auto,v:int4s-token16", c);
    kvaxis::any_kv_cache* layer = &copy;
    for (const guard side : {guard::begin, guard::end}) {
      const guard_buffer<std::byte> guarded(file.data(), file.size(), side);
      ASSERT_TRUE(kvaxis::restore(guarded.data(), guarded.size(), &layer, 1).ok());
      expect_same(copy, cache);
    }
    for (std::size_t shift = 1; shift < 4; ++shift) {
      test::bytes shifted(shift);
      shifted.insert(shifted.end(), file.begin(), file.end());
      copy.clear();
      ASSERT_TRUE(kvaxis::restore(shifted.data() + shift, file.size(), &layer, 1).ok());
      expect_same(copy, cache);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(policy, RoundTrip, ::testing::ValuesIn(policies), test::policy_test_name);

}  // namespace
