#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "layer_caches.hpp"
#include "product.hpp"

namespace llm {
namespace {

// Takes tensors by name, checks their shapes, and remembers how many it has taken.
class weights_reader {
 public:
  weights_reader(const gguf_file& file, thread_pool& pool) : file_(file), pool_(pool) {}

  [[nodiscard]] const gguf_tensor* find(const std::string& name) const {
    const auto found = file_.tensors().find(name);
    return found == file_.tensors().end() ? nullptr : &found->second;
  }
  matrix take(const std::string& name, int rows, int columns) {
    const gguf_tensor* const tensor = find(name);
    if (tensor == nullptr) throw gguf_error("the file has no tensor " + name);
    if (tensor->rows != static_cast<std::size_t>(rows) || tensor->columns != static_cast<std::size_t>(columns)) {
      throw gguf_error("tensor " + name + " is not " + std::to_string(rows) + " x " + std::to_string(columns));
    }
    matrix out(rows, columns);
    const int tasks = (rows + 255) / 256;
    pool_(tasks, [&](int task) {
      for (int row = task * 256; row < std::min(rows, task * 256 + 256); ++row) {
        dequantize_row(*tensor, static_cast<std::size_t>(row), out.row(row).data());
      }
    });
    ++taken_;
    return out;
  }
  // A tensor that nobody asked for, such as a bias, would be missing from the computation.
  void check_all_taken() const {
    if (taken_ != file_.tensors().size()) throw gguf_error("the file has tensors that this example does not know");
  }

 private:
  const gguf_file& file_;
  thread_pool& pool_;
  std::size_t taken_ = 0;
};

// Every run of as many numbers as there are weights is normalized on its own: a token, or each of its heads. A layer has
// no weights where its architecture has no normalization.
matrix normalized(matrix x, const row_vector& weights, float epsilon) {
  if (weights.size() == 0) return x;
  Eigen::Map<matrix> runs(x.data(), x.size() / weights.size(), weights.size());
  for (Eigen::Index i = 0; i < runs.rows(); ++i) {
    const float mean_square = runs.row(i).squaredNorm() / static_cast<float>(runs.cols());
    runs.row(i) = runs.row(i).cwiseProduct(weights) / std::sqrt(mean_square + epsilon);
  }
  return x;
}

// SiLU, x / (1 + e^-x), or GELU as tanh approximates it, x (1 + tanh(y)) / 2 = x / (1 + e^-2y).
matrix activated(const matrix& x, architecture family) {
  const auto all = x.array();
  if (family == architecture::llama) return all / (1.0F + (-all).exp());
  constexpr float twice_root_2_over_pi = 1.5957691216F;
  return all / (1.0F + (-twice_root_2_over_pi * (all + 0.044715F * all.cube())).exp());
}

}  // namespace

model::model(const gguf_file& file, thread_pool& pool) : shape_(read_shape(file)), pool_(pool) {
  weights_reader weights(file, pool);
  const model_shape& s = shape_;
  const gguf_tensor* const embeddings = weights.find("token_embd.weight");
  if (embeddings == nullptr || embeddings->rows > (1 << 24))
    throw gguf_error("the file has no usable token_embd.weight");
  shape_.vocabulary = static_cast<int>(embeddings->rows);
  embeddings_ = weights.take("token_embd.weight", s.vocabulary, s.embedding);
  output_norm_ = weights.take("output_norm.weight", 1, s.embedding);
  if (weights.find("output.weight") != nullptr) own_output_ = weights.take("output.weight", s.vocabulary, s.embedding);

  const int query_width = s.query_heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  for (int i = 0; i < s.layers; ++i) {
    const auto take = [&](const char* name, int rows, int columns) {
      return weights.take("blk." + std::to_string(i) + "." + name + ".weight", rows, columns);
    };
    layer l;
    l.attention_norm = take("attn_norm", 1, s.embedding);
    l.query = take("attn_q", query_width, s.embedding);
    l.key = take("attn_k", kv_width, s.embedding);
    l.value = take("attn_v", kv_width, s.embedding);
    l.output = take("attn_output", s.embedding, query_width);
    if (s.family == architecture::gemma3) {
      l.query_norm = take("attn_q_norm", 1, s.head_dim);
      l.key_norm = take("attn_k_norm", 1, s.head_dim);
      l.post_attention_norm = take("post_attention_norm", 1, s.embedding);
      l.post_feed_forward_norm = take("post_ffw_norm", 1, s.embedding);
    }
    l.feed_forward_norm = take("ffn_norm", 1, s.embedding);
    l.gate = take("ffn_gate", s.feed_forward, s.embedding);
    l.up = take("ffn_up", s.feed_forward, s.embedding);
    l.down = take("ffn_down", s.embedding, s.feed_forward);
    layers_.push_back(std::move(l));
  }
  weights.check_all_taken();
}

// x * weights^T. Eigen computes on one thread, so the outputs are split over the pool.
matrix model::product(const matrix& x, const matrix& weights) const {
  matrix out(x.rows(), weights.rows());
  const Eigen::Index share = (weights.rows() + pool_.size() - 1) / pool_.size();
  pool_(pool_.size(), [&](int task) {
    const Eigen::Index first = std::min(weights.rows(), task * share);
    const Eigen::Index count = std::min(share, weights.rows() - first);
    if (count > 0) multiply(x.data(), x.rows(), x.cols(), weights.data(), first, count, out.data(), out.cols());
  });
  return out;
}

matrix model::forward(const std::vector<int>& tokens, const attend_function& attend) const {
  const float epsilon = shape_.epsilon;
  const float scale = shape_.family == architecture::gemma3 ? std::sqrt(static_cast<float>(shape_.embedding)) : 1.0F;
  matrix x(static_cast<Eigen::Index>(tokens.size()), shape_.embedding);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    x.row(static_cast<Eigen::Index>(i)) = scale * embeddings_.row(tokens[i]);
  }
  for (int i = 0; i < shape_.layers; ++i) {
    const layer& l = layers_[static_cast<std::size_t>(i)];
    const matrix before_attention = normalized(x, l.attention_norm, epsilon);
    matrix queries = normalized(product(before_attention, l.query), l.query_norm, epsilon);
    matrix keys = normalized(product(before_attention, l.key), l.key_norm, epsilon);
    const matrix values = product(before_attention, l.value);
    x += normalized(product(attend(i, queries, keys, values), l.output), l.post_attention_norm, epsilon);

    const matrix before_feed_forward = normalized(x, l.feed_forward_norm, epsilon);
    matrix hidden = product(before_feed_forward, l.up);
    hidden.array() *= activated(product(before_feed_forward, l.gate), shape_.family).array();
    x += normalized(product(hidden, l.down), l.post_feed_forward_norm, epsilon);
  }
  return normalized(x, output_norm_, epsilon);
}

matrix model::feed(const std::vector<int>& tokens, layer_caches& caches) const {
  const int count = static_cast<int>(tokens.size());
  matrix states(count, shape_.embedding);
  const attend_function attend = [&](int i, matrix& queries, matrix& keys, const matrix& values) {
    return caches.attend(i, queries, keys, values);
  };
  for (int first = 0; first < count;) {
    caches.make_room();
    const int end = first + caches.step_size(count - first);
    states.middleRows(first, end - first) = forward({tokens.begin() + first, tokens.begin() + end}, attend);
    first = end;
  }
  return states;
}

matrix model::logits(const matrix& states) const {
  return product(states, own_output_.size() != 0 ? own_output_ : embeddings_);
}

int most_likely(const matrix& logits) {
  Eigen::Index best = 0;
  logits.row(logits.rows() - 1).maxCoeff(&best);
  return static_cast<int>(best);
}

}  // namespace llm
