// Files with a part of the kv heads: a cache split over machines, and put together again.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policies.hpp"
#include "saved_files.hpp"

namespace {

const std::vector<std::string> policies = {"k:int4-channel32-auto,v:int8-token16", "k:f16,v:e4m3-channel32",
                                           "k:int8s-tensor-pre,v:e4m3-tensor"};
constexpr int all_heads = 6;
constexpr int dim = 24;

// A cache of heads first .. end - 1, given their part of the same tokens.
class Heads : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] kvaxis::any_kv_cache empty(int first, int end) const {
    static const float scales[] = {0.01F, 0.02F, 0.03F, 0.04F, 0.05F, 0.06F};
    kvaxis::cache_config c = test::rope_shape(end - first, dim);
    c.window = 10;
    c.pins = 2;
    c.tile_tokens = 32;
    c.scales_count = end - first;
    c.k_scale = c.v_scale = scales + first;
    return test::cache_of(GetParam(), c);
  }
  [[nodiscard]] kvaxis::any_kv_cache filled(int first, int end, int tokens = 100) const {
    const test::tokens data(test::rope_shape(all_heads, dim), tokens, 1, 0.5F, 0.5F);
    kvaxis::any_kv_cache cache = empty(first, end);
    constexpr std::int64_t stride = all_heads * dim;
    kvaxis::check(cache.append({data.k.data() + first * dim, stride}, {data.v.data() + first * dim, stride}, tokens));
    return cache;
  }
  static kvaxis::save_options part(int first, int end) {
    kvaxis::save_options o;
    o.first_head = first;
    o.end_head = end;
    return o;
  }
  static kvaxis::restore_options share(int first) {
    kvaxis::restore_options o;
    o.share = {first, all_heads};
    return o;
  }
};

TEST_P(Heads, a_cache_takes_its_heads_out_of_a_file_with_more) {
  const kvaxis::any_kv_cache whole = filled(0, all_heads);
  const struct {
    int first, end, file_first, file_end;
  } cuts[] = {{0, 3, 0, 6}, {3, 6, 0, 6}, {2, 3, 0, 6}, {1, 4, 1, 4}, {1, 4, 0, 5}, {5, 6, 4, 6}};
  for (const auto& c : cuts) {
    const test::bytes file = test::save(whole, part(c.file_first, c.file_end));
    kvaxis::any_kv_cache cache = empty(c.first, c.end);
    ASSERT_TRUE(test::restore(file, cache, share(c.first)).ok());
    EXPECT_EQ(test::contents(cache) == test::contents(filled(c.first, c.end)), true);
  }
}

TEST_P(Heads, only_the_heads_asked_for_are_in_the_file) {
  const kvaxis::any_kv_cache whole = filled(0, all_heads);
  const auto size = [&](int first, int end) {
    const test::bytes file = test::save(whole, part(first, end));
    EXPECT_EQ(file.size(), test::saved_bytes(whole, part(first, end)));
    return file.size();
  };
  const std::size_t one = size(0, 1);
  const std::size_t per_head = size(0, 2) - one;
  EXPECT_EQ(size(2, 6), one + 3 * per_head);
  EXPECT_EQ(test::save(whole).size(), one + 5 * per_head);
  EXPECT_EQ(test::save(whole) == test::save(whole, part(0, 6)), true);
}

// What a machine with a part of the heads writes is what the one with all of them would write for them.
TEST_P(Heads, the_file_of_a_share_is_the_part_of_the_whole_file) {
  kvaxis::save_options o;
  o.share = {2, all_heads};
  EXPECT_EQ(test::save(filled(2, 5), o) == test::save(filled(0, all_heads), part(2, 5)), true);
}

TEST_P(Heads, files_that_together_have_all_heads) {
  kvaxis::any_kv_cache cache = filled(0, all_heads, 70);
  kvaxis::any_kv_cache* layer = &cache;
  const auto reader_of = [&](int first, int end) {
    kvaxis::save_options o;
    o.share = {first, all_heads};
    const test::bytes file = test::save(filled(first, end), o);
    kvaxis::cache_reader r;
    kvaxis::check(kvaxis::cache_reader::create(&layer, 1, {}, r));
    kvaxis::check(r.accept(file.data(), file.size()));
    EXPECT_TRUE(r.complete());
    return r;
  };
  kvaxis::cache_reader all = reader_of(2, 3);
  const std::string before = test::snapshot(cache);
  EXPECT_EQ(all.commit().argument, std::string("file: a head is missing"));
  EXPECT_EQ(all.commit().limit, 0);
  EXPECT_EQ(test::snapshot(cache) == before, true);
  kvaxis::check(all.join(reader_of(3, 6)));
  EXPECT_EQ(all.join(reader_of(0, 3)).argument, std::string("other: a head that is there"));
  EXPECT_EQ(all.join(all).argument, std::string("other: not complete"));
  kvaxis::check(all.join(reader_of(0, 2)));
  kvaxis::check(all.commit());
  EXPECT_EQ(test::contents(cache) == test::contents(filled(0, all_heads)), true);
  EXPECT_FALSE(all.commit().ok());
}

TEST_P(Heads, parts_of_different_states_are_not_put_together) {
  kvaxis::any_kv_cache cache = empty(0, all_heads);
  kvaxis::any_kv_cache* layer = &cache;
  const auto reader_of = [&](int first, int end, int tokens) {
    const test::bytes file = test::save(filled(0, all_heads, tokens), part(first, end));
    kvaxis::cache_reader r;
    kvaxis::check(kvaxis::cache_reader::create(&layer, 1, {}, r));
    kvaxis::check(r.accept(file.data(), file.size()));
    return r;
  };
  kvaxis::cache_reader r = reader_of(0, 3, 50);
  for (const int tokens : {0, 1, 40, 49, 51, 100}) {
    EXPECT_EQ(r.join(reader_of(3, 6, tokens)).argument, std::string("other: another state of the sequence"));
  }
  kvaxis::any_kv_cache elsewhere = empty(0, all_heads);
  kvaxis::any_kv_cache* other_layer = &elsewhere;
  const test::bytes file = test::save(filled(0, all_heads, 50), part(3, 6));
  kvaxis::cache_reader other;
  kvaxis::check(kvaxis::cache_reader::create(&other_layer, 1, {}, other));
  EXPECT_EQ(r.join(other).argument, std::string("other: not complete"));
  kvaxis::check(other.accept(file.data(), file.size()));
  EXPECT_EQ(r.join(other).argument, std::string("other: layers"));
  kvaxis::check(r.join(reader_of(3, 6, 50)));
  kvaxis::check(r.commit());
  EXPECT_EQ(test::contents(cache) == test::contents(filled(0, all_heads, 50)), true);
}

TEST_P(Heads, refused_without_being_told_and_when_no_head_is_there) {
  const test::bytes file = test::save(filled(0, all_heads));
  kvaxis::any_kv_cache three = filled(0, 3, 40);
  const std::string before = test::snapshot(three);
  EXPECT_EQ(test::restore(file, three).argument, std::string("file: kv_heads"));
  const test::bytes last = test::save(filled(0, all_heads), part(5, 6));
  EXPECT_EQ(test::restore(last, three, share(0)).argument, std::string("file: a head is missing"));
  EXPECT_EQ(test::snapshot(three) == before, true);
}

TEST_P(Heads, arguments) {
  const kvaxis::any_kv_cache whole = filled(1, 5);
  const kvaxis::any_kv_cache* layer = &whole;
  const auto refused = [&](kvaxis::kv_head_share s, int first, int end) {
    kvaxis::save_options o;
    o.share = s;
    o.first_head = first;
    o.end_head = end;
    kvaxis::cache_writer w;
    return std::string(kvaxis::cache_writer::create(&layer, 1, o, w).argument);
  };
  EXPECT_EQ(refused({1, 6}, 1, 5), "");
  EXPECT_EQ(refused({1, 6}, 0, 0), "");
  EXPECT_EQ(refused({1, 6}, 4, 5), "");
  EXPECT_EQ(refused({3, 6}, 0, 0), "share.first");
  EXPECT_EQ(refused({-1, 6}, 0, 0), "share.first");
  EXPECT_EQ(refused({0, 3}, 0, 0), "share.first");
  EXPECT_EQ(refused({0, 1025}, 0, 0), "share.of");
  EXPECT_EQ(refused({0, -1}, 0, 0), "share.of");
  EXPECT_EQ(refused({1, 6}, 0, 5), "first_head");
  EXPECT_EQ(refused({1, 6}, 5, 5), "first_head");
  EXPECT_EQ(refused({1, 6}, 2, 6), "end_head");
  EXPECT_EQ(refused({1, 6}, 2, 1), "end_head");
  EXPECT_EQ(refused({1, 6}, 2, 0), "end_head");
}

INSTANTIATE_TEST_SUITE_P(policy, Heads, ::testing::ValuesIn(policies), test::policy_test_name);

}  // namespace
