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
void rotate(const shape& s, int at, double* x) {
  const int pairs = s.rotary / 2;
  x += s.dim - s.rotary;
  for (int i = 0; i < pairs; ++i) {
    const double angle = at * std::pow(10000.0, -2.0 * i / s.rotary);
    const double a = x[i];
    const double b = x[i + pairs];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + pairs] = a * std::sin(angle) + b * std::cos(angle);
  }
}

// One kv head's keys (rotated) and values, [token][dim] and [token][value_dim].
struct rows_in_double {
  numbers keys;
  numbers values;
};

template <class ReadKey, class ReadValue>
rows_in_double read_all(const shape& s, ReadKey&& read_key, ReadValue&& read_value) {
  std::vector<float> key(static_cast<std::size_t>(s.dim));
  std::vector<float> value(static_cast<std::size_t>(s.value_dim));
  rows_in_double r;
  for (int t = 0; t < tokens::count; ++t) {
    read_key(t, key.data());
    r.keys.insert(r.keys.end(), key.begin(), key.end());
    rotate(s, t, r.keys.data() + static_cast<std::size_t>(t) * key.size());
    read_value(t, value.data());
    r.values.insert(r.values.end(), value.begin(), value.end());
  }
  return r;
}

// What a kernel is to bring for the query heads of kv head 0: logits, sums with the weights of weights_of(), or
// attention.
numbers expected(const rows_in_double& r, const shape& s, const float* queries, const std::vector<float>& weights,
                 side what) {
  const int dim = s.dim;
  numbers out;
  numbers w(static_cast<std::size_t>(tokens::count));
  for (int h = 0; h < s.group; ++h) {
    numbers q(queries + h * dim, queries + (h + 1) * dim);
    rotate(s, position, q.data());
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
    for (int c = 0; c < s.value_dim; ++c) {
      double sum = 0;
      for (int t = 0; t < tokens::count; ++t)
        sum += w[static_cast<std::size_t>(t)] * r.values[static_cast<std::size_t>(t * s.value_dim + c)];
      out.push_back(sum);
    }
  }
  return out;
}

std::vector<float> computed(const kvaxis::any_kv_cache& cache, const shape& s, const float* queries,
                            const std::vector<float>& weights, side what, kvaxis::arithmetic arithmetic) {
  const kvaxis::attend_options o = options_of(s, arithmetic);
  std::vector<std::byte> memory(cache.workspace_bytes(1, o));
  const kvaxis::workspace w{memory.data(), memory.size()};
  const auto heads = static_cast<std::size_t>(o.query_heads);
  std::vector<float> out(heads * static_cast<std::size_t>(std::max<int>(tokens::count, s.value_dim)));
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
  shape filled_once = s;
  filled_once.context = tokens::count;
  const kvaxis::any_kv_cache& cache = caches_of(filled_once).layers[0];
  const auto row = [&](const std::vector<float>& x, int width, int token, int count, float* out) {
    std::copy_n(x.data() + static_cast<std::ptrdiff_t>(token) * s.kv_heads * width, count, out);
  };
  const bool latent = cache.format()->is_latent();
  const rows_in_double original = read_all(
      s, [&](int i, float* out) { row(t.keys, s.dim, i, s.dim, out); },
      [&](int i, float* out) { row(latent ? t.keys : t.values, latent ? s.dim : s.value_dim, i, s.value_dim, out); });
  const rows_in_double decoded = read_all(
      s, [&](int i, float* out) { kvaxis::check(cache.read_key(i, 0, out)); },
      [&](int i, float* out) { kvaxis::check(cache.read_value(i, 0, out)); });
  std::vector<float> weights(static_cast<std::size_t>(s.query_heads() * tokens::count));
  std::copy_n(t.values.data(), weights.size(), weights.data());
  const numbers should = expected(decoded, s, t.queries.data(), weights, what);
  const numbers unquantized = expected(original, s, t.queries.data(), weights, what);
  kvaxis::set_isa(isa);
  const std::vector<float> is = computed(cache, s, t.queries.data(), weights, what, arithmetic);
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
  std::vector<shape> shapes;
  for (const char* policy : policies) shapes.push_back({policy, 4, 128, 0});
  shapes.push_back({"k:int4-channel64-auto,v:latent", 16, 576, 0, 1, 512, 64});
  bool good = true;
  kvaxis::for_each_isa([&](kvaxis::isa isa) {
    for (const shape& s : shapes) {
      for (const side what : {side::keys, side::values, side::both}) {
        for (const kvaxis::arithmetic arithmetic : {kvaxis::arithmetic::f32, kvaxis::arithmetic::automatic}) {
          const accuracy a = accuracy_of(isa, s, what, arithmetic);
          // Rounded queries and weights: a quarter of the codec's own error, root mean square; `error` is the largest.
          const double tolerance = arithmetic == kvaxis::arithmetic::f32 ? 2e-5 : 2e-5 + 1.25 * a.loss;
          if (a.error < tolerance) continue;
          std::fprintf(stderr, "kvaxis_bench: %s, %s: error %g against the double reference\n", isa_name(isa), s.policy,
                       a.error);
          good = false;
        }
      }
    }
  });
  return good;
}

}  // namespace bench
