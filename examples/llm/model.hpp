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

// Attention of one layer: takes the next tokens' queries, keys and values [token][head][dim], before the rotation.
// Queries and keys may be overwritten.
using attend_function = std::function<matrix(int layer, matrix& queries, matrix& keys, const matrix& values)>;

class model {
 public:
  // Reads all weights. Throws gguf_error if the file holds another architecture, or tensors of unexpected names or
  // shapes.
  model(const gguf_file& file, thread_pool& pool);

  [[nodiscard]] const model_shape& shape() const { return shape_; }
  // The states of `tokens` behind the last layer [token][embedding]; layer by layer, each attends once to all of them.
  [[nodiscard]] matrix forward(const std::vector<int>& tokens, const attend_function& attend) const;
  // The same with caches that the tokens are appended to, in steps whose result is that of one token at a time; makes
  // room where the caches' context is full.
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
