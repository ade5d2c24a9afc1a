// How far a quantized cache moves a model's predictions of a text: every token is predicted from an f32 cache and from
// quantized ones, and the distributions are compared.
#pragma once

#include <kvaxis/eval/sampling.hpp>
#include <string>
#include <vector>

#include "runs.hpp"

namespace eval {

// Positions that are compared are cut into batches of so many, for the sampling errors.
constexpr int batch_positions = 64;

struct text_result {
  std::string policy;
  double bits = 32;                                      // per folded value; 32 if none is folded
  double folded_bytes = 0, exact_bytes = 0;              // of a sequence's caches at its end
  kvaxis::estimate kl;                                   // KL(f32 cache || this cache), nats
  kvaxis::estimate same_top;                             // share of positions with the same likeliest token
  kvaxis::estimate perplexity;                           // of the text's tokens
  kvaxis::estimate added_loss;                           // nats per token more than with the f32 cache
  kvaxis::estimate key_error, value_error, logit_error;  // see head_error; over heads, layers and sequences
};

// The first position of a sequence that is compared: what stands before has seen little of the cache.
int first_compared(int tokens, prefill mode);

// Results of an f32 cache, first, and of each policy. All sequences have at least two tokens behind the first compared.
std::vector<text_result> evaluate_texts(const llm::model& model, thread_pool& pool,
                                        const std::vector<std::vector<int>>& sequences,
                                        const std::vector<policy>& policies, const cache_settings& settings);

}  // namespace eval
