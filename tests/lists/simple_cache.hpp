// What a cache must be, said as simply as possible: a vector of tokens. A token knows what was appended and, once it was
// seen folded, what it reads back as from then on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <kvaxis/cache/any_kv_cache.hpp>
#include <vector>

#include "numbers.hpp"

namespace test {

struct simple_token {
  std::int64_t position = 0;
  std::vector<float> key;  // as appended, all heads
  std::vector<float> value;
  bool pinned = false;
  int tier = -1;  // of its tile when it was last seen, -1: full precision
  std::vector<float> read_key;
  std::vector<float> read_value;
};

class simple_cache {
 public:
  simple_cache(const kvaxis::cache_config& c, bool rotates) : config_(&c), rotates_(rotates) {}

  std::vector<simple_token> tokens;

  [[nodiscard]] std::int64_t next_position() const { return tokens.empty() ? 0 : tokens.back().position + 1; }
  [[nodiscard]] int count() const { return static_cast<int>(tokens.size()); }

  void append(std::int64_t position, const float* key, const float* value) {
    simple_token t;
    t.position = position;
    t.key.assign(key, key + key_width());
    t.value.assign(value, value + value_width());
    const auto is_pinned = [](const simple_token& other) { return other.pinned; };
    t.pinned = count() < config_->pins && std::all_of(tokens.begin(), tokens.end(), is_pinned);
    tokens.push_back(t);
  }
  void erase(int first, int n) { tokens.erase(tokens.begin() + first, tokens.begin() + first + n); }
  void move(int first, int n, std::int64_t delta) {
    for (int i = first; i < first + n; ++i) at(i).position += delta;
  }
  void splice(int where, const simple_cache& other, int first, int n, std::int64_t position) {
    std::vector<simple_token> copied(other.tokens.begin() + first, other.tokens.begin() + first + n);
    const bool keeps_pins = tokens.empty() && first == 0;
    const std::int64_t delta = n == 0 ? 0 : position - copied.front().position;
    for (simple_token& t : copied) {
      t.position += delta;
      t.pinned = t.pinned && keeps_pins;
    }
    tokens.insert(tokens.begin() + where, copied.begin(), copied.end());
  }

  [[nodiscard]] int key_width() const { return config_->kv_heads * config_->head_dim; }
  [[nodiscard]] int value_width() const {
    return config_->kv_heads * (config_->value_dim == 0 ? config_->head_dim : config_->value_dim);
  }
  simple_token& at(int i) { return tokens[static_cast<std::size_t>(i)]; }

  // Attention of one query row per kv head over what the tokens read back as, in double. out [kv_head][value_dim].
  struct answer {
    std::vector<double> out;
    std::vector<double> lse;
    double largest_value = 0;
  };
  [[nodiscard]] answer attend(const float* q, std::int64_t position, const kvaxis::attend_options& o) const {
    const int dim = config_->head_dim;
    const int value_dim = value_width() / config_->kv_heads;
    const bool rotates = rotates_;
    answer a;
    std::vector<double> logits(tokens.size());
    for (int h = 0; h < config_->kv_heads; ++h) {
      const double sink = o.sink_logits != nullptr ? static_cast<double>(o.sink_logits[h]) : -INFINITY;
      double top = sink;
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        const simple_token& token = tokens[t];
        logits[t] = -INFINITY;
        if (token.position > position) continue;
        const bool in_window = o.sliding_window == 0 || token.position > position - o.sliding_window;
        if (!in_window && !(o.pins_visible && token.pinned)) continue;
        logits[t] = dot(q + h * dim, token.read_key.data() + h * dim, rotates ? position - token.position : 0) /
                    std::sqrt(static_cast<double>(dim));
        top = std::max(top, logits[t]);
      }
      double total = o.sink_logits != nullptr ? std::exp(sink - top) : 0.0;
      std::vector<double> sums(static_cast<std::size_t>(value_dim));
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        if (logits[t] == -INFINITY) continue;
        const double w = std::exp(logits[t] - top);
        total += w;
        for (int c = 0; c < value_dim; ++c) {
          const auto v = static_cast<double>(tokens[t].read_value[static_cast<std::size_t>(h * value_dim + c)]);
          sums[static_cast<std::size_t>(c)] += w * v;
          a.largest_value = std::max(a.largest_value, std::fabs(v));
        }
      }
      for (const double s : sums) a.out.push_back(total > 0 ? s / total : 0.0);
      a.lse.push_back(total > 0 ? top + std::log(total) : -INFINITY);
    }
    return a;
  }

 private:
  // q turned by `distance` positions against k, which is not turned.
  [[nodiscard]] double dot(const float* q, const float* k, std::int64_t distance) const {
    const kvaxis::rope& r = config_->rope;
    double sum = 0;
    for (int c = 0; c < config_->head_dim; ++c) sum += static_cast<double>(q[c]) * static_cast<double>(k[c]);
    for (int i = 0; i < r.pairs_count && distance != 0; ++i) {
      const kvaxis::rope_pair& pair = r.pairs[static_cast<std::size_t>(i)];
      const auto a = static_cast<double>(q[pair.a]);
      const auto b = static_cast<double>(q[pair.b]);
      const double angle = static_cast<double>(distance) * pair.frequency;
      const double turned_a = a * std::cos(angle) - b * std::sin(angle);
      const double turned_b = a * std::sin(angle) + b * std::cos(angle);
      sum += (turned_a - a) * static_cast<double>(k[pair.a]) + (turned_b - b) * static_cast<double>(k[pair.b]);
    }
    return sum;
  }

  const kvaxis::cache_config* config_;
  bool rotates_;
};

}  // namespace test
