// Every codec on every axis: each number reads back within the bound of its own group, for keys in the form in which
// they are stored (rotated or not), and for values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/quantizers/names.hpp>
#include <numbers.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tile_under_test.hpp"

namespace {

using kvaxis::axis;
using kvaxis::unit_kind;

constexpr int heads = 2;
constexpr int tokens = 64;

// What a codec may be off by at x, in a group with the extremes low and high; `step` is the given scale, or 0.
double bound_of(const kvaxis::codec_table& codec, double x, double low, double high, double step) {
  const double amax = std::max(std::fabs(low), std::fabs(high));
  const double metadata = codec.member_bytes == 2 ? 0x1p-11 * (amax + (high - low)) : 0x1p-22 * (amax + (high - low));
  switch (codec.unit) {
    case unit_kind::u2:
    case unit_kind::u3:
    case unit_kind::u4:
    case unit_kind::u5:
    case unit_kind::u6:
    case unit_kind::u8:
      if (step > 0) return step / 2 * 1.0001;
      if (codec.members == 1) return amax / ((1 << (codec.bits - 1)) - 1) / 2 * 1.02;
      return (high - low) / ((1 << codec.bits) - 1) / 2 * 1.02 + metadata;
    case unit_kind::e4m3: return std::max(0x1p-4 * std::fabs(x), 0x1p-10 * (step > 0 ? step : amax / 448)) * 1.01;
    case unit_kind::e5m2: return std::max(0x1p-3 * std::fabs(x), 0x1p-17 * (step > 0 ? step : amax / 57344)) * 1.01;
    case unit_kind::f16: return std::max(0x1p-11 * std::fabs(x), 0x1p-25);
    case unit_kind::bf16: return 0x1p-8 * std::fabs(x);
    default: return 0.0;
  }
}

struct shape {
  int dim;
  kvaxis::rope rope;
};
std::vector<shape> shapes() {
  return {{8, test::make_rope(8)},
          {46, test::make_rope(46, 32, 0, kvaxis::rope_layout::interleaved)},
          {80, test::make_rope(80, 64, 16)},
          {128, test::make_rope(128)}};
}

// Numbers [token][head][channel] whose channels, tokens and heads have sizes of their own, so that a scale taken from a
// neighbour breaks the bound.
std::vector<float> numbers_of(int dim, std::uint64_t seed, bool small_range) {
  test::numbers random(seed);
  std::vector<float> size(static_cast<std::size_t>(heads * dim));
  for (float& s : size) s = std::ldexp(1.0F, small_range ? -1 : random.below(9) - 4);
  std::vector<float> out;
  for (int t = 0; t < tokens; ++t) {
    const float of_token = small_range ? 1.0F : std::ldexp(1.0F, random.below(7) - 3);
    for (std::size_t c = 0; c < size.size(); ++c) out.push_back(random.bell() * size[c] * of_token);
  }
  return out;
}

// One head as a matrix [token][channel], in double, checked group by group.
struct matrix {
  int dim;
  std::vector<double> x;
  [[nodiscard]] double& at(int t, int c) { return x[static_cast<std::size_t>(t * dim + c)]; }
  [[nodiscard]] double at(int t, int c) const { return x[static_cast<std::size_t>(t * dim + c)]; }
};

struct extremes {
  double low = 0;
  double high = 0;
  bool empty = true;
  void add(double x) {
    low = empty ? x : std::min(low, x);
    high = empty ? x : std::max(high, x);
    empty = false;
  }
};

void expect_within_bounds(const kvaxis::codec_table& codec, const kvaxis::policy& p, double step, const matrix& in,
                          const matrix& back, int count, const std::vector<double>& rounding, const std::string& what) {
  const auto group_of = [&](int t, int c) {
    return static_cast<std::size_t>(p.axis == axis::channel ? c : p.axis == axis::token ? t * in.dim + c / p.group : 0);
  };
  std::vector<extremes> groups(in.x.size());
  for (int t = 0; t < count; ++t) {
    for (int c = 0; c < in.dim; ++c) groups[group_of(t, c)].add(in.at(t, c));
  }
  for (int t = 0; t < count; ++t) {
    for (int c = 0; c < in.dim; ++c) {
      const extremes& g = groups[group_of(t, c)];
      const double bound = bound_of(codec, in.at(t, c), g.low, g.high, step) + rounding[static_cast<std::size_t>(t)];
      ASSERT_LE(std::fabs(back.at(t, c) - in.at(t, c)), bound) << what << " token " << t << " channel " << c;
    }
  }
}

class ReadBack {
 public:
  ReadBack(const kvaxis::codec_table& codec, const kvaxis::policy& policy, const shape& s, int count)
      : codec_(codec), policy_(policy), shape_(s), count_(count) {
    const bool given = policy.axis == axis::tensor && codec.members > 0;
    step_ = given ? (codec.bits < 8 ? std::ldexp(1.0F, 4 - codec.bits) : 0.0625F) : 0.0F;
    offset_ = codec.members == 2 ? -(codec.unit_max - codec.unit_min) / 2 * step_ : codec.offset_factor * step_;
    kvaxis::format_request q;
    q.kv_heads = heads;
    q.head_dim = q.value_dim = s.dim;
    q.tokens = tokens;
    q.rope = &shape_.rope;
    q.key.codec = &codec;
    q.key.policy = policy;
    if (given) {
      q.key.scale = &step_;
      q.key.offset = &offset_;
    }
    q.value = q.key;
    const std::vector<float> keys = numbers_of(s.dim, 1, given);
    const std::vector<float> values = numbers_of(s.dim, 2, given);
    test::tile_under_test tile(q);
    for (int t = 0; t < tokens; ++t) {
      for (int h = 0; h < heads; ++h) {
        tile.set_key(h, t, keys.data() + (t * heads + h) * s.dim);
        tile.set_value(h, t, values.data() + (t * heads + h) * s.dim);
      }
    }
    tile.fold(count);
    for (int h = 0; h < heads; ++h) {
      check(h, keys, true, tile);
      check(h, values, false, tile);
    }
  }

 private:
  void check(int head, const std::vector<float>& all, bool is_key, const test::tile_under_test& tile) const {
    matrix in{shape_.dim, {}};
    matrix back{shape_.dim, {}};
    for (int t = 0; t < count_; ++t) {
      const float* row = all.data() + (t * heads + head) * shape_.dim;
      in.x.insert(in.x.end(), row, row + shape_.dim);
      const std::vector<float> got = is_key ? tile.key(head, t) : tile.value(head, t);
      back.x.insert(back.x.end(), got.begin(), got.end());
    }
    // Rotations in f32, twice, of numbers of the row's size.
    std::vector<double> rounding(static_cast<std::size_t>(count_), 0.0);
    if (is_key) {
      in = stored(in, head, tile, &rounding);
      back = stored(back, head, tile, nullptr);
    }
    char name[64];
    kvaxis::format_policy(codec_.name, policy_, is_key ? kvaxis::role::key : kvaxis::role::value, name, sizeof name);
    const std::string what =
        std::string(name) + " dim " + std::to_string(shape_.dim) + " count " + std::to_string(count_);
    expect_within_bounds(codec_, policy_, step_, in, back, count_, rounding, what);
  }

  // Keys as they are stored: in stored order, cold pairs rotated by the token's offset.
  [[nodiscard]] matrix stored(const matrix& natural, int head, const test::tile_under_test& tile,
                              std::vector<double>* rounding) const {
    matrix out = natural;
    const kvaxis::tile_format& f = tile.format();
    for (int t = 0; t < count_; ++t) {
      double largest = 0;
      for (int c = 0; c < natural.dim; ++c) {
        out.at(t, c) = natural.at(t, f.order[c]);
        largest = std::max(largest, std::fabs(out.at(t, c)));
      }
      for (int i = 0; i < f.pairs; ++i) {
        if ((tile.folded().hot_mask(head)[i / 32] >> (i % 32) & 1U) != 0) continue;
        const double angle = t * shape_.rope.pairs[static_cast<std::size_t>(i)].frequency;
        const double a = out.at(t, 2 * i);
        const double b = out.at(t, 2 * i + 1);
        out.at(t, 2 * i) = a * std::cos(angle) - b * std::sin(angle);
        out.at(t, 2 * i + 1) = a * std::sin(angle) + b * std::cos(angle);
        if (rounding != nullptr) (*rounding)[static_cast<std::size_t>(t)] = 8 * 0x1p-24 * largest;
      }
    }
    return out;
  }

  const kvaxis::codec_table& codec_;
  kvaxis::policy policy_;
  shape shape_;
  int count_;
  float step_;
  float offset_;
};

TEST(ReadBack, per_channel_groups) {
  for (const shape& s : shapes()) {
    for (const kvaxis::codec_table* codec : test::scalar_tables) {
      for (const int rotation : {kvaxis::pre, kvaxis::automatic, 4, kvaxis::tile_rotated, kvaxis::post}) {
        ReadBack(*codec, {axis::channel, tokens, rotation}, s, tokens);
        ReadBack(*codec, {axis::channel, tokens, rotation}, s, 37);
      }
    }
  }
}

TEST(ReadBack, per_token_groups) {
  for (const shape& s : shapes()) {
    for (const kvaxis::codec_table* codec : test::scalar_tables) {
      for (const int rotation : {kvaxis::pre, kvaxis::tile_rotated, kvaxis::post}) {
        for (const int group : {16, 32, 64, 128}) ReadBack(*codec, {axis::token, group, rotation}, s, 37);
      }
    }
  }
}

TEST(ReadBack, one_given_scale) {
  for (const shape& s : shapes()) {
    for (const kvaxis::codec_table* codec : test::scalar_tables) {
      for (const int rotation : {kvaxis::pre, kvaxis::tile_rotated, kvaxis::post}) {
        ReadBack(*codec, {axis::tensor, 0, rotation}, s, tokens);
      }
    }
  }
}

}  // namespace
