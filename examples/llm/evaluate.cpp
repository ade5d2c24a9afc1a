#include "evaluate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace llm {
namespace {

struct cached_run {
  matrix states;  // [token][embedding], behind the last layer
  double bits_per_value = 0;
  std::size_t cache_bytes = 0;
};

cached_run run(const model& model, thread_pool& pool, const std::vector<int>& tokens, const cache_options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const int count = static_cast<int>(tokens.size());
  layer_caches caches(model.shape(), options, count, pool);
  cached_run out;
  out.states = model.feed(tokens, caches);
  out.bits_per_value = caches.bits_per_value();
  out.cache_bytes = caches.bytes();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::fprintf(stderr, "%s: %d tokens in %.1f s, %.0f tokens/s\n", options.policy.c_str(), count, seconds.count(),
               count / seconds.count());
  return out;
}

// A row of logits as a distribution: probability(i) = exp(logits[i] - log_sum).
struct distribution {
  const float* logits;
  double log_sum;
  Eigen::Index best;

  distribution(const matrix& rows, Eigen::Index row) : logits(rows.row(row).data()), log_sum(0), best(0) {
    const double highest = rows.row(row).maxCoeff(&best);
    for (Eigen::Index i = 0; i < rows.cols(); ++i) log_sum += std::exp(static_cast<double>(logits[i]) - highest);
    log_sum = highest + std::log(log_sum);
  }
  [[nodiscard]] double log_probability(Eigen::Index i) const { return static_cast<double>(logits[i]) - log_sum; }
};

double divergence(const distribution& p, const distribution& q, Eigen::Index size) {
  double sum = 0;
  for (Eigen::Index i = 0; i < size; ++i) {
    const double log_p = p.log_probability(i);
    sum += std::exp(log_p) * (log_p - q.log_probability(i));
  }
  return sum;
}

// What one position adds to a run's sums.
struct position_result {
  double log_probability_of_next = 0, kl = 0;
  bool same_best = false;
};

}  // namespace

evaluation evaluate(const model& model, thread_pool& pool, const evaluation_request& request) {
  const auto count = static_cast<Eigen::Index>(request.tokens.size()), skipped = count / 4;
  std::vector<cache_options> caches;
  for (const std::string& policy : request.policies) {
    caches.push_back(
        {policy, request.window, request.pins, request.window == 0, request.growth, request.arithmetic, 0});
    layer_caches(model.shape(), caches.back(), 0, pool);  // a name that is wrong shows before the work begins
  }
  cache_options exact;
  exact.policy = "k:f32,v:f32";
  exact.window = static_cast<int>(count);
  std::vector<cached_run> runs{run(model, pool, request.tokens, exact)};
  for (const cache_options& options : caches) runs.push_back(run(model, pool, request.tokens, options));

  // The logits of all positions would take hundreds of megabytes, so a block of positions at a time, for all runs.
  std::vector<policy_result> sums(runs.size());
  constexpr Eigen::Index block = 64;
  for (Eigen::Index first = skipped; first < count; first += block) {
    const Eigen::Index rows = std::min(block, count - first);
    std::vector<matrix> logits;
    logits.reserve(runs.size());
    for (const cached_run& r : runs) logits.push_back(model.logits(r.states.middleRows(first, rows)));
    std::vector<position_result> positions(runs.size() * static_cast<std::size_t>(rows));
    pool(static_cast<int>(rows), [&](int row) {
      const distribution expected(logits[0], row);
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const distribution found = i == 0 ? expected : distribution(logits[i], row);
        position_result& out = positions[static_cast<std::size_t>(row) * runs.size() + i];
        out.same_best = found.best == expected.best;
        if (i != 0) out.kl = divergence(expected, found, logits[0].cols());
        const Eigen::Index next = first + row + 1;
        if (next < count)
          out.log_probability_of_next = found.log_probability(request.tokens[static_cast<std::size_t>(next)]);
      }
    });
    for (std::size_t i = 0; i < positions.size(); ++i) {
      policy_result& sum = sums[i % runs.size()];
      sum.kl_mean += positions[i].kl;
      sum.top1_agreement += positions[i].same_best ? 1 : 0;
      sum.perplexity -= positions[i].log_probability_of_next;
    }
  }

  const auto compared = static_cast<double>(count - skipped);
  evaluation out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    policy_result result = sums[i];
    result.kl_mean /= compared;
    result.top1_agreement /= compared;
    result.perplexity = std::exp(result.perplexity / (compared - 1));
    result.bits_per_value = runs[i].bits_per_value;
    result.cache_bytes = runs[i].cache_bytes;
    if (i == 0) {
      out.f32_perplexity = result.perplexity;
    } else {
      result.policy = request.policies[i - 1];
      out.results.push_back(result);
    }
  }
  return out;
}

void print_table(const evaluation_request& request, const evaluation& done) {
  std::printf("%zu tokens, window %d, %d pinned; perplexity with an f32 cache %.4f\n\n", request.tokens.size(),
              request.window, request.pins, done.f32_perplexity);
  std::printf("%-44s %9s %8s %11s %7s %10s\n", "policy", "KL (nats)", "same top", "perplexity", "bits", "cache MiB");
  for (const policy_result& r : done.results) {
    std::printf("%-44s %9.6f %6.2f %% %11.4f %7.3f %10.2f\n", r.policy.c_str(), r.kl_mean, 100 * r.top1_agreement,
                r.perplexity, r.bits_per_value, static_cast<double>(r.cache_bytes) / (1 << 20));
  }
}

void print_json(const evaluation_request& request, int token_offset, const evaluation& done) {
  std::printf("{\n  \"token_offset\": %d,\n  \"tokens\": %zu,\n  \"perplexity\": %.6f,\n  \"results\": [", token_offset,
              request.tokens.size(), done.f32_perplexity);
  for (std::size_t i = 0; i < done.results.size(); ++i) {
    const policy_result& r = done.results[i];
    // The names that make_cache accepts have no character that JSON would have to escape.
    std::printf(
        "%s\n    {\"policy\": \"%s\", \"window\": %d, \"pinned\": %d, \"kl_mean\": %.9g, \"top1_agreement\": %.6f,"
        " \"perplexity\": %.6f, \"bits_per_value\": %.6f, \"cache_bytes\": %zu}",
        i == 0 ? "" : ",", r.policy.c_str(), request.window, request.pins, r.kl_mean, r.top1_agreement, r.perplexity,
        r.bits_per_value, r.cache_bytes);
  }
  std::printf("\n  ]\n}\n");
}

}  // namespace llm
