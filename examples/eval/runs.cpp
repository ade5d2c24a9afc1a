#include "runs.hpp"

#include <algorithm>
#include <kvaxis/eval/metrics.hpp>

namespace eval {
namespace {

using llm::matrix;

// What a layer was given, before the rotation.
struct recording {
  int layer;
  matrix queries, keys, values;
};

// All tokens of a layer, in steps whose result is that of one token at a time, but for a first chunk of `prefilled`.
matrix attend_in_steps(llm::layer_caches& caches, int layer, const matrix& queries, const matrix& keys,
                       const matrix& values, int prefilled) {
  const int count = static_cast<int>(queries.rows());
  matrix out(count, queries.cols());
  for (int first = 0; first < count;) {
    const bool in_prefill = first < prefilled;
    const int step = in_prefill ? prefilled : caches.step_size(count - first, layer);
    matrix q = queries.middleRows(first, step), k = keys.middleRows(first, step);
    out.middleRows(first, step) = caches.attend(layer, q, k, values.middleRows(first, step),
                                                in_prefill ? kvaxis::fold_mode::deferred : kvaxis::fold_mode::now);
    first += step;
  }
  return out;
}

// Rows first .. first + count - 1 of one head, each turned to its position.
matrix rotated_rows(const kvaxis::rope& rope, const matrix& rows, std::int64_t first, std::int64_t count, int head,
                    int dim) {
  matrix out = rows.block(first, head * dim, count, dim);
  for (Eigen::Index i = 0; i < count; ++i) kvaxis::rotate(rope, first + i, out.row(i).data());
  return out;
}

// Keys are compared and multiplied as they stand behind the rotation, whether the cache stores them so or not.
std::vector<head_error> measure(const kvaxis::any_kv_cache& cache, const recording& given) {
  const kvaxis::tile_format& format = *cache.format();
  const kvaxis::rope& rope = cache.config().rope;
  const int dim = format.head_dim, group = static_cast<int>(given.queries.cols() / given.keys.cols());
  const std::int64_t pins = cache.config().pins, folded = cache.folded_tokens();
  const std::int64_t first_query = given.queries.rows() - (given.queries.rows() + 7) / 8;
  const std::int64_t seen = std::min(folded, first_query - pins);  // by all of these queries
  std::vector<head_error> out;
  for (int head = 0; head < format.kv_heads && seen > 0; ++head) {
    matrix keys(folded, dim), values(folded, dim);
    for (Eigen::Index i = 0; i < folded; ++i) {
      kvaxis::check(cache.read_key(pins + i, head, keys.row(i).data()));
      kvaxis::check(cache.read_value(pins + i, head, values.row(i).data()));
      if (format.key_policy.rotation != kvaxis::post) kvaxis::rotate(rope, pins + i, keys.row(i).data());
    }
    const matrix exact_keys = rotated_rows(rope, given.keys, pins, folded, head, dim);
    matrix queries(0, dim);
    for (int h = head * group; h < (head + 1) * group; ++h) {
      const matrix more = rotated_rows(rope, given.queries, first_query, given.queries.rows() - first_query, h, dim);
      queries.conservativeResize(queries.rows() + more.rows(), dim);
      queries.bottomRows(more.rows()) = more;
    }
    out.push_back({kvaxis::relative_error(exact_keys, keys),
                   kvaxis::relative_error(given.values.block(pins, head * dim, folded, dim), values),
                   kvaxis::logit_error(queries, exact_keys.topRows(seen), keys.topRows(seen))});
  }
  return out;
}

}  // namespace

llm::cache_options runner::options(const policy& p) const {
  llm::cache_options out;
  out.policy = p.cache_policy;
  out.window = settings_.window;
  out.pins = settings_.pins;
  out.fold_before_attention = settings_.mode == prefill::folded;
  out.growth = settings_.growth;
  out.arithmetic = settings_.arithmetic;
  out.key_codec = p.key_codec;
  out.value_codec = p.value_codec;
  return out;
}

void runner::check(const policy& p) const { llm::layer_caches(model_.shape(), options(p), 0, pool_); }

cached_run runner::run(const std::vector<int>& tokens, const policy& p, const std::vector<int>& measured,
                       progress& shown) const {
  shown.begin(p.name);
  return run(tokens, options(p), p.simulated_bits, settings_.mode, measured, shown);
}

cached_run runner::run_exact(const std::vector<int>& tokens, progress& shown) const {
  llm::cache_options exact;
  exact.policy = "k:f32,v:f32";
  exact.window = static_cast<int>(tokens.size());
  shown.begin("f32");
  return run(tokens, exact, 0, prefill::streaming, {}, shown);
}

cached_run runner::run(const std::vector<int>& tokens, const llm::cache_options& options, double simulated_bits,
                       prefill mode, const std::vector<int>& measured, progress& shown) const {
  const llm::model_shape& shape = model_.shape();
  const int count = static_cast<int>(tokens.size()), prefilled = mode == prefill::one ? count / 2 : 0;
  llm::layer_caches caches(shape, options, count, pool_);
  std::vector<recording> recorded;
  cached_run out;
  out.states = model_.forward(tokens, [&](int layer, matrix& queries, matrix& keys, const matrix& values) {
    if (std::find(measured.begin(), measured.end(), layer) != measured.end()) {
      recorded.push_back({layer, queries, keys, values});
    }
    matrix attended = attend_in_steps(caches, layer, queries, keys, values, prefilled);
    shown.add(static_cast<double>(count) / shape.layers);
    return attended;
  });
  shown.end(count);
  for (int i = 0; i < shape.layers; ++i) {
    const kvaxis::any_kv_cache& cache = caches.sequence()[i];
    const double values = 2.0 * shape.kv_heads * shape.head_dim * static_cast<double>(cache.folded_tokens());
    out.folded_values += values;
    out.folded_bytes += simulated_bits > 0 ? values * simulated_bits / 8 : static_cast<double>(cache.bytes().folded);
    out.exact_bytes += static_cast<double>(cache.bytes().exact);
  }
  for (const recording& given : recorded) {
    const std::vector<head_error> errors = measure(caches.sequence()[given.layer], given);
    out.errors.insert(out.errors.end(), errors.begin(), errors.end());
  }
  return out;
}

}  // namespace eval
