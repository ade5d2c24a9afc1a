#include "model_shape.hpp"

#include <string>

namespace llm {

model_shape read_shape(const gguf_file& file) {
  const std::string_view name = file.text("general.architecture");
  if (name != "llama" && name != "gemma3") throw gguf_error("the architecture is neither 'llama' nor 'gemma3'");
  const std::string prefix = std::string(name) + ".";
  const std::string scaling = prefix + "rope.scaling.type";
  if (file.has(scaling) && file.text(scaling) != "none")
    throw gguf_error("this example knows no scaling of the rotation");
  const auto integer = [&](const char* key, int high) { return static_cast<int>(file.integer(prefix + key, 1, high)); };
  const auto integer_or = [&](int otherwise, const char* key, int high) {
    return file.has(prefix + key) ? integer(key, high) : otherwise;
  };
  const auto real_or = [&](double otherwise, const char* key) {
    return file.has(prefix + key) ? file.real(prefix + key) : otherwise;
  };

  model_shape s{};
  s.layers = integer("block_count", 1024);
  s.embedding = integer("embedding_length", 1 << 16);
  s.feed_forward = integer("feed_forward_length", 1 << 18);
  s.query_heads = integer("attention.head_count", 1024);
  s.kv_heads = integer_or(s.query_heads, "attention.head_count_kv", 1024);
  s.head_dim = integer_or(s.embedding / s.query_heads, "attention.key_length", kvaxis::max_head_dim);
  s.rotary_dim = integer_or(s.head_dim, "rope.dimension_count", s.head_dim);
  s.context = integer("context_length", 1 << 24);
  s.epsilon = static_cast<float>(file.real(prefix + "attention.layer_norm_rms_epsilon"));
  s.theta = real_or(10000.0, "rope.freq_base");
  if (s.query_heads % s.kv_heads != 0) throw gguf_error("the query heads are not a multiple of the kv heads");
  if (name == "llama") return s;  // files of this architecture have their weights permuted for interleaved pairs

  s.family = architecture::gemma3;
  s.pairs = kvaxis::rope_layout::half_split;
  s.global_every = integer_or(6, "attention.sliding_window_pattern", s.layers);
  s.sliding_window = integer("attention.sliding_window", 1 << 24);
  s.local_theta = real_or(10000.0, "rope.freq_base_swa");
  return s;
}

}  // namespace llm
