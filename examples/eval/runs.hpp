// One run of a text through a model on caches of one policy: what the model then knows of each token, what the caches took,
// and how far what they store is from what they were given.
#pragma once

#include <string>
#include <vector>

#include "../llm/layer_caches.hpp"
#include "../llm/model.hpp"
#include "progress.hpp"
#include "simulated.hpp"

namespace eval {

enum class prefill {
  // The whole text is appended and everything unpinned folded before any token attends, so each token sees only
  // quantized ones, itself too. Without a window.
  folded,
  // As a decoder does that appends and attends token by token: the newest tokens are exact.
  streaming,
  // The first half of the text in one chunk that sees itself exactly and is folded then; the rest as in `streaming`.
  one,
};

struct cache_settings {
  int window = 128;
  int pins = 4;
  prefill mode = prefill::streaming;
  float growth = 2.0F;
  kvaxis::arithmetic arithmetic = kvaxis::arithmetic::f32;
};

// Relative errors of what one kv head of a layer has folded: of the keys, of the values, and of the products of the keys
// with the queries of the text's last eighth.
struct head_error {
  double key = 0, value = 0, logit = 0;
};

struct cached_run {
  llm::matrix states;  // [token][embedding], behind the last layer
  double folded_bytes = 0, folded_values = 0, exact_bytes = 0;
  std::vector<head_error> errors;  // of each kv head of the layers asked for; empty if nothing was folded
};

class runner {
 public:
  runner(const llm::model& model, thread_pool& pool, const cache_settings& settings)
      : model_(model), pool_(pool), settings_(settings) {}

  // Throws kvaxis::error where the policy and the settings do not fit the model.
  void check(const policy& p) const;
  // `measured`: layers whose errors to take.
  [[nodiscard]] cached_run run(const std::vector<int>& tokens, const policy& p, const std::vector<int>& measured,
                               progress& shown) const;
  // The same on an f32 cache, in which every token is exact.
  [[nodiscard]] cached_run run_exact(const std::vector<int>& tokens, progress& shown) const;

 private:
  [[nodiscard]] llm::cache_options options(const policy& p) const;
  [[nodiscard]] cached_run run(const std::vector<int>& tokens, const llm::cache_options& options, double simulated_bits,
                               prefill mode, const std::vector<int>& measured, progress& shown) const;

  const llm::model& model_;
  thread_pool& pool_;
  cache_settings settings_;
};

}  // namespace eval
