#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "layer_caches.hpp"

namespace llm {
namespace {

model_shape read_shape(const gguf_file& file) {
  if (file.text("general.architecture") != "llama") throw gguf_error("the model's architecture is not 'llama'");
  const std::string scaling = "llama.rope.scaling.type";
  if (file.has(scaling) && file.text(scaling) != "none")
    throw gguf_error("this example knows no scaling of the rotation");
  const auto integer = [&](const char* key, int high) {
    return static_cast<int>(file.integer(std::string("llama.") + key, 1, high));
  };
  model_shape s{};
  s.layers = integer("block_count", 1024);
  s.embedding = integer("embedding_length", 1 << 16);
  s.feed_forward = integer("feed_forward_length", 1 << 18);
  s.query_heads = integer("attention.head_count", 1024);
  s.kv_heads = file.has("llama.attention.head_count_kv") ? integer("attention.head_count_kv", 1024) : s.query_heads;
  s.head_dim = file.has("llama.attention.key_length") ? integer("attention.key_length", kvaxis::max_head_dim)
                                                      : s.embedding / s.query_heads;
  s.rotary_dim = file.has("llama.rope.dimension_count") ? integer("rope.dimension_count", s.head_dim) : s.head_dim;
  s.context = integer("context_length", 1 << 24);
  s.epsilon = static_cast<float>(file.real("llama.attention.layer_norm_rms_epsilon"));
  s.theta = file.has("llama.rope.freq_base") ? file.real("llama.rope.freq_base") : 10000.0;
  if (s.query_heads % s.kv_heads != 0) throw gguf_error("the query heads are not a multiple of the kv heads");
  return s;
}

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

matrix normalized(const matrix& x, const row_vector& weights, float epsilon) {
  matrix out(x.rows(), x.cols());
  for (Eigen::Index i = 0; i < x.rows(); ++i) {
    const float mean_square = x.row(i).squaredNorm() / static_cast<float>(x.cols());
    out.row(i) = x.row(i).cwiseProduct(weights) / std::sqrt(mean_square + epsilon);
  }
  return out;
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
    if (count > 0) out.middleCols(first, count).noalias() = x * weights.middleRows(first, count).transpose();
  });
  return out;
}

matrix model::forward(const std::vector<int>& tokens, layer_caches& caches, const observer& observe) const {
  matrix x(static_cast<Eigen::Index>(tokens.size()), shape_.embedding);
  for (std::size_t i = 0; i < tokens.size(); ++i) x.row(static_cast<Eigen::Index>(i)) = embeddings_.row(tokens[i]);
  for (int i = 0; i < shape_.layers; ++i) {
    const layer& l = layers_[static_cast<std::size_t>(i)];
    const matrix before_attention = normalized(x, l.attention_norm, shape_.epsilon);
    matrix queries = product(before_attention, l.query);
    matrix keys = product(before_attention, l.key);
    const matrix values = product(before_attention, l.value);
    if (observe) observe(i, queries, keys, values);
    x += product(caches.attend(i, queries, keys, values), l.output);

    const matrix before_feed_forward = normalized(x, l.feed_forward_norm, shape_.epsilon);
    const matrix gate = product(before_feed_forward, l.gate);
    matrix hidden = product(before_feed_forward, l.up);
    hidden.array() *= gate.array() / (1.0F + (-gate.array()).exp());
    x += product(hidden, l.down);
  }
  return normalized(x, output_norm_, shape_.epsilon);
}

matrix model::feed(const std::vector<int>& tokens, layer_caches& caches) const {
  const int count = static_cast<int>(tokens.size());
  matrix states(count, shape_.embedding);
  for (int first = 0; first < count;) {
    caches.make_room();
    const int end = first + caches.step_size(count - first);
    states.middleRows(first, end - first) = forward({tokens.begin() + first, tokens.begin() + end}, caches);
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
