// The rules by which tokens fill tiles and tiles fold, against a model of them that knows one token at a time.
#include <gtest/gtest.h>

#include <tuple>

#include "policies.hpp"
#include "tokens.hpp"

namespace {

struct model_entry {
  std::int64_t base = 0;
  int count = 0;
  bool open = true;
  bool pinned = false;
  bool folded = false;
};

class model {
 public:
  model(int pins, int window, int tile) : pins_(pins), window_(window), tile_(tile) {}

  void append(std::int64_t position, bool folds) {
    if (!entries.empty() && position != next_) entries.back().open = false;
    next_ = position + 1;
    const bool pinned = pinned_ < pins_;
    if (entries.empty() || !entries.back().open) entries.push_back({position, 0, true, pinned, false});
    ++entries.back().count;
    ++(pinned ? pinned_ : exact_);
    if (pinned ? pinned_ == pins_ : entries.back().count == tile_) entries.back().open = false;
    if (folds) fold_while(window_);
  }
  void fold() { fold_while(window_); }
  void flush() {
    if (exact_ > 0) entries.back().open = false;
    fold_while(0);
  }
  void clear() { *this = model(pins_, window_, tile_); }

  [[nodiscard]] int exact() const { return exact_; }  // not pinned
  [[nodiscard]] std::int64_t next_position() const { return next_; }

  std::vector<model_entry> entries;

 private:
  void fold_while(int keep) {
    for (model_entry& e : entries) {
      if (e.pinned || e.folded) continue;
      if (e.open || exact_ - e.count < keep) return;
      e.folded = true;
      exact_ -= e.count;
    }
  }

  int pins_;
  int window_;
  int tile_;
  int pinned_ = 0;
  int exact_ = 0;
  std::int64_t next_ = 0;
};

void expect_equal(const kvaxis::any_kv_cache& cache, const model& m) {
  const kvaxis::sequence_view view = cache.view();
  ASSERT_EQ(view.entry_count, static_cast<int>(m.entries.size()));
  std::int64_t size = 0;
  std::int64_t folded = 0;
  for (int i = 0; i < view.entry_count; ++i) {
    const kvaxis::entry& e = view.entries[i];
    const model_entry& want = m.entries[static_cast<std::size_t>(i)];
    ASSERT_EQ(e.base_position, want.base) << "entry " << i;
    ASSERT_EQ(e.begin, 0) << "entry " << i;
    ASSERT_EQ(e.count, want.count) << "entry " << i;
    ASSERT_EQ(e.open, want.open) << "entry " << i;
    ASSERT_EQ(e.pinned, want.pinned) << "entry " << i;
    ASSERT_EQ(e.tile->folded, want.folded) << "entry " << i;
    size += e.count;
    folded += want.folded ? e.count : 0;
  }
  ASSERT_EQ(cache.size(), size);
  ASSERT_EQ(cache.folded_tokens(), folded);
  ASSERT_EQ(cache.exact_tokens(), size - folded);
  ASSERT_EQ(cache.next_position(), m.next_position());
}

class Rules : public ::testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  Rules() {
    const auto [tile, window, pins] = GetParam();
    config_ = test::shape(1, 8);
    config_.tile_tokens = tile;
    config_.window = window;
    config_.pins = pins;
    cache_ = test::cache_of("k:int8-token16-pre,v:int8-token16", config_);
  }
  kvaxis::cache_config config_;
  kvaxis::any_kv_cache cache_;
};

TEST_P(Rules, every_sequence_of_calls_follows_the_model) {
  const auto [tile, window, pins] = GetParam();
  model m(pins, window, tile);
  const test::tokens data(config_, 2 * tile, 1);
  test::numbers random(static_cast<std::uint64_t>(tile * 100000 + window * 300 + pins));
  for (int call = 0; call < 150; ++call) {
    const int kind = random.below(40);
    if (kind < 2) {
      kvaxis::check(cache_.flush());
      m.flush();
    } else if (kind < 4) {
      kvaxis::check(cache_.fold());
      m.fold();
    } else if (kind == 4) {
      cache_.clear();
      m.clear();
    } else {
      const int n = random.below(4) == 0 ? random.below(2 * tile + 1) : random.below(9);
      const bool jumps = random.below(6) == 0;
      const bool deferred = random.below(5) == 0;
      const std::int64_t position = jumps ? random.below(4000) - 2000 : cache_.next_position();
      kvaxis::check(data.append_to(cache_, 0, n, jumps ? position : kvaxis::next,
                                   deferred ? kvaxis::fold_mode::deferred : kvaxis::fold_mode::now));
      for (int i = 0; i < n; ++i) m.append(position + i, !deferred);
      // Without deferred folding the window holds from W to W + T - 1 tokens.
      if (!deferred && n > 0) {
        ASSERT_LE(m.exact(), window + tile - 1);
      }
    }
    expect_equal(cache_, m);
    if (HasFatalFailure()) FAIL() << "after call " << call;
  }
}

// The last W tokens read back bit for bit at every moment, and never more than W + T - 1 are kept.
TEST_P(Rules, the_last_W_tokens_are_exact_and_at_most_T_minus_1_more) {
  const auto [tile, window, pins] = GetParam();
  const int total = pins + 2 * (window + tile) + 5;
  const test::tokens data(config_, total, 2);
  float key[8];
  int most = 0;
  for (int n = 1; n <= total; ++n) {
    kvaxis::check(data.append_to(cache_, n - 1, 1));
    const int exact = static_cast<int>(cache_.exact_tokens()) - (n < pins ? n : pins);
    ASSERT_GE(exact, n - pins < window ? n - pins : window);
    most = exact > most ? exact : most;
    for (const int back : {1, (window + 1) / 2, window}) {
      if (back < 1 || back > n || back > window) continue;
      kvaxis::check(cache_.read_key(n - back, 0, key));
      ASSERT_EQ(std::memcmp(key, data.key(n - back), sizeof key), 0) << "token " << n - back << " of " << n;
    }
  }
  EXPECT_EQ(most, window + tile - 1);
  for (int t = 0; t < pins; ++t) {
    kvaxis::check(cache_.read_key(t, 0, key));
    EXPECT_EQ(std::memcmp(key, data.key(t), sizeof key), 0) << "pin " << t;
  }
  EXPECT_GT(cache_.folded_tokens(), 0);
}

INSTANTIATE_TEST_SUITE_P(shapes, Rules,
                         ::testing::Combine(::testing::Values(32, 64, 128, 256), ::testing::Values(0, 1, 33, 64, 130),
                                            ::testing::Values(0, 1, 4, 5, 70)));

TEST(Rules, the_tile_length_is_the_keys_group_then_the_values_then_the_configurations) {
  kvaxis::cache_config c = test::shape(1, 32);
  c.tile_tokens = 256;
  EXPECT_EQ(test::cache_of("k:int4-channel32-pre,v:int4-token16", c).format()->tokens, 32);
  EXPECT_EQ(test::cache_of("k:int4-channel128-pre,v:int4-channel32", c).format()->tokens, 128);
  EXPECT_EQ(test::cache_of("k:int4-token32-pre,v:int4-channel64", c).format()->tokens, 64);
  EXPECT_EQ(test::cache_of("k:f32,v:f32", c).format()->tokens, 256);
}

}  // namespace
