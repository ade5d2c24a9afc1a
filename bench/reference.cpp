// Attention in double, to say how accurate what was timed is.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>

#include "common.hpp"

namespace bench {
namespace {

constexpr int position = tokens::count;  // of the query, one behind the last key

using numbers = std::vector<double>;

// The row rotated to its position.
void rotate(int dim, int at, double* x) {
  for (int i = 0; i < dim / 2; ++i) {
    const double angle = at * std::pow(10000.0, -2.0 * i / dim);
    const double a = x[i];
    const double b = x[i + dim / 2];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + dim / 2] = a * std::sin(angle) + b * std::cos(angle);
  }
}

// One kv head's keys (rotated) and values, [token][dim].
struct rows_in_double {
  numbers keys;
  numbers values;
};

template <class ReadKey, class ReadValue>
rows_in_double read_all(int dim, ReadKey&& read_key, ReadValue&& read_value) {
  const auto d = static_cast<std::size_t>(dim);
  std::vector<float> row(d);
  rows_in_double r;
  for (int t = 0; t < tokens::count; ++t) {
    read_key(t, row.data());
    r.keys.insert(r.keys.end(), row.begin(), row.end());
    rotate(dim, t, r.keys.data() + static_cast<std::size_t>(t) * d);
    read_value(t, row.data());
    r.values.insert(r.values.end(), row.begin(), row.end());
  }
  return r;
}

// What a kernel is to bring for the query heads of kv head 0: logits, sums with the weights of weights_of(), or
// attention.
numbers expected(const rows_in_double& r, const float* queries, const std::vector<float>& weights, int group, int dim,
                 side what) {
  numbers out;
  numbers w(static_cast<std::size_t>(tokens::count));
  for (int h = 0; h < group; ++h) {
    numbers q(queries + h * dim, queries + (h + 1) * dim);
    rotate(dim, position, q.data());
    for (int t = 0; t < tokens::count; ++t) {
      double sum = 0;
      for (int c = 0; c < dim; ++c)
        sum += q[static_cast<std::size_t>(c)] * r.keys[static_cast<std::size_t>(t * dim + c)];
      w[static_cast<std::size_t>(t)] = sum / std::sqrt(static_cast<double>(dim));
    }
    if (what == side::keys) {
      out.insert(out.end(), w.begin(), w.end());
      continue;
    }
    double total = 0;
    for (double& x : w) total += x = std::exp(x);
    for (double& x : w) x /= total;
    if (what == side::values) w.assign(weights.begin() + h * tokens::count, weights.begin() + (h + 1) * tokens::count);
    for (int c = 0; c < dim; ++c) {
      double sum = 0;
      for (int t = 0; t < tokens::count; ++t)
        sum += w[static_cast<std::size_t>(t)] * r.values[static_cast<std::size_t>(t * dim + c)];
      out.push_back(sum);
    }
  }
  return out;
}

std::vector<float> computed(const kvaxis::any_kv_cache& cache, const float* queries, const std::vector<float>& weights,
                            int group, int dim, side what, kvaxis::arithmetic arithmetic) {
  kvaxis::attend_options o;
  o.query_heads = group * kv_heads;
  o.arithmetic = arithmetic;
  std::vector<std::byte> memory(cache.workspace_bytes(1, o));
  const kvaxis::workspace w{memory.data(), memory.size()};
  const auto heads = static_cast<std::size_t>(o.query_heads);
  std::vector<float> out(heads * static_cast<std::size_t>(std::max<int>(tokens::count, dim)));
  if (what == side::keys) {
    kvaxis::check(cache.scores(queries, 1, position, o, out.data(), w));
  } else if (what == side::values) {
    kvaxis::check(cache.weighted_sum(weights.data(), 1, o, out.data(), w));
  } else {
    kvaxis::check(cache.attend(queries, 1, position, o, out.data(), nullptr, w));
  }
  return out;
}

double mean_square(const numbers& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return sum / static_cast<double>(x.size());
}

accuracy measure(kvaxis::isa isa, const shape& s, side what, kvaxis::arithmetic arithmetic) {
  const tokens& t = tokens_of(s.dim);
  const kvaxis::any_kv_cache& cache = caches_of(s.policy, s.dim, tokens::count).layers[0];
  const auto row = [&](const std::vector<float>& x, int token, float* out) {
    std::copy_n(x.data() + static_cast<std::ptrdiff_t>(token) * kv_heads * s.dim, s.dim, out);
  };
  const rows_in_double original = read_all(
      s.dim, [&](int i, float* out) { row(t.keys, i, out); }, [&](int i, float* out) { row(t.values, i, out); });
  const rows_in_double decoded = read_all(
      s.dim, [&](int i, float* out) { kvaxis::check(cache.read_key(i, 0, out)); },
      [&](int i, float* out) { kvaxis::check(cache.read_value(i, 0, out)); });
  std::vector<float> weights(static_cast<std::size_t>(8 * kv_heads * tokens::count));
  std::copy_n(t.values.data(), weights.size(), weights.data());
  const numbers should = expected(decoded, t.queries.data(), weights, s.group, s.dim, what);
  const numbers unquantized = expected(original, t.queries.data(), weights, s.group, s.dim, what);
  kvaxis::set_isa(isa);
  const std::vector<float> is = computed(cache, t.queries.data(), weights, s.group, s.dim, what, arithmetic);
  accuracy a;
  numbers difference(should.size());
  for (std::size_t i = 0; i < should.size(); ++i) {
    a.error = std::max(a.error, std::fabs(static_cast<double>(is[i]) - should[i]));
    difference[i] = should[i] - unquantized[i];
  }
  a.error /= std::sqrt(mean_square(should));
  a.loss = std::sqrt(mean_square(difference) / mean_square(unquantized));
  return a;
}

}  // namespace

accuracy accuracy_of(kvaxis::isa isa, const shape& s, side what, kvaxis::arithmetic arithmetic) {
  static std::map<std::tuple<kvaxis::isa, std::string, side, kvaxis::arithmetic>, accuracy> known;
  const auto key = std::make_tuple(isa, shape{s.policy, s.group, s.dim, 0}.name("", ""), what, arithmetic);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known[key] = measure(isa, s, what, arithmetic);
}

bool check_kernels() {
  bool good = true;
  kvaxis::for_each_isa([&](kvaxis::isa isa) {
    for (const char* policy : policies) {
      for (const side what : {side::keys, side::values, side::both}) {
        for (const kvaxis::arithmetic arithmetic : {kvaxis::arithmetic::f32, kvaxis::arithmetic::automatic}) {
          const accuracy a = accuracy_of(isa, {policy, 4, 128, 0}, what, arithmetic);
          // Rounded queries and weights: a quarter of the codec's own error, root mean square; `error` is the largest.
          const double tolerance = arithmetic == kvaxis::arithmetic::f32 ? 2e-5 : 2e-5 + 1.25 * a.loss;
          if (a.error < tolerance) continue;
          std::fprintf(stderr, "kvaxis_bench: %s, %s: error %g against the double reference\n", isa_name(isa), policy,
                       a.error);
          good = false;
        }
      }
    }
  });
  return good;
}

}  // namespace bench
