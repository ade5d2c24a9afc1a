#include "layer_caches.hpp"

#include <algorithm>
#include <kvaxis/cache/make_cache.hpp>
#include <kvaxis/cache/plan.hpp>

namespace llm {
namespace {

// Rotates every head of every row; row i stands at position first + i.
void rotate_rows(const kvaxis::rope& rope, int first, int head_dim, matrix& rows) {
  for (Eigen::Index i = 0; i < rows.rows(); ++i) {
    for (Eigen::Index at = 0; at < rows.cols(); at += head_dim)
      kvaxis::rotate(rope, first + i, rows.row(i).data() + at);
  }
}

}  // namespace

layer_caches::layer_caches(const model_shape& shape, const cache_options& options, int tokens, thread_pool& pool)
    : shape_(shape), options_(options), pool_(pool) {
  config_.kv_heads = shape.kv_heads;
  config_.head_dim = shape.head_dim;
  config_.window = options.window;
  config_.pins = options.pins;
  config_.growth = options.growth;
  kvaxis::rope_parameters rotation;
  rotation.head_dim = shape.head_dim;
  rotation.rotary_dim = shape.rotary_dim;
  rotation.theta = shape.theta;
  // Files of this architecture have their weights permuted for interleaved pairs.
  rotation.layout = kvaxis::rope_layout::interleaved;
  kvaxis::check(kvaxis::make_rope(rotation, config_.rope));
  layers_.resize(static_cast<std::size_t>(shape.layers));
  for (kvaxis::any_kv_cache& layer : layers_) {
    kvaxis::check(kvaxis::make_cache(options.policy, config_, kvaxis::allocator{}, layer));
    kvaxis::check(layer.reserve(tokens));
  }
  rotates_outside_ = layers_.front().format()->key_policy.rotation == kvaxis::post;
}

matrix layer_caches::attend(int layer, matrix& queries, matrix& keys, const matrix& values) {
  kvaxis::any_kv_cache& cache = layers_[static_cast<std::size_t>(layer)];
  const int first = static_cast<int>(cache.size()), count = static_cast<int>(queries.rows());
  if (rotates_outside_) {
    rotate_rows(config_.rope, first, shape_.head_dim, queries);
    rotate_rows(config_.rope, first, shape_.head_dim, keys);
  }
  kvaxis::check(cache.append(keys.data(), values.data(), count));
  if (options_.fold_before_attention) kvaxis::check(cache.flush());

  kvaxis::attend_options attention;
  attention.query_heads = shape_.query_heads;
  attention.arithmetic = options_.arithmetic;
  workspace_.resize(std::max(workspace_.size(), cache.workspace_bytes(count, attention)));
  matrix out(count, queries.cols());
  kvaxis::check(cache.attend(queries.data(), count, first, attention, out.data(), nullptr,
                             {workspace_.data(), workspace_.size()}, pool_));
  return out;
}

int layer_caches::step_end(int first, int end) const {
  if (options_.fold_before_attention) return end;
  const int tile = layers_.front().format()->tokens;
  const int first_fold = options_.pins + options_.window + tile - 1;  // the token whose arrival folds the first tile
  const int next_fold = first < first_fold ? first_fold : first + tile - (first - first_fold) % tile;
  return std::min(end, next_fold);
}

std::size_t layer_caches::bytes() const {
  std::size_t total = 0;
  for (const kvaxis::any_kv_cache& layer : layers_) total += layer.bytes().total() - layer.bytes().spare;
  return total;
}

std::size_t layer_caches::bytes_at(int tokens) const {
  kvaxis::named_policy policy;
  kvaxis::cache_bytes layer;
  kvaxis::check(kvaxis::find_policy(options_.policy, policy));
  kvaxis::check(kvaxis::plan_cache(policy.apply(config_), policy.keys, policy.values, tokens, layer));
  return layers_.size() * (layer.total() - layer.spare);
}

std::size_t layer_caches::f16_bytes_at(int tokens) const {
  return layers_.size() * static_cast<std::size_t>(tokens) * numbers_per_token() * 2;
}

double layer_caches::bits_per_value() const {
  std::size_t bytes = 0, tokens = 0;
  for (const kvaxis::any_kv_cache& layer : layers_) {
    bytes += layer.bytes().folded;
    tokens += static_cast<std::size_t>(layer.folded_tokens());
  }
  if (tokens == 0) return 32;
  return 8 * static_cast<double>(bytes) / static_cast<double>(tokens * numbers_per_token());
}

std::size_t layer_caches::numbers_per_token() const {
  return 2 * static_cast<std::size_t>(shape_.kv_heads) * static_cast<std::size_t>(shape_.head_dim);
}

}  // namespace llm
