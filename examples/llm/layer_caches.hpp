// The kvaxis caches of a model's layers: the one place where the example touches the library.
#pragma once

#include <cstdint>
#include <kvaxis/cache/make_cache.hpp>
#include <kvaxis/cache/sequence.hpp>
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
  int context = 0;  // tokens held at most, see make_room(); pins + 2 at least, or 0 for no limit
  // Codecs without a name, in place of those that the policy names; null: the policy's.
  const kvaxis::codec_table* key_codec = nullptr;
  const kvaxis::codec_table* value_codec = nullptr;
};

class layer_caches {
 public:
  // Empty caches with room for `tokens`, or the context if that is less. `memory` must outlive them and their copies.
  // Throws kvaxis::error, for example if the policy's name is unknown, and std::invalid_argument if it stores rotated
  // keys, which cannot move, and the context is limited.
  layer_caches(const model_shape& shape, const cache_options& options, int tokens, thread_pool& pool,
               const kvaxis::allocator& memory = {});
  // A copy is a fork: it shares all that is stored, until one of the two stores more.
  layer_caches(const layer_caches& other);

  // Appends the tokens' keys and values to the layer's cache and lets their queries attend, each to the tokens up to
  // its own. All are [token][head][dim] before the rotation; queries and keys are overwritten if the policy rotates
  // outside the cache. Deferred: what the tokens fold is folded when they have attended.
  [[nodiscard]] matrix attend(int layer, matrix& queries, matrix& keys, const matrix& values,
                              kvaxis::fold_mode mode = kvaxis::fold_mode::now);

  // How many of the layer's next `most` tokens one step may take for the result to be that of a decoder that appends and
  // attends token by token: those before the token whose arrival folds the next tile, or finds the context full.
  [[nodiscard]] int step_size(int most, int layer = 0) const;

  // Rolls back to the first `tokens` tokens.
  void truncate(int tokens);
  // A context shift, if the context is full: of the tokens behind the pinned ones the older half goes, the others move
  // up to the pinned ones. Nothing is encoded again. How many tokens went.
  int make_room();

  [[nodiscard]] int size() const { return static_cast<int>(sequence_[0].size()); }
  [[nodiscard]] const kvaxis::sequence& sequence() const { return sequence_; }
  [[nodiscard]] std::size_t bytes() const;                   // in use; without memory that waits for more tokens
  [[nodiscard]] std::size_t bytes_at(int tokens) const;      // the same once the caches hold so many tokens
  [[nodiscard]] std::size_t f16_bytes_at(int tokens) const;  // of that many tokens in f16
  [[nodiscard]] double bits_per_value() const;  // of the folded tokens; 32, the bits of the others, if none is folded

 private:
  // `policy` must outlive the result.
  [[nodiscard]] kvaxis::layer_config configure(int layer, const kvaxis::named_policy& policy) const;
  [[nodiscard]] std::size_t numbers_per_token() const;  // of one layer

  model_shape shape_;
  cache_options options_;
  thread_pool& pool_;
  std::vector<kvaxis::rope> ropes_;  // of each layer
  bool rotates_outside_;             // the policy stores keys as they are after the rotation
  kvaxis::sequence sequence_;
  std::vector<unsigned char> workspace_;
};

}  // namespace llm
