// Everything that a model file holds.
#pragma once

#include <memory>
#include <string>

#include "gguf.hpp"
#include "mapped_file.hpp"
#include "model.hpp"
#include "tokenizer.hpp"

namespace llm {

class loaded_model {
 public:
  // An empty path: the model that fetch_model.sh downloads. Throws std::runtime_error or gguf_error.
  loaded_model(const std::string& path, thread_pool& pool);

  [[nodiscard]] const tokenizer& tokens() const { return *tokenizer_; }
  [[nodiscard]] const model& weights() const { return model_; }

 private:
  mapped_file file_;
  gguf_file contents_;
  std::unique_ptr<const tokenizer> tokenizer_;
  model model_;
};

}  // namespace llm
