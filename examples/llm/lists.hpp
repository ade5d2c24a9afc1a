// What an engine asks of a cache beside appending and attending, on a real model: a system prompt that is forked for two
// questions, an answer that is rolled back, and a context that shifts when it is full.
#pragma once

#include <array>
#include <string>

#include "layer_caches.hpp"
#include "model.hpp"
#include "tokenizer.hpp"

namespace llm {

struct lists_request {
  int tokens = 48;      // of an answer, at most
  cache_options cache;  // its context is that of the shift; the other conversations have no limit
};

struct lists_report {
  // Of the prompt's caches and their two forks.
  struct footprint {
    std::size_t apart = 0;     // bytes if each had its own tiles
    std::size_t together = 0;  // bytes that they take
  };

  int system_tokens = 0;
  double fork_milliseconds = 0;
  footprint at_fork, at_end;  // before and behind the answers
  std::array<std::string, 2> answers;

  int answer_tokens = 0;  // of the first answer
  int quantized = 0;      // tokens that left the window during it; a roll back does not undo that
  int equal_again = 0;    // tokens of the second attempt, from its first on, that are those of the first
  int other_tokens = 0;   // of the fork's answer to the other question
  int equal_other = 0;    // the same for that question, asked after rolling the first one back

  int context = 0;
  int fed = 0;  // tokens, until the end of the text that goes past the context
  int shifts = 0;
  int dropped = 0;                // by the shifts
  double shift_milliseconds = 0;  // the longest
  std::string text_past_context;
};

// Throws std::runtime_error where one of these would not be exact: a fork decodes, bit for bit, as caches do that were
// given the prompt themselves; so does an answer that was rolled back before any of it left the window; the keys and
// values that stay in a shift are the same numbers.
lists_report run_lists(const model& model, const tokenizer& tokenizer, thread_pool& pool, const lists_request& request);

// The same for people and as JSON, which leaves the texts out.
void print_text(const lists_report& done);
void print_json(const lists_report& done);

}  // namespace llm
