// The models of the llm example against the same architectures in double, written out token by token and head by head.
#include <gtest/gtest.h>

#include <cmath>
#include <llm/layer_caches.hpp>
#include <llm/model.hpp>
#include <map>
#include <numbers.hpp>
#include <string>
#include <vector>

#include "gguf_parts.hpp"

namespace {

using Eigen::MatrixXd;
using Eigen::RowVectorXd;
using gguf_parts::parts;

constexpr int layers = 2, embedding = 24, feed_forward = 40, heads = 4, kv_heads = 2, dim = 16, vocabulary = 30,
              window = 5;
constexpr double epsilon = 1e-5, theta = 500.0, local_theta = 10000.0;

struct example {
  bool gemma;
  std::string name = gemma ? "gemma3" : "llama";
  parts file;
  std::map<std::string, MatrixXd> weights;

  explicit example(bool of_gemma) : gemma(of_gemma) {
    const auto add = [&](const char* key, int value) {
      file.add_number(name + "." + key, gguf_parts::type_u32, static_cast<std::uint32_t>(value));
    };
    file.add_text("general.architecture", name);
    add("block_count", layers);
    add("embedding_length", embedding);
    add("feed_forward_length", feed_forward);
    add("attention.head_count", heads);
    add("attention.head_count_kv", kv_heads);
    add("attention.key_length", dim);
    add("context_length", 64);
    add("attention.sliding_window", window);
    add("attention.sliding_window_pattern", 2);  // of Gemma's two layers the first is local
    file.add_number(name + ".attention.layer_norm_rms_epsilon", gguf_parts::type_f32, static_cast<float>(epsilon));
    file.add_number(name + ".rope.freq_base", gguf_parts::type_f32, static_cast<float>(theta));

    add_tensor("token_embd", vocabulary, embedding);
    add_tensor("output_norm", 1, embedding);
    if (!gemma) add_tensor("output", vocabulary, embedding);
    for (int i = 0; i < layers; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      add_tensor(layer + "attn_norm", 1, embedding);
      add_tensor(layer + "attn_q", heads * dim, embedding);
      add_tensor(layer + "attn_k", kv_heads * dim, embedding);
      add_tensor(layer + "attn_v", kv_heads * dim, embedding);
      add_tensor(layer + "attn_output", embedding, heads * dim);
      add_tensor(layer + "ffn_norm", 1, embedding);
      add_tensor(layer + "ffn_gate", feed_forward, embedding);
      add_tensor(layer + "ffn_up", feed_forward, embedding);
      add_tensor(layer + "ffn_down", embedding, feed_forward);
      if (!gemma) continue;
      add_tensor(layer + "attn_q_norm", 1, dim);
      add_tensor(layer + "attn_k_norm", 1, dim);
      add_tensor(layer + "post_attention_norm", 1, embedding);
      add_tensor(layer + "post_ffw_norm", 1, embedding);
    }
  }

  void add_tensor(const std::string& tensor, int rows, int columns) {
    file.add_tensor(tensor + ".weight", {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows)}, 0,
                    file.data.size());
    MatrixXd& numbers = weights[tensor];
    numbers.resize(rows, columns);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        const float number = random.uniform() * 0.5F;
        gguf_parts::put(file.data, number);
        numbers(i, j) = static_cast<double>(number);
      }
    }
    file.data.resize((file.data.size() + 31) / 32 * 32);
  }

  [[nodiscard]] RowVectorXd norm(const RowVectorXd& x, const std::string& weight) const {
    const auto found = weights.find(weight);
    if (found == weights.end()) return x;
    return x.cwiseProduct(found->second.row(0)) / std::sqrt(x.squaredNorm() / static_cast<double>(x.size()) + epsilon);
  }

  // A head of a row, normalized and rotated to its position.
  [[nodiscard]] RowVectorXd head(const MatrixXd& rows, int position, int index, const std::string& weight,
                                 double base) const {
    const RowVectorXd x = norm(rows.row(position).segment(index * dim, dim), weight);
    RowVectorXd out(dim);
    for (int i = 0; i < dim / 2; ++i) {
      const int first = gemma ? i : 2 * i, second = gemma ? i + dim / 2 : 2 * i + 1;
      const double angle = position * std::pow(base, -2.0 * i / dim);
      out[first] = x[first] * std::cos(angle) - x[second] * std::sin(angle);
      out[second] = x[first] * std::sin(angle) + x[second] * std::cos(angle);
    }
    return out;
  }

  [[nodiscard]] RowVectorXd attention(const MatrixXd& q, const MatrixXd& k, const MatrixXd& v, int position,
                                      int layer) const {
    const std::string name_of_layer = "blk." + std::to_string(layer) + ".";
    const bool local = gemma && layer == 0;
    const double base = local ? local_theta : theta;
    RowVectorXd out = RowVectorXd::Zero(heads * dim);
    for (int h = 0; h < heads; ++h) {
      const int kv = h / (heads / kv_heads);
      const RowVectorXd query = head(q, position, h, name_of_layer + "attn_q_norm", base);
      double total = 0;
      for (int i = local ? std::max(0, position - window + 1) : 0; i <= position; ++i) {
        const RowVectorXd key = head(k, i, kv, name_of_layer + "attn_k_norm", base);
        const double weight = std::exp(query.dot(key) / std::sqrt(dim));
        out.segment(h * dim, dim) += weight * v.row(i).segment(kv * dim, dim);
        total += weight;
      }
      out.segment(h * dim, dim) /= total;
    }
    return out;
  }

  [[nodiscard]] double activation(double x) const {
    if (!gemma) return x / (1 + std::exp(-x));
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }

  [[nodiscard]] MatrixXd logits(const std::vector<int>& tokens) const {
    const auto count = static_cast<Eigen::Index>(tokens.size());
    const auto weight = [&](int layer, const char* tensor) -> const MatrixXd& {
      return weights.at("blk." + std::to_string(layer) + "." + tensor);
    };
    const auto normalized = [&](MatrixXd rows, const std::string& tensor) {
      for (Eigen::Index i = 0; i < rows.rows(); ++i) rows.row(i) = norm(rows.row(i), tensor);
      return rows;
    };
    MatrixXd x(count, embedding);
    for (Eigen::Index i = 0; i < count; ++i) {
      x.row(i) = weights.at("token_embd").row(tokens[static_cast<std::size_t>(i)]) * (gemma ? std::sqrt(embedding) : 1);
    }
    for (int i = 0; i < layers; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      MatrixXd in = normalized(x, layer + "attn_norm"), attended(count, heads * dim);
      const MatrixXd q = in * weight(i, "attn_q").transpose(), k = in * weight(i, "attn_k").transpose(),
                     v = in * weight(i, "attn_v").transpose();
      for (int at = 0; at < static_cast<int>(count); ++at) attended.row(at) = attention(q, k, v, at, i);
      x += normalized(attended * weight(i, "attn_output").transpose(), layer + "post_attention_norm");
      in = normalized(x, layer + "ffn_norm");
      const MatrixXd gate = (in * weight(i, "ffn_gate").transpose()).unaryExpr([&](double g) { return activation(g); });
      const MatrixXd hidden = gate.cwiseProduct(in * weight(i, "ffn_up").transpose());
      x += normalized(hidden * weight(i, "ffn_down").transpose(), layer + "post_ffw_norm");
    }
    return normalized(x, "output_norm") * weights.at(gemma ? "token_embd" : "output").transpose();
  }

  test::numbers random{7};
};

class Model : public testing::TestWithParam<bool> {
 protected:
  thread_pool pool{2};
};

TEST_P(Model, gives_the_logits_of_its_architecture) {
  const example e(GetParam());
  const gguf_parts::bytes file = e.file.file();
  const llm::model model(llm::gguf_file(file.data(), file.size()), pool);
  EXPECT_EQ(model.shape().vocabulary, vocabulary);
  const std::vector<int> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 29, 0};
  llm::cache_options exact;
  exact.policy = "k:f32,v:f32";
  llm::layer_caches caches(model.shape(), exact, 0, pool);
  const llm::matrix found = model.logits(model.feed(tokens, caches));
  const MatrixXd expected = e.logits(tokens);
  ASSERT_EQ(found.rows(), expected.rows());
  ASSERT_EQ(found.cols(), expected.cols());
  EXPECT_LT((found.cast<double>() - expected).cwiseAbs().maxCoeff(), 1e-5 * expected.cwiseAbs().maxCoeff());
}

TEST_P(Model, other_tensors_are_refused) {
  const auto read = [&](const parts& p) {
    const gguf_parts::bytes file = p.file();
    llm::model(llm::gguf_file(file.data(), file.size()), pool);
  };
  EXPECT_NO_THROW(read(example(GetParam()).file));
  example e(GetParam());
  e.add_tensor("blk.0.attn_q_bias", 1, heads * dim);
  EXPECT_THROW(read(e.file), llm::gguf_error);
  e = example(GetParam());
  e.file.add_number(e.name + ".rope.dimension_count", gguf_parts::type_u32, std::uint32_t{dim + 1});
  EXPECT_THROW(read(e.file), llm::gguf_error);
  // The tensors of one architecture under the name of the other.
  const example other(!GetParam());
  e = example(GetParam());
  e.file.tensor_count = other.file.tensor_count;
  e.file.tensors = other.file.tensors;
  e.file.data = other.file.data;
  EXPECT_THROW(read(e.file), llm::gguf_error);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Model, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& gemma) { return gemma.param ? "gemma3" : "llama"; });

}  // namespace
