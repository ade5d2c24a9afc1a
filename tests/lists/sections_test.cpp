// Several positions of one token (M-RoPE): a cache whose keys and queries were turned to their places gives the logits of
// the true positions, before and after its tokens moved.
#include <gtest/gtest.h>

#include <cmath>
#include <kvaxis/cache/any_kv_cache.hpp>
#include <kvaxis/rope/sections.hpp>
#include <vector>

#include "policies.hpp"
#include "tokens.hpp"

namespace {

constexpr int dim = 32;
constexpr int sections[] = {4, 6, 6};

kvaxis::rope_sections sections_of(const kvaxis::rope& r) {
  kvaxis::rope_sections s;
  kvaxis::check(kvaxis::make_sections(r, sections, 3, s));
  return s;
}

struct token_positions {
  std::int64_t axis[3];
};

// Text, then an image of 6 x 8 patches at one time, then text again.
std::vector<token_positions> mixed_positions() {
  std::vector<token_positions> out;
  for (std::int64_t i = 0; i < 20; ++i) out.push_back({{i, i, i}});
  for (std::int64_t y = 0; y < 6; ++y) {
    for (std::int64_t x = 0; x < 8; ++x) out.push_back({{20, 20 + y, 20 + x}});
  }
  for (std::int64_t i = 0; i < 60; ++i) out.push_back({{28 + i, 28 + i, 28 + i}});
  return out;
}

// q . k with every pair turned by the difference of its own positions.
double logit(const kvaxis::rope& r, const kvaxis::rope_sections& s, const float* q, const token_positions& at_q,
             const float* k, const token_positions& at_k) {
  double sum = 0;
  for (int i = 0; i < r.pairs_count; ++i) {
    const kvaxis::rope_pair& p = r.pairs[static_cast<std::size_t>(i)];
    const int axis = s.axis_of_pair[static_cast<std::size_t>(i)];
    const double angle = static_cast<double>(at_q.axis[axis] - at_k.axis[axis]) * p.frequency;
    const double a = static_cast<double>(q[p.a]) * std::cos(angle) - static_cast<double>(q[p.b]) * std::sin(angle);
    const double b = static_cast<double>(q[p.a]) * std::sin(angle) + static_cast<double>(q[p.b]) * std::cos(angle);
    sum += a * static_cast<double>(k[p.a]) + b * static_cast<double>(k[p.b]);
  }
  return sum / std::sqrt(static_cast<double>(dim));
}

TEST(Sections, keys_and_queries_turned_to_their_places_give_the_true_logits) {
  kvaxis::cache_config c = test::rope_shape(1, dim);
  c.window = 30;
  const kvaxis::rope_sections s = sections_of(c.rope);
  const std::vector<token_positions> positions = mixed_positions();
  const int n = static_cast<int>(positions.size());
  test::tokens t(c, n, 3);
  const std::vector<float> keys = t.k;
  for (int i = 0; i < n; ++i) {
    kvaxis::turn_to_place(c.rope, s, positions[static_cast<std::size_t>(i)].axis, i, t.k.data() + i * dim);
  }
  kvaxis::any_kv_cache cache = test::cache_of("k:int8-channel32-auto,v:int8-token16", c);
  t.append_all_to(cache);
  const token_positions at{{88, 88, 88}};
  for (const std::int64_t shift : {0, -7}) {
    kvaxis::check(cache.move(0, n, shift));
    std::vector<float> q = test::numbers(9).uniforms(dim);
    const std::vector<float> query = q;
    const std::int64_t place = n + shift;
    const std::int64_t moved[] = {at.axis[0] + shift, at.axis[1] + shift, at.axis[2] + shift};
    kvaxis::turn_to_place(c.rope, s, moved, place, q.data());
    std::vector<float> logits(static_cast<std::size_t>(n));
    kvaxis::attend_options o;
    o.arithmetic = kvaxis::arithmetic::f32;
    std::vector<std::byte> memory(cache.workspace_bytes(1, o));
    kvaxis::check(cache.scores(q.data(), 1, place, o, logits.data(), {memory.data(), memory.size()}));
    for (int i = 0; i < n; ++i) {
      const auto index = static_cast<std::size_t>(i);
      EXPECT_NEAR(logits[index], logit(c.rope, s, query.data(), at, keys.data() + i * dim, positions[index]), 0.02)
          << i;
    }
  }
}

TEST(Sections, one_position_for_all_is_the_plain_rotation) {
  const kvaxis::cache_config c = test::rope_shape(1, dim);
  const kvaxis::rope_sections s = sections_of(c.rope);
  std::vector<float> turned = test::numbers(1).uniforms(dim);
  std::vector<float> rotated = turned;
  const std::int64_t positions[] = {100, 100, 100};
  kvaxis::turn_to_place(c.rope, s, positions, 90, turned.data());
  kvaxis::rotate(c.rope, 10, rotated.data());
  EXPECT_EQ(turned, rotated);
  kvaxis::turn_to_place(c.rope, s, positions, 100, turned.data());
  EXPECT_EQ(turned, rotated);
}

TEST(Sections, counts_must_fit_the_rope) {
  const kvaxis::rope r = test::rope_shape(1, dim).rope;
  kvaxis::rope_sections s;
  s.axes = 77;
  const int too_few[] = {4, 6, 5};
  const int too_many[] = {4, 6, 7};
  const int negative[] = {20, -4};
  EXPECT_EQ(kvaxis::make_sections(r, too_few, 3, s).code, kvaxis::errc::invalid_argument);
  EXPECT_EQ(kvaxis::make_sections(r, too_many, 3, s).code, kvaxis::errc::out_of_range);
  EXPECT_EQ(kvaxis::make_sections(r, negative, 2, s).code, kvaxis::errc::out_of_range);
  EXPECT_EQ(kvaxis::make_sections(r, nullptr, 3, s).code, kvaxis::errc::invalid_argument);
  EXPECT_EQ(kvaxis::make_sections(r, too_few, 5, s).code, kvaxis::errc::out_of_range);
  EXPECT_EQ(s.axes, 77);
}

}  // namespace
