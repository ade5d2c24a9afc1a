#include "load.hpp"

#include <cstdlib>
#include <fstream>

namespace llm {
namespace {

std::string default_path() {
  const char* const directory = std::getenv("KVAXIS_MODEL_DIR");
  const char* const home = std::getenv("HOME");
  const std::string base =
      directory != nullptr ? directory : std::string(home != nullptr ? home : ".") + "/.cache/kvaxis";
  std::string path = base + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::ifstream(path)) throw gguf_error("there is no " + path + "; run examples/fetch_model.sh, or give --model");
  return path;
}

}  // namespace

loaded_model::loaded_model(const std::string& path, thread_pool& pool)
    : file_(path.empty() ? default_path() : path),
      contents_(file_.data(), file_.size()),
      tokenizer_(read_tokenizer(contents_)),
      model_(contents_, pool) {
  if (tokenizer_->size() > model_.shape().vocabulary) {
    throw gguf_error("the model knows fewer tokens than its tokenizer");
  }
}

}  // namespace llm
