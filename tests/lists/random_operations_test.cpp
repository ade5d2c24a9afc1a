// Random operations on a few caches that share tiles, against simple_cache: after each step the cache that was touched
// has the model's tokens, positions and numbers, and attends as the model does; now and then all of them do, and the
// memory that is held is exactly that of the tiles, tables and lists that can be reached.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "counting_allocator.hpp"
#include "isa_test.hpp"
#include "policies.hpp"
#include "saved_files.hpp"
#include "simple_cache.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::any_kv_cache;

struct setting {
  const char* name;
  const char* policy;
  const char* older;  // policy of an older tier, or null
  int kv_heads;
  bool half_window;
  int window;
  int pins;
};

constexpr int caches_count = 4;
constexpr int most_tokens = 260;

kvaxis::cache_config config_of(const setting& s) {
  kvaxis::cache_config c = test::rope_shape(s.kv_heads, 8);
  c.tile_tokens = 32;
  c.window = s.window;
  c.pins = s.pins;
  c.half_window = s.half_window;
  if (s.older != nullptr) {
    const test::policies p = test::find(s.older);
    c.older_tiers_count = 1;
    c.older_tiers[0] = {p.keys, p.values, s.window + 40};
  }
  return c;
}

class world {
 public:
  world(const setting& s, std::uint64_t seed) : config_(config_of(s)), random_(seed) {
    empty_ = test::cache_of(s.policy, config_, memory_.hook());
    kvaxis::cache_config folding = config_;
    folding.window = 0;
    folding.pins = 0;
    folding.older_tiers_count = 0;
    folds_alone_ = test::cache_of(s.policy, folding);
    rotates_ = empty_.format()->key_policy.rotation != kvaxis::post;
    for (int i = 0; i < caches_count; ++i) {
      kvaxis::check(empty_.fork(caches_[i]));
      models_.emplace_back(config_, rotates_);
    }
  }

  void step() {
    const int which = random_.below(caches_count);
    any_kv_cache& cache = caches_[which];
    test::simple_cache& model = models_[static_cast<std::size_t>(which)];
    const int operation = random_.below(100);
    if (model.count() > most_tokens) {
      const int tokens = random_.below(40);
      done_ = "truncate much";
      kvaxis::check(cache.truncate(tokens));
      model.erase(tokens, model.count() - tokens);
    } else if (operation < 40) {
      append(cache, model);
    } else if (operation < 50) {
      done_ = "truncate";
      const int tokens = model.count() - random_.below(std::min(model.count(), 50) + 1);
      kvaxis::check(cache.truncate(tokens));
      model.erase(tokens, model.count() - tokens);
    } else if (operation < 58) {
      done_ = "erase";
      const int first = random_.below(model.count() + 1);
      const int n = random_.below(std::min(model.count() - first, 40) + 1);
      kvaxis::check(cache.erase(first, n));
      model.erase(first, n);
    } else if (operation < 62) {
      done_ = "keep_last";
      const int keep = 1 + random_.below(150);
      kvaxis::check(cache.keep_last(keep));
      const int pinned = static_cast<int>(std::count_if(model.tokens.begin(), model.tokens.end(),
                                                        [](const test::simple_token& t) { return t.pinned; }));
      if (model.count() - pinned > keep) model.erase(pinned, model.count() - pinned - keep);
    } else if (operation < 70) {
      move(cache, model);
    } else if (operation < 80) {
      done_ = "fork";
      const int to = random_.below(caches_count);
      kvaxis::check(cache.fork(caches_[to]));
      models_[static_cast<std::size_t>(to)] = test::simple_cache(model);
    } else if (operation < 84) {
      splice(which);
    } else if (operation < 86) {
      done_ = "save and restore";
      const auto to = static_cast<std::size_t>(random_.below(caches_count));
      kvaxis::check(test::restore(test::save(cache), caches_[to]));
      models_[to] = test::simple_cache(model);
    } else if (operation < 88) {
      done_ = "flush";
      kvaxis::check(cache.flush());
    } else if (operation < 91) {
      done_ = "fold";
      kvaxis::check(cache.fold());
      appended_ = true;
    } else if (operation < 95) {
      done_ = "demote";
      kvaxis::check(cache.demote());
    } else if (operation < 97) {
      done_ = "reserve";
      kvaxis::check(cache.reserve(random_.below(most_tokens)));
    } else if (operation < 98) {
      done_ = "clear";
      cache.clear();
      model.tokens.clear();
    } else {
      done_ = "drop";
      kvaxis::check(empty_.fork(cache));
      model.tokens.clear();
    }
    compare(which);
    appended_ = false;
    if (++steps_ % 64 == 0) {
      for (int i = 0; i < caches_count; ++i) compare(i);
      check_memory();
    }
  }

 private:
  void append(any_kv_cache& cache, test::simple_cache& model) {
    done_ = "append";
    const int n = 1 + random_.below(random_.below(4) == 0 ? 70 : 12);
    const bool gap = random_.below(8) == 0;
    const std::int64_t position = model.next_position() + (gap ? random_.below(50) - 10 : 0);
    const bool deferred = random_.below(6) == 0;
    const test::tokens t(config_, n, random_.next());
    kvaxis::check(t.append_to(cache, 0, n, gap ? position : kvaxis::next,
                              deferred ? kvaxis::fold_mode::deferred : kvaxis::fold_mode::now));
    for (int i = 0; i < n; ++i) model.append(position + i, t.key(i), t.value(i));
    appended_ = !deferred;
  }
  void move(any_kv_cache& cache, test::simple_cache& model) {
    done_ = "move";
    const int first = random_.below(model.count() + 1);
    const int n = random_.below(model.count() - first + 1);
    const int delta = random_.below(200) - 100;
    const kvaxis::status s = cache.move(first, n, delta);
    if (!rotates_ && n > 0) {
      EXPECT_EQ(s.code, kvaxis::errc::unsupported);
      return;
    }
    kvaxis::check(s);
    model.move(first, n, delta);
  }
  void splice(int which) {
    done_ = "splice";
    const int from = (which + 1 + random_.below(caches_count - 1)) % caches_count;
    any_kv_cache& cache = caches_[which];
    test::simple_cache& model = models_[static_cast<std::size_t>(which)];
    const test::simple_cache& other = models_[static_cast<std::size_t>(from)];
    int pinned = 0;
    while (pinned < model.count() && model.at(pinned).pinned) ++pinned;
    const int at = random_.below(3) == 0 ? pinned + random_.below(model.count() - pinned + 1) : model.count();
    const int first = random_.below(other.count() + 1);
    const int n = random_.below(std::min(other.count() - first, 80) + 1);
    std::int64_t position = random_.below(400);
    if (!rotates_ && n > 0) position = other.tokens[static_cast<std::size_t>(first)].position;
    kvaxis::check(cache.splice(at, caches_[from], first, n, position));
    model.splice(at, other, first, n, position);
  }

  // Reads every token back, learns what newly folded ones became, and attends.
  void compare(int which) {
    const any_kv_cache& cache = caches_[which];
    test::simple_cache& model = models_[static_cast<std::size_t>(which)];
    ASSERT_EQ(cache.size(), model.count()) << where();
    ASSERT_EQ(cache.next_position(), model.next_position()) << where();
    const kvaxis::sequence_view view = cache.view();
    int index = 0;
    int exact = 0;
    for (int i = 0; i < view.entry_count; ++i) {
      const kvaxis::entry& e = view.entries[i];
      ASSERT_EQ(e.folded, e.tile->folded) << where();
      ASSERT_TRUE(e.count > 0 && (!e.open || i == view.entry_count - 1)) << where();
      if (!e.folded && !e.pinned) exact += e.count;
      const bool fresh = e.folded && model.at(index).tier < 0;
      if (fresh && e.tier == 0) check_folding(cache, model, index, e.count);
      for (int j = 0; j < e.count; ++j, ++index) compare_token(cache, e, index, model.at(index));
    }
    check_fold_rule(view, exact);
    check_attention(cache, model);
  }

  void compare_token(const any_kv_cache& cache, const kvaxis::entry& e, int index, test::simple_token& t) {
    ASSERT_EQ(cache.position(index), t.position) << where();
    ASSERT_EQ(e.pinned, t.pinned) << where();
    std::vector<float> key(t.key.size());
    std::vector<float> value(t.value.size());
    for (int h = 0; h < config_.kv_heads; ++h) {
      kvaxis::check(cache.read_key(index, h, key.data() + h * config_.head_dim));
      kvaxis::check(cache.read_value(index, h, value.data() + h * config_.head_dim));
    }
    const int tier = e.folded ? e.tier : -1;
    ASSERT_GE(tier, t.tier) << where();
    if (tier < 0 && !config_.half_window) {
      ASSERT_TRUE(key == t.key && value == t.value) << where();
    } else if (tier == t.tier && !t.read_key.empty()) {
      ASSERT_TRUE(key == t.read_key && value == t.read_value) << where();
    } else {
      // Newly stored in another format: a coarse bound, the codecs have tests of their own.
      for (std::size_t c = 0; c < key.size(); ++c) ASSERT_NEAR(key[c], t.key[c], 0.4F) << where();
      for (std::size_t c = 0; c < value.size(); ++c) ASSERT_NEAR(value[c], t.value[c], 0.4F) << where();
    }
    t.tier = tier;
    t.read_key = key;
    t.read_value = value;
  }

  // A tile that has just been folded has the numbers of one that was folded alone.
  void check_folding(const any_kv_cache& cache, test::simple_cache& model, int first, int count) {
    folds_alone_.clear();
    for (int i = first; i < first + count; ++i) {
      ASSERT_LT(model.at(i).tier, 0) << where();
      kvaxis::check(folds_alone_.append(model.at(i).key.data(), model.at(i).value.data(), 1, model.at(i).position));
    }
    kvaxis::check(folds_alone_.flush());
    std::vector<float> here(static_cast<std::size_t>(config_.head_dim));
    std::vector<float> alone(here.size());
    for (int i = 0; i < count; ++i) {
      for (int h = 0; h < config_.kv_heads; ++h) {
        kvaxis::check(cache.read_key(first + i, h, here.data()));
        kvaxis::check(folds_alone_.read_key(i, h, alone.data()));
        ASSERT_EQ(here, alone) << where();
        kvaxis::check(cache.read_value(first + i, h, here.data()));
        kvaxis::check(folds_alone_.read_value(i, h, alone.data()));
        ASSERT_EQ(here, alone) << where();
      }
    }
  }

  // After an append that folds, everything is folded that may be, and nothing more.
  void check_fold_rule(const kvaxis::sequence_view& view, int exact) {
    if (!appended_) return;
    for (int i = 0; i < view.entry_count; ++i) {
      const kvaxis::entry& e = view.entries[i];
      if (e.folded || e.pinned) continue;
      ASSERT_TRUE(e.open || exact - e.count < config_.window) << where();
      return;
    }
  }

  void check_attention(const any_kv_cache& cache, const test::simple_cache& model) {
    const std::vector<float> q = random_.uniforms(static_cast<std::size_t>(model.key_width()), 3.0F);
    const std::vector<float> sinks = random_.uniforms(static_cast<std::size_t>(config_.kv_heads), 2.0F);
    const std::int64_t position = model.next_position() - 30 + random_.below(60);
    kvaxis::attend_options o;
    o.arithmetic = kvaxis::arithmetic::f32;
    if (random_.below(3) == 0) o.sliding_window = 1 + random_.below(100);
    o.pins_visible = random_.below(2) == 0;
    if (random_.below(3) == 0) o.sink_logits = sinks.data();
    workspace_.resize(cache.workspace_bytes(1, o));
    std::vector<float> out(static_cast<std::size_t>(model.value_width()), 12345.0F);
    std::vector<float> lse(static_cast<std::size_t>(config_.kv_heads));
    kvaxis::check(
        cache.attend(q.data(), 1, position, o, out.data(), lse.data(), {workspace_.data(), workspace_.size()}));
    const test::simple_cache::answer expected = model.attend(q.data(), position, o);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected.out[i], 1e-4 * expected.largest_value + 1e-6) << where();
    }
    for (std::size_t h = 0; h < lse.size(); ++h) {
      if (std::isinf(expected.lse[h])) {
        ASSERT_EQ(lse[h], -INFINITY) << where();
      } else {
        ASSERT_NEAR(lse[h], expected.lse[h], 1e-4 * std::max(1.0, std::fabs(expected.lse[h]))) << where();
      }
    }
  }

  void check_memory() {
    std::set<const kvaxis::tile*> tiles;
    std::set<const kvaxis::tile_format*> formats;
    std::size_t bytes = 0;
    const auto count = [&](const any_kv_cache& cache) {
      const kvaxis::sequence_view view = cache.view();
      bytes += cache.bytes().spare + cache.bytes().bookkeeping;
      for (const kvaxis::tile_format* f : view.tiers) {
        if (f == nullptr) continue;
        bytes -= f->bytes;
        formats.insert(f);
      }
      for (int i = 0; i < view.entry_count; ++i) tiles.insert(view.entries[i].tile);
    };
    count(empty_);
    for (const any_kv_cache& cache : caches_) count(cache);
    for (const kvaxis::tile* t : tiles) bytes += t->bytes;
    for (const kvaxis::tile_format* f : formats) bytes += f->bytes;
    ASSERT_EQ(memory_.live_bytes, bytes) << where();
  }

  [[nodiscard]] std::string where() const { return std::to_string(steps_) + " steps, then " + done_; }

  kvaxis::cache_config config_;
  test::numbers random_;
  counting_allocator memory_;
  any_kv_cache empty_;
  any_kv_cache folds_alone_;
  any_kv_cache caches_[caches_count];
  std::vector<test::simple_cache> models_;
  std::vector<std::byte> workspace_;
  bool rotates_ = true;
  bool appended_ = false;
  const char* done_ = "";
  int steps_ = 0;
};

class random_operations : public ::testing::TestWithParam<setting> {};

TEST_P(random_operations, agree_with_a_vector_of_tokens) {
  constexpr int steps = 25000;
  auto w = std::make_unique<world>(GetParam(), 17);
  for (int i = 0; i < steps && !HasFailure(); ++i) w->step();
}

INSTANTIATE_TEST_SUITE_P(
    settings, random_operations,
    ::testing::Values(setting{"hot_pairs_and_a_tier", "k:int8-channel32-auto,v:int8-token16",
                              "k:int4-channel32-auto,v:int4-token16", 2, false, 40, 3},
                      setting{"no_window", "k:int4-channel32-pre,v:int4-channel32", nullptr, 1, false, 0, 0},
                      setting{"half_window", "k:e4m3-token16-tile,v:int4-token16", nullptr, 1, true, 70, 5},
                      setting{"rotated_by_the_engine", "k:int4-channel32-post,v:f16", nullptr, 1, false, 33, 1}),
    [](const ::testing::TestParamInfo<setting>& tested) { return std::string(tested.param.name); });

}  // namespace
