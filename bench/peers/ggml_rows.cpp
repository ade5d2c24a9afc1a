#include "rows.hpp"

#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "ggml_attention.hpp"

namespace bench {
namespace {

constexpr const char* isa = KVAXIS_PEERS_ISA;

constexpr ggml_types f16{"f16", GGML_TYPE_F16, GGML_TYPE_F16};
constexpr ggml_types equal_types[] = {
    f16, {"q8_0", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0}, {"q4_0", GGML_TYPE_Q4_0, GGML_TYPE_Q4_0}};
// What llama.cpp allows without flash attention: the new token's value is a column of a transposed cache, and 32 numbers of
// a row share a block. A finished cache can be quantized so, and the rows with equal types say what that would bring.
constexpr ggml_types mixed_types[] = {{"q8_0,f16", GGML_TYPE_Q8_0, GGML_TYPE_F16},
                                      {"q4_0,f16", GGML_TYPE_Q4_0, GGML_TYPE_F16}};

constexpr const char* path_names[] = {"ggml_flash", "ggml_mul_mat", "ggml_flash_by_head", "ggml_grouped"};

std::string kind_of(const ggml_case& c) {
  return std::string(path_names[static_cast<int>(c.path)]) + (c.n_query > 1 ? "_prefill" : "");
}

std::string name_of(const ggml_case& c) {
  return shape{c.types.name, c.group, ggml_dim, c.context}.name(kind_of(c).c_str(), isa);
}

template <class F>
void for_each_type(ggml_path path, F&& f) {
  for (const ggml_types& t : equal_types) f(t);
  if (is_flash(path)) return;
  for (const ggml_types& t : mixed_types) f(t);
}

// Every path and type for one token, and f16 for a prompt.
template <class F>
void for_each_case(int context, int n_query, F&& f) {
  for (const int group : query_groups) {
    for (const ggml_path path : {ggml_path::flash, ggml_path::mul_mat, ggml_path::flash_by_head, ggml_path::grouped}) {
      if (path == ggml_path::grouped && n_query > 1) continue;
      for_each_type(path, [&](const ggml_types& types) {
        if (n_query == 1 || types.name == f16.name) f(ggml_case{path, types, group, context, n_query});
      });
    }
  }
}

// Attention of one query in double, over [token][kv head][dim].
std::vector<double> attention(const std::vector<float>& keys, const std::vector<float>& values, int tokens, int kv_head,
                              const float* q) {
  const auto row = [&](const std::vector<float>& x, int t) { return x.data() + (t * kv_heads + kv_head) * ggml_dim; };
  std::vector<double> out(ggml_dim);
  double total = 0;
  for (int t = 0; t < tokens; ++t) {
    double logit = 0;
    for (int c = 0; c < ggml_dim; ++c) logit += static_cast<double>(q[c]) * static_cast<double>(row(keys, t)[c]);
    const double weight = std::exp(logit / std::sqrt(static_cast<double>(ggml_dim)));
    total += weight;
    for (int c = 0; c < ggml_dim; ++c)
      out[static_cast<std::size_t>(c)] += weight * static_cast<double>(row(values, t)[c]);
  }
  for (double& x : out) x /= total;
  return out;
}

// As for our own kernels (see `accuracy`), of one layer of tokens::count tokens.
accuracy measure(ggml_case c) {
  c.context = tokens::count;
  const tokens& t = tokens_of(ggml_dim);
  const std::vector<float> keys = decoded(keys_of(c));
  const std::vector<float> values = decoded(values_of(c));
  const std::vector<float> queries = queries_of(c.group, c.n_query);
  ggml_attention peer(c);
  accuracy a;
  if (!peer.run(0)) return {INFINITY, INFINITY};
  const int heads = c.group * kv_heads;
  double square = 0;
  double lost_square = 0;
  double original_square = 0;
  int count = 0;
  for (int i = 0; i < c.n_query; i += 73) {
    for (int h = 0; h < heads; ++h) {
      const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(i * heads + h) * ggml_dim;
      const int visible = c.context - c.n_query + i + 1;
      const std::vector<double> should = attention(keys, values, visible, h / c.group, queries.data() + at);
      const std::vector<double> original = attention(t.keys, t.values, visible, h / c.group, queries.data() + at);
      for (std::size_t k = 0; k < should.size(); ++k, ++count) {
        a.error = std::max(a.error,
                           std::fabs(static_cast<double>(peer.out()[at + static_cast<std::ptrdiff_t>(k)]) - should[k]));
        square += should[k] * should[k];
        lost_square += (should[k] - original[k]) * (should[k] - original[k]);
        original_square += original[k] * original[k];
      }
    }
  }
  a.error /= std::sqrt(square / count);
  a.loss = std::sqrt(lost_square / original_square);
  return a;
}

accuracy accuracy_of(const ggml_case& c) {
  static std::map<std::string, accuracy> known;
  ggml_case any_context = c;
  any_context.context = 0;
  const std::string key = name_of(any_context);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known[key] = measure(c);
}

void register_row(const ggml_case& c) {
  benchmark::RegisterBenchmark(name_of(c).c_str(), [c](benchmark::State& state) {
    const accuracy a = accuracy_of(c);
    ggml_attention peer(c);
    std::size_t i = 0;
    const double start = thread_seconds();
    for (auto _ : state) {
      if (!peer.run(i++)) return state.SkipWithError("ggml_graph_compute");
      benchmark::DoNotOptimize(peer.out());
      benchmark::ClobberMemory();
    }
    const double layer = (thread_seconds() - start) / static_cast<double>(state.iterations());
    const double keys = static_cast<double>(c.context) * kv_heads;
    state.counters["bytes/s"] = static_cast<double>(peer.layer_bytes()) / layer;
    state.counters["ns_per_key"] = 1e9 * layer / keys;
    state.counters["bits_per_value"] = 8.0 * static_cast<double>(peer.layer_bytes()) / (keys * 2 * ggml_dim);
    set_accuracy(state, a);
  });
}

}  // namespace

void register_ggml() {
  for (const int context : contexts) for_each_case(context, 1, register_row);
  for_each_case(prefill_context, prefill_queries, register_row);
  for (const int context : curve_contexts) for_each_case(context, 1, register_row);
}

bool check_ggml() {
  bool good = true;
  for (const int n_query : {1, prefill_queries}) {
    for_each_case(tokens::count, n_query, [&](const ggml_case& c) {
      constexpr double tolerance = 0.1;  // ggml adds in f16, or takes queries and weights in 8 bits
      const double error = accuracy_of(c).error;
      if (error < tolerance) return;
      std::fprintf(stderr, "kvaxis_peers: %s: error %g against the double reference\n", name_of(c).c_str(), error);
      good = false;
    });
  }
  return good;
}

}  // namespace bench
