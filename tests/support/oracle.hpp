// Attention in double on what a cache gives back token by token: read_key, read_value, and the true positions. The
// rotation is by sine and cosine of long double angles, each key by its own position, so nothing of the library's
// tile-relative arithmetic is repeated here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kvaxis/cache/any_kv_cache.hpp>
#include <limits>
#include <utility>
#include <vector>

namespace test {

// The positions of all tokens, as the list of entries has them.
inline std::vector<std::int64_t> positions_of(const kvaxis::any_kv_cache& cache) {
  std::vector<std::int64_t> out;
  const kvaxis::sequence_view view = cache.view();
  for (int i = 0; i < view.entry_count; ++i) {
    const kvaxis::entry& e = view.entries[i];
    for (int j = 0; j < e.count; ++j) out.push_back(e.base_position + e.begin + j);
  }
  return out;
}

class oracle {
 public:
  struct result {
    std::vector<double> out;  // [query][query_head][value_dim]
    std::vector<double> lse;  // [query][query_head]
  };
  // [query][query_head][token]; `magnitude` is the sum of |products| of a logit before the cap, the unit of its
  // rounding errors.
  struct logits {
    std::vector<double> value;
    std::vector<double> magnitude;
  };

  // `rope` is the cache's; it does not count for keys stored `post`.
  oracle(const kvaxis::any_kv_cache& cache, const kvaxis::rope& rope) : oracle(cache, rope, positions_of(cache)) {
    const kvaxis::sequence_view view = cache.view();
    for (int i = 0; i < view.entry_count && view.entries[i].pinned; ++i) pinned_ += size(view.entries[i].count);
  }

  oracle(const kvaxis::any_kv_cache& cache, const kvaxis::rope& rope, std::vector<std::int64_t> positions)
      : positions_(std::move(positions)),
        rope_(rope),
        kv_heads_(cache.format()->kv_heads),
        head_dim_(cache.format()->head_dim),
        value_dim_(cache.format()->value_dim) {
    if (cache.format()->key_policy.rotation == kvaxis::post) rope_.pairs_count = 0;
    std::vector<float> key(size(head_dim_));
    std::vector<float> value(size(value_dim_));
    for (std::size_t t = 0; t < positions_.size(); ++t) {
      const turn angles(rope_, positions_[t]);
      for (int h = 0; h < kv_heads_; ++h) {
        if (!cache.read_key(static_cast<std::int64_t>(t), h, key.data()).ok() ||
            !cache.read_value(static_cast<std::int64_t>(t), h, value.data()).ok()) {
          std::fill(key.begin(), key.end(), std::numeric_limits<float>::quiet_NaN());
        }
        std::vector<double> turned(key.begin(), key.end());
        angles.apply(rope_, turned.data());
        keys_.insert(keys_.end(), turned.begin(), turned.end());
        values_.insert(values_.end(), value.begin(), value.end());
      }
    }
    for (const double v : values_) largest_value_ = std::max(largest_value_, std::fabs(v));
  }

  [[nodiscard]] const std::vector<std::int64_t>& positions() const { return positions_; }
  [[nodiscard]] double largest_value() const { return largest_value_; }
  // The bound of an attention output: 1e-4 of the largest value, and 1e-6.
  [[nodiscard]] double output_bound() const { return 1e-4 * largest_value_ + 1e-6; }

  // Logits as any_kv_cache::scores gives them: scaled, capped, -infinity where masked.
  [[nodiscard]] logits scores(const std::vector<float>& q, int n_query, std::int64_t first_position,
                              const kvaxis::attend_options& o) const {
    const int heads = o.query_heads == 0 ? kv_heads_ : o.query_heads;
    const double scale =
        o.scale > 0.0F ? static_cast<double>(o.scale) : 1.0 / std::sqrt(static_cast<double>(head_dim_));
    const double factor = rope_.attention_factor * rope_.attention_factor;
    logits l;
    for (int i = 0; i < n_query; ++i) {
      const std::int64_t position = o.query_positions == nullptr ? first_position + i : o.query_positions[i];
      const turn angles(rope_, position);
      for (int h = 0; h < heads; ++h) {
        const float* from = q.data() + size(i * heads + h) * size(head_dim_);
        std::vector<double> query(from, from + head_dim_);
        angles.apply(rope_, query.data());
        for (int p = 0; p < rope_.pairs_count; ++p) {
          const kvaxis::rope_pair& pair = rope_.pairs[size(p)];
          query[size(pair.a)] *= factor;
          query[size(pair.b)] *= factor;
        }
        for (std::size_t t = 0; t < positions_.size(); ++t) {
          const double* key = keys_.data() + (t * size(kv_heads_) + size(h / (heads / kv_heads_))) * size(head_dim_);
          double sum = 0;
          double magnitude = 0;
          for (int c = 0; c < head_dim_; ++c) {
            sum += query[size(c)] * key[c];
            magnitude += std::fabs(query[size(c)] * key[c]);
          }
          const double cap = static_cast<double>(o.soft_cap);
          const double logit = cap > 0 ? cap * std::tanh(scale * sum / cap) : scale * sum;
          const bool in_window = o.sliding_window == 0 || positions_[t] > position - o.sliding_window;
          const bool sees = positions_[t] <= position && (in_window || (o.pins_visible && t < pinned_));
          l.value.push_back(sees ? logit : -std::numeric_limits<double>::infinity());
          l.magnitude.push_back(scale * magnitude);
        }
      }
    }
    return l;
  }

  // As any_kv_cache::attend; a query that sees no key gets 0 and -infinity.
  [[nodiscard]] result attend(const std::vector<float>& q, int n_query, std::int64_t first_position,
                              const kvaxis::attend_options& o) const {
    const int heads = o.query_heads == 0 ? kv_heads_ : o.query_heads;
    const std::vector<double> logit = scores(q, n_query, first_position, o).value;
    const std::size_t tokens = positions_.size();
    std::vector<double> weights(logit.size());
    result r;
    for (std::size_t row = 0; row < size(n_query) * size(heads); ++row) {
      double top = -std::numeric_limits<double>::infinity();
      if (o.sink_logits != nullptr) top = static_cast<double>(o.sink_logits[row % size(heads)]);
      const double sink = top;
      for (std::size_t t = 0; t < tokens; ++t) top = std::max(top, logit[row * tokens + t]);
      double total = o.sink_logits == nullptr ? 0.0 : std::exp(sink - top);
      for (std::size_t t = 0; t < tokens; ++t) {
        if (is_masked(logit[row * tokens + t])) continue;
        weights[row * tokens + t] = std::exp(logit[row * tokens + t] - top);
        total += weights[row * tokens + t];
      }
      for (std::size_t t = 0; t < tokens && total > 0; ++t) weights[row * tokens + t] /= total;
      r.lse.push_back(total > 0 ? top + std::log(total) : -std::numeric_limits<double>::infinity());
    }
    r.out = weighted_sum(weights, n_query, heads);
    return r;
  }

  // As any_kv_cache::weighted_sum, for weights in double or float.
  template <class Weight>
  [[nodiscard]] std::vector<double> weighted_sum(const std::vector<Weight>& weights, int n_query, int heads) const {
    std::vector<double> out(size(n_query) * size(heads) * size(value_dim_), 0.0);
    for (std::size_t row = 0; row < size(n_query) * size(heads); ++row) {
      const std::size_t head = row % size(heads) / size(heads / kv_heads_);
      for (std::size_t t = 0; t < positions_.size(); ++t) {
        const auto w = static_cast<double>(weights[row * positions_.size() + t]);
        const double* value = values_.data() + (t * size(kv_heads_) + head) * size(value_dim_);
        for (int c = 0; c < value_dim_; ++c) out[row * size(value_dim_) + size(c)] += w * value[c];
      }
    }
    return out;
  }

 private:
  // Sine and cosine of every pair's angle at a position.
  struct turn {
    std::vector<double> sine;
    std::vector<double> cosine;

    turn(const kvaxis::rope& r, std::int64_t position) {
      for (int i = 0; i < r.pairs_count; ++i) {
        const long double angle =
            static_cast<long double>(position) * static_cast<long double>(r.pairs[size(i)].frequency);
        sine.push_back(static_cast<double>(std::sin(angle)));
        cosine.push_back(static_cast<double>(std::cos(angle)));
      }
    }
    void apply(const kvaxis::rope& r, double* head) const {
      for (int i = 0; i < r.pairs_count; ++i) {
        const kvaxis::rope_pair& pair = r.pairs[size(i)];
        const double a = head[pair.a];
        const double b = head[pair.b];
        head[pair.a] = a * cosine[size(i)] - b * sine[size(i)];
        head[pair.b] = a * sine[size(i)] + b * cosine[size(i)];
      }
    }
  };

  static std::size_t size(int n) { return static_cast<std::size_t>(n); }
  static bool is_masked(double logit) { return logit < -1e300; }

  std::vector<std::int64_t> positions_;
  kvaxis::rope rope_;
  int kv_heads_;
  int head_dim_;
  int value_dim_;
  std::size_t pinned_ = 0;  // tokens
  double largest_value_ = 0;
  std::vector<double> keys_;    // [token][kv_head][head_dim], rotated to their positions
  std::vector<double> values_;  // [token][kv_head][value_dim]
};

}  // namespace test
