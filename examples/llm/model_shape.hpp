// What a model file says about the model's architecture.
#pragma once

#include <kvaxis/rope/rope.hpp>

#include "gguf.hpp"

namespace llm {

enum class architecture { llama, gemma3 };

struct model_shape {
  int layers, embedding, feed_forward, query_heads, kv_heads, head_dim, rotary_dim, context, vocabulary;
  float epsilon;  // of the normalization
  double theta;   // of the rotation
  architecture family = architecture::llama;
  kvaxis::rope_layout pairs = kvaxis::rope_layout::interleaved;  // that rotate together
  // One layer in `global_every` attends to the whole context; the others, which are local, attend to a sliding window
  // and rotate with a theta of their own.
  int global_every = 1;
  int sliding_window = 0;
  double local_theta = 0;

  [[nodiscard]] bool is_local(int layer) const { return (layer + 1) % global_every != 0; }
  [[nodiscard]] double theta_of(int layer) const { return is_local(layer) ? local_theta : theta; }
};

// All but the vocabulary, which is as large as a tensor. Throws gguf_error.
model_shape read_shape(const gguf_file& file);

}  // namespace llm
