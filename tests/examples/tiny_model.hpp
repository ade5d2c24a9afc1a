// A model file of the Llama architecture with random weights, so small that whole evaluations run in a test. Its tokens
// are characters.
#pragma once

#include <cmath>
#include <numbers.hpp>
#include <string>
#include <vector>

#include "gguf_parts.hpp"

namespace tiny_model {

constexpr int layers = 2, heads = 2, kv_heads = 1, dim = 32, embedding = 64, feed_forward = 48, context = 1500;

inline std::vector<std::string> vocabulary() {
  std::vector<std::string> out{"\xC4\xA0", "\xC4\x8A"};  // space and newline in the byte-level alphabet
  for (char c = '!'; c <= '~'; ++c) out.emplace_back(1, c);
  return out;
}

inline gguf_parts::bytes file() {
  gguf_parts::parts p;
  test::numbers random(1);
  const auto add = [&](const char* key, int value) {
    p.add_number(std::string("llama.") + key, gguf_parts::type_u32, static_cast<std::uint32_t>(value));
  };
  const auto add_tensor = [&](const std::string& name, int rows, int columns, float mean, float spread) {
    p.add_tensor(name + ".weight", {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows)}, 0,
                 p.data.size());
    for (int i = 0; i < rows * columns; ++i) gguf_parts::put(p.data, mean + spread * random.bell());
    p.data.resize((p.data.size() + 31) / 32 * 32);
  };
  p.add_text("general.architecture", "llama");
  add("block_count", layers);
  add("embedding_length", embedding);
  add("feed_forward_length", feed_forward);
  add("attention.head_count", heads);
  add("attention.head_count_kv", kv_heads);
  add("context_length", context);
  p.add_number("llama.attention.layer_norm_rms_epsilon", gguf_parts::type_f32, 1e-5F);
  p.add_text("tokenizer.ggml.model", "gpt2");
  p.add_text("tokenizer.ggml.pre", "smollm");
  p.add_texts("tokenizer.ggml.tokens", vocabulary());
  p.add_texts("tokenizer.ggml.merges", {});

  const float scale = 1.0F / std::sqrt(static_cast<float>(embedding));
  add_tensor("token_embd", static_cast<int>(vocabulary().size()), embedding, 0, 0.3F);
  add_tensor("output_norm", 1, embedding, 1, 0);
  for (int i = 0; i < layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    add_tensor(layer + "attn_norm", 1, embedding, 1, 0.1F);
    add_tensor(layer + "attn_q", heads * dim, embedding, 0, 2 * scale);
    add_tensor(layer + "attn_k", kv_heads * dim, embedding, 0, 2 * scale);
    add_tensor(layer + "attn_v", kv_heads * dim, embedding, 0, scale);
    add_tensor(layer + "attn_output", embedding, heads * dim, 0, scale);
    add_tensor(layer + "ffn_norm", 1, embedding, 1, 0.1F);
    add_tensor(layer + "ffn_gate", feed_forward, embedding, 0, scale);
    add_tensor(layer + "ffn_up", feed_forward, embedding, 0, scale);
    add_tensor(layer + "ffn_down", embedding, feed_forward, 0, scale);
  }
  return p.file();
}

}  // namespace tiny_model
