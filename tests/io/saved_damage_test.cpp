// Files that are cut off, damaged, or made to do harm: refused, with nothing changed and nothing of the file's size
// allocated that its bytes do not warrant.
#include <gtest/gtest.h>

#include <kvaxis/io/inspect_file.hpp>
#include <string>
#include <vector>

#include "calls.hpp"
#include "counting_allocator.hpp"
#include "guard_page.hpp"
#include "policies.hpp"
#include "saved_files.hpp"

namespace {

kvaxis::cache_config small() {
  kvaxis::cache_config c = test::rope_shape(1, 10, 8);
  c.window = 4;
  c.pins = 3;
  c.tile_tokens = 32;
  return c;
}

kvaxis::any_kv_cache filled(const std::string& policy, const kvaxis::cache_config& c, int n,
                            const kvaxis::allocator& memory = {}) {
  kvaxis::any_kv_cache cache = test::cache_of(policy, c, memory);
  test::tokens(c, n, 1, 0.5F, 0.5F).append_all_to(cache);
  return cache;
}

// Damaged files into a cache that has tokens.
class Hostile : public ::testing::TestWithParam<std::string> {
 protected:
  Hostile() : file_(test::save(filled(GetParam(), small(), 43))), cache_(filled(GetParam(), small(), 9)) {
    before_ = test::snapshot(cache_);
  }

  // From memory that ends with the file.
  [[nodiscard]] kvaxis::status restore(const test::bytes& file) {
    const guard_buffer<std::byte> guarded(file.data(), file.size(), guard::end);
    kvaxis::any_kv_cache* layer = &cache_;
    return kvaxis::restore(guarded.data(), guarded.size(), &layer, 1);
  }
  void expect_refused(const test::bytes& file, const char* argument) {
    const kvaxis::status s = restore(file);
    EXPECT_EQ(s.argument, std::string(argument));
    EXPECT_FALSE(s.ok());
    EXPECT_EQ(test::snapshot(cache_) == before_, true);
  }

  test::bytes file_;
  kvaxis::any_kv_cache cache_;
  std::string before_;
};

TEST_P(Hostile, B49_cut_off_at_every_length) {
  for (std::size_t n = 0; n < file_.size(); ++n) {
    const test::bytes cut(file_.begin(), file_.begin() + static_cast<std::ptrdiff_t>(n));
    const kvaxis::status s = restore(cut);
    ASSERT_EQ(s.argument, std::string("file: truncated")) << n;
  }
  EXPECT_EQ(test::snapshot(cache_) == before_, true);
  test::bytes longer = file_;
  longer.push_back(std::byte{0});
  expect_refused(longer, "file: truncated");
  longer = file_;
  longer.insert(longer.end(), file_.begin(), file_.end());
  expect_refused(longer, "file: order of sections");
}

TEST_P(Hostile, every_flipped_bit_is_seen) {
  for (std::size_t i = 0; i < 8 * file_.size(); ++i) {
    test::bytes damaged = file_;
    damaged[i / 8] ^= static_cast<std::byte>(1U << (i % 8));
    ASSERT_FALSE(restore(damaged).ok()) << i;
  }
  EXPECT_EQ(test::snapshot(cache_) == before_, true);
}

// With the right checksum what is left are the checks of the fields. A file that passes them is as good as any other: it
// is what the cache then writes, but for a tile that no entry names any more; and the cache works.
TEST_P(Hostile, every_flipped_bit_with_a_new_checksum) {
  int accepted = 0;
  int shorter = 0;
  const std::vector<float> q(10, 0.5F);
  for (std::size_t i = 0; i < 8 * file_.size(); ++i) {
    test::bytes damaged = file_;
    damaged[i / 8] ^= static_cast<std::byte>(1U << (i % 8));
    test::fix_checksums(damaged);
    if (damaged == file_) continue;  // the flipped bit was one of a checksum
    if (!restore(damaged).ok()) continue;
    ++accepted;
    const test::bytes again = test::save(cache_);
    if (again != damaged) {
      ASSERT_LT(again.size(), damaged.size()) << i;
      kvaxis::check(restore(again));
      ASSERT_EQ(test::save(cache_) == again, true) << i;
      ++shorter;
    }
    const test::attention a = test::attend(cache_, q, 1, kvaxis::max_position / 2);
    for (const float x : a.out) ASSERT_TRUE(kvaxis::is_finite(x)) << i;
    kvaxis::check(cache_.flush());
    cache_ = filled(GetParam(), small(), 9);
  }
  EXPECT_GT(accepted, 1000);  // codes
  EXPECT_LT(shorter, 5);
  EXPECT_EQ(test::contents(cache_) == test::contents(filled(GetParam(), small(), 9)), true);
}

INSTANTIATE_TEST_SUITE_P(policy, Hostile,
                         ::testing::Values("k:int4-channel32-auto,v:int8s-token16",
                                           "k:int8f32-token16-tile,v:e4m3-channel32",
                                           "k:e5m2-tensor@0.01-pre,v:int4f32-token16", "k:f16,v:bf16",
                                           "k:int3-channel32-hot2x5,v:nvfp4-token16"),
                         test::policy_test_name);

// Whatever a number in the file says: no more is allocated than for the good file, and in a few blocks at a time.
TEST(Allocation, B48_B49_counts_and_sizes_allocate_nothing) {
  const std::string policy = "k:int4-channel32-auto,v:int8s-token16";
  const test::bytes file = test::save(filled(policy, small(), 43));
  counting_allocator good;
  {
    kvaxis::any_kv_cache cache = test::cache_of(policy, small(), good.hook());
    kvaxis::check(test::restore(file, cache));
  }
  for (const std::uint64_t number :
       {std::uint64_t{1} << 20, std::uint64_t{0x7FFFFFFF}, std::uint64_t{1} << 40, UINT64_MAX / 2, UINT64_MAX}) {
    for (std::size_t at = 0; at + 8 <= file.size(); ++at) {
      counting_allocator memory;
      kvaxis::any_kv_cache cache = test::cache_of(policy, small(), memory.hook());
      test::bytes changed = file;
      kvaxis::detail::store_little(changed.data() + at, number);
      test::fix_checksums(changed);
      if (test::restore(changed, cache).ok()) continue;
      ASSERT_LE(memory.peak_bytes, good.peak_bytes) << at;
      ASSERT_LE(memory.calls, good.calls) << at;
    }
  }
}

}  // namespace
