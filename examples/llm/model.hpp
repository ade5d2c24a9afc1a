// The architectures of Llama and Gemma 3 on the CPU: weights as f32 Eigen matrices, the products by Eigen, the attention and its keys
// and values by kvaxis (layer_caches).
#pragma once

#include <Eigen/Core>
#include <functional>
#include <vector>

#include "../thread_pool.hpp"
#include "gguf.hpp"
#include "model_shape.hpp"

namespace llm {

class layer_caches;

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;  // a row is a token
using row_vector = Eigen::RowVectorXf;

// Called with each layer's queries, keys and values [token][head][dim], before the rotation.
using observer = std::function<void(int layer, const matrix& queries, const matrix& keys, const matrix& values)>;

class model {
 public:
  // Reads all weights. Throws gguf_error if the file holds another architecture, or tensors of unexpected names or
  // shapes.
  model(const gguf_file& file, thread_pool& pool);

  [[nodiscard]] const model_shape& shape() const { return shape_; }
  // Appends `tokens` to the caches and returns their states behind the last layer [token][embedding].
  [[nodiscard]] matrix forward(const std::vector<int>& tokens, layer_caches& caches,
                               const observer& observe = {}) const;
  // The same in steps whose result is that of one token at a time; makes room where the caches' context is full.
  [[nodiscard]] matrix feed(const std::vector<int>& tokens, layer_caches& caches) const;
  // The logits [token][vocabulary] of such states.
  [[nodiscard]] matrix logits(const matrix& states) const;

 private:
  struct layer {
    row_vector attention_norm, feed_forward_norm;
    row_vector query_norm, key_norm, post_attention_norm, post_feed_forward_norm;  // of Gemma 3; else empty
    matrix query, key, value, output, gate, up, down;                              // [out][in]
  };
  [[nodiscard]] matrix product(const matrix& x, const matrix& weights) const;

  model_shape shape_;
  thread_pool& pool_;
  matrix embeddings_, own_output_;  // own_output_ is empty if the embeddings serve as the output layer too
  row_vector output_norm_;
  std::vector<layer> layers_;
};

// The token with the highest logit in the last row.
int most_likely(const matrix& logits);

}  // namespace llm
