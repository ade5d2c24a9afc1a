#include "calls.hpp"

#include <cstddef>

namespace test {
namespace {

std::vector<std::byte> workspace_for(const kvaxis::any_kv_cache& cache, int n_query, const kvaxis::attend_options& o) {
  return std::vector<std::byte>(cache.workspace_bytes(n_query, o));
}

// Room for `per_row` numbers for each query and head, full of a number that no call should leave there.
std::vector<float> unwritten(const kvaxis::any_kv_cache& cache, int n_query, const kvaxis::attend_options& o,
                             std::int64_t per_row) {
  const int heads = o.query_heads == 0 ? cache.format()->kv_heads : o.query_heads;
  return std::vector<float>(static_cast<std::size_t>(n_query * per_row * heads), 12345.0F);
}

}  // namespace

attention attend(const kvaxis::any_kv_cache& cache, const std::vector<float>& q, int n_query,
                 std::int64_t first_position, const kvaxis::attend_options& o, const kvaxis::parallel_for& parallel) {
  std::vector<std::byte> memory = workspace_for(cache, n_query, o);
  attention a{unwritten(cache, n_query, o, cache.format()->value_dim), unwritten(cache, n_query, o, 1)};
  kvaxis::check(cache.attend(q.data(), n_query, first_position, o, a.out.data(), a.lse.data(),
                             {memory.data(), memory.size()}, parallel));
  return a;
}

std::vector<float> scores(const kvaxis::any_kv_cache& cache, const std::vector<float>& q, int n_query,
                          std::int64_t first_position, const kvaxis::attend_options& o) {
  std::vector<std::byte> memory = workspace_for(cache, n_query, o);
  std::vector<float> out = unwritten(cache, n_query, o, cache.size());
  kvaxis::check(cache.scores(q.data(), n_query, first_position, o, out.data(), {memory.data(), memory.size()}));
  return out;
}

std::vector<float> weighted_sum(const kvaxis::any_kv_cache& cache, const std::vector<float>& weights, int n_query,
                                const kvaxis::attend_options& o) {
  std::vector<std::byte> memory = workspace_for(cache, n_query, o);
  std::vector<float> out = unwritten(cache, n_query, o, cache.format()->value_dim);
  kvaxis::check(cache.weighted_sum(weights.data(), n_query, o, out.data(), {memory.data(), memory.size()}));
  return out;
}

}  // namespace test
