// How far a quantized cache moves a model's predictions: every token of a text is predicted from an f32 cache and from
// a quantized one, and the two distributions are compared.
#pragma once

#include <string>
#include <vector>

#include "layer_caches.hpp"
#include "model.hpp"

namespace llm {

struct evaluation_request {
  std::vector<int> tokens;            // N of them, fed at positions 0 .. N - 1
  std::vector<std::string> policies;  // names for kvaxis::make_cache
  int window = 128;                   // 0: everything unpinned is quantized before anything attends
  int pins = 4;
  float growth = 2.0F;
  kvaxis::arithmetic arithmetic = kvaxis::arithmetic::automatic;
};

struct policy_result {
  std::string policy;
  double kl_mean = 0;         // KL(f32 cache || this cache) in nats, mean over positions N/4 .. N - 1
  double top1_agreement = 0;  // share of these positions where both caches have the same most likely token
  double perplexity = 0;      // of the text, over the predictions of positions N/4 .. N - 2
  double bits_per_value = 0;
  std::size_t cache_bytes = 0;
};

struct evaluation {
  double f32_perplexity = 0;
  std::vector<policy_result> results;  // in the order of the policies
};

// With a window, the result is that of a decoder which appends and attends token by token, computed in steps of up to a
// tile. Tells about its progress on stderr. Needs two tokens at least.
evaluation evaluate(const model& model, thread_pool& pool, const evaluation_request& request);

// The same figures as a table for people and as JSON.
void print_table(const evaluation_request& request, const evaluation& done);
void print_json(const evaluation_request& request, int token_offset, const evaluation& done);

}  // namespace llm
