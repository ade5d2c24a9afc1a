// The caches that the benchmarks read, and the counters.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <kvaxis/cache/make_cache.hpp>
#include <map>
#include <random>

#include "common.hpp"
#include "recent.hpp"

namespace bench {
namespace {

cache_set make_set(const shape& s) {
  const tokens& t = tokens_of(s.dim);
  cache_set set;
  std::size_t total = 0;
  do {
    kvaxis::any_kv_cache cache = make_cache(s, 0);
    const kvaxis::rows values = cache.format()->is_latent() ? kvaxis::rows() : kvaxis::rows(t.values.data());
    for (int done = 0; done < s.context; done += tokens::count) {
      kvaxis::check(cache.append(t.keys.data(), values, tokens::count));
    }
    kvaxis::check(cache.flush());
    total += cache.bytes().folded;
    set.layers.push_back(std::move(cache));
  } while (s.context >= memory_context && total < memory_set_bytes);
  return set;
}

}  // namespace

std::string shape::name(const char* kind, const char* isa) const {
  return std::string(kind) + "/" + isa + "/" + policy + "/heads:" + std::to_string(group) +
         "/dim:" + std::to_string(dim) + "/ctx:" + std::to_string(context);
}

const tokens& tokens_of(int dim) {
  static std::map<int, tokens> all;
  tokens& t = all[dim];
  if (!t.keys.empty()) return t;
  std::mt19937 bits(static_cast<unsigned>(dim));
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& x, int rows) {
    x.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(dim));
    std::generate(x.begin(), x.end(), [&] { return normal(bits); });
  };
  fill(t.keys, tokens::count * kv_heads);
  for (std::size_t i = 0; i < t.keys.size(); i += 2) t.keys[i] += 4.0F;
  fill(t.values, tokens::count * kv_heads);
  fill(t.queries, 128);
  return t;
}

kvaxis::any_kv_cache make_cache(const shape& s, int window) {
  kvaxis::cache_config c;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.dim;
  c.value_dim = s.value_dim;
  c.window = window;
  c.pins = 0;
  kvaxis::rope_parameters rope;
  rope.head_dim = s.dim;
  rope.first_channel = s.dim - s.rotary;
  kvaxis::check(kvaxis::make_rope(rope, c.rope));
  kvaxis::any_kv_cache cache;
  kvaxis::check(kvaxis::make_cache(s.policy, c, {}, cache));
  return cache;
}

kvaxis::attend_options options_of(const shape& s, kvaxis::arithmetic arithmetic) {
  kvaxis::attend_options o;
  o.query_heads = s.query_heads();
  o.scale = 1.0F / std::sqrt(static_cast<float>(s.dim));
  o.arithmetic = arithmetic;
  return o;
}

const cache_set& caches_of(const shape& s) {
  static recent<cache_set> sets(std::size_t{6} << 30);
  shape cached = s;
  cached.group = 0;
  return sets.get(cached.name(std::to_string(s.kv_heads).c_str(), ""), [&] {
    cache_set set = make_set(s);
    std::size_t bytes = 0;
    for (const kvaxis::any_kv_cache& c : set.layers) bytes += c.bytes().total();
    return std::make_pair(std::move(set), bytes);
  });
}

std::vector<std::vector<segment>> cache_set::segments(side s) const {
  std::vector<std::vector<segment>> all;
  for (const kvaxis::any_kv_cache& cache : layers) {
    const kvaxis::sequence_view view = cache.view();
    const kvaxis::tile_format& f = *view.format;
    std::vector<segment>& of_layer = all.emplace_back();
    for (int i = 0; i < view.entry_count; ++i) {
      const kvaxis::tile& t = *view.entries[i].tile;
      if (s == side::both) of_layer.push_back({t.key_block(0), static_cast<std::size_t>(f.kv_heads) * f.head_bytes});
      for (int h = 0; h < f.kv_heads && s == side::keys; ++h) of_layer.push_back({t.key_block(h), f.key.bytes});
      for (int h = 0; h < f.kv_heads && s == side::values; ++h) of_layer.push_back({t.value_block(h), f.value.bytes});
    }
  }
  return all;
}

std::size_t cache_set::bytes(side s) const {
  const kvaxis::tile_format& f = *layers[0].format();
  const std::size_t block = (s != side::values ? f.key.bytes : 0) + (s != side::keys ? f.value.bytes : 0);
  return block * static_cast<std::size_t>(f.kv_heads * layers[0].view().entry_count);
}

double cache_set::bits_per_value(side s) const {
  const kvaxis::tile_format& f = *layers[0].format();
  const int numbers = (s != side::values ? f.head_dim : 0) + (s != side::keys && !f.is_latent() ? f.value_dim : 0);
  return 8.0 * static_cast<double>(bytes(s)) / static_cast<double>(layers[0].size() * f.kv_heads * numbers);
}

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void set_counters(benchmark::State& state, const shape& s, const cache_set& set, side what, double seconds) {
  const double layer = seconds / static_cast<double>(state.iterations());
  state.counters["bytes/s"] = static_cast<double>(set.bytes(what)) / layer;
  state.counters["ns_per_key"] = 1e9 * layer / (static_cast<double>(s.context) * s.kv_heads);
  state.counters["bits_per_value"] = set.bits_per_value(what);
  // Measured right after the row's own loop: what disturbs one disturbs the other.
  state.counters["read_ratio"] = layer / read_seconds(set, what);
}

void set_accuracy(benchmark::State& state, const accuracy& a) {
  state.counters["error"] = a.error;
  state.counters["loss"] = a.loss;
}

bool failed(benchmark::State& state, const kvaxis::status& s) {
  if (!s.ok()) state.SkipWithError(s.argument);
  return !s.ok();
}

}  // namespace bench
