// Greedy decoding on a quantized cache: the text as it comes, then what the cache saved and what it cost.
#pragma once

#include <string>

#include "layer_caches.hpp"
#include "model.hpp"
#include "tokenizer.hpp"

namespace llm {

struct generation_request {
  std::string prompt;
  bool chat =
      true;  // the prompt becomes a user's message in the chat format of the model; else it is continued as it stands
  int tokens = 128;  // at most; the model may end its answer earlier
  cache_options cache;
};

// Writes the text and a summary to stdout, progress to stderr. Throws gguf_error if the prompt cannot be put to the
// model.
void generate(const model& model, const tokenizer& tokenizer, thread_pool& pool, const generation_request& request);

}  // namespace llm
