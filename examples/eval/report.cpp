#include "report.hpp"

#include <cmath>

namespace eval {
namespace {

// A mean and its error, each in a cell of its own; empty where there is no number.
void add(std::vector<cell>& row, const kvaxis::estimate& e, int digits) {
  row.push_back(std::isfinite(e.mean) ? cell(e.mean, digits) : cell());
  row.push_back(std::isfinite(e.error) ? cell(e.error, 2) : cell());
}

}  // namespace

table make_table(const std::vector<text_result>& results) {
  table out({{"policy", "policy"},
             {"bits_per_value", "bits"},
             {"folded_bytes", "folded bytes"},
             {"exact_bytes", "exact bytes"},
             {"kl_mean", "KL (nats)"},
             {"kl_error", "+-"},
             {"top1_agreement", "same top"},
             {"top1_error", "+-"},
             {"perplexity", "perplexity"},
             {"perplexity_error", "+-"},
             {"added_loss", "added loss"},
             {"added_loss_error", "+-"},
             {"key_error", "keys"},
             {"key_error_error", "+-"},
             {"value_error", "values"},
             {"value_error_error", "+-"},
             {"logit_error", "logits"},
             {"logit_error_error", "+-"}});
  for (const text_result& r : results) {
    std::vector<cell> row{r.policy, cell(r.bits, 5), std::int64_t{std::llround(r.folded_bytes)},
                          std::int64_t{std::llround(r.exact_bytes)}};
    add(row, r.kl, 4);
    add(row, r.same_top, 4);
    add(row, r.perplexity, 6);
    add(row, r.added_loss, 3);
    add(row, r.key_error, 4);
    add(row, r.value_error, 4);
    add(row, r.logit_error, 4);
    out.add(row);
  }
  return out;
}

table make_table(const std::vector<retrieval_result>& results) {
  table out({{"length", "length"},
             {"depth", "depth"},
             {"policy", "policy"},
             {"bits_per_value", "bits"},
             {"answer_tokens", "answer tokens"},
             {"kl_mean", "KL (nats)"},
             {"kl_error", "+-"},
             {"accuracy", "accuracy"},
             {"accuracy_error", "+-"},
             {"added_accuracy", "to f32"},
             {"added_accuracy_error", "+-"}});
  for (const retrieval_result& r : results) {
    std::vector<cell> row{r.length == 0 ? cell("all") : cell(std::int64_t{r.length}),
                          r.depth < 0 ? cell("all") : cell(std::int64_t{r.depth}), r.policy, cell(r.bits, 5),
                          std::int64_t{r.answer_tokens}};
    add(row, r.kl, 4);
    add(row, r.accuracy, 4);
    add(row, r.added_accuracy, 3);
    out.add(row);
  }
  return out;
}

}  // namespace eval
