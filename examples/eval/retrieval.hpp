// Retrieval: texts of facts, "The secret of NAME is WORD NUMBER.", at whose end some of the older facts are stated again. A
// model that still sees the first statement predicts the WORD and the NUMBER of the second.
#pragma once

#include <cstdint>
#include <kvaxis/eval/sampling.hpp>
#include <string>
#include <vector>

#include "../llm/tokenizer.hpp"
#include "runs.hpp"

namespace eval {

constexpr int depths = 4;  // quarters of the facts that may be asked: 0 is the oldest

struct question {
  int first = 0, count = 0;  // the answer's tokens in the text: those of " WORD NUMBER"
  int depth = 0;
};

struct retrieval_text {
  std::vector<int> tokens;
  std::vector<question> questions;
};

// A text of at most `length` tokens and less by no more than a sentence; about a sixth of it are questions, as many of each
// depth. What is asked ends at least 192 tokens before the first question, outside a window of 128. The same for the
// same seed, everywhere. Throws usage_error for lengths with too few facts for that, or more than there are names.
retrieval_text make_retrieval_text(const llm::tokenizer& tokenizer, int length, std::uint64_t seed);

// So many texts of the length, from the seed on, that they have `answer_tokens` of them at least.
std::vector<retrieval_text> make_retrieval_texts(const llm::tokenizer& tokenizer, int length, std::uint64_t seed,
                                                 int answer_tokens);

// Answers of texts of one length and one depth, or of all.
struct retrieval_result {
  std::string policy;
  int length = 0;    // 0: all
  int depth = -1;    // -1: all
  double bits = 32;  // per folded value; 32 if none is folded
  int answer_tokens = 0;
  kvaxis::estimate accuracy;        // share of answer tokens that are the model's likeliest
  kvaxis::estimate added_accuracy;  // the difference to the f32 cache, over the same tokens
  kvaxis::estimate kl;              // KL(f32 cache || this cache) at the answer tokens, nats
};

// For every group (all answers, each length, each depth, each length and depth) the results of an f32 cache and of each
// policy, side by side. texts[i] are those of lengths[i].
std::vector<retrieval_result> evaluate_retrieval(const llm::model& model, thread_pool& pool,
                                                 const std::vector<int>& lengths,
                                                 const std::vector<std::vector<retrieval_text>>& texts,
                                                 const std::vector<policy>& policies, const cache_settings& settings);

}  // namespace eval
