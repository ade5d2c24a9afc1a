// The kvaxis caches of a model's layers: the one place where the example touches the library.
#pragma once

#include <kvaxis/kvaxis.hpp>
#include <string>
#include <vector>

#include "../thread_pool.hpp"
#include "model.hpp"

namespace llm {

struct cache_options {
  std::string policy = "k:int4-channel64-auto,v:int4-token64";
  int window = 128;
  int pins = 4;
  bool fold_before_attention = false;  // quantizes every unpinned token, the newest too, before it is attended to
  float growth = 2.0F;                 // see cache_config
  kvaxis::arithmetic arithmetic = kvaxis::arithmetic::automatic;
};

class layer_caches {
 public:
  // Empty caches with room for `tokens`. Throws kvaxis::error, for example if the policy's name is unknown.
  layer_caches(const model_shape& shape, const cache_options& options, int tokens, thread_pool& pool);

  // Appends the tokens' keys and values to the layer's cache and lets their queries attend, each to the tokens up to
  // its own. All are [token][head][dim] before the rotation; queries and keys are overwritten if the policy rotates
  // outside the cache.
  [[nodiscard]] matrix attend(int layer, matrix& queries, matrix& keys, const matrix& values);

  // Where a step that begins with token `first` has to end, `end` at the latest, for the result to be that of a decoder
  // that appends and attends token by token: before the token whose arrival folds the next tile.
  [[nodiscard]] int step_end(int first, int end) const;

  [[nodiscard]] int size() const { return static_cast<int>(layers_.front().size()); }
  [[nodiscard]] std::size_t bytes() const;                   // in use; without memory that waits for more tokens
  [[nodiscard]] std::size_t bytes_at(int tokens) const;      // the same once the caches hold so many tokens
  [[nodiscard]] std::size_t f16_bytes_at(int tokens) const;  // of that many tokens in f16
  [[nodiscard]] double bits_per_value() const;  // of the folded tokens; 32, the bits of the others, if none is folded

 private:
  [[nodiscard]] std::size_t numbers_per_token() const;  // of one layer

  model_shape shape_;
  cache_options options_;
  thread_pool& pool_;
  kvaxis::cache_config config_;
  bool rotates_outside_;  // the policy stores keys as they are after the rotation
  std::vector<kvaxis::any_kv_cache> layers_;
  std::vector<unsigned char> workspace_;
};

}  // namespace llm
