// What the llm example makes of a model file's account of itself.
#include <gtest/gtest.h>

#include <llm/model_shape.hpp>

#include "gguf_parts.hpp"

namespace {

using namespace gguf_parts;

parts account(const std::string& name) {
  parts p;
  p.add_text("general.architecture", name);
  const auto add = [&](const char* key, std::uint32_t value) { p.add_number(name + "." + key, type_u32, value); };
  add("block_count", 18);
  add("embedding_length", 640);
  add("feed_forward_length", 2048);
  add("attention.head_count", 4);
  add("context_length", 32768);
  p.add_number(name + ".attention.layer_norm_rms_epsilon", type_f32, 1e-6F);
  return p;
}

llm::model_shape read(const parts& p) {
  const bytes file = p.file();
  return llm::read_shape(llm::gguf_file(file.data(), file.size()));
}

TEST(ModelShape, llama) {
  const llm::model_shape s = read(account("llama"));
  EXPECT_EQ(s.family, llm::architecture::llama);
  EXPECT_EQ(s.pairs, kvaxis::rope_layout::interleaved);
  EXPECT_EQ(s.kv_heads, 4);
  EXPECT_EQ(s.head_dim, 160);
  EXPECT_EQ(s.rotary_dim, 160);
  for (int layer = 0; layer < s.layers; ++layer) {
    EXPECT_FALSE(s.is_local(layer)) << layer;
    EXPECT_EQ(s.theta_of(layer), 10000.0) << layer;
  }
}

TEST(ModelShape, gemma_has_a_global_layer_after_every_five_local_ones) {
  parts p = account("gemma3");
  p.add_number("gemma3.attention.head_count_kv", type_u32, std::uint32_t{1});
  p.add_number("gemma3.attention.key_length", type_u32, std::uint32_t{256});
  p.add_number("gemma3.attention.sliding_window", type_u32, std::uint32_t{512});
  p.add_number("gemma3.rope.freq_base", type_f32, 1e6F);
  const llm::model_shape s = read(p);
  EXPECT_EQ(s.family, llm::architecture::gemma3);
  EXPECT_EQ(s.pairs, kvaxis::rope_layout::half_split);
  EXPECT_EQ(s.kv_heads, 1);
  EXPECT_EQ(s.head_dim, 256);
  EXPECT_EQ(s.sliding_window, 512);
  for (int layer = 0; layer < s.layers; ++layer) {
    const bool global = layer == 5 || layer == 11 || layer == 17;
    EXPECT_EQ(s.is_local(layer), !global) << layer;
    EXPECT_EQ(s.theta_of(layer), global ? 1e6 : 1e4) << layer;
  }
}

TEST(ModelShape, what_would_be_computed_wrongly_is_refused) {
  EXPECT_THROW(read(account("qwen2")), llm::gguf_error);
  EXPECT_THROW(read(account("gemma3")), llm::gguf_error);  // it does not say how far local layers see
  for (const std::string name : {"llama", "gemma3"}) {
    parts p = account(name);
    p.add_number(name + ".attention.sliding_window", type_u32, std::uint32_t{512});
    EXPECT_NO_THROW(read(p)) << name;
    p.add_text(name + ".rope.scaling.type", "linear");
    EXPECT_THROW(read(p), llm::gguf_error) << name;
    p = account(name);
    p.add_number(name + ".attention.head_count_kv", type_u32, std::uint32_t{3});
    EXPECT_THROW(read(p), llm::gguf_error) << name;
  }
}

}  // namespace
