#include "layer_caches.hpp"

#include <algorithm>
#include <kvaxis/cache/plan.hpp>
#include <stdexcept>

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

layer_caches::layer_caches(const model_shape& shape, const cache_options& options, int tokens, thread_pool& pool,
                           const kvaxis::allocator& memory)
    : shape_(shape), options_(options), pool_(pool) {
  kvaxis::named_policy policy;
  kvaxis::check(kvaxis::find_policy(options.policy, policy));
  rotates_outside_ = policy.keys.policy.rotation == kvaxis::post;
  if (rotates_outside_ && options.context != 0) {
    throw std::invalid_argument("a context cannot shift keys that are stored rotated: " + options.policy);
  }
  std::vector<kvaxis::layer_config> layers;
  for (int i = 0; i < shape.layers; ++i) {
    kvaxis::rope_parameters rotation;
    rotation.head_dim = shape.head_dim;
    rotation.rotary_dim = shape.rotary_dim;
    rotation.theta = shape.theta_of(i);
    rotation.layout = shape.pairs;
    kvaxis::check(kvaxis::make_rope(rotation, ropes_.emplace_back()));
    layers.push_back(configure(i, policy));
  }
  kvaxis::check(kvaxis::sequence::create(layers.data(), shape.layers, memory, sequence_));
  kvaxis::check(sequence_.reserve(options.context == 0 ? tokens : std::min(tokens, options.context)));
}

layer_caches::layer_caches(const layer_caches& other)
    : shape_(other.shape_),
      options_(other.options_),
      pool_(other.pool_),
      ropes_(other.ropes_),
      rotates_outside_(other.rotates_outside_) {
  kvaxis::check(other.sequence_.fork(sequence_));
}

kvaxis::layer_config layer_caches::configure(int layer, const kvaxis::named_policy& policy) const {
  kvaxis::cache_config config;
  config.kv_heads = shape_.kv_heads;
  config.head_dim = shape_.head_dim;
  config.window = options_.window;
  config.pins = options_.pins;
  config.growth = options_.growth;
  config.rope = ropes_[static_cast<std::size_t>(layer)];
  kvaxis::layer_config out{policy.apply(config), policy.keys, policy.values};
  if (options_.key_codec != nullptr) out.keys.codec = options_.key_codec;
  if (options_.value_codec != nullptr) out.values.codec = options_.value_codec;
  return out;
}

matrix layer_caches::attend(int layer, matrix& queries, matrix& keys, const matrix& values, kvaxis::fold_mode mode) {
  kvaxis::any_kv_cache& cache = sequence_[layer];
  const int first = static_cast<int>(cache.size()), count = static_cast<int>(queries.rows());
  if (rotates_outside_) {
    const kvaxis::rope& rope = ropes_[static_cast<std::size_t>(layer)];
    rotate_rows(rope, first, shape_.head_dim, queries);
    rotate_rows(rope, first, shape_.head_dim, keys);
  }
  kvaxis::check(cache.append(keys.data(), values.data(), count, kvaxis::next, mode));
  if (options_.fold_before_attention) kvaxis::check(cache.flush());

  kvaxis::attend_options attention;
  attention.query_heads = shape_.query_heads;
  attention.arithmetic = options_.arithmetic;
  if (shape_.is_local(layer)) attention.sliding_window = shape_.sliding_window;
  workspace_.resize(std::max(workspace_.size(), cache.workspace_bytes(count, attention)));
  matrix out(count, queries.cols());
  kvaxis::check(cache.attend(queries.data(), count, first, attention, out.data(), nullptr,
                             {workspace_.data(), workspace_.size()}, pool_));
  if (mode == kvaxis::fold_mode::deferred) kvaxis::check(cache.fold());
  return out;
}

int layer_caches::step_size(int most, int layer) const {
  const int first = static_cast<int>(sequence_[layer].size());
  if (options_.context != 0) most = std::min(most, options_.context - first);
  if (options_.fold_before_attention) return most;
  const int tile = sequence_[layer].format()->tokens;
  const int first_fold = options_.pins + options_.window + tile - 1;  // the token whose arrival folds the first tile
  const int next_fold = first < first_fold ? first_fold : first + tile - (first - first_fold) % tile;
  return std::min(most, next_fold - first);
}

void layer_caches::truncate(int tokens) { kvaxis::check(sequence_.truncate(tokens)); }

int layer_caches::make_room() {
  if (options_.context == 0 || size() < options_.context) return 0;
  const int begin = options_.pins, end = size();
  const int half = (end - begin) / 2;
  const int gone = half < 64 ? half : half / 64 * 64;  // whole tiles of 32 or 64 tokens, which return their memory
  kvaxis::check(sequence_.erase(begin, begin + gone));
  kvaxis::check(sequence_.move(begin + gone, end, -gone));
  return gone;
}

std::size_t layer_caches::bytes() const {
  std::size_t total = 0;
  for (int i = 0; i < sequence_.layers(); ++i) total += sequence_[i].bytes().total() - sequence_[i].bytes().spare;
  return total;
}

std::size_t layer_caches::bytes_at(int tokens) const {
  kvaxis::named_policy policy;
  kvaxis::check(kvaxis::find_policy(options_.policy, policy));
  std::size_t total = 0;
  for (int i = 0; i < shape_.layers; ++i) {
    const kvaxis::layer_config layer = configure(i, policy);
    kvaxis::cache_bytes bytes;
    kvaxis::check(kvaxis::plan_cache(layer.config, layer.keys, layer.values, tokens, bytes));
    total += bytes.total() - bytes.spare;
  }
  return total;
}

std::size_t layer_caches::f16_bytes_at(int tokens) const {
  return static_cast<std::size_t>(shape_.layers) * static_cast<std::size_t>(tokens) * numbers_per_token() * 2;
}

double layer_caches::bits_per_value() const {
  std::size_t bytes = 0, tokens = 0;
  for (int i = 0; i < sequence_.layers(); ++i) {
    bytes += sequence_[i].bytes().folded;
    tokens += static_cast<std::size_t>(sequence_[i].folded_tokens());
  }
  if (tokens == 0) return 32;
  return 8 * static_cast<double>(bytes) / static_cast<double>(tokens * numbers_per_token());
}

std::size_t layer_caches::numbers_per_token() const {
  return 2 * static_cast<std::size_t>(shape_.kv_heads) * static_cast<std::size_t>(shape_.head_dim);
}

}  // namespace llm
