// Attention over one layer as a graph of ggml, over a cache of one of ggml's types that holds keys after RoPE. One thread.
#pragma once

#include <ggml-cpu.h>
#include <ggml.h>

#include "common.hpp"

namespace bench {

constexpr int ggml_dim = 128;

struct ggml_types {
  const char* name;
  ggml_type keys;
  ggml_type values;
};

// The first two are llama.cpp's graphs and layouts, the others the same operations over the layout that suits them best.
enum class ggml_path {
  flash,          // ggml_flash_attn_ext; keys and values by token
  mul_mat,        // two products with a softmax between; keys by token, values transposed
  flash_by_head,  // ggml_flash_attn_ext; keys and values by head
  grouped,        // as mul_mat, the query heads of a kv head as columns of one product; keys by head
};
constexpr bool is_flash(ggml_path p) { return p == ggml_path::flash || p == ggml_path::flash_by_head; }

enum class ggml_layout {
  by_token,    // [token][kv head][dim]
  by_head,     // [kv head][token][dim]
  transposed,  // [kv head][dim][token]
};

struct ggml_case {
  ggml_path path;
  ggml_types types;
  int group;
  int context;
  int n_query;  // the last of the context, causal
};

struct alignas(64) cache_line {
  std::byte bytes[64];
};
using lines = std::vector<cache_line>;

// Keys or values, once per layer of a set that exceeds the caches (see cache_set).
struct ggml_side {
  ggml_type type;
  ggml_layout layout;
  int context;
  std::vector<lines> layers;
};
const ggml_side& keys_of(const ggml_case& c);
const ggml_side& values_of(const ggml_case& c);
// As f32, [token][kv head][dim].
std::vector<float> decoded(const ggml_side& side);

// [query][query head][dim], the same for every library.
std::vector<float> queries_of(int group, int n_query);

class ggml_attention {
 public:
  explicit ggml_attention(const ggml_case& c);
  ~ggml_attention();
  ggml_attention(const ggml_attention&) = delete;
  ggml_attention& operator=(const ggml_attention&) = delete;

  // Computes over layer i, modulo their number. False if ggml reports an error.
  bool run(std::size_t i);
  // [query][query head][dim]
  [[nodiscard]] const float* out() const { return static_cast<const float*>(out_->data); }
  [[nodiscard]] std::size_t layer_bytes() const { return ggml_nbytes(keys_) + ggml_nbytes(values_); }

 private:
  ggml_tensor* flash(ggml_tensor* q, ggml_tensor* mask, float scale);
  ggml_tensor* products(ggml_tensor* q, ggml_tensor* mask, float scale);
  void* memory(std::size_t bytes);

  ggml_case case_;
  const ggml_side& key_side_;
  const ggml_side& value_side_;
  std::vector<lines> memory_;
  ggml_context* context_;
  ggml_threadpool* thread_;
  ggml_tensor* keys_;
  ggml_tensor* values_;
  ggml_tensor* out_;
  ggml_cgraph* graph_;
  ggml_cplan plan_;
};

}  // namespace bench
