#include "text.hpp"

#include <algorithm>
#include <cmath>
#include <kvaxis/eval/metrics.hpp>

namespace eval {
namespace {

// What one position adds to the sums of a policy.
struct position_result {
  double kl = 0, same_top = 0, loss = 0, added_loss = 0;
};

struct sums {
  kvaxis::batch_mean kl, same_top, loss, added_loss, key, value, logit;
  double folded_bytes = 0, folded_values = 0, exact_bytes = 0;
};

// One row of logits, with what the f32 run says in its place; -1 for a next token that is not known.
position_result compare(const Eigen::ArrayXd& exact, const Eigen::ArrayXd& found, int next_token) {
  Eigen::Index exact_top = 0;
  Eigen::Index top = 0;
  exact.maxCoeff(&exact_top);
  found.maxCoeff(&top);
  position_result out{kvaxis::divergence(exact, found), top == exact_top ? 1.0 : 0.0};
  if (next_token >= 0) {
    out.loss = -found[next_token];
    out.added_loss = out.loss + exact[next_token];
  }
  return out;
}

// Compares the rows first .. first + count - 1 of each run with those of the first, and adds them as a batch.
void compare_batch(const llm::model& model, thread_pool& pool, const std::vector<int>& tokens,
                   const std::vector<cached_run>& runs, int first, int count, std::vector<sums>& to) {
  const int predicted = std::min(count, static_cast<int>(tokens.size()) - 1 - first);
  std::vector<Eigen::ArrayXd> exact(static_cast<std::size_t>(count));
  std::vector<position_result> results(exact.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const llm::matrix logits = model.logits(runs[i].states.middleRows(first, count));
    pool(count, [&](int row) {
      const auto at = static_cast<std::size_t>(row);
      const Eigen::ArrayXd found = kvaxis::log_softmax(logits.row(row));
      if (i == 0) exact[at] = found;
      results[at] = compare(exact[at], found, row < predicted ? tokens[static_cast<std::size_t>(first) + at + 1] : -1);
    });
    position_result total;
    for (const position_result& r : results) {
      total.kl += r.kl;
      total.same_top += r.same_top;
      total.loss += r.loss;
      total.added_loss += r.added_loss;
    }
    to[i].kl.add(total.kl, count);
    to[i].same_top.add(total.same_top, count);
    if (predicted > 0) {
      to[i].loss.add(total.loss, predicted);
      to[i].added_loss.add(total.added_loss, predicted);
    }
  }
}

// Four layers from the first to the last quarter.
std::vector<int> measured_layers(int layers) {
  std::vector<int> out;
  for (int i = 0; i < 4; ++i) {
    const int layer = (2 * i + 1) * layers / 8;
    if (out.empty() || out.back() != layer) out.push_back(layer);
  }
  return out;
}

text_result finish(const std::string& name, const sums& s, std::size_t sequences) {
  text_result out;
  out.policy = name;
  if (s.folded_values > 0) out.bits = 8 * s.folded_bytes / s.folded_values;
  out.folded_bytes = s.folded_bytes / static_cast<double>(sequences);
  out.exact_bytes = s.exact_bytes / static_cast<double>(sequences);
  out.kl = s.kl.result();
  out.same_top = s.same_top.result();
  const kvaxis::estimate loss = s.loss.result();
  out.perplexity = {std::exp(loss.mean), std::exp(loss.mean) * loss.error};
  out.added_loss = s.added_loss.result();
  out.key_error = s.key.result();
  out.value_error = s.value.result();
  out.logit_error = s.logit.result();
  return out;
}

}  // namespace

int first_compared(int tokens, prefill mode) { return mode == prefill::one ? tokens / 2 : tokens / 4; }

std::vector<text_result> evaluate_texts(const llm::model& model, thread_pool& pool,
                                        const std::vector<std::vector<int>>& sequences,
                                        const std::vector<policy>& policies, const cache_settings& settings) {
  const runner runs(model, pool, settings);
  for (const policy& p : policies) runs.check(p);
  double work = 0;
  for (const std::vector<int>& tokens : sequences) work += static_cast<double>(tokens.size() * (policies.size() + 1));
  progress shown(work);
  std::vector<sums> all(policies.size() + 1);
  for (const std::vector<int>& tokens : sequences) {
    std::vector<cached_run> done{runs.run_exact(tokens, shown)};
    for (const policy& p : policies) done.push_back(runs.run(tokens, p, measured_layers(model.shape().layers), shown));
    const int count = static_cast<int>(tokens.size());
    // The logits of all positions would take hundreds of megabytes, so a batch at a time.
    for (int first = first_compared(count, settings.mode); first < count; first += batch_positions) {
      compare_batch(model, pool, tokens, done, first, std::min(batch_positions, count - first), all);
    }
    for (std::size_t i = 0; i < done.size(); ++i) {
      all[i].folded_bytes += done[i].folded_bytes;
      all[i].folded_values += done[i].folded_values;
      all[i].exact_bytes += done[i].exact_bytes;
      for (const head_error& e : done[i].errors) {
        all[i].key.add(e.key, 1);
        all[i].value.add(e.value, 1);
        all[i].logit.add(e.logit, 1);
      }
    }
  }
  std::vector<text_result> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    out.push_back(finish(i == 0 ? "f32" : policies[i - 1].name, all[i], sequences.size()));
  }
  return out;
}

}  // namespace eval
