// Attention in double precision over the exact keys and values of one layer: what a cache's results are measured
// against. Written from the definition, with the C library's cosine and absolute angles, and shares no code with the
// kernels.
#pragma once

#include <Eigen/Core>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "../attention/options.hpp"

KVAXIS_BEGIN_NAMESPACE

struct reference_layer {
  int kv_heads = 1;
  int head_dim = 0;
  int value_dim = 0;
  std::int64_t tokens = 0;
  const float* keys = nullptr;              // [token][kv_head][head_dim], natural channel order, before RoPE
  const float* values = nullptr;            // [token][kv_head][value_dim]
  const std::int64_t* positions = nullptr;  // [token]; null: 0, 1, 2, ...
  kvaxis::rope rope;

  [[nodiscard]] std::int64_t position(std::int64_t token) const {
    return positions == nullptr ? token : positions[token];
  }
};

namespace detail {

inline Eigen::VectorXd exactly_rotated(const rope& r, std::int64_t position, const float* head, int dim) {
  Eigen::VectorXd out = Eigen::Map<const Eigen::VectorXf>(head, dim).cast<double>();
  for (int i = 0; i < r.pairs_count; ++i) {
    const rope_pair& pair = r.pairs[static_cast<std::size_t>(i)];
    const double angle = static_cast<double>(position) * pair.frequency;
    const double a = out[pair.a];
    const double b = out[pair.b];
    out[pair.a] = a * std::cos(angle) - b * std::sin(angle);
    out[pair.b] = a * std::sin(angle) + b * std::cos(angle);
  }
  return out;
}

}  // namespace detail

// The scaled, capped logits, one row per query and query head, one column per token; -infinity where the key's position
// is beyond the query's. q [query][query_head][head_dim] before RoPE; query i stands at first_position + i.
inline Eigen::MatrixXd reference_scores(const reference_layer& layer, const float* q, int n_query,
                                        std::int64_t first_position, const attend_options& o) {
  const int query_heads = o.query_heads == 0 ? layer.kv_heads : o.query_heads;
  const int group = query_heads / layer.kv_heads;
  const double scale = o.scale > 0.0F ? static_cast<double>(o.scale) : 1.0 / std::sqrt(layer.head_dim);
  const double factor = layer.rope.attention_factor * layer.rope.attention_factor;
  Eigen::MatrixXd out(static_cast<Eigen::Index>(n_query) * query_heads, layer.tokens);
  Eigen::MatrixXd keys(layer.head_dim, layer.tokens);
  for (int head = 0; head < layer.kv_heads; ++head) {
    for (std::int64_t t = 0; t < layer.tokens; ++t) {
      const float* key = layer.keys + (t * layer.kv_heads + head) * layer.head_dim;
      keys.col(t) = detail::exactly_rotated(layer.rope, layer.position(t), key, layer.head_dim);
    }
    for (int query = 0; query < n_query; ++query) {
      for (int h = head * group; h < (head + 1) * group; ++h) {
        const Eigen::Index row = static_cast<Eigen::Index>(query) * query_heads + h;
        Eigen::VectorXd turned =
            detail::exactly_rotated(layer.rope, first_position + query, q + row * layer.head_dim, layer.head_dim);
        for (int i = 0; i < layer.rope.pairs_count; ++i) {
          turned[layer.rope.pairs[static_cast<std::size_t>(i)].a] *= factor;
          turned[layer.rope.pairs[static_cast<std::size_t>(i)].b] *= factor;
        }
        out.row(row) = scale * (keys.transpose() * turned).transpose();
      }
    }
  }
  const auto cap = static_cast<double>(o.soft_cap);
  if (cap > 0.0) out = cap * (out / cap).array().tanh().matrix();
  for (Eigen::Index row = 0; row < out.rows(); ++row) {
    for (std::int64_t t = 0; t < layer.tokens; ++t) {
      if (layer.position(t) > first_position + row / query_heads) out(row, t) = bits_double(0xFFF0000000000000U);
    }
  }
  return out;
}

// softmax(logits) v, one row per query and query head; `lse` (may be null) gets the logarithm of each denominator. A
// query that sees no key gets 0 and -infinity.
inline Eigen::MatrixXd reference_attend(const reference_layer& layer, const float* q, int n_query,
                                        std::int64_t first_position, const attend_options& o,
                                        Eigen::VectorXd* lse = nullptr) {
  const Eigen::MatrixXd scores = reference_scores(layer, q, n_query, first_position, o);
  const Eigen::Index query_heads = o.query_heads == 0 ? layer.kv_heads : o.query_heads;
  const Eigen::Index group = query_heads / layer.kv_heads;
  Eigen::MatrixXd out = Eigen::MatrixXd::Zero(scores.rows(), layer.value_dim);
  if (lse != nullptr) lse->setConstant(scores.rows(), bits_double(0xFFF0000000000000U));
  for (Eigen::Index row = 0; row < scores.rows(); ++row) {
    const auto is_visible = [&](std::int64_t t) { return layer.position(t) <= first_position + row / query_heads; };
    double largest = -DBL_MAX;
    double total = 0.0;
    for (std::int64_t t = 0; t < layer.tokens; ++t) {
      if (is_visible(t) && scores(row, t) > largest) largest = scores(row, t);
    }
    for (std::int64_t t = 0; t < layer.tokens; ++t) {
      if (!is_visible(t)) continue;
      const double weight = std::exp(scores(row, t) - largest);
      const float* value = layer.values + (t * layer.kv_heads + row % query_heads / group) * layer.value_dim;
      out.row(row) += weight * Eigen::Map<const Eigen::RowVectorXf>(value, layer.value_dim).cast<double>();
      total += weight;
    }
    if (total <= 0.0) continue;
    out.row(row) /= total;
    if (lse != nullptr) (*lse)[row] = largest + std::log(total);
  }
  return out;
}

KVAXIS_END_NAMESPACE
