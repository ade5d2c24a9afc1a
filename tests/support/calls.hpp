// The calls of a cache with a workspace of their own, for tests that look at results and not at memory. Compiled once,
// in calls.cpp.
#pragma once

#include <cstdint>
#include <kvaxis/cache/any_kv_cache.hpp>
#include <vector>

namespace test {

// Sums in f32, whose results are compared with double; what integers add is measured in tests of their own.
inline kvaxis::attend_options exact() {
  kvaxis::attend_options o;
  o.arithmetic = kvaxis::arithmetic::f32;
  return o;
}

struct attention {
  std::vector<float> out;  // [query][query_head][value_dim]
  std::vector<float> lse;  // [query][query_head]
};
attention attend(const kvaxis::any_kv_cache& cache, const std::vector<float>& q, int n_query,
                 std::int64_t first_position, const kvaxis::attend_options& o = exact(),
                 const kvaxis::parallel_for& parallel = {});

// [query][query_head][token]
std::vector<float> scores(const kvaxis::any_kv_cache& cache, const std::vector<float>& q, int n_query,
                          std::int64_t first_position, const kvaxis::attend_options& o = exact());

// [query][query_head][value_dim]
std::vector<float> weighted_sum(const kvaxis::any_kv_cache& cache, const std::vector<float>& weights, int n_query,
                                const kvaxis::attend_options& o = exact());

}  // namespace test
