// Every argument is checked, the answer names it, and nothing has changed.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <kvaxis/rope/rope.hpp>

namespace {

using kvaxis::bits_double;
using kvaxis::errc;
using kvaxis::rope_layout;
using kvaxis::rope_parameters;
using rule = kvaxis::rope_scaling::rule;

const double infinity = bits_double(0x7FF0000000000000U);
const double nan = bits_double(0x7FF8000000000000U);

class RopeErrors : public ::testing::Test {
 protected:
  RopeErrors() {
    good_.head_dim = 64;
    good_.scaling.factor = 4.0;
    good_.scaling.original_context = 4096.0;
    EXPECT_TRUE(kvaxis::make_rope(good_, out_).ok());
    std::memcpy(&before_, &out_, sizeof out_);
  }

  bool unchanged() const { return std::memcmp(&before_, &out_, sizeof out_) == 0; }

  // A change of one argument of a good configuration must be refused under that argument's name.
  template <class Change>
  void expect_refusal(const char* argument, errc code, Change change) {
    rope_parameters p = good_;
    change(p);
    const kvaxis::status s = kvaxis::make_rope(p, out_);
    EXPECT_EQ(s.code, code) << argument;
    EXPECT_STREQ(s.argument, argument);
    EXPECT_TRUE(unchanged()) << argument;
  }

  void expect_refusal(const char* argument, errc code, rule kind, double kvaxis::rope_scaling::*member, double value) {
    expect_refusal(argument, code, [&](rope_parameters& p) {
      p.scaling.kind = kind;
      p.scaling.*member = value;
    });
  }

  rope_parameters good_;
  kvaxis::rope out_;
  kvaxis::rope before_;
};

TEST_F(RopeErrors, shapes) {
  for (const int head_dim : {-8, 0, 7, 577, 1 << 30}) {
    expect_refusal("head_dim", errc::out_of_range, [&](rope_parameters& p) { p.head_dim = head_dim; });
  }
  for (const int first : {-1, 63, 64, 1 << 30}) {
    expect_refusal("first_channel", errc::out_of_range, [&](rope_parameters& p) { p.first_channel = first; });
  }
  for (const int n : {-2, 1, 66, 1 << 30}) {
    expect_refusal("rotary_dim", errc::out_of_range, [&](rope_parameters& p) { p.rotary_dim = n; });
  }
  expect_refusal("rotary_dim", errc::invalid_argument, [](rope_parameters& p) { p.rotary_dim = 33; });
  expect_refusal("rotary_dim", errc::invalid_argument, [](rope_parameters& p) { p.first_channel = 1; });
  expect_refusal("layout", errc::invalid_argument, [](rope_parameters& p) { p.layout = static_cast<rope_layout>(2); });
}

TEST_F(RopeErrors, the_limit_is_told) {
  rope_parameters p = good_;
  p.head_dim = 577;
  EXPECT_EQ(kvaxis::make_rope(p, out_).limit, 576);
  p = good_;
  p.first_channel = 32;
  p.rotary_dim = 34;
  EXPECT_EQ(kvaxis::make_rope(p, out_).limit, 32);
}

TEST_F(RopeErrors, theta) {
  for (const double theta : {0.0, -1e4, 0.5, 1e20, infinity, -infinity, nan}) {
    expect_refusal("theta", errc::out_of_range, [&](rope_parameters& p) { p.theta = theta; });
  }
  expect_refusal("theta", errc::invalid_argument, [](rope_parameters& p) {
    p.theta = 1.0;
    p.scaling.kind = rule::yarn;
  });
}

TEST_F(RopeErrors, scaling) {
  using scaling = kvaxis::rope_scaling;
  expect_refusal("scaling.kind", errc::invalid_argument,
                 [](rope_parameters& p) { p.scaling.kind = static_cast<rule>(5); });
  for (const rule kind : {rule::linear, rule::ntk, rule::llama3, rule::yarn}) {
    for (const double bad : {0.0, 0.99, -2.0, 1e7, infinity, nan}) {
      expect_refusal("scaling.factor", errc::out_of_range, kind, &scaling::factor, bad);
    }
  }
  for (const rule kind : {rule::llama3, rule::yarn}) {
    for (const double bad : {0.0, -4096.0, 1e10, infinity, nan}) {
      expect_refusal("scaling.original_context", errc::out_of_range, kind, &scaling::original_context, bad);
    }
  }
  for (const double bad : {0.0, -1.0, infinity, nan}) {
    expect_refusal("scaling.low_frequency_factor", errc::out_of_range, rule::llama3, &scaling::low_frequency_factor,
                   bad);
    expect_refusal("scaling.beta_slow", errc::out_of_range, rule::yarn, &scaling::beta_slow, bad);
  }
  for (const double bad : {0.0, 1.0, infinity, nan}) {
    expect_refusal("scaling.high_frequency_factor", errc::invalid_argument, rule::llama3,
                   &scaling::high_frequency_factor, bad);
  }
  for (const double bad : {-1.0, 1e-4, 2000.0, infinity, nan}) {
    expect_refusal("scaling.attention_factor", errc::out_of_range, rule::none, &scaling::attention_factor, bad);
  }
}

TEST_F(RopeErrors, B31_swapped_yarn_bounds) {
  expect_refusal("scaling.beta_fast", errc::invalid_argument, [](rope_parameters& p) {
    p.scaling.kind = rule::yarn;
    p.scaling.beta_fast = 1.0;
    p.scaling.beta_slow = 32.0;
  });
  for (const double bad : {0.5, infinity, nan}) {
    expect_refusal("scaling.beta_fast", errc::invalid_argument, rule::yarn, &kvaxis::rope_scaling::beta_fast, bad);
  }
}

TEST_F(RopeErrors, unused_members_of_the_scaling_are_not_checked) {
  rope_parameters p = good_;
  p.scaling.factor = 0.0;
  p.scaling.original_context = nan;
  EXPECT_TRUE(kvaxis::make_rope(p, out_).ok());
}

TEST_F(RopeErrors, frequencies_of_the_caller) {
  const double fine[32] = {1.0};
  const auto refused = [&](int head_dim, int first, rope_layout layout, const double* w, int count) {
    const kvaxis::status s = kvaxis::make_rope(head_dim, first, layout, w, count, out_);
    EXPECT_FALSE(s.ok());
    EXPECT_TRUE(unchanged());
    return s.argument;
  };
  constexpr rope_layout split = rope_layout::half_split;
  EXPECT_STREQ(refused(7, 0, split, fine, 1), "head_dim");
  EXPECT_STREQ(refused(64, -1, split, fine, 1), "first_channel");
  EXPECT_STREQ(refused(64, 0, static_cast<rope_layout>(-1), fine, 1), "layout");
  EXPECT_STREQ(refused(64, 0, split, nullptr, 1), "inverse_frequencies");
  EXPECT_STREQ(refused(64, 0, split, fine, 0), "count");
  EXPECT_STREQ(refused(64, 0, split, fine, 33), "count");
  EXPECT_STREQ(refused(64, 2, split, fine, 32), "count");
  for (const double bad : {6.2832, -6.2832, infinity, -infinity, nan}) {
    const double w[2] = {1.0, bad};
    EXPECT_STREQ(refused(64, 0, split, w, 2), "inverse_frequencies") << bad;
  }
}

TEST_F(RopeErrors, check_rope_reads_every_field) {
  const auto refused = [&](auto change, int head_dim = 64) {
    kvaxis::rope r = out_;
    change(r);
    return kvaxis::check_rope(r, head_dim).argument;
  };
  const auto nothing = [](kvaxis::rope&) {};
  EXPECT_STREQ(refused(nothing), "");
  EXPECT_STREQ(refused(nothing, 4), "head_dim");
  EXPECT_STREQ(refused(nothing, 1000), "head_dim");
  EXPECT_STREQ(refused(nothing, 62), "rope.pairs_count") << "made for a larger head";
  EXPECT_STREQ(refused([](kvaxis::rope& r) { r.pairs_count = -1; }), "rope.pairs_count");
  EXPECT_STREQ(refused([](kvaxis::rope& r) { r.pairs_count = 33; }), "rope.pairs_count");
  EXPECT_STREQ(refused([](kvaxis::rope& r) { r.pairs[31].b = 64; }), "rope.pairs");
  EXPECT_STREQ(refused([](kvaxis::rope& r) { r.pairs[0].a = -1; }), "rope.pairs");
  EXPECT_STREQ(refused([](kvaxis::rope& r) { r.pairs[5].b = r.pairs[5].a; }), "rope.pairs") << "a pair with itself";
  EXPECT_STREQ(refused([](kvaxis::rope& r) { r.pairs[5].a = 31; }), "rope.pairs") << "a channel in two pairs";
  for (const double bad : {6.2832, -6.2832, infinity, nan}) {
    EXPECT_STREQ(refused([&](kvaxis::rope& r) { r.pairs[3].frequency = bad; }), "rope.pairs.frequency") << bad;
  }
  for (const double bad : {0.0, -1.0, 1e-6, 1e6, infinity, nan}) {
    EXPECT_STREQ(refused([&](kvaxis::rope& r) { r.attention_factor = bad; }), "rope.attention_factor") << bad;
  }
}

}  // namespace
