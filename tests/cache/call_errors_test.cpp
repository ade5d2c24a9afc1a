// Everything that the calls of a cache refuse: the status names the argument and its limit, the cache does not change
// by a bit, and nothing is written.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "policies.hpp"
#include "tokens.hpp"

namespace {

using kvaxis::errc;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t far = kvaxis::max_position;

void expect_status(const kvaxis::status& s, errc code, const std::string& argument, std::int64_t limit) {
  EXPECT_EQ(s.code, code) << argument;
  EXPECT_EQ(s.argument, argument);
  EXPECT_EQ(s.limit, limit) << argument;
}

// 150 tokens at positions 10 .. 159, two kv heads of 16 channels and 24 for values.
class Refused : public ::testing::Test {
 protected:
  Refused() {
    config_.window = 20;
    cache_ = test::cache_of("k:int4-channel32-pre,v:int4-token32", config_);
    kvaxis::check(data_.append_to(cache_, 0, 150, 10));
    before_ = test::snapshot(cache_);
  }
  ~Refused() override {
    EXPECT_EQ(test::snapshot(cache_) == before_, true);
    for (const float x : out_) EXPECT_EQ(x, 12345.0F);
  }

  kvaxis::cache_config config_ = test::rope_shape(2, 16, 24);
  test::tokens data_{config_, 200, 1};
  kvaxis::any_kv_cache cache_;
  std::string before_;
  std::vector<float> q_ = test::numbers(2).uniforms(3 * 4 * 16);
  std::vector<float> out_ = std::vector<float>(3 * 4 * 150, 12345.0F);
  std::vector<char> memory_ = std::vector<char>(1 << 20);
  kvaxis::workspace workspace_{memory_.data(), memory_.size()};
};

using AppendRefused = Refused;

TEST_F(AppendRefused, number_of_tokens_and_positions) {
  expect_status(data_.append_to(cache_, 0, -1), errc::out_of_range, "n", 0);
  expect_status(data_.append_to(cache_, 0, 1, -far - 1), errc::out_of_range, "first_position", -far);
  expect_status(data_.append_to(cache_, 0, 5, far - 4), errc::out_of_range, "first_position", far - 5);
  expect_status(data_.append_to(cache_, 0, 1, std::numeric_limits<std::int64_t>::max()), errc::out_of_range,
                "first_position", far - 1);
  expect_status(data_.append_to(cache_, 0, 1, kvaxis::next + 1), errc::out_of_range, "first_position", -far);
}

TEST_F(AppendRefused, pointers_and_strides) {
  const float* const none = nullptr;
  const float* const k = data_.k.data();
  const float* const v = data_.v.data();
  expect_status(cache_.append(none, v, 1), errc::invalid_argument, "k", 0);
  expect_status(cache_.append(k, none, 1), errc::invalid_argument, "v", 0);
  expect_status(cache_.append({k, 0, 15}, v, 1), errc::invalid_argument, "k.head_stride", 16);
  expect_status(cache_.append({k, 15, 0}, v, 1), errc::invalid_argument, "k.token_stride", 16);
  expect_status(cache_.append(k, {v, 0, -24}, 1), errc::invalid_argument, "v.head_stride", 24);
  expect_status(cache_.append(k, {v, 23, 48}, 1), errc::invalid_argument, "v.token_stride", 24);
  EXPECT_TRUE(cache_.append(none, none, 0).ok());  // no token: nothing is read
}

// The worst place is the last: the last number of the last head of the last token.
TEST_F(AppendRefused, B14_numbers_that_are_not_finite_or_too_large) {
  for (const bool is_key : {true, false}) {
    for (const int token : {0, 50, 99}) {
      for (const float bad : {nan, -nan, infinity, -infinity, 65505.0F, -1e38F}) {
        test::tokens data = data_;
        std::vector<float>& x = is_key ? data.k : data.v;
        const std::size_t width = is_key ? data.key_width : data.value_width;
        x[width * static_cast<std::size_t>(token + 1) - 1] = bad;
        const bool finite = kvaxis::is_finite(bad);
        expect_status(data.append_to(cache_, 0, 100), finite ? errc::out_of_range : errc::non_finite,
                      is_key ? "k" : "v", finite ? (bad > 0 ? 65504 : -65504) : token);
      }
    }
  }
  // The same of rows in 16 bits.
  std::vector<kvaxis::bfloat16> wide(48, kvaxis::to_bfloat16(1.0F));
  wide[30] = kvaxis::to_bfloat16(-1e30F);
  expect_status(cache_.append(wide.data(), data_.v.data(), 1), errc::out_of_range, "k", -65504);
  std::vector<kvaxis::float16> half(48, kvaxis::to_float16(1.0F));
  half[47] = kvaxis::to_float16(nan);
  expect_status(cache_.append(data_.k.data(), half.data(), 1), errc::non_finite, "v", 0);
}

using AttendRefused = Refused;

TEST_F(AttendRefused, options_sizes_and_positions) {
  struct bad_options {
    kvaxis::attend_options o;
    errc code;
    const char* argument;
    std::int64_t limit;
  };
  kvaxis::attend_options none;
  const float sinks[] = {0.0F, nan};
  const std::vector<bad_options> cases = {
      {{3, 0, 0, 16}, errc::invalid_argument, "query_heads", 2},
      {{-2, 0, 0, 16}, errc::invalid_argument, "query_heads", 2},
      {{514, 0, 0, 16}, errc::out_of_range, "query_heads", 256},
      {{0, -1.0F, 0, 16}, errc::invalid_argument, "scale", 0},
      {{0, nan, 0, 16}, errc::invalid_argument, "scale", 0},
      {{0, 0, -2.0F, 16}, errc::invalid_argument, "soft_cap", 0},
      {{0, 0, infinity, 16}, errc::invalid_argument, "soft_cap", 0},
      {{0, 0, 0, 0}, errc::out_of_range, "max_tasks", 1},
      {{0, 0, 0, 1, {}, -1}, errc::out_of_range, "sliding_window", 2 * kvaxis::max_position},
      {{0, 0, 0, 1, {}, 0, false, sinks}, errc::non_finite, "sink_logits", 1},
  };
  for (const bad_options& c : cases) {
    const auto refused = [&](kvaxis::status s) { expect_status(s, c.code, c.argument, c.limit); };
    refused(cache_.attend(q_.data(), 1, 160, c.o, out_.data(), out_.data(), workspace_));
    refused(cache_.scores(q_.data(), 1, 160, c.o, out_.data(), workspace_));
    refused(cache_.weighted_sum(q_.data(), 1, c.o, out_.data(), workspace_));
    EXPECT_EQ(cache_.workspace_bytes(1, c.o), 0U);
  }
  struct bad_call {
    int n_query;
    std::int64_t position;
    const char* argument;
    std::int64_t limit;
  };
  for (const bad_call& c : std::vector<bad_call>{{-1, 160, "n_query", 0},
                                                 {kvaxis::max_queries + 1, 160, "n_query", kvaxis::max_queries},
                                                 {1, -far - 1, "first_position", -far},
                                                 {1, far, "first_position", far - 1},
                                                 {3, far - 2, "first_position", far - 3}}) {
    const auto refused = [&](kvaxis::status s) { expect_status(s, errc::out_of_range, c.argument, c.limit); };
    refused(cache_.attend(q_.data(), c.n_query, c.position, none, out_.data(), nullptr, workspace_));
    refused(cache_.scores(q_.data(), c.n_query, c.position, none, out_.data(), workspace_));
  }
  expect_status(cache_.weighted_sum(q_.data(), -1, none, out_.data(), workspace_), errc::out_of_range, "n_query", 0);
  EXPECT_EQ(cache_.workspace_bytes(-1, none), 0U);
  EXPECT_EQ(cache_.workspace_bytes(std::numeric_limits<int>::max(), none), 0U);
  EXPECT_EQ(cache_.workspace_bytes(1, none, far + 1), 0U);
}

TEST_F(AttendRefused, pointers_and_numbers) {
  const kvaxis::attend_options o;
  expect_status(cache_.attend(nullptr, 1, 160, o, out_.data(), nullptr, workspace_), errc::invalid_argument, "q", 0);
  expect_status(cache_.attend(q_.data(), 1, 160, o, nullptr, nullptr, workspace_), errc::invalid_argument, "out", 0);
  expect_status(cache_.scores(nullptr, 1, 160, o, out_.data(), workspace_), errc::invalid_argument, "q", 0);
  expect_status(cache_.scores(q_.data(), 1, 160, o, nullptr, workspace_), errc::invalid_argument, "out", 0);
  expect_status(cache_.weighted_sum(nullptr, 1, o, out_.data(), workspace_), errc::invalid_argument, "weights", 0);
  expect_status(cache_.weighted_sum(q_.data(), 1, o, nullptr, workspace_), errc::invalid_argument, "out", 0);
  for (const float bad : {nan, infinity, -infinity}) {
    std::vector<float> q = q_;
    q[2 * 2 * 16 + 31] = bad;  // the last number of the third query
    expect_status(cache_.attend(q.data(), 3, 160, o, out_.data(), nullptr, workspace_), errc::non_finite, "q", 2);
    expect_status(cache_.scores(q.data(), 3, 160, o, out_.data(), workspace_), errc::non_finite, "q", 2);
    std::vector<float> weights(2 * 2 * 150);
    weights[599] = bad;
    expect_status(cache_.weighted_sum(weights.data(), 2, o, out_.data(), workspace_), errc::non_finite, "weights", 1);
  }
}

TEST_F(AttendRefused, workspace_too_small) {
  kvaxis::attend_options o;
  o.query_heads = 4;
  const std::vector<float> weights(3 * 4 * 150);
  for (const int n : {1, 3}) {
    const std::size_t needed = cache_.workspace_bytes(n, o);
    for (const kvaxis::workspace w :
         {kvaxis::workspace{}, kvaxis::workspace{nullptr, needed}, kvaxis::workspace{memory_.data(), 0},
          kvaxis::workspace{memory_.data(), needed - 1}}) {
      const auto refused = [&](kvaxis::status s) {
        expect_status(s, errc::out_of_range, "workspace", static_cast<std::int64_t>(needed));
      };
      refused(cache_.attend(q_.data(), n, 160, o, out_.data(), nullptr, w));
      refused(cache_.scores(q_.data(), n, 160, o, out_.data(), w));
      refused(cache_.weighted_sum(weights.data(), n, o, out_.data(), w));
    }
  }
}

// Distances are refused beyond 2^31 - 1 as positions are.
TEST(DistanceRefused, between_query_and_the_lowest_key) {
  const kvaxis::cache_config c = test::rope_shape(1, 16);
  kvaxis::any_kv_cache cache = test::cache_of("k:f32,v:f32", c);
  const test::tokens data(c, 2, 3);
  kvaxis::check(data.append_to(cache, 0, 1, -far));
  std::vector<char> memory(cache.workspace_bytes(1, {}));
  float out[16];
  const kvaxis::workspace w{memory.data(), memory.size()};
  kvaxis::check(cache.attend(data.key(0), 1, -1, {}, out, nullptr, w));
  EXPECT_EQ(std::memcmp(out, data.value(0), sizeof out), 0);
  expect_status(cache.attend(data.key(0), 1, 0, {}, out, nullptr, w), errc::out_of_range, "first_position", -1);
  expect_status(cache.scores(data.key(0), 1, far - 1, {}, out, w), errc::out_of_range, "first_position", -1);
  kvaxis::check(data.append_to(cache, 1, 1, far - 1));  // queries before it see only the first
  kvaxis::check(cache.attend(data.key(0), 1, -1, {}, out, nullptr, w));
  EXPECT_EQ(std::memcmp(out, data.value(0), sizeof out), 0);
  EXPECT_EQ(cache.next_position(), far);
  expect_status(data.append_to(cache, 0, 1), errc::out_of_range, "first_position", far - 1);
}

using ReadRefused = Refused;

TEST_F(ReadRefused, tokens_heads_and_pointers) {
  float* const out = out_.data();
  const std::int64_t wrong = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t token : {std::int64_t{-1}, std::int64_t{150}, wrong}) {
    expect_status(cache_.read_key(token, 0, out), errc::out_of_range, "token", 149);
    expect_status(cache_.read_value(token, 0, out), errc::out_of_range, "token", 149);
  }
  for (const int head : {-1, 2}) {
    expect_status(cache_.read_key(0, head, out), errc::out_of_range, "kv_head", 1);
    expect_status(cache_.read_value(0, head, out), errc::out_of_range, "kv_head", 1);
  }
  expect_status(cache_.read_key(0, 0, nullptr), errc::invalid_argument, "out", 0);
  expect_status(cache_.read_value(0, 0, nullptr), errc::invalid_argument, "out", 0);
  expect_status(cache_.reserve(-1), errc::out_of_range, "tokens", far);
  expect_status(cache_.reserve(far + 1), errc::out_of_range, "tokens", far);
}

// A cache that was never created, or was moved from, refuses every call.
TEST(Uncreated, every_call_is_refused) {
  kvaxis::any_kv_cache cache;
  kvaxis::any_kv_cache moved = test::cache_of("k:f16,v:f16", test::shape(1, 8));
  const kvaxis::any_kv_cache taken = std::move(moved);
  EXPECT_NE(taken.format(), nullptr);
  float x[8] = {};
  for (kvaxis::any_kv_cache* c : {&cache, &moved}) {  // NOLINT(bugprone-use-after-move)
    const auto refused = [](kvaxis::status s) { expect_status(s, errc::invalid_argument, "cache: not created", 0); };
    refused(c->reserve(10));
    refused(c->append(x, x, 1));
    refused(c->append(x, x, 0));
    refused(c->fold());
    refused(c->flush());
    refused(c->read_key(0, 0, x));
    refused(c->read_value(0, 0, x));
    refused(c->attend(x, 1, 0, {}, x, nullptr, {}));
    refused(c->scores(x, 1, 0, {}, x, {}));
    refused(c->weighted_sum(x, 1, {}, x, {}));
    EXPECT_EQ(c->workspace_bytes(1, {}), 0U);
    EXPECT_EQ(c->bytes().total(), 0U);
    EXPECT_EQ(c->size(), 0);
    EXPECT_EQ(c->view().entry_count, 0);
    EXPECT_EQ(c->format(), nullptr);
    c->clear();
  }
}

}  // namespace
