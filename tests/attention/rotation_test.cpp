// Rotation inside attention: every kind of rope with every storage, at odd positions, with gaps, far out, and negative.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "against_oracle.hpp"

namespace {

using kvaxis::rope_layout;

struct named_rope {
  const char* name;
  kvaxis::rope rope;
};

std::vector<named_rope> ropes() {
  std::vector<named_rope> out = {{"none", {}},
                                 {"half-split", test::rope_of(64)},
                                 {"interleaved", test::rope_of(64, 0, 0, rope_layout::interleaved)},
                                 {"partial", test::rope_of(64, 32)},
                                 {"partial, interleaved", test::rope_of(64, 20, 0, rope_layout::interleaved)},
                                 {"the last channels", test::rope_of(64, 22, 42)}};
  kvaxis::rope crossed;  // pairs in any order, an odd number of them, frequencies with either sign and zero
  crossed.pairs_count = 5;
  crossed.pairs[0] = {63, 0, 1.0};
  crossed.pairs[1] = {7, 40, -0.37};
  crossed.pairs[2] = {8, 1, 0.0};
  crossed.pairs[3] = {31, 30, 3.14159};
  crossed.pairs[4] = {2, 62, 1e-4};
  out.push_back({"crossed", crossed});
  out.push_back({"attention factor", test::rope_of(64, 48)});
  out.back().rope.attention_factor = 1.1386;
  return out;
}

const char* const policies[] = {"k:int4-channel64-pre,v:int4-token64",  "k:int4-channel64-tile,v:int4-token64",
                                "k:int8-channel32-auto,v:int8-token32", "k:int4-channel32-hot2,v:f16",
                                "k:int8-token32-pre,v:int4-channel32",  "k:e4m3-token64-tile,v:f32",
                                "k:f32-channel64-auto,v:int4s-token64", "k:int4-channel64-post,v:int4-token64"};

std::vector<std::string> fitting(const kvaxis::rope& rope) {
  std::vector<std::string> out;
  for (const std::string name : policies) {
    if (rope.pairs_count >= 2 || name.find("hot") == std::string::npos) out.push_back(name);
  }
  return out;
}

// Keys of which some pairs have a large constant part, so that the automatic choice differs from tile to tile and head
// to head: the masks are as good as random.
void append_biased(kvaxis::any_kv_cache& cache, int tokens, std::uint64_t seed, std::int64_t first_position) {
  const kvaxis::tile_format& f = *cache.format();
  test::numbers random(seed);
  std::vector<float> bias(static_cast<std::size_t>(f.kv_heads * f.head_dim));
  for (float& b : bias) b = random.below(3) == 0 ? random.uniform() * 20.0F : 0.0F;
  std::vector<float> k;
  for (int t = 0; t < tokens; ++t) {
    for (const float b : bias) k.push_back(random.uniform() + b);
  }
  const std::vector<float> v = random.uniforms(static_cast<std::size_t>(tokens * f.kv_heads * f.value_dim), 2.0F);
  kvaxis::check(cache.append(k.data(), v.data(), tokens, first_position));
}

TEST(Rotation, every_rope_with_every_storage) {
  for (const named_rope& r : ropes()) {
    for (const std::string& name : fitting(r.rope)) {
      SCOPED_TRACE(std::string(r.name) + ", " + name);
      test::shape s;
      s.pins = 3;  // the first tile begins at an odd position
      kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(s, r.rope));
      append_biased(cache, 70, 1, 1001);
      append_biased(cache, 100, 2, kvaxis::next);
      ASSERT_GE(cache.folded_tokens(), 128);
      const test::agreement check(cache, r.rope);
      check.expect({1, 1, 1171});
      check.expect({3, 2, 1100});
      check.expect({5, 1, 1500});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Rotation, gaps_and_positions_out_of_order) {
  const kvaxis::rope rope = test::rope_of(64);
  for (const std::string name : policies) {
    SCOPED_TRACE(name);
    test::shape s;
    s.window = 0;
    kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of(s, rope));
    std::vector<std::int64_t> positions;
    const auto append = [&](int tokens, std::int64_t at) {
      append_biased(cache, tokens, static_cast<std::uint64_t>(tokens), at);
      for (int i = 0; i < tokens; ++i) positions.push_back(at + i);
    };
    append(2, 7);  // the pins, with a gap inside
    append(2, 100);
    append(33, -45);  // short tiles, at negative positions, before what is there
    append(70, 4097);
    append(1, 4999);
    append(64, 5000);  // goes on where the last one ended
    append(5, 300);
    kvaxis::check(cache.flush());
    ASSERT_EQ(test::positions_of(cache), positions);
    const test::agreement check(cache, rope);
    for (const std::int64_t at : {std::int64_t{-46}, std::int64_t{-45}, std::int64_t{-20}, std::int64_t{101},
                                  std::int64_t{302}, std::int64_t{4120}, std::int64_t{5063}, std::int64_t{20000}}) {
      check.expect({2, 1, at});
    }
    check.expect({5, 3, 4998});
    if (HasFatalFailure()) return;
  }
}

TEST(Rotation, far_positions) {
  const kvaxis::rope rope = test::rope_of(64);
  for (const char* name : {"k:int4-channel64-pre,v:int4-token64", "k:int8-channel32-auto,v:f16"}) {
    SCOPED_TRACE(name);
    for (const std::int64_t far :
         {std::int64_t{1} << 20, (std::int64_t{1} << 31) - 400, -(std::int64_t{1} << 31) + 9}) {
      kvaxis::any_kv_cache cache = test::cache_of(name, test::config_of({}, rope));
      append_biased(cache, 150, 3, far);
      const test::agreement check(cache, rope);
      check.expect({2, 1, far + 149});
      // A query a million tokens later.
      if (far < kvaxis::max_position / 2) check.expect({1, 1, far + (1 << 20)});
    }
  }
}

// The same keys at another place, asked from another place at the same distance: the same logits, where both move by a
// multiple of 32.
TEST(Rotation, only_the_distance_counts) {
  const kvaxis::rope rope = test::rope_of(64);
  const std::vector<float> q = test::numbers(8).uniforms(2 * 64);
  for (const kvaxis::isa isa : isas_under_test()) {
    const isa_scope scope(isa);
    std::vector<std::vector<float>> logits;
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{800}, std::int64_t{131072}, std::int64_t{-4992}}) {
      kvaxis::any_kv_cache cache = test::cache_of("k:int4-channel64-auto,v:f16", test::config_of({}, rope));
      append_biased(cache, 150, 4, at);
      logits.push_back(test::scores(cache, q, 1, at + 149));
      EXPECT_EQ(logits.back(), logits.front()) << kvaxis::isa_name(isa) << " at " << at;
    }
  }
}

// attention_factor goes into the logits squared, and nowhere else.
TEST(Rotation, B31_the_attention_factor_is_squared_once) {
  kvaxis::rope rope = test::rope_of(64);
  const kvaxis::any_kv_cache plain = [&] {
    kvaxis::any_kv_cache cache = test::cache_of("k:int8-channel64-pre,v:int8-token64", test::config_of({}, rope));
    append_biased(cache, 150, 5, 0);
    return cache;
  }();
  rope.attention_factor = 1.1386;
  kvaxis::any_kv_cache scaled = test::cache_of("k:int8-channel64-pre,v:int8-token64", test::config_of({}, rope));
  append_biased(scaled, 150, 5, 0);
  const std::vector<float> q = test::numbers(6).uniforms(2 * 64);
  const std::vector<float> a = test::scores(plain, q, 1, 149);
  const std::vector<float> b = test::scores(scaled, q, 1, 149);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(b[i], a[i] * 1.1386F * 1.1386F, 2e-5F) << i;
  }
  std::vector<float> key_a(64);
  std::vector<float> key_b(64);
  kvaxis::check(plain.read_key(10, 1, key_a.data()));
  kvaxis::check(scaled.read_key(10, 1, key_b.data()));
  EXPECT_EQ(key_a, key_b) << "stored keys carry none of it";
}

}  // namespace
